// What a calibration of a device measures, and in which order.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include <doctest/doctest.h>

#include "calibrate/device_loop.hpp"
#include "core/model/layer_builder.hpp"
#include "tests/calibrate/made_up_device.hpp"

using namespace pipewright::tests;

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

TEST_CASE("Dropout is measured at the sizes of GELU, whether a model asks for it or not") {
  const auto sizes_of = [](const std::vector<DeviceMeasurement>& list, const char* operation) {
    std::set<std::tuple<MeasuredPass, Precision, int, int, std::int64_t, std::int64_t, double>> sizes;
    for (const DeviceMeasurement& m : list)
      if (m.operation == operation && m.beside == nullptr)
        sizes.emplace(m.pass, m.precision, m.virtual_devices, m.busy, m.size.rows, m.size.columns, m.size.values);
    return sizes;
  };
  const auto list = device_measurements({}, {{1, 132}, {4, 32}});
  CHECK(sizes_of(list, "dropout") == sizes_of(list, "gelu"));
  CHECK(sizes_of(list, "dropout").size() == 10 * 2 * 3 * (1 + 3));  // sizes, passes, precisions, loads
  Model model;
  LayerBuilder b;
  model.works = {b.finish({b.dropout(b.input({5, 7}))})};
  const auto asked = device_measurements({{&model, {3}}}, {{1, 132}});
  CHECK(std::count_if(asked.begin(), asked.end(), [](const auto& m) {
          return m.rank == 0 && m.work == DeviceWork::Dropout && m.size.rows == 15 && m.size.columns == 7;
        }) == 2 * 2);  // passes, in bf16 and fp32
}

TEST_CASE("Copies and moved values reach 4 GiB in fp32, copies beyond 1 GiB after all else of their rank") {
  constexpr std::int64_t kLargest = std::int64_t{1} << 30;
  const auto list = device_measurements({}, {{1, 132}, {2, 64}});
  std::map<std::string, std::int64_t> largest;
  int rank = kEssential;
  bool large = false;
  for (const DeviceMeasurement& m : list) {
    if (m.rank != rank) rank = m.rank, large = false;
    CHECK(m.large >= large);
    large = m.large;
    if (m.size.depth > 0 || m.beside != nullptr || m.rank >= kByTheHost || m.work == DeviceWork::Update) continue;
    const std::int64_t values = m.size.rows * m.size.columns;
    CHECK(m.large == (4 * values > kLargest));
    largest[m.operation] = std::max(largest[m.operation], values);
  }
  for (const char* operation : {"copy", "copy on device", "layer_norm", "rms_norm", "softmax", "cross_entropy", "gelu",
                                "relu", "gated", "add", "dropout"}) {
    CAPTURE(operation);
    CHECK(largest[operation] == kLargest);
  }
  CHECK(largest["copy to host"] == 16 << 20);       // pinning more of the host's memory takes long
  CHECK(largest["embedding"] == 64 * 1024 * 1024);  // its gradient sorts rows by comparing all of them
  // Both passes of each, the gradient of a sum of two among them: five tensors of 1 Gi values.
  CHECK(std::any_of(list.begin(), list.end(), [](const DeviceMeasurement& m) {
    return m.operation == "add" && m.pass == MeasuredPass::InputGradient && m.size.values == 5.0 * kLargest;
  }));
}

TEST_CASE("Moved values beyond 1 GiB come behind all products of their precisions, and before fp16 and tf32") {
  const auto list = device_measurements({}, kFourSplits);
  const auto later = [](const DeviceMeasurement& m) {
    return m.precision == Precision::Fp16 || m.precision == Precision::Tf32;
  };
  std::map<bool, std::size_t> last_product, first_large, last_large;  // by `later`
  std::size_t first_later = list.size();
  for (std::size_t i = 0; i < list.size() && list[i].rank < kByTheHost; ++i) {
    const DeviceMeasurement& m = list[i];
    if (m.size.depth > 0) last_product[later(m)] = i;
    if (later(m)) first_later = std::min(first_later, i);
    if (!m.large || m.work != DeviceWork::Step) continue;
    first_large.try_emplace(later(m), i);
    last_large[later(m)] = i;
  }
  for (const bool each : {false, true}) {
    REQUIRE(first_large.count(each) == 1);
    CHECK(last_product[each] < first_large[each]);
  }
  CHECK(last_large[false] < first_later);
}

TEST_CASE("Products stand one row before, at and behind full waves of the SMs") {
  std::set<std::int64_t> rows;
  for (const DeviceMeasurement& m : device_measurements({}, {{1, 132}}))
    if (m.operation == "linear" && m.size.columns == 1024 && m.size.depth == 1024) rows.insert(m.size.rows);
  // 16.5 tiles down and 8 across fill 132 SMs: 2112 rows.
  for (const std::int64_t at : {2111, 2112, 2113, 4223, 4224, 4225})
    CHECK(rows.count(at) == 1);
}

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

TEST_CASE("On a whole device one of a pair is a copy by the driver: two that compute need groups of their own") {
  for (const DeviceMeasurement& m : last_of({{1, 132}}))
    if (m.beside != nullptr) CHECK((by_driver(m.work) || by_driver(m.beside->work)));
  const auto groups = last_of({{2, 64}});
  CHECK(std::any_of(groups.begin(), groups.end(),
                    [](const auto& m) { return label(m) == "linear beside gelu fp32" && m.virtual_devices == 2; }));
}
