#include "sim/static_order.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/cost/cells.hpp"
#include "sim/dependencies.hpp"
#include "sim/run_length.hpp"
#include "sim/stream_links.hpp"

namespace pipewright::sim {
namespace {

// Inside the engine the clock begins at 1, so that the zero pages of a fresh allocation mean "has not arrived yet".
constexpr std::int64_t kNotArrived = 0;
constexpr std::int64_t kClockBegin = 1;
constexpr std::int64_t kNotThere = std::numeric_limits<std::int64_t>::min();

Time outside(std::int64_t clock) {
  return {clock - kClockBegin};
}

// One collective: it begins when its last member is ready.
struct MeetingClock {
  std::int64_t ready = kClockBegin;  // latest of the members so far
  std::int32_t joined = 0;
  std::int64_t end = kNotArrived;
};

// Zeroed memory from calloc: pages that are never touched are never paid for.
class Arrivals {
 public:
  explicit Arrivals(std::size_t count)
      : data_(static_cast<std::int64_t*>(std::calloc(count + 1, sizeof(std::int64_t)))) {
    if (data_ == nullptr) throw std::bad_alloc();
  }
  ~Arrivals() { std::free(data_); }
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;
  std::int64_t* at(std::size_t index) { return data_ + index; }

 private:
  std::int64_t* data_;
};

// Runs every worker as far as it gets, parks it on the arrival that it lacks, and wakes it when that arrival is known.
// `Record` keeps the times of ops and transfers.
//
// The usual virtual stage has one edge in, one edge out and one holder: a `Side` holds all that its
// forwards or backwards touch, and the ends of the pipeline have sides onto dummies, so that the hot path has no branch
// for them. Replicas, skips, split backwards and ragged last micro-batches take the general path.
template <bool Record>
class Relaxation {
 public:
  Relaxation(const Schedule& schedule, const StepCosts& costs) : schedule_(schedule), costs_(costs) {
    check_run_length(schedule, costs);
    channel_free_.assign(at(costs.channels), kClockBegin);
    lanes_.resize(workers_ + 1);  // the last one receives what nobody waits for
    prepare_sides();
    for (std::size_t w = 0; w < workers_; ++w) {
      LaneState& lane = lanes_[w];
      lane.next = ops_of(w).compute.data();
      lane.end = lane.next + ops_of(w).compute.size();
      lane.worker = static_cast<WorkerId>(w);
      lane.copy = static_cast<CopyId>(w / positions());
      lane.sides = &sides_[2 * (w / positions()) * wiring_.chunks.size()];
    }
    runnable_.reserve(4 * workers_ + 16);
    prepare_streams();
    if constexpr (Record) prepare_record();
  }

  Time run() {
    for (std::size_t w = workers_; w-- > 0;)
      runnable_.push_back(&lanes_[w]);
    while (!runnable_.empty()) {
      LaneState& lane = *runnable_.back();
      runnable_.pop_back();
      advance(lane);
    }
    std::int64_t makespan = kClockBegin;
    for (std::size_t w = 0; w < workers_; ++w) {
      const LaneState& lane = lanes_[w];
      if (costs_.together && lane.next != lane.end) throw cells_wait(lane, *lane.next);
      PP_CHECK(lane.next == lane.end);
      makespan = std::max(makespan, lane.time);
    }
    for (const Stream& stream : streams_) {
      PP_CHECK(stream.next == stream.ready.size());
      makespan = std::max(makespan, stream.time);
    }
    return outside(makespan);
  }

  Timeline timeline(Time makespan) {
    return {.workers = std::move(times_),
            .transfers = std::move(transfers_),
            .makespan = makespan,
            .engine = EngineRan::StaticOrder,
            .engine_reason = "every worker's order is fixed"};
  }

