// Runs without arithmetic: what they take, hold and send is what the simulator and the memory model say.
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include "core/check.hpp"
#include "core/cost/memory_model.hpp"
#include "io/read/read_scenario.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "runtime/backends/cpu.hpp"
#include "runtime/executor.hpp"
#include "runtime/transports/local.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

Scenario scenario(std::vector<std::string> changes) {
  const char* const root = std::getenv("PIPEWRIGHT_SOURCE");
  const std::string source = root != nullptr ? root : ".";
  changes.push_back("cluster.node.devices=8");
  return read_scenario(source + "/scenarios/validation/synthetic.yaml",
                       {.set = changes, .config_path = {source + "/configs"}});
}

struct Case {
  explicit Case(const std::vector<std::string>& changes) : Case(scenario(changes)) {}
  explicit Case(Scenario of)
      : asked(std::move(of)),
        cost(asked),
        predicted(price(find_plan(asked, cost), cost, Engine::Auto)),
        run_plan(pipewright::runtime::run_plan(predicted.plan, predicted.schedule, asked.model, asked.training,
                                               *cpu_backend(), {.synthetic = &cost})) {}

  std::vector<WorkerResult> run(int steps = 1) const {
    RunSettings settings;
    settings.steps = steps, settings.warmup = 0, settings.pin = false, settings.poison = true;
    const auto endpoints = local_transport(run_plan, {.spin = false, .timeout_s = 60});
    return execute(run_plan, cpu_backend, *no_data(), endpoints, settings);
  }

  Scenario asked;
  CostModel cost;
  Answer predicted;
  RunPlan run_plan;
};

using Message = std::tuple<std::uint32_t, Direction, MicroBatchId, WorkerId, WorkerId>;
std::map<Message, std::int64_t> bytes_of(const std::vector<Transfer>& transfers) {
  std::map<Message, std::int64_t> all;
  for (const Transfer& t : transfers)
    all[{t.edge, t.direction, t.micro_batch, t.from, t.to}] += t.bytes.value;
  return all;
}

// Two steps of it, and all that is claimed of them.
void check(const std::vector<std::string>& changes) {
  CAPTURE(changes);
  const Case run(changes);
  const auto workers = run.run(2);
  for (std::size_t w = 0; w < workers.size(); ++w) {
    CAPTURE(w);
    const PositionId position = static_cast<PositionId>(w) % run.predicted.plan.positions();
    CHECK(workers[w].memory == replayed(run.run_plan, position));
    const auto& ops = run.predicted.schedule.positions[position].compute;
    REQUIRE(workers[w].steps.size() == 2);
    for (const WorkerStep& step : workers[w].steps) {
      REQUIRE(step.times.compute.size() == ops.size());
      for (std::size_t i = 0; i < ops.size(); ++i) {
        const Span& span = step.times.compute[i];
        CHECK(span.end - span.start >= run.predicted.costs.time_of(ops[i]));
      }
      CHECK(step.samples == 0);
    }
  }
  CHECK(bytes_of(timeline_of(workers, 1).transfers) == bytes_of(run.predicted.timeline.transfers));
}

const std::string kQuick =
    "model.layers=["  // three of a hundred microseconds, and one that joins two tensors
    "{name: a, forward: 20 us, backward: 30 us, activation: 6400 B, stash: 64000 B, parameters: "
    "1600}, {name: b, repeat: 6, forward: 10 us, backward: 20 us, activation: 3200 B, "
    "parameters: 160}, {name: c, forward: 10 us, backward: 20 us, activation: 640 B, stash: 0 "
    "B, inputs: [b.5, a]}, {name: d, forward: 5 us, backward: 5 us, activation: 64 B}]";

}  // namespace

TEST_CASE("Synthetic runs send what is priced, hold what is counted and take the stated times: schedules and stages") {
  for (const std::string schedule : {"gpipe", "1f1b", "eager_1f1b", "naive", "zb_h1", "pipedream"})
    for (const std::string stages : {"2", "3", "4"})
      check({kQuick, "plan.schedule=" + schedule, "plan.stages=" + stages, "training.micro_batches=5"});
}

TEST_CASE("Likewise recomputed, interleaved, with tensors that skip stages, replicated and in copies") {
  for (const std::string recompute : {"full", "blocks"})
    check({kQuick, "plan.recompute=" + recompute, "plan.stages=3"});
  check({kQuick, "plan.schedule=interleaved_1f1b", "plan.stages=2", "plan.virtual_stages=2"});
  check({kQuick, "plan.stages=4", "plan.skips=direct"});
  check({kQuick, "plan.schedule=pipedream", "plan.stages=2", "plan.replicas=[2, 1]"});
  for (const std::string bucket : {"1 kB", "pytorch", "megatron"})
    check({kQuick, "plan.stages=2", "plan.data_parallel=2", "plan.bucket=" + bucket});
  check({kQuick, "plan.stages=2", "plan.data_parallel=2", "training.optimizer=adam", "training.zero=1"});
  check({kQuick, "plan.stages=2", "training.ragged=true", "training.global_batch_size=7", "training.micro_batch_size=2",
         "training.micro_batches=4"});
  check({kQuick, "plan.stages=2", "training.precision=bf16", "training.optimizer=adam"});
  for (const std::string recompute : {"none", "full"})
    check({kQuick, "plan.stages=4", "plan.schedule=bpipe", "training.micro_batches=8", "plan.recompute=" + recompute});
  check({kQuick, "plan.stages=2", "plan.schedule=seq1f1b", "plan.slices=2"});
}

