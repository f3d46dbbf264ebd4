// Whole runs on the GPU's kernels, whose code the CPU runs thread after thread: what a GPU computes, but for its clock.
#include "runtime/backends/grid_backend.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "calibrate/device_jobs.hpp"
#include "core/check.hpp"
#include "core/cost/cost_model.hpp"
#include "runtime/backends/cpu.hpp"
#include "runtime/backends/gpu.hpp"
#include "runtime/checkpoint.hpp"
#include "runtime/operations.hpp"
#include "runtime/transports/local.hpp"
#include "tests/calibrate/every_operation.hpp"
#include "tests/io/scratch.hpp"
#include "tests/kernels/host_grid.hpp"
#include "tests/runtime/run_case.hpp"
#include "tests/runtime/sequential_steps.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

// The model of the scenario with two of its six blocks: a third of the time.
const std::string kTwoBlocks = "model.layers.1.repeat=2";

// Sums as a GPU's mover adds them, on any number of blocks.
class EmulatedMover final : public Mover {
 public:
  explicit EmulatedMover(const grid_kernels::HostGrid& grid) : grid_(grid) {}
  void copy(void* to, const void* from, Bytes bytes) override { host_->copy(to, from, bytes); }
  void upload(void* to, const void* from_host, Bytes bytes) override { host_->upload(to, from_host, bytes); }
  void download(void* to_host, const void* from, Bytes bytes) override { host_->download(to_host, from, bytes); }
  void sum(float* to, std::span<const float* const> terms, std::int64_t elements) override {
    grid_kernels::sum_of_terms(grid_, elements, terms.data(), static_cast<int>(terms.size()), to);
  }

 private:
  grid_kernels::HostGrid grid_;
  std::unique_ptr<Mover> host_ = host_mover();
};

template <class S>
class EmulatedBackend : public backends::GridBackend<grid_kernels::HostGrid, S> {
 public:
  EmulatedBackend(Precision precision, std::int64_t blocks)
      : precision_(precision), grid_{blocks, precision == Precision::Tf32} {}
  std::string name() const override { return "emulated"; }
  Precision precision() const override { return precision_; }
  Bytes alignment() const override { return Bytes{64}; }
  void copy(void* to, const void* from, Bytes bytes) override { host_->copy(to, from, bytes); }
  void zero(void* block, Bytes bytes) override {
    std::fill_n(static_cast<std::byte*>(block), bytes.value, std::byte{});
  }
  std::unique_ptr<Mover> mover(MoverFor) override { return std::make_unique<EmulatedMover>(grid_); }

 protected:
  const grid_kernels::HostGrid& queue() const override { return grid_; }

 private:
  Precision precision_;
  grid_kernels::HostGrid grid_;
  std::unique_ptr<Mover> host_ = host_mover();
};

std::function<std::unique_ptr<Backend>()> emulated(std::int64_t blocks, Precision precision = Precision::Fp32) {
  return
      [=]() -> std::unique_ptr<Backend> { return backends::stored_as<EmulatedBackend>(precision, precision, blocks); };
}

// As `training.precision` and `gradient_precision: fp32` say.
Training trained_in(const RunCase& run, Precision precision) {
  Training training = run.scenario.training;
  training.precision = precision, training.gradient_precision = Precision::Fp32;
  return training;
}

// The plan of a run with this backend's workspaces.
RunPlan plan_for(const RunCase& run, Precision precision = Precision::Fp32, double loss_scale = 1) {
  return run_plan(run.plan, run.schedule, run.scenario.model, trained_in(run, precision), *emulated(1, precision)(),
                  {.loss_scale = loss_scale});
}

std::vector<WorkerResult> run_on(const RunCase& run, const RunPlan& plan, std::int64_t blocks, int steps = 1) {
  RunSettings settings = one_step(steps);
  settings.optimizer.kind = run.scenario.training.optimizer;
  const auto endpoints = local_transport(plan, {.spin = false, .timeout_s = 60}, {});
  return execute(plan, emulated(blocks, plan.precision), *run.data, endpoints, settings);
}

