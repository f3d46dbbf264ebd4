#include "io/read/read_efficiency.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/folds.hpp"
#include "io/text/quote.hpp"
#include "io/yaml/value_rules.hpp"

namespace pipewright::io {
namespace {

struct Lost {
  const char* operator()(double value) const { return value >= 0 && value <= 1.5 ? "" : "must be in [0, 1.5]"; }
};
constexpr Field<ProductCurve> kTiles[] = {
    {"share", "number in (0, 1]", "of the peak: whole tiles of 256 x 128, a long sum, a cold device",
     member<&ProductCurve::share, Share>, Need::Required},
    {"fill", "number >= 0", "terms of the sum that filling and draining a tile costs", member<&ProductCurve::fill>,
     Need::Required},
    {"launch", "number >= 0", "us, of every call", member<&ProductCurve::launch>, Need::Required},
    {"operands", "number in (0, 1]", "share of the memory bandwidth at which the three matrices move",
     member<&ProductCurve::operands, Share>, Need::Required},
    {"tile_128x128", "number in (0, 1]", "rate of such tiles over that of 256 x 128; default: 1",
     member<&ProductCurve::tile_128x128, Share>},
    {"tile_128x64", "number in (0, 1]", "likewise, of 64 x 128, too; default: 1",
     member<&ProductCurve::tile_128x64, Share>},
    {"tile_64x64", "number in (0, 1]", "likewise; default: 1", member<&ProductCurve::tile_64x64, Share>},
    {"split", "number >= 0", "us that dividing the sum among multiprocessors costs; default: 0",
     member<&ProductCurve::split>},
    {"waves", "number in [0, 1]",
     "1: the last wave of tiles takes as long as a full one; 0: tiles are balanced over all multiprocessors; default: "
     "1",
     member<&ProductCurve::waves, FromZeroToOne>},
    {"slowdown", "number >= 0", "large products take up to this share longer, as the clock falls; default: 0",
     member<&ProductCurve::slowdown>},
    {"slowdown_half", "number > 0", "TFLOP of a product that shows half of it; default: 1",
     member<&ProductCurve::slowdown_half, Positive>},
    {"sustained", "number > 0", "rate in a long training over that of a short measurement; default: 1",
     member<&ProductCurve::sustained, Positive>},
};

constexpr Field<AttentionCurve> kCurve[] = {
    {"share", "number in (0, 1]", "of the peak", member<&AttentionCurve::share, Share>, Need::Required},
    {"start", "number >= 0", "blocks of 128 keys that a block of 128 rows costs in addition to its own",
     member<&AttentionCurve::start>, Need::Required},
    {"tail", "number in [0, 1]", "share of the longest row that is left when all others are done",
     member<&AttentionCurve::tail, FromZeroToOne>, Need::Required},
    {"launch", "number >= 0", "us, of every call", member<&AttentionCurve::launch>, Need::Required},
};

template <AttentionCurve AttentionKernel::*Member>
void read_curve(Reader& reader, const At& at, AttentionKernel& kernel) {
  if (is_map(reader, at, "a map, e.g. {share: 0.5, start: 1, tail: 0.25, launch: 5}"))
    read_fields<AttentionCurve>(reader, at, kCurve, kernel.*Member);
}
template <AttentionCurve AttentionKernel::*Member>
void write_curve(YamlText& out, std::string_view key, const AttentionKernel& kernel) {
  out.line(key, flow(kCurve, kernel.*Member));
}

constexpr Field<AttentionKernel> kKernel[] = {
    {"kernel", "fa2 | fa3 | cudnn", "FlashAttention 2 or 3, or cuDNN's", member<&AttentionKernel::kernel>,
     Need::Required},
    {"head_size", "whole number >= 1", "another one takes the nearest of its kernel",
     member<&AttentionKernel::head_size, AtLeast1>, Need::Required},
    {"forward", "map", "see device.efficiency.<kind>.kernels[].forward", read_curve<&AttentionKernel::forward>,
     write_curve<&AttentionKernel::forward>, Need::Required},
    {"backward", "map", "likewise, with 2.5 times the work of the forward", read_curve<&AttentionKernel::backward>,
     write_curve<&AttentionKernel::backward>, Need::Required},
    {"band", "number in [0, 0.95]", "of both, as that of the kind, which is the default",
     member<&AttentionKernel::band, Band>},
    {"provenance", "assumed | published | measured", "how they are known", member<&AttentionKernel::provenance>,
     Need::Required},
    {"source", "text", "where they come from", changed<&AttentionKernel::source>, Need::Required},
};

constexpr Field<SwitchCurve> kSwitch[] = {
    {"members", "whole number >= 1", "of a group, at least", member<&SwitchCurve::members, AtLeast1>, Need::Required},
    {"start", "number >= 0", "us", member<&SwitchCurve::start>, Need::Required},
    {"hop", "number >= 0", "us, times the binary logarithm of the members", member<&SwitchCurve::hop>, Need::Required},
    {"share", "number in (0, 1]", "of the links' bandwidth, which a ring's 2 (n-1)/n of the bytes pass",
     member<&SwitchCurve::share, Share>, Need::Required},
};

constexpr Field<MessageCurve> kMessages[] = {
    {"links", "ideal | mesh | nvswitch | pcie",
     "over which they were measured; over others the links' bandwidth holds; default: nvswitch",
     changed<&MessageCurve::links>},
    {"start", "number >= 0", "us, of every message", member<&MessageCurve::start>, Need::Required},
    {"small", "number in (0, 1]", "share of the links' bandwidth that small messages reach",
     member<&MessageCurve::small, Share>, Need::Required},
    {"middle", "number >= 0", "us that messages of medium size take beside the start, whatever their size",
     member<&MessageCurve::middle>, Need::Required},
    {"large", "number in (0, 1]", "share of the links' bandwidth that large messages reach",
     member<&MessageCurve::large, Share>, Need::Required},
    {"band", "number in [0, 0.95]", "how far off they may be; default: 0", member<&MessageCurve::band, Band>},
    {"provenance", "assumed | published | measured", "how they are known", member<&MessageCurve::provenance>,
     Need::Required},
    {"source", "text", "where they come from", changed<&MessageCurve::source>, Need::Required},
};

constexpr Field<AllToAllWay> kAllToAll[] = {
    {"start", "number >= 0", "us", member<&AllToAllWay::start>, Need::Required},
    {"hop", "number >= 0", "us, for each other member; default: 0", member<&AllToAllWay::hop>},
    {"share", "number in (0, 1]", "of the links' bandwidth, which all bytes but a device's own pass",
     member<&AllToAllWay::share, Share>, Need::Required},
    {"lost", "number in [0, 1.5]", "of it, over the members; default: 0", member<&AllToAllWay::lost, Lost>},
};

// A list of maps, written on one line.
template <auto Member, const auto& fields>
void write_in_line(YamlText& out, std::string_view key, const CollectiveCurve& curve) {
  auto text = text_over(curve.*Member, [&](const auto& each) { return flow(fields, each); });
  if (!text.empty()) out.line(key, "[" + text + "]");
}

constexpr Field<CollectiveCurve> kCollectiveFields[] = {
    {"start", "number >= 0", "us, of small messages", member<&CollectiveCurve::start>, Need::Required},
    {"hop", "number >= 0", "us, per step of a ring", member<&CollectiveCurve::hop>, Need::Required},
    {"small", "number in (0, 1]", "share of the links' bandwidth that small messages reach",
     member<&CollectiveCurve::small, Share>, Need::Required},
    {"middle", "number in (0, 1]", "likewise, messages of medium size", member<&CollectiveCurve::middle, Share>,
     Need::Required},
    {"large_start", "number >= 0", "us, of large messages", member<&CollectiveCurve::large_start>, Need::Required},
    {"large_hop", "number >= 0", "us, per step of a ring", member<&CollectiveCurve::large_hop>, Need::Required},
    {"large", "number in (0, 1]", "share of the bandwidth that large messages reach in a large group",
     member<&CollectiveCurve::large, Share>, Need::Required},
    {"lost_gather", "number in [0, 1]", "of it, over the members: gathers and scatters of small groups",
     member<&CollectiveCurve::lost_gather, FromZeroToOne>, Need::Required},
    {"lost_reduce", "number in [0, 1]", "likewise, all-reduces", member<&CollectiveCurve::lost_reduce, FromZeroToOne>,
     Need::Required},
    {"ll128", "number > 0", "GB/s of NCCL's protocol LL128 through one NIC; default: 20",
     member<&CollectiveCurve::ll128, Positive>},
    {"in_switch", "list of maps",
     "all-reduces that a switch computes; see device.collectives.in_switch[]; default: none",
     read_maps<&CollectiveCurve::in_switch, kSwitch>, write_in_line<&CollectiveCurve::in_switch, kSwitch>},
    {"all_to_all", "list of maps",
     "ways of an all-to-all, of which it takes the least; see device.collectives.all_to_all[]; default: as an "
     "all-gather",
     read_maps<&CollectiveCurve::all_to_all, kAllToAll>, write_in_line<&CollectiveCurve::all_to_all, kAllToAll>},
    {"handed_on", "number in (0, 1]",
     "share of the links' bandwidth at which tokens are handed on to the devices of a node (plan.expert_exchange: "
     "per_node); default: as an all-to-all",
     member<&CollectiveCurve::handed_on, Share>},
    {"band", "number in [0, 0.95]", "how far off they may be, in nine of ten cases; default: 0",
     member<&CollectiveCurve::band, Band>},
    {"provenance", "assumed | published | measured", "how they are known", member<&CollectiveCurve::provenance>,
     Need::Required},
    {"source", "text", "where they come from", changed<&CollectiveCurve::source>, Need::Required},
};

// ---- efficiency -----------------------------------------------------------------------------------------------------

struct EfficiencyKeys : Efficiency {
  std::optional<double> share;
  bool curve_given = false;
};

void read_tiles(Reader& reader, const At& at, EfficiencyKeys& efficiency) {
  if (is_map(reader, at, "a map, e.g. {share: 0.82, fill: 130, launch: 2.6, operands: 0.87}"))
    read_section<&Efficiency::tiles, kTiles>(reader, at, efficiency);
}

void read_kernels(Reader& reader, const At& at, EfficiencyKeys& efficiency) {
  if (!is_list(reader, at, "a list of maps")) return;
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i) {
    const At here = at.entry(i);
    AttentionKernel kernel;
    kernel.place = here.yaml.place;
    read_fields<AttentionKernel>(reader, here, kKernel, kernel);
    const auto same = [&](const AttentionKernel& other) {
      return other.kernel == kernel.kernel && other.head_size == kernel.head_size;
    };
    if (std::ranges::any_of(efficiency.kernels, same))
      reader.errors.add(here.yaml.place, path(here), "this kernel and head_size stand there already; remove one");
    efficiency.kernels.push_back(std::move(kernel));
  }
}

void write_kernels(YamlText& out, std::string_view key, const EfficiencyKeys& efficiency) {
  std::string text;
  for (const AttentionKernel& each : efficiency.kernels) {
    text += fmt::format("{}{{kernel: {}, head_size: {}, forward: {}, backward: {}{}, provenance: {}, source: {}}}",
                        text.empty() ? "" : ", ", in_words(each.kernel), each.head_size, flow(kCurve, each.forward),
                        flow(kCurve, each.backward), each.band ? ", band: " + value_text(*each.band) : "",
                        in_words(each.provenance), json_string(each.source));
  }
  if (!text.empty()) out.line(key, "[" + text + "]");
}

// [[work per call, share], ...]: work in FLOPs, of memory in bytes.
void read_curve(Reader& reader, const At& at, EfficiencyKeys& efficiency) {
  efficiency.curve_given = true;
  if (!is_list(reader, at, "a list of [work, share] pairs")) return;
  auto& curve = efficiency.curve;
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i) {
    const At point = at.entry(i);
    std::vector<double> pair;
    if (!read_value(reader, point, pair)) continue;
    if (pair.size() != 2 || !(pair[0] > 0) || *Share{}(pair[1]))
      reader.error(point, "is not [work per call, share]; write e.g. [1e9, 0.4]: work more than 0, share in (0, 1]");
    else if (!curve.empty() && pair[0] <= curve.back().first)
      reader.error(point, "does not grow: every point needs more work than the one before it");
    else
      curve.emplace_back(pair[0], pair[1]);
  }
}

