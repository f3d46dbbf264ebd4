#include <doctest/doctest.h>

#include "tests/support/family_model.hpp"

using namespace pipewright::tests;

TEST_CASE("VGG-16 has 138 357 544 parameters, VGG-19 has 143 667 240") {
  CHECK(parameters_of(family_model("vgg16")) == 138'357'544);
  CHECK(parameters_of(family_model("vgg19")) == 143'667'240);
}

TEST_CASE("VGG-16 takes 15.47 billion multiply-adds per image, VGG-19 takes 19.63") {
  // conv1_1 3 * 9 * 64 * 224^2 = 86 704 128, conv1_2 64 * 9 * 64 * 224^2 = 1 849 688 064, ... , fc6 102 760 448.
  CHECK(multiply_adds(family_model("vgg16")) == 15'470'264'320.0);
  CHECK(multiply_adds(family_model("vgg19")) == 19'632'062'464.0);
}

TEST_CASE("VGG-16 is a chain of 39 single layers; its last pool hands on 512 x 7 x 7 values") {
  Model model = family_model("vgg16");
  settle(model, Bytes{4}, {});
  REQUIRE(model.layers.size() == 39);
  for (LayerId i = 1; i < 39; ++i)
    CHECK(model.layers[i].inputs == std::vector<LayerId>{i - 1});
  CHECK(layer_of(model, "pool5").activation == Bytes{512 * 7 * 7 * 4});
  CHECK(layer_of(model, "conv1_1").activation == Bytes{64 * 224 * 224 * 4});
  CHECK(model.input == Bytes{3 * 224 * 224 * 4});
}

TEST_CASE("Layers of VGG-16 that compute the same share one work") {
  const Model model = family_model("vgg16");
  CHECK(layer_of(model, "conv3_2").work == layer_of(model, "conv3_3").work);
  CHECK(layer_of(model, "conv3_1").work != layer_of(model, "conv3_2").work);
  CHECK(layer_of(model, "relu6").work == layer_of(model, "relu7").work);
}

TEST_CASE("An image that five pools cannot halve is refused with its neighbours") {
  CHECK(refusal("vgg16", {{"image", "225"}}) ==
        "model.image: 225 is not a multiple of 32 (five 2 x 2 pools); use 224 or 256");
  CHECK(refusal("vgg16", {{"image", "16"}}).find("from 32 to 4096") != std::string::npos);
}
