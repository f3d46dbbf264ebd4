// ZB-V made for the times of the chunks, the hop between stages and a memory cap; `zbv` has one order for all times.
//
//   00112200aaw11bbw33aaw22ccw.bbw33ddccwwddw.   K = 2, M = 4, f = b = 2, w = 1, room for 4 chunks
//   ..00001111aaw22aaw22bbw33bbw33ccccddddwwww   tests/sim/schedule_pictures_test.cpp
//
// After the warm-up all stages take turns in rounds, one B and one F each; Ws fill the gaps. Two choices are open. A
// run is made again with the idle time that it left on each stage, which a stage need not avoid then. The run whose
// longest span is shortest counts.
//
// [ZeroBubble23] section 6, figure 8, table 8; the rules are those of the authors' zbv.py. K = 16, M = 48 and times of
// f, b, w, c = 14407, 14380, 9676, 1610 per chunk, 2 K chunks of memory: the span is 3969197, 0.0697 of it idle.
//                   tests/papers/published_orders_test.cpp "made for times and a limit of memory come out op by op"
#include <algorithm>
#include <array>
#include <deque>
#include <numeric>
#include <optional>
#include <utility>

#include "core/folds.hpp"
#include "sim/schedules/lists.hpp"
#include "sim/schedules/made_order.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

// The passes of a micro-batch in the order in which a stage runs them. The even ones go from the first stage to the
// last.
enum ZbvPass : std::int8_t { ZbvForwardThere, ZbvForwardBack, ZbvBackwardBack, ZbvBackwardThere };
constexpr int kZbvPasses = 4;

bool zbv_goes_up(int pass) {
  return pass % 2 == 0;
}

struct ZbvChoice {
  bool fill_before_backward_back = true;  // a W may delay a B of the chunk on the way back
  bool fill_before_forward = true;        // a W may delay an F
};

class ZbvAutoRun {
 public:
  // `known_idle`: of each stage in the run before; empty if this is the first one.
  ZbvAutoRun(int micro_batches, const ZeroBubbleTimes& times, ZbvChoice choice,
             const std::vector<std::int64_t>& known_idle = {})
      : micro_batches_(micro_batches), times_(times), choice_(choice), stages_(times.cap.size()) {
    if (known_idle.empty()) return;
    const std::int64_t most = *std::ranges::max_element(known_idle);
    for (std::size_t k = 0; k < stages_.size(); ++k)
      stages_[k].allowed_idle = most - known_idle[k];
  }

  // False: a stage needs more than its cap, or an op comes before its input.
  bool complete() {
    if (!first_forwards() || !catch_up()) return false;
    for (int round = 0; round < 2 * micro_batches_; ++round)
      if (!backwards_of_round() || !forwards_of_round()) return false;
    for (StageId k = 0; k <= last(); ++k) {
      while (!stages_[at(k)].weights.empty())
        weights(k);
      for (int pass = 0; pass < kZbvPasses; ++pass)
        if (done(k, pass) < micro_batches_) return false;
    }
    return true;
  }

  std::int64_t longest_span() const {
    return most_over<std::int64_t>(stages_, [](const Stage& stage) { return stage.end - stage.begin; });
  }

  std::vector<std::int64_t> idle() const { return mapped<std::int64_t>(stages_, &Stage::idle); }

  std::vector<std::vector<Op>> orders() && {
    return mapped<std::vector<Op>>(stages_, [&](Stage& stage) { return std::move(stage.order); });
  }

 private:
  struct Late {
    VirtualStageId chunk;
    MicroBatchId m;
  };
  struct Stage {
    std::vector<Op> order;
    std::array<std::vector<std::int64_t>, kZbvPasses> ends;  // of its ops so far, by pass and micro-batch
    std::deque<Late> weights;                                // that have yet to run
    std::int64_t begin = 0, end = 0, idle = 0, held = 0, allowed_idle = 0;
  };

  StageId last() const { return static_cast<StageId>(stages_.size()) - 1; }
  VirtualStageId chunk(StageId k, int pass) const {
    return pass == ZbvForwardThere || pass == ZbvBackwardThere ? int{k} : 2 * last() + 1 - k;
  }
  int done(StageId k, int pass) const { return static_cast<int>(stages_[at(k)].ends[at(pass)].size()); }
  int forwards_done(StageId k) const { return done(k, ZbvForwardThere) + done(k, ZbvForwardBack); }

  // When the input of the next op of that pass arrives; 0 if it is made on this stage, none if it is not made yet.
  std::optional<std::int64_t> arrival(StageId k, int pass) const {
    const int m = done(k, pass);
    if (m == micro_batches_) return std::nullopt;
    if (k == (zbv_goes_up(pass) ? StageId{0} : last())) {
      if (pass > 0 && done(k, pass - 1) <= m) return std::nullopt;
      return 0;
    }
    const StageId before = zbv_goes_up(pass) ? k - 1 : k + 1;
    if (done(before, pass) <= m) return std::nullopt;
    return stages_[at(before)].ends[at(pass)][at(m)] + times_.hop;
  }

