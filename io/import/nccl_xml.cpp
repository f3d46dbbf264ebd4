// NCCL_TOPO_DUMP_FILE, as NCCL writes it:
//
//   <system version="1">
//     <cpu numaid="0" ...>
//       <pci busid="0000:16:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">      a switch
//         <pci busid="0000:18:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed=... link_width="16">
//           <gpu dev="0" sm="90" rank="0" gdr="1">
//             <nvlink target="0000:07:00.0" count="5" tclass="0x068000"/>            class of the target: an NVSwitch
//           </gpu>
//         </pci>
//         <pci busid="0000:19:00.0" ...> <nic> <net name="mlx5_0" dev="0" speed="400000" port="1" .../> </nic> </pci>
//
// speed is in Mb/s. Read by expat, which knows lines and guards against documents that grow when they are read.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <string_view>

#include <expat.h>
#include <fmt/format.h>

#include "io/errors.hpp"
#include "io/import/topology_file.hpp"
#include "io/quantity.hpp"
#include "io/read_file.hpp"
#include "io/utf8.hpp"

namespace pipewright {
namespace {

constexpr std::size_t kDeepest = 64, kMostGpus = 1024, kMostCards = 1024;
constexpr std::string_view kSwitchClass = "0x068000", kGpuClass = "0x0302";

// Device numbers of PCI vendor 0x10de and our presets, [PciIds].
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kPresets = {{
    {"0x15f8", "p100-pcie-16g"},
    {"0x15f9", "p100-sxm2-16g"},
    {"0x1b38", "p40-pcie-24g"},
    {"0x1db1", "v100-sxm2-16g"},
    {"0x1db4", "v100-pcie-16g"},
    {"0x1db5", "v100-sxm2-32g"},
    {"0x20b0", "a100-sxm-40g"},
    {"0x20b2", "a100-sxm-80g"},
    {"0x2204", "rtx-3090-24g"},
    {"0x2330", "h100-sxm-80g"},
    {"0x2331", "h100-pcie-80g"},
    {"0x2335", "h200-sxm-141g"},
    {"0x2684", "rtx-4090-24g"},
    {"0x2901", "b200-sxm-180g"},
}};

// GB/s of one NVLink and direction by compute capability, [NVLinkRates].
constexpr std::array<std::pair<int, double>, 7> kLinkRates = {
    {{60, 20}, {70, 25}, {80, 25}, {86, 14.0625}, {90, 25}, {100, 50}, {103, 50}}};

struct Gpu {
  std::string name, bus;
  int sm = 0;
  std::string device;  // PCI device number
  std::optional<Bandwidth> slot;
  std::vector<std::string> switches;  // bus numbers of the PCIe switches above it, outermost first
  std::map<std::string, int> links;   // to other GPUs, by their bus number
  int switch_links = 0;
};

struct Card {
  NetworkCard card;
  std::vector<std::string> switches;
};

struct Slot {  // a <pci> that is open
  std::string bus, device;
  std::optional<Bandwidth> rate;
};

std::string_view in_words(XML_Error error) {
  switch (error) {
    case XML_ERROR_NO_ELEMENTS:
    case XML_ERROR_UNCLOSED_TOKEN: return "it ends early, so the file may be cut off";
    case XML_ERROR_TAG_MISMATCH: return "this tag closes another one than was opened";
    case XML_ERROR_DUPLICATE_ATTRIBUTE: return "an attribute stands twice in one tag";
    case XML_ERROR_UNDEFINED_ENTITY: return "an & stands for nothing that is known; write &amp;";
    case XML_ERROR_INVALID_TOKEN:
    case XML_ERROR_PARTIAL_CHAR: return "a character stands where there can be none";
    case XML_ERROR_JUNK_AFTER_DOC_ELEMENT: return "something follows the end of the outermost tag";
    case XML_ERROR_NO_MEMORY: throw std::bad_alloc();
    default: return "it cannot be read from here on";
  }
}

class Document {
 public:
  Document(const std::string& file) : parser_(XML_ParserCreate(nullptr), XML_ParserFree), file_(file) {
    if (!parser_) throw std::bad_alloc();
    XML_SetUserData(parser_.get(), this);
    XML_SetElementHandler(parser_.get(), begin_element, end_element);
    XML_SetStartDoctypeDeclHandler(parser_.get(), begin_doctype);
  }

  void parse(const std::string& text) {
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    if (text.empty()) throw InputError(file_ + ": is empty; name what NCCL wrote to NCCL_TOPO_DUMP_FILE");
    for (std::size_t begin = 0; begin < text.size(); begin += kPiece) {
      const std::size_t count = std::min(kPiece, text.size() - begin);
      const bool last = begin + count == text.size();
      const XML_Status status = XML_Parse(parser_.get(), text.data() + begin, static_cast<int>(count), last);
      if (failure_) std::rethrow_exception(failure_);
      if (status != XML_STATUS_OK)
        throw InputError(here(), fmt::format("not valid XML: {}; name what NCCL wrote to NCCL_TOPO_DUMP_FILE",
                                             in_words(XML_GetErrorCode(parser_.get()))));
    }
  }

