// Where the scenarios that ship with pipewright lie.
#pragma once

#include <string>

namespace pipewright {

// The path of a shipped scenario, "gpipe/table2.yaml": in scenarios/ of the working directory, else beside the config
// folders (`config_path`). Throws InputError when it is in none of them.
std::string shipped_scenario(const std::string& file);

}  // namespace pipewright
