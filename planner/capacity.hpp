// The largest value of a whole number (layers, filters, micro-batch size, ...) with which a scenario fits its devices.
//
// A value fits when its cut does (capacity_trial.hpp): the answer is simulated, buffers included, and so is the value
// after it.
//
// Upper end. Weights, gradients and optimizer state of all layers, with what they keep of one micro-batch, are a lower
// bound of what the workers hold together: no value fits with which that passes the memory of all workers. Values are
// doubled from the scenario's own (or the first double of it that makes a scenario) until one does. A share of the
// memory that falls as the value grows (plan.stages) bounds nothing. Where a double makes no scenario, the first value
// that is refused for the same reason is found by bisection, and the values behind it are read, kReadBeyond of them: if
// one makes a scenario, the doubling goes on from there, else values end.
//
// Between, from the surest to the quickest:
//   bisection   where a larger value needs no less (capacity_growth.hpp)
//   scan        downwards from the upper end, value by value, until one fits
//   climb       where that takes too long: upwards by doubling while values fit, then bisection, then value by value
//               until kMostBeyond of them in a row do not fit
// That no larger value fits is proven (`Capacity::proven`) for the first, and for a scan of a growing model below such
// an upper end; else `Capacity::tried_to` says how far values were tried.
//     14 layers fit where 13 do not, and it is found from every start
//     random scenarios against trying every value:             both in tests/planner/capacity_test.cpp
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

#include "core/answers/capacity.hpp"
#include "planner/capacity_trial.hpp"

namespace pipewright::planner {

// The scenario with a value; throws InputError for one that makes no scenario (3 layers on 4 stages).
using ScenarioWith = std::function<Scenario(std::int64_t value)>;

struct CapacityOptions {
  std::int64_t first = 1;            // value of the scenario itself, from which the search starts
  std::optional<std::int64_t> most;  // upper end given by the user
  RunMemoryOf run_memory = {};       // for scenarios with a block `run:`; absent: the memory model for all
  // Throws InputError for settings of a run that do not go together. Nothing else is taken for an answer then.
  std::function<void(const Scenario&, const Plan&)> check_run = {};
  std::function<void(std::int64_t value, std::int64_t read)> progress = {};  // before each value that is read
};

constexpr std::int64_t kReadBeyond = 256;  // values behind the first that makes no scenario
constexpr std::int64_t kMostBeyond = 256;  // values of a climb behind the last that fits, and at least
constexpr std::int64_t kLeastBeyond = 32;  // so many where one takes long

// Throws InputError when no value makes a scenario, or when the search has no upper end; and when a model cannot be run
// whose scenario states a `run.memory_cap`. Without one the memory model answers, and `method` says so.
Capacity capacity(const std::string& over, const ScenarioWith& with, const CapacityOptions& options);

}  // namespace pipewright::planner
