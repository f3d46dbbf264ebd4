// The backend that a scenario's `run.backend` names.
#pragma once

#include <memory>
#include <string>

#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"
#include "runtime/backend.hpp"

namespace pipewright::runtime {

// Makes the backends of a run of the plan. cuda: the GPUs' SMs are cut into groups now, one per worker
// (gpu_places.hpp). `processes`: workers are processes, and this one is one of them. Throws InputError where the GPUs
// cannot be used, and says what is missing.
BackendMaker backend_of(const Scenario& scenario, const Plan& plan, bool processes);

// Where the GPU of this process is, "0000:01:00.0", of a run whose workers are processes. Throws InputError.
std::string gpu_bus_of_process(const Scenario& scenario, int workers);

// For sizes alone, on any machine: alignment and workspaces of the scenario's backend.
std::unique_ptr<Backend> backend_for_sizes(const Scenario& scenario);

}  // namespace pipewright::runtime
