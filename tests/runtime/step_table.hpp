// Small layers, one for every operation that can be run and more where shapes have corners: odd sizes, strides,
// padding, groups, masks. Their last step is what is tested.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/model/layer_builder.hpp"
#include "core/model/program.hpp"

namespace pipewright::tests::runtime_test {

struct StepCase {
  std::string name;
  Program program;
};
std::vector<StepCase> step_cases();

}  // namespace pipewright::tests::runtime_test
