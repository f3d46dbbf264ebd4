// The optimizers that are priced, counted and run.
#pragma once

#include "core/rooms.hpp"

namespace pipewright::core {

enum class Optimizer { Sgd, Momentum, RmsProp, Adam };

}  // namespace pipewright::core
