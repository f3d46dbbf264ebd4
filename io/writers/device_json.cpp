// `show device --json`: the one entry of pipewright.show/1 whose document has the figures of the tables, unrounded.
#include "io/text/names.hpp"
#include "io/writers/documents.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/shown_device.hpp"

namespace pipewright::io {
namespace {

void write_known(JsonText& json, double band, Provenance provenance, const std::string& source) {
  json.field("band", band).field("provenance", in_words(provenance)).field("source", source);
}

void write_figures(JsonText& json, const Device& device) {
  json.key("device").open('{').field("memory_bytes", device.memory).field("reserve_bytes", device.reserve);
  json.field("memory_bandwidth_bytes_per_s", device.memory_bandwidth);
  json.field("multiprocessors", device.multiprocessors).key("peak_flop_per_s").open('{');
  for (const auto& [precision, rate] : device.peak)
    json.field(name(precision), rate.value);
  json.close().key("sources").open('{');
  for (const auto& [key, source] : device.sources)
    json.field(key, source);
  json.close().key("shares").open('{');
  for (int i = 0; i < kOperatorKinds; ++i) {
    const auto& stated = device.efficiency[at(i)];
    if (!stated) continue;
    json.key(name(static_cast<OperatorKind>(i))).open('{').key("by_work").open('[');
    for (const auto& [work, share] : stated->curve)
      json.open('{').field("work", work).field("share", share).close();
    json.close().field("by_shape", stated->tiles.has_value());
    write_known(json, stated->band, stated->provenance, stated->source);
    json.close();
  }
  json.close().close();
}

void write_kernel(JsonText& json, const KernelFigure& figure) {
  json.field("us", figure.us).field("flop_per_s", figure.rate).field("share", figure.share);
}

void write_constants(JsonText& json, const ProductCurve& curve) {
  json.field("share", curve.share).field("fill", curve.fill).field("launch_us", curve.launch);
  json.field("operands", curve.operands).field("tile_128x128", curve.tile_128x128);
  json.field("tile_128x64", curve.tile_128x64).field("tile_64x64", curve.tile_64x64).field("split_us", curve.split);
  json.field("waves", curve.waves).field("slowdown", curve.slowdown).field("slowdown_half_tflop", curve.slowdown_half);
  json.field("sustained", curve.sustained);
}

void write_convolutions(JsonText& json, const ConvolutionBase& base) {
  json.key("convolutions").open('{').field("precision", name(Precision::Fp32)).field("images", kShownImages);
  json.key("constants").open('{');
  write_constants(json, *base.stated.tiles);
  json.close();
  write_known(json, base.stated.band, base.stated.provenance, base.stated.source);
  json.key("rows").open('[');
  for (const ConvolutionShape& shape : shown_convolutions())
    for (const auto& [pass, word] : {std::pair{PassKind::Forward, "forward"},
                                     {PassKind::Input, "input_gradient"},
                                     {PassKind::Weight, "weight_gradient"}}) {
      json.open('{').field("channels", shape.channels).field("side", shape.height);
      json.field("kernel", shape.kernel_height).field("stride", shape.stride).field("pass", word);
      write_kernel(json, convolution_figure(base, shape, pass));
      json.close();
    }
  json.close().close();
}

void write_products(JsonText& json, const ShownDevice& shown, const ProductCurve& curve) {
  const Efficiency& products = *shown.device.efficiency[at(OperatorKind::MatrixProduct)];
  json.key("products").open('{').field("precision", name(shown.base->precision)).key("constants").open('{');
  write_constants(json, curve);
  json.close();
  write_known(json, products.band, products.provenance, products.source);
  json.field("sustained_counts", false).key("rows").open('[');
  for (const double m : shown_rows())
    for (const double n : shown_widths())
      for (const double k : shown_widths()) {
        json.open('{').field("m", m).field("n", n).field("k", k);
        write_kernel(json, product_figure(curve, shown.base->rates, {m, n, k, 1}));
        json.close();
      }
  json.close().close();
}

void write_attention(JsonText& json, const ShownDevice& shown) {
  json.key("attention").open('[');
  for (const AttentionKernel& kernel : attention_kernels(shown.device)) {
    json.open('{').field("kernel", in_words(kernel.kernel)).field("head_size", kernel.head_size);
    json.field("provenance", in_words(kernel.provenance)).field("source", kernel.source).key("rows").open('[');
    for (const double length : shown_lengths())
      for (const bool backward : {false, true}) {
        json.open('{').field("sequence_length", length).field("heads", heads_that_fill(shown.base->rates, length));
        json.field("pass", backward ? "backward" : "forward");
        write_kernel(json, attention_figure(kernel, shown.base->rates, length, backward));
        json.close();
      }
    json.close().close();
  }
  json.close();
}

struct KindName {
  CollectiveKind kind;
  const char* name;
};
constexpr KindName kCollectiveKinds[] = {{CollectiveKind::AllReduce, "all_reduce"},
                                         {CollectiveKind::AllGather, "all_gather"},
                                         {CollectiveKind::ReduceScatter, "reduce_scatter"}};

void write_collective_curves(JsonText& json, const ShownDevice& shown, const CollectiveCurve& curve) {
  json.key("collectives").open('{').field("links_bytes_per_s", shown.links);
  json.field("links_from", shown.links_from);
  write_known(json, curve.band, curve.provenance, curve.source);
  json.key("ways").open('[');
  for (const auto& [kind, word] : kCollectiveKinds)
    for (const int members : kShownMembers)
      for (const CollectiveWay& way : ways_inside(curve, kind, members))
        json.open('{')
            .field("collective", word)
            .field("members", members)
            .field("start_us", way.start)
            .field("share", way.rate)
            .close();
  json.close().key("rows").open('[');
  if (shown.links)
    for (const auto& [kind, word] : kCollectiveKinds)
      for (const int members : kShownMembers)
        for (const double bytes : shown_bytes()) {
          const CollectiveFigure each = collective_figure(curve, kind, members, bytes, *shown.links);
          json.open('{').field("collective", word).field("members", members).field("bytes", bytes);
          json.field("us", each.us).field("bus_share", each.share).close();
        }
  json.close().close();
}

void write_points(JsonText& json, const ShownDevice& shown) {
  json.key("points").open('{').field("file", shown.points_file).field("every", shown.every);
  json.field("sustained_counts", false).key("errors").open('[');
  for (const char* which : {"all", "fitted", "judged"})
    for (const bool large : {false, true}) {
      const std::string_view word = which;
      if (shown.every == 0 && word != "all") continue;
      const CurveErrors errors = errors_where(shown, [&](const MeasuredProduct& point) {
        return (word == "all" || point.fitted == (word == "fitted")) && (!large || is_large(point.shape));
      });
      json.open('{').field("points", word).field("large", large);
      json.field("number", static_cast<std::int64_t>(errors.points)).field("mean", errors.mean);
      json.field("median", errors.median).field("bias", errors.bias).field("p5", errors.p5).field("p95", errors.p95);
      json.close();
    }
  json.close().close();
}

void write_document(JsonText& json, const ShownDevice& shown) {
  write_figures(json, shown.device);
  const ProductCurve* curve = product_curve(shown.device);
  if (shown.curve && shown.base) {
    if (curve) write_products(json, shown, *curve);
    write_attention(json, shown);
  }
  if (const auto base = convolution_base(shown.device); shown.curve && base) write_convolutions(json, *base);
  if (shown.curve && shown.device.collectives) write_collective_curves(json, shown, *shown.device.collectives);
  if (!shown.points_file.empty()) write_points(json, shown);
}

void write_shown(JsonFields& json, const ShownDevice& shown) {
  json.field("kind", "device").list("entries", std::span(&shown, 1), [&](const ShownDevice& one) {
    json.field("name", one.device.name).field("summary", one.summary).field("file", one.file);
    json.anything("document", [&](JsonText& document) { write_document(document, one); });
  });
  json.field("written", shown.written);
}

}  // namespace

constinit const JsonDocument kShowDocument{"pipewright.show/1", [](JsonFields& json) { write_shown(json, {}); },
                                           nullptr, false};

std::string device_json(const ShownDevice& shown) {
  return kShowDocument.text([&](JsonFields& json) { write_shown(json, shown); });
}

}  // namespace pipewright::io
