// Whole runs on a GPU, cut into virtual devices. Without one the program ends with status 77 (skipped) and the reason.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "calibrate/device_loop.hpp"
#include "calibrate/gpu_under_test.hpp"
#include "kernels/gpu_api.hpp"
#include "runtime/backends/gpu.hpp"
#include "runtime/transports/local.hpp"
#include "runtime/transports/staged.hpp"
#include "tests/runtime/run_case.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/some_case.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

// Suite of what ends, and can fail, whatever kernels compute: it is run on the made-up CUDA, too.
const char* const kWhateverKernelsCompute = "whatever kernels compute";

// A group of SMs for each of so many workers.
BackendMaker on_gpu(int workers, Precision precision = Precision::Fp32) {
  const auto devices = std::make_shared<VirtualDevices>(0, workers, kStreamsOfWorker);
  return [devices, precision](WorkerId worker) {
    return gpu_backend(devices, worker % devices->count(), {"GPU 0", 0, ""}, {precision, false});
  };
}

RunPlan plan_for(const RunCase& run, Precision precision = Precision::Fp32) {
  Training training = run.scenario.training;
  training.precision = precision, training.gradient_precision = Precision::Fp32;
  return run_plan(run.plan, run.schedule, run.scenario.model, training, *gpu_sizes(precision));
}

std::vector<WorkerResult> run_on(const BackendMaker& backend, const RunCase& run, const RunPlan& plan,
                                 RunSettings settings = one_step(), bool staged = false) {
  settings.optimizer.kind = run.scenario.training.optimizer;
  auto endpoints = local_transport(plan, {.spin = false, .timeout_s = 60}, {});
  if (staged)
    for (auto& endpoint : endpoints)
      endpoint = staged_transport(std::move(endpoint), plan, Takes::WithMover);
  return execute(plan, backend, *run.data, endpoints, settings);
}

void check_gradients(const std::vector<std::string>& changes, bool staged = false,
                     Precision precision = Precision::Fp32) {
  const RunCase run(changes);
  const RunPlan plan = plan_for(run, precision);
  const auto pipelined = run_on(on_gpu(run.plan.workers(), precision), run, plan, one_step(), staged);
  const auto reference = sequential_gradients(plan, on_gpu(1, precision), *run.data, one_step());
  for (std::size_t v = 0; v < reference.size(); ++v)
    CHECK(differing(gradients_of(pipelined, v), reference[v]) == 0);
  for (std::size_t w = 0; w < pipelined.size(); ++w)
    CHECK(pipelined[w].memory == replayed(plan, static_cast<PositionId>(w) % run.plan.positions()));
}

}  // namespace

TEST_CASE("Events can be recorded in the streams of SM groups, waited for and compared") {
  const std::string events = group_events(0);
  MESSAGE(events);
  CHECK_FALSE(events.starts_with("fail"));
}

TEST_CASE("gpu run: gradients on virtual devices are those of one worker on the whole GPU, bit by bit") {
  for (const std::string schedule : {"gpipe", "1f1b", "zb_h1"}) {
    CAPTURE(schedule);
    check_gradients({"plan.schedule=" + schedule, "training.micro_batches=4"});
  }
  check_gradients({"plan.recompute=full", "training.micro_batches=2"});
  check_gradients({"plan.data_parallel=2", "plan.schedule=1f1b", "training.micro_batches=2", "cluster.node.devices=4"});
  for (const std::string zero : {"1", "2", "3"})
    check_gradients({"plan.data_parallel=2", "plan.schedule=1f1b", "training.micro_batches=2", "cluster.node.devices=4",
                     "training.zero=" + zero});
}

TEST_CASE("gpu run: so they are in bf16, fp16 and tf32, with scores stored or not") {
  for (const Precision precision : {Precision::Bf16, Precision::Fp16, Precision::Tf32})
    for (const std::string kernel : {"materialized", "flash"}) {
      CAPTURE(static_cast<int>(precision));
      CAPTURE(kernel);
      check_gradients({"plan.schedule=1f1b", "training.micro_batches=4", "model.layers.1.ops.2.kernel=" + kernel},
                      false, precision);
    }
}

TEST_CASE("gpu run: arithmetic, sums and gathers of a worker have a stream each" *
          doctest::test_suite(kWhateverKernelsCompute)) {
  const auto backend = on_gpu(2)(1);
  std::set<void*> streams;
  std::vector<std::unique_ptr<Mover>> movers;
  for (const MoverFor thread : {MoverFor::Worker, MoverFor::Sums, MoverFor::Gathers}) {
    movers.push_back(backend->mover(thread));
    streams.insert(gpu_nccl_queue(*movers.back(), NcclPlace::Own)->stream());
  }
  CHECK(streams.size() == 3);
  CHECK(streams.count(nullptr) == 0);
}

TEST_CASE("gpu run: messages and sums through the host's memory give the same bits") {
  check_gradients({"plan.schedule=1f1b", "training.micro_batches=4"}, true);
  check_gradients({"plan.data_parallel=2", "plan.schedule=1f1b", "training.micro_batches=2", "cluster.node.devices=4"},
                  true);
}

