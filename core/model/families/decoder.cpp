#include <algorithm>
#include <array>

#include "core/model/families/hybrid.hpp"
#include "core/model/families/lora.hpp"
#include "core/model/families/transformer_keys.hpp"

namespace pipewright::core {
namespace {

// Those of a decoder, around what follows from more than one member: activation, windows, which blocks are sparse.
void size_keys(auto&& keys, auto& t) {
  keys.number("feed_forward", t.feed_forward);
  keys.number("vocabulary", t.vocabulary);
  keys.number("sequence_length", t.sequence_length);
  keys.yes("tied", t.tied);
}

void block_keys(auto&& keys, auto& t) {
  using Bias = Transformer::Bias;
  using Norms = Transformer::Norms;
  using Positions = Transformer::Positions;
  using QkNorm = Transformer::QkNorm;
  keys.yes("gated", t.gated, true);
  keys.word("norm", t.norm, {{"rms", Norm::Rms}, {"layer", Norm::Layer}});
  keys.yes("norm_bias", t.norm_bias, true);
  keys.word(
      "norms", t.norms,
      {{"pre", Norms::Pre}, {"post", Norms::Post}, {"sandwich", Norms::Sandwich}, {"reordered", Norms::Reordered}});
  keys.word("attention_bias", t.attention_bias, {{"none", Bias::None}, {"qkv", Bias::Queries}, {"all", Bias::All}});
  keys.yes("feed_forward_bias", t.feed_forward_bias);
  keys.word("qk_norm", t.qk_norm, {{"none", QkNorm::None}, {"head", QkNorm::Head}, {"all", QkNorm::All}});
  keys.yes("attention_gate", t.attention_gate);
  keys.word("parts", t.parallel_parts, {{"sequential", false}, {"parallel", true}});
  keys.word("positions", t.positions, {{"rotary", Positions::Rotary}, {"none", Positions::None}});
  keys.number("rotary_size", t.rotary_size);
  keys.yes("attention_soft_cap", t.attention_soft_cap);
  keys.yes("final_soft_cap", t.final_soft_cap);
  keys.yes("sinks", t.sinks);
}

void expert_keys(auto&& keys, auto& moe) {
  keys.number("experts", moe.experts);
  keys.number("active_experts", moe.active);
  keys.number("expert_feed_forward", moe.feed_forward);
  keys.number("shared_feed_forward", moe.shared_feed_forward);
  keys.yes("shared_gate", moe.shared_gate);
  keys.yes("router_bias", moe.router_bias);
  keys.yes("expert_bias", moe.expert_bias);
}

void latent_keys(auto&& keys, auto& latent) {
  keys.number("query_rank", latent.query_rank);
  keys.number("key_value_rank", latent.rank);
  keys.number("nope_size", latent.nope_size);
  keys.number("rope_size", latent.rope_size);
  keys.number("value_size", latent.value_size);
}

constexpr std::array kDecoderParameters = {
    kLayers,
    kHidden(),
    kHeads(),
    FamilyParameter{"key_heads", "heads of keys and values; default: heads", 1, 100'000, 0},
    kHeadSize,
    FamilyParameter{"feed_forward", "features between the two products of a dense block", 1, 100'000'000},
    kVocabulary(32000),
    kSequence(4096),
    kUntied,
    FamilyParameter{.name = "activation",
                    .meaning = "of the feed-forward; relu2: the square of relu (Nemotron), without a gate",
                    .choices = "silu | gelu | relu | relu2"},
    FamilyParameter{.name = "gated", .meaning = "the activation gates a second half (SwiGLU)", .choices = "yes | no"},
    FamilyParameter{.name = "norm", .meaning = "kind of norm", .choices = "rms | layer"},
    FamilyParameter{.name = "norm_bias", .meaning = "layer norms have biases", .choices = "yes | no"},
    FamilyParameter{.name = "norms",
                    .meaning =
                        "before each part of a block, after its sum, before and after (sandwich), or of what the "
                        "part adds (reordered: OLMo 2)",
                    .choices = "pre | post | sandwich | reordered"},
    FamilyParameter{.name = "attention_bias",
                    .meaning = "of queries, keys and values (qkv), also of the projection (all)",
                    .choices = "none | qkv | all"},
    FamilyParameter{.name = "feed_forward_bias", .meaning = "of both products", .choices = "no | yes"},
    FamilyParameter{.name = "qk_norm", .meaning = "norms of queries and keys", .choices = "none | head | all"},
    FamilyParameter{.name = "attention_gate",
                    .meaning = "a sigmoid of further features of the queries' product scales its output (Qwen3-Next)",
                    .choices = "no | yes"},
    FamilyParameter{.name = "parts",
                    .meaning = "sequential: the feed-forward reads the attention's sum; parallel: both read the input",
                    .choices = "sequential | parallel"},
    FamilyParameter{.name = "positions",
                    .meaning = "none: nothing that takes time, such as ALiBi (MPT)",
                    .choices = "rotary | none"},
    FamilyParameter{"rotary_size", "rotated features of a head; default: all", 1, 1'000'000, 0},
    FamilyParameter{.name = "attention_soft_cap",
                    .meaning = "scores pass cap * tanh(score / cap) (Gemma 2); costs time where they are stored",
                    .choices = "no | yes"},
    FamilyParameter{.name = "final_soft_cap", .meaning = "so do the logits", .choices = "no | yes"},
    FamilyParameter{.name = "sinks", .meaning = "one trained logit per head (gpt-oss)", .choices = "no | yes"},
    FamilyParameter{"window", "sliding window in tokens; default: none", 1, kLongest, 0},
    FamilyParameter{"full_every", "with a window: every so many blocks one attends to all; default: none does", 1,
                    100'000, 0},
    FamilyParameter{"experts", "of a sparse block's feed-forward; default: dense", 1, 1'000'000, 0},
    FamilyParameter{"active_experts", "experts that a token is sent to", 1, 1'000'000, 0},
    FamilyParameter{"expert_feed_forward", "features between the products of one expert", 1, 100'000'000, 0},
    FamilyParameter{"shared_feed_forward", "of the experts that every token uses; default: none", 1, 100'000'000, 0},
    FamilyParameter{.name = "shared_gate",
                    .meaning = "the shared expert is scaled by a sigmoid of one product (Qwen 2)",
                    .choices = "no | yes"},
    FamilyParameter{.name = "router_bias", .meaning = "one value per expert", .choices = "no | yes"},
    FamilyParameter{.name = "expert_bias", .meaning = "biases of the experts' products", .choices = "no | yes"},
    FamilyParameter{"dense_layers", "blocks at the front without experts; default: none", 1, 100'000, 0},
    FamilyParameter{"sparse_step", "every so many blocks one has experts", 1, 100'000, 1},
    FamilyParameter{"query_rank", "latent attention: compressed queries; default: not compressed", 1, 1'000'000, 0},
    FamilyParameter{"key_value_rank", "latent attention: compressed keys and values; default: ordinary attention", 1,
                    1'000'000, 0},
    FamilyParameter{"nope_size", "latent attention: features of a head without rotation", 1, 1'000'000, 0},
    FamilyParameter{"rope_size", "latent attention: rotated features of a head", 1, 1'000'000, 0},
    FamilyParameter{"value_size", "latent attention: features of a head's values", 1, 1'000'000, 0},
    FamilyParameter{"next_token_modules", "blocks that predict further tokens (DeepSeek-V3); default: none", 1, 100, 0},
    kPattern,
    kMambaHeads,
    kMambaHeadSize,
    kMambaGroups,
    kMambaState,
    kMambaKernel,
    kMambaChunk,
    kDeltaHeads,
    kDeltaKeyHeads,
    kDeltaKeySize,
    kDeltaValueSize,
    kDeltaKernel,
    kDeltaChunk,
    kLoraRank,
    lora_targets(
        "linear layers of the blocks beside which adapters stand; default: of each a model has, its parts one by "
        "one (not linear_qkv, linear_fc1)"),
    kFlash,
    kNoDropout};

// The window of the blocks that have one, and every how many blocks one has none; {0, 0} where there is no such rule.
std::pair<std::int64_t, std::int64_t> window_rule(const std::vector<std::int64_t>& windows) {
  if (windows.empty()) return {0, 0};
  const std::int64_t window = *std::ranges::max_element(windows);
  const auto full = std::ranges::find(windows, 0);
  return {window, full == windows.end() ? 0 : full - windows.begin() + 1};
}

// Sizes of the blocks of a pattern that are neither attention nor feed-forward.
void mixer_form(Form& form, const Transformer& t) {
  if (t.pattern.find('M') != std::string::npos) {
    form.number("mamba_heads", t.mixer.heads);
    form.number("mamba_head_size", t.mixer.head_size, kMamba.head_size);
    form.number("mamba_groups", t.mixer.groups, kMamba.groups);
    form.number("mamba_state", t.mixer.state, kMamba.state);
    form.number("mamba_kernel", t.mixer.kernel, kMamba.kernel);
    form.number("mamba_chunk", t.mixer.chunk, kMamba.chunk);
  }
  if (t.pattern.find('G') != std::string::npos) {
    form.number("delta_heads", t.delta.heads);
    form.number("delta_key_heads", t.delta.key_heads, t.delta.heads);
    form.number("delta_key_size", t.delta.key_size, kDelta.key_size);
    form.number("delta_value_size", t.delta.value_size, kDelta.value_size);
    form.number("delta_kernel", t.delta.kernel, kDelta.kernel);
    form.number("delta_chunk", t.delta.chunk, kDelta.chunk);
  }
}

}  // namespace

Transformer decoder_of(const FamilyValues& values) {
  Transformer t = common(values, "decoder");
  const Reading keys(values);
  keys.number("key_heads", t.key_heads, t.heads);
  if (t.heads % t.key_heads != 0)
    values.refuse("key_heads", "does not divide heads " + std::to_string(t.heads) + "; use a divisor");
  latent_keys(keys, t.latent);
  if (t.latent.rank > 0)
    keys.number("head_size", t.head_size, t.latent.nope_size + t.latent.rope_size);
  else
    t.head_size = head_size(values, values["head_size"]);
  size_keys(keys, t);
  t.activation = values.is("activation", "silu")   ? Activation::Silu
                 : values.is("activation", "gelu") ? Activation::Gelu
                                                   : Activation::Relu;
  t.squared = values.is("activation", "relu2");
  block_keys(keys, t);
  if (t.attention_gate && t.latent.rank > 0)
    values.refuse("attention_gate", "is not built with key_value_rank; leave one of the two out");
  if (t.positions == Transformer::Positions::None && t.rotary_size > 0)
    values.refuse("rotary_size", "is given with positions: none; leave one of the two out");
  if (t.positions == Transformer::Positions::None && t.latent.rank > 0)
    values.refuse("positions", "is not built with key_value_rank, whose heads have rotated features; leave it out");
  t.modules = t.stated_modules = values["next_token_modules"];
  if (const std::int64_t window = values["window"], every = values["full_every"]; window > 0)
    for (std::int64_t i = 0; i < t.layers; ++i)
      t.windows.push_back(every > 0 && (i + 1) % every == 0 ? 0 : window);
  expert_keys(keys, t.moe);
  for (const std::string_view needs_experts : {"active_experts", "expert_feed_forward", "shared_feed_forward"})
    if (t.moe.experts == 0 && values[needs_experts] > 0)
      values.refuse(needs_experts, "is given without experts; add experts");
  for (const std::string_view needs_rank : {"query_rank", "nope_size", "rope_size", "value_size"})
    if (t.latent.rank == 0 && values[needs_rank] > 0)
      values.refuse(needs_rank, "is given without key_value_rank; add key_value_rank");
  if (const std::int64_t step = values["sparse_step"], front = values["dense_layers"]; step > 1 || front > 0)
    for (std::int64_t i = 0; i < t.layers; ++i)
      t.sparse.push_back(i >= front && (i + 1) % step == 0 ? 1 : 0);
  read_hybrid(values, t);
  read_lora(values, false, t);
  return t;
}

void decoder_form(Form& form, const Transformer& t) {
  form.number("key_heads", t.key_heads, t.heads);
  form.number("head_size", t.head_size,
              t.latent.rank > 0         ? t.latent.nope_size + t.latent.rope_size
              : t.hidden % t.heads == 0 ? t.hidden / t.heads
                                        : 0);
  size_keys(form, t);
  form.word("activation", std::pair(t.activation, t.squared),
            {{"silu", {Activation::Silu, false}},
             {"gelu", {Activation::Gelu, false}},
             {"relu", {Activation::Relu, false}},
             {"relu2", {Activation::Relu, true}}});
  block_keys(form, t);
  const auto [window, full_every] = window_rule(t.windows);
  form.number("window", window);
  form.number("full_every", full_every);
  expert_keys(form, t.moe);
  if (const auto first = std::ranges::find(t.sparse, 1); first != t.sparse.end()) {
    const auto next = std::find(first + 1, t.sparse.end(), 1);
    const std::int64_t step = next == t.sparse.end() ? 1 : next - first;
    form.number("dense_layers", step == 1 ? first - t.sparse.begin() : 0);
    form.number("sparse_step", step, 1);
  }
  latent_keys(form, t.latent);
  form.number("next_token_modules", t.modules);
  form.text("pattern", t.pattern);
  mixer_form(form, t);
}

const Family kDecoderFamily{"decoder",
                            "Llama-like decoder: rotary positions, grouped queries, experts, latent attention, "
                            "hybrids with Mamba-2 or gated delta nets [Touvron23] [DeepSeekII24] [NemotronH25] "
                            "[GatedDelta24]",
                            kDecoderParameters, built<decoder_of>};

}  // namespace pipewright::core
