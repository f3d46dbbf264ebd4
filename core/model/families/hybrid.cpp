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
  const auto given = [&](const FamilyParameter& key, std::int64_t otherwise) {
    return values[key.name] > 0 ? values[key.name] : otherwise;
  };
  t.mixer = {heads,
             given(kMambaHeadSize, kMamba.head_size),
             given(kMambaGroups, kMamba.groups),
             given(kMambaState, kMamba.state),
             given(kMambaKernel, kMamba.kernel),
             given(kMambaChunk, kMamba.chunk)};
  if (heads % t.mixer.groups != 0)
    values.refuse("mamba_heads", "is not a multiple of mamba_groups " + std::to_string(t.mixer.groups) +
                                     "; use one, or give mamba_groups");
}

}  // namespace pipewright::core
