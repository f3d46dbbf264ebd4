// Cells of an expect: table against values worked out by hand.
#include "planner/reproduce.hpp"

#include <doctest/doctest.h>

#include "io/read/scenario_file.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

// Two equal stages, 1 ms forward and 2 ms backward, free communication: a step takes (M + K - 1) 3 ms = 15 ms for
// M = 4, K = 2; throughput 4 samples / 15 ms; bubble 1/5. 1000 parameters a layer: 4 B weight + 4 B gradient each.
TableResult table_of(const std::string& rows) {
  const Scratch scratch;
  const ScenarioText text{
      .model = "{layers: [{name: a, repeat: 2, forward: 1 ms, backward: 2 ms, activation: 1000 B, parameters: 1000}]}",
      .more = "expect: {table: t, source: s, tolerance: 1 %, reason: r, rows: [" + rows + "]}\n"};
  const ScenarioFile file(scratch.write("x.yaml", text.text()), {});
  const ExpectationTable& table = file.expectations().front();
  const VariantSource variants{
      .scenario = [&](int changes, const std::vector<std::string>& set) { return file.scenario(changes, set); },
      .whole_number = [&](const std::string& key, int changes) { return file.whole_number(key, changes); }};
  return {table.title, table.source, table.note, reproduce(table, "x.yaml", variants)};
}
Cell cell_of(const std::string& row) {
  return table_of(row).cells.at(0);
}

}  // namespace

TEST_CASE("A cell has its figure in its unit, its error, and whether that is near enough") {
  const Cell cell = cell_of("{name: a, quantity: step_time_s, unit: ms, published: 14.9}");
  CHECK(*cell.predicted == doctest::Approx(15));
  CHECK(*cell.error == doctest::Approx(15 / 14.9 - 1));  // 0.67 %
  CHECK(cell.within);
  CHECK_FALSE(cell_of("{name: a, quantity: step_time_s, unit: ms, published: 14.8}").within);  // 1.35 %
  CHECK(cell_of("{name: a, quantity: step_time_s, unit: ms, published: 14.8, tolerance: 0.2}").within);
  CHECK_FALSE(cell_of("{name: a, quantity: step_time_s, unit: ms, published: 14.8, tolerance: 0.19}").within);
}

TEST_CASE("Every quantity is the report's figure") {
  const auto predicted = [](const std::string& quantity) {
    return *cell_of("{name: a, published: 1, quantity: " + quantity + "}").predicted;
  };
  CHECK(predicted("samples_per_s") == doctest::Approx(4 / 0.015));
  CHECK(predicted("samples_per_s_per_device") == doctest::Approx(2 / 0.015));
  CHECK(predicted("bubble_fraction") == doctest::Approx(0.2));
  CHECK(predicted("parameters") == 2000);
  CHECK(predicted("parameters, where: 1") == 1000);
  CHECK(predicted("layers") == 2);
  CHECK(predicted("forward_s, where: 0") == doctest::Approx(0.001));
  CHECK(predicted("backward_s, where: all") == doctest::Approx(0.004));
  CHECK(predicted("memory.weights, where: 0") == 4000);
  CHECK(predicted("memory.training_state, where: all") == 16000);
  // Stage 0 has two micro-batches in flight, stage 1 one with its input boundary: 2 * 1000 B, 1000 + 1000 B.
  CHECK(predicted("memory.stash, where: all") == 4000);
  CHECK(*cell_of("{name: a, published: true, quantity: fits}").predicted == 1);
  CHECK(cell_of("{name: a, published: false, quantity: fits, set: {cluster.node.device.memory: 8000 B}}").within);
}

TEST_CASE("What the scenario says too little for is an error with the row's place") {
  const std::string message = message_of([] { cell_of("{name: a, quantity: tokens_per_s, published: 1}"); });
  CHECK(message.find("give training.sequence_length") != std::string::npos);
  CHECK(message.find("x.yaml:5:") != std::string::npos);
  CHECK(message.find("\"a\" asks for that") != std::string::npos);
  CHECK(message_of([] {
          cell_of("{name: a, quantity: memory.stash, where: 2, published: 1}");
        }).find("there is no stage 2; the plan has 0..1") != std::string::npos);
}

