#include "planner/search/run_bound.hpp"

#include <algorithm>

#include "sim/schedules/table.hpp"

namespace pipewright {
namespace {

// The least T such that stages 0 .. K-1 can take `layers` layers in all, stage k no more than before(k) + times[k][n]
// <= T allows, stage 0 from `least` to `most` of them; more than `high`: none up to there.
template <class Before>
std::int64_t least_bound(const std::vector<std::vector<std::int64_t>>& times, int layers, int least, int most,
                         std::int64_t high, const Before& before) {
  const auto holds = [&](std::int64_t bound) {
    std::int64_t sum = 0;
    for (std::size_t k = 0; k < times.size(); ++k) {
      std::int64_t can = std::upper_bound(times[k].begin(), times[k].end(), bound - before(static_cast<int>(k))) -
                         times[k].begin() - 1;
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

}  // namespace

std::optional<EqualRun> equal_run(const Model& model, const LayerCosts& costs) {
  const auto layers = static_cast<LayerId>(model.layers.size());
  if (layers < 3) return std::nullopt;
  const auto same = [](const auto& figures, LayerId i) { return figures[at(i)] == figures[1]; };
  const auto alike = [&](LayerId i) {
    const Layer &layer = model.layers[at(i)], &first = model.layers[1];
    return layer.work == first.work && layer.held() == first.held() && layer.tied_to < 0 &&
           layer.inputs == std::vector<LayerId>{i - 1} && same(costs.forward, i) && same(costs.backward, i) &&
           same(costs.rebuild, i) && same(costs.activation, i) && same(costs.stash, i) && same(costs.core, i) &&
           same(costs.logits, i) && same(costs.workspace, i);
  };
  EqualRun run{1, 1};
  while (run.end < layers && alike(run.end))
    ++run.end;
  if (run.end + 1 < layers || run.size() < 2) return std::nullopt;
  return run;
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
  const std::int64_t waited_unit = waited(run.begin);
  const bool block = cost.scenario().model.layers[at(run.begin)].block;
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
    if (has_last && run.end < static_cast<LayerId>(layers.forward.size())) besides += each(run.end);
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
  return least > high ? kNever : Time{least};
}

}  // namespace pipewright
