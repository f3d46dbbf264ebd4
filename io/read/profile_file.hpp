// Profiles that `calibrate` measured, as files.
#pragma once

#include <string>

#include "core/question/profile.hpp"
#include "io/read/read_scenario.hpp"

namespace pipewright {

// Throws InputError with one line per error.
MachineProfile read_profile(const std::string& path, const ReadOptions& options = {});

// The profile as YAML; reading it back gives the same profile.
std::string profile_yaml(const MachineProfile& profile);

}  // namespace pipewright
