#include "planner/find_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/answers/ranking.hpp"
#include "core/check.hpp"
#include "core/cost/cost_model.hpp"
#include "core/cost/memory_model.hpp"
#include "core/folds.hpp"
#include "core/plan/given_schedule.hpp"
#include "core/random.hpp"
#include "planner/answer.hpp"
#include "planner/find_plan.hpp"
#include "planner/layer_order.hpp"
#include "planner/order_problem.hpp"
#include "planner/plan_errors.hpp"
#include "planner/price.hpp"
#include "planner/words.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

void check_findable(const Scenario& scenario, const Plan& plan) {
  const Place place = or_else(scenario.plan.schedule.place, scenario.plan.place);
  const auto refuse = [&](const std::string& key, const std::string& why) { throw InputError(place, key, why); };
  if (std::holds_alternative<SuffixDp>(scenario.plan.partition.value))
    throw InputError(or_else(scenario.plan.partition.place, scenario.plan.place), "plan.partition",
                     "suffix_dp chooses stages and replicas, too; write its plan with: pipewright plan SCENARIO -o "
                     "FILE.yaml");
  const ScheduleRule& rule = *find_schedule(plan.schedule);
  const auto searched = [](const ScheduleRule& each) {
    return each.flush && (each.splits_backward || both_ways(each.chunk_order));
  };
  const std::string instead = "; plan.schedule may be " + listed(schedule_names(searched), "or");
  if (plan.resharding)
    refuse("training.zero",
           fmt::format("orders of whole stages are searched, and weights or gradients are divided block "
                       "by block; use 0 or 1 in place of {}",
                       scenario.training.zero));
  if (!rule.flush) refuse("plan.schedule", plan.schedule + " has no flush" + instead);
  if (both_ways(plan.chunk_order) && plan.directions() > 2)
    refuse("plan.pipelines", "orders of more than two pipelines are not searched; use 2");
  if (plan.chunk_order == ChunkOrder::Listed)
    refuse(
        "plan.schedule",
        "the file deals micro-batches to its pipelines by a list, and orders are searched for half of them each way" +
            instead);
  if (both_ways(plan.chunk_order) && plan.micro_batches % 2 != 0)
    refuse("training.micro_batches",
           fmt::format("{} do not go both ways in equal numbers; use {}", plan.micro_batches, plan.micro_batches + 1));
  if (std::ranges::any_of(plan.replicas, [](int replicas) { return replicas > 1; }))
    refuse("plan.replicas", "orders of stages with replicas are not searched; use plan.data_parallel");
  if (plan.virtual_stages > kMostRows)
    refuse("plan.virtual_stages",
           fmt::format("{} chunks on a stage are more than the {} that are searched", plan.virtual_stages, kMostRows));
}

// Bytes that a device must have for each byte of activations.
double fragmented(const StageReport& stage) {
  if (stage.need.with_reserve.value <= stage.need.communicators.value || stage.need.model.value <= 0) return 1;
  return 1 + static_cast<double>(stage.need.fragmentation.value) / static_cast<double>(stage.need.model.value);
}

// Bytes of activations that stage k may hold, by what the plan leaves of its device with its own schedule.
std::int64_t room_for_activations(const StageReport& stage, Bytes capacity) {
  const MemoryBytes& bytes = stage.memory.bytes;
  const auto free = static_cast<double>((capacity - stage.need.to_fit).value) / fragmented(stage);
  return (bytes.stash + bytes.logits).value + static_cast<std::int64_t>(free);
}

// The least device that stage k needs, or all of them where one size is for all.
Bytes least_device(const OrderProblem& problem, const OrderCap& cap, const Answer& planned, StageId k) {
  const auto least = [&](StageId stage) {
    const StageReport& report = planned.report.stages[stage];
    const MemoryBytes& bytes = report.memory.bytes;
    const auto more = static_cast<double>(least_cap(problem, stage) - (bytes.stash + bytes.logits).value);
    return report.need.to_fit + Bytes{static_cast<std::int64_t>(std::ceil(more * fragmented(report))) + 1};
  };
  if (cap.devices.size() > 1) return least(k);
  return most_over<Bytes>(counted_to(problem.stages), [&](StageId stage) { return least(stage); });
}

