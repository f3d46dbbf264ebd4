// Low-rank adapters of a decoder, from its family's parameters.                                                     [Hu21]
#pragma once

#include "core/model/families/table.hpp"
#include "core/model/families/transformer.hpp"

namespace pipewright::core {

inline constexpr FamilyParameter kLoraRank{
    "lora_rank", "low-rank adapters of that rank are trained, all other weights are frozen; default: all are trained",
    1, 100'000, 0};

// As PEFT and Megatron Bridge name them: linear_proj is o_proj, linear_fc2 is down_proj.
inline constexpr std::string_view kLoraTargets =
    "q_proj | k_proj | v_proj | o_proj | gate_proj | up_proj | down_proj | linear_qkv | linear_proj | linear_fc1 | "
    "linear_fc2 | q_a_proj | q_b_proj | kv_a_proj_with_mqa | kv_b_proj | in_proj | out_proj";

constexpr FamilyParameter lora_targets(std::string_view meaning) {
  return {.name = "lora_targets", .meaning = meaning, .listed = kLoraTargets};
}

// Into t.lora. `fused`: by default one adapter beside all of queries, keys and values, and of gate and up.
void read_lora(const FamilyValues& values, bool fused, Transformer& t);

}  // namespace pipewright::core
