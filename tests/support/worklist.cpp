#include "tests/support/worklist.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/cost/cells.hpp"
#include "sim/dependencies.hpp"
#include "sim/run_length.hpp"
#include "sim/stream_links.hpp"

namespace pipewright::tests {
namespace {

constexpr std::int64_t kNotThere = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kClockBegin = 0;

// One collective: it begins when its last member is ready.
struct MeetingClock {
  std::int64_t ready = kClockBegin;  // latest of the members so far
  std::int32_t joined = 0;
  std::int64_t end = kNotThere;
};

class Worklist {
 public:
  Worklist(const Schedule& schedule, const StepCosts& costs) : schedule_(schedule), costs_(costs) {
    check_run_length(schedule, costs);
    channel_free_.assign(at(costs.channels), kClockBegin);
    lanes_.resize(workers_);
    for (std::size_t w = 0; w < workers_; ++w) {
      LaneState& lane = lanes_[w];
      lane.next = ops_of(w).compute.data();
      lane.end = lane.next + ops_of(w).compute.size();
      lane.worker = static_cast<WorkerId>(w);
      lane.copy = static_cast<CopyId>(w / positions());
    }
    prepare_streams();
    prepare_record();
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
    return Time{makespan};
  }

  Timeline timeline(Time makespan) {
    return {.workers = std::move(times_),
            .transfers = std::move(transfers_),
            .makespan = makespan,
            .engine = EngineRan::StaticOrder,
            .engine_reason = "every worker's order is fixed"};
  }

 private:
  struct LaneState;
  // Op by op the order can be run, but the ops of a cell begin together.
  static InputError cells_wait(const LaneState& lane, const Op& first) {
    return InputError(
        fmt::format("plan.pairs: fused: the cell of {} on worker {} waits for itself, as its ops begin "
                    "together; write serial, or part them in the schedule",
                    label(first), lane.worker));
  }
  struct LaneState {
    const Op* next = nullptr;  // next compute op
    const Op* end = nullptr;
    std::int64_t time = kClockBegin;          // end of the last compute op
    const std::int64_t* waits_for = nullptr;  // parked on this arrival
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

  std::int64_t* row(Direction direction, std::size_t edge, CopyId copy) {
    const auto index = edge * at(wiring_.copies) + at(copy);
    return arrivals_.data() + (at(direction) * rows_ + index) * micro_batches();
  }
  std::int64_t* slot(Direction direction, std::size_t edge, CopyId copy, MicroBatchId m) {
    return row(direction, edge, copy) + m;
  }

  void advance(LaneState& lane) {
    do {
      run_compute(lane);
    } while (communicates_ && run_streams(lane.worker) && lane.gated);
  }

  void run_compute(LaneState& lane) {
    lane.gated = false;
    while (lane.next != lane.end) {
      const std::size_t ran = run_cell(lane, *lane.next, lane.time);
      if (ran == 0) break;
      lane.next += ran;
    }
  }

  void record(const LaneState& lane, const Op& op, std::int64_t start, std::int64_t end) {
    const auto worker = at(lane.worker);
    times_[worker].compute[at(&op - ops_of(worker).compute.data())] = {Time{start}, Time{end}};
  }

  // Any op or cell of ops, any wiring: how many have run. None, and the lane parked, when something that they need is
  // missing.
  std::size_t run_cell(LaneState& lane, const Op& first, std::int64_t& time) {
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
    if (!passes_gates(lane, op, ready)) return false;
    if (rule(op.kind).forward) return arrivals(Direction::Forward, chunk.in, lane.copy, m, lane, ready);
    if (rule(op.kind).backward) return arrivals(Direction::Backward, chunk.out, lane.copy, m, lane, ready);
    return true;
  }

  // The op has run; what it gives goes on its way at `sent`.
  void finish(LaneState& lane, const Op& op, std::int64_t start, std::int64_t end, std::int64_t sent) {
    const auto m = static_cast<MicroBatchId>(op.micro_batch);
    const Wiring::Chunk& chunk = wiring_.chunks[op.virtual_stage];
    record(lane, op, start, end);
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
      if (*arrived == kNotThere) {
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
      transfers_[lane.next_transfer++] = {edge,          direction,  m,           worker,     to,
                                          message.bytes, Time{time}, Time{start}, Time{free}, Time{arrived}};
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
    for (std::size_t i = lane.next_gate; i < gates.size() && gates[i].op <= number(lane, op); ++i) {
      if (gates[i].op < number(lane, op)) continue;  // of the op before it in its cell
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
  std::size_t number(const LaneState& lane, const Op& op) const {
    return at(&op - ops_of(at(lane.worker)).compute.data());
  }
  bool is_op(const LaneState& lane, std::uint32_t index, const Op& op) const { return index == number(lane, op); }

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

  // True when at least one collective of this worker came to its end. One may let another begin.
  bool run_streams(WorkerId worker) {
    bool any = false, more = true;
    while (std::exchange(more, false)) {
      for (StreamId s = 0; s < kStreams.size(); ++s)
        more |= run_stream(worker, s);
      any |= more;
    }
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
      if (met.end == kNotThere) break;
      stream.time = met.end;
      times_[at(worker)].communication[s][stream.next] = {Time{met.ready}, Time{met.end}};
    }
    return stream.next != before;
  }

  // Whether what the op waits for on other streams is over; then `ready` is not before that.
  bool others_are_over(WorkerId worker, StreamId s, std::size_t op, std::int64_t& ready) {
    bool over = true;
    lanes_[at(worker)].links->for_each_after(s, op, [&](const StreamLinks::After& after) {
      over = over && streams_[kStreams.size() * at(worker) + after.stream].next >= after.count;
      if (over) ready = std::max(ready, meeting(worker, after.stream, after.count - 1).end);
    });
    return over;
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
  // [((direction * edges + edge) * copies + copy) * M + m]
  std::vector<std::int64_t> arrivals_ = std::vector<std::int64_t>(2 * rows_ * micro_batches(), kNotThere);
  std::vector<Stream> streams_;            // by worker and stream
  std::vector<StreamLinks> stream_links_;  // by position
  std::vector<std::int64_t> channel_free_;
  std::vector<LaneState> lanes_;
  std::vector<LaneState*> runnable_;
  bool communicates_ = false;  // there are ops of communication streams
  std::vector<MeetingClock> meetings_;
  std::vector<LaneTimes> times_;
  std::vector<Transfer> transfers_;
};

}  // namespace

Timeline worklist(const Schedule& schedule, const StepCosts& costs) {
  Worklist list(schedule, costs);
  const Time makespan = list.run();
  return list.timeline(makespan);
}

}  // namespace pipewright::tests
