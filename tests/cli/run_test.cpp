// `run`, `calibrate` and `validate` as a user runs them. Nothing here depends on how long anything takes.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/question/profile.hpp"
#include "io/read/read_scenario.hpp"
#include "io/writers/writers.hpp"
#include "io/yaml/fields.hpp"
#include "io/yaml/sections.hpp"
#include "runtime/measurement.hpp"
#include "tests/cli/refusals.hpp"
#include "tests/support/run_program.hpp"

using namespace pipewright::tests;

namespace {

// Its steps take a millisecond: what is asked of it is quick under sanitizers, too.
const std::string kSynthetic = "scenarios/validation/synthetic.yaml";

}  // namespace

TEST_CASE("run: gradients are bit-identical to one worker's") {
  const ProgramRun run = run_program({"run", kTwoStages, "--check", "gradients"});
  CHECK(run.status == 0);
  CHECK(run.out.starts_with("gradients: bit-identical to one worker's\n"));
  CHECK(contains(run.out, "635776 values, 0 differ"));
}

TEST_CASE("run: Chimera with forward doubling, gradients bit-identical to one worker's") {
  for (const int stages : {2, 4, 8}) {
    CAPTURE(stages);
    std::vector<std::string> arguments = {"run", "scenarios/validation/two-stage-gpipe.yaml", "--check", "gradients"};
    for (const std::string& change :
         {std::string(
              "model={name: chain, input_shape: [5], layers: [{name: body, repeat: 7, ops: [{op: linear, features: "
              "5}, {op: tanh}]}, {name: loss, ops: [{op: linear, features: 5}, {op: cross_entropy}]}]}"),
          std::string("cluster.node.devices=8"), fmt::format("plan.stages={}", stages),
          std::string("plan.schedule=chimera"), std::string("plan.forwards_at_once=2"),
          fmt::format("training.micro_batches={}", 2 * stages)})
      arguments.insert(arguments.end(), {"--set", change});
    const ProgramRun run = run_program(arguments);
    CAPTURE(run.err);
    CHECK(run.status == 0);
    CHECK(run.out.starts_with("gradients: bit-identical to one worker's\n"));
  }
}

TEST_CASE("run: every key of `run:` is an option of run and of validate") {
  const std::vector<SectionDoc> docs = run_docs();
  for (const std::string command : {"run", "validate"}) {
    const std::string help = run_program({command, "--help"}).out;
    for (const FieldDoc& field : docs.at(0).fields) {
      std::string option(field.key);
      std::replace(option.begin(), option.end(), '_', '-');
      CAPTURE(option);
      CHECK(contains(help, "  --" + option + " "));
    }
  }
  CHECK(contains(error_of({"run", kTwoStages, "--weight-stashing", "maybe"}), "run.weight_stashing"));
  CHECK(contains(error_of({"run", kTwoStages, "--loss", "mse"}), "known: cross_entropy"));
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
  // The table of stages has what passes took, not what they were expected to: all micro-batches of a worker together.
  const auto micro_batches = document["plan"]["micro_batches"].get<double>();
  for (std::size_t k = 0; k < 2; ++k) {
    const auto &stage = document["stages"][k], &worker = document["workers"][k];
    for (const char* pass : {"forward_s", "backward_s"})
      CHECK(stage[pass].get<double>() * micro_batches == doctest::Approx(worker[pass].get<double>()).epsilon(1e-4));
  }
}

TEST_CASE(
    "run: what is written says that it was measured and on what, and nothing that follows from the scenario's device") {
  ScratchFolder folder;
  const std::string result = folder.path("measured.json"), page = folder.path("measured.html"),
                    table = folder.path("measured.md");
  REQUIRE(run_program({"run", kSmall, "--steps", "2", "--warmup", "0", "-o", result, "-o", page, "-o", table}).status ==
          0);
  const auto document = nlohmann::json::parse(file_text(result));
  CHECK(document["engine"] == "real run");
  CHECK(contains(document["engine_reason"].get<std::string>(), "workers (threads), cpu ("));
  for (const char* key : {"mfu", "speedup_over_one_device", "scaling_efficiency"}) {
    CAPTURE(key);
    CHECK(document[key].is_null());
  }
  CHECK(document["fits"] == true);
  for (const auto& stage : document["stages"]) {
    CHECK(stage["capacity_bytes"].is_null());  // no cap was asked for
    CHECK(stage["fits"] == true);
    CHECK(stage["memory_need_bytes"]["with_reserve"] == stage["memory_bytes"]["peak"]);
  }
  for (const std::string& path : {page, table}) {
    CAPTURE(path);
    CHECK(contains(file_text(path), ", measured on "));
    CHECK(contains(file_text(path), "measured: the step of median length of 2, on "));
    CHECK_FALSE(contains(file_text(path), "over one device"));
    CHECK_FALSE(contains(file_text(path), "Predicted by"));
  }
  const std::string capped = folder.path("capped.json");
  REQUIRE(
      run_program({"run", kSmall, "--steps", "1", "--warmup", "0", "--memory-cap", "64 MiB", "-o", capped}).status ==
      0);
  CHECK(nlohmann::json::parse(file_text(capped))["stages"][0]["capacity_bytes"] == 64 << 20);
}

