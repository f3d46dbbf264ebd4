#include "io/import/pipedream.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "io/read/read_file.hpp"
#include "io/store/sha256.hpp"
#include "io/text/errors.hpp"
#include "io/text/quantity.hpp"
#include "io/text/quote.hpp"
#include "io/text/trimmed.hpp"
#include "io/text/utf8.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright::io {
namespace {

constexpr std::string_view kSeparator = " -- ";
constexpr std::string_view kFiguresBegin = " -- forward_compute_time=";
constexpr int kMillisecond = 6;                // powers of ten to nanoseconds
constexpr int kProfiledBytesPerParameter = 4;  // the profiles are fp32
// Image sizes of the profiled models: 3 channels, fp32.  [PipeDream19] ImageNet at 224 x 224, Inception-v3 at 299 x
// 299.
constexpr std::int64_t kImages[] = {3 * 224 * 224 * 4, 3 * 299 * 299 * 4};

struct Node {
  std::string id, description;
  Layer layer;
  bool input = false;  // an Input node: its time is data loading, its output the model's input
  int users = 0;
};

struct ProfileEdge {
  std::string from, to;
  Place place;
};

struct Profile {
  std::vector<Node> nodes;
  std::vector<ProfileEdge> edges;
  std::unordered_map<std::string, std::size_t> by_id;  // looked up only
};

std::int64_t figure(const Place& place, std::string_view key, std::string_view text, int power_of_ten) {
  const Parsed<std::int64_t> number = parse_scaled(trimmed(text, kLineBlanks), power_of_ten);
  if (!number.value)
    throw InputError(place, std::string(key), fmt::format("{} {}", in_quotes(trimmed(text, kLineBlanks)), number.why));
  return *number.value;
}

// "6291456.0", or the sizes of several tensors, "[6291456.0; 131072.0; 131072.0]": their sum.
Bytes activation(const Place& place, std::string_view text) {
  constexpr std::string_view key = "activation_size";
  text = trimmed(text, kLineBlanks);
  if (!text.starts_with('[')) return {figure(place, key, text, 0)};
  if (!text.ends_with(']'))
    throw InputError(place, std::string(key),
                     fmt::format("{} lacks its \"]\"; is the file truncated?", in_quotes(text)));
  text = text.substr(1, text.size() - 2);
  Bytes sum{0};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(';', begin), text.size());
    const Bytes size{figure(place, key, text.substr(begin, end - begin), 0)};
    if (size.value > kLargest - sum.value) throw InputError(place, std::string(key), "the sum overflows");
    sum += size;
    begin = end + 1;
  }
  return sum;
}

// Value of `key` in "forward_compute_time=2.2, backward_compute_time=2.7, ...".
std::string_view value_of(const Place& place, std::string_view figures, std::string_view key) {
  for (std::size_t begin = 0; begin <= figures.size();) {
    const std::size_t end = std::min(figures.find(',', begin), figures.size());
    const std::string_view entry = trimmed(figures.substr(begin, end - begin), kLineBlanks);
    if (entry.starts_with(key) && entry.substr(key.size()).starts_with('=')) return entry.substr(key.size() + 1);
    begin = end + 1;
  }
  throw InputError(place, fmt::format("{} is missing; is the file truncated?", key));
}

// "MaxPool2d" of "MaxPool2d(kernel_size=2, stride=2)".
std::string head_of(std::string_view description) {
  return std::string(trimmed(description.substr(0, description.find('(')), kLineBlanks));
}

Node parse_node(const Place& place, std::string_view line) {
  const std::size_t id_end = line.find(kSeparator), figures_begin = line.rfind(kFiguresBegin);
  if (id_end == std::string_view::npos || figures_begin == std::string_view::npos)
    throw InputError(place, fmt::format("{} is not a line of a PipeDream profile; a node reads \"id -- description -- "
                                        "forward_compute_time=...\"; is the file truncated?",
                                        in_quotes(line)));
  Node node;
  node.id = trimmed(line.substr(0, id_end), kLineBlanks);
  if (figures_begin > id_end)
    node.description =
        trimmed(line.substr(id_end + kSeparator.size(), figures_begin - id_end - kSeparator.size()), kLineBlanks);
  std::string_view figures = line.substr(figures_begin + kSeparator.size());
  figures = figures.substr(0, figures.find(kSeparator));  // " -- stage_id=3" of a partitioned profile
  node.layer.name = one_line(node.id + " " + head_of(node.description));
  node.layer.forward =
      Time{figure(place, "forward_compute_time", value_of(place, figures, "forward_compute_time"), kMillisecond)};
  node.layer.backward =
      Time{figure(place, "backward_compute_time", value_of(place, figures, "backward_compute_time"), kMillisecond)};
  node.layer.activation = activation(place, value_of(place, figures, "activation_size"));
  const std::int64_t bytes = figure(place, "parameter_size", value_of(place, figures, "parameter_size"), 0);
  if (bytes % kProfiledBytesPerParameter != 0)
    throw InputError(place,
                     fmt::format("parameter_size: \"{}\" is not a whole number of fp32 weights (4 B each)", bytes));
  node.layer.parameters = bytes / kProfiledBytesPerParameter;
  node.layer.place = place;
  node.input = node.description.starts_with("Input");
  return node;
}

