#include "planner/find_plan.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/cost/buckets.hpp"
#include "core/plan/given_schedule.hpp"
#include "planner/bucket_size.hpp"
#include "planner/order_problem.hpp"
#include "planner/partitioners/balanced.hpp"
#include "planner/partitioners/rebuilt_layers.hpp"
#include "planner/partitioners/table.hpp"
#include "planner/plan_errors.hpp"
#include "planner/price.hpp"
#include "planner/refusals.hpp"
#include "planner/sharding.hpp"
#include "planner/stated_plan.hpp"
#include "planner/words.hpp"
#include "sim/schedules/made_order.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

// K, v and D: at least 1, and small enough that their product means something.
// False: nothing that follows can be checked.
bool check_counts(const Scenario& scenario, PlanErrors& errors) {
  const std::size_t before = errors.count();
  const PlanRequest& plan = scenario.plan;
  const auto layers = static_cast<std::int64_t>(scenario.model.layers.size());
  const auto at_least_one = [&](const Placed<std::int64_t>& count, const char* key) {
    if (count.value < 1)
      errors.add(or_else(count.place, plan.place), fmt::format("plan.{}", key),
                 fmt::format("{} is too few; use 1 or more", count.value));
  };
  at_least_one(plan.stages, "stages");
  at_least_one(plan.virtual_stages, "virtual_stages");
  at_least_one(plan.data_parallel, "data_parallel");
  at_least_one(plan.tensor_parallel, "tensor_parallel");
  at_least_one(plan.context_parallel, "context_parallel");
  if (layers == 0) errors.add(scenario.model.place, "model.layers", "the model has no layers; give at least one");
  if (errors.count() > before) return false;
  const std::int64_t most = std::min(layers, kMostChunks);
  if (plan.stages.value > most) {
    errors.add(or_else(plan.stages.place, plan.place), "plan.stages",
               fmt::format("{} for {}; every stage holds at least one: use 1..{}", counted(plan.stages.value, "stage"),
                           counted(layers, "layer"), most));
  } else if (plan.virtual_stages.value > most / plan.stages.value) {
    errors.add(
        or_else(plan.virtual_stages.place, plan.place), "plan.virtual_stages",
        fmt::format("{} per stage on {} for {}; every chunk holds at least one: use 1..{}", plan.virtual_stages.value,
                    counted(plan.stages.value, "stage"), counted(layers, "layer"), most / plan.stages.value));
  }
  return errors.count() == before;
}

std::vector<int> replicas_of(const Scenario& scenario, PlanErrors& errors) {
  const auto& request = scenario.plan.replicas;
  const auto stages = at(scenario.plan.stages.value);
  const Place& place = or_else(request.place, scenario.plan.place);
  if (request.value.empty()) return std::vector<int>(stages, 1);
  if (request.value.size() != stages) {
    errors.add(place, "plan.replicas",
               fmt::format("{} for {}; give one number per stage",
                           request.value.size() == 1 ? "1 entry" : fmt::format("{} entries", request.value.size()),
                           counted(scenario.plan.stages.value, "stage")));
    return std::vector<int>(stages, 1);
  }
  const std::int64_t devices = scenario.cluster.devices();
  std::vector<int> replicas;
  for (std::size_t k = 0; k < stages; ++k) {
    const std::int64_t r = request.value[k];
    if (r < 1) errors.add(place, "plan.replicas", fmt::format("{} replicas of stage {}; use 1 or more", r, k));
    if (r > devices)
      errors.add(place, "plan.replicas", fmt::format("stage {} needs {} devices, the cluster has {}", k, r, devices));
    replicas.push_back(static_cast<int>(std::clamp<std::int64_t>(r, 1, devices)));
  }
  return replicas;
}

