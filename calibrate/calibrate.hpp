// Measures what a scenario's layers cost on this machine, with all its workers busy, and what handing messages over
// costs: a profile that prices this plan and any other cut of the same model.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/cost/profile.hpp"
#include "core/model/graph.hpp"
#include "runtime/executor.hpp"

namespace pipewright {

struct CalibrationSettings {
  double seconds = 3;    // of measured rounds
  std::string name;      // of the profile
  std::string revision;  // of pipewright
};

// Layers of `run` at the plan's sizes of micro-batches. Throws RunFailed.
MachineProfile calibrate(const RunPlan& run, const Model& model,
                         const std::function<std::unique_ptr<Backend>()>& backend, const Data& data,
                         const RunSettings& run_settings, const CalibrationSettings& settings);

// This machine, as profiles name it.
Fingerprint fingerprint(const Backend& backend, const std::string& revision);

}  // namespace pipewright
