#include <algorithm>
#include <sstream>

#include <doctest/doctest.h>

#include "io/writers/svg_canvas.hpp"
#include "io/writers/text_table.hpp"
#include "io/writers/writers.hpp"
#include "tests/support/small_answer.hpp"
#include "tests/support/texts.hpp"

namespace pipewright::tests {
namespace {

std::size_t count(const std::string& text, std::string_view what) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size())
    ++found;
  return found;
}

}  // namespace

TEST_CASE("gathers of weights have a row of their own, a color and a sign") {
  const auto small = small_answer({.schedule = "interleaved_1f1b",
                                   .stages = 2,
                                   .micro_batches = 2,
                                   .all_reduce = Time{500'000},
                                   .virtual_stages = 2,
                                   .data_parallel = 2,
                                   .gather = Time{700'000}});
  const std::size_t gathers = small->answer.schedule.positions[0].communication[kGathers].size();
  REQUIRE(gathers > 2);
  const std::string svg = svg_timeline(small->answer);
  CHECK(count(svg, ">all-gather</text>") == 1);  // in the legend
  CHECK(count(svg, "class=\"g\"") == 1 + gathers + small->answer.schedule.positions[1].communication[kGathers].size());
  CHECK(count(svg, "class=\"a\"") == 1 + 4);
  const std::string text = text_timeline(small->answer, 100);
  CHECK(count(text, "  all-gather ") == 2);
  CHECK(count(text, "  all-reduce ") == 2);
  CHECK(text.find(", = all-reduce, - all-gather, . idle") != std::string::npos);
}

TEST_CASE("the drawing has a box for every op, placed to scale, with its micro-batch in it") {
  const std::string svg = svg_timeline(small_answer()->answer);
  CHECK(count(svg, "class=\"f box\"") == 32);
  CHECK(count(svg, "class=\"b box\"") == 32);
  CHECK(count(svg, ">7</text>") == 8);  // forward and backward of micro-batch 7 on four stages
  CHECK(svg.find("<title>0B7 · backward of micro-batch 7 on stage 0 · 31.00 ms to 33.00 ms</title>") !=
        std::string::npos);
  // 1000 units for 33 ms: 1 ms is 30.3 wide, 2 ms 60.61.
  CHECK(count(svg, "width=\"30.3\"") == 32);
  CHECK(count(svg, "width=\"60.61\"") == 32);
}

TEST_CASE("all-reduces are hatched in a row of their own, updates and recomputation have their colours") {
  const std::string svg = svg_timeline(
      small_answer({.update = Time{500'000}, .all_reduce = Time{2'000'000}, .data_parallel = 2, .recompute = true})
          ->answer);
  CHECK(count(svg, "height=\"7\" class=\"a\"") == 4);  // one bucket per stage; the copies run the same
  CHECK(svg.find("url(#pipewright-hatch)") != std::string::npos);
  CHECK(svg.find("class=\"u box\"") != std::string::npos);
  CHECK(svg.find("class=\"r box\"") != std::string::npos);
  CHECK(svg.find(">all-reduce</text>") != std::string::npos);
  CHECK(svg.find("4 of 8 workers are drawn; both copies of the pipeline run the same.") != std::string::npos);
}

TEST_CASE("messages are drawn between the rows that are there, those of a copy that is not drawn nowhere") {
  // 4 stages, 8 micro-batches: 3 * 8 messages in each direction of the one copy with rows; one more line is the
  // legend's.
  const SmallShape one{.wire = Time{1'000'000}}, two{.wire = Time{1'000'000}, .data_parallel = 2};
  CHECK(count(svg_timeline(small_answer(one)->answer), "class=\"msg\"") == 49);
  CHECK(count(svg_timeline(small_answer(two)->answer), "class=\"msg\"") == 49);
}

// 4 workers with 2 chunks each: of 7 messages per micro-batch and direction one goes from the last worker to the first,
// over two rows.
TEST_CASE("messages pass over rows while that hides little, and the drawing says what it leaves out") {
  SmallShape shape{.schedule = "interleaved_1f1b", .micro_batches = 4, .wire = Time{1'000'000}, .virtual_stages = 2};
  const std::string few = svg_timeline(small_answer(shape)->answer);
  CHECK(count(few, "class=\"msg\"") == 2 * 7 * 4 + 1);
  CHECK(count(few, "class=\"halo\"") == 2 * 4);
  CHECK(few.find("messages are drawn") == std::string::npos);
  shape.micro_batches = 40;  // 80 of them would cross 160 rows
  const std::string many = svg_timeline(small_answer(shape)->answer);
  CHECK(count(many, "class=\"msg\"") == 2 * 6 * 40 + 1);
  CHECK(count(many, "class=\"halo\"") == 0);
  CHECK(many.find(">480 of 560 messages are drawn. 80 would pass over other rows and are too many to tell "
                  "apart.<") != std::string::npos);
}

TEST_CASE("messages between replicated stages are drawn, each from its own replica") {
  // Micro-batches 0, 2, 4 of replica 0 pass over replica 1: in both directions.
  const std::string svg = svg_timeline(
      small_answer(
          {.schedule = "pipedream", .stages = 2, .micro_batches = 6, .wire = Time{1'000'000}, .replicas = {2, 1}})
          ->answer);
  CHECK(count(svg, "class=\"msg\"") == 2 * 6 + 1);
  CHECK(count(svg, "class=\"halo\"") == 2 * 3);
}

TEST_CASE("messages that cannot be seen or have no room are counted below the drawing") {
  // 1 us of 33 ms is 0.03 of 1000 units.
  CHECK(svg_timeline(small_answer({.wire = Time{1000}})->answer)
            .find(">No messages are drawn: 48 are shorter than a pixel.<") != std::string::npos);
  CHECK(svg_timeline(small_answer({.stages = 16, .micro_batches = 1024, .wire = Time{1'000'000}})->answer)
            .find(">30720 messages between workers are not drawn: there are too many ops for lines between them.<") !=
        std::string::npos);
  CHECK(svg_timeline(small_answer({.stages = 40, .micro_batches = 2, .wire = Time{1'000'000}})->answer)
            .find(">156 messages between workers are not drawn: there are too many rows for lines between them.<") !=
        std::string::npos);
  CHECK(svg_timeline(small_answer()->answer).find("messages") == std::string::npos);  // none takes any time
}

TEST_CASE("replicas share one row of all-reduces, below the last of them") {
  const SmallShape shape{
      .schedule = "pipedream", .stages = 2, .micro_batches = 6, .all_reduce = Time{2'000'000}, .replicas = {3, 1}};
  const std::string svg = svg_timeline(small_answer(shape)->answer);
  CHECK(count(svg, "height=\"7\" class=\"a\"") == 2);  // two rounds of three micro-batches
  CHECK(svg.find(">stage 0 r2<") < svg.find("height=\"7\" class=\"a\""));
}

TEST_CASE("the drawing has colours for dark surroundings") {
  const std::string svg = svg_timeline(small_answer()->answer);
  CHECK(svg.find("@media(prefers-color-scheme:dark)") != std::string::npos);
  CHECK(svg.find("text{fill:currentColor}") != std::string::npos);
}

TEST_CASE("too many ops are drawn as shares of time, and the drawing says so and stays small") {
  const std::string svg = svg_timeline(small_answer({.stages = 16, .micro_batches = 1024})->answer);
  CHECK(svg.find("ops are too many for boxes: each column shows how its") != std::string::npos);
  CHECK(count(svg, "box\"") == 0);
  CHECK(svg.size() < 500'000);
}

TEST_CASE("names from a scenario cannot break the drawing") {
  auto small = small_answer();
  small->scenario->model.name = "<script>&\"x\x01\xff";
  const std::string svg = svg_timeline(small->answer);
  CHECK(svg.find("<script>") == std::string::npos);
  CHECK(svg.find("&lt;script&gt;&amp;&quot;x\\x01\\xff") != std::string::npos);
}

TEST_CASE("coordinates have at most two decimals") {
  CHECK(coordinate(12.5) == "12.5");
  CHECK(coordinate(3) == "3");
  CHECK(coordinate(1.0 / 3) == "0.33");
  CHECK(coordinate(-0.004) == "0");
  CHECK(coordinate(-1.25) == "-1.25");
}

TEST_CASE("the time axis has about ten round marks") {
  const Axis axis{100, 1000, Time{33'000'000}};
  const auto marks = axis.marks();
  REQUIRE(marks.size() == 7);
  CHECK(marks[1].label == "5");
  CHECK(marks[6].label == "30");
  CHECK(axis.unit() == "ms");
  CHECK(axis.x(Time{16'500'000}) == doctest::Approx(600));
}

TEST_CASE("the CSV has one row per worker and as many cells as names") {
  const auto rows = lines(csv_report(small_answer({.data_parallel = 2})->answer));
  REQUIRE(rows.size() == 9);
  for (const auto& row : rows)
    CHECK(count(row, ",") == count(rows[0], ","));
  CHECK(rows[0].starts_with("worker,copy,stage,replica,device,layers,busy_s,"));
  CHECK(rows[1].starts_with("0,0,0,0,0,0,0.024000000,0.008000000,0.016000000,"));
  CHECK(rows[0].find("peak_memory_bytes") != std::string::npos);
}

TEST_CASE("a cell with a comma is quoted in the CSV") {
  const std::string csv = csv_report(small_answer({.schedule = "interleaved_1f1b", .virtual_stages = 2})->answer);
  CHECK(csv.find("0,0,0,0,0,\"0, 4\",") != std::string::npos);
}

TEST_CASE("the Markdown table has the usual columns in the usual order") {
  auto small = small_answer();
  small->scenario->model.name = "a|b";
  const auto rows = lines(markdown_report(small->answer));
  const std::string head =
      "| devices | GBS | MBS | Seq | TP | PP | VP | DP | step s | tokens/s/device | model TFLOP/s/device | MFU | "
      "bubble | peak "
      "GiB |";
  const auto at = std::find(rows.begin(), rows.end(), head);
  REQUIRE(at != rows.end());
  CHECK(at[2] == "| 4 | 8 | 1 | - | 1 | 4 | 1 | 1 | 0.03300 | - | - | - | 27.3 % | 4.51 |");
  // The legend explains the heads that are there.
  CHECK(std::none_of(rows.begin(), rows.end(),
                     [](const std::string& row) { return row.find("GPU") != std::string::npos; }));
}

TEST_CASE("the layer graph is coloured by stage and names what crosses an edge") {
  auto small = small_answer({.stages = 10});
  small->scenario->model.layers[0].name = "say \"hi\" \\ here";
  const std::string dot = dot_graph(small->answer);
  CHECK(dot.find("layer0 [label=\"say \\\"hi\\\" \\\\ here\\n1.00 ms + 2.00 ms\\n1.00 M parameters\", fillcolor=1];") !=
        std::string::npos);
  CHECK(dot.find("label=\"stage 9\"") != std::string::npos);
  CHECK(dot.find("fillcolor=2];") != std::string::npos);
  CHECK(dot.find("layer0 -> layer1 [label=\"1.00 MiB\"];") != std::string::npos);
  CHECK(count(dot, "{") == count(dot, "}"));
}

TEST_CASE("columns that do not fit follow in a second block with the first column again") {
  const std::vector<TextColumn> columns{{"stage", false, false, {"0", "1"}},
                                        {"aaaaaaaaaa", false, false, {"1", "2"}},
                                        {"bbbbbbbbbb", false, false, {"3", "4"}},
                                        {"gone", false, true, {"0", "-"}}};
  CHECK(text_table(columns, 80) ==
        "  stage  aaaaaaaaaa  bbbbbbbbbb\n"
        "      0           1           3\n"
        "      1           2           4\n");
  CHECK(text_table(columns, 20) ==
        "  stage  aaaaaaaaaa\n      0           1\n      1           2\n"
        "  stage  bbbbbbbbbb\n      0           3\n      1           4\n");
}

TEST_CASE("sentences break between words and continue below their beginning") {
  CHECK(wrapped("hint: ", "one two three", 13) == "hint: one two\n      three\n");
}

}  // namespace pipewright::tests
