// Divisors, as numbers and as they are offered in messages.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/rooms.hpp"

namespace pipewright::core {

std::vector<std::int64_t> divisors(std::int64_t number);  // of a number from 1 on, ascending

// "1, 2, 4 or 8", up to `most` where that is given; of a number with more than twelve: "a divisor of 5040".
std::string divisors_in_words(std::int64_t number, std::int64_t most = std::numeric_limits<std::int64_t>::max());

}  // namespace pipewright::core
