#include "core/cluster/kernel_curves.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "core/ids.hpp"

namespace pipewright::core {
namespace {

struct Tile {
  double rows, columns;
  double ProductCurve::*rate;  // nullptr: 1
};
constexpr std::array<Tile, 6> kTiles = {{{256, 128, nullptr},
                                         {128, 256, nullptr},
                                         {128, 128, &ProductCurve::tile_128x128},
                                         {128, 64, &ProductCurve::tile_128x64},
                                         {64, 128, &ProductCurve::tile_128x64},
                                         {64, 64, &ProductCurve::tile_64x64}}};
// A gradient of a convolution's weights sums over all pixels of a batch: its kernels cut the sum as often as needed.
constexpr std::array<double, 11> kAllSplits = {1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128};
constexpr std::span<const double> kSplits = std::span(kAllSplits).first(8);
constexpr double kFiltered = 4;            // outputs of a block of minimal filtering, along a side
constexpr double kMostFiltered = 25;       // values of a kernel
constexpr double kBlock = 128;             // rows and keys of a block of scores
constexpr double kAttentionMemory = 0.85;  // share of the bandwidth at which its tensors move

// The longer of two that overlap, with a soft corner where they are alike.
double overlapped(double a, double b) {
  return std::sqrt(std::sqrt(a * a * a * a + b * b * b * b));
}

// C[m, n] over tiles, the sum cut as pays: arithmetic alone.
double by_tiles(const ProductCurve& curve, const DeviceRates& rates, const ProductShape& shape,
                std::span<const double> splits) {
  const double peak = rates.peak * 1e-6, bandwidth = rates.bandwidth * 1e-6, multiprocessors = rates.multiprocessors;
  const auto& [m, n, k, batch] = shape;
  double best = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    const double rate = peak / multiprocessors * curve.share * (tile.rate ? curve.*tile.rate : 1.0);
    const double tiles = batch * std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
    for (const double split : splits) {
      if (split > 1 && k < 128 * split) break;
      const double even = tiles * split / multiprocessors;
      const double waves = even <= 1 ? 1 : curve.waves * std::ceil(even) + (1 - curve.waves) * even;
      double time = waves * 2 * tile.rows * tile.columns * (k / split + curve.fill) / rate;
      if (split > 1) time += curve.split + 8 * batch * m * n * split / bandwidth;
      best = std::min(best, time);
    }
  }
  const double work = 2e-12 * batch * m * n * k;
  return best * (1 + curve.slowdown * work / (work + curve.slowdown_half));
}

double moved_us(const ProductCurve& curve, const DeviceRates& rates, double bytes) {
  return bytes / (rates.bandwidth * 1e-6 * curve.operands);
}

// `rows` x `inputs` times weights of `inputs` x `outputs`, or one of its gradients.
ProductShape of_pass(PassKind pass, double rows, double outputs, double inputs, double batch) {
  switch (pass) {
    case PassKind::Forward: return {rows, outputs, inputs, batch};
    case PassKind::Input: return {rows, inputs, outputs, batch};
    case PassKind::Weight: return {outputs, inputs, rows, batch};
  }
  return {};
}

// A window for each pixel that is written; with a stride only some of its values meet a gradient of the output.
ProductShape direct_product(const ConvolutionShape& shape, PassKind pass, double samples) {
  const double window = shape.kernel_height * shape.kernel_width;
  if (pass == PassKind::Input)
    return {samples * shape.height * shape.width, shape.channels,
            shape.out_channels * window / (shape.stride * shape.stride), 1};
  return of_pass(pass, samples * shape.out_height * shape.out_width, shape.out_channels, shape.channels * window, 1);
}

}  // namespace

const char* in_words(Provenance provenance) {
  constexpr const char* kWords[] = {"assumed", "published", "measured"};
  return kWords[at(provenance)];
}

const char* in_words(AttentionKernelName name) {
  constexpr const char* kWords[] = {"fa2", "fa3", "cudnn"};
  return kWords[at(name)];
}

