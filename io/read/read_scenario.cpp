#include "io/read/read_scenario.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "core/answers/campaign.hpp"
#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "core/question/memory_anchor.hpp"
#include "core/question/profile.hpp"
#include "io/read/expect_text.hpp"
#include "io/text/quantity.hpp"
#include "io/text/quote.hpp"
#include "io/text/utf8.hpp"
#include "io/yaml/changes.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright::io {
namespace {

// A block next to the scenario, for who asks for it.
template <auto Read>
void read_block(Reader& reader, const At& at, Scenario&) {
  ExpectAndVary dropped;
  Read(reader, at, reader.more ? *reader.more : dropped);
}

constexpr Field<Scenario> kScenario[] = {
    {"version", "1", "of this format; default: 1",
     [](Reader& reader, const At& at, Scenario&) { check_version(reader, at); },
     [](YamlText& out, std::string_view key, const Scenario&) { out.line(key, "1"); }},
    {"name", "text", "for reports; default: the name of the file", changed<&Scenario::name>},
    {"description", "text", "the question that the scenario asks", changed<&Scenario::description>},
    {"model", "name, path or map",
     "what is trained: configs/models/<name>.yaml or hf/<name>.json there, or one of the forms of model",
     [](Reader& reader, const At& at, Scenario& s) { read_model_section(reader, at, s.model); },
     [](YamlText& out, std::string_view key, const Scenario& scenario) {
       write_below(out, key, as_given(scenario.model), write_model_section);
     },
     Need::Required},
    {"cluster", "name, path or map", "what it is trained on: configs/clusters/<name>.yaml, or its keys here",
     in_map<&Scenario::cluster, read_cluster_section, write_cluster_section>, Need::Required},
    {"training", "map", "batch, precision, optimizer",
     [](Reader& reader, const At& at, Scenario& s) { read_training_section(reader, at, s.training); },
     [](YamlText& out, std::string_view key, const Scenario& scenario) {
       Training training = scenario.training;
       if (scenario.model.tokens) training.sequence_length.reset();  // which says it, and may be changed there
       write_below(out, key, training, write_training_section);
     },
     Need::Required},
    {"plan", "map, or auto", "how it is cut and scheduled; auto: whatever `pipewright plan` finds best",
     [](Reader& reader, const At& at, Scenario& scenario) {
       reader.model = &scenario.model;
       read_plan_section(reader, at, scenario.plan);
     },
     write_map<&Scenario::plan, write_plan_section>, Need::Required},
    {"cost", "explicit | roofline | {uniform: {forward, backward}} | {profile: FILE}",
     "where layer times come from; default: explicit when a layer states times, else roofline", read_cost_section,
     [](YamlText& out, std::string_view key, const Scenario& scenario) {
       if (scenario.cost == CostSourceKind::Uniform)
         out.line(key, fmt::format("{{uniform: {{forward: {}, backward: {}}}}}", value_text(scenario.uniform_forward),
                                   value_text(scenario.uniform_backward)));
       else if (scenario.cost == CostSourceKind::Profile)
         out.line(key, "{profile: " + yaml_string(scenario.profile_file) + "}");
       else
         out.line(key, scenario.cost == CostSourceKind::Explicit ? "explicit" : "roofline");
     }},
    {"run", "map", "how `run` runs it for real; see run",
     [](Reader& reader, const At& at, Scenario& s) { read_run_section(reader, at, s.run); },
     [](YamlText& out, std::string_view key, const Scenario& scenario) {
       if (scenario.run.place != Place{}) write_below(out, key, scenario.run, write_run_section);
     }},
    {"campaign", "map", "the whole training, of many steps: its length, prices, failures; see campaign",
     read_campaign_section, write_map<&Scenario::campaign, write_campaign_section>},
    {"set", "map of keys and values, e.g. {plan.fit: 50%}",
     "values changed here and in the files named here, before those of --set",
     [](Reader& reader, const At& at, Scenario&) {
       reader.errors.add(at.yaml.place, "set: is a block of the file; change the key itself: --set plan.fit=50%");
     }},
    {"vary", "map of lists, or list of maps", "variants for `capacity`, a row each; see vary",
     read_block<read_vary_section>},
    {"expect", "map or list of maps", "published tables, for `reproduce`; see expect", read_block<read_expect_section>},
    {"measured", "map", "files of measured runs, for `reproduce`; see measured", read_block<read_measured_section>},
};

CostSourceKind default_cost(const Model& model) {
  const bool times =
      std::ranges::any_of(model.layers, [](const Layer& layer) { return layer.forward || layer.backward; });
  return times ? CostSourceKind::Explicit : CostSourceKind::Roofline;
}

std::string scenario_stem(const std::string& path) {
  return path == "-" ? "scenario" : printable(std::filesystem::path(path).stem().string());
}

// Reads one file of its own (`model:`, `device:`, `cluster:`).
template <class T, class Section>
T read_single(const std::string& path, const ReadOptions& options, const char* kind, const Section& section) {
  Errors errors;
  Reader reader{options, errors};
  T value;
  const Yaml yaml = read_reference(reader, path, kind, {});
  errors.throw_if_any();
  section(reader, At{yaml, nullptr, kind, -1}, value);
  errors.throw_if_any();
  return value;
}

// `--set` texts behind the changes that a file asks for.
std::vector<Assignment> with_texts(Reader& reader, std::vector<Assignment> changes,
                                   const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    try {
      changes.push_back(parse_assignment(text));
    } catch (const InputError& error) {
      reader.errors.add(error);
    }
  }
  return changes;
}

