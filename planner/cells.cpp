#include "planner/cells.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dominator_tree.hpp>
#include <boost/graph/transitive_reduction.hpp>

#include "core/check.hpp"

namespace pipewright {
namespace {

using Directed = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS>;

// Keeps the edges that do not follow from others; order of nodes unchanged.
void reduce(CellGraph& graph) {
  const auto n = static_cast<std::size_t>(graph.size());
  Directed all(n), reduced;
  for (std::size_t user = 0; user < n; ++user)
    for (const int input : graph.inputs[user])
      boost::add_edge(static_cast<std::size_t>(input), user, all);
  std::vector<std::size_t> position(n), index(n);
  std::iota(index.begin(), index.end(), std::size_t{0});
  boost::transitive_reduction(all, reduced,
                              boost::make_iterator_property_map(position.begin(), boost::get(boost::vertex_index, all)),
                              boost::make_iterator_property_map(index.begin(), boost::get(boost::vertex_index, all)));
  for (std::size_t user = 0; user < n; ++user) {
    auto& inputs = graph.inputs[user];
    inputs.erase(
        std::remove_if(inputs.begin(), inputs.end(),
                       [&](int input) {
                         return !boost::edge(position[static_cast<std::size_t>(input)], position[user], reduced).second;
                       }),
        inputs.end());
  }
}

// Down-sets of nodes first..last, the empty one left out; all nodes before `first` are below them.
std::optional<std::int64_t> down_sets_of_cell(const CellGraph& graph, int first, int last, std::int64_t most) {
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

}  // namespace

CellGraph cell_graph(const Model& model) {
  return merged(model, std::vector<bool>(model.layers.size(), false));
}

CellGraph merged(const Model& model, const std::vector<bool>& free) {
  PP_CHECK(free.size() == model.layers.size());
  CellGraph graph;
  std::vector<int> node_of(model.layers.size());
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    std::vector<int> inputs;  // nodes, each once
    for (const LayerId producer : model.layers[i].inputs)
      inputs.push_back(node_of[static_cast<std::size_t>(producer)]);
    std::sort(inputs.begin(), inputs.end());
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    if (free[i] && inputs.size() == 1) {
      node_of[i] = inputs.front();
      graph.members[static_cast<std::size_t>(inputs.front())].push_back(static_cast<LayerId>(i));
      continue;
    }
    node_of[i] = graph.size();
    graph.inputs.push_back(std::move(inputs));
    graph.members.push_back({static_cast<LayerId>(i)});
  }
  reduce(graph);
  return graph;
}

std::vector<int> cell_ends(const CellGraph& graph) {
  const auto n = static_cast<std::size_t>(graph.size());
  const std::size_t source = n, sink = n + 1;
  Directed all(n + 2);
  std::vector<bool> used(n);
  for (std::size_t user = 0; user < n; ++user) {
    if (graph.inputs[user].empty()) boost::add_edge(source, user, all);
    for (const int input : graph.inputs[user]) {
      boost::add_edge(static_cast<std::size_t>(input), user, all);
      used[static_cast<std::size_t>(input)] = true;
    }
  }
  for (std::size_t node = 0; node < n; ++node)
    if (!used[node]) boost::add_edge(node, sink, all);
  std::vector<std::size_t> dominator(n + 2, Directed::null_vertex());
  boost::lengauer_tarjan_dominator_tree(
      all, source, boost::make_iterator_property_map(dominator.begin(), boost::get(boost::vertex_index, all)));
  std::vector<int> ends;
  for (std::size_t node = dominator[sink]; node != source; node = dominator[node])
    ends.push_back(static_cast<int>(node));
  std::reverse(ends.begin(), ends.end());
  if (ends.empty() || ends.back() != graph.size() - 1) ends.push_back(graph.size() - 1);
  return ends;
}

std::optional<std::int64_t> count_down_sets(const CellGraph& graph, std::int64_t most) {
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

}  // namespace pipewright