TEST_CASE("gpu run: over throttled links no message is readable before its time, and the bits are the same" *
          doctest::test_suite(kWhateverKernelsCompute)) {
  const RunCase run({"training.micro_batches=4"});
  const RunPlan plan = plan_for(run);
  const Time latency{40'000'000};
  const auto pairs = static_cast<std::size_t>(run.plan.workers()) * static_cast<std::size_t>(run.plan.workers());
  RunSettings settings = one_step();
  settings.optimizer.kind = run.scenario.training.optimizer;
  const auto endpoints =
      local_transport(plan, {.spin = false, .timeout_s = 60}, Throttles(pairs, {{20'000'000}, latency}));
  const auto throttled = execute(plan, on_gpu(run.plan.workers()), *run.data, endpoints, settings);
  const auto plain = run_on(on_gpu(run.plan.workers()), run, plan);
  for (std::size_t v = 0; v < run.run_plan.code.size(); ++v)
    CHECK(differing(gradients_of(throttled, v), gradients_of(plain, v)) == 0);
  // GPipe: the second stage's first forward waits for the first message. Half: the clocks of the two agree as well as
  // the host, which may be busy, reads them.
  CHECK(throttled[1].steps.back().times.compute.front().start >=
        throttled[0].steps.back().times.compute.front().end + Time{latency.value / 2});
}

TEST_CASE("gpu run: a stage per GPU, over their direct link, gives the bits of one worker" *
          doctest::test_suite(kWhateverKernelsCompute)) {
  if (gpu_count() < 2) {
    MESSAGE("skipped: one GPU");
    return;
  }
  try {
    gpu_join(0, 1), gpu_join(1, 0);
  } catch (const GpuError& error) {
    MESSAGE("skipped: " << error.what());
    return;
  }
  const RunCase run({"training.micro_batches=4"});
  const RunPlan plan = plan_for(run);
  const std::shared_ptr<VirtualDevices> gpus[] = {std::make_shared<VirtualDevices>(0, 1, kStreamsOfWorker),
                                                  std::make_shared<VirtualDevices>(1, 1, kStreamsOfWorker)};
  const auto joined = run_on(
      [&](WorkerId worker) {
        return gpu_backend(gpus[worker % 2], 0, {"GPU " + std::to_string(worker % 2), 0, ""}, {Precision::Fp32, false});
      },
      run, plan);
  const auto reference = sequential_gradients(plan, on_gpu(1), *run.data, one_step());
  for (std::size_t v = 0; v < reference.size(); ++v)
    CHECK(differing(gradients_of(joined, v), reference[v]) == 0);
  gpu_part(0, 1), gpu_part(1, 0);
}

TEST_CASE("gpu run: gradients and losses are the CPU's within the rounding of fp32") {
  const RunCase run({"training.micro_batches=2"});
  const auto here = run.run(one_step());
  const auto there = run_on(on_gpu(2), run, plan_for(run));
  for (std::size_t v = 0; v < run.run_plan.code.size(); ++v) {
    const auto &a = gradients_of(there, v), &b = gradients_of(here, v);
    double off = 0, all = 0;
    for (std::size_t i = 0; i < b.size(); ++i)
      off += (double{a.at(i)} - b[i]) * (double{a[i]} - b[i]), all += double{b[i]} * b[i];
    CHECK(std::sqrt(off / all) < 1e-5);
  }
  CHECK(loss_of(there, 0) == doctest::Approx(loss_of(here, 0)).epsilon(1e-5));
}

