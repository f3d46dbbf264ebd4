#include "io/writers/device_figures.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/answers/campaign.hpp"
#include "core/folds.hpp"
#include "io/read/read_file.hpp"
#include "io/text/csv_line.hpp"
#include "io/text/errors.hpp"
#include "io/text/quantity.hpp"
#include "io/text/trimmed.hpp"

namespace pipewright::io {
namespace {

constexpr double kValueBytes = 2;  // of bf16 and fp16
constexpr double kBlockRows = 128, kBlocksEach = 16;

const std::optional<Efficiency>& of(const Device& device, OperatorKind kind) {
  return device.efficiency[at(kind)];
}

std::vector<double> powers(double first, double last, double factor) {
  std::vector<double> all;
  for (double each = first; each <= last; each *= factor)
    all.push_back(each);
  return all;
}

KernelFigure figure(double us, double flop, const DeviceRates& rates) {
  const double rate = flop / us * 1e6;
  return {us, rate, rate / rates.peak};
}

constexpr std::array<const char*, 4> kTableHeads = {"m", "n", "k", "time_us"};

class ProductPointReader {
 public:
  ProductPointReader(const std::string& path, int every) : path_(path), every_(every) {}

  std::vector<MeasuredProduct> read() {
    const std::string text = read_file(path_);
    int number = 0;
    for (std::size_t begin = 0; begin < text.size() && !errors_.full();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string_view line = trimmed(std::string_view(text).substr(begin, end - begin), " \t\r");
      begin = end + 1;
      place_ = {path_, ++number, 1};
      if (line.empty() || line.starts_with('#')) continue;
      columns_ == 0 ? header(line) : row(line);
    }
    errors_.throw_if_any();
    if (points_.empty())
      throw InputError(Place{path_, std::max(number, 1), 1},
                       "holds no points; it needs a header with m,n,k,time_us and a line per point");
    return std::move(points_);
  }

 private:
  void header(std::string_view line) {
    auto heads = mapped<std::string>(csv_fields(line), [&](CsvField& field) { return std::move(field.text); });
    columns_ = heads.size();
    for (std::size_t i = 0; i < kTableHeads.size(); ++i) {
      const auto found = std::ranges::find(heads, kTableHeads[i]);
      if (found == heads.end())
        throw InputError(place_, fmt::format("has no column {}; points need m,n,k,time_us, and it has: {}",
                                             in_quotes(kTableHeads[i]), fmt::join(heads, ", ")));
      at_[i] = at(found - heads.begin());
    }
  }

  void row(std::string_view line) {
    const std::vector<CsvField> fields = csv_fields(line);
    if (fields.size() != columns_)
      return errors_.add(place_, fmt::format("has {} fields where the header has {}", fields.size(), columns_));
    std::array<double, 4> values{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      const CsvField& field = fields[at_[i]];
      const auto parsed = parse_number(field.text);
      if (!parsed.value || !(*parsed.value > 0) || !std::isfinite(*parsed.value))
        return errors_.add({path_, place_.line, field.column},
                           fmt::format("{}: {} is not a number above 0", kTableHeads[i], in_quotes(field.text)));
      values[i] = *parsed.value;
    }
    const bool fitted = every_ > 0 && points_.size() % at(every_) == 0;
    points_.push_back({{values[0], values[1], values[2], 1}, values[3], fitted});
  }

