// Optimizers' states, and the step of Muon (core/cost/muon.hpp, optimizer_bytes).
#include "core/cost/muon.hpp"

#include <doctest/doctest.h>

#include "core/model/layer_builder.hpp"
#include "tests/support/microseconds.hpp"

using namespace pipewright::tests;

namespace {

Bytes states(Optimizer optimizer, Moments moments = Moments::Fp32, MasterWeights masters = MasterWeights::Fp32,
             bool matrix = false) {
  Training training;
  training.precision = Precision::Bf16, training.optimizer = optimizer;
  training.moments = {moments, {}}, training.master_weights = {masters, {}};
  return optimizer_bytes(training, matrix);
}

// One layer: 8 tokens of 16 features, to 64 and back, and a norm.
Work feed_forward() {
  LayerBuilder layer;
  auto x = layer.input({8, 16});
  x = layer.norm(x, {.kind = Norm::Rms});
  x = layer.linear(x, {.features = 64, .bias = false, .split = Split::Columns});
  return layer.finish({layer.linear(x, {.features = 16, .bias = false, .split = Split::Rows})});
}

}  // namespace

TEST_CASE("bytes of an optimizer's states: moments and master weights in fewer bits") {
  CHECK(states(Optimizer::Adam) == Bytes{12});
  CHECK(states(Optimizer::Adam, Moments::Bf16) == Bytes{8});  // DeepSeek-V3's
  CHECK(states(Optimizer::Adam, Moments::Bf16, MasterWeights::Remainder) == Bytes{6});
  CHECK(states(Optimizer::Adam, Moments::Fp8, MasterWeights::Fp16) == Bytes{4});
  CHECK(states(Optimizer::Adam, Moments::Int8, MasterWeights::None) == Bytes{2});
  CHECK(states(Optimizer::Sgd, Moments::Fp8) == Bytes{4});
  CHECK(states(Optimizer::Momentum, Moments::Bf16) == Bytes{6});
  CHECK(states(Optimizer::Muon) == Bytes{12});
  CHECK(states(Optimizer::Muon, Moments::Fp32, MasterWeights::Fp32, true) == Bytes{8});
  Training fp32;
  fp32.optimizer = Optimizer::Adam, fp32.master_weights = {MasterWeights::Fp16, {}};
  CHECK(optimizer_bytes(fp32) == Bytes{8});  // weights are their own masters
}

TEST_CASE("Muon updates the matrices of a layer, divided as its products are, and norms go by Adam") {
  Scenario scenario;
  scenario.model.works = {feed_forward()};
  scenario.model.layers.push_back({.work = 0});
  CHECK(muon_parameters(scenario, 0).all == 0);
  scenario.training.optimizer = Optimizer::Muon;
  CHECK(muon_parameters(scenario, 0).all == 2 * 16 * 64);
  scenario.plan.tensor_parallel.value = 4;
  CHECK(muon_parameters(scenario, 0).all == 2 * 16 * 16);
  const std::vector<Operator>& ops = scenario.model.works[0].operators;
  int matrices = 0;
  for (const Operator& op : ops) {
    if (!muon_matrix(op)) continue;
    ++matrices;
    const MuonMatrix whole = muon_matrix_of(op, {}), part = muon_matrix_of(op, scenario.plan.split());
    CHECK((whole.m == 16 && whole.n == 64 && whole.count == 1));
    CHECK((part.m == 16 && part.n == 16));
  }
  CHECK(matrices == 2);
}
