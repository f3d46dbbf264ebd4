// Where models, devices and clusters are looked up by name.
#pragma once

#include <string>
#include <vector>

namespace pipewright {

// Folders in order: those of PIPEWRIGHT_PATH (separated by ':'), those of the user's config file, then the installed
// one (../share/pipewright/configs beside the program's folder), then configs/ of the source tree that the program was
// built from. Those that exist.
std::vector<std::string> config_path();

}  // namespace pipewright
