// What a test starts ends: by itself, when its time is up, or with the test. A time limit ends a hang and nothing else:
// it is generous enough for a machine that does much besides.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pipewright::tests {

inline constexpr std::chrono::seconds kLongest{300};

inline std::string proc_text(const std::filesystem::path& path) {
  std::ifstream file("/proc" / path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// What every thread waits for: the kernel's function, the system call and what it was called with.
inline std::string waits_of(pid_t process) {
  std::string text;
  std::error_code gone;
  const std::string tasks = std::to_string(process) + "/task";
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + tasks, gone)) {
    const auto here = tasks / thread.path().filename();
    text += "  " + proc_text(here / "comm") + "    " + proc_text(here / "wchan") + ", system call " +
            proc_text(here / "syscall");
  }
  return text;
}

// 0: there is no such process. Its name, which may hold anything, stands in brackets.
inline pid_t parent_of(const std::string& process) {
  const std::string stat = proc_text(process + "/stat");
  const auto name_ends = stat.rfind(") ");
  return name_ends == std::string::npos ? 0 : static_cast<pid_t>(std::atoi(stat.c_str() + name_ends + 4));
}

// The process, its children, theirs, and so on, in whatever process group they are.
inline std::vector<pid_t> family_of(pid_t process) {
  std::vector<std::pair<pid_t, pid_t>> all;  // parent, child
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") == std::string::npos)
      all.emplace_back(parent_of(name), static_cast<pid_t>(std::stol(name)));
  }
  std::vector<pid_t> family = {process};
  for (std::size_t i = 0; i < family.size(); ++i)
    for (const auto& [parent, child] : all)
      if (parent == family[i]) family.push_back(child);
  return family;
}

inline void end_family(pid_t process) {
  for (const pid_t one : family_of(process))
    ::kill(one, SIGKILL);
}

// A process that was started. Whoever leaves before it has ended, by an exception say, ends it and its family.
class Child {
 public:
  explicit Child(pid_t process) : process_(process) {}
  Child(Child&& other) noexcept : process_(std::exchange(other.process_, 0)) {}
  Child& operator=(Child&& other) noexcept { return std::swap(process_, other.process_), *this; }
  ~Child() {
    if (process_ <= 0) return;
    end_family(process_);
    ::waitpid(process_, nullptr, 0);
  }
  pid_t process() const { return process_; }
  bool ended() const {
    siginfo_t about{};
    return process_ <= 0 || (::waitid(P_PID, static_cast<id_t>(process_), &about, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                             about.si_pid != 0);
  }

  // As waitpid says it. Where its time is up it is ended, and `hung` says so, with what its threads waited for.
  int status(std::string* hung, std::chrono::seconds longest = kLongest) {
    const auto late = std::chrono::steady_clock::now() + longest;
    int status = 0;
    for (useconds_t pause = 100;; pause = std::min<useconds_t>(2 * pause, 5'000)) {
      const pid_t one = ::waitpid(process_, &status, WNOHANG);
      if (one == process_) return process_ = 0, status;
      if (one < 0 && errno != EINTR) throw std::runtime_error("waitpid: " + std::string(std::strerror(errno)));
      if (hung->empty() && std::chrono::steady_clock::now() > late) {
        *hung =
            "the test ended it after " + std::to_string(longest.count()) + " s; its threads:\n" + waits_of(process_);
        end_family(process_);
      }
      ::usleep(pause);
    }
  }
  int status() {
    std::string hung;
    const int status = this->status(&hung);
    if (!hung.empty()) throw std::runtime_error(hung);
    return status;
  }

 private:
  pid_t process_;
};

// A copy of this process that does `body` and ends with what it returns, or with this process. It is not a test: doctest's
// own handlers of signals would end it with a summary of all tests so far, an exception would make it run the rest of
// them.
inline Child forked(const std::function<int()>& body) {
  const pid_t parent = ::getpid(), process = ::fork();
  if (process < 0) throw std::runtime_error("fork: " + std::string(std::strerror(errno)));
  if (process == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    for (const int signal : {SIGINT, SIGILL, SIGFPE, SIGSEGV, SIGTERM, SIGABRT})
      std::signal(signal, SIG_DFL);
    try {
      ::_exit(body());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "a child of the test threw: %s\n", error.what());
    }
    ::_exit(126);
  }
  return Child(process);
}

}  // namespace pipewright::tests
