// Sweep files, read strictly: the points of a good one, and the one message of every bad one.
#include <doctest/doctest.h>

#include "io/read/read_sweep.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/texts.hpp"

using namespace pipewright::tests;

namespace {

struct Written {
  Scratch scratch;
  std::string path;
  explicit Written(const std::string& sweep, const std::string& base = ScenarioText{}.text()) {
    scratch.write("base.yaml", base);
    path = scratch.write("s.yaml", sweep);
  }
  SweepFile file() const { return SweepFile(path, {}); }
};

std::string sweep_error(const std::string& sweep) {
  const Written written(sweep);
  return message_of([&] { written.file(); }, written.scratch.path(""));
}
}  // namespace

TEST_CASE("Points: variants in file order, the last key of the grid fastest") {
  const Written written(R"(sweep:
  base: base.yaml
  variants:
    one: {plan.stages: 1}
    two: {plan.stages: 2}
  baseline: two
  grid:
    training.micro_batches: [1, 2]
    training.micro_batch_size: [3, 4, 5]
)");
  const SweepFile file = written.file();
  const SweepQuestion& question = file.question();
  REQUIRE(question.points() == 12);
  CHECK(question.variants == std::vector<std::string>{"one", "two"});
  CHECK(question.baseline == 1);
  PointReader reader(file.base());
  std::vector<std::int64_t> sizes;
  for (std::int64_t point = 0; point < 12; ++point) {
    const Scenario& scenario = reader.read(file.changes(point));
    CHECK(scenario.plan.stages.value == (point < 6 ? 1 : 2));
    CHECK(scenario.training.micro_batches->value == (point % 6 < 3 ? 1 : 2));
    sizes.push_back(scenario.training.micro_batch_size->value);
  }
  CHECK(sizes == std::vector<std::int64_t>{3, 4, 5, 3, 4, 5, 3, 4, 5, 3, 4, 5});
  CHECK(question.baseline_of(1) == 7);
  CHECK(question.baseline_of(7) == 7);
}

TEST_CASE("A number of points that leaves 64 bits is an error, whether of the grid or with the variants") {
  SweepQuestion question{.variants = {"a", "b", "c"}};
  for (int i = 0; i < 31; ++i)  // 2^62 combinations: within 64 bits, three times as many are not
    question.axes.push_back({"k" + std::to_string(i), {"1", "2", "3", "4"}, {}});
  CHECK(question.combinations() == std::int64_t{1} << 62);
  holds(message_of([&] { question.points(); }), "the number of points of a sweep");
  question.axes.push_back({"k", {"1", "2"}, {}});
  holds(message_of([&] { question.points(); }), "the number of its points");
}

TEST_CASE("The base stands beside the variants, unless one of them has its name or is the baseline") {
  const auto variants = [](const std::string& text) {
    return Written("sweep: {base: base.yaml, " + text + "}\n").file().question().variants;
  };
  using Names = std::vector<std::string>;
  CHECK(variants("variants: {a: {plan.stages: 1}}") == Names{"base", "a"});
  CHECK(variants("variants: {a: {plan.stages: 1}, b: {}}, baseline: b") == Names{"a", "b"});
  CHECK(variants("variants: {a: {plan.stages: 1}, base: {training.micro_batches: 2}}") == Names{"a", "base"});
  CHECK(variants("grid: {plan.stages: [1, 2]}") == Names{"base"});
}

TEST_CASE("A base is looked for beside the sweep file, and its variants may change what it names") {
  const Written written("sweep: {base: base.yaml, grid: {cluster.node.device.memory: [8 GiB, 16 GiB]}}\n");
  const SweepFile file = written.file();
  PointReader reader(file.base());
  CHECK(reader.read(file.changes(0)).cluster.device.memory == Bytes{std::int64_t{8} << 30});
  CHECK(reader.read(file.changes(1)).cluster.device.memory == Bytes{std::int64_t{16} << 30});
}

