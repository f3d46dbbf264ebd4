// plan.order: graph. The diamond of the tests: fork 1, branches b 3 and c 6 side by side, join 2.
#include "planner/layer_order.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include <doctest/doctest.h>

#include "planner/answer.hpp"
#include "planner/find_plan.hpp"
#include "planner/partitioners/min_max.hpp"
#include "tests/support/uniform_scenario.hpp"

using namespace pipewright::tests;

namespace {

// Milliseconds of each layer, half of them forward; whose output each layer uses.
Scenario branching(const std::vector<std::vector<LayerId>>& inputs, const std::vector<std::int64_t>& work) {
  Scenario scenario =
      uniform_scenario({.layers = static_cast<int>(work.size()), .devices = 4, .stages = 2, .micro_batches = 4});
  for (LayerId i = 0; i < std::ssize(work); ++i) {
    Layer& layer = scenario.model.layers[i];
    layer.forward = layer.backward = Time{work[i] * 500'000};
    layer.inputs = inputs[i];
  }
  scenario.plan.schedule.value = "gpipe";
  scenario.origins.clear();
  return scenario;
}

Scenario diamond() {
  Scenario scenario = branching({{}, {0}, {0}, {1, 2}}, {1, 3, 6, 2});
  const char* names[] = {"fork", "b", "c", "join"};
  for (LayerId i = 0; i < 4; ++i)
    scenario.model.layers[i].name = names[i];
  return scenario;
}

Scenario with_order_graph(Scenario scenario) {
  scenario.plan.order.value.kind = LayerOrder::Kind::Graph;
  return scenario;
}

Time answered_step(const Scenario& scenario) {
  const auto result = answer(scenario);
  REQUIRE(std::holds_alternative<Answer>(result));
  return std::get<Answer>(result).report.step_time;
}

Scenario random_branches(std::mt19937& random, int layers) {
  std::vector<std::vector<LayerId>> inputs(1);
  std::vector<std::int64_t> work = {1 + static_cast<std::int64_t>(random() % 9)};
  for (int i = 1; i < layers; ++i) {
    std::vector<LayerId>& mine = inputs.emplace_back();
    for (int before = 0; before < i; ++before)
      if (random() % 100 < 25) mine.push_back(before);
    if (mine.empty()) mine.push_back(static_cast<LayerId>(random() % static_cast<unsigned>(i)));
    work.push_back(1 + static_cast<std::int64_t>(random() % 9));
  }
  return branching(inputs, work);
}

// Every topological order of the model.
std::vector<std::vector<LayerId>> all_orders(const Model& model) {
  std::vector<LayerId> order(model.layers.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::vector<LayerId>> all;
  do {
    std::vector<char> seen(order.size());
    bool good = true;
    for (const LayerId layer : order) {
      for (const LayerId input : model.layers[layer].inputs)
        good &= seen[static_cast<std::size_t>(input)] != 0;
      seen[static_cast<std::size_t>(layer)] = 1;
    }
    if (good) all.push_back(order);
  } while (std::next_permutation(order.begin(), order.end()));
  return all;
}

std::string order_error(const Scenario& scenario) {
  try {
    in_graph_order(std::make_shared<const Scenario>(scenario));
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

// As given the prefixes are 1, 4, 10: the best cut is 4 | 8. With the branches exchanged they are 1, 7, 10: 7 | 5. The
// down-sets of the diamond leave no other prefix.
TEST_CASE("the diamond's branches change places: 7 | 5 instead of 4 | 8") {
  const Scenario scenario = diamond();
  const OrderFound found = best_order(scenario.model, {Time{1}, Time{3}, Time{6}, Time{2}}, {1, 1});
  CHECK(found.order == std::vector<LayerId>{0, 2, 1, 3});
  CHECK(found.as_given == Time{8});
  CHECK(found.bottleneck == Time{7});
  CHECK(found.lower_bound == Time{7});
  CHECK(found.proof.find("exact: no order and no cut has a smaller one (6 down-sets)") != std::string::npos);
}

// GPipe without transfers: all work of a micro-batch once, then the slowest stage M - 1 times.
//     12 + 3 * 8 = 36 ms as given, 12 + 3 * 7 = 33 ms
TEST_CASE("simulate runs the layers in the graph's order") {
  CHECK(answered_step(diamond()) == Time{36'000'000});
  const Scenario scenario = with_order_graph(diamond());
  CHECK(answered_step(scenario) == Time{33'000'000});
  const Answer found = std::get<Answer>(answer(scenario));
  CHECK(found.scenario->model.layers[1].name == "c");
  CHECK(found.scenario->model.layers[3].inputs == std::vector<LayerId>{2, 1});
  CHECK(scenario.model.layers[1].name == "b");  // the question stays as it was
  const auto& lines = found.report.provenance;
  CHECK(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.starts_with(
        "order of layers: the graph's, largest stage 7 ms per micro-batch, 8 ms in the model's order");
  }));
}

TEST_CASE("a chain has one order, and keeps it") {
  const auto asked = std::make_shared<const Scenario>(with_order_graph(branching({{}, {0}, {1}}, {1, 2, 3})));
  const InOrder there = in_graph_order(asked);
  CHECK(there.scenario != asked);
  CHECK(there.scenario->plan.order.value.layers == std::vector<LayerId>{0, 1, 2});
  CHECK(there.how.find("there is no other") != std::string::npos);
  const auto unasked = std::make_shared<const Scenario>(diamond());
  CHECK(in_graph_order(unasked).scenario == unasked);
}

TEST_CASE("the best order is never worse than the model's, and says when it is not proven") {
  std::mt19937 random(7);
  int better = 0;
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const Scenario scenario = random_branches(random, 8);
    std::vector<Time> work;
    for (const Layer& layer : scenario.model.layers)
      work.push_back(*layer.forward + *layer.backward);
    const OrderFound exact = best_order(scenario.model, work, {1, 1, 1});
    CHECK(exact.bottleneck <= exact.as_given);
    CHECK(exact.bottleneck == exact.lower_bound);
    const Model there = reordered(scenario.model, exact.order);  // aborts where it is no topological order
    std::vector<Time> moved;
    for (const LayerId layer : exact.order)
      moved.push_back(work[static_cast<std::size_t>(layer)]);
    Time largest;
    for (const LayerRange range : min_max(moved, 3)) {
      Time sum;
      for (LayerId i = range.begin; i < range.end; ++i)
        sum += moved[static_cast<std::size_t>(i)];
      largest = std::max(largest, sum);
    }
    CHECK(largest == exact.bottleneck);
    better += exact.better() ? 1 : 0;
    const OrderFound rough = best_order(scenario.model, work, {1, 1, 1}, 1);
    CHECK(rough.lower_bound <= exact.bottleneck);
    CHECK(rough.bottleneck >= exact.bottleneck);
    CHECK(rough.bottleneck <= rough.as_given);
    if (rough.bottleneck > rough.lower_bound) CHECK(rough.proof.find("not exact: at least ") != std::string::npos);
  }
  CHECK(better > 5);
}

TEST_CASE("plan: no order of the layers is better than the bound, and the model's is never better than the answer") {
  std::mt19937 random(9);
  int better = 0;
  for (int round = 0; round < 12; ++round) {
    CAPTURE(round);
    Scenario scenario = random_branches(random, 6);
    scenario.plan.open["stages"].among = {"2", "3"};
    scenario.plan.open["schedule"].among = {"gpipe", "1f1b"};
    const SearchOptions all{.top = 1, .gap = 0, .time_limit = 1000, .most_simulations = 100'000};
    const auto value_of = [&](const Scenario& asked) {
      const auto found = search(asked, all);
      REQUIRE(std::holds_alternative<SearchAnswer>(found));
      return std::get<SearchAnswer>(found).plans.front().value;
    };
    double least = value_of(scenario);
    const double as_given = least;
    for (const std::vector<LayerId>& order : all_orders(scenario.model)) {
      Scenario there = scenario;
      there.model = reordered(scenario.model, order);
      there.plan.order.value = {LayerOrder::Kind::Listed, order};
      least = std::min(least, value_of(there));
    }
    const auto found = search(with_order_graph(scenario), all);
    REQUIRE(std::holds_alternative<SearchAnswer>(found));
    const auto& answer = std::get<SearchAnswer>(found);
    CHECK(answer.plans.front().value <= as_given);
    CHECK(answer.bound <= least);
    CHECK(answer.bound > 0);
    CHECK_FALSE(answer.order.empty());
    better += answer.plans.front().value < as_given ? 1 : 0;
    // What it found stands for itself: the scenario has its own model in the order found.
    const Scenario& own = *answer.plans.front().scenario;
    CHECK(own.model.order == own.plan.order.value.layers);
    CHECK(answer.plans.front().report.step_time == answered_step(own));
  }
  CHECK(better > 2);
}

TEST_CASE("what chooses or states the cuts cannot have the graph's order") {
  Scenario scenario = with_order_graph(diamond());
  scenario.plan.order.place = {"s.yaml", 9, 1};
  scenario.plan.partition.value = LayerCounts{{2, 2}};
  CHECK(
      order_error(scenario).starts_with("s.yaml:9:1: plan.order: graph chooses the order by where its best cut lies"));
  scenario.plan.partition.value = SuffixDp{};
  CHECK(order_error(scenario).find("plan.order: graph is for a number of stages") != std::string::npos);
  scenario.plan.partition.value = Balanced{};
  CHECK(order_error(scenario) == "no error");
  scenario.plan.open["recompute"] = {};
  scenario.plan.replicas.value = {1, 1};
  CHECK_THROWS_AS(search(scenario), InputError);
  CHECK_THROWS_WITH_AS(find_plan(with_order_graph(diamond()), CostModel(scenario)),
                       doctest::Contains("plan.order: graph is settled by `pipewright plan`"), InputError);
}
