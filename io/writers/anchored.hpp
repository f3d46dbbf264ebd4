// What reports say of a need that a measured run corrects.
#pragma once

#include <string>

#include <fmt/format.h>

#include "core/cost/framework_memory.hpp"
#include "core/plan/report.hpp"

namespace pipewright {

inline bool is_anchored(const Scenario& scenario) {
  return scenario.training.framework.correction != nullptr;
}

// "anchored, +1.2 %: fits"
inline std::string anchored_text(const MemoryNeed& need) {
  const double more = need.model.value == 0
                          ? 0
                          : 100 * static_cast<double>(need.anchored.value) / static_cast<double>(need.model.value);
  return fmt::format("anchored, {:+.1f} %: {}", more, memory_verdict(need));
}

}  // namespace pipewright
