// One layout on the bench: what each stage of a cut needs and computes, with the recomputations that it may have.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/cost/step_pricer.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/schedule.hpp"
#include "core/units.hpp"
#include "planner/partitioners/fitting.hpp"
#include "planner/partitioners/stage_needs.hpp"
#include "planner/search/run_memory.hpp"
#include "sim/compiled_order.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {

// What recomputation adds to a layer's backward; of some layers only: not known here, at least nothing.
Time added(const LayerCosts& layers, std::size_t layer, Recompute mode);

// Forward, backward and that, by layer.
std::vector<Time> loads(const LayerCosts& layers, Recompute mode);

class Workbench {
 public:
  // `shell`: a plan with everything but layers and recomputation. `modes`: that a stage may have, lightest first;
  // empty: as the shell says. `set_aside`: memory that is not for the stage's layers (buffers), by stage; empty: none.
  Workbench(const CostModel& cost, Plan shell, std::vector<Recompute> modes, std::vector<Bytes> set_aside);
  Workbench(CostModel&&, Plan, std::vector<Recompute>, std::vector<Bytes>) = delete;

  const Plan& shell() const { return shell_; }
  StepPricer& pricer() { return pricer_; }
  Recompute lightest() const { return modes_.front(); }
  std::int64_t simulations() const { return simulations_; }

  // What a stage may take from here on, with what is set aside for it. At first: what a device has.
  Bytes level() const { return level_; }
  void set_level(Bytes level);

  struct Fit {
    std::vector<Recompute> recompute;  // empty: does not fit
    std::vector<LayerId> rebuilt;
    std::vector<Time> extra;  // by stage, what that adds to each of its micro-batches
    Bytes need;               // of the fullest stage; where it does not fit, with the recomputation that needs least
    StageId stage = 0;
    Bytes level;  // most that a stage needs with what is set aside for it
  };
  // Of each stage the recomputation that adds least and fits.
  Fit lightest_fit(const std::vector<LayerRange>& cut);
  // Of each stage the recomputation that needs least, whether it fits or not.
  Fit least_fit(const std::vector<LayerRange>& cut);

  // The least level for which some cut fits with some recomputation, and such a cut; no layers where that is more than
  // `most`. One chunk per stage.
  LeastCut least_cut(Bytes most);

  // The step of the cut with the lightest recomputation. Layers are rebuilt inside the backward, full recomputation may
  // run before the gradient arrives: where a stage waits for it anyway, that is the better one, so it is tried on every
  // stage that recomputes and has room for more work: all combinations of a few such stages, else one after the other,
  // then all.
  Time step(const std::vector<LayerRange>& cut, Fit& fit);
  // Whether that was every recomputation with which the last cut may be faster.
  bool all_tried() const { return all_tried_; }
  // Of several chunks the set of layers that adds least is not known (rebuild_stage).
  bool chooses_layers() const { return knapsack_ < modes_.size(); }

  // No step of the cut is shorter: what its busiest stage computes, with `extra` (by stage; empty: none) on top.
  Time busiest(const std::vector<LayerRange>& cut, const std::vector<Time>& extra = {});

  // The least that recomputation adds to these layers on stage k, where anything fits.
  Time extra(StageId k, LayerRange range);

  // A cut into chunks in which every stage fits with the lightest recomputation, from one in which some do not by a
  // little: the first chunks of a stage have the most micro-batches in flight, so single layers go from an early chunk
  // of the fullest stage to a later chunk, of this stage or another, as long as that takes something off the fullest
  // stage. Nothing: not found.
  std::optional<std::vector<LayerRange>> fitting_chunks(std::vector<LayerRange> cut);

  // With any recomputation: where a layer keeps less than what enters it, full recomputation needs the most.
  bool fits_somehow(StageId k, LayerRange range);
  bool reaches_somehow(StageId k, LayerRange range);

  // The least bottleneck among the cuts whose stages fit with the heaviest recomputation, counted with it.
  std::optional<std::vector<LayerRange>> fitting();

 private:
  // A recomputation of one stage.
  struct Choice {
    Recompute recompute{};
    std::vector<LayerId> rebuilt;
    Time extra;
    Bytes need;
    bool fits = false;
    bool known = false;
  };
  static Choice of(const RebuiltStage& set);
  static void offer(Choice& best, Choice other);        // of those that fit the one that adds least
  static void offer_least(Choice& best, Choice other);  // the one that needs least

  StageNeeds& needs(std::size_t mode);
  Bytes need(std::size_t mode, StageId k, LayerRange range) { return needs(mode).need(k, range); }
  Bytes set_aside(StageId k) const { return set_aside_.empty() ? Bytes{} : set_aside_[at(k)]; }
  Bytes room(StageId k) const { return level_ - set_aside(k); }
  void count(Fit& fit, StageId k, Bytes need) const;
  CutProblem problem_of(std::size_t mode);
  LayerId longest(std::size_t mode, StageId k, LayerId begin);
  Time added_by(std::size_t mode, LayerRange range);
  Time added_on(std::size_t mode, const std::vector<LayerRange>& cut, StageId k);
  Choice lightest_of_stage(StageId k, LayerRange range);
  Choice least_of_stage(StageId k, LayerRange range);
  Fit together(const std::vector<Choice>& choices) const;
  Bytes need_of_chunks(std::size_t mode, const std::vector<LayerRange>& cut, StageId k);
  Bytes fullest_of_chunks(const std::vector<LayerRange>& cut, const std::vector<StageId>& order, StageId receiver,
                          Bytes enough);
  enum class Aim : std::uint8_t { Lightest, Least };
  Fit fit_of_chunks(const std::vector<LayerRange>& cut, Aim aim);
  const std::array<LayerCosts, 2>& sizes();
  Time simulated(const std::vector<LayerRange>& cut, const Fit& fit);
  std::vector<StageId> may_run_early(const std::vector<LayerRange>& cut, const Fit& fit, Time best);
  Bytes need_in_full(const std::vector<LayerRange>& cut, StageId k);
  void make_full(Fit& fit, const std::vector<LayerRange>& cut, StageId k);
  const Schedule& walked(const Plan& plan);

  const CostModel& cost_;
  const Scenario& scenario_;
  Plan shell_;
  std::array<Schedule, 2> walked_;  // without and with full recomputation
  std::vector<Recompute> modes_;
  bool fixed_ = false;
  std::size_t knapsack_ = 0;  // its number among the modes; their count: none of them
  std::vector<Bytes> set_aside_;
  Bytes level_;
  const ScheduleRule* rule_;
  Makespans makespan_;
  StepPricer pricer_;
  std::vector<std::unique_ptr<StageNeeds>> needs_;          // by mode
  std::vector<std::vector<std::vector<LayerId>>> longest_;  // by mode, stage, first layer; -1: not known
  std::vector<std::vector<std::int64_t>> added_before_;     // by mode and layer: what it adds to those before; empty
  std::map<std::tuple<StageId, LayerId, LayerId>, Choice> sets_;  // of layers, as far as asked for
  std::map<std::vector<int>, Bytes>
      needs_of_chunks_;          // by mode, stage and the layers of its chunks, as far as asked for
  bool alone_ = false;           // what a stage needs follows from these
  std::optional<EqualRun> run_;  // whose layers count alike there
  std::optional<std::array<LayerCosts, 2>> sizes_;
  std::vector<std::int64_t> work_before_;  // forward and backward of the layers before each
  std::int64_t simulations_ = 0;
  bool all_tried_ = true;
};

}  // namespace pipewright::planner
