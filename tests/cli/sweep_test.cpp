// `sweep` as a user meets it: table, files, threads, refusals.
#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

const std::string kHardware = "scenarios/what_if/hardware.yaml";

std::string sweep_of(const std::string& more) {
  return "sweep: {base: scenarios/quickstart.yaml, " + more + "}\n";
}
ProgramRun asked(const std::string& more, std::vector<std::string> options = {}) {
  std::vector<std::string> arguments = {"sweep", "-"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return run_program(arguments, {.folder = {}, .input = sweep_of(more), .output_to = {}, .settings = {}});
}

TEST_CASE("A row of a sweep is what simulate says of the same point") {
  const ProgramRun run = asked("grid: {plan.schedule: [gpipe, 1f1b], training.micro_batches: [8, 32]}", {"--json"});
  REQUIRE(run.status == 0);
  CHECK(run.err == "");
  const auto document = nlohmann::json::parse(run.out);
  CHECK(document.at("schema") == "pipewright.sweep/1");
  REQUIRE(document.at("rows").size() == 4);
  for (const auto& row : document.at("rows")) {
    std::vector<std::string> arguments = {"simulate", "scenarios/quickstart.yaml", "--json"};
    for (const auto& [key, value] : row.at("values").items()) {
      arguments.emplace_back("--set");
      arguments.push_back(key + "=" + value.get<std::string>());
    }
    const auto alone = nlohmann::json::parse(run_program(arguments).out);
    for (const char* key : {"step_time_s", "samples_per_s"})
      CHECK(row.at(key) == alone.at(key));
    CHECK(row.at("bubble") == alone.at("bubble_fraction"));
  }
}

TEST_CASE("The rows are the same whatever the number of threads, in every format") {
  for (const std::string& file : {kHardware, kBandwidth})
    for (const char* format : {"--json", "--csv", "--width=120"}) {
      const ProgramRun one = run_program({"sweep", file, "--jobs", "1", format});
      const ProgramRun four = run_program({"sweep", file, "--jobs", "4", format});
      CHECK(one.status == 0);
      CHECK(one.out == four.out);
    }
}

TEST_CASE("Files go by their ending; the plot is a drawing for light and dark that names its lines") {
  const ScratchFolder folder;
  const ProgramRun run = run_program({"sweep", kBandwidth, "-o", folder.path("a.csv"), "-o", folder.path("a.json"),
                                      "-o", folder.path("a.svg"), "-o", folder.path("b.svg"), "--y", "step_time"});
  CHECK(run.status == 0);
  CHECK(file_text(folder.path("a.csv")).starts_with("variant,cluster.network.bandwidth,step_time_s,"));
  CHECK(nlohmann::json::parse(file_text(folder.path("a.json"))).at("rows").size() == 21);
  const std::string svg = file_text(folder.path("a.svg"));
  CHECK(svg.starts_with("<svg"));
  CHECK(contains(svg, "prefers-color-scheme:dark"));
  CHECK(contains(svg, ">4 copies of 4 stages</text>"));
  CHECK(contains(svg, ">step time in s</text>"));
}

TEST_CASE("A plot of a utilization that no row has names the key that is missing") {
  const ScratchFolder folder;
  const auto plot = [&](const char* y, std::vector<std::string> more) {
    more.insert(more.end(), {"-o", folder.path("x.svg"), "--y", y});
    return asked("grid: {training.micro_batches: [8, 32]}", more);
  };
  const std::string layers =
      "model.layers=[{name: block, repeat: 24, forward: 1 ms, backward: 2 ms, activation: 1 MB, parameters: 1000, "
      "flops: 1 GFLOP}]";
  for (const char* y : {"mfu", "hfu"}) {
    const ProgramRun none = plot(y, {});
    CHECK(none.status == 2);
    CHECK_MESSAGE(
        contains(none.err, std::string("--y: no row has ") + y + ": model.layers: \"wide.0\" has no flops; write"),
        none.err);
    const ProgramRun peak = plot(y, {"--set", layers, "--set", "training.precision=tf32"});
    CHECK(peak.status == 2);
    CHECK_MESSAGE(contains(peak.err, "cluster.node.device.peak.tf32 is not given; write it"), peak.err);
  }
  CHECK(folder.files().empty());
  const ProgramRun same = plot("hfu", {"--set", layers});
  CHECK(same.status == 2);
  CHECK_MESSAGE(contains(same.err, "--y: no row has hfu: no forward is repeated (plan.recompute)"), same.err);
  CHECK(plot("mfu", {"--set", layers}).status == 0);
  CHECK(plot("hfu", {"--set", layers, "--set", "plan.recompute=full"}).status == 0);
}

TEST_CASE("--all shows every row of a long table, and --format writes a file as that") {
  const ScratchFolder folder;
  std::string batches;
  for (int i = 1; i <= 201; ++i)
    batches += (i == 1 ? "" : ", ") + std::to_string(i);
  const std::string grid = "grid: {training.micro_batches: [" + batches + "]}";
  const ProgramRun cut = asked(grid, {"-o", folder.path("rows"), "--format", "csv"});
  CHECK(cut.status == 0);
  CHECK(contains(cut.out, "161 rows are left out"));
  CHECK(contains(cut.out, "points        201 fit\n"));
  const std::string csv = file_text(folder.path("rows"));
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 202);
  CHECK_FALSE(contains(asked(grid, {"--all"}).out, "left out"));
  const ProgramRun real = asked(grid, {"--all", "--run"});  // whose table is never cut
  CHECK(real.status == 2);
  CHECK(contains(real.err, "--all: is for simulated sweeps; with --run there are the table of every point"));
}

