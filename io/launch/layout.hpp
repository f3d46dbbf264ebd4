// Megatron-LM's --pipeline-model-parallel-layout: which layers on which chunk.                         [MegatronPP26]
//
//     E embedding   t block   L head and loss   | next chunk   x*n, (..)*n repeated   , nothing
//
// Chunk j lies on pipeline rank j mod K. "Et*2|(t*2|)*34,t*3|(t*2|)*3,tL" is Llama-3 70B on 8 ranks with 5 chunks each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright {

struct LayoutChunk {
  bool embedding = false;
  std::int64_t blocks = 0;
  bool head = false;
  bool operator==(const LayoutChunk&) const = default;
};

std::string megatron_layout(const std::vector<LayoutChunk>& chunks);

// Throws InputError: an unknown letter, a count that is none, an embedding or head elsewhere than at the ends.
std::vector<LayoutChunk> parse_megatron_layout(std::string_view layout);

}  // namespace pipewright
