// "pipewright.reproduction/1": published tables beside predictions, as docs/results/accuracy.md explains their columns.
#include "io/names.hpp"
#include "io/writers/accuracy.hpp"
#include "io/writers/json_document.hpp"
#include "io/writers/shapes.hpp"

namespace pipewright {
namespace {

std::optional<std::string> unless_empty(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

void write_tolerance(JsonText& json, const std::optional<Tolerance>& tolerance) {
  json.key("tolerance");
  if (!tolerance) return json.null(), void();
  json.open('{').field("value", tolerance->value).field("relative", tolerance->relative).close();
}

std::string_view verdict_of(const Cell& cell) {
  if (cell.reference) return "by definition";
  if (cell.row.status == CellStatus::NotSimulated) return "not simulated";
  return cell.within ? "within" : "outside";
}

void write_choice(JsonText& json, const std::optional<PlanChoice>& choice) {
  json.key("plan");
  if (!choice) return json.null(), void();
  json.open('{').field("published", choice->published).field("own", choice->own).field("idle", choice->idle);
  json.field("published_speed", choice->published_speed).field("own_speed", choice->own_speed);
  json.field("same", choice->same()).field("within_5_percent", choice->near()).close();
}

void write_cell(JsonText& json, const Cell& cell) {
  const Expectation& row = cell.row;
  json.open('{').field("cell", row.name);
  json.field("quantity", row.quantity ? std::optional(row.quantity->text) : std::nullopt);
  json.key("stage");
  row.quantity&& row.quantity->where == Where::Stage ? json.value(row.quantity->stage) : json.null();
  json.field("ratio_to", unless_empty(row.ratio_to)).field("unit", unit_of(row));
  json.field("published", row.published).field("predicted", cell.predicted).field("error", cell.error);
  write_tolerance(json, row.tolerance);
  json.field("low", cell.lowest).field("high", cell.highest);
  json.field("baseline", cell.baseline).field("baseline_error", cell.baseline_error);
  json.field("published_time_to_accuracy", row.time_to_accuracy).field("time_to_accuracy", cell.time_to_accuracy);
  write_choice(json, cell.choice);
  json.field("status", name(row.status)).field("counts", cell.counts()).field("verdict", verdict_of(cell));
  json.field("reason", unless_empty(row.reason)).field("note", unless_empty(cell.note));
  json.field("source", unless_empty(row.source)).field("file", cell.file).close();
}

void write_accuracy(JsonText& json, const Accuracy& accuracy) {
  json.key("accuracy").open('{').field("cells", accuracy.cells).field("missed", accuracy.missed);
  json.field("mean_error", accuracy.mean).field("largest_error", accuracy.largest);
  json.field("mean_error_with_misses", accuracy.mean_with_misses);
  json.field("baseline_mean_error", accuracy.baseline_mean).field("baseline_largest_error", accuracy.baseline_largest);
  json.field("mean_error_beside_baseline", accuracy.mean_beside_baseline).field("kendall_tau", accuracy.tau).close();
}

}  // namespace

std::string accuracy_json(const std::vector<TableResult>& tables, const std::vector<std::string>& written) {
  JsonText json;
  open_document(json, "pipewright.reproduction/1");
  json.key("tables").open('[');
  for (const TableResult& table : tables) {
    json.open('{').field("table", table.title).field("source", table.source);
    json.field("note", unless_empty(table.note)).field("box", table.box);
    write_accuracy(json, table.accuracy());
    json.key("cells").open('[');
    for (const Cell& cell : table.cells)
      write_cell(json, cell);
    json.close().close();
  }
  json.close().field("written", written).close();
  return std::move(json).text();
}

JsonShape reproduction_shape() {
  using namespace shape;
  const JsonShape optional_number = maybe(number()), optional_text = maybe(text());
  const JsonShape plan = object({{"published", list(whole())},
                                 {"own", list(whole())},
                                 {"idle", whole()},
                                 {"published_speed", number()},
                                 {"own_speed", number()},
                                 {"same", flag()},
                                 {"within_5_percent", flag()}});
  const JsonShape cell = object({{"cell", text()},
                                 {"quantity", optional_text},
                                 {"stage", maybe(whole())},
                                 {"ratio_to", optional_text},
                                 {"unit", text()},
                                 {"published", optional_number},
                                 {"predicted", optional_number},
                                 {"error", optional_number},
                                 {"tolerance", maybe(object({{"value", number()}, {"relative", flag()}}))},
                                 {"low", optional_number},
                                 {"high", optional_number},
                                 {"baseline", optional_number},
                                 {"baseline_error", optional_number},
                                 {"published_time_to_accuracy", optional_number},
                                 {"time_to_accuracy", optional_number},
                                 {"plan", maybe(plan)},
                                 {"status", of_names(kCellStatuses)},
                                 {"counts", flag()},
                                 {"verdict", one_of({"within", "outside", "by definition", "not simulated"})},
                                 {"reason", optional_text},
                                 {"note", optional_text},
                                 {"source", optional_text},
                                 {"file", text()}});
  const JsonShape accuracy = object({{"cells", whole()},
                                     {"missed", whole()},
                                     {"mean_error", optional_number},
                                     {"largest_error", optional_number},
                                     {"mean_error_with_misses", optional_number},
                                     {"baseline_mean_error", optional_number},
                                     {"baseline_largest_error", optional_number},
                                     {"mean_error_beside_baseline", optional_number},
                                     {"kendall_tau", optional_number}});
  const JsonShape table = object({{"table", text()},
                                  {"source", text()},
                                  {"note", optional_text},
                                  {"box", list(text())},
                                  {"accuracy", accuracy},
                                  {"cells", list(cell)}});
  return document("pipewright.reproduction/1", {{"tables", list(table)}, {"written", list(text())}});
}

}  // namespace pipewright
