// Sequences that are computed slice by slice (plan.slices): gradients are those of whole sequences to rounding, and to the
// bit those of one worker who computes the slices in that order.
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/check.hpp"
#include "core/model/each_device.hpp"
#include "tests/runtime/far_backend.hpp"
#include "tests/runtime/rank_processes.hpp"
#include "tests/runtime/run_case.hpp"
#include "tests/runtime/sequential_steps.hpp"
#include "tests/runtime/step_runner.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

// Two samples of 16 tokens, four blocks of 128 features.
RunCase sliced(const std::vector<std::string>& more, int slices, int stages = 2, int micro_batches = 3) {
  std::vector<std::string> changes = {"plan.context_parallel=1", "cluster.node.devices=8", set("plan.stages", stages),
                                      set("training.micro_batches", micro_batches),
                                      slices > 0 ? "plan.schedule=seq1f1b" : "plan.schedule=1f1b"};
  if (slices > 0) changes.push_back(set("plan.slices", slices));
  if (slices > 1) changes.push_back("plan.slice_lengths=even");
  changes.insert(changes.end(), more.begin(), more.end());
  return RunCase(changes, {}, "context.yaml");
}

std::int64_t stash_of_stage(const RunCase& run, int stage) {
  return replayed(run.run_plan, stage).by_tag[static_cast<std::size_t>(Tag::Stash)].value;
}

}  // namespace

TEST_CASE("slices: losses, gradients and memory are those of one worker, to the bit") {
  for (const int stages : {1, 2, 4})
    for (const int slices : {1, 2, 8, 16})
      for (const std::string recompute : {"none", "full"}) {
        CAPTURE(stages);
        CAPTURE(slices);
        CAPTURE(recompute);
        check_bits_of_one_worker(sliced({"plan.recompute=" + recompute}, slices, stages), Wait::Block);
      }
  check_bits_of_one_worker(sliced({}, 4, 2, 1), Wait::Spin);
  check_bits_of_one_worker(sliced({}, 4, 3, 8), Wait::BlockThrottled);
  for (const std::string zero : {"0", "1", "2"})
    check_bits_of_one_worker(sliced({"plan.data_parallel=2", "training.optimizer=adam", "training.zero=" + zero}, 4),
                             Wait::Block);
}

TEST_CASE("slices: gradients are those of whole sequences, to rounding") {
  const RunCase whole = sliced({}, 0);
  const auto reference = whole.run(one_step());
  for (const int slices : {2, 4, 16})
    for (const std::string recompute : {"none", "full"}) {
      CAPTURE(slices);
      const RunCase run = sliced({"plan.recompute=" + recompute}, slices);
      const auto workers = run.run(one_step());
      for (std::size_t v = 0; v < 2; ++v) {
        CHECK(relative_distance(gradients_of(workers, v), gradients_of(reference, v)) < 1e-6);
        CHECK(relative_distance(gradients_of(workers, v), gradients_of(reference, v)) > 0);
      }
      CHECK(loss_of(workers, 0) == doctest::Approx(loss_of(reference, 0)).epsilon(1e-6));
    }
  // One slice is the whole sequence.
  const RunCase one = sliced({}, 1);
  const auto same = one.run(one_step());
  for (std::size_t v = 0; v < 2; ++v)
    CHECK(differing(gradients_of(same, v), gradients_of(reference, v)) == 0);
}

TEST_CASE("slices: the same weights after several steps, whatever the number of stages") {
  const RunCase one = sliced({"training.optimizer=adam"}, 4, 1), four = sliced({"training.optimizer=adam"}, 4, 4);
  RunSettings settings = one_step(8);
  settings.optimizer.learning_rate = 0.003;
  const auto here = one.run(settings), there = four.run(settings);
  std::vector<float> a, b;
  for (const auto& [workers, all] : {std::pair(&here, &a), std::pair(&there, &b)})
    for (const WorkerResult& worker : *workers)
      for (const auto& weights : worker.weights)
        all->insert(all->end(), weights.begin(), weights.end());
  CHECK(differing(a, b) == 0);
  CHECK(loss_of(here, 7) == loss_of(there, 7));
  CHECK(loss_of(here, 7) < loss_of(here, 0));
}

