// Stages of a graph with branches: a topological order of its layers and cuts of that order, with the least bottleneck
// over all orders and cuts.
//
// What runs up to and with stage k is a down-set of the graph (planner/cells.hpp), so a partition is a chain of
// down-sets from the empty one to the whole. Dynamic programming over them, one layer at a time, for a bound b:
//     A_k(I) = least work of stage k within I, over all ways to reach the down-set I with stages 0 .. k begun
//     A_k(I + v) = min( A_k(I) + t_v,                    v joins stage k, if that stays within b r_k
//                       t_v  if A_{k-1}(I) exists )      v begins stage k, if the tensors over the cut I pass within b
// With one stage and one down-set the least work is never worse than more of it, so the answer is exact; the least b
// for which A_{K-1}(whole) exists is found by bisection.   [Tarnawski20] orders layers by down-sets, too
//     work 4 and 4 side by side between 1 and 1, two stages: any order of layers cuts it 5 | 5.
//     tests/planner/graph_cut_test.cpp "equals brute force"
//
// The number of down-sets is exponential in the branches. Where a cell has too many, nodes that follow one another are
// folded while their work is at most `fold` of what a stage has on average: the answer is then at most
// width * fold * sum t / K above the least, which `lower_bound` takes off. Where even that is too much, the order of
// the model itself and one that follows branches to their ends are cut, layers are moved over cuts while that helps,
// and `how` says that this is a heuristic.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/model/graph.hpp"
#include "core/plan/plan.hpp"
#include "core/units.hpp"
#include "planner/cells.hpp"

namespace pipewright::planner {

struct GraphProblem {
  std::vector<Time> compute;  // of every layer of the model, forward + backward
  std::vector<Bytes> tensor;  // output of every layer, one way; none: messages take no time
  Bandwidth bandwidth{std::numeric_limits<double>::infinity()};
  std::vector<int> replicas;                // of the stages, in order: their number is that of the stages
  std::int64_t most_down_sets = 1'000'000;  // of a cell
};

struct GraphCut {
  std::vector<LayerId> order;      // layers of the model, in their new order
  std::vector<LayerRange> layers;  // of the new order, per stage
  Time bottleneck;                 // max over stages of ceil(work / replicas), and over cuts of bytes / bandwidth / the
                                   // fewer replicas of the two sides
  Time lower_bound;                // of all orders and cuts
  std::int64_t down_sets = 0;      // looked at; 0: none, the heuristic was used
  std::string how;                 // one line for a report

  bool exact() const { return bottleneck == lower_bound; }
};

// None where the model has fewer nodes than stages once layers without work have joined their input: stages without
// work are not looked for. Deterministic.
std::optional<GraphCut> graph_cut(const Model& model, const GraphProblem& problem);

// Bottleneck of a partition of the model as it stands, as above. Knows nothing of down-sets.
Time bottleneck_of(const Model& model, const GraphProblem& problem, const std::vector<LayerRange>& layers);

}  // namespace pipewright::planner
