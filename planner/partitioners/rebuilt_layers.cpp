#include "planner/partitioners/rebuilt_layers.hpp"

#include <algorithm>
#include <cmath>
#include <variant>

#include "core/cost/buckets.hpp"
#include "core/cost/framework_memory.hpp"
#include "core/cost/memory_model.hpp"
#include "core/folds.hpp"
#include "core/plan/op_index.hpp"
#include "planner/partitioners/recompute_knapsack.hpp"
#include "planner/price.hpp"
#include "sim/simulate.hpp"

namespace pipewright::planner {
namespace {

constexpr int kMostRebuildTries = 8;

// One stage of a plan, and what it needs with one set or another.
class Stage {
 public:
  Stage(const Plan& plan, const CostModel& cost, const std::array<LayerCosts, 2>& layers, const Schedule& schedule,
        StageId k)
      : plan_(plan), cost_(cost), layers_(layers), schedule_(schedule), k_(k) {
    // Layers of other stages are of no interest to this one's memory.
    plan_.recompute[k] = Recompute::Layers;
    plan_.rebuilt.clear();
    const Scenario& scenario = cost.scenario();
    const NeedSum sum = main_need_sum(scenario, scenario.cluster.device);
    const double whole = sum.model + sum.activation;
    for (int i = 0; i < plan.seating().held(); ++i) {
      const VirtualStageId v = plan.seating().chunk_of(k, i);
      LayerId layer = plan.layers[v].begin;
      for (const LayerKept& kept : kept_by_layers(plan_, cost, layers[0], v)) {
        const Bytes freed = kept.stash - kept.input;
        items_.push_back(
            {.extra = layers[0].again[at(layer)],
             .freed = Bytes{below(freed, whole) + below(kept.rounding, sum.rounding)},
             .transient = Bytes{static_cast<std::int64_t>(std::ceil(static_cast<double>(kept.again.value) * whole))}});
        layer_.push_back(layer++);
        chunk_.push_back(i);
      }
    }
  }

  struct Walk {
    Bytes need;
    std::vector<std::int64_t> in_flight;  // at the peak, by chunk of the stage
  };
  Walk walk(const std::vector<int>& items) {
    plan_.rebuilt = layers_of(items);
    const MemoryModel memory = memory_of_stage(plan_, cost_, layers_, k_);
    const PositionId position = schedule_.seating().first_position(k_);
    const MemoryPeak most = peak(memory, schedule_, position);
    return {need(memory, most.bytes, k_).to_fit, in_flight(position, std::get<Op>(most.owner))};
  }

  std::vector<RebuildItem> items(const std::vector<std::int64_t>& in_flight) const {
    std::vector<RebuildItem> items = items_;
    for (std::size_t i = 0; i < items.size(); ++i)
      items[i].freed = Bytes{checked_product(items[i].freed.value, in_flight[at(chunk_[i])], "what layers free")};
    return items;
  }

  std::vector<LayerId> layers_of(const std::vector<int>& items) const {
    return mapped<LayerId>(items, [&](const int item) { return layer_[at(item)]; });
  }

  RebuiltStage with(const RebuildSet& set, Bytes need, Bytes room) const {
    return {.layers = layers_of(set.items), .extra = set.extra, .need = need, .fits = need <= room};
  }

 private:
  static std::int64_t below(Bytes bytes, double factor) {
    return static_cast<std::int64_t>(std::floor(static_cast<double>(bytes.value) * factor));
  }

  // Micro-batches between the start of F and the end of their backward once `last` has begun.
  std::vector<std::int64_t> in_flight(PositionId position, const Op& last) const {
    const Seating seating = schedule_.seating();
    std::vector<std::int64_t> count(at(seating.held()));
    for (const Op& op : schedule_.positions[position].compute) {
      const std::size_t chunk = at(seating.local(op.virtual_stage, k_));
      if (op.kind == Kind::F) ++count[chunk];
      if (op == last) break;
      if (rule(op.kind).gradients) --count[chunk];
    }
    return count;
  }

