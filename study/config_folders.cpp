#include "study/config_folders.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

#include "io/console.hpp"
#include "io/text/utf8.hpp"
#include "io/yaml/yaml.hpp"

namespace pipewright::study {
namespace {

std::optional<std::string> set_variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

// "~/clusters" as a shell takes it; other relative paths are relative to the file.
std::string folder_of(const std::string& text, const std::string& file) {
  namespace fs = std::filesystem;
  if (text == "~" || text.starts_with("~/")) return set_variable("HOME").value_or("") + text.substr(1);
  return fs::path(text).is_absolute() ? text : (fs::path(file).parent_path() / text).lexically_normal().string();
}

// Nothing but comments, which is not a mistake here.
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
    if (std::ranges::find(kUserKeys, key.text) == kUserKeys.end())
      throw InputError(key.place, unknown_name(key.text.substr(0, 64), kUserKeys) +
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

}  // namespace

const UserConfig& user_config() {
  static const UserConfig config = [] {
    namespace fs = std::filesystem;
    const auto xdg = set_variable("XDG_CONFIG_HOME"), home = set_variable("HOME");
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

std::vector<std::string> config_folders(const std::vector<std::string>& shipped) {
  namespace fs = std::filesystem;
  std::vector<std::string> folders;
  static std::set<std::string> told;  // the path is asked for several times
  const auto add = [&](const fs::path& folder, bool by_variable = false) {
    std::error_code none;
    const std::string text = folder.lexically_normal().string();
    for (const std::string& each : folders)
      if (each == text) return;
    if (fs::is_directory(folder, none))
      folders.push_back(text);
    else if (by_variable && told.insert(text).second)
      note("warning: PIPEWRIGHT_PATH: " + printable(text) + " is not a folder; nothing is looked up there");
  };
  if (const char* given = std::getenv("PIPEWRIGHT_PATH")) {
    std::string_view rest = given;
    while (!rest.empty()) {
      const std::size_t colon = rest.find(':');
      if (colon != 0) add(fs::path(rest.substr(0, colon)), true);
      rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
    }
  }
  for (const std::string& folder : user_config().path)
    add(folder);
  for (const std::string& folder : shipped)
    add(folder);
  return folders;
}

}  // namespace pipewright::study
