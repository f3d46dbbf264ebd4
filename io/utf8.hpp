// Text from outside, as far as it can be shown: well-formed UTF-8 without control characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pipewright {

// Length of the well-formed UTF-8 character at the head of `text` (overlong forms and surrogates are none), or 0.
// `text` is not empty.   RFC 3629 section 4
std::size_t utf8_length(std::string_view text);

// Whether `text` begins with a control character: C0, DEL or C1 (U+0080 to U+009F). Terminals obey them.
bool begins_with_control(std::string_view text);

// `text` with \xNN in place of every byte that is no UTF-8 and of every control character but the line end.
std::string printable(std::string_view text);

// `text` without U+FEFF at its head, which spreadsheets and Windows programs write and no reader needs. RFC 3629
// section 6
std::string_view without_byte_order_mark(std::string_view text);

}  // namespace pipewright
