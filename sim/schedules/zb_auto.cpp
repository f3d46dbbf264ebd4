// ZB-1p and ZB-2p: an order made for the times of the stages, the hop between them and a memory cap, so that the
// longest span is short. A stage's span goes from its first F to its last W.
//
//   01234a5wbwcwdwewfw..   K = 3, M = 6, f = b = w = 1, room for 2 K = 6 micro-batches: the spans have no idle time
//   .012a3b4c5dwewfwwww.   tests/sim/schedule_pictures_test.cpp
//   ..0a1b2c3d4e5fwwwwww
//
// All stages take turns in rounds, one F and one B each; Ws fill the gaps. Three choices are open; all eight runs are
// made, and the shortest one counts.
//
// [ZeroBubble23] section 3.1, appendix B; the rules are those of the authors' zb.py. K = 8, M = 24 and f, b, w, c =
// 18522, 18086, 9337, 601: the span is 1310405 with a cap of K micro-batches, as with ZB-H1, and 1152599 with 2 K. That
// is 0.0433 of idle time, and no order has less: M (f + b) + (K - 1) (f + b + 2 c) + w.
//                                                                         tests/papers/zero_bubble_test.cpp "ZB-2p"
#include <algorithm>
#include <optional>
#include <utility>

#include "core/folds.hpp"
#include "sim/schedules/made_order.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

struct ZeroBubbleChoice {
  bool keep_first_input = true;  // the warm-up takes no F that would delay the first B
  bool wait_for_input = true;    // a stage two Fs ahead waits for its B where that costs nothing
  bool fill_all_gaps = true;     // a W fills a gap that it outlasts even where the stage has idle time to spare
};

class ZeroBubbleRun {
 public:
  ZeroBubbleRun(int micro_batches, const ZeroBubbleTimes& times, ZeroBubbleChoice choice)
      : micro_batches_(micro_batches), times_(times), choice_(choice), stages_(times.cap.size()) {}

  // False: a stage needs more than its cap.
  bool complete() {
    if (!warm_up()) return false;
    for (int round = 1; round < micro_batches_; ++round)
      if (!run_round()) return false;
    for (StageId k = 0; k <= last(); ++k)
      all_weights(k);
    return true;
  }

  std::int64_t longest_span() const {
    return most_over<std::int64_t>(stages_, [](const Stage& stage) { return stage.end - stage.begin; });
  }

  std::vector<std::vector<Op>> orders() && {
    return mapped<std::vector<Op>>(stages_, [&](Stage& stage) { return std::move(stage.order); });
  }

 private:
  struct Stage {
    std::vector<Op> order;
    std::vector<std::int64_t> forward_ends, input_ends;
    int weights = 0;                  // how many are done
    std::int64_t begin = 0, end = 0;  // of its ops so far
    std::int64_t idle = 0;            // between them
    std::int64_t held = 0;

    int forwards() const { return static_cast<int>(forward_ends.size()); }
    int inputs() const { return static_cast<int>(input_ends.size()); }
    bool has_weights() const { return weights < inputs(); }
  };

  StageId last() const { return static_cast<StageId>(stages_.size()) - 1; }

  // The first F everywhere, as many more as there is time for, and the first B everywhere.
  bool warm_up() {
    for (StageId k = 0; k <= last(); ++k)
      if (!forward(k)) return false;
    const std::vector<int> ahead = forwards_ahead();
    for (StageId k = 0; k <= last(); ++k)
      for (int i = 0; i < ahead[at(k)]; ++i)
        if (!forward(k)) return false;
    inputs();
    return true;
  }

  // How many Fs fit before the first gradient arrives, next to the one that is done. A stage runs fewer than the one
  // before it, or all.
  std::vector<int> forwards_ahead() const {
    std::vector<int> ahead(stages_.size());
    const int most = micro_batches_ - 1;
    std::int64_t sent = stages_.back().end + times_.input.back();  // the end of the first B on the stage behind
    for (StageId k = last() - 1; k >= 0; --k) {
      const std::int64_t arrival = sent + times_.hop, length = times_.forward[at(k)];
      std::int64_t end = stages_[at(k)].end, held = stages_[at(k)].held;
      const auto fits = [&] {
        if (ahead[at(k)] == most || held + times_.held[at(k)] > times_.cap[at(k)]) return false;
        return choice_.keep_first_input ? end + length <= arrival : end < arrival;
      };
      while (fits())
        ++ahead[at(k)], end += length, held += times_.held[at(k)];
      sent = std::max(end, arrival) + times_.input[at(k)];
    }
    for (StageId k = 1; k <= last(); ++k) {
      const int before = ahead[at(k - 1)];
      ahead[at(k)] = std::min(ahead[at(k)], before == most ? most : std::max(0, before - 1));
    }
    return ahead;
  }

  bool run_round() {
    const std::vector<bool> runs = forwards_of_round();
    for (StageId k = 0; k <= last(); ++k)
      if (runs[at(k)] && !forward(k)) return false;
    inputs();
    return true;
  }

  // A stage skips its F where the one behind it does, so that it never gets too far ahead.
  std::vector<bool> forwards_of_round() const {
    std::vector<bool> runs(stages_.size());
    for (StageId k = last(); k >= 0; --k) {
      const bool behind = k == last() || runs[at(k + 1)];
      runs[at(k)] = behind && stages_[at(k)].forwards() < micro_batches_ && !waits(k);
    }
    return runs;
  }

