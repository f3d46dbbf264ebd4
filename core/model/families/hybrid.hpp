// Hybrid stacks of the decoder family: blocks of one part each, by `pattern`, some of them Mamba-2 mixers.   [NemotronH25]
// Inside core/model only.
#pragma once

#include "core/model/families/table.hpp"
#include "core/model/families/transformer.hpp"

namespace pipewright::core {

inline constexpr FamilyParameter kPattern{
    .name = "pattern",
    .meaning =
        "hybrid stacks (Nemotron-H), one letter a block, which has that part alone: M a Mamba-2 mixer, * attention, - "
        "a dense feed-forward, E experts; default: every block has attention and feed-forward",
    .letters = "M*-E"};
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

// Of checked arguments; refuses what contradicts the pattern.
void read_hybrid(const FamilyValues& values, Transformer& t);

}  // namespace pipewright::core