TEST_CASE("run: a precision that the backend does not compute in is named first; a missing peak is not an obstacle") {
  const std::vector<std::string> bf16 = {"--set", "training.precision=bf16", "--set",
                                         "training.gradient_precision=fp32"};
  const auto asked = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), bf16.begin(), bf16.end());
    return arguments;
  };
  CHECK(contains(error_of(asked({"run", kTwoStages})), "backend cpu computes in fp32, not in bf16"));
  const ProgramRun counted = run_program(asked({"capacity", kTwoStages, "--over", "model.layers.1.repeat", "--backend",
                                                "cuda", "--set", "run.memory_cap=16 MiB", "--json"}));
  CHECK(counted.status == 0);  // the scenario's device states no peak of bf16
  CHECK(contains(counted.out, "replaying a run's arena"));
}

TEST_CASE("run: a cap that does not hold a worker is the answer no, itemised") {
  const ProgramRun run = run_program({"run", kTwoStages, "--memory-cap", "1 MB"});
  CHECK(run.status == 1);
  CHECK(contains(run.out, "infeasible: worker 0: "));
  CHECK(contains(run.out, "would end at"));
  CHECK(contains(run.out, "what would make it fit"));
}

// No system has 10^15 bytes: what a full GPU says, too.
TEST_CASE("run: memory that the device itself has not is the answer no; nothing is left of it") {
  ScratchFolder scratch;
  const std::string folder = scratch.path("study");
  for (std::vector<std::string> words : {std::vector<std::string>{"run"}, {"calibrate"}, {"validate", "-o", folder}}) {
    CAPTURE(words.front());
    words.insert(words.end(), {kTwoStages, "--set", "training.micro_batch_size=100000000"});
    const ProgramRun run = run_program(words);
    CHECK(run.status == 1);
    CHECK(contains(run.out, "infeasible: worker 0: the system has no "));
    CHECK(contains(run.out, "its arena spans "));
    CHECK(contains(run.out, "or more stages on devices of their own"));
    CHECK_FALSE(contains(run.out, "larger run.memory_cap"));
  }
  CHECK_FALSE(std::filesystem::exists(folder));
}

TEST_CASE("run: what cannot be run is refused with the layer and a way out") {
  CHECK(contains(error_of({"run", kQuickstart}), "has stated figures only; give it an `op:`"));
  CHECK(contains(error_of({"run", kTwoStages, "--transport", "carrier"}),
                 "known: local, throttled, staged, peer, tcp, mpi"));
  CHECK(contains(error_of({"run", kTwoStages, "--data", "/"}), "/"));
  CHECK(contains(error_of({"run", kTwoStages, "--data", "no-such-file"}), "no-such-file"));
  CHECK(contains(error_of({"run", kTwoStages, "--steps", "0"}), "run.steps"));
  CHECK(contains(error_of({"run", kTwoStages, "--timeout", "1e10"}), "at most 1000000"));
  CHECK(contains(error_of({"run", kTwoStages, "--check", "weights"}), "known: gradients"));
  CHECK(contains(error_of({"run", kTwoStages, "--set", "plan.recompute=selective"}), "plan.recompute"));
  CHECK(contains(error_of({"run", kTwoStages, "-o", "run.xyz"}), "run.xyz"));
  for (const char* const sizes : {"", "1,", "x", "1,-2", "0", "1 2"})
    CHECK(contains(error_of({"calibrate", kTwoStages, "--sizes", sizes}), "is not a list of whole numbers"));
}

