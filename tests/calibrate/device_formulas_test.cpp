// From readings to formulas: what was planted in a made-up device is found.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "calibrate/device_loop.hpp"
#include "calibrate/fit.hpp"
#include "tests/calibrate/made_up_device.hpp"

using namespace pipewright::tests;

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

TEST_CASE("Alpha and bandwidth of what several do together are found as they were planted") {
  MadeUp device;
  device.noise = 0.005;
  device.ns = [](const DeviceMeasurement& m) {  // hops of 3 us, links of 100 GB/s
    const double n = m.members;
    return 2 * (n - 1) * 3'000 + 2 * (n - 1) / n * m.size.values / 100;
  };
  device.refused = [](const DeviceMeasurement& m) { return m.rank == kBetweenGpus ? "there is one GPU" : ""; };
  auto list = last_of(kFourSplits);
  std::erase_if(list, [](const DeviceMeasurement& m) { return !collective(m.work); });
  DeviceSettings settings;
  settings.rule.error = 0.002, settings.rule.seconds = 1;
  MeasuredDevice measured = measure(device, list, settings);
  fit(measured);
  CHECK(measured.series.empty());
  CHECK(measured.left_out ==
        std::vector<std::string>{"fp32, there is one GPU: nccl all-gather (9), nccl all-reduce (9), "
                                 "nccl send (9), peer copy (18), peer copy through the host (18)"});
  REQUIRE(measured.collectives.size() == 3);
  int members = 2;
  for (const MeasuredCollective& each : measured.collectives) {
    CAPTURE(members);
    CHECK(each.operation == "ring all-reduce");
    CHECK(each.members == members);
    CHECK(each.virtual_devices == members);
    REQUIRE(each.sizes.size() == 9);
    CHECK(each.sizes.back().size.values == 256 << 20);
    CHECK(each.sizes.back().median_ns > 0);
    CHECK(alpha_ns(each) == doctest::Approx(3'000).epsilon(0.02));
    CHECK(bus_bandwidth(each) == doctest::Approx(100).epsilon(0.01));
    CHECK(each.covariance.size() == 3);
    CHECK(each.errors.mean < 0.02);
    members *= 2;
  }
}

TEST_CASE("Fewer busy others slow an operation less, where that was planted") {
  MadeUp device;
  device.ns = [](const DeviceMeasurement& m) { return 50'000 * (m.beside == nullptr ? 1 : 1 + 0.01 * (m.busy - 1)); };
  auto list = last_of({{8, 16}});
  std::erase_if(list, [](const DeviceMeasurement& m) { return m.beside == nullptr; });
  const MeasuredDevice measured = measure(device, list, {});
  std::map<int, int> pairs;
  for (const MeasuredPair& pair : measured.interference) {
    ++pairs[pair.others];
    CHECK(pair.slowdown == doctest::Approx(1 + 0.01 * (pair.others == 0 ? 7 : pair.others)));
  }
  CHECK(pairs == std::map<int, int>{{0, 30}, {1, 30}, {2, 30}, {4, 30}});
}

TEST_CASE("Bandwidths of copies to and from pageable memory are found as they were planted") {
  MadeUp device;
  device.noise = 0.005;
  device.ns = [](const DeviceMeasurement& m) {  // 4 bytes a value; 6 GB/s to the host, 9 GB/s from there
    return m.operation == "copy pageable to host" ? 12'000 + 4 * m.size.values / 6 : 8'000 + 4 * m.size.values / 9;
  };
  auto list = last_of({{1, 132}});
  std::erase_if(list, [](const DeviceMeasurement& m) { return !m.operation.starts_with("copy pageable"); });
  DeviceSettings settings;
  settings.rule.error = 0.002, settings.rule.seconds = 1;
  MeasuredDevice measured = measure(device, list, settings);
  fit(measured);
  REQUIRE(measured.series.size() == 2);
  CHECK(measured.series[0].operation == "copy pageable to device");
  for (const MeasuredSeries& series : measured.series) {
    const bool to_host = series.operation == "copy pageable to host";
    REQUIRE(series.formula.has_value());
    CHECK(4 / series.formula->per_value_ns == doctest::Approx(to_host ? 6 : 9).epsilon(0.01));
    CHECK(series.formula->fixed_ns == doctest::Approx(to_host ? 12'000 : 8'000).epsilon(0.02));
  }
}

TEST_CASE("What a launch takes one by one, in a graph, with an event and across streams is found as it was planted") {
  const std::map<std::string, std::pair<double, double>> planted = {{"launch one by one", {1'500, 2'100}},
                                                                    {"launch by graph", {6'000, 900}},
                                                                    {"launch and record", {1'500, 2'900}},
                                                                    {"launch across streams", {3'000, 5'000}}};
  MadeUp device;
  device.noise = 0.005;
  device.ns = [&](const DeviceMeasurement& m) {
    const auto& [once, each] = planted.at(m.operation);
    return once + each * static_cast<double>(m.size.rows);
  };
  auto list = last_of({{1, 132}});
  std::erase_if(list, [](const DeviceMeasurement& m) { return !m.operation.starts_with("launch "); });
  DeviceSettings settings;
  settings.rule.error = 0.001, settings.rule.seconds = 1;
  MeasuredDevice measured = measure(device, list, settings);
  fit(measured);
  REQUIRE(measured.series.size() == 4);
  for (const MeasuredSeries& series : measured.series) {
    CAPTURE(series.operation);
    const auto& [once, each] = planted.at(series.operation);
    REQUIRE(series.formula.has_value());
    CHECK(series.formula->per_value_ns == doctest::Approx(each).epsilon(0.01));
    CHECK(series.formula->fixed_ns == doctest::Approx(once).epsilon(0.05));
  }
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