TEST_CASE("Every bad sweep has one message with its place and a way out") {
  holds(sweep_error("sweep: {base: base.yaml, grdi: {plan.stages: [1]}}\n"),
        "s.yaml:1:26: unknown key \"sweep.grdi\"; did you mean \"grid\"?");
  holds(sweep_error("sweep: {base: base.yaml, grid: {tp: [1, 2]}}\n"),
        "s.yaml:1:33: sweep.grid: unknown \"tp\"; use plan.tensor_parallel");
  holds(sweep_error("sweep: {base: base.yaml, grid: {plan.cp: [1, 2]}}\n"),
        "unknown key \"plan.cp\"; use plan.context_parallel");
  holds(sweep_error("sweep: {grid: {plan.stages: [1]}}\n"), "s.yaml:1:8: sweep.base is missing");
  holds(sweep_error("sweep: {base: base.yaml}\n"), "nothing varies: write variants: or grid:");
  holds(sweep_error("sweep: {base: base.yaml, grid: {}}\n"), "sweep.grid: a map is empty; write e.g.");
  holds(sweep_error("sweep: {base: base.yaml, grid: {plan.stages: []}}\n"), "sweep.grid.plan.stages: a list is empty");
  holds(sweep_error("sweep: {base: base.yaml, grid: {plan.stages: 4}}\n"), "\"4\" where a list of values");
  holds(sweep_error("sweep: {base: base.yaml, grid: {plan.stages: [1, 2, 1]}}\n"), "\"1\" is in the list twice");
  holds(sweep_error("sweep: {base: base.yaml, grid: [plan.stages]}\n"), "a list where a map of keys and lists");
  holds(sweep_error("sweep: {base: base.yaml, variants: {}}\n"), "names no variant");
  holds(sweep_error("sweep: {base: base.yaml, variants: {a: 3}}\n"), "\"3\" where a map of keys and values");
  holds(sweep_error("sweep: {base: base.yaml, variants: {a: {}, a: {}}}\n"), "s.yaml:1:44: duplicate key \"a\"");
  holds(sweep_error("sweep: {base: base.yaml, variants: {a: {plan.stages: 1}}, baseline: b}\n"),
        "sweep.baseline: unknown \"b\"");
  holds(sweep_error("sweep: {base: base.yaml, variants: {a: {plan.stages: 1}}, grid: {plan.stages: [1, 2]}}\n"),
        "sweep.variants.a: plan.stages is a key of the grid, too");
  holds(sweep_error("sweep: {base: base.yaml, metrics: [speedup], grid: {plan.stages: [1, 2]}}\n"),
        "sweep.metrics.0: unknown \"speedup\"; did you mean \"speed_up\"?");
  holds(sweep_error("sweep: {base: base.yaml, metrics: [], grid: {plan.stages: [1, 2]}}\n"),
        "is empty; write at least one");
  holds(sweep_error("sweep: {base: base.yaml, replan: maybe, grid: {plan.stages: [1, 2]}}\n"), "is not a boolean");
  holds(sweep_error("version: 2\nsweep: {base: base.yaml, grid: {plan.stages: [1]}}\n"),
        "s.yaml:1:10: version: \"2\" is not a known version");
  holds(sweep_error("sweep: {base: base.yaml, variants: {a: {cluster.nodes: 2}}}\n"),
        "s.yaml: sweep.variants.a: ");  // the missing network is an error of the base's cluster
  holds(sweep_error("model: x\n"), "this is a scenario; a sweep file has the one key sweep:");
  holds(sweep_error("sweep: 4\n"), "where a map is needed");
  holds(sweep_error("other: 4\n"), "sweep is missing");
}

