#include "planner/search/run_bound.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

// The least T such that stages 0 .. K-1 can take `layers` layers in all, stage k no more than before(k) + times[k][n]
// <= T allows, stage 0 from `least` to `most` of them; more than `high`: none up to there.
template <class Before>
std::int64_t least_bound(const std::vector<std::vector<std::int64_t>>& times, int layers, int least, int most,
                         std::int64_t high, const Before& before) {
  const auto holds = [&](std::int64_t bound) {
    std::int64_t sum = 0;
    for (std::size_t k = 0; k < times.size(); ++k) {
      std::int64_t can = std::ranges::upper_bound(times[k], bound - before(static_cast<int>(k))) - times[k].begin() - 1;
      if (k == 0 && can < least) return false;
      if (k == 0) can = std::min<std::int64_t>(can, most);
      sum += std::max<std::int64_t>(0, can);
    }
    return sum >= layers;
  };
  if (!holds(high)) return high + 1;
  std::int64_t low = 0;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (holds(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// The work of all stages together, divided evenly. `times`: of a stage with so many layers of the run; `before`: what it
// waits for first.
template <class Before>
std::int64_t evenly_divided(const EqualRun& run, const std::vector<std::vector<std::int64_t>>& times,
                            std::int64_t left_out, const Before& before) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max() / 2;
  // By layers of the run on the stages so far: the least that these take together.
  std::vector<std::int64_t> least(at(run.size()) + 1, kNone);
  least[0] = 0;
  std::int64_t all = left_out;
  for (std::size_t k = 0; k < times.size(); ++k) {
    std::vector<std::int64_t> next(least.size(), kNone);
    for (std::size_t ahead = 0; ahead < least.size(); ++ahead)
      for (std::size_t n = 0; n < times[k].size() && ahead + n < least.size() && least[ahead] < kNone; ++n)
        next[ahead + n] = std::min(next[ahead + n], checked_sum(least[ahead], times[k][n], "a bound"));
    least = std::move(next);
    all = checked_sum(all, before(static_cast<int>(k)), "a bound");
  }
  return least.back() < kNone ? checked_sum(all, least.back(), "a bound") / static_cast<std::int64_t>(times.size()) : 0;
}

}  // namespace

std::optional<EqualRun> equal_run(const Model& model, const LayerCosts& costs) {
  const auto layers = static_cast<LayerId>(model.layers.size());
  if (layers < 3) return std::nullopt;
  const auto alike = [&](LayerId i, LayerId of) {
    const auto same = [&](const auto& figures) { return figures[at(i)] == figures[at(of)]; };
    const Layer &layer = model.layers[i], &first = model.layers[of];
    return layer.work == first.work && layer.held() == first.held() && layer.states == first.states &&
           layer.tied_to < 0 && layer.inputs == std::vector<LayerId>{i - 1} && same(costs.forward) &&
           same(costs.backward) && same(costs.rebuild) && same(costs.activation) && same(costs.stash) &&
           same(costs.core) && same(costs.selective) && same(costs.logits) && same(costs.workspace);
  };
  EqualRun longest{1, 1, layers};
  for (LayerId begin = 1; begin < layers;) {
    EqualRun run{begin, begin, layers};
    while (run.end < layers && alike(run.end, begin))
      ++run.end;
    if (run.size() > longest.size()) longest = run;
    begin = std::max<LayerId>(run.end, begin + 1);
  }
  if (longest.size() < 2 || 2 * longest.size() < layers) return std::nullopt;
  return longest;
}

Time run_bound(const EqualRun& run, const Plan& shell, const CostModel& cost, const LayerCosts& layers,
               const std::vector<Recompute>& modes) {
  const int stages = shell.stages, most = run.size();
  const std::int64_t micro_batches = shell.micro_batches;
  const auto each = [&](LayerId layer) { return layers.forward[at(layer)].value + layers.backward[at(layer)].value; };
  const std::int64_t unit = each(run.begin);
  // What the stages behind wait for: where the backward is split, how much of it is not known here.
  const bool split = find_schedule(shell.schedule)->splits_backward;
  const auto waited = [&](LayerId layer) { return split ? layers.forward[at(layer)].value : each(layer); };
  std::int64_t waited_unit = waited(run.begin);
  for (LayerId layer = 1; layer + 1 < run.layers; ++layer)
    waited_unit = std::min(waited_unit, waited(layer));
  const bool block = cost.scenario().model.layers[run.begin].block;
  const auto added = [&](Recompute mode) {
    switch (mode) {
      case Recompute::Full: return layers.forward[at(run.begin)].value;
      case Recompute::Selective: return layers.rebuild[at(run.begin)].value;
      case Recompute::Blocks: return block ? layers.again[at(run.begin)].value : 0;
      case Recompute::Layers:
      case Recompute::Knapsack: return layers.again[at(run.begin)].value;
      case Recompute::None: break;
    }
    return std::int64_t{0};
  };
  EqualRunMemory memory(run, shell, cost, layers);
  // What the lightest recomputation under which n layers fit on stage k adds; nothing: none.
  const auto least_added = [&](StageId k, int n) {
    std::optional<std::int64_t> least;
    for (const Recompute mode : modes) {
      const bool set = mode == Recompute::Layers || mode == Recompute::Knapsack;
      const int rebuilt = set ? memory.least_rebuilt(k, n) : n;
      const std::int64_t more = rebuilt * added(mode);
      if (least && more >= *least) continue;
      if (set ? rebuilt <= n : memory.fits(k, n, mode)) least = more;
      if (least && *least == 0) break;
    }
    return least;
  };
  // What stage k takes for n layers; where the list ends, so many do not fit. Grows with n.
  std::vector<std::vector<std::int64_t>> times(at(stages));
  std::int64_t high = 0;
  for (StageId k = 0; k < stages; ++k) {
    std::int64_t besides = 0;
    if (k == 0) besides = each(0);
    const bool has_last = k == shell.stage_of(shell.chunks() - 1);
    if (has_last && run.behind() > 0) besides += each(run.layers - 1);
    for (int n = 0; n <= most; ++n) {
      const std::optional<std::int64_t> more = least_added(k, n);
      if (!more) break;
      const std::int64_t load = checked_sum(n * unit + *more, besides, "a stage's work");
      times[at(k)].push_back(checked_product(load, micro_batches, "a bound"));
      high = std::max(high, times[at(k)].back());
    }
  }
  high = checked_sum(high, checked_product(stages, unit + each(0), "a bound"), "a bound");
  // The first layer may have stage 0, or its first chunk, to itself: then it alone is before the stages behind.
  const bool chunks = shell.virtual_stages > 1;
  const std::int64_t alone = least_bound(times, most, 0, chunks ? most : 0, high,
                                         [&](int k) { return k == 0 ? 0 : waited(0) + (k - 1) * waited_unit; });
  const std::int64_t shared =
      chunks ? alone : least_bound(times, most, 1, most, high, [&](int k) { return k * waited_unit; });
  const std::int64_t least = std::min(alone, shared);
  if (least > high) return kNever;
  if (run.nearly_all()) return Time{least};
  std::int64_t left_out = 0;
  for (LayerId layer = 1; layer + 1 < run.layers; ++layer)
    if (layer < run.begin || layer >= run.end) left_out = checked_sum(left_out, each(layer), "a bound");
  const std::int64_t even = evenly_divided(run, times, checked_product(left_out, micro_batches, "a bound"), [&](int k) {
    return k == 0 ? 0 : std::min(waited(0), waited_unit) + (k - 1) * waited_unit;
  });
  return Time{std::max(least, even)};
}

}  // namespace pipewright::planner
