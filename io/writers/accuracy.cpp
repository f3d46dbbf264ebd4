#include "io/writers/accuracy.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/folds.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/names.hpp"
#include "io/text/quote.hpp"
#include "io/writers/html_page.hpp"
#include "io/writers/text_table.hpp"

namespace pipewright::io {
namespace {

// Decimals of the published figure, or none: it is written with an exponent.
std::optional<int> decimals(const std::string& published) {
  if (published.find_first_of("eE") != std::string::npos) return std::nullopt;
  const std::size_t point = published.find('.');
  return point == std::string::npos ? 0 : static_cast<int>(published.size() - point - 1);
}

// One decimal more than was published, so that a difference below its last digit shows; whole counts stay whole.
std::string figure(double value, const Expectation& row) {
  if (!row.quantity) return "";
  if (dimension(row.quantity->figure) == Dimension::Truth) return value != 0 ? "yes" : "no";
  const bool whole = dimension(row.quantity->figure) == Dimension::Count && row.ratio_to.empty() && row.unit_size == 1;
  if (whole) return fmt::format("{:.0f}", value);
  const auto places = decimals(row.published_text);
  return places ? fmt::format("{:.{}f}", value, *places + 1) : significant(value, 4);
}

std::string published(const Expectation& row) {
  if (row.published_text == "true") return "yes";
  if (row.published_text == "false") return "no";
  return row.published_text;
}

std::string error(const std::optional<double>& value) {
  if (!value) return "";
  const double share = 100 * *value;
  if (std::abs(share) < 0.005) return "0.00 %";
  return std::abs(share) < 1 ? fmt::format("{:+.2f} %", share) : fmt::format("{:+.1f} %", share);
}

std::string mean_error(const std::optional<double>& value) {
  return value ? fmt::format("{:.2f} %", 100 * *value) : "-";
}

std::string tolerance(const Expectation& row) {
  if (!row.tolerance) return "";
  if (row.tolerance->value == 0) return "exact";
  if (row.tolerance->relative) return fmt::format("{} %", brief(100 * row.tolerance->value));
  std::string text = fmt::format("{:.9f}", row.tolerance->value);
  text.erase(text.find_last_not_of('0') + 1);
  return text.ends_with('.') ? text.substr(0, text.size() - 1) : text;
}

std::string status_words(CellStatus status) {
  std::string text(name(status));
  std::ranges::replace(text, '_', ' ');
  return text;
}

std::string verdict(const Cell& cell) {
  if (cell.reference) return "1 by definition";
  if (cell.row.status == CellStatus::NotSimulated) return "not simulated";
  std::string text;
  if (cell.row.status == CellStatus::Compared)
    text = cell.within ? "ok" : "MISSED";
  else
    text = status_words(cell.row.status) + (cell.row.status == CellStatus::Fitted ? ""
                                            : cell.within                         ? ", within"
                                                                                  : ", outside");
  const bool beaten =
      cell.counts() && cell.error && cell.baseline_error && std::abs(*cell.baseline_error) < std::abs(*cell.error);
  return text + (beaten ? "; baseline nearer" : "");
}

// What a cell compares, in a few words.
std::string what(const Expectation& row) {
  std::string text = row.quantity ? row.quantity->text : "";
  if (row.quantity && row.quantity->figure == Figure::Memory && row.quantity->where == Where::All)
    text += ", all devices";
  if (row.quantity && row.quantity->where == Where::Stage) text += fmt::format(", stage {}", row.quantity->stage);
  if (!row.ratio_to.empty()) text += " / that of " + row.ratio_to;
  return text;
}

std::string interval(const Cell& cell) {
  return cell.lowest && cell.highest ? figure(*cell.lowest, cell.row) + " to " + figure(*cell.highest, cell.row) : "";
}

std::string published_inside(const Cell& cell) {
  if (!cell.lowest || !cell.row.published) return "";
  return *cell.lowest <= *cell.row.published && *cell.row.published <= *cell.highest ? "yes" : "no";
}

std::vector<TextColumn> table_columns(const TableResult& table) {
  std::vector<TextColumn> all = {{"cell", true},
                                 {"quantity", true},
                                 {"published"},
                                 {"predicted"},
                                 {"unit", true, true},
                                 {"error"},
                                 {"tolerance"},
                                 {"interval", false, true},
                                 {"published in it", true, true},
                                 {"baseline", false, true},
                                 {"its error", false, true},
                                 {"time to accuracy", false, true},
                                 {"its prediction", false, true},
                                 {"verdict", true}};
  for (const Cell& cell : table.cells) {
    const std::string row[] = {cell.row.name,
                               what(cell.row),
                               published(cell.row),
                               cell.predicted ? figure(*cell.predicted, cell.row) : "-",
                               unit_of(cell.row),
                               error(cell.error),
                               tolerance(cell.row),
                               interval(cell),
                               published_inside(cell),
                               cell.baseline ? figure(*cell.baseline, cell.row) : "",
                               error(cell.baseline_error),
                               cell.row.time_to_accuracy ? brief(*cell.row.time_to_accuracy) : "",
                               cell.time_to_accuracy ? significant(*cell.time_to_accuracy, 3) : "",
                               verdict(cell)};
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i].cells.push_back(row[i]);
  }
  return all;
}

// "5 cells count: mean |error| 0.1 %, largest 0.3 %; ..."
std::string in_short(const TableResult& table) {
  const Accuracy accuracy = table.accuracy();
  std::string text =
      fmt::format("{} cell{} count{}", accuracy.cells, accuracy.cells == 1 ? "" : "s", accuracy.cells == 1 ? "s" : "");
  if (accuracy.cells > 0) text += fmt::format(", {} missed", accuracy.missed);
  if (accuracy.mean)
    text += fmt::format("; mean |error| {}, largest {}", mean_error(accuracy.mean), mean_error(accuracy.largest));
  if (accuracy.mean_with_misses)
    text += fmt::format("; with the known misses mean {}", mean_error(accuracy.mean_with_misses));
  if (accuracy.baseline_mean)
    text += fmt::format("; baseline: mean {} (ours next to it {}), largest {}", mean_error(accuracy.baseline_mean),
                        mean_error(accuracy.mean_beside_baseline), mean_error(accuracy.baseline_largest));
  if (accuracy.tau) text += fmt::format("; Kendall's tau {:.2f}", *accuracy.tau);
  std::string left_out;
  for (const auto& [status_name, status] : kNames<CellStatus>) {
    if (status == CellStatus::Compared) continue;
    const auto count = std::ranges::count_if(
        table.cells, [&, status = status](const Cell& cell) { return cell.row.status == status && !cell.reference; });
    if (count > 0) left_out += fmt::format("{}{} {}", left_out.empty() ? "" : ", ", count, status_words(status));
  }
  if (const auto references = std::ranges::count_if(table.cells, [](const Cell& c) { return c.reference; });
      references > 0)
    left_out += fmt::format("{}{} by definition", left_out.empty() ? "" : ", ", references);
  return text + (left_out.empty() ? "" : "; left out: " + left_out);
}

// "15-1", "straight 4", "data parallel 16"
std::string in_stages(const std::vector<int>& workers) {
  if (workers.size() == 1) return fmt::format("data parallel {}", workers.front());
  if (std::ranges::all_of(workers, [](int each) { return each == 1; }))
    return fmt::format("straight {}", workers.size());
  return fmt::format("{}", fmt::join(workers, "-"));
}

std::vector<const Cell*> with_choice(const TableResult& table) {
  std::vector<const Cell*> cells;
  for (const Cell& cell : table.cells)
    if (cell.choice) cells.push_back(&cell);
  return cells;
}

std::vector<TextColumn> choices(const std::vector<const Cell*>& cells) {
  std::vector<TextColumn> all = {
      {"cell", true},     {"published plan", true}, {"own plan", true}, {"published, simulated"},
      {"own, simulated"}, {"own / published"},      {"plan", true},     {"kind", true}};
  for (const Cell* cell : cells) {
    const PlanChoice& choice = *cell->choice;
    const std::string row[] = {cell->row.name,
                               in_stages(choice.published),
                               in_stages(choice.own) + (choice.idle > 0 ? fmt::format(", {} idle", choice.idle) : ""),
                               fmt::format("{:.2f}", choice.published_speed),
                               fmt::format("{:.2f}", choice.own_speed),
                               fmt::format("{:.2f}", choice.own_speed / choice.published_speed),
                               choice.same()   ? "the same"
                               : choice.near() ? "within 5 %"
                                               : "other",
                               choice.same_kind()    ? "the same"
                               : choice.right_kind() ? "within 5 %"
                                                     : "other"};
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i].cells.push_back(row[i]);
  }
  return all;
}