TEST_CASE("A key or value with which no point can be read is an error at its place") {
  holds(sweep_error("sweep: {base: base.yaml, grid: {plan.stagse: [1, 2]}}\n"),
        "s.yaml:1:47: unknown key \"plan.stagse\"; did you mean \"stages\"?");
  holds(sweep_error("sweep: {base: base.yaml, grid: {pln.stages: [1, 2]}}\n"),
        "s.yaml:1:33: sweep.grid: unknown \"pln\"; did you mean \"plan\"?");
  holds(sweep_error("sweep: {base: base.yaml, grid: {name: [a, b]}}\n"), "sweep.grid: unknown \"name\"");
  holds(sweep_error("sweep: {base: base.yaml, grid: {expect.x: [a, b]}}\n"), "cannot be changed by the block");
  holds(sweep_error("sweep: {base: base.yaml, grid: {plan..stages: [1, 2]}}\n"), "\"plan..stages\" is not a key");
  holds(sweep_error("sweep: {base: base.yaml, grid: {plan.stages: [1, two]}}\n"), "s.yaml:1:50: plan.stages: \"two\"");
  holds(sweep_error("sweep: {base: base.yaml, grid: {plan.stages: [1, .nan]}}\n"),
        "s.yaml:1:50: plan.stages: \".nan\"");
  holds(sweep_error("sweep: {base: base.yaml, grid: {cluster.node.device.memory: [1]}}\n"), "has no unit");
  holds(sweep_error("sweep: {base: base.yaml, variants: {a: {plan.schedul: gpipe}}}\n"), "did you mean \"schedule\"?");
}

TEST_CASE("A value that only other values of the point make good is not an error") {
  // Two replica counts alone contradict the base's stages: 2 [1, 1] does, [1, 1, 1] needs plan.stages: 3.
  const Written written("sweep: {base: base.yaml, grid: {plan.replicas: [[1, 1], [1, 1, 1]], plan.stages: [2, 3]}}\n");
  CHECK(written.file().question().points() == 4);
}

TEST_CASE("where: terms must be known and of one unit before anything runs") {
  const auto where = [](const std::string& text) {
    return sweep_error("sweep: {base: base.yaml, where: \"" + text + "\", grid: {plan.stages: [1, 2]}}\n");
  };
  CHECK(where("plan.stages * plan.data_parallel <= 64 and peak_memory < 79 GiB") == "");
  CHECK(where("training.global_batch_size > 1") == "");
  holds(where("plan.stagse < 3"), "s.yaml:1:33: sweep.where: unknown \"plan.stagse\"; did you mean \"plan.stages\"?");
  holds(where("peak_memory < 79"), "compares a size with a plain number");
  holds(where("speed_up > 1"), "speed_up is known only when all rows are there");
  holds(where("plan.stages"), "s.yaml:1:33: where: ends where a comparison");
}

TEST_CASE("A base that is missing, bad or a sweep itself is named at its place") {
  holds(sweep_error("sweep: {base: nowhere.yaml, grid: {plan.stages: [1]}}\n"), "s.yaml:1:15: sweep.base: ");
  holds(sweep_error("sweep: {base: s.yaml, grid: {plan.stages: [1]}}\n"),
        "\"s.yaml\" is a sweep itself; name a scenario");
  const Written bad("sweep: {base: base.yaml, grid: {plan.stages: [1]}}\n", "model: 3\n");
  holds(message_of([&] { bad.file(); }), "base.yaml:");
}

TEST_CASE("A grid of more than a million points is refused before anything runs") {
  std::string values = "1";
  for (int i = 2; i <= 101; ++i)
    values += ", " + std::to_string(i);
  const std::string axes = "training.micro_batches: [" + values + "], training.micro_batch_size: [" + values + "], ";
  holds(sweep_error("sweep: {base: base.yaml, grid: {" + axes + "training.global_batch_size: [" + values + "]}}\n"),
        "s.yaml:1:32: sweep.grid: 1030301 points (variants x values of every key) are more than 1000000");
  std::string many = "1";
  for (int i = 2; i <= 10'001; ++i)
    many += ", " + std::to_string(i);
  holds(sweep_error("sweep: {base: base.yaml, grid: {training.micro_batches: [" + many + "]}}\n"),
        "10001 values are more than 10000");
}