// Rounded up, as --memory-cap takes it.
std::string whole_mib(Bytes bytes) {
  return fmt::format("{}MiB", (bytes.value + (std::int64_t{1} << 20) - 1) >> 20);
}

std::vector<std::int64_t> caps(const OrderProblem& problem, const OrderCap& cap, const Answer& planned,
                               const Scenario& scenario) {
  std::vector<std::int64_t> caps;
  for (StageId k = 0; k < problem.stages; ++k) {
    if (cap.times_stages) {
      caps.push_back(static_cast<std::int64_t>(*cap.times_stages * static_cast<double>(problem.stages) *
                                               static_cast<double>(one_micro_batch(problem, k))));
      continue;
    }
    const StageReport& stage = planned.report.stages[k];
    if (cap.devices.size() > 1 && cap.devices.size() != at(problem.stages))
      throw InputError(Place{}, "--memory-cap",
                       fmt::format("{} sizes for {} stages; write one for all, or one for each", cap.devices.size(),
                                   problem.stages));
    const auto& most = scenario.plan.most_in_flight;
    if (cap.devices.empty() && most && planned.plan.facts.limits_in_flight) {
      const std::int64_t one = one_micro_batch(problem, k);
      caps.push_back(std::min(room_for_activations(stage, stage.need.capacity), most->value * one));
      continue;
    }
    const Bytes device = cap.devices.empty() ? stage.need.capacity : cap.devices[cap.devices.size() == 1 ? 0 : at(k)];
    caps.push_back(room_for_activations(stage, device));
  }
  for (StageId k = 0; k < problem.stages; ++k) {
    const std::int64_t least = least_cap(problem, k), short_of = least - caps[at(k)];
    if (short_of <= 0) continue;
    const std::string needs = fmt::format("stage {} has room for {} of activations{}, and one micro-batch {} {}", k,
                                          bytes_text(Bytes{std::max<std::int64_t>(0, caps[at(k)])}),
                                          cap.times_stages ? "" : " next to all else that it holds",
                                          problem.two_ways ? "each way needs" : "holds", bytes_text(Bytes{least}));
    if (cap.times_stages)
      throw InputError(Place{}, "--memory-cap",
                       fmt::format("{}; use {}x or more", needs,
                                   std::ceil((problem.two_ways ? 200.0 : 100.0) / problem.stages) / 100));
    if (!cap.devices.empty())
      throw InputError(Place{}, "--memory-cap",
                       fmt::format("{}; use {} or more{}", needs, whole_mib(least_device(problem, cap, planned, k)),
                                   cap.devices.size() == 1 ? "" : " there"));
    throw InputError(scenario.cluster.place, "cluster.node.device",
                     fmt::format("{}: the plan does not fit; use more stages, plan.recompute or a smaller "
                                 "micro-batch, or ask what order more room would allow, with --memory-cap 1x",
                                 needs));
  }
  return caps;
}

// Micro-batches' activations on the stage that `held` is the most of.
double micro_batches_of(const OrderProblem& problem, const std::vector<std::int64_t>& held) {
  double most = 0;
  for (StageId k = 0; k < problem.stages; ++k)
    if (const std::int64_t one = one_micro_batch(problem, k); one > 0)
      most = std::max(most, static_cast<double>(held[at(k)]) / static_cast<double>(one));
  return most;
}

// Times that are off by up to a share, each pass of a chunk by itself: mean and largest of the measure.
void add_jitter(const OrderProblem& problem, double share, std::vector<std::pair<OrderRow*, PricedOrder>>& orders) {
  Random chance(1);
  OrderPricer pricer(problem);
  std::vector<double> sums(orders.size(), 0);
  for (int draw = 0; draw < kJitterDraws; ++draw) {
    OrderProblem off = problem;
    for (auto* const times : {&off.forward, &off.again, &off.input, &off.weights, &off.pair})
      for (std::int64_t& time : *times) {
        time = std::llround(static_cast<double>(time) * chance.uniform(1 - share, 1 + share));
      }
    pricer.take_times(off);
    for (std::size_t i = 0; i < orders.size(); ++i) {
      auto& [row, order] = orders[i];
      PP_CHECK(pricer.price(order));
      const std::int64_t value = order.of(problem.measure);
      sums[i] += static_cast<double>(value);
      row->slowest = std::max(row->slowest, Time{value});
    }
  }
  for (std::size_t i = 0; i < orders.size(); ++i)
    orders[i].first->jittered = Time{std::llround(sums[i] / kJitterDraws)};
}

