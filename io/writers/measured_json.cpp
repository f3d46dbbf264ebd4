#include "io/writers/json_document.hpp"
#include "io/writers/measured.hpp"
#include "io/writers/shapes.hpp"

namespace pipewright {
namespace {

constexpr std::string_view kStates[] = {"compared", "left_out", "missing", "failed", "not_priced"};

void write_figures(JsonText& json, const std::vector<RunFigure>& figures, const PredictedRun& each) {
  json.key("figures").open('[');
  for (std::size_t i = 0; i < each.figures.size(); ++i) {
    json.open('{').field("figure", figures[i].name);
    json.key("measured");
    each.run.figures[i] ? json.value(*each.run.figures[i]) : json.null();
    json.field("predicted", each.figures[i]).key("error");
    each.run.figures[i] ? json.value(each.figures[i] / *each.run.figures[i] - 1) : json.null();
    json.key("interval_90");
    const auto range = each.range(i);
    range ? json.open('{').field("low", range->low).field("high", range->high).close() : json.null();
    json.close();
  }
  json.close();
}

void write_run(JsonText& json, const std::vector<RunFigure>& figures, const PredictedRun& each) {
  json.open('{').field("file", each.run.place.file).field("line", each.run.place.line).field("group", each.run.group);
  json.field("state", kStates[static_cast<std::size_t>(each.run.state)]).field("why", each.run.why);
  json.field("devices", each.run.devices).field("set", each.run.set);
  write_figures(json, figures, each);
  json.field("fitted", each.run.fitted).field("fits", each.fits).close();
}

void write_reasons(JsonText& json, std::string_view key, const std::vector<std::pair<std::string, int>>& reasons) {
  json.key(key).open('[');
  for (const auto& [why, rows] : reasons)
    json.open('{').field("why", why).field("rows", rows).close();
  json.close();
}

void write_counts(JsonText& json, const RowCounts& counts) {
  json.key("rows").open('{').field("all", counts.rows).field("compared", counts.compared);
  json.field("compared_fit", counts.compared_fit).field("fitted", counts.fitted);
  json.field("failed", counts.failed).field("failed_fit", counts.failed_fit);
  write_reasons(json, "missing", counts.missing);
  write_reasons(json, "left_out", counts.left_out);
  write_reasons(json, "not_priced", counts.unpriced);
  json.close();
}

void write_place(JsonText& json, std::string_view key, const Place& place) {
  json.key(key).open('{').field("file", place.file).field("line", place.line).close();
}

void write_set(JsonText& json, const MeasuredResult& result) {
  json.open('{').field("set", result.name).field("table", result.title).field("source", result.source);
  json.field("note", result.note);
  write_counts(json, result.counts);
  json.key("constants").open('[');
  for (const auto& [constant, value] : result.constants) {
    json.open('{').field("key", constant.key).field("value", value).field("meaning", constant.meaning);
    json.field("source", constant.source).close();
  }
  json.close().key("runs").open('[');
  for (const PredictedRun& each : result.runs)
    write_run(json, result.figures, each);
  json.close().key("errors").open('[');
  for (const ErrorSummary& each : result.summaries) {
    json.open('{').field("figure", each.figure).field("split", each.split).field("of", each.of);
    json.field("runs", each.runs).field("mean", each.mean).field("median", each.median);
    json.field("largest", each.largest).field("bias", each.bias);
    json.field("with_interval", each.ranged).field("inside", each.inside).field("half_width", each.half_width).close();
  }
  json.close().key("ranking").open('[');
  for (const RankedGroup& group : result.ranking) {
    json.open('{').field("runs", group.runs).field("excess", group.excess);
    write_place(json, "predicted_fastest", group.place);
    write_place(json, "measured_fastest", group.fastest);
    json.close();
  }
  json.close().close();
}

}  // namespace

std::string measured_json(const std::vector<MeasuredResult>& results, const std::vector<TableResult>& published) {
  JsonText json;
  open_document(json, "pipewright.measured-runs/2");
  json.key("sets").open('[');
  for (const MeasuredResult& each : results)
    write_set(json, each);
  json.close().key("published").open('[');
  for (const TableResult& each : published) {
    const Accuracy accuracy = each.accuracy();
    json.open('{').field("table", each.title).field("source", each.source).field("cells", accuracy.cells);
    json.field("missed", accuracy.missed).field("mean_error", accuracy.mean);
    json.field("largest_error", accuracy.largest).close();
  }
  json.close().close();
  return std::move(json).text();
}

JsonShape measured_runs_shape() {
  using namespace shape;
  const JsonShape place = object({{"file", text()}, {"line", whole()}});
  const JsonShape figure = object({{"figure", text()},
                                   {"measured", maybe(number())},
                                   {"predicted", number()},
                                   {"error", maybe(number())},
                                   {"interval_90", maybe(object({{"low", number()}, {"high", number()}}))}});
  const JsonShape run = object({{"file", text()},
                                {"line", whole()},
                                {"group", text()},
                                {"state", text()},
                                {"why", text()},
                                {"devices", whole()},
                                {"set", list(text())},
                                {"figures", list(figure)},
                                {"fitted", flag()},
                                {"fits", flag()}});
  const JsonShape reasons = list(object({{"why", text()}, {"rows", whole()}}));
  const JsonShape rows = object({{"all", whole()},
                                 {"compared", whole()},
                                 {"compared_fit", whole()},
                                 {"fitted", whole()},
                                 {"failed", whole()},
                                 {"failed_fit", whole()},
                                 {"missing", reasons},
                                 {"left_out", reasons},
                                 {"not_priced", reasons}});
  const JsonShape errors = object({{"figure", text()},
                                   {"split", text()},
                                   {"of", text()},
                                   {"runs", whole()},
                                   {"mean", number()},
                                   {"median", number()},
                                   {"largest", number()},
                                   {"bias", number()},
                                   {"with_interval", whole()},
                                   {"inside", number()},
                                   {"half_width", number()}});
  const JsonShape constant = object({{"key", text()}, {"value", text()}, {"meaning", text()}, {"source", text()}});
  const JsonShape group =
      object({{"runs", whole()}, {"excess", number()}, {"predicted_fastest", place}, {"measured_fastest", place}});
  const JsonShape set = object({{"set", text()},
                                {"table", text()},
                                {"source", text()},
                                {"note", text()},
                                {"rows", rows},
                                {"constants", list(constant)},
                                {"runs", list(run)},
                                {"errors", list(errors)},
                                {"ranking", list(group)}});
  const JsonShape table = object({{"table", text()},
                                  {"source", text()},
                                  {"cells", whole()},
                                  {"missed", whole()},
                                  {"mean_error", maybe(number())},
                                  {"largest_error", maybe(number())}});
  return document("pipewright.measured-runs/2", {{"sets", list(set)}, {"published", list(table)}});
}

}  // namespace pipewright
