#include "io/read_scenario.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "core/cost/cost_model.hpp"
#include "io/quantity.hpp"
#include "io/sections.hpp"
#include "io/utf8.hpp"

namespace pipewright {
namespace {

void read_version(Reader& reader, const At& at, Scenario&) {
  std::int64_t version = 0;
  if (read_value(reader, at, version) && version != 1) reader.error(at, "is no known version; write version: 1");
}

constexpr Field<Scenario> kScenario[] = {
    {"version", "1", "of this format; default: 1", Need::Optional, read_version,
     [](YamlText& out, std::string_view key, const Scenario&) { out.line(key, "1"); }},
    {"name", "text", "for reports; default: the name of the file", Need::Optional, read_as<&Scenario::name>,
     write_text<&Scenario::name>},
    {"description", "text", "the question that the scenario asks", Need::Optional, read_as<&Scenario::description>,
     write_text<&Scenario::description>},
    {"model", "name, path or map", "what is trained: configs/models/<name>.yaml, or one of the forms of model",
     Need::Required, [](Reader& reader, const At& at, Scenario& s) { read_model_section(reader, at, s.model); },
     [](YamlText& out, std::string_view key, const Scenario& scenario) {
       out.open(key);
       write_model_section(out, scenario.model);
       out.close();
     }},
    {"cluster", "name, path or map", "what it is trained on: configs/clusters/<name>.yaml, or its keys here",
     Need::Required, [](Reader& reader, const At& at, Scenario& s) { read_cluster_section(reader, at, s.cluster); },
     [](YamlText& out, std::string_view key, const Scenario& scenario) {
       out.open(key);
       write_cluster_section(out, scenario.cluster);
       out.close();
     }},
    {"training", "map", "batch, precision, optimizer", Need::Required,
     [](Reader& reader, const At& at, Scenario& s) { read_training_section(reader, at, s.training); },
     [](YamlText& out, std::string_view key, const Scenario& scenario) {
       out.open(key);
       write_training_section(out, scenario.training);
       out.close();
     }},
    {"plan", "map", "how it is cut and scheduled", Need::Required,
     [](Reader& reader, const At& at, Scenario& scenario) {
       reader.model = &scenario.model;
       read_plan_section(reader, at, scenario.plan);
     },
     [](YamlText& out, std::string_view key, const Scenario& scenario) {
       out.open(key);
       write_plan_section(out, scenario.plan);
       out.close();
     }},
    {"cost", "explicit | roofline | {uniform: {forward, backward}}",
     "where layer times come from; default: explicit when a layer states times, else roofline", Need::Optional,
     read_cost_section,
     [](YamlText& out, std::string_view key, const Scenario& scenario) {
       if (scenario.cost == CostSourceKind::Uniform)
         out.line(key, fmt::format("{{uniform: {{forward: {}, backward: {}}}}}", value_text(scenario.uniform_forward),
                                   value_text(scenario.uniform_backward)));
       else
         out.line(key, scenario.cost == CostSourceKind::Explicit ? "explicit" : "roofline");
     }},
    {"vary", "map of lists, or list of maps", "variants for `capacity`, a row each; see vary", Need::Optional,
     [](Reader& reader, const At& at, Scenario&) {
       ExpectAndVary dropped;
       read_vary_section(reader, at, reader.more ? *reader.more : dropped);
     },
     [](YamlText&, std::string_view, const Scenario&) {}},
    {"expect", "map or list of maps", "published tables, for `reproduce`; see expect", Need::Optional,
     [](Reader& reader, const At& at, Scenario&) {
       ExpectAndVary dropped;
       read_expect_section(reader, at, reader.more ? *reader.more : dropped);
     },
     [](YamlText&, std::string_view, const Scenario&) {}},
};

CostSourceKind default_cost(const Model& model) {
  const bool times = std::any_of(model.layers.begin(), model.layers.end(),
                                 [](const Layer& layer) { return layer.forward || layer.backward; });
  return times ? CostSourceKind::Explicit : CostSourceKind::Roofline;
}

// ---- --set ----------------------------------------------------------------------------------------------------------

bool chooses_model(const Assignment& assignment) {
  // `layers` is a list where it is a form; a number is a parameter of a family.
  const bool number = assignment.keys.back() == "layers" && assignment.value.is(Yaml::Type::Scalar);
  return assignment.keys[0] == "model" && !number &&
         (assignment.keys.size() == 1 || (assignment.keys.size() == 2 && is_model_form(assignment.keys[1])));
}

// A form of `model` excludes the others: choosing one leaves nothing of another.
void drop_other_form(Yaml& root, const std::string& form) {
  Yaml* model = root.find("model");
  if (!model || (model->is(Yaml::Type::Map) && model->find(form))) return;
  const YamlPlace place = model->place;
  *model = Yaml{};
  model->type = Yaml::Type::Map, model->place = place;
}

// `--set cluster.nodes=4` where the file says `cluster: dgx`: the named file takes the place of the name.
void expand(Reader& reader, Yaml* node, const char* kind, const Assignment& assignment, std::size_t depth) {
  if (!node || assignment.keys.size() <= depth) return;
  std::string file;
  if (node->is(Yaml::Type::Scalar)) {
    const Yaml name = *node;
    file = referenced_file(reader, At{name, nullptr, kind, -1}, kind);
  } else if (const Yaml* path = node->find("file"); path && path->is(Yaml::Type::Scalar)) {
    if (std::string_view(kind) == "model" && assignment.keys[1] != "file")
      file = relative_to(path->place, path->scalar);
  }
  if (!file.empty()) *node = read_reference(reader, file, kind, node->place);
}

void expand_references(Reader& reader, Yaml& root, const Assignment& assignment) {
  const auto& keys = assignment.keys;
  if (keys[0] == "model") expand(reader, root.find("model"), "model", assignment, 1);
  if (keys[0] != "cluster") return;
  Yaml* cluster = root.find("cluster");
  expand(reader, cluster, "cluster", assignment, 1);
  if (!cluster || keys.size() < 4 || keys[1] != "node" || keys[2] != "device") return;
  if (Yaml* node = cluster->find("node")) expand(reader, node->find("device"), "device", assignment, 3);
}

void apply_sets(Reader& reader, Yaml& root, std::vector<Assignment> assignments,
                const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    try {
      assignments.push_back(parse_assignment(text));
    } catch (const InputError& error) {
      reader.errors.add(error);
    }
  }
  std::stable_partition(assignments.begin(), assignments.end(), chooses_model);
  for (const Assignment& assignment : assignments) {
    try {
      const bool removes = assignment.value.is(Yaml::Type::Null);
      if (chooses_model(assignment) && assignment.keys.size() == 2 && !removes)
        drop_other_form(root, assignment.keys[1]);
      else if (!chooses_model(assignment))
        expand_references(reader, root, assignment);
      set(root, assignment);
    } catch (const InputError& error) {
      reader.errors.add(error);
    }
  }
}

std::string stem(const std::string& path) {
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

// The scenario of a parsed file, with values changed: first `changes`, then `texts`.
Scenario scenario_of(const std::string& path, Yaml root, const ReadOptions& options, std::vector<Assignment> changes,
                     const std::vector<std::string>& texts, ExpectAndVary* more) {
  Errors errors;
  Reader reader{options, errors};
  reader.more = more;
  if (root.is(Yaml::Type::Map)) apply_sets(reader, root, std::move(changes), texts);
  Scenario scenario;
  scenario.file = path;
  scenario.cost = CostSourceKind::Explicit;
  read_fields<Scenario>(reader, At{root}, kScenario, scenario);
  errors.throw_if_any();
  if (!root.find("cost")) scenario.cost = default_cost(scenario.model);
  if (scenario.name.empty()) scenario.name = stem(path);
  if (scenario.model.name.empty()) scenario.model.name = scenario.name;
  try {
    settle(scenario.model, weight_bytes(scenario.training.precision),
           {static_cast<int>(scenario.plan.tensor_parallel.value), scenario.plan.sequence_parallel.value});
  } catch (const InputError& error) {
    errors.add(error);
    errors.throw_if_any();
  }
  if (const auto& tokens = scenario.model.tokens) {
    auto& stated = scenario.training.sequence_length;
    if (stated && *stated != *tokens)
      throw InputError(
          scenario.training.place,
          fmt::format("training.sequence_length: {} differs from the {} tokens per sample of the model; leave "
                      "it out, or change the model's",
                      *stated, *tokens));
    stated = tokens;
  }
  scenario.origins = std::move(reader.origins);
  return scenario;
}

}  // namespace

Scenario read_scenario(const std::string& path, const ReadOptions& options) {
  return scenario_of(path, read_yaml(path), options, {}, options.set, nullptr);
}

ScenarioFile::ScenarioFile(const std::string& path, const ReadOptions& options)
    : path_(path), options_(options), root_(read_yaml(path)) {
  ExpectAndVary more;
  scenario_of(path_, root_, options_, {}, options_.set, &more);
  changes_ = std::move(more.changes);
  expectations_ = std::move(more.expectations);
  varied_ = std::move(more.varied);
  // Read once, for all: the scenarios made from here have no use for them, nor for what was changed in them.
  std::erase_if(options_.set,
                [](const std::string& set) { return set.starts_with("expect") || set.starts_with("vary"); });
  if (root_.is(Yaml::Type::Map))
    std::erase_if(root_.map,
                  [](const auto& entry) { return entry.first.text == "expect" || entry.first.text == "vary"; });
}

Scenario ScenarioFile::scenario(int changes, const std::vector<std::string>& set) const {
  std::vector<std::string> texts = options_.set;
  texts.insert(texts.end(), set.begin(), set.end());
  return scenario_of(path_, root_, options_,
                     changes < 0 ? std::vector<Assignment>{} : changes_[static_cast<std::size_t>(changes)], texts,
                     nullptr);
}

std::optional<std::int64_t> ScenarioFile::whole_number(const std::string& key, int changes) const {
  Errors errors;
  Reader reader{options_, errors};
  Yaml root = root_;
  if (root.is(Yaml::Type::Map))
    apply_sets(reader, root, changes < 0 ? std::vector<Assignment>{} : changes_[static_cast<std::size_t>(changes)],
               options_.set);
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
  if (value < 1) throw InputError(node->place, key + ": " + std::to_string(value) + " must be at least 1");
  return value;
}

Model read_model(const std::string& path, const ReadOptions& options) {
  Model model = read_single<Model>(path, options, "model", read_model_section);
  if (model.name.empty()) model.name = stem(path);
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
  std::map<std::string, std::string> sources;
  for (const auto& [key, text] : scenario.cluster.sources)
    sources.emplace("cluster." + key, text);
  if (!scenario.plan.reserve_pipeline_source.empty())
    sources.emplace("plan.reserve_pipeline", scenario.plan.reserve_pipeline_source);
  for (const auto& [key, text] : scenario.cluster.device.sources)
    sources.emplace("cluster.node.device." + key, text);
  YamlText text(&scenario.origins, std::move(sources));
  write_fields<Scenario>(text, kScenario, scenario);
  return text.text();
}

std::vector<SectionDoc> scenario_docs() {
  std::vector<SectionDoc> docs = {document<Scenario>("scenario", kScenario)};
  for (const auto& more : {model_docs(), cluster_docs(), training_docs(), plan_docs(), expect_docs()})
    docs.insert(docs.end(), more.begin(), more.end());
  return docs;
}

}  // namespace pipewright