 private:
  struct Side;
  struct LaneState;
  // Op by op the order can be run, but the ops of a cell begin together.
  static InputError cells_wait(const LaneState& lane, const Op& first) {
    return InputError(
        fmt::format("plan.pairs: fused: the cell of {} on worker {} waits for itself, as its ops begin "
                    "together; write serial, or part them in the schedule",
                    label(first), lane.worker));
  }
  struct alignas(64) LaneState {
    const Op* next = nullptr;  // next compute op
    const Op* end = nullptr;
    std::int64_t time = kClockBegin;          // end of the last compute op
    const std::int64_t* waits_for = nullptr;  // parked on this arrival
    const Side* sides = nullptr;              // of its copy: [2 * virtual stage + direction]
    WorkerId worker = 0;
    CopyId copy = 0;
    std::size_t next_transfer = 0;  // where its next transfer is recorded
    const Op* stop = nullptr;       // the next op with a gate or a trigger; the end where there is none
    const StreamLinks* links = nullptr;
    std::size_t next_gate = 0, next_trigger = 0;
    bool gated = false;  // parked on a collective
  };
  // A communication stream of a worker. Members of a group have the same list, so that an op's place in it names the
  // meeting; but of tables each may have other holders.
  struct Stream {
    std::size_t next = 0;              // op
    std::int64_t time = kClockBegin;   // end of the last one
    bool joined = false;               // the next one counts this worker as ready
    MeetingClock* meetings = nullptr;  // of the group
    std::vector<std::int64_t> ready;   // per op: when the worker's part of it is complete
  };

  std::size_t positions() const { return schedule_.positions.size(); }
  const Lane& ops_of(std::size_t worker) const { return schedule_.lane_of(WorkerId{worker}); }
  std::size_t micro_batches() const { return at(schedule_.shape.micro_batches); }

  // What the forwards (or the fused backwards) of one virtual stage of one copy read and write: one cache line.
  struct alignas(64) Side {
    const std::int64_t* needs = nullptr;  // arrivals: [m & needs_mask]; nullptr: take the general path
    std::int64_t* gives = nullptr;        // where the arrival of the output goes: [m & gives_mask]
    std::int64_t* channel = nullptr;      // when the channel is free again
    LaneState* receiver = nullptr;
    std::int64_t duration = 0, occupancy = 0, latency = 0;
    std::uint32_t needs_mask = 0, gives_mask = 0;
  };

  std::int64_t* row(Direction direction, std::size_t edge, CopyId copy) {
    const auto index = edge * at(wiring_.copies) + at(copy);
    return arrivals_.at((at(direction) * rows_ + index) * micro_batches());
  }
  std::int64_t* slot(Direction direction, std::size_t edge, CopyId copy, MicroBatchId m) {
    return row(direction, edge, copy) + m;
  }

  void prepare_sides() {
    const auto chunks = wiring_.chunks.size();
    sides_.resize(2 * chunks * at(wiring_.copies));
    dummy_channels_.assign(sides_.size(), kClockBegin);
    if (costs_.together || !costs_.settled.empty() || !costs_.slices.empty() ||
        costs_.duration_last != costs_.duration || wiring_.replicated || last_messages_differ())
      return;
    for (CopyId copy = 0; copy < wiring_.copies; ++copy)
      for (std::size_t v = 0; v < chunks; ++v) {
        const Wiring::Chunk& chunk = wiring_.chunks[v];
        if (chunk.in.size() > 1 || chunk.out.size() > 1) continue;
        const std::size_t index = 2 * (at(copy) * chunks + v);
        prepare_side(index, Direction::Forward, v, copy, chunk.in, chunk.out, Kind::F);
        prepare_side(index + 1, Direction::Backward, v, copy, chunk.out, chunk.in, Kind::BW);
      }
  }

  bool last_messages_differ() const {
    return !std::equal(costs_.messages.begin(), costs_.messages.end(), costs_.messages_last.begin(),
                       costs_.messages_last.end(), [](const Message& a, const Message& b) {
                         return a.occupancy == b.occupancy && a.latency == b.latency && a.channel == b.channel;
                       });
  }

  void prepare_side(std::size_t index, Direction direction, std::size_t v, CopyId copy,
                    const std::vector<std::uint32_t>& from, const std::vector<std::uint32_t>& to, Kind kind) {
    Side& side = sides_[index];
    side.needs = from.empty() ? &kClockBegin : row(direction, from.front(), copy);
    side.needs_mask = from.empty() ? 0 : ~0u;
    side.gives = to.empty() ? arrivals_.at(2 * rows_ * micro_batches()) : row(direction, to.front(), copy);
    side.gives_mask = to.empty() ? 0 : ~0u;
    side.channel = &dummy_channels_[index];
    side.receiver = &lanes_.back();
    side.duration = costs_.duration[v * kKinds + at(kind)].value;
    if (to.empty()) return;
    const Message& message = costs_.message(to.front(), direction, copy, 0);
    side.receiver = &lanes_[at(wiring_.receiver(costs_.edges[to.front()], direction, copy, 0))];
    if (message.channel < 0) return;
    side.channel = &channel_free_[at(message.channel)];
    side.occupancy = message.occupancy.value;
    side.latency = message.latency.value;
  }

