// plan: of a scenario.
#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/plan/given_schedule.hpp"
#include "io/import/schedule_csv.hpp"
#include "io/read/read_scenario.hpp"
#include "io/text/quote.hpp"
#include "io/yaml/sections.hpp"
#include "io/yaml/value_rules.hpp"

namespace pipewright::io {
namespace {

// Whole numbers, each at least 1; an error names the entry.
bool read_counts(Reader& reader, const At& at, std::vector<std::int64_t>& counts) {
  if (!is_list(reader, at, "a list of whole numbers")) return false;
  const std::size_t errors_before = reader.errors.count();
  counts.clear();
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i) {
    const At here = at.entry(i);
    std::int64_t& count = counts.emplace_back(1);
    read_lawful<AtLeast1>(reader, here, count);
  }
  return reader.errors.count() == errors_before;
}

void read_replicas(Reader& reader, const At& at, PlanRequest& plan) {
  plan.replicas.place = at.yaml.place;
  read_counts(reader, at, plan.replicas.value);
}

// ---- partition ------------------------------------------------------------------------------------------------------

// Where a layer of the model as it is given stands in the plan's order.
std::int64_t place_in(const LayerOrder& order, std::int64_t layer) {
  if (order.layers.empty()) return layer;
  return std::ranges::find(order.layers, static_cast<LayerId>(layer)) - order.layers.begin();
}

bool is_layer_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// "7..9", the dots at `dots`: both ends are layers of the model.
void read_range(Reader& reader, const At& at, std::size_t dots, std::vector<std::int64_t>& layers) {
  const auto count = static_cast<std::int64_t>(reader.model->layers.size());
  const auto number = [&](std::string_view digits) {
    std::int64_t value = 0;
    for (const char c : digits)
      value = std::min(10 * value + (c - '0'), count);
    return value;
  };
  const std::string_view text = at.yaml.scalar;
  const std::int64_t first = number(text.substr(0, dots)), last = number(text.substr(dots + 2));
  if (first > last || last >= count)
    return reader.error(
        at,
        fmt::format("is not a range of layers; the model has layers 0 to {}, write the lower number first, e.g. 0..{}",
                    count - 1, count - 1));
  for (std::int64_t layer = first; layer <= last; ++layer)
    layers.push_back(layer);
}

// Layers, each by its number in execution order (`order`) or its name; `ranges`: also "7..9".
enum class Ranges { No, Yes };
bool read_layers(Reader& reader, const At& at, const LayerOrder& order, std::vector<std::int64_t>& layers,
                 Ranges ranges = Ranges::No) {
  if (!is_list(reader, at, "a list of layers")) return false;
  if (!reader.model || reader.model->layers.empty()) return false;  // the model has errors of its own
  const std::size_t errors_before = reader.errors.count();
  const auto by_name = layers_by_name(*reader.model);
  for (std::size_t i = 0; i < at.yaml.list.size() && !reader.errors.full(); ++i) {
    const At here = at.entry(i);
    const std::string_view text = here.yaml.scalar;
    const bool scalar = here.yaml.is(Yaml::Type::Scalar);
    const std::size_t dots = ranges == Ranges::Yes && scalar ? text.find("..") : text.npos;
    if (const auto named = by_name.find(text); scalar && named != by_name.end()) {
      layers.push_back(place_in(order, named->second));
    } else if (dots != text.npos && is_layer_number(text.substr(0, dots)) && is_layer_number(text.substr(dots + 2))) {
      read_range(reader, here, dots, layers);
    } else if (scalar && (!is_layer_number(text) || here.yaml.quoted)) {
      reader.error(here, "is not a layer of the model; write a layer's name, or its number counted from 0");
    } else {
      read_value(reader, here, layers.emplace_back());
    }
  }
  return reader.errors.count() == errors_before;
}

// Cuts: each the first layer of a stage.
void read_cuts(Reader& reader, const At& at, const LayerOrder& order, std::vector<std::int64_t>& first) {
  read_layers(reader, at, order, first);
}

// Partitions that a name chooses.
std::span<const std::pair<std::string_view, Partition>> named_partitions() {
  static const std::array<std::pair<std::string_view, Partition>, 7> table = {{{"balanced", Balanced{}},
                                                                               {"fitting", Fitting{}},
                                                                               {"exact", LeastStep{}},
                                                                               {"equal_layers", EqualLayers{}},
                                                                               {"equal_blocks", EqualBlocks{}},
                                                                               {"block_partition", BlockPartition{}},
                                                                               {"suffix_dp", SuffixDp{}}}};
  return table;
}

void read_partition(Reader& reader, const At& at, PlanRequest& plan) {
  plan.partition.place = at.yaml.place;
  constexpr const char* forms =
      "write balanced, fitting, exact, equal_layers, equal_blocks, block_partition, suffix_dp, {layers: [3, 3]} (per "
      "stage) or {cuts: [3]} (first layers)";
  if (at.yaml.is(Yaml::Type::Scalar))
    for (const auto& [name, partition] : named_partitions())
      if (at.yaml.scalar == name) {
        plan.partition.value = partition;
        return;
      }
  if (!at.yaml.is(Yaml::Type::Map) || at.yaml.map.size() != 1)
    return reader.error(at, fmt::format("is not a partition; {}", forms));
  const auto& [key, value] = at.yaml.map.front();
  const At here = at.child(key.text, value);
  if (key.text == "layers") {
    LayerCounts counts;
    if (!read_counts(reader, here, counts.counts)) return;
    plan.partition.value = counts;
  } else if (key.text == "cuts") {
    CutLayers cuts;
    read_cuts(reader, here, plan.order.value, cuts.first);
    plan.partition.value = cuts;
  } else {
    unknown_key(reader, at, key, {"layers", "cuts"});
  }
}

void write_partition(YamlText& out, std::string_view key, const PlanRequest& plan) {
  const Partition& partition = plan.partition.value;
  if (const auto* counts = std::get_if<LayerCounts>(&partition))
    out.line(key, fmt::format("{{layers: {}}}", value_text(counts->counts)));
  else if (const auto* cuts = std::get_if<CutLayers>(&partition))
    out.line(key, fmt::format("{{cuts: {}}}", value_text(cuts->first)));
  else
    for (const auto& [name, named] : named_partitions())
      if (named.index() == partition.index()) out.line(key, std::string(name));
}

// ---- placement, recompute -------------------------------------------------------------------------------------------

void read_placement(Reader& reader, const At& at, PlanRequest& plan) {
  plan.placement_place = at.yaml.place;
  if (at.yaml.is(Yaml::Type::List)) {
    std::vector<std::int64_t> devices;
    read_value(reader, at, devices);
    plan.placement = devices;
  } else {
    PlacementOrder order{};
    if (read_value(reader, at, order)) plan.placement = order;
  }
}

struct EveryBlock {
  const char* operator()(std::int64_t every) const { return every >= 1 ? "" : "must be 1 (every block) or more"; }
};

// Every n-th block of the model: torchtitan's count where each stage's number of blocks is a multiple of n.
void read_every(Reader& reader, const At& at, const LayerOrder& order, std::vector<std::int64_t>& layers) {
  std::int64_t every = 0;
  if (!read_lawful<EveryBlock>(reader, at, every)) return;
  if (!reader.model || reader.model->layers.empty()) return;  // the model has errors of its own
  std::int64_t blocks = 0;
  for (LayerId i = 0; i < std::ssize(reader.model->layers); ++i)
    if (reader.model->layers[i].block && ++blocks % every == 0) layers.push_back(place_in(order, i));
  if (layers.empty())
    reader.error(at, blocks == 0 ? "counts blocks of a Transformer, and the model has none; write {layers: [...]}"
                                 : fmt::format("is more than the model's {} blocks; use a smaller number", blocks));
}

// A name, {layers: [3, 4, 7..9]} or {every: 2}.
void read_recompute_entry(Reader& reader, const At& at, PlanRequest& plan) {
  Recompute& mode = plan.recompute.value.emplace_back();
  Placed<std::vector<std::int64_t>>& layers = plan.recompute_layers.emplace_back();
  layers.place = at.yaml.place;
  if (!at.yaml.is(Yaml::Type::Map)) {
    if (read_value(reader, at, mode) && mode == Recompute::Layers)
      reader.error(at, "does not say which; write e.g. {layers: [3, 4, 7..9]}, or knapsack for a choice that fits");
    return;
  }
  mode = Recompute::Layers;
  for (const auto& [key, value] : at.yaml.map)
    if (key.text == "layers")
      read_layers(reader, at.child(key.text, value), plan.order.value, layers.value, Ranges::Yes);
    else if (key.text == "every")
      read_every(reader, at.child(key.text, value), plan.order.value, layers.value);
    else
      unknown_key(reader, at, key, {"layers", "every"});
  if (at.yaml.map.empty()) reader.error(at, "names no layers; write e.g. {layers: [3, 4, 7..9]} or {every: 2}");
  if (at.yaml.map.size() > 1) reader.error(at, "names layers twice; write one of layers and every");
}

void read_recompute(Reader& reader, const At& at, PlanRequest& plan) {
  plan.recompute.place = at.yaml.place;
  plan.recompute.value.clear(), plan.recompute_layers.clear();
  if (!at.yaml.is(Yaml::Type::List)) return read_recompute_entry(reader, at, plan);
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i)
    read_recompute_entry(reader, at.entry(i), plan);
}

