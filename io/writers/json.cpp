// "pipewright.result/1": every key is described in docs/reference/result-json.md (a test compares the two).
#include <algorithm>
#include <string>

#include "core/plan/idle_devices.hpp"
#include "io/names.hpp"
#include "io/writers/anchored.hpp"
#include "io/writers/campaign_lines.hpp"
#include "io/writers/drawing.hpp"
#include "io/writers/html.hpp"
#include "io/writers/interval_text.hpp"
#include "io/writers/json_text.hpp"
#include "io/writers/shapes.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {
namespace {

constexpr std::string_view kSchema = "pipewright.result/1";

void tool(JsonText& json) {
  json.field("schema", kSchema);
  json.key("tool").open('{').field("name", "pipewright").field("version", PIPEWRIGHT_VERSION).close();
}

// Only where there are several.
void classes(JsonText& json, const Cluster& cluster) {
  json.key("classes").open('[');
  for (int c = 0; c < cluster.classes(); ++c) {
    const Device& device = cluster.device_of(c);
    json.open('{').field("device", device.name).field("nodes", cluster.nodes_of(c));
    json.field("first_device", cluster.first_node_of(c) * cluster.devices_per_node);
    json.field("device_memory_bytes", device.memory).close();
  }
  json.close();
}

void scenario(JsonText& json, const Scenario& s) {
  json.key("scenario").open('{');
  json.field("name", s.name).field("file", s.file).field("description", s.description);
  json.key("model").open('{');
  json.field("name", s.model.name).field("layers", static_cast<std::int64_t>(s.model.layers.size()));
  json.field("parameters", parameter_count(s.model)).field("batch", s.model.batch).field("source", s.model.source);
  json.close();
  json.key("cluster").open('{');
  json.field("name", s.cluster.name).field("nodes", s.cluster.nodes);
  json.field("devices_per_node", s.cluster.devices_per_node).field("device", s.cluster.device.name);
  json.field("device_memory_bytes", s.cluster.device.memory).field("source", s.cluster.source);
  if (s.cluster.classes() > 1) classes(json, s.cluster);
  json.close();
  json.field("precision", name(s.training.precision)).field("optimizer", name(s.training.optimizer));
  json.field("gradient_precision", name(s.training.gradient_precision.value_or(s.training.precision)));
  json.field("zero", s.training.zero);
  json.field("sequence_length", s.training.sequence_length).field("cost_source", name(s.cost));
  json.close();
}

void plan(JsonText& json, const Plan& p) {
  json.key("plan").open('{');
  json.field("schedule", p.schedule).field("stages", p.stages).field("virtual_stages", p.virtual_stages);
  json.field("data_parallel", p.data_parallel).field("tensor_parallel", p.tensor_parallel);
  json.field("sequence_parallel", p.sequence_parallel).field("replicas", p.replicas);
  json.field("micro_batches", p.micro_batches).field("micro_batch_size", p.micro_batch_size);
  json.field("last_micro_batch_size", p.last_micro_batch_size).field("global_batch_size", p.global_batch_size);
  json.key("layers").open('[');  // per virtual stage: first and last
  for (const LayerRange& range : p.layers)
    json.open('{').field("first", range.begin).field("last", range.end - 1).close();
  json.close();
  json.key("recompute").open('[');
  for (const Recompute mode : p.recompute)
    json.value(name(mode));
  json.close();
  if (!p.rebuilt.empty()) json.field("rebuilt_layers", p.rebuilt);
  json.field("recompute_except_last", p.recompute_except_last).field("skips", name(p.skips));
  json.field("gradient_sync", name(p.gradient_sync))
      .field("scatter_gather", p.scatter_gather)
      .field("bucket_bytes", p.bucket);
  json.field("vertical_sync", p.vertical_sync).field("devices", p.device);
  json.close();
}

void idle_devices(JsonText& json, const Plan& p, const Cluster& cluster) {
  json.field("idle_devices", pipewright::idle_devices(p, cluster).count);
  json.field("unused_classes", unused_classes(p, cluster));
}

void idle(JsonText& json, const IdleSplit& split) {
  json.key("idle").open('{');
  json.field("total_s", split.total()).field("fill_s", split.fill).field("imbalance_s", split.imbalance);
  json.field("communication_s", split.communication).field("stall_s", split.stall).field("drain_s", split.drain);
  json.close();
}

// What made the peak: message and all-reduce are null where it was something else.
void peak_owner(JsonText& json, const MemoryOwner& owner) {
  json.field("peak_owner", label(owner));
  const auto* const message = std::get_if<BufferedMessage>(&owner);
  const auto* const op = std::get_if<Op>(&owner);
  const bool all_reduce = op != nullptr && op->kind == Kind::AllReduce;
  json.field("peak_owner_kind", message != nullptr ? "message" : all_reduce ? "all-reduce" : "op");
  json.key("peak_message");
  if (message != nullptr) {
    json.open('{').field("end", message->end == Kind::Send ? "sender" : "receiver");
    json.field("direction", message->direction == Direction::Forward ? "forward" : "backward");
    json.field("from", message->from).field("to", message->to).field("micro_batch", message->micro_batch).close();
  } else {
    json.null();
  }
  json.key("peak_all_reduce");
  if (all_reduce)
    json.open('{')
        .field("virtual_stage", static_cast<int>(op->virtual_stage))
        .field("bucket", static_cast<std::int64_t>(op->bucket))
        .field("round", static_cast<std::int64_t>(op->micro_batch))
        .close();
  else
    json.null();
}

void memory(JsonText& json, const MemoryPeak& peak, const MemoryNeed& need, bool anchored) {
  json.key("memory_bytes").open('{');
  for (std::size_t i = 0; i < kMemoryCategories.size(); ++i)
    json.field(kMemoryCategories[i], category(peak.bytes, i));
  json.field("peak", peak.bytes.total()).close();
  json.key("memory_need_bytes").open('{').field("model", need.model).field("rounding", need.rounding);
  json.field("fragmentation", need.fragmentation).field("with_reserve", need.with_reserve);
  json.field("low", need.low).field("high", need.high);
  if (need.fit > 0) json.field("to_fit", need.to_fit);
  if (need.communicators > Bytes{}) json.field("communicators", need.communicators);
  if (anchored) json.field("anchored", need.anchored).field("verdict", memory_verdict(need));
  json.close();
  json.field("weight_versions", peak.weight_versions).field("in_flight", peak.in_flight);
  json.field("peak_at_s", peak.at);
  peak_owner(json, peak.owner);
}

void workers(JsonText& json, const Answer& answer) {
  json.key("workers").open('[');
  for (const WorkerReport& w : answer.report.workers) {
    json.open('{');
    json.field("worker", w.id).field("copy", w.copy).field("stage", w.stage).field("replica", w.replica);
    json.field("device", w.device);
    json.field("busy_s", w.busy).field("forward_s", w.forward).field("backward_s", w.backward);
    json.field("recompute_s", w.recompute).field("update_s", w.update);
    idle(json, w.idle);
    memory(json, w.memory, w.need, is_anchored(*answer.scenario));
    json.field("fits", w.fits).close();
  }
  json.close();
}

void stages(JsonText& json, const Answer& answer) {
  json.key("stages").open('[');
  for (const StageReport& s : answer.report.stages) {
    json.open('{');
    json.field("stage", s.stage).field("workers", s.workers);
    json.key("layers").open('[');
    for (const LayerRange& range : s.layers)
      json.open('{').field("first", range.begin).field("last", range.end - 1).close();
    json.close();
    json.field("parameters", s.parameters);
    json.field("forward_s", s.forward).field("backward_s", s.backward).field("recompute_s", s.recompute);
    json.field("busy_s", s.busy);
    idle(json, s.idle);
    memory(json, s.memory, s.need, is_anchored(*answer.scenario));
    const bool limited = s.need.capacity.value > 0;  // a real run need not be
    json.field("capacity_bytes", limited ? std::optional(s.need.capacity) : std::nullopt);
    json.field("fits", !limited || s.need.to_fit <= s.need.capacity).close();
  }
  json.close();
}

void shortfall(JsonText& json, const Infeasible& why) {
  json.key("shortfall").open('{').field("reason", why.reason);
  json.field("details", why.details).field("remedies", why.remedies).close();
}

void interval(JsonText& json, const SpeedRange& range) {
  json.open('{').field("step_time_low_s", range.fastest).field("step_time_high_s", range.slowest);
  json.field("samples_per_s_low", range.samples_per_s_low).field("samples_per_s_high", range.samples_per_s_high);
  json.field("to_halve", range.to_halve).key("causes").open('[');
  for (const RangeCause& each : range.causes) {
    json.open('{').field("what", each.what).field("known", each.known).field("measure", each.measure);
    json.field("share", each.share).field("step_time_low_s", each.fastest).field("step_time_high_s", each.slowest);
    json.close();
  }
  json.close().close();
}

void times(JsonText& json, const Report& r, bool measured) {
  json.field("step_time_s", r.step_time);
  json.key("cycle_time_s");
  // One division at the end: a cycle need not be a whole number of nanoseconds.
  r.steady ? json.value(seconds(r.steady->growth) / static_cast<double>(r.steady->micro_batches)) : json.null();
  json.field("makespan_s", r.makespan).field("samples_per_s", r.samples_per_s);
  json.key("interval_90");
  if (r.range)
    interval(json, *r.range);
  else
    json.null();
  json.field("tokens_per_s", r.tokens_per_s).field("mfu", r.mfu).field("hfu", r.hfu);
  json.field("bubble_fraction", r.bubble_fraction).field("bubble_fraction_span", r.bubble_fraction_span);
  json.key("steady_state");
  if (r.steady) {
    json.open('{').field("micro_batches", r.steady->micro_batches).field("duration_s", r.steady->growth);
    json.field("busy_s", r.steady->busy).field("exact", r.steady->exact);
    json.field("simulated_micro_batches", r.steady->simulated).close();
  } else {
    json.null();
  }
  // A real run is compared with nothing that did not run.
  const auto over = [&](double value) { return measured ? std::nullopt : std::optional(value); };
  json.field("speedup_over_one_device", over(r.speedup_one_device));
  json.field("speedup_over_data_parallel", r.speedup_data_parallel);
  json.field("scaling_efficiency", over(r.scaling_efficiency));
}

void explanations(JsonText& json, const Report& r) {
  json.key("critical_path").open('[');
  for (const CriticalPart& part : r.critical_path)
    json.open('{').field("what", part.what).field("time_s", part.time).close();
  json.close();
  json.key("sensitivity").open('[');
  for (const Sensitivity& s : r.sensitivity)
    json.open('{').field("what", s.what).field("step_time_s", s.step_time).field("speedup", s.speedup).close();
  json.close();
  json.key("formulas").open('[');
  for (const FormulaReport& f : r.formulas) {
    json.open('{').field("quantity", f.quantity).field("formula", f.formula).field("value", f.value);
    json.field("simulated", f.simulated).field("unit", f.unit).field("source", f.source).field("applies", f.applies);
    json.close();
  }
  json.close();
  json.key("references").open('[');
  for (const Reference& reference : r.references) {
    json.open('{').field("what", reference.what).field("samples_per_s", reference.samples_per_s);
    json.field("note", reference.note).close();
  }
  json.close();
}

void links(JsonText& json, const Report& r) {
  json.key("links").open('[');
  for (const LinkReport& link : r.links) {
    json.open('{').field("name", link.name).field("bytes", link.bytes);
    json.field("bandwidth_bytes_per_s", link.bandwidth).field("utilization", link.utilization).close();
  }
  json.close();
}

}  // namespace

