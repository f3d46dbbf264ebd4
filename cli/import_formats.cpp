#include "cli/import_formats.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>

#include "cli/config_path.hpp"
#include "core/check.hpp"
#include "io/fields.hpp"
#include "io/import/hf.hpp"
#include "io/import/import_run.hpp"
#include "io/import/nsys.hpp"
#include "io/import/pipedream.hpp"
#include "io/import/schedule_csv.hpp"
#include "io/import/topology_file.hpp"
#include "io/quantity.hpp"
#include "io/quote.hpp"
#include "io/read_scenario.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {
namespace {

std::optional<std::int64_t> count(const Arguments& arguments, const char* option, const char* what) {
  if (!arguments.has(option)) return std::nullopt;
  const std::string text = arguments.last(option, "");
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1)
    throw InputError(std::string(option) + ": \"" + text + "\" is not a whole number of " + what + "; write e.g. " +
                     option + " 128");
  return value;
}

// ---- models ---------------------------------------------------------------------------------------------------------

std::string yaml_of(const Model& model) {
  std::string provenance = "written by pipewright " PIPEWRIGHT_VERSION;
  if (!model.form.empty() && model.form.front().first == "hf") provenance += "\n" + model.source;  // has no key for it
  return model_yaml(model, provenance);
}

HfOptions hf_options(const Arguments& arguments) {
  HfOptions options;
  options.sequence_length = count(arguments, "--sequence-length", "tokens");
  options.target_length = count(arguments, "--target-length", "tokens");
  options.next_token_modules = count(arguments, "--next-token-modules", "modules").value_or(0);
  constexpr std::array<std::string_view, 2> kinds = {"flash", "materialised"};
  const std::string kind = arguments.last("--attention", "flash");
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
    throw InputError("--attention: " + unknown_name(kind, kinds));
  options.flash = kind == "flash";
  return options;
}

std::string from_hf(const Arguments& arguments, const std::string& path) {
  return yaml_of(read_hf_config(path, hf_options(arguments)));
}

std::string from_pipedream(const Arguments& arguments, const std::string& path) {
  return yaml_of(read_pipedream_profile(path, count(arguments, "--batch", "samples")));
}

// ---- runs -----------------------------------------------------------------------------------------------------------

std::string from_megatron(const Arguments&, const std::string& path) {
  return run_yaml(import_log(path, "Megatron-LM"));
}

std::string from_torchtitan(const Arguments&, const std::string& path) {
  return run_yaml(import_log(path, "torchtitan"));
}

std::string from_kineto(const Arguments&, const std::string& path) {
  return run_yaml(import_kineto(path));
}

std::string from_nsys(const Arguments&, const std::string& path) {
  return run_yaml(import_nsys(path));
}

// ---- clusters -------------------------------------------------------------------------------------------------------

// `of`: what the rate is of, with an example.
std::optional<Bandwidth> rate(const Arguments& arguments, const char* option, const std::string& of) {
  if (!arguments.has(option)) return std::nullopt;
  const std::string text = arguments.last(option, "");
  const Parsed<Bandwidth> value = parse_bandwidth(text);
  if (value.value && value.value->value > 0) return value.value;
  const std::string why = value.value ? "must be more than 0" : value.why.substr(0, value.why.find("; write "));
  throw InputError(std::string(option) + ": \"" + text + "\" " + why + "; write what " + of);
}

TopologyOptions topology_options(const Arguments& arguments) {
  TopologyOptions options{.device = arguments.last("--device", ""),
                          .nvlink = rate(arguments, "--nvlink", "one NVLink carries per direction, e.g. '25 GB/s'"),
                          .pcie = rate(arguments, "--pcie", "a GPU's slot carries per direction, e.g. '31.5 GB/s'"),
                          .nic = rate(arguments, "--nic", "one network card carries per direction, e.g. '400 Gb/s'"),
                          .nodes = count(arguments, "--nodes", "nodes").value_or(1)};
  if (options.nodes > 1'000'000) throw InputError("--nodes: more than 1000000 nodes; write fewer");
  if (options.device.empty()) return options;
  std::vector<std::string> known;
  for (const std::string& file : config_files("devices", {.config_path = config_path()}))
    known.push_back(std::filesystem::path(file).stem().string());
  if (options.device.find('/') == std::string::npos &&
      std::find(known.begin(), known.end(), options.device) == known.end())
    throw InputError("--device: " + unknown_name(options.device, known));
  return options;
}

std::string from_topo(const Arguments& arguments, const std::string& path) {
  return cluster_file(read_topo_matrix(path), topology_options(arguments));
}

std::string from_nccl_xml(const Arguments& arguments, const std::string& path) {
  return cluster_file(read_nccl_xml(path), topology_options(arguments));
}

// ---- schedules ------------------------------------------------------------------------------------------------------

// The keys of a scenario that the order of a file settles.
std::string from_schedule_csv(const Arguments&, const std::string& path) {
  if (path == "-") throw InputError("import schedule-csv: a scenario names the schedule's file; give a path, not -");
  const GivenSchedule given = read_schedule_csv(path);
  ImportSource source = source_of(path, "PyTorch pipeline schedule");
  if (given.overlapped > 0)
    source.assumed.push_back(std::to_string(given.overlapped) + " cells of several actions at a time run them in turn");
  if (given.derived > 0)
    source.assumed.push_back(std::to_string(given.derived) +
                             " cells about messages, sharding and gradients are left out: they follow from the order");
  source.absent.emplace_back(
      "model, cluster, samples of a micro-batch, recomputation: a scenario of your own has them");
  return as_comment(source) + "plan:\n  schedule: {file: " + yaml_path(std::filesystem::absolute(path).string()) +
         "}\n  stages: " + std::to_string(given.stages) +
         "\n  virtual_stages: " + std::to_string(given.virtual_stages) +
         "\ntraining:\n  micro_batches: " + std::to_string(given.micro_batches) + "\n";
}

constexpr std::array<std::string_view, 5> kOfTopology = {"--device", "--nodes", "--nvlink", "--pcie", "--nic"};
constexpr std::array<std::string_view, 1> kOfPipedream = {"--batch"};
constexpr std::array<std::string_view, 4> kOfHf = {"--sequence-length", "--target-length", "--attention",
                                                   "--next-token-modules"};

constexpr std::array kFormats = {
    ImportFormat{"pipedream", "profile", "model", kOfPipedream, from_pipedream},
    ImportFormat{"hf", "configuration", "model", kOfHf, from_hf},
    ImportFormat{"megatron-log", "log", "run", {}, from_megatron},
    ImportFormat{"torchtitan-log", "log", "run", {}, from_torchtitan},
    ImportFormat{"kineto", "trace", "run", {}, from_kineto},
    ImportFormat{"nsys", "report", "run", {}, from_nsys},
    ImportFormat{"schedule-csv", "schedule", "plan", {}, from_schedule_csv},
    ImportFormat{"topo", "matrix", "cluster", kOfTopology, from_topo},
    ImportFormat{"nccl-xml", "topology", "cluster", kOfTopology, from_nccl_xml},
};

}  // namespace

std::span<const ImportFormat> import_formats() {
  return kFormats;
}

}  // namespace pipewright
