// The words of YAML and of reports for the enumerations of core, each list in the order of its enum.
#pragma once

#include <array>
#include <string_view>

#include "core/plan/scenario.hpp"

namespace pipewright {

constexpr std::array<std::string_view, 4> kPrecisionNames = {"fp32", "tf32", "fp16", "bf16"};
constexpr std::array<std::string_view, 4> kOptimizerNames = {"sgd", "momentum", "rmsprop", "adam"};
constexpr std::array<std::string_view, 2> kRecomputeNames = {"none", "full"};
constexpr std::array<std::string_view, 2> kSkipsNames = {"hop", "direct"};
constexpr std::array<std::string_view, 2> kGradientSyncNames = {"overlapped", "blocking"};
constexpr std::array<std::string_view, 3> kCostSourceNames = {"explicit", "roofline", "uniform"};

constexpr std::string_view name(Precision value) {
  return kPrecisionNames[static_cast<std::size_t>(value)];
}
constexpr std::string_view name(Optimizer value) {
  return kOptimizerNames[static_cast<std::size_t>(value)];
}
constexpr std::string_view name(Recompute value) {
  return kRecomputeNames[static_cast<std::size_t>(value)];
}
constexpr std::string_view name(Skips value) {
  return kSkipsNames[static_cast<std::size_t>(value)];
}
constexpr std::string_view name(GradientSync value) {
  return kGradientSyncNames[static_cast<std::size_t>(value)];
}
constexpr std::string_view name(CostSourceKind value) {
  return kCostSourceNames[static_cast<std::size_t>(value)];
}

}  // namespace pipewright
