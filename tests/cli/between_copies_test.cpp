// Copies that share sequences, or hold experts between them, and sequences in slices, as a user meets them: calibrated,
// simulated, planned, run.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

struct Case {
  std::string file;
  std::vector<std::string> small;  // a block, a micro-batch
  std::string degree;
};
const std::vector<Case> kCases = {
    {"scenarios/validation/context.yaml",
     {"--set", "training.micro_batches=1", "--set", "model.layers.1.repeat=1", "--set", "model.input_tokens=32"},
     "plan.context_parallel"},
    {"scenarios/validation/experts.yaml",
     {"--set", "training.micro_batches=1", "--set", "model.layers.1.repeat=1", "--set", "training.micro_batch_size=1"},
     "plan.expert_parallel"}};

ProgramRun asked(std::string command, const Case& of, std::vector<std::string> more) {
  std::vector<std::string> line = {std::move(command), of.file};
  line.insert(line.end(), of.small.begin(), of.small.end());
  line.insert(line.end(), more.begin(), more.end());
  return run_program(line);
}

}  // namespace

TEST_CASE("A profile of copies that divide work prices them, in simulate and in plan, and nothing else") {
  for (const Case& one : kCases) {
    CAPTURE(one.file);
    const ScratchFolder folder;
    const std::string profile = folder.path("p.yaml"), cost = "cost={profile: " + profile + "}";
    const ProgramRun calibrated = asked("calibrate", one, {"--budget", "100 ms", "-o", profile});
    REQUIRE_MESSAGE(calibrated.status == 0, calibrated.err);
    const ProgramRun simulated = asked("simulate", one, {"--set", cost});
    CHECK(simulated.err == "");
    CHECK(simulated.status == 0);
    const ProgramRun planned = asked("plan", one, {"--set", cost, "--set", "plan.schedule={auto: [gpipe]}"});
    CHECK(planned.err == "");
    CHECK(planned.status == 0);
    // Of whole sequences, or of all experts on each device, it has no times.
    const ProgramRun other = asked("simulate", one, {"--set", cost, "--set", one.degree + "=1"});
    CHECK(other.status == 2);
    CHECK(contains(other.err, "was not measured for micro-batches of 1 samples"));
    const ProgramRun both = asked("plan", one,
                                  {"--set", cost, "--set", "plan.schedule={auto: [gpipe]}", "--set",
                                   one.degree + "=auto", "--set", "cluster.node.devices=4"});
    CHECK(both.err == "");
    CHECK(both.status == 0);
  }
}

TEST_CASE("Their gradients are checked, of every device that has experts of its own") {
  for (const Case& one : kCases) {
    const ProgramRun run = asked("run", one, {"--check", "gradients"});
    CHECK(run.status == 0);
    CHECK(contains(run.out, "gradients: bit-identical to one worker's"));
    CHECK(contains(run.out, "experts 1: ") == (one.degree == "plan.expert_parallel"));
  }
}

TEST_CASE("Slices of a sequence are calibrated, priced and run") {
  const Case slices{
      "scenarios/validation/slices.yaml",
      {"--set", "training.micro_batches=2", "--set", "model.layers.1.repeat=2", "--set", "model.input_tokens=32"},
      "plan.slices"};
  const ScratchFolder folder;
  const std::string profile = folder.path("p.yaml"), cost = "cost={profile: " + profile + "}";
  const ProgramRun calibrated = asked("calibrate", slices, {"--budget", "100 ms", "-o", profile});
  REQUIRE_MESSAGE(calibrated.status == 0, calibrated.err);
  CHECK(contains(file_text(profile), "; slice 3 of 4"));
  const ProgramRun simulated = asked("simulate", slices, {"--set", cost});
  CHECK(simulated.err == "");
  CHECK(simulated.status == 0);
  const ProgramRun other = asked("simulate", slices, {"--set", cost, "--set", "plan.slices=2"});
  CHECK(other.status == 2);
  CHECK(contains(other.err, "plan.slice_lengths: even: profile "));
  CHECK(contains(other.err, "calibrate this scenario"));
  const ProgramRun run = asked("run", slices, {"--check", "gradients"});
  CHECK(run.status == 0);
  CHECK(contains(run.out, "gradients: bit-identical to one worker's"));
}

TEST_CASE("Attentions of different sizes in one ring are measured, too: what goes round stays what it is") {
  const ScratchFolder folder;
  const std::string model =
      "model={name: two, input_tokens: 16, layers: [{name: embed, op: embedding, vocabulary: 256, features: 16}, "
      "{name: a, "
      "ops: [{op: linear, features: 24}, {op: attention, heads: 1, causal: yes, kernel: flash}, {op: linear, features: "
      "16}]}, "
      "{name: b, ops: [{op: linear, features: 384}, {op: attention, heads: 1, causal: yes, kernel: flash}]}, {name: "
      "head, op: "
      "linear, features: 256}, {name: loss, op: cross_entropy}]}";
  const ProgramRun run =
      run_program({"calibrate", kCases[0].file, "--set", model, "--budget", "400 ms", "-o", folder.path("p.yaml")});
  CHECK_MESSAGE(run.status == 0, run.err);
}

TEST_CASE("What cannot be written, measured or throttled is refused before anything runs") {
  const ScratchFolder folder;
  const Case &context = kCases[0], &experts = kCases[1];
  const ProgramRun exported = asked("run", experts, {"--export", folder.path("x.safetensors")});
  CHECK(exported.status == 2);
  CHECK(contains(exported.err, "each device has experts of its own; use 1"));
  const ProgramRun contiguous = asked("validate", context, {"--set", "plan.context_split=contiguous"});
  CHECK(contiguous.status == 2);
  CHECK(contains(contiguous.err, "plan.context_split: contiguous parts differ in work"));
  const ProgramRun ports = asked(
      "run", experts,
      {"--set", "plan.expert_parallel=4", "--set", "plan.data_parallel=4", "--set", "cluster.node.devices=4",
       "--transport", "throttled", "--set", "cluster.node.links={kind: nvswitch, bandwidth: 1 GB/s, latency: 1 us}"});
  CHECK(ports.status == 2);
  CHECK(contains(ports.err, "throttled gives every pair of workers a link of its own"));
}

}  // namespace pipewright::tests
