#include "planner/what_if/variants.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/folds.hpp"
#include "planner/find_plan.hpp"
#include "planner/layer_order.hpp"
#include "planner/price.hpp"
#include "planner/what_if/sensitivity.hpp"
#include "planner/words.hpp"
#include "sim/schedules/table.hpp"
#include "sim/summarize.hpp"

namespace pipewright::planner {
namespace {

// Ops and messages up to which variants are simulated: a dozen of them stay below a second.
constexpr std::int64_t kLargestVariant = 1 << 20;
constexpr double kWorthAHint = 1.05;

using Change = std::function<bool(Scenario&, const Plan&)>;  // false: it does not apply

struct Variant {
  std::string text;              // "recompute: full"
  std::vector<std::string> set;  // {"plan.recompute=full"}: each key once
  Change change;
};

// "--set plan.recompute=full"
std::string set_text(const std::vector<std::string>& set) {
  return fmt::format("--set {}", fmt::join(set, " --set "));
}

// Whether a run without shared links, which is never slower than the real one, would be `least_gain` times as fast.
// Costs a fraction of the figures. Asynchronous schedules are not judged this way.
bool promising(const Answer& answer, const Plan& plan, const CostModel& cost, double least_gain) {
  if (!answer.schedule.flush || least_gain <= 0) return true;
  const StepCosts costs = folded_costs(plan, cost);
  if (!costs.loads.empty()) return true;  // ops may take less than that
  const Time step = static_step(plan, make_schedule(plan, costs.shape), costs);
  return samples_per_second(plan, step, std::nullopt) >= least_gain * answer.report.samples_per_s;
}

// Where the best order of the layers is asked for, it is that of a number of stages and a size of micro-batches.
bool needs_another_order(const Scenario& changed, const Plan& plan) {
  return changed.plan.order.value.kind == LayerOrder::Kind::Graph &&
         (changed.plan.stages.value != plan.stages ||
          batch_split(changed.training, changed.plan.data_parallel.value).micro_batch_size != plan.micro_batch_size);
}

// Figures of the changed scenario; none where the change does not apply, makes no valid plan or gains too little.
std::optional<Report> tried(const Answer& answer, const Change& change, double least_gain = 0) {
  const auto changed = std::make_shared<Scenario>(*answer.scenario);
  try {
    if (!change(*changed, answer.plan)) return std::nullopt;
    const CostModel cost(needs_another_order(*changed, answer.plan) ? in_graph_order(changed).scenario : changed);
    const Plan plan = find_plan(cost.scenario(), cost);
    if (!promising(answer, plan, cost, least_gain)) return std::nullopt;
    Answer variant = price(plan, cost, Engine::Auto);
    settle(variant, Engine::Auto);
    return std::move(variant.report);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

Bytes largest(const Report& report, Bytes MemoryNeed::*figure) {
  return most_over<Bytes>(report.workers, [&](const WorkerReport& worker) { return worker.need.*figure; });
}

bool all_stages(const Plan& plan, Recompute mode) {
  return std::ranges::all_of(plan.recompute, [&](Recompute each) { return each == mode; });
}

bool recomputed(Scenario& scenario, const Plan& plan) {
  scenario.plan.recompute.value = {Recompute::Full};
  return !all_stages(plan, Recompute::Full) || plan.recompute_except_last;
}

bool selective(Scenario& scenario, const Plan& plan) {
  const bool cores = drops_any(scenario.model, scenario.plan.recompute_modules);
  scenario.plan.recompute.value = {Recompute::Selective};
  return all_stages(plan, Recompute::None) && cores;
}

// Both rebuild some layers of a stage at a time, where `full` holds a whole stage's at once.
bool blocks(Scenario& scenario, const Plan& plan) {
  const bool already = all_stages(plan, Recompute::Blocks) || all_stages(plan, Recompute::Full);
  scenario.plan.recompute.value = {Recompute::Blocks};
  return !already;
}

bool knapsack(Scenario& scenario, const Plan&) {
  const auto& asked = scenario.plan.recompute.value;
  const bool already = asked.size() == 1 && asked.front() == Recompute::Knapsack;
  scenario.plan.recompute.value = {Recompute::Knapsack};
  return !already;
}

// Gradients accumulated in the 16 bits of the weights.
bool short_gradients(Scenario& scenario, const Plan&) {
  Training& training = scenario.training;
  const bool shorter =
      weight_bytes(training.precision) < weight_bytes(training.gradient_precision.value_or(training.precision));
  training.gradient_precision = training.precision;
  return shorter;
}

bool sharded_states(Scenario& scenario, const Plan& plan) {
  return plan.seating().any_reduced() && std::exchange(scenario.training.zero, 1) == 0;
}

bool sharded_weights(Scenario& scenario, const Plan& plan) {
  return plan.seating().any_reduced() && std::exchange(scenario.training.zero, kWeightsSharded) < kWeightsSharded;
}

bool sequence_parallel(Scenario& scenario, const Plan& plan) {
  if (plan.tensor_parallel < 2 || plan.sequence_parallel) return false;
  scenario.plan.sequence_parallel.value = true;
  settle(scenario.model, weight_bytes(scenario.training.precision), scenario.plan.split());
  return true;
}

bool fitting(Scenario& scenario, const Plan& plan) {
  if (plan.virtual_stages > 1 || !std::holds_alternative<Balanced>(scenario.plan.partition.value)) return false;
  scenario.plan.partition.value = Fitting{};
  return true;
}

// Another schedule; none: no change.
Variant to_schedule(std::string_view name) {
  return {fmt::format("schedule: {}", name),
          {fmt::format("plan.schedule={}", name)},
          [name](Scenario& scenario, const Plan&) {
            scenario.plan.schedule.value = name;
            return !name.empty();
          }};
}

// The same global batch in micro-batches of `size` samples.
bool smaller_micro_batches(Scenario& scenario, const Plan& plan, std::int64_t size) {
  Training& training = scenario.training;
  if (size < 1 || size >= plan.micro_batch_size || plan.micro_batch_size % size != 0 ||
      plan.last_micro_batch_size != plan.micro_batch_size)
    return false;
  training.global_batch_size = Placed<std::int64_t>{plan.global_batch_size, training.place};
  training.micro_batch_size = Placed<std::int64_t>{size, training.place};
  training.micro_batches.reset();
  return true;
}

// How the user would write it: the key that the scenario gives beside the global batch.
std::vector<std::string> smaller_set(const Scenario& scenario, const Plan& plan, std::int64_t size) {
  const Training& training = scenario.training;
  const std::int64_t micro_batches = plan.micro_batches * (plan.micro_batch_size / size);
  const std::string by_size = fmt::format("training.micro_batch_size={}", size);
  const std::string by_count = fmt::format("training.micro_batches={}", micro_batches);
  if (!training.micro_batches) return {by_size};
  if (!training.micro_batch_size) return {by_count};
  return {by_size, by_count};
}

bool more_stages(Scenario& scenario, const Plan& plan, std::int64_t stages) {
  const bool replicated = std::ranges::any_of(plan.replicas, [](int r) { return r > 1; });
  if (replicated || stages <= plan.stages) return false;
  scenario.plan.stages.value = stages;
  scenario.plan.partition.value = Balanced{};
  for (const std::string_view key : kSetByWholePlan)
    scenario.plan.open.erase(std::string(key));
  if (scenario.plan.recompute.value.size() > 1) scenario.plan.recompute.value.clear();
  if (std::holds_alternative<std::vector<std::int64_t>>(scenario.plan.placement))
    scenario.plan.placement = PlacementOrder::Pipeline;
  return true;
}

std::vector<std::string> stages_set(const Scenario& scenario, std::int64_t stages) {
  std::vector<std::string> set = {fmt::format("plan.stages={}", stages)};
  if (!std::holds_alternative<Balanced>(scenario.plan.partition.value)) set.emplace_back("plan.partition=balanced");
  if (scenario.plan.recompute.value.size() > 1) set.emplace_back("plan.recompute=none");
  if (std::holds_alternative<std::vector<std::int64_t>>(scenario.plan.placement))
    set.emplace_back("plan.placement=pipeline");
  return set;
}

// Numbers of stages to try: up to eight between the plan's own and what devices and layers allow.
std::vector<std::int64_t> larger_stage_counts(const Answer& answer) {
  const Scenario& scenario = *answer.scenario;
  const std::int64_t group = std::int64_t{answer.plan.copies()} * answer.plan.tensor_parallel;
  const std::int64_t most = std::min<std::int64_t>(scenario.cluster.devices() / group,
                                                   static_cast<std::int64_t>(scenario.model.layers.size()));
  std::vector<std::int64_t> counts;
  const std::int64_t step = std::max<std::int64_t>(1, (most - answer.plan.stages + 7) / 8);
  for (std::int64_t stages = answer.plan.stages + step; stages < most; stages += step)
    counts.push_back(stages);
  if (most > answer.plan.stages) counts.push_back(most);
  return counts;
}

std::string name_of_short(Precision precision) {
  return precision == Precision::Bf16 ? "bf16" : "fp16";
}

// They make no step longer, or hardly.
std::vector<Variant> free_changes(const Answer& answer) {
  const std::string precision = name_of_short(answer.scenario->training.precision);
  return {to_schedule(find_schedule(answer.plan.schedule)->leaner),
          {"sequence_parallel: true", {"plan.sequence_parallel=true"}, sequence_parallel},
          {"zero: 1", {"training.zero=1"}, sharded_states},
          {"gradient_precision: " + precision, {"training.gradient_precision=" + precision}, short_gradients}};
}

std::vector<Variant> recompute_changes() {
  return {{"recompute: selective", {"plan.recompute=selective"}, selective},
          {"recompute: knapsack", {"plan.recompute=knapsack"}, knapsack},
          {"recompute: blocks", {"plan.recompute=blocks"}, blocks},
          {"recompute: full", {"plan.recompute=full"}, recomputed}};
}

std::vector<Variant> smaller_changes(const Answer& answer) {
  std::vector<Variant> list;
  for (std::int64_t size = answer.plan.micro_batch_size / 2; size >= 1; size /= 2)
    list.push_back(
        {fmt::format("micro_batch_size: {}", size), smaller_set(*answer.scenario, answer.plan, size),
         [size](Scenario& changed, const Plan& plan) { return smaller_micro_batches(changed, plan, size); }});
  return list;
}

std::vector<Variant> stage_changes(const Answer& answer) {
  std::vector<Variant> list;
  for (const std::int64_t stages : larger_stage_counts(answer))
    list.push_back({fmt::format("stages: {}", stages), stages_set(*answer.scenario, stages),
                    [stages](Scenario& changed, const Plan& plan) { return more_stages(changed, plan, stages); }});
  return list;
}

void append(std::vector<Variant>& list, std::vector<Variant> more) {
  std::move(more.begin(), more.end(), std::back_inserter(list));
}

std::vector<Variant> single_changes(const Answer& answer) {
  std::vector<Variant> list = free_changes(answer);
  list.push_back({"partition: fitting", {"plan.partition=fitting"}, fitting});
  append(list, recompute_changes());
  list.push_back({"zero: 3", {"training.zero=3"}, sharded_weights});
  append(list, smaller_changes(answer));
  append(list, stage_changes(answer));
  return list;
}

// Both, the second as the first leaves the scenario.
Variant together(const Variant& a, const Variant& b) {
  return {a.text + " and " + b.text, with_later_changes(a.set, b.set),
          [first = a.change, second = b.change](Scenario& scenario, const Plan& plan) {
            return first(scenario, plan) && second(scenario, plan);
          }};
}

std::string family(const Variant& variant) {
  return variant.text.substr(0, variant.text.find(':'));
}

// ", 159.2 samples/s": four digits, all of those before the point. Nothing when the step takes no time.
std::string rate_text(double samples_per_s) {
  if (samples_per_s <= 0) return {};
  const int before_point = static_cast<int>(std::floor(std::log10(samples_per_s))) + 1;
  return fmt::format(", {:.{}f} samples/s", samples_per_s, std::clamp(4 - before_point, 0, 12));
}

// What fits, with what it makes.
struct Remedy {
  double samples_per_s;
  std::string line;
};

// The same plan with fewer micro-batches, which never needs more memory; false: it has few.
bool shortened(Scenario& scenario) {
  constexpr std::int64_t kPerStage = 4;
  Training& training = scenario.training;
  const BatchSplit split = batch_split(training, scenario.plan.data_parallel.value);
  const std::int64_t few = kPerStage * scenario.plan.stages.value;
  if (split.micro_batches <= 2 * few) return false;
  training.global_batch_size =
      Placed<std::int64_t>{few * split.micro_batch_size * scenario.plan.data_parallel.value, training.place};
  training.micro_batch_size = Placed<std::int64_t>{split.micro_batch_size, training.place};
  training.micro_batches.reset();
  return true;
}

// Whether a run of a few micro-batches does not fit. Not asked where the cut depends on their number.
bool hopeless(const Answer& answer, const Change& change) {
  if (std::holds_alternative<LeastStep>(answer.scenario->plan.partition.value)) return false;
  const auto report = tried(
      answer, [&](Scenario& scenario, const Plan& plan) { return change(scenario, plan) && shortened(scenario); });
  return report && !report->fits;
}

std::optional<Remedy> remedy(const Answer& answer, const Variant& variant) {
  const auto report = tried(answer, variant.change);
  if (!report || !report->fits) return std::nullopt;
  return Remedy{report->samples_per_s,
                fmt::format("{} needs {}{}: {}", variant.text, bytes_text(largest(*report, &MemoryNeed::to_fit)),
                            rate_text(report->samples_per_s), set_text(variant.set))};
}

// The first variant of each family that fits, the fastest first: that does least harm.
std::vector<Remedy> first_of_families(const Answer& answer, const std::vector<Variant>& variants) {
  std::vector<Remedy> found;
  std::string done;
  for (const Variant& variant : variants) {
    if (family(variant) == done) continue;
    auto fits = hopeless(answer, variant.change) ? std::nullopt : remedy(answer, variant);
    if (!fits) continue;
    // Knapsack is what this program chooses, blocks what frameworks know: both are worth a line.
    if (variant.text != "recompute: knapsack") done = family(variant);
    found.push_back(std::move(*fits));
  }
  std::ranges::stable_sort(found, [](const Remedy& a, const Remedy& b) { return a.samples_per_s > b.samples_per_s; });
  return found;
}

// Those of a list that apply to the scenario at all, so that combinations are of them alone.
std::vector<Variant> that_apply(const Answer& answer, std::vector<Variant> list) {
  std::erase_if(list, [&](const Variant& variant) {
    Scenario scratch = *answer.scenario;
    return !variant.change(scratch, answer.plan);
  });
  return list;
}

// The gentlest and the most of a row of sizes.
std::vector<Variant> ends(std::vector<Variant> list) {
  if (list.size() > 2) list.erase(list.begin() + 1, list.end() - 1);
  return list;
}

void add_pairs(std::vector<Variant>& pairs, const std::vector<Variant>& first, const std::vector<Variant>& second) {
  for (const Variant& a : first)
    for (const Variant& b : second)
      pairs.push_back(together(a, b));
}

// Where no change suffices alone, from least harm to most: pairs, then all that is free with one or two of the others.
std::vector<Variant> combinations(const Answer& answer) {
  const std::vector<Variant> free = that_apply(answer, free_changes(answer)),
                             rebuilt = that_apply(answer, recompute_changes()),
                             smaller = ends(that_apply(answer, smaller_changes(answer))),
                             stages = ends(that_apply(answer, stage_changes(answer)));
  std::vector<Variant> list;
  for (std::size_t i = 0; i < free.size(); ++i)
    add_pairs(list, {free[i]}, {free.begin() + static_cast<std::ptrdiff_t>(i) + 1, free.end()});
  for (const auto* others : {&rebuilt, &smaller, &stages})
    add_pairs(list, free, *others);
  std::vector<Variant> two;
  for (const auto* others : {&smaller, &stages})
    add_pairs(two, *others, rebuilt);
  list.insert(list.end(), two.begin(), two.end());
  if (free.empty()) return list;
  Variant all = free.front();
  for (std::size_t i = 1; i < free.size(); ++i)
    all = together(all, free[i]);
  if (free.size() > 2) list.push_back(all);
  for (const auto* others : {&rebuilt, &smaller, &stages})
    if (free.size() > 1) add_pairs(list, {all}, *others);
  add_pairs(list, {all}, two);
  return list;
}

// As many are tried in full as take about as long as the single changes of the longest run.
std::vector<Remedy> first_combination(const Answer& answer) {
  constexpr std::int64_t kFewest = 16;
  const std::int64_t size = std::max<std::int64_t>(1, run_size(answer.schedule, answer.costs));
  std::int64_t left = kFewest * std::max<std::int64_t>(1, kLargestVariant / size);
  for (const Variant& variant : combinations(answer)) {
    if (hopeless(answer, variant.change)) continue;
    if (left-- == 0) break;
    if (auto fits = remedy(answer, variant)) return {std::move(*fits)};
  }
  return {};
}

bool too_long(const Answer& answer) {
  return run_size(answer.schedule, answer.costs) > std::min(kLargestVariant, largest_repeated_run(answer.timeline));
}

struct Hint {
  double gain;
  std::string text;
};

// No order of the same work is faster than its busiest worker.
double most_gain(const Answer& answer) {
  auto busiest = most_over<Time>(answer.report.workers, &WorkerReport::busy);
  return answer.schedule.flush && busiest > Time{} ? ratio(answer.report.step_time, busiest) : kWorthAHint;
}

// Four times as many micro-batches, or twice: the bubble shrinks as (K-1)/(M+K-1) does.
std::optional<Hint> more_micro_batches(const Answer& answer) {
  const Plan& plan = answer.plan;
  const Training& training = answer.scenario->training;
  if (!answer.schedule.flush || plan.stages == 1) return std::nullopt;
  for (const std::int64_t factor : {4, 2}) {
    const bool batch_given = training.global_batch_size.has_value();
    if (batch_given && plan.micro_batch_size % factor != 0) continue;
    const std::int64_t size = plan.micro_batch_size / factor, count = plan.micro_batches * factor;
    const auto report = tried(answer, [&](Scenario& changed, const Plan&) {
      if (batch_given) return smaller_micro_batches(changed, plan, size);
      changed.training.micro_batches->value = count;
      return true;
    });
    if (!report || !report->fits) continue;
    const double gain = report->samples_per_s / answer.report.samples_per_s;
    const std::vector<std::string> set = batch_given ? smaller_set(*answer.scenario, plan, size)
                                                     : std::vector{fmt::format("training.micro_batches={}", count)};
    return Hint{gain, fmt::format("{} micro-batches would cut the bubble to {:.1f} %: {}", count,
                                  100 * report->bubble_fraction, set_text(set))};
  }
  return std::nullopt;
}

std::optional<Hint> one_change(const Answer& answer, const Variant& variant) {
  const auto report = tried(answer, variant.change, kWorthAHint);
  if (!report || !report->fits) return std::nullopt;
  const double gain = report->samples_per_s / answer.report.samples_per_s;
  return Hint{gain, fmt::format("{} would bring {:.1f} % more samples/s, with a memory peak of {}: {}", variant.text,
                                100 * (gain - 1), bytes_text(largest(*report, &MemoryNeed::with_reserve)),
                                set_text(variant.set))};
}

bool fits_by_estimate(const Report& report) {
  return std::ranges::all_of(
      report.workers, [](const WorkerReport& worker) { return worker.need.with_reserve <= worker.need.capacity; });
}

// A found order that fills the room it may take: with more there may be a shorter one. "": it does not, or none is.
std::string more_room(const Answer& answer) {
  const Plan& plan = answer.plan;
  if (find_schedule(plan.schedule)->made_for == nullptr) return "";
  const std::int64_t most = plan.most_in_flight ? plan.most_in_flight->value : plan.stages;
  const bool full = std::ranges::any_of(
      answer.report.stages, [&](const StageReport& stage) { return stage.in_flight >= most * plan.virtual_stages; });
  if (!full || most >= plan.micro_batches || answer.report.bubble_fraction <= 0) return "";
  return fmt::format(
      "the order of {} keeps to {} micro-batches in flight; more room (plan.most_in_flight) may allow a "
      "shorter one, for more memory: --set plan.most_in_flight={}",
      plan.schedule, most, std::min(2 * most, plan.micro_batches));
}

}  // namespace

std::vector<std::string> remedies(const Answer& answer) {
  if (too_long(answer)) return {"the run is too long to try others at once: try fewer micro-batches"};
  std::vector<Remedy> found = first_of_families(answer, single_changes(answer));
  if (found.empty()) found = first_combination(answer);
  auto lines = mapped<std::string>(found, [&](Remedy& each) { return std::move(each.line); });
  if (fit_asked(*answer.scenario) > 0 && fits_by_estimate(answer.report))
    lines.push_back("by the estimate alone it fits: --set plan.fit=50%");
  if (lines.empty())
    lines.push_back(
        "nothing that was tried fits (another schedule, ZeRO-1, gradients in 16 bits, recompute, smaller "
        "micro-batches, more "
        "stages, and these together): use devices with more memory or more of them");
  return lines;
}

std::vector<std::string> hints(const Answer& answer) {
  if (!answer.report.fits || answer.report.samples_per_s <= 0 || too_long(answer)) return {};
  std::vector<Hint> found;
  const auto keep = [&](const std::optional<Hint>& hint) {
    if (hint && hint->gain >= kWorthAHint) found.push_back(*hint);
  };
  const bool room = most_gain(answer) >= kWorthAHint;
  if (room && answer.report.bubble_fraction > 0.1) keep(more_micro_batches(answer));
  const std::string_view hides_hops = find_schedule(answer.plan.schedule)->hides_hops;
  if (room && !hides_hops.empty() && answer.plan.stages > 1) keep(one_change(answer, to_schedule(hides_hops)));
  if (!std::holds_alternative<Balanced>(answer.scenario->plan.partition.value))
    keep(one_change(answer, {"partition: balanced", {"plan.partition=balanced"}, [](Scenario& scenario, const Plan&) {
                               scenario.plan.partition.value = Balanced{};
                               return true;
                             }}));
  std::ranges::stable_sort(found, [](const Hint& a, const Hint& b) { return a.gain > b.gain; });
  auto lines = mapped<std::string>(found, &Hint::text);
  if (std::string line = more_room(answer); !line.empty()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace pipewright::planner
