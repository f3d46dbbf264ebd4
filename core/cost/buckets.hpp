// Buckets of gradients: what is all-reduced at once.
//
// Layers with gradients of 400, 800 and 1200 bytes, 2000 bytes a bucket: 1200 + 800 | 400.
//     tests/core/step_costs_test.cpp "Buckets fill from the last layer backwards and close once they are full"
#pragma once

#include <vector>

#include "core/plan/plan.hpp"
#include "core/plan/schedule.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::core {

// One all-reduce bucket: gradients of consecutive layers, complete when backward has passed `first_layer`.
struct Bucket {
  Bytes bytes;
  Bytes of_experts;  // of those: reduced with the devices that hold the same experts (plan.expert_parallel)
  LayerId first_layer = 0;
};

// Buckets of a range of layers in the order in which backward completes them: filled from the last layer backwards, a
// bucket is closed once it holds `limit` bytes or more. A layer is never split; a range without parameters has one
// empty bucket. As PyTorch's DistributedDataParallel, without its smaller first bucket.  [PyTorchDDP20] section 3.2.2
// `per_parameter`: bytes of a gradient. Of layers shared by a tensor-parallel group those of one device count.
std::vector<Bucket> buckets(const Model& model, LayerRange layers, Bytes per_parameter, Bytes limit);

// Shape of the schedule that the plan asks for, with the number of all-reduce buckets of every chunk (`buckets`).
ScheduleShape schedule_shape(const Plan& plan, const Model& model, const Training& training);

}  // namespace pipewright::core
