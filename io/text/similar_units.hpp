// Which unit was meant by one that is none: "Gbit/s" -> "Gb/s", "gib" -> "GiB", "100 gb/s" -> "GB/s" or "Gb/s".
//
// A suggestion keeps the first letter of what was typed, whatever its case: that letter is the power of ten (k, M, G),
// and a suggestion that changes it would be wrong by a factor of 1000 and accepted without another word. "bit" and
// "byte" written out, and an upper-case B, tell bits and bytes apart; where nothing does, both are named.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace pipewright {

// ` did you mean "GB/s" or "Gb/s"?`, or "" when nothing is near. `units`: those of the wanted kind.
std::string unit_suggestion(std::string_view typed, std::span<const std::string_view> units);

}  // namespace pipewright
