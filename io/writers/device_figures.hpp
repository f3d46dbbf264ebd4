// What a device's curves say, size by size, and how far they are off measured points.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/cluster/cluster.hpp"
#include "core/cluster/collective_curves.hpp"
#include "core/cluster/kernel_curves.hpp"

namespace pipewright::io {

// What the curves are shares of: the peak of bf16, or of fp16 where there is none.
struct CurveBase {
  Precision precision = Precision::Bf16;
  DeviceRates rates;
};
// Absent: the device lacks such a peak, a memory bandwidth or its multiprocessors.
std::optional<CurveBase> curve_base(const Device& device);

const ProductCurve* product_curve(const Device& device);                      // nullptr: none
const std::vector<AttentionKernel>& attention_kernels(const Device& device);  // empty: none

struct KernelFigure {
  double us = 0;
  double rate = 0;   // FLOP/s
  double share = 0;  // of the peak
};

// One product with 2 bytes per value, as a short measurement has it: without `sustained`.
KernelFigure product_figure(const ProductCurve& curve, const DeviceRates& rates, const ProductShape& shape);

// Rows, and widths that n and k take.
std::vector<double> shown_rows();    // 512, 1024, ... 32768
std::vector<double> shown_widths();  // 1024, 4096, 8192, 16384

// Causal attention of one length, with as many heads (of all sequences together) as give each multiprocessor 16 blocks
// of 128 rows. FLOPs are those of the causal half; backward has 2.5 times as many.
double heads_that_fill(const DeviceRates& rates, double length);
KernelFigure attention_figure(const AttentionKernel& kernel, const DeviceRates& rates, double length, bool backward);
std::vector<double> shown_lengths();  // 1024, 2048, ... 131072

// Convolutions in fp32 by shape. Absent: the device has no curve for them, or lacks what it is a share of.
struct ConvolutionBase {
  const Efficiency& stated;
  DeviceRates rates;
  double transforms = 1;  // share of the memory bandwidth
};
std::optional<ConvolutionBase> convolution_base(const Device& device);

inline constexpr double kShownImages = 64;
std::vector<ConvolutionShape> shown_convolutions();  // 1 x 1, 3 x 3, 3 x 3 with stride 2; 64 channels at 56 x 56, ...
// FLOPs are those of the definition: minimal filtering may pass the peak.
KernelFigure convolution_figure(const ConvolutionBase& base, const ConvolutionShape& shape, PassKind pass);

struct CollectiveFigure {
  double us = 0;
  double share = 0;  // bus bandwidth over the links' nominal bandwidth
};
CollectiveFigure collective_figure(const CollectiveCurve& curve, CollectiveKind kind, int members, double bytes,
                                   Bandwidth links);
std::vector<double> shown_bytes();  // 1 KiB, 4 KiB, ... 4 GiB
inline constexpr int kShownMembers[] = {2, 4, 8};

struct MeasuredProduct {
  ProductShape shape;
  double us = 0;
  bool fitted = false;  // the curve's constants were found with it
};
// Columns m, n, k and time_us of a file of comma-separated values; others are skipped, and lines that begin with #.
// Rows 0, `every`, 2 `every`, ... are the fitted ones; 0: none. Throws InputError with one line per error.
std::vector<MeasuredProduct> read_measured_products(const std::string& path, int every);

bool is_large(const ProductShape& shape);  // m >= 2048, n and k >= 1024

// Of predicted / measured - 1.
struct CurveErrors {
  std::size_t points = 0;
  double mean = 0, median = 0;  // of its size, without the sign
  double bias = 0, p5 = 0, p95 = 0;
};
CurveErrors errors_of(const std::vector<double>& predicted_over_measured);

}  // namespace pipewright::io
