// `init`: a first scenario, from flags or by questions. What is written passes `check`.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>

#include <fmt/format.h>

#include "cli/check.hpp"
#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "io/changes.hpp"
#include "io/fields.hpp"
#include "io/import/hf.hpp"
#include "io/quote.hpp"
#include "io/read_file.hpp"
#include "io/read_scenario.hpp"
#include "io/utf8.hpp"
#include "io/writers/made_json.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {
namespace {

namespace fs = std::filesystem;

constexpr std::array<Option, 11> kOptions = {{
    {"--model", "", "NAME|FILE", "a name of configs/models, a model file, or a Hugging Face config.json"},
    {"--sequence-length", "", "N", "tokens of a sample (default: the longest that the configuration states)"},
    {"--cluster", "", "NAME|FILE", "a name of configs/clusters, or a cluster file"},
    {"--device", "", "NAME|FILE", "instead of a cluster: a name of configs/devices, or a device file"},
    {"--devices", "", "N", "with --device: how many in each node"},
    {"--nodes", "", "N", "how many nodes (default: as the cluster says, else 1)"},
    {"--links", "", "BANDWIDTH", "with --device: between the devices of a node, per direction, e.g. '64 GB/s'"},
    {"--network", "", "BANDWIDTH", "with --device and several nodes: per NIC and direction, e.g. '400 Gb/s'"},
    {"--batch", "", "N", "samples of an optimizer step"},
    {"--precision", "", "WHAT", "fp32, tf32, fp16 or bf16 (default: bf16)"},
    {"--json", "", "", "one JSON document on standard output: what was written, and what comes next"},
}};

// What was not given is asked for: the question on standard error, the answer from standard input.
class Questions {
 public:
  explicit Questions(const Arguments& arguments) : arguments_(arguments) {}

  std::string answer(const std::string& option, const std::string& question, const std::string& otherwise) const {
    if (arguments_.has(option)) return arguments_.last(option, "");
    std::fprintf(stderr, "%s%s: ", question.c_str(), otherwise.empty() ? "" : (" [" + otherwise + "]").c_str());
    std::fflush(stderr);
    std::string line;
    if (!std::getline(std::cin, line)) {
      std::fputc('\n', stderr);
      if (!otherwise.empty()) return otherwise;
      throw InputError("init: no answer to \"" + question + "\"; give it as " + option);
    }
    line.erase(0, line.find_first_not_of(" \t\r"));
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (line.empty() && otherwise.empty())
      throw InputError("init: \"" + question + "\" needs an answer; give it as " + option);
    return line.empty() ? otherwise : line;
  }

 private:
  const Arguments& arguments_;
};

std::string stem(const std::string& path) {
  return fs::path(path).stem().string();
}

// A path as the file names it: files that it names are relative to its own folder.
std::string seen_from(const std::string& path, const std::string& file) {
  std::error_code failed;
  const fs::path folder = fs::absolute(file).parent_path();
  const fs::path relative = fs::relative(fs::absolute(path), folder, failed);
  if (failed || relative.empty()) return fs::absolute(path).string();
  const std::string text = relative.generic_string();
  return text.find('/') == std::string::npos ? "./" + text : text;
}

bool is_path(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".yaml") || text.ends_with(".json");
}

std::vector<std::string> stems(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const std::string& path : paths)
    names.push_back(stem(path));
  return names;
}

std::int64_t count(const std::string& option, const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1 || value > kLargestCount)
    throw InputError(
        fmt::format("{}: \"{}\" is no whole number from 1 to {}", option, text.substr(0, 64), kLargestCount));
  return value;
}

// A path as the scenario names it, of a file that is there.
std::string path_value(const std::string& option, const std::string& path, const std::string& file) {
  std::error_code none;
  if (!fs::exists(path, none)) throw InputError(option + ": " + path + ": no such file");
  return yaml_path(seen_from(path, file));
}

