// Reports as HTML pages, one per command. Same answer, same command, same bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/answers/ranking.hpp"
#include "core/answers/report.hpp"
#include "core/answers/sweep.hpp"
#include "io/writers/compare.hpp"
#include "io/writers/html_page.hpp"
#include "io/writers/sweep.hpp"

namespace pipewright::io {

// `command`: how it was made, "pipewright simulate x.yaml"; "": not said.
std::string html_report(const Answer& answer, std::string_view command);

// `best`: the first plan, simulated; its timeline and memory are drawn.
std::string ranking_html(const Ranking& ranking, const Scenario& asked, const Answer& best, std::string_view command);

std::string sweep_html(const Sweep& sweep, const SweepAxes& axes, std::string_view command);

std::string compare_html(const ComparedSide& a, const ComparedSide& b, std::string_view command);

// "Memory is tight: up to 86.2 GiB of 80.0 GiB is expected ...", for a plan that fits with so small a probability.
std::string tight_memory(Bytes high, Bytes capacity, double fit);
// "" where the plan does not fit, or fits with kFitByDefault or with what the scenario asks for.
std::string tight_memory(const Report& report);
std::vector<std::string> all_warnings(const Report& report);  // those of the report, and of tight memory

// Pieces of pages, for those who make one of their own.
// What the whole training takes and costs, where the scenario asks.
void add_campaign_figures(std::vector<HtmlPage::Figure>& figures, const Answer& answer);
void warn_of_tight_memory(HtmlPage& page, const Answer& answer);  // where it is
void add_timeline_and_tables(HtmlPage& page, const Answer& answer);
// The table, but for columns that say the same in all of two rows or more: these stand above it in a line, so that the
// table fits a page.
void add_differing(HtmlPage& page, std::vector<TextColumn> columns);
void add_making(HtmlPage& page, std::string_view command, const Scenario& scenario);

}  // namespace pipewright::io
