// `run`, `calibrate` and `validate` as a user runs them. Nothing here depends on how long anything takes.
#include <cstdint>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "io/writers/writers.hpp"
#include "tests/cli/refusals.hpp"
#include "tests/support/run_program.hpp"

using namespace pipewright;

namespace {

const std::string kTwoStages = "scenarios/validation/two-stage-gpipe.yaml";
// Its steps take a millisecond: what is asked of it is quick under sanitizers, too.
const std::string kSmall = "scenarios/validation/small-ops.yaml";
const std::string kQuickstart = "scenarios/quickstart.yaml";

}  // namespace

TEST_CASE("run: gradients are bit-identical to one worker's") {
  const ProgramRun run = run_program({"run", kTwoStages, "--check", "gradients"});
  CHECK(run.status == 0);
  CHECK(run.out.starts_with("gradients: bit-identical to one worker's\n"));
  CHECK(contains(run.out, "635776 values, 0 differ"));
}

TEST_CASE("run: memory is what was counted, and the measured step is a document that compare reads") {
  ScratchFolder folder;
  const std::string path = folder.path("measured.json");
  const ProgramRun run = run_program({"run", kTwoStages, "--steps", "2", "--warmup", "0", "-o", path});
  CHECK(run.status == 0);
  CHECK(contains(run.out, "as counted, to the byte"));
  const auto document = nlohmann::json::parse(file_text(path));
  CHECK(document["schema"] == "pipewright.result/1");
  CHECK(run_program({"compare", path, path}).status == 0);
}

TEST_CASE("run: a cap that does not hold a worker is the answer no, itemised") {
  const ProgramRun run = run_program({"run", kTwoStages, "--memory-cap", "1 MB"});
  CHECK(run.status == 1);
  CHECK(contains(run.out, "infeasible: worker 0: "));
  CHECK(contains(run.out, "would end at"));
  CHECK(contains(run.out, "what would make it fit"));
}

TEST_CASE("run: what cannot be run is refused with the layer and a way out") {
  CHECK(contains(error_of({"run", kQuickstart}), "has stated figures only; give it an `op:`"));
  CHECK(contains(error_of({"run", kTwoStages, "--transport", "carrier"}), "known: local, throttled, tcp, mpi"));
  CHECK(contains(error_of({"run", kTwoStages, "--data", "/"}), "/"));
  CHECK(contains(error_of({"run", kTwoStages, "--data", "no-such-file"}), "no-such-file"));
  CHECK(contains(error_of({"run", kTwoStages, "--steps", "0"}), "run.steps"));
  CHECK(contains(error_of({"run", kTwoStages, "--timeout", "1e10"}), "at most 1000000"));
  CHECK(contains(error_of({"run", kTwoStages, "--check", "weights"}), "known: gradients"));
  CHECK(contains(error_of({"run", kTwoStages, "--set", "plan.recompute=selective"}), "plan.recompute"));
  CHECK(contains(error_of({"run", kTwoStages, "-o", "run.xyz"}), "run.xyz"));
  for (const char* const sizes : {"", "1,", "x", "1,-2", "0", "1 2"})
    CHECK(contains(error_of({"calibrate", kTwoStages, "--sizes", sizes}), "is no list of whole numbers"));
}

TEST_CASE("run: a loss that is no number ends the run; what was measured until then is shown") {
  const ProgramRun run = run_program({"run", kTwoStages, "--learning-rate", "1e30", "--steps", "30"});
  CHECK(run.status == 2);
  CHECK(contains(run.err, "the run failed: worker 1 at op 1F"));
  CHECK(contains(run.err, "smaller learning_rate"));
  CHECK(contains(run.out, "measured until then"));
}

