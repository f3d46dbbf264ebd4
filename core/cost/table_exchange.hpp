// Gradients of tied tables, which several stages hold (core/plan/tied_tables.hpp), are summed over all of them once per step,
// behind the sums over the copies of each stage:
//     bytes = parameters of the table on a device * bytes of a gradient                          [MegatronDDP26]
// Every copy of the pipeline has a group of its own, and all of them exchange at once. Of the replicas of a stage, which hold
// the same sum, as many take part as every stage has. Where gradients are sharded (zero 2, 3) a member exchanges its share. GPT-3 with t = 8, fp32: 51200 * 12288 / 8 * 4 B = 315 MB between the first and the last stage.
//                                                                              tests/planner/tied_tables_test.cpp
#pragma once

#include "core/cost/collectives.hpp"
#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/tied_tables.hpp"

namespace pipewright::core {

class TableExchange {
 public:
  TableExchange(const Plan& plan, const TiedTable& table, const CostModel& cost);

  Collective price() const { return group_.best(bytes_); }
  AllReduceGroup& group() { return group_; }

 private:
  AllReduceGroup group_;
  Bytes bytes_;
};

}  // namespace pipewright::core
