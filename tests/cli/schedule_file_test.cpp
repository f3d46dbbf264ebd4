// Schedules as files, and launch files, as a user asks for them.
#include <algorithm>
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/texts.hpp"

namespace pipewright::tests {
namespace {

// A run without what says where its order came from.
nlohmann::json figures(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"simulate", kQuickstart, "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const ProgramRun run = run_program(arguments);
  CAPTURE(run.err);
  REQUIRE(run.status == 0);
  return nlohmann::json::parse(run.out);
}
}  // namespace

TEST_CASE("A schedule that was written is simulated as it was") {
  const ScratchFolder folder;
  const std::string file = folder.path("a.schedule.csv");
  const ProgramRun run = run_program({"simulate", kQuickstart, "-o", file});
  CHECK(run.err == "wrote " + file + " (schedule, PyTorch's compute_only)\n");
  CHECK(run_program({"check", file}).out == file + ": ok (schedule, 4 ranks, 4 stages, M = 8)\n");
  const auto before = figures({}), after = figures({"--schedule", file});
  CHECK(before["step_time_s"] == after["step_time_s"]);
  CHECK(before["workers"] == after["workers"]);
}

TEST_CASE("--schedule takes a name, too, and --format writes any format under any name") {
  CHECK(figures({"--schedule", "gpipe"})["step_time_s"] == figures({"--set", "plan.schedule=gpipe"})["step_time_s"]);
  const ScratchFolder folder;
  const std::string file = folder.path("order.txt");
  CHECK(run_program({"simulate", kQuickstart, "-o", file, "--format", "schedule.csv"}).status == 0);
  CHECK(file_text(file).starts_with("0F0,"));
  holds(error_of({"simulate", kQuickstart, "-o", file, "--format", "schedule"}), "--format: unknown \"schedule\"");
  holds(error_of({"simulate", kQuickstart, "--format", "json"}), "--format: no file to write");
}

TEST_CASE("A schedule of another size than the scenario is refused with a way out") {
  const ScratchFolder folder;
  const std::string two = written(folder, "two.csv", "0F0,0B0\n1F0,1B0\n");
  holds(error_of({"simulate", kQuickstart, "--schedule", two}),
        "has 2 ranks, the plan has 4 stages: set plan.stages: 2");
  const std::string few = written(folder, "few.csv", "0F0,0B0\n1F0,1B0\n2F0,2B0\n3F0,3B0\n");
  holds(error_of({"simulate", kQuickstart, "--schedule", few}), "runs 1 micro-batches, the plan has 8");
  holds(error_of({"simulate", kQuickstart, "--schedule", folder.path("none.csv")}), "none.csv: cannot be read");
  holds(error_of({"plan", kQuickstart, "--set", "plan.stages=auto", "--set", "plan.schedule={file: \"" + few + "\"}"}),
        "cannot search with it");
}

// What the message says works as it stands, and the cut is the best for the order of the file.
TEST_CASE("plan beside the order of a file says how simulate finds the cut and the recomputation for it") {
  const ScratchFolder folder;
  const std::string file = folder.path("my.schedule.csv");
  for (const std::vector<std::string>& form :
       {std::vector<std::string>{}, {"--set", "plan.schedule=interleaved_1f1b", "--set", "plan.virtual_stages=2"}}) {
    std::vector<std::string> writing = {"simulate", kQuickstart, "-o", file};
    writing.insert(writing.end(), form.begin(), form.end());
    REQUIRE(run_program(writing).status == 0);
    const std::string schedule = "plan.schedule={file: \"" + file + "\"}";
    const std::string told = error_of({"plan", kQuickstart, "--set", "plan=auto", "--set", schedule});
    holds(told, "for 4 stages x 8 micro-batches, so `plan` cannot search with it");
    std::vector<std::string> asked;
    for (std::size_t at = told.find("--set ", told.find("simulate with")); at != std::string::npos;
         at = told.find("--set ", at + 1)) {
      const std::string value = told.substr(at + 6, told.find_first_of(" ;", at + 6) - at - 6);
      asked.insert(asked.end(), {"--set", value});
    }
    CHECK(asked.size() == (form.empty() ? 8 : 10));
    // A model of which the balanced cut is not the best, on devices that do not hold all of it.
    const std::vector<std::string> uneven = {
        "--set",
        "model.layers=[{name: a, repeat: 6, forward: 1 ms, backward: 2 ms, activation: 1 MB, stash: 800 MB, "
        "parameters: 1000}, {name: b, repeat: 7, forward: 1.5 ms, backward: 3.5 ms, activation: 1 MB, stash: 300 MB, "
        "parameters: 1000}]",
        "--set", "cluster.node.device.memory=8 GiB"};
    const auto simulated = [&](std::vector<std::string> more) {
      more.insert(more.begin(), {"simulate", kQuickstart, "--json", "--schedule", file});
      more.insert(more.end(), uneven.begin(), uneven.end());
      return run_program(more);
    };
    const ProgramRun found = simulated(asked);
    CAPTURE(found.err);
    REQUIRE(found.status == 0);
    const auto best = nlohmann::json::parse(found.out);
    std::vector<std::string> plain;
    if (!form.empty()) plain = {"--set", "plan.virtual_stages=2"};
    plain.insert(plain.end(), {"--set", "plan.recompute=full"});
    const ProgramRun whole = simulated(plain);
    REQUIRE(whole.status == 0);
    CHECK(best["step_time_s"].get<double>() < nlohmann::json::parse(whole.out)["step_time_s"].get<double>());
  }
}

// The file holds the order of 1f1b, for which `exact` has a bound of its own.
TEST_CASE("exact finds the cut for the order of a file, as for the schedule that it holds") {
  const ScratchFolder folder;
  const std::string uneven =
      "model.layers=[{name: a, repeat: 5, forward: 1 ms, backward: 3 ms, activation: 2 MB, parameters: 1000}, "
      "{name: b, repeat: 6, forward: 2 ms, backward: 2 ms, activation: 90 MB, parameters: 1000}]";
  for (const char* schedule : {"1f1b", "gpipe", "eager_1f1b"}) {
    const std::string file = folder.path(std::string(schedule) + ".schedule.csv");
    REQUIRE(
        run_program({"simulate", kQuickstart, "--set", std::string("plan.schedule=") + schedule, "-o", file}).status ==
        0);
    const std::vector<std::string> more = {"--set", uneven, "--set", "plan.partition=exact"};
    std::vector<std::string> own = more, given = more;
    own.insert(own.end(), {"--set", std::string("plan.schedule=") + schedule});
    given.insert(given.end(), {"--schedule", file});
    const auto found = figures(given);
    CHECK(found["step_time_s"] == figures(own)["step_time_s"]);
    CHECK(found["step_time_s"].get<double>() <=
          figures({"--set", uneven, "--schedule", file})["step_time_s"].get<double>());
    bool proven = false;
    for (const std::string line : found["provenance"])
      proven |= line.starts_with("partition: the least step of all cuts, proven; ");
    CHECK(proven);
  }
  const std::string apart = folder.path("zb.schedule.csv");
  REQUIRE(run_program({"simulate", kQuickstart, "--set", "plan.schedule=zb_h1", "-o", apart}).status == 0);
  holds(error_of({"simulate", kQuickstart, "--schedule", apart, "--set", "plan.partition=exact"}),
        "exact is for orders of whole backwards, and the file has gradients of weights apart");
}

TEST_CASE("launch says what it needs") {
  holds(error_of({"launch", kQuickstart}), "--for: say for which framework");
  holds(error_of({"launch", kQuickstart, "--for", "megatrn"}), "did you mean \"megatron\"?");
  holds(error_of({"launch", kQuickstart, "--for", "megatron"}), "--for torch takes any model");
  holds(error_of({"launch", kQuickstart, "--for", "torch", "-o", kQuickstart}), "is read by this command");
  holds(error_of({"launch", kQuickstart, "--for", "torch", "--set", "plan=auto"}),
        "leaves fields of its plan open (auto); run `pipewright plan");
}

TEST_CASE("launch writes a file and says what differs from the plan") {
  const ScratchFolder folder;
  const std::string file = folder.path("train.py");
  const ProgramRun run =
      run_program({"launch", kQuickstart, "--for", "deepspeed", "--set", "plan.schedule=gpipe", "-o", file});
  CHECK(run.status == 0);
  holds(run.err, "not as planned: schedule: gpipe is not there; 1f1b\n");
  holds(run.err, "predicted for what is written: ");
  const std::string made_up = "layers and data are placeholders (width 64); replace them with yours\n";
  holds(run.err, "not the model's: " + made_up);
  holds(file_text(file), "# Not the model's: " + made_up);
  holds(file_text(file), "\nWIDTH = 64  # ");
  holds(file_text(file),
        "# Afterwards: pipewright validate scenarios/quickstart.yaml --set plan.schedule=1f1b --set "
        "'plan.partition={layers: [6, 6, 6, 6]}' --log train.log");
}

TEST_CASE("launch --for torch says what of the file is not the model's: its layers only where they cannot be written") {
  const ProgramRun made_up = run_program({"launch", kQuickstart, "--for", "torch"});
  holds(made_up.err, "not the model's: layers and data are placeholders (width 64); replace them with yours\n");
  holds(made_up.out, "# torch.distributed.pipelining can express this plan.\n# Not the model's: layers and data are ");
  const ProgramRun written = run_program({"launch", "scenarios/validation/cnn-1f1b.yaml", "--for", "torch"});
  holds(written.err, "not the model's: data: the file has random samples; replace them with yours\n");
  CHECK(written.err.find("width 64") == std::string::npos);
  CHECK(run_program({"launch", "scenarios/what_if/llama3-70b.yaml", "--for", "megatron"}).err.find("not the model's") ==
        std::string::npos);
}

TEST_CASE("launch --for slurm asks run itself whether it can") {
  const std::string error = error_of({"launch", "scenarios/what_if/llama3-70b.yaml", "--for", "slurm"});
  for (const char* reason : {"training.precision: backend cpu computes in fp32", "plan.tensor_parallel: a run has one",
                             "operation rotary cannot be run", "plan.recompute: a run",
                             "which refuses this plan; launch it --for a framework"})
    holds(error, reason);
  holds(error_of({"launch", kQuickstart, "--for", "slurm"}), "has stated figures only");
  const ProgramRun run = run_program({"launch", "scenarios/validation/two-stage-gpipe.yaml", "--for", "slurm", "--set",
                                      "run.steps=3", "--set", "name=it's"});
  CHECK(run.status == 0);
  holds(run.out,
        "pipewright run scenarios/validation/two-stage-gpipe.yaml --set run.steps=3 --set 'name=it'\\''s' "
        "--transport mpi -o run.json\n");
}

TEST_CASE("launch --for slurm names the line of the key that a run refuses, or the --set that gives it") {
  const ScratchFolder folder;
  const std::string plan = folder.path("plan.yaml"), tiny = "scenarios/validation/two-stage-gpipe.yaml";
  REQUIRE(run_program({"plan", tiny, "--set", "plan.partition=auto", "-o", plan}).status == 0);
  std::string text = file_text(plan);
  const auto line_of = [&](const std::string& part) {
    const std::size_t at = text.find(part);
    REQUIRE(at != std::string::npos);
    return std::to_string(1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  };
  const auto change = [&](const std::string& from, const std::string& to) {
    REQUIRE(text.find(from) != std::string::npos);
    text.replace(text.find(from), from.size(), to);
  };
  change("precision: fp32", "precision: bf16");
  change("recompute: none", "recompute: selective");
  static_cast<void>(written(folder, "plan.yaml", text));
  const std::string error = error_of({"launch", plan, "--for", "slurm"});
  holds(error, plan + ":" + line_of("precision: bf16") + ":14: training.precision: ");
  holds(error, plan + ":" + line_of("recompute: selective") + ":14: plan.recompute: ");
  const std::string given = error_of({"launch", plan, "--for", "slurm", "--set", "run.gpus=[0, 1]"});
  holds(given, "--set run.gpus=[0, 1]: run.gpus: names GPUs");
}

TEST_CASE("launch asks for a plan that the framework can express where the nearest is slower") {
  const ProgramRun run = run_program({"launch", kQuickstart, "--for", "deepspeed", "--set", "plan.schedule=gpipe"});
  const std::string before =
      "to search the plans that DeepSpeed can express: pipewright plan scenarios/quickstart.yaml";
  holds(run.err, before + " --for deepspeed --set plan=auto\n");
  CHECK(run_program({"launch", kQuickstart, "--for", "torch"}).err.find("for the best plan") == std::string::npos);
}

}  // namespace pipewright::tests
