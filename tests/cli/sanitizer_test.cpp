// How compute-sanitizer is called, by a tool of that name that is made up.
#include "cli/accuracy/sanitizer.hpp"

#include <cstdlib>
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

#include "io/read_file.hpp"
#include "runtime/signals.hpp"
#include "tests/cli/refusals.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/children.hpp"

namespace pipewright {
namespace {

// PATH with this folder first, for the time of a test.
class Path {
 public:
  explicit Path(const std::string& first) : before_(std::getenv("PATH")) {
    setenv("PATH", (first + ":" + before_).c_str(), 1);
  }
  ~Path() { setenv("PATH", before_.c_str(), 1); }

 private:
  std::string before_;
};

struct Tool {
  // What it prints at last, and how it ends.
  Tool(const std::string& summary, int status)
      : tests(program("test_gpu", "exit 0")),
        tool(program("bin/compute-sanitizer",
                     "printf 'given %s\\n' \"$@\"; echo '========= " + summary + "'; exit " + std::to_string(status))),
        path(folder.path("bin")) {}
  std::string program(const std::string& name, const std::string& lines) const {
    const std::string file = folder.write(name, "#!/bin/sh\n" + lines + "\n");
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file;
  }
  SanitizerFindings found(double seconds = 120) const { return run_sanitizer(tests, folder.path("log.txt"), seconds); }

  Scratch folder;
  std::string tests, tool;
  Path path;
};

TEST_CASE("compute-sanitizer runs the kernels' tests without those that time something or fail on purpose") {
  const Tool made_up("ERROR SUMMARY: 0 errors", 0);
  const SanitizerFindings found = made_up.found();
  CHECK(found.not_run.empty());
  CHECK(found.tool == made_up.tool);
  CHECK(found.clean);
  CHECK(found.last_line == "ERROR SUMMARY: 0 errors");
  const std::string log = read_file(made_up.folder.path("log.txt"));
  CHECK(contains(log, "given --report-api-errors=no\n"));
  CHECK(contains(log, "given " + made_up.tests + "\ngiven --test-suite-exclude=not under compute-sanitizer\n"));
  const std::string source = std::string(std::getenv("PIPEWRIGHT_SOURCE")) + "/tests/kernels/gpu_test.cpp";
  CHECK(contains(read_file(source), "\"not under compute-sanitizer\""));
}

TEST_CASE("What it finds is not clean; nor are tests that fail beside it, which is told apart") {
  CHECK(Tool("ERROR SUMMARY: 2 errors", 99).found().last_line == "ERROR SUMMARY: 2 errors");
  CHECK_FALSE(Tool("ERROR SUMMARY: 2 errors", 99).found().clean);
  const SanitizerFindings failed = Tool("ERROR SUMMARY: 0 errors", 1).found();
  CHECK_FALSE(failed.clean);
  CHECK(failed.last_line == "ERROR SUMMARY: 0 errors; but the tests ended with status 1");
}

// A pipe that the made-up tool and the program that it starts, which would sleep for minutes, hold open as long as they
// live; they have written a line into it when both are there.
struct Sleepers {
  static constexpr int kPatience = 120'000;  // milliseconds; ends a wait for what does not come
  Sleepers() : made_up("ERROR SUMMARY: 0 errors", 0), name(made_up.folder.path("alive")) {
    REQUIRE(mkfifo(name.c_str(), 0600) == 0);
    pipe = open(name.c_str(), O_RDONLY | O_NONBLOCK);
    REQUIRE(pipe >= 0);
  }
  ~Sleepers() { close(pipe); }
  void tool(const std::string& then) const {
    made_up.program("bin/compute-sanitizer", "exec 3>" + name + "\nsleep 300 &\necho there >&3\n" + then);
  }
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

  Tool made_up;
  std::string name;
  int pipe = -1;
};

TEST_CASE("After its time neither compute-sanitizer nor the program that it started is there") {
  const Sleepers sleepers;
  sleepers.tool("wait");
  for (double seconds = 0.25; !sleepers.there(0); seconds *= 2) {  // a slow machine starts a shell late
    REQUIRE(seconds < 60);
    CHECK(contains(sleepers.made_up.found(seconds).not_run, "was not done after "));
  }
  CHECK(sleepers.gone());
}

TEST_CASE("A program that compute-sanitizer leaves behind ends with it, and is no finding") {
  const Sleepers sleepers;
  sleepers.tool("echo '========= ERROR SUMMARY: 0 errors'; exit 0");
  CHECK(sleepers.made_up.found().clean);
  CHECK(sleepers.there(0));
  CHECK(sleepers.gone());
}

TEST_CASE("A signal that ends this program ends compute-sanitizer with all that it started") {
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) {
    CAPTURE(signal);
    const Sleepers sleepers;
    sleepers.tool("wait");
    Child child = forked([&] {
      const rlimit none{};
      setrlimit(RLIMIT_CORE, &none);  // SIGQUIT would leave one
      ::signal(signal, SIG_DFL);
      const SignalGuard guard("the study was ended");
      return sleepers.made_up.found(300).clean ? 1 : 2;
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

TEST_CASE("A signal that is ignored, as nohup ignores SIGHUP, leaves compute-sanitizer alone") {
  const Sleepers sleepers;
  const std::string go = sleepers.made_up.folder.path("go");
  sleepers.tool("until [ -e " + go + " ]; do sleep 0.02; done; echo '========= ERROR SUMMARY: 0 errors'; exit 0");
  Child child = forked([&] {
    ::signal(SIGHUP, SIG_IGN);
    const SignalGuard guard("the study was ended");
    return sleepers.made_up.found(300).clean ? 1 : 2;
  });
  CHECK(sleepers.there());
  REQUIRE(kill(child.process(), SIGHUP) == 0);
  sleepers.made_up.folder.write("go", "");
  const int status = child.status();
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 1));
}

TEST_CASE("A caller that ignores its children's ends learns how compute-sanitizer ended, and ignores them after it") {
  const Tool made_up("ERROR SUMMARY: 2 errors", 99);
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  const SanitizerFindings found = made_up.found();
  CHECK((::signal(SIGCHLD, before) == SIG_IGN));
  CHECK(found.not_run.empty());
  CHECK(found.last_line == "ERROR SUMMARY: 2 errors");
  CHECK_FALSE(found.clean);
}

TEST_CASE("A compute-sanitizer that cannot be started is told with the reason") {
  const Tool made_up("ERROR SUMMARY: 0 errors", 0);
  made_up.program("bin/compute-sanitizer", "");
  made_up.folder.write("bin/compute-sanitizer", "#!/nonexistent/shell\n");
  CHECK(made_up.found().not_run == made_up.tool + ": No such file or directory");
}

}  // namespace
}  // namespace pipewright