// "{layers: [3, 4, 7..9]}"; three layers and more in a row are a range.
std::string layers_text(const std::vector<std::int64_t>& layers) {
  std::string list;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1)
      ++last;
    if (last < i + 2) last = i;
    list += (list.empty() ? "" : ", ") + value_text(layers[i]) + (last > i ? ".." + value_text(layers[last]) : "");
    i = last + 1;
  }
  return "{layers: [" + list + "]}";
}

void write_recompute(YamlText& out, std::string_view key, const PlanRequest& plan) {
  const std::vector<Recompute>& modes = plan.recompute.value;
  std::vector<std::string> entries;
  for (std::size_t i = 0; i < modes.size(); ++i)
    entries.push_back(modes[i] == Recompute::Layers && i < plan.recompute_layers.size()
                          ? layers_text(plan.recompute_layers[i].value)
                          : value_text(modes[i]));
  if (entries.empty()) entries.push_back("none");
  out.line(key, entries.size() == 1 ? entries.front() : fmt::format("[{}]", fmt::join(entries, ", ")));
}

// A name, or {file: my.schedule.csv}: PyTorch's pipeline schedule.
void read_schedule(Reader& reader, const At& at, PlanRequest& plan) {
  plan.schedule.place = at.yaml.place;
  plan.given = nullptr, plan.schedule_file.clear();
  constexpr const char* kNamesNone = "names no file; write e.g. {file: my.schedule.csv}";
  if (!at.yaml.is(Yaml::Type::Map)) {
    if (read_value(reader, at, plan.schedule.value) && plan.schedule.value == kGivenSchedule)
      reader.error(at, kNamesNone);
    return;
  }
  plan.schedule.value = kGivenSchedule;
  if (at.yaml.map.empty()) reader.error(at, kNamesNone);
  for (const auto& [key, value] : at.yaml.map) {
    const At here = at.child(key.text, value);
    if (key.text != kGivenSchedule) {
      unknown_key(reader, at, key, {kGivenSchedule});
    } else if (read_value(reader, here, plan.schedule_file)) {
      try {
        const std::string file = relative_to(value.place, plan.schedule_file);
        const auto text = reader.options.texts.find(file);
        plan.given = std::make_shared<const GivenSchedule>(
            text == reader.options.texts.end() ? read_schedule_csv(file) : parse_schedule_csv(text->second, file));
      } catch (const InputError& error) {
        reader.errors.add(error);
      }
    }
  }
}

