// `reproduce` of scenarios whose `measured:` block names files of runs.
#pragma once

#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "core/plan/expectation.hpp"
#include "io/scenario_file.hpp"

namespace pipewright {

struct MeasuredSet {
  std::string name;
  const ScenarioFile* file;
};

// Reads the runs in the folder of `--data`, prices each and prints them beside the measurement: every run of one set,
// the errors alone of several, of which those whose files are not in the folder are named. `--fit` searches the
// constants of one set again on the lines chosen for that, and prints them and these lines only. `published`: tables of
// papers whose errors follow those of the sets. Returns the exit status.
int reproduce_measured(const std::vector<MeasuredSet>& sets, const std::vector<TableResult>& published,
                       const Arguments& arguments);

}  // namespace pipewright
