#include "cli/show.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "core/check.hpp"
#include "core/folds.hpp"
#include "io/read/read_file.hpp"
#include "io/text/errors.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/names.hpp"
#include "io/text/quote.hpp"
#include "io/text/utf8.hpp"
#include "io/writers/text_table.hpp"
#include "io/yaml/fields.hpp"
#include "io/yaml/sections.hpp"
#include "planner/partitioners/table.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::cli {
namespace {

constexpr std::array<Option, 11> kShowOptions = {{
    {"--names", "", "", "of a list: the names alone, a line each"},
    {"--json", "", "", "of a device: one JSON document on standard output instead"},
    {"--set", "", "KEY=VALUE", "of a model: change a parameter, --set model.layers=24 (repeatable)"},
    {"--operators", "", "", "of a model: the operators of every distinct layer, too"},
    {"--flops", "", "", "of a model: its FLOPs as publishers count them, and by kind of operator"},
    {"--curve", "", "", "of a device: its matrix products, attention and collectives by size"},
    {"--links", "", "BANDWIDTH",
     "of a device's --curve: what its links have in a node (default: its cluster preset's)"},
    {"--points", "", "FILE", "of a device: how far the curve is off measured products; columns m,n,k,time_us"},
    {"--every", "", "N", "of --points: every Nth was used to fit the constants, the others judge them"},
    {"--output", "-o", "FILE",
     "of a model: the layer graph as .dot, coloured by stage where FILE is a scenario; of a device: its curves as "
     ".svg"},
    {"--width", "", "N", "columns of the drawing (default: the terminal's, else 100)"},
}};
constexpr std::array<std::string_view, 8> kShelves = {"schedules", "partitioners", "models", "devices",
                                                      "clusters",  "keys",         "model",  "device"};

// Options that only one or both of `show model NAME` and `show device NAME` take.
struct OptionOf {
  std::string_view option;
  bool model, device;
};
constexpr std::array<OptionOf, 9> kOptionsOf = {{{"--json", false, true},
                                                 {"--set", true, false},
                                                 {"--operators", true, false},
                                                 {"--flops", true, false},
                                                 {"--curve", false, true},
                                                 {"--links", false, true},
                                                 {"--points", false, true},
                                                 {"--every", false, true},
                                                 {"--output", true, true}}};

void refuse_options_of_others(const std::string& kind, const Arguments& arguments) {
  for (const auto& [option, model, device] : kOptionsOf) {
    if (!arguments.has(option) || (kind == "model" && model) || (kind == "device" && device)) continue;
    const std::string whose = !device  ? "`show model NAME`"
                              : !model ? "`show device NAME`"
                                       : "`show model NAME` and `show device NAME`";
    throw InputError(std::string(option) + ": is for " + whose + ", not for show " + kind);
  }
}

std::string stem(const std::string& path) {
  return std::filesystem::path(path).stem().string();
}

// 312e12 -> "312 T"; three significant digits.
std::string scaled_figure(double value, const char* unit) {
  constexpr std::array<const char*, 6> prefix = {"", "k", "M", "G", "T", "P"};
  std::size_t i = 0;
  for (; value >= 1000 && i + 1 < prefix.size(); ++i)
    value /= 1000;
  return fmt::format("{:.4g} {}{}", value, prefix[i], unit);
}

// Networks are sold in bits: "400 Gb/s (50 GB/s)".
std::string of_network(Bandwidth bandwidth) {
  const double bytes = bandwidth.value;
  return scaled_figure(8 * bytes, "b/s") + " (" + scaled_figure(bytes, "B/s") + ")";
}

std::string model_line(const std::string& path, const ReadOptions& options) {
  const Model model = read_model(path, options);
  return fmt::format("{} layers, {} parameters, figures for {} sample{}", model.layers.size(),
                     short_count(static_cast<double>(parameter_count(model))), model.batch,
                     model.batch == 1 ? "" : "s");
}

std::string device_line(const std::string& path, const ReadOptions& options) {
  const Device device = read_device(path, options);
  std::string line = short_bytes(device.memory);
  for (const auto& [precision, rate] : device.peak)
    line += fmt::format(", {} {}", io::name(precision), scaled_figure(rate.value, "FLOP/s"));
  if (device.memory_bandwidth) line += ", memory " + scaled_figure(device.memory_bandwidth->value, "B/s");
  return line;
}

std::string cluster_line(const std::string& path, const ReadOptions& options) {
  const Cluster cluster = read_cluster(path, options);
  std::string line = fmt::format("{} x {} {}", cluster.nodes_of(0), cluster.devices_per_node, cluster.device.name);
  for (const DeviceClass& other : cluster.others)
    line += fmt::format(" + {} x {} {}", other.nodes, cluster.devices_per_node, other.device.name);
  line += cluster.links.kind == LinkKind::Ideal
              ? ", ideal links"
              : ", links " + scaled_figure(cluster.links.bandwidth.value, "B/s") + " per direction";
  if (cluster.network)
    line +=
        cluster.network->ideal ? ", ideal network" : ", network " + of_network(cluster.network->bandwidth) + " per NIC";
  return line;
}

struct ListEntry {
  std::string name, summary;
};

// What a section's keys begin with on the command line; nothing where --set does not reach it.
std::optional<std::string> prefix_of(std::string_view section) {
  constexpr std::array<std::string_view, 11> as_named = {"cluster",
                                                         "cluster.node",
                                                         "cluster.node.links",
                                                         "cluster.network",
                                                         "training",
                                                         "training.framework",
                                                         "plan",
                                                         "run",
                                                         "campaign",
                                                         "model.trained_as",
                                                         "model.trained_as.rope_scaling"};
  if (std::ranges::find(as_named, section) != as_named.end()) return std::string(section) + ".";
  if (section == "scenario") return "";
  if (section == "cost.uniform") return "cost.uniform.";
  if (section.starts_with("model (")) return "model.";  // a family, or one of the ways to state a model
  if (section == "model.layers") return "model.layers.<i>.";
  if (section == "device" || section == "device.host" || section == "device.efficiency.<kind>")
    return "cluster.node." + std::string(section) + ".";
  return std::nullopt;
}

// Every key that --set can change, in the order of docs/reference/scenario.md; the keys of one layer, of profiles and
// of published tables are not among them.
std::vector<ListEntry> settable_keys() {
  std::vector<ListEntry> keys;
  for (const SectionDoc& section : scenario_docs()) {
    const std::optional<std::string> prefix = prefix_of(section.name);
    if (!prefix) continue;
    const bool family = section.name.starts_with("model (");
    for (const FieldDoc& field : section.fields) {
      const std::string key = *prefix + std::string(field.key);
      std::string summary = fmt::format("{}: {}", field.takes, field.meaning);
      if (family) summary = section.name.substr(7, section.name.size() - 8) + "; " + summary;
      const auto same = std::ranges::find_if(keys, [&](const ListEntry& each) { return each.name == key; });
      if (same == keys.end()) keys.push_back({key, summary});
    }
  }
  return keys;
}

// Those that contain `part`, as lines of `width` columns.
std::string key_list(const std::string& part, int width) {
  std::string text;
  for (const ListEntry& key : settable_keys())
    if (key.name.find(part) != std::string::npos) text += wrapped(padded(key.name, 28) + "  ", key.summary, width);
  if (text.empty())
    throw InputError(fmt::format("show keys: no key contains {}; pipewright show keys lists all", in_quotes(part)));
  return text;
}

// A file that cannot be read does not hide the others.
std::vector<ListEntry> entries_of(const std::vector<std::string>& files,
                                  const std::function<std::string(const std::string&)>& line, std::string& errors) {
  std::vector<ListEntry> entries;
  for (const std::string& path : files) {
    try {
      entries.push_back({stem(path), line(path)});
    } catch (const InputError& error) {
      errors += (errors.empty() ? "" : "\n") + std::string(error.what());
    }
  }
  return entries;
}

void print_list(const std::vector<ListEntry>& entries) {
  auto width = most_over<std::size_t>(entries, [](const ListEntry& entry) { return entry.name.size(); });
  for (const ListEntry& entry : entries)
    print(fmt::format("{:<{}}  {}\n", one_line(entry.name), width, one_line(entry.summary)));
}

bool is_built_in(const std::string& kind) {
  return kind == "schedules" || kind == "partitioners" || kind == "keys";
}

std::vector<ListEntry> built_in(const std::string& kind) {
  if (kind == "keys") return settable_keys();
  std::vector<ListEntry> entries;
  if (kind == "schedules")
    for (const ScheduleRule& rule : schedules())
      entries.push_back({std::string(rule.name), fmt::format("{}; {}", rule.title, rule.memory)});
  else
    for (const Partitioner& each : partitioners())
      entries.push_back({std::string(each.name), std::string(each.what)});
  return entries;
}

void print_names(const std::string& kind) {
  if (is_built_in(kind))
    for (const ListEntry& entry : built_in(kind))
      print(entry.name + "\n");
  else
    for (const std::string& file : config_files(kind, {.set = {}, .config_path = config_path()}))
      print(one_line(stem(file)) + "\n");
}

// All, or the one of that name.
std::string partitioner_list(const std::string& name) {
  auto known = mapped<std::string_view>(partitioners(), &Partitioner::name);
  auto width = most_over<std::size_t>(known, &std::string_view::size);
  if (!name.empty() && find_partitioner(name) == nullptr)
    throw InputError("show partitioners: " + unknown_name(name, known));
  std::string text;
  for (const Partitioner& each : partitioners()) {
    if (!name.empty() && each.name != name) continue;
    text += fmt::format("{:<{}}  {}", each.name, width, each.what);
    if (!each.source.empty()) text += fmt::format(" [{}]", each.source);
    text += each.kind == Partitioner::Kind::StagesAndCuts ? "; sets stages and replicas, too\n" : "\n";
  }
  return text;
}

int show_command(const Arguments& arguments) {
  const std::string& kind = arguments.positional.front();
  if ((kind == "model" || kind == "device") && arguments.has("--names"))
    throw InputError(fmt::format("show {0}: --names is of a list; write pipewright show {0}s --names", kind));
  refuse_options_of_others(kind, arguments);
  if (kind == "model") return show_model(arguments);
  if (kind == "device")
    return show_device(arguments, [](const std::string& path) {
      return device_line(path, {.set = {}, .config_path = config_path()});
    });
  const std::string name = arguments.positional.size() > 1 ? arguments.positional[1] : "";
  if (std::ranges::find(kShelves, kind) == kShelves.end()) throw InputError("show: " + unknown_name(kind, kShelves));
  if (arguments.has("--names")) {
    if (!name.empty()) throw InputError("show: --names is for a whole list; leave out " + in_quotes(name));
    return print_names(kind), kDone;
  }
  if (kind == "keys") return print(key_list(name, output_width(arguments))), kDone;
  if (kind == "schedules") {
    print(name.empty() ? schedule_list() : schedule_in_detail(name, output_width(arguments)));
    return kDone;
  }
  if (kind == "partitioners") {
    print(partitioner_list(name));
    return kDone;
  }
  const ReadOptions options{.set = {}, .config_path = config_path()};
  std::vector<std::string> files = config_files(kind, options);
  if (files.empty())
    throw InputError("show " + kind + ": no file in the folder " + kind +
                     "/ of any config folder; set PIPEWRIGHT_PATH to a folder that holds models/ devices/ clusters/");
  if (!name.empty()) {
    const std::string path = config_file(kind, name, options);
    return print(comment(path) + read_file(path)), kDone;
  }
  const auto line = kind == "models" ? model_line : kind == "devices" ? device_line : cluster_line;
  std::string errors;
  const std::vector<ListEntry> entries = entries_of(
      files, [&](const std::string& path) { return line(path, options); }, errors);
  print_list(entries);
  if (!errors.empty()) throw InputError(errors);
  return kDone;
}

}  // namespace

