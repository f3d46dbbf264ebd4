#include "core/model/families/hybrid.hpp"

#include <algorithm>
#include <initializer_list>

namespace pipewright::core {
namespace {

// Of one kind of blocks: their letter, and what is only given with it; the first is needed.
void check_letter(const FamilyValues& values, const std::string& pattern, char letter,
                  std::initializer_list<FamilyParameter> keys) {
  const bool has = pattern.find(letter) != std::string::npos;
  const std::string needed(keys.begin()->name);
  if (has && values[needed] == 0)
    values.refuse("pattern", std::string("has ") + letter + ", but " + needed + " is missing; add it");
  for (const FamilyParameter& each : keys)
    if (!has && values.places.contains(each.name))
      values.refuse(each.name, std::string("is given without ") + letter + " in pattern; write a pattern with " +
                                   letter + ", or leave it out");
}

std::int64_t given(const FamilyValues& values, const FamilyParameter& key, std::int64_t otherwise) {
  return values[key.name] > 0 ? values[key.name] : otherwise;
}

void refuse_unshared(const FamilyValues& values, const char* heads, const char* by, std::int64_t count) {
  if (values[heads] % count != 0)
    values.refuse(heads,
                  std::string("is not a multiple of ") + by + " " + std::to_string(count) + "; use one, or give " + by);
}

}  // namespace

void read_hybrid(const FamilyValues& values, Transformer& t) {
  t.pattern = values.choice("pattern");
  if (!t.pattern.empty() && t.pattern.size() != at(t.layers))
    values.refuse("pattern", "has " + std::to_string(t.pattern.size()) +
                                 " letters for layers: " + std::to_string(t.layers) + "; write one a layer");
  check_letter(values, t.pattern, 'M',
               {kMambaHeads, kMambaHeadSize, kMambaGroups, kMambaState, kMambaKernel, kMambaChunk});
  check_letter(values, t.pattern, 'G',
               {kDeltaHeads, kDeltaKeyHeads, kDeltaKeySize, kDeltaValueSize, kDeltaKernel, kDeltaChunk});
  if (const std::int64_t heads = values["mamba_heads"]; heads > 0) {
    t.mixer = {heads,
               given(values, kMambaHeadSize, kMamba.head_size),
               given(values, kMambaGroups, kMamba.groups),
               given(values, kMambaState, kMamba.state),
               given(values, kMambaKernel, kMamba.kernel),
               given(values, kMambaChunk, kMamba.chunk)};
    refuse_unshared(values, "mamba_heads", "mamba_groups", t.mixer.groups);
  }
  if (const std::int64_t heads = values["delta_heads"]; heads > 0) {
    t.delta = {heads,
               given(values, kDeltaKeyHeads, heads),
               given(values, kDeltaKeySize, kDelta.key_size),
               given(values, kDeltaValueSize, kDelta.value_size),
               given(values, kDeltaKernel, kDelta.kernel),
               given(values, kDeltaChunk, kDelta.chunk)};
    refuse_unshared(values, "delta_heads", "delta_key_heads", t.delta.key_heads);
    if (const std::int64_t tokens = values["sequence_length"]; t.delta.chunk > std::max(tokens, kDelta.chunk))
      values.refuse("delta_chunk", "is longer than sequence_length " + std::to_string(tokens) +
                                       "; write no more than that, or leave it out for " +
                                       std::to_string(kDelta.chunk));
  }
}

}  // namespace pipewright::core
