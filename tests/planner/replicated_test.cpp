#include "planner/replicated.hpp"

#include <algorithm>
#include <random>

#include <doctest/doctest.h>

#include "core/cost/step_costs.hpp"
#include "planner/price.hpp"
#include "planner/suffix_problem.hpp"

using namespace pipewright::tests;

namespace {

struct Setting {
  std::int64_t layers = 5;
  int nodes = 2, devices = 2;
  double network = 1e9;
  std::int64_t memory = std::int64_t{1} << 40;
};

// Layers of 1 to 10 ms, up to 8 MB over a cut, up to 2 M parameters.
Scenario random_replicated(std::mt19937& random, const Setting& setting) {
  Scenario scenario;
  for (std::int64_t i = 0; i < setting.layers; ++i) {
    Layer layer;
    layer.name = "layer";
    layer.forward = Time{1'000'000 * static_cast<std::int64_t>(1 + random() % 4)};
    layer.backward = Time{1'000'000 * static_cast<std::int64_t>(random() % 7)};
    layer.activation = Bytes{static_cast<std::int64_t>(random() % 8'000'000)};
    layer.parameters = static_cast<std::int64_t>(random() % 2'000'000);
    if (i > 0) layer.inputs = {static_cast<LayerId>(i - 1)};
    scenario.model.layers.push_back(layer);
  }
  Cluster& cluster = scenario.cluster;
  cluster.nodes = setting.nodes, cluster.devices_per_node = setting.devices;
  cluster.device.memory = Bytes{setting.memory};
  cluster.links = {.kind = LinkKind::Pcie, .bandwidth = Bandwidth{10e9}};
  cluster.network = Network{};
  cluster.network->bandwidth = Bandwidth{setting.network};
  scenario.training.optimizer = Optimizer::Momentum;
  return scenario;
}

Plan shell_of(const std::string& schedule, std::int64_t micro_batches) {
  Plan shell;
  shell.schedule = schedule;
  shell.micro_batches = micro_batches;
  shell.global_batch_size = micro_batches;
  return shell;
}

// Every contiguous plan with replicas, the first worker on the device that `first_device` gives: steps as priced.
struct Every {
  const Plan& shell;
  const CostModel& cost;
  Plan plan = shell;
  Time least = kNever;
  bool any_fits = false;

  void plans(LayerId begin, int devices) {
    const auto layers = static_cast<LayerId>(cost.scenario().model.layers.size());
    if (begin == layers) return judge(devices);
    for (LayerId end = begin + 1; end <= layers; ++end)
      for (int r = 1; r <= devices; ++r) {
        plan.layers.push_back({begin, end}), plan.replicas.push_back(r);
        plans(end, devices - r);
        plan.layers.pop_back(), plan.replicas.pop_back();
      }
  }
  void judge(int idle) {
    Plan whole = plan;
    whole.stages = static_cast<int>(whole.layers.size());
    whole.recompute.assign(whole.layers.size(), Recompute::None);
    for (int device = idle; device < cost.scenario().cluster.devices(); ++device)
      whole.device.push_back(device);
    const Answer answer = price(whole, cost, Engine::Auto);
    if (!answer.report.fits) return;
    any_fits = true;
    least = std::min(least, answer.report.step_time);
  }
};

bool same(const ReplicatedAnswer& a, const ReplicatedAnswer& b) {
  return std::equal(a.ranking.begin(), a.ranking.end(), b.ranking.begin(), b.ranking.end(),
                    [](const ReplicatedPlan& p, const ReplicatedPlan& q) {
                      return p.step == q.step && p.plan.layers == q.plan.layers && p.plan.replicas == q.plan.replicas &&
                             p.plan.device == q.plan.device && p.from == q.from;
                    }) &&
         a.lower_bound == b.lower_bound && a.simulated == b.simulated && a.rejected == b.rejected &&
         a.too_large == b.too_large;
}

}  // namespace

TEST_CASE("The first plan is near the best of all by simulation, and no plan is below the lower bound") {
  std::mt19937 random(31);
  int best = 0, rounds = 0;
  double worst = 1;
  for (const char* schedule : {"pipedream", "1f1b"})
    for (const double network : {0.5e9, 5e9})
      for (int round = 0; round < 5; ++round, ++rounds) {
        CAPTURE(schedule);
        CAPTURE(round);
        const Scenario scenario = random_replicated(random, {.network = network});
        const CostModel cost(scenario);
        const Plan shell = shell_of(schedule, 12);
        Every every{shell, cost};
        every.plans(0, 4);
        const ReplicatedAnswer answer = replicated_plans(shell, cost);
        REQUIRE(!answer.ranking.empty());
        CHECK(answer.lower_bound <= every.least);
        const ReplicatedPlan& first = answer.ranking.front();
        CHECK(answer.lower_bound <= first.step);
        CHECK(price(first.plan, cost, Engine::Auto).report.step_time == first.step);
        best += first.step <= every.least ? 1 : 0;
        worst = std::max(worst, ratio(first.step, every.least));
      }
  CHECK(rounds == 20);
  CHECK(best >= 16);  // the search is a heuristic: of these 20 it misses two, by 1 and by 18 %
  CHECK(worst < 1.2);
}

