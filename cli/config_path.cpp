#include "cli/config_path.hpp"

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "cli/user_config.hpp"
#include "core/check.hpp"
#include "io/console.hpp"
#include "io/text/utf8.hpp"

namespace pipewright {

std::vector<std::string> config_path() {
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
  for (const std::string& folder : user_config_path())
    add(folder);
  std::error_code unknown;
  const fs::path program = fs::read_symlink("/proc/self/exe", unknown).parent_path();
  if (!unknown) {
    add(program / "../share/pipewright/configs");
    add(program / "../configs");  // a build folder inside the source tree
  }
  add(PIPEWRIGHT_SOURCE_CONFIGS);  // a build folder elsewhere
  return folders;
}

std::string shipped_scenario(const std::string& file) {
  namespace fs = std::filesystem;
  std::error_code absent;
  if (const std::string here = "scenarios/" + file; fs::is_regular_file(here, absent)) return here;
  for (const std::string& folder : config_path()) {
    const fs::path path = (fs::path(folder) / "../scenarios" / file).lexically_normal();
    if (fs::is_regular_file(path, absent)) return path.string();
  }
  throw InputError("the shipped scenario scenarios/" + file +
                   " is nowhere to be found; run in the source folder, name the file itself, or set PIPEWRIGHT_PATH to "
                   "a folder configs that has scenarios next to it");
}

std::vector<std::string> shipped_for_gpus() {
  std::vector<std::string> files;
  for (const std::string name : {"pipeline", "cnn", "micro-batches", "recompute", "staged", "speed-up"})
    files.push_back(shipped_scenario("gpu/" + name + ".yaml"));
  return files;
}

}  // namespace pipewright
