// Muon and optimizers' states in fewer bits in a plan: memory and the step's time by hand, and what is refused.
#include <cmath>

#include <doctest/doctest.h>

#include "core/cost/memory_model.hpp"
#include "core/cost/muon.hpp"
#include "io/read/read_scenario.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "tests/io/scratch.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/support/transformer_block.hpp"

using namespace pipewright::tests;

namespace {

// Two blocks: 12 h^2 of matrices each, h = 1024.
Scenario with_optimizer(Optimizer optimizer) {
  Scenario scenario = block_scenario({.sequence = 1024, .hidden = 1024, .heads = 16, .inner = 4096}, 2, 1, {});
  scenario.training.optimizer = optimizer;
  scenario.training.gradient_precision = Precision::Fp32;
  scenario.training.global_batch_size = scenario.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  return scenario;
}

std::int64_t state_bytes(const Scenario& scenario) {
  const CostModel cost(scenario);
  return memory_model(find_plan(scenario, cost), cost).chunks.front().optimizer.value;
}

std::int64_t in_matrices(const Scenario& scenario) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < scenario.model.layers.size(); ++i)
    sum += muon_parameters(scenario, static_cast<LayerId>(i)).all;
  return sum;
}

}  // namespace

TEST_CASE("Muon keeps one moment of a matrix, two of all else") {
  const Scenario muon = with_optimizer(Optimizer::Muon);
  const std::int64_t parameters = parameter_count(muon.model), matrices = in_matrices(muon);
  CHECK(matrices == 2 * 12 * 1024 * 1024);
  CHECK(matrices == parameters);  // no norms here
  CHECK(state_bytes(with_optimizer(Optimizer::Adam)) == 12 * parameters);
  CHECK(state_bytes(muon) == 12 * parameters - 4 * matrices);
  Scenario fewer = muon;
  fewer.training.moments.value = Moments::Bf16, fewer.training.master_weights.value = MasterWeights::Remainder;
  CHECK(state_bytes(fewer) == 6 * parameters - 2 * matrices);
}

// m = 1024: n = 3072, 1024, 4096 and 4096: 5 (4 m^2 n + 2 m^3) of 312 TFLOP/s, both blocks: 560 2^30 / 312e12 s.
TEST_CASE("Muon's step: five iterations of three products for each matrix, whole matrices dealt out") {
  const Scenario scenario = with_optimizer(Optimizer::Muon);
  const CostModel cost(scenario);
  const auto layers = static_cast<LayerId>(scenario.model.layers.size());
  const double whole = 560.0 * (std::int64_t{1} << 30) / 312e3, largest = 90.0 * (std::int64_t{1} << 30) / 312e3;
  const auto step = [&](int members) {
    return static_cast<double>(cost.source().orthogonalise({0, layers}, {members, 1}).value);
  };
  CHECK(step(1) == doctest::Approx(whole).epsilon(1e-6));
  CHECK(step(4) == doctest::Approx(whole / 4).epsilon(1e-6));
  CHECK(step(16) == doctest::Approx(largest).epsilon(1e-6));
  const Scenario adam = with_optimizer(Optimizer::Adam);
  CHECK(CostModel(adam).source().orthogonalise({0, layers}, {}) == Time{});
  const auto time = [](const Scenario& s) {
    const CostModel model(s);
    return price(find_plan(s, model), model, Engine::Auto).report.step_time;
  };
  // Fewer bytes of moments are read and written: 8 of a matrix's 32.
  const double saved = 8.0 * static_cast<double>(in_matrices(scenario)) / 2039e9 * 1e9;
  CHECK(static_cast<double>((time(scenario) - time(adam)).value) == doctest::Approx(whole - saved).epsilon(1e-4));
}

TEST_CASE("optimizers that a plan cannot have are refused, with a way out") {
  Scenario scenario = with_optimizer(Optimizer::Muon);
  scenario.training.zero = 2, scenario.training.zero_place = {"s.yaml", 3, 5};
  CHECK(error_of(scenario).find(
            "s.yaml:3:5: training.zero: 2 divides matrices, and muon needs whole ones; write 0 or 1") !=
        std::string::npos);
  scenario = with_optimizer(Optimizer::Muon);
  scenario.training.offload_optimizer.value = 0.5;
  scenario.cluster.device.host_link = Bandwidth{50e9}, scenario.cluster.device.host_update = Bandwidth{10e9};
  CHECK(error_of(scenario).find("training.offload_optimizer: a host does not run muon's products") !=
        std::string::npos);
  scenario = with_optimizer(Optimizer::Adam);
  scenario.training.master_weights.value = MasterWeights::Remainder;
  CHECK(error_of(scenario) == "no error");
  scenario.training.precision = Precision::Fp16;
  scenario.cluster.device.peak[Precision::Fp16] = FlopRate{312e12};
  CHECK(error_of(scenario).find("remainder is of bf16 weights") != std::string::npos);
}

// Dense matrices D, those of experts E: D / 8 + E where no other device holds the same experts.
TEST_CASE("Muon: matrices of experts are shared among those that hold the same") {
  const Scratch folder;
  const Scenario scenario = read_scenario(folder.write(
      "s.yaml",
      "model: {family: decoder, layers: 2, hidden: 512, heads: 4, feed_forward: 1024, vocabulary: 512, "
      "sequence_length: 128, experts: 16, active_experts: 2, expert_feed_forward: 256}\n"
      "cluster: {node: {devices: 8, device: {memory: 16 GiB, peak: {bf16: 20 TFLOP/s}, memory_bandwidth: 1 "
      "TB/s}, links: {kind: nvswitch, bandwidth: 100 GB/s}}}\n"
      "training: {optimizer: muon, precision: bf16, micro_batch_size: 1, micro_batches: 1, zero: 1}\n"
      "plan: {stages: 1, data_parallel: 8, expert_parallel: 8}\n"));
  const CostModel cost(scenario);
  const auto layers = static_cast<LayerId>(scenario.model.layers.size());
  const auto step = [&](int members, int of_experts) {
    return static_cast<double>(cost.source().orthogonalise({0, layers}, {members, of_experts}).value);
  };
  CHECK(step(2, 1) + step(1, 2) == doctest::Approx(step(1, 1) + step(2, 2)).epsilon(1e-6));
  CHECK(step(2, 1) < step(1, 1));
  CHECK(step(2, 1) > step(2, 2));
  const auto update = [&](std::int64_t zero) {
    Scenario other = scenario;
    other.training.zero = zero;
    const CostModel model(other);
    const Plan plan = find_plan(other, model);
    return step_costs(plan, model).duration[static_cast<std::size_t>(Kind::Update)];
  };
  CHECK(update(1) >= Time{std::llround(step(8, 1))});
  CHECK(update(1) < update(0));
}