constexpr Field<EfficiencyKeys> kEfficiency[] = {
    {"share", "number in (0, 1]", "of the peak rate that every operator of this kind reaches; this or curve",
     member<&EfficiencyKeys::share, Share>},
    {"curve", "list of [work, share]",
     "by FLOPs per operator and pass on one device (memory: bytes), growing; between two points over the logarithm of "
     "the work, outside as the nearest",
     read_curve,
     [](YamlText& out, std::string_view key, const EfficiencyKeys& efficiency) {
       std::string text;
       for (const auto& [work, share] : efficiency.curve)
         text += fmt::format("{}[{}, {}]", text.empty() ? "" : ", ", value_text(work), value_text(share));
       if (efficiency.curve.size() > 1) out.line(key, "[" + text + "]");
     }},
    {"half_work", "number >= 0",
     "work per call at which half of share or curve is reached, share * w / (w + half_work): what a call loses while "
     "it fills and drains the device; default: 0",
     changed<&Efficiency::half_work>},
    {"tiles", "map",
     "matrix_product, fp8_product, fp8_block_product and fp4_product, instead of share: products by shape (fp16 and "
     "bf16); convolution, and a share for other "
     "precisions: those of one group in fp32; see device.efficiency.<kind>.tiles",
     read_tiles, write_section<&Efficiency::tiles, kTiles>},
    {"kernels", "list of maps",
     "attention: fp16 and bf16 kernels by head size; see device.efficiency.<kind>.kernels[]; the first is used unless "
     "training.attention_kernel says another",
     read_kernels, write_kernels},
    {"fixed", "time",
     "of every call, in addition to its work; of fp8_product, fp8_block_product and fp4_product: of every cast; "
     "default: 0 ns",
     changed<&Efficiency::fixed>},
    {"band", "number in [0, 0.95]",
     "in nine of ten cases the true share lies within share * (1 - band) and share * (1 + band); default: 0",
     member<&Efficiency::band, Band>},
    {"provenance", "assumed | published | measured", "how the share is known", member<&Efficiency::provenance>,
     Need::Required},
    {"source", "text", "where the share comes from", member<&Efficiency::source>, Need::Required},
};

}  // namespace