TEST_CASE("run and validate --synthetic: layers without operators, told as such, and what makes no sense is refused") {
  ScratchFolder folder;
  CHECK(contains(error_of({"run", kSynthetic, "--set", "run={steps: 3}"}), "or run with --synthetic"));
  const std::string path = folder.path("run.json");
  const ProgramRun run =
      run_program({"run", kSynthetic, "--set", "run={steps: 3}", "--synthetic", "--warmup", "0", "-o", path});
  CHECK(run.status == 0);
  CHECK(contains(run.out, "synthetic: times are the stated ones, no arithmetic was done"));
  CHECK(!contains(run.out, "loss"));
  CHECK(contains(run.out, "as counted, to the byte"));
  const auto document = nlohmann::json::parse(file_text(path));
  CHECK(document["provenance"][0] == "synthetic: times are the stated ones, no arithmetic was done");

  const std::string out = folder.path("out");
  const ProgramRun validated = run_program({"validate", kSynthetic, "--transport", "throttled", "--steps", "3",
                                            "--tolerance", "1000%", "--force", "-o", out});
  CHECK((validated.status == 0 || validated.status == 1));  // within or outside: a matter of the machine
  CHECK(contains(validated.out, "predicted, then run (synthetic: times are the stated ones, no arithmetic was done"));
  CHECK(contains(validated.out, "verdict: "));
  CHECK(contains(validated.out, "verdict: within") == (validated.status == 0));
  const std::size_t traffic = validated.out.find("traffic between stages");
  REQUIRE(traffic != std::string::npos);
  const std::string line = validated.out.substr(traffic, validated.out.find('\n', traffic) - traffic);
  CHECK((contains(line, " exact") && !contains(line, "NOT")));
  CHECK(!std::filesystem::exists(out + "/loss.csv"));
  CHECK(!std::filesystem::exists(out + "/profile.yaml"));
  CHECK(nlohmann::json::parse(file_text(out + "/comparison.json")).contains("synthetic"));

  CHECK(contains(error_of({"run", kSynthetic, "--check", "gradients"}), "--check: a synthetic run"));
  CHECK(contains(error_of({"run", kSynthetic, "--checkpoint", folder.path("c")}), "--checkpoint: a synthetic run"));
  CHECK(contains(error_of({"calibrate", kSynthetic}), "nothing is there to be calibrated"));
  CHECK(contains(error_of({"validate", kSynthetic, "--profile", "p.yaml"}), "leave out --profile"));
  CHECK(contains(error_of({"validate", kSynthetic, kTwoStages}), "validate it alone"));
}

TEST_CASE("run: a loss that is not a number ends the run; what was measured until then is shown") {
  const ProgramRun run = run_program({"run", kTwoStages, "--learning-rate", "1e30", "--steps", "30"});
  CHECK(run.status == 2);
  CHECK(contains(run.err, "the run failed: worker 1 at op 1F"));
  CHECK(contains(run.err, "smaller learning_rate"));
  CHECK(contains(run.out, "measured until then"));
}

TEST_CASE("run: one command with --resume begins, goes on to the files of a run in one piece, and is done") {
  ScratchFolder folder;
  const auto run = [&](const std::string& to, const std::string& steps, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"run", kSmall, "--warmup", "0", "--steps", steps, "--checkpoint", folder.path(to),
                               "--every", "3", "--set", "training.optimizer=adam", "--learning-rate", "0.01"});
    return run_program(more);
  };
  CHECK(run("whole", "6").status == 0);
  const ProgramRun first = run("cut", "3", {"--resume"});
  CHECK(first.status == 0);
  CHECK(contains(first.err, "no checkpoint in " + folder.path("cut") + " yet: the run begins"));
  CHECK(contains(first.err, "wrote " + folder.path("cut/step-3") + " (checkpoint)"));
  const ProgramRun second = run("cut", "6", {"--resume"});
  CHECK(second.status == 0);
  CHECK(contains(second.out, "over 3 steps of 16 samples behind the 3 of the checkpoint"));
  for (const std::string file : {"/step-6/manifest", "/step-6/worker-0", "/step-6/worker-1"})
    CHECK(file_text(folder.path("cut" + file)) == file_text(folder.path("whole" + file)));

  const ProgramRun again = run("cut", "6");
  CHECK(again.status == 2);
  CHECK(contains(again.err, "/step-6: this folder has a checkpoint already; go on from it with --resume"));
  const ProgramRun done = run("cut", "6", {"--resume"});
  CHECK(done.status == 0);
  CHECK(contains(done.out, "done: all 6 steps, warm-up counted, are in " + folder.path("cut/step-6") + "; a larger"));
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
                   "is not a whole number from 1 to 2147483647; write e.g. --every 10"));
  CHECK(contains(error_of({"run", kSmall, "--checkpoint", folder.path("c"), "--check", "gradients"}),
                 "does not go with --check gradients"));
  CHECK(contains(error_of({"run", kSmall, "--checkpoint", "/dev/null"}), "--checkpoint /dev/null: "));
  CHECK(contains(error_of({"run", kSmall, "--checkpoint", ""}), "--checkpoint \"\": is not a name; name a folder"));
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

