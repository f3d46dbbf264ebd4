#include "core/cluster/kernel_curves.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace pipewright {
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
constexpr std::array<double, 8> kSplits = {1, 2, 3, 4, 6, 8, 12, 16};
constexpr double kBlock = 128;             // rows and keys of a block of scores
constexpr double kAttentionMemory = 0.85;  // share of the bandwidth at which its tensors move

// The longer of two that overlap, with a soft corner where they are alike.
double overlapped(double a, double b) {
  return std::sqrt(std::sqrt(a * a * a * a + b * b * b * b));
}

}  // namespace

const char* in_words(Provenance provenance) {
  constexpr const char* kWords[] = {"assumed", "published", "measured"};
  return kWords[static_cast<std::size_t>(provenance)];
}

const char* in_words(AttentionKernelName name) {
  constexpr const char* kWords[] = {"fa2", "fa3", "cudnn"};
  return kWords[static_cast<std::size_t>(name)];
}

double product_us(const ProductCurve& curve, const DeviceRates& rates, const ProductShape& shape, double value_bytes,
                  double output_bytes) {
  const double peak = rates.peak * 1e-6, bandwidth = rates.bandwidth * 1e-6, multiprocessors = rates.multiprocessors;
  const auto& [m, n, k, batch] = shape;
  double best = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    const double rate = peak / multiprocessors * curve.share * (tile.rate ? curve.*tile.rate : 1.0);
    const double tiles = batch * std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
    for (const double split : kSplits) {
      if (split > 1 && k < 128 * split) break;
      const double even = tiles * split / multiprocessors;
      const double waves = even <= 1 ? 1 : curve.waves * std::ceil(even) + (1 - curve.waves) * even;
      double time = waves * 2 * tile.rows * tile.columns * (k / split + curve.fill) / rate;
      if (split > 1) time += curve.split + 8 * batch * m * n * split / bandwidth;
      best = std::min(best, time);
    }
  }
  const double work = 2e-12 * batch * m * n * k;
  const double arithmetic = best * (1 + curve.slowdown * work / (work + curve.slowdown_half));
  const double bytes = batch * (value_bytes * (m * k + n * k) + output_bytes * m * n);
  return curve.launch + overlapped(arithmetic, bytes / (bandwidth * curve.operands)) / curve.sustained;
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

}  // namespace pipewright
