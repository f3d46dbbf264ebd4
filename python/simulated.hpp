// An answer that Python holds.
#pragma once

#include <memory>

#include "planner/answer.hpp"

namespace pipewright::python {

struct Simulated {
  std::shared_ptr<const Answer> answer;
};

}  // namespace pipewright::python