void check_devices(const Scenario& scenario, const std::vector<int>& replicas, PlanErrors& errors) {
  const auto positions = std::accumulate(replicas.begin(), replicas.end(), std::int64_t{0});
  const PlanRequest& plan = scenario.plan;
  struct Factor {
    const Placed<std::int64_t>& count;
    const char* words;
  };
  const std::array<Factor, 3> factors = {{{plan.data_parallel, ""},
                                          {plan.context_parallel, " (context_parallel)"},
                                          {plan.tensor_parallel, " (tensor_parallel)"}}};
  const std::int64_t devices = scenario.cluster.devices();
  std::int64_t left = devices / positions, all = positions;
  std::string needs = fmt::format("{}", positions);
  const Place* place = &plan.stages.place;
  for (const auto& [count, words] : factors) {
    left /= count.value;
    all = all > 0 && count.value <= kLargest / all ? all * count.value : 0;
    if (count.value == 1) continue;
    needs += fmt::format(" x {}{}", count.value, words);
    place = &count.place;
  }
  if (left > 0) return;
  if (all > positions) needs += fmt::format(" = {}", all);
  errors.add(or_else(*place, or_else(plan.stages.place, plan.place)), "plan",
             fmt::format("needs {} devices, the cluster has {}; use fewer stages, replicas or copies{}{}, or a "
                         "larger cluster",
                         needs, devices, plan.tensor_parallel.value > 1 ? ", a smaller tensor_parallel" : "",
                         plan.context_parallel.value > 1 ? ", a smaller context_parallel" : ""));
}

// Only attention over sequences of equal parts can be shared along them.
void check_context_parallel(const Scenario& scenario, PlanErrors& errors) {
  const PlanRequest& plan = scenario.plan;
  const std::optional<Refusal> refused = context_refusal(scenario);
  if (!refused) return;
  const Place& own = refused->key == "context_exchange"                      ? plan.context_exchange.place
                     : refused->key == "context_split"                       ? plan.context_split.place
                     : refused->key == "context_imbalance"                   ? plan.context_imbalance.place
                     : refused->key == "context_inner" && plan.context_inner ? plan.context_inner->place
                                                                             : plan.context_parallel.place;
  errors.add(or_else(own, or_else(plan.context_parallel.place, plan.place)), fmt::format("plan.{}", refused->key),
             refused->why);
}

void check_expert_parallel(const Scenario& scenario, PlanErrors& errors) {
  const PlanRequest& plan = scenario.plan;
  const std::optional<Refusal> refused = expert_refusal(scenario);
  if (!refused) return;
  const Place& own = refused->key == "expert_parallel"                           ? plan.expert_parallel.place
                     : refused->key == "expert_exchange"                         ? plan.expert_exchange.place
                     : refused->key == "expert_imbalance"                        ? plan.expert_imbalance.place
                     : refused->key == "expert_capacity" && plan.expert_capacity ? plan.expert_capacity->place
                                                                                 : plan.expert_tensor_parallel.place;
  errors.add(or_else(own, or_else(plan.expert_parallel.place, plan.place)), fmt::format("plan.{}", refused->key),
             refused->why);
}

// Only a layer built from operators tells what tensor parallelism divides and what its group exchanges.
void check_tensor_parallel(const Scenario& scenario, PlanErrors& errors) {
  const PlanRequest& plan = scenario.plan;
  if (plan.sequence_parallel.value && plan.tensor_parallel.value < 2)
    errors.add(or_else(plan.sequence_parallel.place, plan.place), "plan.sequence_parallel",
               "true divides the sequence among the devices of a tensor-parallel group; give "
               "plan.tensor_parallel: 2 or more, or leave it out");
  if (const auto refused = tensor_refusal(scenario))
    errors.add(
        or_else(refused->key == "tensor_links" ? plan.tensor_links.place : plan.tensor_overlap.place, plan.place),
        fmt::format("plan.{}", refused->key), refused->why);
  if (plan.tensor_parallel.value < 2) return;
  const auto stated = std::ranges::find_if(scenario.model.layers, [](const Layer& layer) { return layer.work < 0; });
  if (stated != scenario.model.layers.end())
    errors.add(or_else(plan.tensor_parallel.place, plan.place), "plan.tensor_parallel",
               fmt::format("{}, but the figures of layer \"{}\" are stated, and nothing tells "
                           "what of them {} devices would share; use 1, or a model built from operators (a family, a "
                           "configuration, layers with `op:`)",
                           plan.tensor_parallel.value, stated->name, plan.tensor_parallel.value));
}