  std::vector<Gpu> gpus;
  std::vector<Card> cards;

 private:
  // Nothing may be thrown through expat, which is C.
  template <class Step>
  static void guarded(void* user, Step step) {
    auto& document = *static_cast<Document*>(user);
    if (document.failure_) return;
    try {
      step(document);
    } catch (...) {
      document.failure_ = std::current_exception();
      XML_StopParser(document.parser_.get(), XML_FALSE);
    }
  }
  static void begin_element(void* user, const XML_Char* name, const XML_Char** attributes) {
    guarded(user, [&](Document& document) { document.begin(name, attributes); });
  }
  static void end_element(void* user, const XML_Char* name) {
    guarded(user, [&](Document& document) { document.end(name); });
  }
  static void begin_doctype(void* user, const XML_Char*, const XML_Char*, const XML_Char*, int) {
    guarded(user, [](Document& document) {
      throw InputError(document.here(), "a document type, which NCCL does not write; take it out");
    });
  }

  Place here() const {
    return {file_, static_cast<int>(std::min<XML_Size>(XML_GetCurrentLineNumber(parser_.get()), 1 << 30)),
            static_cast<int>(std::min<XML_Size>(XML_GetCurrentColumnNumber(parser_.get()), 1 << 30)) + 1};
  }

  static std::string attribute(const XML_Char** attributes, std::string_view name) {
    for (; *attributes != nullptr; attributes += 2)
      if (name == attributes[0]) return attributes[1];
    return {};
  }

  std::int64_t count(std::string_view what, const std::string& text, std::int64_t most) const {
    const Parsed<std::int64_t> number = parse_count(text);
    if (!number.value || *number.value > most)
      throw InputError(here(), fmt::format("{}: {} is no whole number from 0 to {}", what, in_quotes(text), most));
    return *number.value;
  }

  // "32.0 GT/s PCIe", "16 GT/s", "": a virtual machine does not tell.
  std::optional<Bandwidth> slot_rate(const XML_Char** attributes) const {
    const std::string speed = attribute(attributes, "link_speed"), width = attribute(attributes, "link_width");
    const std::size_t unit = speed.find(" GT/s");
    if (unit == std::string::npos || width.empty() || width == "0") return std::nullopt;
    const Parsed<double> rate = parse_number(std::string_view(speed).substr(0, unit));
    if (!rate.value) throw InputError(here(), fmt::format("link_speed: {} is no rate", in_quotes(speed)));
    return pcie_rate(*rate.value, count("link_width", width, 64));
  }

  std::vector<std::string> open_switches() const {
    std::vector<std::string> buses;
    for (std::size_t i = 0; i + 1 < slots_.size(); ++i)
      buses.push_back(slots_[i].bus);
    return buses;
  }

  void begin(std::string_view name, const XML_Char** attributes) {
    if (depth_ == 0 && name != "system")
      throw InputError(
          here(), fmt::format("{} instead of <system>; name what NCCL wrote to NCCL_TOPO_DUMP_FILE", in_quotes(name)));
    if (++depth_ > kDeepest) throw InputError(here(), fmt::format("elements are more than {} deep", kDeepest));
    if (name == "pci") {
      slots_.push_back({attribute(attributes, "busid"), attribute(attributes, "device"), slot_rate(attributes)});
    } else if (name == "gpu") {
      gpu(attributes);
    } else if (name == "nvlink" && in_gpu_) {
      nvlink(attributes);
    } else if (name == "net") {
      net(attributes);
    }
  }

  void end(std::string_view name) {
    --depth_;
    if (name == "pci") slots_.pop_back();
    if (name == "gpu") in_gpu_ = false;
  }

