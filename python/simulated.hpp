// An answer that Python holds.
#pragma once

#include <memory>

#include "planner/answer.hpp"

namespace pipewright {

struct Simulated {
  std::shared_ptr<const Answer> answer;
};

}  // namespace pipewright
