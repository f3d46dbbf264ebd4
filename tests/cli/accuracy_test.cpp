// `accuracy` as a user runs it, without a GPU: the dry run, what it refuses, and how it goes on. Nothing here depends
// on how long anything takes.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"
#include "tests/support/run_program.hpp"

using namespace pipewright;

namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

// One step per run, so that a run can neither be noisy nor be repeated for that.
Words dry_run(const std::string& folder, const Words& more = {}) {
  Words words = {"accuracy",    "--dry-run", "--budget",     "5 min", "--set",
                 "run.steps=1", "--set",     "run.warmup=0", "-o",    folder};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Every file under a folder with its text, by path within it.
std::map<std::string, std::string> texts(const std::string& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) all[fs::relative(entry.path(), folder).string()] = file_text(entry.path().string());
  return all;
}

// As if what it is of had thrown.
void mark_failed(const std::string& path) {
  auto record = nlohmann::ordered_json::parse(file_text(path));
  record["status"] = "failed", record["reason"] = "made up";
  std::ofstream(path) << record.dump(2) << "\n";
}

bool no_gpu_here() {
  return !contains(run_program({"doctor"}).out, "\n  GPU 0 ");
}

}  // namespace

TEST_CASE("accuracy: a dry run goes through all parts, marks every file, and has nothing left to do") {
  ScratchFolder scratch;
  const std::string folder = scratch.path("study");
  const ProgramRun run = run_program(dry_run(folder));
  CHECK(run.status == 0);
  CHECK(contains(run.out, "**A dry run**"));
  CHECK(contains(run.out, "| 5 | largest number of layers | as predicted | 4 of 4 | met |"));
  CHECK(contains(run.out, "| 6 | gradients on own kernels | the same bits on 1, 2, 4 and 8 | 4 of 4 | met |"));
  CHECK(contains(run.out, "| 3 | step time, 8 virtual devices | mean error at most 8 % | not applicable |"));

  const auto first = texts(folder);
  CHECK(first.size() > 100);
  for (const auto& [name, text] : first) {
    CAPTURE(name);
    CHECK(contains(text.substr(0, 200), name.ends_with(".json") ? "\"dry_run\": true" : "dry_run: true"));
    if (name.ends_with(".json")) CHECK(nlohmann::json::accept(text));
  }
  for (const std::string name :
       {"part-1/device.attempt-1.json", "part-2/cpu.yaml", "part-3/pipeline-k8-m32-1f1b.attempt-1.json",
        "part-3/pipeline-k8-m32-1f1b/attempt-1/prediction.json", "part-4/speed-up-k4-m32-gpipe.attempt-1.json",
        "part-5/largest-k8.attempt-1.json", "part-6/gradients-k8-fp32-own.attempt-1.json", "accuracy.svg"}) {
    CAPTURE(name);
    CHECK(first.contains(name));
  }
  const auto groups = nlohmann::json::parse(first.at("part-1/groups-8.attempt-1.json"));
  CHECK(groups["status"] == "not applicable");

  // Nothing is calibrated, predicted or run again, and the summary comes from the results alone.
  const ProgramRun again = run_program(dry_run(folder));
  CHECK(again.status == 0);
  CHECK(again.out == run.out);
  CHECK_FALSE(contains(again.err, "attempt 1"));
  fs::remove(folder + "/accuracy.md");
  CHECK(run_program({"accuracy", "--summary", "-o", folder}).out == run.out);
  auto after = texts(folder);
  for (const auto& [name, text] : first) {
    CAPTURE(name);
    if (!name.starts_with("part-6/compute-sanitizer") && !name.starts_with("part-2/families"))
      CHECK(after[name] == text);
  }
}

