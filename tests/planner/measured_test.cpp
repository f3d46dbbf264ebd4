// Measured runs against predictions: averages and ranking worked out by hand, and a fit that must find a known constant.
#include "planner/measured.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <doctest/doctest.h>

#include "core/model/layer_builder.hpp"
#include "planner/figures.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "tests/support/uniform_scenario.hpp"

using namespace pipewright::tests;

namespace {

MeasuredTable table() {
  MeasuredTable table;
  table.files = {{"one", "a.csv"}, {"more", "b.csv"}};
  table.columns = {{"model.layers", {"layers"}, {}, ""}, {"plan.stages", {"K"}, {}, ""}};
  table.figures = {{"time", {.text = "step_time_s", .figure = Figure::StepTime}, "t", 1}};
  table.devices = "n";
  return table;
}

// Measured 1 s, predicted with this error.
PredictedRun run(int line, std::int64_t layers, std::int64_t stages, double error, const std::string& group = "one") {
  PredictedRun result;
  result.run.group = group, result.run.place = {"a.csv", line, 1};
  result.run.values = {std::to_string(layers), std::to_string(stages)};
  result.run.devices = 4, result.run.figures = {1};
  result.figures = {1 + error};
  return result;
}

// K stages of one layer each, forward f and backward 2 f, M = 2: (K + 1) 3 f. "t=..." sets f in microseconds.
ScenarioOf uniform() {
  return [](const std::vector<std::string>& set) {
    UniformScenario shape{.layers = 1, .devices = 8, .stages = 1, .micro_batches = 2};
    for (const std::string& each : set) {
      const double value = std::atof(each.substr(each.find('=') + 1).c_str());
      if (each.starts_with("plan.stages")) shape.stages = shape.layers = static_cast<int>(value);
      if (each.starts_with("t=")) shape.forward = Time{static_cast<std::int64_t>(value * 1e3)};
    }
    shape.backward = Time{2 * shape.forward.value};
    return uniform_scenario(shape);
  };
}
MeasuredRun measured(std::int64_t stages, double seconds, bool fitted = false) {
  MeasuredRun run;
  run.group = "one", run.place = {"a.csv", 2, 1};
  run.values = {std::to_string(stages), std::to_string(stages)};
  run.set = {"plan.stages=" + std::to_string(stages)};
  run.devices = stages, run.figures = {seconds}, run.fitted = fitted;
  return run;
}

}  // namespace

TEST_CASE("Averages of magnitudes, the bias with signs, without the runs that were fitted on") {
  std::vector<PredictedRun> runs = {run(2, 8, 1, -0.02), run(3, 8, 2, 0.01), run(4, 8, 2, 0.06, "more"),
                                    run(5, 8, 2, 9)};
  runs.back().run.fitted = true;
  const auto summaries = error_summaries(table(), runs);
  REQUIRE(summaries.size() == 5);  // all, two groups, K = 1, K = 2; layers are no layout
  CHECK(summaries[0].runs == 3);
  CHECK(summaries[0].mean == doctest::Approx(0.03));
  CHECK(summaries[0].median == doctest::Approx(0.02));
  CHECK(summaries[0].largest == doctest::Approx(0.06));
  CHECK(summaries[0].bias == doctest::Approx(0.05 / 3));
  CHECK(summaries[1].median == doctest::Approx(0.015));  // of an even number: the middle of two
  CHECK(summaries[1].runs + summaries[2].runs == 3);
  CHECK(summaries[3].runs + summaries[4].runs == 3);
  CHECK(summaries[4].of == "2");
}

TEST_CASE("The share of rows in their 90 % interval, and the median of its half-widths, of rows that have one") {
  // Measured 1 s: in 0.9..1.2 and 0.8..1.0, not in 1.1..1.3; the last has no interval, and the fourth is fitted on.
  std::vector<PredictedRun> runs = {run(2, 8, 1, 0.05), run(3, 8, 1, -0.1), run(4, 8, 1, 0.25), run(5, 8, 1, 0.5),
                                    run(6, 8, 1, 0)};
  runs[0].ranges = {FigureRange{0.9, 1.2}}, runs[1].ranges = {FigureRange{0.8, 1.0}};
  runs[2].ranges = {FigureRange{1.1, 1.3}}, runs[3].ranges = {FigureRange{1.4, 1.6}};
  runs[3].run.fitted = true;
  const ErrorSummary all = error_summaries(table(), runs).at(0);
  CHECK(all.runs == 4);
  CHECK(all.ranged == 3);
  CHECK(all.inside == doctest::Approx(2.0 / 3));
  CHECK(all.half_width == doctest::Approx(0.1 / 0.9));  // of 0.15/1.05, 0.1/0.9 and 0.1/1.25
}

