#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/backends/cpu.hpp"
#include "runtime/measurement.hpp"
#include "tests/runtime/run_case.hpp"
#include "tests/runtime/sequential_steps.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

// Fewer layers, so that hundreds of runs are quick.
std::vector<std::string> with(std::vector<std::string> changes) {
  changes.push_back("cluster.node.devices=8");
  return changes;
}

double norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values)
    sum += double{value} * double{value};
  return std::sqrt(sum);
}

void check_against_one_worker(const RunCase& run) {
  const auto pipelined = run.run(one_step());
  const auto reference = sequential_gradients(run.run_plan, cpu_backend, *run.data, one_step());
  for (std::size_t v = 0; v < reference.size(); ++v) {
    CAPTURE(v);
    CHECK(differing(gradients_of(pipelined, v), reference[v]) == 0);
    CHECK(norm(reference[v]) > 1e-4);
  }
}

void check_memory(const RunCase& run, const std::vector<WorkerResult>& workers) {
  for (std::size_t w = 0; w < workers.size(); ++w) {
    CAPTURE(w);
    CHECK(workers[w].memory == replayed(run.run_plan, static_cast<PositionId>(w) % run.plan.positions()));
  }
}

}  // namespace

TEST_CASE("Pipelined gradients are those of one worker, bit by bit: schedules, stages, micro-batches, recomputation") {
  for (const std::string schedule : {"gpipe", "1f1b", "eager_1f1b", "naive"})
    for (const int stages : {1, 2, 3, 4})
      for (const int micro_batches : {3})  // 1 to 16: grid_test.cpp
        for (const std::string recompute : {"none", "full"}) {
          CAPTURE(schedule);
          CAPTURE(stages);
          CAPTURE(micro_batches);
          CAPTURE(recompute);
          check_against_one_worker(
              RunCase(with({"plan.schedule=" + schedule, set("plan.stages", stages),
                            set("training.micro_batches", micro_batches), "plan.recompute=" + recompute})));
        }
}

TEST_CASE("Likewise interleaved") {
  for (const std::string recompute : {"none", "full"})
    check_against_one_worker(RunCase(with({"plan.schedule=interleaved_1f1b", "plan.stages=2", "plan.virtual_stages=2",
                                           "training.micro_batches=4", "plan.recompute=" + recompute})));
}

TEST_CASE("Likewise with a smaller last micro-batch") {
  check_against_one_worker(RunCase(
      with({"training.ragged=true", "training.global_batch_size=7", "training.micro_batches=4", "plan.stages=2"})));
}

TEST_CASE("Copies of a pipeline sum their gradients in the order of the workers") {
  for (const std::string bucket : {"25 MB", "100 kB", "pytorch", "megatron", "deepspeed"})
    check_against_one_worker(RunCase(with({"plan.data_parallel=2", "plan.stages=2", "plan.bucket=" + bucket})));
  check_against_one_worker(RunCase(
      with({"plan.data_parallel=3", "plan.stages=1", "plan.schedule=data_parallel", "training.micro_batches=1"})));
}

TEST_CASE("The arena holds what was counted, to the byte, under every schedule") {
  for (const std::string schedule : {"gpipe", "1f1b", "eager_1f1b", "naive"})
    for (const std::string recompute : {"none", "full"}) {
      CAPTURE(schedule);
      CAPTURE(recompute);
      const RunCase run(with({"plan.schedule=" + schedule, "plan.stages=3", "training.micro_batches=5",
                              "plan.recompute=" + recompute, "training.optimizer=adam"}));
      check_memory(run, run.run(one_step(2)));
    }
}

TEST_CASE("A cap of what is needed holds, one byte less names the worker and what it holds") {
  const RunCase run(with({"plan.stages=2"}));
  RunSettings settings = one_step();
  const Bytes need = std::max(replayed(run.run_plan, 0).extent, replayed(run.run_plan, 1).extent);
  settings.memory_cap = need;
  CHECK_NOTHROW(run.run(settings));
  settings.memory_cap = need - Bytes{1};
  CHECK_THROWS_WITH_AS(run.run(settings), doctest::Contains("worker "), OutOfArena);
  CHECK_THROWS_WITH_AS(run.run(settings), doctest::Contains("weights "), OutOfArena);
}

