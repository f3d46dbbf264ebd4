#include "io/writers/compare.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/folds.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/quote.hpp"
#include "io/writers/documents.hpp"
#include "io/writers/drawing.hpp"
#include "io/writers/html.hpp"
#include "io/writers/html_page.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/text_table.hpp"

namespace pipewright::io {
namespace {

constexpr std::size_t kInputRows = 24;  // of the terminal; Markdown and JSON have all
constexpr int kComparedStageRows = 16;
constexpr std::size_t kComparedLinkRows = 8, kPathRows = 8;
constexpr int kLongestValue = 36;

enum class FigureKind { Time, Bytes, Rate, Share, Factor, Count };

// One figure of both sides; absent where a side has none.
struct Row {
  std::string what;
  FigureKind kind;
  std::optional<double> a, b;
  bool differs() const { return a != b; }
};

struct Input {
  std::string key, a, b;  // "": not there
};

// ---- what is compared -----------------------------------------------------------------------------------------------

std::vector<Input> inputs(const KeysAndValues& a, const KeysAndValues& b) {
  std::vector<Input> rows;
  const auto value_in = [](const KeysAndValues& values, const std::string& key) -> std::string {
    const auto found = std::ranges::find_if(values, [&](const auto& each) { return each.first == key; });
    return found == values.end() ? "" : found->second;
  };
  for (const auto& [key, value] : a)
    if (const std::string other = value_in(b, key); other != value) rows.push_back({key, value, other});
  for (const auto& [key, value] : b)
    if (value_in(a, key).empty() && !value.empty()) rows.push_back({key, "", value});
  return rows;
}

bool whole_inputs(const ComparedSide& a, const ComparedSide& b) {
  return !a.values.empty() && !b.values.empty();
}

std::vector<Input> inputs(const ComparedSide& a, const ComparedSide& b) {
  return whole_inputs(a, b) ? inputs(a.values, b.values) : inputs(a.figures.inputs, b.figures.inputs);
}

std::optional<double> largest_need(const ResultFigures& figures) {
  std::optional<double> most;
  for (const auto& stage : figures.stages)
    most = std::max(most.value_or(0), stage.need);
  return most;
}

std::optional<double> kwh(const std::optional<double>& joules) {
  return joules ? std::optional(*joules / 3.6e6) : std::nullopt;
}

std::vector<Row> figures(const ResultFigures& a, const ResultFigures& b) {
  const auto total = [](const ResultFigures& each) {
    return sum_over<double>(each.links, [](const auto& link) { return link.bytes; });
  };
  std::vector<Row> rows = {
      {"step time", FigureKind::Time, a.step_time, b.step_time},
      {"samples/s", FigureKind::Rate, a.samples_per_s, b.samples_per_s},
      {"tokens/s", FigureKind::Rate, a.tokens_per_s, b.tokens_per_s},
      {"MFU", FigureKind::Share, a.mfu, b.mfu},
      {"speed-up over one device", FigureKind::Factor, a.speedup_one_device, b.speedup_one_device},
      {"bubble", FigureKind::Share, a.bubble, b.bubble},
      {"bubble of the longest span", FigureKind::Share, a.bubble_span, b.bubble_span},
      {"memory of the fullest", FigureKind::Bytes, largest_need(a), largest_need(b)},
      {"carried by all links", FigureKind::Bytes, total(a), total(b)},
      {"workers", FigureKind::Count, static_cast<double>(a.workers), static_cast<double>(b.workers)}};
  // Of the whole training, and with repeated forwards: where a side has such a figure.
  const Row more[] = {{"HFU", FigureKind::Share, a.hfu, b.hfu},
                      {"days of the whole training", FigureKind::Rate, a.days, b.days},
                      {"device-hours", FigureKind::Rate, a.device_hours, b.device_hours},
                      {"cost", FigureKind::Rate, a.cost, b.cost},
                      {"energy in kWh, at most", FigureKind::Rate, kwh(a.energy), kwh(b.energy)},
                      {"goodput by formula", FigureKind::Share, a.goodput, b.goodput}};
  for (const Row& row : more)
    if (row.a || row.b) rows.push_back(row);
  if (a.step_time_low || b.step_time_low)
    rows.insert(rows.begin() + 1, {{"of it, 90 % from", FigureKind::Time, a.step_time_low, b.step_time_low},
                                   {"of it, 90 % to", FigureKind::Time, a.step_time_high, b.step_time_high}});
  return rows;
}

std::vector<Row> times(const ResultFigures& a, const ResultFigures& b) {
  return {{"busy", FigureKind::Share, a.busy, b.busy},
          {"fill", FigureKind::Share, a.fill, b.fill},
          {"waiting for a producer", FigureKind::Share, a.imbalance, b.imbalance},
          {"communication", FigureKind::Share, a.communication, b.communication},
          {"stall", FigureKind::Share, a.stall, b.stall},
          {"drain", FigureKind::Share, a.drain, b.drain}};
}

// Rows of both lists by name, in the order of the larger figure of the two; those that are equal are left out.
template <class Entry>
std::vector<Row> by_name(const std::vector<Entry>& a, const std::vector<Entry>& b, FigureKind kind, const auto& name,
                         const auto& value) {
  auto rows = mapped<Row>(a, [&](const Entry& each) { return Row{name(each), kind, value(each), std::nullopt}; });
  for (const Entry& each : b) {
    const auto found = std::ranges::find_if(rows, [&](const Row& row) { return row.what == name(each); });
    if (found == rows.end())
      rows.push_back({name(each), kind, std::nullopt, value(each)});
    else
      found->b = value(each);
  }
  std::erase_if(rows, [](const Row& row) { return !row.differs(); });
  const auto larger = [](const Row& row) { return std::max(row.a.value_or(0), row.b.value_or(0)); };
  std::ranges::stable_sort(rows, [&](const Row& x, const Row& y) { return larger(x) > larger(y); });
  return rows;
}

std::vector<Row> links(const ResultFigures& a, const ResultFigures& b) {
  return by_name(
      a.links, b.links, FigureKind::Bytes, [](const auto& link) { return link.name; },
      [](const auto& link) { return link.bytes; });
}

std::vector<Row> path(const ResultFigures& a, const ResultFigures& b) {
  return by_name(
      a.critical_path, b.critical_path, FigureKind::Time, [](const auto& part) { return part.what; },
      [](const auto& part) { return part.time; });
}

bool differ(const std::vector<Row>& rows) {
  return std::ranges::any_of(rows, [](const Row& row) { return row.differs(); });
}

bool same(const ResultFigures::Stage& a, const ResultFigures::Stage& b) {
  return a.layers == b.layers && a.forward == b.forward && a.backward == b.backward && a.recompute == b.recompute &&
         a.busy == b.busy && a.peak == b.peak && a.need == b.need && a.in_flight == b.in_flight;
}

bool stages_differ(const ResultFigures& a, const ResultFigures& b) {
  return !std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(),
                     [](const auto& x, const auto& y) { return same(x, y); });
}

// ---- as text --------------------------------------------------------------------------------------------------------

std::string shown(const std::optional<double>& value, FigureKind kind) {
  if (!value) return "-";
  switch (kind) {
    case FigureKind::Time: return short_time(Time{std::llround(*value * 1e9)}, 4);
    case FigureKind::Bytes: return short_bytes(Bytes{static_cast<std::int64_t>(*value)});
    case FigureKind::Rate: return significant(*value, 4);
    case FigureKind::Share: return percent(*value);
    case FigureKind::Factor: return significant(*value) + "x";
    case FigureKind::Count: return fmt::format("{:.0f}", *value);
  }
  return "";
}

// Shares differ by points, everything else by a share of A.
std::string change(const Row& row) {
  if (!row.differs()) return "same";
  if (!row.a || !row.b) return "";
  if (row.kind == FigureKind::Share) {
    const double points = 100 * (*row.b - *row.a);
    return std::abs(points) < 0.05 ? "<0.1 points" : fmt::format("{:+.1f} points", points);
  }
  if (row.kind == FigureKind::Count) return fmt::format("{:+.0f}", *row.b - *row.a);
  if (*row.a == 0) return "";
  const double share = *row.b / *row.a - 1;
  if (share >= 1) return fmt::format("x {}", significant(*row.b / *row.a));
  return std::abs(share) < 0.0005 ? "<0.1 %" : fmt::format("{:+.1f} %", 100 * share);
}

std::string cut(const std::string& text) {
  if (text.empty()) return "-";
  if (display_width(text) <= kLongestValue) return text;
  std::size_t end = at(kLongestValue) - 3;
  while (end > 0 && (static_cast<std::uint8_t>(text[end]) & 0xc0) == 0x80)
    --end;
  return text.substr(0, end) + "...";
}

std::vector<TextColumn> compare_columns(const std::vector<Row>& rows, std::string_view head) {
  std::vector<TextColumn> all = {{std::string(head), true}, {"A"}, {"B"}, {"B against A"}};
  for (const Row& row : rows) {
    all[0].cells.push_back(row.what);
    all[1].cells.push_back(shown(row.a, row.kind));
    all[2].cells.push_back(shown(row.b, row.kind));
    all[3].cells.push_back(change(row));
  }
  return all;
}

std::vector<TextColumn> compare_columns(const std::vector<Input>& rows) {
  std::vector<TextColumn> all = {{"key", true}, {"A", true}, {"B", true}};
  for (const Input& row : rows) {
    all[0].cells.push_back(row.key);
    all[1].cells.push_back(cut(row.a));
    all[2].cells.push_back(cut(row.b));
  }
  return all;
}

// The stage that leaves least of its device free.
int fullest_stage(const ResultFigures& side) {
  const auto least = std::ranges::min_element(
      side.stages, [](const auto& a, const auto& b) { return a.capacity - a.need < b.capacity - b.need; });
  return static_cast<int>(least - side.stages.begin());
}

// Stages with a row: as many as fit a screen, and each side's fullest.
std::vector<int> shown_stages(const ResultFigures& a, const ResultFigures& b) {
  std::vector<int> fullest;
  for (const auto* side : {&a, &b})
    if (!side->stages.empty()) fullest.push_back(fullest_stage(*side));
  return spread(static_cast<int>(std::max(a.stages.size(), b.stages.size())), kComparedStageRows, fullest);
}

// Stages of both sides under one number.
std::vector<TextColumn> stage_columns(const ResultFigures& a, const ResultFigures& b) {
  const std::vector<int> shown = shown_stages(a, b);
  double largest = 0;
  for (const auto* side : {&a, &b})
    for (const auto& stage : side->stages)
      largest = std::max(largest, stage.need);
  const Scale scale = bytes_scale(Bytes{static_cast<std::int64_t>(largest)});
  std::vector<TextColumn> all = {{"stage"}};
  const auto add = [&](const std::string& head, const auto& cell) {
    for (const auto* side : {&a, &b}) {
      TextColumn column{head + (side == &a ? " A" : " B")};
      for (const int k : shown)
        column.cells.push_back(at(k) < side->stages.size() ? cell(side->stages[at(k)], *side) : "-");
      all.push_back(std::move(column));
    }
  };
  for (const int k : shown)
    all[0].cells.push_back(std::to_string(k));
  add("layers", [](const auto& stage, const auto&) { return stage.layers; });
  add("busy", [](const auto& stage, const auto& side) {
    return side.makespan > 0 ? percent(stage.busy / side.makespan) : "-";
  });
  add("in flight", [](const auto& stage, const auto&) { return std::to_string(stage.in_flight); });
  add(scale.name, [&](const auto& stage, const auto&) {
    return in_scale(static_cast<std::int64_t>(stage.need), scale) +
           (stage.capacity > 0 && stage.need > stage.capacity ? "!" : "");
  });
  return all;
}

std::string no_timelines(const ComparedSide& a, const ComparedSide& b) {
  return fmt::format("no timelines: a result document has none; compare the scenario{} to see them",
                     !a.answer && !b.answer ? "s themselves" : " of " + (a.answer ? b.name : a.name));
}

class ComparePage {
 public:
  ComparePage(const ComparedSide& a, const ComparedSide& b, const TableOptions& options)
      : a_(a), b_(b), options_(options) {}

