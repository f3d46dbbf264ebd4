#include "io/text/utf8.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "core/ids.hpp"

namespace pipewright::io {
namespace {

std::uint8_t byte_at(std::string_view text, std::size_t i) {
  return static_cast<std::uint8_t>(text[i]);
}

struct CodeRange {
  std::uint32_t first, last;
};

// Beyond controls and the noncharacters U+nFFFE and U+nFFFF.
constexpr CodeRange kUnseen[] = {
    {0xad, 0xad},        // soft hyphen
    {0x34f, 0x34f},      // joiner of graphemes
    {0x61c, 0x61c},      // mark of direction
    {0x115f, 0x1160},    // fillers of Hangul
    {0x17b4, 0x17b5},    // vowels of Khmer without a shape
    {0x180b, 0x180f},    // selectors of Mongolian
    {0x200b, 0x200f},    // no width, joiners, marks of direction
    {0x2028, 0x202e},    // separators, marks of direction
    {0x2060, 0x206f},    // joiners and operators without a shape, marks of direction
    {0x3164, 0x3164},    // filler of Hangul
    {0xfdd0, 0xfdef},    // noncharacters
    {0xfeff, 0xfeff},    // byte-order mark
    {0xffa0, 0xffa0},    // filler of Hangul, half as wide
    {0xfff0, 0xfffb},    // anchors of annotations
    {0x1bca0, 0x1bca3},  // formats of shorthand
    {0x1d173, 0x1d17a},  // formats of music
    {0xe0000, 0xe0fff},  // tags
};

std::string escaped(const Utf8Character& character) {
  if (character.length < 2) return fmt::format("\\x{:02x}", character.code);
  return character.code > 0xffff ? fmt::format("\\U{:08x}", character.code) : fmt::format("\\u{:04x}", character.code);
}

bool is_plain(char c) {
  return c >= ' ' && c <= '~';
}

// `text` with all escaped that cannot be seen, but for as many bytes as `kept` says at each place.
template <class Kept>
std::string shown(std::string_view text, Kept kept) {
  std::string out;
  while (!text.empty()) {
    std::size_t length = at(std::ranges::find_if_not(text, is_plain) - text.begin());
    if (length == 0) length = kept(text);
    if (length > 0) {
      out += text.substr(0, length);
    } else {
      const Utf8Character character = first_character(text);
      length = character.bytes.size();
      out += character.is_seen() ? std::string(character.bytes) : escaped(character);
    }
    text.remove_prefix(length);
  }
  return out;
}

// Length of the line end or tabulator at the head of `text`, or 0.
std::size_t line_break(std::string_view text) {
  if (text.starts_with("\r\n")) return 2;
  return text.front() == '\n' || text.front() == '\t' ? std::size_t{1} : 0;
}

// Length of "\x1b[33m" at the head of `text`, or 0.
std::size_t colour(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const std::size_t end = text.find_first_not_of("0123456789", 2);
  return end < text.size() && text[end] == 'm' ? end + 1 : 0;
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

Utf8Character first_character(std::string_view text) {
  const std::size_t length = utf8_length(text);
  if (length < 2) return {length, byte_at(text, 0), text.substr(0, 1)};
  std::uint32_t code = byte_at(text, 0) & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i)
    code = code << 6 | (byte_at(text, i) & 0x3fu);
  return {length, code, text.substr(0, length)};
}

bool Utf8Character::is_seen() const {
  if (length == 0 || is_control()) return false;
  if (code < 0xad) return true;
  const auto holds = [&](const auto& range) { return code >= range.first && code <= range.last; };
  return (code & 0xfffe) != 0xfffe && std::none_of(std::begin(kUnseen), std::end(kUnseen), holds);
}

bool is_text(std::string_view text) {
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    const bool blank = character.code == '\n' || character.code == '\t';
    if (character.length == 0 || (character.is_control() && !blank)) return false;
    text.remove_prefix(character.length);
  }
  return true;
}

std::string printable(std::string_view text) {
  return shown(text, [](std::string_view rest) { return rest.front() == '\n' ? std::size_t{1} : 0; });
}

std::string one_line(std::string_view text) {
  std::string line = shown(text, line_break);
  std::erase(line, '\r');
  std::ranges::replace(line, '\n', ' ');
  std::ranges::replace(line, '\t', ' ');
  return line;
}

std::string for_terminal(std::string_view text) {
  return shown(text, [](std::string_view rest) { return std::max(line_break(rest), colour(rest)); });
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  return text.starts_with(mark) ? text.substr(mark.size()) : text;
}

}  // namespace pipewright::io