TEST_CASE("--set changes the base before every variant") {
  const ProgramRun run = asked("grid: {training.micro_batches: [8]}, variants: {a: {plan.stages: 2}}",
                               {"--csv", "--set", "plan.schedule=gpipe"});
  CHECK(run.status == 0);
  CHECK(contains(run.out, "gpipe"));
  CHECK_FALSE(contains(run.out, "1f1b"));
}

TEST_CASE("A cut that nobody states is made for every point: where rows differ in it, a note says so") {
  const std::string faster = "grid: {model.layers.0.forward: [250 us, 100 us]}",
                    note = "the layers are cut again at every point";
  CHECK(contains(asked(faster).out, note));
  const auto document = nlohmann::json::parse(asked(faster, {"--json"}).out);
  CHECK(document.at("rows").at(0).at("layers") != document.at("rows").at(1).at("layers"));
  REQUIRE(document.at("notes").size() == 1);
  CHECK(contains(document.at("notes").at(0).get<std::string>(), note));
  CHECK_FALSE(contains(asked(faster, {"--set", "plan.partition={layers: [4, 4, 8, 8]}"}).out, note));
  CHECK_FALSE(contains(asked("grid: {training.micro_batches: [8, 16]}").out, note));
  CHECK_FALSE(contains(asked("grid: {plan.stages: [2, 4]}").out, note));
}

TEST_CASE("Points without an answer are rows, and the exit status stays 0") {
  const ProgramRun run = asked("grid: {plan.stages: [4, 25], training.micro_batches: [8]}");
  CHECK(run.status == 0);
  CHECK(contains(run.out, "25, 8: "));
  CHECK(contains(run.out, "25 stages for 24 layers"));
}

TEST_CASE("sweep refuses what it cannot do, with a way out") {
  CHECK(contains(error_of({"sweep", "scenarios/quickstart.yaml"}), "this is a scenario; a sweep file has the one key"));
  CHECK(contains(error_of({"simulate", kHardware}), "this is a sweep, not a scenario; ask it with pipewright sweep"));
  CHECK(contains(error_of({"sweep", kHardware, "--jobs", "0"}), "is not a whole number from 1 to 1024"));
  CHECK(contains(error_of({"sweep", kHardware, "--jobs", "many"}), "write e.g. --jobs 4"));
  CHECK(contains(error_of({"sweep", kHardware, "-o", "x.png"}), "known: .html, .json, .csv, .svg"));
  CHECK(contains(error_of({"sweep", kHardware, "-o", kHardware}), "is read by this command"));
  CHECK(contains(error_of({"sweep", kHardware, "-o", "scenarios/what_if/llama3-70b.yaml"}), "is read by this command"));
  CHECK(contains(error_of({"sweep", kHardware, "--json", "--csv"}), "exclude each other"));
  CHECK(contains(error_of({"sweep", kHardware, "-o", "x.svg", "--x", "plan.stages"}), "--x: unknown \"plan.stages\""));
  CHECK(contains(error_of({"sweep", kHardware, "-o", "x.svg", "--y", "step"}), "--y: unknown \"step\""));
  CHECK(contains(error_of({"sweep", kHardware, "--set", "plan.stagse=3"}), "did you mean \"stages\"?"));
}

}  // namespace
}  // namespace pipewright::tests
