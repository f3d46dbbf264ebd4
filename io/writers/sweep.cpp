#include "io/writers/sweep.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/folds.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/names.hpp"
#include "io/text/quote.hpp"
#include "io/writers/documents.hpp"
#include "io/writers/html.hpp"
#include "io/writers/html_page.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/sweep_answer.hpp"
#include "io/writers/sweep_cells.hpp"
#include "io/writers/text_table.hpp"

namespace pipewright::io {
namespace {

constexpr std::size_t kMostSweepRows = 200, kRowsOfCut = 40;  // a longer table is cut to so many rows

constexpr std::array<SweepFigure, 7> kUsual = {SweepFigure::StepTime, SweepFigure::SamplesPerS, SweepFigure::TokensPerS,
                                               SweepFigure::Mfu,      SweepFigure::Bubble,      SweepFigure::PeakMemory,
                                               SweepFigure::SpeedUp};

// The usual columns, and where the whole training was asked for what it takes: with failures, where those were asked
// for.
constexpr std::array<SweepFigure, 4> kOfTraining = {SweepFigure::Days, SweepFigure::Cost, SweepFigure::DaysExpected,
                                                    SweepFigure::CostExpected};

std::vector<SweepFigure> shown(const Sweep& sweep) {
  if (!sweep.question.metrics.empty()) return sweep.question.metrics;
  std::vector<SweepFigure> all(kUsual.begin(), kUsual.end());
  for (const SweepFigure each : kOfTraining)
    if (std::ranges::any_of(sweep.rows, [&](const SweepRow& row) { return figure(row, each).has_value(); }))
      all.push_back(each);
  return all;
}

// Variant and values of the grid, a column each.
std::vector<TextColumn> key_columns(const Sweep& sweep) {
  const SweepQuestion& question = sweep.question;
  std::vector<TextColumn> columns;
  if (question.variants.size() > 1) {
    columns.push_back({"variant", true});
    for (const SweepRow& row : sweep.rows)
      columns.back().cells.push_back(question.variants[question.variant(row.point)]);
  }
  for (std::size_t i = 0; i < question.axes.size(); ++i) {
    columns.push_back({head_of(question, i)});
    for (const SweepRow& row : sweep.rows)
      columns.back().cells.push_back(question.axes[i].texts[question.values(row.point)[i]]);
  }
  return columns;
}

bool all_fit(const Sweep& sweep) {
  return std::ranges::all_of(sweep.rows, [](const SweepRow& row) { return row.outcome == SweepRow::Outcome::Fits; });
}

std::vector<TextColumn> sweep_columns(const Sweep& sweep) {
  std::vector<TextColumn> all = key_columns(sweep);
  for (const SweepFigure figure : shown(sweep)) {
    const Scale scale = scale_of(sweep, figure);
    TextColumn column{head_of(figure, scale)};
    column.drop_zero = sweep.question.metrics.empty() && figure != SweepFigure::StepTime;
    for (const SweepRow& row : sweep.rows) {
      const std::optional<double> value = core::figure(row, figure);
      column.cells.push_back(value ? cell_of(figure, *value, scale) : "-");
    }
    all.push_back(std::move(column));
  }
  if (!all_fit(sweep)) {
    TextColumn fits{"fits"};
    for (const SweepRow& row : sweep.rows)
      fits.cells.emplace_back(row.outcome == SweepRow::Outcome::Fits ? "yes" : row.has_figures() ? "no" : "-");
    all.push_back(std::move(fits));
  }
  if (sweep.question.replan) {
    TextColumn plan{"plan", true};
    for (const SweepRow& row : sweep.rows)
      plan.cells.push_back(row.plan.empty() ? "-" : row.plan + (row.plan_changes ? "  ← plan changes" : ""));
    all.push_back(std::move(plan));
  }
  return all;
}

int width_of(const std::vector<TextColumn>& columns) {
  int width = 0;
  for (const TextColumn& column : columns) {
    int widest = display_width(column.head);
    for (const std::string& cell : column.cells)
      widest = std::max(widest, display_width(cell));
    width += widest + 2;
  }
  return width;
}

// A table that must be broken repeats its first column, which then has to name the point.
std::string table(const Sweep& sweep, int width) {
  std::vector<TextColumn> all = sweep_columns(sweep);
  if (width_of(all) <= width + 2) return text_table(all, width, 0);
  const std::size_t keys = key_columns(sweep).size();
  TextColumn point{"point", true};
  for (const SweepRow& row : sweep.rows)
    point.cells.push_back(point_name(sweep.question, row.point));
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(keys));
  all.insert(all.begin(), std::move(point));
  std::string text;
  if (keys > 2) {  // which value is of which key
    for (std::size_t i = 0; i < sweep.question.axes.size(); ++i)
      text += (i == 0 ? "" : ", ") + head_of(sweep.question, i);
    text = wrapped("point: ", (sweep.question.variants.size() > 1 ? "variant, " : "") + text, width) + "\n";
  }
  return text + text_table(all, width, 0);
}

// The first rows that fit; where none does, that have figures; where none has, the first.
std::pair<Sweep, std::string_view> cut(const Sweep& sweep) {
  const auto level = [](const SweepRow& row) {
    return row.outcome == SweepRow::Outcome::Fits ? 2 : row.has_figures() ? 1 : 0;
  };
  auto best = most_over<int>(sweep.rows, [&](const SweepRow& row) { return level(row); });
  Sweep part{.question = sweep.question};
  for (const SweepRow& row : sweep.rows)
    if (part.rows.size() < kRowsOfCut && level(row) == best) part.rows.push_back(row);
  return {std::move(part), best == 2 ? " that fit" : best == 1 ? " that have figures" : ""};
}

// "6 6 7 5": 4 chunks, 24 layers.
std::pair<std::int64_t, std::int64_t> chunks_and_layers(std::string_view layers) {
  std::int64_t chunks = 0, sum = 0, number = 0;
  for (std::size_t i = 0; i <= layers.size(); ++i) {
    const bool digit = i < layers.size() && layers[i] != ' ';
    if (digit) number = 10 * number + (layers[i] - '0');
    if (!digit) ++chunks, sum += std::exchange(number, 0);
  }
  return {chunks, sum};
}

// Where nobody states the cut it is made for every point: points of one variant, of as many chunks and layers, may
// differ in it.
bool cut_changes(const Sweep& sweep) {
  const SweepQuestion& question = sweep.question;
  if (question.replan) return false;
  for (const SweepAxis& axis : question.axes)
    if (axis.key.starts_with("plan.partition")) return false;
  std::map<std::pair<std::size_t, std::pair<std::int64_t, std::int64_t>>, std::string_view> cuts;
  for (const SweepRow& row : sweep.rows) {
    if (!row.has_figures() || row.layers.empty()) continue;
    const auto [known, absent] =
        cuts.try_emplace({question.variant(row.point), chunks_and_layers(row.layers)}, row.layers);
    if (!absent && known->second != row.layers) return true;
  }
  return false;
}

// What the rows do not show.
std::vector<std::string> notes(const Sweep& sweep) {
  if (!cut_changes(sweep)) return {};
  return {
      "no cut is stated, so the layers are cut again at every point, and rows also differ in their cut (`layers` of -o "
      "FILE.csv); plan.partition: {layers: [...]} fixes one"};
}

std::string remarks(const Sweep& sweep) {
  const SweepQuestion& question = sweep.question;
  const bool ratios = std::ranges::any_of(sweep.rows, [](const auto& row) { return row.speed_up.has_value(); });
  std::string text;
  if (!sweep.rows.empty() && all_fit(sweep)) text += "every plan fits its devices\n";
  if (ratios)
    text += question.variants.size() > 1
                ? fmt::format("speed-up: samples/s relative to variant {} at the same point of the grid\n",
                              question.variants[question.baseline])
                : "speed-up: samples/s over those of the first row that has figures\n";
  for (const std::string& line : notes(sweep))
    text += line + "\n";
  if (sweep.left_out > 0)
    text += fmt::format("{} of {} points are left out by where\n", sweep.left_out, question.points());
  if (!sweep.shard.whole())
    text += fmt::format("shard {} of {}: other shards compute the remaining points; pipewright merge combines them\n",
                        sweep.shard.number, sweep.shard.of);
  if (sweep.not_run > 0)
    text += fmt::format("interrupted: {} of {} points were not run\n", sweep.not_run, question.points());
  return text;
}

// Those of files: of the whole training, and with repeated forwards, where a row has such a figure; some where asked for.
std::vector<SweepFigureName> written_figures(const Sweep& sweep) {
  std::vector<SweepFigureName> written;
  const std::vector<SweepFigure>& metrics = sweep.question.metrics;
  for (const SweepFigureName& each : kSweepFigures)
    if ((each.figure == SweepFigure::LongestSpan || each.figure == SweepFigure::WeightsMemory) &&
        std::ranges::find(metrics, each.figure) == metrics.end())
      continue;
    else if (each.figure < SweepFigure::Hfu ||
             std::ranges::any_of(sweep.rows, [&](const SweepRow& row) { return figure(row, each.figure).has_value(); }))
      written.push_back(each);
  return written;
}

void write_figures(JsonFields& json, const std::vector<SweepFigureName>& figures, const SweepRow& row) {
  json.field("step_time_s", row.step_time);
  for (const SweepFigureName& each : kSweepFigures) {
    if (each.figure == SweepFigure::StepTime) continue;
    const bool written =
        std::ranges::any_of(figures, [&](const SweepFigureName& other) { return other.figure == each.figure; });
    json.when(written, [&] {
      const std::string key = std::string(each.name) + (each.unit == Unit::Byte     ? "_bytes"
                                                        : each.unit == Unit::Second ? "_s"
                                                                                    : "");
      const std::optional<double> value = figure(row, each.figure);
      if (each.unit == Unit::Byte || each.figure == SweepFigure::Devices)
        json.field(key, value ? std::optional(static_cast<std::int64_t>(*value)) : std::nullopt);
      else
        json.field(key, value);
    });
  }
  json.field("plan", row.plan).field("layers", row.layers).field("plan_changes", row.plan_changes);
}

void write_sweep(JsonFields& json, const Sweep& sweep) {
  const SweepQuestion& question = sweep.question;
  write_question(json, question);
  json.field("baseline", [&] { return question.variants[question.baseline]; }).field("replan", question.replan);
  write_grid(json, question);
  json.list("where", question.where, [](const Comparison& comparison) { return comparison.text; });
  json.field("points", question.points()).field("left_out", sweep.left_out).field("not_run", sweep.not_run);
  json.when(!sweep.shard.whole(), "shard", fmt::format("{}/{}", sweep.shard.number, sweep.shard.of));
  write_answer(json, sweep);
  const std::vector<SweepFigureName> figures = written_figures(sweep);
  json.list("rows", sweep.rows, [&](const SweepRow& row) {
    write_point(json, question, row.point);
    json.field("outcome", row.outcome);
    json.when(row.has_figures(), [&] { write_figures(json, figures, row); });
    json.field("reason", row.reason);
  });
  json.field("notes", notes(sweep));
}

}  // namespace

