// How near predictions come on this machine. Each scenario is a `validate` of its own, in a process of its own, so that
// none can hang the others or take the GPU from them.
//
//     NAME/scenario.yaml       what was asked, with every default
//     NAME/validate.txt        what validate printed
//     NAME/comparison.json     its figures: where it is there, the scenario is done
//     accuracy.md .json        the table, made from these files alone
#pragma once

#include <string>
#include <vector>

#include "core/question/scenario.hpp"
#include "io/read/read_scenario.hpp"

namespace pipewright::study {

struct AccuracyItem {
  std::string name;  // as that of a folder, unique; of a variant "pipeline-k4-m16-1f1b"
  Scenario scenario;
};
// Files, one after the other, each in the variants of its block `vary:`. Throws InputError: a scenario that cannot be
// read, two of one name.
std::vector<AccuracyItem> accuracy_items(const std::vector<std::string>& files, const ReadOptions& options);

struct AccuracyRequest {
  std::vector<AccuracyItem> items;
  std::string folder;
  Time deadline;                       // of each scenario
  std::vector<std::string> passed_on;  // options of validate
};
struct AccuracyTable {
  std::string markdown, json;
  int status = 0;
};
// Runs what is not done yet, first what was never begun, then what failed before; a line on standard error for each.
// Throws InputError: a scenario that cannot run here, a folder of another scenario.
AccuracyTable measured_accuracy(const AccuracyRequest& request);

}  // namespace pipewright::study
