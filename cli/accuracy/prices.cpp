#include "cli/accuracy/prices.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "cli/real_run.hpp"
#include "core/check.hpp"
#include "io/names.hpp"
#include "io/profile_file.hpp"

namespace pipewright {

std::string price_group(const Scenario& scenario) {
  const std::string way = scenario.run.transport == RunTransport::Staged ? "-staged" : "";
  if (scenario.run.backend == RunBackend::Cpu) return "cpu" + way;
  return fmt::format("groups-{}-{}{}", scenario.run.virtual_devices.value_or(scenario.plan.stages.value),
                     name(scenario.training.precision), way);
}

namespace {

bool same_layers(const Scenario& a, const Scenario& b) {
  const auto size = [](const Scenario& s) {
    return s.training.micro_batch_size ? s.training.micro_batch_size->value : 0;
  };
  return a.model.name == b.model.name && a.plan.stages.value == b.plan.stages.value &&
         a.training.precision == b.training.precision && a.training.optimizer == b.training.optimizer &&
         size(a) == size(b);
}

}  // namespace

std::vector<std::pair<std::string, std::vector<const StudyItem*>>> price_groups(const std::vector<StudyItem>& items) {
  std::vector<std::pair<std::string, std::vector<const StudyItem*>>> groups;
  for (const StudyItem& item : items) {
    if (item.part != 3 && item.part != 4) continue;
    const std::string name = price_group(item.scenario);
    auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == name; });
    if (found == groups.end()) found = groups.insert(groups.end(), {name, {}});
    if (std::none_of(found->second.begin(), found->second.end(),
                     [&](const StudyItem* other) { return same_layers(other->scenario, item.scenario); }))
      found->second.push_back(&item);
  }
  return groups;
}

std::string profile_path(const StudyResults& results, const std::string& group) {
  return fmt::format("{}/part-2/{}.yaml", results.folder(), group);
}

std::string Prices::missing(const StudyItem& item) const {
  const std::string group = price_group(item.scenario);
  const StudyRecord* const latest = results_.latest(2, group);
  if (latest == nullptr || results_.done(2, group)) return "";
  return fmt::format("part 2 has no profile {}: {}", group, latest->reason);
}

Scenario Prices::priced(const StudyItem& item) {
  const std::string group = price_group(item.scenario);
  auto found = read_.find(group);
  if (found == read_.end()) {
    const std::string path = profile_path(results_, group);
    std::error_code absent;
    if (!results_.done(2, group) || !std::filesystem::exists(path, absent))
      throw InputError(
          fmt::format("--part {}: {} is predicted from the calibration of part 2, and \"{}\" is not there; "
                      "run --part 2 first, in this folder",
                      item.part, item.name, path));
    found = read_.emplace(group, read_profile(path)).first;
  }
  return priced_with(item.scenario, found->second);
}

}  // namespace pipewright