// A scenario's file, with the changes of its own `set:` made.
Yaml with_own_changes(Yaml root, const ReadOptions& options) {
  if (!root.is(Yaml::Type::Map) || !root.find("set")) return root;
  Errors errors;
  Reader reader{options, errors};
  std::vector<Assignment> changes;
  read_changes(reader, At{root}.child("set", *root.find("set")), changes);
  std::erase_if(root.map, [](const YamlEntry& entry) { return entry.first.text == "set"; });
  apply_changes(reader, root, std::move(changes));
  errors.throw_if_any();
  return root;
}

Yaml* framework_of(Yaml& root) {
  Yaml* const training = root.find("training");
  return training == nullptr ? nullptr : training->find("framework");
}

// Whether the scenario is to have a measured run: its file has one, or a change may add it.
bool has_anchor(Yaml& root, const std::vector<Assignment>& changes) {
  const Yaml* const framework = framework_of(root);
  return (framework != nullptr && framework->find("anchor") != nullptr) ||
         std::ranges::any_of(changes, [](const Assignment& change) {
           return change.keys.front() == "training" && (change.keys.size() == 1 || change.keys[1] == "framework");
         });
}

// The run of an anchor: the scenario as its file has it, with what the run had differently.
std::shared_ptr<const Scenario> run_of(const std::string& path, Yaml as_written, const ReadOptions& options,
                                       const MemoryAnchor& anchor, const Yaml* set);

// The scenario of a parsed file, with values changed: first `changes`, then `texts`.
Scenario scenario_of(const std::string& path, Yaml root, const ReadOptions& options, std::vector<Assignment> changes,
                     const std::vector<std::string>& texts, ExpectAndVary* more) {
  if (root.find("sweep") && !root.find("model"))
    throw InputError(root.place, "this is a sweep, not a scenario; ask it with pipewright sweep FILE");
  for (const auto& [kind, use] : {std::pair{"device", "name it in one: cluster.node.device: ./"},
                                  std::pair{"cluster", "name it in one: cluster: ./"},
                                  std::pair{"model", "write one with it: pipewright init scenario.yaml --model "}}) {
    const auto others = std::ranges::count_if(
        root.map, [&](const auto& entry) { return entry.first.text != kind && entry.first.text != "version"; });
    if (root.find(kind) && others == 0)
      throw InputError(root.place, fmt::format("this is a {} file, not a scenario; {}{}", kind, use,
                                               std::filesystem::path(path).filename().string()));
  }
  if (root.find("profile") && !root.find("model"))
    throw InputError(root.place,
                     "this is a profile of a machine, not a scenario; price a scenario with it: pipewright simulate "
                     "SCENARIO --set 'cost={profile: " +
                         path + "}'");
  if (root.find("schema") && root.find("source") && !root.find("model"))
    throw InputError(
        root.place,
        "this is a run that was measured, not a scenario; put it next to one: pipewright validate SCENARIO --log " +
            path);
  if (!root.find("model") && (root.find("model_type") || root.find("architectures")))
    throw InputError(root.place, fmt::format("this is a Hugging Face configuration, not a scenario; write one with it: "
                                             "pipewright init scenario.yaml --model {}",
                                             path == "-" ? "config.json" : path));
  Errors errors;
  Reader reader{options, errors};
  reader.more = more;
  changes = with_texts(reader, std::move(changes), texts);
  Yaml as_written = has_anchor(root, changes) ? root : Yaml{};
  if (root.is(Yaml::Type::Map)) apply_changes(reader, root, std::move(changes)), open_zero(root);
  Scenario scenario;
  scenario.file = path;
  scenario.cost = CostSourceKind::Explicit;
  read_fields<Scenario>(reader, At{root}, kScenario, scenario);
  errors.throw_if_any();
  complete(scenario, root);
  scenario.origins = std::move(reader.origins);
  if (const auto& anchor = scenario.training.framework.anchor) {
    MemoryAnchor with_run = *anchor;
    with_run.run =
        run_of(path, std::move(as_written), options, *anchor, framework_of(root)->find("anchor")->find("set"));
    scenario.training.framework.anchor = std::make_shared<const MemoryAnchor>(std::move(with_run));
  }
  return scenario;
}

