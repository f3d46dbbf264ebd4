// Digits and letters of ASCII, whatever the locale.
#pragma once

#include <string>
#include <string_view>

#include "core/rooms.hpp"

namespace pipewright::io {

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

inline std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

}  // namespace pipewright::io
