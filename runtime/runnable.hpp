// What of a model, a plan and a training can be run for real.
#pragma once

#include <string>

#include "core/model/graph.hpp"
#include "core/plan/plan.hpp"
#include "runtime/backend.hpp"

namespace pipewright::runtime {

const char* name_of(Precision precision);  // "bf16"

// Why a run cannot compute these layers, whatever the backend, plan and precision; "": it can.
std::string layers_refused(const Model& model);

// Throws InputError with one line per reason why it cannot be run.   tests/runtime/execute_test.cpp
void check_runnable(const Plan& plan, const Model& model, const Training& training, const Backend& backend);

}  // namespace pipewright::runtime
