#include "planner/search/search.hpp"

#include <map>
#include <random>
#include <set>

#include <doctest/doctest.h>

#include "planner/answer.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "planner/search/run_bound.hpp"
#include "planner/search/space.hpp"
#include "tests/planner/sharded_scenario.hpp"
#include "tests/planner/small_spaces.hpp"
#include "tests/support/family_model.hpp"
#include "tests/support/uniform_scenario.hpp"

using namespace pipewright::tests;

namespace {

// Every cut and every recomputation per stage of a layout, as `simulate` prices it; +infinity where none fits.
double brute_force(const Scenario& scenario, const Layout& layout, const std::vector<Recompute>& modes) {
  const auto layers = static_cast<LayerId>(scenario.model.layers.size());
  const int chunks = layout.stages * layout.virtual_stages;
  double best = std::numeric_limits<double>::infinity();
  Plan plan;
  plan.replicas.assign(static_cast<std::size_t>(layout.stages), 1);
  if (const auto& stated = scenario.plan.replicas.value; !stated.empty())
    plan.replicas.assign(stated.begin(), stated.end());
  const auto price_all = [&] {
    std::size_t combinations = 1;
    for (int k = 0; k < layout.stages; ++k)
      combinations *= modes.size();
    for (std::size_t number = 0; number < combinations; ++number) {
      plan.recompute.clear();
      for (std::size_t rest = number, k = 0; k < static_cast<std::size_t>(layout.stages); ++k, rest /= modes.size())
        plan.recompute.push_back(modes[rest % modes.size()]);
      const Scenario whole = settled(scenario, layout, &plan);
      const CostModel cost(whole);
      const Answer answer = price(find_plan(whole, cost), cost, Engine::Auto);
      if (answer.report.fits)
        best = std::min(best, objective_value(Objective::Throughput, layout, scenario, answer.report.step_time, {}));
    }
  };
  const auto cut = [&](auto&& self, LayerId begin, int left) -> void {
    if (left == 1) {
      plan.layers.push_back({begin, layers});
      price_all();
      plan.layers.pop_back();
      return;
    }
    for (LayerId end = begin + 1; end <= layers - left + 1; ++end) {
      plan.layers.push_back({begin, end});
      self(self, end, left - 1);
      plan.layers.pop_back();
    }
  };
  cut(cut, 0, chunks);
  return best;
}

}  // namespace

