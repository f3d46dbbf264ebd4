#include "io/yaml/fields.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "io/text/quote.hpp"
#include "io/text/utf8.hpp"

namespace pipewright::io {

std::string path(const At& at) {
  if (!at.parent) return std::string(at.key);
  const std::string before = path(*at.parent);
  const std::string name = at.item < 0 ? std::string(at.key) : std::to_string(at.item);
  return before.empty() ? name : before + "." + name;
}

namespace {

// Keys and values as other programs and papers call them: what they are here, or that they are not modelled.
//
//     plan.pp: 4               unknown key "plan.pp"; use plan.stages
//     training.nvme_path       offloading to NVMe is not modelled yet: docs/guide/scope.md
//     precision: bfloat16      unknown "bfloat16"; use bf16
//
// Compared in lower case, with _ for -, without _size, _degree and _model: one line stands for Megatron-LM's
// --tensor-model-parallel-size, torchtitan's tensor_parallel_degree and vLLM's tensor_parallel_size.
// tests/io/bad_scenario_test.cpp "as other programs call it"

struct UsualName {
  std::string_view theirs, ours;
};

constexpr std::string_view kLoraRankKey = "model.lora_rank, of family decoder or gpt",
                           kLoraTargetsKey = "model.lora_targets, of family decoder or gpt";

constexpr UsualName kUsualKeys[] = {
    {"pp", "plan.stages"},
    {"clip_grad", "training.clip_grad_norm"},
    {"gradient_clipping", "training.clip_grad_norm"},
    {"max_grad_norm", "training.clip_grad_norm"},
    {"max_norm", "training.clip_grad_norm"},
    {"pipeline_parallel", "plan.stages"},
    {"pipeline_stages", "plan.stages"},
    {"num_stages", "plan.stages"},
    {"stages", "plan.stages"},
    {"tp", "plan.tensor_parallel"},
    {"tensor_parallel", "plan.tensor_parallel"},
    {"dp", "plan.data_parallel"},
    {"data_parallel", "plan.data_parallel"},
    {"data_parallel_replicate", "plan.data_parallel"},
    {"vp", "plan.virtual_stages"},
    {"vpp", "plan.virtual_stages"},
    {"virtual_pipeline_parallel", "plan.virtual_stages"},
    {"virtual_stages", "plan.virtual_stages"},
    {"cp", "plan.context_parallel"},
    {"context_parallel", "plan.context_parallel"},
    {"cp_comm_type", "plan.context_exchange"},
    {"ep", "plan.expert_parallel"},
    {"expert_parallel", "plan.expert_parallel"},
    {"moe_parallel", "plan.expert_parallel"},
    {"etp", "plan.expert_tensor_parallel"},
    {"expert_tensor_parallel", "plan.expert_tensor_parallel"},
    {"moe_token_dispatcher_type", "plan.expert_exchange"},
    {"ring_attention", "plan.context_parallel"},
    {"ulysses", "plan.context_exchange"},
    {"sp", "plan.sequence_parallel"},
    {"sequence_parallel", "plan.sequence_parallel"},
    {"schedule", "plan.schedule"},
    {"recompute", "plan.recompute"},
    {"activation_checkpoint", "plan.recompute"},
    {"activation_checkpointing", "plan.recompute"},
    {"gradient_checkpointing", "plan.recompute"},
    {"recompute_granularity", "plan.recompute"},
    {"remat", "plan.recompute"},
    {"fp8", "training.low_precision"},
    {"fp8_format", "training.low_precision"},
    {"fp8_recipe", "training.low_precision"},
    {"float8", "training.low_precision"},
    {"fp4", "training.low_precision"},
    {"fp4_recipe", "training.low_precision"},
    {"reduce_amax", "training.amax_reduction"},
    {"tp_only_amax_red", "training.amax_reduction: tensor_parallel"},
    {"fp8_param_gather", "training.low_precision_weights"},
    {"overlap_param_gather", "plan.overlap_param_gather"},
    {"overlap_param_sync", "plan.overlap_param_gather"},
    {"gbs", "training.global_batch_size"},
    {"global_batch", "training.global_batch_size"},
    {"train_batch", "training.global_batch_size"},
    {"mbs", "training.micro_batch_size"},
    {"micro_batch", "training.micro_batch_size"},
    {"microbatch", "training.micro_batch_size"},
    {"per_device_train_batch", "training.micro_batch_size"},
    {"train_micro_batch_size_per_gpu", "training.micro_batch_size"},
    {"ga", "training.micro_batches"},
    {"gas", "training.micro_batches"},
    {"grad_accum", "training.micro_batches"},
    {"gradient_accumulation", "training.micro_batches"},
    {"gradient_accumulation_steps", "training.micro_batches"},
    {"microbatches", "training.micro_batches"},
    {"micro_batches", "training.micro_batches"},
    {"num_microbatches", "training.micro_batches"},
    {"num_micro_batches", "training.micro_batches"},
    {"dtype", "training.precision"},
    {"torch_dtype", "training.precision"},
    {"mixed_precision", "training.precision"},
    {"precision", "training.precision"},
    {"grad_dtype", "training.gradient_precision"},
    {"grad_reduce_dtype", "training.gradient_precision"},
    {"zero", "training.zero"},
    {"zero_stage", "training.zero"},
    {"use_distributed_optimizer", "training.zero"},
    {"distributed_optimizer", "training.zero"},
    {"fsdp", "training.zero: 3"},
    {"fsdp2", "training.zero: 3"},
    {"full_shard", "training.zero: 3"},
    {"fully_shard", "training.zero: 3"},
    {"zero2", "training.zero: 2"},
    {"zero3", "training.zero: 3"},
    {"hsdp", "training.zero: 3 and plan.data_parallel_shard"},
    {"sharding_strategy", "training.zero: 3"},
    {"data_parallel_sharding_strategy", "training.zero: 3"},
    {"dp_shard", "plan.data_parallel_shard"},
    {"fsdp_shard", "plan.data_parallel_shard"},
    {"num_distributed_optimizer_instances", "plan.data_parallel_shard"},
    {"data_parallel_shard", "plan.data_parallel_shard"},
    {"reshard_after_forward", "plan.reshard_after_forward"},
    {"cpu_offloading", "plan.offload_layers"},
    {"cpu_offloading_num_layers", "plan.offload_layers"},
    {"activation_offload", "plan.offload_layers"},
    {"activation_offloading", "plan.offload_layers"},
    {"offload_activations", "plan.offload_layers"},
    {"optimizer_offload", "training.offload_optimizer"},
    {"offload_optimizer", "training.offload_optimizer"},
    {"offload", "plan.offload_layers, training.offload_optimizer or training.offload_weights"},
    {"offloading", "plan.offload_layers, training.offload_optimizer or training.offload_weights"},
    {"offload_param", "training.offload_weights"},
    {"offload_params", "training.offload_weights"},
    {"param_offload", "training.offload_weights"},
    {"cpu_offload", "training.offload_weights"},
    {"enable_cpu_offload", "training.offload_weights"},
    {"fsdp_cpu_offload", "training.offload_weights"},
    {"moe_expert_capacity_factor", "plan.expert_capacity"},
    {"capacity_factor", "plan.expert_capacity"},
    {"moe_pad_expert_input_to_capacity", "plan.expert_padding"},
    {"moe_shared_expert_overlap", "plan.shared_experts_beside"},
    {"delay_wgrad_compute", "plan.delay_wgrad"},
    {"exp_avg_dtype", "training.moments"},
    {"exp_avg_sq_dtype", "training.moments"},
    {"main_params_dtype", "training.master_weights"},
    {"tp_comm_overlap", "plan.tensor_overlap"},
    {"async_tensor_parallel", "plan.tensor_overlap"},
    {"enable_async_tensor_parallel", "plan.tensor_overlap"},
    {"tensor_overlap", "plan.tensor_overlap"},
    {"optimizer_cpu_offload", "training.offload_optimizer"},
    {"optimizer_offload_fraction", "training.offload_optimizer"},
    {"lora", kLoraRankKey},
    {"lora_r", kLoraRankKey},
    {"lora_dim", kLoraRankKey},
    {"lora_rank", kLoraRankKey},
    {"lora_targets", kLoraTargetsKey},
    {"peft", kLoraRankKey},
    {"peft_scheme", kLoraRankKey},
    {"target_modules", kLoraTargetsKey},
    {"nnodes", "cluster.nodes"},
    {"num_nodes", "cluster.nodes"},
    {"gpus_per_node", "cluster.node.devices"},
    {"nproc_per_node", "cluster.node.devices"},
    {"num_gpus", "cluster.node.devices"},
};

constexpr std::string_view kToNvme = "offloading to NVMe";

constexpr UsualName kKeysNotModelled[] = {
    {"nvme_path", kToNvme},
    {"offload_nvme", kToNvme},
    {"nvme_offload", kToNvme},
    {"lora_alpha", "the scale of adapters, on which no time depends,"},
    {"lora_dropout", "dropout in front of adapters"},
    {"qlora", "frozen weights in four bits"},
};

// Of precisions: the only values whose usual names lie far from ours.
constexpr UsualName kUsualPrecisions[] = {{"bfloat16", "bf16"}, {"float16", "fp16"}, {"half", "fp16"},
                                          {"float32", "fp32"},  {"float", "fp32"},   {"single", "fp32"},
                                          {"tfloat32", "tf32"}, {"float8", "fp8"},   {"fp8_e4m3", "fp8"},
                                          {"fp8_e5m2", "fp8"},  {"e4m3", "fp8"},     {"e5m2", "fp8"}};
// What products alone compute in: the recipe of training.low_precision.
constexpr UsualName kRecipes[] = {{"float8", "fp8_tensorwise"}, {"fp8_e4m3", "fp8_tensorwise"},
                                  {"e4m3", "fp8_tensorwise"},   {"e5m2", "fp8_tensorwise"},
                                  {"mxfp8", "mxfp8"},           {"nvfp4", "nvfp4"}};

// "tensor_parallel" of "--Tensor-Model-Parallel-Size".
std::string bare_name(std::string_view typed) {
  std::string name(typed.substr(std::min(typed.find_first_not_of('-'), typed.size())));
  for (char& c : name)
    c = c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const std::string_view ending : {"_size", "_degree"})
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  if (const std::size_t at = name.find("_model_"); at != std::string::npos) name.erase(at, sizeof("_model") - 1);
  return name;
}

// "" where the table has none.
std::string_view usual_name(std::span<const UsualName> table, std::string_view bare) {
  const auto found = std::ranges::find_if(table, [&](const UsualName& name) { return name.theirs == bare; });
  return found == table.end() ? std::string_view{} : found->ours;
}

std::string shown(const Yaml& yaml) {
  switch (yaml.type) {
    case Yaml::Type::Null: return "nothing";
    case Yaml::Type::Scalar: return in_quotes(yaml.scalar);
    case Yaml::Type::List: return "a list";
    case Yaml::Type::Map: return "a map";
  }
  return "?";
}

bool wrong_type(Reader& reader, const At& at, std::string_view needed) {
  if (at.yaml.is(Yaml::Type::Null))
    reader.errors.add(at.yaml.place, path(at), fmt::format("has no value; write {}, or remove the key", needed));
  else
    reader.errors.add(at.yaml.place, path(at), fmt::format("{} where {} is needed", shown(at.yaml), needed));
  return false;
}

// {value: 15.7 TFLOP/s, provenance: published, source: "datasheet, page 4"}: notes source and provenance, gives the
// value.
const Yaml* sourced_value(Reader& reader, const At& at) {
  const Yaml* value = at.yaml.find("value");
  const Yaml* source = at.yaml.find("source");
  const Yaml* provenance = at.yaml.find("provenance");
  for (const auto& [key, item] : at.yaml.map)
    if (key.text != "value" && key.text != "source" && key.text != "provenance")
      unknown_key(reader, at, key, {"value", "source", "provenance"});
  if (!value) return missing_key(reader, at, "value", "the figure"), nullptr;
  if (source) {
    std::string text;
    if (read_value(reader, at.child("source", *source), text)) reader.sources[path(at)] = text;
  }
  if (provenance) {
    Provenance how{};
    if (read_value(reader, at.child("provenance", *provenance), how)) reader.provenances[path(at)] = how;
  }
  return value;
}

// Of a device's memory "25 MB" would be an odd one.
std::string with_example_of(const At& at, std::string why) {
  constexpr std::string_view general = "\"25 MB\"";
  if (const std::size_t found = why.find(general); found != std::string::npos && path(at).ends_with(".memory"))
    why.replace(found, general.size(), "\"80 GiB\"");
  return why;
}

template <class T>
bool read_quantity(Reader& reader, const At& at, T& value, Parsed<T> (*parse)(std::string_view),
                   std::string_view needed) {
  if (reader.sourced && at.yaml.is(Yaml::Type::Map)) {
    const Yaml* inner = sourced_value(reader, at);
    if (!inner) return false;
    const At here = at.child("value", *inner);
    return inner->is(Yaml::Type::Map) ? wrong_type(reader, here, needed)
                                      : read_quantity(reader, here, value, parse, needed);
  }
  const std::string* text = scalar(reader, at, needed);
  if (!text) return false;
  const Parsed<T> parsed = parse(*text);
  const bool by_law = parsed.negative && *reader.below_zero != '\0';
  if (!parsed.value) return reader.error(at, by_law ? reader.below_zero : with_example_of(at, parsed.why)), false;
  return value = *parsed.value, true;
}

// Numbers and booleans in quotes are text: YAML says so, and other readers would take them for text, too.
bool refuse_quotes(Reader& reader, const At& at, std::string_view needed) {
  if (!at.yaml.quoted) return false;
  reader.error(at, fmt::format("is text (in quotes) where {} is needed; remove the quotes", needed));
  return true;
}

}  // namespace