  Plan plan_;
  const CostModel& cost_;
  const std::array<LayerCosts, 2>& layers_;
  const Schedule& schedule_;
  StageId k_;
  std::vector<RebuildItem> items_;  // freed per micro-batch
  std::vector<LayerId> layer_;      // [item]
  std::vector<int> chunk_;          // [item], among those of the stage
};

}  // namespace

RebuiltStage least_need_of_stage(const Plan& plan, const CostModel& cost, const std::array<LayerCosts, 2>& layers,
                                 const Schedule& schedule, StageId k) {
  Stage stage(plan, cost, layers, schedule, k);
  const Stage::Walk kept = stage.walk({});
  const RebuildSet most = most_freeing(stage.items(kept.in_flight), 1);
  const Bytes need = stage.walk(most.items).need;
  return need < kept.need ? stage.with(most, need, need) : stage.with({}, kept.need, kept.need);
}

RebuiltStage rebuild_stage(const Plan& plan, const CostModel& cost, const std::array<LayerCosts, 2>& layers,
                           const Schedule& schedule, StageId k, Bytes room) {
  Stage stage(plan, cost, layers, schedule, k);
  const Stage::Walk kept = stage.walk({});
  if (kept.need <= room) return stage.with({}, kept.need, room);
  std::vector<std::int64_t> in_flight = kept.in_flight;
  Bytes over = kept.need - room;
  for (int tries = 0; tries < kMostRebuildTries; ++tries) {
    const auto set = least_rebuild(stage.items(in_flight), 1, over);
    if (!set) break;
    const Stage::Walk now = stage.walk(set->items);
    if (now.need <= room) return stage.with(*set, now.need, room);
    over = checked_sum(over, now.need - room);
    for (std::size_t chunk = 0; chunk < in_flight.size(); ++chunk)
      in_flight[chunk] = std::min(in_flight[chunk], now.in_flight[chunk]);
  }
  const RebuildSet most = most_freeing(stage.items(kept.in_flight), 1);
  const Bytes need = stage.walk(most.items).need;
  return need < kept.need ? stage.with(most, need, room) : stage.with({}, kept.need, room);
}

void choose_rebuilt(Plan& plan, const CostModel& cost) {
  const std::vector<Recompute> asked = plan.recompute;
  if (std::ranges::find(asked, Recompute::Knapsack) == asked.end()) return;
  const LayerCosts full = cost.layers(plan.micro_batch_size);
  const std::array<LayerCosts, 2> layers = {
      full, plan.last_micro_batch_size == plan.micro_batch_size ? full : cost.layers(plan.last_micro_batch_size)};
  const std::vector<LayerId> given = plan.rebuilt;
  const Bytes capacity = cost.scenario().cluster.device.memory;
  std::vector<Bytes> aside(at(plan.stages));
  for (int tries = 0; tries < kMostRebuildTries; ++tries) {
    plan.recompute = asked, plan.rebuilt = given;
    const Schedule schedule =
        make_schedule(plan, schedule_shape(plan, cost.scenario().model, cost.scenario().training));
    std::vector<RebuiltStage> chosen(at(plan.stages));
    for (StageId k = 0; k < plan.stages; ++k)
      if (asked[at(k)] == Recompute::Knapsack)
        chosen[at(k)] = rebuild_stage(plan, cost, layers, schedule, k, capacity - aside[at(k)]);
    for (StageId k = 0; k < plan.stages; ++k) {
      if (asked[at(k)] != Recompute::Knapsack) continue;
      const std::vector<LayerId>& set = chosen[at(k)].layers;
      plan.recompute[k] = set.empty() ? Recompute::None : Recompute::Layers;
      plan.rebuilt.insert(plan.rebuilt.end(), set.begin(), set.end());
    }
    std::ranges::sort(plan.rebuilt);
    const StepCosts costs = folded_costs(plan, cost);
    const Schedule whole = make_schedule(plan, costs.shape);
    const Timeline timeline = simulate(whole, costs);
    const MemoryModel memory = memory_model(plan, cost);
    const std::vector<MemoryPeak> all = peaks(memory, whole, costs, timeline);
    bool again = false;
    for (std::size_t w = 0; w < all.size(); ++w) {
      const StageId k = whole.seating().stage_at(whole.position_of(WorkerId{w}));
      const Bytes needed = need(memory, all[w].bytes, k).to_fit;
      if (asked[at(k)] != Recompute::Knapsack || !chosen[at(k)].fits || needed <= capacity) continue;
      const Bytes buffers = needed - chosen[at(k)].need;
      again |= buffers > aside[at(k)];
      aside[at(k)] = std::max(aside[at(k)], buffers);
    }
    if (!again) return;
  }
}

Plan asking_again(Plan plan, const Scenario& scenario) {
  const std::vector<Recompute>& asked = scenario.plan.recompute.value;
  for (StageId k = 0; k < std::ssize(plan.recompute) && !asked.empty(); ++k)
    if (asked[asked.size() == 1 ? 0 : at(k)] == Recompute::Knapsack) {
      plan.recompute[k] = Recompute::Knapsack;
      for (int i = 0; i < plan.seating().held(); ++i)
        std::erase_if(plan.rebuilt, [range = plan.layers[plan.seating().chunk_of(k, i)]](LayerId layer) {
          return layer >= range.begin && layer < range.end;
        });
    }
  return plan;
}

}  // namespace pipewright::planner