void check_operators(const Scenario& scenario, PlanErrors& errors) {
  if (const auto refused = operators_refusal(scenario))
    errors.add(or_else(scenario.plan.recompute.place, scenario.plan.place), fmt::format("plan.{}", refused->key),
               refused->why);
}

// Layers that the entries of plan.recompute list: each exists and stands in one list once.
std::vector<LayerId> rebuilt_of(const Scenario& scenario, PlanErrors& errors) {
  const auto layers = static_cast<std::int64_t>(scenario.model.layers.size());
  const PlanRequest& plan = scenario.plan;
  std::vector<LayerId> rebuilt;
  for (std::size_t i = 0; i < plan.recompute_layers.size() && i < plan.recompute.value.size(); ++i)
    for (const std::int64_t layer : plan.recompute_layers[i].value) {
      const auto& entry = plan.recompute_layers[i];
      if (plan.recompute.value[i] != Recompute::Layers) break;
      if (layer < 0 || layer >= layers)
        errors.add(entry.place, "plan.recompute",
                   fmt::format("no layer {}; the model has layers 0 to {}", layer, layers - 1));
      else
        rebuilt.push_back(static_cast<LayerId>(layer));
    }
  std::ranges::sort(rebuilt);
  const auto twice = std::ranges::adjacent_find(rebuilt);
  if (twice != rebuilt.end())
    errors.add(or_else(plan.recompute.place, plan.place), "plan.recompute",
               fmt::format("layer {} (\"{}\") is listed twice; list each layer once, with its stage", *twice,
                           scenario.model.layers[*twice].name));
  return rebuilt;
}

// One list per stage: of layers of that stage. A stage of which no layer is listed keeps everything.
void settle_rebuilt(const Scenario& scenario, Plan& plan, PlanErrors& errors) {
  const auto& lists = scenario.plan.recompute_layers;
  for (StageId k = 0; k < plan.stages; ++k) {
    if (plan.recompute[k] != Recompute::Layers) continue;
    const auto here = [&](std::int64_t layer) {
      for (int i = 0; i < plan.virtual_stages * plan.units; ++i) {  // of the stage, whoever holds it
        const LayerRange& chunk = plan.layers[plan.seating().chunk_of(k, i)];
        if (layer >= chunk.begin && layer < chunk.end) return true;
      }
      return false;
    };
    if (std::ranges::none_of(plan.rebuilt, here)) plan.recompute[k] = Recompute::None;
    if (lists.size() != plan.recompute.size() || lists.size() < 2) continue;
    for (const std::int64_t layer : lists[at(k)].value)
      if (!here(layer))
        errors.add(lists[at(k)].place, "plan.recompute",
                   fmt::format("layer {} (\"{}\") is none of stage {}; list it with its own stage, or "
                               "write one {{layers: [...]}} for all",
                               layer, scenario.model.layers[LayerId{layer}].name, k));
  }
}

std::vector<Recompute> recompute_of(const Scenario& scenario, PlanErrors& errors) {
  const auto& request = scenario.plan.recompute;
  const auto stages = at(scenario.plan.stages.value);
  if (request.value.size() == stages) return request.value;
  if (request.value.size() > 1)
    errors.add(or_else(request.place, scenario.plan.place), "plan.recompute",
               fmt::format("{} entries for {}; give one per stage, or one for all", request.value.size(),
                           counted(scenario.plan.stages.value, "stage")));
  return std::vector<Recompute>(stages, request.value.empty() ? Recompute::None : request.value.front());
}

// The layers as given, or by a partitioner that needs no devices; the others begin with the least largest stage.
void partition(const Scenario& scenario, const CostModel& cost, Plan& plan) {
  const Partition& request = scenario.plan.partition.value;
  if (const auto* counts = std::get_if<LayerCounts>(&request)) {
    plan.layers = by_counts(scenario, counts->counts);
  } else if (const auto* cuts = std::get_if<CutLayers>(&request)) {
    plan.layers = by_cuts(scenario, cuts->first);
  } else if (const Partitioner* asked = partitioner_of(request); asked->kind == Partitioner::Kind::Cut) {
    asked->cut(scenario, cost, plan);
  } else {
    plan.layers = least_largest(plan, cost);
  }
}

