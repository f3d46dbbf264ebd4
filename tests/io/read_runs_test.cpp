// Files of measured runs: what a line means, and what each wrong one is told.
#include "io/read/read_runs.hpp"

#include <doctest/doctest.h>

#include "io/read/scenario_file.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

MeasuredTable table() {
  MeasuredTable table;
  table.files = {{"one node", "runs.csv"}};
  table.columns = {{"model.layers", {"# layers"}, {}, ""}, {"plan.stages", {"stages"}, {}, ""}};
  table.figures = {{"time", {.text = "step_time_s", .figure = Figure::StepTime}, "time (ms)", 1e-3}};
  table.devices = "# GPUs", table.fit_every = 3;
  return table;
}
std::vector<MeasuredRun> parsed_runs(const std::string& text, const MeasuredTable& with = table()) {
  return parse_runs(with, {"one node", "runs.csv"}, text, "runs.csv");
}
std::string runs_refusal(const std::string& text) {
  return message_of([&] { parsed_runs(text); });
}
CellTest::Choice choice(const std::string& is, bool other = false) {
  return {.is = is, .other = other, .least = {}, .most = {}, .strict = false};
}

const std::string kHeader = "other,# GPUs,# layers,stages,time (ms)\n";

}  // namespace

TEST_CASE("A line is a run; every third one is fitted on, the header being line 1") {
  const auto runs = parsed_runs(kHeader + "x,8,24,2,128.25\r\n\n, 2 ,12,1,1000\nx,4,12,4,1e3");
  REQUIRE(runs.size() == 3);
  CHECK(runs[0].set == std::vector<std::string>{"model.layers=24", "plan.stages=2"});
  CHECK(runs[0].devices == 8);
  CHECK(runs[0].figures.at(0) == doctest::Approx(0.12825));
  CHECK(runs[1].place.line == 4);
  CHECK_FALSE(runs[1].fitted);
  const std::string two = kHeader + "x,8,24,2,1\nx,8,24,2,1";
  CHECK(parsed_runs(two).at(1).fitted);
  const RunFile kept{.name = "one node", .file = "runs.csv", .fit = false};
  CHECK_FALSE(parse_runs(table(), kept, two, "runs.csv").at(1).fitted);
  CHECK(runs[2].figures.at(0) == doctest::Approx(1));
}

TEST_CASE("Comments are skipped, fields may stand in quotes, a figure may begin with its point") {
  const auto runs = parsed_runs("# a source, and\n# a trap\n" + kHeader +
                                "\"a, \"\"b\"\"\",8,24.0,2,.527\n# later\n\"\",8,\"24\",2,1\n");
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].figures.at(0) == doctest::Approx(0.000527));
  CHECK(runs[0].values == std::vector<std::string>{"24", "2"});
  CHECK(runs[1].values.at(0) == "24");
  CHECK(runs[1].place.line == 6);
}

TEST_CASE("Texts stand for values, products of columns for batches, and rows set more than their cells") {
  MeasuredTable with = table();
  with.columns = {{"plan.schedule", {"other"}, {{"1F1B", "1f1b"}}, ""},
                  {"training.global_batch_size", {"# layers", "stages"}, {}, ""},
                  {"network.bandwidth", {"stages"}, {}, "GB/s"}};
  with.settings = {{{{"stages", {{.is = "", .least = 4, .most = {}}}}}, {{"plan.recompute", "full"}}}};
  const auto runs = parsed_runs(kHeader + "1F1B,8,24,2,1\nZB,8,24,2,1\n1F1B,8,3,5,1\n", with);
  REQUIRE(runs.size() == 3);
  CHECK(runs[0].set ==
        std::vector<std::string>{"plan.schedule=1f1b", "training.global_batch_size=48", "network.bandwidth=2 GB/s"});
  CHECK(runs[1].state == RunState::Missing);
  CHECK(runs[1].why == "other: ZB");
  CHECK(runs[2].set.back() == "plan.recompute=full");
}

TEST_CASE("A figure may be one word of a cell, on so many devices; a cell with fewer words does not give it") {
  MeasuredTable with = table();
  with.figures = {{"first", {.text = "memory.in_use", .figure = Figure::Memory}, "other", 1024, 1},
                  {"second", {.text = "memory.in_use", .figure = Figure::Memory}, "other", 1024, 2},
                  {"time", {.text = "step_time_s", .figure = Figure::StepTime}, "time (ms)", 1e-3}};
  const auto runs =
      parsed_runs(kHeader + "46.77*2 36.5*2,8,24,2,1\n 66.27*8 ,8,24,1,1\n2  3,8,24,2,1\n,8,24,2,1\n", with);
  REQUIRE(runs.size() == 4);
  CHECK(runs[0].figures.at(0).value() == doctest::Approx(46.77 * 1024));
  CHECK(runs[0].figures.at(1).value() == doctest::Approx(36.5 * 1024));
  CHECK(runs[1].figures.at(0).value() == doctest::Approx(66.27 * 1024));
  CHECK_FALSE(runs[1].figures.at(1).has_value());
  CHECK(runs[1].state == RunState::Compared);
  CHECK(runs[2].figures.at(1).value() == doctest::Approx(3 * 1024));
  CHECK_FALSE(runs[3].figures.at(0).has_value());
  const auto refused = [&](const std::string& cell) {
    return message_of([&] { parsed_runs(kHeader + cell + ",8,24,2,1\n", with); });
  };
  CHECK(refused("46*2 x*2") == "runs.csv:2:1: other: \"x\" is not a number; write e.g. 0.5");
  CHECK(refused("46*2 0*2") == "runs.csv:2:1: other: \"0\" must be more than 0");
  for (const char* word : {"36*two", "36*", "36*0", "36*2*2", "*2"})
    CHECK(refused("46*2 " + std::string(word)) ==
          "runs.csv:2:1: other: \"" + std::string(word) + "\" must be a figure * on how many devices, e.g. 46.77*2");
}

