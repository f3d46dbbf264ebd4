#include "planner/search/run_bound.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/cost/memory_model.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright {
namespace {

std::size_t at(std::int64_t number) {
  return static_cast<std::size_t>(number);
}

// Micro-batches in flight at one moment on a stage: of all its chunks that hold layers of the run for certain, and of
// the chunks that have fewest and most. n layers in v such chunks then have at least `all` + (n - v) `fewest` layers'
// worth in flight.
struct InFlight {
  std::int64_t chunks = 0, all = 0, fewest = 0, most = 0;
  bool operator==(const InFlight&) const = default;
};

// What a stage must have for n layers of the run, at least: never more than any cut needs.
class RunMemory {
 public:
  RunMemory(const EqualRun& run, const Plan& shell, const CostModel& cost, const LayerCosts& layers)
      : cost_(cost), plan_(shell) {
    plan_.layers.assign(at(plan_.chunks()), {run.begin, run.begin + 1});
    for (const Recompute mode : {Recompute::None, Recompute::Selective, Recompute::Full, Recompute::Blocks}) {
      plan_.recompute.assign(at(plan_.stages), mode);
      memory_[at(static_cast<int>(mode))] = memory_of_stage(plan_, cost, {layers, layers}, 0);
    }
    const MemoryModel& any = memory_.front();
    sums_ = need_sums(any.fragmentation, any.activation_band, any.fit);
    kept_ = kept_by_layers(plan_, cost, layers, 0).front();
    const bool last_is_other = run.end < static_cast<LayerId>(layers.forward.size());
    for (const Recompute mode : {Recompute::None, Recompute::Full}) {
      plan_.recompute.assign(at(plan_.stages), mode);
      ScheduleShape shape = schedule_shape(plan_, cost.scenario().model, cost.scenario().training);
      shape.buckets.clear();
      // Once the pipeline is full its memory repeats itself: a longer run has no higher peak.
      if (plan_.schedule != "gpipe") shape.micro_batches = std::min(shape.micro_batches, 4 * plan_.stages);
      const Schedule schedule = find_schedule(plan_.schedule)->generate(shape);
      for (StageId k = 0; k < plan_.stages; ++k) {
        // The chunk with the model's first layer, and the one with its last, may hold nothing else.
        const int other = k == 0 ? 0 : k + 1 == plan_.stages && last_is_other ? plan_.virtual_stages - 1 : -1;
        moments_[mode == Recompute::Full ? 1 : 0].push_back(moments(schedule.positions[at(k)], other));
      }
    }
  }

  bool fits(StageId k, int layers, Recompute mode) const {
    const MemoryModel& memory = memory_[at(static_cast<int>(mode))];
    const ChunkMemory& one = memory.chunks.front();
    const std::int64_t held_anyway = mode == Recompute::Full ? 0 : one.working[0].value;  // per layer in flight
    std::int64_t most = 0;
    for (const InFlight& now : moments_[mode == Recompute::Full ? 1 : 0][at(k)]) {
      most = std::max(most, surely_in_flight(now, layers) * held_anyway);
    }
    const std::int64_t states =
        one.weights.value + one.gradients.value + one.optimizer.value - kRoundedUp;  // of one layer
    const auto activations = static_cast<double>(most);
    const double model = static_cast<double>(layers) * static_cast<double>(states) + activations;
    const auto within = [&](const NeedSum& sum) {
      return model * sum.model + activations * sum.activation + static_cast<double>(memory.reserve.value) * sum.rest <=
             static_cast<double>(memory.capacity.value) * (1 + 1e-12);
    };
    return std::all_of(sums_.begin(), sums_.end(), within);
  }

