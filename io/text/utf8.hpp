// Text from outside, as far as it can be shown: well-formed UTF-8 whose every character is seen where it stands.
//
// Four kinds of characters are not, and mislead whoever reads a name that holds one: control characters (C0, DEL, C1),
// which terminals obey; line and paragraph separators (U+2028, U+2029), which end a line for some programs; marks of
// direction (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069), behind which "exe.txt" reads "txt.exe"; and
// characters without width, such as U+200B, which tell two names apart that look the same.
//                                                  Unicode 15.0, categories Cc, Cf, Zl, Zp; [TrojanSource21]
// printable("pay\u202Eload\x1B") is "pay\u202eload\x1b", letter by letter.
//
// Test: "Text is printed as far as it can be seen" of tests/io/quote_test.cpp
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/rooms.hpp"

namespace pipewright::io {

// Length of the well-formed UTF-8 character at the head of `text` (overlong forms and surrogates are none), or 0.
// `text` is not empty.   RFC 3629 section 4
std::size_t utf8_length(std::string_view text);

// The first character of `text`. `length` 0: a byte that is no UTF-8, which is `code` then.
struct Utf8Character {
  std::size_t length = 0;
  std::uint32_t code = 0;
  std::string_view bytes;  // of the character, or of that byte

  bool is_control() const { return length > 0 && (code < 0x20 || (code >= 0x7f && code < 0xa0)); }
  bool is_seen() const;  // well-formed, and of none of the four kinds above
};
Utf8Character first_character(std::string_view text);  // which is not empty

// Whether `text` is UTF-8 without control characters, line ends and tabulators excepted: what a scenario may hold.
bool is_text(std::string_view text);

// `text` with \xNN, \uNNNN or \UNNNNNNNN in place of what cannot be seen, the line end excepted.
std::string printable(std::string_view text);
// The same on one line: a space for each line end and tabulator.
std::string one_line(std::string_view text);
// The same as it goes to a terminal: line ends, tabulators and the colours of this program's reports stay.
std::string for_terminal(std::string_view text);

// `text` without U+FEFF at its head, which spreadsheets and Windows programs write and no reader needs. RFC 3629
// section 6
std::string_view without_byte_order_mark(std::string_view text);

}  // namespace pipewright::io