TEST_CASE("accuracy: what was stopped goes on, from the same calibration, and an attempt that never ended stays told") {
  ScratchFolder scratch;
  const std::string folder = scratch.path("study");
  ProgramInput stop;
  stop.interrupt_at = "part 3: pipeline-k2-m8-1f1b: attempt 1";  // Ctrl-C ends it there
  const ProgramRun stopped = run_program(dry_run(folder, {"--part", "2", "--part", "3"}), stop);
  CHECK(stopped.status == 130);
  CHECK(contains(stopped.err, "every result so far is kept in " + folder));
  std::ofstream(folder + "/part-3/x.attempt-1.json.aB3dE6") << "{";  // as kill -9 leaves it
  auto before = texts(folder);
  REQUIRE(before.contains("part-3/pipeline-k1-m4-gpipe.attempt-1.json"));
  CHECK_FALSE(before.contains("part-3/recompute-k4-m16-gpipe.attempt-1.json"));

  // As a run that was killed in its midst leaves it.
  const std::string killed = "part-3/pipeline-k1-m4-gpipe.attempt-1.json";
  auto record = nlohmann::ordered_json::parse(before[killed]);
  record["status"] = "interrupted";
  std::ofstream(folder + "/" + killed) << record.dump(2) << "\n";
  const ProgramRun rest = run_program(dry_run(folder, {"--part", "3"}));
  CHECK(rest.status == 0);
  const auto after = texts(folder);
  CHECK_FALSE(after.contains("part-3/x.attempt-1.json.aB3dE6"));
  before.erase("part-3/x.attempt-1.json.aB3dE6");
  CHECK(after.at("part-2/cpu.yaml") == before.at("part-2/cpu.yaml"));
  CHECK(nlohmann::json::parse(after.at(killed))["status"] == "interrupted");
  CHECK(nlohmann::json::parse(after.at("part-3/pipeline-k1-m4-gpipe.attempt-2.json"))["status"] == "withheld");
  CHECK(after.contains("part-3/recompute-k4-m16-gpipe.attempt-1.json"));
  for (const auto& [name, text] : before)
    if (name.ends_with("attempt-1.json") && name != killed && contains(text, "\"status\": \"withheld\""))
      CHECK(after.at(name) == text);

  fs::remove(folder + "/part-2/cpu.yaml");  // nothing is calibrated after a prediction
  CHECK(contains(error_of(dry_run(folder, {"--part", "2"})), "nothing is calibrated twice"));
  fs::remove(folder + "/part-2/cpu.attempt-1.json");
  CHECK(contains(error_of(dry_run(folder, {"--part", "2"})), "nothing is calibrated after a prediction was seen"));
}

TEST_CASE("accuracy: what a part's time does not suffice for is left out, listed, and done by the next call") {
  ScratchFolder scratch;
  const std::string folder = scratch.path("study");
  const ProgramRun none = run_program({"accuracy", "--dry-run", "--part", "6", "--budget", "1 ns", "-o", folder});
  CHECK(none.status == 2);
  CHECK(contains(none.out, "| 6 | gradients-k8-fp32-own | 0 | left out | the part's 1 ns were used up"));
  const ProgramRun rest = run_program({"accuracy", "--dry-run", "--part", "6", "-o", folder});
  CHECK(rest.status == 0);
  CHECK_FALSE(contains(rest.out, "| left out |"));
  CHECK_FALSE(fs::exists(folder + "/part-6/gradients-k8-fp32-own.attempt-0.json"));
}

TEST_CASE("accuracy: a profile without time leaves out what is predicted with it; all other parts are reached") {
  ScratchFolder scratch;
  const std::string folder = scratch.path("study");
  const ProgramRun run = run_program({"accuracy", "--dry-run", "--budget", "1 ns", "-o", folder});
  CHECK(run.status == 2);
  CHECK(contains(run.out, "| 2 | cpu-staged | 0 | left out | the part's 1 ns were used up"));
  CHECK(
      contains(run.out, "| 3 | staged-k2-m8-1f1b | 0 | left out | part 2 has no profile cpu-staged: the part's 1 ns"));
  for (const std::string name : {"part-4/speed-up-k4-m32-gpipe", "part-5/largest-k8", "part-6/gradients-k8-fp32-own"}) {
    CAPTURE(name);
    CHECK(fs::exists(folder + "/" + name + ".attempt-0.json"));
  }
}

