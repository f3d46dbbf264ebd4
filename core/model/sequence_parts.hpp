// A model as each of several devices computes it that share every sequence (plan.context_parallel): programs whose tensors
// have a row for each of its tokens, and attention whose keys and values come from all, part by part. What a real run
// compiles, and what a calibration measures.
//     64 tokens on 2 devices: linear 64x128 -> 64x384 becomes 32x128 -> 32x384    tests/runtime/context_test.cpp
#pragma once

#include "core/model/graph.hpp"

namespace pipewright::core {

// Throws InputError, at its place, for a layer that cannot be computed from a part of its rows.
Model of_parts(const Model& model, int parts);

}  // namespace pipewright::core