void Reader::error(const At& at, const std::string& clause) {
  errors.add(at.yaml.place, path(at), shown(at.yaml) + " " + clause);
}

const std::string* scalar(Reader& reader, const At& at, std::string_view needed) {
  if (at.yaml.is(Yaml::Type::Scalar)) return &at.yaml.scalar;
  return wrong_type(reader, at, needed), nullptr;
}

bool is_map(Reader& reader, const At& at, std::string_view needed) {
  return at.yaml.is(Yaml::Type::Map) || wrong_type(reader, at, needed);
}

bool is_list(Reader& reader, const At& at, std::string_view needed) {
  return at.yaml.is(Yaml::Type::List) || wrong_type(reader, at, needed);
}

bool read_value(Reader& reader, const At& at, Time& value) {
  return read_quantity(reader, at, value, parse_time, "a time, e.g. 2.5 ms");
}
bool read_value(Reader& reader, const At& at, Bytes& value) {
  return read_quantity(reader, at, value, parse_bytes, "a size, e.g. 25 MB");
}
bool read_value(Reader& reader, const At& at, Flops& value) {
  return read_quantity(reader, at, value, parse_flops, "an amount of work, e.g. 40 GFLOP");
}
bool read_value(Reader& reader, const At& at, Bandwidth& value) {
  return read_quantity(reader, at, value, parse_bandwidth, "a bandwidth, e.g. 10 GB/s");
}
bool read_value(Reader& reader, const At& at, FlopRate& value) {
  return read_quantity(reader, at, value, parse_flop_rate, "a FLOP rate, e.g. 15.7 TFLOP/s");
}
bool read_value(Reader& reader, const At& at, Power& value) {
  return read_quantity(reader, at, value, parse_power, "a power, e.g. 400 W");
}
bool read_value(Reader& reader, const At& at, double& value) {
  if (refuse_quotes(reader, at, "a number")) return false;
  return read_quantity(reader, at, value, parse_number, "a number, e.g. 0.5");
}
bool read_value(Reader& reader, const At& at, std::int64_t& value) {
  if (refuse_quotes(reader, at, "a whole number")) return false;
  return read_quantity(reader, at, value, parse_count, "a whole number, e.g. 8");
}

