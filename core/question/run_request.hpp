// How a plan is run for real: the block `run:` of a scenario.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/units.hpp"

namespace pipewright::core {

enum class RunBackend { Cpu, Cuda };
enum class RunTransport {
  Local,      // workers are threads of one process
  Throttled,  // likewise; messages arrive no earlier than the cluster's links allow
  Staged,     // likewise; messages go through the host's memory, as between devices that do not reach one another
  Peer,       // likewise; from one GPU's memory straight into another's
  Tcp,        // a process per worker, sockets between them
  Mpi,        // a process per worker, started by mpirun
  Nccl,       // a process per worker and GPU; messages and sums by NCCL
};
enum class RunLoss { CrossEntropy };
enum class RunKernels {
  Own,      // the same bits for any number of SMs
  Library,  // products of linear layers by cuBLASLt
};

struct RunRequest {
  RunBackend backend = RunBackend::Cpu;
  RunTransport transport = RunTransport::Local;
  std::optional<std::int64_t> virtual_devices;  // cuda: groups of SMs of all GPUs; absent: as many as workers
  std::vector<std::int64_t> gpus = {0};         // cuda: by number, as `doctor` lists them
  std::int64_t steps = 20, warmup = 3;          // timed ones, and those before them
  std::int64_t seed = 1;
  std::string data = "synthetic";  // or a file
  RunLoss loss = RunLoss::CrossEntropy;
  double learning_rate = 0.1;
  double momentum = 0.9;
  std::vector<double> betas = {0.9, 0.999};
  double epsilon = 1e-8;
  std::optional<Bytes> memory_cap;    // per worker, of what its arena spans; absent: none
  std::optional<RunKernels> kernels;  // cuda; absent: the library's where it is there
  std::optional<double> loss_scale;   // absent: 1024 in fp16, else 1
  bool weight_stashing = true;        // asynchronous schedules: a backward reads the version its forward read
  double timeout = 120;               // seconds until a silent worker ends the run
  bool synthetic = false;             // no arithmetic: every op spins for its priced time and moves its stated bytes
  Place place;
};

}  // namespace pipewright::core
