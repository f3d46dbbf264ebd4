// `accuracy` as a user runs it, on CPU cores. Nothing here depends on how long anything takes.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"
#include "tests/support/run_program.hpp"

using namespace pipewright::tests;

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Words = std::vector<std::string>;

// It goes on long enough to be interrupted on any machine.
const std::string kLonger = "scenarios/validation/one-micro-batch.yaml";

// A second scenario as small as the first.
std::string other(const ScratchFolder& scratch) {
  const std::string path = scratch.path("other.yaml");
  std::string text = file_text(source_folder() + "/" + kSmall);
  text.replace(text.find("name: small-ops"), 15, "name: other-ops");
  std::ofstream(path) << text;
  return path;
}

// Too few steps for a verdict.
Words words(const std::string& folder, const Words& more) {
  Words all = {"accuracy", "--budget", "50 ms", "--set", "run.steps=2", "--set", "run.warmup=0", "-o", folder};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

json parsed(const std::string& path) {
  return json::parse(file_text(path));
}

}  // namespace

TEST_CASE("accuracy: figures are those of validate, and a second call has nothing left to do") {
  ScratchFolder scratch;
  const std::string second = other(scratch);
  const std::string folder = scratch.path("study");
  const ProgramRun run = run_program(words(folder, {kSmall, second}));
  CHECK(run.status == 2);  // withheld
  CHECK(contains(run.out, "| small-ops |"));
  CHECK(contains(run.out, "0 of 2 scenarios judged. Memory to the byte: 2 of 2 that ran.\n"));
  CHECK(file_text(folder + "/accuracy.md") == run.out);
  const json table = parsed(folder + "/accuracy.json");
  CHECK(table["schema"] == "pipewright.study-summary/2");
  REQUIRE(table["runs"].size() == 2);
  for (const json& one : table["runs"]) {
    const std::string at = folder + "/" + one["scenario"].get<std::string>();
    CAPTURE(at);
    const json said = parsed(at + "/comparison.json"), predicted = parsed(at + "/prediction.json");
    CHECK(one["verdict"] == "withheld");
    CHECK(one["reason"] == said["reason"]);
    CHECK(one["step"]["predicted"] == said["step"]["predicted"]);
    CHECK(one["step"]["measured"] == said["step"]["measured_median"]);
    CHECK(one["step"]["error"] == said["step"]["error"]);
    const double middle = said["step"]["corrected"].get<double>(), half = said["step"]["band"].get<double>();
    CHECK(one["step"]["low"].get<double>() == doctest::Approx(middle * std::max(0.0, 1 - half)));
    CHECK(one["step"]["high"].get<double>() == doctest::Approx(middle * (1 + half)));
    std::int64_t most = 0;
    std::size_t fullest = 0;
    for (std::size_t w = 0; w < said["workers"].size(); ++w)
      if (const auto bytes = said["workers"][w]["extent"]["measured"].get<std::int64_t>(); bytes > most)
        most = bytes, fullest = w;
    CHECK(one["memory"]["measured"] == most);
    CHECK(one["memory"]["predicted"] == said["workers"][fullest]["extent"]["predicted"]);
    CHECK(one["memory"]["high"] == predicted["workers"][fullest]["memory_need_bytes"]["high"]);
    CHECK(one["memory"]["exact"] == true);
    // The folder's scenario is one that validate takes as it is.
    CHECK(run_program({"check", at + "/scenario.yaml"}).status == 0);
  }
  const ProgramRun again = run_program(words(folder, {kSmall, second}));
  CHECK(again.status == 2);
  CHECK(again.out == run.out);
  CHECK_FALSE(contains(again.err, "small-ops"));
  const json printed = json::parse(run_program(words(folder, {kSmall, second, "--json"})).out);
  CHECK(printed["runs"] == table["runs"]);
  CHECK(printed["written"] == json::array({folder + "/accuracy.md", folder + "/accuracy.json"}));
}

TEST_CASE("accuracy: what was stopped goes on behind what was never begun, and what is there stays" *
          doctest::test_suite("whole runs")) {
  ScratchFolder scratch;
  const std::string folder = scratch.path("study");
  ProgramInput stop;
  stop.interrupt_at = "small-ops: withheld";
  const ProgramRun stopped = run_program(words(folder, {kSmall, kLonger}), stop);
  CHECK(stopped.status == 130);
  CHECK(contains(stopped.err, "every result so far is kept in " + folder));
  CHECK(contains(file_text(folder + "/accuracy.md"), "| small-ops |"));
  const std::string first = file_text(folder + "/small-ops/comparison.json");
  fs::remove_all(folder + "/one-micro-batch");
  fs::copy(folder + "/small-ops", folder + "/kept", fs::copy_options::recursive);
  fs::remove(folder + "/small-ops/comparison.json");  // as it is left by a run that was stopped
  const ProgramRun rest = run_program(words(folder, {kSmall, kLonger}));
  CHECK(rest.err.find("one-micro-batch: withheld") < rest.err.find("small-ops: withheld"));
  const std::string second = file_text(folder + "/one-micro-batch/comparison.json");
  fs::remove_all(folder + "/small-ops");
  fs::rename(folder + "/kept", folder + "/small-ops");
  run_program(words(folder, {kSmall, kLonger}));
  CHECK(file_text(folder + "/small-ops/comparison.json") == first);
  CHECK(file_text(folder + "/one-micro-batch/comparison.json") == second);
}

