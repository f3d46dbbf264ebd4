// The tables of `show device`.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "io/text/format_quantity.hpp"
#include "io/text/names.hpp"
#include "io/text/quantity.hpp"
#include "io/text/utf8.hpp"
#include "io/writers/shown_device.hpp"
#include "io/writers/text_table.hpp"

namespace pipewright::io {
namespace {

std::string tflops(const KernelFigure& figure) {
  return fmt::format("{:.1f} ({:.0f} %)", figure.rate / 1e12, 100 * figure.share);
}

// "measured: source"; a source may begin with the word itself.
std::string known_as(Provenance provenance, const std::string& source) {
  const std::string word = in_words(provenance);
  return source.starts_with(word) ? source : word + (source.empty() ? "" : ": " + source);
}

std::string figure_line(const std::string& what, const std::string& value, const std::string& from, int width) {
  const std::string head = "  " + padded(what, 22);
  return from.empty() ? head + value + "\n" : wrapped(head + padded(value, 17) + " ", from, width);
}

std::string signed_share(double share) {
  return fmt::format("{:+.1f} %", std::round(1000 * share) == 0 ? 0.0 : 100 * share);
}

// The figures of the device's file that are no curves, each with its source.
std::string figures(const Device& device, int width) {
  std::string text = one_line(device.name) + "\n";
  const auto line = [&](const std::string& what, const std::string& value, const std::string& key) {
    const auto source = device.sources.find(key);
    const auto known = device.provenances.find(key);
    std::string from = source == device.sources.end() ? "" : source->second;
    if (known != device.provenances.end()) from = known_as(known->second, from);
    text += figure_line(what, value, from, width);
  };
  line("memory", short_bytes(device.memory), "memory");
  if (device.reserve.value > 0) line("  of it kept back", short_bytes(device.reserve), "reserve");
  if (device.communicator.value > 0) line("  each further group", short_bytes(device.communicator), "communicator");
  if (device.memory_bandwidth) line("memory bandwidth", to_text(*device.memory_bandwidth), "memory_bandwidth");
  for (const auto& [precision, rate] : device.peak) {
    const std::string word(name(precision));
    line("peak " + word, to_text(rate), "peak." + word);
  }
  if (device.multiprocessors > 0) line("multiprocessors", std::to_string(device.multiprocessors), "multiprocessors");
  return text;
}

std::string shares(const Device& device, int width) {
  std::string text = "\nshare of the peak that operators reach (memory: of the memory bandwidth)\n";
  const double rest = device.compute_efficiency;
  for (int i = 0; i < kOperatorKinds; ++i) {
    const auto kind = static_cast<OperatorKind>(i);
    const auto& stated = device.efficiency[static_cast<std::size_t>(i)];
    std::string value, from = "not stated: the device's own share of all kinds";
    if (!stated) {
      const auto& memory = device.efficiency[static_cast<std::size_t>(OperatorKind::Memory)];
      if (kind == OperatorKind::Permutation && memory) from = "not stated: as memory";
      value = fmt::format("{:.3g}", kind == OperatorKind::Permutation && memory ? memory->curve.front().second
                                    : kind == OperatorKind::Memory || kind == OperatorKind::Permutation
                                        ? device.memory_efficiency
                                        : rest);
    } else {
      if (stated->tiles)
        value = kind == OperatorKind::Convolution
                    ? fmt::format("by shape in fp32, else {:.3g}", stated->curve.front().second)
                    : "by shape";
      else if (stated->curve.size() == 1)
        value = fmt::format("{:.3g}", stated->curve.front().second);
      else
        value = fmt::format("{:.3g} to {:.3g}", stated->curve.front().second, stated->curve.back().second);
      if (stated->band > 0) value += fmt::format(" ± {:.0f} %", 100 * stated->band);
      from = known_as(stated->provenance, stated->tiles ? "" : stated->source);
    }
    text += figure_line(std::string(name(kind)), value, from, width);
  }
  return text;
}

std::string constants(const ProductCurve& curve) {
  return fmt::format(
      "share {:g}, fill {:g}, launch {:g} us, operands {:g}, tile_128x128 {:g}, tile_128x64 {:g}, tile_64x64 {:g}, "
      "split {:g} us, waves {:g}, slowdown {:g}, slowdown_half {:g} TFLOP, sustained {:g}",
      curve.share, curve.fill, curve.launch, curve.operands, curve.tile_128x128, curve.tile_128x64, curve.tile_64x64,
      curve.split, curve.waves, curve.slowdown, curve.slowdown_half, curve.sustained);
}

std::string known(const ProductCurve& curve, const Efficiency& stated, int width) {
  return wrapped("  constants  ", constants(curve), width) +
         fmt::format("  band       ± {:.0f} %\n", 100 * stated.band) +
         wrapped("  source     ", known_as(stated.provenance, stated.source), width);
}

std::string convolutions(const ConvolutionBase& base, int width) {
  std::string text = fmt::format(
      "\nconvolutions of {:g} images in fp32: TFLOP/s of the definition (share of the peak)\n", kShownImages);
  std::vector<TextColumn> columns{{"kernel", true, false, {}},          {"channels", false, false, {}},
                                  {"pixels", false, false, {}},         {"forward", false, false, {}},
                                  {"input gradient", false, false, {}}, {"weight gradient", false, false, {}}};
  for (const ConvolutionShape& shape : shown_convolutions()) {
    columns[0].cells.push_back(
        fmt::format("{0:g} x {0:g}{1}", shape.kernel_height, shape.stride > 1 ? ", stride 2" : ""));
    columns[1].cells.push_back(fmt::format("{:g}", shape.channels));
    columns[2].cells.push_back(fmt::format("{0:g} x {0:g}", shape.height));
    std::size_t at = 3;
    for (const PassKind pass : {PassKind::Forward, PassKind::Input, PassKind::Weight})
      columns[at++].cells.push_back(tflops(convolution_figure(base, shape, pass)));
  }
  return text + text_table(columns, width) + known(*base.stated.tiles, base.stated, width);
}

std::string products(const ShownDevice& shown, const ProductCurve& curve, int width) {
  const Efficiency& products = *shown.device.efficiency[static_cast<std::size_t>(OperatorKind::MatrixProduct)];
  std::string text = fmt::format("\nmatrix products m x n x k in {}, forward: TFLOP/s (share of the peak)\n",
                                 name(shown.base->precision));
  TextColumn rows{"m", false, false, {}};
  std::vector<TextColumn> columns;
  for (const double m : shown_rows())
    rows.cells.push_back(fmt::format("{}", m));
  columns.push_back(rows);
  const auto column = [&](double n, double k) {
    TextColumn cells{n == k ? fmt::format("n = k = {}", n) : fmt::format("{} x {}", n, k), false, false, {}};
    for (const double m : shown_rows())
      cells.cells.push_back(tflops(product_figure(curve, shown.base->rates, {m, n, k, 1})));
    columns.push_back(std::move(cells));
  };
  for (const double width_of : shown_widths())
    column(width_of, width_of);
  column(4096, 16384), column(16384, 4096);
  text += text_table(columns, width);
  text += wrapped("  ",
                  curve.sustained < 1
                      ? fmt::format("These are rates of a short measurement. In a long training the clock is lower: "
                                    "`simulate` and `plan` take {:g} of these rates (`sustained`).",
                                    curve.sustained)
                      : std::string("In a long training the rates are taken to be the same (`sustained` is 1)."),
                  width);
  return text + known(curve, products, width);
}

std::string attention(const ShownDevice& shown, int width) {
  std::string text =
      fmt::format("\ncausal attention in {}, heads that fill the device: TFLOP/s of the causal half by length\n",
                  name(shown.base->precision));
  std::vector<TextColumn> columns{{"kernel", true, false, {}}};
  std::vector<std::pair<std::string, std::string>> sources;  // kernels of one source together
  for (const double length : shown_lengths())
    columns.push_back({fmt::format("{}", length), false, false, {}});
  for (const AttentionKernel& kernel : attention_kernels(shown.device)) {
    const std::string whose = fmt::format("{} {}", in_words(kernel.kernel), kernel.head_size);
    for (const bool backward : {false, true}) {
      columns.front().cells.push_back(whose + (backward ? " backward" : " forward"));
      std::size_t at = 1;
      for (const double length : shown_lengths())
        columns[at++].cells.push_back(
            fmt::format("{:.1f}", attention_figure(kernel, shown.base->rates, length, backward).rate / 1e12));
    }
    const std::string source = known_as(kernel.provenance, kernel.source);
    const auto same = std::ranges::find_if(sources, [&](const auto& each) { return each.first == source; });
    if (same == sources.end())
      sources.emplace_back(source, whose);
    else
      same->second += ", " + whose;
  }
  text += text_table(columns, width);
  for (const auto& [source, kernels] : sources)
    text += wrapped("  ", kernels + ": " + source, width);
  return text;
}

struct KindOfCollective {
  CollectiveKind kind;
  const char* words;
};
constexpr std::array<KindOfCollective, 2> kKindsOfCollective = {
    {{CollectiveKind::AllReduce, "all-reduce"}, {CollectiveKind::AllGather, "all-gather and reduce-scatter"}}};

// The ways alone: no links are known.
std::string ways(const CollectiveCurve& curve, int width) {
  TextColumn what{"", true, false, {}}, way{"way", false, false, {}}, start{"start us", false, false, {}},
      share{"share of the links", false, false, {}};
  for (const auto& [kind, words] : kKindsOfCollective)
    for (const int members : kShownMembers) {
      int number = 0;
      for (const CollectiveWay& each : ways_inside(curve, kind, members)) {
        what.cells.push_back(fmt::format("{}, {} members", words, members));
        way.cells.push_back(std::to_string(++number));
        start.cells.push_back(fmt::format("{:.1f}", each.start));
        share.cells.push_back(percent(each.rate));
      }
    }
  return "\ncollectives inside a node: the fastest of these ways counts, start + bytes on the links over its share\n" +
         text_table({what, way, start, share}, width) +
         wrapped("  ",
                 "For times by size say what the links have: --links \"450 GB/s\" (of a device, in one direction).",
                 width);
}

std::string collectives(const ShownDevice& shown, const CollectiveCurve& curve, int width) {
  std::string text;
  if (!shown.links) {
    text = ways(curve, width);
  } else {
    text = fmt::format("\ncollectives inside a node with links of {} ({}): us (share of the links' bandwidth)\n",
                       to_text(*shown.links), one_line(shown.links_from));
    for (const auto& [kind, words] : kKindsOfCollective) {
      TextColumn sizes{"bytes", false, false, {}};
      for (const double bytes : shown_bytes())
        sizes.cells.push_back(to_text(Bytes{static_cast<std::int64_t>(bytes)}));
      std::vector<TextColumn> columns{sizes};
      for (const int members : kShownMembers) {
        TextColumn column{fmt::format("{} members", members), false, false, {}};
        for (const double bytes : shown_bytes()) {
          const CollectiveFigure each = collective_figure(curve, kind, members, bytes, *shown.links);
          column.cells.push_back(fmt::format("{:.1f} ({:4.1f} %)", each.us, 100 * each.share));
        }
        columns.push_back(std::move(column));
      }
      text += fmt::format("  {}\n", words) + text_table(columns, width);
    }
  }
  text += fmt::format("  band       ± {:.0f} %\n", 100 * curve.band);
  return text + wrapped("  source     ", known_as(curve.provenance, curve.source), width);
}

std::string messages(const MessageCurve& curve, int width) {
  return "\nmessages to another device of the node\n" +
         wrapped("  ",
                 fmt::format("start {:.1f} us; then at {} of the links' bandwidth until that takes {:.0f} us, and as "
                             "long until {} of the bandwidth takes more",
                             curve.start, percent(curve.small), curve.middle, percent(curve.large)),
                 width) +
         fmt::format("  band       ± {:.0f} %\n", 100 * curve.band) +
         wrapped("  source     ", known_as(curve.provenance, curve.source), width);
}

std::string points(const ShownDevice& shown, const ProductCurve& curve, int width) {
  std::string text = fmt::format("\nproducts of {}: predicted / measured - 1\n", one_line(shown.points_file));
  TextColumn rows{"points", true, false, {}};
  std::vector<TextColumn> columns(6);
  constexpr std::array<const char*, 6> kHeads = {"number", "mean", "median", "bias", "5 %", "95 %"};
  for (std::size_t i = 0; i < columns.size(); ++i)
    columns[i].head = kHeads[i];
  const auto add = [&](const std::string& which, const std::function<bool(const MeasuredProduct&)>& taken) {
    for (const bool large : {false, true}) {
      const CurveErrors errors = errors_where(
          shown, [&](const MeasuredProduct& point) { return taken(point) && (!large || is_large(point.shape)); });
      rows.cells.push_back(which + (large ? ", large" : ""));
      columns[0].cells.push_back(std::to_string(errors.points));
      const std::array<double, 5> values = {errors.mean, errors.median, errors.bias, errors.p5, errors.p95};
      for (std::size_t i = 0; i < values.size(); ++i)
        columns[i + 1].cells.push_back(errors.points == 0 ? "-"
                                       : i < 2            ? fmt::format("{:.1f} %", 100 * values[i])
                                                          : signed_share(values[i]));
    }
  };
  add("all", [](const MeasuredProduct&) { return true; });
  if (shown.every > 0) {
    add("fitted", [](const MeasuredProduct& point) { return point.fitted; });
    add("judged", [](const MeasuredProduct& point) { return !point.fitted; });
  }
  columns.insert(columns.begin(), rows);
  text += text_table(columns, width);
  std::string how = "large: m >= 2048, n and k >= 1024. Mean and median without the sign.";
  if (shown.every > 0)
    how += fmt::format(" fitted: points 0, {0}, {1}, ..., by which the constants were found; judged: all others.",
                       shown.every, 2 * shown.every);
  how +=
      fmt::format(" The points are short measurements, so `sustained` ({:g}), which is of long trainings, is left out.",
                  curve.sustained);
  return text + wrapped("  ", how, width);
}

}  // namespace

CurveErrors errors_where(const ShownDevice& shown, const std::function<bool(const MeasuredProduct&)>& taken) {
  std::vector<double> ratios;
  for (const MeasuredProduct& point : shown.points)
    if (taken(point))
      ratios.push_back(product_figure(*product_curve(shown.device), shown.base->rates, point.shape).us / point.us);
  return errors_of(ratios);
}

std::string device_tables(const ShownDevice& shown, int width) {
  std::string text = figures(shown.device, width) + shares(shown.device, width);
  const ProductCurve* curve = product_curve(shown.device);
  if (shown.curve) {
    const auto& kernels = attention_kernels(shown.device);
    const auto convolved = convolution_base(shown.device);
    if (!convolved && (!shown.base || (!curve && kernels.empty() && !shown.device.collectives)))
      text +=
          "\n" + wrapped("", "This device has no curves by size: its kernels are priced by the shares above.", width);
    if (shown.base && curve) text += products(shown, *curve, width);
    if (convolved) text += convolutions(*convolved, width);
    if (shown.base && !kernels.empty()) text += attention(shown, width);
    if (shown.device.collectives) text += collectives(shown, *shown.device.collectives, width);
    if (shown.device.messages) text += messages(*shown.device.messages, width);
  }
  if (!shown.points_file.empty()) text += points(shown, *curve, width);
  return text;
}

}  // namespace pipewright::io