  // Is the next gradient there before an F could end, and the stage has time to wait for it?
  bool waits(StageId k) const {
    if (!choice_.wait_for_input || k == last()) return false;
    const Stage &stage = stages_[at(k)], &behind = stages_[at(k + 1)];
    if (stage.forwards() < behind.forwards() + 2) return false;
    const std::int64_t arrival = behind.end + times_.forward[at(k + 1)] + times_.input[at(k + 1)] + times_.hop;
    if (stage.end >= arrival) return true;
    if (stage.end + forward_with_room(k) <= arrival) return false;
    return arrival - stage.end <= spare(k);
  }

  // How long an F takes with the Ws that make room for it.
  std::int64_t forward_with_room(StageId k) const {
    const Stage& stage = stages_[at(k)];
    std::int64_t length = times_.forward[at(k)], held = stage.held + times_.held[at(k)];
    for (int m = stage.weights; m < stage.inputs() && held > times_.cap[at(k)]; ++m)
      length += times_.weights[at(k)], held -= times_.kept_after_input[at(k)];
    return length;
  }

  // Idle time up to that of the stage that has most.
  std::int64_t spare(StageId k) const { return most_idle_ - stages_[at(k)].idle; }

  bool forward(StageId k) {
    Stage& stage = stages_[at(k)];
    const int m = stage.forwards();
    if (!make_room(k)) return false;
    const std::int64_t arrival = k == 0 ? 0 : stages_[at(k - 1)].forward_ends[at(m)] + times_.hop;
    fill_gap(k, arrival);
    stage.held += times_.held[at(k)];
    append(k, Kind::F, m, times_.forward[at(k)], arrival);
    stage.forward_ends.push_back(stage.end);
    return true;
  }

  void inputs() {
    for (StageId k = last(); k >= 0; --k)
      input(k);
  }

  void input(StageId k) {
    Stage& stage = stages_[at(k)];
    const int m = stage.inputs();
    const std::int64_t arrival = k == last() ? 0 : stages_[at(k + 1)].input_ends[at(m)] + times_.hop;
    fill_gap(k, arrival);
    if (k == 0 && stage.forwards() == micro_batches_) all_weights(k);
    stage.held += times_.kept_after_input[at(k)] - times_.held[at(k)];
    append(k, Kind::B, m, times_.input[at(k)], arrival);
    stage.input_ends.push_back(stage.end);
  }

  void weights(StageId k) {
    Stage& stage = stages_[at(k)];
    stage.held -= times_.kept_after_input[at(k)];
    append(k, Kind::W, stage.weights++, times_.weights[at(k)], 0);
  }
  void all_weights(StageId k) {
    while (stages_[at(k)].has_weights())
      weights(k);
  }

  // For one more F.
  bool make_room(StageId k) {
    Stage& stage = stages_[at(k)];
    while (stage.held + times_.held[at(k)] > times_.cap[at(k)]) {
      if (!stage.has_weights()) return false;
      weights(k);
    }
    return true;
  }

  // Ws until the input of the next op arrives. The last of them may end after that.
  void fill_gap(StageId k, std::int64_t arrival) {
    Stage& stage = stages_[at(k)];
    while (stage.has_weights() && stage.end + times_.weights[at(k)] <= arrival)
      weights(k);
    if (!stage.has_weights() || stage.end >= arrival) return;
    if (choice_.fill_all_gaps || arrival - stage.end > spare(k)) weights(k);
  }

  void append(StageId k, Kind kind, int m, std::int64_t length, std::int64_t arrival) {
    Stage& stage = stages_[at(k)];
    const std::int64_t begin = std::max(stage.end, arrival);
    if (stage.order.empty()) stage.begin = begin;
    if (!stage.order.empty()) stage.idle += begin - stage.end;
    most_idle_ = std::max(most_idle_, stage.idle);
    stage.end = begin + length;
    stage.order.push_back(
        {.kind = kind, .virtual_stage = static_cast<std::uint16_t>(k), .micro_batch = static_cast<std::uint32_t>(m)});
  }

  const int micro_batches_;
  const ZeroBubbleTimes& times_;
  const ZeroBubbleChoice choice_;
  std::vector<Stage> stages_;
  std::int64_t most_idle_ = 0;
};

// A list for each stage: ZB-1p with a cap of K micro-batches, ZB-2p with 2 K. Empty where the cap admits none.
std::vector<std::vector<Op>> zero_bubble_order(const OrderProblem& problem) {
  const ZeroBubbleTimes times = zero_bubble_times(problem);
  const int micro_batches = problem.micro_batches;
  std::optional<ZeroBubbleRun> best;
  for (const bool keep_first_input : {true, false})
    for (const bool wait_for_input : {true, false})
      for (const bool fill_all_gaps : {true, false}) {
        ZeroBubbleRun run(micro_batches, times, {keep_first_input, wait_for_input, fill_all_gaps});
        if (!run.complete()) continue;
        if (!best || run.longest_span() < best->longest_span()) best.emplace(std::move(run));
      }
  if (!best) return {};
  return std::move(*best).orders();
}

}  // namespace

ScheduleRule zb_auto() {
  return {.name = "zb_auto",
          .title = "split backwards in an order made for the times of the plan (ZB-1p, ZB-2p)",
          .source = "ZeroBubble23",
          .memory = "plan.most_in_flight micro-batches on every stage, by default K",
          .flush = true,
          .splits_backward = true,
          .compute = [](const ScheduleShape& shape) { return made_schedule(zb_auto(), shape); },
          .peak_in_flight = [](const ScheduleShape&, StageId) -> std::optional<std::int64_t> { return std::nullopt; },
          .facts = {.limits_in_flight = true},
          .searched = 0,
          .made_for = zero_bubble_order};
}

}  // namespace pipewright::sim
