// How a plan is run: what the workers are told beside it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/units.hpp"
#include "runtime/backend.hpp"

namespace pipewright::runtime {

class Checkpoints;

// Between two steps, while every worker of this process sleeps. The weights know nothing of it.
struct Pauses {
  std::vector<int> before;     // these steps; that of the number of steps is behind the last one
  std::function<void()> call;  // by one thread; what it throws ends the run
};

struct RunSettings {
  OptimizerSettings optimizer;
  std::uint64_t seed = 1;
  int steps = 23, warmup = 3;  // of the whole run; the first `warmup` of the steps are not timed
  Bytes memory_cap;            // of the arena's extent; 0: none
  bool pin = true;             // worker w on core w, while there are as many
  std::optional<int> core;     // where this process has one worker: its core instead; -1: none
  // Tests and checks: keep the gradients of the first step as they are before the update (after the all-reduce), and
  // the weights of the end.
  bool keep_gradients = false, keep_weights = false;
  bool poison = false;  // fills freed memory with NaN: what is read too late shows
  bool time_layers = false;
  // Where the run goes on from, and leaves its state: steps before its first_step() are done and not run again.
  const Checkpoints* checkpoints = nullptr;
  const Pauses* pauses = nullptr;
};

// Steps that a checkpoint says are done.
int first_step(const RunSettings& settings);

}  // namespace pipewright::runtime