// Of one slice of 4 of the 16 tokens, two samples: keys and values of 128 features each are 2 x 4 x 256 x 4 B = 8192 B.
// Stage 0 of two holds K - 1 + Q = 5 slices where 1F1B holds 2 micro-batches of 4; gradients of the keys of the four slices
// of the micro-batch whose backwards run come in addition.
TEST_CASE("slices: keys and values stay, and a stage holds slices in place of micro-batches") {
  const RunCase run = sliced({}, 4, 2, 4), whole = sliced({}, 0, 2, 4);
  int attentions = 0;
  for (const CodeStep& step : run.run_plan.code[0].steps)
    if (step.ring.parts > 0) {
      ++attentions;
      CHECK(step.ring.slices);
      CHECK(step.ring.parts == 4);
      CHECK(step.ring.bytes[0] == 8192);
      CHECK(run.run_plan.code[0].blocks[static_cast<std::size_t>(step.ring.keys)][0] == 8192);
      CHECK(run.run_plan.code[0].blocks[static_cast<std::size_t>(step.ring.gradients)][0] == 8192);
    }
  REQUIRE(attentions == 2);
  CHECK(run.run_plan.between_copies(0, 1) < 0);
  // By blocks that a forward leaves, of a whole micro-batch and of a slice.
  const auto left = [](const RunCase& one) {
    std::int64_t bytes = 0;
    for (const Instruction& i : one.run_plan.code[0].forward) {
      const std::int64_t block = i.block < 0 ? 0 : one.run_plan.code[0].blocks[static_cast<std::size_t>(i.block)][0];
      bytes += i.verb == Verb::Allocate ? block : i.verb == Verb::Free ? -block : 0;
    }
    return bytes;
  };
  CHECK(left(run) == left(whole) / 4 + 2 * 8192);
  CHECK(stash_of_stage(whole, 0) == 2 * left(whole));
  CHECK(stash_of_stage(run, 0) < stash_of_stage(whole, 0));
  CHECK(stash_of_stage(run, 0) >= 5 * left(run));
  CHECK(stash_of_stage(run, 0) <= 5 * left(run) + 2 * 4 * 8192);
}

TEST_CASE("slices: processes give what threads give") {
  const RunCase run = sliced({"training.optimizer=adam"}, 4);
  check_processes(run, settings_of(run, 2), run.run(settings_of(run, 2)));
}

TEST_CASE("slices: what cannot be cut is refused, with a way out") {
  CHECK_THROWS_WITH_AS(sliced({"plan.slice_lengths=balanced"}, 4),
                       doctest::Contains("plan.slice_lengths: balanced: a run cuts sequences into slices of equal "
                                         "tokens; write even"),
                       InputError);
  CHECK_THROWS_WITH_AS(sliced({}, 3), doctest::Contains("plan.slices: 3 do not cut 16 tokens into equal slices"),
                       InputError);
  const RunCase run = sliced({}, 4);
  CHECK_THROWS_WITH_AS(run_plan(run.plan, run.schedule, run.scenario.model, run.scenario.training, *far_backend()),
                       doctest::Contains("computes whole sequences; use 1, or backend: cpu"), InputError);
  LayerBuilder b;
  Model model;
  model.works.emplace_back();
  model.works[0].program = SharedProgram(program_of(b, {b.global_average_pool(b.input({4, 4, 4}))}));
  model.layers.emplace_back();
  model.layers[0].name = "pool", model.layers[0].work = 0;
  CHECK_THROWS_WITH_AS(of_slices(model, 2), doctest::Contains("cannot be run in slices of a sequence"), InputError);
}
