#include "planner/search/search.hpp"

#include <map>
#include <random>
#include <set>

#include <doctest/doctest.h>

#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "planner/search/explain.hpp"
#include "planner/search/run_bound.hpp"
#include "planner/search/space.hpp"
#include "tests/planner/small_spaces.hpp"
#include "tests/support/family_model.hpp"
#include "tests/support/uniform_scenario.hpp"

using namespace pipewright;

namespace {

// Every cut and every recomputation per stage of a layout, as `simulate` prices it; +infinity where none fits.
double brute_force(const Scenario& scenario, const Layout& layout, const std::vector<Recompute>& modes) {
  const auto layers = static_cast<LayerId>(scenario.model.layers.size());
  const int chunks = layout.stages * layout.virtual_stages;
  double best = std::numeric_limits<double>::infinity();
  Plan plan;
  plan.replicas.assign(static_cast<std::size_t>(layout.stages), 1);
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

std::string error_of(const Scenario& scenario) {
  try {
    search(scenario);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("the search finds the best of all plans, and proves it") {
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
    CHECK(answer.ended.empty());
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

TEST_CASE("a run of equal layers: whole layers and memory are counted, and no plan is better") {
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
  scenario.plan.open["schedule"].among = {"1f1b", "interleaved_1f1b", "gpipe"};
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

TEST_CASE("the best plan is the same however many plans are asked for") {
  std::mt19937 random(21);
  int several = 0;
  for (int i = 0; i < 12; ++i) {
    Scenario scenario = random_scenario(random, 7, 4);
    scenario.cluster.device.memory.value *= 2;
    open(scenario, {"stages", "data_parallel", "recompute", "schedule", "virtual_stages", "partition"},
         {"micro_batch_size", "zero"});
    std::optional<Found> best;
    for (const int top : {1, 2, 3, 5, 9, 40}) {
      const auto result = search(scenario, {.top = top, .time_limit = 600});
      const auto* answer = std::get_if<SearchAnswer>(&result);
      if (answer == nullptr) break;
      CHECK(std::ssize(answer->plans) <= top);
      const Found& first = answer->plans.front();
      if (!best) best = first;
      CAPTURE(i);
      CAPTURE(top);
      CHECK(first.layout == best->layout);
      CHECK(first.plan.layers == best->plan.layers);
      CHECK(first.plan.recompute == best->plan.recompute);
      CHECK(first.value == best->value);
      several += top > 1;
    }
  }
  CHECK(several >= 30);
}

namespace {

Found on_devices(double value, int stages) {
  Found found;
  found.value = value;
  found.layout.stages = found.plan.stages = stages;
  found.plan.replicas.assign(static_cast<std::size_t>(stages), 1);
  return found;
}

}  // namespace

// 100 / 99.95 = 1.0005: a tie. 100 / 99.8 = 1.002 is none.
TEST_CASE("of plans that differ by a thousandth at most the one with fewer devices is the first") {
  std::vector<Found> plans = {on_devices(1 / 100.0, 4), on_devices(1 / 99.95, 3), on_devices(1 / 99.93, 3),
                              on_devices(1 / 99.8, 1)};
  prefer_fewer_devices(plans, {});
  CHECK(plans[0].value == 1 / 99.95);
  CHECK(plans[1].value == 1 / 100.0);
  CHECK(plans[2].value == 1 / 99.93);
  CHECK(plans[3].value == 1 / 99.8);
  CHECK(tie({}) == 0.001);
  CHECK(tie({.gap = 0.0004}) == 0.0004);
  CHECK(tie({.gap = 0}) == 0);
  CHECK(tie({.objective = Objective::Memory}) == 0);
}

TEST_CASE("of plans that need equal memory the faster one stays the first, however many devices it has") {
  std::vector<Found> plans = {on_devices(1e9, 4), on_devices(1e9, 2)};
  prefer_fewer_devices(plans, {.objective = Objective::Memory});
  CHECK(plans[0].plan.devices() == 4);
}

// Layers of 2 ms and 500 ns, two micro-batches: 4 ms and 1 us on one device, 4 ms on two.
TEST_CASE("the search leaves a device idle that brings less than a thousandth, unless it is asked for the very best") {
  Scenario scenario = uniform_scenario({.layers = 2, .devices = 2, .stages = 1, .micro_batches = 2});
  scenario.model.layers[0].forward = Time{800'000}, scenario.model.layers[0].backward = Time{1'200'000};
  scenario.model.layers[1].forward = Time{200}, scenario.model.layers[1].backward = Time{300};
  open(scenario, {"stages", "partition"});
  for (const int top : {1, 2}) {
    const auto near = std::get<SearchAnswer>(search(scenario, {.top = top}));
    CHECK(near.plans.front().plan.devices() == 1);
    CHECK(near.plans.front().report.step_time == Time{4'001'000});
    CHECK(near.idle_devices == 1);
    CHECK(near.bound <= 4e-3 / 2);
    const auto best = std::get<SearchAnswer>(search(scenario, {.top = top, .gap = 0}));
    CHECK(best.plans.front().plan.devices() == 2);
    CHECK(best.plans.front().report.step_time == Time{4'000'000});
  }
}

TEST_CASE("the objective decides: memory and cost ask for other plans than throughput") {
  std::mt19937 random(6);
  Scenario scenario = random_scenario(random, 8, 4);
  scenario.cluster.device.memory.value *= 16;
  open(scenario, {"stages", "data_parallel", "recompute"});
  const auto best = [&](Objective objective) {
    return std::get<SearchAnswer>(search(scenario, {.objective = objective, .top = 1, .gap = 0})).plans.front();
  };
  const Found fast = best(Objective::Throughput), cheap = best(Objective::Cost), small = best(Objective::Memory);
  CHECK(small.peak < fast.peak);
  CHECK(cheap.plan.devices() == 1);  // nothing is lost on one device
  CHECK(fast.report.samples_per_s > cheap.report.samples_per_s);
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
  CHECK(error_of(scenario).find("nothing is left open") != std::string::npos);
  open(scenario, {"schedule"});
  scenario.plan.data_parallel.value = 3;
  CHECK(error_of(scenario).find("plan: 4 stages x 3 copies x 1 (tensor_parallel) need 12 devices, the cluster has 4") !=
        std::string::npos);
  scenario.plan.data_parallel.value = 1;
  scenario.plan.stages.value = 5;
  CHECK(error_of(scenario).find("5 stages for 4 layers") != std::string::npos);
}

namespace {

// The best of all plans is what the search finds, or no better than its bound says, layout by layout.
void check_against_all_plans(const Scenario& scenario, int& fitting) {
  Evaluator evaluator(scenario);
  std::vector<Recompute> modes = recomputations(scenario);
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

TEST_CASE("no plan beats the search: families with tensor parallelism, selective recomputation and tied embeddings") {
  int fitting = 0;
  for (const std::int64_t memory : {300'000, 450'000, 700'000, 100'000'000}) {
    Scenario scenario = uniform_scenario({.layers = 3, .devices = 4, .stages = 1, .micro_batches = 4});
    scenario.model = family_model(
        "gpt", {{"layers", "4"}, {"hidden", "32"}, {"heads", "4"}, {"sequence_length", "32"}, {"vocabulary", "64"}});
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
  CHECK(fitting >= 2);
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

TEST_CASE("fields that are restricted take the values listed and no others") {
  Scenario scenario = uniform_scenario({.layers = 4, .devices = 1, .stages = 1, .micro_batches = 64});
  open(scenario, {"stages"});
  const auto schedules = [&](std::vector<std::string> among) {
    scenario.plan.open["schedule"].among = std::move(among);
    std::vector<std::string> found;
    for (const Layout& layout : all_layouts(scenario))
      found.push_back(layout.schedule);
    return found;
  };
  // With one stage gpipe holds all micro-batches, and interleaved_1f1b is none.
  CHECK(schedules({"gpipe", "1f1b"}) == std::vector<std::string>{"1f1b"});
  CHECK(schedules({"interleaved_1f1b", "1f1b"}) == std::vector<std::string>{"1f1b"});
  CHECK(schedules({"gpipe"}) == std::vector<std::string>{"gpipe"});
  CHECK(schedules({"interleaved_1f1b"}).empty());
  CHECK(error_of(scenario).find("takes two stages or more") != std::string::npos);
  CHECK(schedules({"pipedream", "1f1b"}) == std::vector<std::string>{"pipedream", "1f1b"});
  open(scenario, {"partition"});
  scenario.plan.open["partition"].among = {"balanced"};
  CHECK(error_of(scenario).find("plan.partition: auto is every cut and takes no list") != std::string::npos);

  Scenario family = uniform_scenario({.layers = 3, .devices = 2, .stages = 1, .micro_batches = 4});
  family.model = family_model(
      "gpt", {{"layers", "2"}, {"hidden", "32"}, {"heads", "4"}, {"sequence_length", "32"}, {"vocabulary", "64"}});
  open(family, {"tensor_parallel", "sequence_parallel"});
  family.plan.open["sequence_parallel"].among = {"false"};
  for (const Layout& layout : all_layouts(family))
    CHECK(!layout.sequence_parallel);
}

TEST_CASE("a space too large to list says so, and a layout longer than time can count is left out") {
  Scenario scenario = uniform_scenario({.layers = 1000, .devices = 1 << 18, .stages = 1, .micro_batches = 4});
  scenario.training.global_batch_size = Placed<std::int64_t>{1'000'000'000, {}};
  scenario.training.micro_batch_size.reset(), scenario.training.micro_batches.reset();
  open(scenario, {"stages", "data_parallel"}, {"micro_batch_size"});
  CHECK(error_of(scenario).find("combinations of stages, copies") != std::string::npos);

  Scenario slow = uniform_scenario({.layers = 4, .devices = 4, .stages = 1, .micro_batches = 4});
  for (Layer& layer : slow.model.layers)
    layer.forward = Time{std::int64_t{1} << 58}, layer.backward = Time{std::int64_t{1} << 58};
  slow.training.global_batch_size = Placed<std::int64_t>{4, {}};
  slow.training.micro_batches.reset();
  slow.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  open(slow, {"stages", "data_parallel", "schedule"});
  const auto result = search(slow);
  const auto* answer = std::get_if<SearchAnswer>(&result);
  REQUIRE(answer != nullptr);
  std::int64_t refused = 0;
  for (const auto& [reason, count] : answer->refused)
    refused += count;
  CHECK(refused >= 1);
  CHECK(answer->evaluated + answer->bounded + answer->too_large + answer->not_reached + refused == answer->layouts);
}

TEST_CASE("an interrupted search answers with what it has, and says so") {
  std::mt19937 random(12);
  Scenario scenario = random_scenario(random, 8, 4);
  scenario.cluster.device.memory.value *= 4;
  open(scenario, {"stages", "data_parallel", "recompute", "schedule"}, {"micro_batch_size"});
  int asked = 0;
  const auto result = search(scenario, {.top = 1, .stop = [&] { return ++asked > 12; }});
  REQUIRE(std::holds_alternative<SearchAnswer>(result));
  const auto& answer = std::get<SearchAnswer>(result);
  CHECK(answer.ended == "interrupted");
  CHECK(answer.bound <= answer.plans.front().value);
}

// Whenever it comes, and though what is looked at first does not fit.
TEST_CASE("a search that ends before it has a plan says that it has none yet, never that none fits") {
  std::mt19937 random(12);
  Scenario scenario = random_scenario(random, 8, 4);
  scenario.cluster.device.memory = Bytes{scenario.cluster.device.memory.value / 3};
  open(scenario, {"stages", "data_parallel", "recompute", "schedule"}, {"micro_batch_size"});
  int plans = 0, none = 0, misses = 0;
  for (int most = 0; plans < 3; ++most) {
    int asked = 0;
    const auto result = search(scenario, {.top = 1, .stop = [&] { return ++asked > most; }});
    if (std::holds_alternative<SearchAnswer>(result)) {
      ++plans;
      continue;
    }
    REQUIRE(std::holds_alternative<NoPlanYet>(result));
    const auto& yet = std::get<NoPlanYet>(result);
    ++none;
    if (!yet.details.empty()) ++misses;
    CHECK(yet.ended == "interrupted");
    CHECK(in_words(yet).starts_with("no plan found yet: Ctrl-C ended the search after "));
  }
  CHECK(none >= 1);
  CHECK(misses >= 1);
  const auto late = search(scenario, {.time_limit = 0});
  REQUIRE(std::holds_alternative<NoPlanYet>(late));
  CHECK(
      in_words(std::get<NoPlanYet>(late)).starts_with("no plan found yet: the time limit ended the search after 0 of"));
}

TEST_CASE("progress is told of every kind of work, in its order, and never more is done than there is") {
  std::mt19937 random(12);
  Scenario scenario = random_scenario(random, 8, 4);
  open(scenario, {"stages", "data_parallel", "recompute", "schedule"}, {"micro_batch_size"});
  std::vector<std::string> kinds;
  std::map<std::string, std::set<std::int64_t>> counts;
  SearchOptions options{.top = 3, .gap = 0};
  options.progress = [&](const Progress& now) {
    if (kinds.empty() || kinds.back() != now.what) kinds.emplace_back(now.what);
    counts[kinds.back()].insert(now.done);
    CHECK(now.done <= now.all);
    CHECK(now.done >= 0);
  };
  auto found = search(scenario, options);
  REQUIRE(std::holds_alternative<SearchAnswer>(found));
  REQUIRE(kinds.size() >= 3);
  CHECK(kinds[0] == "layouts");
  CHECK(kinds[1] == "cuts");
  CHECK(kinds[2] == "plans");
  CHECK(counts["cuts"].size() >= 3);
  kinds.clear();
  explain_bandwidth(scenario, options, std::get<SearchAnswer>(found));
  CHECK(kinds == std::vector<std::string>{"flips"});
  CHECK(counts["flips"].size() >= 10);
  kinds.clear();
  scenario.cluster.device.memory = Bytes{1000};
  CHECK(std::holds_alternative<Infeasible>(search(scenario, options)));
  CHECK(kinds.back() == "changes");
}