std::string point_name(const SweepQuestion& question, std::int64_t point) {
  std::string text = question.variants.size() > 1 ? question.variants[question.variant(point)] : "";
  const std::vector<std::size_t> values = question.values(point);
  for (std::size_t i = 0; i < values.size(); ++i)
    text += (text.empty() ? "" : ", ") + question.axes[i].texts[values[i]];
  return text;
}

std::string sweep_text(const Sweep& sweep, const TableOptions& options, SweepTable rows) {
  std::string text;
  if (!sweep.question.description.empty()) text += wrapped("", sweep.question.description, options.width) + "\n";
  if (sweep.rows.empty()) {
    text += "no rows\n";
  } else if (rows == SweepTable::All || sweep.rows.size() <= kMostSweepRows) {
    text += table(sweep, options.width);
  } else {
    const auto [part, which] = cut(sweep);
    const std::size_t shown = part.rows.size();
    text +=
        table(part, options.width) +
        fmt::format("the {}{}; {} rows are left out: --all shows them, -o all.csv writes them\n",
                    shown == 1 ? "one point" : fmt::format("first {} points", shown), which, sweep.rows.size() - shown);
  }
  const std::string more = remarks(sweep) + reasons(sweep, options.width);
  if (!more.empty()) text += "\n" + more;
  if (const std::string answer = answer_text(sweep, options.width); !answer.empty()) text += "\n" + answer;
  return text;
}

