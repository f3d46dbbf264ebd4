// `sweep --run`: every point of a sweep run for real, and how it trained.
#pragma once

#include "cli/commands.hpp"
#include "io/read_sweep.hpp"

namespace pipewright {

// Prints the table and writes the files after --output (.csv, .svg). The exit status: kDone, or 128 + a signal.
int run_grid(const SweepFile& file, const Arguments& arguments);

// Refuses what goes with a simulated sweep alone, and outputs that cannot be written. Throws InputError.
void check_run_grid(const SweepFile& file, const Arguments& arguments);

}  // namespace pipewright
