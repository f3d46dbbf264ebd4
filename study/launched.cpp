// How a plan is launched: the nearest plan that a framework can express, its file, and what to say of it.
#include "study/launched.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "core/check.hpp"
#include "io/launch/launch.hpp"
#include "io/text/quote.hpp"
#include "io/writers/html.hpp"
#include "io/writers/writers.hpp"
#include "io/yaml/yaml.hpp"
#include "planner/anchor.hpp"
#include "planner/answer.hpp"
#include "planner/find_plan.hpp"
#include "planner/launch/narrowed.hpp"
#include "planner/launch/nearest.hpp"
#include "planner/what_if/sweep.hpp"
#include "planner/words.hpp"
#include "runtime/runnable.hpp"
#include "study/real_run.hpp"

namespace pipewright::study {
namespace {

// No command can name such a plan.
bool in_memory(const LaunchAsked& launch) {
  return launch.path == "-" || launch.read.texts.contains(launch.path);
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

Scenario read(const LaunchAsked& asked, std::vector<std::string> set) {
  ReadOptions how = asked.read;
  how.set = std::move(set);
  return anchored(read_scenario(asked.path, how));
}

// The changes behind a plan's path that make it the plan written; `says_all`: reading and pricing that gives the same.
struct Changes {
  std::vector<std::string> set;
  bool says_all = true;
};

bool makes(const LaunchAsked& launch, const std::vector<std::string>& set, const Answer& written) {
  try {
    const Scenario scenario = read(launch, set);
    if (needs_search(scenario)) return false;
    const Answer again = answered(scenario);
    return again.report.step_time == written.report.step_time && again.plan.device == written.plan.device &&
           again.plan.layers == written.plan.layers && again.plan.recompute == written.plan.recompute;
  } catch (const InputError&) {
    return false;
  }
}

Changes changes_of(const LaunchAsked& launch, const Answer& asked, const NearestPlan& nearest, const Answer& written) {
  const std::vector<std::string>& given = launch.read.set;
  if (nearest.differences.empty()) return {given, true};
  const std::vector<std::string> few = with_later_changes(given, changed_keys(nearest.asked, nearest.scenario));
  if (in_memory(launch)) return {few, true};  // nothing is left to be read again
  if (makes(launch, few, written)) return {few, true};
  const std::vector<std::string> all = with_later_changes(given, changed_keys(*asked.scenario, nearest.scenario));
  if (makes(launch, all, written)) return {all, true};
  return {given, false};
}

// The question whose answer the framework can express; "" where it cannot be asked of this scenario.
std::string better_question(const LaunchAsked& launch, const NearestPlan& nearest, const FrameworkWords& words) {
  if (in_memory(launch)) return "";
  constexpr std::array<std::string_view, 4> kept = {"plan.bucket", "plan.reserve_pipeline", "plan.skips",
                                                    "plan.scatter_gather"};
  std::vector<std::string> set = with_later_changes(launch.read.set, {"plan=auto"});
  try {
    const Narrowed question = narrowed(read(launch, set), words.framework);
    const bool zero_is_open = question.scenario.training.open.contains("zero");
    for (const std::string& change : changed_keys(question.scenario, nearest.scenario))
      if (std::ranges::find(kept, changed_key(change)) != kept.end() ||
          (changed_key(change).starts_with("training.") && !(zero_is_open && changed_key(change) == "training.zero")))
        set = with_later_changes(std::move(set), {change});
    static_cast<void>(narrowed(read(launch, set), words.framework));
  } catch (const InputError&) {
    return "";
  }
  std::string command = fmt::format("pipewright plan {} --for {}", shell_path(launch.path), words.word);
  for (const std::string& change : set)
    command += " --set " + shell_word(change);
  return command;
}

// What checks a run knows where a section of the scenario is. Here the fault gets the place of its key: the `--set` that
// gives it, or its line in the file.
void place_at_key(Fault& fault, const LaunchAsked& launch) {
  const std::string& path = launch.path;
  const std::vector<std::string>& set = launch.read.set;
  const std::size_t dot = fault.key.find('.');
  if (dot == std::string::npos || fault.place.file != path) return;
  const std::string section = fault.key.substr(0, dot), key = fault.key.substr(dot + 1);
  for (auto change = set.rbegin(); change != set.rend(); ++change)
    if (changed_key(*change) == section || changed_key(*change) == fault.key)
      return void(fault.place = {"--set " + *change, 0, 0});
  const Yaml file = in_memory(launch) ? Yaml{} : read_yaml(path);
  const Yaml* const inside = file.find(section);
  const Yaml* const value = inside == nullptr ? nullptr : inside->find(key);
  if (value != nullptr) fault.place = value->place;
}

// Whoever runs the job is asked before it is written, and all reasons against it are reported.
void check_run(Scenario scenario, const LaunchAsked& launch) {
  scenario.run.transport = RunTransport::Mpi;
  std::vector<Fault> faults;
  const auto ask = [&](void (*check)(const Scenario&)) {
    try {
      check(scenario);
    } catch (const InputError& error) {
      for (Fault fault : error.faults()) {
        place_at_key(fault, launch);
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

}  // namespace

Launched launched(const LaunchAsked& launch) {
  const std::string &name = launch.target, &path = launch.path;
  const Scenario scenario = read(launch, launch.read.set);
  if (needs_search(scenario))
    throw InputError(
        Place{path == "-" ? "standard input" : path, 0, 0},
        fmt::format("leaves fields of its plan open (auto); run `pipewright plan {} -o plan.yaml` and launch plan.yaml",
                    path));
  if (name == "slurm") check_run(scenario, launch);
  const Answer asked = answered(scenario);
  NearestPlan nearest;
  const FrameworkWords* const framework = find_framework(name);
  if (framework != nullptr) nearest = nearest_plan(*asked.scenario, asked.plan, framework->framework);
  const bool same = nearest.differences.empty();
  const Answer other = same ? Answer{} : answered(nearest.scenario);
  const Answer& written = same ? asked : other;
  const Changes changes = changes_of(launch, asked, nearest, written);
  Launched result;
  result.differences = nearest.differences;
  if (name == "torchtitan")
    for (std::string& lacks : torchtitan_lacks(written.scenario->model))
      result.differences.push_back(std::move(lacks));
  const std::string refused = layers_refused(written.scenario->model);
  const std::vector<std::string> made_up = stand_ins(name, refused);
  result.text = file_of(name, {.asked = asked,
                               .written = written,
                               .differences = result.differences,
                               .asked_words = plan_in_words(asked.plan),
                               .written_words = plan_in_words(written.plan),
                               .plan_path = in_memory(launch) ? "PLAN" : path,
                               .command = launch.command,
                               .set = changes.set,
                               .set_says_all = changes.says_all,
                               .sbatch = launch.sbatch || name == "slurm",
                               .layers_refused = refused,
                               .stand_ins = made_up});
  const double change = written.report.samples_per_s / asked.report.samples_per_s - 1;
  for (const std::string& difference : result.differences)
    result.notes.push_back("not as planned: " + difference);
  if (!same) result.notes.push_back(fmt::format("predicted for what is written: {:+.1f} % samples/s", 100 * change));
  if (const std::string question = change < -0.01 ? better_question(launch, nearest, *framework) : "";
      !question.empty())
    result.notes.push_back(fmt::format("to search the plans that {} can express: {}", framework->name, question));
  for (const std::string& stand_in : made_up)
    result.notes.push_back("not the model's: " + stand_in);
  if (std::string tight = tight_memory(written.report); !tight.empty()) result.notes.push_back(std::move(tight));
  result.fits = written.report.fits;
  if (!result.fits) result.notes.push_back("does not fit: " + written.report.shortfall.reason);
  return result;
}

}  // namespace pipewright::study
