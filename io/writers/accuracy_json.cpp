// "pipewright.reproduction/1": published tables beside predictions, as docs/results/accuracy.md explains their columns.
#include "io/text/names.hpp"
#include "io/writers/accuracy.hpp"
#include "io/writers/documents.hpp"
#include "io/writers/json_fields.hpp"

namespace pipewright::io {
namespace {

std::string_view verdict_of(const Cell& cell) {
  if (cell.reference) return "by definition";
  if (cell.row.status == CellStatus::NotSimulated) return "not simulated";
  return cell.within ? "within" : "outside";
}

void write_cell(JsonFields& json, const Cell& cell) {
  const Expectation& row = cell.row;
  json.field("cell", row.name);
  json.field("quantity", row.quantity ? std::optional(row.quantity->text) : std::nullopt);
  json.field("stage",
             row.quantity && row.quantity->where == Where::Stage ? std::optional(row.quantity->stage) : std::nullopt);
  json.field("ratio_to", unless_empty(row.ratio_to)).field("unit", [&] { return unit_of(row); });
  json.field("published", row.published).field("predicted", cell.predicted).field("error", cell.error);
  json.maybe("tolerance", row.tolerance, [&](const Tolerance& tolerance) {
    json.field("value", tolerance.value).field("relative", tolerance.relative);
  });
  json.field("low", cell.lowest).field("high", cell.highest);
  json.field("baseline", cell.baseline).field("baseline_error", cell.baseline_error);
  json.field("published_time_to_accuracy", row.time_to_accuracy).field("time_to_accuracy", cell.time_to_accuracy);
  json.maybe("plan", cell.choice, [&](const PlanChoice& choice) {
    json.field("published", choice.published).field("own", choice.own).field("idle", choice.idle);
    json.field("published_speed", choice.published_speed).field("own_speed", choice.own_speed);
    json.field("same", choice.same()).field("within_5_percent", choice.near());
  });
  json.field("status", row.status).field("counts", cell.counts());
  json.word("verdict", verdict_of(cell), {"within", "outside", "by definition", "not simulated"});
  json.field("reason", unless_empty(row.reason)).field("note", unless_empty(cell.note));
  json.field("source", unless_empty(row.source)).field("file", cell.file);
}

void write_accuracy(JsonFields& json, const Accuracy& accuracy) {
  json.field("cells", accuracy.cells).field("missed", accuracy.missed);
  json.field("mean_error", accuracy.mean).field("largest_error", accuracy.largest);
  json.field("mean_error_with_misses", accuracy.mean_with_misses);
  json.field("baseline_mean_error", accuracy.baseline_mean).field("baseline_largest_error", accuracy.baseline_largest);
  json.field("mean_error_beside_baseline", accuracy.mean_beside_baseline).field("kendall_tau", accuracy.tau);
}

void write_reproduction(JsonFields& json, const std::vector<TableResult>& tables,
                        const std::vector<std::string>& written) {
  json.list("tables", tables, [&](const TableResult& table) {
    json.field("table", table.title).field("source", table.source);
    json.field("note", unless_empty(table.note)).field("box", table.box);
    json.object("accuracy", [&] { write_accuracy(json, table.accuracy()); });
    json.list("cells", table.cells, [&](const Cell& cell) { write_cell(json, cell); });
  });
  json.field("written", written);
}

}  // namespace

constinit const JsonDocument kReproductionDocument{"pipewright.reproduction/1",
                                                   [](JsonFields& json) { write_reproduction(json, {}, {}); }};

std::string accuracy_json(const std::vector<TableResult>& tables, const std::vector<std::string>& written) {
  return kReproductionDocument.text([&](JsonFields& json) { write_reproduction(json, tables, written); });
}

}  // namespace pipewright::io