TEST_CASE("What the model would have to leave out for every fifth line to lie inside its interval") {
  // Predicted 1 s, 0.9 to 1.2 s, measured 1.3, 1.1 and 0.8 s; line 6 is none of the fifth lines.
  std::vector<PredictedRun> runs = {run(5, 8, 1, 0), run(10, 8, 1, 0), run(15, 8, 1, 0), run(6, 8, 1, 0)};
  for (PredictedRun& each : runs)
    each.ranges = {FigureRange{0.9, 1.2}};
  runs[0].run.figures = {1.3}, runs[1].run.figures = {1.1}, runs[2].run.figures = {0.8}, runs[3].run.figures = {9};
  const std::vector<double> needed = left_out_needed(table(), runs);
  REQUIRE(needed.size() == 3);
  CHECK(needed[0] == 0);
  CHECK(needed[1] == doctest::Approx(std::exp(std::sqrt(0.068835 - 0.033241 + 0.005923)) - 1).epsilon(1e-4));
  CHECK(needed[2] == doctest::Approx(std::exp(std::sqrt(0.049793 - 0.011101 + 0.005923)) - 1).epsilon(1e-4));
  runs[2].from_operators = false;  // a profile's interval has no such part
  CHECK(left_out_needed(table(), runs).size() == 2);
}

TEST_CASE("Times have the interval of the step, rates its inverse, and other figures none") {
  const Scenario scenario = uniform()({"plan.stages=1", "t=1000"});
  const CostModel cost(scenario);
  const Answer answer = price(find_plan(scenario, cost), cost, Engine::Auto);
  REQUIRE(answer.report.step_time == Time{6'000'000});
  const std::optional<SpeedRange> range = SpeedRange{.fastest = Time{5'000'000}, .slowest = Time{7'500'000}};
  const auto of = [&](Figure figure, double value) { return range_of(answer, {.figure = figure}, value, range); };
  CHECK(of(Figure::StepTime, 0.006)->low == doctest::Approx(0.005));
  CHECK(of(Figure::StepTime, 0.006)->high == doctest::Approx(0.0075));
  CHECK(of(Figure::SamplesPerS, 100)->low == doctest::Approx(80));
  CHECK(of(Figure::SamplesPerS, 100)->high == doctest::Approx(120));
  CHECK_FALSE(of(Figure::BubbleFraction, 0.1).has_value());
  CHECK_FALSE(range_of(answer, {.figure = Figure::StepTime}, 0.006, std::nullopt).has_value());
}

TEST_CASE("Of each model the layout predicted fastest, beside the one measured fastest") {
  // Measured 1, 1.02 and 1.5 s; predicted 2, 1 and 3 s: the second is ranked first, 2 % slower than the first.
  std::vector<PredictedRun> runs = {run(2, 8, 1, 1), run(3, 8, 2, 0), run(4, 8, 4, 2), run(5, 9, 1, 0)};
  runs[1].run.figures = {1.02}, runs[2].run.figures = {1.5};
  auto groups = ranking(table(), runs);
  REQUIRE(groups.size() == 1);  // nine layers: one run only
  CHECK(groups[0].runs == 3);
  CHECK(groups[0].place.line == 3);
  CHECK(groups[0].fastest.line == 2);
  CHECK(groups[0].excess == doctest::Approx(0.02));
  runs[0].run.fitted = true;
  groups = ranking(table(), runs);
  CHECK(groups[0].runs == 2);
  CHECK(groups[0].excess == doctest::Approx(0));
}

TEST_CASE("A run is priced as a scenario of its own: (M + K - 1) 3 ms") {
  const auto runs = predict(table(), {measured(1, 0.006), measured(3, 0.01)}, uniform());
  CHECK(runs[0].figures.at(0).value() == doctest::Approx(0.006));
  CHECK(runs[0].error(0).value() == doctest::Approx(0));
  CHECK(runs[1].error(0).value() == doctest::Approx(0.2));
}

