// Signals that ask a program to end, sent to children of the test.
#include "runtime/signals.hpp"

#include <csignal>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/ending.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/children.hpp"

using namespace pipewright::tests;

namespace {

struct Ended {
  int status;       // as waitpid says it
  std::string err;  // what was said on standard error
};

// A child of the test to which these signals do what they do by themselves.
Ended ended(const Scratch& scratch, const std::function<int()>& body) {
  const std::string err = scratch.path("err");
  Child child = forked([&] {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
      std::signal(signal, SIG_DFL);
    const rlimit none{};
    setrlimit(RLIMIT_CORE, &none);  // SIGQUIT would leave one
    ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    return body();
  });
  const int status = child.status();
  return {status, proc_text(err)};
}

bool exited(const Ended& one, int status) {
  return WIFEXITED(one.status) && WEXITSTATUS(one.status) == status;
}

void to_itself(int signal) {
  ::kill(::getpid(), signal);
}

int wait_for_ever() {
  for (;;)
    ::pause();
}

void wait_until_asked() {
  while (asked_to_end() == 0)
    ::usleep(1'000);
}

}  // namespace

TEST_CASE("A signal ends a program that does not listen, with 128 + its number; what is half done is cleared away") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    CAPTURE(signal);
    const Scratch scratch;
    const Ended one = ended(scratch, [&] {
      const SignalGuard guard("nothing is kept");
      const ClearedAtEnd half([&] { scratch.write("half", "x"); },
                              [&] { std::filesystem::remove(scratch.path("half")); });
      to_itself(signal);
      return wait_for_ever();
    });
    CHECK(exited(one, 128 + signal));
    CHECK(one.err == "interrupted (" + signal_name(signal) + "): nothing is kept\n");
    CHECK_FALSE(std::filesystem::exists(scratch.path("half")));
  }
}

TEST_CASE("A child of a test is not a test: a signal or an exception ends it without a summary of tests") {
  const Scratch scratch;
  const auto child = [&](const std::function<int()>& body) {
    Child one = forked([&] {
      ::dup2(::open(scratch.path("out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
      ::dup2(STDOUT_FILENO, STDERR_FILENO);
      return body();
    });
    return one.status();
  };
  const int killed = child([] { return to_itself(SIGTERM), wait_for_ever(); });
  CHECK((WIFSIGNALED(killed) && WTERMSIG(killed) == SIGTERM));
  CHECK(proc_text(scratch.path("out")).empty());
  const int threw = child([]() -> int { throw std::runtime_error("no port"); });
  CHECK((WIFEXITED(threw) && WEXITSTATUS(threw) == 126));
  CHECK(proc_text(scratch.path("out")) == "a child of the test threw: no port\n");
}

TEST_CASE("SIGQUIT clears away and ends as ever") {
  const Scratch scratch;
  const Ended one = ended(scratch, [&] {
    const SignalGuard guard("nothing is kept");
    const ClearedAtEnd half([&] { scratch.write("half", "x"); },
                            [&] { std::filesystem::remove(scratch.path("half")); });
    to_itself(SIGQUIT);
    return wait_for_ever();
  });
  CHECK((WIFSIGNALED(one.status) && WTERMSIG(one.status) == SIGQUIT));
  CHECK_FALSE(std::filesystem::exists(scratch.path("half")));
}

TEST_CASE("Who listens is told of the signal and goes on; what comes with it is one wish, a later one ends at once") {
  const Scratch scratch;
  const Ended heard = ended(scratch, [] {
    const SignalGuard guard("nothing is kept");
    const Interruption interruption;
    to_itself(SIGTERM);
    wait_until_asked();
    return interruption.requested() && asked_to_end() == SIGTERM ? 7 : 8;
  });
  CHECK(exited(heard, 7));
  CHECK(heard.err == "");
  const Ended twice = ended(scratch, [] {
    const SignalGuard guard("nothing is kept");
    const Interruption interruption;
    to_itself(SIGTERM);
    wait_until_asked();
    ::usleep(400'000);
    to_itself(SIGINT);
    return wait_for_ever();
  });
  CHECK(exited(twice, 128 + SIGINT));
  CHECK(twice.err == "interrupted (SIGINT): nothing is kept\n");
}

TEST_CASE("Last words stand in place of the guard's, as long as they live") {
  const Scratch scratch;
  for (const bool alive : {true, false}) {
    const Ended one = ended(scratch, [&] {
      const SignalGuard guard("nothing is kept");
      {
        const LastWords words("half of it is kept");
        if (alive) to_itself(SIGINT), wait_for_ever();
      }
      to_itself(SIGINT);
      return wait_for_ever();
    });
    CHECK(one.err == std::string("interrupted (SIGINT): ") + (alive ? "half of it" : "nothing") + " is kept\n");
  }
}

TEST_CASE(
    "A signal that was ignored before stays ignored, as under nohup; writes that are too long fail by themselves") {
  const Scratch scratch;
  const Ended one = ended(scratch, [&] {
    std::signal(SIGHUP, SIG_IGN);
    const SignalGuard guard("nothing is kept");
    const Interruption interruption;
    to_itself(SIGHUP);
    const rlimit small{8, 8};
    setrlimit(RLIMIT_FSIZE, &small);
    const int file = ::open(scratch.path("long").c_str(), O_WRONLY | O_CREAT, 0600);
    const bool refused = ::write(file, "12345678", 8) == 8 && ::write(file, "9", 1) == -1 && errno == EFBIG;
    to_itself(SIGTERM);
    wait_until_asked();
    return refused && asked_to_end() == SIGTERM ? 7 : 8;
  });
  CHECK(exited(one, 7));
}

TEST_CASE("Without the guard signals do what they did before it") {
  const Scratch scratch;
  const Ended one = ended(scratch, [] {
    { const SignalGuard guard("nothing is kept"); }
    to_itself(SIGTERM);
    return wait_for_ever();
  });
  CHECK((WIFSIGNALED(one.status) && WTERMSIG(one.status) == SIGTERM));
}
