#include <doctest/doctest.h>

#include "tests/support/family_model.hpp"
#include "tests/support/tensors_over_cut.hpp"

using namespace pipewright::tests;

TEST_CASE("ResNets have the published parameters, layers and multiply-adds") {
  const struct {
    const char* family;
    std::size_t layers;
    std::int64_t parameters;
    double multiply_adds;  // 4.09, 7.80 and 11.51 billion
  } rows[] = {{"resnet50", 183, 25'557'032, 4'089'184'256.0},
              {"resnet101", 370, 44'549'160, 7'801'405'440.0},
              {"resnet152", 557, 60'192'808, 11'513'626'624.0}};
  for (const auto& row : rows) {
    CAPTURE(row.family);
    const Model model = family_model(row.family);
    CHECK(model.layers.size() == row.layers);
    CHECK(parameters_of(model) == row.parameters);
    CHECK(multiply_adds(model) == row.multiply_adds);
  }
}

TEST_CASE("A shortcut is an edge from identity to residual, and crosses every cut between") {
  const Model model = family_model("resnet50");
  const Layer& identity = layer_of(model, "layer2_1_identity");
  const Layer& residual = layer_of(model, "layer2_1_residual");
  const auto number = [&](const Layer& layer) { return static_cast<LayerId>(&layer - model.layers.data()); };
  CHECK(residual.inputs == std::vector<LayerId>{number(residual) - 1, number(identity)});
  for (LayerId cut = number(identity) + 2; cut <= number(residual); ++cut)
    CHECK(tensors_over_cut(model, cut) == std::vector<LayerId>{number(identity), cut - 1});
  CHECK(tensors_over_cut(model, number(residual) + 1).size() == 1);
}

TEST_CASE("Only the first block of a group changes its shortcut") {
  const Model model = family_model("resnet101");
  CHECK(work_of(model, "layer3_0_residual").parameters == 512 * 1024 + 2 * 1024);
  CHECK(work_of(model, "layer3_1_residual").parameters == 0);
  CHECK(layer_of(model, "layer3_1_conv2").work == layer_of(model, "layer3_22_conv2").work);
}

TEST_CASE("ResNet's groups hand on 56 x 56 x 256 down to 7 x 7 x 2048 values") {
  Model model = family_model("resnet50");
  settle(model, Bytes{4}, {});
  CHECK(layer_of(model, "layer1_2_relu3").activation == Bytes{256 * 56 * 56 * 4});
  CHECK(layer_of(model, "layer2_3_relu3").activation == Bytes{512 * 28 * 28 * 4});
  CHECK(layer_of(model, "layer3_5_relu3").activation == Bytes{1024 * 14 * 14 * 4});
  CHECK(layer_of(model, "layer4_2_relu3").activation == Bytes{2048 * 7 * 7 * 4});
  CHECK(layer_of(model, "avgpool").activation == Bytes{2048 * 4});
}

TEST_CASE("What a stash layer hands on is kept once, where it was made") {
  Model model = family_model("resnet50");
  settle(model, Bytes{4}, {});
  // relu3 keeps its output for its own backward; identity hands the same tensor on to the next convolution.
  CHECK(layer_of(model, "layer1_0_relu3").stash == Bytes{256 * 56 * 56 * 4});
  CHECK(layer_of(model, "layer1_1_identity").stash == Bytes{0});
  CHECK(layer_of(model, "layer1_1_identity").activation == Bytes{256 * 56 * 56 * 4});
}