  void advance(LaneState& lane) {
    do {
      run_compute(lane);
    } while (communicates_ && run_streams(lane.worker) && lane.gated);
  }

  void run_compute(LaneState& lane) {
    const Side* const sides = lane.sides;
    const Op* const end = lane.end;
    const Op *next = lane.next, *stop = lane.stop;
    std::int64_t time = lane.time;
    lane.gated = false;
    for (; next != end; ++next) {
      const bool backward = next->kind == Kind::BW;
      const Side& side = sides[2u * next->virtual_stage + backward];
      if ((next->kind != Kind::F && !backward) || side.needs == nullptr || next == stop) {
        const std::size_t ran = run_general(lane, *next, time);
        if (ran == 0) break;
        next += ran - 1;
        stop = lane.stop;
        continue;
      }
      const std::int64_t* const needed = &side.needs[next->micro_batch & side.needs_mask];
      if (*needed == kNotArrived) {
        lane.waits_for = needed;
        break;
      }
      const std::int64_t start = std::max(time, *needed);
      time = start + side.duration;
      const std::int64_t wire = std::max(*side.channel, time);
      const std::int64_t sent = wire + side.occupancy;
      *side.channel = sent;
      std::int64_t* const target = &side.gives[next->micro_batch & side.gives_mask];
      *target = sent + side.latency;
      LaneState& receiver = *side.receiver;
      if (receiver.waits_for == target) {
        receiver.waits_for = nullptr;
        if (&receiver != &lane) runnable_.push_back(&receiver);
      }
      if constexpr (Record) {
        record(lane, *next, start, time);
        record_message(lane, *next, backward, time, wire, sent);
      }
    }
    lane.next = next;
    lane.time = time;
  }

  void record(const LaneState& lane, const Op& op, std::int64_t start, std::int64_t end) {
    const auto worker = at(lane.worker);
    times_[worker].compute[at(&op - ops_of(worker).compute.data())] = {outside(start), outside(end)};
  }

  void record_message(LaneState& lane, const Op& op, bool backward, std::int64_t posted, std::int64_t wire,
                      std::int64_t sent) {
    const CopyId copy = lane.copy;
    const WorkerId worker = lane.worker;
    const auto direction = backward ? Direction::Backward : Direction::Forward;
    const Wiring::Chunk& chunk = wiring_.chunks[op.virtual_stage];
    const auto& edges = backward ? chunk.in : chunk.out;
    if (edges.empty()) return;
    const auto m = static_cast<MicroBatchId>(op.micro_batch);
    const Message& message = costs_.message(edges.front(), direction, copy, m);
    if (message.channel < 0) return;
    const WorkerId to = wiring_.receiver(costs_.edges[edges.front()], direction, copy, m);
    transfers_[lane.next_transfer++] = {edges.front(),
                                        direction,
                                        m,
                                        worker,
                                        to,
                                        message.bytes,
                                        outside(posted),
                                        outside(wire),
                                        outside(sent),
                                        outside(sent + message.latency.value)};
  }

  // Any op or cell of ops, any wiring: how many have run. None, and the lane parked, when something that they need is
  // missing.
  std::size_t run_general(LaneState& lane, const Op& first, std::int64_t& time) {
    const std::span<const Op> cell = cell_of(costs_, {&first, lane.end});
    std::int64_t ready = kClockBegin;
    if (cell.size() > 1 && waits_for_itself(cell)) throw cells_wait(lane, first);
    for (const Op& op : cell)
      if (!is_ready(lane, op, ready)) return 0;
    const std::int64_t start = std::max(time, ready);
    if (cell.size() == 1) {
      time = start + costs_.time_of(first).value;
      finish(lane, first, start, time, time);
      return 1;
    }
    const std::vector<Time> ends = ends_in_cell(costs_, cell);
    time = start + ends.back().value;
    std::int64_t from = start;
    for (std::size_t i = 0; i < cell.size(); ++i) {
      finish(lane, cell[i], from, start + ends[i].value, time);
      from = start + ends[i].value;
    }
    return cell.size();
  }

