// GNMT, AWD-LSTM and S2VT.
#include <doctest/doctest.h>

#include "core/model/layer_builder.hpp"
#include "tests/support/family_model.hpp"
#include "tests/support/tensors_over_cut.hpp"

using namespace pipewright::tests;

TEST_CASE("GNMT-8 and GNMT-16 have the parameters of PipeDream's profiles") {
  CHECK(parameters_of(family_model("gnmt")) == 193'765'952);
  CHECK(parameters_of(family_model("gnmt", {{"layers", "16"}})) == 277'717'568);
  CHECK(work_of(family_model("gnmt"), "encoder_lstm1").parameters == 16'793'600);
  CHECK(work_of(family_model("gnmt"), "decoder_attention").parameters == 10'494'976 - 8'396'800);
}

TEST_CASE("GNMT-8's outputs have the bytes that PipeDream's profile has at batch 32, lengths 48 and 47") {
  Model model = family_model("gnmt", {{"sequence_length", "48"}, {"target_length", "47"}});
  settle(model, Bytes{4}, {});
  CHECK(layer_of(model, "encoder_embedding").activation * 32 == Bytes{6'291'456});
  CHECK(layer_of(model, "encoder_lstm1").activation * 32 == Bytes{12'582'912});
  CHECK(layer_of(model, "decoder_lstm1").activation * 32 == Bytes{6'160'384});
  CHECK(layer_of(model, "classifier").activation * 32 == Bytes{194'437'120});
  CHECK(model.input == Bytes{(48 + 47) * 8});
}

TEST_CASE("GNMT-8 has 26 layers: those of its profile, the attention apart, and the loss") {
  const Model model = family_model("gnmt");
  CHECK(model.layers.size() == 26);
  CHECK(family_model("gnmt", {{"layers", "16"}}).layers.size() == 54);
  const auto number = [&](const char* name) {
    return static_cast<LayerId>(&layer_of(model, name) - model.layers.data());
  };
  CHECK(layer_of(model, "decoder_attention").inputs ==
        std::vector<LayerId>{number("decoder_lstm1"), number("encoder_add4")});
  CHECK(layer_of(model, "decoder_embedding").inputs.empty());  // the model's own input
  CHECK(layer_of(model, "encoder_add3").inputs ==
        std::vector<LayerId>{number("encoder_lstm3"), number("encoder_lstm2")});
  // Behind the attention every cut before the last LSTM carries its output, beside the chain and a residual.
  CHECK(tensors_over_cut(model, number("decoder_dropout3")) ==
        std::vector<LayerId>{number("decoder_attention"), number("decoder_lstm2")});
  CHECK(tensors_over_cut(model, number("decoder_lstm3")) ==
        std::vector<LayerId>{number("decoder_attention"), number("decoder_lstm2"), number("decoder_concat3")});
  CHECK(tensors_over_cut(model, number("classifier")) == std::vector<LayerId>{number("decoder_add4")});
}

TEST_CASE("Additive attention keeps the tanh of every pair of positions") {
  // 3 queries, 5 keys of 4 values, 2 units: 15 pairs. Projections 3 * 4 * 2 and 5 * 4 * 2, scores 15 * 2, sum 15 * 4.
  LayerBuilder b;
  const auto queries = b.input({3, 4}), keys = b.input({5, 4});
  const Work work = b.finish({b.additive_attention(queries, keys, 2)});
  CHECK(work.parameters == 4 * 2 + 4 * 2 + 2);
  CHECK(work.product_flops() == 2 * (24 + 40 + 30 + 60));
  CHECK(work.kept.values == 15 * 2 + 15);
  CHECK(work.keeps_input == std::vector<char>{1, 1});
  CHECK(work.outputs[0].values == 3 * 4);
  // Gradients: input and weights of both projections, both of the scores, of the weights and of the keys.
  double products = 0;
  for (const Operator& op : work.operators)
    if (op.product) products += op.input_flops + op.weight_flops;
  CHECK(products == 2 * work.product_flops());
}

TEST_CASE("An odd number of GNMT's layers is refused") {
  CHECK(refusal("gnmt", {{"layers", "9"}}) ==
        "model.layers: 9 is odd (half of the LSTMs are the encoder's); use 8 or 10");
  CHECK(refusal("gnmt", {{"layers", "2"}}).find("from 4 to 1024") != std::string::npos);
}

TEST_CASE("The AWD-LSTM for Penn Treebank has 24 221 600 parameters: the paper's 24 M") {
  const Model model = family_model("awd_lm");
  CHECK(parameters_of(model) == 24'221'600);
  CHECK(model.layers.size() == 10);
  CHECK(layer_of(model, "head").tied_to == 0);
  CHECK(work_of(model, "head").tied_parameters == 4'000'000);
  CHECK(model.tokens == 70);
}

TEST_CASE("Without the shared table the last LSTM stays wide and the head has its own weight") {
  const Model model = family_model("awd_lm", {{"tied", "no"}});
  CHECK(work_of(model, "lstm3").parameters == 4 * 1150 * (1150 + 1150 + 2));
  CHECK(work_of(model, "head").parameters == 1150 * 10'000 + 10'000);
  CHECK(layer_of(model, "head").tied_to == -1);
}

TEST_CASE("S2VT has 18 064 500 + 1501 V parameters") {
  CHECK(parameters_of(family_model("s2vt", {{"vocabulary", "10000"}})) == 18'064'500 + 15'010'000);
  CHECK(parameters_of(family_model("s2vt", {{"vocabulary", "1"}})) == 18'064'500 + 1'501);
  CHECK(refusal("s2vt", {}).find("vocabulary: is missing") != std::string::npos);
}

TEST_CASE("S2VT's second LSTM reads frames and words side by side") {
  Model model = family_model("s2vt", {{"vocabulary", "10000"}});
  settle(model, Bytes{4}, {});
  CHECK(model.layers.size() == 7);
  CHECK(layer_of(model, "concat").activation == Bytes{80 * 1500 * 4});
  CHECK(model.input == Bytes{80 * 4096 * 4 + 80 * 8});
}