TEST_CASE("A line whose layout takes other devices than it says is not priced, and says why") {
  MeasuredRun wrong = measured(2, 1);
  wrong.devices = 4;
  const auto runs = predict(table(), {wrong}, uniform());
  CHECK(runs[0].run.state == RunState::Unpriced);
  CHECK(runs[0].run.why == "n: 4, but the layout takes 2");
  CHECK_FALSE(runs[0].error(0).has_value());
  wrong.fitted = true;
  MeasuredTable fitted = table();
  fitted.constants = {{.key = "t", .unit = "us", .expected = 1000, .factor = 4}};
  CHECK_THROWS_AS(fit(fitted, {wrong}, uniform()), InputError);
}

TEST_CASE("A figure of a stage that the plan does not have is left out, and one that was measured is reported") {
  MeasuredTable staged = table();
  staged.figures.push_back({"second stage",
                            {.text = "forward_s", .figure = Figure::ForwardTime, .where = Where::Stage, .stage = 1},
                            "f",
                            1});
  MeasuredRun one = measured(1, 0.006), two = measured(2, 0.009);
  one.figures.emplace_back(), two.figures.emplace_back(0.002);
  const auto runs = predict(staged, {one, two}, uniform());
  CHECK(runs[0].run.state == RunState::Compared);
  CHECK_FALSE(runs[0].figures.at(1).has_value());
  CHECK_FALSE(runs[0].range(1).has_value());
  CHECK_FALSE(runs[0].error(1).has_value());
  CHECK(runs[1].error(1).value() == doctest::Approx(-0.5));  // 1 ms
  const auto summaries = error_summaries(staged, runs);
  CHECK(std::count_if(summaries.begin(), summaries.end(), [](const ErrorSummary& each) {
          return each.figure == "second stage" && each.split.empty() && each.runs == 1;
        }) == 1);
  one.figures.at(1) = 0.002;
  const auto wrong = predict(staged, {one}, uniform());
  CHECK(wrong[0].run.state == RunState::Unpriced);
  CHECK(wrong[0].run.why == "where: there is no stage 1; the plan has 0..0");
}

TEST_CASE("What became of the rows: compared, fitted on, failed, left out, missing by key") {
  MeasuredRun failed = measured(2, 1), missing = measured(2, 1), left = measured(2, 1);
  failed.state = RunState::Failed, failed.figures.clear();
  missing.state = RunState::Missing, missing.why = "plan.fsdp";
  left.state = RunState::LeftOut, left.why = "doubtful";
  MeasuredRun other = missing;
  other.why = "plan.context_parallel";
  const auto counts = row_counts(
      table(),
      predict(table(), {measured(1, 1), measured(1, 1, true), failed, other, missing, missing, left}, uniform()));
  CHECK(counts.rows == 7);
  CHECK(counts.compared == 1);
  CHECK(counts.compared_fit == 1);
  CHECK(counts.fitted == 1);
  CHECK(counts.failed == 1);
  CHECK(counts.failed_fit == 1);
  REQUIRE(counts.missing.size() == 2);
  CHECK(counts.missing[0] == std::pair<std::string, int>{"plan.fsdp", 2});
  CHECK(counts.left_out.at(0).second == 1);
}

TEST_CASE("Of each subset with failed runs, who ran, who did not, and who is predicted to fit") {
  MeasuredTable with = table();
  with.subsets = {{{{}}, "some failed"}, {{{}}, "all ran"}};
  const auto in = [](PredictedRun run, bool first, bool second, bool fits, RunState state = RunState::Compared) {
    run.run.in_subset = {first, second}, run.fits = fits, run.run.state = state;
    return run;
  };
  std::vector<PredictedRun> runs = {in(run(2, 8, 1, 0), true, true, true), in(run(3, 8, 1, 0), true, false, false),
                                    in(run(4, 8, 1, 0), true, false, true, RunState::Failed),
                                    in(run(5, 8, 1, 0), true, false, false, RunState::Failed),
                                    in(run(6, 8, 1, 0), true, false, true)};
  runs.back().run.fitted = true;  // no prediction
  const auto counts = row_counts(with, runs).subsets;
  REQUIRE(counts.size() == 1);
  CHECK(counts[0].of == "some failed");
  CHECK(std::vector<int>{counts[0].compared, counts[0].compared_fit, counts[0].failed, counts[0].failed_fit} ==
        std::vector<int>{2, 1, 2, 1});
}

