// S2VT, captions for videos: two LSTMs, the first over frames, the second over its output and words. [Venugopalan15]
//
//     frames of `features` values: linear to `embedding`, LSTM to `hidden`
//     words: embedding
//     both side by side: LSTM to `hidden`, linear to `vocabulary`, cross-entropy
// All layers run over the same `sequence_length` steps, 80 in the paper: first the frames, then the words, each padded
// with zeros while the other is read. The loss counts the words' steps only, the products run over all.
//
// The network that turns frames into features is not part of the model. The vocabulary is that of the captions, and
// has no default: PipeDream does not state its own.
//
// Parameters with the defaults: 4096 * 500 + 500 = 2 048 500; LSTMs 4 h (i + h + 2) = 6 008 000 and 10 008 000; per
// word 500 + 1000 + 1: 18 064 500 + 1501 V.
//
// Tests: tests/core/families/recurrent_test.cpp
#include <array>

#include "core/model/families/model_builder.hpp"
#include "core/model/families/network_families.hpp"

namespace pipewright::core {
namespace {

using Tensor = ModelBuilder::Tensor;
using In = ModelBuilder::In;

constexpr std::array kS2vtParameters = {
    FamilyParameter{"vocabulary", "words of the captions", 1, 10'000'000},
    FamilyParameter{"hidden", "features of both LSTMs", 1, 1'000'000, 1000},
    FamilyParameter{"embedding", "features of embedded frames and words", 1, 1'000'000, 500},
    FamilyParameter{"features", "values per frame (fc7 of VGG-16)", 1, 10'000'000, 4096},
    FamilyParameter{"sequence_length", "steps: frames and words", 1, 1'000'000, 80},
};

Model build_s2vt(const FamilyValues& values) {
  const std::int64_t steps = values["sequence_length"];
  ModelBuilder net("S2VT", "[Venugopalan15] section 3");
  Tensor frames = net.input({steps, values["features"]});
  const Tensor captions = net.tokens(steps);
  frames = single::linear(net, "frame_embedding", frames, {.features = values["embedding"]});
  frames = single::lstm(net, "lstm1", frames, {.hidden = values["hidden"]});
  const Tensor words = single::embedding(net, "word_embedding", captions, values["vocabulary"], values["embedding"]);
  Tensor x = single::concat(net, "concat", frames, words);
  x = single::lstm(net, "lstm2", x, {.hidden = values["hidden"]});
  x = single::linear(net, "classifier", x, {.features = values["vocabulary"]});
  net.add("loss", {x}, [](LayerBuilder& b, In in) { return b.cross_entropy(in[0]); });
  return net.finish();
}

}  // namespace

constinit const Family kS2vtFamily = {"s2vt", "S2VT video captions: two LSTMs over frames and words [Venugopalan15]",
                                      kS2vtParameters, build_s2vt};

}  // namespace pipewright::core