void write_schedule(YamlText& out, std::string_view key, const PlanRequest& plan) {
  out.line(key, plan.given ? "{file: " + yaml_string(plan.schedule_file) + "}" : value_text(plan.schedule));
}

void read_fit(Reader& reader, const At& at, PlanRequest& plan) {
  const std::string* text = scalar(reader, at, kFitRule.needed);
  if (!text) return;
  const Parsed<double> fit = kFitRule(*text);
  if (!fit.value) return reader.error(at, fit.why);
  plan.fit = *fit.value;
}
void write_fit(YamlText& out, std::string_view key, const PlanRequest& plan) {
  if (plan.fit > 0 && !plan.fit_by_default) out.line(key, fmt::format("{:.10g}%", 100 * plan.fit));
}

void read_modules(Reader& reader, const At& at, PlanRequest& plan) {
  std::vector<Module> read;
  if (!read_value(reader, at, read)) return;
  if (read.empty())
    return reader.error(at, "names no module; leave it out, or write [core_attn], [layernorm, mlp], [moe_act], ...");
  plan.recompute_modules = {};
  for (const Module module : read)
    plan.recompute_modules.add(module);
  if (plan.recompute_modules.has(Module::Operators) && plan.recompute_modules != Modules{Module::Operators})
    reader.error(at, "lists operators and modules together; write [operators] alone");
}

void write_modules(YamlText& out, std::string_view key, const PlanRequest& plan) {
  if (plan.recompute_modules == Modules{Module::AttentionCore}) return;
  out.line(key, "[" + words(plan.recompute_modules, ", ") + "]");
}