TEST_CASE("Rows that are left out, cannot be expressed, failed or measured nothing keep their place and their reason") {
  MeasuredTable with = table();
  with.left_out = {{{{{"other", {choice("", true)}}}}, "the source doubts it"}};
  with.missing = {{{{{"stages", {{.is = "", .least = 8, .most = {}, .strict = true}}}}}, "plan.fsdp"}};
  with.failed = {{"# layers", {choice("1"), choice("2")}}};
  with.subsets = {{{{{"stages", {{.is = "", .least = {}, .most = 2}}}}}, "small"},
                  {{{{"# layers", {choice("9")}}}, {{"stages", {choice("2")}}}}, "one of two tests"}};
  const auto runs = parsed_runs(kHeader + "x,8,24,2,1\n,8,24,9,1\n,8,2,8,\n,8,24,2,\n,8,24,2,7\n", with);
  REQUIRE(runs.size() == 5);
  CHECK(runs[0].state == RunState::LeftOut);
  CHECK(runs[0].why == "the source doubts it");
  CHECK(runs[1].state == RunState::Missing);
  CHECK(runs[1].why == "plan.fsdp");
  CHECK(runs[2].state == RunState::Failed);
  CHECK(runs[3].why == "nothing was measured");
  CHECK(runs[4].state == RunState::Compared);
  CHECK(runs[4].in_subset == std::vector<bool>{true, true});
  CHECK(runs[1].in_subset == std::vector<bool>{false, false});
}

TEST_CASE("What a cell must say: a text, a number however it is written, a limit, anything else") {
  CHECK(choice("1").holds("1.0"));
  CHECK_FALSE(choice("1").holds("one"));
  CHECK(choice("").holds(""));
  CHECK(choice("", true).holds("x"));
  CHECK_FALSE(choice("", true).holds(""));
  CHECK(choice("1", true).holds("2"));
  const CellTest::Choice most{.is = "", .least = {}, .most = 8, .strict = true};
  CHECK(most.holds("7.5"));
  CHECK_FALSE(most.holds("8"));
  CHECK_FALSE(most.holds(""));
}

TEST_CASE("A wrong line is named by file and line, with its column and value") {
  CHECK(runs_refusal("").starts_with("runs.csv:1:1: is empty"));
  CHECK(runs_refusal(kHeader).starts_with("runs.csv:1:1: has a header, but no runs"));
  CHECK(runs_refusal("# GPUs,stages,time (ms)\n1,1,1\n") ==
        "runs.csv:1:1: has no column \"# layers\"; it has: # GPUs, stages, time (ms)");
  CHECK(runs_refusal("# GPUs,stages,# layers,stages,time (ms)\n") ==
        "runs.csv:1:1: has two columns \"stages\"; remove one");
  CHECK(runs_refusal(kHeader + "x,8,24,2,1\nx,8,24\n") ==
        "runs.csv:3:1: has 3 fields, the header has 5; is the line truncated?");
  CHECK(runs_refusal(kHeader + "x,0,24,2,1\n") == "runs.csv:2:3: # GPUs: \"0\" must be at least 1");
  CHECK(runs_refusal(kHeader + "x,a,24,2,1\n").starts_with("runs.csv:2:3: # GPUs: \"a\" "));
  CHECK(runs_refusal(kHeader + "x,8,24,2,-1.5\n").starts_with("runs.csv:2:10: time (ms): \"-1.5\" "));
  CHECK(runs_refusal(kHeader + "x,8,24,2,0\n") == "runs.csv:2:10: time (ms): \"0\" must be more than 0");
  const std::string both = runs_refusal(kHeader + "x,a,24,2,1\nx,8,24,2,b\n");
  CHECK(both.find("runs.csv:2:3: # GPUs") != std::string::npos);
  CHECK(both.find("runs.csv:3:10: time (ms)") != std::string::npos);
}

TEST_CASE("A file of runs may begin with a byte-order mark, as spreadsheets write it") {
  const Scratch scratch;
  scratch.write("runs.csv", "\xef\xbb\xbf# layers,# GPUs,stages,time (ms)\n24,8,2,128.25\n");
  const auto runs = read_runs(table(), scratch.path(""));
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].values == std::vector<std::string>{"24", "2"});
}

