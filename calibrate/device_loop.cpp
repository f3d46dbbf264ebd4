#include "calibrate/device_loop.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/ending.hpp"
#include "core/folds.hpp"
#include "kernels/gpu_api.hpp"
#include "runtime/arena.hpp"
#include "runtime/runnable.hpp"

namespace pipewright::calibrate {
namespace {

constexpr double kLongEnough = 50e3;  // ns: a hundred times the resolution of a GPU's events

auto key_of(const DeviceMeasurement& m) {
  return std::tuple(m.operation, m.pass, m.precision, m.virtual_devices, m.busy);
}

auto key_of(const OperationSize& s) {
  return std::tuple(s.count, s.rows, s.columns, s.depth, s.values);
}

auto key_of(const MeasuredPair& p) {
  const int others = p.others > 0 ? p.others : p.virtual_devices;
  return std::tuple(p.operation, p.beside, p.precision, p.beside_precision, p.virtual_devices, -others, key_of(p.size),
                    key_of(p.beside_size));
}

// What is compared with a reference once. A library chooses how it multiplies by the SMs that it may use.
auto pass_of(const DeviceMeasurement& m) {
  const int split = m.operation == "linear" ? m.virtual_devices : 0;
  return std::tuple(m.operation, m.pass, m.precision, split, m.members, m.from, m.to);
}
auto effort(const DeviceMeasurement& m) {
  return std::tuple(m.size.work(), m.size.values);
}

class Loop {
 public:
  Loop(DeviceUnderTest& device, const std::vector<DeviceMeasurement>& list, const DeviceSettings& settings)
      : device_(device), list_(list), settings_(settings), end_(device.now() + settings.seconds) {
    for (const DeviceMeasurement& m : list)
      for (const DeviceMeasurement* const one : {&m, m.beside.get()})
        if (one != nullptr) {
          const DeviceMeasurement*& least = smallest_[pass_of(*one)];
          if (least == nullptr || effort(*one) < effort(*least)) least = one;
        }
  }

