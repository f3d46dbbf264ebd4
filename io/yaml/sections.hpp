// The sections of a scenario: how each is read, written back and documented. Inside io only.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/question/scenario.hpp"
#include "io/read/scenario_file.hpp"
#include "io/yaml/fields.hpp"

namespace pipewright::io {

// Each takes the whole value of its key: a name, a path or a map. Errors are added to the reader.
void read_model_section(Reader& reader, const At& at, Model& model);
void read_device_section(Reader& reader, const At& at, Device& device);
void read_measured_device(Reader& reader, const At& at, Device& device);
void read_cluster_section(Reader& reader, const At& at, Cluster& cluster);
void read_training_section(Reader& reader, const At& at, Training& training);
void read_framework(Reader& reader, const At& at, Training& training);
void read_anchor(Reader& reader, const At& at, FrameworkMemory& framework);
void read_plan_section(Reader& reader, const At& at, PlanRequest& plan);
void read_run_section(Reader& reader, const At& at, RunRequest& run);
void read_campaign_section(Reader& reader, const At& at, Scenario& scenario);
void read_profile_section(Reader& reader, const At& at, MachineProfile& profile);
void read_order(Reader& reader, const At& at, PlanRequest& plan);
void write_order(YamlText& out, std::string_view key, const PlanRequest& plan);
void read_cost_section(Reader& reader, const At& at, Scenario& scenario);
// What stands under this path, in memory or as a file.
Yaml read_yaml(const std::string& path, const ReadOptions& options);
// `version`, where a scenario, a sweep or a file that one names says it: 1.
void check_version(Reader& reader, const At& at);

// What the blocks `expect:`, `vary:` and `measured:` hold. `changes` are the distinct sets of values that their rows
// ask for.
struct ExpectAndVary {
  std::vector<std::vector<Assignment>> changes;
  std::vector<ExpectationTable> expectations;
  std::vector<VariedPoint> varied;
  std::optional<MeasuredTable> measured;
};
void read_expect_section(Reader& reader, const At& at, ExpectAndVary& more);
void read_measured_section(Reader& reader, const At& at, ExpectAndVary& more);
void read_vary_section(Reader& reader, const At& at, ExpectAndVary& more);

void write_model_section(YamlText& out, const Model& model);
void write_device_section(YamlText& out, const Device& device);
void write_measured_device(YamlText& out, std::string_view key, const Device& device);
void write_cluster_section(YamlText& out, const Cluster& cluster);
void write_training_section(YamlText& out, const Training& training);
void write_framework(YamlText& out, std::string_view key, const Training& training);
void write_anchor(YamlText& out, std::string_view key, const FrameworkMemory& framework);
// The anchor as it stands in the file `base`, both scenarios resolved and without one: with all that its run has
// differently from that file, and without its log, whose figures it has.
MemoryAnchor resolved_anchor(MemoryAnchor anchor, const Yaml& base, const Yaml& run);
void write_plan_section(YamlText& out, const PlanRequest& plan);
void write_run_section(YamlText& out, const RunRequest& run);
void write_campaign_section(YamlText& out, const CampaignRequest& campaign);

std::vector<SectionDoc> model_docs();
std::vector<SectionDoc> cluster_docs();  // devices, too
std::vector<SectionDoc> measured_device_docs();
std::vector<SectionDoc> training_docs();
SectionDoc framework_doc();
SectionDoc anchor_doc();
std::vector<SectionDoc> plan_docs();
std::vector<SectionDoc> cost_docs();
std::vector<SectionDoc> run_docs();
std::vector<SectionDoc> campaign_docs();
std::vector<SectionDoc> profile_docs();
std::vector<SectionDoc> expect_docs();
std::vector<SectionDoc> measured_docs();
std::vector<SectionDoc> scenario_docs();  // all of the above

// Layers by name; of equal names the first in execution order. Looked up only: its own order is nowhere visible.
std::unordered_map<std::string_view, std::int64_t> layers_by_name(const Model& model);

// The keys that say which form a model has; they exclude each other.
bool is_model_form(std::string_view key);

// The keys of a scenario, sections included, in the order in which they are read: the model before the plan.
std::span<const Field<Scenario>> scenario_fields();

// What follows from several sections, once all are read: source of costs, names, the sizes of the model's tensors under
// the plan's tensor parallelism, tokens per sample. `root`: the tree that the scenario was read from. May be called
// again when a section was read anew. Throws InputError.
void complete(Scenario& scenario, const Yaml& root);

// The scenario of a parsed file with the changes of `options.set`, which are applied to `root`, too; `expect:` and
// `vary:` are checked, then removed from it.
Scenario base_scenario(const std::string& path, Yaml& root, const ReadOptions& options);

// ---- fields left open -----------------------------------------------------------------------------------------------
// Takes the fields that say `auto` or {auto: [2, 4]} out of a section: those named in `may_be_open`. What is left is
// read as ever. `auto` for any other field is an error of that field's own.
Yaml take_open_fields(Reader& reader, const At& at, std::span<const std::string_view> may_be_open, OpenFields& open);
std::string open_text(const OpenField& field);  // "auto", "{auto: [2, 4]}"

// The values that an open field may take must be good ones: each is read as if it stood there alone.
template <class T>
void check_open_fields(Reader& reader, const At& at, std::span<const Field<T>> fields, const OpenFields& open) {
  for (const auto& [key, field] : open) {
    if (field.among.empty()) continue;
    const At list = at.child(key, *at.yaml.find(key));
    const At among = list.child("auto", list.yaml.map.front().second);
    for (std::size_t i = 0; i < among.yaml.list.size(); ++i)
      for (const Field<T>& each : fields)
        if (T scratch; each.key == key) each.access.read(reader, among.entry(i), scratch);
  }
}

// A section as it was read: open fields as `auto`, the others with their values.
template <class T>
void write_fields(YamlText& out, FieldsOf<T> fields, const T& target, const OpenFields& open) {
  for (const Field<T>& field : fields)
    if (const auto found = open.find(std::string(field.key)); found != open.end())
      out.line(field.key, open_text(found->second));
    else
      field.write(out, target);
}

// ---- references -----------------------------------------------------------------------------------------------------
// Files that were read, parsed and found to be good, for readers of many scenarios that name the same ones.
struct KnownFiles {
  std::map<std::pair<std::string, std::string>, std::string> by_name;  // {"cluster", "dgx"} -> path
  std::map<std::pair<std::string, std::string>, Yaml> by_path;         // {"cluster", path} -> the value of `cluster:`
};

// A file named by a scalar: "v100" is configs/<kind>s/v100.yaml, "./v100.yaml" a path relative to the file that says
// so. Returns its path, or "" and an error that lists the known names.
std::string referenced_file(Reader& reader, const At& at, std::string_view kind);

// `path` in a file, relative to the folder of that file.
std::string relative_to(const YamlPlace& place, const std::string& path);

// The value of the only key `kind` ("model", "device", "cluster") of a file. Errors are added; then the result is Null.
// A file that cannot be read at all is an error of the place that names it.
Yaml read_reference(Reader& reader, const std::string& file, std::string_view kind, const YamlPlace& named_at);

}  // namespace pipewright::io