  // The first micro-batch there and back. While it is on its way back, more go there.
  bool first_forwards() {
    for (StageId k = 0; k <= last(); ++k)
      if (!forward(k, ZbvForwardThere)) return false;
    for (StageId k = last(); k >= 0; --k) {
      while (k < last() && another_fits(k))
        for (StageId j = 0; j <= k; ++j)
          if (!forward(j, ZbvForwardThere)) return false;
      if (!forward(k, ZbvForwardBack)) return false;
    }
    return true;
  }
  // Fits before the first micro-batch is back on stage k, which then still has room for a pair of chunks of its own and
  // for one of each stage before it.
  bool another_fits(StageId k) const {
    const Stage& stage = stages_[at(k)];
    if (done(k, ZbvForwardThere) == micro_batches_) return false;
    if (stage.end + times_.forward[at(k)] > *arrival(k, ZbvForwardBack)) return false;
    for (StageId j = 0; j <= k; ++j) {
      const std::int64_t pair = times_.held[at(j)] + times_.held[at(chunk(j, ZbvForwardBack))];
      if (stages_[at(j)].held + pair * (k + 1) > times_.cap[at(j)]) return false;
    }
    return true;
  }

  // The stages behind run Fs of both chunks in turns, until they have as many as stage 0.
  bool catch_up() {
    int pass = ZbvForwardThere;
    for (StageId k = 1; k <= last(); ++k)
      while (is_behind(k)) {
        for (StageId j = last(); j >= k; --j)
          if (done(j, pass) < micro_batches_ && !forward(j, pass)) return false;
        pass = pass == ZbvForwardThere ? ZbvForwardBack : ZbvForwardThere;
      }
    return true;
  }
  bool is_behind(StageId k) const {
    if (forwards_done(k) < forwards_done(k - 1)) return true;
    const int back_before = done(k - 1, ZbvForwardBack);
    return done(k, ZbvForwardBack) <= back_before && back_before < micro_batches_;
  }

  // A stage runs the B that is nearest to the end. Those of the chunks there go down, those of the chunks back go up.
  bool backwards_of_round() {
    std::vector<bool> there;
    for (StageId k = 0; k <= last(); ++k)
      there.push_back(arrival(k, ZbvBackwardThere) || done(k, ZbvBackwardBack) == micro_batches_);
    for (StageId k = last(); k >= 0; --k)
      if (there[at(k)] && !backward(k, ZbvBackwardThere)) return false;
    for (StageId k = 0; k <= last(); ++k)
      if (!there[at(k)] && !backward(k, ZbvBackwardBack)) return false;
    return true;
  }

  // A stage runs the F on the way back if it can, else the one on the way there.
  bool forwards_of_round() {
    for (StageId k = 0; k <= last(); ++k) {
      const int pass = arrival(k, ZbvForwardBack) ? ZbvForwardBack : ZbvForwardThere;
      if (arrival(k, pass) && !forward(k, pass)) return false;
    }
    return true;
  }

  bool forward(StageId k, int pass) {
    const std::int64_t held = times_.held[at(chunk(k, pass))];
    const auto ready = arrival(k, pass);
    if (!ready || !make_room(k, held)) return false;
    fill_gap(k, *ready, choice_.fill_before_forward);
    stages_[at(k)].held += held;
    append_pass(k, pass, Kind::F, times_.forward, *ready);
    return true;
  }

  bool backward(StageId k, int pass) {
    const VirtualStageId v = chunk(k, pass);
    const auto ready = arrival(k, pass);
    if (!ready) return false;
    fill_gap(k, *ready, pass == ZbvBackwardThere || choice_.fill_before_backward_back);
    stages_[at(k)].held += times_.kept_after_input[at(v)] - times_.held[at(v)];
    stages_[at(k)].weights.push_back({v, done(k, pass)});
    append_pass(k, pass, Kind::B, times_.input, *ready);
    return true;
  }

  void weights(StageId k) {
    const Late late = stages_[at(k)].weights.front();
    stages_[at(k)].weights.pop_front();
    stages_[at(k)].held -= times_.kept_after_input[at(late.chunk)];
    append(k, Kind::W, late.chunk, late.m, times_.weights, 0);
  }

  bool make_room(StageId k, std::int64_t held) {
    Stage& stage = stages_[at(k)];
    while (stage.held + held > times_.cap[at(k)]) {
      if (stage.weights.empty()) return false;
      weights(k);
    }
    return true;
  }

  // Ws until the input of the next op arrives. One more may delay that op, where the stage has no idle time to spare.
  void fill_gap(StageId k, std::int64_t ready, bool may_delay) {
    Stage& stage = stages_[at(k)];
    while (!stage.weights.empty() && stage.end + times_.weights[at(stage.weights.front().chunk)] <= ready)
      weights(k);
    const std::int64_t spare = std::max(most_idle_, stage.allowed_idle) - stage.idle;
    if (may_delay && !stage.weights.empty() && ready - stage.end > spare) weights(k);
  }

