// What reports say of a need that a measured run corrects.
#pragma once

#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "core/answers/report.hpp"
#include "core/cost/framework_memory.hpp"
#include "io/text/format_quantity.hpp"

namespace pipewright::io {

inline bool is_anchored(const Scenario& scenario) {
  return scenario.training.framework.correction != nullptr;
}

// "a measured run adds 1.2 GiB: fits"
inline std::string anchored_text(const MemoryNeed& need) {
  const bool less = need.anchored.value < 0;
  return fmt::format("a measured run {} {}: {}", less ? "takes off" : "adds",
                     short_bytes(Bytes{std::abs(need.anchored.value)}), memory_verdict(need));
}

}  // namespace pipewright::io
