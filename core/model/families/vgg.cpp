// VGG: five groups of 3 x 3 convolutions, each closed by a 2 x 2 max pool, then three linear layers.        [VGG15]
//
//     group      1    2    3    4    5        columns D (16 weight layers) and E (19) of table 1
//     channels  64  128  256  512  512
//     VGG-16     2    2    3    3    3
//     VGG-19     2    2    4    4    4        convolutions
//
// One layer each, as in torchvision and in PipeDream's profiles: convolution, ReLU, pool, flatten, linear, dropout.
// VGG-16: 13 * 2 + 5 + 1 + 7 = 39 layers. The first linear layer reads 512 (image / 32)^2 values: 25 088 at 224.
//
// Parameters of VGG-16, classes 1000: convolutions 14 714 688 (of them conv5_3: 512 * 512 * 9 + 512 = 2 359 808),
// linear layers 25 088 * 4096 + 4096 = 102 764 544, 16 781 312 and 4 097 000: 138 357 544.
//
// Tests: tests/core/families/vgg_test.cpp
#include <array>

#include "core/model/families/model_builder.hpp"
#include "core/model/families/network_families.hpp"

namespace pipewright::core {
namespace {

constexpr std::array kVggParameters = {
    FamilyParameter{"image", "height and width of the image, a multiple of 32", 32, 4096, 224},
    FamilyParameter{"classes", "outputs of the last layer", 1, 1'000'000, 1000},
};

constexpr std::array<std::int64_t, 5> kChannels = {64, 128, 256, 512, 512};

Model vgg(const FamilyValues& values, const char* name, const char* column, const std::array<int, 5>& convolutions) {
  const std::int64_t image = values["image"];
  if (image % 32 != 0)
    values.refuse("image", "is not a multiple of 32 (five 2 x 2 pools); use " + std::to_string(image / 32 * 32) +
                               " or " + std::to_string((image / 32 + 1) * 32));
  ModelBuilder net(name, std::string("[VGG15] table 1, column ") + column);
  ModelBuilder::Tensor x = net.input({3, image, image});
  for (std::size_t group = 0; group < convolutions.size(); ++group) {
    for (int i = 0; i < convolutions[group]; ++i) {
      const std::string number = std::to_string(group + 1) + "_" + std::to_string(i + 1);
      x = single::conv2d(net, "conv" + number, x,
                         {.channels = kChannels[group],
                          .kernel_height = 3,
                          .kernel_width = 3,
                          .padding_height = 1,
                          .padding_width = 1,
                          .bias = true});
      x = single::relu(net, "relu" + number, x);
    }
    x = single::pool(net, "pool" + std::to_string(group + 1), x, {.kernel = 2, .stride = 2});
  }
  x = single::flatten(net, "flatten", x);
  for (const char* number : {"6", "7"}) {
    x = single::linear(net, std::string("fc") + number, x, {.features = 4096});
    x = single::relu(net, std::string("relu") + number, x);
    x = single::dropout(net, std::string("dropout") + number, x);
  }
  single::linear(net, "fc8", x, {.features = values["classes"]});
  return net.finish();
}

Model build_vgg16(const FamilyValues& values) {
  return vgg(values, "VGG-16", "D", {2, 2, 3, 3, 3});
}
Model build_vgg19(const FamilyValues& values) {
  return vgg(values, "VGG-19", "E", {2, 2, 4, 4, 4});
}

}  // namespace

constinit const Family kVgg16Family = {"vgg16", "VGG with 16 weight layers, 138 M parameters [VGG15]", kVggParameters,
                                       build_vgg16};
constinit const Family kVgg19Family = {"vgg19", "VGG with 19 weight layers, 144 M parameters [VGG15]", kVggParameters,
                                       build_vgg19};

}  // namespace pipewright::core