// On seven blocks: the gradients of `reference`, to the last bit, and the memory that was counted, to the byte.
void check_run(const RunCase& run, const RunPlan& plan, const std::vector<std::vector<float>>& reference) {
  const auto pipelined = run_on(run, plan, 7);
  for (std::size_t v = 0; v < reference.size(); ++v)
    CHECK(gradients_of(pipelined, v) == reference[v]);
  for (std::size_t w = 0; w < pipelined.size(); ++w)
    CHECK(pipelined[w].memory == replayed(plan, static_cast<PositionId>(w) % run.plan.positions()));
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double off = 0, all = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    off += (double{a[i]} - b[i]) * (double{a[i]} - b[i]), all += double{b[i]} * b[i];
  return std::sqrt(off / all);
}

}  // namespace

TEST_CASE("grid backend: every operation of the table but those of experts is there") {
  std::vector<std::string> here, wanted;
  for (const auto& operation : backends::kGridOperations<grid_kernels::HostGrid, float>)
    here.emplace_back(operation.name);
  for (const OperationRule& rule : operation_rules())
    if (rule.name != "grouped_linear" && rule.name != "dispatch" && rule.name != "combine")  // experts: on CPUs alone
      wanted.emplace_back(rule.name);
  std::sort(here.begin(), here.end()), std::sort(wanted.begin(), wanted.end());
  CHECK(here == wanted);
}