void split_batch(const Scenario& scenario, Plan& plan) {
  const BatchSplit split = batch_split(scenario.training, plan.data_parallel);
  plan.global_batch_size = split.global_batch_size;
  plan.micro_batch_size = split.micro_batch_size;
  plan.micro_batches = split.micro_batches;
  plan.last_micro_batch_size = split.last_micro_batch_size;
}

// Copies that are simulated where those that run alike are folded. Costs more than to count them all.
int simulated_copies(const Plan& plan, const CostModel& cost) {
  if (std::ssize(plan.device) != plan.workers()) return plan.copies();  // an error is on its way
  const auto fold = fold_copies(plan, cost, Alike::OnLinks);
  return fold == nullptr ? plan.copies() : static_cast<int>(fold->copies.size());
}

// F, R and a backward of every micro-batch on every chunk, over all copies that are simulated: refused where they are
// too many. All-reduces that are too many become fewer, of larger buckets.
void check_size(const Scenario& scenario, const CostModel& cost, Plan& plan) {
  const Training& training = scenario.training;
  if (plan.bucket.value < 1)
    throw InputError(scenario.plan.place, "plan.bucket", "0 B holds no gradient; use e.g. 25 MB");
  int copies = plan.copies();
  const auto most_micro_batches = [&] { return kMostOps / (std::int64_t{3} * plan.chunks() * copies); };
  if (plan.passes() > most_micro_batches() || all_reduces(plan, scenario, copies) > kMostOps)
    copies = simulated_copies(plan, cost);
  if (plan.passes() > most_micro_batches()) {
    const Place& place = training.micro_batches      ? training.micro_batches->place
                         : training.micro_batch_size ? training.micro_batch_size->place
                                                     : training.place;
    throw InputError(place, "training.micro_batches",
                     fmt::format("{} on {} and {} are too many to simulate; at most {}", plan.passes(),
                                 counted(plan.chunks(), "stage"),
                                 copies == 1               ? "1 copy"
                                 : copies == plan.copies() ? fmt::format("{} copies", copies)
                                                           : fmt::format("{} different copies", copies),
                                 std::max<std::int64_t>(1, most_micro_batches())),
                     ErrorCode::TooLarge);
  }
  coarsen_buckets(plan, scenario, copies, kMostOps);
}

void check_schedule(const Scenario& scenario, const Plan& plan) {
  const ScheduleRule* rule = find_schedule(plan.schedule);
  const std::string refusal = rule->refusal(schedule_shape(plan, scenario.model, scenario.training));
  if (!refusal.empty())
    throw InputError(or_else(scenario.plan.schedule.place, scenario.plan.place), "plan.schedule", refusal);
}

// The order that a schedule makes for the plan's own times, of one copy, with links that nothing else uses.
void settle_order(const Scenario& scenario, const CostModel& cost, Plan& plan) {
  const ScheduleRule& rule = *find_schedule(plan.schedule);
  if (rule.made_for == nullptr) return;
  const Placed<std::int64_t> most = plan.most_in_flight.value_or(Placed<std::int64_t>{plan.stages, {}});
  const double kept = plan.kept_for_weights.value_or(Placed<double>{1, {}}).value;
  const OrderProblem times = order_times(plan, cost);
  plan.given = made_order(rule, times, most.value, kept);
  if (plan.given) return;
  std::int64_t more = most.value + 1;
  while (more <= 4 * plan.stages && !made_order(rule, times, more, kept))
    ++more;
  const std::string found_none =
      fmt::format("{} found no order with {} in flight", rule.name,
                  most.value == 1 ? "1 micro-batch" : fmt::format("{} micro-batches", most.value));
  const auto fixed = [&](const ScheduleRule& each) {
    return each.splits_backward && each.made_for == nullptr && each.chunk_order == rule.chunk_order &&
           each.chunks == rule.chunks;
  };
  throw InputError(or_else(most.place, scenario.plan.schedule.place), "plan.most_in_flight",
                   more <= 4 * plan.stages ? fmt::format("{}; use {} or more", found_none, more)
                                           : fmt::format("{}, nor with more; use schedule: {}", found_none,
                                                         listed(schedule_names(fixed), "or")));
}

