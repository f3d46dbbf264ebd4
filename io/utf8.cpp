#include "io/utf8.hpp"

#include <cstdint>

#include <fmt/format.h>

namespace pipewright {
namespace {

std::uint8_t byte_at(std::string_view text, std::size_t i) {
  return static_cast<std::uint8_t>(text[i]);
}

}  // namespace

std::size_t utf8_length(std::string_view text) {
  const std::uint8_t first = byte_at(text, 0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte_at(text, i) & 0xc0) != 0x80) return 0;
  const std::uint8_t second = byte_at(text, 1);
  if (first == 0xe0 && second < 0xa0) return 0;
  if (first == 0xed && second > 0x9f) return 0;
  if (first == 0xf0 && second < 0x90) return 0;
  if (first == 0xf4 && second > 0x8f) return 0;
  return length;
}

bool begins_with_control(std::string_view text) {
  if (text.empty()) return false;
  const std::uint8_t first = byte_at(text, 0);
  return first < 0x20 || first == 0x7f || (first == 0xc2 && text.size() > 1 && byte_at(text, 1) < 0xa0);
}

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const bool plain = length > 0 && (text[0] == '\n' || !begins_with_control(text));
    const std::string_view character = text.substr(0, length == 0 ? 1 : length);
    if (plain)
      shown += character;
    else
      for (std::size_t i = 0; i < character.size(); ++i)
        shown += fmt::format("\\x{:02x}", byte_at(character, i));
    text.remove_prefix(character.size());
  }
  return shown;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  return text.starts_with(mark) ? text.substr(mark.size()) : text;
}

}  // namespace pipewright
