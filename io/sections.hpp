// The sections of a scenario: how each is read, written back and documented. Inside io only.
#pragma once

#include <string>

#include "core/plan/scenario.hpp"
#include "io/fields.hpp"
#include "io/scenario_file.hpp"

namespace pipewright {

// Each takes the whole value of its key: a name, a path or a map. Errors are added to the reader.
void read_model_section(Reader& reader, const At& at, Model& model);
void read_device_section(Reader& reader, const At& at, Device& device);
void read_cluster_section(Reader& reader, const At& at, Cluster& cluster);
void read_training_section(Reader& reader, const At& at, Training& training);
void read_plan_section(Reader& reader, const At& at, PlanRequest& plan);
void read_cost_section(Reader& reader, const At& at, Scenario& scenario);

// What the blocks `expect:` and `vary:` hold. `changes` are the distinct sets of values that their rows ask for.
struct ExpectAndVary {
  std::vector<std::vector<Assignment>> changes;
  std::vector<ExpectationTable> expectations;
  std::vector<VariedPoint> varied;
};
void read_expect_section(Reader& reader, const At& at, ExpectAndVary& more);
void read_vary_section(Reader& reader, const At& at, ExpectAndVary& more);

void write_model_section(YamlText& out, const Model& model);
void write_device_section(YamlText& out, const Device& device);
void write_cluster_section(YamlText& out, const Cluster& cluster);
void write_training_section(YamlText& out, const Training& training);
void write_plan_section(YamlText& out, const PlanRequest& plan);

std::vector<SectionDoc> model_docs();
std::vector<SectionDoc> cluster_docs();  // devices, too
std::vector<SectionDoc> training_docs();
std::vector<SectionDoc> plan_docs();
std::vector<SectionDoc> expect_docs();
std::vector<SectionDoc> scenario_docs();  // all of the above

// The keys that say which form a model has; they exclude each other.
bool is_model_form(std::string_view key);

// ---- references -----------------------------------------------------------------------------------------------------
// A file named by a scalar: "v100" is configs/<kind>s/v100.yaml, "./v100.yaml" a path relative to the file that says
// so. Returns its path, or "" and an error that lists the known names.
std::string referenced_file(Reader& reader, const At& at, std::string_view kind);

// `path` in a file, relative to the folder of that file.
std::string relative_to(const YamlPlace& place, const std::string& path);

// The value of the only key `kind` ("model", "device", "cluster") of a file. Errors are added; then the result is Null.
// A file that cannot be read at all is an error of the place that names it.
Yaml read_reference(Reader& reader, const std::string& file, std::string_view kind, const YamlPlace& named_at);

}  // namespace pipewright
