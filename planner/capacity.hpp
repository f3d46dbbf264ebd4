// The largest value of a whole number (layers, filters, micro-batch size, ...) with which a scenario fits its devices.
//
// A value fits when some contiguous cut does: `plan.partition: balanced` is searched for the cut with the least
// bottleneck among those that fit (`fitting`); a partition that the scenario states, and chunks that share a device,
// are taken as they are. The answer is simulated, buffers included, and so is the value after it.
//
// Upper end. Weights, gradients and optimizer state of all layers, on one worker, are a lower bound of what the workers
// hold together: values for which that passes the memory of all workers cannot fit. Values are doubled from the
// scenario's own (or the first double of it that makes a scenario) until one cannot.
//
// Bisection, where it is proven that what fits with a value fits with every smaller one:
//   a chain that grows by layers like their neighbours   Both models are chains whose runs of equal layers have the
//   same
//       order and figures, and only runs get longer; no layer before such a run hands on more bytes than the run's own
//       layers. Take a cut of the larger that fits, and a stage with a layer of the run and another one (there is one
//       when the run has more layers than there are stages): without that layer no stage holds more than before. One
//       layer after the other, the smaller model is reached.
//   samples of a micro-batch   The layers and the number of micro-batches are the same: every tensor shrinks with
//       the samples, in the same cut.
// Everything else is scanned downwards from the upper end, value by value.
//
// A scenario that is to be run for real (it has a block `run:`) is asked of what a run takes: its plan as a run takes
// it, `balanced` included, fits when no worker's arena spans more than `run.memory_cap`, or, without one, than the
// device's memory less its reserve. The arena is replayed on sizes by whoever asks (`RunMemoryOf`): this room knows no
// runtime. Best fit is not monotone and a longer model may be cut more evenly, so every value is looked at.
//     two-stage-gpipe, cap 8 MiB: the largest model.layers.1.repeat runs, one more ends with status 1.
//     tests/cli/capacity_test.cpp "really runs"
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/model/graph.hpp"
#include "core/plan/capacity.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/scenario.hpp"
#include "core/plan/schedule.hpp"

namespace pipewright {

// The scenario with a value; throws InputError for one that makes no scenario (3 layers on 4 stages).
using ScenarioWith = std::function<Scenario(std::int64_t value)>;

// What a worker of a real run takes of its memory.
struct RunMemory {
  MemoryBytes bytes;  // at its live peak
  Bytes extent;       // highest address: what a cap acts on; gaps included
};
// By position. Throws InputError for what cannot be run.
using RunMemoryOf = std::function<std::vector<RunMemory>(const Scenario&, const Plan&, const Schedule&)>;

struct CapacityOptions {
  std::int64_t first = 1;            // value of the scenario itself, from which the search starts
  std::optional<std::int64_t> most;  // upper end given by the user
  RunMemoryOf run_memory = {};       // for scenarios with a block `run:`; absent: the memory model for all
  // Throws InputError for settings of a run that do not go together. Nothing else is taken for an answer then.
  std::function<void(const Scenario&, const Plan&)> check_run = {};
  std::function<void(std::int64_t value, std::int64_t tried)> progress = {};  // before each value that is looked at
};

constexpr std::int64_t kMostTried = 5'000;  // values of a scan; more are refused

// Throws InputError when no value makes a scenario, when the search has no upper end, or when it is too long; and when
// a model cannot be run whose scenario states a `run.memory_cap`. Without one the memory model answers, and `method`
// says so.
Capacity capacity(const std::string& over, const ScenarioWith& with, const CapacityOptions& options);

// The shortest of the runs that differ, in both models, if `larger` is the chain `smaller` with some runs of equal
// layers made longer, as above; nothing if it is not, or if no run differs.
struct Repetition {
  std::int64_t in_smaller, in_larger;
};
std::optional<Repetition> repetition(const Model& smaller, const Model& larger);

}  // namespace pipewright