std::shared_ptr<const Scenario> run_of(const std::string& path, Yaml as_written, const ReadOptions& options,
                                       const MemoryAnchor& anchor, const Yaml* set) {
  if (Yaml* const framework = framework_of(as_written))
    std::erase_if(framework->map, [](const YamlEntry& entry) { return entry.first.text == "anchor"; });
  Errors errors;
  Reader reader{options, errors};
  std::vector<Assignment> changes;
  if (set != nullptr) read_changes(reader, At{*set}, changes);
  try {
    return std::make_shared<const Scenario>(
        scenario_of(path, std::move(as_written), options, std::move(changes), {}, nullptr));
  } catch (const InputError& error) {
    throw InputError(anchor.place, "training.framework.anchor",
                     fmt::format("the run that it sets cannot be read: {}", error.what()));
  }
}

// Whether `pipewright plan` is to settle it. Partitioners that choose whole plans open fields by themselves.
bool left_to_planner(const PlanRequest& plan) {
  return !std::holds_alternative<SuffixDp>(plan.partition.value) &&
         std::ranges::any_of(plan.open, [](const auto& field) { return field.first != "replicas"; });
}

void add_whole_numbers(const Yaml& yaml, const std::string& path, std::vector<std::string>& keys) {
  if (yaml.is(Yaml::Type::Scalar) && !yaml.quoted && parse_count(yaml.scalar).value) keys.push_back(path);
  for (const auto& [key, value] : yaml.map)
    add_whole_numbers(value, path + "." + key.text, keys);
  for (std::size_t i = 0; i < yaml.list.size(); ++i)
    if (yaml.list[i].is(Yaml::Type::Map)) add_whole_numbers(yaml.list[i], path + "." + std::to_string(i), keys);
}

// What is known of single figures, by their whole path: `of` is Cluster::sources and Device::sources, or likewise.
template <class T>
std::map<std::string, T> known_of(const Cluster& cluster, std::map<std::string, T> Cluster::*of_cluster,
                                  std::map<std::string, T> Device::*of_device) {
  std::map<std::string, T> all;
  const auto add = [&](const std::string& prefix, const std::map<std::string, T>& known) {
    for (const auto& [key, value] : known)
      all.emplace(prefix + key, value);
  };
  add("cluster.", cluster.*of_cluster);
  add("cluster.node.device.", cluster.device.*of_device);
  for (const DeviceClass& other : cluster.others)
    add("cluster.other_nodes." + other.name + ".device.", other.device.*of_device);
  return all;
}

std::string written(const Scenario& scenario) {
  auto sources = known_of(scenario.cluster, &Cluster::sources, &Device::sources);
  if (!scenario.plan.reserve_pipeline_source.empty())
    sources.emplace("plan.reserve_pipeline", scenario.plan.reserve_pipeline_source);
  YamlText text(&scenario.origins, std::move(sources),
                known_of(scenario.cluster, &Cluster::provenances, &Device::provenances));
  write_fields<Scenario>(text, kScenario, scenario);
  return text.text();
}

}  // namespace