TEST_CASE("run: three steps and three resumed ones leave the files of six, and say where they went on") {
  ScratchFolder folder;
  const auto run = [&](const std::string& to, const std::string& steps, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"run", kSmall, "--warmup", "0", "--steps", steps, "--checkpoint", folder.path(to),
                               "--every", "3", "--set", "training.optimizer=adam", "--learning-rate", "0.01"});
    return run_program(more);
  };
  CHECK(run("whole", "6").status == 0);
  const ProgramRun first = run("cut", "3");
  CHECK(first.status == 0);
  CHECK(contains(first.err, "wrote " + folder.path("cut/step-3") + " (checkpoint)"));
  const ProgramRun second = run("cut", "6", {"--resume"});
  CHECK(second.status == 0);
  CHECK(contains(second.out, "over 3 steps of 16 samples behind the 3 of the checkpoint"));
  for (const std::string file : {"/step-6/manifest", "/step-6/worker-0", "/step-6/worker-1"})
    CHECK(file_text(folder.path("cut" + file)) == file_text(folder.path("whole" + file)));

  const ProgramRun again = run("cut", "6");
  CHECK(again.status == 2);
  CHECK(contains(again.err, "/step-6: this folder has a checkpoint already; go on from it with --resume"));
  CHECK(contains(run("cut", "6", {"--resume"}).err, "all of the run's 6 steps"));
  const ProgramRun other = run("cut", "9", {"--resume", "--set", "plan.schedule=gpipe"});
  CHECK(other.status == 2);
  CHECK(contains(other.err, "/step-6/manifest: the checkpoint's run differs in its plan (1f1b, 2 workers"));
  CHECK(contains(run("cut", "9", {"--resume", "--seed", "2"}).err, "differs in its settings (seed 1, adam"));
  const ProgramRun failed = run("cut", "9", {"--resume", "--memory-cap", "1 kB"});
  CHECK(failed.status == 1);
}

TEST_CASE("run: --checkpoint, --every and --resume that make no sense are refused") {
  ScratchFolder folder;
  CHECK(contains(error_of({"run", kSmall, "--resume"}), "--resume needs the folder of the checkpoints"));
  CHECK(contains(error_of({"run", kSmall, "--every", "2"}), "--every needs the folder of the checkpoints"));
  for (const char* const every : {"", "0", "-1", "x", "2.5", "99999999999"})
    CHECK(contains(error_of({"run", kSmall, "--checkpoint", folder.path("c"), "--every", every}),
                   "is no number of steps; write e.g. --every 10"));
  CHECK(contains(error_of({"run", kSmall, "--checkpoint", folder.path("c"), "--check", "gradients"}),
                 "does not go with --check gradients"));
  CHECK(contains(error_of({"run", kSmall, "--checkpoint", "/dev/null"}), "--checkpoint /dev/null: "));
  CHECK(contains(error_of({"run", kSmall, "--checkpoint", folder.path("none"), "--resume"}),
                 "has no checkpoint; leave --resume out to begin"));
}

TEST_CASE("calibrate: a profile that simulate prices with; layers it does not have are named") {
  ScratchFolder folder;
  const std::string path = folder.path("here.yaml");
  const ProgramRun run = run_program({"calibrate", kSmall, "--budget", "100 ms", "-o", path});
  CHECK(run.status == 0);
  CHECK(contains(run.out, "2 workers busy"));
  const std::string cost = "cost={profile: " + path + "}";
  CHECK(run_program({"simulate", kSmall, "--set", cost}).status == 0);
  CHECK(contains(run_program({"check", path}).out, "ok (profile, "));
  CHECK(contains(error_of({"simulate", path}), "this is a profile of a machine, not a scenario"));
  CHECK(contains(error_of({"simulate", kSmall, "--set", cost, "--set", "training.micro_batch_size=3"}),
                 "micro-batches of 3 samples (measured: 1)"));
  CHECK(contains(error_of({"calibrate", kSmall, "--budget", "0 s"}), "--budget"));
}

TEST_CASE("validate: the folder has profile, prediction, measurement and comparison; memory is exact") {
  ScratchFolder folder;
  const std::string out = folder.path("out");
  const ProgramRun run =
      run_program({"validate", kSmall, "--budget", "100 ms", "--steps", "5", "--warmup", "0", "-o", out});
  CHECK(run.status != 130);  // within, outside or withheld: a matter of the machine
  for (const std::string file : {"profile.yaml", "prediction.json", "measurement.json", "comparison.json", "loss.csv",
                                 "overlay.svg", "measured.trace.json"})
    CHECK(std::filesystem::file_size(out + "/" + file) > 0);
  const auto comparison = nlohmann::json::parse(file_text(out + "/comparison.json"));
  CHECK(comparison["schema"] == "pipewright.validation/1");
  for (const auto& worker : comparison["workers"]) {
    CHECK(worker["live_peak"]["predicted"] == worker["live_peak"]["measured"]);
    CHECK(worker["extent"]["predicted"] == worker["extent"]["measured"]);
  }
  CHECK(file_text(out + "/loss.csv").starts_with("step,loss\n0,"));
}

TEST_CASE("validate: more workers than cores are judged by memory alone, and the tool says so") {
  ScratchFolder folder;
  const ProgramRun run =
      run_program({"validate", kSmall, "--budget", "100 ms", "--steps", "2", "--warmup", "0", "--set",
                   "plan.data_parallel=2", "--set", "cluster.node.devices=4", "-o", folder.path("out")});
  CHECK(run.status == 2);
  CHECK(contains(run.out, "times cannot"));
  CHECK(contains(error_of({"validate", kSmall, "--tolerance", "ten"}), "--tolerance"));
}

