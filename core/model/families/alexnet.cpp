// AlexNet with one tower, as torchvision has it and PipeDream profiled it. [Krizhevsky14]
//
//     conv 11 x 11 / 4 to 64, pool; conv 5 x 5 to 192, pool; conv 3 x 3 to 384, 256, 256, pool; linear 4096, 4096, 1000
//
// Pools are 3 x 3 / 2; a ReLU follows all convolutions and linear layers but the last, a dropout stands before the
// first two linear layers. One operator per layer: 13 + 1 + 7 = 21 layers. The first linear layer reads what the image
// leaves: 256 * 6 * 6 = 9216 values at 224 (torchvision pools other sizes to 6 x 6 first).
//
// Parameters: convolutions 23 296 + 307 392 + 663 936 + 884 992 + 590 080 = 2 469 696; linear layers 37 752 832 +
// 16 781 312 + 4 097 000 = 58 631 144; together 61 100 840.
//
// Tests: tests/core/families/single_layers_test.cpp
#include <array>

#include "core/model/families/model_builder.hpp"
#include "core/model/families/network_families.hpp"

namespace pipewright::core {
namespace {

constexpr std::array kAlexnetParameters = {
    FamilyParameter{"image", "height and width of the image", 63, 4096, 224},
    FamilyParameter{"classes", "outputs of the last layer", 1, 1'000'000, 1000},
};

Model build_alexnet(const FamilyValues& values) {
  ModelBuilder net("AlexNet", "[Krizhevsky14], one tower as in torchvision");
  ModelBuilder::Tensor x = net.input({3, values["image"], values["image"]});
  const auto convolution = [&](const std::string& number, std::int64_t channels, std::int64_t kernel,
                               std::int64_t stride, std::int64_t padding) {
    x = single::conv2d(net, "conv" + number, x, {channels, kernel, kernel, stride, padding, padding, 1, true});
    x = single::relu(net, "relu" + number, x);
  };
  const auto pool = [&](const std::string& number) { x = single::pool(net, "pool" + number, x, {Pool::Max, 3, 2, 0}); };
  convolution("1", 64, 11, 4, 2), pool("1");
  convolution("2", 192, 5, 1, 2), pool("2");
  convolution("3", 384, 3, 1, 1);
  convolution("4", 256, 3, 1, 1);
  convolution("5", 256, 3, 1, 1), pool("5");
  x = single::flatten(net, "flatten", x);
  for (const std::string number : {"6", "7"}) {
    x = single::dropout(net, "dropout" + number, x);
    x = single::linear(net, "fc" + number, x, {.features = 4096});
    x = single::relu(net, "relu" + number, x);
  }
  single::linear(net, "fc8", x, {.features = values["classes"]});
  return net.finish();
}

}  // namespace

constinit const Family kAlexnetFamily = {"alexnet", "AlexNet with one tower, 61.1 M parameters [Krizhevsky14]",
                                         kAlexnetParameters, build_alexnet};

}  // namespace pipewright::core
