// From a graph of layers to the chain of cells that partitioners cut.
//
// A stage is a consecutive part of the model: what runs up to and with stage k is closed under "is needed by", a
// down-set of the graph. On a chain of L layers there are L + 1 down-sets, one per cut; branches multiply them. A layer
// that is comparable with all others (on every path from the input to the output) separates the graph: down-sets before
// it and behind it do not mix. What lies between two such layers, with the later one, is a *cell*.
//
// Boost.Graph finds the dominators [LengauerTarjan79] and removes edges that follow from others; enumerating down-sets
// is ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/model/graph.hpp"

namespace pipewright::planner {

// Nodes of one cell, one bit per node, 64 to a word: what the enumeration of down-sets keeps and looks up.
using NodeSet = std::vector<std::uint64_t>;

struct NodeSetHash {
  std::size_t operator()(const NodeSet& set) const {
    std::uint64_t hash = 0x9e3779b97f4a7c15;
    for (const std::uint64_t word : set)
      hash = (hash ^ word) * 0xff51afd7ed558ccd, hash ^= hash >> 32;
    return hash;
  }
};

inline NodeSet no_nodes(int of) {
  return NodeSet(at(of) / 64 + 1);
}
inline bool has(const NodeSet& set, int node) {
  return (set[at(node) / 64] >> (node % 64) & 1) != 0;
}
inline void insert(NodeSet& set, int node) {
  set[at(node) / 64] |= std::uint64_t{1} << (node % 64);
}

// Nodes 0..n-1 in topological order, each standing for one or more layers of a model.
struct CellGraph {
  std::vector<std::vector<int>> inputs;       // ascending, without those that follow from others
  std::vector<std::vector<LayerId>> members;  // layers of a node, ascending
  int size() const { return static_cast<int>(inputs.size()); }
};

// Every layer without cost (forward + backward = 0) and with exactly one input joins that input's node, repeatedly.
// Lossless for stage times: a cut between the two would move no work. `free[i]`: layer i has no cost.
CellGraph merged(const Model& model, const std::vector<bool>& free);

// The last node of every cell, ascending: nodes on every path from an input to an output; the last cell ends with the
// last node of the graph, whether it is on every path or not.
std::vector<int> cell_ends(const CellGraph& graph);

}  // namespace pipewright::planner
