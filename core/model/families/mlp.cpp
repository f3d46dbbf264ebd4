// A multi-layer perceptron: linear layers with a ReLU after all but the last, each pair one layer.
//
// Parameters with L layers of width h, from i features to o outputs (L >= 2):
//     (i h + h) + (L - 2) (h^2 + h) + (h o + o)
// L = 4, h = 1024, i = 784, o = 10: 803 840 + 2 * 1 049 600 + 10 250 = 2 913 290.
//
// Tests: tests/core/families/single_layers_test.cpp
#include <array>

#include "core/model/families/model_builder.hpp"
#include "core/model/families/network_families.hpp"

namespace pipewright::core {
namespace {

constexpr std::array kMlpParameters = {
    FamilyParameter{"layers", "linear layers", 1, 100'000},
    FamilyParameter{"hidden", "features between them", 1, 1'000'000, 1024},
    FamilyParameter{"features", "of the input", 1, 10'000'000, 784},
    FamilyParameter{"outputs", "of the last layer", 1, 1'000'000, 10},
};

Model build_mlp(const FamilyValues& values) {
  const std::int64_t layers = values["layers"];
  ModelBuilder net("MLP(" + std::to_string(layers) + ", " + std::to_string(values["hidden"]) + ")",
                   "multi-layer perceptron, from its parameters");
  ModelBuilder::Tensor x = net.input({values["features"]});
  for (std::int64_t i = 1; i <= layers; ++i) {
    const std::string name = "linear" + std::to_string(i);
    if (i == layers)
      single::linear(net, name, x, {.features = values["outputs"]});
    else if (i > 3)  // the same as the one before
      x = net.add_like(name, {x}, x);
    else
      x = net.add(name, {x}, [&](LayerBuilder& b, ModelBuilder::In in) {
        return b.activation(b.linear(in[0], {.features = values["hidden"]}), Activation::Relu);
      });
  }
  return net.finish();
}

}  // namespace

constinit const Family kMlpFamily = {"mlp", "multi-layer perceptron: linear layers and ReLUs", kMlpParameters,
                                     build_mlp};

}  // namespace pipewright::core
