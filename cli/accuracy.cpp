#include "study/accuracy.hpp"

#include <array>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/run_options.hpp"
#include "core/question/profile.hpp"
#include "io/read/read_scenario.hpp"

namespace pipewright::cli {
namespace {

constexpr std::array<Option, 6> kAccuracyOptions = {{
    {"--set", "", "KEY=VALUE", "change one value of every scenario first (repeatable)"},
    {"--profile", "", "FILE", "prices from this profile (`calibrate`) instead of a calibration before each run"},
    {"--budget", "", "TIME", "time for each calibration, as for validate (default: 3 s)"},
    {"--deadline", "", "TIME", "a scenario that is not done after it is ended, and counts as failed (default: 5 min)"},
    {"--output", "-o", "DIR", "for the results (default: pipewright-out/accuracy)"},
    {"--json", "", "", "the table as one JSON document on standard output instead of Markdown"},
}};

int accuracy_command(const Arguments& arguments) {
  const std::vector<std::string> files = arguments.positional.empty() ? shipped_for_gpus() : arguments.positional;
  AccuracyRequest request{.items = accuracy_items(files, {.set = arguments.all("--set"), .config_path = config_path()}),
                          .folder = arguments.last("--output", "pipewright-out/accuracy"),
                          .deadline = option_time(arguments, "--deadline", "5min"),
                          .passed_on = {}};
  static_cast<void>(calibration_seconds(arguments));  // throws
  if (arguments.has("--profile")) static_cast<void>(read_profile(arguments.last("--profile", "")));
  for (const char* const option : {"--budget", "--profile"})
    if (arguments.has(option)) request.passed_on.insert(request.passed_on.end(), {option, arguments.last(option, "")});
  const AccuracyTable table = measured_accuracy(request);
  print(arguments.has("--json") ? table.json : table.markdown);
  note("wrote " + request.folder + "/: accuracy.md accuracy.json and a folder for each scenario");
  return table.status;
}

}  // namespace

constinit const Command kAccuracy{
    .name = "accuracy",
    .arguments = "[SCENARIO...]",
    .summary = "how near predictions come on this machine: many scenarios, each by validate",
    .details =
        "Each scenario, in each of its variants, is calibrated, predicted and run by `validate` in a process of its "
        "own,\n"
        "with a deadline. Without a SCENARIO: those of scenarios/gpu, on one GPU cut into virtual devices. What is\n"
        "done is in the folder and not run again; what failed, or was stopped, the same call tries again, behind the\n"
        "rest.\n"
        "  pipewright accuracy -o accuracy                       (on a machine with a GPU)\n"
        "  pipewright accuracy scenarios/validation/*.yaml       (on CPU cores)\n"
        "Exit status 1: a measured step is neither within 10 % nor in its interval, 2: a scenario was withheld or "
        "failed.\n",
    .options = kAccuracyOptions,
    .most = 64,
    .run = accuracy_command,
};

}  // namespace pipewright::cli
