// Wrong names whose beginning is right: "h100" for "h100-sxm-80g".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/check.hpp"

namespace pipewright {

// As unknown_name, and where none is near, the known names that begin with the wrong one (three at most).
std::string unknown_or_begun(std::string_view wrong, const auto& known) {
  std::string message = unknown_name(wrong, known);
  constexpr std::size_t kLeast = 3, kShown = 3;  // letters, names
  if (wrong.size() < kLeast || !nearest(wrong, known).empty()) return message;
  std::string begun;
  std::size_t shown = 0;
  for (const auto& name : known)
    if (std::string_view(name).starts_with(wrong) && ++shown <= kShown)
      begun += (shown == 1 ? "\"" : " or \"") + std::string(name) + "\"";
  if (begun.empty()) return message;
  const std::string head = "unknown \"" + std::string(wrong) + "\";";
  return head + " did you mean " + begun + "?" + message.substr(head.size());
}

}  // namespace pipewright
