// How near GPU kernels come to what the device gives, as ratios on one GPU, and what the executor takes beside them.
// Not part of `meson test`: run build/tests/bench/bench_gpu. Without a GPU it says why and ends with status 77. It has
// not run on a GPU yet: docs/how-it-works/gpu.md.
//
//   copy        the own copy's rate over the driver's copy of the same bytes on the device         target >= 0.90
//   norm, ...   bytes read and written per second over those of the faster of both copies          target >= 0.80
//   executor    what an op takes beside its layers and messages (WorkerResult::overhead_ns)        target <= 10 us
//   calibration what `calibrate --backend cuda --precision bf16` times on the whole device and on 2, 4 and 8 virtual
//               ones, for the models of scenarios/gpu: every size with inputs outside the cache (those inside it are
//               timed in what a budget leaves), numeric checks included; it ends after 5 minutes  target <= 240 s
//
// Blocks of 1 GiB, so that no cache holds them; random values; the best of ten readings of some launches between two
// events, begun behind a delay, so that launching does not show.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "calibrate/device_list.hpp"
#include "calibrate/device_loop.hpp"
#include "calibrate/gpu_under_test.hpp"
#include "io/read/read_scenario.hpp"
#include "kernels/gpu_api.hpp"
#include "kernels/gpu_kernels.hpp"
#include "kernels/probes.hpp"
#include "runtime/backends/gpu.hpp"
#include "runtime/transports/local.hpp"
#include "tests/runtime/run_case.hpp"

