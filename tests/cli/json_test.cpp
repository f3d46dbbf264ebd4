// `--json` of the commands whose product is a table or a file. Documents of simulate, plan, sweep and others are tested
// with them.
#include <algorithm>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"

namespace pipewright {
namespace {

using nlohmann::json;

const std::string kQuickstart = "scenarios/quickstart.yaml";
const std::string kSmall = "scenarios/validation/two-stage-gpipe.yaml";

json document_of(const std::vector<std::string>& arguments, int status = 0) {
  const ProgramRun run = run_program(arguments);
  CAPTURE(run.err);
  REQUIRE(run.status == status);
  return json::parse(run.out);
}

std::string written(const ScratchFolder& folder, const std::string& name, const std::string& text) {
  std::ofstream(folder.path(name), std::ios::binary) << text;
  return folder.path(name);
}

}  // namespace

TEST_CASE("Every command that answers has --json; texts for a shell, a pager or an editor have not") {
  const std::string help = run_program({"help"}).out;
  int commands = 0;
  for (const char* command : {"simulate", "plan", "launch", "compare", "sweep", "merge", "capacity", "calibrate", "run",
                              "validate", "accuracy", "reproduce", "check", "show", "import", "doctor", "init"}) {
    CAPTURE(command);
    CHECK(contains(help, std::string("  ") + command));
    CHECK(contains(run_program({"help", command}).out, "--json"));
    ++commands;
  }
  for (const char* command : {"schema", "completion", "help"})
    CHECK_FALSE(contains(run_program({"help", command}).out, "--json"));
  CHECK(commands == 17);
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

TEST_CASE("reproduce --json: a missed cell says so and makes status 1; without a name the tables are listed") {
  const std::string scenario = file_text(source_folder() + "/" + kQuickstart) +
                               "\nexpect: {table: mine, source: me, rows: [{name: a, quantity: step_time_s, unit: ms, "
                               "published: 30, tolerance: 5 %, reason: r}]}\n";
  const ProgramRun run = run_program({"reproduce", "-", "--json"}, {.input = scenario});
  CHECK(run.status == 1);
  const json cell = json::parse(run.out)["tables"][0]["cells"][0];
  CHECK(cell["verdict"] == "outside");
  CHECK(cell["counts"] == true);
  CHECK(double(cell["error"]) == doctest::Approx(34.6 / 30 - 1));
  const json list = document_of({"reproduce", "--json"});
  CHECK(list["schema"] == "pipewright.show/1");
  CHECK(list["entries"].size() > 10);
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
}

TEST_CASE("show model --json: every layer by itself, whose parameters are the model's") {
  const ScratchFolder folder;
  const std::string dot = folder.path("x.dot");
  const json model = document_of({"show", "model", "vgg19", "--json", "--operators", "--flops", "-o", dot});
  CHECK(model["schema"] == "pipewright.layers/1");
  CHECK(model["parameters"] == 143667240);  // torchvision's vgg19
  std::int64_t sum = 0;
  for (const json& layer : model["layers"])
    sum += layer["parameters"].get<std::int64_t>();
  CHECK(sum == 143667240);
  CHECK(model["layers"][1]["inputs"] == json::array({0}));
  const json& works = model["works"];
  CHECK(works[model["layers"][0]["work"].get<std::size_t>()][0]["kind"] == "convolution");
  CHECK(model["flops_of_a_sample"]["counted_as"]["complete"]["forward"].get<double>() > 3e10);
  CHECK(model["written"] == json::array({dot}));
  CHECK(contains(file_text(dot), "digraph"));
  CHECK_FALSE(document_of({"show", "model", "vgg19", "--json"}).contains("works"));
}

TEST_CASE("import --json says what the YAML says, with its numbers as numbers, and names the file") {
  const ScratchFolder folder;
  const std::string csv =
      written(folder, "s.csv",
              run_program({"simulate", kQuickstart, "-o", folder.path("q.schedule.csv")}).status == 0
                  ? file_text(folder.path("q.schedule.csv"))
                  : "");
  const json plan = document_of({"import", "schedule-csv", csv, "--json"});
  CHECK(plan["schema"] == "pipewright.import/1");
  CHECK(plan["gives"] == "plan");
  CHECK(plan["document"]["plan"]["stages"] == 4);
  CHECK(plan["document"]["training"]["micro_batches"] == 8);
  CHECK(plan["document"]["plan"]["schedule"]["file"] == csv);
  CHECK(plan["comments"].size() > 1);
  CHECK(plan["written"] == json::array());
  const std::string log = written(folder, "run.log",
                                  " iteration 1/ 2 | consumed samples: 64 | elapsed time per iteration (ms): 36.0 | "
                                  "global batch size: 64 | lm loss: 2.5 |\n");
  const std::string yaml = folder.path("run.yaml");
  const ProgramRun run = run_program({"import", "megatron-log", log, "--json", "-o", yaml});
  const json document = json::parse(run.out);
  CHECK(document["document"]["schema"] == "pipewright.run/1");
  CHECK(document["document"]["log"]["steps"][0]["time"] == "36 ms");
  CHECK(document["document"]["log"]["steps"][0]["loss"] == 2.5);
  CHECK(document["written"] == json::array({yaml}));
  CHECK(file_text(yaml) == run_program({"import", "megatron-log", log}).out);
}

TEST_CASE("init --json names the file that it wrote and what comes next") {
  const ScratchFolder folder;
  const std::string file = folder.path("a.yaml");
  const json made =
      document_of({"init", file, "--model", "gpt2", "--cluster", "dgx-h100x8", "--batch", "64", "--json"});
  CHECK(made["schema"] == "pipewright.init/1");
  CHECK(made["written"] == json::array({file}));
  CHECK(made["next"] == "pipewright plan " + file);
  CHECK(run_program({"check", file}).status == 0);
}

TEST_CASE("launch --json has the text that it would print, what differs, and the prices") {
  const std::vector<std::string> asked = {"launch", "scenarios/what_if/llama3-70b.yaml", "--for", "megatron"};
  std::vector<std::string> to_json = asked;
  to_json.push_back("--json");
  const json made = document_of(to_json);
  CHECK(made["schema"] == "pipewright.launch/1");
  CHECK(made["text"] == run_program(asked).out);
  CHECK(made["framework"] == "megatron");
  CHECK(made["fits"] == true);
  const json priced = document_of({"simulate", "scenarios/what_if/llama3-70b.yaml", "--json"});
  CHECK(double(made["predicted_asked"]["step_time_s"]) == doctest::Approx(double(priced["step_time_s"])));
}

TEST_CASE("calibrate --json has the profile's times in seconds, and a whole device's sizes") {
  const ScratchFolder folder;
  const std::string file = folder.path("here.yaml");
  const json profile = document_of({"calibrate", kSmall, "--budget", "100 ms", "--json", "-o", file});
  CHECK(profile["schema"] == "pipewright.calibration/1");
  CHECK(profile["written"] == json::array({file}));
  REQUIRE(profile["layers"].size() > 0);
  CHECK(profile["layers"][0]["forward_s"].get<double>() > 0);
  CHECK(profile["layers"][0]["forward_s"].get<double>() < 60);
  CHECK(contains(file_text(file), profile["layers"][0]["key"].get<std::string>().substr(0, 20)));
  const json device = document_of({"calibrate", "--backend", "cpu", "--budget", "1 ms", "--json"});
  CHECK(device["schema"] == "pipewright.device-calibration/1");
  CHECK(device["series"].size() > 0);
  CHECK(device["series"][0]["sizes"][0]["time_s"].get<double>() > 0);
  CHECK(device["written"] == json::array());
}

}  // namespace pipewright
