#include "sim/finder/bounds.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/finder/windows.hpp"

namespace pipewright::sim {
namespace {

__extension__ typedef __int128 WideProduct;  // exact products of two 64-bit numbers

constexpr std::int64_t kQuestions = 6;  // of raise_bound: each may take that part of the effort that is left

// Some passes of a kind: how many there are at most, what one takes and what it holds.
struct Passes {
  std::int64_t count, time, held;
};

// The longest that passes which hold `cap` together can take; the last of them may be taken in part.
std::int64_t longest(std::vector<Passes> passes, std::int64_t cap) {
  std::erase_if(passes, [](const Passes& each) { return each.time == 0; });
  std::ranges::stable_sort(passes, [](const Passes& a, const Passes& b) {
    return static_cast<WideProduct>(a.time) * b.held > static_cast<WideProduct>(b.time) * a.held;
  });
  std::int64_t sum = 0;
  for (const Passes& each : passes) {
    const std::int64_t whole = each.held == 0 ? each.count : std::min(each.count, cap / each.held);
    sum += whole * each.time, cap -= whole * each.held;
    if (whole < each.count)
      return sum + static_cast<std::int64_t>((static_cast<WideProduct>(cap) * each.time + each.held - 1) /
                                             std::max<std::int64_t>(each.held, 1));
  }
  return sum;
}

// One stage of the problem, on its own.
class StageBound {
 public:
  StageBound(const OrderProblem& problem, StageId stage) : problem_(problem), stage_(stage) {
    for (VirtualStageId v = 0; v < problem.chunks(); ++v)
      if (problem.seating().stage_of(v) == stage) chunks_.push_back(v);
    for (VirtualStageId v = 0; v < first(); ++v)
      begin_ += problem.forward[at(v)] + problem.down[at(v)], way_back_ += problem.input[at(v)] + problem.up[at(v)];
    for (VirtualStageId v = last(); v + 1 < problem.chunks(); ++v)
      beyond_ += problem.down[at(v)] + problem.forward[at(v) + 1] + problem.input[at(v) + 1] + problem.up[at(v)];
    for (VirtualStageId v = first(); v < last(); ++v)
      there_ += problem.forward[at(v)] + problem.down[at(v)], back_ += problem.up[at(v)] + problem.input[at(v) + 1];
    std::int64_t all = 0;
    for (const VirtualStageId v : chunks_)
      all += problem.micro_batches * problem.held[at(v)];
    all_forwards_fit_ = all <= cap();
  }

  std::int64_t begin() const { return begin_; }  // of its first F, at the earliest
  std::int64_t work() const { return problem_.work(stage_); }
  // How long it is idle at least: before its first B, behind its last F, and both.
  std::int64_t first_wait() const { return std::max<std::int64_t>(0, from_first_forward() - longest_head()); }
  std::int64_t last_wait() const {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const Left& left : lefts())
      least = std::min(least, from_last_forward() - left.inputs - left.weights);
    return std::max<std::int64_t>(0, least);
  }
  std::int64_t waits() const {
    return all_forwards_fit_ ? std::max(first_wait(), last_wait()) : first_wait() + last_wait();
  }
  // From the begin of its first F to the end of the whole step on the first stage: up to its last B it has run all Ws
  // but those that fit into memory with its last F.
  std::int64_t through() const {
    std::int64_t forwards = 0, inputs = 0;
    for (const VirtualStageId v : chunks_) {
      forwards += problem_.micro_batches * problem_.forward[at(v)];
      inputs += problem_.micro_batches * problem_.input[at(v)];
    }
    const std::int64_t own_weights = problem_.weights[at(first())];  // of the last B's
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const Left& left : lefts()) {
      const std::int64_t all = std::max(forwards + inputs, work() - left.weights - own_weights);
      least = std::min(least, all + std::max<std::int64_t>(0, from_last_forward() - left.inputs));
    }
    std::int64_t to_last_input = first_wait() + least;
    if (all_forwards_fit_) to_last_input = std::min(to_last_input, std::max(from_first_forward(), forwards) + inputs);
    return to_last_input + way_back_ + problem_.weights.front();
  }
  bool all_forwards_fit() const { return all_forwards_fit_; }

