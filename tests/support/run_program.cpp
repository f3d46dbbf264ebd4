#include "tests/support/run_program.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pipewright {
namespace {

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set: run this through `meson test`");
  return value;
}

std::string rest_of(std::FILE* file) {
  std::string text;
  std::rewind(file);
  char buffer[4096];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, file))
    text.append(buffer, n);
  std::fclose(file);
  return text;
}

[[noreturn]] void become(const std::string& binary, const std::vector<std::string>& arguments,
                         const ProgramInput& input) {
  std::vector<char*> argv;
  for (const std::string& word : input.launcher)
    argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(const_cast<char*>(binary.c_str()));
  for (const std::string& argument : arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  for (const char* variable : {"PIPEWRIGHT_PATH", "NO_COLOR", "CLICOLOR_FORCE", "FORCE_COLOR"})
    unsetenv(variable);
  // What whoever runs the tests has set for himself.
  for (const char* variable : {"PIPEWRIGHT_COLOR", "PIPEWRIGHT_JOBS", "PIPEWRIGHT_WIDTH"})
    unsetenv(variable);
  setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
  for (const std::string& setting : input.settings)
    putenv(const_cast<char*>(setting.c_str()));
  const std::string folder = input.folder.empty() ? source_folder() : input.folder;
  if (chdir(folder.c_str()) == 0) execvp(argv.front(), argv.data());
  _exit(127);
}

// A line of /proc/PID/status, or its end: what follows `key`.
std::string process_status(pid_t process, const std::string& key) {
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return line.substr(key.size());
  return {};
}

// Before it is the program it is a copy of the test, which catches signals, too.
void interrupt(pid_t process, const std::string& binary, int signal) {
  const std::string itself = "/proc/" + std::to_string(process) + "/exe";
  const auto has = [&](const char* set) {
    return (std::strtoull(process_status(process, set).c_str(), nullptr, 16) >> (signal - 1) & 1) != 0;
  };
  const auto catches = [&] {
    std::error_code gone;
    return std::filesystem::equivalent(itself, binary, gone) && !gone && has("SigCgt:");
  };
  while (!process_status(process, "State:").empty() &&
         process_status(process, "State:").find('Z') == std::string::npos) {
    if (catches()) {
      kill(process, signal);
      while (signal == SIGTERM && has("ShdPnd:"))
        usleep(100);
      if (signal == SIGTERM) kill(process, signal);
      return;
    }
    usleep(1'000);
  }
}

// The near end of a terminal that nobody controls.
int new_terminal() {
  const int screen = posix_openpt(O_RDWR | O_NOCTTY);
  if (screen < 0 || grantpt(screen) != 0 || unlockpt(screen) != 0) throw std::runtime_error("no terminal");
  return screen;
}

// What the process writes there to its end; Ctrl-C once `sign` is among it. The far end is held open until the first
// output, as a terminal without a far end is at its end.
std::string watched(pid_t process, int screen, const std::string& sign) {
  int far = open(ptsname(screen), O_WRONLY | O_NOCTTY);
  std::string shown;
  bool told = false;
  char buffer[4096];
  while (true) {
    pollfd ready{screen, POLLIN, 0};
    if (far >= 0 && poll(&ready, 1, 10) == 0) {
      if (process_status(process, "State:").find('Z') != std::string::npos) close(std::exchange(far, -1));
      continue;
    }
    const ssize_t n = read(screen, buffer, sizeof buffer);
    if (n <= 0) break;
    shown.append(buffer, static_cast<std::size_t>(n));
    if (told || shown.find(sign) == std::string::npos) continue;
    told = true;
    kill(process, SIGINT);
  }
  close(screen);
  return shown;
}

}  // namespace

std::string source_folder() {
  return from_environment("PIPEWRIGHT_SOURCE");
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

ProgramRun run_program(const std::vector<std::string>& arguments, const ProgramInput& input) {
  const std::string binary = from_environment("PIPEWRIGHT_BINARY");
  std::FILE *in = std::tmpfile(), *out = std::tmpfile(), *err = std::tmpfile();
  if (in == nullptr || out == nullptr || err == nullptr) throw std::runtime_error("no temporary files");
  const int screen = input.interrupt_at.empty() ? -1 : new_terminal();
  std::fwrite(input.input.data(), 1, input.input.size(), in);
  std::fflush(in);
  std::rewind(in);
  const pid_t child = fork();
  if (child == 0) {
    const int target = input.output_to.empty() ? fileno(out) : open(input.output_to.c_str(), O_WRONLY);
    const int errors = screen < 0 ? fileno(err) : open(ptsname(screen), O_WRONLY | O_NOCTTY);
    if (dup2(fileno(in), STDIN_FILENO) < 0 || dup2(target, STDOUT_FILENO) < 0 || dup2(errors, STDERR_FILENO) < 0)
      _exit(126);
    if (screen >= 0) close(errors), close(screen);
    become(binary, arguments, input);
  }
  if (child > 0 && (input.interrupt || input.terminate)) interrupt(child, binary, input.terminate ? SIGTERM : SIGINT);
  std::string shown;
  if (child > 0 && screen >= 0) shown = watched(child, screen, input.interrupt_at);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) throw std::runtime_error("cannot run " + binary);
  std::fclose(in);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), rest_of(out), rest_of(err) + shown};
}

ScratchFolder::ScratchFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "pipewright-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  folder_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::vector<std::string> ScratchFolder::files() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace pipewright
