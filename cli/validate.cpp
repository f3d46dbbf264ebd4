// `validate`: calibrate, predict, run, compare.
#include <array>
#include <cctype>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/comparison.hpp"
#include "cli/config_path.hpp"
#include "cli/real_run.hpp"
#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "io/format_quantity.hpp"
#include "io/profile_file.hpp"
#include "io/quantity.hpp"
#include "io/read_scenario.hpp"
#include "io/writers/compare.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {
namespace {

constexpr std::array<Option, 19> kOptions = {{
    {"--set", "", "KEY=VALUE", "change one value of the scenario first (repeatable)"},
    {"--profile", "", "FILE", "prices from this profile instead of a calibration now"},
    {"--budget", "", "TIME", "of the calibration (default: 3 s)"},
    {"--tolerance", "", "PERCENT", "of the step time, for the verdict (default: 10%)"},
    {"--force", "", "", "judge a run on a machine that was not quiet, too; marked as forced"},
    {"--backend", "", "NAME", "cpu (default); this and the following replace the keys of `run:`"},
    {"--transport", "", "NAME", "local (default), throttled: links as slow as the cluster's"},
    {"--steps", "", "N", "steps that are timed (default: 20)"},
    {"--warmup", "", "N", "steps before them (default: 3)"},
    {"--seed", "", "N", "of weights and data (default: 1)"},
    {"--data", "", "FILE", "synthetic (default), a text, or images in IDX"},
    {"--learning-rate", "", "X", "of the optimizer (default: 0.1)"},
    {"--momentum", "", "X", "of optimizer momentum (default: 0.9)"},
    {"--betas", "", "[X, X]", "decays of adam (default: [0.9, 0.999])"},
    {"--epsilon", "", "X", "of rmsprop and adam (default: 1e-08)"},
    {"--memory-cap", "", "SIZE", "that a worker's arena may span (default: none)"},
    {"--timeout", "", "SECONDS", "until a silent worker ends the run (default: 120)"},
    {"--output", "-o", "FOLDER", "for profile, prediction, measurement (default: pipewright-out/SCENARIO)"},
    {"--json", "", "", "the comparison as one JSON document instead of the table"},
}};

double tolerance(const Arguments& arguments) {
  std::string text = arguments.last("--tolerance", "10%");
  const std::string given = text;
  if (text.ends_with('%')) text.pop_back();
  const Parsed<double> value = parse_number(text);
  if (!value.value || *value.value <= 0 || *value.value > 1000 || text == given)
    throw InputError("--tolerance: \"" + given + "\" is no share in percent; write e.g. --tolerance 5%");
  return *value.value / 100;
}

std::string folder(const Arguments& arguments, const Scenario& scenario) {
  std::string name = scenario.name;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.') c = '-';
  if (name.empty() || name.front() == '.') name = "scenario" + name;
  const std::string path = arguments.last("--output", "pipewright-out/" + name);
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw InputError("--output: \"" + path + "\" cannot be made: " + error.message());
  return path;
}

int validate_scenario(const Arguments& arguments) {
  std::vector<std::string> changes = arguments.all("--set");
  for (std::string& change : run_settings_as_changes(arguments))
    changes.push_back(std::move(change));
  const Scenario asked =
      read_scenario(arguments.positional.front(), {.set = std::move(changes), .config_path = config_path()});
  const double within = tolerance(arguments);
  const Parsed<Time> budget = parse_time(arguments.last("--budget", "3 s"));
  if (!budget.value || *budget.value <= Time{})
    throw InputError("--budget: \"" + arguments.last("--budget", "") + "\" is no time; write e.g. --budget 5s");
  const std::string out = folder(arguments, asked);

  MachineProfile profile;
  if (arguments.has("--profile")) {
    profile = read_profile(arguments.last("--profile", ""));
    if (const std::string warning = other_machine(profile); !warning.empty()) note("warning: " + warning);
    if (const std::string here = optimizer_name(asked.training.optimizer);
        !profile.optimizer.empty() && profile.optimizer != here)
      note("warning: profile \"" + profile.name + "\" has the optimizer step of " + profile.optimizer + ", not of " +
           here);
  } else {
    const RealRun real(asked);
    real.check_memory();
    profile = real.calibrated(static_cast<double>(budget.value->value) * 1e-9);
  }
  write_file(out + "/profile.yaml", profile_yaml(profile));

  // The prediction is on disk before the run begins.
  const Scenario scenario = priced_with(asked, std::move(profile));
  const RealRun real(scenario);
  write_file(out + "/prediction.json", json_report(real.predicted()));

  const RunSettings settings = real.settings();
  const auto workers = real.run(settings);
  const StepTimes times = step_times(workers, settings.warmup);
  const Answer measured = real.measured(workers, times);
  const Comparison comparison{
      real.predicted(),         measured, workers, real.run_plan(), times, within, arguments.has("--force"),
      why_withheld(real, times)};
  write_file(out + "/measurement.json", json_report(measured));
  write_file(out + "/comparison.json", comparison_json(comparison));
  write_file(out + "/loss.csv", loss_csv(workers));
  write_file(out + "/overlay.svg", svg_timelines(real.predicted(), measured, "predicted", "measured"));
  write_file(out + "/measured.trace.json", trace_json(measured));
  if (arguments.has("--json"))
    print(comparison_json(comparison));
  else
    print(fmt::format("{}: predicted, then run ({}, {} timed steps)\n", scenario.name, real.backend_name(),
                      times.timed.size()) +
          comparison_table(comparison) + fmt::format("\n  verdict: {}\n", comparison.verdict_text()));
  note("wrote " + out + "/: profile.yaml prediction.json measurement.json comparison.json loss.csv overlay.svg");
  switch (comparison.verdict()) {
    case Verdict::Within: return kDone;
    case Verdict::Outside: return kNo;
    case Verdict::Withheld: return kBadInput;
  }
  return kBadInput;
}

int run(const Arguments& arguments) {
  return with_run_failures([&] { return validate_scenario(arguments); });
}

}  // namespace

constinit const Command kValidate{
    .name = "validate",
    .arguments = "SCENARIO",
    .summary = "calibrate, predict, run for real, and show how far the prediction was off",
    .details =
        "The prediction is written before the run. Exit status 0: within the tolerance, 1: not, 2: withheld, since "
        "the\n"
        "machine was not quiet or has fewer cores than workers.\n"
        "  pipewright validate scenarios/validation/two-stage-gpipe.yaml\n",
    .options = kOptions,
    .least = 1,
    .most = 1,
    .run = run,
};

}  // namespace pipewright
