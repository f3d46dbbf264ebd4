// Precompiled for the rooms that use fmt: core/precompiled/standard.hpp says how it is meant.
#ifndef PIPEWRIGHT_SIM_PRECOMPILED_FORMATTED_HPP
#define PIPEWRIGHT_SIM_PRECOMPILED_FORMATTED_HPP

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/precompiled/standard.hpp"

#endif
