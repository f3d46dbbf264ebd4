// The time of one kernel by its size: matrix products by tiles and waves, fused attention by blocks of keys.
//
// A product C[m, n] = A[m, k] B[k, n], `batch` of them in one call, on S multiprocessors that reach the peak P together.
// A kernel covers C with tiles of M x N and may cut k into z parts; the library takes the fastest of
//
//     w0 = batch ceil(m/M) ceil(n/N) z / S            tiles per multiprocessor
//     w  = 1 where w0 <= 1, else waves ceil(w0) + (1 - waves) w0
//     c  = w 2 M N (k/z + fill) S / (P share rate(M, N))  +  [z > 1] (split + 8 batch m n z / bandwidth)
//     C  = least c * (1 + slowdown F / (F + slowdown_half))                    F = 2 batch m n k
//     B  = (bytes of A, B and C) / (bandwidth operands)
//     t  = launch + (C^4 + B^4)^(1/4) / sustained
//
// over tiles of 256 x 128, 128 x 256, 128 x 128, 128 x 64, 64 x 128, 64 x 64 and z = 1, 2, 3, 4, 6, 8, 12, 16 with k >=
// 128 z. Whole waves and tiles: [Nvidia23]. Large products draw so much power that the clock falls (slowdown).
// 8192 x 8192 x 8192 in bf16 on an H100: 1394 us.                     tests/core/kernel_curves_test.cpp
//
// Fused attention [Dao22] of `queries` rows per head works on blocks of 128 x 128 of the scores:
//
//     u = 4 * 128 * 128 * (key size + value size) / 2 * S / (P share)             a block; backward: 2.5 times
//     U = heads (blocks of rows) (mean blocks of keys per row + start) / S        blocks per multiprocessor
//     L = blocks of keys of the longest row + start
//     w = max(U + tail L, L)
//     t = launch + ((u w)^4 + (bytes / (0.85 bandwidth))^4)^(1/4)
//
// A convolution of N images, C to D channels, kernel R x S, in fp32 is the cheaper of two ways. Direct, a product of
// gathered windows [Chetlur14], whose bytes are input, output and weights:
//
//     forward (N H' W', D, C R S)     input gradient (N H W, C, D R S / stride^2)     weights (D, C R S, N H' W')
//
// Or, with stride 1 and up to 25 values of a kernel (5 x 5 is the largest that was profiled), by minimal filtering
// [Lavin16]: blocks of 4 outputs along each side where the kernel is longer than 1 need blocks of a = (R + 3)(S + 3) inputs, and there are b = N ceil(H'/4) ceil(W'/4) of them:
//
//     a products of (b, D, C), (b, C, D), (D, C, b)     and the bytes of all tensors, transformed ones too, moved once
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/model/work.hpp"

namespace pipewright::core {

enum class Provenance { Assumed, Published, Measured };
const char* in_words(Provenance provenance);  // "assumed"

// What the curves are shares of.
struct DeviceRates {
  double peak = 0;       // FLOP/s, dense
  double bandwidth = 0;  // bytes/s
  int multiprocessors = 0;
};

struct ProductCurve {
  double share = 0;          // of the peak: full tiles of 256 x 128, k without end, cold device
  double fill = 0;           // values of k that filling and draining a tile costs
  double launch = 0;         // us
  double operands = 1;       // share of the memory bandwidth for A, B and C
  double tile_128x128 = 1;   // rate of such tiles over that of 256 x 128
  double tile_128x64 = 1;    // likewise, of 64 x 128, too
  double tile_64x64 = 1;     // likewise
  double split = 0;          // us that cutting k costs
  double waves = 1;          // 1: the last wave takes as long as a full one, 0: tiles are balanced over all
  double slowdown = 0;       // large products take up to so much longer
  double slowdown_half = 1;  // TFLOP of a product with half of it
  double sustained = 1;      // rate in a long training over that of a short measurement
  bool operator==(const ProductCurve&) const = default;
};

// Microseconds of one call. `value_bytes`: of A, B and C; `output_bytes`: of C where it differs (added to an fp32
// buffer: read and written, 8).
double product_us(const ProductCurve& curve, const DeviceRates& rates, const ProductShape& shape, double value_bytes,
                  double output_bytes);

enum class ExpertProducts : std::uint8_t { Fused, Looped };  // one call for all experts, or one each

// Microseconds that `products` of one call take as calls of their own, where the one call takes `us`: experts in a loop.
// 3 us each; gradients of weights 4 us each, at 0.85 of the rate.                 docs/how-it-works/kernels.md
// 8 experts, 102 us with a launch of 2 us: 126 us; weights 2 + 100/0.85 + 32 = 151.6 us.
//                                                                                 tests/core/kernel_curves_test.cpp
double looped_us(const ProductCurve& curve, double us, double products, PassKind pass);

// Microseconds of one pass of a convolution over `samples` images. `transforms`: share of the memory bandwidth at which
// minimal filtering moves its tensors.
// 128 images of 56 x 56, 256 to 256 channels, 3 x 3, on a V100: 13.3 ms, direct 39.0 ms.
//                                                                                 tests/core/kernel_curves_test.cpp
double convolution_us(const ProductCurve& curve, const DeviceRates& rates, const ConvolutionShape& shape, PassKind pass,
                      double samples, double value_bytes, double transforms);

struct AttentionCurve {
  double share = 0;   // of the peak
  double start = 0;   // blocks of keys that a block of rows costs beside its own
  double tail = 0;    // share of the longest row that is left when all others are done
  double launch = 0;  // us
  bool operator==(const AttentionCurve&) const = default;
};

enum class AttentionKernelName : std::uint8_t { Fa2, Fa3, Cudnn };
const char* in_words(AttentionKernelName name);  // "fa2"

// One kernel for one head size.
struct AttentionKernel {
  AttentionKernelName kernel = AttentionKernelName::Fa2;
  int head_size = 128;
  AttentionCurve forward, backward;
  std::optional<double> band;  // of both; absent: that of the kind
  Provenance provenance = Provenance::Assumed;
  std::string source;
  Place place;
};

// Of the kernels of this name the one for the nearest head size (by their ratio); nullptr: there is none.
const AttentionKernel* attention_kernel(const std::vector<AttentionKernel>& kernels, AttentionKernelName name,
                                        double head_size);

// Microseconds of one call over `samples` sequences.
double attention_us(const AttentionCurve& curve, const DeviceRates& rates, const AttentionShape& shape, double samples,
                    double value_bytes, bool backward);

}  // namespace pipewright::core
