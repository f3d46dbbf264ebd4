// `reproduce` of a scenario whose `measured:` block names files of runs.
#pragma once

#include "cli/commands.hpp"
#include "io/scenario_file.hpp"

namespace pipewright {

// Reads the runs in the folder of `--data`, prices each and prints them beside the measurement; `--fit` searches the
// constants anew on the lines chosen for that, and prints them and these lines only. Returns the exit status.
int reproduce_measured(const ScenarioFile& file, const Arguments& arguments);

}  // namespace pipewright
