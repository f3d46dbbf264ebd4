#include "cli/config_path.hpp"

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "cli/terminal.hpp"
#include "cli/user_config.hpp"
#include "io/utf8.hpp"

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
      note("warning: PIPEWRIGHT_PATH: " + printable(text) + " is no folder; nothing is looked up there");
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

}  // namespace pipewright
