#include "sim/kth_wrap.hpp"

#include <algorithm>
#include <vector>

#include "core/plan/seating.hpp"

namespace pipewright::sim {
namespace {

class KthWraps {
 public:
  KthWraps(const Schedule& schedule, const StepCosts& costs)
      : schedule_(schedule),
        costs_(costs),
        chunks_(at(schedule.shape.chunks())),
        micro_batches_(at(schedule.shape.micro_batches)) {}

  Time makespan() {
    const std::size_t workers = schedule_.positions.size();
    std::vector<std::size_t> next(workers, 0);
    std::vector<Time> now(workers, Time{0});
    for (bool moved = true; moved;) {
      moved = false;
      for (PositionId k = 0; k < std::ssize(next); ++k)
        for (const std::vector<Op>& ops = schedule_.positions[k].compute; next[k] < ops.size(); ++next[k]) {
          if (ops[next[k]].kind == Kind::Update) continue;
          const Time ready = inputs_ready(ops[next[k]]);
          if (ready == kOpen) break;
          now[k] = std::max(now[k], ready) + costs_.time_of(ops[next[k]]);
          end(gives_gradient(ops[next[k]]), ops[next[k]].virtual_stage, ops[next[k]].micro_batch) = now[k];
          moved = true;
        }
    }
    return *std::ranges::max_element(now);
  }

 private:
  static constexpr Time kOpen{-1};

  static bool gives_gradient(const Op& op) { return op.kind != Kind::F; }
  Time& end(bool back, std::size_t v, std::size_t m) { return ends_[((back ? chunks_ : 0) + v) * micro_batches_ + m]; }

  // From a chunk of the last stage to the next one, of the first.
  bool wraps(VirtualStageId v) const {
    return seating_.stage_of(v) + 1 == seating_.stages && seating_.stage_of(v + 1) == 0;
  }

  // When what the op needs is there; kOpen: not known yet.
  Time inputs_ready(const Op& op) {
    const bool back = gives_gradient(op);
    const std::size_t v = op.virtual_stage, m = op.micro_batch;
    const Time own = back ? end(false, v, m) : Time{0};
    const bool first = back ? v + 1 == chunks_ : v == 0;
    const std::size_t lower = back ? v : v - 1;  // of the two chunks that the edge joins
    if (own == kOpen || first) return own;
    if (wraps(static_cast<VirtualStageId>(lower)) && m % at(seating_.stages) != 0) return own;
    const Time input = end(back, back ? v + 1 : v - 1, m);
    if (input == kOpen) return kOpen;
    const Message& message =
        costs_.message(lower, back ? Direction::Backward : Direction::Forward, 0, static_cast<MicroBatchId>(m));
    return std::max(own, input + message.occupancy + message.latency);
  }

  const Schedule& schedule_;
  const StepCosts& costs_;
  Seating seating_ = schedule_.seating();
  std::size_t chunks_, micro_batches_;
  std::vector<Time> ends_ = std::vector<Time>(2 * chunks_ * micro_batches_, kOpen);
};

}  // namespace

std::optional<Time> makespan_with_kth_wraps(const Schedule& schedule, const StepCosts& costs) {
  const ScheduleShape& shape = schedule.shape;
  const auto chunks = at(shape.chunks());
  bool fits = shape.chunk_order == ChunkOrder::Loop && shape.slices == 1 &&
              schedule.positions.size() == at(shape.stages) && costs.edges.size() == chunks - 1;
  for (std::size_t v = 0; fits && v + 1 < chunks; ++v)
    fits = costs.edges[v].from == v && costs.edges[v].to == v + 1;
  for (const Lane& position : schedule.positions)
    for (const Op& op : position.compute)
      fits = fits && (op.kind == Kind::F || op.kind == Kind::BW || op.kind == Kind::Update);
  if (!fits) return std::nullopt;
  return KthWraps(schedule, costs).makespan();
}

}  // namespace pipewright::sim
