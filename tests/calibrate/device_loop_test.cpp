// The loop of a device's calibration, on a device that is made up: what is timed, and what is left out.
#include "calibrate/device_loop.hpp"

#include <algorithm>
#include <map>
#include <string>

#include <doctest/doctest.h>

#include "calibrate/between_gpus.hpp"
#include "runtime/arena.hpp"
#include "tests/calibrate/made_up_device.hpp"

using namespace pipewright::tests;

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
  CHECK(series.sizes[1].least_ns == doctest::Approx(21'000));
  CHECK(series.sizes[1].median_ns == doctest::Approx(21'000));
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

TEST_CASE("An operation with a wrong result is left out with its error, size and limit, and so is what pairs with it") {
  MadeUp device;
  device.result = [](const DeviceMeasurement& m) {
    return std::optional(NumericCheck{m.operation == "relu" ? 0.31 : 3e-7, 2e-5});
  };
  auto list = moves(3);
  for (const double size : {5e6, 2e6, 7e6})
    list.push_back(values("relu", size));
  DeviceMeasurement pair = values("gelu", 1e6, kPairs);
  pair.beside = std::make_shared<DeviceMeasurement>(values("relu", 4e6));
  list.push_back(pair);
  const MeasuredDevice measured = measure(device, list, {});
  CHECK(measured.left_out ==
        std::vector<std::string>{
            "fp32, its result is wrong (forward of 2000000 values: off by 0.31, allowed 2e-05): relu (3)",
            "fp32, relu beside it: its result is wrong (forward of 2000000 values: off by 0.31, allowed 2e-05): gelu "
            "beside relu fp32 (1)"});
  REQUIRE(measured.series.size() == 1);
  CHECK(measured.series[0].operation == "gelu");
  CHECK(measured.series[0].result_error == 3e-7);
  // Once for every operation, at its smallest size, and never what is timed.
  CHECK(device.checked ==
        std::vector<std::string>{"gelu forward fp32, 1000000 values; 1 of 1 virtual devices, 1 busy",
                                 "relu forward fp32, 2000000 values; 1 of 1 virtual devices, 1 busy"});
  device.result = [](const DeviceMeasurement&) { return std::optional(NumericCheck{std::nan(""), 2e-5}); };
  CHECK(measure(device, moves(1), {}).series.empty());  // no number is not right
}

TEST_CASE("A reading that fails leaves its measurement out, and the rest is timed") {
  MadeUp device;
  device.ns = [](const DeviceMeasurement& m) -> double {
    if (m.operation == "relu") throw NotTimed("ncclAllReduce: unhandled system error");
    return 1e6;
  };
  auto list = moves(2);
  list.insert(list.begin(), values("relu", 1e6));
  list.push_back(values("relu", 2e6));
  const MeasuredDevice measured = measure(device, list, {});
  REQUIRE(measured.series.size() == 1);
  CHECK(measured.series[0].sizes.size() == 2);
  CHECK(measured.left_out == std::vector<std::string>{"fp32, ncclAllReduce: unhandled system error: relu (2)"});
  // One that is repeated and fails then costs the repetition alone.
  bool fails = false;
  device.ns = [&](const DeviceMeasurement&) -> double {
    if (fails) throw NotTimed("lost");
    return 1e6;
  };
  DeviceSettings settings;
  settings.again_after = 1, settings.warm = false;
  settings.progress = [&](const std::string&, std::int64_t done, std::int64_t) { fails = done == 2; };
  const MeasuredDevice repeated = measure(device, moves(3), settings);
  REQUIRE(repeated.series.size() == 1);
  CHECK(repeated.series[0].sizes.size() == 2);
}

TEST_CASE("A call of the GPU that fails, or memory that is not there, costs one measurement, wherever it happens") {
  using Lines = std::vector<std::string>;
  const auto throws_at = [](double values, bool& armed) {
    return [values, &armed](const DeviceMeasurement& m) -> double {
      if (armed && m.size.values == values) throw GpuError("cudaMalloc of 7 bytes: out of memory");
      return 1e6;
    };
  };
  const auto sizes = [](const MeasuredDevice& measured) {
    return measured.series.empty() ? 0 : measured.series.front().sizes.size();
  };
  MadeUp device;
  bool armed = true;
  device.ns = throws_at(2e6, armed);
  const MeasuredDevice timed = measure(device, moves(3), {});
  CHECK(sizes(timed) == 2);
  CHECK(timed.left_out == Lines{"fp32, cudaMalloc of 7 bytes: out of memory: gelu (1)"});

  // Of warm inputs, whose measurements come last: the time with cold ones stays.
  armed = false;
  DeviceSettings settings;
  const auto arm_at = [&](std::int64_t number) {
    return [&armed, number](const std::string&, std::int64_t done, std::int64_t) { armed = done == number; };
  };
  settings.progress = arm_at(2);
  const MeasuredDevice warm = measure(device, moves(3), settings);
  REQUIRE(sizes(warm) == 3);
  CHECK(warm.series.front().sizes[1].warm_ns == 0);
  CHECK(warm.series.front().sizes[2].warm_ns > 0);
  CHECK(warm.left_out == Lines{"fp32, with warm inputs: cudaMalloc of 7 bytes: out of memory: gelu (1)"});

  // Of a repetition: nothing is lost but that.
  device.ns = throws_at(1e6, armed);
  settings.again_after = 1, settings.warm = false;
  CHECK(sizes(measure(device, moves(3), settings)) == 3);

  // Of what comes before: the cut of the device, and the comparison, which is made with the next one then.
  device.ns = [](const DeviceMeasurement&) { return 1e6; };
  device.refused = [](const DeviceMeasurement& m) { return m.size.values == 1e6 ? throw OutOfArena("no groups") : ""; };
  CHECK(measure(device, moves(3), {}).left_out == Lines{"fp32, no groups: gelu (1)"});
  device.refused = [](const DeviceMeasurement&) { return ""; };
  int comparisons = 0;
  device.result = [&](const DeviceMeasurement&) -> std::optional<NumericCheck> {
    if (++comparisons == 1) throw GpuError("lost once");
    return NumericCheck{0.5, 1};
  };
  const MeasuredDevice compared = measure(device, moves(3), {});
  CHECK(compared.left_out == Lines{"fp32, lost once: gelu (1)"});
  REQUIRE(sizes(compared) == 2);
  CHECK(compared.series.front().result_error == 0.5);
  CHECK(comparisons == 2);
}

TEST_CASE("A device that no longer works ends the list, and what was measured before is kept") {
  for (const bool warm : {false, true}) {
    MadeUp device;
    device.ns = [&](const DeviceMeasurement& m) -> double {
      if (m.operation == "gelu" && m.size.values < 3e6) return 1e6;
      device.gone = "an illegal memory access was encountered";
      throw GpuError("cudaStreamSynchronize: an illegal memory access was encountered");
    };
    auto list = moves(5);
    list.push_back(values("relu", 1e6));
    DeviceSettings settings;
    settings.warm = warm;
    const MeasuredDevice measured = measure(device, list, settings);
    REQUIRE(measured.series.size() == 1);
    CHECK(measured.series[0].sizes.size() == 2);
    std::vector<std::string> expected = {
        "fp32, cudaStreamSynchronize: an illegal memory access was encountered: gelu (1)",
        "fp32, the device can no longer be used: an illegal memory access was encountered: gelu (2), relu (1)"};
    if (warm)
      expected.insert(
          expected.begin() + 1,
          "fp32, for warm inputs the device can no longer be used: an illegal memory access was encountered: gelu (2)");
    CHECK(measured.left_out == expected);
    CHECK(lost_line(measured) == expected[1]);
    CHECK(device.timed.size() == 3);
  }
}

TEST_CASE("So it does where the device is asked what it refuses when the time is up; a whole list has no such line") {
  MadeUp device;
  std::vector<DeviceMeasurement> list = moves(1);
  DeviceSettings settings;
  settings.warm = false;
  CHECK(lost_line(measure(device, list, settings)) == "");
  for (const char* operation : {"peer copy", "nccl send"})
    list.push_back(values(operation, 4096, kBetweenGpus));
  device.refused = [&](const DeviceMeasurement& m) -> std::string {
    if (m.rank != kBetweenGpus) return "";
    device.gone = "unspecified launch failure";
    throw GpuError("cudaMemGetInfo: unspecified launch failure");
  };
  settings.seconds = 0.001;  // less than one size takes
  const MeasuredDevice measured = measure(device, list, settings);
  CHECK(measured.left_out ==
        std::vector<std::string>{"fp32, cudaMemGetInfo: unspecified launch failure: peer copy (1)",
                                 "fp32, the device can no longer be used: unspecified launch failure: nccl send (1)"});
  CHECK(lost_line(measured) == measured.left_out[1]);
}

TEST_CASE("Linear layers are compared on each kind of virtual device, others once, and told where they were") {
  MadeUp device;
  device.result = [](const DeviceMeasurement& m) {
    const bool wrong = m.operation == "linear" && m.virtual_devices == 4;
    return std::optional(NumericCheck{wrong ? 0.31 : 1e-7 * m.virtual_devices, 2e-5});
  };
  std::vector<DeviceMeasurement> list;
  for (const int split : {1, 2, 4})
    for (const char* operation : {"linear", "gelu"}) {
      list.push_back(values(operation, 1e6));
      list.back().virtual_devices = split;
    }
  const MeasuredDevice measured = measure(device, list, {});
  CHECK(device.checked.size() == 4);
  CHECK(measured.left_out ==
        std::vector<std::string>{"fp32, its result is wrong (forward of 1000000 values, 1 of 4 virtual devices: off by "
                                 "0.31, allowed 2e-05): linear (1)"});
  std::map<std::string, std::optional<double>> errors;
  for (const MeasuredSeries& s : measured.series)
    errors[s.operation + " " + std::to_string(s.virtual_devices)] = s.result_error;
  CHECK(errors == std::map<std::string, std::optional<double>>{{"linear 1", 1e-7},
                                                               {"linear 2", 2e-7},
                                                               {"gelu 1", 1e-7},
                                                               {"gelu 2", std::nullopt},
                                                               {"gelu 4", std::nullopt}});
}

TEST_CASE("A wrong result of a collective names who took part, and bytes") {
  DeviceMeasurement m = values("peer copy", 4096, kBetweenGpus);
  m.work = DeviceWork::PeerCopy, m.from = 3, m.to = 1, m.members = 2;
  CHECK(wrong_result(m, {1, 0}) == "its result is wrong (GPU 3 to 1, 4096 B: off by 1, allowed 0)");
  m.work = DeviceWork::NcclAllReduce, m.from = m.to = 0, m.members = 8;
  CHECK(wrong_result(m, {1, 0}) == "its result is wrong (8 GPUs, 4096 B: off by 1, allowed 0)");
  m.work = DeviceWork::RingAllReduce, m.virtual_devices = m.members = 4;
  CHECK(wrong_result(m, {1, 0}) == "its result is wrong (4 virtual devices, 4096 B: off by 1, allowed 0)");
}

TEST_CASE("What another GPU that cannot be used, or has no room, takes part in is refused, and nothing else") {
  std::vector<GpuFacts> gpus(4);
  for (int i = 0; i < 4; ++i) {
    gpus[static_cast<std::size_t>(i)].device = i;
    gpus[static_cast<std::size_t>(i)].free_memory = Bytes{1 << 20};
  }
  gpus[0].peers = {{.device = 1, .direct = true}, {.device = 3, .direct = false}};
  gpus[2].refusal = "too old", gpus[3].free_memory = Bytes{1 << 14};
  DeviceMeasurement m = values("peer copy", 8192, kBetweenGpus);
  m.work = DeviceWork::PeerCopy, m.members = 2;
  const auto copy = [&](int from, int to) { return m.from = from, m.to = to, refusal_among(m, gpus); };
  CHECK(copy(0, 1) == "");
  CHECK(copy(0, 2) == "GPU 2 cannot take part: too old");
  CHECK(copy(2, 0) == "GPU 2 cannot take part: too old");
  CHECK(copy(0, 3) == "larger than half of the GPU's free memory");
  m.size.values = 4096;
  CHECK(copy(0, 3) == "no direct link between two GPUs");
  m.work = DeviceWork::PeerCopyByHost;
  CHECK(copy(0, 3) == "");
  m.work = DeviceWork::NcclAllReduce, m.from = m.to = 0;
  CHECK(refusal_among(m, gpus) == "");
  m.members = 3;
  CHECK(refusal_among(m, gpus) == "GPU 2 cannot take part: too old");
  gpus[2].refusal = "", m.size.values = 8192;
  CHECK(refusal_among(m, gpus) == "");
  m.members = 4;
  CHECK(refusal_among(m, gpus) == "larger than half of the GPU's free memory");
  gpus.resize(1);
  CHECK(refusal_among(m, gpus) == "there is one GPU");
}

TEST_CASE("What throws of a GPU or NCCL, when it is made or read, is not timed, and told once") {
  std::vector<std::string> told;
  const Failed failed = [&](const std::string& words) { told.push_back(words); };
  CHECK_THROWS_WITH_AS(guarded([]() -> std::unique_ptr<Stopwatch> { throw GpuError("no memory"); }, failed),
                       "no memory", NotTimed);
  MadeUp device;
  device.ns = [](const DeviceMeasurement&) -> double { throw NcclError("lost"); };
  const auto watch = guarded([&] { return device.stopwatch(values("nccl send", 1), false); }, failed);
  CHECK_THROWS_WITH_AS(static_cast<void>(watch->time()), "lost", NotTimed);
  CHECK_THROWS_AS(static_cast<void>(watch->time()), NotTimed);
  CHECK(!guarded_check([]() -> NumericCheck { throw GpuError("no link"); }, failed));
  CHECK(told == std::vector<std::string>{"no memory", "lost", "no link"});
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

TEST_CASE("How a library did a size is kept beside it") {
  MadeUp device;
  device.algorithm = ProductAlgorithm{1.25, 128, 256, 1};
  const MeasuredDevice measured = measure(device, moves(2), {});
  for (const MeasuredSize& size : measured.series.front().sizes)
    CHECK(size.algorithm == device.algorithm);
}

TEST_CASE("A pair that cannot be timed, is refused or has no time left is listed under both names") {
  MadeUp device;
  DeviceMeasurement pair = values("linear", 1e6, kPairs);
  DeviceMeasurement copy = values("copy to host", 1e6);
  copy.work = DeviceWork::CopyToHost;
  pair.beside = std::make_shared<DeviceMeasurement>(copy);
  copy.beside = std::make_shared<DeviceMeasurement>(values("linear", 1e6));
  CHECK(label(copy) == "copy to host beside linear fp32");
  device.ns = [](const DeviceMeasurement& m) -> double {
    if (m.beside != nullptr) throw NotTimed("what is beside it ends first");
    return 1e6;
  };
  const MeasuredDevice untimed = measure(device, {pair}, {});
  CHECK(untimed.interference.empty());
  CHECK(untimed.left_out ==
        std::vector<std::string>{"fp32, what is beside it ends first: linear beside copy to host (1)"});
  device.refused = [](const DeviceMeasurement& m) { return m.beside != nullptr ? "it has one stream" : ""; };
  CHECK(measure(device, {pair}, {}).left_out ==
        std::vector<std::string>{"fp32, it has one stream: linear beside copy to host (1)"});
  device.refused = [](const DeviceMeasurement&) { return ""; };
  auto list = moves(2);
  list.push_back(pair);
  DeviceSettings settings;
  settings.seconds = 0.015;  // ten readings of 1 ms each: two sizes
  settings.warm = false;
  const MeasuredDevice short_of_time = measure(device, list, settings);
  CHECK(short_of_time.series.front().sizes.size() == 2);
  CHECK(short_of_time.left_out == std::vector<std::string>{"fp32, no time was left: linear beside copy to host (1)"});
}

namespace {

// Made up: what is timed is so many times slower beside the other.
double planted_slowdown(const std::string& operation, const std::string& beside, int virtual_devices) {
  double factor = 1 + 0.02 * virtual_devices;
  if (operation == "gelu") factor += 0.2;
  if (operation.starts_with("copy")) factor += 0.05;
  if (beside == "gelu") factor += 0.3;
  if (beside == "copy to device") factor += 0.1;
  return factor;
}

}  // namespace

TEST_CASE("How much one operation slows another is found as it was planted") {
  MadeUp device;
  device.noise = 0.01;
  device.ns = [](const DeviceMeasurement& m) {
    const double alone = 50'000 + 1e-6 * m.size.work();
    return m.beside == nullptr ? alone : alone * planted_slowdown(m.operation, m.beside->operation, m.virtual_devices);
  };
  auto list = last_of(kFourSplits);
  std::erase_if(list, [](const DeviceMeasurement& m) { return m.rank != kPairs; });
  DeviceSettings settings;
  settings.rule.error = 0.001;  // about 100 readings: 0.14 % of a slowdown
  settings.rule.seconds = 10;
  const MeasuredDevice measured = measure(device, list, settings);
  CHECK(measured.series.empty());  // they price nothing
  CHECK(measured.left_out.empty());
  REQUIRE(measured.interference.size() == list.size());
  std::set<std::string> both_ways;
  for (const MeasuredPair& pair : measured.interference) {
    CAPTURE(pair.operation);
    CAPTURE(pair.beside);
    CAPTURE(pair.virtual_devices);
    // The mean leaves out the slowest 5 %, of both alike.
    CHECK(pair.slowdown ==
          doctest::Approx(planted_slowdown(pair.operation, pair.beside, pair.virtual_devices)).epsilon(0.01));
    CHECK(pair.alone_ns == doctest::Approx(50'000 + 1e-6 * pair.size.work()).epsilon(0.01));
    CHECK(pair.error > 0);
    CHECK(pair.error < 0.002);
    CHECK(pair.spread > 0.02);  // of a normal deviation of 1 %: 3.29 %
    CHECK(pair.spread < 0.05);
    CHECK(pair.readings >= 10);
    CHECK(pair.clock == 1);
    CHECK(pair.sms == 128 / pair.virtual_devices);
    CHECK((pair.beside_precision == pair.precision || pair.beside.starts_with("copy") ||
           pair.operation.starts_with("copy")));
    both_ways.insert(pair.operation + " beside " + pair.beside);
  }
  for (const char* way : {"linear beside gelu", "gelu beside linear", "linear beside copy to host",
                          "copy to host beside linear", "gelu beside copy on device", "copy on device beside gelu",
                          "copy to host beside copy to device", "copy to device beside copy to host"})
    CHECK(both_ways.count(way) == 1);
}
