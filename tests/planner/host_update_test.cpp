// An optimizer whose states lie in the host's memory: its time and its memory by hand.
#include "core/cost/host_update.hpp"

#include <doctest/doctest.h>

#include "core/cost/cost_model.hpp"
#include "core/cost/memory_model.hpp"
#include "planner/find_plan.hpp"
#include "tests/support/transformer_block.hpp"

using namespace pipewright::tests;

namespace {

Scenario on_host(double share) {
  Scenario scenario = block_scenario({.sequence = 1024, .hidden = 1024, .heads = 16, .inner = 4096}, 2, 1, {});
  scenario.training.gradient_precision = Precision::Fp32;
  scenario.training.global_batch_size = Placed<std::int64_t>{1, {}},
  scenario.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  scenario.training.offload_optimizer.value = share;
  scenario.cluster.device.host_link = Bandwidth{50e9}, scenario.cluster.device.host_update = Bandwidth{10e9};
  return scenario;
}

MemoryBytes held(const Scenario& scenario) {
  const CostModel cost(scenario);
  const ChunkMemory chunk = memory_model(find_plan(scenario, cost), cost).chunks.front();
  return {.weights = chunk.weights, .gradients = chunk.gradients, .optimizer = chunk.optimizer};
}

}  // namespace

TEST_CASE("the host updates its share: gradients there, states read and written, weights back") {
  const Scenario scenario = on_host(0.5);
  CHECK(updated_by_host(1'000'000'000, scenario.training) == 500'000'000);
  CHECK(host_state_bytes(scenario.training) == Bytes{12});
  // 5e8 x 4 B at 50 GB/s; x (4 + 24 + 2) B at 10 GB/s; x 2 B at 50 GB/s
  CHECK(host_update(500'000'000, scenario.training, scenario.cluster, scenario.cluster.device) ==
        Time{40'000'000 + 1'500'000'000 + 20'000'000});
  CHECK(host_update(0, scenario.training, scenario.cluster, scenario.cluster.device) == Time{});
  Training fp32 = scenario.training;
  fp32.precision = Precision::Fp32, fp32.optimizer = Optimizer::Sgd;
  CHECK(host_state_bytes(fp32) == Bytes{4});  // the weights, which the host reads and writes
}

TEST_CASE("the device updates the others, and holds their states alone") {
  const std::int64_t parameters = parameter_count(on_host(0).model);
  const auto update = [&](double share) {
    const Scenario scenario = on_host(share);
    return CostModel(scenario).source().update(parameters);
  };
  const Scenario half = on_host(0.5);
  const std::int64_t by_host = updated_by_host(parameters, half.training);
  const Scenario none = on_host(0);
  CHECK(update(0.5) == host_update(by_host, half.training, half.cluster, half.cluster.device) +
                           CostModel(none).source().update(parameters - by_host));
  CHECK(update(1) == host_update(parameters, half.training, half.cluster, half.cluster.device));
  const MemoryBytes all = held(none), some = held(on_host(0.25)), nothing = held(on_host(1));
  CHECK(all.optimizer == Bytes{12 * parameters});
  CHECK(some.optimizer == Bytes{9 * parameters});
  CHECK(nothing.optimizer == Bytes{0});
  CHECK(nothing.weights == all.weights);
  CHECK(nothing.gradients == all.gradients);
}

TEST_CASE("an update on the host needs to know how fast it is") {
  const auto refused = [](const auto& change) {
    Scenario scenario = on_host(0.5);
    scenario.training.offload_optimizer.place = {"s.yaml", 7, 3};
    change(scenario);
    try {
      find_plan(scenario, CostModel(scenario));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused([](Scenario&) {}).empty());
  CHECK(
      refused([](Scenario& s) { s.cluster.device.host_update.reset(); }) ==
      "s.yaml:7:3: training.offload_optimizer: device X100 does not state its host_update, which an update on the host "
      "needs; give it, e.g. 10 GB/s");
  CHECK(refused([](Scenario& s) { s.cluster.device.host_link.reset(); }).find("host_link") != std::string::npos);
  CHECK(refused([](Scenario& s) { s.model.layers[1].states = Bytes{1}; }).find("was measured on its device (states)") !=
        std::string::npos);
  CHECK(refused([](Scenario& s) { s.cost = CostSourceKind::Uniform; }).find("only cost: roofline") !=
        std::string::npos);
}
