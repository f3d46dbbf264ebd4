// Operators by name, for layers that a scenario describes itself:
//     - {op: conv2d, channels: 64, kernel: 7, stride: 2, padding: 3}
//
// A new operator: a method of LayerBuilder, one entry of the table in operator_table.cpp.
#pragma once

#include <span>
#include <string_view>

#include "core/model/families/table.hpp"
#include "core/model/layer_builder.hpp"

namespace pipewright::core {

struct OperatorRule {
  std::string_view name;
  std::string_view summary;  // one line
  std::span<const FamilyParameter> parameters;
  int inputs_least = 1, inputs_most = 1;
  LayerBuilder::Value (*build)(LayerBuilder&, std::span<const LayerBuilder::Value> inputs, const FamilyValues&);
};

std::span<const OperatorRule> operator_rules();
const OperatorRule* find_operator(std::string_view name);

}  // namespace pipewright::core
