#include "cli/config_path.hpp"

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace pipewright {

std::vector<std::string> config_path() {
  namespace fs = std::filesystem;
  std::vector<std::string> folders;
  const auto add = [&](const fs::path& folder) {
    std::error_code none;
    const std::string text = folder.lexically_normal().string();
    for (const std::string& each : folders)
      if (each == text) return;
    if (fs::is_directory(folder, none)) folders.push_back(text);
  };
  if (const char* given = std::getenv("PIPEWRIGHT_PATH")) {
    std::string_view rest = given;
    while (!rest.empty()) {
      const std::size_t colon = rest.find(':');
      if (colon != 0) add(fs::path(rest.substr(0, colon)));
      rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
    }
  }
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
