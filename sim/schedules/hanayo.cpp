// Hanayo: waves. Each stage holds 2 W chunks of one copy of the model, laid there and back W times, so that a micro-batch
// runs through the stages in W waves and no stage waits long for the next one. Whole backwards.
//
//   01.0aa1bb.aa..bb   K = 2, M = 2, W = 1, f = 1, b = 2: stage 0 has chunks 0 and 3, stage 1 chunks 1 and 2
//   .0011.aaaabbbb..   tests/sim/schedule_pictures_test.cpp
//
// [Hanayo23] gives the waves; its order is made by a list scheduler, of which this is the plain form: passes take one and
// two slots, a stage that is free runs the backward of the oldest micro-batch that has one ready, else the oldest forward,
// and K micro-batches are in flight at most, or plan.most_in_flight: with 2 K those behind the first K hardly wait.
// No outside oracle: checked by closed form and brute force in tests/sim/schedule_brute_force_test.cpp.
#include <optional>

#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

std::string hanayo_refusal(const ScheduleShape& shape) {
  if (shape.virtual_stages % 2 != 0)
    return "hanayo runs in waves there and back, two chunks per stage each: set plan.virtual_stages: " +
           std::to_string(shape.virtual_stages + 1) + ", or another even number";
  return "";
}

constexpr int kForwardSlots = 1, kBackwardSlots = 2;

class Waves {
 public:
  explicit Waves(const ScheduleShape& shape)
      : shape_(shape), forward_(at(shape.chunks())), backward_(at(shape.chunks())) {}

  Schedule schedule() {
    Schedule schedule = empty_schedule("hanayo", shape_, true);
    const std::size_t passes = std::size_t{2} * at(shape_.chunks()) * at(shape_.micro_batches);
    std::size_t begun = 0;
    for (std::int64_t now = 0; begun < passes; ++now)
      for (StageId k = 0; k < shape_.stages; ++k) {
        if (busy_until_[at(k)] > now) continue;
        const auto backward = oldest(k, now, true), forward = oldest(k, now, false);
        if (!backward && !forward) continue;
        const VirtualStageId v = backward ? *backward : *forward;
        std::vector<std::int64_t>& ends = (backward ? backward_ : forward_)[at(v)];
        const auto m = static_cast<MicroBatchId>(ends.size());
        Lane& lane = schedule.positions[as<PositionId>(k)];
        backward ? append_backward(lane, v, m) : append_forward(lane, v, m);
        busy_until_[at(k)] = now + (backward ? kBackwardSlots : kForwardSlots);
        ends.push_back(busy_until_[at(k)]);
        ++begun;
      }
    return schedule;
  }

 private:
  // The chunk whose next backward, or forward, is of the oldest micro-batch; of two chunks of one micro-batch, only one has
  // it next.
  std::optional<VirtualStageId> oldest(StageId k, std::int64_t now, bool backward) const {
    std::optional<VirtualStageId> best;
    std::size_t oldest = at(shape_.micro_batches);
    for (int i = 0; i < shape_.virtual_stages; ++i) {
      const VirtualStageId v = seating_.chunk_of(k, i);
      const std::size_t m = (backward ? backward_ : forward_)[at(v)].size();
      if (m < oldest && (backward ? backward_ready(v, m, now) : forward_ready(v, m, now))) best = v, oldest = m;
    }
    return best;
  }
  static bool ended(const std::vector<std::int64_t>& ends, std::size_t m, std::int64_t now) {
    return m < ends.size() && ends[m] <= now;
  }
  bool backward_ready(VirtualStageId v, std::size_t m, std::int64_t now) const {
    return ended(forward_[at(v)], m, now) && (v + 1 == shape_.chunks() || ended(backward_[at(v + 1)], m, now));
  }
  bool forward_ready(VirtualStageId v, std::size_t m, std::int64_t now) const {
    if (v > 0) return ended(forward_[at(v - 1)], m, now);
    const std::size_t most = at(shape_.most_in_flight > 0 ? shape_.most_in_flight : shape_.stages);
    return m < most || ended(backward_.front(), m - most, now);
  }

  const ScheduleShape& shape_;
  const Seating seating_ = shape_.seating();
  std::vector<std::vector<std::int64_t>> forward_, backward_;  // [chunk][micro-batch]: slot behind the pass
  std::vector<std::int64_t> busy_until_ = std::vector<std::int64_t>(at(shape_.stages));  // [stage]
};

Schedule hanayo_schedule(const ScheduleShape& shape) {
  return Waves(shape).schedule();
}

// One wave, K micro-batches, b = 2 f, equal chunks:
//     (4 K - 4)/(6 K + 4 K - 4) of chunks' forwards                      found from the orders, not derived
// K = 4, M = 4: 36 in all, 24 of them work.                                  tests/papers/schedule_formulas_test.cpp "Hanayo"
std::optional<Formula> hanayo_bubble(const ScheduleShape& shape, const PassTimes& times) {
  const std::int64_t K = shape.stages;
  if (has_recompute(shape) || shape.virtual_stages != 2 || shape.micro_batches != K ||
      times.input_gradient + times.weight_gradient != 2 * times.forward)
    return std::nullopt;
  return Formula{"M = K, one wave: (4K-4)/(10K-4)", 4 * K - 4, 10 * K - 4};
}

std::optional<std::int64_t> hanayo_peak(const ScheduleShape&, StageId) {
  return std::nullopt;
}

}  // namespace

ScheduleRule hanayo() {
  return {.name = "hanayo",
          .title = "waves there and back over v/2 pairs of chunks per stage (Hanayo)",
          .source = "Hanayo23",
          .memory = "v chunks at most for each of plan.most_in_flight, by default K, on every stage",
          .flush = true,
          .compute = hanayo_schedule,
          .also_refused = hanayo_refusal,
          .peak_in_flight = hanayo_peak,
          .bubble_of_times = hanayo_bubble,
          .facts = {.takes_chunks = true, .limits_in_flight = true},
          .chunk_order = ChunkOrder::V};
}

}  // namespace pipewright::sim
