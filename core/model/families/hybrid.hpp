// Hybrid stacks of the decoder family: blocks of one part each, by `pattern`, some of them Mamba-2 mixers [NemotronH25] or gated
// delta nets [GatedDelta24].
// Inside core/model only.
#pragma once

#include "core/model/families/table.hpp"
#include "core/model/families/transformer.hpp"

namespace pipewright::core {

inline constexpr FamilyParameter kPattern{
    .name = "pattern",
    .meaning =
        "hybrid stacks (Nemotron-H, Qwen3-Next), one letter a block, which has that part alone: M a Mamba-2 mixer, G a "
        "gated delta net, * attention, - a dense feed-forward, E experts; default: every block has attention and "
        "feed-forward",
    .letters = "MG*-E"};
inline constexpr FamilyParameter kMambaHeads{"mamba_heads", "heads of a Mamba-2 mixer; default: there is none", 1,
                                             100'000, 0};
inline constexpr FamilyParameter kMambaHeadSize{"mamba_head_size", "features of such a head; default: 64", 1, 1'000'000,
                                                0};
inline constexpr FamilyParameter kMambaGroups{"mamba_groups", "of such heads, which share B and C; default: 8", 1,
                                              100'000, 0};
inline constexpr FamilyParameter kMambaState{"mamba_state", "features of a head's state per feature; default: 128", 1,
                                             1'000'000, 0};
inline constexpr FamilyParameter kMambaKernel{"mamba_kernel", "tokens that the mixer's convolution sees; default: 4", 1,
                                              4096, 0};
inline constexpr FamilyParameter kMambaChunk{"mamba_chunk", "tokens of a chunk of the mixer's scan; default: 128", 1,
                                             100'000'000, 0};
inline constexpr StateSpace kMamba{.heads = 0, .head_size = 64, .groups = 8, .state = 128};  // those defaults

inline constexpr FamilyParameter kDeltaHeads{
    "delta_heads", "heads of a gated delta net, each with values of its own; default: there is none", 1, 100'000, 0};
inline constexpr FamilyParameter kDeltaKeyHeads{
    "delta_key_heads", "heads of its queries and keys, which heads share; default: delta_heads", 1, 100'000, 0};
inline constexpr FamilyParameter kDeltaKeySize{"delta_key_size", "features of a query or key; default: 128", 1,
                                               1'000'000, 0};
inline constexpr FamilyParameter kDeltaValueSize{"delta_value_size", "features of a head's values; default: 128", 1,
                                                 1'000'000, 0};
inline constexpr FamilyParameter kDeltaKernel{"delta_kernel", "tokens that its convolution sees; default: 4", 1, 4096,
                                              0};
inline constexpr FamilyParameter kDeltaChunk{"delta_chunk", "tokens of a chunk of its delta rule; default: 64", 1,
                                             100'000'000, 0};
inline constexpr DeltaNet kDelta{.heads = 0};  // those defaults, but the key heads

// Of checked arguments; refuses what contradicts the pattern.
void read_hybrid(const FamilyValues& values, Transformer& t);

}  // namespace pipewright::core
