// A device whose times follow from a formula, and short lists of what to measure.
#pragma once

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/device_loop.hpp"
#include "core/model/layer_builder.hpp"

namespace pipewright::tests {

// Times follow from `ns` and noise; a clock of its own goes on with each reading.
class MadeUp : public DeviceUnderTest {
 public:
  std::function<double(const DeviceMeasurement&)> ns = [](const DeviceMeasurement& m) {
    return 1'000 + 0.01 * m.size.values + 1e-4 * m.size.work();
  };
  std::function<std::string(const DeviceMeasurement&)> refused = [](const DeviceMeasurement&) { return ""; };
  std::string gone;                        // why nothing more can be timed
  double noise = 0, clock = 1, drift = 0;  // drift: per second of its clock

  MeasuredDevice facts() const override {
    MeasuredDevice m;
    m.gpu = "made up", m.sms = 132;
    return m;
  }
  Bytes memory() const override { return Bytes{1 << 30}; }
  int sms(int virtual_devices) override { return 128 / virtual_devices; }
  std::string refusal(const DeviceMeasurement& m) override { return refused(m); }
  std::string lost() override { return gone; }
  std::unique_ptr<Stopwatch> stopwatch(const DeviceMeasurement& m, bool warm) override {
    if (!warm) timed.push_back(text(m));
    return std::make_unique<Watch>(*this, m, warm);
  }
  std::optional<NumericCheck> check(const DeviceMeasurement& m) override {
    checked.push_back(text(m));
    return result(m);
  }
  double now() override { return now_; }

  std::function<std::optional<NumericCheck>(const DeviceMeasurement&)> result = [](const DeviceMeasurement&) {
    return std::nullopt;
  };
  std::vector<std::string> checked;

  std::optional<ProductAlgorithm> algorithm = std::nullopt;
  std::vector<std::string> timed;

 private:
  class Watch : public Stopwatch {
   public:
    Watch(MadeUp& device, DeviceMeasurement m, bool warm) : device_(device), m_(std::move(m)), warm_(warm) {}
    Reading time() override {
      const double ns = device_.ns(m_) * (warm_ ? 0.5 : 1) * (1 + device_.drift * device_.now_) *
                        std::exp(device_.noise * device_.normal_(device_.random_));
      device_.now_ += ns * 1e-9;
      return {ns, device_.clock};
    }
    void pause(double seconds) override { device_.now_ += seconds; }
    std::optional<ProductAlgorithm> algorithm() const override { return device_.algorithm; }

   private:
    MadeUp& device_;
    DeviceMeasurement m_;
    bool warm_;
  };
  double now_ = 0;
  std::mt19937 random_{1};
  std::normal_distribution<double> normal_;
};

inline Model small_model() {
  Model model;
  LayerBuilder b;
  const auto x = b.input({16, 4});
  model.works = {b.finish({b.activation(b.linear(b.norm(x, {Norm::Layer}), {.features = 12}), Activation::Gelu)})};
  return model;
}

inline DeviceMeasurement values(const char* operation, double count, int rank = 0) {
  DeviceMeasurement m;
  m.operation = operation, m.rank = rank;
  m.size = {1, static_cast<std::int64_t>(count), 1, 0, count};
  return m;
}

inline std::vector<DeviceMeasurement> moves(int count) {
  std::vector<DeviceMeasurement> list;
  for (int i = 1; i <= count; ++i)
    list.push_back(values("gelu", 1e6 * i));
  return list;
}

// What nothing is priced by, which comes last.
inline std::vector<DeviceMeasurement> last_of(const std::vector<DeviceSplit>& splits) {
  auto list = device_measurements({}, splits);
  std::erase_if(list, [](const DeviceMeasurement& m) { return m.rank < kByTheHost; });
  return list;
}

inline const std::vector<DeviceSplit> kFourSplits = {{1, 132}, {2, 64}, {4, 32}, {8, 16}};

}  // namespace pipewright::tests
