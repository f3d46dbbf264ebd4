// The plans that no other beats, as points: time per sample to the right, since plans may have different batches;
// memory upwards, or cost where memory was not asked for.
#pragma once

#include <string>

#include "core/answers/ranking.hpp"

namespace pipewright {

// Of a ranking with `pareto`; points bear the numbers of its rows, from 1.
std::string pareto_svg(const Ranking& ranking);

}  // namespace pipewright
