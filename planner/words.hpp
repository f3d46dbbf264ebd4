// Names and sizes in a sentence.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/units.hpp"

namespace pipewright::planner {

// "naive, gpipe or 1f1b", with `last` between the last two.
inline std::string listed(const std::vector<std::string>& names, std::string_view last) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " " + std::string(last) + " " : ", ";
    text += names[i];
  }
  return text;
}

// "9.8 GiB", "12.0 MiB".
inline std::string bytes_text(Bytes bytes) {
  const auto value = static_cast<double>(bytes.value);
  if (value >= 1 << 30) return fmt::format("{:.1f} GiB", value / (1 << 30));
  if (value >= 1 << 20) return fmt::format("{:.1f} MiB", value / (1 << 20));
  return fmt::format("{:.1f} KiB", value / (1 << 10));
}

}  // namespace pipewright::planner