// A size, or whose rule.
void read_bucket(Reader& reader, const At& at, PlanRequest& plan) {
  plan.bucket_rule = BucketRule::Size;
  for (const auto& [text, rule] : kNames<BucketRule>)
    if (at.yaml.is(Yaml::Type::Scalar) && at.yaml.scalar == text) plan.bucket_rule = rule;
  if (plan.bucket_rule != BucketRule::Size) return;
  if (at.yaml.is(Yaml::Type::Scalar) && !at.yaml.scalar.empty() &&
      std::isalpha(static_cast<unsigned char>(at.yaml.scalar[0])))
    return reader.error(at,
                        "is not a size and not a known framework; write e.g. 25 MB, pytorch, megatron or deepspeed");
  read_lawful<Positive>(reader, at, plan.bucket);
}

void write_bucket(YamlText& out, std::string_view key, const PlanRequest& plan) {
  out.line(key, plan.bucket_rule == BucketRule::Size ? value_text(plan.bucket) : std::string(name(plan.bucket_rule)));
}

struct ReshardingMembers {
  const char* operator()(std::int64_t over) const {
    return over >= 1 ? "" : "must be true, false, or a number of devices of 1 or more";
  }
};

// yes, no, always, or the number of members among whom shards stay: 1 is no.
void read_resharding(Reader& reader, const At& at, PlanRequest& plan) {
  std::int64_t over = 0;
  plan.reshard_over = 0;
  plan.reshard_always = at.yaml.is(Yaml::Type::Scalar) && at.yaml.scalar == "always";
  if (plan.reshard_always) {
    plan.reshard_after_forward = Placed<bool>{true, at.yaml.place};
    return;
  }
  const bool number = at.yaml.is(Yaml::Type::Scalar) && !at.yaml.quoted && !at.yaml.scalar.empty() &&
                      (at.yaml.scalar[0] == '-' || (at.yaml.scalar[0] >= '0' && at.yaml.scalar[0] <= '9'));
  if (!number) {
    read_value(reader, at, plan.reshard_after_forward);
    return;
  }
  if (!read_lawful<ReshardingMembers>(reader, at, over)) return;
  plan.reshard_after_forward = Placed<bool>{over > 1, at.yaml.place};
  if (over > 1) plan.reshard_over = over;
}

void write_resharding(YamlText& out, std::string_view key, const PlanRequest& plan) {
  if (!plan.reshard_after_forward) return;
  const bool some = plan.reshard_after_forward->value && plan.reshard_over > 0;
  if (plan.reshard_after_forward->value && plan.reshard_always) return out.line(key, "always");
  out.line(key, some ? value_text(plan.reshard_over) : value_text(plan.reshard_after_forward->value));
}