std::string json_report(const Answer& answer) {
  const Report& r = answer.report;
  JsonText json;
  json.open('{');
  tool(json);
  scenario(json, *answer.scenario);
  plan(json, answer.plan);
  idle_devices(json, answer.plan, answer.scenario->cluster);
  json.field("engine", answer.timeline.engine).field("engine_reason", answer.timeline.engine_reason);
  times(json, r, is_measured(answer));
  json.field("limiting_stage", r.limiting_stage).field("limiting_factor", r.limiting_factor);
  json.field("fits", r.fits);
  if (r.fits)
    json.key("shortfall").null();
  else
    shortfall(json, r.shortfall);
  stages(json, answer);
  workers(json, answer);
  links(json, r);
  explanations(json, r);
  if (r.campaign) write_campaign(json, *r.campaign, r);
  json.field("warnings", all_warnings(r)).field("hints", r.hints).field("provenance", r.provenance);
  json.close();
  return std::move(json).text();
}

std::string json_infeasible(const Infeasible& why) {
  JsonText json;
  json.open('{');
  tool(json);
  json.field("fits", false);
  shortfall(json, why);
  json.close();
  return std::move(json).text();
}

// ---- the form of it -------------------------------------------------------------------------------------------------

namespace {

using namespace shape;

JsonShape scenario_shape() {
  const JsonShape model =
      object({{"name", text()}, {"layers", whole()}, {"parameters", whole()}, {"batch", whole()}, {"source", text()}});
  const JsonShape device_class =
      object({{"device", text()}, {"nodes", whole()}, {"first_device", whole()}, {"device_memory_bytes", whole()}});
  const JsonShape cluster = object({{"name", text()},
                                    {"nodes", whole()},
                                    {"devices_per_node", whole()},
                                    {"device", text()},
                                    {"device_memory_bytes", whole()},
                                    {"source", text()},
                                    {"classes?", list(device_class)}});
  return object({{"name", text()},
                 {"file", text()},
                 {"description", text()},
                 {"model", model},
                 {"cluster", cluster},
                 {"precision", of_names(kPrecisions)},
                 {"optimizer", of_names(kOptimizers)},
                 {"gradient_precision", of_names(kPrecisions)},
                 {"zero", whole()},
                 {"sequence_length", maybe(whole())},
                 {"cost_source", of_names(kCostSources)}});
}

JsonShape plan_shape() {
  return object({{"schedule", text()},
                 {"stages", whole()},
                 {"virtual_stages", whole()},
                 {"data_parallel", whole()},
                 {"tensor_parallel", whole()},
                 {"sequence_parallel", flag()},
                 {"replicas", list(whole())},
                 {"micro_batches", whole()},
                 {"micro_batch_size", whole()},
                 {"last_micro_batch_size", whole()},
                 {"global_batch_size", whole()},
                 {"layers", list(layer_range())},
                 {"recompute", list(of_names(kRecomputes))},
                 {"rebuilt_layers?", list(whole())},
                 {"recompute_except_last", flag()},
                 {"skips", of_names(kSkips)},
                 {"gradient_sync", of_names(kGradientSyncs)},
                 {"scatter_gather", flag()},
                 {"bucket_bytes", whole()},
                 {"vertical_sync", flag()},
                 {"devices", list(whole())}});
}

// Of a stage, and of a worker: idle time, and memory at its peak.
std::vector<JsonMember> idle_and_memory() {
  const JsonShape idle = object({{"total_s", number()},
                                 {"fill_s", number()},
                                 {"imbalance_s", number()},
                                 {"communication_s", number()},
                                 {"stall_s", number()},
                                 {"drain_s", number()}});
  const JsonShape need = object({{"model", whole()},
                                 {"rounding", whole()},
                                 {"fragmentation", whole()},
                                 {"with_reserve", whole()},
                                 {"low", whole()},
                                 {"high", whole()},
                                 {"to_fit?", whole()},
                                 {"communicators?", whole()},
                                 {"anchored?", whole()},
                                 {"verdict?", one_of({"fits", "at risk", "out of memory"})}});
  const JsonShape message = object({{"end", one_of({"sender", "receiver"})},
                                    {"direction", one_of({"forward", "backward"})},
                                    {"from", whole()},
                                    {"to", whole()},
                                    {"micro_batch", whole()}});
  const JsonShape all_reduce = object({{"virtual_stage", whole()}, {"bucket", whole()}, {"round", whole()}});
  return {{"idle", idle},
          {"memory_bytes", memory_shape()},
          {"memory_need_bytes", need},
          {"weight_versions", whole()},
          {"in_flight", whole()},
          {"peak_at_s", number()},
          {"peak_owner", text()},
          {"peak_owner_kind", one_of({"message", "all-reduce", "op"})},
          {"peak_message", maybe(message)},
          {"peak_all_reduce", maybe(all_reduce)},
          {"fits", flag()}};
}

JsonShape worker_shape() {
  const JsonShape worker = object({{"worker", whole()},
                                   {"copy", whole()},
                                   {"stage", whole()},
                                   {"replica", whole()},
                                   {"device", whole()},
                                   {"busy_s", number()},
                                   {"forward_s", number()},
                                   {"backward_s", number()},
                                   {"recompute_s", number()},
                                   {"update_s", number()}});
  return with(worker, idle_and_memory());
}

JsonShape stage_shape() {
  const JsonShape stage = object({{"stage", whole()},
                                  {"workers", list(whole())},
                                  {"layers", list(layer_range())},
                                  {"parameters", whole()},
                                  {"forward_s", number()},
                                  {"backward_s", number()},
                                  {"recompute_s", number()},
                                  {"busy_s", number()},
                                  {"capacity_bytes", maybe(whole())}});
  return with(stage, idle_and_memory());
}

JsonShape shortfall_shape() {
  return object({{"reason", text()}, {"details", list(text())}, {"remedies", list(text())}});
}

std::vector<JsonMember> times_shape() {
  const JsonShape cause = object({{"what", text()},
                                  {"known", text()},
                                  {"measure", text()},
                                  {"share", number()},
                                  {"step_time_low_s", number()},
                                  {"step_time_high_s", number()}});
  const JsonShape interval = object({{"step_time_low_s", number()},
                                     {"step_time_high_s", number()},
                                     {"samples_per_s_low", number()},
                                     {"samples_per_s_high", number()},
                                     {"to_halve", whole()},
                                     {"causes", list(cause)}});
  const JsonShape steady = object({{"micro_batches", whole()},
                                   {"duration_s", number()},
                                   {"busy_s", number()},
                                   {"exact", flag()},
                                   {"simulated_micro_batches", whole()}});
  return {{"step_time_s", number()},
          {"cycle_time_s", maybe(number())},
          {"makespan_s", number()},
          {"samples_per_s", number()},
          {"interval_90", maybe(interval)},
          {"tokens_per_s", maybe(number())},
          {"mfu", maybe(number())},
          {"hfu", maybe(number())},
          {"bubble_fraction", number()},
          {"bubble_fraction_span", number()},
          {"steady_state", maybe(steady)},
          {"speedup_over_one_device", maybe(number())},
          {"speedup_over_data_parallel", maybe(number())},
          {"scaling_efficiency", maybe(number())}};
}

std::vector<JsonMember> explanations_shape() {
  const JsonShape formula = object({{"quantity", text()},
                                    {"formula", text()},
                                    {"value", number()},
                                    {"simulated", number()},
                                    {"unit", text()},
                                    {"source", text()},
                                    {"applies", text()}});
  return {{"critical_path", list(object({{"what", text()}, {"time_s", number()}}))},
          {"sensitivity", list(object({{"what", text()}, {"step_time_s", number()}, {"speedup", number()}}))},
          {"formulas", list(formula)},
          {"references", list(object({{"what", text()}, {"samples_per_s", maybe(number())}, {"note", text()}}))}};
}

}  // namespace

