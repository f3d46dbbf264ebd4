// A plan that may exist, but is larger than what this program simulates: its limit, not a flaw of the scenario.
#pragma once

#include "core/check.hpp"

namespace pipewright {

// A search that meets one keeps the layout in its bound (planner/search/unsettled.hpp); any other InputError says that
// there is no such plan.                   tests/planner/search_limits_test.cpp "lists that no layout matches"
class TooLarge : public InputError {
 public:
  using InputError::InputError;
};

}  // namespace pipewright
