// Runs on a device whose memory the host cannot read, and which is always behind, must give the same bits as on the
// host, or something reads behind its back or before its time.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/backends/cpu.hpp"
#include "runtime/transports/local.hpp"
#include "runtime/transports/staged.hpp"
#include "tests/runtime/far_backend.hpp"
#include "tests/runtime/run_case.hpp"
#include "tests/runtime/sequential_steps.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

using Around = std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>, const RunPlan&)>;

void check_far(const std::vector<std::string>& changes, const std::string& file = "two-stage-gpipe.yaml",
               const Around& around = {}) {
  const RunCase run(changes, {}, file);
  RunSettings settings = one_step(2);
  settings.optimizer.kind = run.scenario.training.optimizer;
  const auto here = run.run(settings);
  auto endpoints = local_transport(run.run_plan, {.spin = false, .timeout_s = 60}, {});
  if (around)
    for (auto& endpoint : endpoints)
      endpoint = around(std::move(endpoint), run.run_plan);
  const auto there = execute(run.run_plan, far_backend, *run.data, endpoints, settings);
  for (std::size_t w = 0; w < here.size(); ++w) {
    CAPTURE(w);
    CHECK(here[w].weights == there[w].weights);
    CHECK(here[w].gradients == there[w].gradients);
    CHECK(here[w].memory == there[w].memory);
    CHECK(here[w].steps[1].loss == there[w].steps[1].loss);
  }
}

}  // namespace

TEST_CASE("far memory: every schedule gives the bits of the host" * doctest::test_suite("whole runs")) {
  for (const std::string schedule : {"gpipe", "1f1b", "eager_1f1b", "naive", "pipedream"})
    for (const std::string recompute : {"none", "full"}) {
      CAPTURE(schedule);
      CAPTURE(recompute);
      check_far({"plan.schedule=" + schedule, "plan.recompute=" + recompute, "training.micro_batches=4"});
    }
  check_far({"plan.schedule=interleaved_1f1b", "plan.virtual_stages=2", "training.micro_batches=4"});
}

TEST_CASE("far memory: sums between workers") {
  check_far({"plan.data_parallel=2", "plan.schedule=1f1b", "training.micro_batches=4", "cluster.node.devices=4"});
  check_far({"training.optimizer=adam", "plan.schedule=data_parallel", "plan.stages=1", "plan.data_parallel=2"});
  check_far({}, "pipedream-2-1.yaml");
}

TEST_CASE("far memory: with training.zero parts are gathered and scattered, as they lie or through the host") {
  for (const std::string zero : {"1", "2", "3"}) {
    const std::vector<std::string> divided = {"plan.data_parallel=2",     "plan.schedule=1f1b",
                                              "training.micro_batches=4", "cluster.node.devices=4",
                                              "training.optimizer=adam",  "training.zero=" + zero};
    check_far(divided);
    for (const Takes takes : {Takes::WithMover, Takes::ByReading})
      check_far(divided, "two-stage-gpipe.yaml", [takes](std::unique_ptr<Transport> within, const RunPlan& run) {
        return staged_transport(std::move(within), run, takes);
      });
  }
}

TEST_CASE("far memory: staged messages and sums give the bits of the host") {
  for (const Takes takes : {Takes::WithMover, Takes::ByReading}) {
    const auto staged = [takes](std::unique_ptr<Transport> within, const RunPlan& run) {
      return staged_transport(std::move(within), run, takes);
    };
    for (const std::string schedule : {"gpipe", "1f1b", "zb_h1", "pipedream"})
      check_far({"plan.schedule=" + schedule, "training.micro_batches=4"}, "two-stage-gpipe.yaml", staged);
    check_far({"plan.schedule=1f1b", "plan.recompute=full", "training.global_batch_size=7", "training.ragged=true",
               "training.micro_batches=4"},
              "two-stage-gpipe.yaml", staged);
    check_far({"plan.data_parallel=2", "plan.schedule=1f1b", "training.micro_batches=4", "cluster.node.devices=4"},
              "two-stage-gpipe.yaml", staged);
    check_far({}, "pipedream-2-1.yaml", staged);
  }
}

TEST_CASE("far memory: one worker's gradients are the host's") {
  const RunCase run({"plan.schedule=1f1b"});
  const auto here = sequential_gradients(run.run_plan, cpu_backend, *run.data, one_step());
  CHECK(here == sequential_gradients(run.run_plan, far_backend, *run.data, one_step()));
  CHECK(sequential_weights(run.run_plan, cpu_backend, *run.data, one_step()) ==
        sequential_weights(run.run_plan, far_backend, *run.data, one_step()));
}

TEST_CASE("far memory: a device without the memory is the answer no, itemised") {
  class Full final : public FarBackend {
   public:
    std::unique_ptr<DeviceMemory> reserve(Bytes size) override {
      throw OutOfArena("no " + std::to_string(size.value) + " B, made up");
    }
  };
  const RunCase run({});
  const auto endpoints = local_transport(run.run_plan, {.spin = false, .timeout_s = 60}, {});
  const std::string extent = std::to_string(replayed(run.run_plan, 0).extent.value);
  const BackendMaker full = [] { return std::make_unique<Full>(); };
  const std::string told =
      "worker 0: no " + extent + " B, made up; its arena spans " + extent + " B, at most at once: weights ";
  CHECK_THROWS_WITH_AS(execute(run.run_plan, full, *run.data, endpoints, one_step()), doctest::Contains(told.c_str()),
                       OutOfDevice);
  CHECK_THROWS_WITH_AS(measure_layers(run.run_plan, full, *run.data, one_step(), 0), doctest::Contains(told.c_str()),
                       OutOfDevice);
}

TEST_CASE("far memory: what goes wrong in a kernel is told with the worker and the op that waited for it") {
  class Broken final : public FarBackend {
   public:
    explicit Broken(bool breaks) : breaks_(breaks) {}
    void input_gradient(const StepArguments& a) override { begun_ = true, FarBackend::input_gradient(a); }
    void finish() override {
      FarBackend::finish();
      if (breaks_ && begun_) throw std::runtime_error("kernel softmax: an illegal address, made up");
    }

   private:
    bool breaks_, begun_ = false;
  };
  const RunCase run({"training.micro_batches=2"});
  const auto endpoints = local_transport(run.run_plan, {.spin = false, .timeout_s = 60}, {});
  CHECK_THROWS_WITH_AS(execute(
                           run.run_plan, [](WorkerId worker) { return std::make_unique<Broken>(worker == 1); },
                           *run.data, endpoints, one_step()),
                       "worker 1 at op 1B1: kernel softmax: an illegal address, made up", RunFailed);
}