  // From its first F to its last op, since what the passes hold from F to W takes turns in the memory: all bytes times
  // the time that they are held at least, over the cap.
  std::int64_t turns() const { return cap() <= 0 ? 0 : static_cast<std::int64_t>((occupied() + cap() - 1) / cap()); }
  WideProduct occupied() const {
    WideProduct sum = 0;
    for (const VirtualStageId v : chunks_)
      sum += WideProduct{problem_.held[at(v)]} * held_for(v) +
             WideProduct{problem_.kept_after_input[at(v)]} * problem_.weights[at(v)];
    return sum * problem_.micro_batches;
  }
  // The same of one chunk, one after the other: n micro-batches have room, so that the F of each waits for the W of the
  // one n before it (`to_input`: for its B, and up to the end of the last B only).
  std::int64_t generations(bool to_input) const {
    const std::size_t v = at(first());
    const std::int64_t held = problem_.held[v], M = problem_.micro_batches;
    if (chunks_.size() > 1 || held <= 0 || cap() < held) return 0;
    const std::int64_t n = std::min(M, cap() / held), generations = (M + n - 1) / n;
    const std::int64_t turn = held_for(first()) + (problem_.kept_after_input[v] >= held ? problem_.weights[v] : 0);
    return (generations - 1) * turn + (M - (generations - 1) * n - 1) * problem_.forward[v] + held_for(first()) +
           (to_input ? 0 : problem_.weights[v]);
  }
  std::int64_t way_back() const { return way_back_ + problem_.weights.front(); }

  // From its first F to its last op: a pass of a chunk cannot begin before the first micro-batch has come so far, and
  // behind it there are all passes of it and of what follows it here. `to_input`: to the end of the last B; likewise all
  // passes up to one come before what the last micro-batch still has ahead.
  std::int64_t in_line(bool to_input) const {
    std::int64_t all_weights = 0, all_passes = 0;
    for (const VirtualStageId v : chunks_) {
      all_weights += to_input ? 0 : problem_.weights[at(v)];
      all_passes += problem_.forward[at(v)] + problem_.input[at(v)];
    }
    const std::int64_t M = problem_.micro_batches, way = held_for(first());
    const std::int64_t last_weights = to_input ? 0 : problem_.weights[at(first())];
    std::int64_t longest = 0, before = 0;  // passes of a micro-batch here before this one
    std::int64_t weights = all_weights;    // of the passes from this one on
    const auto take = [&](std::int64_t arrival, std::int64_t time) {
      longest = std::max(longest, arrival + M * (all_passes - before + weights));
      before += time;
      longest = std::max(longest, M * before + way - arrival - time + last_weights);
    };
    std::int64_t arrival = 0;
    for (VirtualStageId v = first(); v < problem_.chunks(); ++v) {
      if (problem_.seating().stage_of(v) == stage_) take(arrival, problem_.forward[at(v)]);
      arrival += problem_.forward[at(v)] + (v + 1 < problem_.chunks() ? problem_.down[at(v)] : 0);
    }
    for (VirtualStageId v = problem_.chunks() - 1; v >= first(); --v) {
      if (problem_.seating().stage_of(v) == stage_) {
        take(arrival, problem_.input[at(v)]);
        weights -= to_input ? 0 : problem_.weights[at(v)];
      }
      arrival += problem_.input[at(v)] + (v > 0 ? problem_.up[at(v) - 1] : 0);
    }
    return longest;
  }

 private:
  // From the begin of F to the end of B.
  std::int64_t held_for(VirtualStageId chunk) const {
    std::int64_t time = problem_.forward[at(chunk)] + problem_.input[at(chunk)];
    for (VirtualStageId v = chunk; v + 1 < problem_.chunks(); ++v)
      time += problem_.down[at(v)] + problem_.forward[at(v) + 1] + problem_.input[at(v) + 1] + problem_.up[at(v)];
    return time;
  }

  VirtualStageId first() const { return chunks_.front(); }
  VirtualStageId last() const { return chunks_.back(); }
  std::int64_t cap() const { return problem_.cap[at(stage_)]; }
  // From the begin of the first F to the first B, and from the end of the last F to that micro-batch's last B.
  std::int64_t from_first_forward() const { return there_ + problem_.forward[at(last())] + beyond_; }
  std::int64_t from_last_forward() const { return beyond_ + back_; }

  std::int64_t longest_head() const {
    std::vector<Passes> passes;
    for (const VirtualStageId v : chunks_)
      passes.push_back({problem_.micro_batches, problem_.forward[at(v)], problem_.held[at(v)]});
    return longest(std::move(passes), cap());
  }