JsonShape memory_shape() {
  std::vector<JsonMember> members;
  for (const std::string_view category : kMemoryCategories)
    members.emplace_back(category, whole());
  members.emplace_back("peak", whole());
  return object(std::move(members));
}

JsonShape result_shape() {
  const JsonShape link =
      object({{"name", text()}, {"bytes", whole()}, {"bandwidth_bytes_per_s", number()}, {"utilization", number()}});
  JsonShape report = document(kSchema, {{"scenario", scenario_shape()},
                                        {"plan", plan_shape()},
                                        {"idle_devices", whole()},
                                        {"unused_classes", list(text())},
                                        {"engine", text()},
                                        {"engine_reason", text()}});
  report = with(report, times_shape());
  report = with(report, {{"limiting_stage", whole()},
                         {"limiting_factor", text()},
                         {"fits", flag()},
                         {"shortfall", maybe(shortfall_shape())},
                         {"stages", list(stage_shape())},
                         {"workers", list(worker_shape())},
                         {"links", list(link)}});
  report = with(report, explanations_shape());
  report = with(report, {{"campaign?", campaign_shape()},
                         {"warnings", list(text())},
                         {"hints", list(text())},
                         {"provenance", list(text())}});
  return either({report, document(kSchema, {{"fits", flag()}, {"shortfall", shortfall_shape()}})});
}

}  // namespace pipewright