double product_us(const ProductCurve& curve, const DeviceRates& rates, const ProductShape& shape, double value_bytes,
                  double output_bytes) {
  const double bytes =
      shape.batch * (value_bytes * (shape.m * shape.k + shape.n * shape.k) + output_bytes * shape.m * shape.n);
  return curve.launch +
         overlapped(by_tiles(curve, rates, shape, kSplits), moved_us(curve, rates, bytes)) / curve.sustained;
}

double looped_us(const ProductCurve& curve, double us, double products, PassKind pass) {
  if (pass != PassKind::Weight) return us + 3 * products;
  return curve.launch + (us - curve.launch) / 0.85 + 4 * products;
}

double convolution_us(const ProductCurve& curve, const DeviceRates& rates, const ConvolutionShape& shape, PassKind pass,
                      double samples, double value_bytes, double transforms) {
  const double r = shape.kernel_height, s = shape.kernel_width, c = shape.channels, d = shape.out_channels;
  const std::span<const double> splits = pass == PassKind::Weight ? std::span(kAllSplits) : kSplits;
  const double in = c * samples * shape.height * shape.width, out = d * samples * shape.out_height * shape.out_width;
  const double tensors = value_bytes * (in + out);
  const auto time = [&](const ProductShape& product, double bytes) {
    return overlapped(by_tiles(curve, rates, product, splits), moved_us(curve, rates, bytes));
  };
  double least = time(direct_product(shape, pass, samples), tensors + value_bytes * r * s * c * d);
  if (shape.stride == 1 && r * s > 1 && r * s <= kMostFiltered) {
    const double high = r > 1 ? kFiltered : 1, wide = s > 1 ? kFiltered : 1;
    const double inputs = (high + r - 1) * (wide + s - 1);
    const double blocks = samples * std::ceil(shape.out_height / high) * std::ceil(shape.out_width / wide);
    const double transformed = value_bytes * inputs * (blocks * (c + d) + c * d);
    const double moved = (tensors + transformed) / (rates.bandwidth * 1e-6 * transforms);
    least = std::min(least, time(of_pass(pass, blocks, d, c, inputs), transformed) + moved);
  }
  return curve.launch + least / curve.sustained;
}

const AttentionKernel* attention_kernel(const std::vector<AttentionKernel>& kernels, AttentionKernelName name,
                                        double head_size) {
  const AttentionKernel* nearest = nullptr;
  const auto distance = [&](const AttentionKernel& kernel) {
    return std::abs(std::log(head_size / static_cast<double>(kernel.head_size)));
  };
  for (const AttentionKernel& each : kernels)
    if (each.kernel == name && (!nearest || distance(each) < distance(*nearest))) nearest = &each;
  return nearest;
}

double attention_us(const AttentionCurve& curve, const DeviceRates& rates, const AttentionShape& shape, double samples,
                    double value_bytes, bool backward) {
  const double peak = rates.peak * 1e-6, multiprocessors = rates.multiprocessors;
  const double rows = std::ceil(shape.queries / kBlock);
  // Blocks on the diagonal are computed whole: half a block more per row than the pairs say.
  const double mean = shape.pairs / (shape.queries * kBlock) + (shape.causal ? 0.5 - 0.5 / kBlock : 0);
  const double longest = std::max(mean, std::ceil(std::min(shape.longest, shape.keys) / kBlock)) + curve.start;
  const double even = samples * shape.heads * rows * (mean + curve.start) / multiprocessors;
  const double blocks = std::max(even + curve.tail * longest, longest);
  const double size = (shape.key_size + shape.value_size) / 2, passes = backward ? 2.5 : 1;
  const double block = 4 * kBlock * kBlock * size * passes * multiprocessors / (peak * curve.share);
  const double values = samples * size * (2 * shape.heads * shape.queries + 2 * shape.key_heads * shape.keys);
  const double bytes = values * value_bytes * (backward ? 2 : 1);
  return curve.launch + overlapped(block * blocks, bytes / (kAttentionMemory * rates.bandwidth * 1e-6));
}

}  // namespace pipewright::core