// At once: a round is at least forward + update + all-reduce, whichever part of the latter the backward hides.
TEST_CASE("Where updates wait for their round no plan is below the lower bound, which says more than without waiting" *
          doctest::test_suite("whole searches")) {
  std::mt19937 random(37);
  int sharper = 0, near = 0, rounds = 0;
  for (const GradientSync sync : {GradientSync::AtOnce, GradientSync::Blocking})
    for (const double network : {0.1e9, 0.5e9, 5e9})
      for (int round = 0; round < 4; ++round, ++rounds) {
        CAPTURE(network);
        CAPTURE(round);
        const Scenario scenario = random_replicated(random, {.layers = 4, .network = network});
        const CostModel cost(scenario);
        Plan shell = shell_of("pipedream", 12);
        const Time without = replicated_plans(shell, cost).lower_bound;
        shell.gradient_sync = sync;
        Every every{shell, cost};
        every.plans(0, 4);
        const ReplicatedAnswer answer = replicated_plans(shell, cost);
        REQUIRE(!answer.ranking.empty());
        CHECK(answer.lower_bound <= every.least);
        CHECK(without <= answer.lower_bound);
        sharper += without < answer.lower_bound ? 1 : 0;
        near += ratio(answer.ranking.front().step, every.least) < 1.05 ? 1 : 0;
      }
  CHECK(rounds == 24);
  CHECK(sharper >= 6);
  CHECK(near >= 20);
}

// Of 2 M parameters four workers pass 3/4 of 12 MB, gradients of four bytes and weights of two: 24 ms at 375 MB/s, for
// four micro-batches, in two collectives over the same links.
TEST_CASE("Where ZeRO gathers smaller weights than gradients, the bound counts both") {
  std::mt19937 random(41);
  Scenario scenario = random_replicated(random, {.layers = 1, .nodes = 4, .devices = 1, .network = 0.375e9});
  scenario.model.layers.front().parameters = 2'000'000;
  scenario.model.layers.front().forward = scenario.model.layers.front().backward = Time{1'000'000};
  scenario.training.precision = Precision::Bf16, scenario.training.gradient_precision = Precision::Fp32;
  scenario.training.zero = 1;
  scenario.cluster.device.collectives = CollectiveCurve{};
  const CostModel cost(scenario);
  Plan plan = shell_of("pipedream", 12);
  const SuffixProblem bound = suffix_problem(plan, cost, StagePlaces::Anywhere);
  plan.stages = 1, plan.layers = {{0, 1}}, plan.replicas = {4}, plan.recompute = {Recompute::None};
  plan.device = {0, 1, 2, 3};
  const StepCosts costs = step_costs(plan, cost);
  const Time reduced = costs.collectives.front().front().time + costs.gathers.front().time;
  CHECK(ratio(reduced, Time{24'000'000}) == doctest::Approx(1).epsilon(0.05));
  CHECK(stage_time(bound, {0, 1}, 4) <= Time{reduced.value / 4});
  CHECK(stage_time(bound, {0, 1}, 4) == Time{6'000'000});
}

TEST_CASE("One stage on all workers, at once, is data parallelism; one round late it is faster for updating late") {
  std::mt19937 random(38);
  for (const double network : {0.1e9, 0.5e9}) {
    const Scenario scenario = random_replicated(random, {.layers = 6, .network = network});
    const CostModel cost(scenario);
    Plan plan = shell_of("pipedream", 40);
    plan.replicas = {4}, plan.recompute = {Recompute::None}, plan.layers = {{0, 6}}, plan.device = {0, 1, 2, 3};
    plan.bucket = Bytes{4'000'000};
    Plan parallel = plan;
    parallel.schedule = "data_parallel", parallel.data_parallel = 4, parallel.replicas = {1};
    parallel.micro_batches = 1, parallel.global_batch_size = 4;
    const double target = price(parallel, cost, Engine::Auto).report.samples_per_s;
    const auto speed = [&](GradientSync sync) {
      plan.gradient_sync = sync;
      return price(plan, cost, Engine::Auto).report.samples_per_s;
    };
    CHECK(speed(GradientSync::AtOnce) == doctest::Approx(target).epsilon(1e-9));
    CHECK(speed(GradientSync::Overlapped) > 1.02 * target);
    CHECK(speed(GradientSync::Blocking) < 0.98 * target);
  }
}

