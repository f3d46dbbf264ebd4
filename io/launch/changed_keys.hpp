// What `--set` has to say to make one scenario's plan another's.
#pragma once

#include <string>
#include <vector>

#include "core/question/scenario.hpp"

namespace pipewright {

// "plan.schedule=1f1b": every key of `training` and `plan` that `to` has otherwise than `from`, as --set takes it; null
// where `to` has none.
std::vector<std::string> changed_keys(const Scenario& from, const Scenario& to);

}  // namespace pipewright
