// A question to `plan`, narrowed to what a training framework can express: the answer is launched as it is.
#pragma once

#include <string>
#include <vector>

#include "core/question/scenario.hpp"
#include "planner/launch/frameworks.hpp"
#include "planner/search/space.hpp"

namespace pipewright::planner {

struct Narrowed {
  Scenario scenario;                    // what is open is open for values that the framework has
  Within within;                        // what no field can say
  std::vector<std::string> restricted;  // "schedule: 1f1b or interleaved_1f1b", one per field that was narrowed
  std::vector<std::string>
      replaced;                   // "training.optimizer: muon is not there; adam": of these, what the scenario states
  std::vector<std::string> keys;  // "plan.schedule": of these fields, and others that no remedy may open
};

// Open fields lose the values that the framework lacks; what it orders differently in training (optimizer, precision,
// ZeRO, gradients) is replaced as `launch` replaces it. Throws InputError for a model that it cannot train, and for
// values that the scenario fixes and the framework lacks.
Narrowed narrowed(const Scenario& scenario, Framework framework);

}  // namespace pipewright::planner