TEST_CASE("accuracy: a profile that fails takes nothing else with it, and the next call tries it again") {
  ScratchFolder scratch;
  const std::string folder = scratch.path("study"), profile = folder + "/part-2/cpu-staged.yaml";
  CHECK(run_program(dry_run(folder, {"--part", "1"})).status == 0);
  fs::create_directories(profile + "/in-its-way");  // what is measured cannot be kept
  const Words words = dry_run(folder, {"--part", "2", "--part", "3"});
  const ProgramRun failed = run_program(words);
  CHECK(failed.status == 2);
  CHECK(contains(failed.out, "| cpu-staged | failed | failed |"));
  CHECK(contains(failed.out, "| 2 | cpu-staged | 1 | failed | " + profile + ": cannot write"));
  CHECK(contains(failed.out, "| 3 | staged-k4-m16-1f1b | 0 | left out | part 2 has no profile cpu-staged: " + profile));
  const auto before = texts(folder);
  CHECK(before.contains("part-2/operations.attempt-1.json"));
  CHECK(before.contains("part-3/recompute-k4-m16-gpipe.attempt-1.json"));
  CHECK(run_program(dry_run(folder, {"--part", "2"})).status == 2);

  fs::remove_all(profile);
  const ProgramRun rest = run_program(words);
  CHECK(rest.status == 0);
  const auto after = texts(folder);
  CHECK(nlohmann::json::parse(after.at("part-2/cpu-staged.attempt-1.json"))["status"] == "failed");
  CHECK(nlohmann::json::parse(after.at("part-2/cpu-staged.attempt-3.json"))["status"] == "done");
  CHECK(after.contains("part-3/staged-k4-m16-1f1b.attempt-1.json"));
  CHECK_FALSE(after.contains("part-3/staged-k4-m16-1f1b.attempt-0.json"));
  for (const std::string name : {"part-2/cpu.yaml", "part-3/recompute-k4-m16-gpipe.attempt-1.json"}) {
    CAPTURE(name);
    CHECK(after.at(name) == before.at(name));
  }
}

TEST_CASE("accuracy: a profile tried again has the rest of the part's time, which is told whole") {
  ScratchFolder scratch;
  const std::string folder = scratch.path("study");
  CHECK(run_program(dry_run(folder, {"--part", "2"})).status == 0);
  mark_failed(folder + "/part-2/cpu-staged.attempt-1.json");
  Words words = dry_run(folder, {"--part", "2"});
  *std::find(words.begin(), words.end(), "5 min") = "1 ns";
  const ProgramRun run = run_program(words);
  CHECK(run.status == 2);
  CHECK(contains(run.err, "part 2: cpu-staged: left out: the part's 1 ns were used up; call again to go on"));
}

TEST_CASE("accuracy: gradients that failed are tried again behind the rest, and are no reference before") {
  ScratchFolder scratch;
  const std::string folder = scratch.path("study"), part = folder + "/part-6/gradients-";
  const Words words = dry_run(folder, {"--part", "6"});
  CHECK(run_program(words).status == 0);
  mark_failed(part + "k1-fp32-own.attempt-1.json"), mark_failed(part + "k2-fp32-own.attempt-1.json");
  fs::remove(part + "k4-fp32-own.attempt-1.json");
  const auto before = texts(folder);
  const ProgramRun run = run_program(words);
  CHECK(run.status == 0);
  const auto told = [&](const std::string& k) { return run.err.find("part 6: gradients-" + k + "-fp32-own: 0 of "); };
  REQUIRE(told("k1") != std::string::npos);
  CHECK(told("k4") < told("k1"));
  CHECK(told("k1") < told("k2"));
  const auto against = [&](const std::string& file) {
    return nlohmann::json::parse(file_text(part + file))["words"]["against"].get<std::string>();
  };
  CHECK(against("k4-fp32-own.attempt-1.json") == "the same, without schedule or transport");
  CHECK(against("k1-fp32-own.attempt-2.json") == "the same, without schedule or transport");
  CHECK(against("k2-fp32-own.attempt-2.json") == "one worker of the same backend");
  CHECK(texts(folder).at("part-6/gradients-k8-fp32-own.attempt-1.json") ==
        before.at("part-6/gradients-k8-fp32-own.attempt-1.json"));
}