TEST_CASE("What the memory model counts without messages is what the arena holds, tag by tag") {
  // Sizes are multiples of 64 B. GPipe's last forward leaves all eight stashes: on stage 0 of two the model's (which
  // has no input), on stage 1 less the 2 x 64 kB that lie in slots per micro-batch.
  const Case run({"plan.schedule=gpipe", "training.optimizer=adam"});
  const auto workers = run.run();
  for (PositionId p = 0; p < 2; ++p) {
    CAPTURE(p);
    const auto of = [&](Tag tag) {
      return workers[static_cast<std::size_t>(p)].memory.by_tag[static_cast<std::size_t>(tag)].value;
    };
    const MemoryBytes model = peak(run.predicted.memory, run.predicted.schedule, p).bytes;
    CHECK(of(Tag::Weights) == model.weights.value);
    CHECK(of(Tag::Gradients) == model.gradients.value);
    CHECK(of(Tag::Optimizer) == model.optimizer.value);
    CHECK(of(Tag::Stash) == model.stash.value - (p == 0 ? 0 : 8 * 2 * 64000));
    CHECK(model.stash.value > 8 * 2 * 64000);
  }
}

// Stage 0 of four would hold four micro-batches; two at most wait at stage 3, which would hold one. What it has received lies
// in slots.
TEST_CASE("Likewise where activations wait at a partner") {
  const Case run({"plan.stages=4", "plan.schedule=bpipe", "training.micro_batches=8"});
  const auto workers = run.run();
  const auto stash = [&](PositionId p) { return workers[at(p)].memory.by_tag[at(static_cast<int>(Tag::Stash))]; };
  const auto model = [&](PositionId p) { return peak(run.predicted.memory, run.predicted.schedule, p).bytes.stash; };
  CHECK(stash(0) == model(0));
  CHECK(stash(0) == 3 * run.predicted.memory.chunks[0].stash[0]);
  const Bytes own = model(3) - 2 * run.predicted.memory.chunks[0].stash[0];
  CHECK(stash(3) == model(3) - Bytes{2 * 64000});
  CHECK(own == run.predicted.memory.chunks[3].stash[0]);
}

TEST_CASE("A worker that waits for its priced time is seen by a cap, and by what it cannot do") {
  const Case run({kQuick});
  RunSettings settings;
  settings.memory_cap = replayed(run.run_plan, 0).extent - Bytes{1};
  const auto endpoints = local_transport(run.run_plan, {.spin = false, .timeout_s = 60});
  CHECK_THROWS_WITH_AS(execute(run.run_plan, cpu_backend, *no_data(), endpoints, settings),
                       doctest::Contains("worker 0: "), OutOfArena);
  CHECK_THROWS_WITH_AS(
      Case({kQuick, "training.zero=2", "plan.data_parallel=2"}),
      doctest::Contains("training.zero: a synthetic run keeps weights and gradients whole; use 0 or 1"), InputError);
}

TEST_CASE("Without arithmetic, too, what no run divides is refused") {
  CHECK_THROWS_WITH_AS(
      Case({kQuick, "plan.stages=1", "training.zero=1", "plan.data_parallel=4", "plan.data_parallel_shard=2"}),
      doctest::Contains("plan.data_parallel_shard: a synthetic run sums gradients over all copies"), InputError);
  CHECK_THROWS_WITH_AS(Case({kQuick, "training.clip_grad_norm=1"}),
                       doctest::Contains("training.clip_grad_norm: a synthetic run does not sum the norm"), InputError);
}

// The last stage's next-token modules share the embedding's table with stage 0. With fewer micro-batches than pipelines some
// workers have chunks that run none, whose gradients are complete all the same.
TEST_CASE("Tables of several stages are summed once a step, whoever runs how many micro-batches") {
  const Scratch scratch;
  for (const std::string schedule : {"1f1b", "chimera", "gems"})
    for (const std::string micro_batches : {"1", "2", "5"}) {
      CAPTURE(schedule);
      CAPTURE(micro_batches);
      const Case run(read_scenario(
          scratch.write(
              "x.yaml",
              "model: {family: decoder, layers: 6, hidden: 32, heads: 4, vocabulary: 200, sequence_length: 16, "
              "next_token_modules: 2, feed_forward: 64, tied: yes}\n"
              "cluster: {nodes: 1, node: {devices: 8, device: {memory: 80 GB, memory_bandwidth: 1 TB/s, peak: {fp32: "
              "10 TFLOP/s}}, links: {kind: nvswitch, bandwidth: 10 GB/s}}}\n"
              "training: {micro_batches: " +
                  micro_batches + ", micro_batch_size: 1, precision: fp32, optimizer: adam}\nplan: {stages: 4, " +
                  "data_parallel: 2, schedule: " + schedule + "}\n"),
          {}));
      const auto workers = run.run(2);
      for (std::size_t w = 0; w < workers.size(); ++w) {
        const PositionId position = static_cast<PositionId>(w) % run.predicted.plan.positions();
        const auto& tables = workers[w].steps.back().times.communication[kTables];
        CHECK(tables.size() == run.predicted.schedule.positions[position].communication[kTables].size());
        for (const Span& span : tables)
          CHECK((span.start > Time{} && span.end >= span.start));
      }
      CHECK(run.predicted.schedule.positions[0].communication[kTables].size() == 1);
    }
}