  std::string path_;
  int every_;
  Place place_;
  Errors errors_;
  std::size_t columns_ = 0;
  std::array<std::size_t, 4> at_{};
  std::vector<MeasuredProduct> points_;
};

}  // namespace

std::optional<CurveBase> curve_base(const Device& device) {
  for (const Precision precision : {Precision::Bf16, Precision::Fp16}) {
    const auto peak = device.peak.find(precision);
    if (peak == device.peak.end() || !device.memory_bandwidth || device.multiprocessors == 0) continue;
    return CurveBase{precision, {peak->second.value, device.memory_bandwidth->value, device.multiprocessors}};
  }
  return std::nullopt;
}

const ProductCurve* product_curve(const Device& device) {
  const auto& products = of(device, OperatorKind::MatrixProduct);
  return products && products->tiles ? &*products->tiles : nullptr;
}

const std::vector<AttentionKernel>& attention_kernels(const Device& device) {
  static const std::vector<AttentionKernel> kNone;
  const auto& attention = of(device, OperatorKind::Attention);
  return attention ? attention->kernels : kNone;
}

KernelFigure product_figure(const ProductCurve& curve, const DeviceRates& rates, const ProductShape& shape) {
  ProductCurve cold = curve;
  cold.sustained = 1;
  const double us = product_us(cold, rates, shape, kValueBytes, kValueBytes);
  return figure(us, 2 * shape.batch * shape.m * shape.n * shape.k, rates);
}

std::vector<double> shown_rows() {
  return powers(512, 32768, 2);
}

std::vector<double> shown_widths() {
  return {1024, 4096, 8192, 16384};
}

double heads_that_fill(const DeviceRates& rates, double length) {
  return std::ceil(kBlocksEach * rates.multiprocessors / std::ceil(length / kBlockRows));
}

KernelFigure attention_figure(const AttentionKernel& kernel, const DeviceRates& rates, double length, bool backward) {
  const double size = kernel.head_size, heads = heads_that_fill(rates, length), pairs = length * (length + 1) / 2;
  const AttentionShape shape{.queries = length,
                             .keys = length,
                             .heads = heads,
                             .key_heads = heads,
                             .key_size = size,
                             .value_size = size,
                             .pairs = pairs,
                             .longest = length,
                             .causal = true};
  const double us = attention_us(backward ? kernel.backward : kernel.forward, rates, shape, 1, kValueBytes, backward);
  return figure(us, (backward ? 2.5 : 1) * 4 * pairs * size * heads, rates);
}

std::vector<double> shown_lengths() {
  return powers(1024, 131072, 2);
}

std::optional<ConvolutionBase> convolution_base(const Device& device) {
  const auto& stated = of(device, OperatorKind::Convolution);
  const auto peak = device.peak.find(Precision::Fp32);
  if (!stated || !stated->tiles || peak == device.peak.end() || !device.memory_bandwidth) return std::nullopt;
  const auto& memory = of(device, OperatorKind::Memory);
  return ConvolutionBase{*stated,
                         {peak->second.value, device.memory_bandwidth->value, device.multiprocessors},
                         memory ? memory->at(1e9) : device.memory_efficiency};
}

std::vector<ConvolutionShape> shown_convolutions() {
  std::vector<ConvolutionShape> all;
  for (const auto& [kernel, stride] : {std::pair{1.0, 1.0}, {3.0, 1.0}, {3.0, 2.0}})
    for (double channels = 64, side = 56; channels <= 512; channels *= 2, side /= 2) {
      const double out = std::ceil(side / stride);
      all.push_back({channels, side, side, channels, out, out, kernel, kernel, stride});
    }
  return all;
}

KernelFigure convolution_figure(const ConvolutionBase& base, const ConvolutionShape& shape, PassKind pass) {
  const double us = convolution_us(*base.stated.tiles, base.rates, shape, pass, kShownImages, 4, base.transforms);
  const double flop = 2 * kShownImages * shape.out_channels * shape.out_height * shape.out_width * shape.channels *
                      shape.kernel_height * shape.kernel_width;
  return figure(us, flop, base.rates);
}

CollectiveFigure collective_figure(const CollectiveCurve& curve, CollectiveKind kind, int members, double bytes,
                                   Bandwidth links) {
  const double us = collective_us(curve, kind, members, bytes, links.value);
  const double moved = (kind == CollectiveKind::AllReduce ? 2.0 : 1.0) * (members - 1) / members * bytes;
  return {us, moved / us * 1e6 / links.value};
}

std::vector<double> shown_bytes() {
  return powers(1024, 4.0 * (1 << 30), 4);
}

std::vector<MeasuredProduct> read_measured_products(const std::string& path, int every) {
  return ProductPointReader(path, every).read();
}

bool is_large(const ProductShape& shape) {
  return shape.m >= 2048 && shape.n >= 1024 && shape.k >= 1024;
}

CurveErrors errors_of(const std::vector<double>& predicted_over_measured) {
  CurveErrors errors{.points = predicted_over_measured.size()};
  if (errors.points == 0) return errors;
  std::vector<double> off, sizes;
  for (const double each : predicted_over_measured) {
    off.push_back(each - 1), sizes.push_back(std::abs(each - 1));
    errors.bias += off.back(), errors.mean += sizes.back();
  }
  errors.bias /= static_cast<double>(errors.points), errors.mean /= static_cast<double>(errors.points);
  errors.median = quantiles(std::move(sizes)).p50;
  const Quantiles spread = quantiles(std::move(off));
  errors.p5 = spread.p5, errors.p95 = spread.p95;
  return errors;
}

}  // namespace pipewright::io
