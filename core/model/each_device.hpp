// A model as each device computes it, where devices divide what a worker of the plan would compute alone. It is what a real run
// compiles, what a calibration measures, and by what a profile knows its layers.
#pragma once

#include "core/model/graph.hpp"

namespace pipewright::core {

// Sequences in parts (plan.context_parallel): tensors have a row for each of its tokens, and attention has keys and values
// of all, part by part. Throws InputError, at its place, for a layer that cannot be computed from a part of its rows.
//     64 tokens on 2 devices: linear 64x128 -> 64x384 becomes 32x128 -> 32x384    tests/runtime/context_test.cpp
Model of_parts(const Model& model, int parts);

// Sequences in slices of equal tokens (plan.slices), one after the other on one device: likewise.
Model of_slices(const Model& model, int slices);

// Experts on devices of their own (plan.expert_parallel): products of its own experts with the rows of all, which are
// exchanged before and behind them.
//     8 experts on 4 devices, 16 rows each of one sample: grouped_linear of 8 groups of 16 becomes one of 2 groups of 64
//                                                             tests/runtime/experts_test.cpp "programs"
Model of_expert_devices(const Model& model, int devices);

// One of these, as a plan says; where it says none, the model itself.
Model of_each_device(const Model& model, int parts, int expert_devices, int slices);

}  // namespace pipewright::core
