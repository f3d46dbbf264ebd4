// What adding the gradients of a bucket over workers costs on this machine.
#pragma once

#include <vector>

#include "calibrate/handoff.hpp"
#include "core/question/profile.hpp"
#include "runtime/backend.hpp"
#include "runtime/run_plan.hpp"

namespace pipewright::calibrate {

// Members of the plan's all-reduces, ascending, without repetition; none: it has none.
std::vector<int> group_sizes(const RunPlan& run);

// By bytes of a bucket, over `members` workers of the plan, as its workers do it: each wakes its collective stream,
// which shares its core, the streams add by the local transport, and wake their workers. From the moment at which the
// last worker is ready until all have gone on; the middle half of the times of 4 KiB to 4 MiB. About 0.3 s.
// In the workers' memory, by their movers.
LinearTime measure_all_reduce(const RunPlan& run, int members, const BackendMaker& backend, Staging staging);

}  // namespace pipewright::calibrate
