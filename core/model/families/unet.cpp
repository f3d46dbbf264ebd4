// U-Net(B, C): the simplified U-Net of torchgpipe's benchmarks, depth 5.                [Ronneberger15], [torchgpipe20]
//
// A cell is B times {3 x 3 convolution without bias, dropout of whole channels, instance norm without parameters, leaky
// ReLU}, from `in` through `mid` to `out` channels, one layer each:
//     encoder i = 0..4     in C 2^(i-1) (3 for i = 0), mid = out = C 2^i; then stash, 2 x 2 max pool
//     bottleneck           in C 2^4, mid C 2^5, out C 2^4
//     decoder i = 4..0     upsample by 2, concat with stash i (in = C 2^(i+1)), cell with mid = out = C 2^(i-1)
//     segment              1 x 1 convolution without bias to 1 channel
// Layers: 5 (4 B + 2) + 4 B + 5 (4 B + 2) + 1 = 44 B + 21. A skip is an edge of the graph from stash i to concat i and
// crosses every cut between them: the deeper the cut, the more skips pass it.
//
// A leaky ReLU is counted as a ReLU: as many bytes, one operation per value.
//
// Parameters are those of the convolutions: U-Net(5, 64) has 241 layers and 232 687 328 parameters, of them in the
// bottleneck 9 (1024 * 2048 + 3 * 2048^2 + 2048 * 1024) = 150 994 944.
//
// Tests: tests/core/families/single_layers_test.cpp
#include <array>
#include <vector>

#include "core/model/families/model_builder.hpp"
#include "core/model/families/network_families.hpp"

namespace pipewright::core {
namespace {

using Tensor = ModelBuilder::Tensor;
using In = ModelBuilder::In;

constexpr std::int64_t kDepth = 5;

constexpr std::array kUnetParameters = {
    FamilyParameter{"convolutions", "B: convolutions per cell", 1, 1000},
    FamilyParameter{"channels", "C: channels of the first cell, an even number", 2, 16'384},
    FamilyParameter{"image", "height and width of the image, a multiple of 32", 64, 8192, 192},
};

struct CellChannels {
  std::int64_t mid, out;
};

Tensor cell(ModelBuilder& net, const std::string& name, Tensor x, std::int64_t convolutions, CellChannels channels) {
  for (std::int64_t i = 1; i <= convolutions; ++i) {
    const std::string number = std::to_string(i);
    x = single::conv2d(net, name + "conv" + number, x,
                       {i == convolutions ? channels.out : channels.mid, 3, 3, 1, 1, 1});
    x = single::dropout(net, name + "dropout" + number, x, true);
    x = single::norm(net, name + "norm" + number, x, {Norm::Instance, false});
    x = single::relu(net, name + "relu" + number, x);
  }
  return x;
}

Model build_unet(const FamilyValues& values) {
  const std::int64_t convolutions = values["convolutions"], c = values["channels"], image = values["image"];
  if (c % 2 != 0)
    values.refuse("channels", "is odd (the last cell has half of them); use " + std::to_string(c - 1) + " or " +
                                  std::to_string(c + 1));
  if (image % 32 != 0)
    values.refuse("image", "is not a multiple of 32 (five 2 x 2 pools); use " + std::to_string(image / 32 * 32) +
                               " or " + std::to_string((image / 32 + 1) * 32));
  ModelBuilder net("U-Net(" + std::to_string(convolutions) + ", " + std::to_string(c) + ")",
                   "simplified U-Net of torchgpipe [torchgpipe20], after [Ronneberger15]");
  Tensor x = net.input({3, image, image});
  std::vector<Tensor> skips;
  for (std::int64_t i = 0; i < kDepth; ++i) {
    const std::string name = "encoder" + std::to_string(i) + "_";
    x = cell(net, name, x, convolutions, {c << i, c << i});
    x = single::stash(net, name + "stash", x);
    skips.push_back(x);
    x = single::pool(net, name + "pool", x, {Pool::Max, 2, 2, 0});
  }
  x = cell(net, "bottleneck_", x, convolutions, {c << kDepth, c << (kDepth - 1)});
  for (std::int64_t i = kDepth - 1; i >= 0; --i) {
    const std::string name = "decoder" + std::to_string(i) + "_";
    x = net.add(name + "upsample", {x}, [](LayerBuilder& b, In in) { return b.upsample(in[0], 2); });
    x = single::concat(net, name + "concat", x, skips[at(i)]);
    x = cell(net, name, x, convolutions, {(c << i) / 2, (c << i) / 2});
  }
  single::conv2d(net, "segment", x, {.channels = 1});
  return net.finish();
}

}  // namespace

constinit const Family kUnetFamily = {
    "unet", "U-Net(convolutions, channels) of torchgpipe's benchmarks, with long skips [Ronneberger15] [torchgpipe20]",
    kUnetParameters, build_unet};

}  // namespace pipewright::core