bool read_value(Reader& reader, const At& at, int& value) {
  std::int64_t wide = 0;
  if (!read_value(reader, at, wide)) return false;
  if (wide > kLargestCount) return reader.error(at, "is more than 1000000000; write a smaller number"), false;
  return value = static_cast<int>(wide), true;
}

bool read_value(Reader& reader, const At& at, bool& value) {
  if (refuse_quotes(reader, at, "true or false")) return false;
  const std::string* text = scalar(reader, at, "true or false");
  if (!text) return false;
  if (*text == "true" || *text == "false") return value = *text == "true", true;
  constexpr std::string_view yes[] = {"yes", "on", "y", "True", "TRUE", "Yes", "On", "1"};
  constexpr std::string_view no[] = {"no", "off", "n", "False", "FALSE", "No", "Off", "0"};
  const auto among = [&](const auto& words) {
    return std::find(std::begin(words), std::end(words), *text) != std::end(words);
  };
  reader.error(at, among(yes)  ? "is not a boolean; write true"
                   : among(no) ? "is not a boolean; write false"
                               : "is not a boolean; write true or false");
  return false;
}

bool read_value(Reader& reader, const At& at, std::string& value) {
  const std::string* text = scalar(reader, at, "text");
  if (!text) return false;
  // "\e[2J" in double quotes would reach the terminal of whoever reads the report.
  if (!is_text(*text)) return reader.error(at, "holds a control character; write plain text"), false;
  return value = *text, true;
}