TEST_CASE("weak scaling: the speed on the most devices over that on the least, in the mean of runs alike") {
  MeasuredTable with = table();
  with.weak_scaling = {"model"}, with.weak_batch = "batch";
  const auto on = [](std::int64_t devices, double time, double error, const char* model) {
    PredictedRun each = run(2, 8, 1, 0);
    each.run.devices = devices, each.run.series = {model, "2/1"};
    each.run.figures = {time}, each.figures = {time * (1 + error)};
    return each;
  };
  std::vector<PredictedRun> runs = {on(8, 1, 0, "8B"), on(64, 1.2, 0, "8B"), on(64, 1.3, 0.2, "8B"),
                                    on(16, 9, 0.5, "8B"), on(8, 3, 0, "70B")};
  const auto series = weak_scaling(with, runs);
  REQUIRE(series.size() == 1);  // 70B ran on one number of devices
  CHECK(series[0].of == "8B");
  CHECK(series[0].least == 8);
  CHECK(series[0].most == 64);
  CHECK(series[0].measured == doctest::Approx(0.8));
  CHECK(series[0].predicted == doctest::Approx(1 / 1.38));
  with.figures[0].sought.figure = Figure::SamplesPerSDevice;
  CHECK(weak_scaling(with, runs).at(0).measured == doctest::Approx(1.25));
  runs[1].run.series = runs[2].run.series = {"8B", "1/4"};  // with less work on each
  CHECK(weak_scaling(with, runs).at(0).most == 16);
  runs[3].run.series.clear();  // a row of no series
  CHECK(weak_scaling(with, runs).empty());
  with.weak_scaling.clear();
  CHECK(weak_scaling(with, runs).empty());
}

TEST_CASE("Of a rate, more is faster") {
  MeasuredTable rates = table();
  rates.figures[0].sought.figure = Figure::SamplesPerS;
  std::vector<PredictedRun> runs = {run(2, 8, 1, 0), run(3, 8, 2, 0)};
  runs[1].run.figures = {2}, runs[1].figures = {3};
  CHECK(ranking(rates, runs).at(0).place.line == 3);
  CHECK(ranking(table(), runs).at(0).place.line == 2);
  // Of memory, nothing is ranked.
  MeasuredTable memory = table();
  memory.figures[0].sought.figure = Figure::Memory;
  CHECK(ranking(memory, runs).empty());
}

TEST_CASE("Rows of micro-batches of other sizes have another batch, if they state how many there are") {
  MeasuredTable by_count = table();
  by_count.columns[1].key = "training.micro_batch_size";
  const std::vector<PredictedRun> runs = {run(2, 8, 1, 0), run(3, 8, 2, 0)};  // sizes 1 and 2
  CHECK(ranking(by_count, runs).size() == 1);
  by_count.columns[0].key = "training.micro_batches";
  CHECK(ranking(by_count, runs).empty());
}

TEST_CASE("Errors by figure, subset, text of a column and value of a key") {
  MeasuredTable two = table();
  two.by = {"device"};
  two.figures.push_back({"memory", {.text = "memory.total", .figure = Figure::Memory}, "m", 1});
  two.subsets = {{{{}}, "some"}};
  std::vector<PredictedRun> runs = {run(2, 8, 10, 0.1), run(3, 8, 2, 0.3)};
  runs[0].run.in_subset = {true}, runs[1].run.in_subset = {false};
  runs[0].run.by = {"a100"}, runs[1].run.by = {""};
  runs[0].run.figures.push_back(std::nullopt), runs[0].figures.push_back(7);
  runs[1].run.figures.push_back(4), runs[1].figures.push_back(5);
  const auto summaries = error_summaries(two, runs);
  REQUIRE(summaries.size() == 9);  // time: all, some, one, no device, a100, K = 2, K = 10; memory: all, one
  CHECK(summaries[1].of == "some");
  CHECK(summaries[1].mean == doctest::Approx(0.1));
  CHECK(summaries[3].of == "-");
  CHECK(summaries[4].split == "device");
  CHECK(summaries[4].of == "a100");
  CHECK(summaries[4].mean == doctest::Approx(0.1));
  CHECK(summaries[5].of == "2");
  CHECK(summaries[6].of == "10");
  CHECK(summaries[7].figure == "memory");
  CHECK(summaries[7].mean == doctest::Approx(0.25));
}