std::string choices_in_short(const std::vector<const Cell*>& cells) {
  // Of all, and of those whose inputs are known.
  const auto count = [&](bool (PlanChoice::*what)() const) {
    int all = 0, known = 0;
    for (const Cell* cell : cells)
      if ((*cell->choice.*what)()) ++all, known += cell->row.status != CellStatus::InputsAssumed;
    return fmt::format("{} ({})", all, known);
  };
  const auto known =
      std::ranges::count_if(cells, [](const Cell* cell) { return cell->row.status != CellStatus::InputsAssumed; });
  return fmt::format(
      "plans, of {} published ({} with known inputs): the planner's own is the same in {}; right, the same or the "
      "published one within 5 % of it, in {}; data parallelism or a pipeline: the same in {}, right in {}",
      cells.size(), known, count(&PlanChoice::same), count(&PlanChoice::right), count(&PlanChoice::same_kind),
      count(&PlanChoice::right_kind));
}

// What a table with a box says beyond that: whole means, intervals that hold what was published.
std::vector<std::string> over_the_box(const TableResult& table) {
  if (table.box.empty()) return {};
  const Accuracy accuracy = table.accuracy();
  int intervals = 0, inside = 0;
  for (const Cell& cell : table.cells)
    if (cell.lowest && !cell.reference) ++intervals, inside += published_inside(cell) == "yes";
  std::vector<std::string> lines;
  lines.push_back(
      fmt::format("unfitted rows with known inputs, misses included: mean |error| {} over {}; with those that are 1 by "
                  "definition {} over {}",
                  mean_error(accuracy.mean_of_all), accuracy.all, mean_error(accuracy.mean_with_references),
                  accuracy.with_references));
  if (accuracy.all_baselines > 0)
    lines.push_back(fmt::format(
        "next to the baseline: unfitted rows {}, baseline {}, over {}; fitted rows too {}, baseline {}, over {}",
        mean_error(accuracy.beside_predicted), mean_error(accuracy.baseline_of_predicted), accuracy.predicted_baselines,
        mean_error(accuracy.beside_all), mean_error(accuracy.baseline_of_all), accuracy.all_baselines));
  lines.push_back(fmt::format("interval: over the corners of the box {}; {} of {} intervals hold the published figure",
                              fmt::join(table.box, " x "), inside, intervals));
  return lines;
}