TEST_CASE("accuracy: gradients that are done are not left out as the reference of others") {
  ScratchFolder scratch;
  const std::string folder = scratch.path("study"), part = folder + "/part-6/gradients-";
  CHECK(run_program({"accuracy", "--dry-run", "--part", "6", "-o", folder}).status == 0);
  fs::remove(part + "k4-fp32-own.attempt-1.json");
  const ProgramRun run = run_program({"accuracy", "--dry-run", "--part", "6", "--budget", "1 ns", "-o", folder});
  CHECK(run.status == 2);
  CHECK_FALSE(contains(run.err, "gradients-k1-fp32-own"));
  CHECK_FALSE(fs::exists(part + "k1-fp32-own.attempt-0.json"));
  CHECK(fs::exists(part + "k4-fp32-own.attempt-0.json"));
}

TEST_CASE("accuracy: a search that never ended goes on behind the others, and is told until it has ended") {
  ScratchFolder scratch;
  const std::string folder = scratch.path("study"), part = folder + "/part-5/largest-";
  const Words words = dry_run(folder, {"--part", "5"});
  CHECK(run_program(words).status == 0);
  auto record = nlohmann::ordered_json::parse(file_text(part + "k1.layers-2.attempt-1.json"));
  record["status"] = "interrupted";
  std::ofstream(part + "k1.layers-2.attempt-1.json") << record.dump(2) << "\n";
  fs::remove(part + "k1.attempt-1.json"), fs::remove(part + "k4.attempt-1.json");
  CHECK(run_program({"accuracy", "--summary", "-o", folder}).status == 2);
  const ProgramRun run = run_program(words);
  CHECK(run.status == 0);
  const auto told = [&](const std::string& k) { return run.err.find("part 5: largest-" + k + ": predicted "); };
  REQUIRE(told("k1") != std::string::npos);
  CHECK(told("k4") < told("k1"));
  CHECK(fs::exists(part + "k1.layers-2.attempt-2.json"));
}

TEST_CASE("accuracy: results say their day, and of which program they are; another commit goes on, and is told") {
  ScratchFolder scratch;
  const std::string folder = scratch.path("study"), file = folder + "/part-1/device.attempt-1.json";
  const Words words = dry_run(folder, {"--part", "1", "--part", "6"});
  const ProgramRun run = run_program(words);
  CHECK(run.status == 0);
  auto facts = nlohmann::ordered_json::parse(file_text(file));
  const auto program = facts["words"]["program"].get<std::string>(), day = facts["words"]["date"].get<std::string>();
  CHECK(program.starts_with("0."));
  CHECK_FALSE(contains(program, "(0."));  // no commit is not the version again
  CHECK(day.size() == std::string("2026-01-31").size());
  CHECK(contains(run.out, "| date | " + day + " |\n| pipewright | " + program + " |\n"));
  for (const std::string name : {"part-1/groups-2", "part-6/gradients-k8-fp32-own", "part-6/compute-sanitizer"})
    CHECK(contains(file_text(folder + "/" + name + ".attempt-1.json"), "\"date\": \"20"));

  facts["words"]["program"] = "0.1.0 (made up)";
  std::ofstream(file) << facts.dump(2) << "\n";
  const ProgramRun other = run_program(words);
  CHECK(other.status == 0);
  CHECK(contains(other.err, folder + ": part 1 is of pipewright 0.1.0 (made up), this is " + program));
  CHECK_FALSE(
      contains(run_program({"accuracy", "--dry-run", "-o", scratch.path("new"), "--part", "1"}).err, "this is"));
}

TEST_CASE("accuracy: a dry run keeps away from where measured results are kept") {
  ScratchFolder scratch;
  const std::string tree = scratch.path("tree"), link = scratch.path("link");
  fs::create_directories(tree + "/configs/devices"), fs::create_directories(tree + "/docs");
  fs::create_directory_symlink(tree + "/docs", link);
  for (const std::string& folder :
       {tree + "/configs/devices", tree + "/configs/devices/new", tree + "/docs/accuracy-gpu",
        tree + "/configs/../docs", link + "/new", std::string("docs/accuracy-gpu")}) {
    CAPTURE(folder);
    CHECK(contains(error_of({"accuracy", "--dry-run", "-o", folder}), "a dry run measures nothing of a GPU"));
  }
  CHECK(texts(tree).empty());
  CHECK_FALSE(fs::exists(source_folder() + "/docs/accuracy-gpu/study.json"));
}

