// `reproduce pipedream-profiles`: this planner and PipeDream's on its seven published profiles, both simulated.
#pragma once

#include "cli/commands.hpp"

namespace pipewright {

// Needs --data DIR with the profiles; without it a message and exit status 2. Exit status 1: some plan of ours is
// slower than PipeDream's.
int reproduce_profiles(const Arguments& arguments);

}  // namespace pipewright
