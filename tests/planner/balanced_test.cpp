// The cut of `partition: balanced`, against brute force over all cuts, as simulate prices them.
#include "planner/partitioners/balanced.hpp"

#include <algorithm>
#include <functional>
#include <random>

#include <doctest/doctest.h>

#include "core/cost/cost_model.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "tests/io/scratch.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/support/uniform_scenario.hpp"

using namespace pipewright::tests;

namespace {

std::vector<LayerRange> cut_of(const Scenario& scenario) {
  const CostModel cost(scenario);
  return find_plan(scenario, cost).layers;
}

Time step_with(Scenario scenario, const std::vector<std::int64_t>& counts) {
  scenario.plan.partition.value = LayerCounts{counts};
  return step_of(scenario);
}

// The cut before steps were asked.
Time step_of_earliest(const Scenario& scenario) {
  const CostModel cost(scenario);
  std::vector<std::int64_t> counts;
  for (const LayerRange range : least_largest(find_plan(scenario, cost), cost))
    counts.push_back(range.size());
  return step_with(scenario, counts);
}

std::int64_t largest(const Scenario& scenario, const std::vector<std::int64_t>& counts) {
  std::int64_t most = 0;
  LayerId layer;
  for (const std::int64_t count : counts) {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < count; ++i, ++layer)
      sum += (scenario.model.layers[layer].forward.value() + scenario.model.layers[layer].backward.value()).value;
    most = std::max(most, sum);
  }
  return most;
}

std::vector<std::int64_t> counts_of(const std::vector<LayerRange>& cut) {
  std::vector<std::int64_t> counts;
  for (const LayerRange range : cut)
    counts.push_back(range.size());
  return counts;
}

void each_cut(std::int64_t layers, std::int64_t chunks, std::vector<std::int64_t>& counts,
              const std::function<void(const std::vector<std::int64_t>&)>& use) {
  if (chunks == 1) {
    counts.push_back(layers);
    use(counts);
    counts.pop_back();
    return;
  }
  for (std::int64_t first = 1; first <= layers - chunks + 1; ++first) {
    counts.push_back(first);
    each_cut(layers - first, chunks - 1, counts, use);
    counts.pop_back();
  }
}

// The least step of all cuts with the least largest stage, and how many such cuts there are.
struct Best {
  Time step = kNever;
  std::int64_t largest = kLargest, cuts = 0;
};
Best brute_force(const Scenario& scenario) {
  Best best;
  std::vector<std::int64_t> begun;
  const std::int64_t chunks = scenario.plan.stages.value * scenario.plan.virtual_stages.value;
  each_cut(std::ssize(scenario.model.layers), chunks, begun, [&](const std::vector<std::int64_t>& counts) {
    const std::int64_t load = largest(scenario, counts);
    if (load > best.largest) return;
    if (load < best.largest) best = {kNever, load, 0};
    best.step = std::min(best.step, step_with(scenario, counts)), ++best.cuts;
  });
  return best;
}

