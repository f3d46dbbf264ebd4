// Options of a plan that change nothing about it: the user expected something of them, so the report says so.
#pragma once

#include <string>
#include <vector>

#include "core/plan/plan.hpp"

namespace pipewright {

// One line per option that is set and has no effect, ready for Report::warnings.
std::vector<std::string> options_without_effect(const Scenario& scenario, const Plan& plan);

}  // namespace pipewright