TEST_CASE("gpu run: ops of a worker follow one another on the host's clock, and take time") {
  const RunCase run({"training.micro_batches=4", "plan.schedule=1f1b"});
  for (const WorkerResult& worker : run_on(on_gpu(2), run, plan_for(run), one_step(3))) {
    CHECK(worker.steps.back().probe > Time{});
    const auto& ops = worker.steps.back().times.compute;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      CHECK(ops[i].end > ops[i].start);
      if (i > 0) CHECK(ops[i].start + Time{100'000} >= ops[i - 1].end);  // the two clocks agree within 0.1 ms
    }
  }
}

TEST_CASE("gpu run: layers of two stages are calibrated, on each alone and on both at once") {
  const RunCase run({"training.micro_batches=4", "plan.schedule=1f1b"});
  const RunPlan plan = plan_for(run);
  RunSettings settings = one_step();
  settings.poison = settings.keep_gradients = settings.keep_weights = false;
  LayerRounds rounds(plan, on_gpu(2), *run.data, settings);
  for (const std::vector<WorkerId>& busy : {std::vector<WorkerId>{0}, {1}, {}}) {
    const auto results = rounds.measured(0.1, busy);
    for (std::size_t w = 0; w < 2; ++w) {
      CAPTURE(w);
      if (!busy.empty() && busy.front() != static_cast<WorkerId>(w)) continue;
      CHECK(!results[w].layer_ns.empty());
      for (const auto& [of, times] : results[w].layer_ns) {
        REQUIRE(!times.empty());
        CHECK(*std::max_element(times.begin(), times.end()) > 0);
      }
    }
  }
}

// How near the prediction comes is not judged: ops this small count for no target (docs/results/accuracy-gpu.md).
TEST_CASE("gpu program: validate calibrates two virtual devices, predicts, runs and compares" *
          doctest::test_suite(kWhateverKernelsCompute)) {
  for (const std::string transport : {"local", "staged"}) {
    CAPTURE(transport);
    const ScratchFolder folder;
    const ProgramRun run =
        run_program({"validate", "tests/made_up_cuda/tiny.yaml", "--set", "run.steps=20", "--transport", transport,
                     "--force", "--budget", "100ms", "-o", folder.path("study")});
    CAPTURE(run.out);
    CAPTURE(run.err);
    CHECK((run.status == 0 || run.status == 1));
    const auto told = [&](const std::string& text) { return run.out.find(text) != std::string::npos; };
    CHECK(told("verdict: "));
    CHECK(told("prices: ops as measured while 1 or 2 of 2 workers worked"));
    for (const char* const row : {"peak memory, worker 0", "peak memory, worker 1", "traffic between stages"}) {
      CAPTURE(row);
      const std::size_t at = run.out.find(row);
      REQUIRE(at != std::string::npos);
      CHECK(run.out.substr(at, run.out.find('\n', at) - at).ends_with("exact"));
    }
    for (const char* const name : {"profile.yaml", "prediction.json", "measurement.json", "comparison.json"})
      CHECK_MESSAGE(!file_text(folder.path(std::string("study/") + name)).empty(), name);
  }
}

TEST_CASE("gpu run: a GPU without the memory says so, itemised" * doctest::test_suite(kWhateverKernelsCompute)) {
  const auto backend = on_gpu(1)();
  CHECK_THROWS_WITH_AS(backend->reserve(Bytes{std::int64_t{1} << 46}), doctest::Contains("cudaMalloc"), OutOfArena);
}

TEST_CASE("gpu run: results of every operation and precision that a calibration compares are right") {
  const auto gpu = gpu_under_test(0, "2026-01-01", "test");
  std::map<std::tuple<std::string, MeasuredPass, Precision>, DeviceMeasurement> smallest;
  for (const DeviceMeasurement& m : device_measurements({}, {{1, gpu->sms(1)}})) {
    if (m.rank >= kByTheHost) continue;
    const auto [found, first] = smallest.try_emplace(std::tuple(m.operation, m.pass, m.precision), m);
    if (!first &&
        std::tuple(m.size.work(), m.size.values) < std::tuple(found->second.size.work(), found->second.size.values))
      found->second = m;
  }
  std::size_t compared = 0;
  for (const auto& [key, m] : smallest) {
    CAPTURE(text(m));
    if (!gpu->refusal(m).empty()) continue;
    const auto check = gpu->check(m);
    if (!check) continue;
    ++compared;
    CHECK_MESSAGE(check->right(), wrong_result(m, *check));
  }
  CHECK(compared > 30);
}

TEST_CASE("gpu run: what a calibration measures last can be timed on a whole GPU, on halves and on quarters") {
  const auto gpu = gpu_under_test(0, "2026-01-01", "test");
  std::vector<DeviceSplit> splits = {{1, gpu->sms(1)}, {2, gpu->sms(2)}};
  try {
    splits.push_back({4, gpu->sms(4)});
  } catch (const GpuError& error) {
    MESSAGE(error.what());
  }
  auto list = device_measurements({}, splits);
  std::erase_if(list, [](const DeviceMeasurement& m) { return m.rank < kByTheHost; });
  const auto pairs = std::count_if(list.begin(), list.end(), [](const auto& m) { return m.beside != nullptr; });
  DeviceSettings settings;
  settings.warm = false;
  settings.rule.least = 3, settings.rule.seconds = 1e-3;
  const MeasuredDevice measured = measure(*gpu, list, settings);
  for (const std::string& line : measured.left_out)
    MESSAGE(line);
  CHECK(static_cast<std::ptrdiff_t>(measured.interference.size()) == pairs);
  CHECK(std::any_of(measured.collectives.begin(), measured.collectives.end(),
                    [](const MeasuredCollective& each) { return each.operation == "ring all-reduce"; }));
  for (const MeasuredPair& pair : measured.interference) {
    CAPTURE(pair.operation);
    CAPTURE(pair.beside);
    CHECK(pair.slowdown > 0);
    CHECK(pair.readings >= 3);
  }
  for (const char* operation : {"copy pageable to host", "copy pageable to device", "launch one by one",
                                "launch by graph", "launch and record", "launch across streams"}) {
    CAPTURE(operation);
    CHECK(std::any_of(measured.series.begin(), measured.series.end(),
                      [&](const MeasuredSeries& s) { return s.operation == operation; }));
  }
}

int main(int argc, char** argv) {
  if (gpu_count() == 0) {
    std::printf("skipped: %s\n", gpu_status().c_str());
    return 77;
  }
  return run_cases(argc, argv);
}