TEST_CASE("grid backend: sums of gradients have the bits of the host's, whoever adds which part") {
  constexpr std::int64_t kElements = 5000;
  std::vector<std::vector<float>> terms;
  for (std::uint64_t t = 0; t < 5; ++t) {
    auto& term = terms.emplace_back(kElements);
    for (std::size_t i = 0; i < term.size(); ++i)  // of very different sizes: the order of the sum shows
      term[i] = static_cast<float>(mixed(t * 100'000 + i) >> 40) * (i % 3 == t % 3 ? 1e-6F : 1.0F);
  }
  std::vector<const float*> from;
  for (const auto& term : terms)
    from.push_back(term.data());
  std::vector<float> host(kElements), device(kElements);
  host_mover()->sum(host.data(), from, kElements);
  for (const std::int64_t blocks : {1, 7, 100}) {
    EmulatedMover(grid_kernels::HostGrid{blocks}).sum(device.data(), from, kElements);
    CHECK(differing(device, host) == 0);
  }
  // A whole run: every member adds its segment of every bucket.
  const RunCase run(
      {kTwoBlocks, "plan.data_parallel=2", "plan.schedule=1f1b", "training.micro_batches=2", "cluster.node.devices=4"});
  const RunPlan plan = plan_for(run);
  const auto pipelined = run_on(run, plan, 7);
  const auto reference = sequential_gradients(plan, emulated(1), *run.data, one_step());
  for (std::size_t v = 0; v < reference.size(); ++v)
    CHECK(gradients_of(pipelined, v) == reference[v]);
}

TEST_CASE("grid backend: sizes of a GPU's run are known without one, with its alignment") {
  const RunCase run({"training.micro_batches=2"});
  for (const Precision precision : {Precision::Fp32, Precision::Bf16}) {
    const auto sizes = gpu_sizes(precision);
    const RunPlan there = run_plan(run.plan, run.schedule, run.scenario.model, trained_in(run, precision), *sizes),
                  here = plan_for(run, precision);
    CHECK(sizes->alignment() == Bytes{512});
    for (PositionId p = 0; p < run.plan.positions(); ++p) {
      const ArenaUse coarse = replayed(there, p), fine = replayed(here, p);
      CHECK(coarse.extent.value % 512 == 0);
      CHECK(coarse.live > fine.live);  // the same blocks, rounded up further
    }
  }
}

// One worker sums up micro-batches in the order of the schedule: GPipe has one of its own. What is computed again
// changes nothing.
TEST_CASE("grid backend: pipelined gradients are those of one worker, bit by bit, on any number of blocks" *
          doctest::test_suite("all combinations")) {
  struct Case {
    std::string schedule, recompute;
    int stages;
  };
  std::map<std::pair<int, bool>, std::vector<std::vector<float>>> references;
  for (const auto& [schedule, recompute, stages] : {Case{"gpipe", "none", 1},
                                                    {"gpipe", "full", 1},
                                                    {"gpipe", "none", 3},
                                                    {"gpipe", "full", 3},
                                                    {"1f1b", "none", 3},
                                                    {"1f1b", "full", 3},
                                                    {"zb_h1", "none", 3}}) {
    CAPTURE(schedule);
    CAPTURE(recompute);
    CAPTURE(stages);
    const RunCase run({kTwoBlocks, "plan.schedule=" + schedule, "plan.recompute=" + recompute,
                       "plan.stages=" + std::to_string(stages), "training.micro_batches=2", "cluster.node.devices=4"});
    const RunPlan plan = plan_for(run);
    auto& reference = references[{stages, schedule == "gpipe"}];
    if (reference.empty()) reference = sequential_gradients(plan, emulated(1), *run.data, one_step());
    check_run(run, plan, reference);
  }
}

TEST_CASE("grid backend: gradients, losses and weights are the CPU's within the rounding of fp32") {
  for (const std::string optimizer : {"sgd", "momentum", "rmsprop", "adam"}) {
    CAPTURE(optimizer);
    const RunCase run({kTwoBlocks, "training.micro_batches=2", "training.optimizer=" + optimizer});
    const auto here = run.run(one_step());
    const auto there = run_on(run, plan_for(run), 4);
    for (std::size_t v = 0; v < run.run_plan.code.size(); ++v) {
      CHECK(relative_difference(gradients_of(there, v), gradients_of(here, v)) < 1e-5);
      for (std::size_t w = 0; w < here.size(); ++w)
        if (!here[w].weights[v].empty()) CHECK(relative_difference(there[w].weights[v], here[w].weights[v]) < 1e-3);
    }
    CHECK(loss_of(there, 0) == doctest::Approx(loss_of(here, 0)).epsilon(1e-5));
  }
}

// ---- precision

TEST_CASE(
    "grid backend: in 16 bits and tf32, pipelined gradients are one worker's, bit by bit, and memory is counted to "
    "the byte" *
    doctest::test_suite("all combinations")) {
  struct Case {
    Precision precision;
    std::string schedule, recompute;
  };
  for (const auto& [precision, schedule, recompute] : {Case{Precision::Bf16, "gpipe", "none"},
                                                       {Precision::Bf16, "1f1b", "full"},
                                                       {Precision::Fp16, "1f1b", "none"},
                                                       {Precision::Tf32, "gpipe", "full"}}) {
    CAPTURE(static_cast<int>(precision));
    CAPTURE(schedule);
    CAPTURE(recompute);
    const RunCase run({kTwoBlocks, "plan.schedule=" + schedule, "plan.recompute=" + recompute, "plan.stages=3",
                       "training.micro_batches=3", "cluster.node.devices=4", "training.optimizer=adam"});
    const RunPlan plan = plan_for(run, precision);
    const auto reference = sequential_gradients(plan, emulated(1, precision), *run.data, one_step());
    check_run(run, plan, reference);
  }
}

// All virtual stages' gradients in the order of the layers, without what lies between tensors.
std::vector<std::vector<float>> by_tensor(const RunPlan& plan, const std::vector<WorkerResult>& workers) {
  std::vector<std::vector<float>> tensors;
  for (std::size_t v = 0; v < plan.code.size(); ++v) {
    const float* const all = gradients_of(workers, v).data();
    for (const CodeParameter& parameter : plan.code[v].parameters)
      tensors.emplace_back(all + parameter.offset / 4, all + parameter.offset / 4 + parameter.tensor.elements);
  }
  return tensors;
}

TEST_CASE("grid backend: bf16 gradients have the same bits on 1, 2, 3 and 4 stages" *
          doctest::test_suite("whole runs")) {
  const auto gradients = [](int stages) {
    const RunCase run({kTwoBlocks, "plan.schedule=1f1b", "plan.stages=" + std::to_string(stages),
                       "training.micro_batches=2", "cluster.node.devices=4"});
    const RunPlan plan = plan_for(run, Precision::Bf16);
    return by_tensor(plan, run_on(run, plan, 3));
  };
  const auto whole = gradients(1);
  CHECK(whole.size() > 10);
  for (const int stages : {2, 3, 4})
    CHECK(gradients(stages) == whole);
}

// Every activation, gradient of one and weight is off by 2^-9 at most in bf16; over this model's two blocks that adds
// up to 1.03e-2 for the gain of the first norm, less than 1e-2 for the other 29 tensors, 8.0e-3 for all together.
TEST_CASE("grid backend: gradients are fp32's within what the precision allows, tensor by tensor, and not the same") {
  const RunCase run({kTwoBlocks, "training.micro_batches=2"});
  const RunPlan plan = plan_for(run);
  const auto exact = by_tensor(plan, run_on(run, plan, 1));
  struct Case {
    Precision precision;
    double loss_scale, all, each;
  };
  for (const auto& [precision, loss_scale, all, each] : {Case{Precision::Bf16, 1, 1e-2, 1.2e-2},
                                                         {Precision::Fp16, 1024, 1.5e-3, 2e-3},
                                                         {Precision::Tf32, 1, 1e-3, 1e-3}}) {
    CAPTURE(static_cast<int>(precision));
    const RunPlan other = plan_for(run, precision, loss_scale);
    const auto tensors = by_tensor(other, run_on(run, other, 1));
    double worst = 0;
    std::vector<float> here, wanted;
    for (std::size_t t = 0; t < exact.size(); ++t) {
      worst = std::max(worst, relative_difference(tensors[t], exact[t]));
      here.insert(here.end(), tensors[t].begin(), tensors[t].end());
      wanted.insert(wanted.end(), exact[t].begin(), exact[t].end());
    }
    CHECK(worst < each);
    CHECK(relative_difference(here, wanted) < all);
    CHECK(worst > each / 1000);
  }
}

// 18 B a parameter: weight 2, gradient 4, master 4, adam's states 8 (weight_bytes, gradient_bytes, optimizer_bytes),
// each tensor at 64 B.
TEST_CASE("grid backend: what a worker holds all the time are the bytes of the table") {
  for (const Precision precision : {Precision::Bf16, Precision::Fp32}) {
    const RunCase run({"training.optimizer=adam"});
    const RunPlan plan = plan_for(run, precision);
    const Training training = trained_in(run, precision);
    for (PositionId p = 0; p < run.plan.positions(); ++p) {
      std::int64_t weights = 0, gradients = 0, states = 0;
      for (const CodeParameter& parameter : plan.code[static_cast<std::size_t>(p)].parameters) {
        const std::int64_t n = parameter.tensor.elements;
        weights += rounded_up(n * weight_bytes(precision).value, 64);
        gradients += rounded_up(n * gradient_bytes(training).value, 64);
        states += rounded_up(4 * n, 64) * (optimizer_bytes(training).value / 4);
      }
      const ArenaUse use = replayed(plan, p);
      CHECK(use.by_tag[static_cast<std::size_t>(Tag::Weights)] == Bytes{weights});
      CHECK(use.by_tag[static_cast<std::size_t>(Tag::Gradients)] == Bytes{gradients});
      CHECK(use.by_tag[static_cast<std::size_t>(Tag::Optimizer)] == Bytes{states});
    }
  }
}

TEST_CASE("grid backend: a bf16 run updates masters, and layers read them rounded") {
  // With one step so small that no weight moves to another bf16 value, a hundred of them must still add up.
  const RunCase run({kTwoBlocks, "training.micro_batches=2"});
  const RunPlan plan = plan_for(run, Precision::Bf16);
  RunSettings settings = one_step(1);
  settings.optimizer.learning_rate = 1e-6;
  const auto steps = [&](int count) {
    settings.steps = count;
    const auto endpoints = local_transport(plan, {.spin = false, .timeout_s = 60}, {});
    return execute(plan, emulated(1, Precision::Bf16), *run.data, endpoints, settings)[0].weights[0];
  };
  const std::vector<float> one = steps(1), three = steps(3);
  std::size_t moved = 0, stayed = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    moved += one[i] != three[i] ? 1 : 0, stayed += Bf16(one[i]).bits == Bf16(three[i]).bits ? 1 : 0;
  CHECK(moved > one.size() / 2);
  CHECK(stayed > one.size() / 2);
}

namespace {

const std::string kShortChain =
    "model={name: chain, input_shape: [6], layers: [{name: body, repeat: 3, ops: [{op: linear, features: 6}, {op: "
    "tanh}]}, {name: head, op: linear, features: 4}, {name: loss, op: cross_entropy}]}";

// Weights and gradients are lists by virtual stage, and with training.zero: 3 there are more of these.
std::vector<float> in_one_list(const std::vector<std::vector<float>>& lists) {
  std::vector<float> all;
  for (const auto& list : lists)
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

void check_divided_masters(std::vector<std::string> changes, int copies, const std::vector<std::string>& zeros) {
  CAPTURE(changes);
  changes.insert(changes.end(), {"plan.data_parallel=" + std::to_string(copies), "training.micro_batches=2",
                                 "training.optimizer=adam", "cluster.node.devices=12"});
  const auto run_of = [&](const std::string& zero) {
    std::vector<std::string> keys = changes;
    keys.push_back("training.zero=" + zero);
    if (zero > "1") keys.emplace_back("plan.reduce_gradients=step");  // the same order of additions
    const RunCase run(keys);
    const RunPlan plan = plan_for(run, Precision::Bf16);
    const auto workers = run_on(run, plan, 7, 3);
    for (std::size_t w = 0; w < workers.size(); ++w)
      CHECK(workers[w].memory == replayed(plan, static_cast<PositionId>(w) % run.plan.positions()));
    return workers;
  };
  const auto whole = run_of("0");
  for (const std::string& zero : zeros) {
    CAPTURE(zero);
    const auto divided = run_of(zero);
    for (std::size_t w = 0; w < whole.size(); ++w) {
      CHECK(divided[w].steps[2].loss == whole[w].steps[2].loss);
      CHECK((in_one_list(divided[w].gradients) == in_one_list(whole[w].gradients)));
      CHECK((in_one_list(divided[w].weights) == in_one_list(whole[w].weights)));  // the masters of all
      const auto states = [](const WorkerResult& worker) {
        return worker.memory.by_tag[static_cast<std::size_t>(Tag::Optimizer)].value;
      };
      const std::int64_t all = states(whole[w]), blocks = 3;  // a master and two states
      if (zero != "3") CHECK(states(divided[w]) == rounded_up((all / blocks + copies - 1) / copies, 64) * blocks);
    }
  }
}

void check_resumed_masters(const std::string& zero) {
  CAPTURE(zero);
  const RunCase run({kShortChain, "model.input_tokens=null", "plan.schedule=1f1b", "plan.stages=1",
                     "plan.data_parallel=2", "training.micro_batches=2", "training.optimizer=adam",
                     "training.zero=" + zero});
  const RunPlan plan = plan_for(run, Precision::Bf16);
  const Scratch scratch;
  const auto weights_after = [&](int steps, bool resumes) {
    RunSettings settings = one_step(steps);
    settings.optimizer.kind = Optimizer::Adam;
    Checkpoints all(scratch.path("state"), 0, steps,
                    checkpoint_identity(plan, settings, *run.data, *emulated(1, Precision::Bf16)(), "1"), run.plan);
    if (resumes) all.resume(all.newest());
    settings.checkpoints = &all;
    const auto endpoints = local_transport(plan, {.spin = false, .timeout_s = 60}, {});
    return in_one_list(execute(plan, emulated(1, Precision::Bf16), *run.data, endpoints, settings)[1].weights);
  };
  const std::vector<float> first = weights_after(2, false), second = weights_after(4, true);
  CHECK((second == in_one_list(run_on(run, plan, 1, 4)[1].weights)));
  CHECK((second != first));
}

}  // namespace

TEST_CASE("grid backend: with training.zero a bf16 run divides its masters, too, and keeps every bit" *
          doctest::test_suite("whole runs")) {
  check_divided_masters({kTwoBlocks, "plan.schedule=1f1b", "plan.stages=2"}, 2, {"1"});
  check_divided_masters({kShortChain, "model.input_tokens=null", "plan.schedule=1f1b", "plan.stages=2"}, 3,
                        {"1", "2", "3"});
}

TEST_CASE("grid backend: likewise where members have no part at all") {
  // 192 + 64 B of masters: four parts of 64 B, of twelve.
  check_divided_masters({"model={name: small, input_shape: [6], layers: [{name: head, op: linear, features: 6}, {name: "
                         "loss, op: cross_entropy}]}",
                         "model.input_tokens=null", "plan.schedule=1f1b", "plan.stages=1"},
                        12, {"1", "2", "3"});
}

TEST_CASE("grid backend: a bf16 run with parts of masters goes on from a checkpoint to the same bits") {
  for (const std::string zero : {"1", "2", "3"})
    check_resumed_masters(zero);
}

namespace {

std::vector<DeviceMeasurement> passes_of_everything() {
  const Model model = model_of_every_operation();
  auto list = device_measurements({{&model, {2}}}, {{1, 1}});
  std::erase_if(list, [](const DeviceMeasurement& m) {
    return (m.rank != 0 && m.rank != 10) || m.size.values > 2e4 || m.size.work() > 1e7 ||
           (!computed(m.work) && m.work != DeviceWork::Copy);
  });
  return list;
}

// Adds 1 % to what GELU answers, and draws another dropout's mask.
class SpoiledBackend final : public EmulatedBackend<Bf16> {
 public:
  using EmulatedBackend<Bf16>::EmulatedBackend;
  void forward(const StepArguments& a) override {
    EmulatedBackend<Bf16>::forward(a);
    auto* const y = static_cast<Bf16*>(a.output);
    const Shape& shape = a.program->tensors[static_cast<std::size_t>(a.step->output)].shape;
    const auto values = static_cast<std::size_t>(static_cast<double>(a.samples) * shape.elements());
    for (std::size_t i = 0; i < values; ++i)
      y[i] = Bf16(1.02F * static_cast<float>(y[i]));
  }
  void dropout(const DropoutMask& mask, std::int64_t elements, const void* x, void* y) override {
    EmulatedBackend<Bf16>::dropout({mask.share, mask.seed, mask.place + 1}, elements, x, y);
  }
};

}  // namespace

TEST_CASE("grid backend: the numeric check of a calibration finds every operation right in every precision") {
  std::map<Precision, int> checked;
  for (const DeviceMeasurement& m : passes_of_everything()) {
    CAPTURE(m.operation);
    CAPTURE(static_cast<int>(m.pass));
    CAPTURE(static_cast<int>(m.precision));
    JobMemory memory;
    const auto check = device_job(m, emulated(7, m.precision)(), 1, memory)->check();
    REQUIRE(check.has_value());
    CHECK(check->error <= check->limit);
    if (m.work == DeviceWork::Step && m.precision != Precision::Fp32 && m.operation == "linear" &&
        m.pass == MeasuredPass::Forward)
      CHECK(check->error > 0.02 * check->limit);  // the limit is not far away
    ++checked[m.precision];
  }
  CHECK(checked[Precision::Fp32] > 40);
  CHECK(checked[Precision::Bf16] > 40);
  CHECK(checked[Precision::Fp16] > 40);
  CHECK(checked[Precision::Tf32] > 5);
}

TEST_CASE("grid backend: so it does at the sizes that a calibration compares, the smallest of its list" *
          doctest::test_suite("all combinations")) {
  const auto list = device_measurements({}, {{1, 132}});
  std::map<std::tuple<std::string, MeasuredPass, Precision>, const DeviceMeasurement*> smallest;
  const auto effort = [](const DeviceMeasurement& m) { return std::tuple(m.size.work(), m.size.values); };
  for (const DeviceMeasurement& m : list) {
    if (!computed(m.work) || m.work == DeviceWork::Update || m.beside != nullptr) continue;
    if (m.operation == "embedding") continue;  // 128 MiB of table
    const DeviceMeasurement*& least = smallest[{m.operation, m.pass, m.precision}];
    if (least == nullptr || effort(m) < effort(*least)) least = &m;
  }
  for (const auto& [key, m] : smallest) {
    CAPTURE(text(*m));
    JobMemory memory;
    const auto check = device_job(*m, emulated(7, m->precision)(), 1, memory)->check();
    REQUIRE(check.has_value());
    CHECK(check->error <= check->limit / 3);  // nothing comes near
  }
}

TEST_CASE("grid backend: the numeric check of a calibration finds a result that is 2 % off") {
  for (const DeviceMeasurement& m : passes_of_everything()) {
    if (m.operation != "gelu" || m.pass != MeasuredPass::Forward || m.precision != Precision::Bf16) continue;
    JobMemory memory;
    const auto check = device_job(m, std::make_unique<SpoiledBackend>(Precision::Bf16, 7), 1, memory)->check();
    REQUIRE(check.has_value());
    CHECK(check->error == doctest::Approx(0.02).epsilon(0.2));
    CHECK_FALSE(check->right());
    CHECK(wrong_result(m, *check).find("its result is wrong (forward of ") == 0);
  }
  // Another mask: 2 p (1 - p) of the squares differ, of (1 - p): sqrt(2 p) off, p = 0.1.
  DeviceMeasurement m;
  m.work = DeviceWork::Dropout, m.operation = "dropout", m.precision = Precision::Bf16, m.size = {1, 64, 64, 0, 8192};
  JobMemory job_memory;
  const auto wrong = device_job(m, std::make_unique<SpoiledBackend>(Precision::Bf16, 7), 1, job_memory)->check();
  REQUIRE(wrong.has_value());
  CHECK(wrong->error == doctest::Approx(std::sqrt(0.2)).epsilon(0.2));
  CHECK_FALSE(wrong->right());
  // A copy that does nothing.
  const auto backend = emulated(1)();
  const auto memory = backend->reserve(Bytes{8192});
  fill_random(*backend->mover(MoverFor::Worker), memory->base(), 8192);
  CHECK(checked_copy(*backend, memory->base() + 4096, memory->base(), 4096, [] {}).error > 0.9);
}

// Blocks of 64 parameters each: weights, gradients, states; in 16 bits the copy that layers read; each at 512 B.
TEST_CASE("grid backend: what a calibration times as an update in 16 bits writes masters and their rounded copies") {
  constexpr std::int64_t kParameters = 64, kBlocks = 3;
  for (const Precision precision : {Precision::Bf16, Precision::Fp16, Precision::Fp32}) {
    CAPTURE(static_cast<int>(precision));
    DeviceMeasurement m;
    m.work = DeviceWork::Update, m.precision = precision, m.optimizer = Optimizer::Adam;
    m.size = {1, kParameters, 1, 0, kParameters};
    const auto backend = emulated(4, precision)();
    REQUIRE(refusal_of(m, *backend).empty());
    const bool copies = precision != Precision::Fp32;
    const std::int64_t each = (copies ? 5 : 4) * 512;
    CHECK(block_bytes(m, *backend) == Bytes{each});
    JobMemory memory;
    const auto job = device_job(m, emulated(4, precision)(), kBlocks, memory);
    const std::byte* const base = memory.at_least(*backend, Bytes{1});
    const std::vector<std::byte> before(base, base + kBlocks * each);
    job->launch();
    job->launch();
    for (std::int64_t b = 0; b < kBlocks; ++b) {
      const std::byte *const block = base + b * each, *const old = before.data() + b * each;
      const auto same = [&](std::int64_t from, std::int64_t to) {
        return std::equal(block + from, block + to, old + from);
      };
      CHECK(same(0, each) == (b == 2));  // a pass goes to the next block
      if (b == 2) continue;
      CHECK(same(512, 1024));             // gradients
      CHECK(same(4 * kParameters, 512));  // what lies behind the masters
      const auto* const masters = reinterpret_cast<const float*>(block);
      int moved = 0;
      for (std::int64_t i = 0; i < kParameters; ++i)
        moved += masters[i] != reinterpret_cast<const float*>(old)[i] ? 1 : 0;
      CHECK(moved > kParameters / 2);
      CHECK(std::all_of(masters, masters + kParameters, [](float w) { return std::abs(w) <= 1; }));  // no root below 0
      if (!copies) continue;
      const auto* const stored = reinterpret_cast<const std::uint16_t*>(block + 4 * 512);
      for (std::int64_t i = 0; i < kParameters; ++i)
        CHECK(stored[i] == (precision == Precision::Bf16 ? Bf16(masters[i]).bits : Fp16(masters[i]).bits));
      CHECK(same(4 * 512 + 2 * kParameters, each));
    }
  }
}

TEST_CASE("grid backend: layers of a stage that gets bf16 messages can be timed" *
          doctest::test_suite("all combinations")) {
  const RunCase run({kTwoBlocks, "training.micro_batches=2"});
  for (const Precision precision : {Precision::Bf16, Precision::Fp16}) {
    const RunPlan plan = plan_for(run, precision);
    REQUIRE(plan.plan->workers() > 1);
    // Made-up messages are numbers: a loss that is none would end it.
    const auto results = measure_layers(plan, emulated(1, precision), *run.data, one_step(1), 0.0);
    CHECK(!results.back().layer_ns.empty());
  }
}

TEST_CASE("grid backend: asynchronous versions of bf16 weights are one worker's, op by op") {
  const RunCase run({kTwoBlocks, "plan.schedule=pipedream", "training.micro_batches=4", "training.optimizer=momentum"});
  const RunPlan plan = plan_for(run, Precision::Bf16);
  RunSettings settings = one_step();
  settings.optimizer.kind = Optimizer::Momentum;
  const auto workers = run_on(run, plan, 2);
  const auto wanted = sequential_weights(plan, emulated(1, Precision::Bf16), *run.data, settings);
  for (std::size_t v = 0; v < wanted.size(); ++v)
    CHECK(workers[v].weights[v] == wanted[v]);
}

TEST_CASE("grid backend: a loss scale that is a power of two changes no bit of fp32, and decides what fp16 loses" *
          doctest::test_suite("whole runs")) {
  const RunCase run({kTwoBlocks, "training.micro_batches=2"});
  const auto gradients = [&](Precision precision, double scale) {
    const RunPlan plan = plan_for(run, precision, scale);
    return by_tensor(plan, run_on(run, plan, 1));
  };
  const auto exact = gradients(Precision::Fp32, 1);
  CHECK(gradients(Precision::Fp32, 1024) == exact);
  const auto worst = [&](const std::vector<std::vector<float>>& tensors) {
    double most = 0;
    for (std::size_t t = 0; t < exact.size(); ++t)
      most = std::max(most, relative_difference(tensors[t], exact[t]));
    return most;
  };
  CHECK(worst(gradients(Precision::Fp16, 1024)) < 5e-3);
  CHECK(worst(gradients(Precision::Fp16, 0x1p-10)) > 5e-2);  // below fp16's least values
}

TEST_CASE(
    "grid backend: fused attention gives the gradients of stored scores, one worker's bit by bit, and holds no "
    "scores" *
    doctest::test_suite("all combinations")) {
  const auto with = [](const std::string& kernel, const Precision precision) {
    const RunCase run({kTwoBlocks, "plan.stages=3", "cluster.node.devices=4", "training.micro_batches=2",
                       "model.layers.1.ops.2.kernel=" + kernel});
    const RunPlan plan = plan_for(run, precision);
    const auto workers = run_on(run, plan, 5);
    for (std::size_t w = 0; w < workers.size(); ++w)
      CHECK(workers[w].memory == replayed(plan, static_cast<PositionId>(w)));
    const auto reference = sequential_gradients(plan, emulated(1, precision), *run.data, one_step());
    for (std::size_t v = 0; v < reference.size(); ++v)
      CHECK(gradients_of(workers, v) == reference[v]);
    return std::pair(by_tensor(plan, workers), replayed(plan, 1).live);
  };
  for (const Precision precision : {Precision::Fp32, Precision::Bf16}) {
    const auto [stored, all] = with("materialized", precision);
    const auto [fused, less] = with("flash", precision);
    CHECK(less < all);
    for (std::size_t t = 0; t < stored.size(); ++t)
      CHECK(relative_difference(fused[t], stored[t]) < (precision == Precision::Fp32 ? 1e-5 : 1.2e-2));
  }
}

TEST_CASE("grid backend: a precision that a backend has not is refused, and gradients in 16 bits") {
  const RunCase run({});
  const auto refused = [&](Precision asked, std::optional<Precision> gradients, const std::string& why) {
    Training training = run.scenario.training;
    training.precision = asked, training.gradient_precision = gradients;
    CHECK_THROWS_WITH_AS(
        run_plan(run.plan, run.schedule, run.scenario.model, training, *emulated(1, Precision::Bf16)()),
        doctest::Contains(why.c_str()), InputError);
  };
  refused(Precision::Fp32, {}, "training.precision: backend emulated computes in bf16");
  refused(Precision::Bf16, {}, "training.gradient_precision: a run sums gradients in fp32");
  Training training = run.scenario.training;
  training.precision = Precision::Bf16, training.gradient_precision = Precision::Fp32;
  training.framework.tensors = FrameworkTensors::Megatron;
  CHECK_THROWS_WITH_AS(run_plan(run.plan, run.schedule, run.scenario.model, training, *emulated(1, Precision::Bf16)()),
                       doctest::Contains("training.framework: only predictions use it"), InputError);
  Plan overlapped = run.plan;
  overlapped.barrier.value = Barrier::None;
  training.framework = {};
  CHECK_THROWS_WITH_AS(
      run_plan(overlapped, run.schedule, run.scenario.model, training, *emulated(1, Precision::Bf16)()),
      doctest::Contains("plan.barrier: a run ends a step on all stages; write flush"), InputError);
}
