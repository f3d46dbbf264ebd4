// ResNet-50, -101 and -152: bottleneck blocks with shortcuts, one operator per layer as torchgpipe flattens them.
// [He16]
//
//     blocks per group   1  2   3  4     layers    parameters
//     ResNet-50          3  4   6  3        183    25 557 032
//     ResNet-101         3  4  23  3        370    44 549 160
//     ResNet-152         3  8  36  3        557    60 192 808
//
// Stem: convolution 7 x 7 / 2 to 64 channels, batch norm, ReLU, max pool 3 x 3 / 2: 4 layers. A block of p planes has
// 11: identity (kept for the shortcut); 1 x 1 convolution to p, batch norm, ReLU; 3 x 3 convolution with the group's
// stride, batch norm, ReLU; 1 x 1 convolution to 4 p, batch norm; addition of the shortcut, which the first block of a
// group sends through a 1 x 1 convolution and a batch norm; ReLU. Then average pool, flatten, linear: 3 layers. The
// shortcut is an edge of the graph from `identity` to `residual`, and crosses every cut between them.
//
// ResNet-101: 4 + 33 * 11 + 3 = 370 layers. Parameters of a block of group 3 that is not its first, p = 256:
// 1024 * 256 + 9 * 256^2 + 256 * 1024 + 2 (256 + 256 + 1024) = 1 117 184.
//
// Tests: tests/core/families/resnet_test.cpp
#include <array>

#include "core/model/families/model_builder.hpp"
#include "core/model/families/network_families.hpp"

namespace pipewright::core {
namespace {

using Tensor = ModelBuilder::Tensor;
using In = ModelBuilder::In;

constexpr std::array kResnetParameters = {
    FamilyParameter{"image", "height and width of the image", 32, 4096, 224},
    FamilyParameter{"classes", "outputs of the last layer", 1, 1'000'000, 1000},
};

Tensor bottleneck(ModelBuilder& net, const std::string& name, const Tensor& x, std::int64_t planes,
                  std::int64_t stride) {
  const Tensor identity = single::stash(net, name + "identity", x);
  Tensor y = single::conv2d(net, name + "conv1", identity, {.channels = planes});
  y = single::norm(net, name + "bn1", y, {Norm::Batch});
  y = single::relu(net, name + "relu1", y);
  y = single::conv2d(net, name + "conv2", y, {planes, 3, 3, stride, 1, 1});
  y = single::norm(net, name + "bn2", y, {Norm::Batch});
  y = single::relu(net, name + "relu2", y);
  y = single::conv2d(net, name + "conv3", y, {.channels = 4 * planes});
  y = single::norm(net, name + "bn3", y, {Norm::Batch});
  y = net.add(name + "residual", {y, identity}, [&](LayerBuilder& b, In in) {
    if (b.shape(in[0]) == b.shape(in[1])) return b.add(in[0], in[1]);
    return b.add(in[0], b.norm(b.conv2d(in[1], {.channels = 4 * planes, .stride = stride}), {Norm::Batch}));
  });
  return single::relu(net, name + "relu3", y);
}

Model resnet(const FamilyValues& values, const char* name, const std::array<int, 4>& blocks) {
  const std::int64_t image = values["image"];
  ModelBuilder net(name, std::string("[He16] table 1, layers as in torchgpipe [torchgpipe20]"));
  Tensor x = single::conv2d(net, "conv1", net.input({3, image, image}), {64, 7, 7, 2, 3, 3});
  x = single::norm(net, "bn1", x, {Norm::Batch});
  x = single::relu(net, "relu", x);
  x = single::pool(net, "maxpool", x, {Pool::Max, 3, 2, 1});
  std::int64_t planes = 64;
  for (std::size_t group = 0; group < blocks.size(); ++group, planes *= 2)
    for (int block = 0; block < blocks[group]; ++block)
      x = bottleneck(net, "layer" + std::to_string(group + 1) + "_" + std::to_string(block) + "_", x, planes,
                     group > 0 && block == 0 ? 2 : 1);
  x = net.add("avgpool", {x}, [](LayerBuilder& b, In in) { return b.global_average_pool(in[0]); });
  x = single::flatten(net, "flatten", x);
  single::linear(net, "fc", x, {.features = values["classes"]});
  return net.finish();
}

Model build_resnet50(const FamilyValues& values) {
  return resnet(values, "ResNet-50", {3, 4, 6, 3});
}
Model build_resnet101(const FamilyValues& values) {
  return resnet(values, "ResNet-101", {3, 4, 23, 3});
}
Model build_resnet152(const FamilyValues& values) {
  return resnet(values, "ResNet-152", {3, 8, 36, 3});
}

}  // namespace

constinit const Family kResnet50Family = {"resnet50", "ResNet with 50 weight layers, 25.6 M parameters [He16]",
                                          kResnetParameters, build_resnet50};
constinit const Family kResnet101Family = {"resnet101", "ResNet with 101 weight layers, 44.5 M parameters [He16]",
                                           kResnetParameters, build_resnet101};
constinit const Family kResnet152Family = {"resnet152", "ResNet with 152 weight layers, 60.2 M parameters [He16]",
                                           kResnetParameters, build_resnet152};

}  // namespace pipewright::core