ProfileEdge parse_edge(const Place& place, std::string_view line) {
  const std::size_t separator = line.find(kSeparator);
  if (separator == std::string_view::npos)
    throw InputError(place, fmt::format("{} is not an edge; an edge reads \"node1 -- node2\"; is the file truncated?",
                                        in_quotes(trimmed(line, kLineBlanks))));
  return {std::string(trimmed(line.substr(0, separator), kLineBlanks)),
          std::string(trimmed(line.substr(separator + kSeparator.size()), kLineBlanks)), place};
}

Profile parse_lines(std::string_view text, const std::string& file) {
  Profile profile;
  Place place{file, 0, 1};
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++place.line;
    if (trimmed(line, kLineBlanks).empty()) continue;
    if (line.front() == '\t' || line.front() == ' ') {
      profile.edges.push_back(parse_edge(place, line));
      continue;
    }
    Node node = parse_node(place, line);
    if (!profile.by_id.emplace(node.id, profile.nodes.size()).second)
      throw InputError(place,
                       fmt::format("a node {} stands above already; each node has one line", in_quotes(node.id)));
    profile.nodes.push_back(std::move(node));
  }
  return profile;
}

std::size_t node_of(const Profile& profile, const Place& place, const std::string& id) {
  const auto found = profile.by_id.find(id);
  if (found == profile.by_id.end())
    throw InputError(place, fmt::format("no node is called {}; is the file truncated?", in_quotes(id)));
  return found->second;
}

// The layers that remain when Input nodes and what nobody uses of a tuple (`__getitem__`) are gone, as in the released
// optimizer: inputs first, then every childless `__getitem__`, once.
std::vector<Layer> layers_of(Profile& profile) {
  std::vector<std::vector<LayerId>> inputs(profile.nodes.size());
  for (const ProfileEdge& edge : profile.edges) {
    const std::size_t from = node_of(profile, edge.place, edge.from), to = node_of(profile, edge.place, edge.to);
    ++profile.nodes[from].users;
    inputs[to].push_back(static_cast<LayerId>(from));
  }
  std::vector<LayerId> number(profile.nodes.size(), -1);
  LayerId count = 0;
  for (std::size_t i = 0; i < profile.nodes.size(); ++i) {
    const Node& node = profile.nodes[i];
    const bool unused = node.users == 0 && node.description.starts_with("__getitem__");
    if (!node.input && !unused) number[i] = count++;
  }
  std::vector<Layer> layers;
  for (std::size_t i = 0; i < profile.nodes.size(); ++i) {
    if (number[i] < 0) continue;
    Layer& layer = layers.emplace_back(std::move(profile.nodes[i].layer));
    for (const LayerId input : inputs[i])
      if (const LayerId kept = number[at(input)]; kept >= 0) layer.inputs.push_back(kept);
    std::ranges::sort(layer.inputs);
    layer.inputs.erase(std::unique(layer.inputs.begin(), layer.inputs.end()), layer.inputs.end());
  }
  return layers;
}

std::int64_t derived_batch(const Place& place, Bytes input) {
  for (const std::int64_t image : kImages)
    if (input.value > 0 && input.value % image == 0) return input.value / image;
  throw InputError(
      place, fmt::format("batch: cannot be derived from an input of {} (no whole number of 3x224x224 or 3x299x299 fp32 "
                         "images); state N, the samples that the profile was taken with: --batch N on the command line "
                         "of import, batch: N with pipedream_profile in a scenario",
                         to_text(input)));
}

}  // namespace

Model parse_pipedream_profile(const std::string& text, const std::string& file, std::optional<std::int64_t> batch) {
  Profile profile = parse_lines(without_byte_order_mark(text), file);
  const Place whole{file, 0, 0};
  if (profile.nodes.empty()) throw InputError(whole, "holds no node; a PipeDream profile is a graph.txt");
  Model model;
  model.name = printable(std::filesystem::path(file).stem().string());
  model.place = whole;
  Place input_place = whole;  // of the first Input node
  for (const Node& node : profile.nodes) {
    if (!node.input) continue;
    if (input_place.line == 0) input_place = node.layer.place;
    if (node.layer.activation.value > kLargest - model.input.value) throw InputError(whole, "the input overflows");
    model.input += node.layer.activation;
  }
  std::vector<Layer> layers = layers_of(profile);
  if (layers.empty()) throw InputError(whole, "holds no layer besides its input; a PipeDream profile is a graph.txt");
  if (layers.size() > 1 && profile.edges.empty()) throw InputError(whole, "holds no edge; is the file truncated?");
  model.layers = in_topological_order(std::move(layers));
  model.batch = batch ? *batch : derived_batch(input_place, model.input);
  model.batch_stated = true;
  model.source = fmt::format("PipeDream profile {}, sha256 {}",
                             printable(std::filesystem::path(file).filename().string()), sha256(text));
  return model;
}

Model read_pipedream_profile(const std::string& path, std::optional<std::int64_t> batch) {
  return parse_pipedream_profile(read_bytes(path), path == "-" ? "standard input" : path, batch);
}

std::string model_yaml(const Model& model, const std::string& provenance) {
  std::string header;
  for (std::size_t begin = 0; begin < provenance.size();) {
    const std::size_t end = std::min(provenance.find('\n', begin), provenance.size());
    header += comment(std::string_view(provenance).substr(begin, end - begin));
    begin = end + 1;
  }
  YamlText text(nullptr, {});
  text.open("model");
  write_model_section(text, model);
  text.close();
  return header + text.text();
}

}  // namespace pipewright::io
