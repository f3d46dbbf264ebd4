// Files of measured runs: what a line means, and what each wrong one is told.
#include "io/read_runs.hpp"

#include <doctest/doctest.h>

#include "io/scenario_file.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright;

namespace {

MeasuredTable table() {
  MeasuredTable table;
  table.files = {{"one node", "runs.csv"}};
  table.columns = {{"model.layers", "# layers"}, {"plan.stages", "stages"}};
  table.devices = "# GPUs", table.time = "time (ms)", table.fit_every = 3;
  return table;
}
std::vector<MeasuredRun> parsed(const std::string& text) {
  return parse_runs(table(), {"one node", "runs.csv"}, text, "runs.csv");
}
std::string refusal(const std::string& text) {
  return message_of([&] { parsed(text); });
}

const std::string kHeader = "other,# GPUs,# layers,stages,time (ms)\n";

}  // namespace

TEST_CASE("A line is a run; every third one is fitted on, the header being line 1") {
  const auto runs = parsed(kHeader + "x,8,24,2,128.25\r\n\n, 2 ,12,1,1000\nx,4,12,4,1e3");
  REQUIRE(runs.size() == 3);
  CHECK(runs[0].values == std::vector<std::int64_t>{24, 2});
  CHECK(runs[0].devices == 8);
  CHECK(runs[0].seconds == doctest::Approx(0.12825));
  CHECK(runs[1].place.line == 4);
  CHECK_FALSE(runs[1].fitted);
  CHECK(parsed(kHeader + "x,8,24,2,1\nx,8,24,2,1").at(1).fitted);
  CHECK(runs[2].seconds == doctest::Approx(1));
}

TEST_CASE("A wrong line is named by file and line, with its column and value") {
  CHECK(refusal("").starts_with("runs.csv:1:1: is empty"));
  CHECK(refusal(kHeader).starts_with("runs.csv:1:1: has a header, but no runs"));
  CHECK(refusal("# GPUs,stages,time (ms)\n1,1,1\n") ==
        "runs.csv:1:1: has no column \"# layers\"; it has: # GPUs, stages, time (ms)");
  CHECK(refusal("# GPUs,stages,# layers,stages,time (ms)\n") == "runs.csv:1:1: has two columns \"stages\"; remove one");
  CHECK(refusal(kHeader + "x,8,24,2,1\nx,8,24\n") ==
        "runs.csv:3:1: has 3 fields, the header has 5; is the line truncated?");
  CHECK(refusal(kHeader + "x,8,24,two,1\n").starts_with("runs.csv:2:8: stages: \"two\" "));
  CHECK(refusal(kHeader + "x,8,-24,2,1\n").starts_with("runs.csv:2:5: # layers: \"-24\" "));
  CHECK(refusal(kHeader + "x,0,24,2,1\n") == "runs.csv:2:3: # GPUs: \"0\" must be at least 1");
  CHECK(refusal(kHeader + "x,8,24,2,-1.5\n").starts_with("runs.csv:2:10: time (ms): \"-1.5\" "));
  CHECK(refusal(kHeader + "x,8,24,2,0\n") == "runs.csv:2:10: time (ms): \"0\" must be more than 0");
  CHECK(refusal(kHeader + "x,8,24,2,\n").starts_with("runs.csv:2:10: time (ms): \"\" "));
  const std::string both = refusal(kHeader + "x,8,a,2,1\nx,8,24,b,1\n");
  CHECK(both.find("runs.csv:2:5: # layers") != std::string::npos);
  CHECK(both.find("runs.csv:3:8: stages") != std::string::npos);
}

TEST_CASE("A file of runs may begin with a byte-order mark, as spreadsheets write it") {
  const Scratch scratch;
  scratch.write("runs.csv", "\xef\xbb\xbf# layers,# GPUs,stages,time (ms)\n24,8,2,128.25\n");
  const auto runs = read_runs(table(), scratch.path(""));
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].values == std::vector<std::int64_t>{24, 2});
}

TEST_CASE("A folder without the files is told") {
  const Scratch scratch;
  CHECK(message_of([&] { read_runs(table(), scratch.path("nowhere")); }).find("runs.csv") != std::string::npos);
}

TEST_CASE("A measured: block is read, and what contradicts itself is refused") {
  const Scratch scratch;
  const auto block = [&](const std::string& more) {
    const ScenarioText text{.more =
                                "measured: {table: t, source: s, files: [{name: a, file: a.csv}], devices: n, time: "
                                "ms, columns: {plan.stages: K}" +
                                more + "}\n"};
    return ScenarioFile(scratch.write("x.yaml", text.text()), {}).measured().value();
  };
  CHECK(block(", unit: s").unit == doctest::Approx(1));
  CHECK(block("").columns.at(0).key == "plan.stages");
  const std::string constant = "constants: [{key: a.b, expected: 2, factor: 1.5, most: 3, meaning: m, source: s}]";
  CHECK(block(", fit_every: 14, " + constant).constants.at(0).expected == 2);
  CHECK(message_of([&] { block(", " + constant); }).find("say on which lines") != std::string::npos);
  CHECK(message_of([&] { block(", fit_every: 1, " + constant); }).find("at least 2") != std::string::npos);
  CHECK(message_of([&] { block(", unit: m"); }).find("is no unit of time") != std::string::npos);
  CHECK(message_of([&] {
          block(", fit_every: 14, constants: [{key: a, expected: 4, factor: 2, most: 3, meaning: m, source: s}]");
        }).find("expected is more than most") != std::string::npos);
  CHECK(message_of([&] {
          block(", fit_every: 14, constants: [{key: a, expected: 4, factor: 1, meaning: m, source: s}]");
        }).find("more than 1") != std::string::npos);
}