std::span<const Field<Scenario>> scenario_fields() {
  return kScenario;
}

void complete(Scenario& scenario, const Yaml& root) {
  if (!root.find("cost")) scenario.cost = default_cost(scenario.model);
  if (scenario.name.empty()) scenario.name = scenario_stem(scenario.file);
  if (scenario.model.name.empty()) scenario.model.name = scenario.name;
  const Training& training = scenario.training;
  if (training.low_precision.value != LowPrecision::None && weight_bytes(training.precision).value != 2)
    throw InputError(
        training.low_precision.place, "training.low_precision",
        fmt::format("needs training in 16 bits, not in {}; write precision: bf16", name(training.precision)));
  if (training.amax_reduction.value != AmaxReduction::All && training.low_precision.value != LowPrecision::Fp8Delayed)
    throw InputError(
        training.amax_reduction.place, "training.amax_reduction",
        "no other recipe than fp8_delayed has largest values of earlier passes; write low_precision: fp8_delayed, or "
        "leave this out");
  if (scenario.campaign && scenario.campaign->device_spread.value_or(0) > 0 && scenario.cluster.device.spread > 0)
    throw InputError(
        scenario.cluster.device.place, "cluster.node.device.spread",
        "the slowest device is in every op already, so campaign.device_spread would count it twice; leave one "
        "of them out");
  settle(scenario.model, weight_bytes(training.precision), scenario.plan.split(), scenario.plan.tensor_parallel.place);
  if (scenario.model.order != scenario.plan.order.value.layers) {
    scenario.model = as_given(scenario.model);
    if (!scenario.plan.order.value.layers.empty())
      scenario.model = reordered(scenario.model, scenario.plan.order.value.layers);
  }
  const auto& tokens = scenario.model.tokens;
  auto& stated = scenario.training.sequence_length;
  if (tokens && stated && *stated != *tokens)
    throw InputError(
        scenario.training.place, "training.sequence_length",
        fmt::format("{} differs from the {} tokens per sample of the model; leave it out, or change the model's",
                    *stated, *tokens));
  if (tokens) stated = tokens;
  open_micro_batches(scenario.training, left_to_planner(scenario.plan));
  check_campaign(scenario);
}

Scenario base_scenario(const std::string& path, Yaml& root, const ReadOptions& options) {
  root = with_own_changes(std::move(root), options);
  Scenario scenario = scenario_of(path, root, options, {}, options.set, nullptr);
  Errors errors;
  Reader reader{options, errors};
  apply_changes(reader, root, with_texts(reader, {}, options.set));
  for (const std::string_view block : {"expect", "vary", "measured"})
    std::erase_if(root.map, [&](const auto& entry) { return entry.first.text == block; });
  return scenario;
}

Scenario read_scenario(const std::string& path, const ReadOptions& options) {
  return scenario_of(path, with_own_changes(read_yaml(path, options), options), options, {}, options.set, nullptr);
}

ScenarioFile::ScenarioFile(const std::string& path, const ReadOptions& options)
    : path_(path), options_(options), root_(with_own_changes(read_yaml(path, options), options)) {
  ExpectAndVary more;
  scenario_of(path_, root_, options_, {}, options_.set, &more);
  changes_ = std::move(more.changes);
  expectations_ = std::move(more.expectations);
  varied_ = std::move(more.varied);
  measured_ = std::move(more.measured);
  // Read once, for all: the scenarios made from here have no use for them, nor for what was changed in them.
  for (const std::string_view block : {"expect", "vary", "measured"}) {
    std::erase_if(options_.set, [&](const std::string& set) { return set.starts_with(block); });
    if (root_.is(Yaml::Type::Map))
      std::erase_if(root_.map, [&](const auto& entry) { return entry.first.text == block; });
  }
}

Scenario ScenarioFile::scenario(int changes, const std::vector<std::string>& set) const {
  std::vector<std::string> texts = options_.set;
  texts.insert(texts.end(), set.begin(), set.end());
  return scenario_of(path_, root_, options_,
                     changes < 0 ? std::vector<Assignment>{} : changes_[static_cast<std::size_t>(changes)], texts,
                     nullptr);
}

