// `launch`: the file that starts a plan in a training framework.
#include <array>
#include <string>

#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "core/check.hpp"
#include "study/launched.hpp"

namespace pipewright::cli {
namespace {

constexpr std::array<Option, 4> kLaunchOptions = {{
    {"--for", "", "NAME", "megatron, torchtitan, torch, deepspeed, or slurm (a job around `pipewright run`)"},
    {"--sbatch", "", "", "as a Slurm job"},
    {"--set", "", "KEY=VALUE", "change one value of the plan first (repeatable)"},
    {"--output", "-o", "FILE", "write FILE instead of standard output"},
}};

std::string target(const Arguments& arguments) {
  if (!arguments.has("--for"))
    throw InputError(Place{}, "--for", "say for which framework: megatron, torchtitan, torch, deepspeed or slurm");
  return std::string(kLaunchTargets[option_word(arguments, "--for", "", kLaunchTargets)]);
}

int launch_command(const Arguments& arguments) {
  const std::string name = target(arguments), path = arguments.positional.front();
  const std::string output = arguments.last("--output", "");
  if (!output.empty()) {
    if (same_file(path, output))
      throw InputError(Place{}, "--output", "\"" + output + "\" is read by this command; name another");
    check_writable(output);
  }
  const Launched result = launched({.target = name,
                                    .path = path,
                                    .read = {.set = arguments.all("--set"), .config_path = config_path()},
                                    .command = command_line("launch", arguments),
                                    .sbatch = arguments.has("--sbatch")});
  if (!output.empty()) {
    write_output(output, result.text, "launch file for " + name);
  } else {
    print(result.text);
  }
  for (const std::string& line : result.notes)
    note(line);
  return result.fits ? kDone : kNo;
}

}  // namespace

constinit const Command kLaunch{
    .name = "launch",
    .arguments = "PLAN",
    .summary = "the file that starts a plan in Megatron-LM, torchtitan, PyTorch, DeepSpeed or Slurm",
    .details =
        "PLAN is a scenario without auto, e.g. what `pipewright plan -o plan.yaml` writes. What the framework cannot\n"
        "express is replaced by the nearest that it can, with its predicted cost; docs/reference/launch.md has "
        "versions and limits.\n"
        "  pipewright launch plan.yaml --for megatron --sbatch -o train.sbatch\n"
        "Exit status 1: written, but what is written does not fit the devices.\n",
    .options = kLaunchOptions,
    .least = 1,
    .most = 1,
    .run = launch_command,
};

}  // namespace pipewright::cli