std::string config_file(const std::string& kind, const std::string& name, const ReadOptions& options) {
  std::vector<std::string> known;
  for (const std::string& path : config_files(kind, options)) {
    known.push_back(stem(path));
    if (known.back() == name) return path;
  }
  throw InputError("show " + kind + ": " + unknown_name(name, known));
}

constinit const Command kShow{
    .name = "show",
    .arguments = "WHAT [NAME|FILE]",
    .summary = "schedules, partitioners, models, devices, clusters: list them, or show one",
    .details =
        "WHAT is schedules, partitioners, models, devices, clusters, keys, or model or device with its NAME or FILE.\n"
        "  pipewright show schedules         all schedules with their formulas\n"
        "  pipewright show schedules 1f1b    one of them, drawn\n"
        "  pipewright show partitioners      all ways to cut a model into stages\n"
        "  pipewright show devices           the devices that a cluster can name\n"
        "  pipewright show device h100-sxm-80g --curve\n"
        "                                    one of them: its kernels and collectives by size\n"
        "  pipewright show keys recompute    the keys of a scenario that contain this word, and what they take\n"
        "  pipewright show model resnet50    its layers: parameters, FLOPs, bytes, with totals\n"
        "  pipewright show model amoebanet_d --set model.layers=18 --set model.filters=256\n",
    .options = kShowOptions,
    .words = kShelves,
    .least = 1,
    .most = 2,
    .run = show_command,
};

}  // namespace pipewright::cli
