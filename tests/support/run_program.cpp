#include "tests/support/run_program.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pipewright::tests {
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

struct FileActions {
  FileActions() { posix_spawn_file_actions_init(&list); }
  ~FileActions() { posix_spawn_file_actions_destroy(&list); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  posix_spawn_file_actions_t list{};
};

// Signals do what they do by themselves, whoever runs the tests: a shell's jobs in the background ignore some.
struct Attributes {
  Attributes() {
    posix_spawnattr_init(&all);
    sigset_t usual;
    sigemptyset(&usual);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXFSZ})
      sigaddset(&usual, signal);
    posix_spawnattr_setsigdefault(&all, &usual);
    posix_spawnattr_setflags(&all, POSIX_SPAWN_SETSIGDEF);
  }
  ~Attributes() { posix_spawnattr_destroy(&all); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  posix_spawnattr_t all{};
};

std::vector<char*> ended_by_null(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words)
    pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Ours, but for what whoever runs the tests has set for himself, and with `settings`.
std::vector<std::string> environment_with(const std::vector<std::string>& settings) {
  constexpr std::array<std::string_view, 9> not_inherited = {
      "PIPEWRIGHT_PATH", "NO_COLOR",         "CLICOLOR_FORCE",    "FORCE_COLOR",           "PIPEWRIGHT_COLOR",
      "PIPEWRIGHT_JOBS", "PIPEWRIGHT_WIDTH", "PIPEWRIGHT_SECRET", "PIPEWRIGHT_SECRET_FILE"};
  std::map<std::string, std::string> values;
  const auto set = [&](const std::string& setting) { values[setting.substr(0, setting.find('='))] = setting; };
  for (char** one = environ; *one != nullptr; ++one)
    set(*one);
  for (const std::string_view name : not_inherited)
    values.erase(std::string(name));
  set("XDG_CONFIG_HOME=/nonexistent");
  for (const std::string& setting : settings)
    set(setting);
  std::vector<std::string> all;
  for (const auto& [name, setting] : values)
    all.push_back(setting);
  return all;
}

// Started without a copy of this process, whose other threads may hold locks (an allocator's) that nobody would free.
Child started(const std::string& binary, const std::vector<std::string>& arguments, const ProgramInput& input,
              const FileActions& files) {
  std::vector<std::string> words = input.launcher;
  words.push_back(binary);
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::vector<std::string> environment = environment_with(input.settings);
  pid_t child = -1;
  const Attributes attributes;
  const int error = posix_spawnp(&child, words.front().c_str(), &files.list, &attributes.all,
                                 ended_by_null(words).data(), ended_by_null(environment).data());
  if (error != 0) throw std::runtime_error("cannot run " + words.front() + ": " + std::strerror(error));
  return Child(child);
}

// A line of /proc/PID/status, or its end: what follows `key`.
std::string process_status(pid_t process, const std::string& key) {
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return line.substr(key.size());
  return {};
}

// Sends the signal; again, once the first has been taken.
void send(pid_t process, const ProgramInput& input) {
  kill(process, input.signal);
  if (!input.twice) return;
  const auto end = std::chrono::steady_clock::now() + input.longest;
  while ((std::strtoull(process_status(process, "ShdPnd:").c_str(), nullptr, 16) >> (input.signal - 1) & 1) != 0 &&
         std::chrono::steady_clock::now() < end)
    usleep(100);
  kill(process, input.signal);
}

// Once it is the program and listens to signals, which it blocks for the thread that waits for them; not where its time
// is up before.
void interrupt(pid_t process, const std::string& binary, const ProgramInput& input) {
  const auto end = std::chrono::steady_clock::now() + input.longest;
  const std::string itself = "/proc/" + std::to_string(process) + "/exe";
  const auto listens = [&] {
    std::error_code gone;
    const auto blocked = std::strtoull(process_status(process, "SigBlk:").c_str(), nullptr, 16);
    return std::filesystem::equivalent(itself, binary, gone) && !gone && (blocked >> (input.signal - 1) & 1) != 0;
  };
  while (std::chrono::steady_clock::now() < end && !process_status(process, "State:").empty() &&
         process_status(process, "State:").find('Z') == std::string::npos) {
    if (listens()) return send(process, input);
    usleep(1'000);
  }
}

// The near end of a terminal that nobody controls.
int new_terminal() {
  const int screen = posix_openpt(O_RDWR | O_NOCTTY);
  if (screen < 0 || grantpt(screen) != 0 || unlockpt(screen) != 0) throw std::runtime_error("no terminal");
  return screen;
}

// What the process writes there to its end; a signal once `interrupt_at` is among it. The far end is held open until
// the first output, as a terminal without a far end is at its end.
std::string watched(pid_t process, int screen, const ProgramInput& input) {
  const auto end = std::chrono::steady_clock::now() + input.longest;
  int far = open(ptsname(screen), O_WRONLY | O_NOCTTY);
  std::string shown;
  bool told = false;
  char buffer[4096];
  while (std::chrono::steady_clock::now() < end) {
    pollfd ready{screen, POLLIN, 0};
    if (poll(&ready, 1, 10) == 0) {
      if (far >= 0 && process_status(process, "State:").find('Z') != std::string::npos) close(std::exchange(far, -1));
      continue;
    }
    const ssize_t n = read(screen, buffer, sizeof buffer);
    if (n <= 0) break;
    shown.append(buffer, static_cast<std::size_t>(n));
    if (told || shown.find(input.interrupt_at) == std::string::npos) continue;
    told = true;
    send(process, input);
  }
  close(screen);
  return shown;
}

// A search ends when it is done: by the ten seconds that it has unless told otherwise, a busy machine would get another
// answer. Not over several numbers of nodes, which are small searches here, and whose answers repeat their options.
std::vector<std::string> unhurried(std::vector<std::string> arguments) {
  const auto has = [&](const char* option) {
    return std::find(arguments.begin(), arguments.end(), option) != arguments.end();
  };
  if (!arguments.empty() && arguments.front() == "plan" && !has("--time-limit") && !has("--nodes"))
    arguments.insert(arguments.begin() + 1, {"--time-limit", "10min"});
  return arguments;
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
  FileActions files;
  posix_spawn_file_actions_adddup2(&files.list, fileno(in), STDIN_FILENO);
  if (input.output_to.empty())
    posix_spawn_file_actions_adddup2(&files.list, fileno(out), STDOUT_FILENO);
  else
    posix_spawn_file_actions_addopen(&files.list, STDOUT_FILENO, input.output_to.c_str(), O_WRONLY, 0);
  if (screen < 0)
    posix_spawn_file_actions_adddup2(&files.list, fileno(err), STDERR_FILENO);
  else
    posix_spawn_file_actions_addopen(&files.list, STDERR_FILENO, ptsname(screen), O_WRONLY | O_NOCTTY, 0);
  if (screen >= 0) posix_spawn_file_actions_addclose(&files.list, screen);
  const std::string folder = input.folder.empty() ? source_folder() : input.folder;
  posix_spawn_file_actions_addchdir_np(&files.list, folder.c_str());
  Child child = started(binary, unhurried(arguments), input, files);
  if (input.interrupt_at_once) interrupt(child.process(), binary, input);
  std::string shown, hung;
  if (screen >= 0) shown = watched(child.process(), screen, input);
  const int status = child.status(&hung, input.longest);
  std::fclose(in);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), rest_of(out), rest_of(err) + shown + hung};
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

}  // namespace pipewright::tests
