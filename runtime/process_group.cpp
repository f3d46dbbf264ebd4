#include "runtime/process_group.hpp"

#include <chrono>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/ending.hpp"
#include "core/plain_words.hpp"

namespace pipewright::runtime {
namespace {

void kill_group(pid_t group) {
  if (group > 0) static_cast<void>(kill(-group, SIGKILL));
}

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
  Preparation to;
  sigset_t none, usual;  // what the threads of this program block or ignore (runtime/signals.hpp) is its own affair
  sigemptyset(&none), sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE), sigaddset(&usual, SIGXFSZ);
  posix_spawn_file_actions_addopen(&to.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);  // a terminal would stop it
  posix_spawn_file_actions_addopen(&to.files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&to.files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_setpgroup(&to.attributes, 0);
  posix_spawnattr_setsigmask(&to.attributes, &none);
  posix_spawnattr_setsigdefault(&to.attributes, &usual);
  posix_spawnattr_setflags(&to.attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int error = posix_spawn(&first, words.front(), &to.files, &to.attributes, words.data(), environ);
  if (error != 0) first = 0;
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
  pid_t first = 0;
  int error = 0;
  std::optional<ClearedAtEnd> group;
  group.emplace([&] { error = start(command, log, first); }, [&] { kill_group(first); });
  if (error != 0) return {system_words(error), std::nullopt};
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  bool done = ended(first);
  while (!done && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    done = ended(first);
  }
  kill_group(first);
  group.reset();
  int status = 0;
  waitpid(first, &status, 0);
  if (!done) return {};
  return {"", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
}

}  // namespace pipewright::runtime
