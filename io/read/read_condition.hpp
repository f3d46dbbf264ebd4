// Conditions as text: "plan.stages * plan.data_parallel <= 64 and peak_memory < 79 GiB" (core/answers/condition.hpp).
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "core/answers/condition.hpp"

namespace pipewright::io {

// A plain number, true (1), false (0), a share ("30 %") or a quantity with its unit, in SI base units.
std::optional<Magnitude> parse_magnitude(std::string_view text);

// Throws InputError at `place` with what is wrong and a way out. Keys are taken as they are.
std::vector<Comparison> parse_condition(std::string_view text, const Place& place);

}  // namespace pipewright::io
