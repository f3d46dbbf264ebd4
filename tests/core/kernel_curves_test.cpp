// Kernels by size, worked out beforehand with the constants of the presets.
#include "core/cluster/kernel_curves.hpp"

#include <cmath>

#include <doctest/doctest.h>

using namespace pipewright;

namespace {

const DeviceRates kH100{989.4e12, 3.35e12, 132};
const DeviceRates kA100{312e12, 2.039e12, 108};
const ProductCurve kOnH100{.share = 0.824,
                           .fill = 130,
                           .launch = 2.57,
                           .operands = 0.874,
                           .tile_128x128 = 1,
                           .tile_128x64 = 0.888,
                           .tile_64x64 = 0.678,
                           .split = 2.29,
                           .waves = 0,
                           .slowdown = 0.178,
                           .slowdown_half = 11.4};
const ProductCurve kOnA100{.share = 0.971,
                           .fill = 184,
                           .launch = 2.12,
                           .operands = 0.85,
                           .tile_128x128 = 0.783,
                           .tile_128x64 = 0.653,
                           .tile_64x64 = 0.475,
                           .split = 0,
                           .waves = 1,
                           .slowdown = 0.164,
                           .slowdown_half = 0.84};

}  // namespace

TEST_CASE("One tile by hand: 256 x 128 x 256 on a device of two multiprocessors") {
  // Peak 2 TFLOP/s, 1e6 FLOP/us each; share 0.5, fill 256, launch 3 us. Two tiles of 128 x 128 take one wave:
  // 2 * 128 * 128 * (256 + 256) FLOP / (0.5e6 FLOP/us) = 33.554 us. One of 256 x 128 takes twice that on one of the two;
  // two parts of k: 2 * 256 * 128 * (128 + 256) / 0.5e6 = 50.33 us. Bytes: 3.9e5 over 1e12 B/s = 0.33 us.
  const ProductCurve curve{.share = 0.5, .fill = 256, .launch = 3, .operands = 1};
  CHECK(product_us(curve, {2e12, 1e12, 2}, {256, 128, 256, 1}, 2, 2) == doctest::Approx(36.554).epsilon(1e-4));
}

TEST_CASE("A product that only moves bytes takes the bandwidth") {
  // 1 x 4096 x 4096: 33.6 MB at 1e12 B/s = 33.57 us; the arithmetic of one row of tiles is far below.
  const ProductCurve curve{.share = 1, .fill = 0, .launch = 0, .operands = 1};
  CHECK(product_us(curve, {1e18, 1e12, 100}, {1, 4096, 4096, 1}, 2, 2) == doctest::Approx(33.571).epsilon(1e-3));
}

TEST_CASE("The constants of the presets give the times that they were found with") {
  CHECK(product_us(kOnH100, kH100, {8192, 8192, 8192, 1}, 2, 2) == doctest::Approx(1394).epsilon(5e-4));
  CHECK(product_us(kOnA100, kA100, {8192, 8192, 8192, 1}, 2, 2) == doctest::Approx(4066).epsilon(5e-4));
}

TEST_CASE("More rows never take less time") {
  for (const auto& [curve, rates] : {std::pair{kOnA100, kA100}, std::pair{kOnH100, kH100}}) {
    double before = 0;
    for (double m = 64; m <= 16384; m += 64) {
      const double now = product_us(curve, rates, {m, 4096, 1024, 1}, 2, 2);
      CHECK(now >= before);
      before = now;
    }
  }
}

TEST_CASE("Attention by hand: two blocks of rows, causal") {
  // 256 queries and keys, one head of 64: rows 2, mean (2 + 1)/2 = 1.5 blocks, start 0.5, one multiprocessor:
  // U = 2 * 2 = 4, L = 2.5, tail 0.2: 4.5 blocks of 4 * 128 * 128 * 64 FLOP = 4.194e6 at 0.5e6 FLOP/us: 37.75 us + 5.
  const AttentionCurve curve{.share = 0.5, .start = 0.5, .tail = 0.2, .launch = 5};
  const AttentionShape shape{.queries = 256,
                             .keys = 256,
                             .heads = 1,
                             .key_heads = 1,
                             .key_size = 64,
                             .value_size = 64,
                             .pairs = 256 * 257 / 2.0,
                             .longest = 256,
                             .causal = true};
  CHECK(attention_us(curve, {1e12, 1e15, 1}, shape, 1, 2, false) == doctest::Approx(42.75).epsilon(1e-3));
  CHECK(attention_us(curve, {1e12, 1e15, 1}, shape, 1, 2, true) == doctest::Approx(5 + 2.5 * 37.75).epsilon(1e-3));
}

TEST_CASE("Another head size takes the nearest kernel of its name") {
  const std::vector<AttentionKernel> kernels = {{.kernel = AttentionKernelName::Fa2, .head_size = 64},
                                                {.kernel = AttentionKernelName::Fa2, .head_size = 128},
                                                {.kernel = AttentionKernelName::Fa3, .head_size = 256}};
  CHECK(attention_kernel(kernels, AttentionKernelName::Fa2, 80)->head_size == 64);
  CHECK(attention_kernel(kernels, AttentionKernelName::Fa2, 96)->head_size == 128);
  CHECK(attention_kernel(kernels, AttentionKernelName::Fa3, 64)->head_size == 256);
  CHECK(attention_kernel(kernels, AttentionKernelName::Cudnn, 64) == nullptr);
}

TEST_CASE("The calls of a layer's product: forward, gradient of the input, gradient of the weights") {
  const ProductOfLayer product{.rows = 512, .columns = 1024, .depth = 256, .divided = ProductOfLayer::Divided::Columns};
  const auto is = [](const ProductShape& shape, double m, double n, double k, double batch) {
    return shape.m == m && shape.n == n && shape.k == k && shape.batch == batch;
  };
  CHECK(is(product.call(PassKind::Forward, 2, {}, false), 1024, 1024, 256, 1));
  CHECK(is(product.call(PassKind::Input, 2, {}, false), 1024, 256, 1024, 1));
  CHECK(is(product.call(PassKind::Weight, 2, {}, false), 1024, 256, 1024, 1));
  CHECK(is(product.call(PassKind::Forward, 2, {4, false}, false), 1024, 256, 256, 1));
  CHECK(is(product.call(PassKind::Forward, 2, {3, false}, false), 1024, 384, 256, 1));  // 342, padded to 3 x 128
  CHECK(is(product.call(PassKind::Forward, 2, {4, true}, true), 256, 256, 256, 1));
  const ProductOfLayer heads{.rows = 128,
                             .columns = 128,
                             .depth = 64,
                             .groups = 8,
                             .of_sample = true,
                             .divided = ProductOfLayer::Divided::Groups};
  CHECK(is(heads.call(PassKind::Forward, 3, {2, false}, false), 128, 128, 64, 12));
  CHECK(heads.aligned());
  CHECK_FALSE(ProductOfLayer{.rows = 1, .columns = 50257, .depth = 64}.aligned());
}
