#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "io/import/hf_types.hpp"
#include "io/read/trained_as.hpp"
#include "io/text/names.hpp"

namespace pipewright::io {
namespace {

// The object that holds the rotary positions' parameters, and under which key; of types that rotate blocks with a
// window otherwise, those of the others.
struct RopeObject {
  std::string_view key;
  const Json* json = nullptr;
};

RopeObject rope_object(const HfReading& r) {
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    const Json* json = r.config.find(key);
    if (!json) continue;
    if (!json->is_object()) r.config.refuse(key, "is not an object; correct it, or write null");
    const auto full = json->find("full_attention");
    return {key, full != json->end() && full->is_object() ? &*full : json};
  }
  return {};
}

std::string type_of(const RopeObject& rope) {
  for (const char* key : {"rope_type", "type"})
    if (const auto found = rope.json->find(key); found != rope.json->end() && found->is_string())
      return found->get<std::string>();
  return "default";
}

void read_scaling(const HfReading& r, const RopeObject& rope) {
  const std::string type = type_of(rope);
  if (type == "default") return;
  const auto known = std::find_if(std::begin(kNames<RopeScalingType>), std::end(kNames<RopeScalingType>),
                                  [&](const auto& each) { return each.first == type; });
  if (known == std::end(kNames<RopeScalingType>)) {
    std::string& word = r.out.trained_as.rope_scaling_not_kept;
    word = rope_type_word(type);
    r.out.notes.push_back(fmt::format("{} of type {} is not kept", rope.key, word));
    return;
  }
  const auto number = [&](const char* inner) { return r.config.positive_within(rope.key, *rope.json, inner); };
  RopeScaling scaling{.type = known->second};
  const std::optional<double> factor = number("factor");
  if (!factor || *factor < 1) r.config.refuse(rope.key, "has no factor of at least 1; correct it, or write null");
  scaling.factor = *factor;
  if (const auto length = number("original_max_position_embeddings")) {
    if (*length < 1 || *length > kLargestHfCount || *length != std::floor(*length))
      r.config.refuse(rope.key,
                      fmt::format("has an original_max_position_embeddings that is not a whole number from 1 to "
                                  "{}; correct it",
                                  kLargestHfCount));
    scaling.original_length = static_cast<std::int64_t>(*length);
  }
  scaling.low_freq_factor = number("low_freq_factor"), scaling.high_freq_factor = number("high_freq_factor");
  scaling.beta_fast = number("beta_fast"), scaling.beta_slow = number("beta_slow");
  // 0 is their default and means none.
  const auto unless_0 = [&](const char* inner) {
    const auto value = rope.json->find(inner);
    return value != rope.json->end() && *value == Json(0) ? std::nullopt : number(inner);
  };
  scaling.mscale = unless_0("mscale"), scaling.mscale_all_dim = unless_0("mscale_all_dim");
  r.out.trained_as.rope_scaling = scaling;
  constexpr std::array<std::string_view, 11> kept = {"rope_type",
                                                     "type",
                                                     "rope_theta",
                                                     "factor",
                                                     "original_max_position_embeddings",
                                                     "low_freq_factor",
                                                     "high_freq_factor",
                                                     "beta_fast",
                                                     "beta_slow",
                                                     "mscale",
                                                     "mscale_all_dim"};
  for (const auto& [key, value] : rope.json->items())
    if (std::ranges::find(kept, key) == kept.end() && key != "partial_rotary_factor")
      r.out.notes.push_back(fmt::format("{} of {} is not kept", printable(key.substr(0, 64)), rope.key));
}

// Over what the type of the model says. Where neither says anything, it is unknown.
void read_routing(const HfReading& r) {
  if (r.out.transformer.moe.experts == 0) return;
  const Routing by_type = r.out.trained_as.routing.value_or(Routing{});
  const bool stated = r.config.has("scoring_func");
  const std::string scores = r.config.word("scoring_func", std::string(name(by_type.scores)));
  if (scores != "softmax" && scores != "sigmoid") {
    r.out.notes.push_back(fmt::format("scoring_func {} is not kept", rope_type_word(scores)));
    r.out.trained_as.routing.reset();
    return;
  }
  Routing routing{.scores = scores == "sigmoid" ? RouterScores::Sigmoid : RouterScores::Softmax};
  const std::int64_t groups = std::max<std::int64_t>(1, r.config.count_or_0("n_group", 1)),
                     used = r.config.count_or_0("topk_group", groups);
  if (groups > 1) routing.groups = groups, routing.groups_used = used;
  if (r.out.transformer.moe.experts % groups != 0)
    r.config.refuse("n_group",
                    fmt::format("does not divide the {} experts; correct it", r.out.transformer.moe.experts));
  if (used > groups) r.config.refuse("topk_group", fmt::format("is more than the {} of n_group; correct it", groups));
  if (const auto scale = r.config.positive("routed_scaling_factor"); scale && *scale != 1) routing.scale = scale;
  if (stated || routing != Routing{}) r.out.trained_as.routing = routing;
}

}  // namespace

void read_hf_trained_as(const HfReading& r) {
  TrainedAs& trained = r.out.trained_as;
  for (const char* key : {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps"})
    if (const auto value = r.config.positive(key); value && !trained.norm_epsilon) {
      if (*value >= 1) r.config.refuse(key, "is not a number above 0, below 1; correct it");
      trained.norm_epsilon = value;
    }
  read_routing(r);
  if (r.out.transformer.positions != Transformer::Positions::Rotary) return;
  const RopeObject rope = rope_object(r);
  trained.rope_theta = r.type == "mpt" ? r.config.within("attn_config").positive("rope_theta")
                                       : r.config.positive(r.type == "gpt_neox" ? "rotary_emb_base" : "rope_theta");
  if (!trained.rope_theta && rope.json)
    trained.rope_theta = r.config.positive_within(rope.key, *rope.json, "rope_theta");
  if (rope.json) read_scaling(r, rope);
  if (r.config.positive("rope_local_base_freq"))
    r.out.notes.emplace_back("rope_local_base_freq, the base of blocks with a window, is not kept");
}

}  // namespace pipewright::io
