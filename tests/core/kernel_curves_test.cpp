// Kernels by size, worked out beforehand with the constants of the presets.
#include "core/cluster/kernel_curves.hpp"

#include <cmath>

#include <doctest/doctest.h>

using namespace pipewright::tests;

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

namespace {

// One multiprocessor of 1e6 FLOP/us, whatever the tile; 128 images of 4 x 4, 128 to 128 channels.
const ProductCurve kPlain{.share = 1, .operands = 1};
ConvolutionShape four_by_four(double kernel_height, double kernel_width) {
  return {.channels = 128,
          .height = 4,
          .width = 4,
          .out_channels = 128,
          .out_height = 4,
          .out_width = 4,
          .kernel_height = kernel_height,
          .kernel_width = kernel_width};
}

}  // namespace

TEST_CASE("A convolution of 1 x 1 is the product of its pixels and weights") {
  for (const double bandwidth : {1e10, 1e18}) {
    const DeviceRates rates{1e12, bandwidth, 1};
    const double forward = product_us(kPlain, rates, {2048, 128, 128, 1}, 4, 4);
    CHECK(convolution_us(kPlain, rates, four_by_four(1, 1), PassKind::Forward, 128, 4, 1) == doctest::Approx(forward));
    CHECK(convolution_us(kPlain, rates, four_by_four(1, 1), PassKind::Input, 128, 4, 1) == doctest::Approx(forward));
  }
}

TEST_CASE("Minimal filtering takes a quarter of the products of 3 x 3, and moves its transformed tensors") {
  const auto us = [](const DeviceRates& rates, const ConvolutionShape& shape, PassKind pass = PassKind::Forward) {
    return convolution_us(kPlain, rates, shape, pass, 128, 4, 0.5);
  };
  // 36 products of 128 blocks x 128 x 128: 36 * 2 * 128^3 = 1.50995e8 FLOP. Direct: 2 * 2048 * 128 * 1152, four times.
  for (const PassKind pass : {PassKind::Forward, PassKind::Input, PassKind::Weight})
    CHECK(us({1e12, 1e18, 1}, four_by_four(3, 3), pass) == doctest::Approx(150.995).epsilon(1e-5));
  // 1 x 7: 10 products of 512 x 128 x 128, 1.67772e8 FLOP.
  CHECK(us({1e12, 1e18, 1}, four_by_four(1, 7)) == doctest::Approx(167.772).epsilon(1e-5));
  // 7 x 7 is longer than what was profiled: 2 * 2048 * 128 * 128 * 49 = 3.28833e9 FLOP, none filtered.
  CHECK(us({1e12, 1e18, 1}, four_by_four(7, 7)) == doctest::Approx(3288.33).epsilon(1e-5));
  // With stride 2 nothing is filtered. 512 pixels written, 2 * 512 * 128 * 1152 = 1.50995e8 FLOP; each of 2048 pixels of
  // the input's gradient meets a quarter of the window: as many.
  ConvolutionShape strided = four_by_four(3, 3);
  strided.stride = 2, strided.out_height = strided.out_width = 2;
  CHECK(us({1e12, 1e18, 1}, strided) == doctest::Approx(150.995).epsilon(1e-5));
  CHECK(us({1e12, 1e18, 1}, strided, PassKind::Input) == doctest::Approx(150.995).epsilon(1e-5));
  // At 1e5 B/us: 2 tensors of 1.048576 MB; transformed 4 B * 36 * (128 * 256 + 128 * 128) = 7.077888 MB.
  // (150.995^4 + 70.779^4)^(1/4) = 150.995 (1 + 0.04828)^(1/4) = 152.785, and 9.17504 MB at half of the bandwidth: 183.50.
  CHECK(us({1e12, 1e11, 1}, four_by_four(3, 3)) == doctest::Approx(152.785 + 183.501).epsilon(1e-4));
  // Arithmetic for nothing: direct moves 2.097152 + 0.589824 MB.
  CHECK(us({1e30, 1e12, 1}, four_by_four(3, 3)) == doctest::Approx(2.687).epsilon(1e-3));
}

TEST_CASE("The sum of a gradient of weights is cut as often as fills the device") {
  // 16384 pixels, 128 x 128 channels: one tile of 2 * 128 * 128 * 16384 FLOP = 34359.7 us on one of 64 multiprocessors.
  ConvolutionShape shape = four_by_four(1, 1);
  shape.height = shape.width = shape.out_height = shape.out_width = 128;
  CHECK(convolution_us(kPlain, {1e12, 1e18, 64}, shape, PassKind::Weight, 1, 4, 1) ==
        doctest::Approx(536.871).epsilon(1e-5));
}

TEST_CASE("A convolution of VGG-16 takes as long on a V100 as minimal filtering with the preset's constants says") {
  // 36 products of (128 * 14 * 14, 256, 256) are 1.1837e11 FLOP at 0.79 of 15.7 TFLOP/s: 9.544 ms; 98 x 2 tiles of 256 x
  // 128 each, 7056, need 89 waves of 80: 9.631 ms. 1.859 GB of transformed tensors at 0.455 of 900 GB/s: 4.540 ms;
  // (9.631^4 + 4.540^4)^(1/4) = 9.748 ms. 2.681 GB at 0.83: 3.589 ms. Launch 10 us.
  const ProductCurve curve{.share = 0.79,
                           .launch = 10,
                           .operands = 0.455,
                           .tile_128x128 = 0.95,
                           .tile_128x64 = 0.85,
                           .tile_64x64 = 0.7,
                           .split = 130};
  const ConvolutionShape shape{.channels = 256,
                               .height = 56,
                               .width = 56,
                               .out_channels = 256,
                               .out_height = 56,
                               .out_width = 56,
                               .kernel_height = 3,
                               .kernel_width = 3};
  CHECK(convolution_us(curve, {15.7e12, 900e9, 80}, shape, PassKind::Forward, 128, 4, 0.83) ==
        doctest::Approx(13347).epsilon(1e-3));
}

TEST_CASE("Experts in a loop pay for every call") {
  // 100 us of work and a launch of 2 us: 102 + 8 * 3; gradient of the weights 2 + 100 / 0.85 + 8 * 4.
  const ProductCurve curve{.launch = 2};
  CHECK(looped_us(curve, 102, 8, PassKind::Forward) == doctest::Approx(126));
  CHECK(looped_us(curve, 102, 8, PassKind::Input) == doctest::Approx(126));
  CHECK(looped_us(curve, 102, 8, PassKind::Weight) == doctest::Approx(151.647));
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