// Steps that do not wait for one another.
void check_barrier(const Scenario& scenario, const Plan& plan) {
  if (plan.barrier.value == Barrier::Flush) return;
  const auto refuse = [&](const std::string& why) {
    throw InputError(or_else(plan.barrier.place, scenario.plan.place), "plan.barrier", why);
  };
  if (!find_schedule(plan.schedule)->flush)
    refuse(std::string(plan.barrier.value == Barrier::None ? "none: " : "post_validation: ") + plan.schedule +
           " has no flush, so that there is no barrier to leave out; leave out the key");
  if (std::holds_alternative<LeastStep>(scenario.plan.partition.value))
    refuse(
        "a step without a flush does not go with partition: exact, which compares whole runs of a step; write flush or "
        "another "
        "partition");
  if (plan.barrier.value != Barrier::None) return;
  const bool clips = scenario.training.clip_grad_norm.has_value();
  if (clips || scenario.training.precision == Precision::Fp16)
    refuse(std::string("none leaves no place for ") +
           (clips ? "training.clip_grad_norm, whose norm" : "the loss scale of fp16, whose check for overflows") +
           " is over all stages; write post_validation (checked afterwards, at the same price) or flush");
}

void check_slices(const Scenario& scenario, const Plan& plan) {
  if (const auto refused = slices_refusal(scenario, plan))
    throw InputError(
        or_else(refused->key == "slices" ? plan.slices->place : plan.slice_lengths.place, scenario.plan.place),
        fmt::format("plan.{}", refused->key), refused->why);
}

// Before anybody asks who holds what.
void check_pipelines(const Scenario& scenario, const ScheduleRule& rule, const Plan& plan) {
  if (!plan.facts.states_pipelines || !plan.pipelines) return;
  const int pipelines = static_cast<int>(std::min<std::int64_t>(plan.pipelines->value, 1 << 30));
  if (pipelines % 2 == 0 && plan.stages % pipelines == 0) return;
  throw InputError(
      or_else(plan.pipelines->place, scenario.plan.place), "plan.pipelines",
      rule.refusal(
          {.stages = plan.stages, .micro_batches = 1, .pipelines = pipelines, .chunk_order = plan.chunk_order}));
}

// Cells whose ops run at once.
void check_cells(const Scenario& scenario, const CostModel& cost, const Plan& plan) {
  const auto refuse = [&](const std::string& why) {
    throw InputError(or_else(scenario.plan.pairs.place, scenario.plan.place), "plan.pairs", why);
  };
  if (scenario.plan.pairs.value == Pairs::Serial) return;
  if (plan.resharding)
    refuse("fused does not go with training.zero: 3, whose weights are gathered for one op at a time; write serial");
  if (plan.last_micro_batch_size != plan.micro_batch_size)
    refuse(
        fmt::format("fused needs micro-batches of one size, and the last one has {} samples instead of {}; write "
                    "serial, or another global_batch_size",
                    plan.last_micro_batch_size, plan.micro_batch_size));
  if (!cost.source().loads().empty())
    refuse("fused does not go with a profile whose times depend on how many workers compute; write serial");
}

bool makes_whole_plan(const PlanRequest& plan) {
  return std::holds_alternative<SuffixDp>(plan.partition.value);
}

bool left_to_search(const PlanRequest& plan, std::string_view key) {
  return !makes_whole_plan(plan) || std::ranges::find(kSetByWholePlan, key) == kSetByWholePlan.end();
}