TEST_CASE("The loss falls, and falls alike whatever the number of stages") {
  std::vector<double> losses;
  for (const int stages : {1, 3}) {
    const RunCase run(with({set("plan.stages", stages), "plan.schedule=1f1b"}));
    RunSettings settings = one_step(24);
    settings.optimizer.learning_rate = 0.5;
    const auto workers = run.run(settings);
    CHECK(loss_of(workers, 0) == doctest::Approx(std::log(256)).epsilon(0.05));
    CHECK(loss_of(workers, 23) < 0.9 * loss_of(workers, 0));
    losses.push_back(loss_of(workers, 23));
  }
  CHECK(losses[0] == losses[1]);
}

TEST_CASE("A loss that is not a number ends the run, and the worker, the op and a way out are named") {
  const RunCase run(with({"plan.stages=2"}));
  RunSettings settings = one_step(20);
  settings.optimizer.learning_rate = 1e30;
  CHECK_THROWS_WITH_AS(run.run(settings), doctest::Contains("worker 1 at op 1F"), RunFailed);
  CHECK_THROWS_WITH_AS(run.run(settings), doctest::Contains("smaller learning_rate"), RunFailed);
}

TEST_CASE("With stashing a backward reads the weights of its forward, without it newer ones") {
  const std::vector<std::string> changes =
      with({"plan.stages=3", "plan.schedule=pipedream", "training.micro_batches=9"});
  const RunCase stashing(changes), newest(changes, {.weight_stashing = false});
  const auto kept = stashing.run(one_step()), moved = newest.run(one_step());
  for (const WorkerResult& worker : kept)
    for (const auto& read : worker.versions)
      CHECK(read.backward == read.forward);
  int newer = 0;
  for (const auto& read : moved[0].versions)
    newer += read.backward > read.forward ? 1 : 0;
  CHECK(newer == 8);  // stage 0: the backward of m comes after m updates, its forward after max(0, m - 2)
  check_memory(stashing, kept);
  check_memory(newest, moved);
}

TEST_CASE("Asynchronous runs end with the weights of a replay on one worker, bit by bit") {
  const auto check = [](const std::vector<std::string>& more, const RunOptions& options) {
    std::vector<std::string> changes = with({"plan.schedule=pipedream", "training.micro_batches=9"});
    changes.insert(changes.end(), more.begin(), more.end());
    const RunCase run(changes, options);
    RunSettings settings = one_step();
    settings.optimizer.learning_rate = 0.2;
    const auto workers = run.run(settings);
    settings.optimizer.kind = run.scenario.training.optimizer;
    const auto reference = sequential_weights(run.run_plan, cpu_backend, *run.data, settings);
    for (std::size_t w = 0; w < workers.size(); ++w)
      for (std::size_t v = 0; v < workers[w].weights.size(); ++v)
        if (!workers[w].weights[v].empty()) CHECK(differing(workers[w].weights[v], reference[v]) == 0);
    check_memory(run, workers);
    return reference;
  };
  const auto stashing = check({"plan.stages=3"}, {});
  const auto newest = check({"plan.stages=3"}, {.weight_stashing = false});
  const auto vertical = check({"plan.stages=3", "plan.vertical_sync=true"}, {});
  // The last stage's backward follows its forward at once: there stashing changes only what it is sent.
  CHECK(differing(stashing[0], newest[0]) > 1000);
  CHECK(differing(stashing[1], newest[1]) > 1000);
  CHECK(differing(stashing[2], vertical[2]) > 1000);
  check({"plan.stages=3", "training.optimizer=adam"}, {});
  check({"plan.replicas=[2, 1]", "plan.stages=2"}, {});
  check({"plan.replicas=[2, 1]", "plan.stages=2", "plan.gradient_sync=at_once"}, {});
}

