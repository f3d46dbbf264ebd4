#include "planner/search/replicas.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>

#include <fmt/format.h>

#include "planner/find_plan.hpp"
#include "planner/one_class.hpp"
#include "planner/plan_errors.hpp"
#include "planner/price.hpp"
#include "planner/replicated.hpp"
#include "planner/search/better.hpp"
#include "planner/search/device_price.hpp"
#include "planner/search/no_plan.hpp"
#include "planner/search/space.hpp"
#include "planner/what_if/bytes_text.hpp"

namespace pipewright {
namespace {

constexpr int kFewestRanked = 5;  // fewer are asked for: as many are looked at, so that the best one stays the same

bool by_suffix_dp(const Scenario& scenario) {
  return std::holds_alternative<SuffixDp>(scenario.plan.partition.value);
}

// With the schedules that replicas are for, and one copy of one chunk per stage.
Scenario narrowed(const Scenario& scenario) {
  Scenario result = scenario;
  OpenFields& open = result.plan.open;
  const auto close = [&](const char* key, auto& field) {
    if (open.erase(key) > 0) field.value = 1;
  };
  close("stages", result.plan.stages);
  close("virtual_stages", result.plan.virtual_stages);
  close("data_parallel", result.plan.data_parallel);
  result.plan.stages.value = 1;
  if (by_suffix_dp(scenario)) result.plan.partition.value = Balanced{};
  if (scenario.cluster.classes() > 1) result.plan.partition.value = EqualLayers{};  // balanced knows one class
  open.erase("replicas"), open.erase("partition"), open.erase("placement");
  if (const auto schedule = open.find("schedule"); schedule != open.end() && schedule->second.among.empty())
    schedule->second.among = {"pipedream", "1f1b"};
  for (const std::string& schedule : open.find("schedule") != open.end()
                                         ? open.at("schedule").among
                                         : std::vector<std::string>{result.plan.schedule.value})
    if (schedule != "pipedream" && schedule != "1f1b")
      throw InputError(result.plan.schedule.place.file.empty() ? result.plan.place : result.plan.schedule.place,
                       "plan.replicas: auto is for schedule pipedream or 1f1b, not for " + schedule +
                           "; write replicas as a list (and another partition), or another schedule");
  return result;
}

// The cuts belong to the stages, and these to the replicas: who chooses the one chooses the other.
void check_cuts_are_free(const Scenario& scenario) {
  const PlanRequest& plan = scenario.plan;
  if (!std::holds_alternative<LayerCounts>(plan.partition.value) &&
      !std::holds_alternative<CutLayers>(plan.partition.value))
    return;
  throw InputError(plan.partition.place.file.empty() ? plan.place : plan.partition.place,
                   "plan.partition: gives the cuts, but plan.replicas: auto chooses the stages and their cuts, too; "
                   "write partition: auto (--set plan.partition=auto), or the replicas");
}

Plan shell_of(const Scenario& whole, const CostModel& cost, Recompute mode) {
  Plan shell = shell_of_whole_plans(whole, cost);
  shell.recompute = {mode};
  return shell;
}

// Of the device that lacks most; below zero where all fit.
Bytes largest_excess(const Report& report) {
  Bytes most{std::numeric_limits<std::int64_t>::min()};
  for (const WorkerReport& worker : report.workers)
    most = std::max(most, worker.need.to_fit - worker.need.capacity);
  return most;
}

}  // namespace

bool asks_for_replicas(const Scenario& scenario) {
  return is_open(scenario, "replicas") || by_suffix_dp(scenario);
}

void check_classes_of_search(const Scenario& scenario) {
  if (!asks_for_replicas(scenario)) refuse_classes(scenario.cluster, scenario.cluster.place, kPlanSearch);
}

SearchResult search_replicas(const Scenario& scenario, const SearchOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  check_whole_plan(scenario);
  check_cuts_are_free(scenario);
  if (options.objective == Objective::Cost) check_prices(scenario);
  const Scenario narrow = narrowed(scenario);
  const Space space = layouts_of(narrow);
  SearchAnswer answer;
  answer.objective = options.objective;
  answer.left_out = space.left_out;
  Bytes missing;
  std::string nearest;
  double bound = std::numeric_limits<double>::infinity();
  std::int64_t done = 0;
  std::vector<Recompute> modes;
  const auto tell = [&] {
    if (!options.progress) return;
    double best = 0;
    for (const Found& each : answer.plans)
      best = std::max(best, each.report.samples_per_s);
    options.progress({"layouts", done, space.layouts * std::ssize(modes), best});
  };
  const auto over = [&] {
    tell();
    if (options.stop && options.stop()) answer.ended = "interrupted";
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    if (passed.count() > options.time_limit) answer.ended = "the time limit";
    return !answer.ended.empty();
  };
  for (const Recompute mode : scenario.plan.recompute.value)
    if (!is_open(scenario, "recompute") && (mode == Recompute::Layers || mode == Recompute::Knapsack))
      throw InputError(scenario.plan.recompute.place,
                       "plan.recompute: chooses layers of stages, which the search for replicas does not know; write "
                       "none, selective, blocks or full, or leave plan.replicas out");
  modes = recomputations(scenario);
  std::erase(modes, Recompute::Knapsack);
  if (modes.empty())
    modes.push_back(scenario.plan.recompute.value.empty() ? Recompute::None : scenario.plan.recompute.value.front());
  // Throws InputError where this layout is too large to be simulated.
  const auto look_at = [&](const Layout& layout, Recompute mode) {
    const Scenario whole = settled(narrow, layout, nullptr);
    const CostModel cost(whole);
    const ReplicatedAnswer found =
        replicated_plans(shell_of(whole, cost, mode), cost,
                         {.top = static_cast<std::size_t>(std::max(options.top, kFewestRanked)), .stopped = over});
    ++answer.evaluated;
    answer.simulations += found.simulated;
    for (const auto& [reason, count] : found.rejected)
      (reason == "memory" ? answer.too_large : answer.refused[reason]) += count;
    if (!found.nearest_miss.empty() && (nearest.empty() || found.missing < missing))
      nearest = found.nearest_miss, missing = found.missing;
    if (found.lower_bound < kNever)
      bound = std::min(bound, objective_value(options.objective, layout, scenario, found.lower_bound, Bytes{}));
    for (const ReplicatedPlan& each : found.ranking) {
      Found entry;
      entry.layout = layout;
      entry.layout.stages = each.plan.stages;
      entry.plan = each.plan;
      auto settled_scenario = std::make_shared<Scenario>(settled(narrow, entry.layout, &each.plan));
      settled_scenario->plan.placement = std::vector<std::int64_t>(each.plan.device.begin(), each.plan.device.end());
      const CostModel own(*settled_scenario);
      entry.plan = find_plan(*settled_scenario, own);
      PP_CHECK(entry.plan.layers == each.plan.layers && entry.plan.replicas == each.plan.replicas);
      Answer priced = price(entry.plan, own, Engine::Auto);
      if (!priced.report.fits) {
        const Bytes excess = largest_excess(priced.report);
        if (nearest.empty() || excess < missing)
          nearest = in_words(entry.layout) + ": " + bytes_text(excess) + " too much", missing = excess;
        continue;
      }
      entry.report = std::move(priced.report);
      for (const WorkerReport& worker : entry.report.workers) {
        entry.peak = std::max(entry.peak, worker.need.with_reserve);
        entry.peak_high = std::max(entry.peak_high, worker.need.high);
        entry.to_fit = std::max(entry.to_fit, worker.need.to_fit);
      }
      entry.value = objective_value(options.objective, entry.layout, scenario, entry.report.step_time, entry.to_fit);
      if (options.objective == Objective::Cost)
        entry.value = seconds(entry.report.step_time) / static_cast<double>(entry.layout.global_batch()) *
                      price_per_hour(entry.plan, scenario) / 3600;
      entry.scenario = std::move(settled_scenario);
      answer.plans.push_back(std::move(entry));
    }
  };
  std::exception_ptr refusal;  // the first
  for (const LayoutGroup& group : space.groups)
    for (const Layout& layout : members(group))
      for (const Recompute mode : modes) {
        ++answer.layouts;
        if (over()) {
          ++answer.not_reached;
          continue;
        }
        try {
          look_at(layout, mode);
        } catch (const InputError& error) {
          if (!refusal) refusal = std::current_exception();
          ++answer.not_simulated[without_place(error.what())];
          bound = 0;
        }
        ++done;
      }
  if (answer.plans.empty()) {
    if (refusal && answer.evaluated == 0 && answer.ended.empty()) std::rethrow_exception(refusal);
    std::vector<std::string> details;
    if (!nearest.empty()) details.push_back("nearest miss: " + nearest);
    if (answer.too_large > 0) details.push_back(fmt::format("{} x memory", answer.too_large));
    for (std::string& line : reasons_in_words(answer))
      details.push_back(std::move(line));
    if (!answer.ended.empty()) return NoPlanYet{answer.ended, answer.layouts, answer.not_reached, std::move(details)};
    const bool known = answer.not_simulated.empty();
    return Infeasible{known ? "no plan with replicas fits" : "no plan with replicas was found that fits",
                      std::move(details),
                      {},
                      known};
  }
  std::stable_sort(answer.plans.begin(), answer.plans.end(),
                   [](const Found& a, const Found& b) { return is_better(a, b); });
  const double least = answer.plans.front().value;
  prefer_fewer_devices(answer.plans, options);
  if (std::ssize(answer.plans) > options.top) answer.plans.resize(static_cast<std::size_t>(options.top));
  // Of memory, cost and unreached layouts there is no bound.
  const bool bounded = answer.not_reached == 0 &&
                       (options.objective == Objective::Throughput || options.objective == Objective::StepTime);
  answer.bound = bounded ? std::min(bound, least) : 0;
  if (answer.ended.empty() && !answer.proven() && (answer.bound <= 0 || answer.gap() > options.gap))
    answer.gap_left =
        !answer.not_simulated.empty()
            ? "layouts that are too large to be simulated may be better (" + answer.not_simulated.begin()->first + ")"
        : answer.bound > 0 ? "the bound is that of the busiest stage, and the plans are those that a dynamic program "
                             "ranks first"
                           : "there are no bounds of memory and cost with replicas";
  answer.idle_devices = scenario.cluster.devices() - answer.plans.front().plan.devices();
  return answer;
}

}  // namespace pipewright