  // A backward needs the forward of its own chunk and micro-batch to be over.
  static bool waits_for_itself(std::span<const Op> cell) {
    return std::ranges::any_of(cell, [&](const Op& a) {
      return rule(a.kind).forward && std::ranges::any_of(cell, [&](const Op& b) {
               return rule(b.kind).backward && a.virtual_stage == b.virtual_stage && a.micro_batch == b.micro_batch;
             });
    });
  }

  bool is_ready(LaneState& lane, const Op& op, std::int64_t& ready) {
    const auto m = static_cast<MicroBatchId>(op.micro_batch);
    const Wiring::Chunk& chunk = wiring_.chunks[op.virtual_stage];
    if (&op == lane.stop && !passes_gates(lane, op, ready)) return false;
    if (rule(op.kind).forward) return arrivals(Direction::Forward, chunk.in, lane.copy, m, lane, ready);
    if (rule(op.kind).backward) return arrivals(Direction::Backward, chunk.out, lane.copy, m, lane, ready);
    return true;
  }

  // The op has run; what it gives goes on its way at `sent`.
  void finish(LaneState& lane, const Op& op, std::int64_t start, std::int64_t end, std::int64_t sent) {
    const auto m = static_cast<MicroBatchId>(op.micro_batch);
    const Wiring::Chunk& chunk = wiring_.chunks[op.virtual_stage];
    if constexpr (Record) record(lane, op, start, end);
    if (rule(op.kind).forward) {
      for (const std::uint32_t edge : chunk.out)
        post(lane.worker, lane, Direction::Forward, edge, lane.copy, m, sent);
    } else if (rule(op.kind).backward) {
      for (const std::uint32_t edge : chunk.in)
        post(lane.worker, lane, Direction::Backward, edge, lane.copy, m, sent);
    }
    if (&op == lane.stop) trigger(lane, op, start, end);
  }

  // Latest arrival over `edges`; false, and the lane parked, when one is still missing.
  bool arrivals(Direction direction, std::span<const std::uint32_t> edges, CopyId copy, MicroBatchId m, LaneState& lane,
                std::int64_t& ready) {
    for (const std::uint32_t edge : edges) {
      const std::int64_t* const arrived = slot(direction, edge, copy, m);
      if (*arrived == kNotArrived) {
        lane.waits_for = arrived;
        return false;
      }
      ready = std::max(ready, *arrived);
    }
    return true;
  }

  void post(WorkerId worker, LaneState& lane, Direction direction, std::uint32_t edge, CopyId copy, MicroBatchId m,
            std::int64_t time) {
    const Message& message = costs_.message(edge, direction, copy, m);
    std::int64_t arrived = time;
    const WorkerId to = wiring_.receiver(costs_.edges[edge], direction, copy, m);
    if (message.channel >= 0) {
      std::int64_t& free = channel_free_[at(message.channel)];
      const std::int64_t start = std::max(free, time);
      free = start + message.occupancy.value;
      arrived = free + message.latency.value;
      if constexpr (Record)
        transfers_[lane.next_transfer++] = {
            edge,          direction,       m, worker, to, message.bytes, outside(time), outside(start),
            outside(free), outside(arrived)};
    }
    std::int64_t* const target = slot(direction, edge, copy, m);
    *target = arrived;
    LaneState& receiver = lanes_[at(to)];
    if (receiver.waits_for == target) {
      receiver.waits_for = nullptr;
      if (to != worker) runnable_.push_back(&receiver);
    }
  }

  // --- communication streams ---------------------------------------------------------------------------------------

