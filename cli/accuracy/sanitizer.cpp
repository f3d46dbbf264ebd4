#include "cli/accuracy/sanitizer.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/check.hpp"
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

// The exit status of the command, or nothing where it took longer than `seconds` (it is then killed).
std::optional<int> exit_of(const std::vector<std::string>& command, const std::string& log, double seconds) {
  std::vector<char*> arguments;
  for (const std::string& each : command)
    arguments.push_back(const_cast<char*>(each.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = fork();  // the child allocates nothing: a thread of ours may hold the allocator
  if (child < 0) throw InputError("compute-sanitizer: no further process can be started");
  if (child == 0) {
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (out < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0) _exit(127);
    execv(arguments.front(), arguments.data());
    _exit(127);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return std::nullopt;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

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
  const std::optional<int> status = exit_of({found.tool, "--error-exitcode=99", "--report-api-errors=no", tests,
                                             "--test-suite-exclude=" + std::string(kNotUnderSanitizer)},
                                            log, seconds);
  if (!status) {
    found.not_run = fmt::format("was not done after {:.0f} s", seconds);
    return found;
  }
  found.last_line = summary_line(log);
  if (found.last_line.empty()) found.last_line = fmt::format("exit status {}", *status);
  found.clean = *status == 0;
  if (!found.clean && found.last_line.find("ERROR SUMMARY: 0 errors") != std::string::npos)
    found.last_line += fmt::format("; but the tests ended with status {}", *status);
  return found;
}

}  // namespace pipewright
