// Where models, devices and clusters are looked up by name, and scenarios that ship with pipewright.
#pragma once

#include <string>
#include <vector>

#include "core/rooms.hpp"

namespace pipewright::cli {

// Folders in order: those of PIPEWRIGHT_PATH (separated by ':'), those of the user's config file, then the installed
// one (../share/pipewright/configs next to the program's folder), then configs/ of the source tree that the program was
// built from. Those that exist.
std::vector<std::string> config_path();

// The path of a shipped scenario, "gpipe/table2.yaml": in scenarios/ of the working directory, else next to the config
// folders. Throws InputError when it is in none of them.
std::string shipped_scenario(const std::string& file);
// Those for one GPU that is cut into virtual devices, what leads first.
std::vector<std::string> shipped_for_gpus();

}  // namespace pipewright::cli