namespace pipewright::tests {
namespace {

using grid_kernels::Queue;
constexpr int kSkipped = 77, kReadings = 10;
constexpr std::int64_t kBytes = std::int64_t{1} << 30;

struct Gpu {
  VirtualDevices devices{0, 1, 2};
  GpuStream stream = devices.stream(0);
  Queue queue = grid_kernels::queue_of(stream, devices.sms(0));
};

// ns of one call.
double time_of(Gpu& gpu, int calls, const std::function<void()>& call) {
  constexpr Time kLaunching{2'000'000};
  call();  // loads the kernel
  double best = 0;
  for (int i = 0; i < kReadings; ++i) {
    GpuEvent begin(0), end(0);
    launch_delay(gpu.stream, kLaunching);
    begin.record(gpu.stream);
    for (int c = 0; c < calls; ++c)
      call();
    end.record(gpu.stream);
    end.wait();
    const double ns = static_cast<double>(elapsed(begin, end).value) / calls;
    best = best == 0 ? ns : std::min(best, ns);
  }
  return best;
}

int missed = 0;
void tell(const std::string& what, double value, const std::string& unit, double target, bool least) {
  const bool met = least ? value >= target : value <= target;
  missed += !met;
  std::fputs(fmt::format("{:<44} {:>8.3f} {:<10} target {} {:<5} {}\n", what, value, unit, least ? ">=" : "<=", target,
                         met ? "met" : "MISSED")
                 .c_str(),
             stdout);
}

void moves(Gpu& gpu) {
  const GpuMemory a(0, Bytes{kBytes}), b(0, Bytes{kBytes}), c(0, Bytes{kBytes}), d(0, Bytes{kBytes});
  auto* const x = static_cast<float*>(a.data());
  auto* const y = static_cast<float*>(b.data());
  const std::int64_t values = kBytes / 4, features = 1024, rows = values / features;
  for (const GpuMemory* block : {&a, &b, &c, &d})
    grid_kernels::normal(gpu.queue, values, 1, 1.0F, static_cast<float*>(block->data()));
  const double driver = time_of(gpu, 4, [&] { gpu_copy(gpu.stream, y, x, Bytes{kBytes}, GpuCopy::DeviceToDevice); });
  const double own = time_of(gpu, 4, [&] { grid_kernels::copy_values(gpu.queue, values, x, y); });
  tell("copy, own kernel over the driver's", driver / own, "", 0.90, true);
  const double bandwidth = 2 * static_cast<double>(kBytes) / std::min(driver, own);  // bytes per ns
  const auto share = [&](const std::string& what, double bytes, const std::function<void()>& call) {
    tell(what + " over the bandwidth of a copy", bytes / time_of(gpu, 4, call) / bandwidth, "", 0.80, true);
  };
  auto* const gain = static_cast<float*>(c.data());
  auto* const statistics = static_cast<float*>(d.data());
  share("layer norm, rows of 1024", 2.0 * kBytes + 8.0 * rows,
        [&] { grid_kernels::layer_norm(gpu.queue, rows, features, x, gain, gain + features, y, statistics); });
  share("softmax, rows of 1024", 2.0 * kBytes, [&] { grid_kernels::softmax(gpu.queue, rows, features, x, y); });
  // Adam: weight, gradient and two states read, weight and states written.
  const auto backend =
      gpu_backend(std::make_shared<VirtualDevices>(0, 1, 2), 0, {"GPU 0", 0, ""}, {Precision::Fp32, false});
  OptimizerSettings adam;
  adam.kind = Optimizer::Adam, adam.learning_rate = 1e-6;
  const UpdatedParameter one = {values, x, x, y, {gain, statistics}};
  double best = 0;
  for (int i = 0; i <= kReadings; ++i) {
    backend->set_clock();
    backend->mark(0);
    backend->update(adam, 1, {&one, 1});
    backend->mark(1);
    backend->finish();
    const auto ns = static_cast<double>(backend->moment(1) - backend->moment(0));
    if (i > 0) best = best == 0 ? ns : std::min(best, ns);  // the first loads the kernel
  }
  tell("Adam in fp32 over the bandwidth of a copy", 7.0 * kBytes / best / bandwidth, "", 0.80, true);
}

// One worker, so that nobody waits for another.
void executor() {
  using namespace runtime_test;
  const RunCase run({"plan.stages=1", "training.micro_batches=32", "cluster.node.devices=1"});
  const RunPlan plan =
      run_plan(run.plan, run.schedule, run.scenario.model, run.scenario.training, *gpu_sizes(Precision::Fp32));
  const auto devices = std::make_shared<VirtualDevices>(0, 1, 2);
  RunSettings settings = one_step(6);
  settings.poison = false, settings.time_layers = true;
  const auto endpoints = local_transport(plan, {.spin = true, .timeout_s = 60}, {});
  const auto results = execute(
      plan,
      [&](WorkerId) {
        return gpu_backend(devices, 0, {"GPU 0", 0, ""}, {Precision::Fp32, false});
      },
      *run.data, endpoints, settings);
  std::vector<double> beside = results.front().overhead_ns;
  std::sort(beside.begin(), beside.end());
  tell("executor, beside an op's layers (median)", beside.empty() ? 1e9 : beside[beside.size() / 2] * 1e-3, "us", 10,
       false);
}

void calibration() {
  const std::string root = runtime_test::source();
  std::vector<Scenario> scenarios;
  std::vector<AskedModel> models;
  for (const char* const file : {"pipeline.yaml", "cnn.yaml"})  // the others are of the same models and sizes
    scenarios.push_back(
        read_scenario(root + "/scenarios/gpu/" + file, {.set = {}, .config_path = {root + "/configs"}}));
  for (const Scenario& scenario : scenarios)
    models.push_back({&scenario.model, {scenario.training.micro_batch_size->value}});
  const auto device = gpu_under_test(0, "", "");
  std::vector<DeviceSplit> splits;
  for (const int groups : {1, 2, 4, 8})
    splits.push_back({groups, device->sms(groups)});
  const auto list = of_precisions(device_measurements(models, splits, device->gpus()), {Precision::Bf16});
  DeviceSettings settings;
  settings.seconds = 300, settings.warm = false;
  const double begin = device->now();
  const MeasuredDevice measured = measure(*device, list, settings);
  const double took = device->now() - begin;
  std::size_t timed = measured.interference.size();
  for (const MeasuredSeries& series : measured.series)
    timed += series.sizes.size();
  for (const MeasuredCollective& each : measured.collectives)
    timed += each.sizes.size();
  std::puts(fmt::format("calibration: {} of {} measurements were timed", timed, list.size()).c_str());
  for (const std::string& line : measured.left_out)
    std::puts(("left out: " + line).c_str());
  tell("calibration in bf16, at four SM counts", took, "s", 240, false);
}

}  // namespace
}  // namespace pipewright::tests

int main() {
  using namespace pipewright::tests;
  try {
    if (gpu_count() == 0) {
      std::puts(("skipped: " + gpu_status()).c_str());
      return kSkipped;
    }
    Gpu gpu;
    gpu_use(0);
    check_kernels_run();
    moves(gpu);
    executor();
    std::fflush(stdout);
    calibration();
  } catch (const std::exception& error) {
    std::puts(error.what());
    return 2;
  }
  return missed > 0 ? 1 : 0;
}
