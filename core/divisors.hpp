// Divisors, as numbers and as they are offered in messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/rooms.hpp"

namespace pipewright::core {

std::vector<std::int64_t> divisors(std::int64_t number);  // of a number from 1 on, ascending

// "1, 2, 4 or 8"; of a number with more than twelve: "a divisor of 5040".
std::string divisors_in_words(std::int64_t number);

}  // namespace pipewright::core