namespace {

constexpr const char* kNotModelled = " is not modelled yet: docs/guide/scope.md";

constexpr std::size_t kKeysShown = 12;

// Of a long list those that are nearest, the nearest first.
std::vector<std::string_view> nearest_keys(std::string_view name, std::vector<std::string_view> known) {
  if (known.size() <= kKeysShown) return known;
  std::ranges::stable_sort(
      known, [&](std::string_view a, std::string_view b) { return edit_distance(name, a) < edit_distance(name, b); });
  known.resize(kKeysShown);
  return known;
}

// "; did you mean "stages"? known: ..." of the section's own keys.
std::string near_keys(std::string_view name, const std::vector<std::string_view>& known) {
  std::string hints = unknown_name(name, nearest_keys(name, known)).substr(sizeof("unknown \"\"") - 1 + name.size());
  if (known.size() > kKeysShown)
    hints += fmt::format(" and {} more: docs/reference/scenario.md", known.size() - kKeysShown);
  if (name.size() < 4 || !nearest(name, known).empty()) return hints;
  std::vector<std::string> longer;  // batch_size: a part of micro_batch_size
  for (const std::string_view each : known)
    if (each.find(name) != std::string_view::npos) longer.push_back(in_quotes(each));
  if (!longer.empty()) hints.insert(1, fmt::format(" did you mean {}?", fmt::join(longer, " or ")));
  return hints;
}

}  // namespace

