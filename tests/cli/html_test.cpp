// Reports as HTML pages: complete, closed, without anything loaded from elsewhere, and with the figures of the report.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "io/writers/html_page.hpp"
#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

// "" when every element that is opened is closed in order; else what is not. HTML's void elements are known.
std::string unbalanced(std::string_view page) {
  std::vector<std::string> open;
  for (std::size_t at = page.find('<'); at != std::string_view::npos; at = page.find('<', at + 1)) {
    const std::size_t end = page.find('>', at);
    if (end == std::string_view::npos) return "a tag that does not end";
    std::string_view tag = page.substr(at + 1, end - at - 1);
    if (tag.starts_with('!') || tag.ends_with('/')) continue;
    const bool closing = tag.starts_with('/');
    if (closing) tag.remove_prefix(1);
    const std::string name(tag.substr(0, tag.find_first_of(" \n")));
    if (name == "meta" || name == "link") continue;
    if (!closing) {
      open.push_back(name);
      continue;
    }
    if (open.empty() || open.back() != name) return "</" + name + "> where " + (open.empty() ? "nothing" : open.back());
    open.pop_back();
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

std::size_t count(std::string_view text, std::string_view what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1))
    ++found;
  return found;
}

void check_stands_alone(const std::string& page) {
  CHECK(unbalanced(page) == "");
  CHECK(page.starts_with("<!DOCTYPE html>"));
  CHECK(!contains(page, "<script"));
  CHECK(!contains(page, "src="));
  CHECK(!contains(page, "@import"));
  // The only addresses are the names of the SVG vocabulary.
  CHECK(count(page, "http") == count(page, "http://www.w3.org/2000/svg") + count(page, "http-equiv"));
  CHECK(contains(page, "prefers-color-scheme:dark"));
  CHECK(contains(page, "@media print"));
}

std::string page_of(std::vector<std::string> arguments, int status = 0) {
  ScratchFolder scratch;
  arguments.insert(arguments.end(), {"-o", scratch.path("page.html")});
  const ProgramRun run = run_program(arguments);
  CAPTURE(run.err);
  REQUIRE(run.status == status);
  return file_text(scratch.path("page.html"));
}

TEST_CASE("The page of simulate has the answer, the drawing, the tables, the scenario and the command") {
  const std::string page = page_of({"simulate", kQuickstart, "--set", "name=a 'b' & <c>"});
  check_stands_alone(page);
  CHECK(contains(page, "<h1>a 'b' &amp; &lt;c&gt;</h1>"));
  CHECK(!contains(page, "<c>"));
  CHECK(contains(page, "<div class=\"value\">34.60 ms</div>"));
  CHECK(contains(page, "<svg "));
  for (const char* heading : {"Answer", "Timeline and memory", "Links (busiest first)", "Critical path",
                              "Textbook formulas next to the simulation", "How it is known", "Made by"})
    CHECK_MESSAGE(contains(page, std::string("<h2>") + heading + "</h2>"), heading);
  CHECK(contains(page, "pipewright simulate scenarios/quickstart.yaml --set 'name=a '\\''b'\\'' &amp; &lt;c&gt;'"));
  CHECK(contains(page, "micro_batches: 8"));  // of the resolved scenario
  CHECK(contains(page, "(K-1)/(M+K-1) = 3/11 [DAPPLE20]"));
}

TEST_CASE("What the figures of a page say stands there once, with separators of thousands") {
  const std::string page = page_of({"simulate", kQuickstart});
  CHECK(contains(page, "<div class=\"value\">1,850</div>"));
  CHECK(count(page, "<td>step time</td>") == 0);
  CHECK(count(page, "<td>throughput</td>") == 0);
  CHECK(count(page, "<td>memory peak</td>") == 0);
  CHECK(contains(page, "<td>other bubbles</td><td>30.6 % of the longest worker's span"));
  const std::string steady = page_of({"simulate", "scenarios/pipedream/replicated-2-1-1.yaml"});
  CHECK(contains(steady, "<div class=\"remark\">at the steady rate: 12.20 ms per micro-batch; whole run "));
  const std::string whole =
      page_of({"simulate", "scenarios/what_if/llama3-70b.yaml", "--tokens", "1T", "--price", "3"});
  const ProgramRun figures = run_program({"simulate", "--json", "scenarios/what_if/llama3-70b.yaml"});
  const auto tokens = nlohmann::json::parse(figures.out).at("tokens_per_s").get<double>();
  CHECK(contains(whole, "<div class=\"value\">" + std::to_string(std::lround(tokens) / 1000) + ","));
  CHECK(contains(whole, "953,675 steps"));
  CHECK(contains(whole, "<td>time</td><td>on 64 devices"));
  CHECK(contains(whole, "<td>cost</td><td>3 per device-hour"));
}

