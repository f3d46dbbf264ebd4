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

#include "calibrate/between_gpus.hpp"
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
  auto list = device_measurements({}, {{1, 132}, {8, 16}});
  std::erase_if(list, [](const DeviceMeasurement& m) { return m.rank >= kByTheHost; });
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

// ---- what comes last

namespace {

std::vector<DeviceMeasurement> last_of(const std::vector<DeviceSplit>& splits) {
  auto list = device_measurements({}, splits);
  std::erase_if(list, [](const DeviceMeasurement& m) { return m.rank < kByTheHost; });
  return list;
}

const std::vector<DeviceSplit> kFourSplits = {{1, 132}, {2, 64}, {4, 32}, {8, 16}};

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

TEST_CASE("Copies of pageable memory, launches by the host and pairs come last, and are few") {
  const auto all = device_measurements({}, kFourSplits);
  const auto first = std::find_if(all.begin(), all.end(), [](const auto& m) { return m.rank >= kByTheHost; });
  CHECK(std::all_of(first, all.end(), [](const auto& m) { return m.rank >= kByTheHost; }));
  const auto count = [&](const auto& is) { return std::count_if(first, all.end(), is); };
  // Two ways, eight sizes, on the whole device only.
  CHECK(count([](const auto& m) { return m.operation.starts_with("copy pageable"); }) == 2 * 8);
  CHECK(count([](const auto& m) { return m.operation.starts_with("copy pageable") && m.virtual_devices > 1; }) == 0);
  // Four ways, 1 to 64 launches, one group of each split.
  CHECK(count([](const auto& m) { return m.operation.starts_with("launch "); }) == 4 * 7 * 4);
  CHECK(count([](const auto& m) { return by_the_host(m.work) && m.busy > 1; }) == 0);
  for (const DeviceMeasurement& m : all)
    REQUIRE(by_the_host(m.work) == by_the_host(m.operation));
  // Two operations in two precisions beside three copies, each way round, and copies both ways: on every split; on
  // groups the two operations beside one another, too.
  CHECK(count([](const auto& m) { return m.beside != nullptr && m.virtual_devices == 1; }) == 2 * 2 * 3 * 2 + 2);
  CHECK(count([](const auto& m) { return m.rank == kPairs && m.virtual_devices == 8; }) == 2 * 2 * 3 * 2 + 2 + 2 * 2);
  // 15 ms each, 30 of a pair, which is timed alone, too: 5.4 s.
  CHECK(count([](const auto& m) { return m.rank <= kPairs; }) == 16 + 112 + 26 + 3 * 30);
  CHECK(count([](const auto& m) {
          return m.rank == kPairs && !(m.beside->virtual_devices == m.virtual_devices && m.busy == m.virtual_devices);
        }) == 0);
  // The ring of 2, 4 and 8 groups at nine sizes: 0.4 s.
  CHECK(count([](const auto& m) { return m.rank == kRings; }) == 3 * 9);
  CHECK(count([](const auto& m) {
          return m.rank == kRings && m.members == m.virtual_devices && m.busy == m.members;
        }) == 3 * 9);
  // Between two GPUs, for one to refuse: copies two ways by two ways, three of NCCL.
  CHECK(count([](const auto& m) { return m.rank == kBetweenGpus; }) == (2 * 2 + 3) * 9);
  // Pairs of four groups while one or two of the three others are busy; of eight while one, two or four of seven: 4.5
  // s.
  CHECK(count([](const auto& m) { return m.rank == kFewerPairs; }) == 30 * 2 + 30 * 3);
  CHECK(count([](const auto& m) { return m.rank == kFewerPairs && m.busy >= m.virtual_devices; }) == 0);
}

TEST_CASE("Between eight GPUs every pair copies, and NCCL has two, four and all of them") {
  const auto list = device_measurements({}, {{1, 132}}, 8);
  std::map<std::string, int> counts;
  for (const DeviceMeasurement& m : list)
    if (m.rank == kBetweenGpus) ++counts[m.operation + (m.from == m.to ? " " + std::to_string(m.members) : "")];
  CHECK(counts == std::map<std::string, int>{{"peer copy", 56 * 9},
                                             {"peer copy through the host", 56 * 9},
                                             {"nccl all-reduce 2", 9},
                                             {"nccl all-reduce 4", 9},
                                             {"nccl all-reduce 8", 9},
                                             {"nccl all-gather 2", 9},
                                             {"nccl all-gather 4", 9},
                                             {"nccl all-gather 8", 9},
                                             {"nccl send 2", 9}});
  CHECK(text(list.back()) == "nccl all-gather of 268435456 B, 8 GPUs");
}

TEST_CASE("Parts of an all-gather are multiples of 16 bytes, and its size is theirs") {
  std::map<int, std::set<double>> sizes;
  for (const DeviceMeasurement& m : device_measurements({}, {{1, 132}}, 6))
    if (m.work == DeviceWork::NcclAllGather) sizes[m.members].insert(m.size.values);
  REQUIRE(sizes.size() == 3);
  CHECK(*sizes[4].begin() == 4096);
  CHECK(*sizes[6].begin() == 6 * 672);  // of 682.7
  for (const double each : sizes[6])
    CHECK(std::fmod(each, 6 * 16) == 0);
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

TEST_CASE("One GPU is the reason for what it takes two for, also where no time is left") {
  MadeUp device;
  device.refused = [](const DeviceMeasurement& m) { return m.rank == kBetweenGpus ? "there is one GPU" : ""; };
  auto list = last_of({{2, 64}});
  std::erase_if(list, [](const DeviceMeasurement& m) { return !collective(m.work); });
  DeviceSettings settings;
  settings.seconds = 0;
  CHECK(measure(device, list, settings).left_out ==
        std::vector<std::string>{"fp32, no time was left: ring all-reduce (9)",
                                 "fp32, there is one GPU: nccl all-gather (9), nccl all-reduce (9), nccl send (9), "
                                 "peer copy (18), peer copy through the host (18)"});
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

TEST_CASE("How a library did a size is kept beside it") {
  MadeUp device;
  device.algorithm = ProductAlgorithm{1.25, 128, 256, 1};
  const MeasuredDevice measured = measure(device, moves(2), {});
  for (const MeasuredSize& size : measured.series.front().sizes)
    CHECK(size.algorithm == device.algorithm);
}

TEST_CASE("On a whole device one of a pair is a copy by the driver: two that compute need groups of their own") {
  for (const DeviceMeasurement& m : last_of({{1, 132}}))
    if (m.beside != nullptr) CHECK((by_driver(m.work) || by_driver(m.beside->work)));
  const auto groups = last_of({{2, 64}});
  CHECK(std::any_of(groups.begin(), groups.end(),
                    [](const auto& m) { return label(m) == "linear beside gelu fp32" && m.virtual_devices == 2; }));
}

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
