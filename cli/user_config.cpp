#include "cli/user_config.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>

#include <fmt/format.h>

#include "core/check.hpp"
#include "study/config_folders.hpp"

namespace pipewright::cli {
namespace {

std::optional<std::string> variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

bool colour_is_settled_elsewhere() {
  return variable("NO_COLOR") || variable("CLICOLOR_FORCE") || variable("FORCE_COLOR");
}

}  // namespace

std::map<std::string, std::string> add_user_defaults(const Command& command, Arguments& arguments) {
  const UserConfig& config = user_config();
  std::map<std::string, std::string> origins;
  for (const Option* option : options_of(command)) {
    const std::string name(option->name);
    if (std::ranges::find(kUserKeys, name.substr(2)) == kUserKeys.end() || arguments.has(name)) continue;
    std::string in_environment = "PIPEWRIGHT_" + name.substr(2);
    std::ranges::transform(in_environment, in_environment.begin(),
                           [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    if (const auto value = variable(in_environment)) {
      arguments.defaults[name] = *value, origins[name] = in_environment;
      continue;
    }
    const auto found = config.options.find(name);
    if (found == config.options.end() || (name == "--color" && colour_is_settled_elsewhere())) continue;
    const auto& [value, place] = found->second;
    arguments.defaults[name] = value, origins[name] = fmt::format("{}:{}", place.file, place.line);
  }
  return origins;
}

}  // namespace pipewright::cli