TEST_CASE("A drawing is as wide as its page at most, and tables have heads for narrow screens") {
  const std::string page = page_of({"simulate", kQuickstart});
  CHECK(contains(page, ".drawing svg{display:block;max-width:100%;height:auto}"));
  CHECK(contains(page, "viewBox=\"0 0 "));
  CHECK(!contains(page, "min-width:1176px"));
  CHECK(contains(page, "@media screen and (max-width:640px)"));
  CHECK(contains(page, ".t1 td:nth-child(3)::before{content:\"layers\"}"));
  CHECK(contains(page, "::before{content:\"busy \\000025\"}"));  // busy %
  HtmlPage hostile("", "");
  hostile.table({{"\"}</style><b>\\", true, false, {"x"}}});
  CHECK(count(hostile.document(), "</style>") == 1);
}

// Copied elsewhere first, so that the folder is none of the source tree's.
TEST_CASE("No folder of this machine is in a page") {
  const ScratchFolder folder;
  std::ofstream(folder.path("mine.yaml")) << file_text(source_folder() + "/" + kQuickstart);
  std::ofstream(folder.path("grid.yaml")) << "version: 1\nsweep: {base: mine.yaml, grid: {plan.stages: [2, 4]}}\n";
  const std::string home = folder.path("");
  const std::vector<std::vector<std::string>> commands = {
      {"simulate", folder.path("mine.yaml")},
      {"plan", folder.path("mine.yaml"), "--set", "plan.stages=auto"},
      {"compare", folder.path("mine.yaml"), kQuickstart},
      {"sweep", folder.path("grid.yaml")}};
  for (const auto& command : commands) {
    CAPTURE(command.front());
    const std::string page = page_of(command);
    CHECK(!contains(page, home.substr(0, home.size() - 1)));
    CHECK(!contains(page, source_folder() + "/"));
    CHECK(contains(page, command[1].ends_with("grid.yaml") ? "grid.yaml" : "mine.yaml"));
  }
  CHECK(contains(page_of(commands[0]), "configs/devices/v100-sxm2-16g.yaml:"));
}

TEST_CASE("The page of a plan that does not fit says so") {
  const std::string page =
      page_of({"simulate", kQuickstart, "--ignore-memory", "--set", "cluster.node.device.memory=1GiB"}, 1);
  check_stands_alone(page);
  CHECK(contains(page, "memory peak: does not fit"));
  CHECK(contains(page, "infeasible"));
}

TEST_CASE("The page of plan ranks plans, draws the unbeaten ones and the best one's timeline") {
  const std::string page = page_of({"plan", kQuickstart, "--set", "plan.stages=auto", "--set",
                                    "plan.data_parallel=auto", "--pareto", "memory,cost"});
  check_stands_alone(page);
  CHECK(count(page, "<circle ") >= 2);
  CHECK(count(page, "<svg ") == 2);
  CHECK(contains(page, "<h2>Plans, best first</h2>"));
  CHECK(contains(page, "pipewright plan scenarios/quickstart.yaml --pareto memory,cost"));
}

TEST_CASE("The page of a sweep has its table, and plots where there is something to plot over") {
  const std::string page = page_of({"sweep", "scenarios/what_if/bandwidth.yaml"});
  check_stands_alone(page);
  CHECK(count(page, "<svg ") == 2);
  CHECK(count(page, "<tr>") == 1 + 21);  // three variants, seven bandwidths
  const std::string variants = page_of({"sweep", "scenarios/what_if/hardware.yaml"});
  check_stands_alone(variants);
  CHECK(contains(variants, "<h2>Points</h2>"));
}

TEST_CASE("Long texts of a table wrap, a table of many letters is set tighter, and a box that scrolls shows it") {
  HtmlPage page("plans", "");
  page.table({{"plan", true, false, {"PP4 VP7 DP4 TP4+SP MBS1 x 32 interleaved_1f1b", "PP4"}}});
  CHECK(page.document().find("<table>") != std::string::npos);
  CHECK(page.document().find("<td class=\"words long\">PP4 VP7") != std::string::npos);
  CHECK(page.document().find("<td class=\"words\">PP4</td>") != std::string::npos);
  CHECK(page.document().find("var(--shade)") != std::string::npos);
  HtmlPage wide("plans", "");
  wide.table({{"a", true, false, {std::string(60, 'a')}}, {"b", true, false, {std::string(60, 'b')}}});
  CHECK(wide.document().find("<table class=\"dense\">") != std::string::npos);
}

TEST_CASE("The page of a comparison has both timelines and what differs") {
  const std::string page = page_of({"compare", kQuickstart, kQuickstart, "--set-b", "plan.schedule=gpipe"});
  check_stands_alone(page);
  CHECK(contains(page, "<td class=\"words\">plan.schedule</td><td class=\"words\">1f1b</td>"));
  CHECK(count(page, "<svg ") == 1);
  const std::string same = page_of({"compare", kQuickstart, kQuickstart});
  check_stands_alone(same);
  CHECK(contains(same, "No difference"));
}

