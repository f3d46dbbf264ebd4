#include "cli/check.hpp"

#include <algorithm>
#include <array>

#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "core/check.hpp"
#include "core/question/profile.hpp"
#include "io/import/schedule_csv.hpp"
#include "io/read/read_sweep.hpp"
#include "io/read/trained_as.hpp"
#include "io/text/utf8.hpp"
#include "io/yaml/yaml.hpp"
#include "planner/anchor.hpp"
#include "planner/find_plan.hpp"
#include "planner/layer_order.hpp"
#include "planner/search/replicas.hpp"
#include "planner/search/space.hpp"
#include "planner/search/switches.hpp"

namespace pipewright::cli {
namespace {

constexpr std::array<Option, 2> kCheckOptions = {{
    {"--resolved", "", "", "print scenarios with every default filled in, and where each value comes from"},
    {"--set", "", "KEY=VALUE", "change one value of the scenarios first (repeatable)"},
}};

std::string counted(std::int64_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

// A scenario has a plan or a training part; a file of configs/ has one key that says what it holds.
std::string kind(const std::string& path) {
  if (path == "-") return "scenario";  // standard input can be read only once
  const Yaml root = parse_yaml(read_file(path), path);
  for (const char* key : {"plan", "training"})
    if (root.find(key) != nullptr) return "scenario";
  if (root.find("model") != nullptr && root.find("cluster") != nullptr) return "scenario";
  for (const char* key : {"model", "device", "cluster", "sweep", "profile"})
    if (root.find(key) != nullptr) return key;
  return "scenario";
}

std::string in_words(const GivenSchedule& given) {
  std::int64_t halves = 0;
  for (const auto& ops : given.compute)
    halves += std::ranges::count_if(ops, [](const Op& op) { return op.kind == Kind::W; });
  std::string text = "schedule, " + counted(given.stages, "rank") + ", " +
                     counted(std::int64_t{given.stages} * given.virtual_stages, "stage") +
                     (given.chunk_order == ChunkOrder::V ? " to and fro"
                      : both_ways(given.chunk_order)
                          ? " in each of " + std::to_string(given.pipelines) + " pipelines in opposite directions"
                          : "") +
                     ", M = " + std::to_string(given.micro_batches);
  if (halves > 0) text += ", " + counted(halves, "backward") + " in two parts";
  if (given.overlapped() > 0)
    text += "; " + counted(given.overlapped(), "overlapped cell") + " (plan.pairs says how they run)";
  if (given.derived > 0) text += "; left out, since derived: " + counted(given.derived, "action");
  return text;
}

// What launch will have to leave to the user.
std::string not_kept(const Model& model) {
  const std::string type = trained_as(model).rope_scaling_not_kept;
  return type.empty() ? "" : "; rope_scaling of type " + type + " is not kept";
}

int check_command(const Arguments& arguments) {
  const ReadOptions options{.set = arguments.all("--set"), .config_path = config_path()};
  const bool resolved = arguments.has("--resolved");
  std::string errors;
  bool printed = false;
  for (const std::string& path : arguments.positional) {
    try {
      std::string yaml;
      const std::string what = checked_file(path, options, &yaml);
      if (resolved && !yaml.empty()) print((printed ? "---\n" : "") + yaml), printed = true;
      if (resolved)
        note(one_line(path) + ": ok (" + what + ")");  // standard output holds the YAML alone
      else
        print(one_line(path) + ": ok (" + what + ")\n");
    } catch (const InputError& error) {
      errors += (errors.empty() ? "" : "\n") + std::string(error.what());
    }
  }
  if (!errors.empty()) throw InputError(errors);
  return kDone;
}

}  // namespace

std::string checked_file(const std::string& path, const ReadOptions& options, std::string* resolved) {
  if (path.ends_with(".csv")) return in_words(read_schedule_csv(path));
  const std::string what = kind(path);
  if (what == "model") {
    const Model model = read_model(path, options);
    return "model, " + counted(static_cast<std::int64_t>(model.layers.size()), "layer") + not_kept(model);
  }
  if (what == "device") return "device " + read_device(path, options).name;
  if (what == "cluster") return "cluster, " + counted(read_cluster(path, options).devices(), "device");
  if (what == "sweep") return "sweep, " + counted(SweepFile(path, options).question().points(), "point");
  if (what == "profile") {
    const MachineProfile profile = read_profile(path, options);
    return "profile, " + counted(static_cast<std::int64_t>(profile.layers.size()), "layer") + " measured on " +
           profile.machine.processor;
  }
  const Scenario scenario = anchored(read_scenario(path, options));
  if (needs_search(scenario)) {
    check_whole_plan(scenario);
    check_classes_of_search(scenario);
    const std::int64_t layouts =
        asks_for_switches(scenario) ? layouts_of_switches(scenario) : layouts_of(scenario).layouts;
    if (resolved != nullptr) *resolved = resolved_yaml(scenario);
    return "scenario, " + counted(static_cast<std::int64_t>(scenario.model.layers.size()), "layer") + ", " +
           counted(layouts, "layout") + " to choose from: pipewright plan" + not_kept(scenario.model);
  }
  const CostModel cost(in_graph_order(std::make_shared<const Scenario>(scenario)).scenario);
  const Plan plan = find_plan(cost.scenario(), cost);
  if (resolved != nullptr) *resolved = resolved_yaml(scenario);
  return "scenario, " + counted(static_cast<std::int64_t>(scenario.model.layers.size()), "layer") + " on " +
         counted(plan.stages, "stage") + ", " + plan.schedule + not_kept(scenario.model);
}

constinit const Command kCheck{
    .name = "check",
    .arguments = "FILE...",
    .summary = "read scenarios, sweeps, models, devices, clusters, profiles or schedules and name every error",
    .details =
        "  pipewright check scenarios/*.yaml configs/devices/*.yaml\n"
        "A file that ends in .csv is a schedule in PyTorch's format; a deadlock is named.\n",
    .options = kCheckOptions,
    .least = 1,
    .most = at(-1),
    .run = check_command,
};

}  // namespace pipewright::cli