void read_collectives(Reader& reader, const At& at, Device& device) {
  if (!is_map(reader, at, "a map, e.g. {start: 5, hop: 0.8, ...}")) return;
  CollectiveCurve& curve = device.collectives.emplace();
  curve.place = at.yaml.place;
  read_fields<CollectiveCurve>(reader, at, kCollectiveFields, curve);
}

void read_messages(Reader& reader, const At& at, Device& device) {
  if (!is_map(reader, at, "a map, e.g. {start: 13, small: 0.25, ...}")) return;
  read_fields<MessageCurve>(reader, at, kMessages, device.messages.emplace());
}

void write_messages(YamlText& out, std::string_view key, const Device& device) {
  write_section<&Device::messages, kMessages>(out, key, device);
}

void write_collectives(YamlText& out, std::string_view key, const Device& device) {
  write_section<&Device::collectives, kCollectiveFields>(out, key, device);
}

void read_efficiency(Reader& reader, const At& at, Device& device) {
  if (!is_map(reader, at, "a map of operator kinds, e.g. {matrix_product: {share: 0.5, ...}},")) return;
  for (const auto& [key, value] : at.yaml.map) {
    const At here = at.child(key.text, value);
    const Yaml name = as_value(key);
    OperatorKind kind{};
    if (!read_value(reader, At{name, at.parent, at.key, at.item}, kind)) continue;
    const std::size_t before = reader.errors.count();
    EfficiencyKeys read;
    read.place = value.place;
    read_fields<EfficiencyKeys>(reader, here, kEfficiency, read);
    if (reader.errors.count() > before) continue;
    const bool products = kind == OperatorKind::MatrixProduct || kind > OperatorKind::Memory,
               convolutions = kind == OperatorKind::Convolution;
    if (read.tiles && !products && !convolutions)
      reader.errors.add(value.place, path(here), "tiles are of products and convolution; leave them out");
    const bool tiles = read.tiles && !convolutions;  // in place of a share
    if (!read.kernels.empty() && kind != OperatorKind::Attention)
      reader.errors.add(value.place, path(here), "kernels are of attention; leave them out");
    if (read.share.has_value() + read.curve_given + tiles != 1)
      reader.errors.add(value.place,
                        path(here) + (tiles ? ": give one of share, curve and tiles; `tiles: null` removes the preset's"
                                            : ": give one of share and curve"));
    // What has no shape, or another precision, runs as large products do.
    if (tiles) read.curve = {{1.0, read.tiles->share / (1 + read.tiles->slowdown)}};
    if (read.share) read.curve = {{1.0, *read.share}};
    if (!read.curve.empty()) device.efficiency[static_cast<std::size_t>(kind)] = Efficiency(read);
  }
}