// Times with few values, so that many cuts have the least largest stage.
Scenario random_balanced(std::mt19937& random, const std::string& schedule, std::int64_t stages) {
  const auto micro_batches = 2 + static_cast<std::int64_t>(random() % 6);
  Scenario scenario = uniform_scenario({.layers = 8, .stages = stages, .micro_batches = micro_batches});
  for (Layer& layer : scenario.model.layers) {
    const std::int64_t size = random() % 4 == 0 ? 2 : 1;
    layer.forward = Time{1000 * size};
    layer.backward = Time{2000 * size};
    layer.activation = Bytes{static_cast<std::int64_t>(random() % 400'000)};
  }
  scenario.cluster.links.kind = LinkKind::Mesh;
  scenario.cluster.links.bandwidth = Bandwidth{1e12};
  scenario.cluster.links.latency = Time{30};
  scenario.plan.schedule.value = schedule;
  return scenario;
}

// An embedding, 80 equal blocks and a head, as in Llama 3 70B: of 8 stages the largest must hold 11 blocks or more.
std::string chain_of_80(const std::string& plan) {
  return ScenarioText{.model =
                          "{batch: 1, layers: [{name: embedding, forward: 0.5 ms, backward: 0.1 ms, activation: 1 MB}, "
                          "{name: block, repeat: 80, forward: 8 ms, backward: 16 ms, activation: 1 MB}, "
                          "{name: head, forward: 1 ms, backward: 2 ms, activation: 1 MB}]}",
                      .cluster = "{node: {devices: 32, device: {memory: 80 GB}}}",
                      .training = "{micro_batch_size: 1, micro_batches: 32}",
                      .plan = plan}
      .text();
}

Scenario scenario_of(const std::string& text) {
  const Scratch scratch;
  return read_scenario(scratch.write("s.yaml", text), {});
}

}  // namespace

TEST_CASE("one layer moves to another chunk, and the cuts between them shift") {
  const std::vector<LayerRange> cut = {{0, 2}, {2, 5}, {5, 8}};
  CHECK(moved(cut, 2, 0) == std::vector<LayerRange>{{0, 3}, {3, 6}, {6, 8}});
  CHECK(moved(cut, 0, 1) == std::vector<LayerRange>{{0, 1}, {1, 5}, {5, 8}});
  CHECK(moved(moved(cut, 1, 2), 2, 1) == cut);
}

TEST_CASE("balanced has the least step of all cuts with the least largest stage, by brute force") {
  std::mt19937 random(17);
  int shorter = 0, choices = 0;
  for (const char* schedule : {"1f1b", "gpipe", "eager_1f1b"})
    for (int round = 0; round < 18; ++round) {
      Scenario scenario = random_balanced(random, schedule, 2 + round % 3);
      if (round % 4 == 3) scenario.plan.recompute.value = {Recompute::Full};
      CAPTURE(schedule);
      CAPTURE(round);
      const Best best = brute_force(scenario);
      CHECK(largest(scenario, counts_of(cut_of(scenario))) == best.largest);
      CHECK(step_of(scenario) == best.step);
      const Time earliest = step_of_earliest(scenario);
      CHECK(earliest >= best.step);
      shorter += earliest > best.step ? 1 : 0, choices += best.cuts > 1 ? 1 : 0;
    }
  CHECK(choices >= 20);
  CHECK(shorter >= 10);
}

// Stages of one node exchange over PCIe, where their transfers meet.
TEST_CASE("Where transfers share links, balanced is not slower than the earliest cuts as they share them") {
  const auto shared_step = [](const Scenario& scenario) {
    const CostModel cost(scenario);
    const Answer answer = price(find_plan(scenario, cost), cost, Engine::Auto);
    return std::pair{answer.report.makespan, engine_of(answer.timeline) == Engine::EventQueue};
  };
  std::mt19937 random(19);
  int shared = 0, shorter = 0;
  for (const char* schedule : {"1f1b", "gpipe", "zb_h1"})
    for (int round = 0; round < 8; ++round) {
      Scenario scenario = random_balanced(random, schedule, 4);
      scenario.cluster.links.kind = LinkKind::Pcie;
      scenario.cluster.links.bandwidth = Bandwidth{2e11};
      CAPTURE(schedule);
      CAPTURE(round);
      const auto [found, meet] = shared_step(scenario);
      Scenario as_before = scenario;
      const CostModel cost(scenario);
      as_before.plan.partition.value = LayerCounts{counts_of(least_largest(find_plan(scenario, cost), cost))};
      const Time earliest = shared_step(as_before).first;
      CHECK(found <= earliest);
      shared += meet ? 1 : 0, shorter += found < earliest ? 1 : 0;
    }
  CHECK(shared >= 4);
  CHECK(shorter >= 4);
}

TEST_CASE("Other schedules with a flush: never slower than the earliest cuts, and mostly the shortest of all") {
  std::mt19937 random(18);
  int shorter = 0, shortest = 0, all = 0;
  for (const char* schedule : {"zb_h1", "interleaved_1f1b", "naive"})
    for (int round = 0; round < 6; ++round) {
      Scenario scenario = random_balanced(random, schedule, 2);
      if (scenario.plan.schedule.value == "interleaved_1f1b")
        scenario.plan.virtual_stages.value = 2, scenario.training.micro_batches->value = 4;
      CAPTURE(schedule);
      CAPTURE(round);
      const Best best = brute_force(scenario);
      const Time found = step_of(scenario), earliest = step_of_earliest(scenario);
      CHECK(largest(scenario, counts_of(cut_of(scenario))) == best.largest);
      CHECK(found >= best.step);
      CHECK(found <= earliest);
      shorter += found < earliest ? 1 : 0, shortest += found == best.step ? 1 : 0, ++all;
    }
  CHECK(shorter > 0);
  CHECK(shortest >= all - 2);
}

TEST_CASE("Replicas, and micro-batches of which the last is smaller, are searched, too") {
  std::mt19937 random(19);
  int shorter = 0;
  for (int round = 0; round < 12; ++round) {
    Scenario scenario = random_balanced(random, "1f1b", 3);
    if (round % 2 == 0) {
      scenario.plan.replicas.value = {2, 1, 1};
      scenario.training.micro_batches->value = 6;
    } else {
      scenario.training.micro_batches.reset();
      scenario.training.micro_batch_size = Placed<std::int64_t>{2, {}};
      scenario.training.global_batch_size = Placed<std::int64_t>{11, {}};
      scenario.training.ragged = true;
    }
    CAPTURE(round);
    const Time found = step_of(scenario), earliest = step_of_earliest(scenario);
    CHECK(found <= earliest);
    shorter += found < earliest ? 1 : 0;
  }
  CHECK(shorter > 0);
}

TEST_CASE("Without a flush, and where no cut is shorter, the earliest cuts stay") {
  Scenario scenario = uniform_scenario({.layers = 7, .stages = 3, .micro_batches = 8});
  scenario.plan.schedule.value = "pipedream";
  CHECK(counts_of(cut_of(scenario)) == std::vector<std::int64_t>{1, 3, 3});
  scenario.plan.schedule.value = "naive";  // one micro-batch on one stage at a time: all cuts take as long
  CHECK(counts_of(cut_of(scenario)) == std::vector<std::int64_t>{1, 3, 3});
  scenario.plan.schedule.value = "1f1b";
  CHECK(step_of(scenario) < step_with(scenario, {1, 3, 3}));
}

TEST_CASE("80 blocks on 8 stages: stage 0 is not left half idle") {
  const Scenario scenario = scenario_of(chain_of_80("{stages: 8}"));
  const std::vector<std::int64_t> counts = counts_of(cut_of(scenario));
  CHECK(largest(scenario, counts) <= largest(scenario, {6, 11, 11, 11, 11, 11, 11, 10}));
  CHECK(counts.front() >= 10);
  CHECK(step_of(scenario) < step_with(scenario, {6, 11, 11, 11, 11, 11, 11, 10}));
  CHECK(step_of(scenario) <= step_with(scenario, {11, 11, 10, 10, 10, 10, 10, 10}));
}

// Seven layers on three stages: T* is three layers. Under 1f1b stages keep 3, 2, 1 micro-batches of 1 MB a layer: the
// shortest needs 9 MB, and 2 3 2 layers need 6.
TEST_CASE("A cut that does not fit makes way for the shortest within the least largest stage that does") {
  const auto of = [](const std::string& memory) {
    return counts_of(cut_of(scenario_of(ScenarioText{
        .model = "{batch: 1, layers: [{name: l, repeat: 7, forward: 1 ms, backward: 2 ms, activation: 0 B, "
                 "stash: 1 MB, parameters: 0}]}",
        .cluster = "{node: {devices: 3, device: {memory: " + memory + "}, links: {kind: ideal}}}",
        .training = "{micro_batch_size: 1, micro_batches: 8}",
        .plan = "{stages: 3}"}
                                            .text())));
  };
  using Counts = std::vector<std::int64_t>;
  CHECK(of("80 MB") == Counts{3, 2, 2});
  CHECK(of("8 MB") == Counts{2, 3, 2});
  CHECK(of("2 MB") == Counts{3, 2, 2});
}

TEST_CASE("exact, where its limits end it before the proof, is not slower than balanced") {
  Scenario scenario = scenario_of(chain_of_80("{stages: 30}"));
  const Time balanced = step_of(scenario);
  scenario.plan.partition.value = LeastStep{};
  CHECK(step_of(scenario) <= balanced);
}

TEST_CASE("Branches that run side by side: no bound counts their stages one after the other") {
  Scenario scenario = uniform_scenario({.layers = 7, .stages = 3, .micro_batches = 2});
  scenario.model.layers[3].inputs = {0};
  scenario.plan.skips = Skips::Direct;
  CHECK(step_of(scenario) <= step_of_earliest(scenario));
  scenario.plan.partition.value = LeastStep{};
  const CostModel cost(scenario);
  CHECK(message_of([&] { static_cast<void>(find_plan(scenario, cost)); }) ==
        "s.yaml:5:3: plan.partition: exact is for stages that wait for one another, and branches of this model may run "
        "side by side; write balanced or fitting");
}

TEST_CASE("What is too long to simulate twice keeps the earliest cuts") {
  const Scenario scenario =
      uniform_scenario({.layers = 100'000, .devices = 1000, .stages = 999, .micro_batches = 1000});
  const CostModel cost(scenario);
  const Plan plan = find_plan(scenario, cost);
  CHECK(plan.layers == least_largest(plan, cost));
}
