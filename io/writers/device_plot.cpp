// The plot of `show device`: a panel per kind of kernel, and one for how far the products are off measured ones.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "io/text/quantity.hpp"
#include "io/writers/curve_svg.hpp"
#include "io/writers/shown_device.hpp"

namespace pipewright {
namespace {

double flop(const ProductShape& shape) {
  return 2 * shape.batch * shape.m * shape.n * shape.k;
}

CurveSeries line(std::string name, int colour) {
  CurveSeries series;
  series.name = std::move(name), series.colour = colour;
  return series;
}

CurveSeries dots(std::string name, int colour) {
  CurveSeries series = line(std::move(name), colour);
  series.mark = CurveSeries::Mark::Dots;
  return series;
}

void mark_flop(CurvePanel& panel, const ShownDevice& shown) {
  double least = 1e9, most = 2e13;
  for (const MeasuredProduct& point : shown.points)
    least = std::min(least, flop(point.shape)), most = std::max(most, flop(point.shape));
  for (double power = std::floor(std::log10(least)); power <= std::ceil(std::log10(most)); ++power)
    panel.marks.emplace_back(std::pow(10, power), to_text(Flops{std::pow(10, power)}));
  panel.below = "work of one product";
}

CurvePanel product_panel(const ShownDevice& shown, const ProductCurve& curve) {
  CurvePanel panel;
  panel.title = "matrix products: share of the peak";
  mark_flop(panel, shown);
  CurveSeries measured = dots("measured", 5);
  for (const MeasuredProduct& point : shown.points)
    measured.points.emplace_back(flop(point.shape), flop(point.shape) / point.us * 1e6 / shown.base->rates.peak);
  if (!measured.points.empty()) {
    CurveSeries predicted = dots("predicted", 0);
    for (const MeasuredProduct& point : shown.points)
      predicted.points.emplace_back(flop(point.shape), product_figure(curve, shown.base->rates, point.shape).share);
    panel.series = {measured, predicted};
    return panel;
  }
  int colour = 0;
  for (const double width : shown_widths()) {
    CurveSeries series = line(fmt::format("n = k = {}", width), colour++);
    for (const double m : shown_rows())
      series.points.emplace_back(flop({m, width, width, 1}),
                                 product_figure(curve, shown.base->rates, {m, width, width, 1}).share);
    panel.series.push_back(std::move(series));
  }
  return panel;
}

CurvePanel error_panel(const ShownDevice& shown, const ProductCurve& curve) {
  CurvePanel panel;
  panel.title = "matrix products: predicted / measured - 1";
  panel.least = -0.3, panel.most = 0.3, panel.step = 0.1, panel.is_error = true;
  mark_flop(panel, shown);
  CurveSeries judged = dots(shown.every > 0 ? "judged" : "points", 0), fitted = dots("fitted", 2);
  for (const MeasuredProduct& point : shown.points)
    (point.fitted ? fitted : judged)
        .points.emplace_back(flop(point.shape),
                             product_figure(curve, shown.base->rates, point.shape).us / point.us - 1);
  panel.series.push_back(std::move(judged));
  if (shown.every > 0) panel.series.push_back(std::move(fitted));
  return panel;
}

CurvePanel attention_panel(const ShownDevice& shown) {
  CurvePanel panel;
  panel.title = "causal attention, heads of 128: share of the peak";
  panel.below = "sequence length; dashed: backward";
  for (const double length : shown_lengths())
    panel.marks.emplace_back(length, fmt::format("{}", length));
  int colour = 0;
  for (const AttentionKernelName name :
       {AttentionKernelName::Fa2, AttentionKernelName::Fa3, AttentionKernelName::Cudnn}) {
    const AttentionKernel* kernel = attention_kernel(attention_kernels(shown.device), name, 128);
    if (!kernel) continue;
    for (const bool backward : {false, true}) {
      CurveSeries series = line(in_words(name), colour);
      if (kernel->head_size != 128) series.name += fmt::format(" (heads of {})", kernel->head_size);
      series.named = !backward;
      if (backward) series.mark = CurveSeries::Mark::Dashes;
      for (const double length : shown_lengths())
        series.points.emplace_back(length, attention_figure(*kernel, shown.base->rates, length, backward).share);
      panel.series.push_back(std::move(series));
    }
    ++colour;
  }
  return panel;
}

CurvePanel collective_panel(const ShownDevice& shown, const CollectiveCurve& curve) {
  CurvePanel panel;
  panel.title = "collectives: bus bandwidth, share of " + to_text(*shown.links);
  panel.below = "bytes; solid: all-reduce, dashed: all-gather and reduce-scatter";
  panel.most = 1.2;
  for (double bytes = 1024; bytes <= 4.0 * (1 << 30); bytes *= 16)
    panel.marks.emplace_back(bytes, to_text(Bytes{static_cast<std::int64_t>(bytes)}));
  if (panel.marks.back().first < 4.0 * (1 << 30)) panel.marks.emplace_back(4.0 * (1 << 30), "4 GiB");
  for (const CollectiveKind kind : {CollectiveKind::AllReduce, CollectiveKind::AllGather}) {
    int colour = 0;
    for (const int members : kShownMembers) {
      CurveSeries series = line(fmt::format("{} members", members), colour++);
      if (kind == CollectiveKind::AllGather) series.mark = CurveSeries::Mark::Dashes, series.named = false;
      for (double bytes = 1024; bytes <= 4.0 * (1 << 30); bytes *= 2)
        series.points.emplace_back(bytes, collective_figure(curve, kind, members, bytes, *shown.links).share);
      panel.series.push_back(std::move(series));
    }
  }
  return panel;
}

}  // namespace

std::string device_curve_svg(const ShownDevice& shown) {
  std::vector<CurvePanel> panels;
  const ProductCurve* curve = product_curve(shown.device);
  if (shown.base && curve) panels.push_back(product_panel(shown, *curve));
  if (!shown.points.empty()) panels.push_back(error_panel(shown, *curve));
  if (shown.curve && shown.base && !attention_kernels(shown.device).empty()) panels.push_back(attention_panel(shown));
  if (shown.curve && shown.device.collectives && shown.links)
    panels.push_back(collective_panel(shown, *shown.device.collectives));
  return curve_svg(shown.device.name + ": kernels by size",
                   "as a short measurement has them: without `sustained`, the lower clock of a long training", panels);
}

}  // namespace pipewright