std::vector<std::string> ScenarioFile::whole_numbers(int changes) const {
  Errors errors;
  Reader reader{options_, errors};
  Yaml root = root_;
  if (!root.is(Yaml::Type::Map)) return {};
  apply_changes(
      reader, root,
      with_texts(reader, changes < 0 ? std::vector<Assignment>{} : changes_[static_cast<std::size_t>(changes)],
                 options_.set));
  expand_references(reader, root, parse_assignment("model.layers=1"));
  std::vector<std::string> keys;
  for (const char* section : {"model", "cluster", "training", "plan", "run"})
    if (const Yaml* yaml = root.find(section)) add_whole_numbers(*yaml, section, keys);
  return keys;
}

std::optional<std::string> ScenarioFile::written(const std::string& key) const {
  Errors errors;
  Reader reader{options_, errors};
  Yaml root = root_;
  if (root.is(Yaml::Type::Map)) apply_changes(reader, root, with_texts(reader, {}, options_.set));
  const Assignment wanted = parse_assignment(key + "=1");
  expand_references(reader, root, wanted);
  errors.throw_if_any();
  const Yaml* node = &root;
  for (const std::string& part : wanted.keys)
    if (node = node->find(part); node == nullptr) return std::nullopt;
  if (const Yaml* value = node->find("value")) node = value;
  return node->is(Yaml::Type::Scalar) ? std::optional(node->scalar) : std::nullopt;
}

std::optional<std::int64_t> ScenarioFile::whole_number(const std::string& key, int changes) const {
  Errors errors;
  Reader reader{options_, errors};
  Yaml root = root_;
  if (root.is(Yaml::Type::Map))
    apply_changes(
        reader, root,
        with_texts(reader, changes < 0 ? std::vector<Assignment>{} : changes_[static_cast<std::size_t>(changes)],
                   options_.set));
  const Assignment wanted = parse_assignment(key + "=1");
  expand_references(reader, root, wanted);
  errors.throw_if_any();
  const Yaml* node = &root;
  for (const std::string& part : wanted.keys) {
    if (node->is(Yaml::Type::List)) {
      const Parsed<std::int64_t> index = parse_count(part);
      if (!index.value || *index.value >= static_cast<std::int64_t>(node->list.size())) return std::nullopt;
      node = &node->list[static_cast<std::size_t>(*index.value)];
    } else if (node = node->find(part); node == nullptr) {
      return std::nullopt;
    }
  }
  std::int64_t value = 0;
  if (!read_value(reader, At{*node, nullptr, key, -1}, value)) errors.throw_if_any();
  if (value < 1) throw InputError(node->place, key, std::to_string(value) + " must be at least 1");
  return value;
}

Model read_model(const std::string& path, const ReadOptions& options) {
  Model model = read_single<Model>(path, options, "model", read_model_section);
  if (model.name.empty()) model.name = scenario_stem(path);
  settle(model, Bytes{4}, {});  // as in fp32
  return model;
}

Device read_device(const std::string& path, const ReadOptions& options) {
  return read_single<Device>(path, options, "device", read_device_section);
}

Cluster read_cluster(const std::string& path, const ReadOptions& options) {
  return read_single<Cluster>(path, options, "cluster", read_cluster_section);
}

std::string resolved_yaml(const Scenario& scenario) {
  const auto& anchor = scenario.training.framework.anchor;
  if (!anchor || !anchor->run) return written(scenario);
  Scenario with = scenario;
  with.training.framework.anchor = nullptr;
  with.training.framework.anchor = std::make_shared<const MemoryAnchor>(
      resolved_anchor(*anchor, parse_yaml(written(with), ""), parse_yaml(written(*anchor->run), "")));
  for (const auto& [key, value] : with.training.framework.anchor->set)
    with.origins["training.framework.anchor.set." + key] = anchor->place;
  return written(with);
}

std::vector<SectionDoc> scenario_docs() {
  std::vector<SectionDoc> docs = {document<Scenario>("scenario", kScenario)};
  for (const auto& more : {model_docs(), cluster_docs(), training_docs(), plan_docs(), cost_docs(), run_docs(),
                           campaign_docs(), profile_docs(), expect_docs(), measured_docs()})
    docs.insert(docs.end(), more.begin(), more.end());
  return docs;
}

}  // namespace pipewright::io