  // What can be left at the end of the last F, next to that micro-batch's last B and W: time of Bs, and of Ws.
  struct Left {
    std::int64_t inputs, weights;
  };
  std::vector<Left> lefts() const {
    const std::int64_t room = cap() - problem_.held[at(first())], M = problem_.micro_batches;
    std::vector<Left> lefts;
    if (chunks_.size() == 1) {
      const std::size_t v = at(first());
      const std::int64_t held = problem_.held[v], kept = problem_.kept_after_input[v];
      for (std::int64_t inputs = 0; inputs < M && inputs * held <= room; ++inputs) {
        const std::int64_t others = M - 1 - inputs;
        const std::int64_t only_weights = kept == 0 ? others : std::min(others, (room - inputs * held) / kept);
        lefts.push_back({inputs * problem_.input[v], (inputs + only_weights) * problem_.weights[v]});
      }
      if (lefts.empty()) lefts.push_back({0, 0});
      return lefts;
    }
    // Of several chunks the most of each, as if it had all the room, and of both together: as many Ws as can be, or as few.
    std::vector<Passes> weights, both;
    std::int64_t inputs = 0;
    for (const VirtualStageId v : chunks_) {
      const std::int64_t w = problem_.weights[at(v)], kept = problem_.kept_after_input[at(v)];
      weights.push_back({M, w, std::min(kept, problem_.held[at(v)])});
      both.push_back({M, problem_.input[at(v)] + w, problem_.held[at(v)]}), both.push_back({M, w, kept});
      inputs += M * problem_.input[at(v)];
    }
    const std::int64_t most_weights = longest(std::move(weights), room), most = longest(std::move(both), room);
    for (const std::int64_t w : {most_weights, std::clamp<std::int64_t>(most - inputs, 0, most_weights)})
      lefts.push_back({std::min(inputs, std::max<std::int64_t>(0, most - w)), w});
    return lefts;
  }

  const OrderProblem& problem_;
  const StageId stage_;
  std::vector<VirtualStageId> chunks_;
  std::int64_t begin_ = 0, way_back_ = 0;  // the other stages' passes before its first F, behind its last B
  std::int64_t there_ = 0, back_ = 0;      // between its first and its last chunk, its own passes but one among them
  std::int64_t beyond_ = 0;                // from its last chunk to the last of all, and back
  bool all_forwards_fit_ = false;
};

// One chunk per stage: whether the first Bs can come so early that no stage exceeds `target`. A stage that may not be
// idle so long takes another F before its first B, which then comes later to all stages before it; from the last stage
// on, the fewest Fs are best for all others.
bool first_inputs_fit(const OrderProblem& problem, const std::vector<StageBound>& stages, std::int64_t target) {
  std::int64_t arrival = 0;
  for (StageId k = problem.stages - 1; k >= 0; --k) {
    const StageBound& stage = stages[at(k)];
    const std::int64_t f = problem.forward[at(k)];
    if (k + 1 == problem.stages) arrival = stage.begin() + f;
    const std::int64_t begin = problem.measure == OrderMeasure::Step ? stage.begin() : 0;
    const std::int64_t tail = stage.all_forwards_fit() ? 0 : stage.last_wait();
    const std::int64_t idle = target - begin - stage.work() - tail;
    if (idle < 0) return false;
    const std::int64_t head = arrival - stage.begin();
    std::int64_t forwards = 1;
    if (f > 0) forwards = std::max(forwards, (head - idle + f - 1) / f);
    if (f == 0 && head > idle) return false;
    const std::int64_t held = problem.held[at(k)];
    if (forwards > problem.micro_batches || (held > 0 && forwards > problem.cap[at(k)] / held)) return false;
    arrival = std::max(arrival, stage.begin() + forwards * f) + problem.input[at(k)];
    if (k > 0) arrival += problem.up[at(k) - 1];
  }
  return true;
}

// Either direction alone is a problem of its own: the passes of the other one only take time and room. A stage has the
// work of both, and its memory the passes of both.
OrderBound bound_both_ways(const OrderProblem& problem) {
  const std::array ways = {problem.direction(false), problem.direction(true)};
  OrderBound best = order_bound(ways[0]);
  best.why += ", of the way down alone";
  if (OrderBound up = order_bound(ways[1]); up.value > best.value)
    best = {up.value, std::move(up.why) + ", of the way up alone, along which its stages count"};
  for (StageId k = 0; k < problem.stages; ++k) {
    const StageBound down(ways[0], k), up(ways[1], problem.stages - 1 - k);
    const std::int64_t begin = problem.measure == OrderMeasure::Step ? std::min(down.begin(), up.begin()) : 0;
    if (const std::int64_t work = begin + problem.work(k); work > best.value)
      best = {work, fmt::format("work of stage {} in both directions{}", k, begin > 0 ? ", and the way to it" : "")};
    if (const std::int64_t cap = problem.cap[at(k)]; cap > 0)
      if (const auto turns = begin + static_cast<std::int64_t>((down.occupied() + up.occupied() + cap - 1) / cap);
          turns > best.value)
        best = {turns, fmt::format("micro-batches of both directions that take turns in the memory of stage {}", k)};
  }
  return best;
}

