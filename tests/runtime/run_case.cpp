#include "tests/runtime/run_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "core/cost/buckets.hpp"
#include "io/read/read_scenario.hpp"
#include "planner/find_plan.hpp"
#include "runtime/backends/cpu.hpp"
#include "runtime/transports/local.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::tests::runtime_test {
namespace {

// Small enough for hundreds of runs.
std::vector<std::string> small(std::vector<std::string> changes) {
  changes.insert(changes.begin(), {"training.micro_batch_size=2", "model.input_tokens=16"});
  return changes;
}

}  // namespace

std::string source() {
  const char* const root = std::getenv("PIPEWRIGHT_SOURCE");
  return root != nullptr ? root : ".";
}

RunCase::RunCase(const std::vector<std::string>& changes, const RunOptions& options, const std::string& file)
    : scenario(read_scenario(source() + "/scenarios/validation/" + file,
                             {.set = small(changes), .config_path = {source() + "/configs"}})) {
  const CostModel cost(scenario);
  plan = find_plan(scenario, cost);
  schedule = find_schedule(plan.schedule)->generate(schedule_shape(plan, scenario.model, scenario.training));
  run_plan = runtime::run_plan(plan, schedule, scenario.model, scenario.training, *cpu_backend(), options);
  data = synthetic_data(sample_shape(run_plan.code), 1);
}

std::vector<WorkerResult> RunCase::run(RunSettings settings, Wait wait) const {
  settings.optimizer.kind = scenario.training.optimizer;
  const auto workers = static_cast<std::size_t>(plan.workers());
  Throttles throttles;
  if (wait == Wait::BlockThrottled || wait == Wait::SpinThrottled)
    throttles.assign(workers * workers, {Bandwidth{20e6}, Time{10'000}});
  const bool spin = wait == Wait::Spin || wait == Wait::SpinThrottled;
  const auto endpoints = local_transport(
      run_plan, {.spin = spin, .beside_sleep = wait == Wait::SpinThrottled, .timeout_s = 60}, std::move(throttles));
  return execute(run_plan, cpu_backend, *data, endpoints, settings);
}

RunSettings one_step(int steps) {
  RunSettings settings;
  settings.steps = steps, settings.warmup = 0;
  settings.pin = false, settings.keep_gradients = true, settings.keep_weights = true, settings.poison = true;
  return settings;
}

const std::vector<float>& gradients_of(const std::vector<WorkerResult>& workers, std::size_t v) {
  for (const WorkerResult& worker : workers)
    if (v < worker.gradients.size() && !worker.gradients[v].empty()) return worker.gradients[v];
  static const std::vector<float> none;
  return none;
}

std::size_t differing(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::max(a.size(), b.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    count += a[i] != b[i] || std::isnan(a[i]) ? 1 : 0;
  return count;
}

double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  PP_CHECK(a.size() == b.size());
  double off = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    off += std::pow(double{a[i]} - double{b[i]}, 2), norm += double{b[i]} * double{b[i]};
  return std::sqrt(off / norm);
}

}  // namespace pipewright::tests::runtime_test