TEST_CASE("Likewise one step of schedules with a flush") {
  for (const std::string schedule : {"gpipe", "1f1b"}) {
    const RunCase run(with({"plan.schedule=" + schedule, "plan.stages=3", "training.optimizer=momentum"}));
    RunSettings settings = one_step();
    const auto workers = run.run(settings);
    settings.optimizer.kind = run.scenario.training.optimizer;
    const auto reference = sequential_weights(run.run_plan, cpu_backend, *run.data, settings);
    for (const WorkerResult& worker : workers)
      for (std::size_t v = 0; v < worker.weights.size(); ++v)
        if (!worker.weights[v].empty()) CHECK(differing(worker.weights[v], reference[v]) == 0);
  }
}

TEST_CASE("A stage with replicas steps with the averaged gradient of its round, whatever the others have") {
  // One micro-batch per replica on stage 0 and none after it: both replicas' mean is what one worker gets from both
  // micro-batches with a flush, where the loss is the mean over all samples.
  const RunCase replicated(
      with({"plan.schedule=pipedream", "plan.replicas=[2, 1]", "plan.stages=2", "training.micro_batches=2"}));
  const RunCase flushed(with({"plan.schedule=gpipe", "plan.stages=2", "training.micro_batches=2",
                              "plan.partition={layers: [" + std::to_string(replicated.plan.layers[0].size()) + ", " +
                                  std::to_string(replicated.plan.layers[1].size()) + "]}"}));
  // A learning rate so small that stage 1's update between the two micro-batches changes nothing that matters.
  RunSettings settings = one_step();
  settings.optimizer.learning_rate = 1e-6;
  const auto rounds = replicated.run(settings), whole = flushed.run(settings);
  const auto &a = gradients_of(rounds, 0), &b = gradients_of(whole, 0);
  REQUIRE(a.size() == b.size());
  std::vector<float> difference(a.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    difference[i] = a[i] - b[i];
  CHECK(norm(b) > 1e-3);
  CHECK(norm(difference) < 1e-4 * norm(b));
}

TEST_CASE("A pause comes before its steps, while no worker works, and changes no bit; what fails in it ends the run") {
  const RunCase run(with({"model.layers.1.repeat=2"}));
  const auto begun = run.run(one_step(4));
  std::vector<int> calls;
  Pauses pauses{{1, 3, 4}, [&] { calls.push_back(static_cast<int>(calls.size())); }};
  RunSettings settings = one_step(4);
  settings.pauses = &pauses;
  const auto paused = run.run(settings);
  CHECK(calls.size() == 3);
  for (std::size_t w = 0; w < begun.size(); ++w)
    for (std::size_t v = 0; v < begun[w].weights.size(); ++v)
      CHECK(differing(paused[w].weights[v], begun[w].weights[v]) == 0);
  pauses.call = [] { throw std::runtime_error("nothing to see"); };
  CHECK_THROWS_WITH_AS(run.run(settings), doctest::Contains("nothing to see"), RunFailed);
}

TEST_CASE("Who measures rounds from a thread that is bound to one core has the other workers on theirs") {
  const RunCase run(with({"model.layers.1.repeat=2"}));
  if (available_cores() < 2) return;
  LayerRounds rounds(
      run.run_plan, [](WorkerId) { return cpu_backend(); }, *run.data, one_step(), false);
  std::vector<WorkerResult> results;
  std::jthread([&] {
    pin_to(allowed_cores().front());
    results = rounds.measured(0.01, {}, 5);
  }).join();
  REQUIRE(results.size() == 2);
  for (const WorkerResult& worker : results) {
    CHECK(worker.steps.size() >= 3);  // without the first and the last
    CHECK(worker.layer_ns.empty());
    CHECK(worker.core.wall > 0);
    CHECK(worker.core.cpu > 0);
  }
}
