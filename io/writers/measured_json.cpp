#include "io/writers/json_document.hpp"
#include "io/writers/measured.hpp"
#include "io/writers/shapes.hpp"

namespace pipewright {
namespace {

void write_run(JsonText& json, const std::vector<RunColumn>& columns, const PredictedRun& each) {
  json.open('{').field("file", each.run.place.file).field("line", each.run.place.line).field("group", each.run.group);
  json.field("devices", each.run.devices).key("values").open('{');
  for (std::size_t i = 0; i < columns.size(); ++i)
    json.field(columns[i].key, each.run.values[i]);
  json.close().field("measured_s", each.run.seconds).field("predicted_s", each.seconds).field("error", each.error());
  json.field("fitted", each.run.fitted).field("fits", each.fits).close();
}

void write_place(JsonText& json, std::string_view key, const Place& place) {
  json.key(key).open('{').field("file", place.file).field("line", place.line).close();
}

}  // namespace

std::string measured_json(const MeasuredResult& result) {
  JsonText json;
  open_document(json, "pipewright.measured-runs/1");
  json.field("table", result.title).field("source", result.source).field("note", result.note);
  json.key("constants").open('[');
  for (const auto& [constant, value] : result.constants) {
    json.open('{').field("key", constant.key).field("value", value).field("meaning", constant.meaning);
    json.field("source", constant.source).close();
  }
  json.close().key("runs").open('[');
  for (const PredictedRun& each : result.runs)
    write_run(json, result.columns, each);
  json.close().key("errors").open('[');
  for (const ErrorSummary& each : result.summaries) {
    json.open('{').field("split", each.split).field("of", each.of).field("runs", each.runs);
    json.field("mean", each.mean).field("median", each.median).field("largest", each.largest);
    json.field("bias", each.bias).close();
  }
  json.close().key("ranking").open('[');
  for (const RankedGroup& group : result.ranking) {
    json.open('{').field("runs", group.runs).field("excess", group.excess);
    write_place(json, "predicted_fastest", group.place);
    write_place(json, "measured_fastest", group.fastest);
    json.close();
  }
  json.close().close();
  return std::move(json).text();
}

std::string fit_json(const FittedAnew& found) {
  JsonText json;
  open_document(json, "pipewright.fit/1");
  json.field("table", found.title).field("set", found.set).field("tried", found.tried);
  json.field("sum_of_squares", found.loss).key("runs").open('[');
  for (const PredictedRun& each : found.runs) {
    json.open('{').field("file", each.run.place.file).field("line", each.run.place.line);
    json.field("measured_s", each.run.seconds).field("predicted_s", each.seconds).field("error", each.error()).close();
  }
  json.close().close();
  return std::move(json).text();
}

JsonShape measured_runs_shape() {
  using namespace shape;
  const JsonShape place = object({{"file", text()}, {"line", whole()}});
  const JsonShape run = object({{"file", text()},
                                {"line", whole()},
                                {"group", text()},
                                {"devices", whole()},
                                {"values", map(whole())},
                                {"measured_s", number()},
                                {"predicted_s", number()},
                                {"error", number()},
                                {"fitted", flag()},
                                {"fits", flag()}});
  const JsonShape errors = object({{"split", text()},
                                   {"of", text()},
                                   {"runs", whole()},
                                   {"mean", number()},
                                   {"median", number()},
                                   {"largest", number()},
                                   {"bias", number()}});
  const JsonShape constant = object({{"key", text()}, {"value", text()}, {"meaning", text()}, {"source", text()}});
  const JsonShape group =
      object({{"runs", whole()}, {"excess", number()}, {"predicted_fastest", place}, {"measured_fastest", place}});
  return document("pipewright.measured-runs/1", {{"table", text()},
                                                 {"source", text()},
                                                 {"note", text()},
                                                 {"constants", list(constant)},
                                                 {"runs", list(run)},
                                                 {"errors", list(errors)},
                                                 {"ranking", list(group)}});
}

JsonShape fit_shape() {
  using namespace shape;
  const JsonShape run = object(
      {{"file", text()}, {"line", whole()}, {"measured_s", number()}, {"predicted_s", number()}, {"error", number()}});
  return document("pipewright.fit/1", {{"table", text()},
                                       {"set", list(text())},
                                       {"tried", whole()},
                                       {"sum_of_squares", number()},
                                       {"runs", list(run)}});
}

}  // namespace pipewright
