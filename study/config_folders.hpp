// The folders in which models, devices and clusters are looked up by name, and the user's own settings, which name some.
// cli/user_config.hpp says what stands in these.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.hpp"

namespace pipewright::study {

inline constexpr std::array<std::string_view, 4> kUserKeys = {"color", "jobs", "width", "path"};

struct UserConfig {
  std::string file;
  std::map<std::string, std::pair<std::string, Place>> options;  // "--jobs"
  std::vector<std::string> path;
};
// $XDG_CONFIG_HOME/pipewright/config.yaml, else that below ~/.config. Read once; no file: nothing is set. Throws
// InputError.
const UserConfig& user_config();

// Folders in order: those of PIPEWRIGHT_PATH (separated by ':'), those of the user's config file, then `shipped`. Those
// that exist, each once.
std::vector<std::string> config_folders(const std::vector<std::string>& shipped);

}  // namespace pipewright::study
