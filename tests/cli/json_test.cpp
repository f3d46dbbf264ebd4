// `--json` of the commands whose product is a table. Documents of simulate, plan, sweep and others are tested with them.
#include <algorithm>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

using nlohmann::json;

json document_of(const std::vector<std::string>& arguments, int status = 0) {
  const ProgramRun run = run_program(arguments);
  CAPTURE(run.err);
  REQUIRE(run.status == status);
  return json::parse(run.out);
}

}  // namespace

TEST_CASE("Commands whose answer is figures have --json; those that write a file or a text have not") {
  const std::string help = run_program({"help"}).out;
  int commands = 0;
  for (const char* command : {"simulate", "plan", "schedule", "compare", "sweep", "capacity", "run", "validate",
                              "accuracy", "reproduce", "show"}) {
    CAPTURE(command);
    CHECK(contains(help, std::string("  ") + command));
    CHECK(contains(run_program({"help", command}).out, "--json"));
    ++commands;
  }
  for (const char* command :
       {"launch", "merge", "calibrate", "check", "import", "doctor", "init", "schema", "completion", "help"})
    CHECK_FALSE(contains(run_program({"help", command}).out, "--json"));
  CHECK(commands == 11);
}

TEST_CASE("reproduce --json has every cell of the table that --csv has, and names the page that it wrote") {
  const ScratchFolder folder;
  const std::string page = folder.path("page.html");
  const json document = document_of({"reproduce", "gpipe-memory", "--json", "-o", page});
  CHECK(document["schema"] == "pipewright.reproduction/1");
  CHECK(document["written"] == json::array({page}));
  const json& cells = document["tables"][0]["cells"];
  const std::string csv = run_program({"reproduce", "gpipe-memory", "--csv"}).out;
  CHECK(cells.size() == static_cast<std::size_t>(std::count(csv.begin(), csv.end(), '\n')) - 1);
  // (64 + 4096 / M) MiB: docs/how-it-works/model.md
  const auto of = [&](const std::string& name) {
    for (const json& cell : cells)
      if (cell["cell"] == name) return cell;
    return json();
  };
  CHECK(of("M = 4")["predicted"] == 1088);
  CHECK(of("M = 64")["predicted"] == 128);
  CHECK(of("M = 4")["unit"] == "MiB");
  CHECK(of("M = 4")["verdict"] == "within");
  CHECK(document["tables"][0]["accuracy"]["missed"] == 0);
}

TEST_CASE("reproduce --json: a missed cell says so and makes status 1; without a name there is none") {
  const std::string scenario = file_text(source_folder() + "/" + kQuickstart) +
                               "\nexpect: {table: mine, source: me, rows: [{name: a, quantity: step_time_s, unit: ms, "
                               "published: 30, tolerance: 5 %, reason: r}]}\n";
  const ProgramRun run = run_program({"reproduce", "-", "--json"}, {.input = scenario});
  CHECK(run.status == 1);
  const json cell = json::parse(run.out)["tables"][0]["cells"][0];
  CHECK(cell["verdict"] == "outside");
  CHECK(cell["counts"] == true);
  CHECK(double(cell["error"]) == doctest::Approx(34.6 / 30 - 1));
  CHECK(contains(error_of({"reproduce", "--json"}), "--json is of tables; name one"));
  CHECK(contains(error_of({"reproduce", "zero-bubble", "--json", "--csv"}), "--csv and --json exclude each other"));
}

// a.csv: one run per line; quickstart with two micro-batches numbers. Line 3 is the one that a constant was fitted on.
TEST_CASE("reproduce --json of measured runs: a run per line, errors, and the file that each comes from") {
  const ScratchFolder folder;
  written(folder, "a.csv", "n,M,t\n4,8,34.6\n4,16,60\n4,32,110\n");
  const std::string scenario = file_text(source_folder() + "/" + kQuickstart) +
                               "\nmeasured:\n  table: mine\n  source: me\n  files: [{name: one, file: a.csv}]\n"
                               "  columns: {training.micro_batches: M}\n  devices: n\n  by: [M]\n"
                               "  figures: [{name: time, figure: step_time_s, column: t, unit: ms}]\n";
  const ProgramRun run = run_program({"reproduce", "-", "--json", "--data", folder.path("")}, {.input = scenario});
  CAPTURE(run.err);
  REQUIRE(run.status == 0);
  const json document = json::parse(run.out);
  CHECK(document["schema"] == "pipewright.measured-runs/2");
  REQUIRE(document["sets"].size() == 1);
  const json& set = document["sets"][0];
  REQUIRE(set["runs"].size() == 3);
  CHECK(set["runs"][0]["set"] == json::array({"training.micro_batches=8"}));
  CHECK(set["runs"][0]["line"] == 2);
  CHECK(set["runs"][0]["state"] == "compared");
  CHECK(double(set["runs"][0]["figures"][0]["predicted"]) == doctest::Approx(0.0346));
  CHECK(double(set["runs"][0]["figures"][0]["measured"]) == doctest::Approx(0.0346));
  CHECK(set["errors"][0]["runs"] == 3);
  CHECK(set["errors"][1]["split"] == "M");
  CHECK(set["errors"][1]["of"] == "8");
  CHECK(double(set["errors"][1]["mean"]) == doctest::Approx(0));
  CHECK(document["published"].empty());  // tables of papers stand where all sets are asked for
  CHECK(set["rows"]["all"] == 3);
  CHECK(document["written"].empty());

  const auto outputs = [&](const std::vector<std::string>& files) {
    std::vector<std::string> words = {"reproduce", "-", "--json", "--data", folder.path("")};
    for (const std::string& file : files)
      words.insert(words.end(), {"-o", folder.path(file)});
    return run_program(words, {.input = scenario});
  };
  const json again = json::parse(outputs({"b.md", "b.csv", "b.json"}).out);
  CHECK(again["written"] == json::array({folder.path("b.md"), folder.path("b.csv"), folder.path("b.json")}));
  CHECK(json::parse(file_text(folder.path("b.json"))) == again);
  CHECK(contains(file_text(folder.path("b.md")), "| "));
  CHECK(contains(file_text(folder.path("b.csv")), "a.csv"));
  const ProgramRun refused = outputs({"a.csv"});
  CHECK(refused.status == 2);
  CHECK(contains(refused.err, "a.csv\" is read by this command; name another file"));
  CHECK(contains(file_text(folder.path("a.csv")), "4,8,34.6"));
}

}  // namespace pipewright::tests
