// Which scenarios `accuracy` runs: files, one after the other, each in the variants of its block `vary:`.
#pragma once

#include <string>
#include <vector>

#include "core/plan/scenario.hpp"

namespace pipewright {

struct AccuracyItem {
  std::string name;  // as that of a folder, unique; of a variant "pipeline-k4-m16-1f1b"
  Scenario scenario;
};

// With the changes of --set. Throws InputError: a scenario that cannot be read, two of one name.
std::vector<AccuracyItem> accuracy_items(const std::vector<std::string>& files, const std::vector<std::string>& set);

// Those that ship for one GPU that is cut into virtual devices, what leads first.
std::vector<std::string> shipped_for_gpus();

}  // namespace pipewright
