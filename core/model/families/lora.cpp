#include "core/model/families/lora.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace pipewright::core {
namespace {

using NamedTarget = std::pair<std::string_view, LoraTarget>;

constexpr std::array<NamedTarget, 17> kNames = {{{"q_proj", LoraTarget::Q},
                                                 {"k_proj", LoraTarget::K},
                                                 {"v_proj", LoraTarget::V},
                                                 {"o_proj", LoraTarget::O},
                                                 {"gate_proj", LoraTarget::Gate},
                                                 {"up_proj", LoraTarget::Up},
                                                 {"down_proj", LoraTarget::Down},
                                                 {"linear_qkv", LoraTarget::Qkv},
                                                 {"linear_proj", LoraTarget::O},
                                                 {"linear_fc1", LoraTarget::Fc1},
                                                 {"linear_fc2", LoraTarget::Down},
                                                 {"q_a_proj", LoraTarget::QDown},
                                                 {"q_b_proj", LoraTarget::QUp},
                                                 {"kv_a_proj_with_mqa", LoraTarget::KvDown},
                                                 {"kv_b_proj", LoraTarget::KvUp},
                                                 {"in_proj", LoraTarget::MixerIn},
                                                 {"out_proj", LoraTarget::MixerOut}}};

class LoraTargets {
 public:
  LoraTargets() = default;
  LoraTargets(std::initializer_list<LoraTarget> list) {
    for (const LoraTarget each : list)
      add(each);
  }
  void add(LoraTarget target) { bits_ |= 1u << static_cast<unsigned>(target); }
  void add(LoraTargets others) { bits_ |= others.bits_; }
  bool has(LoraTarget target) const { return (bits_ >> static_cast<unsigned>(target) & 1) != 0; }
  LoraTargets without(LoraTargets others) const {
    LoraTargets left;
    left.bits_ = bits_ & ~others.bits_;
    return left;
  }
  std::uint32_t bits() const { return bits_; }

 private:
  std::uint32_t bits_ = 0;
};

bool has_dense(const Transformer& t) {
  if (!t.pattern.empty())
    return t.pattern.find('-') != std::string::npos ||
           (t.pattern.find('E') != std::string::npos && t.moe.shared_feed_forward > 0);
  if (t.moe.experts == 0 || t.moe.shared_feed_forward > 0) return true;
  return std::ranges::find(t.sparse, 0) != t.sparse.end();
}

// The linear layers that the model's blocks have; not those of experts, which stay frozen.
LoraTargets built_layers(const Transformer& t) {
  LoraTargets there;
  if (t.pattern.empty() || t.pattern.find('*') != std::string::npos) {
    there.add(LoraTarget::O);
    if (t.latent.rank > 0) {
      there.add({LoraTarget::KvDown, LoraTarget::KvUp});
      there.add(t.latent.query_rank > 0 ? LoraTargets{LoraTarget::QDown, LoraTarget::QUp} : LoraTargets{LoraTarget::Q});
    } else {
      there.add({LoraTarget::Q, LoraTarget::K, LoraTarget::V, LoraTarget::Qkv});
    }
  }
  if (has_dense(t)) there.add({LoraTarget::Up, LoraTarget::Down, LoraTarget::Fc1});
  if (has_dense(t) && t.gated) there.add(LoraTarget::Gate);
  if (t.pattern.find('M') != std::string::npos) there.add({LoraTarget::MixerIn, LoraTarget::MixerOut});
  return there;
}

std::string in_words(LoraTargets targets) {
  std::string text;
  for (const auto& [name, target] : kNames)
    if (targets.has(target)) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

// One adapter beside a whole product, or some beside its parts.
void refuse_both(const FamilyValues& values, LoraTargets chosen, LoraTarget whole, LoraTargets parts) {
  if (!chosen.has(whole)) return;
  for (const auto& [name, target] : kNames)
    if (parts.has(target) && chosen.has(target))
      values.refuse("lora_targets", "names " + std::string(name) + " beside " + in_words({whole}) +
                                        ", of which it is a part; keep one of the two");
}

}  // namespace

void read_lora(const FamilyValues& values, bool fused, Transformer& t) {
  const std::string_view given = values.choice("lora_targets");
  t.lora.rank = values["lora_rank"];
  if (t.lora.rank == 0) {
    if (values.places.contains("lora_rank"))
      values.refuse("lora_rank", "is not a rank; write 1 or more, or leave lora_rank out to train all weights");
    if (!given.empty()) values.refuse("lora_targets", "is given without lora_rank; add lora_rank");
    return;
  }
  const LoraTargets wholes{LoraTarget::Qkv, LoraTarget::Fc1}, there = built_layers(t);
  const LoraTargets parts_of_qkv{LoraTarget::Q, LoraTarget::K, LoraTarget::V},
      parts_of_fc1{LoraTarget::Gate, LoraTarget::Up};
  if (given.empty()) {
    const LoraTargets left_out =
        fused ? LoraTargets{LoraTarget::Q, LoraTarget::K, LoraTarget::V, LoraTarget::Gate, LoraTarget::Up} : wholes;
    t.lora.targets = there.without(left_out).bits();
    return;
  }
  LoraTargets chosen;
  for (const std::string& word : words_of_list(given)) {
    const auto named = std::ranges::find_if(kNames, [&](const NamedTarget& n) { return n.first == word; });
    PP_CHECK(named != kNames.end());
    if (!there.has(named->second))
      values.refuse("lora_targets", "names " + word + ", and no block has it; use some of: " + in_words(there));
    if (chosen.has(named->second))
      values.refuse("lora_targets", "names one layer twice: " + in_words({named->second}) + "; keep one of the two");
    chosen.add(named->second);
  }
  refuse_both(values, chosen, LoraTarget::Qkv, parts_of_qkv);
  refuse_both(values, chosen, LoraTarget::Fc1, parts_of_fc1);
  t.lora.targets = chosen.bits();
}

}  // namespace pipewright::core
