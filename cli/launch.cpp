// `launch`: the file that starts a plan in a training framework.
#include "io/launch/launch.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <variant>

#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "core/check.hpp"
#include "io/read/read_scenario.hpp"
#include "io/text/quote.hpp"
#include "io/writers/html.hpp"
#include "io/writers/schedule_csv.hpp"
#include "io/writers/writers.hpp"
#include "io/yaml/yaml.hpp"
#include "planner/anchor.hpp"
#include "planner/answer.hpp"
#include "planner/find_plan.hpp"
#include "planner/launch/narrowed.hpp"
#include "planner/launch/nearest.hpp"
#include "planner/what_if/sweep.hpp"
#include "runtime/runnable.hpp"
#include "study/real_run.hpp"

namespace pipewright {
namespace {

constexpr std::array<Option, 4> kLaunchOptions = {{
    {"--for", "", "NAME", "megatron, torchtitan, torch, deepspeed, or slurm (a job around `pipewright run`)"},
    {"--sbatch", "", "", "as a Slurm job"},
    {"--set", "", "KEY=VALUE", "change one value of the plan first (repeatable)"},
    {"--output", "-o", "FILE", "write FILE instead of standard output"},
}};

constexpr std::array<std::string_view, 5> kTargets = {"megatron", "torchtitan", "torch", "deepspeed", "slurm"};

std::string target(const Arguments& arguments) {
  if (!arguments.has("--for"))
    throw InputError(Place{}, "--for", "say for which framework: megatron, torchtitan, torch, deepspeed or slurm");
  return std::string(kTargets[option_word(arguments, "--for", "", kTargets)]);
}

Answer answered(const Scenario& scenario) {
  return std::get<Answer>(answer(scenario, {.engine = Engine::Auto, .ignore_memory = true}));
}

std::string file_of(const std::string& name, const LaunchRequest& request) {
  if (name == "megatron") return megatron_launch(request);
  if (name == "torchtitan") return torchtitan_launch(request);
  if (name == "torch") return torch_launch(request);
  if (name == "deepspeed") return deepspeed_launch(request);
  return slurm_launch(request);
}

Scenario read(const std::string& path, std::vector<std::string> set) {
  return anchored(read_scenario(path, {.set = std::move(set), .config_path = config_path()}));
}

std::string_view key_of(std::string_view change) {
  return change.substr(0, change.find('='));
}

// Later changes in place of earlier ones of the same key.
std::vector<std::string> with_changes(std::vector<std::string> list, const std::vector<std::string>& more) {
  for (const std::string& change : more) {
    std::erase_if(list, [&](const std::string& before) {
      return key_of(before) == key_of(change) || before.starts_with(std::string(key_of(change)) + ".");
    });
    list.push_back(change);
  }
  return list;
}

// The changes behind a plan's path that make it the plan written; `says_all`: reading and pricing that gives the same.
struct Changes {
  std::vector<std::string> set;
  bool says_all = true;
};

bool makes(const std::string& path, const std::vector<std::string>& set, const Answer& written) {
  try {
    const Scenario scenario = read(path, set);
    if (needs_search(scenario)) return false;
    const Answer again = answered(scenario);
    return again.report.step_time == written.report.step_time && again.plan.device == written.plan.device &&
           again.plan.layers == written.plan.layers && again.plan.recompute == written.plan.recompute;
  } catch (const InputError&) {
    return false;
  }
}

Changes changes_of(const Arguments& arguments, const Answer& asked, const NearestPlan& nearest, const Answer& written) {
  const std::string& path = arguments.positional.front();
  const std::vector<std::string> given = arguments.all("--set");
  if (nearest.differences.empty()) return {given, true};
  const std::vector<std::string> few = with_changes(given, changed_keys(nearest.asked, nearest.scenario));
  if (path == "-") return {few, true};  // nothing is left to be read again
  if (makes(path, few, written)) return {few, true};
  const std::vector<std::string> all = with_changes(given, changed_keys(*asked.scenario, nearest.scenario));
  if (makes(path, all, written)) return {all, true};
  return {given, false};
}

// The question whose answer the framework can express; "" where it cannot be asked of this scenario.
std::string better_question(const Arguments& arguments, const NearestPlan& nearest, const FrameworkWords& words) {
  const std::string& path = arguments.positional.front();
  if (path == "-") return "";
  constexpr std::array<std::string_view, 4> kept = {"plan.bucket", "plan.reserve_pipeline", "plan.skips",
                                                    "plan.scatter_gather"};
  std::vector<std::string> set = with_changes(arguments.all("--set"), {"plan=auto"});
  try {
    const Narrowed question = narrowed(read(path, set), words.framework);
    for (const std::string& change : changed_keys(question.scenario, nearest.scenario))
      if (std::find(kept.begin(), kept.end(), key_of(change)) != kept.end() || key_of(change).starts_with("training."))
        set.push_back(change);
    static_cast<void>(narrowed(read(path, set), words.framework));
  } catch (const InputError&) {
    return "";
  }
  std::string command = fmt::format("pipewright plan {} --for {}", shell_path(path), words.word);
  for (const std::string& change : set)
    command += " --set " + shell_word(change);
  return command;
}

// What checks a run knows where a section of the scenario is. Here the fault gets the place of its key: the `--set` that
// gives it, or its line in the file.
void place_at_key(Fault& fault, const std::string& path, const std::vector<std::string>& set) {
  const std::size_t dot = fault.key.find('.');
  if (dot == std::string::npos || fault.place.file != path) return;
  const std::string section = fault.key.substr(0, dot), key = fault.key.substr(dot + 1);
  for (auto change = set.rbegin(); change != set.rend(); ++change)
    if (key_of(*change) == section || key_of(*change) == fault.key)
      return void(fault.place = {"--set " + *change, 0, 0});
  const Yaml file = path == "-" ? Yaml{} : read_yaml(path);
  const Yaml* const inside = file.find(section);
  const Yaml* const value = inside == nullptr ? nullptr : inside->find(key);
  if (value != nullptr) fault.place = value->place;
}

// Whoever runs the job is asked before it is written, and all reasons against it are reported.
void check_run(Scenario scenario, const std::string& path, const std::vector<std::string>& set) {
  scenario.run.transport = RunTransport::Mpi;
  std::vector<Fault> faults;
  const auto ask = [&](void (*check)(const Scenario&)) {
    try {
      check(scenario);
    } catch (const InputError& error) {
      for (Fault fault : error.faults()) {
        place_at_key(fault, path, set);
        faults.push_back(std::move(fault));
      }
    }
  };
  ask(check_precision);
  if (!faults.empty()) scenario.training.precision = Precision::Fp32, scenario.training.gradient_precision.reset();
  ask(check_can_run);
  if (faults.empty()) return;
  faults.push_back(
      {{},
       "--for slurm",
       "is a job around `pipewright run`, which refuses this plan; launch it --for a framework, with --sbatch"});
  throw InputError(std::move(faults));
}

int launch_command(const Arguments& arguments) {
  const std::string name = target(arguments), path = arguments.positional.front();
  const std::string output = arguments.last("--output", "");
  if (!output.empty()) {
    if (same_file(path, output))
      throw InputError(Place{}, "--output", "\"" + output + "\" is read by this command; name another");
    check_writable(output);
  }
  const Scenario scenario = read(path, arguments.all("--set"));
  if (needs_search(scenario))
    throw InputError(
        Place{path == "-" ? "standard input" : path, 0, 0},
        fmt::format("leaves fields of its plan open (auto); run `pipewright plan {} -o plan.yaml` and launch plan.yaml",
                    path));
  if (name == "slurm") check_run(scenario, path, arguments.all("--set"));
  const Answer asked = answered(scenario);
  NearestPlan nearest;
  const FrameworkWords* const framework = find_framework(name);
  if (framework != nullptr) nearest = nearest_plan(*asked.scenario, asked.plan, framework->framework);
  const bool same = nearest.differences.empty();
  const Answer other = same ? Answer{} : answered(nearest.scenario);
  const Answer& written = same ? asked : other;
  const Changes changes = changes_of(arguments, asked, nearest, written);
  std::vector<std::string> differences = nearest.differences;
  if (name == "torchtitan")
    for (std::string& lacks : torchtitan_lacks(written))
      differences.push_back(std::move(lacks));
  const std::string text = file_of(name, {.asked = asked,
                                          .written = written,
                                          .differences = differences,
                                          .asked_words = plan_in_words(asked.plan),
                                          .written_words = plan_in_words(written.plan),
                                          .plan_path = path == "-" ? "PLAN" : path,
                                          .command = command_line("launch", arguments),
                                          .set = changes.set,
                                          .set_says_all = changes.says_all,
                                          .sbatch = arguments.has("--sbatch") || name == "slurm",
                                          .layers_refused = layers_refused(written.scenario->model)});
  const std::string tight = tight_memory(written.report);
  const double change = written.report.samples_per_s / asked.report.samples_per_s - 1;
  const std::string question = change < -0.01 ? better_question(arguments, nearest, *framework) : "";
  if (!output.empty()) {
    write_output(output, text, "launch file for " + name);
  } else {
    print(text);
  }
  for (const std::string& difference : differences)
    note("not as planned: " + difference);
  if (!same) note(fmt::format("predicted for what is written: {:+.1f} % samples/s", 100 * change));
  if (!question.empty()) note(fmt::format("for the best plan that {} can express: {}", framework->name, question));
  if (!tight.empty()) note(tight);
  if (!written.report.fits) note("does not fit: " + written.report.shortfall.reason);
  return written.report.fits ? kDone : kNo;
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

}  // namespace pipewright
