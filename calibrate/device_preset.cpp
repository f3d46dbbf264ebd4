#include "calibrate/device_preset.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.hpp"
#include "core/cost/cost_model.hpp"

namespace pipewright::calibrate {
namespace {

bool whole(const MeasuredSeries& series) {
  return series.virtual_devices == 1 && !series.sizes.empty();
}

double bytes_of(const MeasuredSeries& series, const MeasuredSize& size) {
  return size.size.values * static_cast<double>(weight_bytes(series.precision).value);
}

std::string source_of(const MeasuredDevice& measured, const std::string& what) {
  return fmt::format("{} on {}, {}", what, measured.gpu, measured.date);
}

// Median of shares, and half of the distance between 5 and 95 % of them, relative to it.
Efficiency efficiency_of(std::vector<double> shares, std::string source) {
  const auto at = [&](double rank) {
    return shares[static_cast<std::size_t>(rank * static_cast<double>(shares.size() - 1))];
  };
  std::ranges::sort(shares);
  const auto rounded = [](double x) { return std::round(x * 1000) / 1000; };
  Efficiency e;
  const double share = std::clamp(rounded(at(0.5)), 0.001, 1.0);
  e.curve = {{1.0, share}};
  e.band = std::clamp(rounded((at(0.95) - at(0.05)) / 2 / share), 0.0, 0.999);
  e.provenance = Provenance::Measured, e.source = std::move(source);
  return e;
}

// As the presets of devices of which no measurement is known.
constexpr Bytes kAssumedReserve{std::int64_t{3} << 29};

struct Assumed {
  OperatorKind kind;
  double share, band;
  const char* why;
};
// As configs/devices/*.yaml have them.
constexpr Assumed kAssumed[] = {
    {OperatorKind::MatrixProduct, 0.55, 0.3, "large matrix products of training reach 40 to 70 % of the dense peak"},
    {OperatorKind::Convolution, 0.5, 0.3, "as matrix products, a little less for the gathering of windows"},
    {OperatorKind::GroupedConvolution, 0.1, 0.5, "few multiplications per value read: far below dense convolutions"},
    {OperatorKind::Attention, 0.4, 0.3, "many small products per head"},
    {OperatorKind::Recurrent, 0.3, 0.5, "every step waits for the one before"},
    {OperatorKind::Memory, 0.8, 0.15, "streaming kernels reach 70 to 90 % of the stated bandwidth"},
};

std::optional<OperatorKind> kind_of(const MeasuredSeries& series) {
  if (series.operation == "linear") return OperatorKind::MatrixProduct;
  if (series.operation == "conv2d") return OperatorKind::Convolution;
  if (series.operation == "attention") return OperatorKind::Attention;
  const bool other = series.operation.starts_with("copy") || series.operation.starts_with("launch") ||
                     series.operation.starts_with("update");
  return other ? std::nullopt : std::optional(OperatorKind::Memory);
}

void add_peaks(Device& device, const MeasuredDevice& measured) {
  double bandwidth = 0, most = 0;
  std::map<Precision, double> peaks;  // FLOPs per ns
  for (const MeasuredSeries& series : measured.series) {
    if (!whole(series)) continue;
    for (const MeasuredSize& size : series.sizes) {
      if (series.operation == "copy" && size.size.values > most)
        most = size.size.values, bandwidth = bytes_of(series, size) / size.ns;
      if (series.operation == "linear")
        peaks[series.precision] = std::max(peaks[series.precision], size.size.work() / size.ns);
    }
    if (series.operation == "launch") device.launch_overhead = {std::llround(series.sizes.front().ns)};
  }
  if (bandwidth == 0 || peaks.empty()) {
    constexpr std::ptrdiff_t kTold = 3;
    const bool parts_only =
        !measured.series.empty() &&
        std::ranges::none_of(measured.series, [](const MeasuredSeries& series) { return whole(series); });
    const auto& left_out = measured.left_out;
    const auto end = left_out.begin() + std::min(kTold, std::ssize(left_out));
    throw InputError(fmt::format(
        "no product and no copy of the whole device was measured, from which a preset has its peaks{}{}{}{}",
        parts_only ? "; add 1 to --virtual-devices" : "", left_out.empty() ? "" : ". Left out: ",
        fmt::join(left_out.begin(), end, "; "), end == left_out.end() ? "" : "; ..."));
  }
  constexpr std::string_view kKeys[] = {"fp32", "tf32", "fp16", "bf16"};
  for (const auto& [precision, rate] : peaks) {
    device.peak[precision] = FlopRate{std::round(rate * 1e3) * 1e6};
    device.sources[fmt::format("peak.{}", kKeys[static_cast<std::size_t>(precision)])] =
        source_of(measured, "the fastest product measured");
  }
  device.memory_bandwidth = Bandwidth{std::round(bandwidth * 1e3) * 1e6};
  device.sources["memory_bandwidth"] = source_of(measured, "the largest copy measured, read and written");
}

}  // namespace

Device preset_of(const MeasuredDevice& measured, const std::string& name, Bytes memory) {
  Device device;
  device.name = name, device.memory = memory;
  device.sources["memory"] = source_of(measured, "as CUDA reports it");
  device.provenances["memory"] = Provenance::Measured;
  device.reserve = std::min(kAssumedReserve, Bytes{memory.value / 8});
  device.sources["reserve"] = "assumed: context and communicators took 1.08 to 1.43 GiB where that was measured";
  device.provenances["reserve"] = Provenance::Assumed;
  add_peaks(device, measured);
  std::vector<double> shares[kOperatorKinds];
  for (const MeasuredSeries& series : measured.series) {
    const std::optional<OperatorKind> kind = kind_of(series);
    if (!whole(series) || !kind) continue;
    const auto peak = device.peak.find(series.precision);
    for (const MeasuredSize& size : series.sizes) {
      const double share = *kind == OperatorKind::Memory
                               ? bytes_of(series, size) / size.ns * 1e9 / device.memory_bandwidth->value
                           : peak == device.peak.end() ? 0
                                                       : size.size.work() / size.ns * 1e9 / peak->second.value;
      if (share > 0) shares[static_cast<std::size_t>(*kind)].push_back(share);
    }
  }
  for (const Assumed& assumed : kAssumed) {
    const auto kind = static_cast<std::size_t>(assumed.kind);
    if (!shares[kind].empty()) {
      device.efficiency[kind] =
          efficiency_of(std::move(shares[kind]), source_of(measured, "median of the sizes measured"));
      continue;
    }
    Efficiency e;
    e.curve = {{1.0, assumed.share}}, e.band = assumed.band, e.provenance = Provenance::Assumed;
    e.source = std::string("assumed, the same for all devices: ") + assumed.why;
    device.efficiency[kind] = e;
  }
  device.source = fmt::format("pipewright calibrate, {}", measured.date);
  device.measured = std::make_shared<const MeasuredDevice>(measured);
  return device;
}

}  // namespace pipewright::calibrate