TEST_CASE("calibrate: times of a run with fewer workers than the largest are of so many") {
  ScratchFolder folder;
  const std::string one = folder.path("one.yaml"), path = folder.path("here.yaml");
  std::string text = file_text(source_folder() + "/" + kSmall);
  const auto change = [&](const std::string& from, const std::string& to) {
    REQUIRE(contains(text, from));
    text.replace(text.find(from), from.size(), to);
  };
  change("micro_batch_size: 1", "micro_batch_size: 2");
  change("{stages: 2", "{stages: 1");
  std::ofstream(one) << text;
  CHECK(run_program({"calibrate", kSmall, one, "--budget", "100 ms", "-o", path}).status == 0);
  const MachineProfile profile = read_profile(path);
  CHECK(profile.active == 2);
  for (const LayerTimes& times : profile.layers)
    if (times.samples == 2 && times.active == 0 && times.measured > 0)
      CHECK(find_times(profile, times.key, 2, 1) != nullptr);  // and with all, as nothing else is known
  CHECK(std::any_of(profile.layers.begin(), profile.layers.end(),
                    [](const LayerTimes& times) { return times.samples == 2 && times.active == 1; }));
}

TEST_CASE("calibrate: sums of more workers than there are cores are not measured, and it says so") {
  ScratchFolder folder;
  const std::string copies = fmt::format("plan.data_parallel={}", available_cores());
  const std::string devices = fmt::format("cluster.node.devices={}", 2 * available_cores());
  const ProgramRun run =
      run_program({"calibrate", kSmall, "--set", copies, "--set", devices, "--set", "training.micro_batches=2",
                   "--budget", "100 ms", "-o", folder.path("here.yaml")});
  CHECK(run.status == 0);
  CHECK(contains(run.err, fmt::format("no all-reduce over {} workers was measured ({} workers on {} cores); a "
                                      "simulation takes the time of the cluster's links",
                                      available_cores(), 2 * available_cores(), available_cores())));
}

TEST_CASE("calibrate and run: a bar on the terminal tells how far they are") {
  // It would go on for some seconds, or many minutes, were it not interrupted.
  const ProgramRun calibration =
      run_program({"calibrate", kSmall, "--budget", "8 s"}, {.interrupt_at = "calibrating ["});
  CHECK(calibration.status == 128 + 2);
  CHECK(contains(calibration.err, "  small-ops"));
  const ProgramRun training = run_program({"run", kSmall, "--steps", "1000000"}, {.interrupt_at = "steps ["});
  CHECK(training.status == 128 + 2);
  CHECK(contains(training.err, "/1000010  "));
}

TEST_CASE(
    "calibrate: layers are measured alone, too, and all-reduces where the plan has any; validate judges those runs") {
  ScratchFolder folder;
  const std::string out = folder.path("out");
  const std::vector<std::string> copies = {"--set", "plan.stages=1",           "--set", "plan.data_parallel=2",
                                           "--set", "training.micro_batches=8"};
  std::vector<std::string> arguments = {"validate", kSmall, "--budget", "100 ms", "--steps", "8", "--force", "-o", out};
  arguments.insert(arguments.end(), copies.begin(), copies.end());
  const ProgramRun run = run_program(arguments);
  const std::string profile = file_text(out + "/profile.yaml");
  if (contains(profile, "cores: 1\n")) return;
  CHECK((run.status == 0 || run.status == 1));  // judged: within or outside, a matter of the machine
  CHECK(contains(profile, ", active: 1}"));
  CHECK(contains(profile, "{members: 2, fixed_ns: "));
  CHECK(contains(run.out, "machine: cores ran at "));
}