std::vector<OrderRow> rows_of(const OrderProblem& problem, const FoundOrder& found, double jitter) {
  const OrderPricer pricer(problem);
  std::vector<NamedOrder> orders = found.known;
  std::ranges::stable_sort(orders, [&](const NamedOrder& a, const NamedOrder& b) {
    return a.order.of(problem.measure) < b.order.of(problem.measure);
  });
  orders.insert(orders.begin(), {"found", found.order});
  std::vector<OrderRow> rows;
  for (const auto& [name, order] : orders) {
    auto held =
        mapped<std::int64_t>(counted_to(problem.stages), [&](StageId k) { return pricer.peak(k, order.codes[at(k)]); });
    rows.push_back({.name = name,
                    .span = Time{order.span()},
                    .step = Time{order.step()},
                    .in_flight = micro_batches_of(problem, held)});
  }
  std::vector<std::pair<OrderRow*, PricedOrder>> jittered;
  for (std::size_t i = 0; i < rows.size(); ++i)
    jittered.emplace_back(&rows[i], orders[i].order);
  add_jitter(problem, jitter, jittered);
  return rows;
}

// Some multiples of K micro-batches, as far as they differ.
std::vector<CapRow> cap_rows(OrderProblem problem, const OrderBudget& search) {
  std::vector<CapRow> rows;
  for (const double times : {0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0}) {
    const double micro_batches = std::floor(times * problem.stages);
    if (micro_batches < (problem.two_ways ? 2 : 1) || (!rows.empty() && micro_batches == rows.back().in_flight))
      continue;
    if (micro_batches > problem.micro_batches * (problem.two_ways ? 2 : 1)) break;
    for (StageId k = 0; k < problem.stages; ++k)
      problem.cap[at(k)] = static_cast<std::int64_t>(micro_batches) * one_micro_batch(problem, k);
    const FoundOrder found = find_order(problem, search);
    rows.push_back({micro_batches, Time{found.order.of(problem.measure)}, Time{found.bound.value}});
    if (found.stopped) break;
  }
  return rows;
}

// What was chosen for the plan's own order, and would be chosen otherwise for another one: the layers of each chunk, unless the
// scenario says them, and the layers that a knapsack recomputes.
std::vector<std::string> pin(Scenario& scenario, const Plan& plan) {
  std::vector<std::string> pinned;
  PlanRequest& request = scenario.plan;
  const Partition& partition = request.partition.value;
  const bool stated = std::holds_alternative<LayerCounts>(partition) || std::holds_alternative<CutLayers>(partition) ||
                      std::holds_alternative<EqualLayers>(partition) || std::holds_alternative<EqualBlocks>(partition);
  if (!stated) {
    LayerCounts counts;
    for (const LayerRange& chunk : plan.uncut())
      counts.counts.push_back(chunk.size());
    // No scenario can state the cuts of an order that is still to be found: it is listed from here on.
    if (request.order.value.kind == LayerOrder::Kind::Graph)
      request.order.value.kind = LayerOrder::Kind::Listed;
    else
      pinned.push_back(fmt::format("plan.partition={{layers: [{}]}}", fmt::join(counts.counts, ", ")));
    request.partition.value = std::move(counts);
  }
  if (std::ranges::count(request.recompute.value, Recompute::Knapsack) == 0) return pinned;
  request.recompute.value = plan.recompute;
  request.recompute_layers.assign(plan.recompute.size(), {});
  for (VirtualStageId v = 0; v < plan.chunks(); ++v)
    for (const LayerId layer : plan.rebuilt)
      if (layer >= plan.layers[v].begin && layer < plan.layers[v].end)
        request.recompute_layers[at(plan.stage_of(v))].value.push_back(layer);
  std::vector<std::string> modes;
  for (StageId k = 0; k < plan.stages; ++k) {
    const std::vector<std::int64_t>& layers = request.recompute_layers[at(k)].value;
    modes.push_back(layers.empty() ? std::string(word(plan.recompute[k]))
                                   : fmt::format("{{layers: [{}]}}", fmt::join(layers, ", ")));
  }
  pinned.push_back(fmt::format("plan.recompute=[{}]", fmt::join(modes, ", ")));
  return pinned;
}

