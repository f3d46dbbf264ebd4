// The prices of many cuts of one plan, for searches: what does not depend on the cut is worked out once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/cost/buckets.hpp"
#include "core/cost/cost_model.hpp"
#include "core/cost/fold.hpp"
#include "core/cost/state_exchange.hpp"
#include "core/plan/tied_tables.hpp"

namespace pipewright::core {

class Sending;

class StepPricer {
 public:
  // `shell`: a plan with everything but its layers and recomputation, its micro-batches of one size, on a cluster of
  // one device class.
  StepPricer(Plan shell, const CostModel& cost);
  StepPricer(Plan, CostModel&&) = delete;

  // step_costs of the shell with these layers and recomputation, for the engine of fixed orders alone:
  //   - no links, so that nobody can ask who shares them;
  //   - of copies that are alike in time (core/cost/fold.hpp) one is kept: an all-reduce takes what it takes for all.
  // The makespan is that of step_costs.                      tests/core/step_pricer_test.cpp
  StepCosts costs(const std::vector<LayerRange>& layers, const std::vector<Recompute>& recompute,
                  const std::vector<LayerId>& rebuilt = {});

  // [i]: the least time that a message over the cut behind layer i can take between any two neighbouring workers of a
  // copy, in either direction; the last is 0. All 0 where tensors do not hop from stage to stage (`skips: direct`):
  // what passes between neighbours then depends on the cuts.
  std::vector<Time> fastest_hops() const;

  // What a worker of stage k with these layers still has to do after its last backward: the all-reduce of its last
  // bucket (of all, where gradient_sync is blocking), if any, the update, and the gather of what it has updated in part.
  Time tail(StageId k, LayerRange layers);

  // What stands behind the last op of every worker at least, whatever the cut, with a flush: where weights are gathered behind
  // their update, one gather for each of its chunks, of no fewer weights than the lightest layers have.
  //                                                                        tests/planner/zero_one_test.cpp "bound"
  Time least_gathers_behind();

  const LayerCosts& layers() const { return full_; }
  const Plan& shell() const { return plan_; }

  struct TensorsOverCuts {
    std::vector<Bytes> bytes, count;  // by cut: sum, and how many
  };

 private:
  void add_all_reduces(StepCosts& costs);
  Time all_reduce(StageId k, const Bucket& bucket);
  Collective gather(StageId k, StateExchange::Share weights);
  Collective table(const TiedTable& tied);
  const StateExchange& exchange(StageId k);

  Plan plan_;
  const CostModel& cost_;
  LayerCosts full_;
  std::vector<LayerCosts> slices_;  // where they take unequal times
  TensorsOverCuts over_;
  std::vector<Time> amax_reductions_;  // by stage
  std::shared_ptr<const Fold> fold_;
  std::shared_ptr<Sending> sending_;
  // By stage, as they are asked for. Stages whose workers lie alike in nodes wired alike share one: times are the same.
  std::vector<std::shared_ptr<const StateExchange>> exchanges_;
  std::map<std::vector<DeviceId>, std::shared_ptr<const StateExchange>> alike_;
  // By stage, and bytes of a bucket, or of a chunk's weights: all and of experts.
  using Shares = std::pair<std::int64_t, std::int64_t>;
  std::vector<std::map<Shares, Time>> prices_;
  std::vector<std::map<Shares, Collective>> gathers_;
  std::map<std::pair<LayerId, std::vector<VirtualStageId>>, Collective> tables_;  // by owner and chunks
  std::optional<Collective> norm_;
};

}  // namespace pipewright::core
