#include "cli/scenario_path.hpp"

#include <filesystem>
#include <system_error>

#include "cli/config_path.hpp"
#include "core/check.hpp"

namespace pipewright {

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

}  // namespace pipewright
