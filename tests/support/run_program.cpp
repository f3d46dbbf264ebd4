#include "tests/support/run_program.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include <fcntl.h>
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
  std::vector<char*> argv = {const_cast<char*>(binary.c_str())};
  for (const std::string& argument : arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  for (const char* variable : {"PIPEWRIGHT_PATH", "NO_COLOR", "CLICOLOR_FORCE", "FORCE_COLOR"})
    unsetenv(variable);
  for (const std::string& setting : input.settings)
    putenv(const_cast<char*>(setting.c_str()));
  const std::string folder = input.folder.empty() ? source_folder() : input.folder;
  if (chdir(folder.c_str()) == 0) execv(binary.c_str(), argv.data());
  _exit(127);
}

// A line of /proc/PID/status, or its end: what follows `key`.
std::string process_status(pid_t process, const std::string& key) {
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return line.substr(key.size());
  return {};
}

double seconds_worked(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string word;
  double ticks = 0;
  for (int field = 1; field <= 15 && file >> word; ++field)
    if (field >= 14) ticks += std::atof(word.c_str());  // utime, stime
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

void interrupt(pid_t process) {
  const auto catches = [&] {
    return (std::strtoull(process_status(process, "SigCgt:").c_str(), nullptr, 16) >> (SIGINT - 1) & 1) != 0;
  };
  while (!process_status(process, "State:").empty() &&
         process_status(process, "State:").find('Z') == std::string::npos) {
    if (catches() && seconds_worked(process) >= 1) {
      kill(process, SIGINT);
      return;
    }
    usleep(10'000);
  }
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
  std::fwrite(input.input.data(), 1, input.input.size(), in);
  std::fflush(in);
  std::rewind(in);
  const pid_t child = fork();
  if (child == 0) {
    const int target = input.output_to.empty() ? fileno(out) : open(input.output_to.c_str(), O_WRONLY);
    if (dup2(fileno(in), STDIN_FILENO) < 0 || dup2(target, STDOUT_FILENO) < 0 || dup2(fileno(err), STDERR_FILENO) < 0)
      _exit(126);
    become(binary, arguments, input);
  }
  if (child > 0 && input.interrupt) interrupt(child);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) throw std::runtime_error("cannot run " + binary);
  std::fclose(in);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), rest_of(out), rest_of(err)};
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
