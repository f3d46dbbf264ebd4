// --time-limit of searches.
#pragma once

#include "cli/commands.hpp"

namespace pipewright {

// Seconds: "10s" as on a command line, "10 s" as in a scenario; default 10. Throws InputError.
double time_limit(const Arguments& arguments);

}  // namespace pipewright
