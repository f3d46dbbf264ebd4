#include "planner/search/replicas.hpp"

#include <algorithm>
#include <exception>
#include <limits>

#include <fmt/format.h>

#include "core/folds.hpp"
#include "planner/find_plan.hpp"
#include "planner/plan_errors.hpp"
#include "planner/price.hpp"
#include "planner/replicated.hpp"
#include "planner/search/deadline.hpp"
#include "planner/search/found.hpp"
#include "planner/search/reasons.hpp"
#include "planner/search/space.hpp"
#include "planner/words.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
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
  close("context_parallel", result.plan.context_parallel);
  close("expert_parallel", result.plan.expert_parallel);
  const PlanRequest& plan = result.plan;
  for (const auto& [key, count] :
       {std::pair{"virtual_stages", &plan.virtual_stages}, std::pair{"data_parallel", &plan.data_parallel},
        std::pair{"context_parallel", &plan.context_parallel}})
    if (count->value != 1)
      throw InputError(
          or_else(count->place, plan.place), fmt::format("plan.{}", key),
          fmt::format("{}, but replicas that are left open make one pipeline with one chunk per stage; leave "
                      "plan.{} out, or write replicas as a list",
                      count->value, key));
  if (plan.overlap_param_gather.value)
    throw InputError(
        plan.overlap_param_gather.place, "plan.overlap_param_gather",
        "replicas run different micro-batches, and are left open; leave this out, or write replicas as a list");
  result.plan.stages.value = 1;
  if (by_suffix_dp(scenario)) result.plan.partition.value = Balanced{};
  if (scenario.cluster.classes() > 1) result.plan.partition.value = EqualLayers{};  // balanced knows one class
  open.erase("replicas"), open.erase("partition"), open.erase("placement");
  if (const auto schedule = open.find("schedule"); schedule != open.end() && schedule->second.among.empty())
    schedule->second.among = searched_schedules(&ScheduleRule::searched_with_replicas);
  for (const std::string& schedule : open.find("schedule") != open.end()
                                         ? open.at("schedule").among
                                         : std::vector<std::string>{result.plan.schedule.value}) {
    const ScheduleRule* rule = find_schedule(schedule);
    if (rule == nullptr || rule->searched_with_replicas == 0)
      throw InputError(or_else(result.plan.schedule.place, result.plan.place), "plan.replicas",
                       "auto is for schedule " +
                           listed(searched_schedules(&ScheduleRule::searched_with_replicas), "or") + ", not for " +
                           schedule + "; write replicas as a list (and another partition), or another schedule");
  }
  return result;
}

// The cuts belong to the stages, and these to the replicas: who chooses the one chooses the other.
void check_cuts_are_free(const Scenario& scenario) {
  const PlanRequest& plan = scenario.plan;
  if (!std::holds_alternative<LayerCounts>(plan.partition.value) &&
      !std::holds_alternative<CutLayers>(plan.partition.value))
    return;
  throw InputError(or_else(plan.partition.place, plan.place), "plan.partition",
                   "gives the cuts, but plan.replicas: auto chooses the stages and their cuts, too; "
                   "write partition: auto (--set plan.partition=auto), or the replicas");
}

Plan shell_of(const Scenario& whole, const CostModel& cost, Recompute mode) {
  Plan shell = shell_of_whole_plans(whole, cost);
  shell.recompute = {mode};
  return shell;
}

// Of the device that lacks most; below zero where all fit.
Bytes largest_excess(const Report& report) {
  return most_over<Bytes>(
      report.workers, [](const WorkerReport& worker) { return worker.need.to_fit - worker.need.capacity; },
      Bytes{std::numeric_limits<std::int64_t>::min()});
}

// Recomputations that are tried, none of which chooses layers.
std::vector<Recompute> modes_of(const Scenario& scenario) {
  const std::vector<Recompute>& asked = scenario.plan.recompute.value;
  for (const Recompute mode : asked)
    if (!is_open(scenario, "recompute") && (mode == Recompute::Layers || mode == Recompute::Knapsack))
      throw InputError(scenario.plan.recompute.place, "plan.recompute",
                       "chooses layers of stages, which the search for replicas does not know; write "
                       "none, selective, blocks or full, or leave plan.replicas out");
  std::vector<Recompute> modes = recomputations(scenario);
  std::erase(modes, Recompute::Knapsack);
  if (modes.empty()) modes.push_back(asked.empty() ? Recompute::None : asked.front());
  return modes;
}

class ReplicaSearch {
 public:
  ReplicaSearch(const Scenario& scenario, const SearchOptions& options) : scenario_(scenario), options_(options) {
    answer_.objective = options.objective;
    answer_.left_out = space_.left_out;
  }

  SearchResult answer() {
    look_at_all();
    if (answer_.plans.empty()) return without_plan();
    std::ranges::stable_sort(answer_.plans, [](const Found& a, const Found& b) { return is_better(a, b); });
    const double least = answer_.plans.front().value;
    prefer_fewer_devices(answer_.plans, options_);
    if (std::ssize(answer_.plans) > options_.top) answer_.plans.resize(at(options_.top));
    // Of memory, cost and unreached layouts there is no bound.
    const bool bounded = answer_.not_reached == 0 &&
                         (options_.objective == Objective::Throughput || options_.objective == Objective::StepTime);
    answer_.bound = bounded ? std::min(bound_, least) : 0;
    if (answer_.ended == Ended::No && !answer_.proven() && (answer_.bound <= 0 || answer_.gap() > options_.gap))
      answer_.gap_left = why_a_gap();
    answer_.idle_devices = scenario_.cluster.devices() - answer_.plans.front().plan.devices();
    return std::move(answer_);
  }

