#include "io/yaml/changes.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "io/text/quote.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright::io {
namespace {

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

bool says_auto(const Yaml* plan) {
  return plan && plan->is(Yaml::Type::Scalar) && !plan->quoted && plan->scalar == "auto";
}

// `--set plan.stages=4` where the file says `plan: auto`: what auto opens stays open, but for that one.
void expand_auto(Yaml& root) {
  Yaml* plan = root.find("plan");
  if (!says_auto(plan)) return;
  const Yaml open = *plan;
  plan->type = Yaml::Type::Map, plan->scalar.clear();
  for (const std::string_view key : kOpenedByPlanAuto)
    plan->map.emplace_back(YamlKey{std::string(key), open.place}, open);
}

void open_zero_as(Yaml& root, const Yaml& automatic) {
  Yaml* training = root.find("training");
  if (!training || !training->is(Yaml::Type::Map) || training->find("zero")) return;
  training->map.emplace_back(YamlKey{"zero", automatic.place}, automatic);
}

}  // namespace

void open_zero(Yaml& root) {
  if (const Yaml* plan = root.find("plan"); says_auto(plan)) open_zero_as(root, Yaml(*plan));
}

std::string flow_text(const Yaml& yaml) {
  std::string text;
  switch (yaml.type) {
    case Yaml::Type::Null: return "null";
    case Yaml::Type::Scalar: return yaml.quoted ? yaml_string(yaml.scalar) : yaml.scalar;
    case Yaml::Type::List:
      for (const Yaml& item : yaml.list)
        text += (text.empty() ? "" : ", ") + flow_text(item);
      return "[" + text + "]";
    case Yaml::Type::Map:
      for (const auto& [key, value] : yaml.map)
        text += (text.empty() ? "" : ", ") + yaml_string(key.text) + ": " + flow_text(value);
      return "{" + text + "}";
  }
  return text;
}

bool read_keys(Reader& reader, const Place& place, const std::string& where, const std::string& dotted,
               std::vector<std::string>& keys) {
  for (std::size_t begin = 0; begin <= dotted.size();) {
    const std::size_t end = std::min(dotted.find('.', begin), dotted.size());
    if (end == begin || keys.size() >= kDeepestInput) {
      reader.errors.add(place, where, fmt::format("{} is not a key; write e.g. plan.stages", in_quotes(dotted)));
      return false;
    }
    keys.push_back(dotted.substr(begin, end - begin));
    begin = end + 1;
  }
  if (keys.front() != "expect" && keys.front() != "vary") return true;
  reader.errors.add(place, where,
                    fmt::format("{} cannot be changed by the block that asks for it; change model, "
                                "cluster, training, plan or cost",
                                in_quotes(dotted)));
  return false;
}

void expand_references(Reader& reader, Yaml& root, const Assignment& assignment) {
  const auto& keys = assignment.keys;
  if (keys[0] == "plan" && keys.size() > 1) expand_auto(root);
  if (keys[0] == "model") expand(reader, root.find("model"), "model", assignment, 1);
  if (keys[0] != "cluster") return;
  Yaml* cluster = root.find("cluster");
  expand(reader, cluster, "cluster", assignment, 1);
  if (!cluster || keys.size() < 4) return;
  if (keys[1] == "node" && keys[2] == "device")
    if (Yaml* node = cluster->find("node")) expand(reader, node->find("device"), "device", assignment, 3);
  if (keys.size() < 5 || keys[1] != "other_nodes" || keys[3] != "device") return;
  Yaml* others = cluster->find("other_nodes");
  if (Yaml* nodes = others ? others->find(keys[2]) : nullptr)
    expand(reader, nodes->find("device"), "device", assignment, 4);
}

void apply_changes(Reader& reader, Yaml& root, std::vector<Assignment> assignments) {
  std::stable_partition(assignments.begin(), assignments.end(), chooses_model);
  std::optional<Yaml> automatic;  // the plan, where the last that named it whole says auto
  const auto look = [&] {
    if (const Yaml* plan = root.find("plan"); says_auto(plan)) automatic = *plan;
  };
  look();
  for (const Assignment& assignment : assignments) {
    try {
      const bool removes = assignment.value.is(Yaml::Type::Null);
      if (chooses_model(assignment) && assignment.keys.size() == 2 && !removes)
        drop_other_form(root, assignment.keys[1]);
      else if (!chooses_model(assignment))
        expand_references(reader, root, assignment);
      set(root, assignment);
      if (assignment.keys.size() == 1 && assignment.keys[0] == "plan") automatic.reset(), look();
    } catch (const InputError& error) {
      reader.errors.add(error);
    }
  }
  if (automatic) open_zero_as(root, *automatic);
}

}  // namespace pipewright::io
