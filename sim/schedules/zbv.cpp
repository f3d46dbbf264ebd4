// ZB-V: each stage holds two chunks, on the way to the last stage and on the way back, so that the stage with the first
// chunk has the last one, too. Backwards are split; no stage waits between its first forward and its last W, with no
// more activations than 1F1B.
//
//   0120aw1bw3aw2cwbw3dwcwdw.   K = 2, M = 4, f = b = w = 1: stage 0 has chunks 0 and 3, stage 1 chunks 1 and 2
//   .0011aw2aw2bw3bw3cwcddwww   tests/sim/schedule_pictures_test.cpp
//
// [ZeroBubble23] section 6, figure 8; the order is that of the authors' hand-made schedule, which PyTorch has as
// ScheduleZBVZeroBubble [PyTorchPP26].                                        tests/papers/published_orders_test.cpp
#include <algorithm>
#include <array>

#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

// The two chunks of a stage: 0 on the way to the last stage, 1 on the way back. Micro-batches of each in order; those
// from M on, which the pattern of short runs has, are left out.
class ZbvWriter {
 public:
  ZbvWriter(const ScheduleShape& shape, Lane& lane, StageId stage) : shape_(shape), lane_(lane) {
    for (int i : {0, 1})
      chunk_[at(i)] = shape.seating().chunk_of(stage, i);
  }
  void forward(int i) {
    if (const int m = forwards_[at(i)]++; runs(m)) append_forward(lane_, chunk_[at(i)], m);
  }
  void input(int i) {
    if (const int m = inputs_[at(i)]++; runs(m)) append_input_backward(lane_, chunk_[at(i)], m);
  }
  void weights(int i) {
    if (const int m = weights_[at(i)]++; runs(m)) append_weights(lane_, chunk_[at(i)], m);
  }
  int forwards(int i) const { return forwards_[at(i)]; }
  int weights_done(int i) const { return weights_[at(i)]; }

 private:
  static std::size_t at(int i) { return core::at(i); }
  bool runs(int m) const { return m < shape_.micro_batches; }

  const ScheduleShape& shape_;
  Lane& lane_;
  std::array<VirtualStageId, 2> chunk_{};
  std::array<int, 2> forwards_{}, inputs_{}, weights_{};
};

Schedule zbv_schedule(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("zbv", shape, true);
  const int K = shape.stages, n = std::max(2 * K - 1, shape.micro_batches);
  for (StageId k = 0; k < K; ++k) {
    Lane& lane = schedule.positions[as<PositionId>(k)];
    ZbvWriter write(shape, lane, k);
    const auto backward = [&](int i) { write.input(i), write.weights(i); };
    for (int i = 0; i < 2 * (K - k) - 1; ++i)
      write.forward(0);
    for (int i = 0; i < k; ++i)
      write.forward(1), write.forward(0);
    for (int i = 0; i < K - k; ++i)
      write.forward(1), backward(1);
    while (write.forwards(1) < n) {
      if (write.forwards(0) < n) write.forward(0);
      backward(0), write.forward(1), backward(1);
    }
    for (int i = 0; i < k; ++i)
      write.input(0), write.input(1);
    for (int i = 0; i < K - k; ++i)
      backward(0);
    for (const int i : {1, 0})
      while (write.weights_done(i) < n)
        write.weights(i);
  }
  return schedule;
}

// Equal passes, M >= 2 K - 1: a stage is busy from its first op to its last, and the last one begins K - 1 forwards of a
// chunk late:
//     (K - 1) / (6 M + K - 1) of chunks' passes                                    derived from [ZeroBubble23] section 6
// K = 4, M = 8: 51 in all, 48 of them work.                                  tests/papers/zero_bubble_test.cpp "ZB-V"
std::optional<Formula> zbv_bubble(const ScheduleShape& shape, const PassTimes& times) {
  if (!times.equal()) return std::nullopt;
  if (shape.micro_batches < 2 * shape.stages - 1) return std::nullopt;
  return Formula{"(K-1)/(6M+K-1)", shape.stages - 1, std::int64_t{6} * shape.micro_batches + shape.stages - 1};
}

// As many chunks as 1F1B's stage 0 has, on every stage:
//     peak = min(2 K, 2 M, M + k + 1) chunks; from M = 2 K - 1 on 2 K               [ZeroBubble23] section 6
// K = 4, M = 4: 5 6 7 8.                   tests/papers/identities_test.cpp "most micro-batches in flight"
std::optional<std::int64_t> zbv_peak(const ScheduleShape& shape, StageId stage) {
  return std::min({2 * shape.stages, 2 * shape.micro_batches, shape.micro_batches + stage + 1});
}

}  // namespace

ScheduleRule zbv() {
  return {.name = "zbv",
          .title = "zero bubble on two chunks per stage, there and back, with the memory of 1F1B (ZB-V)",
          .source = "ZeroBubble23",
          .memory = "min(2K, 2M, M+k+1) chunks on stage k",
          .flush = true,
          .splits_backward = true,
          .compute = zbv_schedule,
          .peak_in_flight = zbv_peak,
          .bubble_of_times = zbv_bubble,
          .facts = {.takes_chunks = true, .pytorch = "ZBVZeroBubble"},
          .chunk_order = ChunkOrder::V,
          .chunks = 2};
}

}  // namespace pipewright::sim