TEST_CASE("Plans validate, fit as `price` counts it, come best first, and are the same on every run") {
  std::mt19937 random(32);
  for (int round = 0; round < 6; ++round) {
    CAPTURE(round);
    Setting setting{.layers = 12, .nodes = 2, .devices = 4};
    setting.memory = std::int64_t{40'000'000} * (1 + round);
    const Scenario scenario = random_replicated(random, setting);
    const CostModel cost(scenario);
    const Plan shell = shell_of(round % 2 == 0 ? "pipedream" : "1f1b", 16);
    const ReplicatedAnswer answer = replicated_plans(shell, cost);
    CHECK(same(answer, replicated_plans(shell, cost)));
    Time before;
    for (const ReplicatedPlan& each : answer.ranking) {
      validate(each.plan, scenario.model, scenario.cluster);
      CHECK(price(each.plan, cost, Engine::Auto).report.fits);
      CHECK(each.step >= before);
      CHECK(each.idle == 8 - each.plan.positions());
      before = each.step;
    }
    if (answer.ranking.empty()) CHECK(answer.missing > Bytes{});
  }
}

TEST_CASE("Pipelines alone may be asked for, where data parallelism is faster") {
  std::mt19937 random(5);
  Scenario scenario = random_replicated(random, {});
  for (Layer& layer : scenario.model.layers)
    layer.parameters = 0;
  const CostModel cost(scenario);
  const Plan shell = shell_of("pipedream", 40);
  CHECK(replicated_plans(shell, cost).ranking.front().plan.stages == 1);
  const ReplicatedAnswer pipelines = replicated_plans(shell, cost, {.least_stages = 2});
  REQUIRE(!pipelines.ranking.empty());
  for (const ReplicatedPlan& each : pipelines.ranking)
    CHECK(each.plan.stages > 1);
}

TEST_CASE("Where nothing fits, the ranking is empty and says what was missed by least") {
  std::mt19937 random(33);
  const Scenario scenario = random_replicated(random, {.memory = 1000});
  const CostModel cost(scenario);
  const Plan shell = shell_of("pipedream", 12);
  const ReplicatedAnswer answer = replicated_plans(shell, cost);
  CHECK(answer.ranking.empty());
  CHECK(answer.too_large > 0);
  CHECK(answer.missing > Bytes{});
  CHECK(answer.nearest_miss.find("needs") != std::string::npos);
}

// As PipeDream's 15-1: convolutions with much work and few parameters, then one layer the other way round.
TEST_CASE("Work without parameters is replicated, parameters without work are not") {
  Scenario scenario;
  for (int i = 0; i < 8; ++i) {
    Layer layer;
    layer.name = "convolution";
    layer.forward = Time{10'000'000}, layer.backward = Time{20'000'000};
    layer.activation = Bytes{100'000}, layer.parameters = 1000;
    if (i == 7) layer.forward = Time{1'000'000}, layer.backward = Time{2'000'000}, layer.parameters = 100'000'000;
    if (i > 0) layer.inputs = {i - 1};
    scenario.model.layers.push_back(layer);
  }
  scenario.cluster.nodes = 4;
  scenario.cluster.device.memory = Bytes{std::int64_t{1} << 40};
  scenario.cluster.network = Network{};
  scenario.cluster.network->bandwidth = Bandwidth{1e9};
  const CostModel cost(scenario);
  const Plan shell = shell_of("pipedream", 12);
  const ReplicatedAnswer answer = replicated_plans(shell, cost, {.top = 1});
  REQUIRE(answer.ranking.size() == 1);
  CHECK(answer.ranking.front().plan.replicas == std::vector<int>{3, 1});
  CHECK(answer.ranking.front().cycle.value == 60'000'000);  // six convolutions of 30 ms on 3 workers; 33 ms on one
  CHECK(answer.gap() < 1e-5);
}

TEST_CASE("A search that is stopped returns what it has") {
  std::mt19937 random(34);
  const Scenario scenario = random_replicated(random, {.layers = 12, .nodes = 4, .devices = 4});
  const CostModel cost(scenario);
  const Plan shell = shell_of("pipedream", 12);
  int asked = 0;
  const ReplicatedAnswer answer = replicated_plans(shell, cost, {.stopped = [&] { return ++asked > 3; }});
  CHECK(answer.interrupted);
  CHECK(!answer.ranking.empty());
}
