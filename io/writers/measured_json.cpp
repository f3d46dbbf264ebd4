#include <ranges>

#include "io/writers/documents.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/measured.hpp"

namespace pipewright::io {
namespace {

constexpr std::string_view kStates[] = {"compared", "left_out", "missing", "failed", "not_priced"};

void write_run(JsonFields& json, const std::vector<RunFigure>& figures, const PredictedRun& each) {
  json.field("file", each.run.place.file).field("line", each.run.place.line).field("group", each.run.group);
  json.field("state", kStates[at(each.run.state)]).field("why", each.run.why);
  json.field("devices", each.run.devices).field("set", each.run.set);
  json.list("figures", std::views::iota(std::size_t{0}, each.figures.size()), [&](std::size_t i) {
    json.field("figure", [&] { return figures[i].name; }).field("measured", [&] { return each.run.figures[i]; });
    json.field("predicted", [&] { return each.figures[i]; }).field("error", [&] { return each.off(i); });
    const auto range = i < each.figures.size() ? each.range(i) : std::nullopt;
    json.maybe("interval_90", range,
               [&](const auto& interval) { json.field("low", interval.low).field("high", interval.high); });
  });
  json.field("fitted", each.run.fitted).field("fits", each.fits);
}

void write_counts(JsonFields& json, const RowCounts& counts) {
  json.field("all", counts.rows).field("compared", counts.compared).field("compared_fit", counts.compared_fit);
  json.field("fitted", counts.fitted).field("failed", counts.failed).field("failed_fit", counts.failed_fit);
  const auto reasons = [&](const char* key, const std::vector<std::pair<std::string, int>>& all) {
    json.list(key, all, [&](const auto& reason) { json.field("why", reason.first).field("rows", reason.second); });
  };
  reasons("missing", counts.missing);
  reasons("left_out", counts.left_out);
  reasons("not_priced", counts.unpriced);
  json.list("subsets", counts.subsets, [&](const SubsetCounts& each) {
    json.field("of", each.of).field("compared", each.compared).field("compared_fit", each.compared_fit);
    json.field("failed", each.failed).field("failed_fit", each.failed_fit);
  });
}

void write_place(JsonFields& json, std::string_view key, const Place& place) {
  json.object(key, [&] { json.field("file", place.file).field("line", place.line); });
}

void write_set(JsonFields& json, const MeasuredResult& result) {
  json.field("set", result.name).field("table", result.title).field("source", result.source);
  json.field("note", result.note).object("rows", [&] { write_counts(json, result.counts); });
  json.list("constants", result.constants, [&](const auto& fitted) {
    json.field("key", fitted.first.key).field("value", fitted.second).field("meaning", fitted.first.meaning);
    json.field("source", fitted.first.source);
  });
  json.list("runs", result.runs, [&](const PredictedRun& each) { write_run(json, result.figures, each); });
  json.list("errors", result.summaries, [&](const ErrorSummary& each) {
    json.field("figure", each.figure).field("split", each.split).field("of", each.of);
    json.field("runs", each.runs).field("mean", each.mean).field("median", each.median);
    json.field("largest", each.largest).field("bias", each.bias);
    json.field("with_interval", each.ranged).field("inside", each.inside).field("half_width", each.half_width);
  });
  json.list("ranking", result.ranking, [&](const RankedGroup& group) {
    json.field("runs", group.runs).field("excess", group.excess);
    write_place(json, "predicted_fastest", group.place);
    write_place(json, "measured_fastest", group.fastest);
  });
  json.list("weak_scaling", result.scaling, [&](const ScalingSeries& each) {
    json.field("of", each.of).field("least_devices", each.least).field("most_devices", each.most);
    json.field("measured", each.measured).field("predicted", each.predicted);
  });
}

void write_measured_runs(JsonFields& json, const std::vector<MeasuredResult>& results,
                         const std::vector<TableResult>& published, const std::vector<std::string>& written) {
  json.list("sets", results, [&](const MeasuredResult& each) { write_set(json, each); });
  json.list("published", published, [&](const TableResult& each) {
    const Accuracy accuracy = each.accuracy();
    json.field("table", each.title).field("source", each.source).field("cells", accuracy.cells);
    json.field("missed", accuracy.missed).field("mean_error", accuracy.mean).field("largest_error", accuracy.largest);
  });
  json.field("written", written);
}

}  // namespace

constinit const JsonDocument kMeasuredRunsDocument{"pipewright.measured-runs/2",
                                                   [](JsonFields& json) { write_measured_runs(json, {}, {}, {}); }};

std::string measured_json(const std::vector<MeasuredResult>& results, const std::vector<TableResult>& published,
                          const std::vector<std::string>& written) {
  return kMeasuredRunsDocument.text([&](JsonFields& json) { write_measured_runs(json, results, published, written); });
}

}  // namespace pipewright::io