TEST_CASE("validate with several scenarios: one profile, every attempt in the table, nothing run more than thrice") {
  ScratchFolder folder;
  const std::string cnn = "scenarios/validation/cnn-1f1b.yaml";
  const auto validated = [&](const std::string& a, const std::string& b) {
    return run_program({"validate", a, b, "--budget", "50ms", "--steps", "5", "--warmup", "1", "--set",
                        "training.micro_batches=2", "-o", folder.path("out")});
  };
  const ProgramRun run = validated(kSmall, cnn);
  CHECK((run.status == 0 || run.status == 1 || run.status == 2));
  const auto document = nlohmann::json::parse(file_text(folder.path("out/accuracy.json")));
  CHECK(document.at("schema") == "pipewright.accuracy/1");
  std::map<std::string, std::int64_t> attempts;
  for (const auto& attempt : document.at("attempts")) {
    const std::string name = attempt.at("scenario");
    CHECK(attempt.at("attempt") == ++attempts[name]);
    CHECK(attempt.at("memory_exact") == true);
    CHECK(attempt.at("step").at("timed").size() == 5);
    CHECK(std::filesystem::exists(
        folder.path("out/" + name + "/attempt-" + std::to_string(attempts[name]) + "/prediction.json")));
  }
  CHECK(attempts.size() == 2);
  for (const auto& [name, count] : attempts)
    CHECK(count <= 3);
  const auto& summary = document.at("summary");
  CHECK(summary.at("judged").get<int>() + summary.at("withheld").get<int>() == 2);
  // One profile with the steps of both optimizers prices both.
  const std::string profile = file_text(folder.path("out/profile.yaml"));
  CHECK(profile.find("optimizer: sgd") != std::string::npos);
  CHECK(profile.find("optimizer: momentum") != std::string::npos);
  CHECK(contains(file_text(folder.path("out/accuracy.md")), "| small-ops | 1 |"));

  const ProgramRun twice = validated(kSmall, kSmall);
  CHECK(twice.status == 2);
  CHECK(contains(twice.err, "both named \"small-ops\""));
}

TEST_CASE("sweep --run trains every point: schedules with a flush have the same losses, PipeDream's others") {
  ScratchFolder folder;
  const std::string grid = folder.path("grid.yaml"), svg = folder.path("losses.svg");
  write_file(grid, "version: 1\nsweep:\n  base: " + source_folder() + "/scenarios/learning/base.yaml" +
                       "\n  variants:\n    gpipe: {plan.schedule: gpipe}\n    1f1b: {plan.schedule: 1f1b}\n"
                       "    stashing: {plan.schedule: pipedream, training.micro_batch_size: 16, "
                       "training.micro_batches: 4, run.steps: 1}\n"
                       "  grid: {run.learning_rate: [0.1, 0.5], run.seed: [1, 2]}\n");
  const ProgramRun run = run_program({"sweep", "--run", "--csv", grid, "--set", "run.steps=4", "-o", svg});
  CHECK(run.status == 0);
  std::map<std::string, std::vector<std::string>> losses;  // by variant, what follows it in its lines
  std::istringstream lines(run.out);
  std::string line;
  std::getline(lines, line);
  CHECK(line == "variant,run.learning_rate,run.seed,samples,loss,ended_early");
  while (std::getline(lines, line))
    losses[line.substr(0, line.find(','))].push_back(line.substr(line.find(',')));
  CHECK(losses["gpipe"].size() == 4 * 4);
  CHECK(losses["gpipe"] == losses["1f1b"]);
  CHECK(losses["stashing"].size() == 4);
  CHECK(contains(file_text(svg), "learning rate 0.5"));

  // A point that cannot be run is told, and costs no other its losses.
  write_file(grid,
             "version: 1\nsweep:\n  base: " + source_folder() +
                 "/scenarios/learning/base.yaml\n  grid: {plan.stages: [2, 50], run.memory_cap: [1 GiB, 1 KiB]}\n");
  const ProgramRun partly = run_program({"sweep", "--run", "--csv", grid, "--set", "run.steps=2"});
  CHECK(partly.status == 0);
  CHECK(contains(partly.out, "base,2,1 GiB,32,"));
  CHECK(contains(partly.out, "base,2,1 KiB,,,"));
  CHECK(contains(partly.out, "base,50,1 GiB,,,"));

  CHECK(contains(error_of({"sweep", "--run", "--json", grid}), "--json is of simulated sweeps"));
}