constexpr Field<PlanRequest> kPlan[] = {
    {"schedule", "name | {file: FILE}",
     "see `pipewright show schedules`; file: the order in PyTorch's schedule CSV, relative to the scenario; default: "
     "1f1b",
     read_schedule, write_schedule},
    {"stages", "whole number >= 1", "K; default: as many as plan.replicas has entries, else 1",
     member<&PlanRequest::stages, AtLeast1>},
    {"virtual_stages", "whole number >= 1",
     "chunks of layers per stage (interleaved_1f1b, moe_overlap_1f1b, interleaved_zb, looped_bfs, search; 2: zbv, "
     "zbv_auto, v_half, v_min, v_zb, v_1f1b, v_auto, v_search, dualpipev; even: hanayo); default: 1",
     member<&PlanRequest::virtual_stages, AtLeast1>},
    {"most_in_flight", "whole number >= 1",
     "zb_auto, search, zbv_auto, v_auto, v_search and hanayo: how many micro-batches may be in flight on a stage, from "
     "F to W; two chunks make one; default: K, as with 1F1B. The order of a file must keep to it; default: any. bpipe: "
     "how many of its own a stage keeps; default: ceil((K+2)/2)",
     member<&PlanRequest::most_in_flight, AtLeast1>},
    {"kept_for_weights", "number in (0, 1]",
     "of split backwards: the share of a micro-batch's activations that W needs, and that stays from B to W; memory "
     "counts "
     "so, and so do the limits of zb_auto, search, zbv_auto and v_search; default: 1",
     member<&PlanRequest::kept_for_weights, Share>},
    {"offload_layers", "whole number >= 1",
     "the activations of the first blocks of each stage, so many, wait in their host's memory from their forward to "
     "their backward (Megatron-LM's cpu_offloading_num_layers); needs cluster.node.device.host_link; default: none",
     member<&PlanRequest::offload_layers, AtLeast1>},
    {"barrier", "flush | post_validation | none",
     "of a schedule with a flush: all stages end a step before any begins the next; post_validation: each begins it "
     "when "
     "its own work is done, and checks over all stages come afterwards, so that a step takes the longest span of a "
     "stage; "
     "none: likewise, without any check over all stages: refused in fp16 and with training.clip_grad_norm, which need "
     "one; "
     "default: flush",
     changed<&PlanRequest::barrier>},
    {"micro_batch_group", "whole number >= 1",
     "interleaved_1f1b and moe_overlap_1f1b: micro-batches that go through a chunk before the first of them enters the "
     "next, K or more; default: K",
     member<&PlanRequest::micro_batch_group, AtLeast1>},
    {"slices", "whole number >= 1",
     "seq1f1b: parts of each micro-batch's sequence that go through the stages one after the other; attention is "
     "causal; "
     "default: 1",
     member<&PlanRequest::slices, AtLeast1>},
    {"slice_lengths", "balanced | even",
     "where these parts are cut: into equal FLOPs, or into equal tokens, of which later parts take longer; even needs "
     "a "
     "model built from operators with fused attention (model.attention: flash); default: balanced",
     changed<&PlanRequest::slice_lengths>},
    {"pipelines", "even number >= 2",
     "chimera: how many pipelines run over the same workers, half of them each way; stages are a multiple of it, and "
     "weights are held as often; default: 2",
     member<&PlanRequest::pipelines, AtLeast1>},
    {"forwards_at_once", "1 | 2",
     "chimera: 2 runs the forwards of two micro-batches in a row where one backward runs (forward doubling); "
     "with half the micro_batch_size it is its backward halving; default: 1",
     member<&PlanRequest::forwards_at_once, AtLeast1>},
    {"update_every", "whole number >= 1",
     "pipedream_2bw: micro-batches of a copy that make an update, as many as stages or more; default: as many as "
     "stages",
     member<&PlanRequest::update_every, AtLeast1>},
    {"data_parallel", "whole number >= 1", "D, copies of the whole pipeline; default: 1",
     member<&PlanRequest::data_parallel, AtLeast1>},
    {"data_parallel_shard", "whole number >= 1",
     "of these copies, how many divide among them what training.zero says; the groups hold the same (hybrid sharding); "
     "default: all",
     member<&PlanRequest::shard, AtLeast1>},
    {"reshard_after_forward", "true | false | always | whole number >= 1",
     "with training.zero: 3, gathered weights are given away after a unit's forward and gathered again for its "
     "backward, unless the next op reads them, too; always: then as well (torchtitan's always); a number m: shards of "
     "m devices that follow one another are kept in between, and gathered among them "
     "(FSDP2; DeepSpeed's zero_hpz_partition_size); m divides the devices that share weights; default: true with one "
     "stage, else false",
     read_resharding, write_resharding},
    {"reduce_gradients", "micro_batch | step",
     "with training.zero: 2 or 3, gradients are scattered after every micro-batch and added up in shares, or once, and "
     "held whole until then; default: micro_batch with one stage or zero: 2, else step",
     member<&PlanRequest::reduce_gradients>},
    {"tensor_parallel", "whole number >= 1",
     "t, devices that compute every layer of a worker together, on consecutive devices; needs a model built from "
     "operators; default: 1",
     member<&PlanRequest::tensor_parallel, AtLeast1>},
    {"sequence_parallel", "true | false",
     "what lies outside the divided products is divided along the sequence; needs tensor_parallel > 1; default: false",
     member<&PlanRequest::sequence_parallel>},
    {"context_parallel", "whole number >= 1",
     "c, devices that divide every sequence among them and exchange keys and values for attention; they hold the same "
     "weights, and divide states like copies; needs a model with flash attention, and cost: roofline or a profile "
     "calibrated with it; default: 1",
     changed<&PlanRequest::context_parallel, AtLeast1>},
    {"expert_parallel", "whole number >= 1",
     "e, devices that hold experts of their own: tokens are sent to them and back; e x expert_tensor_parallel devices "
     "of a "
     "stage that follow one another hold all experts of a layer; default: 1, each device has a part of every expert",
     changed<&PlanRequest::expert_parallel, AtLeast1>},
    {"expert_tensor_parallel", "whole number >= 1",
     "x, devices that divide one expert; default: tensor_parallel, as Megatron-LM; 1 suits experts of few features",
     changed<&PlanRequest::expert_tensor_parallel, AtLeast1>},
    {"expert_exchange", "all_to_all | all_gather | per_node",
     "each token to the devices of its experts; all tokens to all devices of the group; once per node of its experts, "
     "where it is handed on (DeepEP); default: all_to_all",
     changed<&PlanRequest::expert_exchange>},
    {"expert_imbalance", "number >= 1",
     "tokens of the fullest device over the mean, in time: routers with an auxiliary loss reach 1.1 to 1.3; default: 1",
     changed<&PlanRequest::expert_imbalance, Factor>},
    {"expert_imbalance_memory", "number >= 1", "likewise, of what is kept in memory; default: expert_imbalance",
     member<&PlanRequest::expert_imbalance_memory, Factor>},
    {"expert_capacity", "number >= 1",
     "rows that an expert computes at most, over the mean (the capacity factor of GShard and Megatron-LM); tokens "
     "beyond "
     "are dropped; default: no limit",
     member<&PlanRequest::expert_capacity, Factor>},
    {"expert_padding", "true | false",
     "an expert computes as many rows as expert_capacity lets it, however few come: shapes are the same in every step; "
     "default: false",
     member<&PlanRequest::expert_padding>},
    {"shared_experts_beside", "true | false",
     "experts that every token uses compute while tokens travel to the others and back; default: false",
     changed<&PlanRequest::shared_experts_beside>},
    {"expert_nodes", "whole number >= 1",
     "nodes that the experts of a token lie on at most (DeepSeek-V3: 4), for expert_exchange: per_node; default: any",
     member<&PlanRequest::expert_nodes, AtLeast1>},
    {"expert_dispatch_fp8", "true | false", "tokens are sent in fp8, with a scale per 128 values; default: false",
     member<&PlanRequest::expert_dispatch_fp8>},
    {"pairs", "serial | fused",
     "cells of a schedule that hold a forward and a backward (dualpipe, dualpipev, moe_overlap_1f1b, files): one after "
     "the other, or at "
     "once, so that one computes while the tokens of the other travel to their experts; default: serial",
     changed<&PlanRequest::pairs>},
    {"pair_time", "time, e.g. 25ms",
     "of pairs: fused: what a forward with a backward takes; default: as computing and exchanges of tokens say",
     member<&PlanRequest::pair_time>},
    {"exchange_share", "number from 0 on, below 1",
     "share of a device's processors that an exchange of tokens takes from computing beside it (DeepSeek-V3: 20 of "
     "132, 0.15); default: 0",
     changed<&PlanRequest::exchange_share, Below1>},
    {"delay_wgrad", "true | false",
     "of pairs: fused: gradients of weights are computed beside the exchange that follows, which does not wait for "
     "them "
     "(Megatron-LM's delay_wgrad_compute, DualPipe); default: false",
     changed<&PlanRequest::delay_wgrad>},
    {"tensor_overlap", "false | true | ring | backward",
     "what a tensor-parallel group gathers and scatters runs beside the products next to it. true: in parts where the "
     "product needs it or makes it, in one piece beside gradients that do not (Transformer Engine's userbuffers: "
     "Megatron-LM's tp_comm_overlap); ring: always in tensor_parallel parts (torchtitan's async tensor parallelism); "
     "both need sequence_parallel. backward: what is exchanged of an input's gradient beside the gradient of the "
     "weights, and with sequence_parallel the second gathering of the input beside the gradient of the input, all else "
     "waited for (Megatron-LM's and Transformer Engine's layers without tp_comm_overlap). default: false",
     changed<&PlanRequest::tensor_overlap>},
    {"tensor_links", "alone | shared",
     "alone: what a tensor-parallel group exchanges takes the time that it would take alone on its links; shared: it "
     "shares "
     "them with messages and collectives, and ops take longer where they meet. Needs cost: roofline; not with pairs: "
     "fused, slice_lengths: even, device.contention or device.measured; default: alone",
     changed<&PlanRequest::tensor_links>},
    {"context_exchange", "ring | all_gather | all_to_all | two_level",
     "how: keys and values go round while attention runs; all of them first; every device gets the whole sequence of a "
     "part of the heads (Ulysses); all_to_all among context_inner devices and rings between them; default: ring",
     changed<&PlanRequest::context_exchange>},
    {"context_inner", "whole number >= 1",
     "of two_level: neighbouring devices that exchange heads, a divisor of context_parallel",
     member<&PlanRequest::context_inner, AtLeast1>},
    {"context_split", "zigzag | contiguous",
     "which tokens a device has: of 2c chunks the i-th and the i-th from the end, which balances causal attention, or "
     "one stretch, of which the last sees most keys; default: zigzag",
     changed<&PlanRequest::context_split>},
    {"context_imbalance", "number >= 1",
     "attention of the fullest device over the mean, beyond what context_split says: packed documents; default: 1",
     changed<&PlanRequest::context_imbalance, Factor>},
    {"replicas", "list of whole numbers >= 1, e.g. [15, 1]",
     "workers that share a stage round-robin inside one copy; default: 1 each", read_replicas,
     write_changed<&PlanRequest::replicas>},
    {"order", "model | graph | list of layers, e.g. [0..3, 5, 4, last_block]",
     "in which stages take the layers. model: as the model has them; graph: for a model with branches, the order of "
     "which the best cut has the least largest stage, over all down-sets of its graph; list: every layer once, none "
     "before one whose output it uses, by name, by number in the model as it is given, or from one to another; "
     "partitions count in this order; default: model",
     read_order, write_order},
    {"partition",
     "balanced | fitting | exact | equal_layers | equal_blocks | block_partition | suffix_dp | {layers: [3, 3]} | "
     "{cuts: [3]}",
     "balanced: the least bottleneck, and of such cuts the shortest step found; fitting: the least bottleneck among "
     "the cuts whose stages all fit their devices; exact: the least simulated step of all cuts (gpipe, 1f1b, "
     "eager_1f1b); equal_blocks: as many blocks of a Transformer each, embedding and head next to the first and the "
     "last (Megatron-LM's); equal_layers, block_partition (torchgpipe's): baselines; suffix_dp: stages, replicas and "
     "placement, too, which are left out (pipedream, 1f1b); layers per (virtual) stage; first layer of every stage but "
     "the first, by number or name; default: balanced",
     read_partition, write_partition},
    {"placement", "pipeline | data | megatron | torchtitan | llama3 | list of device numbers",
     "pipeline: each copy on consecutive devices (tp-cp-pp-dp: Llama 3's order, llama3); data: the copies of a stage "
     "(tp-cp-ep-dp-pp: the default of Megatron-LM and torchtitan, and these names of it); list: a device per worker, "
     "with tensor_parallel the first of its t; default: pipeline",
     read_placement,
     [](YamlText& out, std::string_view key, const PlanRequest& plan) {
       std::visit([&](const auto& placement) { out.line(key, value_text(placement)); }, plan.placement);
     }},
    {"recompute", "none | selective | blocks | full | knapsack | {layers: [3, 4, 7..9]} | {every: 2} | list per stage",
     "full: a stage keeps its input and repeats its forward; blocks: each block of a Transformer does so, right before "
     "its backward, embedding and head keep all (Megatron-LM's); layers: each of these layers does so, by number or "
     "name; every: every n-th block of the model (torchtitan's layer option before 0.3); knapsack: of a stage's layers "
     "the set "
     "that adds least time and fits the device; selective: attention cores are rebuilt, or what recompute_modules "
     "says; default: none",
     read_recompute, write_recompute},
    {"recompute_modules",
     "list of core_attn | layernorm | mlp | mla_up_proj | moe_act | shared_experts | moe, or [operators]",
     "what selective rebuilds, by Megatron-LM's names: attention cores that keep their scores; norms, whose outputs "
     "are not kept; dense feed-forwards; queries, keys and values of latent attention out of their latents, likewise; "
     "activations of experts, likewise; experts that every token uses; whole layers of experts. operators: "
     "torchtitan's selective checkpoints, which of every block save attention and every second product and repeat the "
     "rest; default: [core_attn]",
     read_modules, write_modules},
    {"recompute_except_last", "true | false", "the last micro-batch keeps everything (torchgpipe); default: false",
     member<&PlanRequest::recompute_except_last>},
    {"skips", "hop | direct", "how a tensor travels that skips stages; default: hop", member<&PlanRequest::skips>},
    {"gradient_sync", "overlapped | at_once | blocking",
     "all-reduces run during the backward and what follows, during the backward alone, or after it; default: "
     "overlapped",
     member<&PlanRequest::gradient_sync>},
    {"overlap_param_gather", "true | false",
     "with training.zero: 1, weights are gathered bucket by bucket beside the next step's forwards (Megatron-LM's "
     "--overlap-param-gather); false: behind the update; default: false",
     member<&PlanRequest::overlap_param_gather>},
    {"scatter_gather", "true | false",
     "with tensor_parallel, between stages: each device of a group sends its share of a tensor, and the receivers "
     "gather it over their own links (Megatron-LM); false: each sends a whole copy; default: false",
     member<&PlanRequest::scatter_gather>},
    {"bucket", "size | pytorch | megatron | deepspeed",
     "gradient bytes of one all-reduce, or the sizes that a framework cuts them into; default: 25 MB", read_bucket,
     write_bucket},
    {"vertical_sync", "true | false", "PipeDream: all stages use the weight version of stage 0; default: false",
     member<&PlanRequest::vertical_sync>},
    {"reserve_pipeline", "size",
     "memory of every device that the pipeline takes in addition to the device's reserve when stages > 1; default: 0 B",
     [](Reader& reader, const At& at, PlanRequest& plan) {
       const bool sourced = std::exchange(reader.sourced, true);
       read_value(reader, at, plan.reserve_pipeline);
       reader.sourced = sourced;
       if (const auto source = reader.sources.find(path(at)); source != reader.sources.end())
         plan.reserve_pipeline_source = source->second;
     },
     write_as<&PlanRequest::reserve_pipeline>},
    {"fit", "percentage in (0 %, 100 %], e.g. 95%",
     "a plan must fit with at least this probability over the range of the memory model; up to 50%: what it is "
     "expected to need must fit; default: 95% of `plan` and `capacity`, else 50%",
     read_fit, write_fit},
};

