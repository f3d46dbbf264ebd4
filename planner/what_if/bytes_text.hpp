// Sizes for a sentence: "9.8 GiB", "12.0 MiB".
#pragma once

#include <string>

#include <fmt/format.h>

#include "core/units.hpp"

namespace pipewright {

inline std::string bytes_text(Bytes bytes) {
  const auto value = static_cast<double>(bytes.value);
  if (value >= 1 << 30) return fmt::format("{:.1f} GiB", value / (1 << 30));
  if (value >= 1 << 20) return fmt::format("{:.1f} MiB", value / (1 << 20));
  return fmt::format("{:.1f} KiB", value / (1 << 10));
}

}  // namespace pipewright