TEST_CASE("accuracy: results of other settings, and folders of something else, are refused") {
  ScratchFolder scratch;
  const std::string folder = scratch.path("study");
  CHECK(run_program({"accuracy", "--dry-run", "--part", "1", "-o", folder}).status == 0);
  CHECK(contains(error_of({"accuracy", "--dry-run", "--part", "1", "--set", "run.seed=2", "-o", folder}),
                 "holds a study of other settings (--set: nothing there, run.seed=2 now); "));
  CHECK(contains(error_of({"accuracy", "--dry-run", "--part", "3", "-o", folder}), "run --part 2 first"));

  std::ofstream(folder + "/part-1/device.attempt-1.json") << "{\"schema\": ";
  CHECK(contains(error_of({"accuracy", "--dry-run", "--part", "1", "-o", folder}),
                 "part-1/device.attempt-1.json:1:12: not valid JSON: it ends within a value"));
  CHECK(contains(error_of({"accuracy", "--summary", "-o", folder}), "device.attempt-1.json"));

  const std::string other = scratch.path("other");
  fs::create_directories(other);
  std::ofstream(other + "/thesis.tex") << "mine";
  CHECK(contains(error_of({"accuracy", "--dry-run", "-o", other}), "holds something else than a study"));
  CHECK(contains(error_of({"accuracy", "--summary", "-o", other}), "holds no results of `pipewright accuracy`"));
}

// K stages have 1/K of the layers on 1/K of the SMs: their ops take what the whole model takes on the whole GPU.
TEST_CASE("accuracy: an op of its pipelines takes at least 0.5 ms, as presets of large GPUs price it") {
  for (const std::string file : {"pipeline", "cnn"})
    for (const std::string device : {"h100-sxm-80g", "h200-sxm-141g"}) {
      CAPTURE(file);
      const ProgramRun run = run_program({"simulate", "scenarios/gpu/" + file + ".yaml", "--json", "--set",
                                          "plan.stages=1", "--set", "cluster.node.device=" + device});
      REQUIRE(run.status == 0);
      CHECK(nlohmann::json::parse(run.out)["stages"][0]["forward_s"].get<double>() >= 0.5e-3);
    }
}

TEST_CASE("accuracy: bad options are named with a way out") {
  CHECK(contains(error_of({"accuracy", "--part", "7"}), "--part: \"7\" must be 1 to 6"));
  CHECK(contains(error_of({"accuracy", "--part", "one"}), "--part: \"one\""));
  CHECK(contains(error_of({"accuracy", "--budget", "6 min"}), "no time of at most 5 min"));
  CHECK(contains(error_of({"accuracy", "--backend", "cpu"}), "known: cuda. With --dry-run"));
  CHECK(contains(error_of({"accuracy", "--summary", "--dry-run"}), "--summary measures nothing"));
  CHECK(contains(error_of({"accuracy", "--dry-run", "--set", "plan.stages=9"}), "scenarios/gpu/"));
  CHECK(contains(error_of({"accuracy", "--summary", "--set", "run.steps=1"}), "so --set says nothing to it"));
  ScratchFolder scratch;  // found before the first measurement
  CHECK(contains(error_of({"accuracy", "--dry-run", "--set", "run.transport=peer", "-o", scratch.path("study")}),
                 "run.transport: peer joins GPUs"));
  CHECK_FALSE(fs::exists(scratch.path("study")));
}

TEST_CASE("accuracy: without a GPU it says what is missing and leaves nothing behind") {
  if (!no_gpu_here()) return;
  ScratchFolder scratch;
  const std::string folder = scratch.path("study");
  const std::string said = error_of({"accuracy", "-o", folder});
  CHECK(contains(said, "there is no GPU to measure: "));
  CHECK(contains(said, "--dry-run goes through every step without one"));
  CHECK_FALSE(fs::exists(folder));
}
