// Completion as a shell asks for it, and the manual page.
#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "tests/cli/refusals.hpp"

namespace pipewright {
namespace {

// What bash offers for a line that is typed so far; its last word is being completed.
std::string offered(const std::string& words) {
  const ScratchFolder scratch;
  const std::string script = scratch.path("complete.bash");
  std::ofstream(script) << run_program({"completion", "bash"}).out << "compopt() { :; }\n"
                        << "COMP_WORDS=(" << words << ")\n"
                        << "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                        << "_pipewright\n"
                        << "echo \"${COMPREPLY[*]}\"\n";
  return run_program({}, {.launcher = {"bash", script}}).out;
}

TEST_CASE("bash completes commands, their options, and the words they take") {
  CHECK(offered("pipewright ca") == "capacity calibrate\n");
  CHECK(offered("pipewright simulate --ig") == "--ignore-memory\n");
  CHECK(offered("pipewright show d") == "devices\n");
  CHECK(offered("pipewright help val") == "validate\n");
  CHECK(offered("pipewright simulate x.yaml -o --j") == "\n");  // the value of -o is a file
}

TEST_CASE("The manual page and every shell know every command") {
  const std::string help = run_program({"help"}).out;
  for (const std::string kind : {"bash", "zsh", "fish", "man"}) {
    const ProgramRun written = run_program({"completion", kind});
    CHECK(written.status == 0);
    for (const char* command :
         {"simulate", "plan", "compare", "sweep", "merge", "capacity", "calibrate", "run", "validate", "reproduce",
          "check", "show", "import", "doctor", "init", "schema", "completion", "help"}) {
      CHECK_MESSAGE(contains(written.out, command), kind << " " << command);
      CHECK(contains(help, std::string("\n  ") + command));
    }
  }
  CHECK(contains(run_program({"completion", "man"}).out, ".TH PIPEWRIGHT 1"));
}

TEST_CASE("An unknown shell is named, with the known ones") {
  CHECK(contains(error_of({"completion", "tcsh"}), "bash, zsh, fish, man"));
}

}  // namespace
}  // namespace pipewright
