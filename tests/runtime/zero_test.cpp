// training.zero: 1: members of a chunk divide the optimizer's states and the update, and every bit stays what it is with
// whole ones.
#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/check.hpp"
#include "core/cost/cost_model.hpp"
#include "runtime/backends/cpu.hpp"
#include "tests/runtime/rank_processes.hpp"
#include "tests/runtime/run_case.hpp"
#include "tests/runtime/sequential_steps.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

using Keys = std::vector<std::string>;

// Seven layers of 36 + 6 parameters and one of 24 + 4. In tensors of 64 B: 7 (192 + 64) + 128 + 64 = 1984 B.
const std::string kEightLayers =
    "model={name: chain, input_shape: [6], layers: [{name: body, repeat: 7, ops: [{op: linear, features: 6}, {op: "
    "tanh}]}, {name: head, op: linear, features: 4}, {name: loss, op: cross_entropy}]}";

RunCase case_of(Keys changes, int zero) {
  changes.insert(changes.begin(), {kEightLayers, "model.input_tokens=null", "cluster.node.devices=16",
                                   "training.micro_batches=4", set("training.zero", zero)});
  return RunCase(changes);
}

std::int64_t bytes_of(const WorkerResult& worker, Tag tag) {
  return worker.memory.by_tag[static_cast<std::size_t>(tag)].value;
}

// Bits of losses, gradients of the first step and weights after the last.
void check_bits(const std::vector<WorkerResult>& whole, const std::vector<WorkerResult>& divided) {
  REQUIRE(whole.size() == divided.size());
  for (std::size_t s = 0; s < whole[0].steps.size(); ++s)
    CHECK(loss_of(divided, s) == loss_of(whole, s));
  for (std::size_t w = 0; w < whole.size(); ++w) {
    CAPTURE(w);
    CHECK((divided[w].gradients == whole[w].gradients));
    CHECK((divided[w].weights == whole[w].weights));
  }
}

// Four steps with whole states and with divided ones. What is held is what was counted, less the parts of others.
void check_divided(const Keys& changes, Wait wait = Wait::Block) {
  CAPTURE(changes);
  const RunCase whole = case_of(changes, 0), divided = case_of(changes, 1);
  const auto before = whole.run(settings_of(whole, 4), wait), after = divided.run(settings_of(divided, 4), wait);
  check_bits(before, after);
  CHECK(loss_of(after, 3) != loss_of(after, 0));
  for (std::size_t w = 0; w < after.size(); ++w) {
    CAPTURE(w);
    const auto position = static_cast<PositionId>(w) % divided.plan.positions();
    CHECK(after[w].memory == replayed(divided.run_plan, position));
    for (const Tag tag : {Tag::Weights, Tag::Gradients, Tag::Stash, Tag::Buffers})
      CHECK(bytes_of(after[w], tag) == bytes_of(before[w], tag));
    std::int64_t states = 0;
    for (std::size_t v = 0; v < divided.run_plan.code.size(); ++v) {
      if (!divided.plan.seating().holds(divided.plan.seating().stage_at(position), static_cast<VirtualStageId>(v)))
        continue;
      const std::int64_t all = divided.run_plan.code[v].gradient_bytes;
      const std::int64_t members = divided.schedule.seating().members(static_cast<VirtualStageId>(v));
      states += (all + members * 64 - 1) / (members * 64) * 64;  // 64 B: the alignment
    }
    CHECK(bytes_of(after[w], Tag::Optimizer) ==
          states * pipewright::runtime::states(divided.scenario.training.optimizer));
  }
}

const Keys kAllOptimizers = {"sgd", "momentum", "rmsprop", "adam"};

}  // namespace

TEST_CASE("ZeRO-1, parts: 1984 B are 704, 704 and 576 B for three, and 496 B each, rounded up to 512 B, for four") {
  const auto parts = [](int copies) {
    const RunCase run = case_of({"plan.stages=1", set("plan.data_parallel", copies)}, 1);
    CHECK(run.run_plan.weight_parts(0) == run.run_plan.gradient_parts(0));  // fp32, no part begins in a gap
    return run.run_plan.gradient_parts(0);
  };
  CHECK(parts(1) == std::vector<std::int64_t>{0, 1984});
  CHECK(parts(3) == std::vector<std::int64_t>{0, 704, 1408, 1984});
  CHECK(parts(4) == std::vector<std::int64_t>{0, 512, 1024, 1536, 1984});
  CHECK(parts(12) == std::vector<std::int64_t>{0, 192, 384, 576, 768, 960, 1152, 1344, 1536, 1728, 1920, 1984, 1984});
}

