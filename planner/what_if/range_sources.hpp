// What is not known exactly of the figures that price a scenario, each with a way to move it within its 90 %.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/question/scenario.hpp"

namespace pipewright::planner {

struct RangeSource {
  std::string what, known, measure;  // as in RangeCause
  // All of it to a place of its band: core/cluster/bands.hpp. Of measured times: so many 1.645 standard errors shorter.
  std::function<void(Scenario&, double place)> move;
  bool stated = true;  // not: a band that is assumed, as nobody states one
};

// Layers from operators where a figure that is used states a band or was measured; else none. Of a measured device each
// operation is a source of its own, and so is what all its times share.
std::vector<RangeSource> range_sources(const Scenario& scenario);

// Of a measured profile: what all its times have in common, and each layer's own.
std::vector<RangeSource> profile_sources(const Scenario& scenario);

}  // namespace pipewright::planner
