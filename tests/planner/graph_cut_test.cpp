#include "planner/graph_cut.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include <doctest/doctest.h>

using namespace pipewright::tests;

namespace {

// Layer i uses some of the layers before it; every layer but the first uses one at least.
Model random_graph(std::mt19937& random, int layers, int percent) {
  Model model;
  for (int i = 0; i < layers; ++i) {
    Layer layer;
    layer.name = std::to_string(i);
    for (int before = 0; before < i; ++before)
      if (static_cast<int>(random() % 100) < percent) layer.inputs.push_back(before);
    if (i > 0 && layer.inputs.empty())
      layer.inputs.push_back(static_cast<LayerId>(random() % static_cast<unsigned>(i)));
    model.layers.push_back(layer);
  }
  return model;
}

GraphProblem random_graph_problem(std::mt19937& random, int layers, int stages, bool messages) {
  GraphProblem problem;
  for (int i = 0; i < layers; ++i) {
    problem.compute.push_back(Time{static_cast<std::int64_t>(random() % 12)});
    if (messages) problem.tensor.push_back(Bytes{static_cast<std::int64_t>(random() % 9)});
  }
  if (messages) problem.bandwidth = Bandwidth{1e9};
  for (int k = 0; k < stages; ++k)
    problem.replicas.push_back(1 + static_cast<int>(random() % 2));
  return problem;
}

// The same problem for the layers in another order.
GraphProblem in_order(const GraphProblem& problem, const std::vector<LayerId>& order) {
  GraphProblem there = problem;
  for (std::size_t i = 0; i < order.size(); ++i) {
    there.compute[i] = problem.compute[static_cast<std::size_t>(order[i])];
    if (!problem.tensor.empty()) there.tensor[i] = problem.tensor[static_cast<std::size_t>(order[i])];
  }
  return there;
}

bool topological(const Model& model, const std::vector<LayerId>& order) {
  std::vector<std::size_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    place[static_cast<std::size_t>(order[i])] = i;
  for (LayerId i = 0; i < std::ssize(order); ++i)
    for (const LayerId input : model.layers[i].inputs)
      if (place[static_cast<std::size_t>(input)] > place[i]) return false;
  return true;
}

enum class Stages { Any, WithWork };

// Every order and every cut.
std::optional<Time> brute_force(const Model& model, const GraphProblem& problem, Stages stages_sought = Stages::Any) {
  const int layers = static_cast<int>(model.layers.size()), stages = static_cast<int>(problem.replicas.size());
  std::vector<LayerId> order(static_cast<std::size_t>(layers));
  std::iota(order.begin(), order.end(), 0);
  std::optional<Time> least;
  do {
    if (!topological(model, order)) continue;
    const Model there = reordered(model, order);
    const GraphProblem of_order = in_order(problem, order);
    for (int cuts = 0; cuts < 1 << (layers - 1); ++cuts) {
      if (__builtin_popcount(static_cast<unsigned>(cuts)) != stages - 1) continue;
      std::vector<LayerRange> ranges;
      LayerId begin = 0;
      for (int i = 0; i < layers; ++i)
        if (i + 1 == layers || (cuts >> i & 1) != 0) ranges.push_back({begin, i + 1}), begin = i + 1;
      const Time time = bottleneck_of(there, of_order, ranges);
      const bool idle = std::any_of(ranges.begin(), ranges.end(), [&](LayerRange range) {
        return std::all_of(of_order.compute.begin() + range.begin, of_order.compute.begin() + range.end,
                           [](Time each) { return each == Time{}; });
      });
      if (idle && stages_sought == Stages::WithWork) continue;
      if (!least || time < *least) least = time;
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

void check_valid(const Model& model, const GraphProblem& problem, const GraphCut& cut) {
  CHECK(topological(model, cut.order));
  CHECK(cut.layers.size() == problem.replicas.size());
  LayerId begin = 0;
  for (const LayerRange range : cut.layers) {
    CHECK(range.begin == begin);
    CHECK(range.size() > 0);
    begin = range.end;
  }
  CHECK(begin == static_cast<LayerId>(model.layers.size()));
  CHECK(bottleneck_of(reordered(model, cut.order), in_order(problem, cut.order), cut.layers) == cut.bottleneck);
  CHECK(cut.lower_bound <= cut.bottleneck);
}

}  // namespace

TEST_CASE("The cut over all down-sets equals brute force over all orders and cuts") {
  std::mt19937 random(41);
  int compared = 0, better_than_as_given = 0;
  for (int round = 0; round < 120; ++round) {
    CAPTURE(round);
    const int layers = 3 + static_cast<int>(random() % 5), stages = 2 + static_cast<int>(random() % 2);
    const Model model = random_graph(random, layers, 25);
    GraphProblem problem = random_graph_problem(random, layers, stages, round % 2 == 1);
    for (Time& time : problem.compute)
      time += Time{1};  // nothing merges, so that every cut of the brute force is one of the graph's
    const std::optional<GraphCut> cut = graph_cut(model, problem);
    const std::optional<Time> least = brute_force(model, problem);
    REQUIRE(cut.has_value() == least.has_value());
    if (!cut) continue;
    ++compared;
    CHECK(cut->bottleneck == *least);
    CHECK(cut->exact());
    check_valid(model, problem, *cut);
    problem.most_down_sets = 1;  // heuristic, or folded: never better, and its lower bound holds
    const std::optional<GraphCut> other = graph_cut(model, problem);
    REQUIRE(other.has_value());
    check_valid(model, problem, *other);
    CHECK(other->bottleneck >= *least);
    CHECK(other->lower_bound <= *least);
    better_than_as_given += other->bottleneck > *least ? 1 : 0;
  }
  CHECK(compared > 100);
  CHECK(better_than_as_given > 3);
}

TEST_CASE("Layers without work join their input, and no stages that all have work are better") {
  std::mt19937 random(42);
  int compared = 0;
  for (int round = 0; round < 80; ++round) {
    CAPTURE(round);
    const int layers = 4 + static_cast<int>(random() % 4);
    const Model model = random_graph(random, layers, 20);
    GraphProblem problem = random_graph_problem(random, layers, 2, round % 2 == 1);
    for (std::size_t i = 0; i < problem.compute.size(); ++i)
      if (random() % 3 == 0) problem.compute[i] = Time{};
    const std::optional<GraphCut> cut = graph_cut(model, problem);
    if (!cut) continue;
    ++compared;
    CHECK(cut->bottleneck >= *brute_force(model, problem));
    if (const auto least = brute_force(model, problem, Stages::WithWork)) CHECK(cut->bottleneck <= *least);
    check_valid(model, problem, *cut);
  }
  CHECK(compared > 60);
}

// 1, two branches of 4 each, 1: either branch alone on a stage with an end.
TEST_CASE("Branches side by side go to different stages") {
  Model model;
  for (const std::vector<LayerId>& inputs : {std::vector<LayerId>{}, {0}, {0}, {1, 2}}) {
    Layer layer;
    layer.inputs = inputs;
    model.layers.push_back(layer);
  }
  const GraphProblem problem{.compute = {Time{1}, Time{4}, Time{4}, Time{1}}, .replicas = {1, 1}};
  const auto cut = graph_cut(model, problem);
  REQUIRE(cut);
  CHECK(cut->bottleneck == Time{5});
  CHECK(cut->down_sets == 6);  // {}, 0, 01, 02, 012, all
}

TEST_CASE("A model in another order computes the same: inputs and tied tables follow") {
  Model model;
  for (const std::vector<LayerId>& inputs : {std::vector<LayerId>{}, {0}, {0}, {1, 2}}) {
    Layer layer;
    layer.name = std::to_string(model.layers.size());
    layer.inputs = inputs;
    model.layers.push_back(layer);
  }
  model.layers[3].tied_to = 1;
  const Model other = reordered(model, {0, 2, 1, 3});
  CHECK(other.layers[1].name == "2");
  CHECK(other.layers[3].inputs == std::vector<LayerId>{2, 1});
  CHECK(other.layers[3].tied_to == 2);
}