// Reasons, each once, with the cells that it is for.
std::vector<std::pair<std::string, std::string>> reasons(const TableResult& table) {
  struct Reason {
    std::vector<std::string> cells;
    std::string text;
  };
  std::vector<Reason> list;
  const auto add = [&](const std::string& cell, const std::string& text) {
    if (text.empty()) return;
    for (Reason& known : list)
      if (known.text == text) return known.cells.push_back(cell);
    list.push_back({{cell}, text});
  };
  for (const Cell& cell : table.cells) {
    add(cell.row.name, cell.row.reason);
    add(cell.row.name, cell.note);
    if (!cell.row.source.empty()) add(cell.row.name, "published in " + cell.row.source);
    if (!cell.row.baseline.source.empty()) add(cell.row.name, "baseline: " + cell.row.baseline.source);
  }
  std::vector<std::pair<std::string, std::string>> lines;
  for (const Reason& reason : list)
    lines.emplace_back(
        reason.cells.size() == table.cells.size() ? "all cells" : fmt::format("{}", fmt::join(reason.cells, "; ")),
        reason.text);
  return lines;
}

// But for columns in which no row has anything.
std::string filled_table(const std::vector<TextColumn>& all) {
  std::vector<TextColumn> shown;
  for (const TextColumn& column : all)
    if (!column.drop_zero || std::ranges::any_of(column.cells, [](const std::string& c) { return !c.empty(); }))
      shown.push_back(column);
  return markdown_table(shown);
}

