// `plan`: the best plan for what a scenario leaves open.
#include <array>
#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "cli/campaign_options.hpp"
#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "cli/plan_nodes.hpp"
#include "core/check.hpp"
#include "core/folds.hpp"
#include "io/read/read_scenario.hpp"
#include "io/writers/campaign_lines.hpp"
#include "io/writers/html.hpp"
#include "io/writers/ranking.hpp"
#include "io/writers/schedule_csv.hpp"
#include "planner/answer.hpp"
#include "planner/launch/narrowed.hpp"
#include "planner/search/explain.hpp"
#include "planner/search/search.hpp"
#include "planner/what_if/explanation.hpp"
#include "runtime/signals.hpp"
#include "study/planned.hpp"
#include "study/ranks.hpp"

namespace pipewright::cli {
namespace {

constexpr std::array<Option, 15> kOwnPlanOptions = {{
    {"--set", "", "KEY=VALUE", "change one value of the scenario first: --set plan.stages=auto (repeatable)"},
    {"--for", "", "NAME", "only plans that launch can write for megatron, torchtitan, torch or deepspeed"},
    {"--nodes", "", "LIST",
     "the best plan for each number of nodes: auto, 1,2,4 or 1..64 (both ends and powers of two); marks which fit and "
     "which is cheapest"},
    {"--deadline", "", "TIME", "with --tokens: the fewest nodes that finish in time, e.g. 30d (--nodes auto)"},
    {"--top", "", "N", "plans in the ranking (default: 5)"},
    {"--objective", "", "NAME", "throughput (default), step_time, cost (device time, or money), memory"},
    {"--time-limit", "", "TIME",
     "stop after TIME and report the remaining gap (default: 10s; with --nodes for all numbers together: 2min)"},
    {"--gap", "", "PERCENT", "stop when the plan is this close to the bound (default: 1%; 0: go on until proven)"},
    {"--fit", "", "PERCENT",
     "only plans that fit with this probability over the memory model's range (plan.fit; default: 95%; 50%: the "
     "estimate itself must fit)"},
    {"--explain", "", "", "what limits each plan, what was rejected, and bandwidths at which the best plan changes"},
    {"--pareto", "", "AXES", "memory, cost or memory,cost: plans that no other beats in time and all of these"},
    {"--output", "-o", "FILE",
     "also write FILE: .yaml (the best plan as a scenario) .schedule.csv .html .json .csv .md (repeatable)"},
    {"--format", "", "NAME", "write the file of -o in this format, whatever its extension: --format yaml"},
    {"--json", "", "", "one JSON document on standard output instead of the table"},
    {"--width", "", "N", "columns of the table (default: the terminal's, else 100)"},
}};
constexpr auto kPlanOptions = with_campaign(kOwnPlanOptions);

Objective objective(const Arguments& arguments) {
  constexpr std::array<std::string_view, 4> known = {"throughput", "step_time", "cost", "memory"};
  return static_cast<Objective>(option_word(arguments, "--objective", known.front(), known));
}

const FrameworkWords* framework(const Arguments& arguments) {
  if (!arguments.has("--for")) return nullptr;
  const std::string name = only_value(arguments, "--for");
  if (const FrameworkWords* found = find_framework(name)) return found;
  auto known = mapped<std::string_view>(frameworks(), &FrameworkWords::word);
  throw InputError(Place{}, "--for", unknown_name(name, known));
}

std::vector<std::string> axes(const Arguments& arguments) {
  std::vector<std::string> names = parts_of(arguments.last("--pareto", ""));
  if (!arguments.has("--pareto")) names.clear();
  check_pareto_axes(names);
  return names;
}

constexpr std::array<std::string_view, 7> kPlanEndings = {".yaml",         ".html", ".json", ".comms.schedule.csv",
                                                          ".schedule.csv", ".csv",  ".md"};

constexpr const char* kSoFar = "what the search had found is printed";

// What the time limit kept from being looked at, where the best plan may be worse than is told by a glance: one line.
std::string cut_short(const SearchAnswer& answer, const SearchOptions& options) {
  constexpr double kSmall = 0.01;  // gap that is not worth a line
  constexpr double kLonger = 4;
  if (answer.ended != Ended::TimeLimit || (answer.bound > 0 && answer.gap() <= kSmall)) return "";
  const std::string left = answer.not_reached > 0
                               ? fmt::format("{} of {} layouts not looked at", answer.not_reached, answer.layouts)
                               : "cuts still to be searched";
  const std::string by =
      answer.bound > 0 ? fmt::format("by up to {:.2f} %", 100 * answer.gap()) : "by how much is not known";
  return fmt::format(
      "the time limit of {:.4g} s ended the search with {}: another plan may be better, {}; to search longer: "
      "--time-limit {:.4g}s",
      options.time_limit, left, by, kLonger * options.time_limit);
}

Answer simulated(const Found& found) {
  return std::get<Answer>(planner::answer(*found.scenario, {.engine = Engine::Auto, .ignore_memory = true}));
}

void write(const std::string& path, std::string_view ending, const SearchAnswer& answer, const Scenario& scenario,
           const std::string& command) {
  const Found& best = answer.plans.front();
  if (ending == ".yaml")
    return write_output(path, plan_yaml(answer, best, scenario, command), "the best plan: pipewright simulate " + path);
  if (ending.ends_with(".schedule.csv"))
    return write_output(
        path,
        schedule_csv(simulated(best).schedule,
                     ending == ".schedule.csv" ? ScheduleActions::Compute : ScheduleActions::WithMessages),
        "schedule of the best plan");
  write_output(path,
               ending == ".html"   ? ranking_html(answer, scenario, simulated(best), command)
               : ending == ".json" ? ranking_json(answer, scenario)
               : ending == ".csv"  ? ranking_csv(answer)
                                   : ranking_markdown(answer),
               "ranking");
}

int plan_command(const Arguments& arguments) {
  const std::string& path = arguments.positional.front();
  const bool json = arguments.has("--json");
  const TableOptions table{output_width(arguments), use_colour(arguments)};
  const std::vector<std::string> outputs = arguments.all("--output");
  if (asks_for_nodes(arguments)) check_nodes(arguments);
  const std::vector<std::size_t> endings = check_outputs(outputs, {path}, kPlanEndings, arguments.last("--format", ""));
  SearchOptions options{
      .objective = objective(arguments),
      .top = static_cast<int>(option_number(arguments, "--top", {1, 1000}, "5").value_or(5)),
      .gap = option_percentage(arguments, "--gap", "1%", true),
      .time_limit = seconds(option_time(arguments, "--time-limit", asks_for_nodes(arguments) ? "2min" : "10s"))};
  const std::vector<std::string> pareto_axes = axes(arguments);
  const FrameworkWords* const words = framework(arguments);
  const Narrowed question =
      planning_question(read_scenario(path, {.set = settings(arguments), .config_path = config_path()}), words);
  const Scenario& scenario = question.scenario;
  ProgressLine progress;
  const Interruption interruption;
  options.progress = [&](const Progress& now) {
    if (progress.due())
      progress.show(now.what, now.done, now.all, now.best > 0 ? fmt::format("best {:.4g} samples/s", now.best) : "");
  };
  options.stop = [&] { return interruption.requested(); };
  if (asks_for_nodes(arguments)) {
    options.within = question.within, options.kept = question.keys, options.keep_going = options.gap == 0;
    std::vector<std::string> notes = restrictions(question, words);
    for (const std::string& warning : framework_warnings(question, words))
      notes.push_back("warning: " + warning);
    return plan_nodes(arguments, scenario, options, notes, [&] { progress.clear(); });
  }
  const bool explain = arguments.has("--explain");
  auto result = planned(question, options, {.framework = words, .explain = explain, .pareto = pareto_axes});
  progress.clear();
  if (auto* none = std::get_if<Infeasible>(&result)) {
    print(json ? json_infeasible(*none) : infeasible_text(*none));
    return interruption.requested() ? interrupted(kSoFar) : kNo;
  }
  if (const auto* none = std::get_if<NoPlanYet>(&result)) {
    print(json ? no_plan_json(*none, scenario, options.objective) : no_plan_text(*none));
    return interruption.requested() ? interrupted(kSoFar) : kNo;
  }
  SearchAnswer& answer = std::get<SearchAnswer>(result);
  print(json ? ranking_json(answer, scenario) : ranking_text(answer, scenario, {.table = table, .explain = explain}));
  if (!json && scenario.campaign) {
    const Answer best = simulated(answer.plans.front());
    print(whole_training_text(best, table));
    for (const std::string& warning : campaign_warnings(scenario, best.report))
      note("warning: " + warning);
  }
  if (!pareto_axes.empty() && answer.pareto_axes.empty())
    note("--pareto is not answered, since the search ended early (" + std::string(name(answer.ended)) +
         "); it needs a longer --time-limit, or a larger --gap");
  if (const std::string left = cut_short(answer, options); !left.empty()) note("warning: " + left);
  if (std::ssize(answer.plans) < options.top && answer.ended != Ended::No)
    note(fmt::format("{} of the {} plans asked for were found before the search ended; --time-limit gives it longer",
                     answer.plans.size(), options.top));
  for (std::size_t i = 0; i < outputs.size(); ++i)
    write(outputs[i], kPlanEndings[endings[i]], answer, scenario, command_line("plan", arguments));
  return interruption.requested() ? interrupted(kSoFar) : kDone;
}

}  // namespace

constinit const Command kPlan{
    .name = "plan",
    .arguments = "SCENARIO",
    .summary = "find the best plan for the fields of a scenario that say auto",
    .details =
        "Fields that may be auto, or {auto: [values]}: stages, virtual_stages, data_parallel, tensor_parallel,\n"
        "sequence_parallel, context_parallel, expert_parallel, schedule, partition, placement, recompute of plan\n"
        "(plan: auto opens all of these), data_parallel_shard and replicas, and micro_batch_size, micro_batches, zero\n"
        "of training. Others are searched value by value: context_exchange, context_split, expert_exchange,\n"
        "tensor_overlap, gradient_sync, bucket, reshard_after_forward, reduce_gradients.\n"
        "The best plan is a scenario: simulate takes it.\n"
        "On devices of several classes (cluster.other_nodes) plan.partition is suffix_dp, or plan.replicas auto.\n"
        "  pipewright plan scenarios/quickstart.yaml --set plan=auto -o plan.yaml\n"
        "--for megatron searches only what Megatron-LM can express, and says what that left out: `launch plan.yaml "
        "--for\n"
        "megatron` then writes exactly that plan (docs/reference/launch.md).\n"
        "--nodes auto finds how many nodes it takes: it tries 1, 2, 4, ... and then the numbers in between.\n"
        "Ctrl-C ends the search and prints the best plan so far (exit status 130). A plan must fit with 95 % over the\n"
        "memory model's range, after what context and libraries take (device.reserve); --fit 50% takes plans that may\n"
        "fill a device to the last byte. --pareto searches several times, each within the time limit.\n",
    .options = kPlanOptions,
    .least = 1,
    .most = 1,
    .run = plan_command,
};

}  // namespace pipewright::cli
