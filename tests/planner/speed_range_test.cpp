// The 90 % interval of the step time: worked out by hand, of short runs and of long ones.
#include "planner/what_if/speed_range.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/cluster/bands.hpp"
#include "core/cluster/measured_device.hpp"
#include "planner/answer.hpp"
#include "planner/search/search.hpp"
#include "planner/what_if/range_sources.hpp"
#include "tests/planner/small_spaces.hpp"
#include "tests/support/family_model.hpp"
#include "tests/support/uniform_scenario.hpp"

using namespace pipewright::tests;

namespace {

// A small Transformer in four copies of two stages, on a device of which matrix products reach 50 %, give or take 30.
Scenario banded() {
  Scenario scenario = uniform_scenario({.layers = 3, .devices = 8, .stages = 2, .micro_batches = 4});
  scenario.model = family_model("gpt", {{"layers", "6"},
                                        {"hidden", "64"},
                                        {"heads", "4"},
                                        {"sequence_length", "32"},
                                        {"vocabulary", "512"},
                                        {"tied", "no"}});
  settle(scenario.model, Bytes{4}, {});
  scenario.cost = CostSourceKind::Roofline;
  scenario.cluster.device.peak[Precision::Fp32] = FlopRate{1e12};
  scenario.cluster.device.memory_bandwidth = Bandwidth{1e12};
  Efficiency half;
  half.curve = {{0.0, 0.5}}, half.band = 0.3;
  for (auto& each : scenario.cluster.device.efficiency)
    each = half;
  scenario.cluster.links.kind = LinkKind::Mesh;
  scenario.cluster.links.bandwidth = Bandwidth{1e10};
  scenario.plan.data_parallel.value = 4;
  scenario.plan.partition.value = Balanced{};
  return scenario;
}

// One that moves the step by so much either way: +10 % and -9.1 % for 0.1.
RangeCause even(const std::string& what, double effect, const std::string& measure = "calibrate") {
  return {.what = what, .measure = measure, .faster = std::log(1 + effect), .slower = std::log(1 + effect)};
}

Efficiency share(double value, double band) {
  Efficiency each;
  each.curve = {{0.0, value}}, each.band = band;
  return each;
}

// Two stages on two devices of which no figure states a band.
Scenario unbanded() {
  Scenario scenario = banded();
  for (auto& each : scenario.cluster.device.efficiency)
    each->band = 0;
  scenario.plan.data_parallel.value = 1, scenario.cluster.devices_per_node = 2;
  return scenario;
}

std::vector<std::string> causes_of(const Scenario& scenario) {
  const auto told = answer(scenario, {.ignore_memory = true});
  const auto& range = std::get<Answer>(told).report.range;
  std::vector<std::string> causes;
  if (range)
    for (const RangeCause& each : range->causes)
      causes.push_back(each.what);
  std::sort(causes.begin(), causes.end());
  return causes;
}

}  // namespace

