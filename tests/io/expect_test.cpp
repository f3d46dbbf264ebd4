// expect: and vary:, read strictly: what a good block becomes, and the one message of every bad one.
#include <doctest/doctest.h>

#include "io/read/scenario_file.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/texts.hpp"

using namespace pipewright::tests;

namespace {

ScenarioFile file_with(const std::string& more, const ReadOptions& options = {}) {
  const Scratch scratch;
  return ScenarioFile(scratch.write("x.yaml", ScenarioText{.more = more}.text()), options);
}
std::string expect_error(const std::string& more) {
  return error_in(ScenarioText{.more = more});
}
// Errors of one row of an otherwise good table.
std::string row_error(const std::string& row) {
  return expect_error("expect: {table: t, source: s, tolerance: 1 %, reason: r, rows: [" + row + "]}\n");
}
}  // namespace

TEST_CASE("A row takes what it does not say from its table") {
  const ScenarioFile file = file_with(R"(expect:
  table: t
  source: s
  set: {training.micro_batches: 8}
  quantity: step_time_s
  unit: ms
  tolerance: 3 %
  reason: because
  rows:
    - {name: a, published: 12.50}
    - {name: b, published: 0.5, quantity: bubble_fraction, unit: "%", tolerance: 0.05, set: {plan.schedule: gpipe}}
    - {name: c, published: 7, quantity: memory.stash, where: 1, unit: MiB, status: known_miss, reason: other}
)");
  REQUIRE(file.expectations().size() == 1);
  const auto& rows = file.expectations()[0].rows;
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].quantity->figure == Figure::StepTime);
  CHECK(rows[0].unit_size == 1e-3);
  CHECK(rows[0].published == 12.5);
  CHECK(rows[0].published_text == "12.50");
  CHECK(rows[0].tolerance->relative);
  CHECK(rows[0].tolerance->value == doctest::Approx(0.03));
  CHECK(rows[0].reason == "because");
  CHECK(rows[1].unit_size == 0.01);
  CHECK_FALSE(rows[1].tolerance->relative);
  CHECK(rows[1].tolerance->value == 0.05);
  CHECK(rows[2].quantity->of == "stash");
  CHECK(rows[2].quantity->where == Where::Stage);
  CHECK(rows[2].quantity->stage == 1);
  CHECK(rows[2].unit_size == 1048576);
  CHECK(rows[2].status == CellStatus::KnownMiss);
  CHECK(rows[2].reason == "other");
}

TEST_CASE("A variant has the table's changes, then the row's, then those of the command line") {
  const ScenarioFile file = file_with(
      "expect: {table: t, source: s, set: {training.micro_batches: 8, plan.stages: 1}, quantity: step_time_s, "
      "tolerance: 0, rows: [{name: a, published: 1, set: {plan.stages: 2}}, {name: b, published: 1}]}\n",
      {.set = {"training.micro_batch_size=4"}, .config_path = {}});
  const auto& rows = file.expectations()[0].rows;
  const Scenario a = file.scenario(rows[0].changes), b = file.scenario(rows[1].changes, {"plan.schedule=gpipe"});
  CHECK(a.training.micro_batches->value == 8);
  CHECK(a.plan.stages.value == 2);
  CHECK(a.training.micro_batch_size->value == 4);
  CHECK(b.plan.stages.value == 1);
  CHECK(b.plan.schedule.value == "gpipe");
  CHECK(file.scenario().training.micro_batches->value == 4);
}

TEST_CASE("Rows that change the same values share their variant") {
  const ScenarioFile file = file_with(
      "expect: {table: t, source: s, tolerance: 0, rows: [{name: a, set: {plan.stages: 1}, quantity: step_time_s, "
      "published: 1}, {name: b, set: {plan.stages: 1}, quantity: parameters, published: 1}, {name: c, quantity: "
      "layers, "
      "published: 2}]}\n");
  const auto& rows = file.expectations()[0].rows;
  CHECK(rows[0].changes == rows[1].changes);
  CHECK(rows[2].changes == -1);
}

TEST_CASE("A wrong value of a variant is named where it stands") {
  const Scratch scratch;
  const std::string path = scratch.write(
      "x.yaml", ScenarioText{.more = "expect: {table: t, source: s, tolerance: 0, rows: [{name: a, set: {plan.stagez: "
                                     "1}, quantity: layers, published: 2}]}\n"}
                    .text());
  const ScenarioFile file(path, {});
  const std::string message = message_of([&] { file.scenario(0); }, scratch.path(""));
  CHECK(message.starts_with("x.yaml:5:81: unknown key \"plan.stagez\"; did you mean \"stages\"?"));
}

TEST_CASE("A table of expect: must be complete") {
  holds(expect_error("expect: {table: t, source: s}\n"),
        "x.yaml:5:9: expect.rows is missing; write rows: list of rows");
  holds(expect_error("expect: {table: t, rows: []}\n"), "expect.source is missing");
  holds(expect_error("expect: {table: t, source: s, rows: []}\n"), "expect.rows: no rows; a table needs at least one");
  holds(expect_error("expect: {table: t, source: s, row: []}\n"), "unknown key \"expect.row\"; did you mean \"rows\"?");
  holds(expect_error("expect: []\n"), "expect: a list is empty; write a table, or remove the key");
  holds(expect_error("expect: none\n"), "expect: \"none\" where a map is needed");
}

