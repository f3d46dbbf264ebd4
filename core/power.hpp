// Power and energy, beside the units of core/units.hpp.
#pragma once

#include "core/units.hpp"

namespace pipewright {

using Power = Quantity<struct PowerTag, double>;    // watts
using Energy = Quantity<struct EnergyTag, double>;  // joules

}  // namespace pipewright
