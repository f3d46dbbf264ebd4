// Whether selective recomputation has anything to repeat.
#pragma once

#include <algorithm>

#include "core/model/graph.hpp"

namespace pipewright {

// Attention that keeps its scores; fused attention and layers with stated figures have no core.  [Korthikanti22] sec. 5
inline bool has_attention_core(const Model& model) {
  return std::any_of(model.works.begin(), model.works.end(), [](const Work& work) {
    return std::any_of(work.operators.begin(), work.operators.end(),
                       [](const Operator& op) { return op.attention_core; });
  });
}

}  // namespace pipewright