// ---- fields left to the planner -------------------------------------------------------------------------------------

constexpr std::string_view kMayBeOpen[] = {
    "stages",          "virtual_stages", "data_parallel",       "tensor_parallel",  "sequence_parallel",
    "schedule",        "partition",      "placement",           "context_parallel", "expert_parallel",
    "recompute",       "replicas",       "data_parallel_shard", "context_exchange", "context_split",
    "expert_exchange", "tensor_overlap", "gradient_sync",       "bucket",           "reshard_after_forward",
    "reduce_gradients"};

}  // namespace

// A partition that chooses these fields, too, leaves those open that the scenario does not give.
void open_for_whole_plan(Reader& reader, const At& at, const Yaml& closed, PlanRequest& plan) {
  if (const auto open = plan.open.find("partition"); open != plan.open.end())
    for (const std::string& name : open->second.among)
      for (const auto& [known, partition] : named_partitions())
        if (name == known && std::holds_alternative<SuffixDp>(partition))
          reader.errors.add(
              open->second.place, path(at) + ".partition",
              fmt::format("{} also chooses stages and replicas, and must be given alone; write partition: {}", name,
                          name));
  if (!std::holds_alternative<SuffixDp>(plan.partition.value)) return;
  for (const std::string_view key : kSetByWholePlan)
    if (!closed.find(key)) plan.open.try_emplace(std::string(key), OpenField{plan.partition.place, {}});
}