// The most that cells save on a stage: each F saves what its best backward does, or each backward what its best F does. In one
// direction the first micro-batch's Fs are behind no B and in no cell; both ways, a stage's first F.
std::int64_t saved_by_cells(const OrderProblem& problem, StageId stage) {
  const OrderPricer pricer(problem);
  const int v = problem.virtual_stages;
  std::vector<std::int64_t> by_forward(at(v), 0), by_backward(at(v), 0);
  for (int f = 0; f < v; ++f)
    for (int b = 0; b < v; ++b) {
      const std::size_t forward = at(pricer.chunk_at(stage, f)), back = at(pricer.chunk_at(stage, b));
      const std::int64_t saved = problem.forward[forward] + problem.input[back] + problem.weights[back] -
                                 problem.pair[forward * at(v) + at(b)];
      by_forward[at(f)] = std::max(by_forward[at(f)], saved), by_backward[at(b)] = std::max(by_backward[at(b)], saved);
    }
  const std::int64_t first = problem.two_ways ? *std::ranges::min_element(by_forward)
                                              : std::accumulate(by_forward.begin(), by_forward.end(), std::int64_t{0});
  const auto all = [&](const std::vector<std::int64_t>& saved) {
    return problem.micro_batches * std::accumulate(saved.begin(), saved.end(), std::int64_t{0});
  };
  return std::min(all(by_forward) - first, all(by_backward));
}

// Whether some cell ends earlier than its F or its B would alone, so that it makes a way shorter.
bool shorter_than_a_pass(const OrderProblem& problem) {
  const OrderPricer pricer(problem);
  for (VirtualStageId f = 0; f < problem.chunks(); ++f)
    for (int row = 0; row < problem.virtual_stages; ++row) {
      const std::int64_t backward = problem.input[at(pricer.chunk_at(pricer.stage_of(f), row))];
      if (problem.pair[at(f * problem.virtual_stages + row)] < std::max(problem.forward[at(f)], backward)) return true;
    }
  return false;
}

// Without cells in times that are short enough; and for each stage in its own times, less what its cells can save: before the
// first B and behind the last F there is none, so that its waits are those without cells, unless cells make a way shorter.
OrderBound bound_with_cells(const OrderProblem& problem) {
  OrderBound best = order_bound(problem.without_pairs());
  OrderProblem passes = problem;
  passes.pair.clear();
  for (StageId k = 0; k < problem.stages; ++k) {
    std::int64_t value = passes.work(k) - saved_by_cells(problem, k);
    const bool step = problem.measure == OrderMeasure::Step;
    if (problem.two_ways && step)
      value += std::min(StageBound(passes.direction(false), k).begin(),
                        StageBound(passes.direction(true), problem.stages - 1 - k).begin());
    if (!problem.two_ways && !shorter_than_a_pass(problem)) {
      const StageBound stage(passes, k);
      value += stage.waits() + (step ? stage.begin() : 0);
    }
    if (value > best.value) best = {value, fmt::format("work of stage {}, as far as it can be in cells", k)};
  }
  return best;
}

// A stage may recompute while it waits for the gradient: they count in its work alone.
OrderBound bound_with_recomputation(const OrderProblem& problem) {
  const OrderProblem less = problem.without_recomputation(), passes = less.without_pairs();
  OrderBound best = order_bound(less);
  for (StageId k = 0; k < problem.stages; ++k) {
    std::int64_t value = problem.work(k) - (less.pair.empty() ? 0 : saved_by_cells(less, k));
    const bool step = problem.measure == OrderMeasure::Step;
    if (step && problem.two_ways) {
      const OrderProblem down = passes.direction(false), up = passes.direction(true);
      value += std::min(StageBound(down, k).begin(), StageBound(up, problem.stages - 1 - k).begin());
    } else if (step) {
      value += StageBound(passes, k).begin();
    }
    if (value > best.value) best = {value, fmt::format("work of stage {} with its recomputations", k)};
  }
  return best;
}

}  // namespace

