#include "cli/gradients.hpp"

#include <cmath>
#include <limits>

namespace pipewright {

Gradients pipelined_gradients(const RealRun& run, RunSettings settings) {
  settings.steps = 1, settings.warmup = 0, settings.keep_gradients = true;
  std::vector<WorkerResult> workers = run.run(settings);
  Gradients all(run.run_plan().code.size());
  for (WorkerResult& worker : workers)
    for (std::size_t v = 0; v < worker.gradients.size(); ++v)
      if (!worker.gradients[v].empty()) all[v] = std::move(worker.gradients[v]);
  return all;
}

Difference difference(std::span<const float> got, std::span<const float> reference) {
  Difference d;
  d.values = reference.size();
  double distance = 0, norm = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double a = i < got.size() ? double{got[i]} : 0, b = double{reference[i]};
    d.differing += a != b ? 1 : 0;
    distance += (a - b) * (a - b), norm += b * b;
  }
  if (distance != 0)
    d.relative = norm > 0 ? std::sqrt(distance / norm) : std::numeric_limits<double>::infinity();  // NaN stays NaN
  return d;
}

}  // namespace pipewright
