// DualPipe: two pipelines in opposite directions over the same K workers. Half of the micro-batches enter at the first
// stage, the other half at the last, so that the weights of each stage lie on two workers, which sum their gradients once
// per step.
//
//   0124ew53ff6aagg7.bbhhcwdw   K = 4, M = 8, f = b = w = 1: 0 to 3 go down, 4 to 7 up
//   .04152ee6aa3ff7bbggcchdww   tests/sim/schedule_pictures_test.cpp
//   .40516aa2ee7bb3ffccggdhww
//   4560aw17bb2eecc3.ffddgwhw
//
// [DeepSeekIII24] section 3.2.1, by the authors' dualpipe.py. Cells of a forward and a backward are made to overlap
// (plan.pairs: fused); by default they are priced one after the other.                                              tests/papers/published_orders_test.cpp
#include "sim/schedules/dualpipe.hpp"

#include <algorithm>
#include <deque>
#include <utility>

#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

class DualPipeWriter {
 public:
  DualPipeWriter(Lane& lane, const std::array<DualPhase, 2>& phases) : lane_(lane), phases_(phases) {}

  void forward(int p) { append_forward(lane_, chunk(p), next(forwards_, p)); }
  void backward(int p) { append_backward(lane_, chunk(p), next(backwards_, p)); }
  // B without W, which comes later, in the order of the Bs of both chunks.
  void input(int p) {
    const MicroBatchId m = next(backwards_, p);
    append_input_backward(lane_, chunk(p), m);
    late_.emplace_back(chunk(p), m);
  }
  void weights() {
    append_weights(lane_, late_.front().first, late_.front().second);
    late_.pop_front();
  }
  // F of one chunk and the backward of the other, in one cell.
  void both(int forward_of, int backward_of) {
    forward(forward_of);
    lane_.compute.back().with_next = 1;
    backward(backward_of);
  }

 private:
  VirtualStageId chunk(int p) const { return phases_[at(p)].chunk; }
  MicroBatchId next(std::array<int, 2>& counts, int p) { return phases_[at(p)].first + counts[at(p)]++; }

  Lane& lane_;
  std::array<DualPhase, 2> phases_;
  std::array<int, 2> forwards_{}, backwards_{};
  std::deque<std::pair<VirtualStageId, MicroBatchId>> late_;
};

std::string dualpipe_refusal(const ScheduleShape& shape) {
  if (shape.micro_batches % 2 != 0 || shape.micro_batches < 2 * shape.stages)
    return "dualpipe sends half of the micro-batches each way, at least as many as there are stages, but M = " +
           std::to_string(shape.micro_batches) + " for K = " + std::to_string(shape.stages) +
           ": use an even number from " + std::to_string(2 * shape.stages) + " on";
  if (shape.recompute_except_last)
    return "dualpipe has two last micro-batches, one each way; leave plan.recompute_except_last out";
  return "";
}

Schedule dualpipe_schedule(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("dualpipe", shape, true);
  const int K = shape.stages, half = K / 2, count = shape.micro_batches / 2;
  for (StageId k = 0; k < K; ++k) {
    Lane& lane = schedule.positions[as<PositionId>(k)];
    const int outside = std::min<int>(k, K - 1 - k);  // how far from the nearer end
    const MicroBatchId near = k < half ? 0 : count;
    append_dualpipe(lane, {{{outside, near}, {K - 1 - outside, count - near}}}, count, outside, half);
  }
  return schedule;
}

// Equal passes, one after the other, and free communication: a worker waits K / 2 - 1 forwards in all:
//     (K/2 - 1) / (3 M + K/2 - 1)                                  derived from [DeepSeekIII24] section 3.2.1, table 2
// K = 4, M = 8: 25 in all, 24 of them work.                                    tests/papers/zero_bubble_test.cpp "DualPipe"
std::optional<Formula> dualpipe_bubble(const ScheduleShape& shape, const PassTimes& times) {
  if (!times.equal()) return std::nullopt;
  const std::int64_t idle = shape.stages / 2 - 1;
  return Formula{"(K/2-1)/(3M+K/2-1)", idle, std::int64_t{3} * shape.micro_batches + idle};
}

// Micro-batches of both directions, on every worker alike:
//     peak = K + 1                                                         the table of the authors' repository
std::optional<std::int64_t> dualpipe_peak(const ScheduleShape& shape, StageId) {
  return std::int64_t{shape.stages} + 1;
}

}  // namespace

void append_dualpipe(Lane& lane, const std::array<DualPhase, 2>& phases, int count, int depth, int half) {
  DualPipeWriter write(lane, phases);
  const int to_middle = half - depth - 1;
  for (int i = 0; i < 2 * to_middle; ++i)
    write.forward(0);
  for (int i = 0; i <= depth; ++i)
    write.forward(0), write.forward(1);
  for (int i = 0; i < to_middle; ++i)
    write.input(1), write.weights(), write.forward(1);
  for (int i = 0; i < count - 2 * half + depth + 1; ++i) {
    if (i == 0 && to_middle == 0)  // nothing has come back yet to overlap with
      write.forward(0), write.backward(1);
    else
      write.both(0, 1);
    write.both(1, 0);
  }
  for (int i = 0; i < to_middle; ++i)
    write.backward(1), write.both(1, 0);
  // In the second half of the last backwards their Ws are put off.
  const int split = (depth + 1) / 2;
  for (int i = 0; i <= depth; ++i) {
    const bool late = i > split || (i == split && depth % 2 == 1);
    late ? write.input(1) : write.backward(1);
    i >= split ? write.input(0) : write.backward(0);
  }
  for (int i = 0; i < to_middle; ++i)
    write.weights(), write.input(0);
  for (int i = 0; i <= depth; ++i)
    write.weights();
}

ScheduleRule dualpipe() {
  return {.name = "dualpipe",
          .title = "two pipelines in opposite directions, forwards next to backwards (DualPipe)",
          .source = "DeepSeekIII24",
          .memory = "K + 1 micro-batches on every stage",
          .flush = true,
          .splits_backward = true,
          .compute = dualpipe_schedule,
          .also_refused = dualpipe_refusal,
          .peak_in_flight = dualpipe_peak,
          .bubble_of_times = dualpipe_bubble,
          .facts = {.backward_at_once = false, .pairs = true},
          .chunk_order = ChunkOrder::BothWays};
}

}  // namespace pipewright::sim