// One stage, M = 4: 4 samples in 4 * 6 ms. Two stages: 24 / 15 = 1.6, which is K M / (M + K - 1) = 8/5 as well.
// 4 B weight + 4 B gradient of 1000 parameters a layer, 1000 B kept per layer and micro-batch: one stage of 1F1B holds
// one micro-batch, n layers need 9000 n B (a stage alone has no input to keep).
TEST_CASE("A capacity is the largest value that fits, and a variant may take it") {
  const std::string one = "set: {plan.stages: 1, cluster.node.device.memory: 50 kB}";
  const Cell cell =
      cell_of("{name: a, quantity: capacity(model.layers.0.repeat), published: 5, tolerance: 0, " + one + "}");
  CHECK(*cell.predicted == 5);
  CHECK(cell.within);
  const Cell batch = cell_of("{name: a, quantity: layers, largest: model.layers.0.repeat, published: 5, " + one + "}");
  CHECK(*batch.predicted == 5);
  CHECK(batch.note == "the largest that fits: model.layers.0.repeat=5");
}

TEST_CASE("A ratio divides by its row, and the bubble bound likewise") {
  const TableResult table = table_of(
      "{name: one, quantity: samples_per_s, ratio_to: one, published: 1, set: {plan.stages: 1}}, "
      "{name: two, quantity: samples_per_s, ratio_to: one, published: 1.5, tolerance: 10 %, baseline: bubble_bound}");
  REQUIRE(table.cells.size() == 2);
  CHECK(table.cells[0].reference);
  CHECK_FALSE(table.cells[0].counts());
  CHECK(*table.cells[1].predicted == doctest::Approx(1.6));
  CHECK(*table.cells[1].baseline == doctest::Approx(1.6));
  CHECK(*table.cells[1].error == doctest::Approx(1.6 / 1.5 - 1));
  CHECK(table.cells[1].within);
}

// 1F1B of two equal stages takes (M + 1) (f + b). Axes: layers 2 and 4 times as long; M = 4 and 8.
TEST_CASE("A box gives every prediction an interval, over its corners and with the nominal one in it") {
  const Scratch scratch;
  const auto cells = [&](const std::string& more) {
    const ScenarioText text{
        .model = "{layers: [{name: a, repeat: 2, forward: 1 ms, backward: 2 ms, activation: 1000 B}]}",
        .more = "expect: {table: t, source: s, tolerance: 50 %, reason: r, quantity: step_time_s, unit: ms, " + more +
                "}\n"};
    const ScenarioFile file(scratch.write("x.yaml", text.text()), {});
    const VariantSource variants{
        .scenario = [&](int changes, const std::vector<std::string>& set) { return file.scenario(changes, set); },
        .whole_number = [&](const std::string& key, int changes) { return file.whole_number(key, changes); }};
    return reproduce(file.expectations().front(), "x.yaml", variants);
  };
  const std::string box =
      "box: [{name: pace, values: [{cost: {uniform: {forward: 2 ms, backward: 4 ms}}}, {cost: {uniform: {forward: 4 "
      "ms, "
      "backward: 8 ms}}}]}, {name: batches, values: [{training.micro_batches: 8}]}], ";
  const std::vector<Cell> all = cells(box + "rows: [{name: a, published: 15}]");
  CHECK(*all.at(0).predicted == doctest::Approx(15));
  CHECK(*all.at(0).lowest == doctest::Approx(15));       // 5 * 3 ms
  CHECK(*all.at(0).highest == doctest::Approx(9 * 12));  // M = 8, four times as long
  // Ratios divide at the same corner: on one stage 6 M ms, so M = 4 gives 15/24 and M = 8 27/48, whatever the pace.
  const std::vector<Cell> ratios =
      cells(box + "rows: [{name: one, set: {plan.stages: 1}}, {name: two, ratio_to: one, published: 0.6}]");
  CHECK(*ratios.at(0).lowest == doctest::Approx(27.0 / 48));
  CHECK(*ratios.at(0).highest == doctest::Approx(15.0 / 24));
  CHECK_FALSE(cells("rows: [{name: a, published: 15}]").at(0).lowest);
}