struct StartedModel {
  std::string value;                         // of `model`, or of its `hf`
  std::string file;                          // where it is described
  std::optional<std::int64_t> longest = {};  // tokens, where it is a configuration that takes shorter samples, too
};

StartedModel started_model(const std::string& model, const std::string& file, const ReadOptions& options) {
  StartedModel started;
  if (is_path(model)) {
    started = {path_value("--model", model, file), model};
  } else {
    const std::vector<std::string> files = config_files("models", options), known = stems(files);
    const auto found = std::find(known.begin(), known.end(), model);
    if (found == known.end()) throw InputError("--model: " + unknown_name(model.substr(0, 64), known));
    started = {yaml_string(model), files[static_cast<std::size_t>(found - known.begin())]};
  }
  if (!started.file.ends_with(".json")) return started;
  const HfConfig config = parse_hf_config(read_file(started.file), started.file, {});
  if (std::any_of(config.notes.begin(), config.notes.end(),
                  [](const std::string& note) { return note.starts_with("sequence_length "); }))
    started.longest = config.transformer.sequence_length;
  return started;
}

// Tokens of a sample: as told or asked for; of a shipped model its own.
std::optional<std::int64_t> sequence_length(const Questions& ask, const Arguments& arguments,
                                            const StartedModel& model) {
  constexpr const char* kOption = "--sequence-length";
  if (!model.longest) {
    if (!arguments.has(kOption)) return std::nullopt;
    throw InputError(std::string(kOption) + ": " + model.file +
                     " says it itself; leave the option out, or change the model there");
  }
  if (!arguments.has(kOption) && !is_path(arguments.last("--model", "./asked"))) return std::nullopt;
  return count(kOption, ask.answer(kOption, "Tokens of a sample (sequence length)", std::to_string(*model.longest)));
}

std::string model_line(const StartedModel& model, std::optional<std::int64_t> length) {
  if (!length) return model.value;
  return fmt::format("{{hf: {}, sequence_length: {}}}    {}", model.value, *length,
                     comment_text(fmt::format("tokens of a sample; the configuration's longest: {}", *model.longest)));
}

// "; samples of 8192 tokens", and where nobody chose, how to.
std::string length_words(const Arguments& arguments, const StartedModel& model, std::optional<std::int64_t> length) {
  if (!model.longest) return "";
  const std::int64_t tokens = length.value_or(*model.longest);
  return fmt::format("; samples of {} tokens{}", tokens,
                     arguments.has("--sequence-length") || tokens != *model.longest
                         ? ""
                         : ", the longest of its configuration: --sequence-length N for shorter ones");
}

std::string known_name(const std::string& option, const std::string& kind, const std::string& name,
                       const ReadOptions& options) {
  const std::vector<std::string> known = stems(config_files(kind, options));
  if (std::find(known.begin(), known.end(), name) == known.end())
    throw InputError(option + ": " + unknown_name(name.substr(0, 64), known));
  return yaml_string(name);
}

// Nodes of one device, wired as the user says: no figure of ours.
std::string own_cluster(const Questions& ask, const Arguments& arguments, const std::string& file,
                        const ReadOptions& options) {
  const std::string asked_device = arguments.last("--device", "");
  const std::string device = is_path(asked_device) ? path_value("--device", asked_device, file)
                                                   : known_name("--device", "devices", asked_device, options);
  const std::int64_t devices = count("--devices", ask.answer("--devices", "Devices in each node", ""));
  // Who gives the devices as an option has said what there is: one node, unless --nodes says more.
  const bool asked = arguments.has("--devices") && !arguments.has("--nodes");
  const std::int64_t nodes = asked ? 1 : count("--nodes", ask.answer("--nodes", "Nodes", "1"));
  const std::string about = is_path(asked_device) ? "" : "    " + comment_text("pipewright show devices " + device);
  std::string text = "cluster:\n";
  if (nodes > 1) text += fmt::format("  nodes: {}\n", nodes);
  text += fmt::format("  node:\n    devices: {}\n    device: {}{}\n", devices, device, about);
  if (devices > 1)
    text += fmt::format(
        "    links: {{kind: mesh, bandwidth: {}}}    {}",
        yaml_string(ask.answer("--links", "Bandwidth between devices of a node, per direction (64 GB/s)", "")),
        comment("per direction; pcie shares a host bridge, nvswitch a switch"));
  if (nodes > 1)
    text += fmt::format(
        "  network: {{bandwidth: {}}}    {}",
        yaml_string(ask.answer("--network", "Bandwidth between nodes, per NIC and direction (400 Gb/s)", "")),
        comment("per NIC and direction; a NIC per node unless per: device"));
  return text;
}