void read_plan_section(Reader& reader, const At& at, PlanRequest& plan) {
  plan.place = at.yaml.place;
  plan.stages.place = plan.partition.place = plan.schedule.place = plan.replicas.place = at.yaml.place;
  if (at.yaml.is(Yaml::Type::Scalar) && at.yaml.scalar == "auto" && !at.yaml.quoted) {
    for (const std::string_view key : kOpenedByPlanAuto)
      plan.open[std::string(key)] = {at.yaml.place, {}};
    return;
  }
  const Yaml closed = take_open_fields(reader, at, kMayBeOpen, plan.open);
  read_fields<PlanRequest>(reader, At{closed, at.parent, at.key, at.item}, kPlan, plan);
  check_open_fields<PlanRequest>(reader, at, kPlan, plan.open);
  open_for_whole_plan(reader, at, closed, plan);
  if (plan.given && !closed.find("stages") && !closed.find("replicas"))
    plan.stages = {plan.given->stages, plan.schedule.place};
  if (plan.given && !closed.find("virtual_stages"))
    plan.virtual_stages = {plan.given->virtual_stages, plan.schedule.place};
  const auto replicas = static_cast<std::int64_t>(plan.replicas.value.size());
  if (replicas > 0 && !closed.find("stages")) plan.stages = {replicas, plan.replicas.place};
  if (replicas > 0 && replicas != plan.stages.value)
    reader.errors.add(plan.replicas.place, path(at) + ".replicas",
                      fmt::format("{} entries for {} stages; write one per stage, or leave plan.stages out", replicas,
                                  plan.stages.value));
}

void write_plan_section(YamlText& out, const PlanRequest& plan) {
  write_fields<PlanRequest>(out, kPlan, plan, plan.open);
}

std::vector<SectionDoc> plan_docs() {
  return {document<PlanRequest>("plan", kPlan)};
}

}  // namespace pipewright::io
