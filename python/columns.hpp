// A timeline as columns, one entry per op, which arrays of Python look at.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/timeline.hpp"

namespace pipewright::python {

struct OpColumns {
  std::vector<std::int32_t> worker, stage, chunk, micro_batch;
  std::vector<std::uint8_t> kind, stream;  // rows of kKindRules; 0: compute, then those of kStreams
  std::vector<std::int64_t> start, end;    // ns
};

// By worker, its compute ops, then those of its other streams, each in its order. `workers`: times of each.
OpColumns op_columns(const Schedule& schedule, const std::vector<LaneTimes>& workers);

}  // namespace pipewright::python
