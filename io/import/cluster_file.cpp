// What the readers of topologies found, as a `cluster:` block.
#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "core/check.hpp"
#include "io/fields.hpp"
#include "io/import/topology_file.hpp"
#include "io/quantity.hpp"
#include "io/quote.hpp"

namespace pipewright {
namespace {

// By the beginning of a preset's name: GB/s of one NVLink and direction, how many a GPU has, generation of its slot.
struct KnownGpu {
  std::string_view name;
  double link;  // [NVLinkRates]
  int links, pcie;
};
constexpr std::array<KnownGpu, 8> kKnown = {{{"p100", 20, 4, 3},
                                             {"v100", 25, 6, 3},
                                             {"a100", 25, 12, 4},
                                             {"h100", 25, 18, 5},
                                             {"h200", 25, 18, 5},
                                             {"b200", 50, 18, 5},
                                             {"rtx-3090", 14.0625, 4, 4},
                                             {"rtx-4090", 0, 0, 4}}};
constexpr int kMostLinks = 18;  // of any GPU known here
constexpr std::size_t kShownGpus = 16;

const KnownGpu* known_gpu(const std::string& device) {
  const auto found = std::find_if(kKnown.begin(), kKnown.end(),
                                  [&](const KnownGpu& gpu) { return std::string_view(device).starts_with(gpu.name); });
  return found == kKnown.end() ? nullptr : &*found;
}

struct Wiring {  // of pairs of GPUs
  int least = 0, most = 0;
  std::size_t joined = 0, pairs = 0;
};

Wiring wiring_of(const MachineTopology& machine) {
  Wiring wiring;
  for (std::size_t a = 0; a < machine.gpus.size(); ++a)
    for (std::size_t b = a + 1; b < machine.gpus.size(); ++b) {
      const int links = machine.nvlinks[a][b];
      wiring.least = wiring.pairs == 0 ? links : std::min(wiring.least, links);
      wiring.most = std::max(wiring.most, links);
      wiring.joined += links > 0 ? 1 : 0;
      ++wiring.pairs;
    }
  return wiring;
}

class ClusterText {
 public:
  ClusterText(MachineTopology machine, const TopologyOptions& options)
      : machine_(std::move(machine)),
        options_(options),
        device_(options.device.empty() ? machine_.device : options.device) {
    if (device_.empty())
      throw InputError(machine_.source.file +
                       ": does not say which GPUs they are; add --device NAME (pipewright show devices has the names)");
    if (machine_.gpus.size() > 1'000) throw InputError(machine_.source.file + ": more than 1000 GPUs in one machine");
    known_ = known_gpu(device_);
  }

  std::string text() {
    const std::string links = links_text(), network = network_text();
    std::string text = as_comment(machine_.source) + matrix_text();
    text += fmt::format("cluster:\n  nodes: {}\n  node:\n    devices: {}\n    device: {}\n{}{}", options_.nodes,
                        machine_.gpus.size(), yaml_string(device_), links, network);
    return text;
  }

 private:
  void assume(const std::string& line) { machine_.source.assumed.push_back(line); }

  Bandwidth nvlink() {
    if (options_.nvlink) return *options_.nvlink;
    if (machine_.nvlink_rate) return *machine_.nvlink_rate;
    if (known_ != nullptr && known_->link > 0) {
      const Bandwidth rate{known_->link * 1e9};
      assume(fmt::format("an NVLink of {} carries {} per direction", device_, to_text(rate)));
      return rate;
    }
    throw InputError(
        fmt::format("{}: what an NVLink of {} carries is not known; add --nvlink RATE, of one link and "
                    "direction, e.g. --nvlink '25 GB/s'",
                    machine_.source.file, device_));
  }

  Bandwidth pcie() {
    if (options_.pcie) return *options_.pcie;
    if (machine_.pcie_rate) return *machine_.pcie_rate;
    constexpr std::array<double, 6> kTransfers = {0, 2.5, 5, 8, 16, 32};
    if (known_ != nullptr) {
      assume(fmt::format("{} sits in a slot of PCIe {} with 16 lanes", device_, known_->pcie));
      return *pcie_rate(kTransfers[static_cast<std::size_t>(known_->pcie)], 16);
    }
    throw InputError(
        fmt::format("{}: the speed of the slots is not known; add --pcie RATE, of a GPU and direction, "
                    "e.g. --pcie '31.5 GB/s'",
                    machine_.source.file));
  }

  // More links than a GPU has, if each pair had its own: then they lead to a switch.
  bool switched(const Wiring& wiring) const {
    if (std::all_of(machine_.switch_links.begin(), machine_.switch_links.end(), [](int links) { return links > 0; }))
      return true;
    const int most = known_ != nullptr ? known_->links : kMostLinks;
    return wiring.least * static_cast<int>(machine_.gpus.size() - 1) > most;
  }

  std::string links_text() {
    if (machine_.gpus.size() == 1) return {};
    const Wiring wiring = wiring_of(machine_);
    const auto block = [](const char* kind, Bandwidth rate, const std::string& why) {
      return fmt::format("    links:\n      kind: {}\n      bandwidth: {{value: {}, source: {}}}\n", kind,
                         to_text(rate), yaml_string(why));
    };
    machine_.source.absent.emplace_back("latencies; links and network have none here");
    if (wiring.joined == wiring.pairs) {
      const Bandwidth link = nvlink(), rate{link.value * wiring.least};
      if (wiring.least < wiring.most)
        assume(fmt::format("pairs have {} to {} NVLinks, all are priced as the slowest", wiring.least, wiring.most));
      return block(switched(wiring) ? "nvswitch" : "mesh", rate,
                   fmt::format("{} NVLinks of {} per direction{}", wiring.least, to_text(link),
                               options_.nvlink ? ", as --nvlink says" : ""));
    }
    if (wiring.joined > 0)
      assume(
          fmt::format("{} of {} pairs have NVLinks, which one kind of links cannot say: all are priced as PCIe; for "
                      "stages on neighbours that have them write kind: mesh and their rate",
                      wiring.joined, wiring.pairs));
    assume("GPUs behind one PCIe switch have its whole rate each, whatever the others do");
    return block("pcie", pcie(),
                 options_.pcie ? "PCIe, per GPU and direction, as --pcie says" : "PCIe, per GPU and direction");
  }

  // Cards behind a GPU's own switch, all of them where no GPU has any.
  std::string network_text() {
    std::set<std::size_t> close;
    bool everybody = !machine_.near.empty();
    for (const auto& cards : machine_.near) {
      everybody &= !cards.empty();
      close.insert(cards.begin(), cards.end());
    }
    std::vector<std::size_t> used(close.begin(), close.end());
    if (used.empty())
      for (std::size_t i = 0; i < machine_.cards.size(); ++i)
        used.push_back(i);
    if (options_.nodes > 1 && used.empty() && !options_.nic)
      throw InputError(machine_.source.file + ": has no network card; add --nic RATE, e.g. --nic '400 Gb/s'");
    double all = 0;
    bool rates = true;
    for (const std::size_t i : used) {
      const auto rate = options_.nic ? options_.nic : machine_.cards[i].rate;
      rates &= rate.has_value();
      all += rate ? rate->value : 0;
    }
    if (used.empty() && options_.nic) all = options_.nic->value;
    if (!rates && options_.nodes > 1)
      throw InputError(machine_.source.file +
                       ": does not say what its network cards carry; add --nic RATE, of one of them, e.g. --nic '400 "
                       "Gb/s'");
    if (!rates || all <= 0) return {};
    const std::size_t gpus = machine_.gpus.size();
    const bool each = everybody && used.size() >= gpus;
    const Bandwidth rate{each ? all / static_cast<double>(gpus) : all};
    if (options_.nodes == 1) machine_.source.absent.emplace_back("how many such nodes there are (--nodes N)");
    if (used.size() < machine_.cards.size())
      assume(fmt::format("of {} network cards the {} behind a GPU's own PCIe switch carry its traffic",
                         machine_.cards.size(), used.size()));
    return fmt::format("  network:\n    bandwidth: {{value: {}, source: {}}}\n    per: {}\n", to_text(rate),
                       yaml_string(cards_text(used, each)), each ? "device" : "node");
  }

  // "8 network cards per node of 50 GB/s each, as --nic says"; of all GPUs, where a device has its share of them.
  std::string cards_text(const std::vector<std::size_t>& used, bool each_gpu) const {
    if (used.empty())
      return fmt::format("one network card per node of {}, as --nic says; the file names none", to_text(*options_.nic));
    std::set<std::string> rates;
    for (const std::size_t i : used)
      rates.insert(to_text(options_.nic ? *options_.nic : *machine_.cards[i].rate));
    std::string text = fmt::format("{} network card{} per node of {}", used.size(), used.size() > 1 ? "s" : "",
                                   fmt::join(rates, " or "));
    if (used.size() > 1 && rates.size() == 1) text += " each";
    text += options_.nic ? ", as --nic says" : ", as the file says";
    return each_gpu ? text + fmt::format(", shared by {} GPUs", machine_.gpus.size()) : text;
  }

  // A row of the matrix as a comment.
  static std::string row_text(const std::string& name, const std::vector<std::string>& cells, std::size_t count) {
    std::string text = fmt::format("{:<6}", name);
    for (std::size_t i = 0; i < count; ++i)
      text += fmt::format(" {:<6}", cells[i]);
    return comment(text.substr(0, text.find_last_not_of(' ') + 1));
  }

  // The matrix as a comment, for whoever looks it over.
  std::string matrix_text() const {
    const std::size_t shown = std::min(machine_.gpus.size(), kShownGpus);
    std::string text = comment("") + row_text("", machine_.gpus, shown);
    for (std::size_t a = 0; a < shown; ++a)
      text += row_text(machine_.gpus[a], machine_.by[a], shown);
    if (shown < machine_.gpus.size()) text += comment(fmt::format("and {} GPUs more", machine_.gpus.size() - shown));
    for (std::size_t i = 0; i < std::min(machine_.cards.size(), 2 * kShownGpus); ++i)
      text += comment(fmt::format("network card {}{}", machine_.cards[i].name,
                                  machine_.cards[i].rate ? ": " + to_text(*machine_.cards[i].rate) : ""));
    return text;
  }

  MachineTopology machine_;
  const TopologyOptions& options_;
  std::string device_;
  const KnownGpu* known_ = nullptr;
};

}  // namespace

std::string cluster_file(MachineTopology topology, const TopologyOptions& options) {
  return ClusterText(std::move(topology), options).text();
}

}  // namespace pipewright
