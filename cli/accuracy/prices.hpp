// What the predictions of a study are made with: the profiles that part 2 measured, one per kind of worker.
//
// A worker is one of K equal groups of a GPU's SMs; a layer takes as long as its group is small, so every K has a
// profile of its own, and messages through the host's memory have another. On a CPU, in a dry run, K does not matter.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/accuracy/results.hpp"
#include "cli/accuracy/study_list.hpp"
#include "core/cost/profile.hpp"

namespace pipewright {

// "cpu", "groups-4", "groups-4-staged": which profile prices the scenario.
std::string price_group(const Scenario& scenario);
// Those of the items that are predicted, in the order in which they first come, each with the items that are to be
// measured: of those that have the same layers on as many workers, the first.
std::vector<std::pair<std::string, std::vector<const StudyItem*>>> price_groups(const std::vector<StudyItem>& items);

std::string profile_path(const StudyResults& results, const std::string& group);

class Prices {
 public:
  explicit Prices(const StudyResults& results) : results_(results) {}
  // Why it cannot be predicted: part 2 tried to measure its group and failed, or had no time left. "": it can, or part
  // 2 has never come to it.
  std::string missing(const StudyItem& item) const;
  // The scenario with the prices of its group. Throws InputError where part 2 has not measured them.
  Scenario priced(const StudyItem& item);

 private:
  const StudyResults& results_;
  std::map<std::string, MachineProfile> read_;
};

}  // namespace pipewright
