// Bounds of several chunks per stage that hold for every cut: a mean of chains of ops.
#include "planner/search/path_bound.hpp"

#include <array>
#include <limits>
#include <random>

#include <doctest/doctest.h>

#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "planner/search/candidate.hpp"
#include "tests/planner/small_spaces.hpp"
#include "tests/support/family_model.hpp"

using namespace pipewright::tests;

namespace {

// Layers of 1 and 2 ns on ideal links; what is before and behind the run is alike.
Scenario equal_layers(int layers, int stages, int chunks, std::int64_t micro_batches) {
  Scenario scenario =
      uniform_scenario({.layers = layers, .devices = stages, .stages = stages, .micro_batches = micro_batches});
  for (Layer& layer : scenario.model.layers)
    layer.forward = Time{1000}, layer.backward = Time{2000};
  scenario.plan.schedule.value = "interleaved_1f1b";
  scenario.plan.virtual_stages.value = chunks;
  scenario.origins.clear();
  open(scenario, {"partition"});
  return scenario;
}

// The best step of all cuts and of all sets of layers that are rebuilt.
double best_of_all(const Scenario& scenario, const Layout& layout) {
  const auto layers = static_cast<LayerId>(scenario.model.layers.size());
  double best = std::numeric_limits<double>::infinity();
  Plan plan;
  plan.stages = layout.stages, plan.virtual_stages = layout.virtual_stages;
  plan.replicas.assign(static_cast<std::size_t>(layout.stages), 1);
  const bool sets = is_open(scenario, "recompute");
  const auto price_all = [&] {
    for (std::uint32_t set = 0; set < (sets ? std::uint32_t{1} << layers : 1U); ++set) {
      plan.recompute.assign(static_cast<std::size_t>(layout.stages), sets ? Recompute::Layers : Recompute::None);
      plan.rebuilt.clear();
      for (LayerId i = 0; i < layers; ++i)
        if ((set >> i & 1) != 0) plan.rebuilt.push_back(i);
      const Scenario whole = settled(scenario, layout, &plan);
      const CostModel cost(whole);
      const Answer answer = price(find_plan(whole, cost), cost, Engine::Auto);
      if (answer.report.fits) best = std::min(best, seconds(answer.report.step_time));
    }
  };
  const auto cut = [&](auto&& self, LayerId begin, int left) -> void {
    for (LayerId end = left == 1 ? int{layers} : begin + 1; end <= layers - left + 1; ++end) {
      plan.layers.push_back({begin, end});
      if (left == 1) price_all();
      if (left > 1) self(self, end, left - 1);
      plan.layers.pop_back();
    }
  };
  cut(cut, 0, layout.stages * layout.virtual_stages);
  return best;
}

}  // namespace

// Four layers, two stages of two chunks, two micro-batches: one layer a chunk. 2 x 2 x 3 us of work a stage, and a
// chunk there and back: 15 us. The bounds that know no chains say M (n u) + (first layer alone) = 15 us at most.
TEST_CASE("by hand: the only cut of a pipeline of single layers") {
  const Scenario scenario = equal_layers(4, 2, 2, 2);
  const Layout layout = all_layouts(scenario).front();
  CHECK(best_of_all(scenario, layout) == doctest::Approx(15e-6));
  Evaluator evaluator(scenario);
  const Time raised = evaluator.raise_bound(layout, kNever, 200);
  CHECK(raised >= evaluator.bound(layout));
  CHECK(seconds(raised) <= 15e-6);
  CHECK(seconds(raised) >= 14e-6);
}

TEST_CASE("no cut into several chunks beats its raised bound, and chunks of several layers raise it") {
  int higher = 0;
  for (const auto& [layers, stages, chunks, micro_batches] :
       {std::tuple{6, 2, 2, 2}, {7, 2, 2, 4}, {8, 2, 2, 2}, {8, 2, 3, 2}, {7, 3, 2, 3}, {8, 3, 2, 6}}) {
    CAPTURE(layers);
    CAPTURE(stages);
    CAPTURE(chunks);
    CAPTURE(micro_batches);
    Scenario scenario = equal_layers(layers, stages, chunks, micro_batches);
    scenario.cluster.links.kind = LinkKind::Mesh;
    scenario.cluster.links.bandwidth = Bandwidth{1e12};
    scenario.cluster.links.latency = Time{100};
    const Layout layout = all_layouts(scenario).front();
    Evaluator evaluator(scenario);
    const Time tight = evaluator.tight_bound(layout), raised = evaluator.raise_bound(layout, kNever, 100);
    const double best = best_of_all(scenario, layout);
    CHECK(raised >= tight);
    CHECK(seconds(raised) <= best);
    higher += raised > tight ? 1 : 0;
  }
  CHECK(higher >= 4);
}

