#include "core/model/families/hybrid.hpp"

namespace pipewright::core {

void read_hybrid(const FamilyValues& values, Transformer& t) {
  t.pattern = values.choice("pattern");
  const bool mixers = t.pattern.find('M') != std::string::npos;
  const std::int64_t heads = values["mamba_heads"];
  if (!t.pattern.empty() && t.pattern.size() != static_cast<std::size_t>(t.layers))
    values.refuse("pattern", "has " + std::to_string(t.pattern.size()) +
                                 " letters for layers: " + std::to_string(t.layers) + "; write one a layer");
  if (mixers && heads == 0) values.refuse("pattern", "has M, but mamba_heads is missing; add it");
  for (const FamilyParameter& each :
       {kMambaHeads, kMambaHeadSize, kMambaGroups, kMambaState, kMambaKernel, kMambaChunk})
    if (!mixers && values.places.contains(each.name))
      values.refuse(each.name, "is given without M in pattern; write a pattern with M, or leave it out");
  if (!mixers) return;
  t.mixer = {heads,
             values["mamba_head_size"],
             values["mamba_groups"],
             values["mamba_state"],
             values["mamba_kernel"],
             values["mamba_chunk"]};
  if (heads % t.mixer.groups != 0)
    values.refuse("mamba_groups", "does not divide mamba_heads " + std::to_string(heads) + "; use a divisor");
}

}  // namespace pipewright::core