  // Of n layers, how many at least keep their input only where a set of layers does: each frees what it keeps, less its
  // output, in no more micro-batches than the fullest chunk has in flight. More than n: not even all are enough.
  int least_rebuilt(StageId k, int layers) const {
    if (fits(k, layers, Recompute::None)) return 0;
    const MemoryModel& memory = memory_[at(static_cast<int>(Recompute::None))];
    const ChunkMemory& one = memory.chunks.front();
    const double states = static_cast<double>(layers) * static_cast<double>(one.weights.value + one.gradients.value +
                                                                            one.optimizer.value - kRoundedUp);
    double room = std::numeric_limits<double>::infinity();
    for (const NeedSum& sum : sums_)
      room = std::min(room, (static_cast<double>(memory.capacity.value) * (1 + 1e-12) -
                             static_cast<double>(memory.reserve.value) * sum.rest - states * sum.model) /
                                (sum.model + sum.activation));
    const auto freed = static_cast<double>((kept_.stash - kept_.input).value);
    double least = 0;
    for (const InFlight& now : moments_[0][at(k)]) {
      const double surely =
          static_cast<double>(surely_in_flight(now, layers)) * static_cast<double>(one.working[0].value);
      // The backward that follows has as many in flight where the stage has one chunk.
      const double again = plan_.virtual_stages == 1 ? static_cast<double>(kept_.again.value) : 0;
      if (surely <= room) continue;
      if (freed <= 0) return layers + 1;
      least = std::max(least, (surely + again - room) / (freed * static_cast<double>(now.most)));
    }
    return least > layers ? layers + 1 : static_cast<int>(std::ceil(least * (1 - 1e-9)));
  }

 private:
  static constexpr std::int64_t kRoundedUp = 64;  // bytes by which a layer's share of divided states is rounded up

  // Micro-batches in flight, summed over n layers.
  std::int64_t surely_in_flight(const InFlight& now, int layers) const {
    return plan_.virtual_stages == 1 ? layers * now.fewest
                                     : now.all + std::max<std::int64_t>(0, layers - now.chunks) * now.fewest;
  }

  std::vector<InFlight> moments(const Lane& lane, int other) const {
    const int v = plan_.virtual_stages;
    std::vector<std::int64_t> count(at(v));
    std::vector<InFlight> result;
    for (const Op& op : lane.compute) {
      const std::size_t chunk = op.virtual_stage / at(plan_.stages);
      if (op.kind == Kind::BW || op.kind == Kind::W) --count[chunk];
      if (op.kind != Kind::F) continue;
      ++count[chunk];
      InFlight now{0, 0, count[0], count[0]};
      for (int j = 0; j < v; ++j) {
        now.fewest = std::min(now.fewest, count[at(j)]), now.most = std::max(now.most, count[at(j)]);
        if (j != other || v == 1) now.all += count[at(j)], ++now.chunks;
      }
      const auto beats = [v](const InFlight& a, const InFlight& b) {
        return a.all >= b.all && a.fewest >= b.fewest && (v == 1 || a.most <= b.most);
      };
      if (std::any_of(result.begin(), result.end(), [&](const InFlight& known) { return beats(known, now); })) continue;
      std::erase_if(result, [&](const InFlight& known) { return beats(now, known); });
      result.push_back(now);
    }
    return result;
  }

  const CostModel& cost_;
  Plan plan_;
  std::array<MemoryModel, 4> memory_;  // by Recompute, of one layer
  std::vector<NeedSum> sums_;
  LayerKept kept_;                                             // of one layer
  std::array<std::vector<std::vector<InFlight>>, 2> moments_;  // without and with full recomputation, by stage
};

}  // namespace

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
  const bool block = cost.scenario().model.layers[at(run.begin)].block;
  const auto added = [&](Recompute mode) {
    const bool repeated = mode == Recompute::Full || (mode == Recompute::Blocks && block);
    return repeated                       ? layers.forward[at(run.begin)].value
           : mode == Recompute::Selective ? layers.rebuild[at(run.begin)].value
                                          : 0;
  };
  RunMemory memory(run, shell, cost, layers);
  // What the lightest recomputation under which n layers fit on stage k adds; nothing: none.
  const auto least_added = [&](StageId k, int n) {
    std::optional<std::int64_t> least;
    for (const Recompute mode : modes) {
      const bool set = mode == Recompute::Layers || mode == Recompute::Knapsack;
      const int rebuilt = set ? memory.least_rebuilt(k, n) : n;
      const std::int64_t more = rebuilt * (set ? added(Recompute::Full) : added(mode));
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
    if (k + 1 == stages && run.end < static_cast<LayerId>(layers.forward.size())) besides += each(run.end);
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
                                         [&](int k) { return k == 0 ? 0 : each(0) + (k - 1) * unit; });
  const std::int64_t shared = chunks ? alone : least_bound(times, most, 1, most, high, [&](int k) { return k * unit; });
  const std::int64_t least = std::min(alone, shared);
  return least > high ? kNever : Time{least};
}

}  // namespace pipewright
