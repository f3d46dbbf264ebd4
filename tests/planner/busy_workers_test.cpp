// Prices that tell how many workers compute: whatever stands beside an answer is priced as the answer is.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "core/model/layer_builder.hpp"
#include "core/question/profile.hpp"
#include "planner/answer.hpp"
#include "planner/what_if/speed_range.hpp"
#include "planner/what_if/sweep.hpp"
#include "tests/support/uniform_scenario.hpp"

using namespace pipewright::tests;

namespace {

Work linear(bool first) {
  LayerBuilder b;
  return b.finish({b.linear(b.input({4}, !first), {.features = 4})});
}

// Two equal layers, forward 100 us and backward 200 us beside another worker, two thirds of that alone. GPipe.
Scenario two_stages(std::int64_t micro_batches) {
  Scenario scenario = uniform_scenario({.layers = 2, .devices = 2, .stages = 2, .micro_batches = micro_batches});
  scenario.plan.schedule.value = "gpipe";
  Model& model = scenario.model;
  model.works = {linear(true), linear(false)};
  model.layers.clear();
  for (int i = 0; i < 2; ++i) {
    Layer layer;
    layer.name = "l" + std::to_string(i), layer.work = i;
    if (i > 0) layer.inputs = {0};
    model.layers.push_back(layer);
  }
  model.input_amount = {.values = 4};
  settle(model, Bytes{4}, {});
  MachineProfile profile;
  profile.name = "here", profile.active = 2;
  for (const Work& work : model.works)
    for (const int active : {0, 1}) {
      const double share = active == 0 ? 1 : 2.0 / 3;
      const auto time = [&](double us) { return Time{std::llround(us * 1000 * share)}; };
      const bool first = &work == &model.works.front();
      profile.layers.push_back({describe(*work.program.get()), 1, time(100), time(first ? 0 : 100),
                                time(first ? 200 : 100), 0.1, 10, active});
    }
  if (profile.layers[2].key < profile.layers[0].key)
    std::swap(profile.layers[0], profile.layers[2]), std::swap(profile.layers[1], profile.layers[3]);
  profile.updates = {{Optimizer::Sgd, {}}};
  scenario.profile = std::make_shared<const MachineProfile>(profile);
  scenario.cost = CostSourceKind::Profile;
  return scenario;
}

Report of(const Scenario& scenario) {
  return std::get<Answer>(answer(scenario)).report;
}

}  // namespace

// M = 2: two workers compute in the middle micro-batch of each pass only: F 67 + 100 + 67, BW 133 + 200 + 133 us.
TEST_CASE("A sweep's point is simulate's answer, also where ops take less while fewer workers compute") {
  const Scenario scenario = two_stages(2);
  const Report report = of(scenario);
  CHECK(seconds(report.makespan) == doctest::Approx(700e-6).epsilon(1e-4));
  CHECK(std::get<Answer>(priced_as_stated(scenario)).report.makespan == report.makespan);
}

TEST_CASE("A formula of equal ops says that they take less while fewer workers compute") {
  const Report report = of(two_stages(2));
  REQUIRE(!report.formulas.empty());
  CHECK(report.formulas[0].quantity == "bubble");
  for (const FormulaReport& formula : report.formulas)
    if (formula.quantity == "bubble" || formula.quantity == "step time")
      CHECK(formula.applies.find("ops take less while fewer workers compute") != std::string::npos);
}

TEST_CASE("One device computes alone: 2 micro-batches of 2 layers at 200 us") {
  const Report report = of(two_stages(2));
  REQUIRE(!report.references.empty());
  CHECK(report.references[0].what == "one device");
  CHECK(*report.references[0].samples_per_s == doctest::Approx(2 / 800e-6).epsilon(1e-4));
}

TEST_CASE("A hint promises what simulate would then say") {
  const Report report = of(two_stages(2)), more = of(two_stages(8));
  REQUIRE(!report.hints.empty());
  CHECK(report.hints[0].starts_with(
      fmt::format("8 micro-batches would cut the bubble to {:.1f} %: ", 100 * more.bubble_fraction)));
}

// A machine that did something else during the calibration leaves a profile with any error, of the ops' times.
TEST_CASE("However large a profile's error, the 90 % interval is one, or the time at its end is said to overflow") {
  int intervals = 0, overflows = 0;
  for (int error = 0; error <= 160; ++error) {
    Scenario scenario = two_stages(1 + error % 7);
    MachineProfile profile = *scenario.profile;
    profile.independent_error = error / 8.0, profile.common_error = error / 80.0;
    scenario.profile = std::make_shared<const MachineProfile>(profile);
    const SpeedRangeAnswer range = speed_range(std::get<Answer>(answer(scenario)), Engine::Auto);
    CAPTURE(error);
    if (range.range) CHECK(range.range->slowest >= range.range->fastest);
    if (!range.range && error > 0) CHECK(range.caution.find("overflows") != std::string::npos);
    ++(range.range ? intervals : overflows);
  }
  CHECK(intervals > 50);
  CHECK(overflows > 20);
}