TEST_CASE("The page of published tables has every cell with its error and verdict") {
  const std::string page = page_of({"reproduce", "gpipe-memory"});
  check_stands_alone(page);
  CHECK(contains(page, "<h2>Made by</h2>"));
  CHECK(contains(page, "pipewright reproduce gpipe-memory"));
  const std::string checked = page_of({"reproduce", "zero-bubble"});
  check_stands_alone(checked);
  CHECK(contains(checked, "<td class=\"words\">1.5B ZB-H1</td>"));
  CHECK(contains(checked, "<td>0.1585</td><td>0.15852</td><td>+0.01 %</td>"));
  CHECK(count(checked, "<td class=\"words\">ok</td>") == 131);
  CHECK(contains(error_of({"reproduce", "zero-bubble", "-o", "x.json"}), "known: .html"));
}

TEST_CASE("The page of a validation stands alone") {
  ScratchFolder scratch;
  static_cast<void>(run_program({"validate", "scenarios/validation/small-ops.yaml", "--budget", "50 ms", "--steps", "5",
                                 "--warmup", "0", "-o", scratch.path("out"), "-o", scratch.path("page.html")}));
  const std::string page = file_text(scratch.path("page.html"));
  check_stands_alone(page);
  CHECK(count(page, "<svg ") == 1);
}

// A speed-up over what cannot run is none that anybody can have.
TEST_CASE("The line of the speed-up says where data parallelism would not fit, in text and on a page") {
  const std::string llama = "scenarios/what_if/llama3-70b.yaml";
  const ScratchFolder folder;
  const auto told = [&](const std::string& scenario) {
    const ProgramRun run = run_program({"simulate", scenario, "--width", "400", "-o", folder.path("p.html")});
    REQUIRE(run.status == 0);
    const std::size_t at = run.out.find("speed-up ");
    return run.out.substr(at, run.out.find('\n', at) - at);
  };
  const std::string line = told(llama);
  const std::string part = "x over data parallelism on as many devices, which would not fit: it needs ";
  CHECK_MESSAGE(contains(line, part), line);
  CHECK(line.ends_with(" of 79.1 GiB"));
  CHECK(contains(file_text(folder.path("p.html")), line.substr(line.find(part))));
  CHECK(contains(told(kQuickstart), "x over data parallelism on as many workers"));
  CHECK(!contains(told(kQuickstart), "would not fit"));
}

// The table of plans on the page of `plan`.
std::string ranking_table(const std::string& scenario, const std::string& top, const std::vector<std::string>& more) {
  const ScratchFolder folder;
  std::vector<std::string> arguments = {"plan", scenario, "--top", top, "-o", folder.path("p.html")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  REQUIRE(run_program(arguments).status == 0);
  const std::string page = file_text(folder.path("p.html"));
  check_stands_alone(page);
  const std::size_t begin = page.find("<h2>Plans, best first</h2>");
  return page.substr(begin, page.find("</table>", begin) - begin);
}

TEST_CASE("What all plans have in common stands above the table of a page") {
  const std::vector<std::string> open = {"--set", "plan={stages: 4, schedule: auto, partition: auto}"};
  const std::string several = ranking_table(kQuickstart, "3", open);
  CHECK_MESSAGE(contains(several, "<p>In all of them: GPUs 4 · GBS 64 · MBS 8 · TP 1 · PP 4"), several);
  CHECK(contains(several, ">schedule</th>"));
  for (const char* head : {">GPUs</th>", ">GBS</th>", ">PP</th>"})
    CHECK(!contains(several, head));
  const std::string one = ranking_table(kQuickstart, "1", open);  // nothing to compare with: every column
  CHECK(contains(one, "<table class=\"dense\">"));
  CHECK(contains(one, ">GPUs</th>"));
  CHECK(!contains(one, "In all of them"));
}

// What is left is at most so wide: letters of 13 px are 7.3 px on the average, and a cell has 12 px around it.
TEST_CASE("The ranking on a page fits 1280 px" * doctest::test_suite("whole searches")) {
  const std::string wide =
      ranking_table("scenarios/megatron/llama3-70b-64xh100.yaml", "5", {"--tokens", "1T", "--price", "3"});
  CHECK(count(wide, "<th") <= 20);
  double pixels = 0;
  std::vector<std::size_t> longest;
  for (std::size_t row = wide.find("<tr>", wide.find("<tbody>")); row != std::string::npos;
       row = wide.find("<tr>", row + 1)) {
    const std::string cells = wide.substr(row, wide.find("</tr>", row) - row);
    std::size_t column = 0;
    for (std::size_t at = cells.find("<td"); at != std::string::npos; at = cells.find("<td", at + 1), ++column) {
      const std::size_t text = cells.find('>', at) + 1;
      longest.resize(std::max(longest.size(), column + 1), 4);
      longest[column] = std::max(longest[column], cells.find("</td>", at) - text);
    }
  }
  for (const std::size_t letters : longest)
    pixels += 7.3 * static_cast<double>(letters) + 12;
  CHECK(pixels <= 1280 - 2 * 32);
}

}  // namespace
}  // namespace pipewright::tests
