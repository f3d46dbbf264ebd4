// `pipewright show model NAME|FILE`: the layers of one model, with totals.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <variant>

#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "cli/show.hpp"
#include "core/check.hpp"
#include "core/model/families/table.hpp"
#include "io/import/hf.hpp"
#include "io/read/read_scenario.hpp"
#include "io/writers/writers.hpp"
#include "io/yaml/yaml.hpp"
#include "planner/answer.hpp"

namespace pipewright::cli {
namespace {

// A family with its parameters from `--set model.<parameter>=<value>`, in fp32.
Model family_model(const Family& family, const std::vector<std::string>& sets) {
  FamilyArguments arguments;
  for (const std::string& text : sets) {
    const Assignment set = parse_assignment(text);
    if (set.keys.size() != 2 || set.keys[0] != "model" ||
        !(set.value.is(Yaml::Type::Scalar) || set.value.is(Yaml::Type::List)))
      throw InputError("--set " + text + ": a family has parameters only; write --set model.layers=24");
    std::string value = set.value.scalar;
    for (const Yaml& word : set.value.list)  // lora_targets=[q_proj, v_proj]
      value += (value.empty() ? "" : ", ") + word.scalar;
    arguments[set.keys[1]] = {value, Place{"--set " + text, 0, 0}};
  }
  Model model;
  try {
    model = build_family(family, arguments, {});
  } catch (const InputError& error) {
    throw InputError(std::string(error.what()) + "\nshow model " + std::string(family.name) +
                     ": parameters are given as --set model.<name>=<value>");
  }
  settle(model, Bytes{4}, {});
  return model;
}

std::vector<std::string> known_models(const ReadOptions& options) {
  std::vector<std::string> known;
  for (const std::string& path : config_files("models", options))
    known.push_back(std::filesystem::path(path).stem().string());
  for (const Family& family : families())
    if (std::ranges::find(known, family.name) == known.end()) known.emplace_back(family.name);
  return known;
}

void write_dot(const std::string& path, const std::string& graph) {
  const bool dot = path.size() > 4 && path.compare(path.size() - 4, 4, ".dot") == 0;
  if (!dot) throw InputError(Place{}, "--output", "\"" + path + "\" has no known extension; known: .dot");
  write_output(path, graph, "layer graph for Graphviz");
}

// The graph coloured by stage, where the plan of the scenario can be settled.
std::string scenario_graph(const Scenario& scenario) {
  const auto result = answer(scenario, {.ignore_memory = true});
  const auto* found = std::get_if<Answer>(&result);
  return found ? dot_graph(*found) : dot_graph(scenario.model);
}

}  // namespace

int show_model(const Arguments& arguments) {
  if (arguments.positional.size() < 2)
    throw InputError(
        "show model: names no model; write a name of configs/models, a family, or a file of a model or scenario");
  const std::string& name = arguments.positional[1];
  const std::vector<std::string> sets = arguments.all("--set");
  const ReadOptions options{.set = sets, .config_path = config_path()};
  const TableOptions table{output_width(arguments), use_colour(arguments)};
  const std::string output = arguments.last("--output", "");
  std::optional<Scenario> scenario;
  Model model;
  std::string file;
  for (const std::string& path : config_files("models", options))
    if (std::filesystem::path(path).stem().string() == name) file = path;
  const Family* family = find_family(name);
  const bool is_file = name == "-" || name.find('/') != std::string::npos || std::filesystem::exists(name);
  if (is_file) file = name;
  if (file.empty() && !family) throw InputError("show model: " + unknown_name(name, known_models(options)));
  if (file.empty()) {
    model = family_model(*family, sets);
  } else if (is_file && std::filesystem::path(file).extension() == ".json") {  // a configuration of Hugging Face
    if (!sets.empty())
      throw InputError(Place{}, "--set", "changes a scenario or a family, not a configuration; edit " + file);
    model = read_hf_config(file, {});
    settle(model, Bytes{4}, {});
  } else if (is_file && read_yaml(file).find("cluster")) {
    scenario = read_scenario(file, options);
    model = scenario->model;
  } else {
    if (!sets.empty())
      throw InputError(Place{}, "--set", "changes a scenario or a family, not a model file; edit " + file);
    model = read_model(file, options);
  }
  print(model_table(model, table, arguments.has("--operators")));
  if (arguments.has("--flops")) print(flop_tables(model, table));
  if (!output.empty()) write_dot(output, scenario ? scenario_graph(*scenario) : dot_graph(model));
  return kDone;
}

}  // namespace pipewright::cli