// Fields that say `auto` are for the search (planner/search/), and so is an order that nobody settled.
void refuse_open(const Scenario& scenario) {
  std::vector<std::string> open;
  Place first;
  for (const auto& [section, fields] :
       {std::pair{"training", &scenario.training.open}, std::pair{"plan", &scenario.plan.open}})
    for (const auto& [key, field] : *fields) {
      if (!left_to_search(scenario.plan, key)) continue;
      const bool before =
          field.place.line < first.line || (field.place.line == first.line && field.place.column < first.column);
      if (open.empty() || before) first = field.place;
      open.push_back(fmt::format("{}.{}", section, key));
    }
  if (open.size() == 1)
    throw InputError(
        first, open.front(),
        "auto leaves it to `pipewright plan`, which writes the scenario of what it finds with -o plan.yaml; "
        "give a value here");
  if (!open.empty())
    throw InputError(first, "plan",
                     fmt::format("auto leaves {} fields to `pipewright plan`, which writes the scenario "
                                 "of what it finds with -o plan.yaml: {}; give values here",
                                 open.size(), fmt::join(open, ", ")));
  if (scenario.plan.order.value.unsettled())
    throw InputError(or_else(scenario.plan.order.place, scenario.plan.place), "plan.order",
                     "graph is settled by `pipewright plan`, which writes the order it finds with -o "
                     "plan.yaml, and by simulate, compare, sweep and check; list the order here");
}

Scenario with_stages(const Scenario& scenario, std::int64_t stages) {
  Scenario result = scenario;
  PlanRequest& plan = result.plan;
  for (const std::string_view key : kSetByWholePlan)
    plan.open.erase(std::string(key));
  plan.stages.value = stages;
  if (makes_whole_plan(plan)) {
    plan.partition.value = Balanced{}, plan.placement = PlacementOrder::Pipeline;
    if (scenario.cluster.classes() > 1) plan.partition.value = EqualLayers{};
  }
  return result;
}

Plan whole_plan(const Scenario& scenario, const CostModel& cost) {
  check_whole_plan(scenario);
  const Partitioner& asked = *partitioner_of(scenario.plan.partition.value);
  const Plan shell = shell_of_whole_plans(scenario, cost);
  check_slices(scenario, shell);
  std::optional<Plan> best;
  Time least{};
  for (Plan& plan : asked.plans(shell, cost)) {
    check_size(scenario, cost, plan);
    check_schedule(scenario, plan), check_barrier(scenario, plan), check_cells(scenario, cost, plan);
    const Time step = price(plan, cost, Engine::Auto).report.step_time;
    if (best && step >= least) continue;
    best = std::move(plan), least = step;
  }
  if (!best) {
    const auto layers = static_cast<std::int64_t>(scenario.model.layers.size());
    const std::int64_t workers = scenario.cluster.devices() / shell.tensor_parallel;
    best = find_plan(with_stages(scenario, std::min({layers, workers, kMostChunks})), cost);
    best->cut = fmt::format("partition: {} found no plan that fits; this is the {} cut into {}", asked.name,
                            scenario.cluster.classes() > 1 ? "equal" : "balanced", counted(best->stages, "stage"));
    return *best;
  }
  best->cut = fmt::format("partition: {} chose {} with {} {} ({})", asked.name, counted(best->stages, "stage"),
                          fmt::join(best->replicas, "-"), best->workers() == 1 ? "replica" : "replicas", asked.what);
  validate(*best, scenario.model, scenario.cluster);
  return *best;
}

// Degrees as stated, those that no cluster has cut off: they are refused with the devices.
void copy_counts(const PlanRequest& request, Plan& plan) {
  const auto at_most = [](const Placed<std::int64_t>& count, std::int64_t most) {
    return static_cast<int>(std::min(count.value, most));
  };
  plan.stages = static_cast<int>(request.stages.value);
  plan.virtual_stages = static_cast<int>(request.virtual_stages.value);
  plan.tensor_parallel = at_most(request.tensor_parallel, 1 << 30);
  plan.sequence_parallel = request.sequence_parallel.value;
  plan.expert_parallel = at_most(request.expert_parallel, 1 << 15);
  plan.expert_tensor_parallel = at_most(request.expert_tensor_parallel, 1 << 15);
  plan.data_parallel = at_most(request.data_parallel, 1 << 30);
  plan.context_parallel = at_most(request.context_parallel, (1 << 30) / plan.data_parallel);
}

