#include "sim/static_order.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "sim/dependencies.hpp"

namespace pipewright {
namespace {

constexpr std::int64_t kUnset = std::numeric_limits<std::int64_t>::min();  // this has not arrived yet

// One all-reduce of one bucket: it begins when its last member is ready.
struct Meeting {
  std::int64_t ready = 0;  // latest of the members so far
  std::int32_t missing = 0;
  std::int64_t end = kUnset;
};

// Runs every worker as far as it gets, parks it on the arrival that it lacks, and wakes it when that arrival is known.
// `Record` keeps the times of ops and transfers.
template <bool Record>
class Relaxation {
 public:
  Relaxation(const Schedule& schedule, const StepCosts& costs)
      : schedule_(schedule),
        costs_(costs),
        wiring_(schedule, costs),
        workers_(static_cast<std::size_t>(wiring_.workers())) {
    const auto slots = costs.edges.size() * static_cast<std::size_t>(wiring_.copies) * micro_batches();
    arrival_[0].assign(slots, kUnset);
    arrival_[1].assign(slots, kUnset);
    channel_free_.assign(static_cast<std::size_t>(costs.channels), 0);
    lanes_.resize(workers_);
    for (std::size_t w = 0; w < workers_; ++w)
      lanes_[w].ops = &schedule.positions[w % positions()];
    if (!costs.collectives.empty()) prepare_meetings();
    if constexpr (Record) prepare_record();
  }

  Time run() {
    for (std::size_t w = workers_; w-- > 0;)
      runnable_.push_back(static_cast<WorkerId>(w));
    while (!runnable_.empty()) {
      const WorkerId worker = runnable_.back();
      runnable_.pop_back();
      advance(worker);
    }
    std::int64_t makespan = 0;
    for (const LaneState& lane : lanes_) {
      PP_CHECK(lane.next == lane.ops->compute.size() && lane.next_collective == lane.ops->collective.size());
      makespan = std::max({makespan, lane.time, lane.collective_time});
    }
    return {makespan};
  }

  Timeline timeline(Time makespan) {
    return {.workers = std::move(times_),
            .transfers = std::move(transfers_),
            .makespan = makespan,
            .engine = "static order",
            .engine_reason = "every worker's order is fixed"};
  }

 private:
  struct LaneState {
    const Lane* ops = nullptr;
    std::size_t next = 0;
    std::int64_t time = 0;                    // end of the last compute op
    const std::int64_t* waits_for = nullptr;  // parked on this arrival
    std::size_t next_collective = 0;
    std::int64_t collective_time = 0;
    bool joined = false;            // the collective at `next_collective` counts this worker as ready
    bool waits_for_update = false;  // parked on an all-reduce
    std::size_t next_transfer = 0;  // where its next transfer is recorded
  };

  std::size_t positions() const { return schedule_.positions.size(); }
  std::size_t micro_batches() const { return static_cast<std::size_t>(schedule_.shape.micro_batches); }

  std::int64_t* slot(Direction direction, std::size_t edge, CopyId copy, MicroBatchId m) {
    const auto row = edge * static_cast<std::size_t>(wiring_.copies) + static_cast<std::size_t>(copy);
    return &arrival_[static_cast<std::size_t>(direction)][row * micro_batches() + static_cast<std::size_t>(m)];
  }

  void advance(WorkerId worker) {
    LaneState& lane = lanes_[static_cast<std::size_t>(worker)];
    do {
      run_compute(worker, lane);
    } while (!meetings_.empty() && run_collectives(worker, lane) && lane.waits_for_update);
  }

  void run_compute(WorkerId worker, LaneState& lane) {
    const CopyId copy = worker / static_cast<int>(positions());
    const Op* const ops = lane.ops->compute.data();
    const std::size_t count = lane.ops->compute.size();
    std::int64_t time = lane.time;
    lane.waits_for_update = false;
    std::size_t i = lane.next;
    for (; i < count; ++i) {
      const Op op = ops[i];
      const auto m = static_cast<MicroBatchId>(op.micro_batch);
      const Wiring::Chunk& chunk = wiring_.chunks[op.virtual_stage];
      std::int64_t ready = 0;
      if (op.kind == Kind::F) {
        if (!arrivals(Direction::Forward, chunk.in, copy, m, lane, ready)) break;
      } else if (op.kind == Kind::BW || op.kind == Kind::B) {
        if (!arrivals(Direction::Backward, chunk.out, copy, m, lane, ready)) break;
      } else if (op.kind == Kind::Update && !meetings_.empty()) {
        ready = update_ready(op);
        if (ready == kUnset) {
          lane.waits_for_update = true;
          break;
        }
      }
      const std::int64_t start = std::max(time, ready);
      time = start + costs_.time_of(op).value;
      if constexpr (Record) times_[static_cast<std::size_t>(worker)].compute[i] = {{start}, {time}};
      if (op.kind == Kind::F) {
        for (const std::uint32_t edge : chunk.out)
          post(worker, lane, Direction::Forward, edge, copy, m, time);
      } else if (op.kind == Kind::BW || op.kind == Kind::B) {
        for (const std::uint32_t edge : chunk.in)
          post(worker, lane, Direction::Backward, edge, copy, m, time);
      }
      if (!meetings_.empty() && (op.kind == Kind::BW || op.kind == Kind::W)) {
        const std::size_t key = gradient_key(worker, op.virtual_stage, wiring_.round_of(op));
        if (--backwards_left_[key] == 0) gradients_[key] = {{start}, {time}};
      }
    }
    lane.next = i;
    lane.time = time;
  }

