// Times of a device that has a clock of its own, and is behind what it is asked for: a script instead of a GPU.
#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "runtime/backends/cpu.hpp"
#include "runtime/transports/local.hpp"
#include "tests/runtime/run_case.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

constexpr std::int64_t kForward = 1'000'000, kInputGradient = 2'000'000, kWeightGradient = 4'000'000;  // ns, made up

// What the device has done, and how often the host has waited for it.
struct Script {
  std::int64_t device = 77'000'000'000;  // its clock, which began elsewhere
  std::int64_t origin_host = 0, origin_device = 0;
  std::int64_t done = 0;  // on the device's clock
  std::vector<std::int64_t> marks;
  std::set<std::size_t> not_passed;  // marks that the host has not waited for
  std::vector<std::int64_t> told;    // by `finished`
  std::vector<std::int64_t> asked;   // moments of marks
  bool behind = false;
  int waits = 0, probes = 0;

  void take(std::int64_t ns) { device += ns, behind = true; }
  void wait() {
    if (std::exchange(behind, false)) ++waits, done = device;
    not_passed.clear();
  }
  std::int64_t on_host(std::int64_t at) const { return origin_host + at - origin_device; }
};

class ScriptedMover final : public Mover {
 public:
  explicit ScriptedMover(Script& script) : script_(script) {}
  void finish() override { script_.wait(); }
  void copy(void* to, const void* from, Bytes bytes) override { script_.take(0), host_->copy(to, from, bytes); }
  void upload(void* to, const void* from_host, Bytes bytes) override { host_->upload(to, from_host, bytes); }
  void download(void* to_host, const void* from, Bytes bytes) override {
    script_.wait();
    host_->download(to_host, from, bytes);
  }
  void sum(float* to, std::span<const float* const> terms, std::int64_t elements) override {
    script_.take(0), host_->sum(to, terms, elements);
  }

 private:
  Script& script_;
  std::unique_ptr<Mover> host_ = host_mover();
};

class ScriptedBackend final : public Backend {
 public:
  explicit ScriptedBackend(Script& script) : script_(script) {}
  std::string name() const override { return "scripted"; }
  Bytes alignment() const override { return cpu_->alignment(); }
  std::string refusal(const Program& program, const ProgramStep& step) const override {
    return cpu_->refusal(program, step);
  }
  Bytes workspace(const Program& program, const ProgramStep& step, std::int64_t samples, Pass pass) const override {
    return cpu_->workspace(program, step, samples, pass);
  }
  void forward(const StepArguments& a) override { script_.take(kForward), cpu_->forward(a); }
  void input_gradient(const StepArguments& a) override { script_.take(kInputGradient), cpu_->input_gradient(a); }
  void weight_gradient(const StepArguments& a) override { script_.take(kWeightGradient), cpu_->weight_gradient(a); }
  void update(const OptimizerSettings& settings, std::int64_t step, std::span<const UpdatedParameter> all) override {
    script_.take(0), cpu_->update(settings, step, all);
  }
  void add(float* sum, const float* term, std::int64_t n) override { script_.take(0), cpu_->add(sum, term, n); }
  void scale(float* values, std::int64_t n, float factor) override { script_.take(0), cpu_->scale(values, n, factor); }
  void copy(void* to, const void* from, Bytes bytes) override { script_.take(0), cpu_->copy(to, from, bytes); }
  void zero(void* block, Bytes bytes) override { script_.take(0), cpu_->zero(block, bytes); }

  void finish() override { script_.wait(); }
  void set_clock() override {
    script_.wait();
    script_.origin_host =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    script_.origin_device = script_.device;
  }
  void mark(std::size_t number) override {
    script_.marks.resize(std::max(script_.marks.size(), number + 1));
    script_.marks[number] = script_.device;
    script_.not_passed.insert(number), script_.behind = true;
  }
  bool in_host_memory() const override { return false; }
  // As a GPU, it knows no moment that has not passed.
  std::int64_t moment(std::size_t number) const override {
    if (script_.not_passed.contains(number)) throw std::runtime_error(fmt::format("mark {} has not passed", number));
    script_.asked.push_back(script_.on_host(script_.marks.at(number)));
    return script_.asked.back();
  }
  std::int64_t finished() const override {
    if (script_.behind) throw std::runtime_error("the device has not done all");
    script_.told.push_back(script_.on_host(script_.done));
    return script_.told.back();
  }
  double mark_cost() const override { return 0; }
  Time probe() override { return ++script_.probes, Time{4321}; }
  std::unique_ptr<Mover> mover(MoverFor) override { return std::make_unique<ScriptedMover>(script_); }

 private:
  Script& script_;
  std::unique_ptr<Backend> cpu_ = cpu_backend();
};

}  // namespace