  std::string print() {
    text_ = wrapped("A  ", a_.name, options_.width) + wrapped("B  ", b_.name, options_.width);
    if (io::same(a_, b_)) return text_ + "\nno difference: the inputs and all figures are the same\n";
    input_rows();
    table("", figures(a_.figures, b_.figures), 100);
    for (const ComparedSide* side : {&a_, &b_})
      if (!side->figures.fits)
        text_ +=
            wrapped(side == &a_ ? "  A does not fit: " : "  B does not fit: ", side->figures.shortfall, options_.width);
    timelines();
    table("all workers' time: busy, and idle for what", times(a_.figures, b_.figures), 100);
    stages();
    differing("links whose traffic differs, largest first", "traffic", links(a_.figures, b_.figures),
              kComparedLinkRows);
    differing("critical path where it differs, longest first", "critical path", path(a_.figures, b_.figures),
              kPathRows);
    limits();
    return std::move(text_);
  }

 private:
  void heading(std::string_view name) {
    const std::string line = wrapped("", name, options_.width);
    const std::size_t end = line.find_last_not_of('\n') + 1;
    text_ += "\n" + (options_.colour ? fmt::format("\x1b[1m{}\x1b[0m{}", line.substr(0, end), line.substr(end)) : line);
  }

  void input_rows() {
    const std::vector<Input> rows = inputs(a_, b_);
    heading(rows.empty() ? "inputs: the same" : "inputs that differ");
    if (!rows.empty()) {
      const std::vector<Input> first(rows.begin(),
                                     rows.begin() + static_cast<std::ptrdiff_t>(std::min(rows.size(), kInputRows)));
      text_ += text_table(compare_columns(first), options_.width);
    }
    if (rows.size() > kInputRows) text_ += fmt::format("  and {} more; -o FILE.md has all\n", rows.size() - kInputRows);
    if (!whole_inputs(a_, b_))
      text_ += wrapped("  ",
                       "compared is what the result document tells of scenario and plan; of layers, devices and "
                       "links only names and sums",
                       options_.width);
  }