// Two layers of 1 + 2 ms with 250 MB of weights each, two workers, 1 GB/s. Data parallelism: the first bucket is whole
// after 4 ms, 500 MB times 2 (n-1)/n take 0.5 s: 252 ms a sample. Straight: 3 ms a sample, 84 times as fast.
TEST_CASE("The planner's own plan stands beside the published one: a pipeline where gradients are large") {
  const auto choice_of = [](const std::string& parameters, const std::string& published) {
    const Scratch scratch;
    const ScenarioText text{
        .model = "{layers: [{name: a, repeat: 2, forward: 1 ms, backward: 2 ms, activation: 1000 B, parameters: " +
                 parameters + "}]}",
        .cluster = "{nodes: 1, node: {devices: 2, device: {memory: 64 GiB}, links: {kind: pcie, bandwidth: 1 GB/s}}}",
        .more =
            "expect: {table: t, source: s, tolerance: 50 %, reason: r, quantity: samples_per_s, rows: ["
            "{name: dp, set: {plan: {stages: 1, data_parallel: 2}, training.micro_batches: 1}}, "
            "{name: a, ratio_to: dp, published: 1, search: {plan: {schedule: pipedream}, training.micro_batches: 40}, "
            "set: {" +
            published + "}}]}\n"};
    const ScenarioFile file(scratch.write("x.yaml", text.text()), {});
    const VariantSource variants{
        .scenario = [&](int changes, const std::vector<std::string>& set) { return file.scenario(changes, set); },
        .whole_number = [&](const std::string& key, int changes) { return file.whole_number(key, changes); }};
    return *reproduce(file.expectations().front(), "x.yaml", variants).at(0).choice;
  };
  const std::string straight = "plan: {stages: 2, schedule: pipedream}, training.micro_batches: 40";
  const std::string parallel = "plan: {stages: 1, data_parallel: 2}, training.micro_batches: 1";
  const PlanChoice large = choice_of("62500000", parallel);
  CHECK(large.published == std::vector{2});
  CHECK(large.own == std::vector{1, 1});
  CHECK(large.published_speed == doctest::Approx(1));
  CHECK(large.own_speed == doctest::Approx(84).epsilon(0.01));
  CHECK_FALSE(large.right());
  CHECK_FALSE(large.right_kind());
  CHECK(choice_of("62500000", straight).same());
  // No gradients: both plans compute all the time, data parallelism without a hop.
  const PlanChoice none = choice_of("0", parallel);
  CHECK(none.own == std::vector{2});
  CHECK(none.right());
  const PlanChoice near = choice_of("0", straight);
  CHECK(near.right());
}

// 1.04 * 1.05 = 1.092.
TEST_CASE("A published plan is right where it is the planner's own or within 5 % of it") {
  const PlanChoice near{.published = {15, 1}, .own = {16}, .published_speed = 1.04, .own_speed = 1.09};
  CHECK_FALSE(near.same());
  CHECK(near.right());
  CHECK_FALSE(near.same_kind());
  CHECK(near.right_kind());
  const PlanChoice far{.published = {15, 1}, .own = {9, 1}, .published_speed = 1.04, .own_speed = 1.093};
  CHECK_FALSE(far.right());
  CHECK(far.same_kind());
}

// Published: 1.5 times as fast per epoch, 3 times to the accuracy: half the epochs.
TEST_CASE("Time to accuracy is the predicted speed-up times the published quotient of epochs") {
  const TableResult table = table_of(
      "{name: one, quantity: samples_per_s, set: {plan.stages: 1}}, "
      "{name: two, quantity: samples_per_s, ratio_to: one, published: 1.5, tolerance: 10 %, time_to_accuracy: 3}");
  CHECK(*table.cells.at(0).time_to_accuracy == doctest::Approx(1.6 * 2));
}