  void append_pass(StageId k, int pass, Kind kind, const std::vector<std::int64_t>& lengths, std::int64_t ready) {
    append(k, kind, chunk(k, pass), done(k, pass), lengths, ready);
    stages_[at(k)].ends[at(pass)].push_back(stages_[at(k)].end);
  }
  void append(StageId k, Kind kind, VirtualStageId v, int m, const std::vector<std::int64_t>& lengths,
              std::int64_t ready) {
    Stage& stage = stages_[at(k)];
    const std::int64_t begin = std::max(stage.end, ready);
    if (stage.order.empty()) stage.begin = begin;
    if (!stage.order.empty()) stage.idle += begin - stage.end;
    most_idle_ = std::max(most_idle_, stage.idle);
    stage.end = begin + lengths[at(v)];
    stage.order.push_back(
        {.kind = kind, .virtual_stage = static_cast<std::uint16_t>(v), .micro_batch = static_cast<std::uint32_t>(m)});
  }

  const int micro_batches_;
  const ZeroBubbleTimes& times_;
  const ZbvChoice choice_;
  std::vector<Stage> stages_;
  std::int64_t most_idle_ = 0;
};

// Again and again, as long as the idle times of a run make the next one shorter.
std::optional<ZbvAutoRun> best_zbv_run(int micro_batches, const ZeroBubbleTimes& times, ZbvChoice choice) {
  std::optional<ZbvAutoRun> best;
  std::vector<std::int64_t> known_idle;
  while (true) {
    ZbvAutoRun run(micro_batches, times, choice, known_idle);
    if (!run.complete() || (best && run.longest_span() >= best->longest_span())) return best;
    known_idle = run.idle();
    best.emplace(std::move(run));
  }
}

std::optional<ZbvAutoRun> best_zbv_run(int micro_batches, const ZeroBubbleTimes& times) {
  std::optional<ZbvAutoRun> best;
  for (const bool before_backward_back : {true, false})
    for (const bool before_forward : {true, false}) {
      std::optional<ZbvAutoRun> run = best_zbv_run(micro_batches, times, {before_backward_back, before_forward});
      if (run && (!best || run->longest_span() < best->longest_span())) best.emplace(std::move(*run));
    }
  return best;
}

// Every stage follows the one before it, so that one with more room would lead the others over their caps. All get room
// for as many pairs of chunks as the one with least.
ZeroBubbleTimes with_equal_room(ZeroBubbleTimes times) {
  const std::size_t stages = times.cap.size();
  const Seating seating = v_seating(static_cast<int>(stages));
  const auto pair = [&](std::size_t k) {
    return std::max<std::int64_t>(1, times.held[k] + times.held[at(seating.chunk_of(static_cast<StageId>(k), 1))]);
  };
  std::int64_t pairs = times.cap[0] / pair(0);
  for (std::size_t k = 1; k < stages; ++k)
    pairs = std::min(pairs, times.cap[k] / pair(k));
  for (std::size_t k = 0; k < stages; ++k)
    times.cap[k] = pairs * pair(k);
  return times;
}

// Rounds go through the stages in step: where passes are unequal none may complete. The order for mean times is one for
// the plan's own, too, if not made for them.
ZeroBubbleTimes with_equal_times(ZeroBubbleTimes times) {
  for (auto* const of : {&times.forward, &times.input, &times.weights}) {
    const std::int64_t sum = std::accumulate(of->begin(), of->end(), std::int64_t{0});
    std::fill(of->begin(), of->end(), std::max<std::int64_t>(1, sum / std::ssize(*of)));
  }
  return times;
}

// A list for each stage; from a cap of 2 K chunks on, the memory of 1F1B, there is an order if all chunks hold the same.
// Empty where none is found.
std::vector<std::vector<Op>> zero_bubble_v_order(const OrderProblem& problem) {
  const ZeroBubbleTimes times = zero_bubble_times(problem);
  const int micro_batches = problem.micro_batches;
  if (auto run = best_zbv_run(micro_batches, times)) return std::move(*run).orders();
  const ZeroBubbleTimes equal_room = with_equal_room(times);
  if (auto run = best_zbv_run(micro_batches, equal_room)) return std::move(*run).orders();
  if (auto run = best_zbv_run(micro_batches, with_equal_times(equal_room))) return std::move(*run).orders();
  return {};
}

}  // namespace

ScheduleRule zbv_auto() {
  return {.name = "zbv_auto",
          .title = "ZB-V in an order made for the times of the plan",
          .source = "ZeroBubble23",
          .memory = "2 chunks for each of plan.most_in_flight, by default K, on every stage",
          .flush = true,
          .splits_backward = true,
          .compute = [](const ScheduleShape& shape) { return made_schedule(zbv_auto(), shape); },
          .peak_in_flight = [](const ScheduleShape&, StageId) -> std::optional<std::int64_t> { return std::nullopt; },
          .facts = {.takes_chunks = true, .limits_in_flight = true},
          .chunk_order = ChunkOrder::V,
          .chunks = 2,
          .searched = 0,
          .made_for = zero_bubble_v_order};
}

}  // namespace pipewright::sim
