// A child process and everything that it starts end together: tested with fake programs.
#include "runtime/process_group.hpp"

#include <filesystem>
#include <string>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/read/read_file.hpp"
#include "runtime/signals.hpp"
#include "tests/cli/refusals.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/children.hpp"

namespace pipewright::tests {
namespace {

struct StartedProgram {
  explicit StartedProgram(const std::string& lines) { says(lines); }
  void says(const std::string& lines, const std::string& shell = "/bin/sh") {
    path = folder.write("program", "#!" + shell + "\n" + lines + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  GroupEnd end(double seconds = 120, const std::string& word = "") const {
    return run_in_group({path, word}, folder.path("log.txt"), seconds);
  }

  Scratch folder;
  std::string path;
};

TEST_CASE("A program's output goes to the log, and its exit status is reported") {
  const StartedProgram program("echo given $1; echo more >&2; exit 7");
  const GroupEnd end = program.end(120, "this");
  CHECK(end.not_started.empty());
  CHECK(end.status == 7);
  CHECK(read_file(program.folder.path("log.txt")) == "given this\nmore\n");
}

// A pipe that the fake program and another that it starts, which would sleep for minutes, hold open as long as they
// live; they have written a line into it when both are there.
struct Sleepers {
  static constexpr int kPatience = 120'000;  // milliseconds; ends a wait for what does not come
  explicit Sleepers(const std::string& then) : program(""), name(program.folder.path("alive")) {
    REQUIRE(mkfifo(name.c_str(), 0600) == 0);
    pipe = open(name.c_str(), O_RDONLY | O_NONBLOCK);
    REQUIRE(pipe >= 0);
    program.says("exec 3>" + name + "\nsleep 300 &\necho there >&3\n" + then);
  }
  ~Sleepers() { close(pipe); }
  bool there(int milliseconds = kPatience) const {
    pollfd one{pipe, POLLIN, 0};
    poll(&one, 1, milliseconds);
    return (one.revents & POLLIN) != 0;
  }
  bool gone() const {
    char words[16];
    while (read(pipe, words, sizeof words) > 0) {
    }
    pollfd one{pipe, 0, 0};
    poll(&one, 1, kPatience);
    return (one.revents & POLLHUP) != 0;
  }

  StartedProgram program;
  std::string name;
  int pipe = -1;
};

TEST_CASE("After its time neither a program nor the one that it started is there") {
  const Sleepers sleepers("wait");
  for (double seconds = 0.25; !sleepers.there(0); seconds *= 2) {  // a slow machine starts a shell late
    REQUIRE(seconds < 60);
    const GroupEnd end = sleepers.program.end(seconds);
    CHECK(end.not_started.empty());
    CHECK_FALSE(end.status.has_value());
  }
  CHECK(sleepers.gone());
}

TEST_CASE("What a program leaves behind ends with it") {
  const Sleepers sleepers("exit 0");
  CHECK(sleepers.program.end().status == 0);
  CHECK(sleepers.there(0));
  CHECK(sleepers.gone());
}

TEST_CASE("A signal that ends this program ends the other with all that it started") {
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) {
    CAPTURE(signal);
    const Sleepers sleepers("wait");
    Child child = forked([&] {
      const rlimit none{};
      setrlimit(RLIMIT_CORE, &none);  // SIGQUIT would leave one
      ::signal(signal, SIG_DFL);
      const SignalGuard guard("it was ended");
      return sleepers.program.end(300).status ? 1 : 2;
    });
    CHECK(sleepers.there());
    REQUIRE(kill(child.process(), signal) == 0);
    const int status = child.status();
    if (signal == SIGQUIT)
      CHECK((WIFSIGNALED(status) && WTERMSIG(status) == signal));
    else
      CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 128 + signal));
    CHECK(sleepers.gone());
  }
}

TEST_CASE("A signal that is ignored, as nohup ignores SIGHUP, leaves the other program alone") {
  Scratch scratch;
  const std::string go = scratch.path("go");
  const Sleepers sleepers("until [ -e " + go + " ]; do sleep 0.02; done; exit 0");
  Child child = forked([&] {
    ::signal(SIGHUP, SIG_IGN);
    const SignalGuard guard("it was ended");
    return sleepers.program.end(300).status == 0 ? 1 : 2;
  });
  CHECK(sleepers.there());
  REQUIRE(kill(child.process(), SIGHUP) == 0);
  scratch.write("go", "");
  const int status = child.status();
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 1));
}

TEST_CASE("A caller that ignores its children's ends learns how a program ended, and ignores them after it") {
  const StartedProgram program("exit 99");
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  const GroupEnd end = program.end();
  CHECK((::signal(SIGCHLD, before) == SIG_IGN));
  CHECK(end.status == 99);
}

TEST_CASE("A program that cannot be started is reported with the reason") {
  StartedProgram program("");
  program.says("", "/nonexistent/shell");
  CHECK(program.end().not_started == "No such file or directory");
}

}  // namespace
}  // namespace pipewright::tests