std::size_t count_of_cells(const std::vector<TableResult>& tables) {
  return sum_over<std::size_t>(tables, [](const TableResult& table) { return table.cells.size(); });
}

std::vector<TextColumn> summary(const std::vector<TableResult>& tables) {
  std::vector<TextColumn> all = {{"table", true}, {"cells"},          {"missed"},          {"mean error"}, {"largest"},
                                 {"with misses"}, {"baseline, mean"}, {"ours next to it"}, {"left out"}};
  for (const TableResult& table : tables) {
    const Accuracy accuracy = table.accuracy();
    const std::string row[] = {table.title,
                               std::to_string(accuracy.cells),
                               std::to_string(accuracy.missed),
                               mean_error(accuracy.mean),
                               mean_error(accuracy.largest),
                               mean_error(accuracy.mean_with_misses),
                               mean_error(accuracy.baseline_mean),
                               mean_error(accuracy.mean_beside_baseline),
                               std::to_string(static_cast<int>(table.cells.size()) - accuracy.cells)};
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i].cells.push_back(row[i]);
  }
  return all;
}

}  // namespace

std::string unit_of(const Expectation& row) {
  if (!row.unit.empty() || !row.quantity || !row.ratio_to.empty()) return row.unit;
  switch (dimension(row.quantity->figure)) {
    case Dimension::Duration: return "s";
    case Dimension::Size: return "B";
    case Dimension::Rate: return "1/s";
    default: return "";
  }
}

std::string accuracy_text(const TableResult& table, const TableOptions& options) {
  std::string text = wrapped("", table.title, options.width) + wrapped("  ", table.source, options.width) + "\n";
  text += text_table(table_columns(table), options.width) + "\n";
  text += wrapped("  ", in_short(table), options.width);
  for (const std::string& line : over_the_box(table))
    text += wrapped("  ", line, options.width);
  if (const auto cells = with_choice(table); !cells.empty())
    text +=
        "\n" + text_table(choices(cells), options.width) + "\n" + wrapped("  ", choices_in_short(cells), options.width);
  if (!table.note.empty()) text += wrapped("  note: ", table.note, options.width);
  for (const auto& [cells, reason] : reasons(table))
    text += wrapped("  ", cells + ": " + reason, options.width);
  return text;
}

std::string accuracy_markdown(const TableResult& table) {
  std::string text = "## " + markdown_text(table.title) + "\n\n" + markdown_text(table.source) + "\n\n" +
                     filled_table(table_columns(table)) + "\n" + markdown_text(in_short(table)) + ".\n";
  for (const std::string& line : over_the_box(table))
    text += "\n" + markdown_text(line) + ".\n";
  if (const auto cells = with_choice(table); !cells.empty())
    text += "\n" + filled_table(choices(cells)) + "\n" + markdown_text(choices_in_short(cells)) + ".\n";
  if (!table.note.empty()) text += "\n" + markdown_text(table.note) + "\n";
  const auto why = reasons(table);
  if (!why.empty()) text += "\n";
  for (const auto& [cells, reason] : why)
    text += "- " + markdown_text(cells + ": " + reason) + "\n";
  return text;
}