// A map as it stood, key by key, in lines of its own: `{value: 450 GB/s, source: ...}` stays one line.
void add_lines(std::string& text, const Yaml& map, const std::string& indent) {
  for (const auto& [key, value] : map.map)
    if (value.is(Yaml::Type::Map) && !value.find("value")) {
      text += indent + yaml_string(key.text) + ":\n";
      add_lines(text, value, indent + "  ");
    } else {
      text += indent + yaml_string(key.text) + ": " + flow_text(value) + "\n";
    }
}

// Files are named as seen from the new scenario, which lies elsewhere; words that were fine on a line of their own
// stand in quotes.
void carry_over(Yaml& map, const std::string& cluster_file, const std::string& file) {
  for (auto& [key, value] : map.map) {
    if (value.is(Yaml::Type::Map)) carry_over(value, cluster_file, file);
    if (value.scalar.find_first_of(",[]{}#:'\"\n") != std::string::npos) value.quoted = true;
    if (key.text != "device" || !value.is(Yaml::Type::Scalar) || !is_path(value.scalar)) continue;
    value.scalar = seen_from((fs::path(cluster_file).parent_path() / value.scalar).string(), file);
    value.quoted = true;
  }
}

// A cluster of another number of nodes than its file says: all else as it stands there.
std::string cluster_of(const std::string& cluster_file, std::int64_t nodes, const std::string& file) {
  Yaml root = read_yaml(cluster_file);
  const Yaml* there = root.find("cluster");
  if (there == nullptr || !there->is(Yaml::Type::Map))
    throw InputError(cluster_file + ": this is no cluster file: its top key must be cluster:");
  const Yaml* before = there->find("nodes");
  const std::string said = before == nullptr ? "1" : flow_text(*before);
  if (there->find("name") == nullptr) set(root, "cluster.name=" + yaml_string(stem(cluster_file)));
  set(root, fmt::format("cluster.nodes={}", nodes));
  Yaml& cluster = *root.find("cluster");
  carry_over(cluster, cluster_file, file);
  std::string text =
      "cluster:    " + comment(fmt::format("as {}, but for the nodes: {} there", stem(cluster_file), said));
  add_lines(text, cluster, "  ");
  return text;
}

std::string cluster_file(const std::string& cluster, const ReadOptions& options) {
  if (is_path(cluster)) return cluster;
  const std::vector<std::string> files = config_files("clusters", options), known = stems(files);
  const auto found = std::find(known.begin(), known.end(), cluster);
  if (found == known.end()) throw InputError("--cluster: " + unknown_name(cluster.substr(0, 64), known));
  return files[static_cast<std::size_t>(found - known.begin())];
}