TEST_CASE("accuracy: a scenario ends at its deadline, one that cannot be run says why, and the others are run" *
          doctest::test_suite("whole runs")) {
  ScratchFolder scratch;
  const std::string second = other(scratch);
  const std::string folder = scratch.path("study"), big = scratch.path("big.yaml");
  std::string text = file_text(source_folder() + "/" + kSmall);
  text.replace(text.find("name: small-ops"), 15, "name: big");
  text.replace(text.find("run: {"), 6, "run: {memory_cap: 4 KiB, ");
  std::ofstream(big) << text;
  const ProgramRun run = run_program(words(folder, {big, kSmall}));
  CHECK(run.status == 2);
  CHECK(contains(run.out, "| failed: infeasible: worker 0: "));
  CHECK(contains(run.err, "small-ops: withheld"));
  const std::string late = scratch.path("late");
  const ProgramRun ended = run_program(words(late, {kSmall, second, "--deadline", "1 ms"}));
  CHECK(ended.status == 2);
  CHECK(contains(ended.out, "| failed: error: was not done after 1.00 ms |"));
  CHECK(contains(ended.err, "other-ops: failed: error: was not done after 1.00 ms"));
  CHECK(contains(run_program(words(late, {kSmall, second})).out, "2 of 2 that ran"));
}

TEST_CASE("accuracy: variants of a scenario are runs of their own, all from one profile where one is given") {
  ScratchFolder scratch;
  const std::string folder = scratch.path("study"), varied = scratch.path("varied.yaml"),
                    profile = scratch.path("profile.yaml");
  std::ofstream(varied) << file_text(source_folder() + "/" + kSmall)
                        << "vary: {plan.schedule: [gpipe, 1f1b], training.micro_batches: [2]}\n";
  const ProgramRun calibrated = run_program({"calibrate", kSmall, "--budget", "50 ms", "-o", profile});
  REQUIRE_MESSAGE(calibrated.status == 0, calibrated.err);
  const ProgramRun run = run_program(words(folder, {varied, "--profile", profile}));
  for (const std::string name : {"small-ops-k2-m2-gpipe", "small-ops-k2-m2-1f1b"}) {
    CHECK(contains(run.out, "| " + name + " |"));
    CHECK(file_text(folder + "/" + name + "/profile.yaml") == file_text(profile));
  }
}

TEST_CASE("accuracy: other settings, folders of something else and bad options are refused, and nothing is measured") {
  ScratchFolder scratch;
  const std::string folder = scratch.path("study");
  CHECK(contains(error_of(words(folder, {kSmall, kSmall})), "a second run is called \"small-ops\""));
  CHECK(contains(error_of(words(folder, {kSmall, "--deadline", "soon"})), "--deadline: \"soon\" is not a time"));
  CHECK(contains(error_of(words(folder, {kSmall, "--set", "run.transport=peer"})), "run.transport: peer joins GPUs"));
  CHECK_FALSE(fs::exists(folder));
  run_program(words(folder, {kSmall, "--deadline", "1 ms"}));
  const std::string other = error_of(words(folder, {kSmall, "--set", "run.seed=2"}));
  CHECK(contains(other, "small-ops\" holds something else than this scenario with these settings"));
  fs::remove(folder + "/small-ops/scenario.yaml");
  std::ofstream(folder + "/small-ops/thesis.tex") << "mine";
  CHECK(contains(error_of(words(folder, {kSmall})), "holds something else"));
  CHECK(file_text(folder + "/small-ops/thesis.tex") == "mine");
}

// K stages have 1/K of the layers on 1/K of the SMs: their ops take what the whole model takes on the whole GPU.
TEST_CASE("accuracy: an op of its pipelines takes at least 0.5 ms, as presets of large GPUs price it") {
  for (const std::string file : {"pipeline", "cnn"})
    for (const std::string device : {"h100-sxm-80g", "h200-sxm-141g"}) {
      CAPTURE(file);
      const ProgramRun run = run_program({"simulate", "scenarios/gpu/" + file + ".yaml", "--json", "--set",
                                          "plan.stages=1", "--set", "cluster.node.device=" + device});
      REQUIRE(run.status == 0);
      CHECK(json::parse(run.out)["stages"][0]["forward_s"].get<double>() >= 0.5e-3);
    }
}

TEST_CASE("accuracy: without a GPU it says what is missing and leaves nothing behind") {
  if (contains(run_program({"doctor"}).out, "\n  GPU 0 ")) return;
  ScratchFolder scratch;
  const std::string folder = scratch.path("study");
  CHECK(contains(error_of({"accuracy", "-o", folder}), "pipeline-k1-m4-gpipe needs a GPU: "));
  CHECK_FALSE(fs::exists(folder));
}