OrderBound order_bound(const OrderProblem& problem) {
  if (problem.again_count > 0) return bound_with_recomputation(problem);
  if (!problem.pair.empty()) return bound_with_cells(problem);
  if (problem.two_ways) return bound_both_ways(problem);
  std::vector<StageBound> stages;
  for (StageId k = 0; k < problem.stages; ++k)
    stages.emplace_back(problem, k);
  OrderBound best;
  const auto take = [&](std::int64_t value, auto&& why) {
    if (value > best.value) best = {value, why()};
  };
  for (StageId k = 0; k < problem.stages; ++k) {
    const StageBound& stage = stages[at(k)];
    const std::int64_t begin = problem.measure == OrderMeasure::Step ? stage.begin() : 0;
    take(begin + stage.work() + stage.waits(), [&] {
      if (stage.waits() > 0) return fmt::format("work of stage {}, and its waits with so much memory", k);
      return begin > 0 ? fmt::format("work of stage {}, and the way to it", k) : fmt::format("work of stage {}", k);
    });
    const auto line = [&] { return fmt::format("passes of stage {}, and the way of one micro-batch", k); };
    take(begin + stage.in_line(false), line);
    take(stage.begin() + stage.in_line(true) + stage.way_back(), line);
    const auto turns = [&] { return fmt::format("micro-batches that take turns in the memory of stage {}", k); };
    take(begin + std::max(stage.turns(), stage.generations(false)), turns);
    take(stage.begin() + stage.generations(true) + stage.way_back(), turns);
    take(stage.begin() + stage.through(), [&] { return fmt::format("F and B of stage {}, and the way back", k); });
  }
  if (problem.virtual_stages == 1) {
    std::int64_t low = best.value, high = low;  // low - 1 is known not to do
    for (std::int64_t step = 1; !first_inputs_fit(problem, stages, high); step *= 2) {
      if (high > std::numeric_limits<std::int64_t>::max() / 4) return best;
      low = high + 1, high += step;
    }
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (first_inputs_fit(problem, stages, middle))
        high = middle;
      else
        low = middle + 1;
    }
    take(high, [] { return "the first gradients' way back through all stages, with so much memory"; });
  }
  return best;
}

void raise_bound(OrderBound& bound, const OrderProblem& problem, std::int64_t known, bool both_orders,
                 std::int64_t effort, const std::function<bool()>& stop) {
  const OrderProblem passes = problem.without_recomputation().without_pairs();
  PassWindows windows(passes, !problem.pair.empty());
  std::int64_t low = bound.value, high = known;  // low - 1 is known not to do, high is not
  const auto refutes = [&](std::int64_t target) {
    std::int64_t part = std::min(effort, effort / kQuestions + 1);
    effort -= part;
    const bool refuted = windows.refutes(target, both_orders, part, stop);
    effort += std::max<std::int64_t>(part, 0);
    return refuted;
  };
  if (low < high && refutes(high - 1)) low = high;
  while (low < high && effort > 0) {
    const std::int64_t middle = low + (high - low) / 2;
    if (refutes(middle))
      low = middle + 1;
    else
      high = middle;
  }
  if (low > bound.value) bound = {low, "the windows of time that are left to the passes of all stages"};
}

std::int64_t one_micro_batch(const OrderProblem& problem, StageId stage) {
  std::int64_t all = 0, most = 0;
  for (VirtualStageId v = 0; v < problem.chunks(); ++v) {
    if (problem.seating().stage_of(v) != stage) continue;
    const std::int64_t held = std::max(problem.held[at(v)], problem.kept_after_input[at(v)]);
    all += held, most = std::max(most, held);
  }
  return problem.two_ways ? most : all;
}

std::int64_t least_cap(const OrderProblem& problem, StageId stage) {
  if (problem.two_ways) return 2 * one_micro_batch(problem, stage);
  // Its Fs in ascending order, then B and W of each from the last one on.
  std::int64_t held = 0, most = 0;
  for (VirtualStageId v = 0; v < problem.chunks(); ++v) {
    if (problem.seating().stage_of(v) != stage) continue;
    most = std::max(most, held + std::max(problem.held[at(v)], problem.kept_after_input[at(v)]));
    held += problem.held[at(v)];
  }
  return std::max(most, held);
}

}  // namespace pipewright::sim