  void prepare_streams() {
    for (PositionId position = 0; position < wiring_.positions; ++position)
      stream_links_.push_back(stream_links(schedule_, position));
    constexpr std::size_t kNotYet = std::numeric_limits<std::size_t>::max();
    std::vector<std::size_t> first(kStreams.size() * wiring_.groups(), kNotYet);  // meeting, by group and stream
    const auto first_of = [&](std::size_t w, StreamId s) -> std::size_t& {
      return first[kStreams.size() * wiring_.group(ops_of(w).communication[s].front(), static_cast<WorkerId>(w)) + s];
    };
    std::size_t meetings = schedule_.shape.tied.size();  // of tables come first
    for (std::size_t w = 0; w < workers_; ++w)
      for (StreamId s = 0; s < kStreams.size(); ++s)
        if (const auto& ops = ops_of(w).communication[s]; !ops.empty() && first_of(w, s) == kNotYet)
          first_of(w, s) = std::exchange(meetings, meetings + ops.size());
    communicates_ = meetings > 0;
    meetings_.resize(meetings);
    streams_.resize(kStreams.size() * workers_);
    for (std::size_t w = 0; w < workers_; ++w) {
      LaneState& lane = lanes_[w];
      lane.links = &stream_links_[w % positions()];
      find_stop(lane);
      for (StreamId s = 0; s < kStreams.size(); ++s) {
        Stream& stream = streams_[kStreams.size() * w + s];
        if (!ops_of(w).communication[s].empty()) stream.meetings = meetings_.data() + first_of(w, s);
        for (const char waits : lane.links->waits[s])
          stream.ready.push_back(waits ? kNotThere : kClockBegin);
      }
    }
  }

  void find_stop(LaneState& lane) const {
    const Op* const ops = ops_of(at(lane.worker)).compute.data();
    lane.stop = lane.end;
    const auto earlier = [&](const auto& links, std::size_t next) {
      if (next < links.size()) lane.stop = std::min(lane.stop, ops + links[next].op);
    };
    earlier(lane.links->gates, lane.next_gate), earlier(lane.links->triggers, lane.next_trigger);
  }

  // False, and the lane parked, while communication that the op needs is not over.
  bool passes_gates(LaneState& lane, const Op& op, std::int64_t& ready) {
    const auto& gates = lane.links->gates;
    for (std::size_t i = lane.next_gate; i < gates.size() && is_op(lane, gates[i].op, op); ++i) {
      const Stream& stream = streams_[kStreams.size() * at(lane.worker) + gates[i].stream];
      lane.gated = stream.next < gates[i].count;
      if (lane.gated) return false;
      ready = std::max(ready, meeting(lane.worker, gates[i].stream, gates[i].count - 1).end);
    }
    return true;
  }
  MeetingClock& meeting(WorkerId worker, StreamId s, std::size_t op) {
    if (kStreams[s].among == Among::Tied) return meetings_[ops_of(at(worker)).communication[s][op].bucket];
    return streams_[kStreams.size() * at(worker) + s].meetings[op];
  }
  bool is_op(const LaneState& lane, std::uint32_t index, const Op& op) const {
    return ops_of(at(lane.worker)).compute.data() + index == &op;
  }

  // The op has run: lets ops of the streams begin, and looks for the next with a gate or a trigger.
  void trigger(LaneState& lane, const Op& op, std::int64_t start, std::int64_t end) {
    const auto& triggers = lane.links->triggers;
    const auto& gates = lane.links->gates;
    const auto worker = at(lane.worker);
    while (lane.next_gate < gates.size() && is_op(lane, gates[lane.next_gate].op, op))
      ++lane.next_gate;
    for (; lane.next_trigger < triggers.size() && is_op(lane, triggers[lane.next_trigger].op, op);
         ++lane.next_trigger) {
      const StreamLinks::Trigger& link = triggers[lane.next_trigger];
      streams_[kStreams.size() * worker + link.stream].ready[link.communication] =
          link.ready(costs_, op, ops_of(worker).communication[link.stream][link.communication], start, end);
    }
    find_stop(lane);
  }

  // True when at least one collective of this worker came to its end.
  bool run_streams(WorkerId worker) {
    bool any = false;
    for (const StreamId s : {kReductions, kTables, kOut, kIn, kGathers})  // each behind those whose ops it waits for
      any |= run_stream(worker, s);
    return any;
  }
  bool run_stream(WorkerId worker, StreamId s) {
    const auto& ops = ops_of(at(worker)).communication[s];
    Stream& stream = streams_[kStreams.size() * at(worker) + s];
    const std::size_t before = stream.next;
    for (; stream.next < ops.size(); ++stream.next, stream.joined = false) {
      const Op& op = ops[stream.next];
      MeetingClock& met = meeting(worker, s, stream.next);
      if (!stream.joined) {
        const std::int64_t ready = stream.ready[stream.next];
        if (ready == kNotThere || !others_are_over(worker, s, stream.next, met.ready)) break;
        met.ready = std::max({met.ready, ready, stream.time});
        stream.joined = true;
        if (++met.joined == wiring_.members(op)) {
          met.end = met.ready + costs_.collective(op, worker / wiring_.positions).time.value;
          wake_members(worker, op);
        }
      }
      if (met.end == kNotArrived) break;
      stream.time = met.end;
      if constexpr (Record) times_[at(worker)].communication[s][stream.next] = {outside(met.ready), outside(met.end)};
    }
    return stream.next != before;
  }

