// `draw` as a user meets it: panels, lengths, fonts, PDF, refusals.
#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

TEST_CASE("One timeline without options is the drawing of simulate") {
  const ScratchFolder folder;
  REQUIRE(run_program({"simulate", kQuickstart, "-o", folder.path("a.svg")}).status == 0);
  const ProgramRun run = run_program({"draw", kQuickstart});
  CHECK(run.status == 0);
  CHECK(run.err == "");
  CHECK(run.out == file_text(folder.path("a.svg")));
}

TEST_CASE("Panels are named after what tells them apart, or as their author likes") {
  const ProgramRun schedules =
      run_program({"draw", kQuickstart, "--panel", "plan.schedule=gpipe", "--panel", "plan.schedule=1f1b"});
  CHECK(schedules.status == 0);
  CHECK(contains(schedules.out, ">gpipe</text>"));
  CHECK(contains(schedules.out, ">1f1b</text>"));
  const ProgramRun named =
      run_program({"draw", kQuickstart, "--panel", "a <b>: plan.schedule=gpipe,training.micro_batches=4", "--panel",
                   "plan.schedule=gpipe"});
  CHECK(named.status == 0);
  CHECK(contains(named.out, ">a &lt;b&gt;</text>"));
  CHECK(contains(named.out, "quickstart.yaml with plan.schedule=gpipe</text>"));
}

TEST_CASE("The norm that all workers sum at once is one bar, under the last of them") {
  const std::string drawn = run_program({"draw", kQuickstart, "--set", "training.clip_grad_norm=1"}).out;
  CHECK(contains(drawn, "3NR0 · all-reduce of the norm on stage 3"));
  CHECK(!contains(drawn, "0NR0"));
}

TEST_CASE("A panel that does not fit is drawn, and it is said") {
  const ProgramRun run = run_program({"draw", kQuickstart, "--set", "cluster.node.device.memory=2365MiB"});
  CHECK(run.status == 0);
  CHECK(contains(run.err, "does not fit: scenarios/quickstart.yaml: "));
  CHECK(contains(run.out, "<svg"));
}

TEST_CASE("What cannot be drawn is refused with a way out") {
  CHECK(contains(error_of({"draw", kQuickstart, "--figure-width", "84"}), "write e.g. --figure-width 84mm"));
  CHECK(contains(error_of({"draw", kQuickstart, "--figure-width", "30mm"}), "at least "));
  CHECK(contains(error_of({"draw", kQuickstart, "--font-size", "7furlongs"}), "write e.g. --font-size 7pt"));
  CHECK(contains(error_of({"draw", kQuickstart, "--font", "x;}*{fill:red"}),
                 "write e.g. --font \"Helvetica, sans-serif\""));
  CHECK(contains(error_of({"draw", kQuickstart, "--palette", "gray"}), "grey"));
  CHECK(contains(error_of({"draw", kQuickstart, "--panel", "gpipe"}), "write e.g. --panel plan.schedule=gpipe"));
  CHECK(contains(error_of({"draw", kQuickstart, "--panel", "plan.schedul=gpipe"}), "plan.schedul"));
  CHECK(contains(error_of({"draw", kQuickstart, "-o", "x.png"}), "known: .svg, .pdf"));
  const ScratchFolder folder;
  REQUIRE(run_program({"simulate", kQuickstart, "-o", folder.path("a.json")}).status == 0);
  CHECK(contains(error_of({"draw", folder.path("a.json")}), "name its scenario instead"));
}

TEST_CASE("A PDF is a PDF, the same bytes each time; without the converter the package is named") {
  const ScratchFolder folder;
  const ProgramRun none =
      run_program({"draw", kQuickstart, "-o", folder.path("none.pdf")}, {.settings = {"PATH=/nonexistent"}});
  CHECK(none.status == 2);
  CHECK(contains(none.err, "apt-get install librsvg2-bin"));
  CHECK(folder.files().empty());
  if (std::system("command -v rsvg-convert >/dev/null 2>&1") != 0) {
    MESSAGE("skipped: rsvg-convert is not installed");
    return;
  }
  for (const char* name : {"a.pdf", "b.pdf"})
    REQUIRE(run_program({"draw", kQuickstart, "--figure-width", "84mm", "--font-size", "7pt", "-o", folder.path(name)})
                .status == 0);
  const std::string pdf = file_text(folder.path("a.pdf"));
  CHECK(pdf.starts_with("%PDF-"));
  CHECK(pdf == file_text(folder.path("b.pdf")));
}

TEST_CASE("--timeline adds to documents only") {
  CHECK(contains(error_of({"simulate", kQuickstart, "--timeline"}), "--json or -o FILE.json"));
  const ScratchFolder folder;
  const ProgramRun run = run_program({"simulate", kQuickstart, "--timeline", "--json", "-o", folder.path("a.json")});
  CHECK(run.status == 0);
  CHECK(run.out == file_text(folder.path("a.json")));
  CHECK(contains(run.out, "\"timeline\""));
  CHECK(!contains(run_program({"simulate", kQuickstart, "--json"}).out, "\"timeline\""));
}

}  // namespace
}  // namespace pipewright::tests
