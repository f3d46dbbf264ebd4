// What reports say of the loads that a profile's times belong to.
#pragma once

#include <string>

#include "core/question/profile.hpp"

namespace pipewright {

// Which of the two ways to price sharing it is: "ops as measured while 1, 2 or 4 of 4 workers worked; sharing of memory
// bandwidth is not modelled beside it".
std::string loads_text(const MachineProfile& profile);

}  // namespace pipewright
