// The optimizers that are priced, counted and run.
#pragma once

namespace pipewright {

enum class Optimizer { Sgd, Momentum, RmsProp, Adam };

}  // namespace pipewright
