#include "io/writers/sweep_answer.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "io/writers/html_page.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/sweep.hpp"
#include "io/writers/sweep_cells.hpp"
#include "io/writers/text_table.hpp"

namespace pipewright::io {
namespace {

constexpr std::size_t kGlance = 24;  // rows that are looked over as they stand
constexpr std::size_t kBest = 5;
constexpr std::size_t kReasonLines = 12;  // CSV and JSON have the reason of every row

std::int64_t count(const Sweep& sweep, SweepRow::Outcome outcome) {
  return std::ranges::count_if(sweep.rows, [&](const SweepRow& row) { return row.outcome == outcome; });
}

// "3402 fit, 8112 do not fit, 3606 cannot be"
std::string counts(const Sweep& sweep) {
  std::string text = fmt::format("{} fit", count(sweep, SweepRow::Outcome::Fits));
  for (const auto& [outcome, words] : {std::pair{SweepRow::Outcome::DoesNotFit, "do not fit"},
                                       {SweepRow::Outcome::NoPlan, "have no plan that fits"},
                                       {SweepRow::Outcome::Invalid, "cannot be"}})
    if (const std::int64_t number = count(sweep, outcome); number > 0) text += fmt::format(", {} {}", number, words);
  return text;
}

std::string axis_value_text(const Sweep& sweep, double value) {
  const SweepFigure figure = main_figure(sweep.question);
  return cell_of(figure, value, scale_of(sweep, figure));
}

std::string alike_text(const BestRow& best) {
  return best.alike == 0 ? "" : fmt::format(" (and {} other point{} alike)", best.alike, best.alike == 1 ? "" : "s");
}

// Reasons that differ in figures only, and in what those in brackets are of: "stage # needs # GiB of # GiB".
std::string without_figures(const std::string& reason) {
  std::string text;
  int depth = 0;
  for (const char c : reason) {
    if (c == '(') ++depth;
    const bool figure = (c >= '0' && c <= '9') || (c == '.' && !text.empty() && text.back() == '#');
    if (depth == 0 && !figure) text += c;
    if (depth == 0 && figure && !text.ends_with('#')) text += '#';
    if (c == ')' && depth > 0) --depth;
  }
  return text;
}

struct Reason {
  std::string first;                 // of its first point
  std::vector<std::int64_t> points;  // in their order
  bool differs = false;              // others have other figures in it
};

std::vector<Reason> grouped(const Sweep& sweep, std::string (*key)(const std::string&)) {
  std::vector<Reason> all;
  std::map<std::string, std::size_t> known;
  for (const SweepRow& row : sweep.rows) {
    if (row.reason.empty()) continue;
    const auto [at, is_new] = known.emplace(key(row.reason), all.size());
    if (is_new) all.push_back({row.reason, {}, false});
    all[at->second].points.push_back(row.point);
    all[at->second].differs |= row.reason != all[at->second].first;
  }
  return all;
}

// "128 points, such as stages 1, batch 64: ..."
std::string many_text(const Sweep& sweep, const Reason& reason) {
  const auto points = reason.points.size();
  return fmt::format("{} point{}, {}{}: {}{}", points, points == 1 ? "" : "s", points == 1 ? "" : "such as ",
                     named_point(sweep.question, reason.points.front()), reason.first,
                     reason.differs ? " (the others alike, with other figures)" : "");
}

// "a; b; c; d and 12 more: does not divide"
std::string few_text(const Sweep& sweep, const Reason& reason) {
  constexpr std::size_t kNamed = 4;
  std::string names;
  for (std::size_t p = 0; p < std::min(reason.points.size(), kNamed); ++p)
    names += (names.empty() ? "" : "; ") + point_name(sweep.question, reason.points[p]);
  if (reason.points.size() > kNamed) names += fmt::format(" and {} more", reason.points.size() - kNamed);
  return names + ": " + reason.first;
}

}  // namespace

SweepFigure main_figure(const SweepQuestion& question) {
  return question.metrics.empty() ? SweepFigure::SamplesPerS : question.metrics.front();
}

std::vector<BestRow> best_rows(const Sweep& sweep, std::size_t most) {
  const SweepFigure by = main_figure(sweep.question);
  const double sign = name_of(by).better == Better::Less ? 1 : -1;
  std::map<double, BestRow> found;  // best first
  for (const SweepRow& row : sweep.rows) {
    if (row.outcome != SweepRow::Outcome::Fits) continue;
    const std::optional<double> value = figure(row, by);
    if (!value) continue;
    const auto [at, is_new] = found.emplace(sign * *value, BestRow{&row, *value, 0});
    if (!is_new) ++at->second.alike;
    if (found.size() > most) found.erase(std::prev(found.end()));
  }
  std::vector<BestRow> best;
  for (const auto& [order, row] : found)
    best.push_back(row);
  return best;
}

std::string named_point(const SweepQuestion& question, std::int64_t point) {
  std::string text = question.variants.size() > 1 ? question.variants[question.variant(point)] : "";
  const std::vector<std::size_t> values = question.values(point);
  for (std::size_t i = 0; i < values.size(); ++i)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", head_of(question, i), question.axes[i].texts[values[i]]);
  return text;
}

std::string answer_text(const Sweep& sweep, int width) {
  if (sweep.rows.size() <= kGlance) return "";
  std::string text = wrapped("points        ", counts(sweep), width);
  std::string head = fmt::format("best          {}",
                                 head_of(main_figure(sweep.question), scale_of(sweep, main_figure(sweep.question))));
  for (const BestRow& best : best_rows(sweep, kBest)) {
    if (!head.empty()) text += std::exchange(head, "") + "\n";
    text += wrapped("              " + padded(axis_value_text(sweep, best.value), 8) + "  ",
                    named_point(sweep.question, best.row->point) + alike_text(best), width);
  }
  return text;
}

void add_answer(HtmlPage& page, const Sweep& sweep) {
  if (sweep.rows.size() <= kGlance) return;
  page.paragraph("Points: " + counts(sweep) + ".");
  const std::vector<BestRow> best = best_rows(sweep, kBest);
  if (best.empty()) return;
  page.heading("Best");
  TextColumn points{"point", true}, alike{"others alike"};
  TextColumn values{head_of(main_figure(sweep.question), scale_of(sweep, main_figure(sweep.question)))};
  alike.drop_zero = true;
  for (const BestRow& each : best) {
    values.cells.push_back(axis_value_text(sweep, each.value));
    points.cells.push_back(named_point(sweep.question, each.row->point));
    alike.cells.push_back(std::to_string(each.alike));
  }
  page.table({values, points, alike});
}

void write_answer(JsonFields& json, const Sweep& sweep) {
  json.object("outcomes", [&] {
    json.field("fits", count(sweep, SweepRow::Outcome::Fits));
    json.field("does_not_fit", count(sweep, SweepRow::Outcome::DoesNotFit));
    json.field("no_plan", count(sweep, SweepRow::Outcome::NoPlan));
    json.field("invalid", count(sweep, SweepRow::Outcome::Invalid));
  });
  json.object("best", [&] {
    json.field("figure", name_of(main_figure(sweep.question)).name);
    json.list("rows", best_rows(sweep, kBest), [&](const BestRow& best) {
      write_point(json, sweep.question, best.row ? best.row->point : 0);
      json.field("value", best.value).field("alike", best.alike);
    });
  });
}

std::string reasons(const Sweep& sweep, int width) {
  std::vector<Reason> all = grouped(sweep, [](const std::string& reason) { return reason; });
  const bool many = all.size() > kReasonLines;
  if (many) {
    all = grouped(sweep, without_figures);
    std::ranges::stable_sort(all, [](const Reason& a, const Reason& b) { return a.points.size() > b.points.size(); });
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(all.size(), kReasonLines); ++i)
    text += wrapped("  ", many ? many_text(sweep, all[i]) : few_text(sweep, all[i]), width);
  if (all.size() > kReasonLines)
    text += fmt::format("  and {} other reasons; -o FILE.csv has that of every row\n", all.size() - kReasonLines);
  return text;
}

}  // namespace pipewright::io