 private:
  bool over() {
    if (options_.progress) {
      auto best = most_over<double>(answer_.plans, [](const Found& each) { return each.report.samples_per_s; });
      options_.progress({"layouts", done_, space_.layouts * std::ssize(modes_), best});
    }
    const bool ended = deadline_.over();
    answer_.ended = deadline_.ended();
    return ended;
  }

  void look_at_all() {
    for (const LayoutGroup& group : space_.groups)
      for (const Layout& layout : members(group))
        for (const Recompute mode : modes_) {
          ++answer_.layouts;
          if (over()) {
            ++answer_.not_reached;
            continue;
          }
          try {
            look_at(layout, mode);
          } catch (const InputError& error) {
            if (!refusal_) refusal_ = std::current_exception();
            ++answer_.not_simulated[words(error.first())];
            bound_ = 0;
          }
          ++done_;
        }
  }

  // Throws InputError where this layout is too large to be simulated.
  void look_at(const Layout& layout, Recompute mode) {
    const auto own = std::make_shared<const Scenario>(settled(narrow_, layout, nullptr));
    const Scenario& whole = *own;
    const CostModel cost(own);
    const ReplicatedAnswer found =
        replicated_plans(shell_of(whole, cost, mode), cost,
                         {.top = at(std::max(options_.top, kFewestRanked)), .stopped = [this] { return over(); }});
    ++answer_.evaluated;
    answer_.simulations += found.simulated;
    answer_.too_large += found.too_large;
    for (const auto& [reason, count] : found.rejected)
      answer_.refused[reason] += count;
    if (!found.nearest_miss.empty()) miss(found.nearest_miss, found.missing);
    if (found.lower_bound < kNever)
      bound_ = std::min(bound_, objective_value(options_.objective, layout, scenario_, found.lower_bound, Bytes{}));
    for (const ReplicatedPlan& each : found.ranking)
      add(each, layout);
  }

  void add(const ReplicatedPlan& each, Layout layout) {
    layout.stages = each.plan.stages;
    auto own = std::make_shared<Scenario>(settled(narrow_, layout, &each.plan));
    own->plan.placement = std::vector<std::int64_t>(each.plan.device.begin(), each.plan.device.end());
    Found entry = priced(std::move(own), layout, options_.objective).found;
    PP_CHECK(entry.plan.layers == each.plan.layers && entry.plan.replicas == each.plan.replicas);
    if (!entry.report.fits) {
      const Bytes excess = largest_excess(entry.report);
      return miss(in_words(entry.layout) + ": " + bytes_text(excess) + " too much", excess);
    }
    if (options_.objective == Objective::Cost)
      entry.value = seconds(entry.report.step_time) / static_cast<double>(entry.layout.global_batch()) *
                    price_per_hour(entry.plan, scenario_) / 3600;
    answer_.plans.push_back(std::move(entry));
  }

  void miss(const std::string& what, Bytes missing) {
    if (nearest_.empty() || missing < missing_) nearest_ = what, missing_ = missing;
  }

  SearchResult without_plan() const {
    if (refusal_ && answer_.evaluated == 0 && answer_.ended == Ended::No) std::rethrow_exception(refusal_);
    std::vector<std::string> details;
    if (!nearest_.empty()) details.push_back("nearest miss: " + nearest_);
    if (answer_.too_large > 0) details.push_back(fmt::format("{} x memory", answer_.too_large));
    for (std::string& line : reasons_in_words(answer_))
      details.push_back(std::move(line));
    if (answer_.ended != Ended::No)
      return NoPlanYet{answer_.ended, answer_.layouts, answer_.not_reached, std::move(details)};
    const bool known = answer_.not_simulated.empty();
    return Infeasible{known ? "no plan with replicas fits" : "no plan with replicas was found that fits",
                      std::move(details),
                      {},
                      known};
  }

  std::string why_a_gap() const {
    if (!answer_.not_simulated.empty())
      return "layouts that are too large to be simulated may be better (" + answer_.not_simulated.begin()->first + ")";
    return answer_.bound > 0 ? "the bound is that of the busiest stage, and the plans are those that a dynamic program "
                               "ranks first"
                             : "there are no bounds of memory and cost with replicas";
  }

  const Scenario& scenario_;
  const SearchOptions& options_;
  Deadline deadline_ = Deadline(options_.time_limit, options_.stop);
  const Scenario narrow_ = narrowed(scenario_);
  const Space space_ = layouts_of(narrow_);
  const std::vector<Recompute> modes_ = modes_of(scenario_);
  SearchAnswer answer_;
  std::string nearest_;  // the nearest miss, and how much is missing
  Bytes missing_;
  double bound_ = std::numeric_limits<double>::infinity();
  std::int64_t done_ = 0;
  std::exception_ptr refusal_;  // the first
};

}  // namespace

bool asks_for_replicas(const Scenario& scenario) {
  return is_open(scenario, "replicas") || by_suffix_dp(scenario);
}

void check_classes_of_search(const Scenario& scenario) {
  if (!asks_for_replicas(scenario)) refuse_classes(scenario.cluster, scenario.cluster.place, kPlanSearch);
}

SearchResult search_replicas(const Scenario& scenario, const SearchOptions& options) {
  check_whole_plan(scenario);
  check_cuts_are_free(scenario);
  if (options.objective == Objective::Cost) check_prices(scenario);
  return ReplicaSearch(scenario, options).answer();
}

}  // namespace pipewright::planner
