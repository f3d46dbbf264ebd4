#include "io/yaml/point_reader.hpp"

#include <algorithm>
#include <utility>

#include "core/plan/plan.hpp"
#include "io/read/read_condition.hpp"
#include "io/yaml/changes.hpp"
#include "io/yaml/flat_values.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright::io {
namespace {

const Field<Scenario>& field(std::string_view key) {
  const auto fields = scenario_fields();
  const auto found = std::ranges::find_if(fields, [&](const auto& each) { return each.key == key; });
  PP_CHECK(found != fields.end());
  return *found;
}

void forget(Scenario& scenario, std::string_view key) {
  if (key == "model") scenario.model = {};
  if (key == "cluster") scenario.cluster = {};
  if (key == "training") scenario.training = {};
  if (key == "plan") scenario.plan = {}, scenario.model = as_given(scenario.model);
  if (key == "cost") {
    scenario.cost = CostSourceKind::Explicit;
    scenario.uniform_forward = scenario.uniform_backward = {};
    scenario.profile = nullptr, scenario.profile_file.clear();
  }
  if (key == "run") scenario.run = {};
  if (key == "campaign") scenario.campaign = nullptr;
}

Yaml map_of(const std::string& key, const Yaml* value) {
  Yaml root;
  root.type = Yaml::Type::Map;
  if (value) root.map.emplace_back(YamlKey{key, value->place}, *value);
  return root;
}

}  // namespace

PointReader::PointReader(const std::string& path, const ReadOptions& options)
    : options_(options), root_(read_yaml(path, options)), files_(std::make_unique<KnownFiles>()) {
  scenario_ = base_scenario(path, root_, options_);
  options_.set.clear();
  for (const std::string_view key : kSweptSections)
    sections_.push_back({std::string(key), false, {}});
}

PointReader::PointReader(const PointReader& other)
    : options_(other.options_),
      root_(other.root_),
      files_(std::make_unique<KnownFiles>(*other.files_)),
      sections_(other.sections_),
      scenario_(other.scenario_),
      cost_(other.cost_) {}

PointReader::~PointReader() = default;

void PointReader::read_section(Section& section) {
  Errors errors;
  Reader reader{options_, errors};
  reader.keep_origins = false;
  reader.known_files = files_.get();
  Yaml root = map_of(section.key, root_.find(section.key));
  std::vector<Assignment> changes;
  for (const Assignment* change : section.changes)
    changes.push_back(*change);
  apply_changes(reader, root, std::move(changes));
  errors.throw_if_any();
  forget(scenario_, section.key);
  const Field<Scenario>& rule = field(section.key);
  const At at{root};
  if (const Yaml* value = root.find(section.key))
    rule.access.read(reader, at.child(rule.key, *value), scenario_);
  else if (rule.need == Need::Required)
    missing_key(reader, at, rule.key, rule.takes);
  errors.throw_if_any();
  if (section.key == "cost") cost_ = std::move(root);
  section.good = true;
}

const Scenario& PointReader::read(std::span<const Assignment* const> changes) {
  bool any = false;
  for (Section& section : sections_) {
    std::vector<const Assignment*> mine;
    std::ranges::copy_if(changes, std::back_inserter(mine),
                         [&](const Assignment* change) { return change->keys.front() == section.key; });
    if (section.good && mine == section.changes) continue;
    any = true;
    section.good = false;
    section.changes = std::move(mine);
    // The plan may cut at a layer's name, and the model says how many tokens a sample has.
    if (section.key == "model")
      for (Section& other : sections_)
        if (other.key == "plan" || other.key == "training") other.good = false;
    read_section(section);
  }
  if (!any) return scenario_;
  try {
    complete(scenario_, cost_);
  } catch (...) {
    for (Section& section : sections_)
      section.good = false;
    throw;
  }
  return scenario_;
}

// ---- amounts --------------------------------------------------------------------------------------------------------

namespace {

// What `training` leaves to be worked out.
std::optional<Magnitude> of_batch(const Scenario& scenario, const std::string& key) {
  const BatchSplit split = batch_split(scenario.training, scenario.plan.data_parallel.value);
  if (key == "training.global_batch_size") return Magnitude{static_cast<double>(split.global_batch_size)};
  if (key == "training.micro_batch_size") return Magnitude{static_cast<double>(split.micro_batch_size)};
  if (key == "training.micro_batches") return Magnitude{static_cast<double>(split.micro_batches)};
  return std::nullopt;
}

}  // namespace

std::optional<Magnitude> magnitude_under(const Scenario& scenario, const std::string& key) {
  const std::string section = key.substr(0, key.find('.'));
  if (section == "model") {
    for (const auto& [name, text] : scenario.model.form)
      if ("model." + name == key) return parse_magnitude(text);
    if (key == "model.layers") return Magnitude{static_cast<double>(scenario.model.layers.size())};
    return std::nullopt;
  }
  if (std::ranges::find(kSweptSections, section) == kSweptSections.end()) return std::nullopt;
  YamlText text(nullptr, {});
  const Field<Scenario>& rule = field(section);
  rule.write(text, scenario);
  for (const auto& [name, value] : flat_lines(text.text()))
    if (name == key) return parse_magnitude(value);
  return of_batch(scenario, key);
}

}  // namespace pipewright::io
