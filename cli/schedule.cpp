// `schedule`: an order of passes for the times and the memory of a scenario's plan.
#include <array>
#include <string>

#include <fmt/format.h>

#include "cli/campaign_options.hpp"
#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "core/check.hpp"
#include "io/console.hpp"
#include "io/read/read_scenario.hpp"
#include "io/text/quantity.hpp"
#include "io/text/quote.hpp"
#include "io/writers/found_order.hpp"
#include "io/writers/schedule_csv.hpp"
#include "planner/find_schedule.hpp"
#include "planner/search/deadline.hpp"
#include "runtime/signals.hpp"
#include "study/ranks.hpp"

namespace pipewright::cli {
namespace {

constexpr std::array<Option, 12> kScheduleOptions = {{
    {"--set", "", "KEY=VALUE", "change one value of the scenario first (repeatable)"},
    {"--memory-cap", "", "SIZE",
     "activations on every stage: 1.5x (times K micro-batches), or memory of a device: 40GiB, or 40GiB,32GiB, ... by "
     "stage (default: what the plan leaves)"},
    {"--measure", "", "NAME",
     "step: with a flush; span: where no stage waits for the others (default: as plan.barrier says)"},
    {"--kept-for-weights", "", "PERCENT",
     "of a micro-batch's activations, what its W needs (default: plan.kept_for_weights, else 100%)"},
    {"--evaluations", "", "N", "orders to try (default: 200000)"},
    {"--seed", "", "N", "of what is left to chance (default: 1)"},
    {"--time-limit", "", "TIME", "end the search early (default: 60s)"},
    {"--jitter", "", "PERCENT", "how far times are off in the last columns (default: 5%)"},
    {"--pareto", "", "", "the best order for other limits of memory, too"},
    {"--output", "-o", "FILE", "also write FILE: .schedule.csv (the order) .json (repeatable)"},
    {"--json", "", "", "one JSON document on standard output instead of the table"},
    {"--width", "", "N", "columns of the table (default: the terminal's, else 100)"},
}};

OrderCap memory_cap(const Arguments& arguments) {
  if (!arguments.has("--memory-cap")) return {};
  const std::string text = only_value(arguments, "--memory-cap");
  OrderCap cap;
  if (text.ends_with('x')) {
    const Parsed<double> times = parse_number(std::string_view(text).substr(0, text.size() - 1));
    if (times.value && *times.value > 0 && *times.value <= 1e6) {
      cap.times_stages = times.value;
      return cap;
    }
  }
  for (const std::string& part : parts_of(text)) {
    const Parsed<Bytes> bytes = parse_bytes(part);
    if (!bytes.value || bytes.value->value <= 0)
      throw InputError(
          Place{}, "--memory-cap",
          fmt::format("\"{}\" is neither a multiple nor a size; write e.g. 1.5x or 40GiB", part.substr(0, 64)));
    cap.devices.push_back(*bytes.value);
  }
  return cap;
}

// The command that simulates the same plan with the order.
std::string reading(const Arguments& arguments, const ScheduleAnswer& found, const std::string& file) {
  std::string command = "pipewright simulate " + shell_path(arguments.positional.front());
  std::vector<std::string> changes = arguments.all("--set");
  std::erase_if(changes, [](const std::string& change) {  // --schedule says it
    return change.starts_with("plan.schedule=") || change.starts_with("plan.schedule.");
  });
  changes.insert(changes.end(), found.pinned.begin(), found.pinned.end());
  for (const std::string& change : changes)
    command += " --set " + shell_word(change);
  return command + " --schedule " + shell_path(file);
}

int schedule_command(const Arguments& arguments) {
  const std::string& path = arguments.positional.front();
  const TableOptions table{output_width(arguments), use_colour(arguments)};
  constexpr std::array<std::string_view, 2> kEndings = {".schedule.csv", ".json"};
  const std::vector<std::string> outputs = arguments.all("--output");
  const std::vector<std::size_t> endings = check_outputs(outputs, {path}, kEndings);
  constexpr std::array<std::string_view, 2> kMeasures = {"step", "span"};
  constexpr std::array kMeasureOf = {OrderMeasure::Step, OrderMeasure::Span};
  ScheduleQuestion question{
      .cap = memory_cap(arguments),
      .search = {.evaluations =
                     option_number(arguments, "--evaluations", {1, 1'000'000'000}, "200000").value_or(200'000),
                 .seed =
                     static_cast<std::uint64_t>(option_number(arguments, "--seed", {0, kLargest}, "1").value_or(1))},
      .pareto = arguments.has("--pareto"),
      .jitter = option_percentage(arguments, "--jitter", "5%", true)};
  if (arguments.has("--measure"))
    question.measure = kMeasureOf[option_word(arguments, "--measure", kMeasures.front(), kMeasures)];
  if (arguments.has("--kept-for-weights"))
    question.kept_for_weights = option_percentage(arguments, "--kept-for-weights", "43%", true);
  if (question.kept_for_weights.value_or(1) > 1)
    throw InputError(Place{}, "--kept-for-weights", "W needs no more than all that was kept; use 100% or less");
  if (question.jitter >= 1) throw InputError(Place{}, "--jitter", "times would be below 0; use less than 100%");
  const Interruption interruption;
  Deadline deadline(seconds(option_time(arguments, "--time-limit", "60s")), [&] { return interruption.requested(); });
  question.search.stop = [&] { return deadline.over(); };
  const Scenario scenario = read_scenario(path, {.set = settings(arguments), .config_path = config_path()});
  const ScheduleAnswer found = find_schedule_of(scenario, question);
  print(arguments.has("--json") ? found_order_json(found) : found_order_text(found, table));
  if (deadline.ended() == Ended::TimeLimit)
    note(fmt::format(
        "warning: the time limit ended the search after {} of {} orders; to search longer: --time-limit 10min",
        found.evaluations, question.search.evaluations));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const bool csv = endings[i] == 0;
    write_output(outputs[i], csv ? schedule_csv(found.answer.schedule) : found_order_json(found),
                 csv ? "the order: " + reading(arguments, found, outputs[i]) : "the answer");
  }
  if (interruption.requested()) return interrupted("the best order so far is printed");
  return found.answer.report.fits ? kDone : kNo;
}

}  // namespace

constinit const Command kSchedule{
    .name = "schedule",
    .arguments = "SCENARIO",
    .summary = "find an order of passes for a plan's times and memory, and how far from the best it is",
    .details =
        "Takes the plan of SCENARIO, all of it settled, and finds an order of its forwards, gradients of inputs and\n"
        "gradients of weights: the best of the schedules with a name, of orders made by rules, and of single passes\n"
        "moved. The chunks stay where the plan's schedule lays them: one on each stage, in a loop, or there and back.\n"
        "The same scenario, options and seed give the same order, unless the time limit ends the search.\n"
        "  pipewright schedule scenarios/quickstart.yaml --memory-cap 1.5x -o my.schedule.csv\n"
        "  pipewright simulate scenarios/quickstart.yaml --schedule my.schedule.csv\n"
        "Ctrl-C ends the search and prints the best order so far (exit status 130). Exit status 1: the plan does not "
        "fit\n"
        "with that order.\n",
    .options = kScheduleOptions,
    .least = 1,
    .most = 1,
    .run = schedule_command,
};

}  // namespace pipewright::cli
