// cluster: device -> node -> network. A device or a whole cluster may stand in a file of its own.
#include <algorithm>

#include <fmt/format.h>

#include "core/cluster/topology.hpp"
#include "io/read/read_efficiency.hpp"
#include "io/read/read_scenario.hpp"
#include "io/yaml/sections.hpp"
#include "io/yaml/value_rules.hpp"

namespace pipewright::io {
namespace {

// What is known of single figures is kept by the section that owns them, without the path that leads to it.
template <class T>
std::map<std::string, T> below(const std::map<std::string, T>& all, const std::string& prefix) {
  std::map<std::string, T> found;
  for (auto entry = all.lower_bound(prefix + "."); entry != all.end(); ++entry) {
    if (!entry->first.starts_with(prefix + ".")) break;
    found.emplace(entry->first.substr(prefix.size() + 1), entry->second);
  }
  return found;
}

// Runs `read` on the value itself or, where it is a name or a path, on what the file it names holds.
template <class Read>
void follow(Reader& reader, const At& at, std::string_view kind, const Read& read) {
  if (!at.yaml.is(Yaml::Type::Scalar)) return read(at);
  if (reader.files_deep >= kMostFilesDeep)
    return reader.error(at, "is named by files that name each other in a circle; write it out in one of them");
  const std::string file = referenced_file(reader, at, kind);
  if (file.empty()) return;
  const Yaml value = read_reference(reader, file, kind, at.yaml.place);
  if (value.is(Yaml::Type::Null)) return;
  ++reader.files_deep;
  read(At{value, at.parent, at.key, at.item});
  --reader.files_deep;
}

// ---- device ---------------------------------------------------------------------------------------------------------

void read_peak(Reader& reader, const At& at, Device& device) {
  if (!is_map(reader, at, "a map of precisions, e.g. {fp32: 15.7 TFLOP/s},")) return;
  for (const auto& [key, value] : at.yaml.map) {
    const At here = at.child(key.text, value);
    const Yaml name = as_value(key);
    Precision precision{};
    FlopRate rate{};
    if (!read_value(reader, At{name, at.parent, at.key, at.item}, precision)) continue;
    if (reader.keep_origins) reader.origins[path(here)] = value.place;
    if (read_lawful<DeviceRate>(reader, here, rate)) device.peak[precision] = rate;
  }
}

void write_peak(YamlText& out, std::string_view key, const Device& device) {
  if (device.peak.empty()) return;
  out.open(key);
  for (const auto& [precision, rate] : device.peak)
    out.line(name(precision), value_text(rate));
  out.close();
}

constexpr Field<HostTimes> kHost[] = {
    {"operator", "time", "to issue one operator of one pass; default: 0 ns", member<&HostTimes::operation>},
    {"backward", "time", "likewise, in a backward, which issues more kernels; default: as operator",
     member<&HostTimes::backward>},
    {"collective", "time", "to issue one all-reduce of a tensor-parallel group; default: 0 ns",
     member<&HostTimes::collective>},
    {"skew", "time", "that the device waits at each of them for the slowest member; default: 0 ns",
     member<&HostTimes::skew>},
    {"pass", "time", "around each forward and each backward of a stage; default: 0 ns", member<&HostTimes::pass>},
    {"message", "time",
     "likewise, where plan.stages > 1: to exchange tensors with the neighbouring stages; default: 0 ns",
     member<&HostTimes::message>},
    {"step", "time", "around each optimizer step; default: 0 ns", member<&HostTimes::step>},
    {"blocking", "passes | messages | step",
     "where the host waits for its device: before and after each pass; after an exchange with a neighbouring stage and "
     "at the end of a step; there alone; default: messages",
     changed<&HostTimes::blocking>},
    {"compiled", "time", "to launch one kernel of compiled code (training.execution: compiled); default: 5 us",
     changed<&HostTimes::compiled>},
    {"graph_node", "time", "of one kernel in a CUDA graph (training.execution: graphs); default: 1.5 us",
     changed<&HostTimes::graph_node>},
    {"band", "number in [0, 0.95]",
     "how far off they may be, all together, in nine of ten cases; default: 0.5, assumed",
     member<&HostTimes::band, Band>},
};

void write_host(YamlText& out, std::string_view key, const Device& device) {
  const HostTimes& host = device.host;
  if ((host.operation + host.backward.value_or(Time{}) + host.collective + host.skew + host.pass + host.message +
       host.step)
          .value == 0)
    return;
  write_section<&Device::host, kHost>(out, key, device);
}

struct TimesAsLong {
  const char* operator()(double value) const {
    return value >= 1 && value <= 1000 ? "" : "must be at least 1, which means none, at most 1000";
  }
};

constexpr Field<KernelContention> kContention[] = {
    {"multiprocessors", "whole number >= 1", "that the kernels of a collective occupy; default: none",
     changed<&KernelContention::multiprocessors, AtLeast1>},
    {"memory", "number in [1, 1000]",
     "slow-down of memory-bound work while a collective runs, for layers built from operators: 1.15 means 15 % longer; "
     "default: 1",
     member<&KernelContention::memory, TimesAsLong>},
    {"collective", "number in [1, 1000]",
     "slow-down of a collective while the device computes: 1.1 means 10 % longer; default: 1",
     member<&KernelContention::collective, TimesAsLong>},
};

void write_contention(YamlText& out, std::string_view key, const Device& device) {
  if (device.contention.any()) write_section<&Device::contention, kContention>(out, key, device);
}

constexpr Field<Device> kDevice[] = {
    {"name", "text", "for reports; default: the name of its file", member<&Device::name>},
    {"memory", "size",
     "what a program is given of the device in total: on a GPU what CUDA reports, which is less than its nominal size",
     member<&Device::memory>, Need::Required},
    {"reserve", "size",
     "of that, taken by context, communicators and libraries before the model gets any; default: 0 B",
     member<&Device::reserve>},
    {"communicator", "size",
     "that each further group of communicating devices takes (NCCL's buffers); the reserve has one; default: 0 B",
     member<&Device::communicator>},
    {"allocator", "exact | caching",
     "caching: PyTorch's, in blocks of 512 B and from 1 MiB on in segments of 2 MiB; default: exact",
     member<&Device::allocator>},
    {"fragmentation", "number in [0, 1)", "share of what the model holds that is lost between blocks; default: 0",
     member<&Device::fragmentation, Below1>},
    {"spread", "number in [0, 1)",
     "of the speeds of such devices, as a relative standard deviation: every op takes as long as on the slowest of the "
     "plan's devices is expected to be; V100 of one cluster lie within 8 % [Sinha22], which is 0.015; default: 0, all "
     "alike",
     member<&Device::spread, Below1>},
    {"price_per_hour", "number",
     "of one device, in one currency throughout; for `plan --objective cost` and the cost of the whole training",
     read_by_rule<&Device::price_per_hour, kPriceRule>, write_as<&Device::price_per_hour>},
    {"power", "power", "that the device draws at most while it computes (its TDP); for the energy of the training",
     read_by_rule<&Device::power, kPowerRule>, write_as<&Device::power>},
    {"mtbf", "time", "mean time between failures of one device that stop the training, e.g. 50000 h; for the goodput",
     read_by_rule<&Device::mtbf, kMtbfRule>, write_as<&Device::mtbf>},
    {"peak", "map of fp32 | tf32 | fp16 | bf16 | fp8 | fp4 to FLOP rate", "dense peak rates; needed by cost: roofline",
     read_peak, write_peak},
    {"fp8_any_layout", "true | false",
     "products in fp8 read either operand along either side, as Blackwell's do; else each tensor is cast into two "
     "copies; "
     "default: false",
     member<&Device::fp8_any_layout>},
    {"memory_bandwidth", "bandwidth", "of the device's own memory", member<&Device::memory_bandwidth, DeviceRate>},
    {"host_link", "bandwidth",
     "to the memory of its host, each way; for plan.offload_layers, training.offload_optimizer and "
     "training.offload_weights",
     member<&Device::host_link, DeviceRate>},
    {"host_update", "bandwidth",
     "that the host reads and writes in its memory while it updates parameters of one device, or adds up its "
     "gradients; "
     "for training.offload_optimizer and training.offload_weights",
     member<&Device::host_update, DeviceRate>},
    {"launch_overhead", "time", "per scheduled op (explicit and uniform times) or per layer (roofline); default: 0 ns",
     member<&Device::launch_overhead>},
    {"host", "map",
     "what the host spends on issuing work, for layers built from operators (roofline): a layer takes no less time "
     "than "
     "its issuing; default: nothing",
     read_section<&Device::host, kHost>, write_host},
    {"contention", "map",
     "how much computing and the collectives of gradients and weights slow each other while both run; default: not at "
     "all",
     read_section<&Device::contention, kContention>, write_contention},
    {"compute_efficiency", "number in (0, 1]", "share of the peak rate that a layer reaches (roofline); default: 1",
     member<&Device::compute_efficiency, Share>},
    {"memory_efficiency", "number in (0, 1]", "share of the memory bandwidth, likewise; default: 1",
     member<&Device::memory_efficiency, Share>},
    {"efficiency", "map of operator kind to map",
     "by kind (matrix_product, convolution, grouped_convolution, attention, recurrent, memory, permutation of tokens), "
     "for layers built from "
     "operators; permutation: of tokens by their experts; default: compute_efficiency, of memory memory_efficiency, of "
     "permutation memory",
     read_efficiency, write_efficiency},
    {"collectives", "map",
     "how NCCL's collectives run over the links of a node, by size; default: rings at the links' bandwidth and latency",
     read_collectives, write_collectives},
    {"messages", "map",
     "how long a message to another device takes, by size; default: at the links' bandwidth and latency", read_messages,
     write_messages},
    {"multiprocessors", "whole number >= 1", "that run kernels; needed by efficiency tiles and kernels",
     changed<&Device::multiprocessors, AtLeast1>},
    {"virtual_devices", "whole number >= 1",
     "measured: this device is one of so many equal groups of the GPU's SMs; default: 1",
     changed<&Device::virtual_devices, AtLeast1>},
    {"source", "text", "where the figures come from", changed<&Device::source>},
    {"measured", "map", "written by `calibrate --backend cuda`: times that take the place of the shares above",
     read_measured_device, write_measured_device},
};

// ---- links, network -------------------------------------------------------------------------------------------------

constexpr Field<NodeLinks> kLinks[] = {
    {"kind", "ideal | mesh | nvswitch | pcie", "how devices of a node are wired; ideal: transfers take no time",
     member<&NodeLinks::kind>, Need::Required},
    {"bandwidth", "bandwidth", "per direction; needed unless kind: ideal", changed<&NodeLinks::bandwidth, LinkRate>},
    {"latency", "time", "per transfer; default: 0 ns", member<&NodeLinks::latency>},
    {"duplex", "full | half", "half: both directions share the bandwidth; default: full", member<&NodeLinks::duplex>},
    {"peer_access", "true | false", "false: copies go through host memory; default: true",
     member<&NodeLinks::peer_access>},
    {"host_bandwidth", "bandwidth", "of host memory, shared by the copies of a node; default: no limit",
     member<&NodeLinks::host_bandwidth, LinkRate>},
    {"band", "number in [0, 0.95]", "how far off messages may be, in nine of ten cases; default: 0.3, assumed",
     member<&NodeLinks::band, Band>},
};

void read_links(Reader& reader, const At& at, Cluster& cluster) {
  read_fields<NodeLinks>(reader, at, kLinks, cluster.links);
  if (at.yaml.is(Yaml::Type::Map) && cluster.links.kind != LinkKind::Ideal && !at.yaml.find("bandwidth"))
    missing_key(reader, at, "bandwidth", "e.g. 10 GB/s (per direction)");
}

void read_network_kind(Reader& reader, const At& at, Network& network) {
  const std::string* text = scalar(reader, at, "ideal or tree");
  if (!text) return;
  constexpr std::string_view known[] = {"ideal", "tree"};
  if (*text == "ideal" || *text == "tree")
    network.ideal = *text == "ideal";
  else
    reader.errors.add(at.yaml.place, path(at), unknown_name(std::string_view(*text).substr(0, 64), known));
}

constexpr Field<Network> kNetwork[] = {
    {"kind", "ideal | tree", "tree: leaf switches under one spine; default: tree", read_network_kind,
     [](YamlText& out, std::string_view key, const Network& network) {
       out.line(key, network.ideal ? "ideal" : "tree");
     }},
    {"bandwidth", "bandwidth", "per NIC and direction; needed unless kind: ideal",
     changed<&Network::bandwidth, LinkRate>},
    {"latency", "time", "per transfer; default: 0 ns", member<&Network::latency>},
    {"share", "number in (0, 1]",
     "of the bandwidth that collectives and messages reach, where the device states theirs; default: 1",
     changed<&Network::share, Share>},
    {"contention", "number in [0, 1]",
     "likewise: beside the traffic of others, what passes n nodes takes n^contention times as long; default: 0",
     changed<&Network::contention, FromZeroToOne>},
    {"per", "node | device", "who has a NIC of its own; default: node", member<&Network::per>},
    {"duplex", "full | half", "half: both directions share the bandwidth; default: full", member<&Network::duplex>},
    {"oversubscription", "number >= 1", "bandwidth into a leaf switch / bandwidth out of it; default: 1",
     member<&Network::oversubscription, Factor>},
    {"nodes_per_switch", "whole number >= 1", "nodes under one leaf switch; default: 1",
     member<&Network::nodes_per_switch, AtLeast1>},
    {"rails", "true | false",
     "rail-optimised: a leaf switch has the NICs of one place of those nodes alone; needs per: device; default: false",
     changed<&Network::rails>},
    {"band", "number in [0, 0.95]", "how far off its rates may be, in nine of ten cases; default: 0.3, assumed",
     member<&Network::band, Band>},
};

void read_network(Reader& reader, const At& at, Cluster& cluster) {
  Network network;
  read_fields<Network>(reader, at, kNetwork, network);
  if (at.yaml.is(Yaml::Type::Map) && !network.ideal && !at.yaml.find("bandwidth"))
    missing_key(reader, at, "bandwidth", "e.g. 100 Gb/s (per NIC and direction)");
  cluster.network = network;
}

// ---- cluster --------------------------------------------------------------------------------------------------------

constexpr Field<Cluster> kNode[] = {
    {"devices", "whole number >= 1", "in each node", member<&Cluster::devices_per_node, AtLeast1>, Need::Required},
    {"device", "name, path or map", "what stands in every node: configs/devices/<name>.yaml, or its keys here",
     in_map<&Cluster::device, read_device_section, write_device_section>, Need::Required},
    {"host_bandwidth", "bandwidth",
     "that the devices of a node share, evenly, for copies to the memory of their host, and as much for those back: "
     "none "
     "has more than its host_link; default: no limit",
     member<&Cluster::host_bandwidth, LinkRate>},
    {"links", "map", "between the devices of a node; default: {kind: ideal}", read_links,
     write_section<&Cluster::links, kLinks>},
};

struct Speed {
  const char* operator()(double value) const { return value > 0 && value < 1e6 ? "" : "must be more than 0"; }
};

constexpr Field<DeviceClass> kOtherNodes[] = {
    {"nodes", "whole number >= 1", "of this class, behind those before it", member<&DeviceClass::nodes, AtLeast1>,
     Need::Required},
    {"device", "name, path or map", "what stands in each: configs/devices/<name>.yaml, or its keys here",
     in_map<&DeviceClass::device, read_device_section, write_device_section>, Need::Required},
    {"speed", "number > 0",
     "how many times faster than node.device it runs layers with stated times; needed where layers state times",
     member<&DeviceClass::speed, Speed>},
};

void read_other_nodes(Reader& reader, const At& at, Cluster& cluster) {
  if (!is_map(reader, at, "a map of names, e.g. {old: {nodes: 2, device: a100-80g}},")) return;
  if (at.yaml.map.size() >= static_cast<std::size_t>(kMostClasses))
    return reader.errors.add(at.yaml.place, path(at),
                             fmt::format("{} classes of devices in addition to node.device; use at most {}, or put "
                                         "devices that compute alike into one",
                                         at.yaml.map.size(), kMostClasses - 1));
  for (const auto& [key, value] : at.yaml.map) {
    DeviceClass other;
    other.name = key.text;
    other.place = value.place;
    read_fields<DeviceClass>(reader, at.child(key.text, value), kOtherNodes, other);
    cluster.others.push_back(std::move(other));
  }
}

constexpr Field<Cluster> kCluster[] = {
    {"name", "text", "for reports; default: the name of its file", member<&Cluster::name>},
    {"nodes", "whole number >= 1", "as `node` says; default: 1",
     [](Reader& reader, const At& at, Cluster& cluster) {
       if (at.yaml.is(Yaml::Type::Scalar) && at.yaml.scalar == "auto")
         return reader.error(at,
                             "\"auto\" is not a number; write one, or ask how many it takes: pipewright plan SCENARIO "
                             "--nodes auto");
       read_as<&Cluster::nodes, AtLeast1>(reader, at, cluster);
     },
     [](YamlText& out, std::string_view key, const Cluster& cluster) {
       out.line(key, value_text(cluster.nodes_of(0)));
     }},
    {"node", "map", "what every node holds",
     [](Reader& reader, const At& at, Cluster& cluster) { read_fields<Cluster>(reader, at, kNode, cluster); },
     [](YamlText& out, std::string_view key, const Cluster& cluster) {
       out.open(key);
       write_fields<Cluster>(out, kNode, cluster);
       out.close();
     },
     Need::Required},
    {"other_nodes", "map of names to map",
     "nodes with other devices, as many in each and wired alike: up to two classes more; default: none",
     read_other_nodes,
     [](YamlText& out, std::string_view key, const Cluster& cluster) {
       if (cluster.others.empty()) return;
       out.open(key);
       for (const DeviceClass& other : cluster.others) {
         out.open(other.name);
         write_fields<DeviceClass>(out, kOtherNodes, other);
         out.close();
       }
       out.close();
     }},
    {"network", "map", "between nodes; needed when nodes > 1", read_network,
     write_section<&Cluster::network, kNetwork>},
    {"sharing", "max_min | fifo", "how transfers divide a link; default: max_min", member<&Cluster::sharing>},
    {"source", "text", "where the figures come from", changed<&Cluster::source>},
};

// Links are kept one by one: this bounds what a typing error can ask for.
constexpr std::int64_t kMostMeshLinks = 10'000'000;

void check_size(Reader& reader, const At& at, const Cluster& cluster) {
  const std::int64_t nodes = cluster.nodes, devices = cluster.devices_per_node;
  if (nodes < 1 || devices < 1) return;
  const Place place = at.yaml.place;
  if (nodes * devices > kMostDevices)
    return reader.errors.add(
        place, path(at),
        fmt::format("{} nodes of {} devices are more than {} devices; use {}", nodes, devices, kMostDevices,
                    devices > kMostDevices ? "fewer" : fmt::format("at most {} nodes", kMostDevices / devices)));
  if (cluster.links.kind == LinkKind::Mesh && nodes * devices * (devices - 1) > kMostMeshLinks)
    reader.errors.add(place, path(at),
                      fmt::format("a mesh of {} devices in each of {} nodes has {} links, more than {}; use "
                                  "links: {{kind: nvswitch, ...}}",
                                  devices, nodes, nodes * devices * (devices - 1), kMostMeshLinks));
  if (nodes > 1 && !cluster.network)
    reader.errors.add(place, fmt::format("{}.network is missing: {} nodes need one; write network: {{bandwidth: 100 "
                                         "Gb/s, latency: 5 us}}, or {{kind: ideal}}",
                                         path(at), nodes));
}

// A sum that is too large is refused by `check_size`.
int checked_nodes(int nodes, int more) {
  return static_cast<int>(std::min<std::int64_t>(std::int64_t{nodes} + more, 1 << 30));
}

std::string file_stem(const Yaml& yaml, const char* otherwise) {
  if (!yaml.place.source || !yaml.place.source->is_file) return otherwise;
  const std::string& file = yaml.place.source->name;
  const std::size_t begin = file.rfind('/') + 1, end = file.rfind('.');
  return file.substr(begin, end == std::string::npos || end < begin ? end : end - begin);
}

// Both stated by the same file or command line: of a memory that is set smaller for a question (`--set`) the preset's
// reserve is no error, but leaves no room.
bool from_one_place(const Yaml& map, std::string_view a, std::string_view b) {
  const Yaml *first = map.find(a), *second = map.find(b);
  return first != nullptr && second != nullptr && first->place.source == second->place.source;
}

}  // namespace

void read_device_section(Reader& reader, const At& at, Device& device) {
  follow(reader, at, "device", [&](const At& here) {
    const bool sourced = std::exchange(reader.sourced, true);
    device.place = here.yaml.place;
    read_fields<Device>(reader, here, kDevice, device);
    if (device.name.empty()) device.name = at.yaml.is(Yaml::Type::Scalar) ? file_stem(here.yaml, "device") : "device";
    device.sources = below(reader.sources, path(at));
    device.provenances = below(reader.provenances, path(at));
    const auto by_size = [](const auto& each) { return each && (each->tiles || !each->kernels.empty()); };
    if (device.multiprocessors == 0 && std::ranges::any_of(device.efficiency, by_size))
      reader.errors.add(here.yaml.place, path(at),
                        "efficiency by size (tiles, kernels) needs multiprocessors; give their number");
    if (const int held = device.contention.multiprocessors; held > 0 && held >= device.multiprocessors)
      reader.errors.add(here.yaml.place, path(at) + ".contention.multiprocessors",
                        device.multiprocessors == 0 ? "needs the multiprocessors of the device; give their number"
                                                    : fmt::format("must be below the {} multiprocessors of the device",
                                                                  device.multiprocessors));
    if (device.reserve > device.memory && from_one_place(here.yaml, "memory", "reserve"))
      reader.errors.add(here.yaml.place, path(at) + ".reserve", "is more than memory; lower it");
    reader.sourced = sourced;
  });
}

void read_cluster_section(Reader& reader, const At& at, Cluster& cluster) {
  follow(reader, at, "cluster", [&](const At& here) {
    const bool sourced = std::exchange(reader.sourced, true);
    cluster.place = here.yaml.place;
    read_fields<Cluster>(reader, here, kCluster, cluster);
    if (cluster.name.empty())
      cluster.name = at.yaml.is(Yaml::Type::Scalar) || !at.parent ? file_stem(here.yaml, "cluster") : "cluster";
    cluster.sources = below(reader.sources, path(at));
    cluster.provenances = below(reader.provenances, path(at));
    const auto of_a_device = [](const auto& entry) {
      const bool other = entry.first.starts_with("other_nodes.") && entry.first.find(".device.") != std::string::npos;
      return other || entry.first.starts_with("node.device.");
    };
    std::erase_if(cluster.sources, of_a_device);
    std::erase_if(cluster.provenances, of_a_device);
    for (const DeviceClass& other : cluster.others)
      cluster.nodes = checked_nodes(cluster.nodes, other.nodes);
    if (here.yaml.is(Yaml::Type::Map)) check_size(reader, here, cluster);
    reader.sourced = sourced;
  });
}

void write_device_section(YamlText& out, const Device& device) {
  write_fields<Device>(out, kDevice, device);
}
void write_cluster_section(YamlText& out, const Cluster& cluster) {
  write_fields<Cluster>(out, kCluster, cluster);
}

std::vector<SectionDoc> cluster_docs() {
  std::vector<SectionDoc> docs = {document<Cluster>("cluster", kCluster),
                                  document<Cluster>("cluster.node", kNode),
                                  document<DeviceClass>("cluster.other_nodes.<name>", kOtherNodes),
                                  document<NodeLinks>("cluster.node.links", kLinks),
                                  document<Network>("cluster.network", kNetwork),
                                  document<Device>("device", kDevice),
                                  document<HostTimes>("device.host", kHost),
                                  document<KernelContention>("device.contention", kContention)};
  for (SectionDoc& doc : kernel_curve_docs())
    docs.push_back(std::move(doc));
  for (SectionDoc& doc : measured_device_docs())
    docs.push_back(std::move(doc));
  return docs;
}

}  // namespace pipewright::io