  void table(std::string_view name, const std::vector<Row>& rows, std::size_t most) {
    if (!name.empty()) heading(name);
    if (name.empty()) text_ += "\n";
    std::vector<Row> first(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(std::min(rows.size(), most)));
    std::erase_if(first, [](const Row& row) { return !row.a && !row.b; });
    text_ += text_table(compare_columns(first, ""), options_.width);
    if (rows.size() > most) text_ += fmt::format("  and {} more; -o FILE.md has all\n", rows.size() - most);
  }

  void differing(std::string_view name, std::string_view what, const std::vector<Row>& rows, std::size_t most) {
    if (rows.empty()) return heading(fmt::format("{}: the same", what));
    table(name, rows, most);
  }

  void timelines() {
    heading("timelines, on one scale");
    text_ += a_.answer && b_.answer ? text_timelines(*a_.answer, *b_.answer, options_.width)
                                    : wrapped("  ", no_timelines(a_, b_), options_.width);
  }

  void stages() {
    if (!stages_differ(a_.figures, b_.figures)) return heading("stages: the same");
    heading("stages (busy: of its own makespan; memory that the fullest device of the stage must have, ! too much)");
    text_ += text_table(stage_columns(a_.figures, b_.figures), options_.width);
    const std::size_t count = std::max(a_.figures.stages.size(), b_.figures.stages.size());
    if (const std::size_t listed = shown_stages(a_.figures, b_.figures).size(); listed < count)
      text_ += fmt::format("  {} of {} stages are listed; -o FILE.md has all\n", listed, count);
  }