TEST_CASE("two independent causes of +-10 % and +-24 % make +-26.5 %, 83.6 % of the variance by the second") {
  const Time step{1'000'000};
  const SpeedRange range = combined(step, 50, {even("a", 0.10), even("b", 0.24)});
  // sqrt(ln 1.1^2 + ln 1.24^2) = sqrt(0.009084 + 0.046274) = 0.235282
  CHECK(range.slowest == Time{1'265'264});
  CHECK(range.fastest == Time{790'349});
  CHECK(range.samples_per_s_low == doctest::Approx(50 / 1.265264));
  REQUIRE(range.causes.size() == 2);
  CHECK(range.causes[0].what == "b");
  CHECK(range.causes[0].share == doctest::Approx(0.8359).epsilon(1e-4));
  CHECK(range.causes[0].slowest == Time{1'100'000});  // what is left without it
  CHECK(range.causes[1].slowest == Time{1'240'000});
  CHECK(range.to_halve == 1);  // 0.0953 of 0.2353 are left
}

TEST_CASE("an asymmetric cause widens its side alone, and one without an effect is none") {
  RangeCause slower = even("a", 0);
  slower.slower = std::log(1.5);
  const SpeedRange range = combined(Time{1'000'000}, 1, {slower, even("b", 0.2), even("c", 0)});
  CHECK(range.fastest == Time{833'333});    // 1 / 1.2
  CHECK(range.slowest == Time{1'559'820});  // exp(sqrt(0.405465^2 + 0.182322^2)) = exp(0.444571)
  CHECK(range.causes.size() == 2);
}

TEST_CASE("what cannot be measured may be too wide to halve an interval") {
  CHECK(combined(Time{1000}, 1, {even("left out", 0.2, ""), even("a", 0.05)}).to_halve == 0);
  CHECK(combined(Time{1000}, 1, {even("a", 0.2), even("b", 0.2), even("left out", 0.02, "")}).to_halve == 2);
}

TEST_CASE("one figure's effect is that of the plan priced with it at the ends of its band") {
  Scenario scenario = banded();
  scenario.cluster.links.band = 0;
  auto& all = scenario.cluster.device.efficiency;
  for (auto& each : all)
    each->band = 0;
  auto& products = all[static_cast<std::size_t>(OperatorKind::MatrixProduct)];
  const auto step = [&](double of_products) {
    products = share(of_products, 0);
    const auto told = answer(scenario, {.ignore_memory = true});
    return static_cast<double>(std::get<Answer>(told).report.step_time.value);
  };
  const double better = step(0.65), worse = step(0.35), stated = step(0.5);
  products = share(0.5, 0.3);
  const auto told = answer(scenario, {.ignore_memory = true});
  const auto& range = std::get<Answer>(told).report.range;
  REQUIRE(range.has_value());
  REQUIRE(range->causes.size() == 2);  // the products, and what the model leaves out
  CHECK(range->causes[0].what.starts_with("matrix products"));
  const double left_out = std::log(1 + kLeftOut);
  CHECK(static_cast<double>(range->fastest.value) ==
        doctest::Approx(stated * std::exp(-std::hypot(std::log(stated / better), left_out))).epsilon(1e-6));
  CHECK(static_cast<double>(range->slowest.value) ==
        doctest::Approx(stated * std::exp(std::hypot(std::log(worse / stated), left_out))).epsilon(1e-6));
}

TEST_CASE("the interval holds the step and shrinks with every band that is known to be 0") {
  Scenario scenario = banded();
  double before = 1e9;
  auto& kinds = scenario.cluster.device.efficiency;
  for (std::size_t kind = 0; kind <= static_cast<std::size_t>(OperatorKind::Memory); ++kind) {
    const auto told = answer(scenario, {.ignore_memory = true});
    const Report& report = std::get<Answer>(told).report;
    CHECK(report.range->fastest < report.step_time);
    CHECK(report.step_time < report.range->slowest);
    const double width = static_cast<double>((report.range->slowest - report.range->fastest).value);
    CHECK(width <= before);
    before = width;
    kinds[kind]->band = 0;
  }
}

TEST_CASE("a long run's range is that of copies that run alike") {
  const Scenario scenario = banded();
  const auto told = answer(scenario, {.ignore_memory = true});
  const Answer& whole = std::get<Answer>(told);
  const auto repeated = speed_range(whole, Engine::Auto).range, alike = speed_range(whole, Engine::Auto, 0).range;
  REQUIRE(repeated.has_value());
  REQUIRE(alike.has_value());
  CHECK(repeated->fastest < whole.report.step_time);
  CHECK(repeated->slowest > whole.report.step_time);
  CHECK(std::abs(alike->fastest.value - repeated->fastest.value) <= 1);
  CHECK(std::abs(alike->slowest.value - repeated->slowest.value) <= 1);
}

TEST_CASE("a plan that a search has found has the range that its answer has") {
  Scenario scenario = banded();
  open(scenario, {"stages", "data_parallel", "partition"});
  scenario.origins.clear();
  const auto found = std::get<SearchAnswer>(search(scenario, {.top = 1}));
  const Found& best = found.plans.front();
  const auto told = answer(*best.scenario, {.ignore_memory = true});
  const auto range = speed_range(best);
  REQUIRE(range.has_value());
  CHECK(range->fastest == std::get<Answer>(told).report.range->fastest);
  CHECK(range->slowest == std::get<Answer>(told).report.range->slowest);
  Scenario exact = scenario;
  for (auto& each : exact.cluster.device.efficiency)
    each->band = 0;
  CHECK_FALSE(speed_range(std::get<SearchAnswer>(search(exact, {.top = 1})).plans.front()).has_value());
}

TEST_CASE("messages that the device states have its band, and the links' band moves what they do not price") {
  Scenario scenario = unbanded();
  MessageCurve curve;
  curve.links = LinkKind::Mesh;
  curve.start = 50, curve.small = 0.2, curve.middle = 30, curve.large = 0.5, curve.band = 0.3;
  scenario.cluster.device.messages = curve;
  const auto step = [](const Scenario& changed) {
    const auto told = answer(changed, {.ignore_memory = true});
    return static_cast<double>(std::get<Answer>(told).report.step_time.value);
  };
  CHECK(causes_of(scenario) == std::vector<std::string>{"messages of roomy", "what the model leaves out"});
  Scenario slower = scenario;
  move(*slower.cluster.device.messages, -1);
  const auto told = answer(scenario, {.ignore_memory = true});
  const auto& causes = std::get<Answer>(told).report.range->causes;
  const auto messages = std::find_if(causes.begin(), causes.end(),
                                     [](const RangeCause& each) { return each.what.starts_with("messages"); });
  REQUIRE(messages != causes.end());
  CHECK(messages->slower == doctest::Approx(std::log(step(slower) / step(scenario))).epsilon(1e-6));
  // Without them the links' band is that of the messages.
  scenario.cluster.device.messages.reset(), scenario.cluster.links.band = 0.3;
  CHECK(causes_of(scenario) == std::vector<std::string>{"links inside a node", "what the model leaves out"});
}

TEST_CASE("any figure that states a band makes an interval, and assumed bands alone do not") {
  const Scenario none = unbanded();
  CHECK(causes_of(none).empty());
  Scenario host = none;
  host.cluster.device.host.operation = Time{20'000};
  CHECK(causes_of(host).empty());
  host.cluster.device.host.band = 0.3;
  CHECK(causes_of(host).size() == 3);  // the links' assumed band is one of them
  host.cluster.device.host.band = 0;
  CHECK(causes_of(host).empty());
  Scenario links = none;
  links.cluster.links.band = 0.2;
  CHECK(causes_of(links).size() == 2);
  links.cluster.links.band = 0;
  CHECK(causes_of(links).empty());
}

TEST_CASE("attention has the widest band of the kernels that the model's head sizes take") {
  Scenario scenario = unbanded();
  scenario.model = family_model("gpt", {{"layers", "2"},
                                        {"hidden", "64"},
                                        {"heads", "4"},
                                        {"sequence_length", "32"},
                                        {"vocabulary", "512"},
                                        {"attention", "flash"}});
  settle(scenario.model, Bytes{2}, {});
  scenario.training.precision = Precision::Bf16;
  scenario.cluster.device.peak[Precision::Bf16] = FlopRate{1e12}, scenario.cluster.device.multiprocessors = 4;
  AttentionKernel exact, banded;
  exact.forward.share = exact.backward.share = banded.forward.share = banded.backward.share = 0.5;
  exact.band = 0, banded.band = 0.25, banded.head_size = 16, banded.provenance = Provenance::Published;
  auto& kernels = scenario.cluster.device.efficiency[static_cast<std::size_t>(OperatorKind::Attention)]->kernels;
  const auto known = [&] {
    std::string text;
    for (const RangeSource& each : range_sources(scenario))
      if (each.what.starts_with("attention")) text = each.known;
    return text;
  };
  kernels = {exact, banded};
  CHECK(known() == "+-25 %, published");
  banded.head_size = 256;  // heads of 16 take that of 128
  kernels = {exact, banded};
  CHECK(known().empty());
}

TEST_CASE("what all times of a measured device share is one cause, beside each operation's own errors") {
  Scenario scenario = unbanded();
  MeasuredDevice measured;
  measured.repeat_error = 0.02;
  for (const char* operation : {"linear", "layer_norm", "nobody's"})
    measured.series.emplace_back().operation = operation;
  scenario.cluster.device.measured = std::make_shared<const MeasuredDevice>(measured);
  std::vector<std::string> told;
  for (const RangeSource& each : range_sources(scenario)) {
    told.push_back(each.what);
    if (each.what != "repeated readings of roomy") continue;
    CHECK(each.known == "+-3.29 %, standard error");
    Scenario changed = scenario;
    each.move(changed, 1);
    CHECK(changed.cluster.device.measured->sigmas == -kSigmas90);
    CHECK(changed.cluster.device.measured->sigmas_of.empty());
  }
  REQUIRE(told.size() >= 3);
  CHECK(told[0] == "repeated readings of roomy");
  CHECK(told[1] == "measured times of layer_norm on roomy");
  CHECK(told[2] == "measured times of linear on roomy");
}

TEST_CASE("a step whose interval would be too long for 64 bits has none, and says so") {
  Scenario scenario = unbanded();
  scenario.cluster.device.host.step = Time{kLargest / 4}, scenario.cluster.device.host.band = 0.95;
  const auto told = answer(scenario, {.ignore_memory = true});
  const Report& report = std::get<Answer>(told).report;
  CHECK_FALSE(report.range.has_value());
  CHECK(std::any_of(report.warnings.begin(), report.warnings.end(), [](const std::string& each) {
    return each.starts_with("no 90 % interval: at an end of it a time at the end of its band overflows");
  }));
}
