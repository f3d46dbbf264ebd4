// By what an order of passes is the best one.
#pragma once

#include <cstdint>

#include "core/rooms.hpp"

namespace pipewright::core {

enum class OrderMeasure : std::uint8_t {
  Span,  // longest time from a stage's first op to its last: what a step takes where no stage waits for another to update
  Step,  // end of the last op of all: what a step takes with a flush                        [ZeroBubble23] section 3.1
};

}  // namespace pipewright::core
