#include "cli/user_config.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "core/check.hpp"
#include "io/yaml/yaml.hpp"

namespace pipewright {
namespace {

constexpr std::array<std::string_view, 4> kKeys = {"color", "jobs", "width", "path"};

std::optional<std::string> variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

struct UserConfig {
  std::string file;
  std::map<std::string, std::pair<std::string, Place>> options;  // "--jobs"
  std::vector<std::string> path;
};

// "~/clusters" as a shell takes it; other relative paths are relative to the file.
std::string folder_of(const std::string& text, const std::string& file) {
  namespace fs = std::filesystem;
  if (text == "~" || text.starts_with("~/")) return variable("HOME").value_or("") + text.substr(1);
  return fs::path(text).is_absolute() ? text : (fs::path(file).parent_path() / text).lexically_normal().string();
}

// Nothing but comments, which is no mistake here.
bool holds_nothing(const std::string& text) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::size_t first = text.find_first_not_of(" \t\r", begin);
    if (first < end && text[first] != '#') return false;
    begin = end + 1;
  }
  return true;
}

UserConfig read_config(const std::string& file) {
  UserConfig config{file, {}, {}};
  const std::string text = read_file(file);
  if (holds_nothing(text)) return config;
  const Yaml root = parse_yaml(text, file);
  if (!root.is(Yaml::Type::Map)) throw InputError(root.place, "is not a map of options; write e.g. jobs: 4");
  for (const auto& [key, value] : root.map) {
    if (std::find(kKeys.begin(), kKeys.end(), key.text) == kKeys.end())
      throw InputError(key.place, unknown_name(key.text.substr(0, 64), kKeys) +
                                      "; what changes an answer stands in the scenario, or on the command line");
    if (key.text != "path") {
      if (!value.is(Yaml::Type::Scalar)) throw InputError(value.place, key.text + ": a single value is needed");
      config.options["--" + key.text] = {value.scalar, value.place};
      continue;
    }
    if (!value.is(Yaml::Type::List))
      throw InputError(value.place, "path: a list of folders is needed, e.g. [~/clusters]");
    for (const Yaml& folder : value.list) {
      if (!folder.is(Yaml::Type::Scalar) || folder.scalar.empty())
        throw InputError(folder.place, "path: the name of a folder is needed");
      config.path.push_back(folder_of(folder.scalar, file));
    }
  }
  return config;
}

// Read once. No file: nothing is set.
const UserConfig& user_config() {
  static const UserConfig config = [] {
    namespace fs = std::filesystem;
    const auto xdg = variable("XDG_CONFIG_HOME"), home = variable("HOME");
    fs::path folder;
    if (xdg && fs::path(*xdg).is_absolute())  // a relative one is to be ignored, says its specification
      folder = *xdg;
    else if (home)
      folder = fs::path(*home) / ".config";
    else
      return UserConfig{};
    const fs::path file = folder / "pipewright/config.yaml";
    std::error_code absent;
    return fs::exists(file, absent) && !absent ? read_config(file.string()) : UserConfig{};
  }();
  return config;
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
    if (std::find(kKeys.begin(), kKeys.end(), name.substr(2)) == kKeys.end() || arguments.has(name)) continue;
    std::string in_environment = "PIPEWRIGHT_" + name.substr(2);
    std::transform(in_environment.begin(), in_environment.end(), in_environment.begin(),
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

std::vector<std::string> user_config_path() {
  return user_config().path;
}

}  // namespace pipewright
