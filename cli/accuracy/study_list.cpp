#include "cli/accuracy/study_list.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "cli/accuracy/prices.hpp"
#include "cli/accuracy/summary.hpp"
#include "cli/attempt.hpp"
#include "cli/config_path.hpp"
#include "cli/scenario_path.hpp"
#include "core/check.hpp"
#include "io/names.hpp"

namespace pipewright {
namespace {

struct Listed {
  std::string_view file;
  int part;
};
// What leads stands first in its part: it is run first.
constexpr std::array<Listed, 8> kFiles = {{
    {"pipeline", 3},
    {"cnn", 3},
    {"micro-batches", 3},
    {"recompute", 3},
    {"staged", 3},
    {"speed-up", 4},
    {"largest", 5},
    {"gradients", 6},
}};

// What a dry run makes of a scenario. The cap of part 5 holds a few layers of the small model.
std::vector<std::string> dry_run_changes(const ScenarioFile& file, int part) {
  std::vector<std::string> changes = {"run.backend=cpu", "training.precision=fp32", "training.micro_batch_size=1",
                                      "run.steps=6", "run.warmup=1"};
  if (const auto model = file.written("model")) changes.push_back("model=" + *model + "-small");
  for (const std::string key : {"run.virtual_devices", "run.kernels"})  // of GPUs
    if (file.written(key)) changes.push_back(key + "=null");
  if (part == 5) changes.push_back("run.memory_cap=1 MB");
  if (part >= 5) changes.insert(changes.end(), {"run.steps=1", "run.warmup=0"});
  return changes;
}

// "pipeline-k4-m16-1f1b"; of part 5 "largest-k4", of part 6 "gradients-k4-bf16-own".
std::string name_of(const Scenario& scenario, int part) {
  std::string name = fmt::format("{}-k{}", file_name_of(scenario), scenario.plan.stages.value);
  if (part == 6)
    return name + fmt::format("-{}-{}", pipewright::name(scenario.training.precision), kernels_of(scenario));
  if (part != 5)
    name += fmt::format("-m{}-{}", scenario.training.micro_batches ? scenario.training.micro_batches->value : 1,
                        scenario.plan.schedule.value);
  return name;
}

}  // namespace

std::string kernels_of(const Scenario& scenario) {
  const RunRequest& run = scenario.run;
  return run.backend == RunBackend::Cpu || run.kernels == RunKernels::Own ? "own" : "library";
}

Scenario StudyItem::with(const std::string& key, std::int64_t value) const {
  return file->scenario(changes, {key + "=" + std::to_string(value)});
}

std::vector<StudyItem> study_items(const StudyListOptions& options) {
  std::vector<StudyItem> items;
  for (const Listed& listed : kFiles) {
    const std::string path = shipped_scenario(fmt::format("gpu/{}.yaml", listed.file));
    std::vector<std::string> set;
    if (options.dry_run)
      set = dry_run_changes(ScenarioFile(path, {.set = {}, .config_path = config_path()}), listed.part);
    set.insert(set.end(), options.set.begin(), options.set.end());
    const auto file = std::make_shared<const ScenarioFile>(path, ReadOptions{.set = set, .config_path = config_path()});
    for (const VariedPoint& point : file->varied()) {
      StudyItem item{listed.part, "", file, point.changes, file->scenario(point.changes)};
      item.name = name_of(item.scenario, listed.part);
      item.scenario.name = item.name;
      const bool twice =
          std::any_of(items.begin(), items.end(), [&](const StudyItem& other) { return other.name == item.name; });
      if (twice && options.dry_run && listed.part == 6) continue;  // variants of arithmetic that a CPU does not have
      if (twice)
        throw InputError(path + ": two variants are both \"" + item.name +
                         "\"; vary stages, micro-batches or the schedule");
      items.push_back(std::move(item));
    }
  }
  return items;
}

std::vector<PlannedRow> planned(const std::vector<StudyItem>& items) {
  std::vector<PlannedRow> rows;
  for (const StudyItem& item : items)
    rows.push_back({item.part, item.name, item.scenario.plan.stages.value,
                    item.scenario.training.micro_batches ? item.scenario.training.micro_batches->value : 1,
                    item.scenario.plan.schedule.value, std::string(name(item.scenario.training.precision)),
                    kernels_of(item.scenario), price_group(item.scenario)});
  return rows;
}

}  // namespace pipewright
