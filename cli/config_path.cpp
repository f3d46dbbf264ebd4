#include "cli/config_path.hpp"

#include <filesystem>
#include <system_error>

#include <sys/auxv.h>

#include "study/config_folders.hpp"
#include "study/published.hpp"

namespace pipewright::cli {

std::vector<std::string> config_path() {
  namespace fs = std::filesystem;
  std::vector<std::string> shipped;
  std::error_code unknown;
  fs::path program = fs::read_symlink("/proc/self/exe", unknown).parent_path();
  if (unknown) {  // a root folder without /proc: as the program was called
    const auto* const called = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
    program = fs::canonical(called == nullptr ? "" : called, unknown).parent_path();
  }
  if (!unknown) {
    shipped.push_back((program / "../share/pipewright/configs").string());
    shipped.push_back((program / "../configs").string());  // a build folder inside the source tree
  }
  shipped.push_back(PIPEWRIGHT_SOURCE_CONFIGS);  // a build folder elsewhere
  return config_folders(shipped);
}

std::string shipped_scenario(const std::string& file) {
  return study::shipped_scenario(file, config_path());
}

std::vector<std::string> shipped_for_gpus() {
  std::vector<std::string> files;
  for (const std::string name : {"pipeline", "cnn", "micro-batches", "recompute", "staged", "speed-up"})
    files.push_back(shipped_scenario("gpu/" + name + ".yaml"));
  return files;
}

}  // namespace pipewright::cli
