// `compare` with measured runs: two of them, or one beside a prediction.
#pragma once

#include "cli/commands.hpp"

namespace pipewright {

// At least one of the two arguments is a run file. Throws InputError: options of scenarios beside two runs, runs that
// have nothing in common.
int compare_runs(const Arguments& arguments);

}  // namespace pipewright
