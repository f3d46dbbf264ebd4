#include "planner/cells.hpp"

#include <random>

#include <doctest/doctest.h>

#include "tests/support/down_sets.hpp"

using namespace pipewright::tests;

namespace {

Model model_of(const std::vector<std::vector<LayerId>>& inputs) {
  Model model;
  for (const auto& producers : inputs) {
    model.layers.emplace_back();
    model.layers.back().inputs = producers;
  }
  return model;
}

// One node per layer.
CellGraph cell_graph(const Model& model) {
  return merged(model, std::vector<bool>(model.layers.size()));
}

// Every subset looked at: it is a down-set when it holds all inputs of its members.
std::int64_t down_sets_by_brute_force(const Model& model) {
  const auto n = static_cast<unsigned>(model.layers.size());
  std::int64_t count = 0;
  for (std::uint32_t set = 0; set < 1U << n; ++set) {
    bool closed = true;
    for (unsigned i = 0; i < n; ++i)
      if (set >> i & 1)
        for (const LayerId input : model.layers[i].inputs)
          closed = closed && (set >> input & 1);
    count += closed;
  }
  return count;
}

Model random_dag(std::mt19937& random, int layers) {
  std::vector<std::vector<LayerId>> inputs(static_cast<std::size_t>(layers));
  for (int i = 1; i < layers; ++i)
    for (int j = 0; j < i; ++j)
      if (random() % 4 == 0) inputs[static_cast<std::size_t>(i)].push_back(j);
  return model_of(inputs);
}

}  // namespace

TEST_CASE("a chain of L layers has L cells and L + 1 down-sets") {
  const Model chain = model_of({{}, {0}, {1}, {2}, {3}});
  CHECK(cell_ends(cell_graph(chain)) == std::vector<int>{0, 1, 2, 3, 4});
  CHECK(count_down_sets(cell_graph(chain)) == 6);
}

// 0 forks into 1-2 and 3-4-5, which join in 6: (2 + 1)(3 + 1) sets from the fork on, the join, and the empty one.
TEST_CASE("two branches between a fork and a join are one cell of (a + 1)(b + 1) down-sets") {
  const Model forked = model_of({{}, {0}, {1}, {0}, {3}, {4}, {2, 5}});
  CHECK(cell_ends(cell_graph(forked)) == std::vector<int>{0, 6});
  CHECK(count_down_sets(cell_graph(forked)) == 3 * 4 + 2);
}

TEST_CASE("an edge that follows from others changes nothing") {
  const CellGraph graph = cell_graph(model_of({{}, {0}, {0, 1}}));
  CHECK(graph.inputs[2] == std::vector<int>{1});
  CHECK(cell_ends(graph) == std::vector<int>{0, 1, 2});
}

TEST_CASE("down-sets of random graphs are as many as brute force counts") {
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    const Model model = random_dag(random, 1 + static_cast<int>(random() % 11));
    CHECK(count_down_sets(cell_graph(model)) == down_sets_by_brute_force(model));
  }
}

TEST_CASE("layers without cost join their only input, those with two inputs stay") {
  const Model model = model_of({{}, {0}, {1}, {0}, {2, 3}});
  const CellGraph graph = merged(model, {false, true, true, false, true});
  REQUIRE(graph.size() == 3);
  CHECK(graph.members[0] == std::vector<LayerId>{0, 1, 2});
  CHECK(graph.inputs[2] == std::vector<int>{1});  // 4 needs 0 and 3, and 3 needs 0
}

TEST_CASE("too many down-sets are not answer, not a wait") {
  std::vector<std::vector<LayerId>> wide(1);
  for (int i = 0; i < 30; ++i)
    wide.push_back({0});
  CHECK_FALSE(count_down_sets(cell_graph(model_of(wide)), 10'000).has_value());
}
