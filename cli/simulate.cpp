#include <array>
#include <utility>
#include <variant>

#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "io/read_scenario.hpp"
#include "io/writers/writers.hpp"
#include "planner/answer.hpp"

namespace pipewright {
namespace {

constexpr std::array<Option, 6> kOptions = {{
    {"--set", "", "KEY=VALUE", "change one value of the scenario: --set training.micro_batches=32 (repeatable)"},
    {"--output", "-o", "FILE", "also write FILE, by its ending (repeatable)"},
    {"--json", "", "", "one JSON document on standard output instead of the report"},
    {"--ignore-memory", "", "", "show the timeline of a plan that does not fit (the exit status stays 1)"},
    {"--engine", "", "NAME",
     "auto (default), static: fixed orders, event: queue with shared links, event-steps: rings step by step"},
    {"--width", "", "N", "columns of the report (default: the terminal's, else 100)"},
}};

struct Output {
  std::string path;
  const Writer* writer;
};

// Endings are checked before anything is simulated.
std::vector<Output> outputs(const std::vector<std::string>& paths, const std::string& scenario) {
  std::vector<Output> list;
  for (const std::string& path : paths) {
    const Writer* writer = writer_for(path);
    if (writer == nullptr) {
      std::string known;
      for (const Writer& each : writers())
        known += (known.empty() ? "" : ", ") + std::string(each.ending);
      throw InputError("--output: \"" + path + "\" has no known ending; known: " + known);
    }
    for (const Output& other : list)
      if (other.path == path) throw InputError("--output: \"" + path + "\" is given twice; name each file once");
    if (same_file(scenario, path))
      throw InputError("--output: \"" + path + "\" is the scenario itself; name another file");
    list.push_back({path, writer});
  }
  return list;
}

Engine engine_named(const std::string& name) {
  constexpr std::array<std::string_view, 4> known = {"auto", "static", "event", "event-steps"};
  if (name == "auto") return Engine::Auto;
  if (name == "static") return Engine::StaticOrder;
  if (name == "event") return Engine::EventQueue;
  if (name == "event-steps") return Engine::EventQueueSteps;
  throw InputError("--engine: " + unknown_name(name, known));
}

std::string in_words(const Infeasible& why) {
  std::string text = "infeasible: " + why.reason + "\n";
  for (const std::string& line : why.details)
    text += "  " + line + "\n";
  if (!why.remedies.empty()) text += "what would make it fit:\n";
  for (const std::string& line : why.remedies)
    text += "  " + line + "\n";
  return text;
}

int no_answer(const Infeasible& why, bool json, bool outputs_wanted) {
  print(json ? json_infeasible(why) : in_words(why));
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

int run(const Arguments& arguments) {
  const bool json = arguments.has("--json");
  const TableOptions table{output_width(arguments), use_colour(arguments)};
  const Engine engine = engine_named(arguments.last("--engine", "auto"));
  const std::vector<Output> files = outputs(arguments.all("--output"), arguments.positional.front());
  const Scenario scenario =
      read_scenario(arguments.positional.front(), {.set = arguments.all("--set"), .config_path = config_path()});
  const auto result = answered(scenario, {.engine = engine, .ignore_memory = arguments.has("--ignore-memory")});
  if (const auto* none = std::get_if<Infeasible>(&result)) return no_answer(*none, json, !files.empty());
  const Answer& found = std::get<Answer>(result);
  print(json ? json_report(found) : terminal_report(found, table));
  for (const Output& file : files) {
    const std::string bytes = file.writer->write(found);
    write_file(file.path, bytes);
    note("wrote " + file.path + " (" + std::string(file.writer->what) + ")");
    if (const std::string warning = size_warning(file.path, bytes.size()); !warning.empty())
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
        "Endings of -o: .json .csv .md .svg .trace.json .trace.json.gz .dot\n",
    .options = kOptions,
    .least = 1,
    .most = 1,
    .run = run,
};

}  // namespace pipewright