TEST_CASE("A fit finds the constant that the runs were made with, and keeps what they do not tell") {
  MeasuredTable fitted = table();
  fitted.fit_every = 2;
  fitted.constants = {{.key = "t", .unit = "us", .expected = 1000, .factor = 4},
                      {.key = "nobody", .expected = 7, .factor = 2}};
  fitted.noise = 0.01;
  // Made with f = 1500 us: 9 ms for K = 1, 18 ms for K = 3. The run that is not fitted on says something else.
  const std::vector<MeasuredRun> runs = {measured(1, 0.009, true), measured(3, 0.018, true), measured(2, 99)};
  const Fit found = fit(fitted, runs, uniform());
  CHECK(std::atof(found.values[0].c_str()) == doctest::Approx(1500).epsilon(0.003));
  CHECK(found.values[1] == "7");
  CHECK(fit(fitted, runs, uniform()).values == found.values);
}

TEST_CASE("Runs have 90 % intervals unless they are not asked for") {
  const std::vector<MeasuredRun> runs = {measured(1, 0.006)};
  const ScenarioOf operators = [](const std::vector<std::string>& set) {
    Scenario scenario = uniform()(set);
    LayerBuilder b;
    scenario.model.works = {b.finish({b.linear(b.input({16, 4}), {.features = 4, .bias = false})})};
    scenario.model.layers = {{.name = "one", .work = 0}};
    scenario.model.input_amount = {.values = 64};
    settle(scenario.model, Bytes{4}, {});
    scenario.cost = CostSourceKind::Roofline;
    Device& device = scenario.cluster.device;
    device.peak[Precision::Fp32] = FlopRate{1e9}, device.memory_bandwidth = Bandwidth{1e9};
    device.host.operation = Time{20'000}, device.host.band = 0.3;
    return scenario;
  };
  const PredictedRun with = predict(table(), runs, operators).at(0);
  const PredictedRun without = predict(table(), runs, operators, {}, false).at(0);
  CHECK(with.range(0).has_value());
  CHECK(with.from_operators);
  CHECK_FALSE(predict(table(), runs, uniform()).at(0).from_operators);  // stated times
  CHECK(without.figures == with.figures);
  CHECK(without.ranges.empty());
}

TEST_CASE("What a run counts where some may be faulty") {
  MeasuredTable asked = table();
  asked.constants = {{.key = "nobody", .expected = 7, .factor = 2}};
  asked.faulty = 0.1, asked.noise = 0.1;
  const auto counts = [&](double factor) { return fit(asked, {measured(1, 0.006 * factor, true)}, uniform()).loss; };
  CHECK(counts(1.1) == doctest::Approx(1.08).epsilon(0.005));  // off 0.953: -2 ln(0.9 exp(-0.4542) + 0.01)
  CHECK(counts(10) == doctest::Approx(9.21).epsilon(0.0005));
  CHECK(counts(100) == doctest::Approx(9.21).epsilon(0.0005));
}

TEST_CASE("Where some runs may be faulty the fit goes by the others") {
  MeasuredTable asked = table();
  asked.constants = {{.key = "t", .unit = "us", .expected = 3000, .factor = 3}};
  // K = 1, 2, 3 with 2 ms per forward: 12, 18, 24 ms; the run with 4 stages took ten times its 30 ms.
  const std::vector<MeasuredRun> runs = {measured(1, 0.012, true), measured(2, 0.018, true), measured(3, 0.024, true),
                                         measured(4, 0.3, true)};
  asked.faulty = 0.1;
  CHECK(std::atof(fit(asked, runs, uniform()).values[0].c_str()) == doctest::Approx(2000).epsilon(0.01));
  asked.faulty = 0;
  CHECK(std::atof(fit(asked, runs, uniform()).values[0].c_str()) > 3000);
}

TEST_CASE("Between a run and what is expected the fit takes the middle that their spreads give") {
  // One run says f = 1100, the expectation 1000, equally sure (noise = ln factor): the geometric mean, 1048.8.
  MeasuredTable fitted = table();
  fitted.constants = {{.key = "t", .unit = "us", .expected = 1000, .factor = 1.0512710963760240}};
  fitted.noise = 0.05;
  const Fit found = fit(fitted, {measured(1, 0.0066, true)}, uniform());
  CHECK(std::atof(found.values[0].c_str()) == doctest::Approx(1048.8).epsilon(0.003));
  fitted.constants[0].most = 1020;
  CHECK(std::atof(fit(fitted, {measured(1, 0.0066, true)}, uniform()).values[0].c_str()) <= 1020);
}
