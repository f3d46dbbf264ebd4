#include "core/model/operator_table.hpp"

#include <algorithm>
#include <array>

namespace pipewright::core {
namespace {

using Value = LayerBuilder::Value;
using Inputs = std::span<const Value>;
using Parameter = FamilyParameter;

constexpr std::int64_t kLarge = 1'000'000;

constexpr Parameter kConv2d[] = {
    {"channels", "channels of the output", 1, kLarge, {}, ""},
    {"kernel", "height and width of the window", 1, 4096, 1, ""},
    {"kernel_height", "its height; 0: kernel", 0, 4096, 0, ""},
    {"kernel_width", "its width; 0: kernel", 0, 4096, 0, ""},
    {"stride", "step of the window", 1, 4096, 1, ""},
    {"padding", "zeros added on each side", 0, 4096, 0, ""},
    {"padding_height", "above and below; -1: padding", -1, 4096, -1, ""},
    {"padding_width", "left and right; -1: padding", -1, 4096, -1, ""},
    {"groups", "groups of channels that do not mix", 1, kLarge, 1, ""},
    {"bias", "a trained bias per channel", 0, 0, {}, "yes | no"},
};
Value conv2d(LayerBuilder& layer, Inputs x, const FamilyValues& v) {
  const auto or_else = [&](const char* name, const char* otherwise, std::int64_t unset) {
    return v[name] == unset ? v[otherwise] : v[name];
  };
  return layer.conv2d(x[0], {.channels = v["channels"],
                             .kernel_height = or_else("kernel_height", "kernel", 0),
                             .kernel_width = or_else("kernel_width", "kernel", 0),
                             .stride = v["stride"],
                             .padding_height = or_else("padding_height", "padding", -1),
                             .padding_width = or_else("padding_width", "padding", -1),
                             .groups = v["groups"],
                             .bias = v.is("bias", "yes")});
}

constexpr Parameter kLinear[] = {
    {"features", "of the output", 1, kLarge, {}, ""},
    {"bias", "a trained bias per feature", 0, 0, {}, "yes | no"},
};
Value linear(LayerBuilder& layer, Inputs x, const FamilyValues& v) {
  return layer.linear(x[0], {.features = v["features"], .bias = v.is("bias", "yes")});
}

constexpr Parameter kAttention[] = {
    {"heads", "of the queries", 1, 65536, {}, ""},
    {"key_heads", "of keys and values (grouped-query attention); 0: heads", 0, 65536, 0, ""},
    {"head_size", "features of a head; 0: what the input holds", 0, kLarge, 0, ""},
    {"causal", "a token sees itself and those before it", 0, 0, {}, "no | yes"},
    {"window", "keys that a query sees, itself included; 0: all", 0, 100'000'000, 0, ""},
    {"kernel", "fused: scores are never stored, masked pairs never computed", 0, 0, {}, "flash | materialized"},
    {"dropout", "of the scores", 0, 0, {}, "no | yes"},
};
Value attention(LayerBuilder& layer, Inputs x, const FamilyValues& v) {
  const Shape in = layer.shape(x[0]);
  if (in.rank != 2) throw InputError("attention needs inputs of shape tokens x features, not " + text(in));
  if (x.size() == 2) throw InputError("attention has one input, or three: queries, keys and values");
  const std::int64_t heads = v["heads"], keys = v["key_heads"] == 0 ? heads : v["key_heads"];
  const std::int64_t parts = x.size() == 1 ? heads + 2 * keys : heads;
  std::int64_t size = v["head_size"];
  if (size == 0) {
    if (in[1] % parts != 0)
      throw InputError("heads: " + std::to_string(in[1]) + " features do not divide into " + std::to_string(parts) +
                       (x.size() == 1 ? " heads of queries, keys and values" : " heads") +
                       "; use a divisor, or give head_size");
    size = in[1] / parts;
  }
  if (in[1] != parts * size)
    throw InputError("attention of " + std::to_string(parts) + " heads of " + std::to_string(size) +
                     " needs an input of " + std::to_string(parts * size) + " features, not " + std::to_string(in[1]));
  AttentionCore core{.heads = heads,
                     .key_heads = keys,
                     .key_size = size,
                     .value_size = size,
                     .queries = in[0],
                     .keys = layer.shape(x[x.size() - 1])[0],
                     .causal = v.is("causal", "yes"),
                     .window = v["window"],
                     .flash = v.is("kernel", "flash"),
                     .dropout = v.is("dropout", "yes")};
  if (x.size() == 1) return layer.attention({x[0]}, core);
  for (std::size_t i = 1; i < 3; ++i)
    if (const Shape shape = layer.shape(x[i]); shape.rank != 2 || shape[1] != keys * size)
      throw InputError("attention of " + std::to_string(keys) + " key heads of " + std::to_string(size) +
                       " needs keys and values of " + std::to_string(keys * size) + " features, not " + text(shape));
  if (layer.shape(x[1])[0] != layer.shape(x[2])[0])
    throw InputError("attention needs a value for every key, not " + text(layer.shape(x[1])) + " keys and " +
                     text(layer.shape(x[2])) + " values; give both the same length");
  return layer.attention({x[0], x[1], x[2]}, core);
}

constexpr Parameter kLayerNorm[] = {{"affine", "trained scale and shift", 0, 0, {}, "yes | no"}};
template <Norm kind>
Value norm(LayerBuilder& layer, Inputs x, const FamilyValues& v) {
  return layer.norm(x[0], {.kind = kind, .affine = v.is("affine", "yes")});
}

template <Activation kind>
Value activation(LayerBuilder& layer, Inputs x, const FamilyValues&) {
  return layer.activation(x[0], kind);
}
constexpr Parameter kGated[] = {{"activation", "of the first half", 0, 0, {}, "silu | gelu | relu | sigmoid | tanh"}};
Activation activation_of(std::string_view name) {
  return name == "silu"      ? Activation::Silu
         : name == "gelu"    ? Activation::Gelu
         : name == "relu"    ? Activation::Relu
         : name == "sigmoid" ? Activation::Sigmoid
                             : Activation::Tanh;
}
Value gated(LayerBuilder& layer, Inputs x, const FamilyValues& v) {
  return layer.gated(x[0], activation_of(v.choice("activation")));
}

constexpr Parameter kPool[] = {
    {"kernel", "height and width of the window", 1, 4096, 2, ""},
    {"stride", "step of the window; 0: kernel", 0, 4096, 0, ""},
    {"padding", "on each side", 0, 2048, 0, ""},
    {"ceil", "the output size is rounded up", 0, 0, {}, "no | yes"},
};
template <Pool kind>
Value pool(LayerBuilder& layer, Inputs x, const FamilyValues& v) {
  return layer.pool(x[0], {.kind = kind,
                           .kernel = v["kernel"],
                           .stride = v["stride"] == 0 ? v["kernel"] : v["stride"],
                           .padding = v["padding"],
                           .ceil = v.is("ceil", "yes")});
}

constexpr Parameter kEmbedding[] = {
    {"vocabulary", "rows of the table", 1, 100'000'000, {}, ""},
    {"features", "of a row", 1, kLarge, {}, ""},
};
constexpr Parameter kLstm[] = {
    {"hidden", "features of the state", 1, kLarge, {}, ""},
    {"bidirectional", "a second one runs backwards", 0, 0, {}, "no | yes"},
    {"biases", "per gate (cuDNN: 2)", 0, 2, 2, ""},
};
constexpr Parameter kUpsample[] = {{"factor", "of height and width", 1, 1024, 2, ""}};
constexpr Parameter kDropoutParameters[] = {
    {"per", "one mask byte per value, or per channel", 0, 0, {}, "value | channel"}};
constexpr Parameter kRouter[] = {{"experts", "to choose from", 1, 65536, {}, ""}};
constexpr Parameter kExperts[] = {
    {"experts", "in all", 1, 65536, {}, ""},
    {"active", "experts that each token is sent to", 1, 65536, {}, ""},
    {"hidden", "features inside an expert", 1, kLarge, {}, ""},
    {"gated", "the activation multiplies a second product", 0, 0, {}, "yes | no"},
    {"activation", "inside an expert", 0, 0, {}, "silu | gelu | relu | sigmoid | tanh"},
    {"bias", "trained biases", 0, 0, {}, "no | yes"},
};

constexpr Parameter kStateSpace[] = {
    {"heads", "of the scan", 1, 65536, {}, ""},
    {"head_size", "features of a head", 1, kLarge, 64, ""},
    {"groups", "of heads that share B and C", 1, 65536, 1, ""},
    {"state", "features of a head's state per feature", 1, kLarge, 128, ""},
    {"kernel", "tokens that the convolution sees", 1, 4096, 4, ""},
    {"chunk", "tokens of a chunk", 1, 100'000'000, 128, ""},
};

constexpr Parameter kGatedDeltaNet[] = {
    {"heads", "of the values", 1, 65536, {}, ""},
    {"key_heads", "of queries and keys, which heads share; 0: heads", 0, 65536, 0, ""},
    {"key_size", "features of a query or key", 1, kLarge, 128, ""},
    {"value_size", "features of a head's values", 1, kLarge, 128, ""},
    {"kernel", "tokens that the convolution sees", 1, 4096, 4, ""},
    {"chunk", "tokens of a chunk", 1, 100'000'000, 64, ""},
};

Value global_average_pool(LayerBuilder& layer, Inputs x, const FamilyValues&) {
  return layer.global_average_pool(x[0]);
}
Value flatten(LayerBuilder& layer, Inputs x, const FamilyValues&) {
  const Shape in = layer.shape(x[0]);
  return layer.reshape(x[0], {static_cast<std::int64_t>(in.elements())});
}
Value image_to_tokens(LayerBuilder& layer, Inputs x, const FamilyValues&) {
  return layer.image_to_tokens(x[0]);
}

constexpr std::array kOperatorRules = {
    OperatorRule{"conv2d", "two-dimensional convolution", kConv2d, 1, 1, conv2d},
    OperatorRule{"linear", "matrix product over the last dimension", kLinear, 1, 1, linear},
    OperatorRule{"attention", "softmax attention; from queries, keys and values side by side, or from three inputs",
                 kAttention, 1, 3, attention},
    OperatorRule{"layer_norm", "normalisation of each token", kLayerNorm, 1, 1, norm<Norm::Layer>},
    OperatorRule{"rms_norm", "root-mean-square normalisation of each token", kLayerNorm, 1, 1, norm<Norm::Rms>},
    OperatorRule{"batch_norm", "normalisation of each channel over the batch", kLayerNorm, 1, 1, norm<Norm::Batch>},
    OperatorRule{"instance_norm", "normalisation of each channel of a sample", kLayerNorm, 1, 1, norm<Norm::Instance>},
    OperatorRule{"relu", "max(x, 0)", {}, 1, 1, activation<Activation::Relu>},
    OperatorRule{"gelu", "x times the normal distribution", {}, 1, 1, activation<Activation::Gelu>},
    OperatorRule{"silu", "x sigmoid(x)", {}, 1, 1, activation<Activation::Silu>},
    OperatorRule{"tanh", "hyperbolic tangent", {}, 1, 1, activation<Activation::Tanh>},
    OperatorRule{"sigmoid", "1 / (1 + exp(-x))", {}, 1, 1, activation<Activation::Sigmoid>},
    OperatorRule{"gated", "activation of the first half of the features, times the second", kGated, 1, 1, gated},
    OperatorRule{"max_pool", "largest value of each window", kPool, 1, 1, pool<Pool::Max>},
    OperatorRule{"average_pool", "mean of each window", kPool, 1, 1, pool<Pool::Average>},
    OperatorRule{"global_average_pool", "mean of each channel", {}, 1, 1, global_average_pool},
    OperatorRule{"embedding", "rows of a trained table, by token number", kEmbedding, 1, 1,
                 [](LayerBuilder& layer, Inputs x, const FamilyValues& v) {
                   return layer.embedding(x[0], v["vocabulary"], v["features"]);
                 }},
    OperatorRule{"learned_positions",
                 "adds a learned row per token",
                 {},
                 1,
                 1,
                 [](LayerBuilder& layer, Inputs x, const FamilyValues&) {
                   const Shape in = layer.shape(x[0]);
                   if (in.rank != 2)
                     throw InputError("learned_positions needs inputs of shape tokens x features, not " + text(in));
                   return layer.learned(x[0], in[0]);
                 }},
    OperatorRule{"lstm", "long short-term memory over the tokens", kLstm, 1, 1,
                 [](LayerBuilder& layer, Inputs x, const FamilyValues& v) {
                   return layer.lstm(x[0], {.hidden = v["hidden"],
                                            .bidirectional = v.is("bidirectional", "yes"),
                                            .biases = static_cast<int>(v["biases"])});
                 }},
    OperatorRule{"softmax",
                 "over the last dimension",
                 {},
                 1,
                 1,
                 [](LayerBuilder& layer, Inputs x, const FamilyValues&) { return layer.softmax(x[0]); }},
    OperatorRule{"cross_entropy",
                 "softmax and loss, in fp32",
                 {},
                 1,
                 1,
                 [](LayerBuilder& layer, Inputs x, const FamilyValues&) { return layer.cross_entropy(x[0]); }},
    OperatorRule{"add",
                 "sum of two tensors",
                 {},
                 2,
                 2,
                 [](LayerBuilder& layer, Inputs x, const FamilyValues&) { return layer.add(x[0], x[1]); }},
    OperatorRule{"multiply",
                 "product of two tensors, value by value",
                 {},
                 2,
                 2,
                 [](LayerBuilder& layer, Inputs x, const FamilyValues&) { return layer.multiply(x[0], x[1]); }},
    OperatorRule{"concat",
                 "channels (or features) side by side",
                 {},
                 2,
                 64,
                 [](LayerBuilder& layer, Inputs x, const FamilyValues&) { return layer.concat(x); }},
    OperatorRule{
        "upsample", "each pixel repeated", kUpsample, 1, 1,
        [](LayerBuilder& layer, Inputs x, const FamilyValues& v) { return layer.upsample(x[0], v["factor"]); }},
    OperatorRule{"dropout", "random values (or channels) set to 0", kDropoutParameters, 1, 1,
                 [](LayerBuilder& layer, Inputs x, const FamilyValues& v) {
                   return layer.dropout(x[0], v.is("per", "channel"));
                 }},
    OperatorRule{"router", "shares of the experts, per token", kRouter, 1, 1,
                 [](LayerBuilder& layer, Inputs x, const FamilyValues& v) { return layer.router(x[0], v["experts"]); }},
    OperatorRule{"experts", "feed-forward blocks of which each token visits a few; a run also needs the shares of a router, from: [x, shares]", kExperts, 1, 2,
                 [](LayerBuilder& layer, Inputs x, const FamilyValues& v) {
                   const Experts experts = {.experts = v["experts"],
                                            .active = v["active"],
                                            .hidden = v["hidden"],
                                            .activation = activation_of(v.choice("activation")),
                                            .gated = v.is("gated", "yes"),
                                            .bias = v.is("bias", "yes")};
                   return x.size() == 1 ? layer.experts(x[0], experts) : layer.experts(x[0], x[1], experts);
                 }},
    OperatorRule{"state_space", "what lies between the products of a Mamba-2 mixer", kStateSpace, 1, 1,
                 [](LayerBuilder& layer, Inputs x, const FamilyValues& v) {
                   return layer.state_space(
                       x[0], {v["heads"], v["head_size"], v["groups"], v["state"], v["kernel"], v["chunk"]});
                 }},
    OperatorRule{"gated_delta_net", "what lies between the products of a gated delta net", kGatedDeltaNet, 1, 1,
                 [](LayerBuilder& layer, Inputs x, const FamilyValues& v) {
                   const std::int64_t heads = v["heads"], keys = v["key_heads"] == 0 ? heads : v["key_heads"];
                   return layer.gated_delta_net(x[0],
                                                {heads, keys, v["key_size"], v["value_size"], v["kernel"], v["chunk"]});
                 }},
    OperatorRule{"flatten", "the same values in one dimension", {}, 1, 1, flatten},
    OperatorRule{"image_to_tokens", "pixels as tokens, channels as features", {}, 1, 1, image_to_tokens},
};

}  // namespace

std::span<const OperatorRule> operator_rules() {
  return kOperatorRules;
}

const OperatorRule* find_operator(std::string_view name) {
  const auto found = std::ranges::find_if(kOperatorRules, [&](const OperatorRule& rule) { return rule.name == name; });
  return found == kOperatorRules.end() ? nullptr : &*found;
}

}  // namespace pipewright::core
