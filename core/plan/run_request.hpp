// How a plan is run for real: the block `run:` of a scenario.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/units.hpp"

namespace pipewright {

enum class RunBackend { Cpu };
enum class RunTransport {
  Local,      // workers are threads of one process
  Throttled,  // likewise; messages arrive no earlier than the cluster's links allow
  Tcp,        // a process per worker, sockets between them
  Mpi,        // a process per worker, started by mpirun
};
enum class RunLoss { CrossEntropy };

struct RunRequest {
  RunBackend backend = RunBackend::Cpu;
  RunTransport transport = RunTransport::Local;
  std::int64_t steps = 20, warmup = 3;  // timed ones, and those before them
  std::int64_t seed = 1;
  std::string data = "synthetic";  // or a file
  RunLoss loss = RunLoss::CrossEntropy;
  double learning_rate = 0.1;
  double momentum = 0.9;
  std::vector<double> betas = {0.9, 0.999};
  double epsilon = 1e-8;
  std::optional<Bytes> memory_cap;  // per worker, of what its arena spans; absent: none
  bool weight_stashing = true;      // asynchronous schedules: a backward reads the version its forward read
  double timeout = 120;             // seconds until a silent worker ends the run
  Place place;
};

}  // namespace pipewright