  void gpu(const XML_Char** attributes) {
    if (gpus.size() == kMostGpus) throw InputError(here(), fmt::format("more than {} GPUs", kMostGpus));
    Gpu gpu;
    gpu.name = "GPU" + std::to_string(gpus.size());
    gpu.sm = static_cast<int>(count("sm", attribute(attributes, "sm"), 10'000));
    gpu.switches = open_switches();
    if (!slots_.empty()) gpu.bus = slots_.back().bus, gpu.device = slots_.back().device, gpu.slot = slots_.back().rate;
    gpus.push_back(std::move(gpu));
    in_gpu_ = true;
  }

  void nvlink(const XML_Char** attributes) {
    const auto links = static_cast<int>(count("count", attribute(attributes, "count"), 64));
    const std::string target = attribute(attributes, "target"), kind = attribute(attributes, "tclass");
    if (kind.starts_with(kGpuClass))
      gpus.back().links[target] += links;
    else if (kind == kSwitchClass || target.starts_with("fffffff"))
      gpus.back().switch_links += links;
  }

  void net(const XML_Char** attributes) {
    if (cards.size() == kMostCards) throw InputError(here(), fmt::format("more than {} network cards", kMostCards));
    Card card;
    card.card.name = one_line(attribute(attributes, "name").substr(0, 64));
    if (const std::string speed = attribute(attributes, "speed"); !speed.empty())
      if (const std::int64_t megabits = count("speed", speed, 100'000'000); megabits > 0)
        card.card.rate = Bandwidth{static_cast<double>(megabits) * 1e6 / 8};
    card.switches = open_switches();
    cards.push_back(std::move(card));
  }

  std::unique_ptr<std::remove_pointer_t<XML_Parser>, decltype(&XML_ParserFree)> parser_;
  const std::string& file_;
  std::exception_ptr failure_;
  std::size_t depth_ = 0;
  std::vector<Slot> slots_;
  bool in_gpu_ = false;
};

// The same PCIe switch right under a CPU.
bool near(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return !a.empty() && !b.empty() && a.front() == b.front() && !a.front().empty();
}

std::optional<Bandwidth> link_rate(int sm) {
  const auto found =
      std::find_if(kLinkRates.begin(), kLinkRates.end(), [&](const auto& each) { return each.first == sm; });
  if (found == kLinkRates.end()) return std::nullopt;
  return Bandwidth{found->second * 1e9};
}

std::string preset_of(const std::vector<Gpu>& gpus) {
  for (const Gpu& gpu : gpus)
    if (gpu.device != gpus.front().device) return {};
  const auto found = std::find_if(kPresets.begin(), kPresets.end(),
                                  [&](const auto& each) { return each.first == gpus.front().device; });
  return found == kPresets.end() ? std::string() : std::string(found->second);
}

}  // namespace

std::optional<Bandwidth> pcie_rate(double gigatransfers, std::int64_t lanes) {
  constexpr std::array<double, 5> kRates = {2.5, 5, 8, 16, 32};
  if (lanes < 1 || std::find(kRates.begin(), kRates.end(), gigatransfers) == kRates.end()) return std::nullopt;
  const double payload = gigatransfers < 8 ? 8.0 / 10 : 128.0 / 130;
  return Bandwidth{std::floor(gigatransfers * 1e9 * static_cast<double>(lanes) * payload / 8)};
}

MachineTopology parse_nccl_xml(const std::string& text, const std::string& file) {
  Document document(file);
  document.parse(text);
  if (document.gpus.empty())
    throw InputError(Place{file, 0, 0}, "has no <gpu>; name what NCCL wrote to NCCL_TOPO_DUMP_FILE");
  MachineTopology machine;
  const std::vector<Gpu>& gpus = document.gpus;
  for (const Gpu& gpu : gpus) {
    machine.gpus.push_back(gpu.name);
    machine.switch_links.push_back(gpu.switch_links);
    std::vector<int>& counts = machine.nvlinks.emplace_back();
    std::vector<std::string>& classes = machine.by.emplace_back();
    for (const Gpu& other : gpus) {
      const auto direct = gpu.links.find(other.bus);
      int links = direct == gpu.links.end() || &gpu == &other ? 0 : direct->second;
      if (links == 0 && &gpu != &other) links = std::min(gpu.switch_links, other.switch_links);
      counts.push_back(std::min(links, 64));
      classes.push_back(&gpu == &other                       ? "X"
                        : links > 0                          ? fmt::format("NV{}", std::min(links, 64))
                        : near(gpu.switches, other.switches) ? "PIX"
                                                             : "SYS");
    }
    std::vector<std::size_t>& close = machine.near.emplace_back();
    for (std::size_t i = 0; i < document.cards.size(); ++i)
      if (near(gpu.switches, document.cards[i].switches)) close.push_back(i);
    if (gpu.slot && (!machine.pcie_rate || gpu.slot->value < machine.pcie_rate->value)) machine.pcie_rate = gpu.slot;
  }
  for (const Card& card : document.cards)
    machine.cards.push_back(card.card);
  if (std::all_of(gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return gpu.sm == gpus.front().sm; }))
    machine.nvlink_rate = link_rate(gpus.front().sm);
  machine.device = preset_of(gpus);
  return machine;
}

MachineTopology read_nccl_xml(const std::string& path) {
  MachineTopology machine = parse_nccl_xml(read_file(path), path == "-" ? "standard input" : path);
  machine.source = source_of(path, "NCCL topology");
  if (machine.cards.empty()) machine.source.absent.emplace_back("network cards");
  return machine;
}

}  // namespace pipewright