std::string accuracy_html(const std::vector<TableResult>& tables, const std::string& command) {
  Accuracy all;
  for (const TableResult& table : tables) {
    const Accuracy accuracy = table.accuracy();
    all.cells += accuracy.cells, all.missed += accuracy.missed;
  }
  HtmlPage page(tables.size() == 1 ? tables.front().title : "Published tables next to predictions",
                "A published figure is compared, never read by the model; its tolerance was set beforehand.");
  page.figures({{"cells that count", std::to_string(all.cells), fmt::format("of {}", count_of_cells(tables))},
                {"missed", std::to_string(all.missed), all.missed == 0 ? "all within their tolerance" : ""}});
  if (tables.size() > 1) {
    page.heading("Summary");
    page.table(summary(tables));
    page.paragraph(
        "Cells with a status (fitted, known miss, above bound, analytic, inputs assumed, not simulated) stay out of "
        "the averages and decide nothing. The baseline is the trivial prediction that ours has to beat.");
  }
  for (const TableResult& table : tables) {
    page.heading(table.title);
    page.paragraph(table.source);
    page.table(table_columns(table));
    page.paragraph(in_short(table) + ".");
    for (const std::string& line : over_the_box(table))
      page.paragraph(line + ".");
    if (const auto cells = with_choice(table); !cells.empty()) {
      page.table(choices(cells));
      page.paragraph(choices_in_short(cells) + ".");
    }
    if (!table.note.empty()) page.paragraph(table.note);
    std::vector<std::string> lines;
    for (const auto& [cells, reason] : reasons(table))
      lines.push_back(cells + ": " + reason);
    page.list(lines);
  }
  if (!command.empty()) {
    page.heading("Made by");
    page.text_block(command);
  }
  return page.document();
}

std::string accuracy_csv(const std::vector<TableResult>& tables) {
  const auto number = [](const std::optional<double>& value) { return value ? fmt::format("{:.9g}", *value) : ""; };
  std::string text = "table,cell,quantity,published,predicted,unit,error,tolerance,baseline,baseline_error,verdict\n";
  for (const TableResult& table : tables)
    for (const Cell& cell : table.cells)
      text += fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", csv_field(table.title), csv_field(cell.row.name),
                          csv_field(what(cell.row)), csv_field(cell.row.published_text), number(cell.predicted),
                          csv_field(unit_of(cell.row)), number(cell.error), csv_field(tolerance(cell.row)),
                          number(cell.baseline), number(cell.baseline_error), csv_field(verdict(cell)));
  return text;
}

std::string accuracy_summary_text(const std::vector<TableResult>& tables, const TableOptions& options) {
  const std::vector<TextColumn> all = summary(tables);
  // Name, cells, missed (where any did), left out, mean, largest, with misses, baseline; the Markdown table has the
  // rest.
  std::vector<TextColumn> columns = {all[0], all[1], all[2], all[8], all[3], all[4], all[5], all[6]};
  columns[2].drop_zero = true;
  columns[3].head = "out", columns[4].head = "mean", columns[7].head = "baseline";
  // The figures stay beside the names: these are cut where they would push them into a second block.
  constexpr int kFigures = 56;
  const auto room = at(std::max(24, options.width - kFigures));
  for (std::string& title : columns.front().cells)
    if (title.size() > room) title = title.substr(0, room - 3) + "...";
  return text_table(columns, options.width) +
         wrapped("  ",
                 "mean, largest: |error| of the cells that count; out: cells with a status, which do not; with misses: "
                 "mean with the known misses; baseline: mean of the trivial prediction",
                 options.width);
}

std::string accuracy_summary_markdown(const std::vector<TableResult>& tables) {
  return filled_table(summary(tables));
}

std::vector<std::string> misses_that_hit(const std::vector<TableResult>& tables) {
  std::vector<std::string> list;
  for (const TableResult& table : tables)
    for (const Cell& cell : table.cells)
      if (cell.row.status == CellStatus::KnownMiss && cell.predicted && cell.within)
        list.push_back(fmt::format("{}: \"{}\" is a known miss, and within its tolerance: remove the status",
                                   cell.row.place.file.empty() ? table.title : head(cell.row.place) + table.title,
                                   cell.row.name));
  return list;
}

}  // namespace pipewright::io
