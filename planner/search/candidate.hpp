// One layout, evaluated: its best cut and recomputation, its step by fixed orders, and a bound that no cut can beat.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "core/units.hpp"
#include "planner/search/space.hpp"

namespace pipewright::planner {

struct Candidate {
  Layout layout;
  Plan plan;             // with layers and recomputation
  Time step;             // by fixed orders, links not shared: never more than what the report says
  Time bound;            // of every cut and recomputation of this layout
  Bytes need;            // of the fullest device, buffers left out
  Bytes least;           // with Aim::LeastMemory: no cut and no recomputation of this layout needs less; 0: not known
  bool refined = false;  // the search for cuts was given all its simulations
  bool raised = false;   // so was its bound, of several chunks per stage
};

// Why a layout has no candidate.
struct Miss {
  enum class Why : std::uint8_t {
    Memory,        // `need` of the fullest device, in the cut and with the recomputation that come nearest
    NotWorthIt,    // needs more than is wanted: `need` is a bound
    Invalid,       // the schedule, or a list that the scenario states, refuses the layout: it has no plan
    NotSimulated,  // there may be plans, and no simulation of them: a limit of the program. Only bounds speak of them
  };
  Why why = Why::Memory;
  std::string reason = {};  // Invalid, NotSimulated: the message, without its place
  Bytes need = {};
  StageId stage = 0;
  bool proven = true;  // Memory: no cut and no recomputation fits; else none of the cuts tried
};

struct Evaluation {
  std::optional<Candidate> candidate;
  Miss miss;  // without candidate
  std::int64_t simulations = 0;
};

// What the cut and the recomputation of a layout are chosen for.
enum class Aim : std::uint8_t {
  LeastTime,
  LeastMemory,  // of the fullest device; of what needs as little, the least time
};

// Costs are worked out once per tensor-parallel degree, ZeRO stage and micro-batch size.
class Evaluator {
 public:
  // `stop`: asked now and then while cuts are searched; true ends that with what is found.
  explicit Evaluator(const Scenario& scenario, std::function<bool()> stop = {}, Aim aim = Aim::LeastTime,
                     const Within& within = {});
  explicit Evaluator(Scenario&&, std::function<bool()> = {}, Aim = {}, const Within& = {}) = delete;

  // Less than the step of every layout of the group, whatever the cut: with W the work of a micro-batch, all layers
  // together, and w its largest layer,
  //     T >= W / (1 - (1 - 1/M)^K)     one chunk per stage: stage k begins after those before it, so T >= S_k + M t_k,
  //                                    S_k = t_0 + .. + t_{k-1}; equal for all k where t_k = T/M (1 - 1/M)^k
  //     T >= W                         several chunks per stage
  //     T >= M W / K, M w
  // In the last line the layers' times are those with the recomputation that the scenario asks for, in the others those
  // without: a stage may rebuild while it waits. The last line alone holds where a stage need not wait for the one
  // before it (branches and `skips: direct`), without a flush, and where the backward is split. With r_k replicas of
  // stage k:
  //     T >= M W / sum r_k, M w / max r_k
  //     K = 2, M = 4, W = 7: 7 / (1 - (3/4)^2) = 16;  K = 1: M W.      tests/planner/search_test.cpp "bounds"
  Time bound(const LayoutGroup& group);
  Time bound(const Layout& layout);
  // The same where what tokens take to their experts is left out: it depends on where the devices lie, so that costs are
  // computed again for every number of stages and copies. Elsewhere the bound itself.
  Time bound_anywhere(const Layout& layout);
  bool depends_on_place(const Layout& layout) const {
    return scenario_.plan.expert_tensor_parallel.value > 0 || layout.expert_parallel > 1;
  }

  // The same with whole layers and memory counted, where the model is a run of equal layers (run_bound), else with the
  // least bottleneck of all cuts. kNever: nothing of the layout fits. What raise_bound found for the layout counts.
  Time tight_bound(const Layout& layout);

  // The tight bound of a layout with several chunks per stage, raised by path_bound of so many rounds, as far as
  // `enough`.
  Time raise_bound(const Layout& layout, Time enough, int rounds);