// 1.6 predicted: +60 % of 1 (fitted), 0 of 1.6 (counts), -20 % of 2 (known miss); the plan compared with itself is 1.
TEST_CASE("Means over all unfitted rows hold known misses, and those that are 1 by definition where asked for") {
  const std::string two = "quantity: samples_per_s, ratio_to: one, baseline: {value: 3.2, source: s}, published: ";
  const TableResult table = table_of(
      "{name: one, quantity: samples_per_s, set: {plan.stages: 1}}, {name: same, set: {plan.stages: 1}, " + two +
      "1}, {name: a, status: fitted, " + two + "1}, {name: b, " + two + "1.6}, {name: c, status: known_miss, " + two +
      "2}, {name: d, status: inputs_assumed, quantity: samples_per_s, ratio_to: one, published: 5}");
  CHECK(table.cells.at(0).reference);
  const Accuracy accuracy = table.accuracy();
  CHECK(accuracy.cells == 1);
  CHECK(accuracy.all == 2);
  CHECK(*accuracy.mean_of_all == doctest::Approx(0.1));
  CHECK(accuracy.with_references == 3);
  CHECK(*accuracy.mean_with_references == doctest::Approx(0.2 / 3));
  CHECK(accuracy.predicted_baselines == 3);
  CHECK(*accuracy.baseline_of_predicted == doctest::Approx((2.2 + 1 + 0.6) / 3));
  CHECK(*accuracy.beside_predicted == doctest::Approx(0.2 / 3));
  CHECK(accuracy.all_baselines == 4);
  CHECK(*accuracy.beside_all == doctest::Approx(0.8 / 4));
}

TEST_CASE("Baselines: the textbook bubble, the time that follows from a bubble rate, someone's figure") {
  CHECK(*cell_of("{name: a, quantity: bubble_fraction, published: 0.25, baseline: bubble_formula}").baseline ==
        doctest::Approx(0.2));
  // Work of a stage 4 * 3 ms; at half idle 24 ms. Overheads of passes are no work.
  CHECK(*cell_of("{name: a, quantity: step_time_s, unit: ms, published: 1, baseline: {bubble_rate: 0.5}, set: "
                 "{cluster.node.device.launch_overhead: 1 ms}}")
             .baseline == doctest::Approx(24));
  CHECK(*cell_of("{name: a, quantity: samples_per_s, published: 1, baseline: {bubble_rate: 0.5}}").baseline ==
        doctest::Approx(4 / 0.024));
  const Cell stated = cell_of("{name: a, quantity: layers, published: 4, baseline: {value: 3, source: someone}}");
  CHECK(*stated.baseline_error == doctest::Approx(-0.25));
}

TEST_CASE("Only cells without a status count, and a status never makes a miss") {
  const TableResult table = table_of(
      "{name: a, quantity: layers, published: 2}, {name: b, quantity: layers, published: 4}, "
      "{name: c, quantity: layers, published: 8, status: known_miss}, "
      "{name: d, published: 9, status: not_simulated}");
  const Accuracy accuracy = table.accuracy();
  CHECK(accuracy.cells == 2);
  CHECK(accuracy.missed == 1);
  CHECK(*accuracy.mean == doctest::Approx(0.25));  // 0 and -50 %
  CHECK(*accuracy.largest == doctest::Approx(0.5));
  CHECK_FALSE(accuracy.baseline_mean);
  CHECK_FALSE(table.cells[3].predicted);
}

TEST_CASE("A plan that does not fit is timed all the same, and its cell says so") {
  const Cell cell =
      cell_of("{name: a, quantity: step_time_s, unit: ms, published: 15, set: {cluster.node.device.memory: 8000 B}}");
  CHECK(*cell.predicted == doctest::Approx(15));
  CHECK(cell.note.starts_with("does not fit its devices: "));
}

// tau-b: (1, 2, 3) with (1, 3, 2): pairs 12 and 13 in order, 23 reversed: (2 - 1) / 3. Ties in one list leave pairs out
// of its side: (1, 1, 2) with (1, 2, 3): 2 / sqrt(2 * 3).
TEST_CASE("Kendall's tau counts pairs in order against pairs reversed") {
  CHECK(*kendall_tau({1, 2, 3}, {1, 3, 2}) == doctest::Approx(1.0 / 3));
  CHECK(*kendall_tau({1, 2, 3}, {3, 2, 1}) == doctest::Approx(-1));
  CHECK(*kendall_tau({1, 1, 2}, {1, 2, 3}) == doctest::Approx(2 / std::sqrt(6.0)));
  CHECK_FALSE(kendall_tau({1, 2}, {1, 2}));
  CHECK_FALSE(kendall_tau({1, 1, 1}, {1, 2, 3}));
}
