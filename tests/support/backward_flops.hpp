#pragma once

#include "core/model/work.hpp"

namespace pipewright::tests {

// Input and weight gradients of all operators.
inline double backward_flops(const Work& work) {
  double sum = 0;
  for (const Operator& op : work.operators)
    sum += op.input_flops + op.weight_flops;
  return sum;
}

}  // namespace pipewright::tests
