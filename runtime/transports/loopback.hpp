// No peers: every message is there at once, with made-up values. For measuring what a worker's own work takes while all
// others work, too, and nobody waits.
#pragma once

#include <memory>
#include <vector>

#include "runtime/run_plan.hpp"
#include "runtime/transport.hpp"

namespace pipewright {

std::vector<std::unique_ptr<Transport>> loopback_transport(const RunPlan& run);

}  // namespace pipewright
