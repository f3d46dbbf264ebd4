// AWD-LSTM, a word-level language model: LSTMs between an embedding and a head that share one table.        [Merity17]
//
//     embedding; `layers` times dropout and LSTM (embedding -> hidden, hidden -> hidden, the last back to the size of
//     the embedding); dropout; linear with bias over the embedding's table; cross-entropy
// Without the shared table (tied: no) the last LSTM keeps the size `hidden` and the head has its own weight.
//
// Dropped weights (DropConnect within the LSTMs) and dropped rows of the table change neither shapes nor products and
// are left out.
//
// Parameters of the Penn Treebank model, V = 10 000: table 4 000 000; LSTMs 4 h (i + h + 2): 7 139 200, 10 589 200,
// 2 483 200; bias of the head 10 000: 24 221 600, the paper's 24 M.
//
// Tests: tests/core/families/recurrent_test.cpp
#include <array>

#include "core/model/families/model_builder.hpp"
#include "core/model/families/network_families.hpp"

namespace pipewright::core {
namespace {

using Tensor = ModelBuilder::Tensor;
using In = ModelBuilder::In;

constexpr std::array kAwdLmParameters = {
    FamilyParameter{"layers", "LSTMs", 1, 1024, 3},
    FamilyParameter{"hidden", "features between LSTMs", 1, 1'000'000, 1150},
    FamilyParameter{"embedding", "features of the embedding", 1, 1'000'000, 400},
    FamilyParameter{"vocabulary", "words", 1, 10'000'000, 10'000},
    FamilyParameter{"sequence_length", "words per sample (truncated back-propagation)", 1, 1'000'000, 70},
    FamilyParameter{.name = "tied", .meaning = "the head uses the embedding's table", .choices = "yes | no"},
};

Model build_awd_lm(const FamilyValues& values) {
  const std::int64_t layers = values["layers"];
  const bool tied = values.is("tied", "yes");
  ModelBuilder net("AWD-LSTM(" + std::to_string(layers) + ", " + std::to_string(values["hidden"]) + ")",
                   "[Merity17], Penn Treebank model");
  const Tensor table = single::embedding(net, "embedding", net.tokens(values["sequence_length"]), values["vocabulary"],
                                         values["embedding"]);
  Tensor x = table;
  for (std::int64_t i = 1; i <= layers; ++i) {
    const std::string number = std::to_string(i);
    x = single::dropout(net, "dropout" + number, x);
    x = single::lstm(net, "lstm" + number, x, {.hidden = i == layers && tied ? values["embedding"] : values["hidden"]});
  }
  x = single::dropout(net, "dropout" + std::to_string(layers + 1), x);
  x = single::linear(net, "head", x, {.features = values["vocabulary"], .tied = tied});
  if (tied) net.layer(x).tied_to = table.layer;
  net.add("loss", {x}, [](LayerBuilder& b, In in) { return b.cross_entropy(in[0]); });
  net.model().tokens = values["sequence_length"];
  return net.finish();
}

}  // namespace

constinit const Family kAwdLmFamily = {
    "awd_lm", "AWD-LSTM language model, 24 M parameters for Penn Treebank [Merity17]", kAwdLmParameters, build_awd_lm};

}  // namespace pipewright::core
