// Layers that state operators: shapes flow from layer to layer, equal layers share one work, errors name the operator.
#include <doctest/doctest.h>

#include "io/read/read_scenario.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/texts.hpp"

using namespace pipewright::tests;

namespace {

const char* const kNet =
    "{input_shape: [3, 8, 8], layers: ["
    "{name: stem, op: conv2d, channels: 4, kernel: 3, padding: 1},"
    "{name: block, repeat: 3, ops: [{op: conv2d, channels: 4, kernel: 3, padding: 1, bias: no},"
    " {op: batch_norm}, {op: relu, as: y}, {op: add, from: [input, y]}]},"
    "{name: join, op: concat, inputs: [stem, block]},"
    "{op: global_average_pool}, {op: linear, features: 10}, {op: cross_entropy}]}";

std::string ops_refusal(const std::string& model) {
  return message_of([&] { read_text(ScenarioText{.model = model}); });
}

}  // namespace

TEST_CASE("A net of operators gets its figures from shapes") {
  const Model model = read_text(ScenarioText{.model = kNet}).model;
  REQUIRE(model.layers.size() == 8);
  CHECK(model.layers[0].parameters == 3 * 4 * 9 + 4);
  CHECK(model.layers[0].flops == Flops{2.0 * 4 * 64 * 27});
  CHECK(model.layers[0].activation == Bytes{4 * 4 * 64});
  CHECK(model.layers[1].parameters == 4 * 4 * 9 + 8);
  CHECK(model.layers[4].inputs == std::vector<LayerId>{0, 3});
  CHECK(model.layers[4].activation == Bytes{4 * 8 * 64});
  CHECK(model.layers[6].parameters == 8 * 10 + 10);
  CHECK(model.input == Bytes{4 * 3 * 64});
}

TEST_CASE("Repeated layers of operators share one work") {
  const Model model = read_text(ScenarioText{.model = kNet}).model;
  CHECK(model.layers[1].work == model.layers[2].work);
  CHECK(model.layers[2].work == model.layers[3].work);
  CHECK(model.works.size() == 6);
}

TEST_CASE("Operators are written back so that they read as the same model") {
  const Scenario scenario = read_text(ScenarioText{.model = kNet});
  const std::string text = resolved_yaml(scenario);
  const Scratch scratch;
  const Scenario again = read_scenario(scratch.write("again.yaml", text));
  REQUIRE(again.model.layers.size() == scenario.model.layers.size());
  for (LayerId i = 0; i < std::ssize(again.model.layers); ++i) {
    CHECK(again.model.layers[i].stash == scenario.model.layers[i].stash);
    CHECK(again.model.layers[i].parameters == scenario.model.layers[i].parameters);
    CHECK(again.model.layers[i].op == scenario.model.layers[i].op);
  }
}

TEST_CASE("Token numbers are eight bytes each, whatever the precision") {
  const Model model = read_text(ScenarioText{.model = "{input_tokens: 16, layers: [{op: embedding, vocabulary: 100, "
                                                      "features: 8}, {op: linear, features: 100}]}"})
                          .model;
  CHECK(model.input == Bytes{128});
  CHECK(model.tokens == 16);
  CHECK(model.layers[0].activation == Bytes{4 * 16 * 8});
}

TEST_CASE("A wrong operator, name, argument or shape is named with its place and a way out") {
  const auto net = [](const std::string& layers) { return "{input_shape: [3, 8, 8], layers: [" + layers + "]}"; };
  CHECK(contains(ops_refusal(net("{op: relux}")), "model.layers.0.op: unknown \"relux\"; did you mean \"relu\"?"));
  CHECK(contains(ops_refusal(net("{op: conv2d, channels: 4, kernel: 9}")),
                 "model.layers.0: conv2d height: kernel 9 is larger than its input of 8; use a larger input"));
  CHECK(contains(ops_refusal(net("{op: linear, feature: 3}")),
                 "model.layers.0.feature: unknown \"feature\"; did you mean \"features\"?"));
  CHECK(contains(ops_refusal(net("{op: linear, features: ten}")),
                 "\"ten\" is not a whole number; use a whole number from 1"));
  CHECK(contains(ops_refusal(net("{op: linear, features: 010}")), "\"010\" is not a whole number"));
  CHECK(contains(ops_refusal(net("{op: conv2d}")), "model.layers.0.channels: is missing"));
  CHECK(contains(ops_refusal(net("{op: relu, stash: 4 B}")), "stash: follows from the operators; leave it out"));
  CHECK(contains(ops_refusal(net("{op: relu, ops: [{op: relu}]}")), "op and ops exclude each other"));
  CHECK(contains(ops_refusal(net("{ops: []}")), "no operators; a layer needs at least one"));
  CHECK(contains(ops_refusal(net("{ops: [{op: add, from: [input, z]}]}")), "unknown \"z\""));
  CHECK(contains(ops_refusal(net("{op: add}")), "add takes 2 inputs, not 1"));
  CHECK(contains(ops_refusal(net("{name: a, op: relu}, {name: b, op: conv2d, channels: 2}, {op: add, inputs: [a, b]}")),
                 "add needs two tensors of one shape, not 3 x 8 x 8 and 2 x 8 x 8"));
  CHECK(contains(ops_refusal("{layers: [{op: relu}]}"), "give model.input_shape"));
  CHECK(contains(
      ops_refusal("{input_shape: [8], layers: [{op: embedding, vocabulary: 10, features: 4}]}"),
      "model.layers.0: embedding looks up token numbers, but its input holds values; give model.input_tokens"));
  CHECK(contains(ops_refusal("{input_shape: [0], layers: [{op: relu}]}"), "needs one to three whole numbers"));
  CHECK(contains(ops_refusal("{input_shape: [3], input_tokens: 3, layers: [{op: relu}]}"), "exclude each other"));
  CHECK(contains(ops_refusal(net("{name: a, forward: 1 ms, backward: 1 ms}, {op: relu}")),
                 "the output of layer \"a\" has no known shape"));
  CHECK(contains(ops_refusal("{family: nosuch}"), "model.family: unknown \"nosuch\""));
}

TEST_CASE("Attention of three inputs needs a value for every key") {
  // 16 keys from the image's 4 x 4 pixels, 4 values from its 2 x 2 windows.
  const std::string model =
      "{input_shape: [4, 4, 4], layers: [{ops: [{op: image_to_tokens, as: k}, {op: average_pool, from: [input]},"
      " {op: image_to_tokens, as: v}, {op: attention, heads: 1, from: [k, k, v]}]}]}";
  CHECK(contains(ops_refusal(model), "attention needs a value for every key, not 16 x 4 keys and 4 x 4 values"));
}
