// The tensors that pass from one virtual stage to another. Inside runtime/ only.
#pragma once

#include <vector>

#include "core/model/graph.hpp"
#include "core/plan/plan.hpp"

namespace pipewright::runtime {

struct Crossing {
  VirtualStageId from = 0, to = 0;
  std::vector<LayerId> layers;
};

// Pairs of virtual stages of which one needs tensors of the other, in the order of StepCosts::edges.
std::vector<Crossing> crossings(const Plan& plan, const Model& model);

}  // namespace pipewright::runtime
