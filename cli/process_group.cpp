#include "cli/process_group.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pipewright {
namespace {

constexpr std::array<int, 4> kEnding = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};

std::atomic<pid_t> running{0};  // 0: none
std::atomic<bool> starting{false};
static_assert(std::atomic<pid_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
std::array<struct sigaction, kEnding.size()> before;  // what each of them did

void kill_group(pid_t group) {
  if (group > 0) static_cast<void>(kill(-group, SIGKILL));
}

extern "C" void end_group(int signal) {
  const int error = errno;
  while (starting)  // in another thread, which this signal cannot interrupt
    static_cast<void>(poll(nullptr, 0, 1));
  kill_group(running);
  errno = error;
  for (std::size_t i = 0; i < kEnding.size(); ++i) {
    if (kEnding[i] != signal) continue;
    if (before[i].sa_handler != SIG_DFL) return before[i].sa_handler(signal);
    static_cast<void>(sigaction(signal, &before[i], nullptr));
    static_cast<void>(raise(signal));  // delivered when this handler returns
  }
}

// While it lives, these signals end the group as well; what is ignored stays so.
class EndingSignals {
 public:
  EndingSignals() {
    struct sigaction now {};
    now.sa_handler = end_group, now.sa_flags = SA_RESTART;
    for (std::size_t i = 0; i < kEnding.size(); ++i) {
      static_cast<void>(sigaction(kEnding[i], nullptr, &before[i]));
      if (before[i].sa_handler != SIG_IGN) static_cast<void>(sigaction(kEnding[i], &now, nullptr));
    }
  }
  ~EndingSignals() {
    for (std::size_t i = 0; i < kEnding.size(); ++i)
      static_cast<void>(sigaction(kEnding[i], &before[i], nullptr));
  }
  EndingSignals(const EndingSignals&) = delete;
  EndingSignals& operator=(const EndingSignals&) = delete;
};

// While it lives, a process that has ended can be waited for, also where SIGCHLD was ignored.
class ChildrenStay {
 public:
  ChildrenStay() {
    struct sigaction usual {};
    usual.sa_handler = SIG_DFL;
    static_cast<void>(sigaction(SIGCHLD, &usual, &before_));
  }
  ~ChildrenStay() { static_cast<void>(sigaction(SIGCHLD, &before_, nullptr)); }
  ChildrenStay(const ChildrenStay&) = delete;
  ChildrenStay& operator=(const ChildrenStay&) = delete;

 private:
  struct sigaction before_ {};
};

// While it lives, these signals wait, in this thread for its end, in others for their handler's: none comes between a
// process and the moment at which its group is known.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t held;
    sigemptyset(&held);
    for (const int signal : kEnding)
      sigaddset(&held, signal);
    pthread_sigmask(SIG_BLOCK, &held, &usual);
    starting = true;
  }
  ~HeldSignals() {
    starting = false;
    pthread_sigmask(SIG_SETMASK, &usual, nullptr);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  sigset_t usual;
};

struct Preparation {
  Preparation() { posix_spawn_file_actions_init(&files), posix_spawnattr_init(&attributes); }
  ~Preparation() { posix_spawn_file_actions_destroy(&files), posix_spawnattr_destroy(&attributes); }
  Preparation(const Preparation&) = delete;
  Preparation& operator=(const Preparation&) = delete;

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

// 0, or why it was not started.
int start(const std::vector<std::string>& command, const std::string& log, pid_t& first) {
  std::vector<char*> words;
  for (const std::string& each : command)
    words.push_back(const_cast<char*>(each.c_str()));
  words.push_back(nullptr);
  const HeldSignals held;
  Preparation to;
  posix_spawn_file_actions_addopen(&to.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);  // a terminal would stop it
  posix_spawn_file_actions_addopen(&to.files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&to.files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_setpgroup(&to.attributes, 0);
  posix_spawnattr_setsigmask(&to.attributes, &held.usual);
  posix_spawnattr_setflags(&to.attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  const int error = posix_spawn(&first, words.front(), &to.files, &to.attributes, words.data(), environ);
  if (error == 0) running = first;
  return error;
}

// Whether it has ended. It is not waited for yet, so that its number, which is the group's, stays taken.
bool ended(pid_t process) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == process;
}

}  // namespace

GroupEnd run_in_group(const std::vector<std::string>& command, const std::string& log, double seconds) {
  const ChildrenStay children;
  const EndingSignals signals;
  pid_t first = 0;
  if (const int error = start(command, log, first); error != 0) return {std::strerror(error), std::nullopt};
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  bool done = ended(first);
  while (!done && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    done = ended(first);
  }
  kill_group(first);
  running = 0;
  int status = 0;
  waitpid(first, &status, 0);
  if (!done) return {};
  return {"", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
}

}  // namespace pipewright
