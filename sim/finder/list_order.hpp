// Orders made op by op in the order of time, by a rule with a few numbers per stage: as good as the numbers are.
#pragma once

#include <vector>

#include "sim/finder/problem.hpp"

namespace pipewright::sim {

// A stage that is free takes a B that has arrived; else an F that has, if fewer than `most` are in flight here, the cap
// admits it, and no B arrives within `patience` of its length; else a W, unless what arrives next arrives within
// `margin` of its length; else it waits. Full of what awaits W, it runs W at once. Where cells are cheaper than their passes,
// an F and a B that have arrived are one, and the one waits for the other for `partner` of what the cell saves.
struct ListRule {
  std::vector<int> most;                 // one entry per stage: chunks from F to B
  std::vector<double> patience, margin;  // one entry per stage: shares of an F and of a W
  double partner = -1;                   // below 0: no cells
  bool deep_first = true;                // of several chunks whose F has arrived: the last one first
};

class ListScheduler {
 public:
  explicit ListScheduler(const OrderProblem& problem);

  // Fills `order`; false: the rule comes to no end, or the measure would exceed `limit`. Recomputations wait for their
  // gradients here: with them its times are no less than the pricer's.
  bool run(const ListRule& rule, std::int64_t limit, PricedOrder& order);

 private:
  struct Stage {
    std::int64_t free = 0, begin = -1, busy = 0, held = 0, next = 0;
    std::int64_t in_flight = 0, left = 0;
  };
  void set_next(StageId stage, std::int64_t time);
  void wake(StageId stage, std::int64_t arrival);
  // Kind and chunk to run now, or kind -1: when to ask again, if it is to wait.
  struct Choice {
    int kind = -1;  // 3: a cell of the chunk's F and `backward`
    VirtualStageId chunk = 0, backward = 0;
    std::int64_t ask_again = 0;
  };
  // A cell of both, or a wait for it.
  Choice pair_up(const ListRule& rule, StageId stage, std::int64_t now, VirtualStageId forward_of,
                 VirtualStageId input_of) const;
  void end_forward(VirtualStageId chunk, std::int64_t end);
  void end_input(VirtualStageId chunk, std::int64_t end);
  Choice choose(const ListRule& rule, StageId stage, std::int64_t now) const;
  // In a loop a micro-batch that can't go on holds up all behind it: whether the oldest one that has not run all its forwards on
  // the stage still has room for them next to another F of this chunk.
  bool leaves_room(StageId stage, VirtualStageId chunk) const;
  bool is_of_oldest(StageId stage, VirtualStageId chunk) const;  // whether the next F of this chunk is

  OrderPricer pricer_;
  bool loop_;                             // of several chunks
  std::vector<std::int64_t> least_work_;  // by stage
  std::vector<std::int64_t> growth_;      // by stage: what a micro-batch may hold more from B to W than before
  std::vector<Stage> stages_;
  std::vector<StageId> winner_;  // a tree over the stages: which of them is to act first
  std::size_t leaves_ = 1;
  std::vector<std::int64_t> forward_at_, input_at_;  // by chunk and micro-batch
  std::vector<int> forwards_, inputs_, weights_;     // done, by chunk
};

}  // namespace pipewright::sim