void check_knapsack(const Scenario& scenario, const Plan& plan, PlanErrors& errors) {
  if (std::ranges::find(plan.recompute, Recompute::Knapsack) == plan.recompute.end()) return;
  const Place place = or_else(scenario.plan.recompute.place, scenario.plan.place);
  if (both_ways(plan.chunk_order))
    errors.add(
        place, "plan.recompute",
        "knapsack chooses for each worker by itself, and here two workers hold each stage; write full, blocks, or "
        "the layers");
  refuse_classes(scenario.cluster, place, "plan.recompute: knapsack");
}

}  // namespace

bool needs_search(const Scenario& scenario) {
  const OpenFields& open = scenario.plan.open;
  return !scenario.training.open.empty() ||
         std::ranges::any_of(open, [&](const auto& field) { return left_to_search(scenario.plan, field.first); });
}

void check_whole_plan(const Scenario& scenario) {
  const PlanRequest& plan = scenario.plan;
  if (!makes_whole_plan(plan)) return;
  const std::string partition = fmt::format("plan.partition: {}", partitioner_of(plan.partition.value)->name);
  PlanErrors errors;
  const auto contradiction = [&](const Place& place, std::string_view key, const std::string& what) {
    errors.add(or_else(place, plan.place), fmt::format("plan.{}", key), what);
  };
  const std::array<const Place*, 3> places = {&plan.stages.place, &plan.replicas.place, &plan.placement_place};
  for (std::size_t i = 0; i < kSetByWholePlan.size(); ++i) {
    const std::string_view key = kSetByWholePlan[i];
    const auto open = plan.open.find(std::string(key));
    if (open == plan.open.end())
      contradiction(*places[i], key,
                    fmt::format("given, but {0} chooses it; leave plan.{1} out or auto, or write another partition",
                                partition, key));
    else if (!open->second.among.empty())
      contradiction(open->second.place, key,
                    fmt::format("restricted, but {0} chooses among all; write plan.{1}: auto", partition, key));
  }
  for (const auto& [key, count] :
       {std::pair{"virtual_stages", &plan.virtual_stages}, std::pair{"data_parallel", &plan.data_parallel},
        std::pair{"context_parallel", &plan.context_parallel}, std::pair{"expert_parallel", &plan.expert_parallel}})
    if (plan.open.find(key) == plan.open.end() && count->value != 1)
      contradiction(count->place, key,
                    fmt::format("{}, but {} makes one pipeline with one chunk per stage and replicas of its own; "
                                "leave plan.{} out",
                                count->value, partition, key));
  if (plan.open.find("recompute") == plan.open.end() && plan.recompute.value.size() > 1)
    contradiction(plan.recompute.place, "recompute",
                  fmt::format("{} entries, but {} chooses the number of stages; give one for all",
                              plan.recompute.value.size(), partition));
  if (scenario.training.zero >= kGradientsSharded)
    errors.add(
        or_else(scenario.training.zero_place, scenario.training.place), "training.zero",
        fmt::format("{} divides gradients among copies, but {} makes replicas, which run different micro-batches; "
                    "use 0 or 1, or another partition",
                    scenario.training.zero, partition));
  if (plan.overlap_param_gather.value)
    contradiction(plan.overlap_param_gather.place, "overlap_param_gather",
                  fmt::format("{} makes replicas, which run different micro-batches; leave this out, or write another "
                              "partition",
                              partition));
  if (plan.offload_layers)
    contradiction(plan.offload_layers->place, "offload_layers",
                  fmt::format("{} does not know what waits in another memory; write another partition", partition));
  for (const Recompute mode : plan.recompute.value)
    if (mode == Recompute::Layers || mode == Recompute::Knapsack)
      contradiction(plan.recompute.place, "recompute",
                    fmt::format("chooses layers of stages, but {} chooses the stages; write none, selective, blocks or "
                                "full, or another partition",
                                partition));
  const ScheduleRule* rule = find_schedule(plan.schedule.value);
  if (plan.open.find("schedule") == plan.open.end() && rule != nullptr && rule->searched_with_replicas == 0)
    contradiction(plan.schedule.place, "schedule",
                  fmt::format("{}, but {} is for {}; write one of them, or another partition", plan.schedule.value,
                              partition, listed(searched_schedules(&ScheduleRule::searched_with_replicas), "or")));
  errors.throw_if_any();
}