TEST_CASE("A row of expect: must say what it compares, with what, and how near") {
  holds(row_error("{published: 1}"), "expect.rows.0.name is missing");
  holds(row_error("{name: a, published: 1}"), "expect.rows.0.quantity is missing");
  holds(row_error("{name: a, quantity: step_tim_s, published: 1}"),
        "expect.rows.0.quantity: unknown \"step_tim_s\"; did you mean \"step_time_s\"?");
  holds(row_error("{name: a, quantity: memory.weight, published: 1}"),
        "expect.rows.0.quantity: unknown \"weight\"; did you mean \"weights\"? known: weights,");
  holds(row_error("{name: a, quantity: layers, published: 1, unit: GiB}"),
        "expect.rows.0.unit: \"GiB\" is not a unit of layers; write k, M, G, or leave it out");
  holds(row_error("{name: a, quantity: step_time_s, published: 1, unit: GiB}"),
        "\"GiB\" is not a unit of step_time_s; write ns, us, ms, s, min, h");
  holds(row_error("{name: a, quantity: layers, published: two}"), "expect.rows.0.published: \"two\"");
  holds(row_error("{name: a, quantity: layers, published: true}"), ".published: true where a number is needed");
  holds(row_error("{name: a, quantity: fits, published: 1}"), ".published: 1 where true or false is needed");
  holds(row_error("{name: a, quantity: layers, published: 1, tolerance: near}"),
        "\"near\" is not a tolerance; write a");
  holds(row_error("{name: a, quantity: layers, published: 1, tolerance: -1 %}"),
        "\"-1 %\" is not a tolerance; write a");
  holds(row_error("{name: a, quantity: layers, published: 0}"), "a share of the published 0 is always 0");
  holds(row_error("{name: a, quantity: layers, published: 1, status: good}"),
        "unknown \"good\"; known: compared, fitted");
  holds(row_error("{name: a, quantity: layers, published: 1, where: 1}"),
        "expect.rows.0.where: layers is of the whole run, not of a stage; leave `where` out");
  holds(row_error("{name: a, quantity: memory.total, published: 1, where: middle}"),
        "\"middle\" is not a place; write fullest, all, last or the number of a stage");
  const std::string bare = "expect: {table: t, source: s, rows: [{name: a, quantity: layers, published: 1";
  holds(expect_error(bare + "}]}\n"), "expect.rows.0.tolerance is missing; write a share (3 %) or an amount");
  holds(expect_error(bare + ", tolerance: 1}]}\n"),
        "expect.rows.0.reason is missing; say why this tolerance, or this status");
  holds(expect_error(bare + ", tolerance: 0, status: fitted}]}\n"), "expect.rows.0.reason is missing");
  CHECK(expect_error(bare + ", tolerance: 0}]}\n") == "");
}

TEST_CASE("Ratios name a row of their table, of the same quantity, that is no other ratio") {
  const std::string base = "{name: a, quantity: samples_per_s}, ";
  CHECK(row_error(base + "{name: b, quantity: samples_per_s, ratio_to: a, published: 2}") == "");
  CHECK(row_error("{name: a, quantity: samples_per_s, ratio_to: a, published: 1}") == "");
  holds(row_error(base + "{name: b, quantity: samples_per_s, ratio_to: x, published: 2}"),
        "ratio_to: unknown \"x\"; did you mean \"a\"? known: a, b");
  holds(row_error(base + "{name: b, quantity: step_time_s, ratio_to: a, published: 2}"), "is another quantity");
  holds(row_error(base + "{name: b, quantity: samples_per_s, ratio_to: a}"), "is a ratio without a published figure");
  holds(row_error(base + "{name: b, quantity: samples_per_s, ratio_to: a, published: 2}, {name: c, quantity: "
                         "samples_per_s, ratio_to: b, published: 3}"),
        "ratio_to: \"b\" is a ratio itself");
  holds(row_error(base + "{name: b, quantity: samples_per_s, ratio_to: a, published: 2, unit: k}"),
        "\"k\" with ratio_to; a ratio has no unit");
  holds(row_error("{name: a, quantity: layers}"), "\"a\" has no published figure and no row is a ratio to it");
  holds(row_error("{name: a, quantity: layers, published: 1}, {name: a, quantity: layers, published: 1}"),
        "a row \"a\" stands above already; give each its own name");
}

TEST_CASE("A baseline must be one of the quantity's") {
  const auto with = [](const std::string& quantity, const std::string& baseline) {
    return row_error("{name: a, quantity: " + quantity + ", published: 1, baseline: " + baseline + "}");
  };
  holds(with("layers", "best"), "\"best\" is not a baseline; write none | bubble_bound");
  holds(with("layers", "bubble_formula"), "bubble_formula gives a bubble");
  holds(with("samples_per_s", "bubble_bound"), "bubble_bound is a ratio of throughputs; it needs ratio_to");
  holds(with("layers", "{bubble_rate: 0.2}"), "bubble_rate gives a time or a throughput");
  holds(with("step_time_s", "{bubble_rate: 1}"), "\"1\" is not a share of idle time; write 0 or more, less than 1");
  holds(with("step_time_s", "{value: 1}"), "baseline.source is missing");
  holds(with("step_time_s", "{rate: 1}"), "unknown key \"expect.rows.0.baseline.rate\"");
  CHECK(with("step_time_s", "{value: 1, source: someone}") == "");
}

