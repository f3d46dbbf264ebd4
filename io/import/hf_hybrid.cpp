// Hybrid stacks: model_type nemotron_h.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "io/import/hf_types.hpp"

namespace pipewright::io {
namespace {

// As Hugging Face writes the parts in words, of old and of new configurations.
constexpr std::array<std::pair<std::string_view, char>, 6> kParts = {{{"mamba", 'M'},
                                                                      {"linear_attention", 'M'},
                                                                      {"attention", '*'},
                                                                      {"full_attention", '*'},
                                                                      {"mlp", '-'},
                                                                      {"moe", 'E'}}};

std::string pattern_of_words(HfFields& c, std::string_view key, const Json& list) {
  std::string pattern;
  if (!list.is_array()) c.refuse(key, "is not a list of parts, one a layer; correct it");
  for (const Json& each : list) {
    const auto* const known = std::ranges::find_if(kParts, [&](const auto& part) {
      return each == Json(part.first) || each == Json(std::string(1, part.second));
    });
    if (known == kParts.end())
      c.refuse(key, "has an entry that is not known; write one of mamba, attention, mlp, moe for each layer");
    pattern += known->second;
  }
  return pattern;
}

void read_pattern(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  std::string key;
  for (const char* each : {"hybrid_override_pattern", "layers_block_type", "layer_types"}) {
    const Json* const given = c.find(each);
    if (!given) continue;
    const std::string pattern = given->is_string() ? given->get<std::string>() : pattern_of_words(c, each, *given);
    if (!key.empty() && pattern != t.pattern)
      c.refuse(each, fmt::format("says other parts than {}; correct one of them, or leave it out", key));
    if (key.empty()) key = each, t.pattern = pattern;
  }
  if (key.empty())
    c.need_stated("hybrid_override_pattern",
                  "a letter a layer: M (Mamba-2), * (attention), - (feed-forward), E (experts)");
  if (const std::size_t other = t.pattern.find_first_not_of("M*-E"); other != std::string::npos)
    c.refuse(key,
             fmt::format("has a letter at {} that is not known; write M (Mamba-2), * (attention), - (feed-forward) or "
                         "E (experts) for each layer",
                         other + 1));
  if (t.pattern.size() != at(t.layers))
    c.refuse(key, fmt::format("has {} layers, num_hidden_layers {}; correct one of them", t.pattern.size(), t.layers));
}

void read_mixer(const HfReading& r) {
  HfFields& c = r.config;
  StateSpace& mixer = r.out.transformer.mixer;
  mixer = {.heads = c.count("mamba_num_heads"),
           .head_size = c.count("mamba_head_dim"),
           .groups = c.count("n_groups"),
           .state = c.count("ssm_state_size"),
           .kernel = c.count("conv_kernel", 4),
           .chunk = c.count("chunk_size", 128)};
  if (mixer.heads % mixer.groups != 0)
    c.refuse("n_groups", fmt::format("does not divide mamba_num_heads {}; use a divisor", mixer.heads));
  for (const char* bias : {"mamba_proj_bias", "use_bias"})
    c.need_off(bias, "is not built: the products of a mixer have no biases; set it to false");
  if (!c.flag("use_conv_bias", true)) c.refuse("use_conv_bias", "is not built; only true is");
  if (c.word("mamba_hidden_act", "silu") != "silu") c.refuse("mamba_hidden_act", "is not built; only silu is");
}

void read_experts(const HfReading& r) {
  HfFields& c = r.config;
  if (c.has("moe_latent_size"))
    c.refuse("moe_latent_size", "is not built: experts read all features of a token; write null");
  // One feed-forward of that size, however many experts are shared.
  const bool shared = c.count_or_0("n_shared_experts", 1) > 0;
  r.out.transformer.moe = {.experts = c.count("n_routed_experts"),
                           .active = c.count("num_experts_per_tok"),
                           .feed_forward = c.count("moe_intermediate_size"),
                           .shared_feed_forward = shared ? c.count("moe_shared_expert_intermediate_size") : 0,
                           .router_bias = true,  // e_score_correction_bias
                           .expert_bias = r.out.transformer.feed_forward_bias};
  r.out.trained_as.routing = Routing{.scores = RouterScores::Sigmoid};
}

}  // namespace

void read_hf_hybrid(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  read_pattern(r);
  if (t.pattern.find('M') != std::string::npos) read_mixer(r);
  if (t.pattern.find('E') != std::string::npos) read_experts(r);
  t.stated_modules = c.count_or_0("num_nextn_predict_layers", 0, 100);
  t.modules = r.options.next_token_modules;
  // Of parts that the pattern has not, of kernels, and of how tokens are routed: no shapes.
  c.ignore({"mamba_num_heads", "mamba_head_dim", "ssm_state_size", "mamba_proj_bias", "mamba_hidden_act",
            "mamba_ssm_cache_dtype", "use_mamba_kernels", "n_routed_experts", "num_experts_per_tok", "n_shared_experts",
            "moe_intermediate_size", "moe_shared_expert_intermediate_size", "moe_shared_expert_overlap",
            "moe_latent_size", "mtp_layers_block_type", "mtp_hybrid_override_pattern"});
}

}  // namespace pipewright::io
