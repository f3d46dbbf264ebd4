#include <array>

#include "core/model/families/lora.hpp"
#include "core/model/families/transformer_keys.hpp"

namespace pipewright::core {
namespace {

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
}  // namespace pipewright::core
