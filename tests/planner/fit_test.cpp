// Plans that fit with a probability (plan.fit, `plan --fit`): against every plan of small spaces, with the range of
// each as `simulate` reports it, and against the draws of the whole training.
#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "core/answers/campaign.hpp"
#include "core/question/memory_anchor.hpp"
#include "planner/answer.hpp"
#include "tests/planner/small_spaces.hpp"
#include "tests/support/family_model.hpp"

using namespace pipewright::tests;

namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

// A small Transformer on two devices of so many bytes: stages, cut and recomputation are left open.
Scenario small_gpt(std::int64_t memory) {
  Scenario scenario = uniform_scenario({.layers = 3, .devices = 2, .stages = 2, .micro_batches = 4});
  scenario.model = family_model(
      "gpt", {{"layers", "5"}, {"hidden", "64"}, {"heads", "4"}, {"sequence_length", "32"}, {"vocabulary", "512"}});
  settle(scenario.model, Bytes{4}, {});
  scenario.cost = CostSourceKind::Roofline;
  scenario.cluster.device.peak[Precision::Fp32] = FlopRate{1e9};
  scenario.cluster.device.memory_bandwidth = Bandwidth{1e9};
  scenario.cluster.device.memory = Bytes{memory};
  scenario.cluster.device.reserve = Bytes{20'000};
  scenario.cluster.device.fragmentation = 0.03;
  scenario.origins.clear();
  open(scenario, {"stages", "partition"});
  scenario.plan.open["recompute"].among = {"none", "full"};
  return scenario;
}

// By the range of every stage alone: this knows nothing of MemoryNeed::to_fit.
double probability(const Report& report) {
  double least = 1;
  for (const StageReport& stage : report.stages) {
    const MemoryNeed& need = stage.need;
    const double place =
        static_cast<double>((need.capacity - need.low).value) / static_cast<double>((need.high - need.low).value);
    least = std::min(least, place);
  }
  return least;
}

struct Priced {
  double value = kNone;
  double probability = 0;
};

// Every cut and recomputation of a layout, as `simulate` prices them, whether they fit or not.
std::vector<Priced> all_plans(Scenario scenario, const Layout& layout) {
  scenario.plan.fit = 0;
  const auto layers = static_cast<LayerId>(scenario.model.layers.size());
  std::vector<Priced> all;
  const auto add = [&](const std::vector<LayerRange>& cut) {
    for (int full = 0; full < 1 << layout.stages; ++full) {
      Plan plan;
      plan.layers = cut, plan.replicas.assign(cut.size(), 1);
      for (int k = 0; k < layout.stages; ++k)
        plan.recompute.push_back((full >> k & 1) != 0 ? Recompute::Full : Recompute::None);
      const Scenario whole = settled(scenario, layout, &plan);
      const CostModel cost(whole);
      const Answer answer = price(find_plan(whole, cost), cost, Engine::Auto);
      if (!answer.report.fits) continue;  // by the estimate
      all.push_back({objective_value(Objective::Throughput, layout, scenario, answer.report.step_time, {}),
                     probability(answer.report)});
    }
  };
  if (layout.stages == 1) add({{0, layers}});
  for (LayerId end = 1; layout.stages == 2 && end < layers; ++end)
    add({{0, end}, {end, layers}});
  return all;
}

double best_with(const Scenario& scenario, double fit, const Layout& layout) {
  double best = kNone;
  for (const Priced& plan : all_plans(scenario, layout))
    if (plan.probability >= fit) best = std::min(best, plan.value);
  return best;
}

double best_with(const Scenario& scenario, double fit) {
  double best = kNone;
  for (const Layout& layout : all_layouts(scenario))
    best = std::min(best, best_with(scenario, fit, layout));
  return best;
}

SearchResult best_plan(Scenario& scenario, double fit) {
  scenario.plan.fit = fit;
  return search(scenario, {.top = 1, .gap = 0, .time_limit = 600, .most_simulations = 100'000});
}

Report simulated(const Found& found, double fit) {
  Scenario scenario = *found.scenario;
  scenario.plan.fit = fit;
  CampaignRequest request;
  request.length = CampaignLength{CampaignLength::Of::Samples, 1e6, "", {}};
  request.trials = 20;
  scenario.campaign = std::make_shared<const CampaignRequest>(request);
  return std::get<Answer>(answer(scenario, {.engine = Engine::Auto, .ignore_memory = true})).report;
}

struct Counts {
  int fitting = 0, slower = 0, none = 0;
  int open = 0;  // no cut that was tried fits, others may
};

// The search and every bound on the way, against every plan.
void compare_with_all(Scenario scenario, double fit, Counts& counts) {
  const double any = best_with(scenario, 0), best = best_with(scenario, fit);
  const SearchResult result = best_plan(scenario, fit);
  Evaluator evaluator(scenario);
  for (const Layout& layout : all_layouts(scenario))
    if (const Time bound = evaluator.tight_bound(layout); bound < kNever)
      CHECK(objective_value(Objective::Throughput, layout, scenario, bound, {}) <= best_with(scenario, fit, layout));
  if (best == kNone) {
    CHECK(std::holds_alternative<Infeasible>(result));
    ++counts.none;
    return;
  }
  if (const auto* none = std::get_if<Infeasible>(&result)) {
    CHECK(none->reason.find("no cut that was tried fits, others may") != std::string::npos);
    ++counts.open;
    return;
  }
  const SearchAnswer& found = std::get<SearchAnswer>(result);
  CHECK(found.plans.front().value == doctest::Approx(best).epsilon(1e-12));
  CHECK(found.bound <= best * (1 + 1e-12));
  CHECK(probability(found.plans.front().report) >= fit);
  ++counts.fitting;
  if (best > any) ++counts.slower;
}

}  // namespace

TEST_CASE("with a probability of fitting the search finds the best of the plans that have it" *
          doctest::test_suite("whole searches")) {
  Counts counts;
  for (std::int64_t memory = 1'200'000; memory < 3'200'000; memory += 50'000)
    for (const double fit : {0.3, 0.75, 0.95, 1.0}) {
      CAPTURE(memory);
      CAPTURE(fit);
      compare_with_all(small_gpt(memory), fit, counts);
    }
  CHECK(counts.fitting >= 8);
  CHECK(counts.slower >= 3);
  CHECK(counts.none >= 1);
  CHECK(counts.open == 0);
}

TEST_CASE("what a measured run corrects is corrected in the search and its bounds, too") {
  Counts more, less;
  for (std::int64_t memory = 1'000'000; memory < 3'600'000; memory += 100'000)
    for (const double fit : {0.3, 0.95}) {
      CAPTURE(memory);
      CAPTURE(fit);
      Scenario scenario = small_gpt(memory);
      const auto with = [&](const MemoryCorrection& correction) {
        scenario.training.framework.correction = std::make_shared<const MemoryCorrection>(correction);
        return scenario;
      };
      compare_with_all(with({.held = Bytes{100'000}, .activations = 1.4, .fragmentation = 0.06, .band = 0.2}), fit,
                       more);
      compare_with_all(with({.held = Bytes{-100'000}, .activations = 0.7, .reserve = Bytes{10'000}}), fit, less);
    }
  CHECK(more.fitting >= 4);
  CHECK(more.none >= 4);
  CHECK(less.fitting > more.fitting);
  CHECK(more.open + less.open <= 2);  // within some KiB of the limit the search tries few cuts
}

TEST_CASE("50 % asks for the estimate alone: the plans, their order and every figure are those without a probability") {
  int tight = 0;
  for (std::int64_t memory = 1'200'000; memory < 3'200'000; memory += 100'000) {
    CAPTURE(memory);
    Scenario scenario = small_gpt(memory);
    const SearchResult without = best_plan(scenario, 0), half = best_plan(scenario, 0.5);
    REQUIRE(without.index() == half.index());
    if (std::holds_alternative<Infeasible>(half)) {
      CHECK(std::get<Infeasible>(half).reason == std::get<Infeasible>(without).reason);
      continue;
    }
    const SearchAnswer &a = std::get<SearchAnswer>(without), &b = std::get<SearchAnswer>(half);
    CHECK(a.plans.front().plan.layers == b.plans.front().plan.layers);
    CHECK(a.plans.front().value == b.plans.front().value);
    CHECK(a.plans.front().to_fit == b.plans.front().to_fit);
    CHECK(a.bound == b.bound);
    tight += probability(b.plans.front().report) < 0.95 ? 1 : 0;
  }
  CHECK(tight >= 2);
}

TEST_CASE("what plan and capacity ask for: 95 % where the scenario states nothing and the model has a range") {
  Scenario scenario = small_gpt(1'200'000);
  CHECK(fitting_by_default(scenario).plan.fit == 0.95);
  CHECK(fitting_by_default(scenario).plan.fit_by_default);
  scenario.plan.fit = 0.5;
  CHECK(fitting_by_default(scenario).plan.fit == 0.5);
  CHECK(!fitting_by_default(scenario).plan.fit_by_default);
  std::mt19937 random(3);
  CHECK(fitting_by_default(random_scenario(random, 5, 3)).plan.fit == 0);  // its layers state what they hold
}

TEST_CASE("a plan found with 95 % does not fit in 5 % of the draws at most, the one found without in more") {
  int gained = 0;
  for (std::int64_t memory = 1'200'000; memory < 3'200'000; memory += 50'000) {
    CAPTURE(memory);
    Scenario scenario = small_gpt(memory);
    const SearchResult without = best_plan(scenario, 0), with = best_plan(scenario, 0.95);
    if (!std::holds_alternative<SearchAnswer>(with)) continue;
    const Found& sure = std::get<SearchAnswer>(with).plans.front();
    CHECK(simulated(sure, 0.95).fits);
    CHECK(simulated(sure, 0).campaign->spread->not_fitting <= 0.05);
    const Found& any = std::get<SearchAnswer>(without).plans.front();
    const Report drawn = simulated(any, 0);
    if (drawn.campaign->spread->not_fitting <= 0.05) continue;
    CHECK(!simulated(any, 0.95).fits);
    ++gained;
  }
  CHECK(gained >= 2);
}

TEST_CASE("where no plan fits so surely, the answer says with which probability, and what does without") {
  for (std::int64_t memory = 1'000'000; memory < 3'000'000; memory += 20'000) {
    Scenario scenario = small_gpt(memory);
    if (best_with(scenario, 0) == kNone || best_with(scenario, 0.95) < kNone) continue;
    const SearchResult result = best_plan(scenario, 0.95);
    REQUIRE(std::holds_alternative<Infeasible>(result));
    const Infeasible& none = std::get<Infeasible>(result);
    CHECK(none.reason.starts_with("no plan fits with 95 %: "));
    CHECK(none.details.front().find(" to fit with 95 % on stage ") != std::string::npos);
    CHECK(std::any_of(none.remedies.begin(), none.remedies.end(),
                      [](const std::string& line) { return line.starts_with("by the estimate alone, so with less"); }));
    return;
  }
  FAIL("there is a memory with which plans fit by the estimate alone");
}

TEST_CASE("layers that state what they hold have no range: a probability changes nothing about them") {
  std::mt19937 random(3);
  Scenario scenario = random_scenario(random, 5, 3);
  open(scenario, {"stages", "recompute", "partition"});
  const auto value = [&](double fit) {
    const SearchResult result = best_plan(scenario, fit);
    return std::holds_alternative<SearchAnswer>(result) ? std::get<SearchAnswer>(result).plans.front().value : kNone;
  };
  CHECK(value(0.95) == value(0));
}

TEST_CASE("what the least memory of a plan is, holds with the probability, too") {
  Scenario scenario = small_gpt(std::int64_t{1} << 40);
  scenario.plan.fit = 0.95;
  const SearchResult result = search(scenario, {.objective = Objective::Memory, .top = 1, .gap = 0, .time_limit = 600});
  const Found& least = std::get<SearchAnswer>(result).plans.front();
  CHECK(least.value == static_cast<double>(least.to_fit.value));
  CHECK(least.to_fit > least.peak);
  scenario.cluster.device.memory = least.to_fit;
  CHECK(std::holds_alternative<SearchAnswer>(best_plan(scenario, 0.95)));
  scenario.cluster.device.memory = least.to_fit - Bytes{1000};
  CHECK(std::holds_alternative<Infeasible>(best_plan(scenario, 0.95)));
}
