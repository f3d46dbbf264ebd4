#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "cli/campaign_options.hpp"
#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "core/check.hpp"
#include "io/read/read_scenario.hpp"
#include "io/text/quote.hpp"
#include "io/writers/writers.hpp"
#include "io/yaml/fields.hpp"
#include "planner/answer.hpp"

namespace pipewright::cli {
namespace {

constexpr std::array<Option, 9> kOwnSimulateOptions = {{
    {"--set", "", "KEY=VALUE", "change one value of the scenario: --set training.micro_batches=32 (repeatable)"},
    {"--output", "-o", "FILE", "also write FILE, in the format of its extension (repeatable)"},
    {"--format", "", "NAME", "write the file of -o in this format, whatever its extension: --format schedule.csv"},
    {"--schedule", "", "NAME", "run this schedule: a name, or a file in PyTorch's schedule CSV (ending .csv)"},
    {"--json", "", "", "one JSON document on standard output instead of the report"},
    {"--timeline", "", "", "add every op, message and change of memory to the document of --json and of -o FILE.json"},
    {"--ignore-memory", "", "", "show the timeline of a plan that does not fit (the exit status stays 1)"},
    {"--engine", "", "NAME", "auto (default), static: fixed orders, event: queue with shared links"},
    {"--width", "", "N", "columns of the report (default: the terminal's, else 100)"},
}};
constexpr auto kSimulateOptions = with_campaign(kOwnSimulateOptions);

int no_answer(const Infeasible& why, bool json, bool outputs_wanted) {
  print(json ? json_infeasible(why) : infeasible_text(why));
  if (outputs_wanted) note("nothing written: the plan does not fit; --ignore-memory writes its timeline anyway");
  return kNo;
}

// A sum that grew too large belongs to no single line; the file is named at least.
std::variant<Answer, Infeasible> answered(const Scenario& scenario, const AnswerOptions& options) {
  try {
    return answer(scenario, options);
  } catch (const OverflowError& error) {
    throw InputError(Place{scenario.file == "-" ? "standard input" : scenario.file, 0, 0}, error.what());
  }
}

// Those of --set, and --schedule as one of them, which must be the only one of a schedule.
std::vector<std::string> all_settings(const Arguments& arguments) {
  std::vector<std::string> set = settings(arguments);
  if (!arguments.has("--schedule")) return set;
  const std::string schedule = only_value(arguments, "--schedule");
  for (const std::string& other : arguments.all("--set"))
    if (const std::string key = other.substr(0, other.find('='));
        (key == "plan.schedule" && other != key + "=" + schedule) || key.starts_with("plan.schedule."))
      throw InputError(Place{}, "--schedule",
                       fmt::format("\"{}\", and --set {} says another; keep one of them", schedule.substr(0, 64),
                                   other.substr(0, 64)));
  set.push_back("plan.schedule=" + (schedule.ends_with(".csv") ? "{file: " + yaml_string(schedule) + "}" : schedule));
  return set;
}

int simulate_command(const Arguments& arguments) {
  const bool json = arguments.has("--json");
  const TableOptions table{output_width(arguments), use_colour(arguments)};
  constexpr std::array<std::string_view, 3> kEngines = {"auto", "static", "event"};
  constexpr std::array kEngineOf = {Engine::Auto, Engine::StaticOrder, Engine::EventQueue};
  const Engine engine = kEngineOf[option_word(arguments, "--engine", kEngines.front(), kEngines)];
  const std::vector<std::string> outputs = arguments.all("--output");
  const std::vector<const Writer*> files =
      checked_formats(outputs, {arguments.positional.front()}, writers(), arguments.last("--format", ""));
  const auto is_document = [](const Writer* file) { return file->ending == ".json"; };
  const bool timeline = arguments.has("--timeline");
  if (timeline && !json && std::ranges::none_of(files, is_document))
    throw InputError(Place{}, "--timeline", "adds to a document; ask for one with --json or -o FILE.json");
  const Scenario scenario =
      read_scenario(arguments.positional.front(), {.set = all_settings(arguments), .config_path = config_path()});
  const auto result = answered(scenario, {.engine = engine, .ignore_memory = arguments.has("--ignore-memory")});
  if (const auto* none = std::get_if<Infeasible>(&result)) return no_answer(*none, json, !files.empty());
  const Answer& found = std::get<Answer>(result);
  print(json ? json_report(found, timeline) : terminal_report(found, table));
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string bytes = is_document(files[i]) ? json_report(found, timeline)
                                                    : files[i]->write(found, command_line("simulate", arguments));
    write_file(outputs[i], bytes);
    note("wrote " + outputs[i] + " (" + std::string(files[i]->what) + ")");
    if (const std::string warning = size_warning(outputs[i], bytes.size()); !warning.empty())
      note("warning: " + warning);
  }
  return found.report.fits ? kDone : kNo;
}

}  // namespace

constinit const Command kSimulate{
    .name = "simulate",
    .arguments = "SCENARIO",
    .summary = "price one plan: time, bubble, memory, traffic, and a drawing",
    .details =
        "SCENARIO is a YAML file, or - for standard input.\n"
        "  pipewright simulate scenarios/quickstart.yaml --set training.micro_batches=32 -o steps.svg\n"
        "  pipewright simulate scenarios/quickstart.yaml -o my.schedule.csv\n"
        "  pipewright simulate scenarios/quickstart.yaml --schedule my.schedule.csv\n"
        "File extensions of -o: .html .json .csv .md .svg .trace.json .trace.json.gz .dot .schedule.csv "
        ".comms.schedule.csv\n"
        ".timeline.csv .messages.csv .memory.csv; pictures for papers: pipewright draw\n",
    .options = kSimulateOptions,
    .least = 1,
    .most = 1,
    .run = simulate_command,
};

}  // namespace pipewright::cli