Plan shell_of_whole_plans(const Scenario& scenario, const CostModel& cost) {
  Plan shell = find_plan(with_stages(scenario, 1), cost);
  shell.layers.clear(), shell.replicas.clear(), shell.device.clear();
  shell.stages = 0;
  return shell;
}

ChunkOrder chunk_order_of(const PlanRequest& request) {
  const ScheduleRule* rule = find_schedule(request.schedule.value);
  if (rule == nullptr) return ChunkOrder::Loop;
  return rule->from_file && request.given ? request.given->chunk_order : rule->chunk_order;
}

Plan find_plan(const Scenario& scenario, const CostModel& cost) {
  PlanErrors errors;
  refuse_open(scenario);
  const PlanRequest& request = scenario.plan;
  const Partitioner* asked = partitioner_of(request.partition.value);
  if (asked && !asked->several_classes)
    refuse_classes(scenario.cluster, or_else(request.partition.place, request.place),
                   fmt::format("plan.partition: {}", asked->name));
  if (makes_whole_plan(request)) return whole_plan(scenario, cost);
  const ScheduleRule* rule = find_schedule(request.schedule.value);
  if (rule == nullptr)
    errors.add(or_else(request.schedule.place, request.place), "plan.schedule",
               unknown_or_begun(request.schedule.value, schedule_names()));
  if (!check_counts(scenario, errors)) errors.throw_if_any();

  Plan plan;
  plan.schedule = request.schedule.value;
  if (rule != nullptr) plan.facts = rule->facts;
  copy_counts(request, plan);
  plan.chunk_order = chunk_order_of(request);
  if (rule != nullptr && rule->from_file) plan.given = request.given;
  plan.replicas = replicas_of(scenario, errors);
  check_devices(scenario, plan.replicas, errors);
  check_tensor_parallel(scenario, errors);
  if (errors.count() == 0) check_context_parallel(scenario, errors);
  if (errors.count() == 0) check_expert_parallel(scenario, errors);
  check_operators(scenario, errors);
  static_cast<RuntimePolicy&>(plan) = request;
  plan.recompute = recompute_of(scenario, errors);
  plan.rebuilt = rebuilt_of(scenario, errors);
  plan.scatter_gather = request.scatter_gather.value && plan.tensor_parallel > 1;
  // The batch divides over the copies, so it is split even where the copies have no devices.
  errors.attempt([&] { split_batch(scenario, plan); });
  if (rule != nullptr) {
    if (errors.count() == 0) check_slices(scenario, plan), check_pipelines(scenario, *rule, plan);
    settle_division(scenario, plan, errors), check_offloading(scenario, plan, errors),
        check_host_update(scenario, errors), check_host_weights(scenario, plan, errors);
  }
  errors.attempt([&] { partition(scenario, cost, plan); });
  errors.throw_if_any();

  errors.attempt([&] {
    plan.device = placement(scenario, plan);
    refuse_mixed(scenario, plan);
  });
  if (asked && asked->kind == Partitioner::Kind::CutOnDevices && errors.count() == 0)
    errors.attempt([&] {
      check_size(scenario, cost, plan);
      asked->cut(scenario, cost, plan);
    });
  if (errors.count() == 0) settle_units(scenario, plan);
  errors.attempt([&] {
    check_units(scenario, plan);
    check_size(scenario, cost, plan);
    check_schedule(scenario, plan), check_barrier(scenario, plan), check_cells(scenario, cost, plan);
    if (errors.count() == 0) settle_order(scenario, cost, plan);
  });
  settle_rebuilt(scenario, plan, errors);
  check_knapsack(scenario, plan, errors);
  errors.throw_if_any();
  choose_rebuilt(plan, cost);
  validate(plan, scenario.model, scenario.cluster);
  return plan;
}

}  // namespace pipewright::planner
