// Slurm: the plan run by pipewright itself, a task per worker.
#include <fmt/format.h>

#include "io/launch/launch.hpp"
#include "io/text/quote.hpp"

namespace pipewright::io {

std::string slurm_launch(const LaunchRequest& request) {
  const Plan& plan = request.written.plan;
  // A worker is one process with one device: the check of `run` has seen to that.
  std::string lines = sbatch_lines(request, nodes_of(request.written).per_node);
  const std::string tasks = "#SBATCH --ntasks-per-node=";
  lines.insert(lines.find(tasks), fmt::format("#SBATCH --ntasks={}\n", plan.workers()));
  const std::string gpus = "#SBATCH --gpus-per-node=";
  if (const std::size_t line = lines.find(gpus); request.written.scenario->run.backend == RunBackend::Cpu)
    lines.erase(line, lines.find('\n', line) + 1 - line);
  return "#!/bin/bash\n" + lines +
         launch_header(request, "pipewright run", "",
                       fmt::format("pipewright validate {} --transport mpi", plan_named(request))) +
         comment("Submit with: sbatch FILE") +
         fmt::format("set -euo pipefail\nsrun --ntasks={} pipewright run {} --transport mpi -o run.json\n",
                     plan.workers(), plan_named(request));
}

}  // namespace pipewright::io
