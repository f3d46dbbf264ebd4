#include "study/comparison_html.hpp"

#include <cmath>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "core/question/loads_text.hpp"
#include "core/question/profile.hpp"
#include "io/read/read_file.hpp"
#include "io/text/format_quantity.hpp"
#include "io/writers/compare.hpp"
#include "io/writers/drawing.hpp"
#include "io/writers/html.hpp"
#include "io/writers/html_page.hpp"

namespace pipewright {
namespace {

constexpr std::size_t kMostOps = 24;

std::vector<TextColumn> table_of(const std::string& head, const std::vector<ComparedRow>& rows) {
  std::vector<TextColumn> columns = {{head, true}, {"predicted"}, {"measured"}, {"error"}};
  for (const ComparedRow& row : rows) {
    const std::string* const cells[] = {&row.what, &row.predicted, &row.measured, &row.error};
    for (std::size_t i = 0; i < columns.size(); ++i)
      columns[i].cells.push_back(*cells[i]);
  }
  return columns;
}

// What the median is taken of: "33.4 ms, 33.1 ms, ..."
std::string step_times(const std::vector<Time>& timed) {
  std::string text;
  for (const Time step : timed)
    text += (text.empty() ? "" : ", ") + short_time(step, 4);
  return text;
}

}  // namespace

std::string comparison_html(const RunComparison& c, const std::string& command) {
  const Report &predicted = c.predicted.report, &measured = c.measured.report;
  const Scenario& scenario = *c.predicted.scenario;
  HtmlPage page(scenario.name, question(c.measured));
  page.figures({{"error of the step", signed_percent(c.judgement.error()),
                 "predicted as the machine was meanwhile / measured - 1"},
                {"verdict", std::string(name(c.verdict())), fmt::format("tolerance {}", whole_percent(c.tolerance))}});
  if (c.verdict() == Verdict::Withheld)
    page.warning(c.verdict_text());
  else
    page.paragraph("Verdict: " + c.verdict_text() + ".");
  for (const std::string& warning : predicted.warnings)
    page.warning(warning);
  page.heading("Predicted next to measured");
  page.table(table_of("", compared_rows(c)));
  page.paragraph("90 % interval of the prediction: " + interval_text(c) + ". The machine: " + movement_text(c) + ".");
  page.heading("Both timelines on one scale");
  page.drawing(svg_timelines(c.predicted, c.measured, "predicted", "measured"));
  page.heading("Ops, by what they add to the error of a step");
  page.table(table_of("op", compared_ops(c, kMostOps)));
  page.heading("Timed steps, in their order");
  page.paragraph(step_times(c.times.timed));
  page.paragraph(fmt::format("Median {}, p5 {}, p95 {}.", short_time(c.times.median, 4), short_time(c.times.p5),
                             short_time(c.times.p95)));
  page.heading("How it is known");
  std::vector<std::string> known = measured.provenance;
  if (scenario.profile != nullptr)
    known.push_back("prices: " + scenario.profile->source + "; " + loads_text(*scenario.profile));
  page.list(known);
  add_making(page, command, scenario);
  return page.document();
}

std::string study_html(const std::vector<Row>& rows, const std::vector<std::string>& remarks,
                       const std::string& profile, const std::string& folder, const std::string& command) {
  HtmlPage page("Predictions next to runs",
                "Every scenario was predicted from one calibration, before it ran; every attempt is here.");
  std::vector<TextColumn> columns = {
      {"scenario", true}, {"attempt"},  {"schedule, K x M", true}, {"predicted"}, {"measured"},     {"error"},
      {"bubble"},         {"measured"}, {"memory", true},          {"p95/p5"},    {"verdict", true}};
  for (const Row& r : rows) {
    const bool failed = !r.failed.empty();
    const std::string cells[] = {r.scenario,
                                 std::to_string(r.attempt),
                                 failed ? "" : fmt::format("{}, {} x {}", r.schedule, r.stages, r.micro_batches),
                                 failed ? "" : short_time(r.predicted),
                                 failed ? "" : short_time(r.median),
                                 r.judged() ? signed_percent(r.error) : "",
                                 failed ? "" : percent(r.bubble_predicted),
                                 failed ? "" : percent(r.bubble_measured),
                                 failed           ? ""
                                 : r.memory_exact ? "exact"
                                                  : "NOT EXACT",
                                 failed ? "" : fmt::format("{:.2f}", r.spread()),
                                 failed ? "failed: " + r.failed : std::string(name(r.verdict))};
    for (std::size_t i = 0; i < columns.size(); ++i)
      columns[i].cells.push_back(cells[i]);
  }
  page.heading("All attempts");
  page.table(columns);
  page.list(remarks);
  for (const Row& r : rows) {
    if (!r.failed.empty()) continue;
    page.heading(fmt::format("{}, attempt {}", r.scenario, r.attempt));
    page.paragraph(r.text + ".");
    const std::string drawing = fmt::format("{}/{}/attempt-{}/overlay.svg", folder, r.file, r.attempt);
    std::error_code absent;
    if (std::filesystem::exists(drawing, absent)) page.drawing(read_file(drawing));
  }
  page.heading("How it is known");
  page.list({"prices: " + profile});
  if (!command.empty()) {
    page.heading("Made by");
    page.text_block(command);
  }
  return page.document();
}

}  // namespace pipewright