TEST_CASE("device clock: an op ends when the device says so, on the host's clock") {
  const RunCase run({"training.micro_batches=3", "plan.schedule=1f1b"});
  std::vector<Script> scripts(2);
  const auto endpoints = local_transport(run.run_plan, {.spin = false, .timeout_s = 60}, {});
  RunSettings settings = one_step(2);
  settings.poison = false;
  const auto results = execute(
      run.run_plan,
      [&](WorkerId worker) { return std::make_unique<ScriptedBackend>(scripts[static_cast<std::size_t>(worker)]); },
      *run.data, endpoints, settings);
  for (std::size_t w = 0; w < 2; ++w) {
    CAPTURE(w);
    const Script& script = scripts[w];
    CHECK(script.probes == 2);
    std::size_t told = 0;
    for (const WorkerStep& step : results[w].steps) {
      CHECK(step.probe == Time{4321});
      for (const Span& span : step.times.compute)
        CHECK(span.end.value == std::max(span.start.value, script.told.at(told++)));
    }
    CHECK(told == script.told.size());
    // Its second forward follows the first one on the device's clock, however fast the host was.
    const auto& line = run.run_plan.code[w].forward;
    const auto steps =
        std::count_if(line.begin(), line.end(), [](const Instruction& i) { return i.verb == Verb::Forward; });
    if (w == 0) CHECK(script.told[1] - script.told[0] == kForward * steps);
  }
}

TEST_CASE("device clock: a message is posted when the device has made it, not when the host asked for its copy") {
  const RunCase run({"training.micro_batches=3", "plan.schedule=gpipe"});
  std::vector<Script> scripts(2);
  const auto endpoints = local_transport(run.run_plan, {.spin = false, .timeout_s = 60}, {});
  RunSettings settings = one_step(1);
  settings.poison = false;
  const auto results = execute(
      run.run_plan,
      [&](WorkerId worker) { return std::make_unique<ScriptedBackend>(scripts[static_cast<std::size_t>(worker)]); },
      *run.data, endpoints, settings);
  for (std::size_t w = 0; w < 2; ++w) {
    const auto& transfers = results[w].steps.front().transfers;
    REQUIRE(transfers.size() == 3);
    REQUIRE(scripts[w].asked.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      CAPTURE(w);
      CAPTURE(i);
      // The script's device is some milliseconds behind the host, which asks for a copy within microseconds.
      CHECK(transfers[i].posted.value >= std::min(scripts[w].asked[i], transfers[i].sent.value));
      CHECK(transfers[i].posted <= transfers[i].start);
      CHECK(transfers[i].start <= transfers[i].sent);
    }
  }
}

TEST_CASE("device clock: the host waits once for an op, and once for a message that goes before its end") {
  const RunCase run({"training.micro_batches=2", "plan.schedule=gpipe"});
  for (const RunChannel& channel : run.run_plan.channels)
    REQUIRE(channel.slots >= 2);  // nobody waits for a slot: that is once more
  std::vector<Script> scripts(2);
  const auto waits_of = [&](int steps) {
    scripts.assign(2, Script{});
    const auto endpoints = local_transport(run.run_plan, {.spin = false, .timeout_s = 60}, {});
    RunSettings settings = one_step(steps);
    settings.poison = settings.keep_gradients = settings.keep_weights = false;
    execute(
        run.run_plan,
        [&](WorkerId worker) { return std::make_unique<ScriptedBackend>(scripts[static_cast<std::size_t>(worker)]); },
        *run.data, endpoints, settings);
    return std::vector<int>{scripts[0].waits, scripts[1].waits};
  };
  const std::vector<int> one = waits_of(1), two = waits_of(2);
  // Two forwards, two backwards, an update: what a step adds. The last stage sends the gradient of its input before
  // it has computed those of its weights, and waits for it then.
  const std::vector<int> ops = {5, 5}, early = {0, 2};
  for (std::size_t w = 0; w < 2; ++w)
    CHECK(two[w] - one[w] == ops[w] + early[w]);
}

TEST_CASE("device clock: layers are timed by marks between them, to the nanosecond") {
  const RunCase run({"training.micro_batches=2"});
  std::vector<Script> scripts(2);
  const auto results = measure_layers(
      run.run_plan,
      [&](WorkerId worker) { return std::make_unique<ScriptedBackend>(scripts[static_cast<std::size_t>(worker)]); },
      *run.data, one_step(), 0.0);
  std::size_t layers = 0;
  for (const WorkerResult& worker : results)
    for (const auto& [of, times] : worker.layer_ns) {
      const auto& [layer, pass, last] = of;
      if (pass != Pass::Forward) continue;
      const Layer& of_model = run.scenario.model.layers[layer];
      const Program& program = *run.scenario.model.works[static_cast<std::size_t>(of_model.work)].program.get();
      ++layers;
      for (const double ns : times)
        CHECK(ns == static_cast<double>(kForward * static_cast<std::int64_t>(program.steps.size())));
    }
  CHECK(layers == 2 * run.scenario.model.layers.size());  // full and last micro-batch
}

TEST_CASE("device clock: stages are calibrated whose messages go to nobody") {
  for (const std::string schedule : {"gpipe", "1f1b", "zb_h1"}) {
    CAPTURE(schedule);
    const RunCase run({"training.micro_batches=4", "plan.schedule=" + schedule});
    std::vector<Script> scripts(2);
    LayerRounds rounds(
        run.run_plan,
        [&](WorkerId worker) { return std::make_unique<ScriptedBackend>(scripts[static_cast<std::size_t>(worker)]); },
        *run.data, one_step());
    for (const std::vector<WorkerId>& busy : {std::vector<WorkerId>{0}, {1}, {}}) {
      const auto results = rounds.measured(0, busy);
      for (std::size_t w = 0; w < 2; ++w) {
        const bool works = busy.empty() || busy.front() == static_cast<WorkerId>(w);
        CHECK(results[w].layer_ns.empty() != works);
        if (works) CHECK(scripts[w].asked.size() > 0);
      }
    }
  }
}