  void limits() {
    if (a_.figures.limiting_factor == b_.figures.limiting_factor) return;
    heading("limited by");
    text_ += wrapped("  A  ", a_.figures.limiting_factor, options_.width);
    text_ += wrapped("  B  ", b_.figures.limiting_factor, options_.width);
  }

  const ComparedSide& a_;
  const ComparedSide& b_;
  const TableOptions& options_;
  std::string text_;
};

// ---- Markdown, JSON -------------------------------------------------------------------------------------------------

std::string markdown_rows(const std::vector<Row>& rows, const std::string& head) {
  std::string text = markdown_head({{head, true}, {"A"}, {"B"}, {"B against A"}});
  for (const Row& row : rows)
    if (row.a || row.b) text += markdown_row({row.what, shown(row.a, row.kind), shown(row.b, row.kind), change(row)});
  return text;
}

std::vector<Row> stage_rows(const ResultFigures& a, const ResultFigures& b) {
  std::vector<Row> rows;
  for (std::size_t k = 0; k < std::max(a.stages.size(), b.stages.size()); ++k) {
    const auto add = [&](std::string_view what, FigureKind kind, double ResultFigures::Stage::*member) {
      const auto of = [&](const ResultFigures& side) {
        return k < side.stages.size() ? std::optional(side.stages[k].*member) : std::nullopt;
      };
      rows.push_back({fmt::format("stage {}: {}", k, what), kind, of(a), of(b)});
    };
    add("forward", FigureKind::Time, &ResultFigures::Stage::forward);
    add("backward", FigureKind::Time, &ResultFigures::Stage::backward);
    add("busy", FigureKind::Time, &ResultFigures::Stage::busy);
    add("memory", FigureKind::Bytes, &ResultFigures::Stage::need);
  }
  return rows;
}

void write_comparison(JsonFields& json, const ComparedSide& a, const ComparedSide& b) {
  json.field("a", a.name).field("b", b.name).field("same", same(a, b)).field("all_inputs", whole_inputs(a, b));
  json.list("inputs", inputs(a, b),
            [&](const Input& row) { json.field("key", row.key).field("a", row.a).field("b", row.b); });
  const auto rows = [&](const char* key, const std::vector<Row>& of) {
    json.list(key, of, [&](const Row& row) { json.field("what", row.what).field("a", row.a).field("b", row.b); });
  };
  rows("figures", figures(a.figures, b.figures));
  rows("time_shares", times(a.figures, b.figures));
  rows("stages", stage_rows(a.figures, b.figures));
  rows("links", links(a.figures, b.figures));
  rows("critical_path", path(a.figures, b.figures));
}

}  // namespace

