// AlexNet, U-Net and the multi-layer perceptron.
#include <doctest/doctest.h>

#include "tests/support/family_model.hpp"
#include "tests/support/tensors_over_cut.hpp"

using namespace pipewright::tests;

namespace {

Model unet(int convolutions, int channels) {
  return family_model("unet", {{"convolutions", std::to_string(convolutions)}, {"channels", std::to_string(channels)}});
}

}  // namespace

TEST_CASE("AlexNet has 61 100 840 parameters and takes 0.71 billion multiply-adds") {
  const Model model = family_model("alexnet");
  CHECK(parameters_of(model) == 61'100'840);
  CHECK(multiply_adds(model) == 714'188'480.0);
  CHECK(model.layers.size() == 21);
}

TEST_CASE("AlexNet's outputs have the bytes that PipeDream's profile has at batch 256") {
  Model model = family_model("alexnet");
  settle(model, Bytes{4}, {});
  CHECK(layer_of(model, "conv1").activation * 256 == Bytes{198'246'400});
  CHECK(layer_of(model, "pool2").activation * 256 == Bytes{33'226'752});
  CHECK(layer_of(model, "pool5").activation * 256 == Bytes{9'437'184});
  CHECK(layer_of(model, "fc8").activation * 256 == Bytes{1'024'000});
  CHECK(model.input * 256 == Bytes{154'140'672});
}

TEST_CASE("U-Net(B, C) has the published parameters, in 44 B + 21 layers") {
  const struct {
    int convolutions, channels;
    std::int64_t parameters;
    std::size_t layers;
  } rows[] = {{5, 64, 232'687'328, 241}, {6, 72, 362'157'516, 285}, {11, 128, 2'213'834'176, 505}};
  for (const auto& row : rows) {
    CAPTURE(row.convolutions);
    const Model model = unet(row.convolutions, row.channels);
    CHECK(parameters_of(model) == row.parameters);
    CHECK(model.layers.size() == row.layers);
  }
  CHECK(unet(1, 2).layers.size() == 65);  // one convolution goes from `in` to `out` at once
}

TEST_CASE("The bottleneck of U-Net(5, 64) has 150 994 944 of its parameters") {
  const Model model = unet(5, 64);
  std::int64_t bottleneck = 0;
  for (const char* number : {"1", "2", "3", "4", "5"})
    bottleneck += work_of(model, std::string("bottleneck_conv") + number).parameters;
  CHECK(bottleneck == 150'994'944);
}

TEST_CASE("Each skip of U-Net is an edge from its stash to its concat, and all five cross the bottleneck") {
  const Model model = unet(5, 64);
  for (const char* level : {"0", "1", "2", "3", "4"}) {
    const Layer& concat = layer_of(model, std::string("decoder") + level + "_concat");
    REQUIRE(concat.inputs.size() == 2);
    CHECK(model.layers[concat.inputs[1]].name == std::string("encoder") + level + "_stash");
  }
  const auto bottleneck = static_cast<LayerId>(&layer_of(model, "bottleneck_conv2") - model.layers.data());
  CHECK(tensors_over_cut(model, bottleneck).size() == 6);  // five skips and the bottleneck's own
  CHECK(tensors_over_cut(model, 240).size() == 1);
}

TEST_CASE("U-Net's cells keep the size of their level, the concat has both halves' channels") {
  Model model = unet(5, 64);
  settle(model, Bytes{4}, {});
  CHECK(layer_of(model, "encoder0_stash").activation == Bytes{64 * 192 * 192 * 4});
  CHECK(layer_of(model, "encoder4_pool").activation == Bytes{1024 * 6 * 6 * 4});
  CHECK(layer_of(model, "bottleneck_conv3").activation == Bytes{2048 * 6 * 6 * 4});
  CHECK(layer_of(model, "decoder4_concat").activation == Bytes{2 * 1024 * 12 * 12 * 4});
  CHECK(layer_of(model, "decoder0_relu5").activation == Bytes{32 * 192 * 192 * 4});
  CHECK(layer_of(model, "segment").activation == Bytes{192 * 192 * 4});
}

TEST_CASE("U-Nets that cannot be built are refused with the legal neighbours") {
  CHECK(refusal("unet", {{"convolutions", "5"}, {"channels", "65"}}) ==
        "model.channels: 65 is odd (the last cell has half of them); use 64 or 66");
  CHECK(refusal("unet", {{"convolutions", "5"}, {"channels", "64"}, {"image", "200"}}) ==
        "model.image: 200 is not a multiple of 32 (five 2 x 2 pools); use 192 or 224");
  CHECK(refusal("alexnet", {{"image", "62"}}).find("from 63 to 4096") != std::string::npos);
  CHECK(parameters_of(family_model("alexnet", {{"image", "63"}})) < 61'100'840);
}

TEST_CASE("A perceptron of 4 layers, 784 -> 1024 -> 10, has 2 913 290 parameters") {
  const Model model = family_model("mlp", {{"layers", "4"}});
  CHECK(parameters_of(model) == 2'913'290);
  CHECK(model.layers.size() == 4);
  CHECK(multiply_adds(model) == 784.0 * 1024 + 2 * 1024.0 * 1024 + 1024.0 * 10);
  CHECK(parameters_of(family_model("mlp", {{"layers", "1"}})) == 7'850);
}

TEST_CASE("The middle layers of a perceptron share one work") {
  const Model model = family_model("mlp", {{"layers", "100"}});
  CHECK(model.works.size() == 3);
  CHECK(model.layers[99].inputs == std::vector<LayerId>{98});
}