TEST_CASE("A folder may hold the file as it is named, or its last part") {
  const Scratch scratch;
  scratch.write("runs.csv", kHeader + "x,8,24,2,1\n");
  MeasuredTable with = table();
  with.files = {{"one node", "somewhere/runs.csv"}};
  CHECK(read_runs(with, scratch.path("")).size() == 1);
}

TEST_CASE("A series of weak scaling has the same texts, and the same batch on each device") {
  MeasuredTable with = table();
  with.weak_scaling = {"other"}, with.weak_batch = "# layers";
  const auto runs = parsed_runs(kHeader + "8B,8,24,2,1\n8B,16,48,2,1\n8B,16,40,2,1\n", with);
  REQUIRE(runs.size() == 3);
  CHECK(runs[0].series == std::vector<std::string>{"8B", "3/1"});
  CHECK(runs[1].series == runs[0].series);
  CHECK(runs[2].series == std::vector<std::string>{"8B", "5/2"});
  with.weak_when = {{"# GPUs", {choice("16")}}};
  CHECK(parsed_runs(kHeader + "8B,8,24,2,1\n", with).at(0).series.empty());
  CHECK(parsed_runs(kHeader + "8B,16,48,2,1\n", with).at(0).series == runs[0].series);
  with.weak_batch = "batch";
  CHECK(message_of([&] { parsed_runs(kHeader + "8B,8,24,2,1\n", with); }).find("has no column \"batch\"") !=
        std::string::npos);
}

TEST_CASE("A folder without the files is told") {
  const Scratch scratch;
  CHECK(message_of([&] { read_runs(table(), scratch.path("nowhere")); }).find("runs.csv") != std::string::npos);
}

TEST_CASE("A measured: block is read, and what contradicts itself is refused") {
  const Scratch scratch;
  const auto block = [&](const std::string& more) {
    const ScenarioText text{.more =
                                "measured: {table: t, source: s, files: [{name: a, file: a.csv}], devices: n, "
                                "columns: {plan.stages: K}" +
                                more + "}\n"};
    return ScenarioFile(scratch.write("x.yaml", text.text()), {}).measured().value();
  };
  const std::string figure = ", figures: [{name: time, figure: step_time_s, column: ms, unit: s}]";
  CHECK(block(figure).figures.at(0).unit_size == doctest::Approx(1));
  CHECK(block(figure).columns.at(0).key == "plan.stages");
  const MeasuredTable more = block(
      ", figures: [{name: held, figure: memory.allocated, where: last, column: mem, unit: MiB}], missing: [{when: {cp: "
      "'>1', x: ['', a]}, needs: k}], settings: [{when: {m: 8B}, set: {model.layers: 3}}]");
  CHECK(more.figures.at(0).sought.where == Where::Last);
  CHECK(more.figures.at(0).unit_size == doctest::Approx(1024 * 1024));
  CHECK(more.missing.at(0).when.at(0).at(0).choices.at(0).holds("2"));
  CHECK_FALSE(more.missing.at(0).when.at(0).at(0).choices.at(0).holds("1"));
  CHECK(more.missing.at(0).when.at(0).at(1).choices.size() == 2);
  CHECK(more.settings.at(0).set.at(0).second == "3");
  const std::string constant = "constants: [{key: a.b, expected: 2, factor: 1.5, most: 3, meaning: m, source: s}]";
  CHECK(block(figure + ", fit_every: 14, " + constant).constants.at(0).expected == 2);
  const auto word = [&](const std::string& text) {
    return block(", figures: [{name: mem, figure: memory.in_use, column: m, word: " + text + "}]").figures.at(0).word;
  };
  CHECK(block(figure).figures.at(0).word == 0);
  CHECK(word("2") == 2);
  CHECK(message_of([&] { word("0"); }).find("measured.figures.0.word: \"0\" must be at least 1") != std::string::npos);
  CHECK(message_of([&] { block(figure + ", " + constant); }).find("say on which lines") != std::string::npos);
  CHECK(message_of([&] { block(figure + ", fit_every: 1, " + constant); }).find("at least 2") != std::string::npos);
  CHECK(message_of([&] {
          block(", figures: [{name: time, figure: step_time_s, column: ms, unit: m}]");
        }).find("\"m\" is not a unit of step_time_s; it has ns, us, ms, s, min, h") != std::string::npos);
  CHECK(message_of([&] {
          block(", figures: [{name: time, figure: step_time_s, where: last, column: ms}]");
        }).find("is of the whole run") != std::string::npos);
  CHECK(message_of([&] {
          block(figure +
                ", fit_every: 14, constants: [{key: a, expected: 4, factor: 2, most: 3, meaning: m, source: s}]");
        }).find("expected is more than most") != std::string::npos);
  CHECK(message_of([&] {
          block(figure + ", fit_every: 14, constants: [{key: a, expected: 4, factor: 1, meaning: m, source: s}]");
        }).find("more than 1") != std::string::npos);
}
