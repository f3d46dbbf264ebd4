// Layers as PyTorch's classes: every operation that a run computes has one. tests/torch runs them.
#include "io/launch/torch_layers.hpp"

#include <set>
#include <string>

#include <doctest/doctest.h>

#include "tests/runtime/step_table.hpp"

using namespace pipewright::tests;

TEST_CASE("every operation that can be run is written as PyTorch's") {
  std::set<std::string> operations;
  for (const runtime_test::StepCase& step : runtime_test::step_cases()) {
    CAPTURE(step.name);
    Model model;
    model.works.resize(1);
    model.works[0].program = SharedProgram(step.program);
    model.layers.resize(1);
    model.layers[0].work = 0;
    const ProgramStep& last = step.program.steps.back();
    const std::string classes = torch_layers(model).classes;
    CHECK(classes.find("class Layer0(nn.Module):") != std::string::npos);
    CHECK(classes.find("\nBUILT = [Layer0]\n") != std::string::npos);
    if (last.operation != "cross_entropy")  // which is the schedule's
      CHECK(classes.find("        x" + std::to_string(last.output) + " = ") != std::string::npos);
    operations.emplace(last.operation);
  }
  CHECK(operations.size() >= 20);
}

TEST_CASE("equal layers share a class, and each layer names its inputs") {
  const auto cases = runtime_test::step_cases();
  Model model;
  model.works.resize(2);
  model.works[0].program = SharedProgram(cases[0].program), model.works[1].program = SharedProgram(cases[1].program);
  model.layers.resize(3);
  for (int i = 0; i < 3; ++i)
    model.layers[i].work = i % 2;
  model.layers[1].inputs = {0}, model.layers[2].inputs = {0, 1};
  CHECK(torch_layers(model).classes.find("BUILT = [Layer0, Layer1, Layer0]\n") != std::string::npos);
  CHECK(torch_inputs(model).starts_with("INPUTS = [(), (0,), (0, 1)]  "));
}