  MeasuredDevice run() {
    MeasuredDevice measured = device_.facts();
    const DeviceMeasurement* again = nullptr;
    std::int64_t since = 0, done = 0;
    for (const DeviceMeasurement& m : list_) {
      if (settings_.progress) settings_.progress(label(m), done, static_cast<std::int64_t>(list_.size()));
      ++done;
      if (lost_.empty() && asked_to_end() != 0) lost_ = interrupted_by();
      if (!lost_.empty()) {
        leave_out(m, lost_);
        continue;
      }
      if (device_.now() >= end_ && !(m.rank <= kEssential && m.virtual_devices == 1)) {
        // Whether there are several GPUs is known at once; other refusals may have to cut the GPU anew.
        const std::string why = m.rank == kBetweenGpus ? refused(m) : "";
        leave_out(m, why.empty() ? "no time was left" : why);
        continue;
      }
      if (m.beside != nullptr) {
        time_pair(m);
        continue;
      }
      const double ns = time(m);
      if (ns == 0) continue;
      if (again == nullptr && ns >= kLongEnough) again = &m, repeated_ = {std::log(ns)};
      if (again == nullptr || ++since < settings_.again_after || device_.now() >= end_) continue;
      since = 0;
      repeat(*again);
    }
    if (again != nullptr && lost_.empty()) repeat(*again);
    warm();
    for (auto& [key, series] : series_)
      measured.series.push_back(std::move(series));
    for (MeasuredSeries& series : measured.series)
      std::ranges::sort(series.sizes,
                        [](const MeasuredSize& a, const MeasuredSize& b) { return key_of(a.size) < key_of(b.size); });
    std::ranges::sort(pairs_, [](const MeasuredPair& a, const MeasuredPair& b) { return key_of(a) < key_of(b); });
    measured.interference = std::move(pairs_);
    for (auto& [key, each] : collectives_) {
      std::ranges::sort(each.sizes,
                        [](const MeasuredSize& a, const MeasuredSize& b) { return key_of(a.size) < key_of(b.size); });
      measured.collectives.push_back(std::move(each));
    }
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
  // Why `work` failed, or "".
  template <class Work>
  std::string failure(const Work& work) {
    const auto words = [&](const std::runtime_error& error) {
      if (const std::string why = device_.lost(); !why.empty()) lost_ = fmt::format("{}: {}", kLost, why);
      return std::string(error.what());
    };
    try {
      work();
      return "";
    } catch (const OutOfArena& error) {
      return words(error);
    } catch (const NotTimed& error) {
      return words(error);
    } catch (const GpuError& error) {
      return words(error);
    }
  }

  // With inputs that are in no cache. Nothing: `told` is left out, with the reason.
  std::optional<Sampling> sampled(const DeviceMeasurement& m, const DeviceMeasurement& told) {
    Sampling cold;
    const std::string failed = failure([&] {
      const std::unique_ptr<Stopwatch> watch = device_.stopwatch(m, false);
      cold = sample(*watch, settings_.rule);
      algorithm_ = watch->algorithm();
    });
    if (!failed.empty()) return leave_out(told, failed), std::nullopt;
    if (cold.times.count == 0) return leave_out(told, "the clock stayed low"), std::nullopt;
    if (cold.times.mean <= 0) return leave_out(told, "too short for the device's clock"), std::nullopt;
    return cold;
  }

  // Of the smallest of the list, cut as `m` is. Where it throws it is asked for again with the next measurement.
  const std::optional<NumericCheck>& checked(const DeviceMeasurement& m) {
    const PassKey key = pass_of(m);
    if (const auto found = checks_.find(key); found != checks_.end()) return found->second;
    DeviceMeasurement one = *smallest_.at(key);
    one.virtual_devices = m.virtual_devices, one.busy = 1, one.beside = nullptr;
    std::optional<NumericCheck> check;
    try {
      if (device_.refusal(one).empty()) check = device_.check(one);
    } catch (const OutOfArena&) {  // told where it is timed
    }
    compared_on_[key] = m.virtual_devices;
    if (check && !check->right()) wrong_[key] = wrong_result(one, *check);
    return checks_[key] = check;
  }
  std::string wrong(const DeviceMeasurement& m) {
    static_cast<void>(checked(m));
    const auto found = wrong_.find(pass_of(m));
    return found == wrong_.end() ? "" : found->second;
  }
  std::string refused(const DeviceMeasurement& m) {
    std::string why;
    const std::string failed = failure([&] { why = device_.refusal(m); });
    return failed.empty() ? why : failed;
  }
  // Why it is left out before it is timed, or "".
  std::string refusal(const DeviceMeasurement& m) {
    std::string why;
    const std::string failed = failure([&] {
      why = device_.refusal(m);
      if (why.empty()) why = wrong(m);
      if (!why.empty() || m.beside == nullptr) return;
      why = wrong(*m.beside);
      if (!why.empty()) why = m.beside->operation + " beside it: " + why;
    });
    return failed.empty() ? why : failed;
  }

  // The mean; 0: nothing came of it.
  double time(const DeviceMeasurement& m) {
    if (const std::string why = refusal(m); !why.empty()) return leave_out(m, why);
    const std::optional<Sampling> sampling = sampled(m, m);
    if (!sampling) return 0;
    const Sampling& cold = *sampling;
    MeasuredSize size{m.size,
                      cold.times.mean,
                      0,
                      cold.error,
                      cold.times.spread(),
                      cold.clock,
                      static_cast<std::int64_t>(cold.times.count),
                      cold.discarded,
                      cold.times.least,
                      cold.times.median,
                      algorithm_};
    if (collective(m.work)) {
      MeasuredCollective& each = collectives_[std::tuple(m.operation, m.virtual_devices, m.members, m.from, m.to)];
      each.operation = m.operation, each.virtual_devices = m.virtual_devices, each.members = m.members;
      each.from = m.from, each.to = m.to;
      each.sizes.push_back(size);
      return size.ns;
    }
    MeasuredSeries& series = series_[key_of(m)];
    series.operation = m.operation, series.pass = m.pass, series.precision = m.precision;
    series.virtual_devices = m.virtual_devices, series.busy = m.busy;
    if (series.sms == 0) series.sms = device_.sms(m.virtual_devices);
    if (const auto& check = checked(m); check && compared_on_.at(pass_of(m)) == m.virtual_devices)
      series.result_error = check->error;
    series.sizes.push_back(size);
    return size.ns;
  }

  // Alone, and beside the other at once after that, so that the device is as warm.
  void time_pair(const DeviceMeasurement& m) {
    if (const std::string why = refusal(m); !why.empty()) {
      leave_out(m, why);
      return;
    }
    DeviceMeasurement one = m;
    one.beside = nullptr, one.busy = 1;
    const std::optional<Sampling> alone = sampled(one, m);
    if (!alone) return;
    const std::optional<Sampling> beside = sampled(m, m);
    if (!beside) return;
    MeasuredPair pair;
    pair.operation = m.operation, pair.beside = m.beside->operation;
    pair.precision = m.precision, pair.beside_precision = m.beside->precision;
    pair.virtual_devices = m.virtual_devices, pair.sms = device_.sms(m.virtual_devices);
    if (m.busy < m.virtual_devices) pair.others = m.busy - 1;
    pair.size = m.size, pair.beside_size = m.beside->size;
    pair.alone_ns = alone->times.mean, pair.slowdown = beside->times.mean / alone->times.mean;
    pair.error = std::hypot(alone->error, beside->error);
    pair.spread = beside->times.spread(), pair.alone_spread = alone->times.spread(), pair.clock = beside->clock;
    pair.readings = static_cast<std::int64_t>(beside->times.count), pair.discarded = beside->discarded;
    pairs_.push_back(std::move(pair));
  }

  // The same with inputs in the cache, in the same order, as long as the time lasts.
  void warm() {
    if (!settings_.warm) return;
    for (const DeviceMeasurement& m : list_) {
      const auto series = series_.find(key_of(m));
      const bool step = m.work == DeviceWork::Step || m.work == DeviceWork::Dropout;
      if (!step || m.large || m.beside != nullptr || series == series_.end()) continue;
      for (MeasuredSize& size : series->second.sizes) {
        if (!(size.size == m.size)) continue;
        if (lost_.empty() && asked_to_end() != 0) lost_ = interrupted_by();
        if (!lost_.empty() || device_.now() >= end_) {
          leave_out(m, lost_.empty() ? "no time was left for warm inputs" : "for warm inputs " + lost_);
          continue;
        }
        Sampling sampling;
        const std::string failed = failure([&] { sampling = sample(*device_.stopwatch(m, true), settings_.rule); });
        if (!failed.empty())
          leave_out(m, "with warm inputs: " + failed);
        else if (sampling.times.count > 0)
          size.warm_ns = sampling.times.mean;
      }
    }
  }

  void repeat(const DeviceMeasurement& m) {
    Sampling once_more;
    // What it took before stays where this fails.
    static_cast<void>(failure([&] { once_more = sample(*device_.stopwatch(m, false), settings_.rule); }));
    if (once_more.times.count > 0 && once_more.times.mean > 0) repeated_.push_back(std::log(once_more.times.mean));
  }
  double repeat_error() const {
    if (repeated_.size() < 2) return 0;
    const double middle = mean(repeated_);
    auto squares = sum_over<double>(repeated_, [&](const double each) { return (each - middle) * (each - middle); });
    return std::sqrt(squares / static_cast<double>(repeated_.size() - 1));
  }

  double leave_out(const DeviceMeasurement& m, const std::string& why) {
    ++left_out_[{std::string(name_of(m.precision)), why}][label(m)];
    return 0;
  }

  using Key = decltype(key_of(std::declval<const DeviceMeasurement&>()));

  DeviceUnderTest& device_;
  const std::vector<DeviceMeasurement>& list_;
  const DeviceSettings& settings_;
  double end_;
  std::map<Key, MeasuredSeries> series_;
  using PassKey = decltype(pass_of(std::declval<const DeviceMeasurement&>()));
  std::map<PassKey, const DeviceMeasurement*> smallest_;
  std::map<PassKey, std::optional<NumericCheck>> checks_;
  std::map<PassKey, int> compared_on_;  // virtual devices
  std::map<PassKey, std::string> wrong_;
  std::vector<MeasuredPair> pairs_;
  std::map<std::tuple<std::string, int, int, int, int>, MeasuredCollective> collectives_;
  std::optional<ProductAlgorithm> algorithm_;  // of what was sampled last
  std::map<std::pair<std::string, std::string>, std::map<std::string, std::int64_t>> left_out_;
  std::string lost_;              // why nothing more is timed, or ""
  std::vector<double> repeated_;  // ln of means of one measurement
};

}  // namespace

std::string lost_line(const MeasuredDevice& measured) {
  for (const std::string& line : measured.left_out)
    if (line.find(kLost) != std::string::npos) return line;
  return "";
}

MeasuredDevice measure(DeviceUnderTest& device, const std::vector<DeviceMeasurement>& list,
                       const DeviceSettings& settings) {
  return Loop(device, list, settings).run();
}

}  // namespace pipewright::calibrate