void write_efficiency(YamlText& out, std::string_view key, const Device& device) {
  const auto& all = device.efficiency;
  if (std::ranges::none_of(all, [](const auto& each) { return each.has_value(); })) return;
  out.open(key);
  for (const auto& [text, kind] : kNames<OperatorKind>) {
    const auto& stated = all[static_cast<std::size_t>(kind)];
    if (!stated) continue;
    EfficiencyKeys keys{*stated};
    if (stated->curve.size() == 1 && (!stated->tiles || kind == OperatorKind::Convolution))
      keys.share = stated->curve.front().second;
    out.open(text);
    write_fields<EfficiencyKeys>(out, kEfficiency, keys);
    out.close();
  }
  out.close();
}

std::vector<SectionDoc> kernel_curve_docs() {
  return {document<EfficiencyKeys>("device.efficiency.<kind>", kEfficiency),
          document<ProductCurve>("device.efficiency.<kind>.tiles", kTiles),
          document<AttentionKernel>("device.efficiency.<kind>.kernels[]", kKernel),
          document<AttentionCurve>("device.efficiency.<kind>.kernels[].forward", kCurve),
          document<CollectiveCurve>("device.collectives", kCollectiveFields),
          document<SwitchCurve>("device.collectives.in_switch[]", kSwitch),
          document<AllToAllWay>("device.collectives.all_to_all[]", kAllToAll),
          document<MessageCurve>("device.messages", kMessages)};
}

}  // namespace pipewright::io
