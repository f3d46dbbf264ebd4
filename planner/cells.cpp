#include "planner/cells.hpp"

#include <algorithm>
#include <numeric>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dominator_tree.hpp>
#include <boost/graph/transitive_reduction.hpp>

#include "core/check.hpp"

namespace pipewright::planner {
namespace {

using Directed = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS>;

// Keeps the edges that do not follow from others; order of nodes unchanged.
void reduce(CellGraph& graph) {
  const auto n = at(graph.size());
  Directed all(n), reduced;
  for (std::size_t user = 0; user < n; ++user)
    for (const int input : graph.inputs[user])
      boost::add_edge(at(input), user, all);
  std::vector<std::size_t> position(n), index(n);
  std::iota(index.begin(), index.end(), std::size_t{0});
  boost::transitive_reduction(all, reduced,
                              boost::make_iterator_property_map(position.begin(), boost::get(boost::vertex_index, all)),
                              boost::make_iterator_property_map(index.begin(), boost::get(boost::vertex_index, all)));
  for (std::size_t user = 0; user < n; ++user) {
    auto& inputs = graph.inputs[user];
    inputs.erase(
        std::remove_if(inputs.begin(), inputs.end(),
                       [&](int input) { return !boost::edge(position[at(input)], position[user], reduced).second; }),
        inputs.end());
  }
}

}  // namespace

CellGraph merged(const Model& model, const std::vector<bool>& free) {
  PP_CHECK(free.size() == model.layers.size());
  CellGraph graph;
  std::vector<int> node_of(model.layers.size());
  for (LayerId i = 0; i < std::ssize(model.layers); ++i) {
    std::vector<int> inputs;  // nodes, each once
    for (const LayerId producer : model.layers[i].inputs)
      inputs.push_back(node_of[at(producer)]);
    std::ranges::sort(inputs);
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    if (free[i] && inputs.size() == 1) {
      node_of[i] = inputs.front();
      graph.members[at(inputs.front())].push_back(i);
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
  const auto n = at(graph.size());
  const std::size_t source = n, sink = n + 1;
  Directed all(n + 2);
  std::vector<bool> used(n);
  for (std::size_t user = 0; user < n; ++user) {
    if (graph.inputs[user].empty()) boost::add_edge(source, user, all);
    for (const int input : graph.inputs[user]) {
      boost::add_edge(at(input), user, all);
      used[at(input)] = true;
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
  std::ranges::reverse(ends);
  if (ends.empty() || ends.back() != graph.size() - 1) ends.push_back(graph.size() - 1);
  return ends;
}

}  // namespace pipewright::planner