TEST_CASE("the search finds the best of all plans, and proves it" * doctest::test_suite("whole searches")) {
  std::mt19937 random(2);
  int fitting = 0;
  for (int i = 0; i < 8; ++i) {
    Scenario scenario = random_scenario(random, 5, 4);
    open(scenario, {"stages", "data_parallel", "recompute", "partition"}, {"micro_batch_size"});
    scenario.plan.open["schedule"].among = {"1f1b", "gpipe", "eager_1f1b"};
    double best = std::numeric_limits<double>::infinity();
    for (const Layout& layout : all_layouts(scenario))
      best = std::min(best, brute_force(scenario, layout, recomputations(scenario)));
    const auto result = search(scenario, {.top = 1, .gap = 0, .most_simulations = 100'000});
    if (std::holds_alternative<Infeasible>(result)) {
      CHECK(best == std::numeric_limits<double>::infinity());
      continue;
    }
    ++fitting;
    const SearchAnswer& answer = std::get<SearchAnswer>(result);
    CHECK(answer.plans.front().value == doctest::Approx(best).epsilon(1e-12));
    CHECK(answer.bound <= best * (1 + 1e-12));
    CHECK(answer.gap() < 0.02);
    CHECK(answer.ended == Ended::No);
  }
  CHECK(fitting >= 5);
}

TEST_CASE("with sets of layers the search finds the best over layouts, cuts and subsets, and no bound is above it") {
  std::mt19937 random(12);
  int fitting = 0, by_layers = 0;
  for (int i = 0; i < 10; ++i) {
    Scenario scenario = random_scenario(random, 5, 3);
    Bytes stash;
    for (Layer& layer : scenario.model.layers) {
      // Buffers need a clock, and the search sets as much aside for every cut of a layout: without them it is exact.
      layer.stash = layer.stashed() - layer.activation;
      if (i < 8) layer.activation = {};
      stash += layer.stashed();
    }
    // Some sets fit, not all.
    scenario.cluster.device.memory =
        Bytes{scenario.cluster.device.memory.value / 3 + stash.value * static_cast<std::int64_t>(random() % 3) / 3};
    open(scenario, {"stages", "recompute", "partition"});
    scenario.plan.open["schedule"].among = {"1f1b", "gpipe"};
    Evaluator evaluator(scenario);
    double best = std::numeric_limits<double>::infinity();
    for (const Layout& layout : all_layouts(scenario)) {
      const double of_layout = best_with_sets(scenario, layout, Objective::Throughput);
      best = std::min(best, of_layout);
      const Time tight = evaluator.tight_bound(layout);
      const bool none = of_layout == std::numeric_limits<double>::infinity();
      CHECK(
          (tight == kNever ? none : objective_value(Objective::Throughput, layout, scenario, tight, {}) <= of_layout));
    }
    const auto result = search(scenario, {.top = 1, .gap = 0, .most_simulations = 100'000});
    if (std::holds_alternative<Infeasible>(result)) {
      CHECK(best == std::numeric_limits<double>::infinity());
      continue;
    }
    ++fitting;
    const SearchAnswer& answer = std::get<SearchAnswer>(result);
    if (i < 8) CHECK(answer.plans.front().value == doctest::Approx(best).epsilon(1e-12));
    CHECK(answer.plans.front().value >= best * (1 - 1e-12));
    CHECK(answer.bound <= best * (1 + 1e-12));
    if (!answer.plans.front().plan.rebuilt.empty()) ++by_layers;
  }
  CHECK(fitting >= 6);
  CHECK(by_layers >= 2);
}

TEST_CASE("no plan beats the bounds of its layout") {
  std::mt19937 random(4);
  for (int i = 0; i < 4; ++i) {
    Scenario scenario = random_scenario(random, 5, 4);
    open(scenario, {"stages", "virtual_stages", "data_parallel", "schedule", "recompute"}, {"micro_batch_size"});
    scenario.plan.open["stages"].among = {"1", "2"};
    Evaluator evaluator(scenario);
    for (const Layout& layout : all_layouts(scenario)) {
      const double best = brute_force(scenario, layout, recomputations(scenario));
      const auto value = [&](Time time) { return objective_value(Objective::Throughput, layout, scenario, time, {}); };
      CHECK(value(evaluator.bound(layout)) <= best);
      const Time tight = evaluator.tight_bound(layout);
      CHECK((tight == kNever ? best == std::numeric_limits<double>::infinity() : value(tight) <= best));
    }
  }
}

TEST_CASE("bounds: the work of a micro-batch spread over the stages, and the pipeline filled") {
  Scenario scenario = uniform_scenario({.layers = 7, .devices = 2, .stages = 2, .micro_batches = 4});
  for (Layer& layer : scenario.model.layers)
    layer.forward = Time{400}, layer.backward = Time{600};
  open(scenario, {"partition"});
  Evaluator evaluator(scenario);
  Layout layout = all_layouts(scenario).front();
  // W = 7000, K = 2, M = 4: 7000 / (1 - (3/4)^2) = 16000
  CHECK(evaluator.bound(layout) <= Time{16'000});
  CHECK(evaluator.bound(layout) >= Time{15'998});
  layout.schedule = "interleaved_1f1b", layout.virtual_stages = 2;  // M W / K
  CHECK(evaluator.bound(layout) >= Time{13'998});
  CHECK(evaluator.bound(layout) <= Time{14'000});
}

// Six blocks whose weights four copies gather in 300 ms each where links are slow, for forwards of 3 ms.
TEST_CASE("gathers of divided weights bound a step, whatever the order and what is run again") {
  for (const std::int64_t micro_batches : {1, 4})
    for (const std::int64_t after_forward : {0, 1, 2})  // kept whole, given away, kept by two together
      for (const bool slow : {false, true}) {
        CAPTURE(micro_batches);
        CAPTURE(after_forward);
        CAPTURE(slow);
        Scenario scenario = sharded(6, 4, micro_batches);
        scenario.cluster.links.bandwidth = Bandwidth{slow ? 1e9 : 1e12};
        scenario.plan.reshard_after_forward = Placed<bool>{after_forward > 0, {}};
        scenario.plan.reshard_over = after_forward > 1 ? after_forward : 0;
        for (const char* schedule : {"1f1b", "gpipe"})
          for (const Recompute recompute : {Recompute::None, Recompute::Full}) {
            scenario.plan.schedule.value = schedule;
            scenario.plan.recompute.value = {recompute};
            Evaluator evaluator(scenario);
            const Layout layout = all_layouts(scenario).front();
            const Time bound = evaluator.tight_bound(layout);
            const Time makespan = std::get<Answer>(answer(scenario, {.ignore_memory = true})).report.makespan;
            CHECK(bound <= makespan);
            if (slow) CHECK(bound > evaluator.bound(layout));
            if (slow && after_forward == 1) CHECK(bound.value > makespan.value / 2);  // reductions take ports, too
          }
      }
}

TEST_CASE("a run of equal layers: whole layers and memory are counted, and no plan is better" *
          doctest::test_suite("whole searches")) {
  Scenario scenario = uniform_scenario({.layers = 3, .devices = 4, .stages = 2, .micro_batches = 4});
  scenario.model = family_model(
      "gpt", {{"layers", "6"}, {"hidden", "64"}, {"heads", "4"}, {"sequence_length", "32"}, {"vocabulary", "512"}});
  settle(scenario.model, Bytes{4}, {});
  scenario.cost = CostSourceKind::Roofline;
  scenario.cluster.device.peak[Precision::Fp32] = FlopRate{1e9};
  scenario.cluster.device.memory_bandwidth = Bandwidth{1e9};
  const auto run = equal_run(scenario.model, CostModel(scenario).layers(1));
  REQUIRE(run.has_value());
  CHECK(run->size() == 6);
  open(scenario, {"partition", "recompute", "virtual_stages", "schedule"});
  scenario.plan.open["schedule"].among = {"1f1b", "interleaved_1f1b", "zbv", "gpipe"};
  scenario.plan.open["virtual_stages"].among = {"2"};
  std::int64_t at_least = 0;
  for (const std::int64_t memory : {900'000, 1'500'000, 2'500'000, 100'000'000}) {
    scenario.cluster.device.memory = Bytes{memory};
    Evaluator evaluator(scenario);
    for (const Layout& layout : all_layouts(scenario)) {
      const double best = brute_force(scenario, layout, recomputations(scenario));
      const Time tight = evaluator.tight_bound(layout);
      if (tight == kNever) {
        CHECK(best == std::numeric_limits<double>::infinity());
        continue;
      }
      CHECK(objective_value(Objective::Throughput, layout, scenario, tight, {}) <= best);
      if (tight > evaluator.bound(layout)) ++at_least;
    }
  }
  CHECK(at_least >= 6);
}

TEST_CASE("a run of equal layers inside a model: what is before and behind it counts, and no plan is better" *
          doctest::test_suite("whole searches")) {
  std::mt19937 random(21);
  std::int64_t above = 0, of_sets = 0;
  for (int round = 0; round < 40; ++round) {
    CAPTURE(round);
    Scenario scenario = random_scenario(random, 7, 2 + static_cast<int>(random() % 2));
    std::vector<Layer>& layers = scenario.model.layers;
    const std::size_t begin = 1 + random() % 3, end = layers.size() - random() % (4 - begin);
    for (std::size_t i = begin; i < end; ++i) {
      const Layer was = std::exchange(layers[i], layers[begin]);
      layers[i].name = was.name, layers[i].inputs = was.inputs;
    }
    const auto run = equal_run(scenario.model, CostModel(scenario).layers(1));
    REQUIRE(run.has_value());
    CHECK(run->begin == static_cast<LayerId>(begin));
    CHECK(run->size() == static_cast<int>(end - begin));
    open(scenario, {"partition", "stages", "virtual_stages", "schedule", "recompute"});
    scenario.plan.open["schedule"].among = {"1f1b", "interleaved_1f1b", "gpipe", "zb_h1"};
    scenario.plan.open["virtual_stages"].among = {"2"};
    if (round % 2 == 0) scenario.plan.open["recompute"].among = {"none", "full"};
    Evaluator evaluator(scenario);
    for (const Layout& layout : all_layouts(scenario)) {
      CAPTURE(layout.schedule);
      CAPTURE(layout.stages);
      const bool sets = round % 2 != 0;
      if (sets && (layout.schedule == "gpipe" || layout.virtual_stages > 1)) continue;
      const double best = sets ? best_with_sets(scenario, layout, Objective::Throughput)
                               : brute_force(scenario, layout, recomputations(scenario));
      const Time tight = evaluator.tight_bound(layout);
      if (tight == kNever) {
        CHECK(best == std::numeric_limits<double>::infinity());
        continue;
      }
      CHECK(objective_value(Objective::Throughput, layout, scenario, tight, {}) <= best);
      if (tight > evaluator.bound(layout)) ++above, of_sets += sets ? 1 : 0;
    }
  }
  CHECK(above >= 10);
  CHECK(of_sets >= 1);
}

TEST_CASE("more devices or more memory never make the best plan worse") {
  std::mt19937 random(9);
  for (int i = 0; i < 6; ++i) {
    Scenario scenario = random_scenario(random, 6, 2);
    scenario.plan.open["schedule"].among = {"1f1b"};
    open(scenario, {"stages", "data_parallel", "recompute"});
    const auto best = [&](const Scenario& changed) {
      const auto result = search(changed, {.top = 1, .gap = 0, .most_simulations = 100'000});
      const auto* answer = std::get_if<SearchAnswer>(&result);
      return answer == nullptr ? std::numeric_limits<double>::infinity() : answer->plans.front().value;
    };
    const double today = best(scenario);
    Scenario devices = scenario, memory = scenario;
    devices.cluster.devices_per_node = 4;
    memory.cluster.device.memory.value *= 2;
    CHECK(best(devices) <= today);
    CHECK(best(memory) <= today);
  }
}

TEST_CASE("the ranking has no plan twice, none with an empty stage, and is the same every time") {
  std::mt19937 random(12);
  Scenario scenario = random_scenario(random, 8, 4);
  scenario.cluster.device.memory.value *= 4;
  open(scenario, {"stages", "data_parallel", "recompute", "schedule", "virtual_stages", "placement"},
       {"micro_batch_size", "zero"});
  const auto once = std::get<SearchAnswer>(search(scenario, {.top = 6}));
  const auto twice = std::get<SearchAnswer>(search(scenario, {.top = 6}));
  REQUIRE(once.plans.size() == 6);
  REQUIRE(twice.plans.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(once.plans[i].layout == twice.plans[i].layout);
    CHECK(once.plans[i].plan.layers == twice.plans[i].plan.layers);
    if (i > 0) CHECK(once.plans[i - 1].value <= once.plans[i].value * (i == 1 ? 1.001 : 1));  // a tie may come first
    for (const LayerRange& range : once.plans[i].plan.layers)
      CHECK(range.size() >= 1);
    validate(once.plans[i].plan, once.plans[i].scenario->model, scenario.cluster);
    CHECK(find_plan(*once.plans[i].scenario, CostModel(*once.plans[i].scenario)).layers == once.plans[i].plan.layers);
  }
  CHECK(once.evaluated + once.bounded + once.too_large == once.layouts);
}

TEST_CASE("what does not fit says what is missing and the cheapest change that fits") {
  Scenario scenario = uniform_scenario({.layers = 4, .devices = 4, .stages = 4, .micro_batches = 4});
  for (Layer& layer : scenario.model.layers)
    layer.stash = Bytes{1000}, layer.activation = Bytes{10}, layer.parameters = 0;
  scenario.cluster.device.memory = Bytes{2500};
  open(scenario, {"partition"});
  const auto result = search(scenario);
  REQUIRE(std::holds_alternative<Infeasible>(result));
  const auto& none = std::get<Infeasible>(result);
  CHECK(none.reason.find("no plan fits: 1 layout") != std::string::npos);
  REQUIRE(none.details.size() == 1);
  CHECK(none.details[0].find("nearest miss: PP4 DP1, 4 micro-batches of 1, 1f1b needs") != std::string::npos);
  REQUIRE_FALSE(none.remedies.empty());
  CHECK(none.remedies[0].find("--set plan.recompute=auto") != std::string::npos);
}

TEST_CASE("fields that contradict one another, and nothing left open, are named") {
  Scenario scenario = uniform_scenario({.layers = 4, .devices = 4, .stages = 4});
  CHECK(refusal_of(scenario).find("nothing is left open") != std::string::npos);
  open(scenario, {"schedule"});
  scenario.plan.data_parallel.value = 3;
  CHECK(refusal_of(scenario).find(
            "plan: 4 stages x 3 copies x 1 (tensor_parallel) need 12 devices, the cluster has 4") != std::string::npos);
  scenario.plan.data_parallel.value = 1;
  scenario.plan.stages.value = 5;
  CHECK(refusal_of(scenario).find("5 stages for 4 layers") != std::string::npos);
}

namespace {

// The best of all plans is what the search finds, or no better than its bound says, layout by layout.
void check_against_all_plans(const Scenario& scenario, int& fitting) {
  Evaluator evaluator(scenario);
  std::vector<Recompute> modes = recomputations(scenario);
  if (modes.empty()) modes = scenario.plan.recompute.value;
  if (modes.empty()) modes = {Recompute::None};
  double best = std::numeric_limits<double>::infinity();
  for (const Layout& layout : all_layouts(scenario)) {
    const double here = brute_force(scenario, layout, modes);
    const Time tight = evaluator.tight_bound(layout);
    CHECK((tight == kNever || objective_value(Objective::Throughput, layout, scenario, tight, {}) <= here));
    best = std::min(best, here);
  }
  const auto result = search(scenario, {.top = 1, .gap = 0, .time_limit = 1e6, .most_simulations = 100'000});
  const auto* answer = std::get_if<SearchAnswer>(&result);
  if (answer == nullptr) {
    CHECK(best == std::numeric_limits<double>::infinity());
    return;
  }
  ++fitting;
  CHECK(answer->bound <= best * (1 + 1e-12));
  CHECK(answer->plans.front().value >= best * (1 - 1e-12));
}

}  // namespace

TEST_CASE("branches whose stages need not wait for one another have bounds that hold, too") {
  std::mt19937 random(6);
  int fitting = 0, side_by_side = 0;
  for (int i = 0; i < 12; ++i) {
    Scenario scenario = random_scenario(random, 5, 3);
    scenario.training.global_batch_size->value = 1 + i % 3;
    scenario.model.layers[2].inputs = i % 2 == 0 ? std::vector<LayerId>{} : std::vector<LayerId>{0};
    if (i % 4 != 3) scenario.model.layers[4].inputs = {1, 3};  // else the one branch ends, and is never read
    scenario.plan.skips = i % 4 == 2 ? Skips::Hop : Skips::Direct;
    open(scenario, {"stages", "partition"});
    scenario.plan.open["schedule"].among = {"1f1b", "gpipe", "eager_1f1b"};
    check_against_all_plans(scenario, fitting);
    const auto result = search(scenario, {.top = 1});
    if (const auto* answer = std::get_if<SearchAnswer>(&result))
      side_by_side += answer->plans.front().layout.stages > 1;
  }
  CHECK(fitting >= 8);
  CHECK(side_by_side >= 4);
}

TEST_CASE("no plan beats the search: full recomputation that needs more than none, all but the last micro-batch") {
  std::mt19937 random(8);
  int fitting = 0;
  for (int i = 0; i < 8; ++i) {
    Scenario scenario = random_scenario(random, 5, 3);
    open(scenario, {"stages", "partition", "recompute"});
    scenario.training.global_batch_size->value = 4;
    if (i % 2 == 0) {
      scenario.plan.recompute_except_last = true;
      scenario.plan.open["recompute"].among = {"full"};
    } else {
      for (Layer& layer : scenario.model.layers)
        layer.activation = Bytes{400'000}, layer.stash = Bytes{static_cast<std::int64_t>(random() % 30'000)};
      scenario.cluster.device.memory = Bytes{400'000 * static_cast<std::int64_t>(4 + random() % 4)};
    }
    check_against_all_plans(scenario, fitting);
  }
  CHECK(fitting >= 4);
}

// A stage rebuilds while it waits for a gradient, and does its weights' gradients when nobody waits for them.
TEST_CASE("no plan beats the search: full recomputation asked for, split backwards, stated replicas") {
  std::mt19937 random(14);
  int fitting = 0;
  for (int i = 0; i < 18; ++i) {
    CAPTURE(i);
    Scenario scenario = random_scenario(random, 5, 4);
    scenario.cluster.device.memory = 1000 * scenario.cluster.device.memory;
    scenario.training.global_batch_size->value = 1 + i % 4;
    if (i % 2 == 0)
      for (Layer& layer : scenario.model.layers)
        layer = Layer{layer}, layer.forward = Time{4000}, layer.backward = Time{8000}, layer.parameters = 1000,
        layer.activation = scenario.model.layers[1].activation, layer.stash = scenario.model.layers[1].stash;
    open(scenario, {"stages", "partition"});
    scenario.plan.open["schedule"].among = {"1f1b", "gpipe", "eager_1f1b"};
    if (i % 3 == 0) scenario.plan.recompute.value = {Recompute::Full};
    if (i % 3 == 1) scenario.plan.open["schedule"].among = {"zb_h1"};
    if (i % 3 == 2) {
      scenario.plan.open["stages"].among = {"2"};
      scenario.plan.open["schedule"].among = {"1f1b"};
      scenario.plan.replicas.value = i % 4 < 2 ? std::vector<std::int64_t>{2, 1} : std::vector<std::int64_t>{1, 3};
    }
    check_against_all_plans(scenario, fitting);
  }
  CHECK(fitting == 18);
}

TEST_CASE("no plan beats the search: copies with buckets of gradients, blocking or not, ZeRO, and a shared network") {
  std::mt19937 random(10);
  int fitting = 0;
  for (int i = 0; i < 6; ++i) {
    Scenario scenario = random_scenario(random, 4, 4);
    scenario.cluster.nodes = 2, scenario.cluster.devices_per_node = 2;
    scenario.cluster.network = Network{};
    scenario.cluster.network->bandwidth = Bandwidth{1e10 * static_cast<double>(1 + random() % 9)};
    scenario.cluster.network->latency = Time{2000};
    scenario.training.global_batch_size->value = 4;
    scenario.plan.bucket = Bytes{200'000};
    if (i % 2 == 0) scenario.plan.gradient_sync = GradientSync::Blocking;
    open(scenario, {"stages", "partition", "data_parallel", "placement"}, {"zero"});
    check_against_all_plans(scenario, fitting);
  }
  CHECK(fitting >= 4);
}

namespace {

// GPT of four layers with one parameter more, or again; fitting: of four memories.
int searched_gpt(const std::pair<const char*, std::string>& parameter) {
  int fitting = 0;
  for (const std::int64_t memory : {300'000, 450'000, 700'000, 100'000'000}) {
    Scenario scenario = uniform_scenario({.layers = 3, .devices = 4, .stages = 1, .micro_batches = 4});
    scenario.model = family_model("gpt", {{"layers", "4"},
                                          {"hidden", "32"},
                                          {"heads", "4"},
                                          {"sequence_length", "32"},
                                          {"vocabulary", "64"},
                                          parameter});
    settle(scenario.model, Bytes{4}, {});
    scenario.cost = CostSourceKind::Roofline;
    scenario.cluster.device.peak[Precision::Fp32] = FlopRate{1e9};
    scenario.cluster.device.memory_bandwidth = Bandwidth{1e9};
    scenario.cluster.device.memory = Bytes{memory};
    scenario.training.global_batch_size = Placed<std::int64_t>{4, {}};
    scenario.training.micro_batch_size = Placed<std::int64_t>{1, {}};
    scenario.training.micro_batches.reset();
    scenario.origins.clear();
    open(scenario, {"stages", "partition", "recompute", "tensor_parallel", "sequence_parallel"});
    scenario.plan.open["stages"].among = {"1", "2", "4"};
    scenario.plan.open["sequence_parallel"].among = {"false", "true"};
    check_against_all_plans(scenario, fitting);
  }
  return fitting;
}

}  // namespace

TEST_CASE("no plan beats the search: families with tensor parallelism, selective recomputation and tied embeddings" *
          doctest::test_suite("whole searches")) {
  CHECK(searched_gpt({"layers", "4"}) >= 2);
}

TEST_CASE("no plan beats the search: frozen weights with adapters" * doctest::test_suite("whole searches")) {
  CHECK(searched_gpt({"lora_rank", "4"}) >= 2);
}

TEST_CASE("a run of equal layers: the first layer may have stage 0 to itself, and the bound holds") {
  Scenario scenario = uniform_scenario({.layers = 3, .devices = 4, .stages = 4, .micro_batches = 4});
  scenario.model = family_model(
      "gpt", {{"layers", "3"}, {"hidden", "64"}, {"heads", "4"}, {"sequence_length", "32"}, {"vocabulary", "8"}});
  settle(scenario.model, Bytes{4}, {});
  scenario.cost = CostSourceKind::Roofline;
  scenario.cluster.device.peak[Precision::Fp32] = FlopRate{1e9};
  scenario.cluster.device.memory_bandwidth = Bandwidth{1e12};
  scenario.plan.recompute.value = {Recompute::None};
  scenario.plan.recompute.place = {};
  open(scenario, {"partition"});
  int tight_enough = 0;
  for (std::int64_t memory = 1'000'000; memory < 4'000'000; memory += 50'000) {
    scenario.cluster.device.memory = Bytes{memory};
    Evaluator evaluator(scenario);
    for (const Layout& layout : all_layouts(scenario)) {
      const double best = brute_force(scenario, layout, {Recompute::None});
      const Time tight = evaluator.tight_bound(layout);
      if (best == std::numeric_limits<double>::infinity()) continue;
      CHECK(objective_value(Objective::Throughput, layout, scenario, tight, {}) <= best);
      ++tight_enough;
    }
  }
  CHECK(tight_enough >= 5);
}

TEST_CASE(
    "with one recomputation for all stages the search finds the best of all such plans, and no bound is above it") {
  std::mt19937 random(21);
  int fitting = 0, recomputed = 0;
  const Within within{.one_recompute = true};
  for (int i = 0; i < 12; ++i) {
    Scenario scenario = random_scenario(random, 5, 4);
    for (Layer& layer : scenario.model.layers)
      layer.stash = layer.stashed() - layer.activation, layer.activation = {};  // no buffers: the search is exact
    scenario.cluster.device.memory = Bytes{scenario.cluster.device.memory.value / 2};
    open(scenario, {"stages", "data_parallel", "partition"}, {"micro_batch_size"});
    scenario.plan.open["recompute"].among = {"none", "full"};
    scenario.plan.open["schedule"].among = {"1f1b", "gpipe"};
    Evaluator evaluator(scenario, {}, Aim::LeastTime, within);
    double best = std::numeric_limits<double>::infinity();
    for (const Layout& layout : all_layouts(scenario)) {
      double here = std::numeric_limits<double>::infinity();
      for (const Recompute mode : recomputations(scenario))
        here = std::min(here, brute_force(scenario, layout, {mode}));
      const Time tight = evaluator.tight_bound(layout);
      const double bound = tight == kNever ? here : objective_value(Objective::Throughput, layout, scenario, tight, {});
      CHECK(bound <= here * (1 + 1e-12));
      best = std::min(best, here);
    }
    const auto result = search(scenario, {.top = 1, .gap = 0, .most_simulations = 100'000, .within = within});
    if (std::holds_alternative<Infeasible>(result)) {
      CHECK(best == std::numeric_limits<double>::infinity());
      continue;
    }
    ++fitting;
    const SearchAnswer& answer = std::get<SearchAnswer>(result);
    CHECK(answer.plans.front().value == doctest::Approx(best).epsilon(1e-12));
    CHECK(answer.bound <= best * (1 + 1e-12));
    const std::vector<Recompute>& modes = answer.plans.front().plan.recompute;
    for (const Recompute mode : modes)
      CHECK(mode == modes.front());
    if (modes.front() != Recompute::None) ++recomputed;
  }
  CHECK(fitting >= 6);
  CHECK(recomputed >= 2);
}
