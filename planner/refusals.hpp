// What a plan cannot ask of a model and of its devices: keys that belong to context and to expert parallelism.
#pragma once

#include <optional>
#include <string>

#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::planner {

struct Refusal {
  std::string key, why;  // of the plan: "context_inner"; with a way out
};
// Nothing: the sequences of all layers can be divided as the plan asks.
//                                        tests/planner/context_parallel_test.cpp "what cannot share sequences"
std::optional<Refusal> context_refusal(const Scenario& scenario);
// Of cost: profile. Whether it has no times of a layer that one device computes alone; and that it has none of as many devices.
bool lacks_whole_layers(const Scenario& scenario);
std::string not_measured_with(std::int64_t devices, const Scenario& scenario);
// Nothing: a schedule that runs slices of sequences (`states_slices`) can run this model's.
//                                        tests/planner/slices_test.cpp "what cannot be sliced"
std::optional<Refusal> slices_refusal(const Scenario& scenario, const Plan& plan);
// Nothing: the experts of all layers can be divided as the plan asks.
//                                        tests/planner/expert_parallel_test.cpp "what cannot divide experts"
std::optional<Refusal> expert_refusal(const Scenario& scenario);
// Nothing: exchanges of tensor parallelism can run beside products, where plan.tensor_overlap asks for it, and share links,
// where plan.tensor_links does.          tests/planner/tensor_parallel_test.cpp
std::optional<Refusal> tensor_refusal(const Scenario& scenario);
// Nothing: plan.recompute_modules is not [operators], or what these save of the model is known.
//                                        tests/planner/replay_test.cpp "what operators do not know"
// Whether some stage has, or may get, checkpoints by operator.
bool may_save_operators(const PlanRequest& plan);
bool must_save_operators(const PlanRequest& plan);  // there is no other recomputation to choose
std::optional<Refusal> operators_refusal(const Scenario& scenario);

}  // namespace pipewright::planner
