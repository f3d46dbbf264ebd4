#include "cli/accuracy/sanitizer.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "cli/process_group.hpp"
#include "io/read_file.hpp"

namespace pipewright {
namespace {

namespace fs = std::filesystem;

bool runs(const std::string& path) {
  std::error_code absent;
  return fs::is_regular_file(path, absent) && access(path.c_str(), X_OK) == 0;
}

// Suite of the kernels' tests that time something, or whose calls are refused on purpose.
constexpr std::string_view kNotUnderSanitizer = "not under compute-sanitizer";

std::string summary_line(const std::string& log) {
  const std::string text = read_file(log);
  const std::size_t at = text.rfind("ERROR SUMMARY");
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

}  // namespace

std::vector<std::string> sanitizer_places() {
  std::vector<std::string> places;
  const char* const path = std::getenv("PATH");
  const std::string folders = path == nullptr ? "" : path;
  for (std::size_t begin = 0; begin < folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    if (end > begin) places.push_back(folders.substr(begin, end - begin));
    begin = end + 1;
  }
  if (const char* const home = std::getenv("CUDA_HOME"); home != nullptr && *home != '\0')
    places.push_back(std::string(home) + "/bin");
  places.push_back("/usr/local/cuda/bin");
  return places;
}

SanitizerFindings run_sanitizer(const std::string& tests, const std::string& log, double seconds) {
  SanitizerFindings found;
  for (const std::string& folder : sanitizer_places())
    if (found.tool.empty() && runs(folder + "/compute-sanitizer")) found.tool = folder + "/compute-sanitizer";
  if (found.tool.empty()) {
    found.not_run = fmt::format("no compute-sanitizer in {}", fmt::join(sanitizer_places(), ", "));
    return found;
  }
  if (!runs(tests)) {
    found.not_run = "the kernels' tests are not built (\"" + tests + "\"): meson compile, or --kernel-tests FILE";
    return found;
  }
  // A call that fails is thrown by the program itself, and the tests of that are in the suite that is left out.
  const GroupEnd end = run_in_group({found.tool, "--error-exitcode=99", "--report-api-errors=no", tests,
                                     "--test-suite-exclude=" + std::string(kNotUnderSanitizer)},
                                    log, seconds);
  if (!end.not_started.empty()) {
    found.not_run = found.tool + ": " + end.not_started;
    return found;
  }
  if (!end.status) {
    found.not_run = fmt::format("was not done after {:.0f} s", seconds);
    return found;
  }
  found.last_line = summary_line(log);
  if (found.last_line.empty()) found.last_line = fmt::format("exit status {}", *end.status);
  found.clean = *end.status == 0;
  if (!found.clean && found.last_line.find("ERROR SUMMARY: 0 errors") != std::string::npos)
    found.last_line += fmt::format("; but the tests ended with status {}", *end.status);
  return found;
}

}  // namespace pipewright
