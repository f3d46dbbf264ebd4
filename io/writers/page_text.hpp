// Text as a page shows it to people who are not at this machine.
//
//     with_separators   953675 steps -> 953,675 steps; numbers that stand alone, not versions, dates, ranges or names
//     without_folders   /home/me/configs/devices/a100.yaml:4:9 -> configs/devices/a100.yaml:4:9, /home/me/x.yaml ->
//     x.yaml
// tests/io/page_text_test.cpp
#pragma once

#include <string>
#include <string_view>

#include "core/rooms.hpp"

namespace pipewright::io {

// Of whole parts with `least` digits or more.
std::string with_separators(std::string_view text, std::size_t least = 4);

// Absolute paths lose the folders above `configs`, or all of them. URLs stay.
std::string without_folders(std::string_view text);

}  // namespace pipewright::io