std::string sweep_html(const Sweep& sweep, const SweepAxes& axes, std::string_view command) {
  const SweepQuestion& question = sweep.question;
  HtmlPage page(question.description.empty() ? "what-if: " + question.file : question.description,
                fmt::format("{} on top of {}", question.file, question.base));
  const auto plottable = [](const SweepAxis& axis) {
    return axis.texts.size() > 1 && std::ranges::all_of(axis.amounts, [&](const auto& amount) {
             return amount && amount->unit == axis.amounts.front()->unit;
           });
  };
  add_answer(page, sweep);
  if (!axes.x.empty() || std::ranges::any_of(question.axes, plottable)) {
    std::vector<std::string> drawn = {axes.y};
    if (axes.y.empty()) drawn = {"samples_per_s", "peak_memory"};
    for (const std::string& y : drawn) {
      page.heading(drawn.size() == 1 ? "Plot" : y == "peak_memory" ? "Memory of the fullest device" : "Throughput");
      page.drawing(sweep_svg(sweep, {axes.x, y}));
    }
  }
  page.heading("Points");
  if (sweep.rows.empty())
    page.paragraph("No rows.");
  else
    page.table(sweep_columns(sweep));
  constexpr int kUnbroken = 1'000'000;
  const std::string more = remarks(sweep) + reasons(sweep, kUnbroken);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < more.size();) {
    const std::size_t end = std::min(more.find('\n', begin), more.size());
    lines.push_back(more.substr(begin, end - begin));
    begin = end + 1;
  }
  page.list(lines);
  if (!command.empty()) {
    page.heading("Made by");
    page.text_block(command);
  }
  return page.document();
}

