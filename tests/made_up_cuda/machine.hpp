// The machine that is made up: what its driver tells, and which call fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipewright::tests::made_up_cuda {

constexpr int kMostGpus = 8;

// The `nth` call of `function` answers `error`, a cudaError_t (a CUresult of driver calls). "kernel": the nth launch is
// taken, and its kernel fails with it while it runs.
struct Failure {
  std::string function;
  long nth = 0;
  int error = 0;
};

// Which streams of SM groups take which events: all those of their GPU; only those of the group's own context; nor can
// such events of two groups be compared.
enum class EventsTaken : std::uint8_t { OfGpu, Own, Apart };

struct Machine {
  int gpus = 1, sms = 132;
  int groups = 1000;                              // SM groups of one split that the driver gives at most
  std::int64_t memory = std::int64_t{140} << 30;  // of a GPU, its contexts' part of it (kContextBytes) included
  bool peer = true;                               // GPUs reach one another's memory
  int architecture = 90, driver = 0;              // 90: 9.0; driver 13000: knows CUDA 13.0; 0: there is none
  std::int64_t kernel_ns = 4000;                  // of a launch that is no probe
  std::int64_t copy_up_to = INT64_MAX;            // larger copies and zeros take their time, but have no effect
  EventsTaken events = EventsTaken::OfGpu;        // "own", "apart"
  std::string without;                            // a function that the driver has not: "cuGreenCtxCreate"
  Failure fail;
  std::string report;  // a file that gets what was asked for and what is left at the end, or ""
};

constexpr std::int64_t kContextBytes = std::int64_t{600} << 20;

// Of MADE_UP_CUDA, "key=value key=value": the keys are the names above, memory in bytes or "8GiB", "512MiB";
// fail=FUNCTION:NTH:ERROR. What cannot be read ends the program.
Machine machine_of_environment();

}  // namespace pipewright::tests::made_up_cuda
