#include "cli/accuracy_list.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/attempt.hpp"
#include "cli/config_path.hpp"
#include "cli/scenario_path.hpp"
#include "core/check.hpp"
#include "io/scenario_file.hpp"

namespace pipewright {
namespace {

std::string name_of(const Scenario& scenario) {
  return fmt::format("{}-k{}-m{}-{}", file_name_of(scenario), scenario.plan.stages.value,
                     scenario.training.micro_batches ? scenario.training.micro_batches->value : 1,
                     scenario.plan.schedule.value);
}

}  // namespace

std::vector<AccuracyItem> accuracy_items(const std::vector<std::string>& files, const std::vector<std::string>& set) {
  std::vector<AccuracyItem> items;
  const auto add = [&](const std::string& path, std::string name, Scenario scenario) {
    if (std::any_of(items.begin(), items.end(), [&](const AccuracyItem& other) { return other.name == name; }))
      throw InputError(path + ": a second run is called \"" + name +
                       "\"; give each scenario a name of its own, and vary stages, micro-batches or the schedule");
    scenario.name = name;
    items.push_back({std::move(name), std::move(scenario)});
  };
  for (const std::string& path : files) {
    const ScenarioFile file(path, {.set = set, .config_path = config_path()});
    for (const VariedPoint& point : file.varied()) {
      Scenario scenario = file.scenario(point.changes);
      std::string name = name_of(scenario);
      add(path, std::move(name), std::move(scenario));
    }
    if (!file.varied().empty()) continue;
    Scenario scenario = file.scenario();
    std::string name = file_name_of(scenario);
    add(path, std::move(name), std::move(scenario));
  }
  return items;
}

std::vector<std::string> shipped_for_gpus() {
  std::vector<std::string> files;
  for (const char* const name : {"pipeline", "cnn", "micro-batches", "recompute", "staged", "speed-up"})
    files.push_back(shipped_scenario(fmt::format("gpu/{}.yaml", name)));
  return files;
}

}  // namespace pipewright