bool same(const ComparedSide& a, const ComparedSide& b) {
  return inputs(a, b).empty() && !differ(figures(a.figures, b.figures)) && !differ(times(a.figures, b.figures)) &&
         a.figures.makespan == b.figures.makespan && !stages_differ(a.figures, b.figures) &&
         links(a.figures, b.figures).empty() && path(a.figures, b.figures).empty();
}

std::string compare_text(const ComparedSide& a, const ComparedSide& b, const TableOptions& options) {
  return ComparePage(a, b, options).print();
}

std::string compare_markdown(const ComparedSide& a, const ComparedSide& b) {
  std::string text = fmt::format("- A: {}\n- B: {}\n", markdown_code(a.name), markdown_code(b.name));
  if (same(a, b)) return text + "\nNo difference: the inputs and all figures are the same.\n";
  const std::vector<Input> changed = inputs(a, b);
  text += changed.empty() ? "\nInputs: the same.\n" : "\n" + markdown_head({{"key", true}, {"A", true}, {"B", true}});
  const auto or_dash = [](const std::string& value) { return value.empty() ? "-" : markdown_cell(value); };
  for (const Input& row : changed)
    text += fmt::format("| {} | {} | {} |\n", markdown_code(row.key), or_dash(row.a), or_dash(row.b));
  text += "\n" + markdown_rows(figures(a.figures, b.figures), "figure");
  text += "\n" + markdown_rows(times(a.figures, b.figures), "of all workers' time");
  text += "\n" + markdown_rows(stage_rows(a.figures, b.figures), "stage");
  const std::vector<Row> traffic = links(a.figures, b.figures), critical = path(a.figures, b.figures);
  text += traffic.empty() ? "\nTraffic: the same.\n" : "\n" + markdown_rows(traffic, "traffic of");
  text += critical.empty() ? "\nCritical path: the same.\n" : "\n" + markdown_rows(critical, "critical path");
  return text;
}

std::string compare_html(const ComparedSide& a, const ComparedSide& b, std::string_view command) {
  HtmlPage page("A and B compared", "");
  page.facts({{"A", a.name}, {"B", b.name}});
  if (same(a, b)) {
    page.paragraph("No difference: the inputs and all figures are the same.");
  } else {
    const auto table = [&](std::string heading, std::vector<Row> rows, std::string_view head) {
      std::erase_if(rows, [](const Row& row) { return !row.a && !row.b; });
      if (!rows.empty()) page.table(ReportTable{std::move(heading), compare_columns(rows, head), {}});
    };
    for (const ComparedSide* side : {&a, &b})
      if (!side->figures.fits)
        page.warning((side == &a ? "A does not fit: " : "B does not fit: ") + side->figures.shortfall);
    if (const std::vector<Input> changed = inputs(a, b); !changed.empty())
      page.table(ReportTable{"Inputs that differ", compare_columns(changed), {}});
    else
      page.paragraph("The inputs are the same.");
    table("Figures", figures(a.figures, b.figures), "figure");
    page.heading("Timelines");
    if (a.answer != nullptr && b.answer != nullptr)
      page.drawing(svg_timelines(*a.answer, *b.answer));
    else
      page.paragraph(no_timelines(a, b));
    table("All workers' time: busy, and idle for what", times(a.figures, b.figures), "of all workers' time");
    table("Stages", stage_rows(a.figures, b.figures), "stage");
    table("Links whose traffic differs", links(a.figures, b.figures), "traffic of");
    table("Critical path where it differs", path(a.figures, b.figures), "critical path");
  }
  if (!command.empty()) {
    page.heading("Made by");
    page.text_block(command);
  }
  return page.document();
}

constinit const JsonDocument kComparisonDocument{"pipewright.comparison/1",
                                                 [](JsonFields& json) { write_comparison(json, {}, {}); }};

std::string compare_json(const ComparedSide& a, const ComparedSide& b) {
  return kComparisonDocument.text([&](JsonFields& json) { write_comparison(json, a, b); });
}

}  // namespace pipewright::io