  // Latest arrival over `edges`; false, and the lane parked, when one is still missing.
  bool arrivals(Direction direction, std::span<const std::uint32_t> edges, CopyId copy, MicroBatchId m, LaneState& lane,
                std::int64_t& ready) {
    for (const std::uint32_t edge : edges) {
      const std::int64_t* const arrived = slot(direction, edge, copy, m);
      if (*arrived == kUnset) {
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
      std::int64_t& free = channel_free_[static_cast<std::size_t>(message.channel)];
      const std::int64_t start = std::max(free, time);
      free = start + message.occupancy.value;
      arrived = free + message.latency.value;
      if constexpr (Record)
        transfers_[lane.next_transfer++] = {edge,          direction, m,       worker, to,
                                            message.bytes, {time},    {start}, {free}, {arrived}};
    }
    std::int64_t* const target = slot(direction, edge, copy, m);
    *target = arrived;
    LaneState& receiver = lanes_[static_cast<std::size_t>(to)];
    if (receiver.waits_for == target) {
      receiver.waits_for = nullptr;
      if (to != worker) runnable_.push_back(to);
    }
  }

  // --- all-reduces -------------------------------------------------------------------------------------------------

  std::size_t gradient_key(WorkerId worker, VirtualStageId v, int round) const {
    return wiring_.gradient_key(worker, v, round);
  }
  Meeting& meeting(const Op& op) {
    return meetings_[wiring_.meeting_key(op.virtual_stage, static_cast<int>(op.micro_batch),
                                         static_cast<int>(op.bucket))];
  }

  void prepare_meetings() {
    meetings_.resize(wiring_.meetings());
    for (int v = 0; v < schedule_.shape.chunks(); ++v)
      for (int round = 0; round < wiring_.rounds(v); ++round)
        for (int bucket = 0; bucket < schedule_.shape.buckets_of(v); ++bucket)
          meetings_[wiring_.meeting_key(v, round, bucket)].missing = wiring_.members(v);
    gradients_.assign(wiring_.gradient_keys(), Span{{kUnset}, {kUnset}});
    backwards_left_ = wiring_.backwards_per_round(schedule_);
    for (std::size_t key = 0; key < gradients_.size(); ++key)
      if (backwards_left_[key] == 0) gradients_[key] = {};  // no micro-batch in this round: nothing to wait for
  }

  std::int64_t update_ready(const Op& op) {
    std::int64_t ready = 0;
    for (int bucket = 0; bucket < schedule_.shape.buckets_of(op.virtual_stage); ++bucket) {
      const std::int64_t end =
          meetings_[wiring_.meeting_key(op.virtual_stage, static_cast<int>(op.micro_batch), bucket)].end;
      if (end == kUnset) return kUnset;
      ready = std::max(ready, end);
    }
    return ready;
  }

  // True when at least one collective of this worker came to its end.
  bool run_collectives(WorkerId worker, LaneState& lane) {
    const auto& ops = lane.ops->collective;
    const std::size_t before = lane.next_collective;
    for (; lane.next_collective < ops.size(); ++lane.next_collective, lane.joined = false) {
      const Op& op = ops[lane.next_collective];
      Meeting& met = meeting(op);
      if (!lane.joined) {
        const Span gradient = gradients_[gradient_key(worker, op.virtual_stage, static_cast<int>(op.micro_batch))];
        if (gradient.end.value == kUnset) break;
        const std::int64_t complete = std::max(
            gradient.start.value, gradient.end.value - costs_.ready_before_end[op.virtual_stage][op.bucket].value);
        met.ready = std::max({met.ready, complete, lane.collective_time});
        lane.joined = true;
        if (--met.missing == 0) {
          met.end = met.ready + costs_.collectives[op.virtual_stage][op.bucket].time.value;
          wake_members(worker, op.virtual_stage);
        }
      }
      if (met.end == kUnset) break;
      lane.collective_time = met.end;
      if constexpr (Record)
        times_[static_cast<std::size_t>(worker)].collective[lane.next_collective] = {{met.ready}, {met.end}};
    }
    return lane.next_collective != before;
  }

  void wake_members(WorkerId worker, VirtualStageId v) {
    const Wiring::Chunk& chunk = wiring_.chunks[static_cast<std::size_t>(v)];
    for (CopyId copy = 0; copy < wiring_.copies; ++copy)
      for (int replica = 0; replica < chunk.replicas; ++replica) {
        const WorkerId member = wiring_.worker_of(v, copy, replica);
        if (member != worker) runnable_.push_back(member);
      }
  }

  // --- record ------------------------------------------------------------------------------------------------------

  void prepare_record() {
    times_.resize(workers_);
    for (std::size_t w = 0; w < workers_; ++w) {
      times_[w].compute.resize(lanes_[w].ops->compute.size());
      times_[w].collective.resize(lanes_[w].ops->collective.size());
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
    for (const Op& op : lanes_[static_cast<std::size_t>(worker)].ops->compute) {
      if (op.kind == Kind::F) over(wiring_.chunks[op.virtual_stage].out, Direction::Forward, op);
      if (op.kind == Kind::BW || op.kind == Kind::B) over(wiring_.chunks[op.virtual_stage].in, Direction::Backward, op);
    }
    return count;
  }

  const Schedule& schedule_;
  const StepCosts& costs_;
  const Wiring wiring_;
  std::size_t workers_;
  std::vector<std::int64_t> arrival_[2];  // by direction: [(edge * copies + copy) * M + m]
  std::vector<std::int64_t> channel_free_;
  std::vector<LaneState> lanes_;
  std::vector<WorkerId> runnable_;
  std::vector<Meeting> meetings_;
  std::vector<Span> gradients_;  // span of the op that completes a round's gradients
  std::vector<std::int32_t> backwards_left_;
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

}  // namespace pipewright
