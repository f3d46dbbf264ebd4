// plan.order: graph: the layers of a model with branches in the order of which the best cut has the least bottleneck.
//
// planner/graph_cut.hpp finds a chain of down-sets of the graph, and with it an order in which these are the stages of
// a cut. From there on it is a model like any other: costs, memory, search and simulation know its new order only.
//     fork 1, branches 3 and 6 side by side, join 2, two stages: 4 | 8 is the best cut in this order; with the branches
//     exchanged it is 7 | 5, and no down-set does better.              tests/planner/layer_order_test.cpp
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/question/scenario.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {

struct OrderFound {
  std::vector<LayerId> order;  // of the model as it stands; the same where no other is better
  Time bottleneck, as_given;   // of the best cuts in this order, and in that of the model
  Time lower_bound;            // of all orders and cuts
  std::string proof;           // how that is known
  bool better() const { return bottleneck < as_given; }

  // One line for a report on a plan that cuts this order, or on one that keeps the model's because it is faster.
  std::string how(bool keeps_the_models = false) const;
};

// `work`: forward + backward of every layer; `replicas`: of the parts that it is cut into, in order. With more
// down-sets than `most_down_sets` in a cell the answer is folded or a heuristic, as `proof` says.
OrderFound best_order(const Model& model, const std::vector<Time>& work, const std::vector<int>& replicas,
                      std::int64_t most_down_sets = 1'000'000);

// A scenario whose model stands in the order that its plan asks for: the one given where that is so already.
struct InOrder {
  std::shared_ptr<const Scenario> scenario;
  std::string how;
};

// Settles `order: graph` for the stages, replicas and micro-batches that the scenario gives; what cannot be cut at all
// keeps its order, so that find_plan says why. Throws InputError where the cuts are given, or left to a partitioner of
// whole plans.
InOrder in_graph_order(std::shared_ptr<const Scenario> scenario);

// The search where the order is open, too: for every number of stages the model's order and the best one. The bound
// holds for all orders of the layers, where cuts are open.
SearchResult search_orders(const Scenario& scenario, const SearchOptions& options);

}  // namespace pipewright::planner