TEST_CASE("validate: what is refused leaves no folder, and nothing is said to be replaced before it is") {
  ScratchFolder folder;
  const auto validate = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"validate", "--budget", "50 ms", "--steps", "3", "--warmup", "0"});
    return run_program(more, {.folder = folder.path("."), .input = {}, .output_to = {}, .settings = {}});
  };
  const std::string small = source_folder() + "/" + kSmall;
  const std::string other = source_folder() + "/scenarios/validation/two-stage-gpipe.yaml";
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{small, "--gpus", "1"},
                                                {small, other, "--gpus", "1"},
                                                {small, "--profile", "none.yaml"},
                                                {small, "-o", "chosen", "--virtual-devices", "2"},
                                                {source_folder() + "/" + kSynthetic, "--gpus", "1"}}) {
    const ProgramRun run = validate(wrong);
    CHECK(run.status == 2);
    CHECK_MESSAGE(std::filesystem::is_empty(folder.path(".")), run.err);
  }
  const auto replaces = [&](const std::vector<std::string>& asked) {
    return contains(validate(asked).err, "replaces what an earlier call left");
  };
  CHECK_FALSE(replaces({small}));
  CHECK_FALSE(replaces({small, "--gpus", "1"}));
  CHECK(replaces({small}));
}

TEST_CASE("validate: the folder has profile, prediction, measurement and comparison; memory is exact") {
  ScratchFolder folder;
  const std::string out = folder.path("out");
  const ProgramRun run = run_program({"validate", kSmall, "--budget", "100 ms", "--steps", "5", "--warmup", "0", "-o",
                                      out, "-o", folder.path("page.html")});
  const std::string page = file_text(folder.path("page.html"));
  for (const char* told :
       {"<h2>Predicted next to measured</h2>", "peak memory, worker 1", "predicted: 2 stages", "measured: 2 stages",
        "90 % interval of the prediction", "<div class=\"name\">verdict</div>"})
    CHECK_MESSAGE(contains(page, told), told);
  CHECK(run.status != 130);  // within, outside or withheld: a matter of the machine
  for (const std::string file : {"profile.yaml", "prediction.json", "measurement.json", "comparison.json", "loss.csv",
                                 "overlay.svg", "overlay.trace.json"})
    CHECK(std::filesystem::file_size(out + "/" + file) > 0);
  const auto comparison = nlohmann::json::parse(file_text(out + "/comparison.json"));
  CHECK(comparison["schema"] == "pipewright.validation/1");
  if (!contains(run.out, "times cannot")) {
    CHECK(comparison["machine"]["looks"].size() == 6);
    CHECK(contains(run.out, "\n  machine: cores ran at "));
    CHECK(contains(run.out, "\n  step, corrected for the load "));
  }
  for (const auto& worker : comparison["workers"]) {
    CHECK(worker["live_peak"]["predicted"] == worker["live_peak"]["measured"]);
    CHECK(worker["extent"]["predicted"] == worker["extent"]["measured"]);
  }
  CHECK(file_text(out + "/loss.csv").starts_with("step,loss\n0,"));
  CHECK(contains(error_of({"validate", kSmall, "-o", out}), "holds a study already (prediction.json)"));
  CHECK(contains(error_of({"validate", kSmall, "-o", folder.path("x.json")}), "names a file"));
  CHECK(contains(error_of({"validate", kSmall, "-o", folder.path("a"), "-o", folder.path("b")}), "two folders"));
  CHECK_FALSE(std::filesystem::exists(folder.path("x.json")));
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

TEST_CASE("validate with several scenarios: one profile, every attempt in the table, nothing run more than thrice" *
          doctest::test_suite("whole runs")) {
  ScratchFolder folder;
  const std::string cnn = "scenarios/validation/cnn-1f1b.yaml";
  const auto validated = [&](const std::string& a, const std::string& b) {
    return run_program({"validate", a, b, "--budget", "50ms", "--steps", "5", "--warmup", "1", "--set",
                        "training.micro_batches=2", "-o", folder.path("out"), "-o", folder.path("all.html")});
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
  const std::string page = file_text(folder.path("all.html"));
  CHECK(contains(page, "<h2>All attempts</h2>"));
  CHECK(contains(page, "<h2>small-ops, attempt 1</h2>"));
  CHECK(contains(page, "<svg "));
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
  const std::string document = run_program({"sweep", "--run", "--json", grid, "--set", "run.steps=2"}).out;
  CHECK(contains(document, "\"schema\": \"pipewright.losses/1\""));
  CHECK(contains(document, "\"plan.stages\": \"50\""));
}
