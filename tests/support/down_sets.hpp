// The down-sets of a graph, counted cell by cell.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "planner/cells.hpp"

namespace pipewright::tests {

// Down-sets of nodes first..last, the empty one left out; all nodes before `first` are below them.
inline std::optional<std::int64_t> down_sets_of_cell(const CellGraph& graph, int first, int last, std::int64_t most) {
  const int n = last - first + 1;
  std::vector<NodeSet> below(static_cast<std::size_t>(n), no_nodes(n));
  for (int node = 0; node < n; ++node)
    for (const int input : graph.inputs[static_cast<std::size_t>(first + node)])
      if (input >= first) insert(below[static_cast<std::size_t>(node)], input - first);
  std::unordered_set<NodeSet, NodeSetHash> found;  // only counted and looked up: its order is nowhere visible
  std::vector<NodeSet> open = {no_nodes(n)};
  while (!open.empty()) {
    const NodeSet set = std::move(open.back());
    open.pop_back();
    for (int node = 0; node < n; ++node) {
      if (has(set, node)) continue;
      const NodeSet& needs = below[static_cast<std::size_t>(node)];
      bool ready = true;
      for (std::size_t w = 0; w < set.size(); ++w)
        ready = ready && (needs[w] & ~set[w]) == 0;
      if (!ready) continue;
      NodeSet larger = set;
      insert(larger, node);
      if (!found.insert(larger).second) continue;
      if (static_cast<std::int64_t>(found.size()) > most) return std::nullopt;
      open.push_back(std::move(larger));
    }
  }
  return static_cast<std::int64_t>(found.size());
}

// Number of down-sets, the empty and the whole one included; nothing when a cell has more than `most`.
//     chain of 40: 41.   two branches of a and b nodes between a fork and a join: (a + 1)(b + 1) + 2, and the empty one
inline std::optional<std::int64_t> count_down_sets(const CellGraph& graph, std::int64_t most = 1'000'000) {
  std::int64_t count = 1;
  int first = 0;
  for (const int last : cell_ends(graph)) {
    const auto cell = down_sets_of_cell(graph, first, last, most);
    if (!cell) return std::nullopt;
    count += *cell;
    first = last + 1;
  }
  return count;
}

}  // namespace pipewright::tests
