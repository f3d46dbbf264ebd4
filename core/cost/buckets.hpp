// Buckets of gradients: what is all-reduced at once.
//
// Layers with gradients of 400, 800 and 1200 bytes, 2000 bytes a bucket: 1200 + 800 | 400.
//     tests/core/buckets_test.cpp "Buckets fill from the last layer backwards and close once they are full"
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

// Those of a chunk of the plan, or of other layers in its place: of plan.bucket bytes, or as a framework cuts them. With p
// the bytes of a gradient and D the copies:
//     pytorch     closed once it holds 1 MiB, the ones behind it 25 MiB                              [PyTorchDDP20]
//     megatron    closed once it holds max(40e6, 1e6 D) p; one bucket of all on stages behind the first, of chunks behind
//                 the first of a stage, and where gradients are reduced behind the backward          [MegatronDDP26]
//     deepspeed   closed before it would hold more than 5e8 p (reduce_bucket_size)                   [DeepSpeed26]
// 600 M parameters in layers of 10 M, D = 8: on the first stage 15 buckets of 40 M, on others one of 600 M; deepspeed 50 and
// 10 layers.                                    tests/core/buckets_test.cpp "Buckets as frameworks cut them"
std::vector<Bucket> buckets(const Plan& plan, VirtualStageId chunk, LayerRange layers, const Model& model,
                            const Training& training);
// Of the plan's own layers. A copy of a table of other workers (core/plan/tied_tables.hpp) is a bucket of its own, as
// Megatron-LM has it with ZeRO-1, so that every stage that holds the table has the same shards of it.    [MegatronDDP26]
std::vector<Bucket> buckets(const Plan& plan, VirtualStageId chunk, const Model& model, const Training& training);
// Of a chunk: gradient bytes at which a bucket behind the first is closed.
Bytes bucket_limit(const Plan& plan, VirtualStageId chunk, const Training& training);

// Shape of the schedule that the plan asks for, with the number of all-reduce buckets of every chunk (`buckets`).
ScheduleShape schedule_shape(const Plan& plan, const Model& model, const Training& training);

}  // namespace pipewright::core
