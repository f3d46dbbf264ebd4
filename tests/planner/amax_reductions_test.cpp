// All-reduces of largest values that delayed scaling waits for.
#include "core/cost/amax_reductions.hpp"

#include <cstdlib>

#include <doctest/doctest.h>

#include "core/cost/step_pricer.hpp"
#include "io/read/read_scenario.hpp"
#include "planner/find_plan.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

// Eight blocks on nodes of eight H100 with NICs of no latency, groups of eight tensor-parallel devices unless said otherwise.
Scenario blocks(const std::string& training, const std::string& plan = "data_parallel: 32, tensor_parallel: 8") {
  const Scratch scratch;
  return read_scenario(
      scratch.write(
          "x.yaml",
          "model: {family: decoder, layers: 8, hidden: 4096, heads: 32, feed_forward: 14336, vocabulary: 32000, "
          "attention: flash, sequence_length: 2048}\ncluster: dgx-h100x8\n"
          "set: {cluster.nodes: 32, cluster.network.latency: 0 us}\n"
          "training: {micro_batches: 4, micro_batch_size: 1, precision: bf16, optimizer: adam, " +
              training + "}\nplan: {" + plan + "}\n"),
      {.config_path = {std::string(std::getenv("PIPEWRIGHT_SOURCE")) + "/configs"}});
}

std::vector<Time> reductions(const Scenario& scenario) {
  const CostModel cost(scenario);
  return amax_reductions(find_plan(scenario, cost), cost);
}

const char* const kDelayed = "low_precision: fp8_delayed";
const char* const kTensor = "low_precision: fp8_delayed, amax_reduction: tensor_parallel";
const char* const kNobody = "low_precision: fp8_delayed, amax_reduction: none";

}  // namespace

TEST_CASE("256 devices on 32 nodes agree in 65.2 us, eight in a node in 15.9, and nobody in none") {
  const std::vector<Time> all = reductions(blocks(kDelayed)), of_node = reductions(blocks(kTensor));
  REQUIRE(all.size() == 1);
  CHECK(seconds(all[0]) == doctest::Approx(65.2e-6).epsilon(0.005));
  CHECK(seconds(of_node[0]) == doctest::Approx(15.9e-6).epsilon(0.02));
  CHECK(reductions(blocks(kNobody)).empty());
  CHECK(reductions(blocks("low_precision: fp8_tensorwise")).empty());
  CHECK(reductions(blocks("low_precision: none")).empty());
  // One device agrees with itself.
  CHECK(reductions(blocks(kTensor, "data_parallel: 8"))[0] == Time{});
}

TEST_CASE("a group is a stage's devices: two stages side by side in every node have four of each") {
  const std::string plan = "stages: 2, data_parallel: 32, tensor_parallel: 4";
  const std::vector<Time> apart = reductions(blocks(kDelayed, plan + ", placement: data")),
                          beside = reductions(blocks(kDelayed, plan));
  REQUIRE(apart.size() == 2);
  CHECK(apart[0] == apart[1]);
  CHECK(beside[0] == beside[1]);
  // 16 nodes of eight, or 32 of four: 6.8 + 2 (7 * 0.6 + 4 * 5) = 55.2, 6.8 + 2 (3 * 0.6 + 5 * 5) = 60.4 us.
  CHECK(seconds(apart[0]) == doctest::Approx(55.2e-6).epsilon(0.005));
  CHECK(seconds(beside[0]) == doctest::Approx(60.4e-6).epsilon(0.005));
}

TEST_CASE("every forward and backward of a chunk waits once, a repeated forward does not") {
  const std::string plan = "stages: 2, data_parallel: 16, tensor_parallel: 8, schedule: 1f1b, recompute: full";
  const Scenario with = blocks(kDelayed, plan), without = blocks(kNobody, plan);
  const CostModel cost(with), free(without);
  const Plan same = find_plan(with, cost);
  const StepCosts costs = step_costs(same, cost), others = step_costs(same, free);
  const Time one = amax_reductions(same, cost)[0];
  CHECK(one > Time{});
  for (const std::size_t chunk : {0, 1}) {
    const auto more = [&](Kind kind) {
      const std::size_t row = chunk * kKinds + static_cast<std::size_t>(kind);
      return costs.duration[row] - others.duration[row];
    };
    CHECK(more(Kind::F) == one);
    CHECK(more(Kind::BW) == one);
    CHECK(more(Kind::B) == one);
    CHECK(more(Kind::R) == Time{});
    CHECK(more(Kind::W) == Time{});
    CHECK(more(Kind::Update) == Time{});
  }
  // Searches price the same.                               core/cost/step_pricer.hpp
  StepPricer pricer(same, cost);
  CHECK(pricer.costs(std::vector<LayerRange>(same.layers.begin(), same.layers.end()), same.recompute).duration ==
        costs.duration);
}

TEST_CASE("copies may lie anywhere, and those that share sequences belong to tensor parallelism's group") {
  // The first copy on the last of them: 32 devices on four nodes, 6.8 + 2 (7 * 0.6 + 2 * 5) = 35.2 us, as in order.
  const std::string copies = "data_parallel: 4, tensor_parallel: 8, placement: ";
  const std::vector<Time> anywhere = reductions(blocks(kDelayed, copies + "[160, 8, 16, 24]"));
  CHECK(anywhere == reductions(blocks(kDelayed, copies + "[0, 8, 16, 24]")));
  CHECK(seconds(anywhere[0]) == doctest::Approx(35.2e-6).epsilon(0.005));
  const std::string shared = "data_parallel: 4, context_parallel: 2, tensor_parallel: 4";
  CHECK(reductions(blocks(kTensor, shared)) == reductions(blocks(kTensor)));  // eight of a node
  CHECK(reductions(blocks(kTensor, shared)) > reductions(blocks(kTensor, "data_parallel: 8, tensor_parallel: 4")));
}