  // The least memory per device that the states of all parameters need, however they are cut.
  Bytes least_states(const Layout& layout);

  // A first cut: the one with the least bottleneck (several chunks per stage: the better of two), or where its stages
  // do not all fit, the least bottleneck among those that do. Each stage has the lightest recomputation that fits: less
  // work on a stage never makes a step of fixed orders longer. `set_aside`: memory that is not for the stage's layers
  // (buffers), by stage; empty: none. The candidate's bound is tight_bound.
  //
  // Aim::LeastMemory: the level is lowered first, to the least for which some cut fits with some recomputation
  // (Workbench::least_cut; of several chunks per stage, and where cuts are not open, the least of the cuts tried). A
  // layout that is known to need more than `wanted` is left at that.
  Evaluation evaluate(const Layout& layout, const std::vector<Bytes>& set_aside = {}, Bytes wanted = Bytes{kLargest});

  // The best cut that the exact search (planner/partitioners/exact.hpp), or with several chunks per stage a search from
  // neighbour to neighbour, finds with so many simulations; never worse than the candidate's own. Returns how many it
  // used: none with Aim::LeastMemory, whose cuts are what they are for their memory.
  std::int64_t refine(Candidate& candidate, std::int64_t simulations, const std::vector<Bytes>& set_aside = {});

  // The scenario that the candidate answers, for `price`; and its costs.
  const CostModel& cost(const Layout& layout);

  const Scenario& scenario() const { return scenario_; }
  bool cuts_open() const { return cuts_open_; }
  // Whether a layout is one plan: nothing of it is left to choose.
  bool one_plan() const { return !cuts_open_ && modes_.empty(); }

 private:
  // Sharded weights are cut into units, of the cut that the plan has: no other is tried.
  static bool in_units(const Layout& layout) { return layout.zero >= kWeightsSharded && layout.copies() > 1; }
  bool searches_cuts(const Layout& layout) const { return cuts_open_ && !in_units(layout); }
  // Whether the cuts that `evaluate` tries are all that there are, or stand for all.
  bool tries_all_cuts(const Layout& layout) const {
    return !cuts_open_ || !in_units(layout) || layout.stages * layout.virtual_stages == 1;
  }
  struct World;
  World& world(const Layout& layout);
  World& world_anywhere(const Layout& layout);
  using Where = std::tuple<int, int, PlacementOrder>;  // stages, copies; 0: anywhere
  World& world(const Layout& layout, const Where& where);
  Time bound(World& here, const Layout& layout) const;
  using Modes = std::vector<Recompute>;
  // Of a run of equal layers, by `of` for the recomputations that a stage may have; nothing where `of` does not hold.
  std::optional<Time> of_run(World& here, const Plan& shell, const std::function<Time(const Modes&)>& of) const;
  const Modes& modes(int context_parallel) const { return context_parallel > 1 ? modes_of_shared_ : modes_; }
  Time cut_bound(const Layout& layout);
  Evaluation evaluate(const Layout& layout, const Modes& modes, const std::vector<Bytes>& set_aside, Bytes wanted);
  std::int64_t refine(Candidate& candidate, const Modes& modes, std::int64_t simulations,
                      const std::vector<Bytes>& set_aside);
  bool better(const Evaluation& a, const Evaluation& b) const;
  Recompute surely() const;  // the lightest that every micro-batch has on every stage
  bool stopped() const { return stop_ && stop_(); }

  const Scenario& scenario_;
  Modes modes_, modes_of_shared_;  // of whole and of shared sequences; lightest first; empty: as the scenario says
  bool one_for_all_ = false;
  bool cuts_open_;
  std::int64_t workers_ = 0, widest_ = 1;  // stated replicas: of all stages, and of one at most
  std::function<bool()> stop_;
  Aim aim_;
  using Key = std::tuple<int, bool, int, int, std::int64_t, int, Where>;
  std::map<Key, std::shared_ptr<World>> worlds_;
  std::map<Layout, Time> bounds_;  // tight ones, as far as they are known
};

}  // namespace pipewright::planner
