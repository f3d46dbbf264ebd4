// GNMT as PipeDream trains it: stacked LSTMs, additive attention, residuals.               [Wu16], [PipeDream19]
//
// `layers` counts the LSTMs, half of them each side: GNMT-8 has 4 + 4, GNMT-16 8 + 8. h = hidden.
//     encoder   embedding; bidirectional LSTM h -> 2 h; LSTM 2 h -> h; then LSTMs h -> h, each added to its input
//     decoder   embedding; LSTM h -> h; attention over the encoder's output; then LSTMs 2 h -> h over what the last one
//               and the attention made, from the second of them on added to its input
//     classifier h -> vocabulary, with bias; cross-entropy
// A dropout stands before every LSTM but the first of each side. The encoder's output goes to the attention, the
// attention's output to every later LSTM: edges of the graph that cross the cuts between.
//
// The attention is that of the published profiles; PipeDream's code can also normalise it, with h + 1 parameters more.
// Layers are those of PipeDream's profiles, with the attention apart from the LSTM before it and the loss at the end:
// 26 for GNMT-8.
//
// Parameters, h = 1024, V = 32 320: an LSTM i -> h has 4 h (i + h + 2): 8 396 800 (h -> h), 12 591 104 (2 h -> h), the
// bidirectional one 16 793 600; attention 2 h^2 + h = 2 098 176; tables 33 095 680 each, classifier 33 128 000.
// GNMT-8: 2 * 33 095 680 + 16 793 600 + 12 591 104 + 3 * 8 396 800 + 2 098 176 + 3 * 12 591 104 + 33 128 000
//       = 193 765 952, as its profile has it.
//
// Tests: tests/core/families/recurrent_test.cpp
#include <array>

#include "core/model/families/model_builder.hpp"
#include "core/model/families/network_families.hpp"

namespace pipewright::core {
namespace {

using Tensor = ModelBuilder::Tensor;
using In = ModelBuilder::In;

constexpr std::array kGnmtParameters = {
    FamilyParameter{"layers", "LSTMs, half in the encoder: an even number", 4, 1024, 8},
    FamilyParameter{"hidden", "features of every LSTM", 1, 1'000'000, 1024},
    FamilyParameter{"vocabulary", "tokens of both languages", 1, 10'000'000, 32'320},
    FamilyParameter{"sequence_length", "tokens of the source sentence", 1, 1'000'000, 50},
    FamilyParameter{"target_length", "tokens of the target sentence; default: sequence_length", 1, 1'000'000, 0},
};

Tensor encoder(ModelBuilder& net, const Tensor& tokens, std::int64_t layers, const FamilyValues& values) {
  const std::int64_t h = values["hidden"];
  Tensor x = single::embedding(net, "encoder_embedding", tokens, values["vocabulary"], h);
  x = single::lstm(net, "encoder_lstm1", x, {.hidden = h, .bidirectional = true});
  for (std::int64_t i = 2; i <= layers; ++i) {
    const std::string number = std::to_string(i);
    const Tensor residual = x;
    x = single::dropout(net, "encoder_dropout" + number, x);
    x = single::lstm(net, "encoder_lstm" + number, x, {.hidden = h});
    if (i > 2) x = single::add(net, "encoder_add" + number, x, residual);
  }
  return x;
}

Tensor decoder(ModelBuilder& net, const Tensor& tokens, const Tensor& context, std::int64_t layers,
               const FamilyValues& values) {
  const std::int64_t h = values["hidden"];
  Tensor x = single::embedding(net, "decoder_embedding", tokens, values["vocabulary"], h);
  x = single::lstm(net, "decoder_lstm1", x, {.hidden = h});
  const Tensor attention = net.add("decoder_attention", {x, context},
                                   [&](LayerBuilder& b, In in) { return b.additive_attention(in[0], in[1], h); });
  for (std::int64_t i = 2; i <= layers; ++i) {
    const std::string number = std::to_string(i);
    const Tensor residual = x;
    x = single::dropout(net, "decoder_dropout" + number, x);
    x = single::concat(net, "decoder_concat" + number, x, attention);
    x = single::lstm(net, "decoder_lstm" + number, x, {.hidden = h});
    if (i > 2) x = single::add(net, "decoder_add" + number, x, residual);
  }
  return x;
}

Model build_gnmt(const FamilyValues& values) {
  const std::int64_t layers = values["layers"];
  if (layers % 2 != 0)
    values.refuse("layers", "is odd (half of the LSTMs are the encoder's); use " + std::to_string(layers - 1) + " or " +
                                std::to_string(layers + 1));
  const std::int64_t source = values["sequence_length"],
                     target = values["target_length"] > 0 ? values["target_length"] : source;
  ModelBuilder net("GNMT-" + std::to_string(layers),
                   "[Wu16], as PipeDream's runtime and profiles have it [PipeDream19]");
  const Tensor source_tokens = net.tokens(source), target_tokens = net.tokens(target);
  const Tensor context = encoder(net, source_tokens, layers / 2, values);
  Tensor x = decoder(net, target_tokens, context, layers / 2, values);
  x = single::linear(net, "classifier", x, {.features = values["vocabulary"]});
  net.add("loss", {x}, [](LayerBuilder& b, In in) { return b.cross_entropy(in[0]); });
  return net.finish();
}

}  // namespace

constinit const Family kGnmtFamily = {
    "gnmt", "GNMT: LSTM encoder and decoder with attention, 8 or 16 layers in PipeDream [Wu16] [PipeDream19]",
    kGnmtParameters, build_gnmt};

}  // namespace pipewright::core