std::string cluster_text(const Questions& ask, const Arguments& arguments, const std::string& file,
                         const ReadOptions& options) {
  if (arguments.has("--device")) {
    if (arguments.has("--cluster"))
      throw InputError("init: --cluster and --device exclude each other; keep one of them");
    return own_cluster(ask, arguments, file, options);
  }
  for (const char* option : {"--devices", "--links", "--network"})
    if (arguments.has(option))
      throw InputError(std::string(option) + ": goes with --device; a cluster of configs/ has its own");
  const std::string cluster = ask.answer(
      "--cluster", fmt::format("Cluster ({})", fmt::join(stems(config_files("clusters", options)), ", ")), "");
  if (arguments.has("--nodes"))
    return cluster_of(cluster_file(cluster, options), count("--nodes", arguments.last("--nodes", "")), file);
  return "cluster: " +
         (is_path(cluster) ? yaml_path(seen_from(cluster, file))
                           : known_name("--cluster", "clusters", cluster, options)) +
         "\n";
}

// The schema that is installed beside the configurations; editors complete by it.
std::string schema_line(const ReadOptions& options) {
  for (const std::string& folder : options.config_path) {
    const fs::path schema = (fs::path(folder) / "../schemas/scenario.json").lexically_normal();
    std::error_code none;
    if (fs::is_regular_file(schema, none)) return comment("yaml-language-server: $schema=" + schema.string());
  }
  return "";
}

int run(const Arguments& arguments) {
  const std::string file = arguments.positional.empty() ? "scenario.yaml" : arguments.positional.front();
  if (std::error_code none; fs::exists(file, none))
    throw InputError(file + ": is there already; remove it, or name another file: pipewright init other.yaml");
  check_writable(file);
  const ReadOptions options{.set = {}, .config_path = config_path()};
  const Questions ask(arguments);
  const StartedModel model = started_model(
      ask.answer("--model", "Model (a name of `pipewright show models`, or a config.json)", ""), file, options);
  const std::string cluster = cluster_text(ask, arguments, file, options);
  const std::int64_t batch = count("--batch", ask.answer("--batch", "Samples of an optimizer step (global batch)", ""));
  const std::optional<std::int64_t> length = sequence_length(ask, arguments, model);
  const std::string precision = arguments.last("--precision", "bf16");
  const std::string text = fmt::format(
      "{}{}version: 1\nname: {}\nmodel: {}\n{}"
      "training:\n  global_batch_size: {}\n  micro_batch_size: auto\n  precision: {}\n  gradient_precision: fp32\n"
      "  optimizer: adam\n  zero: auto\n"
      "plan: auto    {}",
      schema_line(options),
      comment("Written by pipewright init. Every key: docs/reference/scenario.md; every value with its origin: "
              "pipewright check "
              "--resolved"),
      yaml_string(stem(file)), model_line(model, length), cluster, batch, yaml_string(precision),
      comment("pipewright plan finds the best one; or e.g. {stages: 4, schedule: 1f1b} for pipewright simulate"));
  write_file(file, text);
  try {
    const std::string what = checked_file(file, options) + length_words(arguments, model, length);
    if (arguments.has("--json"))
      print(init_json({.file = file, .holds = what, .next = "pipewright plan " + shell_path(file)}));
    else
      print(fmt::format("wrote {} ({})\nnext: pipewright plan {}\n", one_line(file), what, shell_path(file)));
  } catch (const InputError& error) {
    std::error_code ignored;
    fs::remove(file, ignored);
    throw InputError(fmt::format("{}\ninit: nothing was written", error.what()));
  }
  return kDone;
}

}  // namespace

constinit const Command kInit{
    .name = "init",
    .arguments = "[FILE]",
    .summary = "a first scenario, from options or by questions",
    .details =
        "Writes FILE (default: scenario.yaml), which must not exist yet. It asks for everything that is not given.\n"
        "  pipewright init llama.yaml --model llama3-8b --cluster dgx-h100x8 --nodes 16 --batch 128\n"
        "  pipewright init mine.yaml --model ./config.json --sequence-length 4096 --device rtx-4090-24g --devices 4 "
        "--links '25 GB/s' --batch 64\n",
    .options = kOptions,
    .least = 0,
    .most = 1,
    .run = run,
};

}  // namespace pipewright