TEST_CASE("A box has axes with names and values, and every row its points") {
  const ScenarioFile file = file_with(R"(expect:
  table: t
  source: s
  quantity: step_time_s
  tolerance: 3 %
  reason: because
  box:
    - {name: schedule, values: [{plan.schedule: gpipe}]}
    - {name: batches, values: [{training.micro_batches: 8}, {training.micro_batches: 16}]}
  rows:
    - {name: a, published: 1, set: {training.micro_batches: 2}}
)");
  const ExpectationTable& table = file.expectations()[0];
  CHECK(table.box == std::vector<std::string>{"schedule", "batches"});
  REQUIRE(table.rows[0].box.size() == 4);  // nominal and gpipe, each with 8 and 16
  CHECK(file.scenario(table.rows[0].box[0]).training.micro_batches->value == 8);
  CHECK(file.scenario(table.rows[0].box[2]).plan.schedule.value == "gpipe");
  CHECK(file.scenario(table.rows[0].box[3]).training.micro_batches->value == 16);
  const auto boxed = [](const std::string& box) {
    return expect_error("expect: {table: t, source: s, quantity: step_time_s, tolerance: 1 %, reason: r, box: " + box +
                        ", rows: [{name: a, published: 1}]}\n");
  };
  holds(boxed("[{name: x}]"), "values is missing");
  holds(boxed("[{values: [{plan.stages: 2}]}]"), "name is missing");
  holds(boxed("[{name: x, values: {plan.stages: 2}}]"), "a list of maps");
  holds(boxed("[{name: x, values: [{expect.table: 2}]}]"), "cannot be changed");
  holds(row_error("{name: a, quantity: step_time_s, published: 1, time_to_accuracy: 2}"), "needs ratio_to");
  holds(row_error("{name: a, quantity: step_time_s, published: 1, search: {plan.stages: 1}}"), "needs samples_per_s");
}

TEST_CASE("Changes are keys of the scenario") {
  holds(row_error("{name: a, quantity: layers, published: 1, set: 4}"), "a map of keys and values");
  holds(row_error("{name: a, quantity: layers, published: 1, set: {plan..stages: 4}}"),
        "expect.rows.0.set: \"plan..stages\" is not a key; write e.g. plan.stages");
  holds(row_error("{name: a, quantity: layers, published: 1, set: {expect.table: x}}"),
        "\"expect.table\" cannot be changed by the block that asks for it");
}

TEST_CASE("vary: of several keys is every combination, the last key fastest") {
  const ScenarioFile file = file_with("vary: {plan.stages: [1, 2], training.micro_batches: [4, 8, 16]}\n");
  REQUIRE(file.varied().size() == 6);
  CHECK(file.varied()[1].values ==
        std::vector<std::pair<std::string, std::string>>{{"plan.stages", "1"}, {"training.micro_batches", "8"}});
  CHECK(file.scenario(file.varied()[5].changes).plan.stages.value == 2);
  CHECK(file.scenario(file.varied()[5].changes).training.micro_batches->value == 16);
}

TEST_CASE("vary: as a list sets several values together") {
  const ScenarioFile file = file_with("vary: [{plan.stages: 1}, {plan.stages: 2, plan.partition: {layers: [1, 1]}}]\n");
  REQUIRE(file.varied().size() == 2);
  CHECK(file.varied()[1].values[1].second == "{layers: [1, 1]}");
  CHECK(file.scenario(file.varied()[1].changes).plan.stages.value == 2);
}

TEST_CASE("A vary: that varies nothing is refused") {
  holds(expect_error("vary: {}\n"), "vary: a map says nothing to vary; write e.g. {plan.stages: [1, 8, 32]}");
  holds(expect_error("vary: []\n"), "vary: a list says nothing to vary");
  holds(expect_error("vary: 3\n"), "vary: \"3\" says nothing to vary");
  holds(expect_error("vary: {plan.stages: 3}\n"),
        "vary.plan.stages: \"3\" where a list of values, e.g. [1, 8, 32] is needed");
  holds(expect_error("vary: {plan.stages: []}\n"), "vary.plan.stages: a list is empty; write at least one value");
  holds(expect_error("vary: [{}]\n"), "vary.0: a map sets nothing; write e.g. {plan.stages: 8}");
  holds(expect_error("vary: [3]\n"), "vary.0: \"3\" where a map of keys and values");
  std::string many = "[1";
  for (int i = 0; i < 200; ++i)
    many += ", 1";
  holds(expect_error("vary: {plan.stages: " + many + "], plan.bucket: " + many + "]}\n"),
        "vary: more than 10000 combinations; vary fewer values");
}
