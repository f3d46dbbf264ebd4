// The calibration of a device on a core of this machine: every step of it but the GPU's own.
#include "calibrate/host_under_test.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "calibrate/device_jobs.hpp"
#include "core/model/layer_builder.hpp"
#include "runtime/backends/cpu.hpp"
#include "tests/calibrate/every_operation.hpp"

using namespace pipewright::tests;

TEST_CASE("Every pass of every operation of a model runs as a job, and is timed") {
  const Model model = model_of_every_operation();
  auto list = device_measurements({{&model, {2}}}, {{1, 1}});
  std::erase_if(list, [](const DeviceMeasurement& m) {
    return m.rank > 0 || m.precision != Precision::Fp32 || m.size.values > 1e5;
  });
  DeviceSettings settings;
  settings.rule.seconds = 1e-4;
  settings.rule.least = 2;
  const auto host = host_under_test("2026-01-01", "0.1.0");
  const MeasuredDevice measured = measure(*host, list, settings);
  for (const char* operation :
       {"linear",   "attention",     "embedding", "learned_table", "layer_norm",   "rms_norm",
        "gelu",     "relu",          "gated",     "dropout",       "softmax",      "add",
        "multiply", "cross_entropy", "conv2d",    "max_pool",      "average_pool", "global_average_pool",
        "copy",     "update adam"}) {
    INFO(operation);
    CHECK(std::any_of(measured.series.begin(), measured.series.end(),
                      [&](const MeasuredSeries& s) { return s.operation == operation && s.sizes.front().ns > 0; }));
  }
  CHECK(std::any_of(measured.series.begin(), measured.series.end(), [](const MeasuredSeries& s) {
    return s.operation == "linear" && s.pass == MeasuredPass::WeightGradient && s.sizes.front().warm_ns > 0;
  }));
  CHECK(measured.gpu.starts_with("one core of "));
  CHECK(std::any_of(measured.left_out.begin(), measured.left_out.end(), [](const std::string& text) {
    return text.find("fp32, a core has none: ") == 0 && text.find("launch (1)") != std::string::npos;
  }));
}

TEST_CASE("Before they are timed, a core's results are compared with double precision, and are right") {
  const Model model = model_of_every_operation();
  auto list = device_measurements({{&model, {2}}}, {{1, 1}});
  std::erase_if(list, [](const DeviceMeasurement& m) {
    return m.rank > 0 || m.precision != Precision::Fp32 || m.size.values > 1e5;
  });
  const auto host = host_under_test("2026-01-01", "0.1.0");
  int checked = 0;
  for (const DeviceMeasurement& m : list) {
    if (!host->refusal(m).empty()) continue;
    INFO(text(m));
    const auto check = host->check(m);
    REQUIRE(check.has_value());
    CHECK(check->error <= check->limit);
    ++checked;
  }
  CHECK(checked > 40);
}

TEST_CASE("A core refuses what it has not, with the reason") {
  const auto host = host_under_test("2026-01-01", "0.1.0");
  DeviceMeasurement m;
  m.work = DeviceWork::Copy;
  m.size = {1, 16, 1, 0, 32};
  CHECK(host->refusal(m).empty());
  m.virtual_devices = 2;
  CHECK(host->refusal(m) == "a core has no virtual devices");
  m.virtual_devices = 1;
  m.beside = std::make_shared<DeviceMeasurement>(m);
  CHECK(host->refusal(m) == "a core does one thing at a time");
  m.beside = nullptr;
  m.work = DeviceWork::CopyPageableToHost;
  CHECK(host->refusal(m) == "a core has none");
  m.work = DeviceWork::Launch;
  CHECK(host->refusal(m) == "a core has none");
  LayerBuilder b;
  m.work = DeviceWork::Step, m.operation = "linear", m.precision = Precision::Bf16;
  m.program = b.finish({b.linear(b.input({4, 4}), {.features = 4})}).program;
  CHECK(host->refusal(m) == "the backend computes in another precision");
  m.work = DeviceWork::Update;  // it would not write the copy in 16 bits
  CHECK(host->refusal(m) == "the backend computes in another precision");
}

