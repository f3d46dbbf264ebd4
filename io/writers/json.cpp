// "pipewright.result/1": every key is described in docs/reference/result-json.md (a test compares the two).
#include <ranges>
#include <string>

#include "core/answers/idle_devices.hpp"
#include "io/text/names.hpp"
#include "io/writers/anchored.hpp"
#include "io/writers/campaign_lines.hpp"
#include "io/writers/documents.hpp"
#include "io/writers/drawing.hpp"
#include "io/writers/html.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {
namespace {

void scenario(JsonFields& json, const Scenario& s) {
  json.field("name", s.name).field("file", s.file).field("description", s.description);
  json.object("model", [&] {
    json.field("name", s.model.name).field("layers", s.model.layers.size());
    json.field("parameters", parameter_count(s.model));
    json.when(trained_count(s.model) != parameter_count(s.model), "trained_parameters", trained_count(s.model));
    json.field("batch", s.model.batch).field("source", s.model.source);
  });
  json.object("cluster", [&] {
    json.field("name", s.cluster.name).field("nodes", s.cluster.nodes);
    json.field("devices_per_node", s.cluster.devices_per_node).field("device", s.cluster.device.name);
    json.field("device_memory_bytes", s.cluster.device.memory).field("source", s.cluster.source);
    json.when(s.cluster.host_bandwidth.has_value(), "host_bandwidth", s.cluster.host_bandwidth);
    json.when(s.cluster.classes() > 1, [&] {
      json.list("classes", std::views::iota(0, s.cluster.classes()), [&](int c) {
        const Device& device = s.cluster.device_of(c);
        json.field("device", device.name).field("nodes", s.cluster.nodes_of(c));
        json.field("first_device", s.cluster.first_node_of(c) * s.cluster.devices_per_node);
        json.field("device_memory_bytes", device.memory);
      });
    });
  });
  json.field("precision", s.training.precision).field("optimizer", s.training.optimizer);
  json.field("gradient_precision", s.training.gradient_precision.value_or(s.training.precision));
  json.when(s.training.moments.value != Moments::Fp32, "moments", s.training.moments.value);
  json.when(s.training.master_weights.value != MasterWeights::Fp32, "master_weights", s.training.master_weights.value);
  json.field("zero", s.training.zero);
  json.when(s.training.sharding.value != Sharding::Flat, "sharding", s.training.sharding.value);
  json.when(s.training.offload_optimizer.value > 0, "offload_optimizer", s.training.offload_optimizer.value);
  json.when(s.training.offload_weights.value, "offload_weights", true);
  json.field("sequence_length", s.training.sequence_length).field("cost_source", s.cost);
}

void layers(JsonFields& json, const std::vector<LayerRange>& ranges) {
  json.list("layers", ranges,
            [&](const LayerRange& range) { json.field("first", range.begin).field("last", range.end - 1); });
}

void plan(JsonFields& json, const Plan& p) {
  json.field("schedule", p.schedule).field("stages", p.stages).field("virtual_stages", p.virtual_stages);
  json.field("data_parallel", p.data_parallel).field("tensor_parallel", p.tensor_parallel);
  json.field("sequence_parallel", p.sequence_parallel).field("replicas", p.replicas);
  const TensorOverlap overlap = p.tensor_parallel > 1 ? p.tensor_overlap.value : TensorOverlap::None;
  json.when(overlap != TensorOverlap::None, "tensor_overlap", true);
  json.when(overlap == TensorOverlap::Ring || overlap == TensorOverlap::Backward, "tensor_overlap_form", overlap);
  json.when(p.tensor_links.value != TensorLinks::Alone, "tensor_links", p.tensor_links.value);
  json.when(p.context_parallel > 1, [&] {
    json.field("context_parallel", p.context_parallel).field("context_exchange", p.context_exchange.value);
    json.given("context_inner", p.context_inner);
    json.field("context_split", p.context_split.value).field("context_imbalance", p.context_imbalance.value);
  });
  json.when(p.split().sends_tokens(), [&] {
    json.field("expert_parallel", p.expert_parallel).field("expert_tensor_parallel", p.split().expert_split());
    json.field("expert_exchange", p.expert_exchange.value).field("expert_imbalance", p.expert_imbalance.value);
    json.when(p.shared_experts_beside.value, "shared_experts_beside", true);
  });
  json.given("expert_capacity", p.expert_capacity);
  json.when(p.expert_capacity.has_value(), "expert_padding", p.expert_padding);
  json.given("kept_for_weights", p.kept_for_weights);
  json.when(p.barrier.value != Barrier::Flush, "barrier", p.barrier.value);
  for (const ScheduleKey& key : kScheduleKeys)
    json.when(p.facts.*key.stated && p.*key.asked, key.name, (p.*key.asked).value_or(Placed<std::int64_t>{}).value);
  json.when(p.uneven_slices(), "slice_lengths", p.slice_lengths.value);
  json.when(p.pairs.value != Pairs::Serial, [&] {
    json.field("pairs", p.pairs.value).field("exchange_share", p.exchange_share.value);
    json.when(p.delay_wgrad.value, "delay_wgrad", true);
    json.given("pair_time_s", p.pair_time);
  });
  json.given("offload_layers", p.offload_layers);
  json.when(p.offload_layers && !p.resharding, "units", p.units);
  json.when(p.shard > 0, "data_parallel_shard", p.shard);
  json.when(p.overlap_param_gather.value, "overlap_param_gather", true);
  json.when(p.resharding.has_value(), [&] {
    const Resharding when = p.resharding.value_or(Resharding{});
    json.field("units", p.units).field("reshard_after_forward", when.after_forward);
    json.when(when.over > 0, "reshard_over", when.over).when(when.always, "reshard_always", true);
    json.field("reduce_gradients", p.reduce_each ? ReduceGradients::MicroBatch : ReduceGradients::Step);
  });
  json.field("micro_batches", p.micro_batches).field("micro_batch_size", p.micro_batch_size);
  json.field("last_micro_batch_size", p.last_micro_batch_size).field("global_batch_size", p.global_batch_size);
  layers(json, p.layers);  // per virtual stage
  json.field("recompute", p.recompute);
  json.when(p.recompute_modules != Modules{Module::AttentionCore}, "recompute_modules",
            words(p.recompute_modules, " "));
  json.when(!p.rebuilt.empty(), "rebuilt_layers", p.rebuilt);
  json.field("recompute_except_last", p.recompute_except_last).field("skips", p.skips);
  json.field("gradient_sync", p.gradient_sync).field("scatter_gather", p.scatter_gather);
  json.when(p.bucket_rule != BucketRule::Size, "bucket_rule", p.bucket_rule);
  json.when(p.bucket_rule == BucketRule::Size, "bucket_bytes", p.bucket);
  json.field("vertical_sync", p.vertical_sync).field("devices", p.device);
}

void idle(JsonFields& json, const IdleSplit& split) {
  json.object("idle", [&] {
    json.field("total_s", split.total()).field("fill_s", split.fill).field("imbalance_s", split.imbalance);
    json.field("communication_s", split.communication).field("stall_s", split.stall).field("drain_s", split.drain);
  });
}

// What made the peak: message and all-reduce are null where it was something else.
void peak_owner(JsonFields& json, const MemoryOwner& owner) {
  json.field("peak_owner", label(owner));
  const auto* const message = std::get_if<BufferedMessage>(&owner);
  const auto* const op = std::get_if<Op>(&owner);
  const bool all_reduce = op != nullptr && op->kind == Kind::AllReduce;
  json.word("peak_owner_kind",
            message != nullptr ? "message"
            : all_reduce       ? "all-reduce"
                               : "op",
            {"message", "all-reduce", "op"});
  json.maybe("peak_message", message, [&](const BufferedMessage& m) {
    json.word("end", m.end == BufferedMessage::End::Sender ? "sender" : "receiver", {"sender", "receiver"});
    json.word("direction", m.direction == Direction::Forward ? "forward" : "backward", {"forward", "backward"});
    json.field("from", m.from).field("to", m.to).field("micro_batch", m.micro_batch);
  });
  json.maybe("peak_all_reduce", all_reduce ? op : nullptr, [&](const Op& reduced) {
    json.field("virtual_stage", reduced.virtual_stage).field("bucket", reduced.bucket);
    json.field("round", reduced.micro_batch);
  });
}

void memory(JsonFields& json, const MemoryPeak& peak, const MemoryNeed& need, bool anchored) {
  write_memory(json, peak.bytes);
  json.object("memory_need_bytes", [&] {
    json.field("model", need.model).field("rounding", need.rounding).field("fragmentation", need.fragmentation);
    json.field("with_reserve", need.with_reserve).field("low", need.low).field("high", need.high);
    json.when(need.fit > 0, "to_fit", need.to_fit);
    json.when(need.communicators > Bytes{}, "communicators", need.communicators);
    json.when(anchored, [&] {
      json.field("anchored", need.anchored);
      json.word("verdict", memory_verdict(need), {"fits", "at risk", "out of memory"});
    });
  });
  json.field("weight_versions", peak.weight_versions).field("in_flight", peak.in_flight);
  json.field("peak_at_s", peak.at);
  peak_owner(json, peak.owner);
}

void workers(JsonFields& json, const Answer& answer) {
  json.list("workers", answer.report.workers, [&](const WorkerReport& w) {
    json.field("worker", w.id).field("copy", w.copy).field("stage", w.stage).field("replica", w.replica);
    json.field("device", w.device);
    json.field("busy_s", w.busy).field("forward_s", w.forward).field("backward_s", w.backward);
    json.field("recompute_s", w.recompute).field("update_s", w.update);
    idle(json, w.idle);
    memory(json, w.memory, w.need, is_anchored(*answer.scenario));
    json.field("fits", w.fits);
  });
}

void stages(JsonFields& json, const Answer& answer) {
  json.list("stages", answer.report.stages, [&](const StageReport& s) {
    json.field("stage", s.stage).field("workers", s.workers);
    layers(json, s.layers);
    json.field("parameters", s.parameters);
    json.field("forward_s", s.forward).field("backward_s", s.backward).field("recompute_s", s.recompute);
    json.field("busy_s", s.busy);
    idle(json, s.idle);
    memory(json, s.memory, s.need, is_anchored(*answer.scenario));
    const Bytes on_host = in_host_memory(answer.memory, answer.schedule, answer.plan, s.stage);
    json.when(on_host > Bytes{}, "host_memory_bytes", on_host);
    const bool limited = s.need.capacity.value > 0;  // a real run need not be
    json.field("capacity_bytes", limited ? std::optional(s.need.capacity) : std::nullopt);
    json.field("fits", !limited || s.need.to_fit <= s.need.capacity);
  });
}

void shortfall(JsonFields& json, const Infeasible& why) {
  json.field("reason", why.reason).field("details", why.details).field("remedies", why.remedies);
}

void interval(JsonFields& json, const SpeedRange& range) {
  json.field("step_time_low_s", range.fastest).field("step_time_high_s", range.slowest);
  json.field("samples_per_s_low", range.samples_per_s_low).field("samples_per_s_high", range.samples_per_s_high);
  json.field("to_halve", range.to_halve);
  json.list("causes", range.causes, [&](const RangeCause& each) {
    json.field("what", each.what).field("known", each.known).field("measure", each.measure);
    json.field("share", each.share).field("step_time_low_s", each.fastest).field("step_time_high_s", each.slowest);
  });
}

void times(JsonFields& json, const Report& r, bool measured) {
  json.field("step_time_s", r.step_time);
  // One division at the end: a cycle need not be a whole number of nanoseconds.
  json.maybe("cycle_time_s", r.steady, [](const SteadyState& steady) {
    return seconds(steady.growth) / static_cast<double>(steady.micro_batches);
  });
  json.field("makespan_s", r.makespan).field("samples_per_s", r.samples_per_s);
  json.maybe("interval_90", r.range, [&](const SpeedRange& range) { interval(json, range); });
  json.field("tokens_per_s", r.tokens_per_s).field("mfu", r.mfu).field("hfu", r.hfu);
  json.field("bubble_fraction", r.bubble_fraction).field("bubble_fraction_span", r.bubble_fraction_span);
  json.maybe("steady_state", r.steady, [&](const SteadyState& steady) {
    json.field("micro_batches", steady.micro_batches).field("duration_s", steady.growth);
    json.field("busy_s", steady.busy).field("exact", steady.exact);
    json.field("simulated_micro_batches", steady.simulated);
  });
  // A real run is compared with nothing that did not run.
  const auto over = [&](double value) { return measured ? std::nullopt : std::optional(value); };
  json.field("speedup_over_one_device", over(r.speedup_one_device));
  json.field("speedup_over_data_parallel", r.speedup_data_parallel);
  json.field("scaling_efficiency", over(r.scaling_efficiency));
}

void explanations(JsonFields& json, const Report& r) {
  json.list("critical_path", r.critical_path,
            [&](const CriticalPart& part) { json.field("what", part.what).field("time_s", part.time); });
  json.list("sensitivity", r.sensitivity, [&](const Sensitivity& s) {
    json.field("what", s.what).field("step_time_s", s.step_time).field("speedup", s.speedup);
  });
  json.list("formulas", r.formulas, [&](const FormulaReport& f) {
    json.field("quantity", f.quantity).field("formula", f.formula).field("value", f.value);
    json.field("simulated", f.simulated).field("unit", f.unit).field("source", f.source).field("applies", f.applies);
  });
  json.list("references", r.references, [&](const Reference& reference) {
    json.field("what", reference.what).field("samples_per_s", reference.samples_per_s).field("note", reference.note);
  });
}

void links(JsonFields& json, const Report& r) {
  json.list("links", r.links, [&](const LinkReport& link) {
    json.field("name", link.name).field("bytes", link.bytes);
    json.field("bandwidth_bytes_per_s", link.bandwidth).field("utilization", link.utilization);
  });
}

void result(JsonFields& json, const Answer& answer, bool timeline) {
  const Report& r = answer.report;
  const Scenario& asked = *answer.scenario;
  json.object("scenario", [&] { scenario(json, asked); });
  json.object("plan", [&] { plan(json, answer.plan); });
  json.field("idle_devices", [&] { return idle_devices(answer.plan, asked.cluster).count; });
  json.field("unused_classes", [&] { return unused_classes(answer.plan, asked.cluster); });
  json.field("engine", name(answer.timeline.engine)).field("engine_reason", answer.timeline.engine_reason);
  times(json, r, is_measured(answer));
  json.field("limiting_stage", r.limiting_stage).field("limiting_factor", r.limiting_factor);
  json.field("fits", r.fits);
  json.maybe("shortfall", r.fits ? nullptr : &r.shortfall, [&](const Infeasible& why) { shortfall(json, why); });
  stages(json, answer);
  workers(json, answer);
  links(json, r);
  explanations(json, r);
  json.when(timeline, [&] { write_timeline(json, answer); });
  write_campaign(json, r.campaign.get(), r);
  json.field("warnings", all_warnings(r)).field("hints", r.hints).field("provenance", r.provenance);
}

void infeasible(JsonFields& json, const Infeasible& why) {
  json.field("fits", false).object("shortfall", [&] { shortfall(json, why); });
  json.field("warnings", why.warnings);
}

void empty_result(JsonFields& json) {
  Answer empty;
  empty.scenario = std::make_shared<const Scenario>();
  result(json, empty, true);
}

}  // namespace

void write_memory(JsonFields& json, const MemoryBytes& bytes) {
  json.object("memory_bytes", [&] {
    for (std::size_t i = 0; i < kMemoryCategories.size(); ++i)
      json.field(kMemoryCategories[i], category(bytes, i));
    json.field("peak", bytes.total());
  });
}

constinit const JsonDocument kResultDocument{"pipewright.result/1", empty_result,
                                             [](JsonFields& json) { infeasible(json, {}); }};

std::string json_report(const Answer& answer, bool timeline) {
  return kResultDocument.text([&](JsonFields& json) { result(json, answer, timeline); });
}

std::string json_infeasible(const Infeasible& why) {
  return kResultDocument.text([&](JsonFields& json) { infeasible(json, why); });
}

}  // namespace pipewright::io
