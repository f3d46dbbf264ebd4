// The list and the loop of a device's calibration, on a device that is made up.
#include "calibrate/device_loop.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include <doctest/doctest.h>

#include "calibrate/fit.hpp"
#include "core/model/layer_builder.hpp"

using namespace pipewright;

namespace {

// Times follow from `ns` and noise; a clock of its own goes on with each reading.
class MadeUp : public DeviceUnderTest {
 public:
  std::function<double(const DeviceMeasurement&)> ns = [](const DeviceMeasurement& m) {
    return 1'000 + 0.01 * m.size.values + 1e-4 * m.size.work();
  };
  std::function<std::string(const DeviceMeasurement&)> refused = [](const DeviceMeasurement&) { return ""; };
  double noise = 0, clock = 1, drift = 0;  // drift: per second of its clock

  MeasuredDevice facts() const override {
    MeasuredDevice m;
    m.gpu = "made up", m.sms = 132;
    return m;
  }
  Bytes memory() const override { return Bytes{1 << 30}; }
  int sms(int virtual_devices) override { return 128 / virtual_devices; }
  std::string refusal(const DeviceMeasurement& m) override { return refused(m); }
  std::unique_ptr<Stopwatch> stopwatch(const DeviceMeasurement& m, bool warm) override {
    if (!warm) timed.push_back(text(m));
    return std::make_unique<Watch>(*this, m, warm);
  }
  double now() override { return now_; }

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

   private:
    MadeUp& device_;
    DeviceMeasurement m_;
    bool warm_;
  };
  double now_ = 0;
  std::mt19937 random_{1};
  std::normal_distribution<double> normal_;
};

Model small_model() {
  Model model;
  LayerBuilder b;
  const auto x = b.input({16, 4});
  model.works = {b.finish({b.activation(b.linear(b.norm(x, {Norm::Layer}), {.features = 12}), Activation::Gelu)})};
  return model;
}

DeviceMeasurement values(const char* operation, double count, int rank = 0) {
  DeviceMeasurement m;
  m.operation = operation, m.rank = rank;
  m.size = {1, static_cast<std::int64_t>(count), 1, 0, count};
  return m;
}

std::vector<DeviceMeasurement> moves(int count) {
  std::vector<DeviceMeasurement> list;
  for (int i = 1; i <= count; ++i)
    list.push_back(values("gelu", 1e6 * i));
  return list;
}

}  // namespace

TEST_CASE("The list begins with the steps of the models asked about, alone and all busy first, and has nothing twice") {
  const Model model = small_model();
  const auto list = device_measurements({{&model, {2, 8}}}, {{1, 132}, {2, 64}, {4, 32}});
  // 2 samples of 16 x 4 values, read and written, and 8 parameters.
  CHECK(text(list.front()) == "copy forward fp32, 8388608 values; 1 of 1 virtual devices, 1 busy");
  const auto first = std::find_if(list.begin(), list.end(), [](const auto& m) { return m.rank == 0; });
  REQUIRE(first != list.end());
  CHECK(text(*first) == "layer_norm forward bf16, 264 values; 1 of 1 virtual devices, 1 busy");
  std::set<std::string> seen;
  int last_rank = kEssential;
  for (const DeviceMeasurement& m : list) {
    CHECK(m.rank >= last_rank);
    last_rank = m.rank;
    CHECK(seen.insert(text(m) + std::to_string(m.size.rows) + " " + std::to_string(m.size.values)).second);
    if (m.work == DeviceWork::Step) REQUIRE(m.program.get() != nullptr);
    CHECK(m.busy <= m.virtual_devices);
    CHECK(m.size.work() <= 2.0 * 4096 * 4096 * 4096 / m.virtual_devices);
  }
}

TEST_CASE("Fp16 and tf32 come after all of bf16 and fp32") {
  const auto list = device_measurements({}, {{1, 132}, {8, 16}});
  const auto later = [](const DeviceMeasurement& m) {
    return m.precision == Precision::Fp16 || m.precision == Precision::Tf32;
  };
  const auto first = std::find_if(list.begin(), list.end(), later);
  REQUIRE(first != list.end());
  CHECK(std::all_of(first, list.end(), later));
  // Every number of busy virtual devices of 8, the ones between after both ends of their rank.
  std::vector<int> busy;
  for (const DeviceMeasurement& m : list)
    if (m.operation == "linear" && m.rank == 2 && m.virtual_devices == 8 && (busy.empty() || busy.back() != m.busy))
      busy.push_back(m.busy);
  CHECK(busy == std::vector<int>{1, 8, 2, 4});
}

TEST_CASE("Products stand one row before, at and behind full waves of the SMs") {
  std::set<std::int64_t> rows;
  for (const DeviceMeasurement& m : device_measurements({}, {{1, 132}}))
    if (m.operation == "linear" && m.size.columns == 1024 && m.size.depth == 1024) rows.insert(m.size.rows);
  // 16.5 tiles down and 8 across fill 132 SMs: 2112 rows.
  for (const std::int64_t at : {2111, 2112, 2113, 4223, 4224, 4225})
    CHECK(rows.count(at) == 1);
}