TEST_CASE("A block holds what a pass reads and writes, once") {
  const auto backend = cpu_backend();
  const auto bytes_of = [&](DeviceWork work, const auto& build) {
    LayerBuilder b;
    DeviceMeasurement m;
    m.work = work, m.program = b.finish({build(b, b.input({4, 256}))}).program;
    m.operation = m.program.get()->steps.front().operation, m.size = {1, 4, 256, 0, 2048};
    return block_bytes(m, *backend).value;
  };
  // 4 KiB of input, its gradient, output and the output's gradient; of a dropout any two of them.
  const auto gelu = [](LayerBuilder& b, LayerBuilder::Value x) { return b.activation(x, Activation::Gelu); };
  CHECK(bytes_of(DeviceWork::Step, gelu) == 4 * 4096 + 2 * 512);  // nothing saved, no workspace
  CHECK(bytes_of(DeviceWork::Dropout, [](LayerBuilder& b, LayerBuilder::Value x) { return b.dropout(x); }) == 2 * 4096);
  // 4 losses and their gradients, what is saved, four labels.
  const auto loss = [](LayerBuilder& b, LayerBuilder::Value x) { return b.cross_entropy(x); };
  CHECK(bytes_of(DeviceWork::Step, loss) == 3 * 4096 + 2 * 512 + 512 + 512);
}

TEST_CASE("What a pass touches of its block: of a table the rows that are asked for, of weights all") {
  const auto backend = cpu_backend();
  const auto touched = [&](MeasuredPass pass, const auto& build) {
    LayerBuilder b;
    DeviceMeasurement m;
    m.program = b.finish({build(b)}).program, m.pass = pass;
    m.operation = m.program.get()->steps.front().operation;
    return touched_bytes(m, *backend).value;
  };
  using enum MeasuredPass;
  const auto linear = [](LayerBuilder& b) { return b.linear(b.input({4, 256}), {.features = 64, .bias = false}); };
  CHECK(touched(Forward, linear) == 4 * (4 * 256 + 256 * 64 + 4 * 64));
  CHECK(touched(InputGradient, linear) == touched(Forward, linear));
  CHECK(touched(WeightGradient, linear) == touched(Forward, linear));
  const auto gelu = [](LayerBuilder& b) { return b.activation(b.input({4, 256}), Activation::Gelu); };
  CHECK(touched(Forward, gelu) == 2 * 4096);  // a block has four such
  const auto embedding = [](LayerBuilder& b) { return b.embedding(b.tokens(6), 1000, 16); };
  CHECK(touched(Forward, embedding) == 6 * 8 + 2 * 6 * 16 * 4);
  CHECK(touched(WeightGradient, embedding) == touched(Forward, embedding));
  DeviceMeasurement copy;
  copy.work = DeviceWork::CopyToHost, copy.size = {1, 1000, 1, 0, 2000};
  CHECK(touched_bytes(copy, *backend) == Bytes{4096});
  copy.work = DeviceWork::CopyOnDevice;
  CHECK(touched_bytes(copy, *backend) == Bytes{2 * 4096});
}

TEST_CASE("Blocks are so many that twice the cache is touched before one is met again, or passes end before") {
  CHECK(cold_blocks(Bytes{10}, Bytes{100}, 1000, 128) == ColdBlocks{22, 128});
  CHECK(cold_blocks(Bytes{1000}, Bytes{100}, 1000, 128) == ColdBlocks{2, 128});
  CHECK(cold_blocks(Bytes{10}, Bytes{100}, 5, 128) == ColdBlocks{5, 5});      // no room
  CHECK(cold_blocks(Bytes{1000}, Bytes{100}, 0, 128) == ColdBlocks{1, 128});  // one alone is more than the cache holds
  CHECK(cold_blocks(Bytes{1}, Bytes{100}, 1000, 128) == ColdBlocks{128, 128});
  CHECK(cold_blocks(Bytes{0}, Bytes{100}, 1000, 128).blocks == 128);
}

