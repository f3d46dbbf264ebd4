// A text without the blanks at its ends.
#pragma once

#include <string_view>

#include "core/rooms.hpp"

namespace pipewright::io {

inline constexpr std::string_view kSpaces = " ", kBlanks = " \t";
inline constexpr std::string_view kLineBlanks = " \t\r";  // of a line that may end as on Windows

// `blanks`: each of its characters is one. A text of blanks alone gives an empty one.
inline std::string_view trimmed(std::string_view text, std::string_view blanks) {
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return text.substr(0, 0);
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

}  // namespace pipewright::io
