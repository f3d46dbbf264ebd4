#include "core/model/families/transformer_families.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "core/model/families/hybrid.hpp"
#include "core/model/families/lora.hpp"

namespace pipewright::core {
namespace {

constexpr std::int64_t kLongest = 100'000'000;  // tokens, words: beyond any in use

// ---- parameters that several families share -------------------------------------------------------------------------

constexpr FamilyParameter kLayers{"layers", "blocks", 1, 100'000};
constexpr FamilyParameter kSequence(std::int64_t otherwise) {
  return {"sequence_length", "tokens per sample", 1, kLongest, otherwise};
}
constexpr FamilyParameter kVocabulary(std::int64_t otherwise) {
  return {"vocabulary", "words (or word pieces) of the embedding's table", 2, kLongest, otherwise};
}
constexpr FamilyParameter kHidden(std::optional<std::int64_t> otherwise = {}) {
  return {"hidden", "features of a token", 1, 1'000'000, otherwise};
}
constexpr FamilyParameter kHeads(std::optional<std::int64_t> otherwise = {}) {
  return {"heads", "attention heads", 1, 100'000, otherwise};
}
constexpr FamilyParameter kHeadSize{"head_size", "features of a head; default: hidden / heads", 1, 1'000'000, 0};
constexpr FamilyParameter kFeedForward{"feed_forward", "features between the two products; default: 4 hidden", 1,
                                       100'000'000, 0};
constexpr FamilyParameter kMaterialised{
    .name = "attention",
    .meaning = "materialised: scores are stored; flash: a fused kernel, masked pairs are not computed",
    .choices = "materialised | flash"};
constexpr FamilyParameter kFlash{
    .name = "attention",
    .meaning = "flash: a fused kernel, masked pairs are not computed; materialised: scores are stored",
    .choices = "flash | materialised"};
constexpr FamilyParameter kDropout{.name = "dropout",
                                   .meaning = "of embeddings, attention probabilities and both parts of a block",
                                   .choices = "yes | no"};
constexpr FamilyParameter kNoDropout{.name = "dropout",
                                     .meaning = "of embeddings, attention probabilities and both parts of a block",
                                     .choices = "no | yes"};
constexpr FamilyParameter kTied{
    .name = "tied", .meaning = "the head uses the embedding's table", .choices = "yes | no"};
constexpr FamilyParameter kUntied{
    .name = "tied", .meaning = "the head uses the embedding's table", .choices = "no | yes"};

// ---- keys, both ways ------------------------------------------------------------------------------------------------

// Which key is which member of a Transformer stands once, in the functions `x_keys` below: `Reading` fills the members,
// `Form` tells the keys whose members differ from `otherwise`, or from the first of the words.
template <class E>
using Words = std::initializer_list<std::pair<std::string_view, E>>;
const Words<bool> kStoredOrFused = {{"materialised", false}, {"flash", true}};
const Words<bool> kFusedOrStored = {{"flash", true}, {"materialised", false}};

class Reading {
 public:
  explicit Reading(const FamilyValues& values) : values_(values) {}
  void number(const char* name, std::int64_t& member, std::int64_t otherwise = 0) const {
    member = values_[name] > 0 ? values_[name] : otherwise;
  }
  void yes(const char* name, bool& member, bool = false) const { member = values_.is(name, "yes"); }
  template <class E>
  void word(const char* name, E& member, Words<E> words) const {
    for (const auto& [word, value] : words)
      if (values_.is(name, word)) member = value;
  }

 private:
  const FamilyValues& values_;
};

class Form {
 public:
  explicit Form(const Family& family) { form_.family = family.name; }
  void number(const char* name, std::int64_t member, std::int64_t otherwise = 0) {
    if (member != otherwise) form_.arguments.emplace_back(name, std::to_string(member));
  }
  void yes(const char* name, bool member, bool otherwise = false) {
    if (member != otherwise) form_.arguments.emplace_back(name, member ? "yes" : "no");
  }
  template <class E>
  void word(const char* name, const E& member, Words<E> words) {
    for (const auto& [word, value] : words)
      if (value == member && word != words.begin()->first) form_.arguments.emplace_back(name, word);
  }
  void text(const char* name, const std::string& member) {
    if (!member.empty()) form_.arguments.emplace_back(name, member);
  }
  FamilyForm done() { return std::move(form_); }

 private:
  FamilyForm form_;
};

void common_keys(auto&& keys, auto& t, Words<bool> attention, bool dropout) {
  keys.number("layers", t.layers);
  keys.number("hidden", t.hidden);
  keys.number("heads", t.heads);
  keys.word("attention", t.flash, attention);
  keys.yes("dropout", t.dropout, dropout);
}

Transformer common(const FamilyValues& values, std::string name) {
  Transformer t;
  t.name = std::move(name);
  common_keys(Reading(values), t, kStoredOrFused, true);
  t.key_heads = t.heads;
  t.embedding_dropout = t.attention_dropout = t.dropout;
  return t;
}

std::int64_t head_size(const FamilyValues& values, std::int64_t given) {
  if (given > 0) return given;
  const std::int64_t hidden = values["hidden"], heads = values["heads"];
  if (hidden % heads != 0)
    values.refuse("heads", "does not divide hidden " + std::to_string(hidden) + "; use a divisor, or give head_size");
  return hidden / heads;
}

void gpt_keys(auto&& keys, auto& t) {
  keys.number("head_size", t.head_size, t.hidden / t.heads);
  keys.number("feed_forward", t.feed_forward, 4 * t.hidden);
  keys.number("vocabulary", t.vocabulary);
  keys.number("sequence_length", t.sequence_length);
  keys.number("positions", t.position_rows, t.sequence_length);
  keys.yes("tied", t.tied, true);
}

void bert_keys(auto&& keys, auto& t) {
  using Head = Transformer::Head;
  keys.number("feed_forward", t.feed_forward, 4 * t.hidden);
  keys.number("vocabulary", t.vocabulary);
  keys.number("sequence_length", t.sequence_length);
  keys.number("positions", t.position_rows, t.sequence_length);
  keys.number("token_types", t.token_types);
  keys.word("head", t.head,
            {{"pretraining", Head::Pretraining}, {"masked_lm", Head::MaskedToken}, {"pooler", Head::Pooler}});
  keys.yes("tied", t.tied, true);
}

void t5_keys(auto&& keys, auto& t) {
  keys.number("encoder_layers", t.encoder_layers, t.layers);
  keys.number("head_size", t.head_size);
  keys.number("feed_forward", t.feed_forward);
  keys.yes("gated", t.gated);
  keys.number("vocabulary", t.vocabulary);
  keys.number("buckets", t.position_rows);
  keys.number("sequence_length", t.sequence_length);
  keys.number("target_length", t.target_length);
  keys.yes("tied", t.tied, true);
}

void vit_keys(auto&& keys, auto& t) {
  keys.number("feed_forward", t.feed_forward, 4 * t.hidden);
  keys.number("image", t.image);
  keys.number("patch", t.patch);
  keys.number("channels", t.channels);
  keys.number("classes", t.classes);
}

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

// ---- transformer: Transformer-L of GPipe ----------------------------------------------------------------------------

constexpr std::array kTransformerParameters = {
    kLayers,
    kHidden(2048),
    kHeads(32),
    FamilyParameter{"feed_forward", "features between the two products", 1, 100'000'000, 8192},
    kVocabulary(32000),
    kSequence(1024),
    FamilyParameter{.name = "norms", .meaning = "before or after each part of a block", .choices = "pre | post"},
    kMaterialised,
    kDropout,
    FamilyParameter{"extra_kept", "values per token that a block keeps beyond what its operators need; default: none",
                    0, kLongest, 0}};

// ---- transformer_mt: T(L, H, A) of GPipe ----------------------------------------------------------------------------

constexpr std::array kTransformerMtParameters = {
    FamilyParameter{"layers", "L: blocks of the encoder, and as many of the decoder", 1, 100'000},
    FamilyParameter{"feed_forward", "H: features between the two products", 1, 100'000'000},
    FamilyParameter{"heads", "A: attention heads", 1, 100'000},
    kHidden(1024),
    FamilyParameter{"head_size", "features of a head", 1, 1'000'000, 64},
    kVocabulary(64000),
    kSequence(1024),
    FamilyParameter{"target_length", "tokens of the decoder; default: sequence_length", 1, kLongest, 0},
    kMaterialised,
    kDropout};

// ---- gpt ------------------------------------------------------------------------------------------------------------

constexpr std::array kGptParameters = {
    kLayers,
    kHidden(),
    kHeads(),
    kHeadSize,
    kFeedForward,
    kVocabulary(51200),
    kSequence(2048),
    FamilyParameter{"positions", "rows of the learned table of positions; default: sequence_length", 1, kLongest, 0},
    kTied,
    kLoraRank,
    lora_targets(
        "linear layers of the blocks beside which adapters stand; default: linear_qkv, linear_proj, linear_fc1 and "
        "linear_fc2"),
    kMaterialised,
    kDropout};

// ---- bert -----------------------------------------------------------------------------------------------------------

constexpr std::array kBertParameters = {
    FamilyParameter{"layers", "blocks", 1, 100'000, 12},
    kHidden(768),
    kHeads(12),
    kFeedForward,
    kVocabulary(30522),
    kSequence(512),
    FamilyParameter{"positions", "rows of the learned table of positions; default: sequence_length", 1, kLongest, 0},
    FamilyParameter{"token_types", "rows of the table of segments", 1, 1000, 2},
    FamilyParameter{.name = "head",
                    .meaning = "pretraining: masked words of every token and next sentence; masked_lm: masked words; "
                               "pooler: product and tanh of the first token",
                    .choices = "pretraining | masked_lm | pooler"},
    kTied,
    kMaterialised,
    kDropout};

// ---- t5 -------------------------------------------------------------------------------------------------------------

constexpr std::array kT5Parameters = {
    FamilyParameter{"layers", "blocks of the decoder", 1, 100'000, 12},
    FamilyParameter{"encoder_layers", "blocks of the encoder; default: layers", 1, 100'000, 0},
    kHidden(768),
    kHeads(12),
    FamilyParameter{"head_size", "features of a head", 1, 1'000'000, 64},
    FamilyParameter{"feed_forward", "features between the two products", 1, 100'000'000, 3072},
    FamilyParameter{.name = "gated", .meaning = "yes: GELU gates the feed-forward (T5 1.1)", .choices = "no | yes"},
    kVocabulary(32128),
    FamilyParameter{"buckets", "of the relative position bias", 1, 100'000, 32},
    kSequence(512),
    FamilyParameter{"target_length", "tokens of the decoder; default: sequence_length", 1, kLongest, 0},
    kTied,
    kMaterialised,
    kDropout};

// ---- vit ------------------------------------------------------------------------------------------------------------

constexpr std::array kVitParameters = {FamilyParameter{"layers", "blocks", 1, 100'000, 12},
                                       kHidden(768),
                                       kHeads(12),
                                       kFeedForward,
                                       FamilyParameter{"image", "height and width of an image", 1, 100'000, 224},
                                       FamilyParameter{"patch", "height and width of a patch", 1, 100'000, 16},
                                       FamilyParameter{"channels", "of an image", 1, 10'000, 3},
                                       FamilyParameter{"classes", "of the classifier", 2, 10'000'000, 1000},
                                       kMaterialised,
                                       kNoDropout};

// ---- decoder --------------------------------------------------------------------------------------------------------

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

template <Transformer (*of)(const FamilyValues&)>
Model built(const FamilyValues& values) {
  return build(of(values));
}

}  // namespace

// One self-attention per block; the table counts its parameters with biases everywhere, an untied softmax with bias
// and a final norm, and no table of positions.                                                      [GPipe19] table 1
Transformer transformer_of(const FamilyValues& values) {
  Transformer t = common(values, "transformer-" + std::to_string(values["layers"]));
  t.head_size = head_size(values, 0);
  t.feed_forward = values["feed_forward"];
  t.activation = Activation::Relu;
  t.sequence_length = values["sequence_length"];
  t.vocabulary = values["vocabulary"];
  t.head_bias = true;
  t.norms = values.is("norms", "pre") ? Transformer::Norms::Pre : Transformer::Norms::Post;
  t.attention_bias = Transformer::Bias::All;
  t.feed_forward_bias = true;
  t.causal = true;
  t.extra_kept = values["extra_kept"];
  return t;
}

Transformer transformer_mt_of(const FamilyValues& values) {
  Transformer t = common(values, "transformer-mt-" + std::to_string(values["layers"]));
  t.encoder_layers = t.layers;
  t.head_size = values["head_size"];
  t.feed_forward = values["feed_forward"];
  t.activation = Activation::Relu;
  t.sequence_length = values["sequence_length"];
  t.target_length = values["target_length"];
  t.vocabulary = values["vocabulary"];
  t.head_bias = true;
  t.attention_bias = Transformer::Bias::All;
  t.feed_forward_bias = true;
  return t;
}

Transformer gpt_of(const FamilyValues& values) {
  Transformer t = common(values, "gpt");
  t.head_size = head_size(values, values["head_size"]);
  gpt_keys(Reading(values), t);
  t.positions = Transformer::Positions::Learned;
  t.attention_bias = Transformer::Bias::All;
  t.feed_forward_bias = true;
  read_lora(values, true, t);
  return t;
}

Transformer bert_of(const FamilyValues& values) {
  Transformer t = common(values, "bert");
  t.head_size = head_size(values, 0);
  bert_keys(Reading(values), t);
  t.head_bias = true;
  t.embedding_norm = true;
  t.norms = Transformer::Norms::Post;
  t.positions = Transformer::Positions::Learned;
  t.attention_bias = Transformer::Bias::All;
  t.feed_forward_bias = true;
  t.causal = false;
  return t;
}

Transformer t5_of(const FamilyValues& values) {
  Transformer t = common(values, "t5");
  t5_keys(Reading(values), t);
  t.activation = t.gated ? Activation::Gelu : Activation::Relu;
  t.tied_target = true;
  t.norm = Norm::Rms;
  t.positions = Transformer::Positions::RelativeBias;
  t.inner_dropout = t.dropout;
  return t;
}

Transformer vit_of(const FamilyValues& values) {
  Transformer t = common(values, "vit");
  t.head_size = head_size(values, 0);
  vit_keys(Reading(values), t);
  if (t.image % t.patch != 0)
    values.refuse("patch", "does not divide image " + std::to_string(t.image) + "; use a divisor");
  t.sequence_length = (t.image / t.patch) * (t.image / t.patch) + 1;
  t.head = Transformer::Head::Classes;
  t.head_bias = true;
  t.attention_bias = Transformer::Bias::All;
  t.feed_forward_bias = true;
  t.causal = false;
  return t;
}

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

// ---- and back -------------------------------------------------------------------------------------------------------

namespace {

// The window of the blocks that have one, and every how many blocks one has none; {0, 0} where there is no such rule.
std::pair<std::int64_t, std::int64_t> window_rule(const std::vector<std::int64_t>& windows) {
  if (windows.empty()) return {0, 0};
  const std::int64_t window = *std::max_element(windows.begin(), windows.end());
  const auto full = std::find(windows.begin(), windows.end(), 0);
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
  if (const auto first = std::find(t.sparse.begin(), t.sparse.end(), 1); first != t.sparse.end()) {
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

}  // namespace

std::optional<FamilyForm> family_form(const Transformer& t) {
  Transformer (*of)(const FamilyValues&) = nullptr;
  const auto form_of = [&](const Family& family, Words<bool> attention, bool dropout, const auto& own_keys) {
    Form form(family);
    common_keys(form, t, attention, dropout);
    own_keys(form);
    return form.done();
  };
  FamilyForm form;
  if (t.image > 0)
    form = form_of(kVitFamily, kStoredOrFused, false, [&](Form& keys) { vit_keys(keys, t); }), of = vit_of;
  else if (t.encoder_layers > 0)
    form = form_of(kT5Family, kStoredOrFused, true, [&](Form& keys) { t5_keys(keys, t); }), of = t5_of;
  else if (!t.causal)
    form = form_of(kBertFamily, kStoredOrFused, true, [&](Form& keys) { bert_keys(keys, t); }), of = bert_of;
  else if (t.positions == Transformer::Positions::Learned)
    form = form_of(kGptFamily, kStoredOrFused, true, [&](Form& keys) { gpt_keys(keys, t); }), of = gpt_of;
  else
    form = form_of(kDecoderFamily, kFusedOrStored, false, [&](Form& keys) { decoder_form(keys, t); }), of = decoder_of;
  FamilyArguments arguments;
  for (const auto& [name, value] : form.arguments)
    arguments[name] = {value, {}};
  Transformer back = of(check_arguments(find_family(form.family)->parameters, arguments, "model", {}));
  back.name = t.name, back.stated_modules = t.stated_modules;
  if (back != t) return std::nullopt;
  return form;
}

const Family kTransformerFamily{"transformer", "GPipe's Transformer-L: one self-attention per layer [GPipe19]",
                                kTransformerParameters, built<transformer_of>};
const Family kTransformerMtFamily{"transformer_mt",
                                  "GPipe's T(L, H, A) for translation: encoder and decoder, untied tables [GPipe19]",
                                  kTransformerMtParameters, built<transformer_mt_of>};
const Family kGptFamily{"gpt", "GPT-2 and GPT-3 as Megatron-LM trains them [Radford19] [Megatron21]", kGptParameters,
                        built<gpt_of>};
const Family kBertFamily{"bert", "BERT: post-norm encoder with segments [Devlin18]", kBertParameters, built<bert_of>};
const Family kT5Family{"t5", "T5: encoder and decoder with a relative position bias [Raffel19]", kT5Parameters,
                       built<t5_of>};
const Family kVitFamily{"vit", "Vision Transformer: patches, a class token, a classifier [Dosovitskiy20]",
                        kVitParameters, built<vit_of>};
const Family kDecoderFamily{"decoder",
                            "Llama-like decoder: rotary positions, grouped queries, experts, latent attention, "
                            "hybrids with Mamba-2 or gated delta nets [Touvron23] [DeepSeekII24] [NemotronH25] "
                            "[GatedDelta24]",
                            kDecoderParameters, built<decoder_of>};

}  // namespace pipewright::core
