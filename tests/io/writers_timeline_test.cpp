#include <algorithm>
#include <sstream>

#include <doctest/doctest.h>

#include "io/text/format_quantity.hpp"
#include "io/writers/writers.hpp"
#include "sim/summarize.hpp"
#include "tests/support/small_answer.hpp"
#include "tests/support/texts.hpp"

namespace pipewright::tests {
namespace {

// What stands between ▕ and ▏ in the row of that name.
std::string drawing(const std::string& text, const std::string& name) {
  for (const auto& line : lines(text))
    if (line.starts_with("  " + name + " ")) {
      const auto begin = line.find("▕") + 3;
      return line.substr(begin, line.find("▏") - begin);
    }
  return "no row " + name;
}

int rows(const std::string& text) {
  const auto all = lines(text);
  return static_cast<int>(
      std::count_if(all.begin(), all.end(), [](const auto& line) { return line.find("▕") != std::string::npos; }));
}

}  // namespace

TEST_CASE("1F1B of four stages and eight micro-batches is drawn exactly, one character per millisecond") {
  const auto small = small_answer();
  const std::string text = text_timeline(small->answer, 100);
  CHECK(
      text.starts_with("  stage 0 ▕0123......aa4bb5cc6dd7ee.ff.gg.hh▏ busy 73 %\n"
                       "  stage 1 ▕.012....aa3bb4cc5dd6ee7ff.gg.hh..▏ busy 73 %\n"
                       "  stage 2 ▕..01..aa2bb3cc4dd5ee6ff7gg.hh....▏ busy 73 %\n"
                       "  stage 3 ▕...0aa1bb2cc3dd4ee5ff6gg7hh......▏ busy 73 %\n"));
  CHECK(text.find("1 character = 1 ms;") != std::string::npos);
  CHECK(text.find("update") == std::string::npos);  // takes no time here
}

TEST_CASE("where the exact drawing is wider than the terminal, a character shows the middle of a round piece") {
  // 33 ms on 10 columns, too few for two windows: 3.3 ms each at least, so 5 ms, with middles at 2.5, 7.5, ... 32.5 ms.
  // In the exact drawing above these fall on characters 2, 7, 12, 17, 22, 27 and 32.
  const auto small = small_answer();
  const std::string text = text_timeline(small->answer, 10 + 23);
  CHECK(drawing(text, "stage 0") == "2.4ce.h");
  CHECK(text.find("1 character = 5 ms, sampled") != std::string::npos);
}

TEST_CASE("ops of round lengths are boxes of one size, wherever odd transfer times put them") {
  // Hops of 123 us: 33 ms + 6 * 123 us of them on the critical path = 33.738 ms and more on 77 columns, 0.44 ms each at
  // least, so 0.5 ms: forwards of 1 ms are two characters, backwards of 2 ms four.
  const auto small = small_answer({.hop = Time{123'000}});
  const std::string text = text_timeline(small->answer, 100);
  CHECK(text.find("1 character = 500 us, sampled") != std::string::npos);
  for (int stage = 0; stage < 4; ++stage) {
    const std::string row = drawing(text, "stage " + std::to_string(stage));
    for (int m = 0; m < 8; ++m) {
      CHECK(std::count(row.begin(), row.end(), '0' + m) == 2);
      CHECK(std::count(row.begin(), row.end(), 'a' + m) == 4);
    }
  }
}

TEST_CASE("recomputation is drawn in capitals") {
  // GPipe, K = 2, M = 2, f = 1 ms, b = 2 ms: the last stage recomputes nothing early, all recompute before backward.
  const auto small = small_answer({.schedule = "gpipe", .stages = 2, .micro_batches = 2, .recompute = true});
  const std::string text = text_timeline(small->answer, 80);
  CHECK(drawing(text, "stage 0").find("BB") == std::string::npos);
  CHECK(drawing(text, "stage 0").find("Aaa") != std::string::npos);
  CHECK(text.find("capital: recompute") != std::string::npos);
}

TEST_CASE("replicas have rows of their own, and their all-reduces one below the last of them") {
  const auto small = small_answer(
      {.schedule = "pipedream", .stages = 2, .micro_batches = 8, .all_reduce = Time{2'000'000}, .replicas = {2, 1}});
  const std::string text = text_timeline(small->answer, 120);
  CHECK(drawing(text, "stage 0 r1") != "no row stage 0 r1");
  CHECK(drawing(text, "all-reduce").find("==") != std::string::npos);
  CHECK(rows(text) == 4);  // two replicas and what both take part in, the last stage without
  CHECK(text.find("stage 0 r1") < text.find("all-reduce "));
  CHECK(text.find("all-reduce ") < text.find("stage 1 "));
}

TEST_CASE("fifteen replicas and one more stage are all drawn, with one row for their all-reduces") {
  const auto small = small_answer(
      {.schedule = "pipedream", .stages = 2, .micro_batches = 30, .all_reduce = Time{2'000'000}, .replicas = {15, 1}});
  const std::string text = text_timeline(small->answer, 120);
  CHECK(rows(text) == 17);
  CHECK(text.find("workers are drawn") == std::string::npos);
}

TEST_CASE("of sixteen stages with all-reduces of their own ten are drawn, so that the drawing stays within a screen") {
  const auto small =
      small_answer({.stages = 16, .micro_batches = 16, .all_reduce = Time{2'000'000}, .data_parallel = 2});
  const std::string text = text_timeline(small->answer, 120);
  CHECK(rows(text) == 20);
  CHECK(text.find("10 of 32 workers are drawn, evenly spread; both copies") != std::string::npos);
}

TEST_CASE("copies of the pipeline that run the same are drawn once, and the text says so") {
  const auto small = small_answer({.data_parallel = 3});
  const std::string text = text_timeline(small->answer, 100);
  CHECK(drawing(text, "copy 0 stage 0") == "0123......aa4bb5cc6dd7ee.ff.gg.hh");
  CHECK(text.find("4 of 12 workers are drawn; all copies of the pipeline run the same") != std::string::npos);
}

TEST_CASE("of many workers sixteen are drawn, first and last among them") {
  const auto small = small_answer({.stages = 40, .micro_batches = 4});
  const std::string text = text_timeline(small->answer, 200);
  CHECK(rows(text) == 16);
  CHECK(drawing(text, "stage 0 ") != "no row stage 0 ");
  CHECK(drawing(text, "stage 39") != "no row stage 39");
  CHECK(text.find("16 of 40 workers are drawn, evenly spread") != std::string::npos);
}

// Of 100 stages stage 43 keeps twice as much; no row of 16 or 64 evenly spread ones is its own.
TEST_CASE("the stage of the memory peak has a row in every drawing and a strip, however many there are") {
  const auto small = small_answer({.stages = 100, .micro_batches = 4, .data_parallel = 2});
  Answer& answer = small->answer;
  answer.memory.chunks[43].stash[0] = answer.memory.chunks[43].stash[1] = Bytes{std::int64_t{3} << 30};
  answer.report = summarize(answer.timeline, answer.schedule, answer.plan, answer.costs, answer.memory,
                            *answer.scenario, std::nullopt);
  REQUIRE(fullest(answer.report)->stage == 43);
  const std::string text = text_timeline(answer, 200);
  CHECK(rows(text) == 16);
  for (const char* stage : {"copy 0 stage 0 ", "copy 0 stage 43", "copy 0 stage 99"})
    CHECK(drawing(text, stage) != std::string("no row ") + stage);
  CHECK(text.find("16 of 200 workers are drawn, evenly spread, and the fullest; both copies") != std::string::npos);
  const std::string svg = svg_timeline(answer);
  CHECK(svg.find(">copy 0 stage 43<") != std::string::npos);
  CHECK(svg.find(">stage 43<") != std::string::npos);  // of the strips
  CHECK(svg.find("64 of 200 workers are drawn, evenly spread, and the fullest; both") != std::string::npos);
  CHECK(svg.find("8 of 100 stages are drawn, evenly spread, and the fullest.") != std::string::npos);
}

TEST_CASE("a long run is drawn in two windows: its beginning and its end, or the steady state") {
  const auto flush = small_answer({.micro_batches = 1000});
  CHECK(drawing(text_timeline(flush->answer, 100), "stage 0").starts_with("0123......aa4bb5cc6dd7ee8ff9gg0hh"));
  CHECK(drawing(text_timeline(flush->answer, 100), "stage 3").ends_with("......"));
  CHECK(text_timeline(flush->answer, 100).find("(the end)") != std::string::npos);
  const auto steady = small_answer({.schedule = "pipedream", .micro_batches = 1000});
  const std::string text = text_timeline(steady->answer, 100);
  CHECK(text.find("(the middle of the run)") != std::string::npos);
  const std::string row = drawing(text, "stage 0");
  CHECK(row.substr(row.find("⋯") + 4).find('.') == std::string::npos);  // no idle time in the steady state
}

TEST_CASE("no line of a report is wider than the terminal, but for single words and figures") {
  for (const int width : {60, 80, 100, 200})
    for (const SmallShape& shape : {SmallShape{},
                                    SmallShape{.schedule = "pipedream",
                                    .stages = 2,
                                    .micro_batches = 60,
                                    .all_reduce = Time{1'000'000},
                                    .replicas = {15, 1}},
                                    SmallShape{.stages = 64, .micro_batches = 256}}) {
      const auto small = small_answer(shape);
      for (const auto& line : lines(terminal_report(small->answer, {width, false})))
        CHECK_MESSAGE(display_width(line) <= width, line);
    }
}

TEST_CASE("a utilization above 100 % points at the warning that explains it") {
  const auto small = small_answer();
  small->answer.report.mfu = 0.9;
  CHECK(terminal_report(small->answer, {}).find("MFU 90.0 %\n") != std::string::npos);
  small->answer.report.mfu = 1.04;
  CHECK(terminal_report(small->answer, {}).find("MFU 104 % (more than the peak allows: see the warnings)") !=
        std::string::npos);
}

TEST_CASE("colour adds escapes and nothing else") {
  const auto small = small_answer();
  std::string coloured = terminal_report(small->answer, {100, true});
  CHECK(coloured.find("\x1b[1m") != std::string::npos);
  for (std::size_t at; (at = coloured.find('\x1b')) != std::string::npos;)
    coloured.erase(at, coloured.find('m', at) - at + 1);
  CHECK(coloured == terminal_report(small->answer, {100, false}));
}

TEST_CASE("a report states question, answer and origin, in that order") {
  const auto small = small_answer();
  const std::string text = terminal_report(small->answer, {});
  CHECK(
      text.starts_with("4 stages · 8 micro-batches of 1 · 1f1b · one-layer-each (4 layers) on 4 x gpu-16g (some-gpus)\n"
                       "step time     33.00 ms\n"
                       "throughput    242.4 samples/s\n"
                       "bubble        27.3 % of the makespan · 27.3 % of the longest worker's span · by formula\n"));
  CHECK(text.find("memory peak   4.51 GiB of 16.0 GiB on stage 0 · 4.01 GiB of it held by the model\n") !=
        std::string::npos);
  CHECK(text.find("how it is known\n  layer times: stated in the file\n") > text.find("what would help"));
}

TEST_CASE("links of which the same is told share a row with their number") {
  const auto small = small_answer();
  const auto link = [](const char* name, double utilization, std::int64_t bytes = 1 << 20) {
    return LinkReport{name, Bytes{bytes}, Bandwidth{25e9}, utilization};
  };
  small->answer.report.links = {link("a to b", 0.2), link("b to c", 0.3), link("c to d", 0.2000001),
                                link("d to e", 0.2, 2 << 20)};
  std::string text = terminal_report(small->answer, {});
  CHECK_MESSAGE(text.find("links (busiest first)\n"
                          "  link                   carried each  bandwidth  in use\n"
                          "  b to c                     1.00 MiB  25.0 GB/s  30.0 %\n"
                          "  c to d (+1 identical)      1.00 MiB  25.0 GB/s  20.0 %\n"
                          "  d to e                     2.00 MiB  25.0 GB/s  20.0 %\n\n") != std::string::npos,
                text);
  // Four rows are shown; what is in none of them is counted by the link.
  for (int i = 0; i < 3; ++i)
    small->answer.report.links.insert(small->answer.report.links.end(),
                                      {link("x", 0.1 - 0.01 * i), link("y", 0.1 - 0.01 * i)});
  text = terminal_report(small->answer, {});
  CHECK(text.find("  x (+1 identical)") != std::string::npos);
  CHECK(text.find("\n  4 more links carried something\n") != std::string::npos);
}

TEST_CASE("a plan that does not fit says so at the top, stage by stage") {
  // 64 micro-batches of 1 GiB in flight on stage 0 of 64 and devices of 16 GiB: 49 stages hold 16 or more.
  const auto small = small_answer({.stages = 64, .micro_batches = 64});
  const std::string text = terminal_report(small->answer, {});
  CHECK(text.find("on stage 0: DOES NOT FIT · ") != std::string::npos);
  CHECK(text.find("infeasible    49 of 64 stages do not fit into their devices\n") != std::string::npos);
  CHECK(text.find("45 more stages\n") != std::string::npos);
}

}  // namespace pipewright::tests
