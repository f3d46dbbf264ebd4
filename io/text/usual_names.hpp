// Keys and values as other programs and papers call them: what they are here, or that they are not modelled.
//
//     plan.pp: 4               unknown key "plan.pp"; use plan.stages
//     plan.context_parallel    context parallelism is not modelled yet: docs/guide/scope.md
//     precision: bfloat16      unknown "bfloat16"; use bf16
//
// Compared in lower case, with _ for -, without _size, _degree and _model: one line stands for Megatron-LM's
// --tensor-model-parallel-size, torchtitan's tensor_parallel_degree and vLLM's tensor_parallel_size.
// tests/io/bad_scenario_test.cpp "as other programs call it"
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

namespace pipewright {

struct UsualName {
  std::string_view theirs, ours;
};

inline constexpr UsualName kUsualKeys[] = {
    {"pp", "plan.stages"},
    {"pipeline_parallel", "plan.stages"},
    {"pipeline_stages", "plan.stages"},
    {"num_stages", "plan.stages"},
    {"stages", "plan.stages"},
    {"tp", "plan.tensor_parallel"},
    {"tensor_parallel", "plan.tensor_parallel"},
    {"dp", "plan.data_parallel"},
    {"data_parallel", "plan.data_parallel"},
    {"data_parallel_replicate", "plan.data_parallel"},
    {"vp", "plan.virtual_stages"},
    {"vpp", "plan.virtual_stages"},
    {"virtual_pipeline_parallel", "plan.virtual_stages"},
    {"virtual_stages", "plan.virtual_stages"},
    {"sp", "plan.sequence_parallel"},
    {"sequence_parallel", "plan.sequence_parallel"},
    {"schedule", "plan.schedule"},
    {"recompute", "plan.recompute"},
    {"activation_checkpoint", "plan.recompute"},
    {"activation_checkpointing", "plan.recompute"},
    {"gradient_checkpointing", "plan.recompute"},
    {"recompute_granularity", "plan.recompute"},
    {"remat", "plan.recompute"},
    {"gbs", "training.global_batch_size"},
    {"global_batch", "training.global_batch_size"},
    {"train_batch", "training.global_batch_size"},
    {"mbs", "training.micro_batch_size"},
    {"micro_batch", "training.micro_batch_size"},
    {"microbatch", "training.micro_batch_size"},
    {"per_device_train_batch", "training.micro_batch_size"},
    {"train_micro_batch_size_per_gpu", "training.micro_batch_size"},
    {"ga", "training.micro_batches"},
    {"gas", "training.micro_batches"},
    {"grad_accum", "training.micro_batches"},
    {"gradient_accumulation", "training.micro_batches"},
    {"gradient_accumulation_steps", "training.micro_batches"},
    {"microbatches", "training.micro_batches"},
    {"micro_batches", "training.micro_batches"},
    {"num_microbatches", "training.micro_batches"},
    {"num_micro_batches", "training.micro_batches"},
    {"dtype", "training.precision"},
    {"torch_dtype", "training.precision"},
    {"mixed_precision", "training.precision"},
    {"precision", "training.precision"},
    {"grad_dtype", "training.gradient_precision"},
    {"grad_reduce_dtype", "training.gradient_precision"},
    {"zero", "training.zero"},
    {"zero_stage", "training.zero"},
    {"use_distributed_optimizer", "training.zero"},
    {"distributed_optimizer", "training.zero"},
    {"nnodes", "cluster.nodes"},
    {"num_nodes", "cluster.nodes"},
    {"gpus_per_node", "cluster.node.devices"},
    {"nproc_per_node", "cluster.node.devices"},
    {"num_gpus", "cluster.node.devices"},
};

constexpr std::string_view kContext = "context parallelism", kExpert = "expert parallelism",
                           kSharding = "sharding of weights or gradients (FSDP, ZeRO-2 and -3)",
                           kOffloading = "offloading to the host", kEightBits = "training in fp8 or less";

inline constexpr UsualName kKeysNotModelled[] = {
    {"cp", kContext},
    {"context_parallel", kContext},
    {"ring_attention", kContext},
    {"ulysses", kContext},
    {"ep", kExpert},
    {"etp", kExpert},
    {"expert_parallel", kExpert},
    {"expert_tensor_parallel", kExpert},
    {"moe_parallel", kExpert},
    {"fsdp", kSharding},
    {"fsdp2", kSharding},
    {"hsdp", kSharding},
    {"full_shard", kSharding},
    {"fully_shard", kSharding},
    {"sharding_strategy", kSharding},
    {"data_parallel_shard", kSharding},
    {"data_parallel_sharding_strategy", kSharding},
    {"zero2", kSharding},
    {"zero3", kSharding},
    {"offload", kOffloading},
    {"offloading", kOffloading},
    {"cpu_offload", kOffloading},
    {"cpu_offloading", kOffloading},
    {"optimizer_offload", kOffloading},
    {"optimizer_cpu_offload", kOffloading},
    {"offload_optimizer", kOffloading},
    {"offload_param", kOffloading},
    {"activation_offload", kOffloading},
    {"activation_offloading", kOffloading},
    {"offload_activations", kOffloading},
    {"fp8", kEightBits},
    {"fp8_format", kEightBits},
    {"fp8_recipe", kEightBits},
    {"float8", kEightBits},
    {"fp4", kEightBits},
};

// Of precisions: the only values whose usual names lie far from ours.
inline constexpr UsualName kUsualPrecisions[] = {{"bfloat16", "bf16"}, {"float16", "fp16"}, {"half", "fp16"},
                                                 {"float32", "fp32"},  {"float", "fp32"},   {"single", "fp32"},
                                                 {"tfloat32", "tf32"}};
inline constexpr UsualName kPrecisionsNotModelled[] = {
    {"fp8", kEightBits},   {"float8", kEightBits}, {"mxfp8", kEightBits}, {"fp8_e4m3", kEightBits},
    {"e4m3", kEightBits},  {"e5m2", kEightBits},   {"fp4", kEightBits},   {"mxfp4", kEightBits},
    {"nvfp4", kEightBits}, {"int8", kEightBits}};

// "tensor_parallel" of "--Tensor-Model-Parallel-Size".
inline std::string bare_name(std::string_view typed) {
  std::string name(typed.substr(std::min(typed.find_first_not_of('-'), typed.size())));
  for (char& c : name)
    c = c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const std::string_view ending : {"_size", "_degree"})
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  if (const std::size_t at = name.find("_model_"); at != std::string::npos) name.erase(at, sizeof("_model") - 1);
  return name;
}

// "" where the table has none.
inline std::string_view usual_name(std::span<const UsualName> table, std::string_view bare) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const UsualName& name) { return name.theirs == bare; });
  return found == table.end() ? std::string_view{} : found->ours;
}

}  // namespace pipewright