std::string meant_by(std::string_view key) {
  const std::string bare = bare_name(key);
  if (const std::string_view what = usual_name(kKeysNotModelled, bare); !what.empty())
    return std::string(what) + kNotModelled;
  const std::string_view ours = usual_name(kUsualKeys, bare);
  return ours.empty() ? "" : "use " + std::string(ours);
}

void unknown_key(Reader& reader, const At& at, const YamlKey& key, std::vector<std::string_view> known) {
  const std::string where = path(at);
  const std::string_view name = std::string_view(key.text).substr(0, 64);
  std::string meant = meant_by(name);
  if (meant.ends_with(kNotModelled)) meant += "; take the key out";
  if (name == "preset" && (where == "cluster" || where == "model" || where.ends_with("device")))
    meant = fmt::format(
        "a preset stands in place of the map: write {}: NAME, and change its values by --set or the "
        "block set: of the file",
        where);
  reader.errors.keep({key.place, "",
                      fmt::format("unknown key {}{}", in_quotes(where.empty() ? key.text : where + "." + key.text),
                                  meant.empty() ? near_keys(name, known) : "; " + meant),
                      ErrorCode::UnknownKey});
}

std::string unknown_value(std::string_view text, const std::vector<std::string_view>& known) {
  const std::string_view name = text.substr(0, 64);
  const std::string bare = bare_name(name), all = fmt::format("; known: {}", fmt::join(known, ", "));
  const auto is_known = [&](std::string_view value) { return std::ranges::find(known, value) != known.end(); };
  const std::string_view ours = is_known(bare) ? bare : usual_name(kUsualPrecisions, bare);
  if (is_known(ours)) return fmt::format("unknown {}; use {}{}", in_quotes(name), ours, all);
  const std::string_view recipe = usual_name(kRecipes, bare);
  if (is_known("bf16") && !is_known("fp8") && !recipe.empty())  // of what is trained in
    return fmt::format("unknown {}: products alone compute in it; write bf16, and low_precision: {}{}", in_quotes(name),
                       recipe, all);
  return unknown_name(name, known);
}

