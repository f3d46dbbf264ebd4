#include "calibrate/device_loop.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "runtime/arena.hpp"

namespace pipewright {
namespace {

constexpr double kLongEnough = 50e3;  // ns: a hundred times the resolution of a GPU's events

std::string_view word(Precision precision) {
  constexpr std::array<std::string_view, 4> words = {"fp32", "tf32", "fp16", "bf16"};
  return words[static_cast<std::size_t>(precision)];
}

auto key_of(const DeviceMeasurement& m) {
  return std::tuple(m.operation, m.pass, m.precision, m.virtual_devices, m.busy);
}

class Loop {
 public:
  Loop(DeviceUnderTest& device, const std::vector<DeviceMeasurement>& list, const DeviceSettings& settings)
      : device_(device), list_(list), settings_(settings), end_(device.now() + settings.seconds) {}

  MeasuredDevice run() {
    MeasuredDevice measured = device_.facts();
    const DeviceMeasurement* again = nullptr;
    std::int64_t since = 0, done = 0;
    for (const DeviceMeasurement& m : list_) {
      if (settings_.progress) settings_.progress(m.operation, done, static_cast<std::int64_t>(list_.size()));
      ++done;
      if (device_.now() >= end_ && !(m.rank <= kEssential && m.virtual_devices == 1)) {
        leave_out(m, "no time was left");
        continue;
      }
      const double ns = time(m);
      if (ns == 0) continue;
      if (again == nullptr && ns >= kLongEnough) again = &m, repeated_ = {std::log(ns)};
      if (again == nullptr || ++since < settings_.again_after || device_.now() >= end_) continue;
      since = 0;
      repeat(*again);
    }
    if (again != nullptr) repeat(*again);
    warm();
    for (auto& [key, series] : series_)
      measured.series.push_back(std::move(series));
    for (MeasuredSeries& series : measured.series)
      std::sort(series.sizes.begin(), series.sizes.end(), [](const MeasuredSize& a, const MeasuredSize& b) {
        const auto key = [](const OperationSize& s) {
          return std::tuple(s.count, s.rows, s.columns, s.depth, s.values);
        };
        return key(a.size) < key(b.size);
      });
    measured.repeat_error = repeat_error();
    for (const auto& [why, operations] : left_out_) {
      std::string line = why.first + ", " + why.second + ":";
      for (const auto& [operation, count] : operations)
        line += fmt::format("{} {} ({})", line.back() == ':' ? "" : ",", operation, count);
      measured.left_out.push_back(line);
    }
    return measured;
  }

 private:
  // The mean; 0: nothing came of it.
  double time(const DeviceMeasurement& m) {
    if (const std::string why = device_.refusal(m); !why.empty()) return leave_out(m, why);
    Sampling cold;
    try {
      cold = sample(*device_.stopwatch(m, false), settings_.rule);
    } catch (const OutOfArena& error) {
      return leave_out(m, error.what());
    }
    if (cold.times.count == 0) return leave_out(m, "the clock stayed low");
    if (cold.times.mean <= 0) return leave_out(m, "too short for the device's clock");
    MeasuredSize size{m.size,
                      cold.times.mean,
                      0,
                      cold.error,
                      cold.times.spread(),
                      cold.clock,
                      static_cast<std::int64_t>(cold.times.count),
                      cold.discarded};
    MeasuredSeries& series = series_[key_of(m)];
    series.operation = m.operation, series.pass = m.pass, series.precision = m.precision;
    series.virtual_devices = m.virtual_devices, series.busy = m.busy;
    if (series.sms == 0) series.sms = device_.sms(m.virtual_devices);
    series.sizes.push_back(size);
    return size.ns;
  }

  // The same with inputs in the cache, in the same order, as long as the time lasts.
  void warm() {
    if (!settings_.warm) return;
    for (const DeviceMeasurement& m : list_) {
      const auto series = series_.find(key_of(m));
      if (m.work != DeviceWork::Step || series == series_.end()) continue;
      for (MeasuredSize& size : series->second.sizes) {
        if (!(size.size == m.size)) continue;
        if (device_.now() >= end_) {
          leave_out(m, "no time was left for warm inputs");
          continue;
        }
        const Sampling sampling = sample(*device_.stopwatch(m, true), settings_.rule);
        if (sampling.times.count > 0) size.warm_ns = sampling.times.mean;
      }
    }
  }

  void repeat(const DeviceMeasurement& m) {
    const Sampling once_more = sample(*device_.stopwatch(m, false), settings_.rule);
    if (once_more.times.count > 0 && once_more.times.mean > 0) repeated_.push_back(std::log(once_more.times.mean));
  }
  double repeat_error() const {
    if (repeated_.size() < 2) return 0;
    const double middle = mean(repeated_);
    double squares = 0;
    for (const double each : repeated_)
      squares += (each - middle) * (each - middle);
    return std::sqrt(squares / static_cast<double>(repeated_.size() - 1));
  }

  double leave_out(const DeviceMeasurement& m, const std::string& why) {
    ++left_out_[{std::string(word(m.precision)), why}][m.operation];
    return 0;
  }

  using Key = decltype(key_of(std::declval<const DeviceMeasurement&>()));

  DeviceUnderTest& device_;
  const std::vector<DeviceMeasurement>& list_;
  const DeviceSettings& settings_;
  double end_;
  std::map<Key, MeasuredSeries> series_;
  std::map<std::pair<std::string, std::string>, std::map<std::string, std::int64_t>> left_out_;
  std::vector<double> repeated_;  // ln of means of one measurement
};

}  // namespace

MeasuredDevice measure(DeviceUnderTest& device, const std::vector<DeviceMeasurement>& list,
                       const DeviceSettings& settings) {
  return Loop(device, list, settings).run();
}

}  // namespace pipewright
