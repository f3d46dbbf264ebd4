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

inline std::string_view changed_key(std::string_view change) {
  return change.substr(0, change.find('='));
}

// Changes as --set takes them, "plan.stages=4": later ones in place of earlier ones of the same key, or of keys in it.
inline std::vector<std::string> with_later_changes(std::vector<std::string> list,
                                                   const std::vector<std::string>& more) {
  for (const std::string& change : more) {
    std::erase_if(list, [&](const std::string& before) {
      return changed_key(before) == changed_key(change) || before.starts_with(std::string(changed_key(change)) + ".");
    });
    list.push_back(change);
  }
  return list;
}

// "9.8 GiB", "12.0 MiB".
inline std::string bytes_text(Bytes bytes) {
  const auto value = static_cast<double>(bytes.value);
  if (value >= 1 << 30) return fmt::format("{:.1f} GiB", value / (1 << 30));
  if (value >= 1 << 20) return fmt::format("{:.1f} MiB", value / (1 << 20));
  return fmt::format("{:.1f} KiB", value / (1 << 10));
}

}  // namespace pipewright::planner