void missing_key(Reader& reader, const At& at, std::string_view key, std::string_view takes) {
  const std::string where = path(at);
  reader.errors.add(at.yaml.place,
                    fmt::format("{}{}{} is missing; write {}: {}", where, where.empty() ? "" : ".", key, key, takes));
}

// ---- the way back ---------------------------------------------------------------------------------------------------

std::string value_text(double value) {
  return fmt::format("{}", value);
}
std::string value_text(std::int64_t value) {
  return std::to_string(value);
}
std::string value_text(int value) {
  return std::to_string(value);
}
std::string value_text(bool value) {
  return value ? "true" : "false";
}
std::string value_text(const std::string& value) {
  return yaml_string(value);
}

std::string on_one_line(const YamlText& yaml) {
  const std::string text = yaml.text();
  std::string flowed;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    flowed += (flowed.empty() ? "" : ", ") + text.substr(begin, end - begin);
    begin = end + 1;
  }
  return "{" + flowed + "}";
}

std::string YamlText::full_path(std::string_view key) const {
  std::string full;
  for (const std::string& part : path_)
    full += part + ".";
  return full + std::string(key);
}

std::string YamlText::sourced(const std::string& value, const std::string& path) const {
  const auto source = sources_.find(path);
  const auto provenance = provenances_.find(path);
  if (source == sources_.end() && provenance == provenances_.end()) return value;
  std::string text = "{value: " + value;
  if (provenance != provenances_.end()) text += ", provenance: " + value_text(provenance->second);
  if (source != sources_.end()) text += ", source: " + yaml_string(source->second);
  return text + "}";
}

void YamlText::line(std::string_view key, const std::string& value) {
  const std::string full = full_path(key);
  const std::string entry = fmt::format("{:{}}{}: {}", "", 2 * path_.size(), yaml_string(key), sourced(value, full));
  std::string origin;
  if (origins_) {
    const auto place = origins_->find(full);
    origin = place == origins_->end() ? "default" : head(place->second);
  }
  add(entry, origin);
}

void YamlText::item(const std::string& value, const Place& place) {
  add(fmt::format("{:{}}- {}", "", 2 * path_.size(), value), origins_ ? head(place) : "");
}

void YamlText::add(const std::string& entry, std::string origin) {
  if (origin.ends_with(": ")) origin.resize(origin.size() - 2);
  text_ += origin.empty() ? entry + "\n" : fmt::format("{:<56}  {}\n", entry, comment_text(origin));
}

void YamlText::open(std::string_view key) {
  text_ += fmt::format("{:{}}{}:\n", "", 2 * path_.size(), yaml_string(key));
  path_.emplace_back(key);
}

void YamlText::close() {
  path_.pop_back();
}

}  // namespace pipewright::io
