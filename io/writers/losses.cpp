#include "io/writers/losses.hpp"

#include <fmt/format.h>

#include "io/text/quote.hpp"
#include "io/text/utf8.hpp"
#include "io/writers/documents.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/sweep.hpp"
#include "io/writers/text_table.hpp"

namespace pipewright::io {
namespace {

std::string last_of(const LossCurve& curve) {
  if (curve.failed == curve.runs || curve.at.empty()) return fmt::format("none of {} ended", curve.runs);
  const LossCurve::At& at = curve.at.back();
  std::string text = curve.runs > 1 ? fmt::format("{:.3f} [{:.3f}, {:.3f}]", at.mean, at.least, at.largest)
                                    : fmt::format("{:.3f}", at.mean);
  if (curve.failed > 0) text += fmt::format(", {} of {} ended early", curve.failed, curve.runs);
  return text;
}

void write_losses(JsonFields& json, const LossGrid& grid) {
  const SweepQuestion& question = grid.question;
  write_question(json, question);
  write_grid(json, question);
  json.field("points", question.points()).field("not_run", grid.not_run);
  json.list("rows", grid.rows, [&](const LossRow& row) {
    write_point(json, question, row.point);
    json.list("windows", row.windows,
              [&](const LossWindow& window) { json.field("samples", window.samples).field("loss", window.loss); });
    json.field("ended_early", unless_empty(row.failed));
  });
}

}  // namespace

std::string losses_text(const LossGrid& grid, int width) {
  const SweepQuestion& question = grid.question;
  const std::vector<std::size_t> axes = axes_beside_seed(question);
  std::vector<TextColumn> columns;
  for (const std::size_t axis : axes)
    columns.push_back({.head = question.axes[axis].key.substr(question.axes[axis].key.rfind('.') + 1), .cells = {}});
  for (const std::string& variant : question.variants)
    columns.push_back({.head = variant, .cells = {}});
  std::vector<std::size_t> place;
  bool first = true;
  std::int64_t samples = 0;
  for (const LossCurve& curve : loss_curves(grid)) {
    if (first || curve.values != place) {
      place = curve.values, first = false;
      for (std::size_t i = 0; i < columns.size(); ++i)
        columns[i].cells.push_back(i < axes.size() ? question.axes[axes[i]].texts[place[i]] : "-");
    }
    columns[axes.size() + curve.variant].cells.back() = last_of(curve);
    if (!curve.at.empty()) samples = std::max(samples, curve.at.back().samples);
  }
  std::string text = one_line(question.description.empty() ? question.file : question.description);
  text += fmt::format("\n\nloss after {} samples, mean over the last stretch", samples);
  text += " [least, largest of the seeds]\n\n" + text_table(columns, width);
  constexpr int kMostReasons = 10;
  int failed = 0;
  for (const LossRow& row : grid.rows)
    if (!row.failed.empty() && ++failed <= kMostReasons)
      text += fmt::format("  run {}: {}\n", row.point, one_line(row.failed));
  if (failed > kMostReasons) text += fmt::format("  and {} more runs that ended early\n", failed - kMostReasons);
  return text;
}

std::string losses_csv(const LossGrid& grid) {
  const SweepQuestion& question = grid.question;
  std::string text = "variant";
  for (const SweepAxis& axis : question.axes)
    text += "," + csv_field(axis.key);
  text += ",samples,loss,ended_early\n";
  for (const LossRow& row : grid.rows) {
    std::string head = csv_field(question.variants[question.variant(row.point)]);
    const std::vector<std::size_t> values = question.values(row.point);
    for (std::size_t i = 0; i < values.size(); ++i)
      head += "," + csv_field(question.axes[i].texts[values[i]]);
    for (const LossWindow& window : row.windows)
      text += fmt::format("{},{},{:.6g},\n", head, window.samples, window.loss);
    if (!row.failed.empty()) text += fmt::format("{},,,{}\n", head, csv_field(row.failed));
  }
  return text;
}

constinit const JsonDocument kLossesDocument{"pipewright.losses/1", [](JsonFields& json) { write_losses(json, {}); }};

std::string losses_json(const LossGrid& grid) {
  return kLossesDocument.text([&](JsonFields& json) { write_losses(json, grid); });
}

}  // namespace pipewright::io
