// What FSDP2 copies around its collectives, and what its shards take.
#include "core/cost/gather_copies.hpp"

#include <cstdlib>

#include <doctest/doctest.h>

#include "core/answers/expectation.hpp"
#include "core/cost/cost_model.hpp"
#include "io/read/read_scenario.hpp"
#include "planner/answer.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

// Llama 3 8B on a node of eight H100; one micro-batch of 8192 tokens, unless said otherwise.
Scenario llama(const std::string& training, const std::string& plan = "data_parallel: 8", int tokens = 8192) {
  const Scratch scratch;
  const std::string model =
      "{family: decoder, layers: 32, hidden: 4096, heads: 32, key_heads: 8, feed_forward: 14336, vocabulary: 128256, "
      "attention: flash, sequence_length: " +
      std::to_string(tokens) + "}";
  const std::string usual =
      "global_batch_size: 8, micro_batch_size: 1, precision: bf16, gradient_precision: fp32, optimizer: adam";
  return read_scenario(scratch.write("x.yaml", "model: " + model + "\ncluster: dgx-h100x8\nset: {cluster.nodes: 1}\n" +
                                                   "training: {" + usual + training + "}\nplan: {" + plan + "}\n"),
                       {.config_path = {std::string(std::getenv("PIPEWRIGHT_SOURCE")) + "/configs"}});
}

Answer answered(const Scenario& scenario) {
  return std::get<Answer>(answer(scenario, {.engine = Engine::StaticOrder, .ignore_memory = true}));
}

constexpr double kBlock = 218'112'000;

}  // namespace

TEST_CASE("a block of Llama 3 8B among eight: 272.6, 872.4 and 1308.7 MB are moved") {
  const Scenario scenario = llama(", zero: 3, sharding: per_parameter");
  const CostModel cost(scenario);
  const Plan plan = find_plan(scenario, cost);
  REQUIRE(plan.units == 34);  // embedding, 32 blocks, head
  const GatherCopies copies = gather_copies(plan, 1, scenario);
  CHECK(copies.forward == doctest::Approx(10 * kBlock / 8 + 4 * kBlock));
  CHECK(copies.forward == doctest::Approx(272.64e6 + 872.448e6));
  CHECK(copies.backward == copies.forward);
  CHECK(copies.gradients == doctest::Approx(1308.672e6));
  CHECK(copies.step == 0);
  CHECK(gather_copies(plan, 33, scenario).backward == 0);  // whole from its forward to its backward
  CHECK(gather_copies(plan, 33, scenario).forward > 0);
  // 872 MB at about 3 TB/s
  const double out = seconds(cost.source().copy(4 * kBlock));
  CHECK(out > 0.26e-3);
  CHECK(out < 0.36e-3);
}

TEST_CASE("copies are of what is repeated, once a step where weights stay whole, and of nothing else") {
  const auto of = [](const std::string& training, const std::string& plan, VirtualStageId v) {
    const Scenario scenario = llama(training, plan);
    const CostModel cost(scenario);
    return gather_copies(find_plan(scenario, cost), v, scenario);
  };
  const std::string per = ", sharding: per_parameter";
  for (const auto& [training, plan] : {std::pair<std::string, std::string>{", zero: 3", "data_parallel: 8"},
                                       {", zero: 2" + per, "data_parallel: 8"},
                                       {", zero: 1" + per, "data_parallel: 8"},
                                       {", zero: 3" + per, "data_parallel: 1"}}) {
    const GatherCopies none = of(training, plan, 0);
    CHECK(none.forward + none.backward + none.gradients + none.step == 0);
  }
  const GatherCopies kept = of(", zero: 3" + per, "data_parallel: 8, reshard_after_forward: false", 1);
  CHECK(kept.forward > 0);
  CHECK(kept.backward == 0);
  const GatherCopies piped = of(", zero: 3" + per, "stages: 2, data_parallel: 4, schedule: 1f1b", 1);
  CHECK(piped.forward + piped.backward + piped.gradients == 0);
  CHECK(piped.step == doctest::Approx(10 * kBlock / 4 + 4 * kBlock + 6 * kBlock));
}

TEST_CASE("the step takes the copies longer, and shards that are their own masters take two bytes less") {
  const Scenario flat = llama(", zero: 3"), per = llama(", zero: 3, sharding: per_parameter");
  const Answer a = answered(flat), b = answered(per);
  CHECK(b.report.step_time > a.report.step_time);
  const CostModel cost(per);
  const Plan plan = find_plan(per, cost);
  double bytes = 0;
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    const GatherCopies copies = gather_copies(plan, v, per);
    bytes += copies.forward + copies.backward + copies.gradients + copies.step;
  }
  // Hidden by nothing, as they run between the ops: no longer than all of them one after the other.
  CHECK(b.report.step_time <= a.report.step_time + cost.source().copy(bytes) + Time{200'000});
  const auto states = [](const Answer& of) {
    const MemoryBytes& peak = of.report.stages.front().memory.bytes;
    return memory_part(peak, "training_state").value;
  };
  CHECK(states(a) - states(b) == doctest::Approx(2 * 8'030'261'248.0 / 8).epsilon(1e-6));
}

TEST_CASE("a host that is slower than its device gathers late: one after the other, beside the host") {
  const auto ms = [](double value) { return Time{static_cast<std::int64_t>(value * 1e6)}; };
  const KernelQueue slow = KernelQueue::kernel(ms(10), ms(6)), quick = KernelQueue::kernel(ms(5), ms(6));
  CHECK(behind_late_gather(ms(10), slow, ms(5)) == ms(11));
  CHECK(behind_late_gather(ms(10), slow, ms(3)) == ms(10));
  CHECK(behind_late_gather(ms(6), quick, ms(5)) == ms(6));  // issued in time
  // In a plan: a slow host, and gathers that take long. Flat shards are gathered ahead.
  const auto forward = [](const std::string& sharding, int tokens) {
    Scenario scenario = llama(", zero: 3, sharding: " + sharding, "data_parallel: 8, recompute: none", tokens);
    scenario.cluster.device.host.operation = Time{100'000};
    return answered(scenario).costs.duration[1 * kKinds + static_cast<std::size_t>(Kind::F)];
  };
  // 1024 tokens take a block of an H100 less than its host needs to issue it, 8192 more.
  const CostModel cost(llama(", zero: 3, sharding: per_parameter"));
  const Time copies = cost.source().copy(10 * kBlock / 8 + 4 * kBlock);
  CHECK(forward("per_parameter", 1024) > forward("flat", 1024) + copies);
  CHECK(forward("per_parameter", 8192) == forward("flat", 8192) + copies);
}
