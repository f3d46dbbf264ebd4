// What exchanges of tokens cut the ops of a chunk into, for cells that run at once (core/cost/cells.hpp).
//
// A layer with experts in a forward: attention and router, dispatch, experts, combine, what follows. Its backward has the
// same parts from behind, each with the gradients of its weights, after what is computed again. Layers follow one another;
// what lies between two exchanges is one part. How much of a layer's pass comes before, between and behind is in the shares
// that the source of its times knows (CostSource::exchange_cuts); all of it takes what the layer takes, and the ops what they
// take. 2 layers of 10 us with shares 4, 3, 1 and exchanges of 5 and 5 us: 5 | 5, 3.75 | 5, 1.25 + 5 | 5, 3.75 | 5, 1.25.
//                                                                                        tests/core/cell_parts_test.cpp
#pragma once

#include <optional>
#include <vector>

#include "core/cost/cost_model.hpp"

namespace pipewright::core {

// Of one chunk.
class CellParts {
 public:
  // `all`: with exchanges; `computing`: without. Of the devices that the chunk is on, as `source` prices them.
  CellParts(const Plan& plan, VirtualStageId v, const Model& model, const CostSource& source, const LayerCosts& all,
            const LayerCosts& computing);

  // Of an op that takes `all`, of which it computes `computing`: parts that add up to both; none where nothing travels, or
  // for ops that no cell has.
  std::vector<StepCosts::Part> of(Kind kind, Time all, Time computing) const;

 private:
  struct Part {
    double rest = 0, weights = 0, exchange = 0;
  };
  struct Pass {
    double computing, exchanged;
  };
  using Cuts = CostSource::ExchangeCuts;

  // `modules`: of the forward those that selective recomputation repeats.
  void forward(LayerId layer, const Pass& pass, bool modules, std::vector<Part>& parts) const;
  void backward(LayerId layer, bool weights, std::vector<Part>& parts) const;
  std::vector<Part> raw(Kind kind) const;
  Pass pass(std::vector<Time> LayerCosts::*times, LayerId layer) const;
  const std::optional<Cuts>& cuts(LayerId layer) const { return cuts_[static_cast<std::size_t>(layer - range_.begin)]; }

  const Plan& plan_;
  const Model& model_;
  StageId stage_;
  LayerRange range_;
  const LayerCosts &all_, &computing_;
  std::vector<std::optional<Cuts>> cuts_;  // of the chunk's layers; none: no token travels
};

}  // namespace pipewright::core
