#include "io/writers/calibration_json.hpp"

#include "io/names.hpp"
#include "io/writers/json_document.hpp"
#include "io/writers/shapes.hpp"

namespace pipewright {
namespace {

constexpr double kSecond = 1e-9;  // a nanosecond

void write_line(JsonText& json, std::string_view key, const LinearTime& time, std::string_view per) {
  json.key(key).open('{').field("fixed_s", time.fixed_ns * kSecond).field(per, time.ns_per_unit * kSecond).close();
}

void write_layers(JsonText& json, const MachineProfile& profile) {
  json.key("layers").open('[');
  for (const LayerTimes& layer : profile.layers) {
    json.open('{').field("key", layer.key).field("samples", layer.samples);
    json.field("busy_workers", layer.active == 0 ? profile.active : layer.active);
    json.field("forward_s", layer.forward).field("input_gradient_s", layer.input_gradient);
    json.field("weight_gradient_s", layer.weight_gradient).field("spread", layer.spread);
    json.field("measured", layer.measured).close();
  }
  json.close();
}

void write_machine(JsonText& json, const Fingerprint& machine) {
  json.key("machine").open('{').field("processor", machine.processor).field("arithmetic", machine.isa);
  json.field("cores", machine.cores).field("revision", machine.revision).field("sms", machine.sms);
  json.field("driver", machine.driver).close();
}

// Only the terms that it has. Of a series or a collective.
template <class T>
void write_formula(JsonText& json, const T& series) {
  json.key("formula");
  if (!series.formula) return json.null(), void();
  const TimeFormula& formula = *series.formula;
  json.open('{').field("terms", name(formula.terms)).field("fixed_s", formula.fixed_ns * kSecond);
  if (formula.terms == SizeTerms::Waves) {
    json.field("per_wave_s", formula.per_wave_ns * kSecond);
    json.field("per_wave_and_depth_s", formula.per_wave_depth_ns * kSecond);
    json.field("tile_rows", formula.tile_rows).field("tile_columns", formula.tile_columns);
    json.field("floor_s_per_value", formula.floor_ns_per_value * kSecond);
  }
  if (formula.terms == SizeTerms::Work) json.field("per_flop_s", formula.per_flop_ns * kSecond);
  if (formula.terms != SizeTerms::Waves) json.field("per_value_s", formula.per_value_ns * kSecond);
  const FormulaErrors& errors = series.errors;
  json.key("errors").open('{').field("mean", errors.mean).field("p95", errors.p95).field("bias", errors.bias);
  json.field("common", errors.common).field("independent", errors.independent).close().key("covariance").open('[');
  for (const double each : series.covariance)
    json.value(each * kSecond * kSecond);
  json.close().close();
}

void write_sizes(JsonText& json, const std::vector<MeasuredSize>& sizes) {
  json.key("sizes").open('[');
  for (const MeasuredSize& each : sizes) {
    json.open('{').field("count", each.size.count).field("rows", each.size.rows).field("columns", each.size.columns);
    json.field("depth", each.size.depth).field("values", each.size.values).field("time_s", each.ns * kSecond);
    json.key("warm_time_s");
    each.warm_ns > 0 ? json.value(each.warm_ns * kSecond) : json.null();
    json.key("least_s");
    each.median_ns > 0 ? json.value(each.least_ns * kSecond) : json.null();
    json.key("median_s");
    each.median_ns > 0 ? json.value(each.median_ns * kSecond) : json.null();
    json.field("error", each.error).field("spread", each.spread).field("clock", each.clock);
    json.field("readings", each.readings).field("discarded", each.discarded);
    if (each.algorithm) {
      const ProductAlgorithm& a = *each.algorithm;
      json.key("algorithm").open('{').field("waves", a.waves).field("tile_rows", a.tile_rows);
      json.field("tile_columns", a.tile_columns).field("split_k", a.split_k).close();
    }
    json.close();
  }
  json.close();
}

}  // namespace

std::string calibration_json(const MachineProfile& profile, const std::vector<std::string>& written) {
  JsonText json;
  open_document(json, "pipewright.calibration/1");
  json.field("name", profile.name).field("date", profile.date).field("backend", profile.backend);
  json.field("precision", name(profile.precision));
  write_machine(json, profile.machine);
  json.field("busy_workers", profile.active);
  write_layers(json, profile);
  json.field("op_overhead_s", profile.op_overhead).field("handoff_s", profile.handoff);
  write_line(json, "send", profile.send, "s_per_byte");
  write_line(json, "first_read", profile.first_read, "s_per_byte");
  json.key("updates").open('[');
  for (const UpdateTime& update : profile.updates) {
    json.open('{').field("optimizer", name(update.optimizer));
    write_line(json, "time", update.by_parameters, "s_per_parameter");
    json.close();
  }
  json.close().key("all_reduces").open('[');
  for (const AllReduceTime& sum : profile.all_reduces) {
    json.open('{').field("workers", sum.members);
    write_line(json, "time", sum.by_bytes, "s_per_byte");
    json.close();
  }
  json.close().field("probe_s", profile.probe);
  json.key("errors").open('{').field("common", profile.common_error).field("independent", profile.independent_error);
  json.close().field("source", profile.source).field("written", written).close();
  return std::move(json).text();
}

std::string device_calibration_json(const MeasuredDevice& device, const Device& preset,
                                    const std::vector<std::string>& written) {
  JsonText json;
  open_document(json, "pipewright.device-calibration/1");
  json.field("name", preset.name).field("device", device.gpu).field("driver", device.driver);
  json.field("toolkit", device.toolkit).field("date", device.date).field("revision", device.revision);
  json.field("sms", device.sms).field("clock_hz", device.clock_ghz * 1e9).field("memory_bytes", preset.memory);
  json.field("memory_bandwidth_bytes_per_s", preset.memory_bandwidth);
  json.key("peak_flop_per_s").open('{');
  for (const auto& [precision, rate] : preset.peak)
    json.field(name(precision), rate.value);
  json.close().field("repeat_error", device.repeat_error).field("left_out", device.left_out);
  json.key("series").open('[');
  for (const MeasuredSeries& series : device.series) {
    json.open('{').field("operation", series.operation).field("pass", name(series.pass));
    json.field("precision", name(series.precision)).field("virtual_devices", series.virtual_devices);
    json.field("busy", series.busy).field("sms", series.sms);
    json.key("result_error");
    series.result_error ? json.value(*series.result_error) : json.null();
    write_formula(json, series);
    write_sizes(json, series.sizes);
    json.close();
  }
  json.close().key("collectives").open('[');
  for (const MeasuredCollective& each : device.collectives) {
    json.open('{').field("operation", each.operation).field("members", each.members);
    json.field("virtual_devices", each.virtual_devices).field("from", each.from).field("to", each.to);
    json.field("alpha_s", alpha_ns(each) * kSecond).field("bus_bytes_per_s", bus_bandwidth(each) / kSecond);
    write_formula(json, each);
    write_sizes(json, each.sizes);
    json.close();
  }
  json.close().field("written", written).close();
  return std::move(json).text();
}

JsonShape calibration_shape() {
  using namespace shape;
  const JsonShape machine = object({{"processor", text()},
                                    {"arithmetic", text()},
                                    {"cores", whole()},
                                    {"revision", text()},
                                    {"sms", whole()},
                                    {"driver", text()}});
  const JsonShape layer = object({{"key", text()},
                                  {"samples", whole()},
                                  {"busy_workers", whole()},
                                  {"forward_s", number()},
                                  {"input_gradient_s", number()},
                                  {"weight_gradient_s", number()},
                                  {"spread", number()},
                                  {"measured", whole()}});
  const auto line = [](std::string_view per) { return object({{"fixed_s", number()}, {per, number()}}); };
  const JsonShape update = object({{"optimizer", of_names(kOptimizers)}, {"time", line("s_per_parameter")}});
  const JsonShape sum = object({{"workers", whole()}, {"time", line("s_per_byte")}});
  return document("pipewright.calibration/1", {{"name", text()},
                                               {"date", text()},
                                               {"backend", text()},
                                               {"precision", of_names(kPrecisions)},
                                               {"machine", machine},
                                               {"busy_workers", whole()},
                                               {"layers", list(layer)},
                                               {"op_overhead_s", number()},
                                               {"handoff_s", number()},
                                               {"send", line("s_per_byte")},
                                               {"first_read", line("s_per_byte")},
                                               {"updates", list(update)},
                                               {"all_reduces", list(sum)},
                                               {"probe_s", number()},
                                               {"errors", object({{"common", number()}, {"independent", number()}})},
                                               {"source", text()},
                                               {"written", list(text())}});
}

JsonShape device_calibration_shape() {
  using namespace shape;
  const JsonShape errors = object(
      {{"mean", number()}, {"p95", number()}, {"bias", number()}, {"common", number()}, {"independent", number()}});
  const JsonShape formula = object({{"terms", of_names(kSizeTerms)},
                                    {"fixed_s", number()},
                                    {"per_wave_s?", number()},
                                    {"per_wave_and_depth_s?", number()},
                                    {"tile_rows?", whole()},
                                    {"tile_columns?", whole()},
                                    {"floor_s_per_value?", number()},
                                    {"per_flop_s?", number()},
                                    {"per_value_s?", number()},
                                    {"errors", errors},
                                    {"covariance", list(number())}});
  const JsonShape size = object(
      {{"count", whole()},
       {"rows", whole()},
       {"columns", whole()},
       {"depth", whole()},
       {"values", number()},
       {"time_s", number()},
       {"warm_time_s", maybe(number())},
       {"least_s", maybe(number())},
       {"median_s", maybe(number())},
       {"error", number()},
       {"spread", number()},
       {"clock", number()},
       {"readings", whole()},
       {"discarded", whole()},
       {"algorithm?",
        object({{"waves", number()}, {"tile_rows", whole()}, {"tile_columns", whole()}, {"split_k", whole()}})}});
  const JsonShape collective = object({{"operation", text()},
                                       {"members", whole()},
                                       {"virtual_devices", whole()},
                                       {"from", whole()},
                                       {"to", whole()},
                                       {"alpha_s", number()},
                                       {"bus_bytes_per_s", number()},
                                       {"formula", maybe(formula)},
                                       {"sizes", list(size)}});
  const JsonShape series = object({{"operation", text()},
                                   {"pass", of_names(kMeasuredPasses)},
                                   {"precision", of_names(kPrecisions)},
                                   {"virtual_devices", whole()},
                                   {"busy", whole()},
                                   {"sms", whole()},
                                   {"result_error", maybe(number())},
                                   {"formula", maybe(formula)},
                                   {"sizes", list(size)}});
  return document("pipewright.device-calibration/1", {{"name", text()},
                                                      {"device", text()},
                                                      {"driver", text()},
                                                      {"toolkit", text()},
                                                      {"date", text()},
                                                      {"revision", text()},
                                                      {"sms", whole()},
                                                      {"clock_hz", number()},
                                                      {"memory_bytes", whole()},
                                                      {"memory_bandwidth_bytes_per_s", maybe(number())},
                                                      {"peak_flop_per_s", map(number())},
                                                      {"repeat_error", number()},
                                                      {"left_out", list(text())},
                                                      {"series", list(series)},
                                                      {"collectives", list(collective)},
                                                      {"written", list(text())}});
}

}  // namespace pipewright
