#include <algorithm>
#include <string>

#include <doctest/doctest.h>

#include "runtime/backends/cpu.hpp"
#include "tests/runtime/step_runner.hpp"
#include "tests/runtime/step_table.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

StepRunner<double> in_double(const StepCase& step, std::int64_t samples) {
  return {cpu_backend_in_double(), step.program, samples};
}
StepRunner<float> in_float(const StepCase& step, std::int64_t samples) {
  return {cpu_backend(), step.program, samples};
}

}  // namespace

TEST_CASE("Gradients of every operation are what central differences say") {
  for (const StepCase& step : step_cases())
    for (const std::int64_t samples : {1, 3}) {
      CAPTURE(step.name);
      CAPTURE(samples);
      StepRunner<double> run = in_double(step, samples);
      run.forward();
      run.backward();
      CHECK(run.largest_input_gradient_error() < 1e-8);
      CHECK(run.largest_weight_gradient_error() < 1e-8);
    }
}

TEST_CASE("The table has every operation that can be run") {
  const auto cases = step_cases();
  for (const OperationRule& rule : operation_rules()) {
    CAPTURE(rule.name);
    CHECK(std::any_of(cases.begin(), cases.end(),
                      [&](const StepCase& step) { return step.program.steps.back().operation == rule.name; }));
  }
}

TEST_CASE("Gradients of inputs are overwritten, those of parameters added to") {
  for (const StepCase& step : step_cases()) {
    CAPTURE(step.name);
    StepRunner<double> once = in_double(step, 2), again = in_double(step, 2);
    once.forward(), once.backward();
    again.forward(), again.backward(), again.backward(0.5);
    for (std::size_t i = 0; i < once.dx.size(); ++i)
      CHECK(std::equal(once.dx[i].begin(), once.dx[i].end(), again.dx[i].begin()));
    for (std::size_t i = 0; i < once.dw.size(); ++i)
      for (std::int64_t j = 0; j < once.dw[i].size(); ++j)
        CHECK(again.dw[i][j] == doctest::Approx(once.dw[i][j] + 0.5));
  }
}

TEST_CASE("Single precision agrees with double: forward and gradients within 1e-6 of the norm") {
  for (const StepCase& step : step_cases()) {
    CAPTURE(step.name);
    StepRunner<float> single = in_float(step, 3);
    StepRunner<double> exact = in_double(step, 3);
    single.forward(), single.backward();
    exact.forward(), exact.backward();
    CHECK(relative_difference(single.y, exact.y) < 1e-6);
    for (std::size_t i = 0; i < exact.dx.size(); ++i)
      CHECK(relative_difference(single.dx[i], exact.dx[i]) < 1e-6);
    for (std::size_t i = 0; i < exact.dw.size(); ++i)
      CHECK(relative_difference(single.dw[i], exact.dw[i]) < 1e-6);
  }
}

TEST_CASE("The same step gives the same bits wherever its blocks lie") {
  for (const StepCase& step : step_cases()) {
    CAPTURE(step.name);
    StepRunner<float> one = in_float(step, 3), other = in_float(step, 3);
    one.forward(), one.backward();
    other.forward(), other.backward();
    CHECK(std::equal(one.y.begin(), one.y.end(), other.y.begin()));
    for (std::size_t i = 0; i < one.dw.size(); ++i)
      CHECK(std::equal(one.dw[i].begin(), one.dw[i].end(), other.dw[i].begin()));
  }
}