std::string sweep_csv(const Sweep& sweep) {
  const std::vector<SweepFigureName> figures = written_figures(sweep);
  const SweepQuestion& question = sweep.question;
  std::string text = "variant";
  for (const SweepAxis& axis : question.axes)
    text += "," + csv_field(axis.key);
  for (const SweepFigureName& each : figures)
    text += fmt::format(",{}{}", each.name, each.unit == Unit::Second ? "_s" : each.unit == Unit::Byte ? "_bytes" : "");
  text += ",outcome,plan,layers,plan_changes,reason\n";
  for (const SweepRow& row : sweep.rows) {
    text += csv_field(question.variants[question.variant(row.point)]);
    const std::vector<std::size_t> values = question.values(row.point);
    for (std::size_t i = 0; i < values.size(); ++i)
      text += "," + csv_field(question.axes[i].texts[values[i]]);
    for (const SweepFigureName& each : figures) {
      const std::optional<double> value = figure(row, each.figure);
      text += ",";
      if (!value) continue;
      if (each.figure == SweepFigure::StepTime)
        text += exact_seconds(row.step_time);
      else if (each.unit == Unit::Byte)
        text += fmt::format("{:.0f}", *value);
      else
        text += fmt::format("{}", *value);
    }
    text += fmt::format(",{},{},{},{},{}\n", name(row.outcome), csv_field(row.plan), csv_field(row.layers),
                        row.has_figures() ? (row.plan_changes ? "true" : "false") : "", csv_field(row.reason));
  }
  return text;
}

void write_question(JsonFields& json, const SweepQuestion& question) {
  json.field("sweep", question.file).field("base", question.base).field("description", question.description);
  json.field("variants", question.variants);
}

void write_grid(JsonFields& json, const SweepQuestion& question) {
  std::vector<std::pair<std::string, std::vector<std::string>>> grid;
  for (const SweepAxis& axis : question.axes)
    grid.emplace_back(axis.key, axis.texts);
  json.field("grid", grid);
}

void write_point(JsonFields& json, const SweepQuestion& question, std::int64_t point) {
  json.field("variant", [&] { return question.variants[question.variant(point)]; });
  json.field("values", [&] {
    std::vector<std::pair<std::string, std::string>> varied;
    const std::vector<std::size_t> values = question.values(point);
    for (std::size_t i = 0; i < values.size(); ++i)
      varied.emplace_back(question.axes[i].key, question.axes[i].texts[values[i]]);
    return varied;
  });
}

constinit const JsonDocument kSweepDocument{"pipewright.sweep/1", [](JsonFields& json) { write_sweep(json, {}); }};

std::string sweep_json(const Sweep& sweep) {
  return kSweepDocument.text([&](JsonFields& json) { write_sweep(json, sweep); });
}

}  // namespace pipewright::io
