// Forward passes against plain loops, and what holds beyond exact arithmetic: extremes, NaN, accuracy in float.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/backends/cpu.hpp"
#include "runtime/backends/cpu_kernels.hpp"
#include "tests/runtime/naive_forward.hpp"
#include "tests/runtime/step_runner.hpp"
#include "tests/runtime/step_table.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;
namespace kernels = pipewright::runtime::cpu_kernels;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Largest |f(x) - exact(x)| / max(|exact(x)|, floor) for x from -range to range in steps of 1/256.
double largest_error(kernels::Function function, double range, double floor, double (*exact)(double)) {
  std::vector<float> x, y;
  for (double at = -range; at <= range; at += 1.0 / 256)
    x.push_back(static_cast<float>(at));
  y.resize(x.size());
  kernels::activation(function, static_cast<std::int64_t>(x.size()), x.data(), y.data());
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double right = exact(static_cast<double>(x[i]));
    const double error = std::abs(static_cast<double>(y[i]) - right) / std::max(std::abs(right), floor);
    if (!(error <= largest)) largest = error;
  }
  return largest;
}

constexpr double kUnit = 0x1p-23;  // distance of floats just above 1

}  // namespace

TEST_CASE("Every operation computes what plain loops over its values compute") {
  for (const StepCase& step : step_cases()) {
    CAPTURE(step.name);
    StepRunner<double> run(cpu_backend_in_double(), step.program, 3);
    run.forward();
    const std::vector<double> wanted = naive_forward(run);
    REQUIRE(static_cast<std::int64_t>(wanted.size()) == run.y.size());
    double largest = 0;
    for (std::int64_t i = 0; i < run.y.size(); ++i)
      largest = std::max(largest, std::abs(run.y[i] - wanted[static_cast<std::size_t>(i)]));
    CHECK(largest < 1e-13);
  }
}

TEST_CASE("The gradients of two micro-batches add up to that of both together") {
  for (const StepCase& step : step_cases()) {
    CAPTURE(step.name);
    StepRunner<double> whole(cpu_backend_in_double(), step.program, 5);
    whole.forward(), whole.backward();
    StepRunner<double> part(cpu_backend_in_double(), step.program, 2), rest(cpu_backend_in_double(), step.program, 3);
    const auto give = [](const auto& from, const auto& to, std::int64_t first, std::int64_t samples) {
      const std::int64_t each = to.size() / samples;
      std::copy_n(from.begin() + first * each, to.size(), to.begin());
    };
    for (StepRunner<double>* run : {&part, &rest}) {
      const std::int64_t first = run == &part ? 0 : 2;
      for (std::size_t i = 0; i < run->x.size(); ++i)
        give(whole.x[i], run->x[i], first, run->samples());
      for (std::size_t i = 0; i < run->w.size(); ++i)
        std::copy(whole.w[i].begin(), whole.w[i].end(), run->w[i].begin());
      give(whole.dy, run->dy, first, run->samples());
      if (whole.tokens.size() > 0) give(whole.tokens, run->tokens, first, run->samples());
      if (whole.labels.size() > 0) give(whole.labels, run->labels, first, run->samples());
      run->forward(), run->backward();
    }
    for (std::size_t i = 0; i < whole.dw.size(); ++i) {
      for (std::int64_t j = 0; j < whole.dw[i].size(); ++j)
        part.dw[i][j] += rest.dw[i][j];
      CHECK(relative_difference(part.dw[i], whole.dw[i]) < 1e-14);
    }
  }
}

TEST_CASE("Functions in single precision err by a few units in the last place") {
  // Units of 2^-23, relative. Cephes states 1.7e-7 (1.4 units) for expf and 1.3e-7 for tanhf; a sigmoid rounds twice
  // more. Eigen's erf is 2 to 3 units off near 1, which x / 2 of gelu multiplies while gelu itself falls to 0 at
  // x = -5.7: so its error is measured against 1 at least.
  CHECK(largest_error(kernels::Function::Tanh, 20, 0, [](double x) { return std::tanh(x); }) < 3 * kUnit);
  CHECK(largest_error(kernels::Function::Sigmoid, 80, 0, [](double x) { return 1 / (1 + std::exp(-x)); }) < 3 * kUnit);
  const auto gelu = [](double x) { return x * std::erfc(-x / std::sqrt(2.0)) / 2; };
  CHECK(largest_error(kernels::Function::Gelu, 20, 1, gelu) < 10 * kUnit);
}

TEST_CASE("Softmax of huge and of far apart logits stays finite, and its loss is exact") {
  const std::vector<float> x = {1e30f, 1e30f, -1e30f, 0, 1000, -1000};
  std::vector<float> y(3);
  kernels::softmax<float>(1, 3, x.data(), y.data());
  CHECK(y == std::vector<float>{0.5f, 0.5f, 0});
  kernels::softmax<float>(1, 3, x.data() + 3, y.data());
  CHECK(y == std::vector<float>{0, 1, 0});
  const std::int64_t labels[] = {0};
  std::vector<float> loss(1), gradient(3);
  kernels::cross_entropy<float>(1, 1, 3, x.data() + 3, labels, 1, loss.data(), gradient.data());
  CHECK(loss[0] == 1000);  // log of the sum 1000, less the logit 0
  CHECK(gradient == std::vector<float>{-1, 1, 0});
}

TEST_CASE("A NaN is never swallowed: every operation on values hands it on") {
  for (const StepCase& step : step_cases()) {
    CAPTURE(step.name);
    StepRunner<float> run(cpu_backend(), step.program, 1);
    if (run.x[0].size() == 0) continue;  // token numbers
    run.x[0][0] = kNan;
    run.forward();
    const auto nan = [](float value) { return std::isnan(value); };
    CHECK(std::any_of(run.y.begin(), run.y.end(), nan));
  }
}

TEST_CASE("Cross-entropy by hand: two equal logits cost ln 2 each, and pull by half of the scale") {
  const std::vector<double> x = {3, 3, 0, 0};
  const std::int64_t labels[] = {1, 0};
  std::vector<double> loss(1), gradient(4);
  kernels::cross_entropy<double>(1, 2, 2, x.data(), labels, 0.25, loss.data(), gradient.data());
  CHECK(loss[0] == doctest::Approx(std::log(2.0)));
  CHECK(gradient == std::vector<double>{0.125, -0.125, -0.125, 0.125});
}

TEST_CASE("The first of equal values is the maximum of its window") {
  const std::vector<double> x = {7, 7, 7, 7};
  std::vector<double> y(1), dx(4);
  std::int32_t position = -1;
  const kernels::PoolShape shape = {1, 2, 2, 1, 1, 2, 2, 0};
  kernels::max_pool(shape, 1, x.data(), y.data(), &position);
  CHECK(position == 0);
  const double dy = 5;
  kernels::max_pool_input_gradient(shape, 1, &position, &dy, dx.data());
  CHECK(dx == std::vector<double>{5, 0, 0, 0});
}