TEST_CASE("a bound that is high enough holds as well, whatever was not looked at for being busy too long") {
  struct Case {
    int stages, layers;
    std::int64_t micro_batches, forward, backward;
    std::array<std::int64_t, 4> first_and_last;  // forward and backward of each
    std::int64_t memory;
  };
  // The first two: what is left below `enough` alone would say more than `enough`.
  std::vector<Case> cases = {{3, 8, 6, 1707, 1543, {6138, 6618, 7626, 5115}, 26'771},
                             {3, 8, 3, 2344, 1751, {6303, 6302, 3036, 3968}, 17'384}};
  std::mt19937 random(11);
  const auto up_to = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
  };
  for (int i = 0; i < 150; ++i) {
    const int stages = 2 + static_cast<int>(up_to(2));
    cases.push_back({stages,
                     6 + static_cast<int>(up_to(5)),
                     stages * (1 + up_to(2)),
                     1000 + up_to(3000),
                     1000 + up_to(4000),
                     {up_to(9000), up_to(9000), up_to(9000), up_to(9000)},
                     3000 + up_to(25'000)});
  }
  int checked = 0;
  for (const Case& one : cases) {
    Scenario scenario = equal_layers(one.layers, one.stages, 2, one.micro_batches);
    for (Layer& layer : scenario.model.layers)
      layer.forward = Time{one.forward}, layer.backward = Time{one.backward}, layer.activation = Bytes{100},
      layer.stash = Bytes{1000}, layer.parameters = 10;
    const auto& [f, b, g, c] = one.first_and_last;
    scenario.model.layers.front().forward = Time{f}, scenario.model.layers.front().backward = Time{b};
    scenario.model.layers.back().forward = Time{g}, scenario.model.layers.back().backward = Time{c};
    scenario.cluster.device.memory = Bytes{one.memory};
    const Layout layout = all_layouts(scenario).front();
    const double best = best_of_all(scenario, layout);
    if (best == std::numeric_limits<double>::infinity()) continue;
    const Time tight = Evaluator(scenario).tight_bound(layout);
    for (const double part : {0.8, 0.84, 0.87, 0.9, 0.93, 0.96, 0.99, 1.0, 1.1}) {
      const Time enough{static_cast<std::int64_t>(part * best * 1e9)};
      if (enough <= tight) continue;
      CHECK(seconds(Evaluator(scenario).raise_bound(layout, enough, 60)) <= best);
      ++checked;
    }
  }
  CHECK(checked > 300);
}

TEST_CASE("memory: no cut and no set of rebuilt layers beats the raised bound" *
          doctest::test_suite("whole searches")) {
  std::mt19937 random(7);
  int fitting = 0, higher = 0;
  for (int i = 0; i < 16; ++i) {
    CAPTURE(i);
    const int stages = 2, chunks = 2;
    Scenario scenario = equal_layers(6 + i % 2, stages, chunks, i % 3 == 0 ? 4 : 2);
    for (Layer& layer : scenario.model.layers)
      layer.activation = Bytes{100}, layer.stash = Bytes{1000}, layer.parameters = 10;
    open(scenario, {"recompute"});
    scenario.plan.open["recompute"].among = {"none", "knapsack"};
    scenario.cluster.device.memory = Bytes{3000 + static_cast<std::int64_t>(random() % 12'000)};
    const Layout layout = all_layouts(scenario).front();
    const double best = best_of_all(scenario, layout);
    Evaluator evaluator(scenario);
    const Time tight = evaluator.tight_bound(layout), raised = evaluator.raise_bound(layout, kNever, 60);
    if (raised == kNever) {
      CHECK(best == std::numeric_limits<double>::infinity());
      continue;
    }
    CHECK(seconds(raised) <= best);
    CHECK(raised >= tight);
    fitting += best < std::numeric_limits<double>::infinity() ? 1 : 0;
    higher += raised > tight ? 1 : 0;
  }
  CHECK(fitting >= 8);
  CHECK(higher >= 1);
}

// The first and the last layer of a Transformer are others than those between them.
TEST_CASE("a Transformer with embedding and head: no cut into chunks beats the raised bound" *
          doctest::test_suite("whole searches")) {
  Scenario scenario = uniform_scenario({.layers = 3, .devices = 4, .stages = 2, .micro_batches = 4});
  scenario.model = family_model(
      "gpt", {{"layers", "5"}, {"hidden", "64"}, {"heads", "4"}, {"sequence_length", "32"}, {"vocabulary", "512"}});
  settle(scenario.model, Bytes{4}, {});
  scenario.cost = CostSourceKind::Roofline;
  scenario.cluster.device.peak[Precision::Fp32] = FlopRate{1e9};
  scenario.cluster.device.memory_bandwidth = Bandwidth{1e9};
  scenario.origins.clear();
  open(scenario, {"partition", "recompute", "virtual_stages", "schedule"});
  scenario.plan.open["recompute"].among = {"none", "knapsack"};
  scenario.plan.open["schedule"].among = {"interleaved_1f1b"};
  scenario.plan.open["virtual_stages"].among = {"2", "3"};
  for (const std::int64_t memory : {1'500'000, 2'000'000, 100'000'000}) {
    scenario.cluster.device.memory = Bytes{memory};
    Evaluator evaluator(scenario);
    for (const Layout& layout : all_layouts(scenario)) {
      const Time raised = evaluator.raise_bound(layout, kNever, 60);
      const double best = best_of_all(scenario, layout);
      CHECK((raised == kNever ? best == std::numeric_limits<double>::infinity() : seconds(raised) <= best));
    }
  }
}

TEST_CASE(
    "a pipeline of divided gradients or weights, which are whole until the end of the step: no cut beats its bounds" *
    doctest::test_suite("whole searches")) {
  int higher = 0, fitting = 0;
  for (const std::int64_t zero : {2, 3}) {
    for (const std::int64_t memory : {500'000, 700'000, 900'000, 1'200'000, 5'000'000}) {
      CAPTURE(zero);
      CAPTURE(memory);
      Scenario scenario = uniform_scenario({.layers = 3, .devices = 4, .stages = 2, .micro_batches = 4});
      scenario.model = family_model(
          "gpt", {{"layers", "5"}, {"hidden", "64"}, {"heads", "4"}, {"sequence_length", "8"}, {"vocabulary", "512"}});
      settle(scenario.model, Bytes{4}, {});
      scenario.cost = CostSourceKind::Roofline;
      scenario.cluster.device.peak[Precision::Fp32] = FlopRate{1e9};
      scenario.cluster.device.memory_bandwidth = Bandwidth{1e9};
      scenario.cluster.device.memory = Bytes{memory};
      scenario.plan.data_parallel.value = 2;
      scenario.training.zero = zero;
      scenario.plan.reduce_gradients = Placed<ReduceGradients>{ReduceGradients::Step, {}};
      scenario.origins.clear();
      open(scenario, {"partition", "virtual_stages", "schedule"});
      scenario.plan.open["schedule"].among = {"1f1b", "interleaved_1f1b"};
      scenario.plan.open["virtual_stages"].among = {"2"};
      Evaluator evaluator(scenario);
      Scenario divided = scenario;  // the same memory, but for gradients and weights that are whole for a while
      divided.training.zero = 1, divided.plan.reduce_gradients.reset();
      Evaluator least(divided);
      for (const Layout& layout : all_layouts(scenario)) {
        const double best = best_of_all(scenario, layout);
        const Time tight = evaluator.tight_bound(layout), raised = evaluator.raise_bound(layout, kNever, 60);
        for (const Time bound : {tight, raised})
          CHECK((bound == kNever ? best == std::numeric_limits<double>::infinity() : seconds(bound) <= best));
        Layout whole = layout;
        whole.zero = 1;
        higher += least.tight_bound(whole) > evaluator.bound(layout) && tight >= least.tight_bound(whole) ? 1 : 0;
        fitting += best < std::numeric_limits<double>::infinity() ? 1 : 0;
      }
    }
  }
  CHECK(fitting >= 4);
  CHECK(higher >= 2);  // as high as where they are whole anyway
}
