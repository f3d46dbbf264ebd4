#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "io/read/read_scenario.hpp"
#include "io/text/format_quantity.hpp"
#include "io/writers/anchored.hpp"
#include "io/writers/campaign_lines.hpp"
#include "io/writers/drawing.hpp"
#include "io/writers/html.hpp"
#include "io/writers/html_page.hpp"
#include "io/writers/interval_text.hpp"
#include "io/writers/report_tables.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {
namespace {

constexpr int kMostTableRows = 256;  // of a table; more stages are listed evenly spread
constexpr std::size_t kMostLinks = 32, kMostParts = 20;

ReportTable critical_path_table(const Answer& answer, std::size_t most) {
  const auto& path = answer.report.critical_path;
  if (path.empty()) return {};
  ReportTable table{"Critical path", {{"part", true}, {"time"}, {"share"}}, {}};
  const auto row = [&](const std::string& what, Time time) {
    table.columns[0].cells.push_back(what);
    table.columns[1].cells.push_back(short_time(time, 4));
    table.columns[2].cells.push_back(percent(ratio(time, answer.report.makespan)));
  };
  Time rest;
  for (std::size_t i = 0; i < path.size(); ++i)
    i < most ? row(path[i].what, path[i].time) : static_cast<void>(rest += path[i].time);
  if (path.size() > most) row(fmt::format("{} further parts", path.size() - most), rest);
  return table;
}

// What the step time of a pipeline without a flush is made of.
std::string steady_in_words(const Report& report) {
  const SteadyState& steady = *report.steady;
  const double cycle = seconds(steady.growth) / static_cast<double>(steady.micro_batches);
  return fmt::format("at the steady rate{}: {} per micro-batch; whole run {}",
                     steady.exact ? "" : " (averaged: no exact period found)",
                     short_time(Time{static_cast<std::int64_t>(std::llround(cycle * 1e9))}, 4),
                     short_time(report.makespan, 4));
}

std::vector<HtmlPage::Figure> key_figures(const Answer& answer) {
  const Report& r = answer.report;
  std::vector<HtmlPage::Figure> figures;
  std::string range, rates;
  if (r.steady) range = steady_in_words(r);
  if (answer.plan.barrier.value != Barrier::Flush)
    range = "longest span of a stage: steps overlap; the first takes " + short_time(r.makespan, 4);
  if (r.range) {
    range += range.empty() ? "" : "; ";
    range += within_90(short_time(r.range->fastest), short_time(r.range->slowest));
    rates = fmt::format("{} to {}", significant(r.range->samples_per_s_low), significant(r.range->samples_per_s_high));
  }
  figures.push_back({"step time", short_time(r.step_time, 4), range});
  if (r.samples_per_s > 0) figures.push_back({"samples per second", significant(r.samples_per_s, 4), rates});
  if (r.tokens_per_s) figures.push_back({"tokens per second", significant(*r.tokens_per_s, 4), ""});
  if (r.mfu) figures.push_back({"model FLOPs utilization", percent(*r.mfu), ""});
  if (r.hfu) figures.push_back({"hardware FLOPs utilization", percent(*r.hfu), "with repeated forwards"});
  figures.push_back({"bubble", percent(r.bubble_fraction), bubble_of(answer).substr(1)});
  if (const StageReport* full = fullest(r)) {
    std::string remark = fmt::format("{} on stage {}", of_capacity(full->need.capacity), full->stage);
    remark.erase(0, 1);  // the blank
    if (const std::string within = memory_within_90(full->need); !within.empty()) remark += "; " + within;
    if (full->need.fit > 0)
      remark += fmt::format("; {} with {}: up to {}", r.fits ? "fits" : "does not fit", fit_text(full->need.fit),
                            short_bytes(full->need.to_fit));
    if (is_anchored(*answer.scenario)) remark += "; " + anchored_text(full->need);
    figures.push_back({r.fits ? "memory peak" : "memory peak: does not fit", short_bytes(full->need.with_reserve),
                       std::move(remark)});
  }
  return figures;
}

}  // namespace

void add_campaign_figures(std::vector<HtmlPage::Figure>& figures, const Answer& answer) {
  if (!answer.report.campaign) return;
  const Campaign& campaign = *answer.report.campaign;
  const auto remark = [&](const auto& text, double all, const std::optional<double>& expected) {
    std::string words;
    if (campaign.days_low)
      words = within_90(text(all * *campaign.days_low / campaign.days()),
                        text(all * *campaign.days_high / campaign.days()));
    if (expected) words += fmt::format("{}{} with failures", words.empty() ? "" : "; ", text(*expected));
    return words;
  };
  figures.push_back({campaign.length + " take", days_text(campaign.days()),
                     remark(days_text, campaign.days(), campaign.days_expected())});
  if (campaign.cost)
    figures.push_back(
        {"cost", money_text(*campaign.cost), remark(money_text, *campaign.cost, campaign.cost_expected())});
}