TEST_CASE("The loop times everything, cold and warm, and keeps what each reading said") {
  MadeUp device;
  const auto list = moves(5);
  const MeasuredDevice measured = measure(device, list, {});
  REQUIRE(measured.series.size() == 1);
  const MeasuredSeries& series = measured.series.front();
  CHECK(series.operation == "gelu");
  CHECK(series.sms == 128);
  REQUIRE(series.sizes.size() == 5);
  CHECK(series.sizes[1].ns == doctest::Approx(21'000));
  CHECK(series.sizes[1].warm_ns == doctest::Approx(10'500));
  CHECK(series.sizes[1].readings == 10);
  CHECK(measured.left_out.empty());
  CHECK(measured.repeat_error == 0);
  CHECK(measured.gpu == "made up");
}

TEST_CASE("A budget leaves out the end of the list, and names it") {
  MadeUp device;
  device.ns = [](const DeviceMeasurement&) { return 1e6; };  // 10 readings of 1 ms
  auto list = moves(20);
  list.push_back(values("relu", 1e6, 10));
  DeviceSettings settings;
  settings.seconds = 0.095;
  settings.warm = false;
  const MeasuredDevice measured = measure(device, list, settings);
  REQUIRE(measured.series.size() == 1);
  CHECK(measured.series[0].sizes.size() == 10);
  CHECK(measured.series[0].sizes.back().size.values == 1e7);  // the first ten of the list
  CHECK(measured.left_out == std::vector<std::string>{"fp32, no time was left: gelu (10), relu (1)"});
}

TEST_CASE("What the device refuses and what stays slow is left out with the reason") {
  MadeUp device;
  device.refused = [](const DeviceMeasurement& m) { return m.operation == "relu" ? "not written for it" : ""; };
  auto list = moves(2);
  list.push_back(values("relu", 1));
  CHECK(measure(device, list, {}).left_out == std::vector<std::string>{"fp32, not written for it: relu (1)"});
  device.clock = 0.5;
  const MeasuredDevice slow = measure(device, moves(2), {});
  CHECK(slow.series.empty());
  CHECK(slow.left_out == std::vector<std::string>{"fp32, the clock stayed low: gelu (2)"});
  device.clock = 1;
  device.ns = [](const DeviceMeasurement&) { return 0; };
  CHECK(measure(device, moves(1), {}).left_out ==
        std::vector<std::string>{"fp32, too short for the device's clock: gelu (1)"});
}

TEST_CASE("A measurement that is repeated shows how far the device drifts") {
  MadeUp device;
  device.drift = 0.1;  // a tenth slower per second of its own time
  DeviceSettings settings;
  settings.again_after = 10;
  settings.warm = false;
  device.ns = [](const DeviceMeasurement&) { return 1e6; };
  const MeasuredDevice drifted = measure(device, moves(40), settings);  // about 0.5 s: 5 % in all
  CHECK(drifted.repeat_error > 0.01);
  CHECK(drifted.repeat_error < 0.03);
}

TEST_CASE("The same times give the same device, whatever was timed first") {
  auto list = moves(6);
  for (DeviceMeasurement& m : list)
    if (m.size.values > 3e6) m.operation = "copy";
  MadeUp one, other;
  const MeasuredDevice forwards = measure(one, list, {});
  std::reverse(list.begin(), list.end());
  MeasuredDevice backwards = measure(other, list, {});
  CHECK(forwards == backwards);
}

TEST_CASE("From readings to formulas: a made-up device of known formulas is found within 1 %") {
  MadeUp device;
  device.noise = 0.01;
  const TimeFormula planted = {
      .terms = SizeTerms::Waves, .fixed_ns = 3'000, .per_wave_ns = 2'000, .per_wave_depth_ns = 25};
  device.ns = [&](const DeviceMeasurement& m) {
    return m.operation == "linear" ? planted.at(m.size, 128) : 2'000 + 0.0001 * m.size.values;
  };
  std::vector<DeviceMeasurement> list = device_measurements({}, {{1, 132}});
  std::erase_if(list, [](const DeviceMeasurement& m) {
    return m.precision != Precision::Fp32 || m.pass != MeasuredPass::Forward ||
           !(m.operation == "linear" || m.operation == "gelu");
  });
  DeviceSettings settings;
  settings.warm = false;
  settings.rule.error = 0.01, settings.rule.seconds = 0.001;
  MeasuredDevice measured = measure(device, list, settings);
  fit(measured);
  REQUIRE(measured.series.size() == 2);
  const auto close = [](double found, double value) { CHECK(found == doctest::Approx(value).epsilon(0.01)); };
  const MeasuredSeries &gelu = measured.series[0], &linear = measured.series[1];
  REQUIRE(linear.formula.has_value());
  close(linear.formula->per_wave_depth_ns, 25);
  close(linear.formula->fixed_ns + linear.formula->per_wave_ns, 5'000);
  CHECK(linear.errors.mean < 0.01);
  REQUIRE(gelu.formula.has_value());
  close(gelu.formula->fixed_ns, 2'000);
  close(gelu.formula->per_value_ns, 0.0001);
}
