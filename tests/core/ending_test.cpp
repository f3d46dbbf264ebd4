// Being asked to end, and what is cleared away then.
#include "core/ending.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "tests/io/scratch.hpp"
#include "tests/support/children.hpp"

using namespace pipewright::tests;

TEST_CASE("Who is asked to end knows the signal, and loops end by an exception that says what was done") {
  CHECK(asked_to_end() == 0);
  CHECK_NOTHROW(end_if_asked("nothing"));
  ask_to_end(SIGTERM);
  CHECK(asked_to_end() == SIGTERM);
  CHECK(interrupted_by() == "interrupted (SIGTERM)");
  CHECK_THROWS_WITH_AS(end_if_asked("half of it is done"), "half of it is done", Interrupted);
  ask_to_end(0);
  CHECK(signal_name(SIGHUP) == "SIGHUP");
  CHECK(signal_name(64) == "signal 64");
}

TEST_CASE("At the end goes what was made and has not found its place, the newest first") {
  const Scratch scratch;
  const auto made = [&](const std::string& name) { return [&scratch, name] { scratch.write(name, ""); }; };
  const std::string log = scratch.path("log");
  const auto cleared = [&](const std::string& name) {
    return [&scratch, log, name] {
      std::filesystem::remove(scratch.path(name));
      std::ofstream(log, std::ios::app) << name << "\n";
    };
  };
  Child child = forked([&] {
    const ClearedAtEnd first(made("first"), cleared("first"));
    { const ClearedAtEnd placed(made("placed"), cleared("placed")); }
    const ClearedAtEnd second(made("second"), cleared("second"));
    clear_at_end();
    ::_exit(7);
    return 0;
  });
  const int status = child.status();
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 7));
  CHECK(proc_text(log) == "second\nfirst\n");
  CHECK(std::filesystem::exists(scratch.path("placed")));
  CHECK_FALSE(std::filesystem::exists(scratch.path("first")));
}

TEST_CASE("What cannot be made is not cleared") {
  bool cleared = false;
  CHECK_THROWS_AS(ClearedAtEnd([] { throw std::runtime_error("no"); }, [&] { cleared = true; }), std::runtime_error);
  CHECK_FALSE(cleared);
}
