// A small model ready to be run, and what runs of it give. For tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/question/scenario.hpp"
#include "runtime/executor.hpp"
#include "runtime/sequential.hpp"

namespace pipewright::tests::runtime_test {

// How a waiting worker waits; throttled: links of 20 MB/s and 10 us between all workers. With the last, threads beside
// the workers' sleep.
enum class Wait { Block, Spin, BlockThrottled, SpinThrottled };

// The source tree: PIPEWRIGHT_SOURCE, else the working directory.
std::string source();

// Everything a run needs, from a scenario of scenarios/validation with changes.
struct RunCase {
  explicit RunCase(const std::vector<std::string>& changes, const RunOptions& options = {},
                   const std::string& file = "two-stage-gpipe.yaml");

  std::vector<WorkerResult> run(RunSettings settings = {}, Wait wait = Wait::Block) const;

  Scenario scenario;
  Plan plan;
  Schedule schedule;
  RunPlan run_plan;
  std::unique_ptr<Data> data;
};

// "plan.stages=2", as a change of a scenario.
inline std::string set(const std::string& key, int value) {
  return key + "=" + std::to_string(value);
}

// Settings of a short run that keeps gradients and weights.
RunSettings one_step(int steps = 1);

// The gradients of virtual stage v: after the all-reduce every member has the same; that of its first worker.
const std::vector<float>& gradients_of(const std::vector<WorkerResult>& workers, std::size_t v);

// How many values differ; a NaN differs from everything, lists of different lengths in all of them.
std::size_t differing(const std::vector<float>& a, const std::vector<float>& b);

// |a - b| / |b|, of lists of one length.
double relative_distance(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace pipewright::tests::runtime_test
