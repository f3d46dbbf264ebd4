#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/backends/cpu.hpp"
#include "tests/runtime/step_runner.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

constexpr std::int64_t kValues = 19;  // a vector, and some left over

// Every value alike: what one update makes of weight, gradient and states.
struct Updated {
  double weight;
  std::vector<double> states;
};
Updated updated(const OptimizerSettings& settings, std::int64_t step, double weight, double gradient,
                std::vector<double> before) {
  const Block<double> w(kValues), g(kValues), out(kValues);
  std::vector<Block<double>> state;
  const auto cast = [](const Block<double>& block) { return reinterpret_cast<float*>(block.data()); };
  UpdatedParameter one = {kValues, cast(w), cast(out), cast(g)};
  for (const double value : before) {
    state.emplace_back(kValues);
    std::fill(state.back().begin(), state.back().end(), value);
    one.states[state.size() - 1] = cast(state.back());
  }
  std::fill(w.begin(), w.end(), weight), std::fill(g.begin(), g.end(), gradient);
  cpu_backend_in_double()->update(settings, step, {&one, 1});
  for (std::int64_t i = 0; i < kValues; ++i) {
    CHECK(out[i] == doctest::Approx(out[0]).epsilon(1e-15));
    CHECK(w[i] == weight);
  }
  Updated result{out[0], {}};
  for (const Block<double>& block : state)
    result.states.push_back(block[kValues - 1]);
  return result;
}

bool near(const Updated& found, const Updated& wanted) {
  bool equal = found.weight == doctest::Approx(wanted.weight).epsilon(1e-12);
  for (std::size_t i = 0; i < wanted.states.size(); ++i)
    equal = equal && found.states.at(i) == doctest::Approx(wanted.states[i]).epsilon(1e-12);
  return equal && found.states.size() == wanted.states.size();
}

}  // namespace

TEST_CASE("SGD steps against the gradient: 1 - 0.1 * 0.5") {
  CHECK(near(updated({.kind = Optimizer::Sgd, .learning_rate = 0.1}, 1, 1, 0.5, {}), {0.95, {}}));
}

TEST_CASE("Momentum: v = 0.9 * 1 + 0.5, and 1 - 0.1 v") {
  const OptimizerSettings momentum = {.kind = Optimizer::Momentum, .learning_rate = 0.1, .momentum = 0.9};
  CHECK(near(updated(momentum, 1, 1, 0.5, {1}), {0.86, {1.4}}));
}

TEST_CASE("RMSProp: v = 0.75 * 4 + 0.25 * 2^2, and 1 - 0.1 * 2 / (sqrt 4 + 0.5)") {
  const OptimizerSettings rmsprop = {.kind = Optimizer::RmsProp, .learning_rate = 0.1, .beta2 = 0.75, .epsilon = 0.5};
  CHECK(near(updated(rmsprop, 1, 1, 2, {4}), {0.92, {4}}));
}

TEST_CASE("Adam corrects its averages for their start at zero") {
  const OptimizerSettings adam = {
      .kind = Optimizer::Adam, .learning_rate = 0.1, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 0.5};
  // m = 1, v = 1; m / 0.5 = 2, sqrt(v / 0.25) = 2: 1 - 0.1 * 2 / 2.5
  CHECK(near(updated(adam, 1, 1, 2, {0, 0}), {0.92, {1, 1}}));
  // Then a gradient of 0: m = 0.5, v = 0.75; m / 0.75 = 2/3, v / 0.4375 = 12/7
  CHECK(near(updated(adam, 2, 0.92, 0, {1, 1}), {0.92 - 0.1 * (2.0 / 3) / (std::sqrt(12.0 / 7) + 0.5), {0.5, 0.75}}));
}

TEST_CASE("Several tensors at once are updated as one after another") {
  const OptimizerSettings adam = {.kind = Optimizer::Adam, .learning_rate = 0.01};
  constexpr std::int64_t sizes[] = {7, 300, 64};
  const auto backend = cpu_backend();
  const auto run = [&](bool at_once) {
    std::vector<float> all;
    std::vector<Block<float>> blocks;
    std::vector<UpdatedParameter> parameters;
    for (const std::int64_t n : sizes) {
      Random random(static_cast<unsigned>(n));
      for (int i = 0; i < 4; ++i)  // weight, gradient, both states
        random.fill(blocks.emplace_back(n));
      const auto at = [&](std::size_t i) { return blocks[blocks.size() - 4 + i].data(); };
      for (std::int64_t j = 0; j < n; ++j)
        at(3)[j] = std::abs(at(3)[j]);
      parameters.push_back({n, at(0), at(0), at(1), {at(2), at(3)}});
    }
    if (at_once) backend->update(adam, 2, parameters);
    for (const UpdatedParameter& one : parameters)
      if (!at_once) backend->update(adam, 2, {&one, 1});
    for (const Block<float>& block : blocks)
      all.insert(all.end(), block.begin(), block.end());
    return all;
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("An update in place gives the same bits as one into another block") {
  for (const Optimizer kind : {Optimizer::Sgd, Optimizer::Momentum, Optimizer::RmsProp, Optimizer::Adam}) {
    const Block<float> w(1000), g(1000), out(1000), first(1000), second(1000);
    Random random(3);
    random.fill(w), random.fill(g);
    const auto backend = cpu_backend();
    const auto run = [&](float* to) {
      for (const Block<float>& state : {std::cref(first), std::cref(second)})
        std::fill(state.begin(), state.end(), 0.25f);
      const UpdatedParameter one = {1000, w.data(), to, g.data(), {first.data(), second.data()}};
      backend->update({.kind = kind}, 3, {&one, 1});
    };
    run(out.data());
    run(w.data());
    CHECK(std::equal(w.begin(), w.end(), out.begin()));
  }
}

TEST_CASE("States per parameter") {
  CHECK(states(Optimizer::Sgd) == 0);
  CHECK(states(Optimizer::Momentum) == 1);
  CHECK(states(Optimizer::RmsProp) == 1);
  CHECK(states(Optimizer::Adam) == 2);
}