void warn_of_tight_memory(HtmlPage& page, const Answer& answer) {
  if (const std::string tight = tight_memory(answer.report); !tight.empty()) page.warning(tight);
}

std::string tight_memory(const Report& report) {
  const StageReport* full = fullest(report);
  if (full == nullptr || !report.fits || full->need.high <= full->need.capacity) return "";
  if (full->need.fit > 0 || full->need.high <= full->need.low) return "";  // as asked; nothing is open
  const double fit = fit_probability(report);
  return fit < kFitByDefault ? tight_memory(full->need.high, full->need.capacity, fit) : "";
}

std::string tight_memory(Bytes high, Bytes capacity, double fit) {
  return fmt::format(
      "Memory is tight: real use may reach {} of {}, as frameworks differ in the tensors that they keep, and the plan "
      "fits with {:.0f} %. `plan` takes plans that fit with {}, or with what --fit asks for.",
      short_bytes(high), short_bytes(capacity), 100 * fit, fit_text(kFitByDefault));
}

std::vector<std::string> all_warnings(const Report& report) {
  std::vector<std::string> warnings = report.warnings;
  if (std::string tight = tight_memory(report); !tight.empty()) warnings.push_back(std::move(tight));
  return warnings;
}

void add_timeline_and_tables(HtmlPage& page, const Answer& answer) {
  page.heading("Timeline and memory");
  page.drawing(svg_timeline(answer));
  page.table(stage_table(answer, kMostTableRows));
  page.table(idle_table(answer, kMostTableRows));
  page.table(memory_table(answer, kMostTableRows));
  page.table(link_table(answer, kMostLinks));
  page.table(critical_path_table(answer, kMostParts));
  page.table(sensitivity_table(answer));
}

void add_differing(HtmlPage& page, std::vector<TextColumn> columns) {
  std::vector<TextColumn> differing;
  std::string alike;
  for (TextColumn& column : columns) {
    const auto& cells = column.cells;
    const bool same = std::ranges::adjacent_find(cells, std::not_equal_to<>()) == cells.end();
    if (cells.size() < 2 || !same) {
      differing.push_back(std::move(column));
    } else if (!column.drop_zero || (cells.front() != "-" && cells.front() != "0")) {
      alike += fmt::format("{}{} {}", alike.empty() ? "" : " · ", column.head, cells.front());
    }
  }
  if (!alike.empty()) page.paragraph("In all of them: " + alike);
  page.table(differing);
}

void add_making(HtmlPage& page, std::string_view command, const Scenario& scenario) {
  if (!command.empty()) {
    page.heading("Made by");
    page.text_block(command);
  }
  page.heading("The scenario, with every default and where each value comes from");
  page.text_block(resolved_yaml(scenario));
}

std::string html_report(const Answer& answer, std::string_view command) {
  const Report& r = answer.report;
  const std::string& name = answer.scenario->name;
  HtmlPage page(name.empty() ? "pipewright report" : name, headline(answer));
  std::vector<HtmlPage::Figure> figures = key_figures(answer);
  add_campaign_figures(figures, answer);
  page.figures(figures);
  warn_of_tight_memory(page, answer);
  for (const std::string& warning : r.warnings)
    page.warning(warning);
  page.heading("Answer");
  page.facts(lines_beside_figures(answer));
  if (r.campaign) {
    page.heading("The whole training");
    page.facts(campaign_lines(answer, CampaignLines::BesideFigures));
  }
  add_timeline_and_tables(page, answer);
  if (!r.formulas.empty()) {
    FormulaTable formulas = formula_table(answer, r.formulas.size());
    page.table(ReportTable{"Textbook formulas next to the simulation",
                           {std::move(formulas.quantity),
                            std::move(formulas.by_formula),
                            std::move(formulas.simulated),
                            {"formula", true, false, std::move(formulas.words)}},
                           {}});
  }
  if (!r.references.empty()) {
    page.heading("For comparison");
    page.list(reference_lines(answer));
  }
  if (!r.hints.empty()) {
    page.heading("Hints");
    page.list(r.hints);
  }
  page.heading("How it is known");
  page.list(r.provenance);
  add_making(page, command, *answer.scenario);
  return page.document();
}

}  // namespace pipewright::io