  // Whether what the op waits for on other streams is over; then `ready` is not before that.
  bool others_are_over(WorkerId worker, StreamId s, std::size_t op, std::int64_t& ready) {
    const auto& after = lanes_[at(worker)].links->after[s];
    if (after.empty()) return true;
    const auto [count, other] = after[op];
    const Stream& stream = streams_[kStreams.size() * at(worker) + other];
    if (stream.next < count) return false;
    ready = std::max(ready, meeting(worker, other, count - 1).end);
    return true;
  }

  void wake_members(WorkerId worker, const Op& op) {
    wiring_.for_each_member(op, worker, [&](WorkerId member) {
      if (member != worker) runnable_.push_back(&lanes_[at(member)]);
    });
  }

  // --- record ------------------------------------------------------------------------------------------------------

  void prepare_record() {
    times_.resize(workers_);
    for (std::size_t w = 0; w < workers_; ++w) {
      times_[w].compute.resize(ops_of(w).compute.size());
      for (StreamId s = 0; s < kStreams.size(); ++s)
        times_[w].communication[s].resize(ops_of(w).communication[s].size());
    }
    std::size_t transfers = 0;
    for (std::size_t w = 0; w < workers_; ++w) {
      lanes_[w].next_transfer = transfers;
      transfers += messages_sent(static_cast<WorkerId>(w));
    }
    transfers_.resize(transfers);
  }

  std::size_t messages_sent(WorkerId worker) const {
    const CopyId copy = worker / wiring_.positions;
    std::size_t count = 0;
    const auto over = [&](const std::vector<std::uint32_t>& edges, Direction direction, const Op& op) {
      for (const std::uint32_t edge : edges)
        count += costs_.message(edge, direction, copy, static_cast<MicroBatchId>(op.micro_batch)).channel >= 0;
    };
    for (const Op& op : ops_of(at(worker)).compute) {
      if (rule(op.kind).forward) over(wiring_.chunks[op.virtual_stage].out, Direction::Forward, op);
      if (rule(op.kind).backward) over(wiring_.chunks[op.virtual_stage].in, Direction::Backward, op);
    }
    return count;
  }

  const Schedule& schedule_;
  const StepCosts& costs_;
  const Wiring wiring_ = Wiring(schedule_, costs_);
  std::size_t workers_ = at(wiring_.workers());
  std::size_t rows_ = costs_.edges.size() * at(wiring_.copies);
  Arrivals arrivals_{
      2 * rows_ *
      micro_batches()};      // [((direction * edges + edge) * copies + copy) * M + m], and one more that nobody reads
  std::vector<Side> sides_;  // [2 * (copy * chunks + chunk) + direction]
  std::vector<Stream> streams_;            // by worker and stream
  std::vector<StreamLinks> stream_links_;  // by position
  std::vector<std::int64_t> dummy_channels_;
  std::vector<std::int64_t> channel_free_;
  std::vector<LaneState> lanes_;
  std::vector<LaneState*> runnable_;
  bool communicates_ = false;  // there are ops of communication streams
  std::vector<MeetingClock> meetings_;
  std::vector<LaneTimes> times_;
  std::vector<Transfer> transfers_;
};

}  // namespace

Time static_order_makespan(const Schedule& schedule, const StepCosts& costs) {
  return Relaxation<false>(schedule, costs).run();
}

Timeline static_order(const Schedule& schedule, const StepCosts& costs) {
  Relaxation<true> relaxation(schedule, costs);
  const Time makespan = relaxation.run();
  return relaxation.timeline(makespan);
}

}  // namespace pipewright::sim