TEST_CASE("ZeRO-1 gives the bits of whole states, and holds its part: optimizers, two to four copies") {
  for (const std::string& optimizer : kAllOptimizers)
    for (const int copies : {2, 3, 4})
      check_divided({"training.optimizer=" + optimizer, "plan.stages=1", set("plan.data_parallel", copies)});
  check_divided({"training.optimizer=adam", "plan.stages=1", "plan.data_parallel=12"});  // the last one's part is empty
}

TEST_CASE("Likewise in stages and chunks, in buckets, by threads that spin, and over throttled links") {
  for (const std::string& optimizer : kAllOptimizers) {
    check_divided({"plan.schedule=1f1b", "plan.stages=2", "plan.data_parallel=2", "training.optimizer=" + optimizer});
    check_divided({"plan.schedule=interleaved_1f1b", "plan.stages=2", "plan.virtual_stages=2", "plan.data_parallel=4",
                   "plan.bucket=100 B", "training.optimizer=" + optimizer});
  }
  for (const Wait wait : {Wait::Spin, Wait::BlockThrottled, Wait::SpinThrottled})
    check_divided({"plan.schedule=1f1b", "plan.stages=2", "plan.data_parallel=2", "training.optimizer=adam"}, wait);
}

TEST_CASE("Likewise where a chunk lies on several workers of one copy") {
  for (const std::string copies : {"1", "2"}) {
    const std::string data_parallel = "plan.data_parallel=" + copies, adam = "training.optimizer=adam";
    for (const std::string replicas : {"[2, 1]", "[1, 2]", "[3, 2]"})
      for (const std::string schedule : {"1f1b", "pipedream"})
        check_divided({"plan.schedule=" + schedule, "plan.stages=2", "plan.replicas=" + replicas, data_parallel,
                       "training.micro_batches=6", adam});
    for (const std::string schedule : {"chimera", "dualpipe"})
      check_divided({"plan.schedule=" + schedule, "plan.stages=4", data_parallel, "training.micro_batches=8", adam});
    check_divided({"plan.schedule=pipedream_2bw", "plan.stages=2", data_parallel, "training.micro_batches=6", adam});
  }
}

TEST_CASE("Processes over tcp give the bits of threads, and of whole states") {
  const Keys changes = {"plan.schedule=1f1b", "plan.stages=2", "plan.data_parallel=2", "training.optimizer=adam"};
  const RunCase whole = case_of(changes, 0), run = case_of(changes, 1);
  const auto threads = run.run(settings_of(run, 4));
  check_bits(whole.run(settings_of(whole, 4)), threads);
  const auto texts = in_processes(4, [&](Ranks& ranks) {
    const auto results = execute(ranks, run.run_plan, cpu_backend, *run.data, settings_of(run, 4));
    return ranks.first() ? everything(results) : "done";
  });
  CAPTURE(texts[0].substr(0, 200));
  CHECK((texts[0] == everything(threads)));
  for (std::size_t r = 1; r < texts.size(); ++r)
    CHECK(texts[r] == "done");
}

TEST_CASE("Gradients and weights of a divided run are those of one worker, who divides nothing") {
  const RunCase run =
      case_of({"plan.schedule=1f1b", "plan.stages=2", "plan.data_parallel=2", "training.optimizer=adam"}, 1);
  const RunSettings settings = settings_of(run, 1);
  const auto workers = run.run(settings);
  const auto gradients = sequential_gradients(run.run_plan, cpu_backend, *run.data, settings);
  const auto weights = sequential_weights(run.run_plan, cpu_backend, *run.data, settings);
  for (std::size_t w = 0; w < workers.size(); ++w) {
    CHECK((workers[w].gradients[w % 2] == gradients[w % 2]));
    CHECK((workers[w].weights[w % 2] == weights[w % 2]));
  }
}

TEST_CASE("What else could be divided is refused with the key and the way out") {
  const auto refusal = [](const Keys& changes, int zero) { return message_of([&] { case_of(changes, zero); }); };
  const Keys copies = {"plan.schedule=1f1b", "plan.stages=1", "plan.data_parallel=4"};
  for (const int zero : {2, 3})
    CHECK(refusal(copies, zero).find("training.zero: a run keeps weights and gradients whole; use 0 or 1") !=
          std::string::npos);
  Keys groups = copies;
  groups.push_back("plan.data_parallel_shard=2");
  CHECK(refusal(groups, 1).find("plan.data_parallel_shard: a run divides optimizer states among all copies; leave it "
                                "out") != std::string::npos);
}
