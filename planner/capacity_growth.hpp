// What makes a model larger from one value to the next, and whether what does not fit with a value, buffers left out,
// fits with no larger one either: then a search may bisect.
//
// A chain that grows by layers like their neighbours. Both models are chains whose runs of equal layers have the same
//     order and figures, and only runs get longer; no layer before such a run hands on more bytes than the run's own
//     layers. Take a cut of the larger that fits, and a stage with a layer of the run and another one (there is one
//     when the run has more layers than there are stages): without that layer no stage holds more than before. One
//     layer after the other, the smaller model is reached. It is reached by some cut: proven where all cuts are
//     searched, not where a partitioner makes one. With several chunks per stage the balanced cut moves from value to
//     value, and 14 layers may fit where 13 do not.
// Samples of a micro-batch. The layers and the number of micro-batches are the same, and the cut is stated, or all cuts
//     are searched: every tensor shrinks with the samples. A partitioner that weighs prices may cut otherwise.
//
// Nothing is proven where layers to be recomputed are listed by number, or chosen for a cut that is not searched.
//     14 fit, 13 do not: tests/planner/capacity_test.cpp "several chunks per stage"
#pragma once

#include <cstdint>
#include <optional>

#include "core/model/graph.hpp"
#include "planner/capacity_trial.hpp"

namespace pipewright::planner {

enum class Growth { Unproven, Repetition, Samples };

// The larger value is the second.
Growth growth(const CapacityTrial& smaller, const CapacityTrial& larger);

// Whether what all layers take together (CapacityTrial::held_share) grows with the value, however they are cut.
bool grows(const CapacityTrial& smaller, const CapacityTrial& larger);

// The shortest of the runs that differ, in both models, if `larger` is the chain `smaller` with some runs of equal
// layers made longer, as above; nothing if it is not, or if no run differs.
struct Repetition {
  std::int64_t in_smaller, in_larger;
};
std::optional<Repetition> repetition(const Model& smaller, const Model& larger);

}  // namespace pipewright::planner
