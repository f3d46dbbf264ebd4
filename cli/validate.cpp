// `validate`: calibrate, predict, run, compare.
#include <array>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "calibrate/calibrate.hpp"
#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "cli/run_options.hpp"
#include "cli/validate_import.hpp"
#include "core/check.hpp"
#include "core/question/profile.hpp"
#include "io/read/read_scenario.hpp"
#include "io/text/utf8.hpp"
#include "io/writers/writers.hpp"
#include "runtime/signals.hpp"
#include "study/attempt.hpp"
#include "study/comparison.hpp"
#include "study/real_run.hpp"
#include "study/study.hpp"

namespace pipewright::cli {
namespace {

constexpr std::array<Option, 7> kBeforeRunOptions = {{
    {"--set", "", "KEY=VALUE", "change one value of the scenario first (repeatable)"},
    {"--log", "", "FILE", "no run here: the log of one elsewhere, of Megatron-LM or torchtitan (or .gz, or imported)"},
    {"--trace", "", "FILE",
     "no run here: a trace of PyTorch's profiler with its PP:0F3 actions (.json, .gz, imported; repeatable)"},
    {"--profile", "", "FILE", "prices from this profile instead of a calibration now"},
    {"--budget", "", "TIME", "time for the calibration, and for looks at the machine during the run (default: 3 s)"},
    {"--tolerance", "", "PERCENT", "tolerance of the step time, for the verdict (default: 10%)"},
    {"--force", "", "", "judge even if the machine changed too much; marked as forced"},
}};
constexpr std::array<Option, 2> kBehindRunOptions = {{
    {"--output", "-o", "FOLDER",
     "for profile, prediction, measurement (default: pipewright-out/SCENARIO); FILE.html: a page (repeatable); with "
     "--log or --trace files only: .txt, .json, .html"},
    {"--json", "", "", "the comparison as one JSON document instead of the table"},
}};
constexpr auto kValidateOptions = joined(kBeforeRunOptions, kRunOptions, kBehindRunOptions);

struct ValidateOutputs {
  std::string folder;              // "": not named
  std::vector<std::string> pages;  // .html
};

ValidateOutputs outputs_of(const Arguments& arguments) {
  ValidateOutputs outputs;
  for (const std::string& path : arguments.all("--output")) {
    if (path.ends_with(".html")) {
      outputs.pages.push_back(path);
      continue;
    }
    for (const std::string_view ending : {".json", ".md", ".svg", ".csv", ".yaml", ".txt", ".pdf"})
      if (path.ends_with(ending))
        throw InputError(
            Place{}, "--output",
            "\"" + path + "\" names a file; validate writes several into a folder: name one, or FILE.html for a page");
    if (!outputs.folder.empty())
      throw InputError(Place{}, "--output",
                       "\"" + outputs.folder + "\" and \"" + path + "\" are two folders; keep one");
    if (path.empty()) throw InputError(Place{}, "--output", "\"\" is not a folder; name one, or FILE.html for a page");
    outputs.folder = path;
  }
  constexpr std::array<std::string_view, 1> endings = {".html"};
  check_outputs(outputs.pages, arguments.positional, endings);
  return outputs;
}

double tolerance(const Arguments& arguments) {
  return option_percentage(arguments, "--tolerance", "10%", false);
}

// `kept`: what is there should the run be interrupted.
int validate_scenario(const Arguments& arguments, std::string& kept) {
  std::vector<std::string> changes = with_run_settings(arguments.all("--set"), arguments);
  const double within = tolerance(arguments), seconds = calibration_seconds(arguments);
  const bool forced = arguments.has("--force");
  const ValidateOutputs outputs = outputs_of(arguments);
  const std::string command = command_line("validate", arguments);
  if (arguments.positional.size() > 1)
    return validate_all({.scenarios = arguments.positional,
                         .read = {.set = std::move(changes), .config_path = config_path()},
                         .profile = arguments.last("--profile", ""),
                         .output = outputs.folder.empty() ? "pipewright-out/validation" : outputs.folder,
                         .chosen = !outputs.folder.empty(),
                         .pages = outputs.pages,
                         .command = command,
                         .seconds = seconds,
                         .tolerance = within,
                         .forced = forced,
                         .as_json = arguments.has("--json")});
  const Scenario asked =
      read_scenario(arguments.positional.front(), {.set = std::move(changes), .config_path = config_path()});
  if (asked.run.synthetic && arguments.has("--profile"))
    throw InputError(asked.run.place, "--profile",
                     "a synthetic run takes the stated times; leave out --profile or run.synthetic");
  Ranks* const ranks = joined_ranks(asked);  // rank 0 reads, writes and prints
  const std::string out = outputs.folder.empty() ? "pipewright-out/" + file_name_of(asked) : outputs.folder;
  std::optional<StudyFolder> folder;
  if (prints()) folder.emplace(out, !outputs.folder.empty());
  const bool synthetic = asked.run.synthetic;
  std::optional<MachineProfile> profile;
  const Interruption interruption;
  if (!synthetic)
    profile = profile_for(
        arguments.last("--profile", ""), std::span(&asked, 1), seconds, asked.name, folder, [] {}, ranks);
  // The prediction is the first file, and is there only for what can be run.
  const FileWriter write = [&](const std::string& path, const std::string& text) {
    if (folder) folder->make();
    write_file(path, text);
  };
  std::optional<Attempt> begun;
  try {
    begun.emplace(synthetic ? with_links_as_run(asked) : priced_with(asked, *profile), within, forced, seconds, out,
                  ranks, write);
  } catch (...) {
    if (folder) folder->unmake();
    throw;
  }
  Attempt& attempt = *begun;
  if (profile && prints()) write_file(out + "/profile.yaml", profile_yaml(*profile));
  if (prints()) kept = "; the prediction is kept in " + out;
  if (arguments.has("--profile")) note_other_machine(attempt.real());
  attempt.run();
  if (!prints()) return kDone;  // the verdict is rank 0's
  const RunComparison& comparison = attempt.comparison();
  if (arguments.has("--json"))
    print(comparison_json(comparison));
  else
    print(fmt::format("{}: predicted, then run ({}, {} timed steps)\n", one_line(asked.name),
                      synthetic ? kSynthetic : attempt.real().backend_name(), comparison.times.timed.size()) +
          comparison_table(comparison) + fmt::format("\n  verdict: {}\n", comparison.verdict_text()));
  for (const std::string& page : outputs.pages)
    write_output(page, comparison_html(comparison, command), "predicted next to measured in one page, for any browser");
  note("wrote " + out + "/: " + (synthetic ? "" : "profile.yaml ") +
       "prediction.json measurement.json comparison.json " + (synthetic ? "" : "loss.csv ") +
       "overlay.svg overlay.trace.json");
  return exit_status(comparison.verdict());
}

int validate_command(const Arguments& arguments) {
  for (const std::string& path : arguments.positional)
    if (!asks_for_import(arguments) && path.ends_with(".json"))
      throw InputError("validate: " + path + " is a result, which cannot be run here; name its scenario, or add --log");
  if (asks_for_import(arguments)) return validate_import(arguments, tolerance(arguments));
  std::string kept;
  return with_run_failures([&] { return validate_scenario(arguments, kept); }, [&] { return kept; });
}

}  // namespace

constinit const Command kValidate{
    .name = "validate",
    .arguments = "SCENARIO...",
    .summary = "calibrate, predict, run for real, and show how far the prediction was off",
    .details =
        "The prediction is written before the run. Between its steps validate measures the load on the machine and\n"
        "corrects the prediction for it. Exit status 0: the prediction is within the tolerance, or the measurement is\n"
        "within the interval; 1: neither; 2: no verdict, since the machine changed so much that the interval's upper\n"
        "end is more than twice its lower end, or it has fewer cores than workers. Several scenarios: all are\n"
        "calibrated first, into one profile; each is run once, in the given order; those without a verdict are\n"
        "repeated at most twice; every attempt is in the table.\n"
        "  pipewright validate scenarios/validation/two-stage-gpipe.yaml\n"
        "  pipewright validate scenarios/validation/*.yaml -o accuracy\n"
        "With --log or --trace nothing runs here; the measurements of the file are compared with the prediction.\n"
        "They also take what `import` made of a log or trace; SCENARIO may then be a result of simulate -o FILE.json.\n"
        "  pipewright validate scenario.yaml --log run.log --trace rank0.json.gz --trace rank1.json.gz\n",
    .options = kValidateOptions,
    .least = 1,
    .most = 64,
    .run = validate_command,
};

}  // namespace pipewright::cli