TEST_CASE("What does not fit into half of the free memory is refused, and large sizes have a virtual device's part") {
  DeviceMeasurement m;
  m.virtual_devices = 4, m.busy = 2;
  CHECK(too_large(m, 50, 0, 100) == "");
  CHECK(too_large(m, 51, 0, 100) == "larger than half of the GPU's free memory");
  m.busy = 1, m.large = true;
  CHECK(too_large(m, 25, 0, 100) == "");
  CHECK(too_large(m, 26, 0, 100) == "larger than half of a virtual device's part of the GPU's free memory");
  m.large = false;
  CHECK(too_large(m, 26, 0, 100) == "");
  m.busy = 4, m.beside = std::make_shared<DeviceMeasurement>(m);
  CHECK(too_large(m, 40, 60, 100) == "");
  CHECK(too_large(m, 40, 61, 100) == "larger than half of the GPU's free memory");
  CHECK(too_large({}, std::int64_t{1} << 40, 0, 0x1p39) != "");
}

TEST_CASE("Jobs keep their memory for the next, unless that leaves it no room") {
  const auto backend = cpu_backend();
  JobMemories memories;
  const std::byte* const first = memories[0].at_least(*backend, Bytes{3000});
  memories[1].at_least(*backend, Bytes{1000});
  CHECK(memories.kept() == Bytes{4000});
  const std::int64_t small[] = {2000, 1000, 1000};
  memories.make_room(small, 5000);  // 3000 and 1000 are there, 1000 come
  CHECK(memories.kept() == Bytes{4000});
  CHECK(memories[0].at_least(*backend, Bytes{2000}) == first);
  const std::int64_t large[] = {500, 2001};
  memories.make_room(large, 5000);  // 3000 would stay beside 2001
  CHECK(memories.kept() == Bytes{0});
  memories[1].at_least(*backend, Bytes{2001});
  const std::int64_t one[] = {4000};
  memories.make_room(one, 5000);  // what no job of the next one uses counts, too
  CHECK(memories.kept() == Bytes{0});
}

TEST_CASE("A copy's job copies, and its blocks hold random values") {
  const auto backend = cpu_backend();
  const auto memory = backend->reserve(Bytes{4096});
  const auto mover = backend->mover(MoverFor::Worker);
  fill_random(*mover, memory->base(), 4096);
  const float* const values = reinterpret_cast<const float*>(memory->base());
  CHECK(std::all_of(values, values + 1024, [](float x) { return x >= -1 && x < 1; }));
  CHECK(std::count(values, values + 1024, 0.0F) == 0);
  CHECK(values[0] != values[1]);
  // Values of two bytes: bf16 is the upper half of an fp32 value.
  fill_random(*mover, memory->base(), 4096, Precision::Bf16);
  const auto* const halves = reinterpret_cast<const std::uint16_t*>(memory->base());
  for (int i = 0; i < 2048; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(halves[i]) << 16);
    CHECK((std::abs(value) >= 0.5F && std::abs(value) < 1));
  }
  fill_random(*mover, memory->base(), 4096, Precision::Fp16);
  for (int i = 0; i < 2048; ++i)
    CHECK((halves[i] & 0x7c00) == 14 << 10);  // exponent 14 - 15
  CHECK(std::all_of(values, values + 1024, [](float x) { return std::isfinite(x) && x != 0; }));
  DeviceMeasurement m;
  m.work = DeviceWork::Copy, m.size = {1, 1000, 1, 0, 2000};
  CHECK(block_bytes(m, *backend) == Bytes{2 * 4096});
  m.work = DeviceWork::Update, m.optimizer = Optimizer::Adam;
  CHECK(block_bytes(m, *backend) == Bytes{4 * 4096});
}