// `scenario` with the order in place of its schedule.
Scenario with_order(Scenario scenario, const OrderProblem& problem, const FoundOrder& found) {
  GivenSchedule order;
  order.file = "the order that was found";
  const ScheduleShape shape = shape_of_ops(problem);
  order.stages = shape.stages, order.virtual_stages = shape.virtual_stages;
  order.micro_batches = shape.micro_batches, order.chunk_order = shape.chunk_order;
  order.compute = ops_of(problem, found.order.codes);
  scenario.plan.schedule.value = kGivenSchedule;
  scenario.plan.most_in_flight.reset();  // the search has kept to it, or to the cap in its place
  scenario.plan.given = std::make_shared<const GivenSchedule>(std::move(order));
  return scenario;
}

}  // namespace

ScheduleAnswer find_schedule_of(const Scenario& scenario, const ScheduleQuestion& question) {
  if (needs_search(scenario))
    throw InputError(scenario.plan.place, "plan",
                     "leaves keys to be searched; write the plan with: pipewright plan SCENARIO -o FILE.yaml");
  const InOrder ordered = in_graph_order(std::make_shared<const Scenario>(scenario));
  const CostModel cost(ordered.scenario);
  const Plan plan = find_plan(cost.scenario(), cost);
  check_findable(scenario, plan);
  const OrderMeasure measure =
      question.measure.value_or(plan.barrier.value != Barrier::Flush ? OrderMeasure::Span : OrderMeasure::Step);
  const double kept = question.kept_for_weights.value_or(plan.kept_for_weights.value_or(Placed<double>{1, {}}).value);
  OrderProblem problem = order_problem(plan, cost);
  problem.measure = measure;
  for (std::size_t v = 0; v < problem.held.size(); ++v)
    problem.kept_after_input[v] = std::llround(kept * static_cast<double>(problem.kept_after_input[v]));
  const Answer planned = price(plan, cost, Engine::Auto);
  problem.cap = caps(problem, question.cap, planned, scenario);
  const FoundOrder found = find_order(problem, question.search);
  Scenario same_plan = cost.scenario();
  std::vector<std::string> pinned = pin(same_plan, plan);
  if (scenario.plan.most_in_flight) pinned.emplace_back("plan.most_in_flight=null");  // of another schedule
  auto answered =
      answer(with_order(std::move(same_plan), problem, found), {.engine = Engine::Auto, .ignore_memory = true});
  ScheduleAnswer result{.measure = measure,
                        .stages = problem.stages,
                        .chunks = plan.virtual_stages,
                        .micro_batches = static_cast<int>(plan.micro_batches),
                        .cap = "",
                        .rows = rows_of(problem, found, question.jitter),
                        .bound = Time{found.bound.value},
                        .bound_why = found.bound.why,
                        .evaluations = found.evaluations,
                        .seed = question.search.seed,
                        .stopped = found.stopped,
                        .jitter = question.jitter,
                        .pareto = {},
                        .answer = std::move(std::get<Answer>(answered)),
                        .pinned = std::move(pinned),
                        .flush = plan.barrier.value == Barrier::Flush,
                        .planned = plan.schedule,
                        .planned_step = planned.report.step_time};
  double least = std::numeric_limits<double>::infinity();
  StageId fullest = 0;
  for (StageId k = 0; k < problem.stages; ++k) {
    const double room = static_cast<double>(problem.cap[at(k)]) /
                        static_cast<double>(std::max<std::int64_t>(1, one_micro_batch(problem, k)));
    if (room < least) least = room, fullest = k;
  }
  result.cap = least > static_cast<double>(plan.micro_batches)
                   ? "all micro-batches in flight"
                   : fmt::format("{:.4g} micro-batches in flight{}", least,
                                 problem.stages > 1 ? fmt::format(" on stage {}, where it is least", fullest) : "");
  if (question.pareto && !found.stopped) result.pareto = cap_rows(problem, question.search);
  return result;
}

}  // namespace pipewright::planner
