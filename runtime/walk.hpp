// What a worker holds from the first step to the last, in the order in which it takes it. Inside runtime/ only.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/arena.hpp"
#include "runtime/run_plan.hpp"

namespace pipewright {

// Addresses in the arena.
struct SteadyChunk {
  std::vector<std::int64_t> weights;    // by buffer
  std::vector<std::int64_t> gradients;  // by set
  std::vector<std::int64_t> masters;    // one where weights are copies, else none
  std::vector<std::int64_t> states;
};
struct SteadyBlocks {
  std::vector<SteadyChunk> chunks;               // by virtual stage; those of other stages are empty
  std::vector<std::vector<std::int64_t>> slots;  // [channel][slot]; channels to other positions are empty
};
SteadyBlocks take_steady(const RunPlan& run, PositionId position, Arena& arena);

}  // namespace pipewright
