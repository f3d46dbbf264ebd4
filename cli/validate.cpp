// `validate`: calibrate, predict, run, compare.
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "calibrate/calibrate.hpp"
#include "cli/attempt.hpp"
#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/real_run.hpp"
#include "cli/study.hpp"
#include "cli/terminal.hpp"
#include "cli/validate_import.hpp"
#include "core/check.hpp"
#include "io/format_quantity.hpp"
#include "io/profile_file.hpp"
#include "io/quantity.hpp"
#include "io/read_scenario.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {
namespace {

constexpr std::array<Option, 21> kOptions = {{
    {"--set", "", "KEY=VALUE", "change one value of the scenario first (repeatable)"},
    {"--log", "", "FILE", "no run here: the log of one elsewhere, of Megatron-LM or torchtitan (or .gz)"},
    {"--trace", "", "FILE",
     "no run here: a trace of PyTorch's profiler with its PP:0F3 actions (.json, .gz; repeatable)"},
    {"--profile", "", "FILE", "prices from this profile instead of a calibration now"},
    {"--budget", "", "TIME", "of the calibration (default: 3 s)"},
    {"--tolerance", "", "PERCENT", "of the step time, for the verdict (default: 10%)"},
    {"--force", "", "", "judge a run on a machine that was not quiet, too; marked as forced"},
    {"--backend", "", "NAME", "cpu (default); this and the following replace the keys of `run:`"},
    {"--transport", "", "NAME", "local (default), throttled: links as slow as the cluster's, tcp, mpi: a process each"},
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

int validate_scenario(const Arguments& arguments) {
  std::vector<std::string> changes = arguments.all("--set");
  for (std::string& change : run_settings_as_changes(arguments))
    changes.push_back(std::move(change));
  const double within = tolerance(arguments), seconds = calibration_seconds(arguments);
  const bool forced = arguments.has("--force");
  if (arguments.positional.size() > 1)
    return validate_all({.scenarios = arguments.positional,
                         .changes = std::move(changes),
                         .profile = arguments.last("--profile", ""),
                         .output = arguments.last("--output", "pipewright-out/validation"),
                         .seconds = seconds,
                         .tolerance = within,
                         .forced = forced,
                         .as_json = arguments.has("--json")});
  const Scenario asked =
      read_scenario(arguments.positional.front(), {.set = std::move(changes), .config_path = config_path()});
  Ranks* const ranks = joined_ranks(asked);  // rank 0 reads, writes and prints
  const std::string out = arguments.last("--output", "pipewright-out/" + file_name_of(asked));
  if (prints()) made_folder(out);

  MachineProfile profile;
  if (arguments.has("--profile")) {
    if (prints()) profile = read_profile(arguments.last("--profile", ""));
    if (ranks != nullptr) profile = broadcast(*ranks, profile);
    if (const std::string warning = other_machine(profile); !warning.empty()) note("warning: " + rank_name() + warning);
  } else {
    const RealRun real(asked, ranks);
    real.check_memory();
    profile = calibrated({&real}, seconds, asked.name);
  }
  if (prints()) write_file(out + "/profile.yaml", profile_yaml(profile));

  const Attempt attempt(asked, profile, within, forced, out, ranks);
  if (!prints()) return kDone;  // the verdict is rank 0's
  const Comparison& comparison = attempt.comparison();
  if (arguments.has("--json"))
    print(comparison_json(comparison));
  else
    print(fmt::format("{}: predicted, then run ({}, {} timed steps)\n", asked.name, attempt.real().backend_name(),
                      comparison.times.timed.size()) +
          comparison_table(comparison) + fmt::format("\n  verdict: {}\n", comparison.verdict_text()));
  note("wrote " + out + "/: profile.yaml prediction.json measurement.json comparison.json loss.csv overlay.svg");
  return exit_status(comparison.verdict());
}

int run(const Arguments& arguments) {
  if (asks_for_import(arguments)) return validate_import(arguments, tolerance(arguments));
  return with_run_failures([&] { return validate_scenario(arguments); });
}

}  // namespace

constinit const Command kValidate{
    .name = "validate",
    .arguments = "SCENARIO...",
    .summary = "calibrate, predict, run for real, and show how far the prediction was off",
    .details =
        "The prediction is written before the run. Exit status 0: within the tolerance, 1: not, 2: withheld, since "
        "the\n"
        "machine was not quiet or has fewer cores than workers. Several scenarios: all are calibrated first, into one\n"
        "profile; each is run once, in the given order; those withheld are repeated at most twice; every attempt is "
        "in\n"
        "the table.\n"
        "  pipewright validate scenarios/validation/two-stage-gpipe.yaml\n"
        "  pipewright validate scenarios/validation/*.yaml -o accuracy\n"
        "With --log or --trace nothing is run or measured here; what others measured stands beside the prediction.\n"
        "  pipewright validate scenario.yaml --log run.log --trace rank0.json.gz --trace rank1.json.gz\n",
    .options = kOptions,
    .least = 1,
    .most = 64,
    .run = run,
};

}  // namespace pipewright
