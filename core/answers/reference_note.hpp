// What a reference's note says of memory: written by the planner, read by whoever shows the speed-up over it.
#pragma once

#include <string>
#include <string_view>

#include "core/answers/report.hpp"

namespace pipewright {

// Behind it stands what a device needs and has: "does not fit: it needs 21.0 GiB of 16.0 GiB".
inline constexpr std::string_view kDoesNotFit = "does not fit: ";

// Of the reference of this name (by its first words): what it says behind kDoesNotFit; "" where it fits or is absent.
inline std::string what_does_not_fit(const Report& report, std::string_view reference) {
  for (const Reference& each : report.references) {
    if (!each.what.starts_with(reference)) continue;
    const std::size_t at = each.note.find(kDoesNotFit);
    if (at != std::string::npos) return each.note.substr(at + kDoesNotFit.size());
  }
  return "";
}

}  // namespace pipewright
