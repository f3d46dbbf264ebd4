// The plot of `show device`: a panel per kind of kernel, and one for how far the products are off measured ones.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "io/text/quantity.hpp"
#include "io/writers/shown_device.hpp"
#include "io/writers/svg_canvas.hpp"

namespace pipewright::io {
namespace {

// Curves over sizes: panels with lines and clouds of points over a logarithmic axis.

struct CurveSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x, y
  enum class Mark { Line, Dashes, Dots } mark = Mark::Line;
  int colour = 0;     // 0 ... 5
  bool named = true;  // has a line of the legend
};

struct CurvePanel {
  std::string title, below;                           // above it; of the axis
  std::vector<std::pair<double, std::string>> marks;  // of the axis, which reaches from the first to the last
  double least = 0, most = 1, step = 0.2;             // shares on the other axis; what is beyond is drawn at the edge
  bool is_error = false;                              // shares have their sign
  std::vector<CurveSeries> series;
};

constexpr double kCurveWidth = 420, kCurveHeight = 250, kCurveLeft = 60, kCurveTop = 74, kCurveAcross = 70,
                 kCurveDown = 78, kLegendRow = 16;
constexpr std::size_t kCurvesAcross = 2;

constexpr std::string_view kCurveStyle = R"svg(<style>
.c{fill:none;stroke-width:1.8;stroke-linejoin:round}.dash{stroke-dasharray:5 3}.dots{stroke-width:2.6;stroke-linecap:round;opacity:.55}
.c0{stroke:#3b78c9}.c1{stroke:#2e8b57}.c2{stroke:#b07d00}.c3{stroke:#c0392b}.c4{stroke:#7d5ba6}.c5{stroke:#8c96a3}
@media(prefers-color-scheme:dark){.c0{stroke:#6aa5f0}.c1{stroke:#57bd84}.c2{stroke:#f0b849}.c3{stroke:#f0776b}.c4{stroke:#b79be0}.c5{stroke:#9ca6b1}}
</style>
)svg";

std::string css(const CurveSeries& series) {
  constexpr std::string_view kMarks[] = {"", " dash", " dots"};
  return fmt::format("c c{}{}", series.colour, kMarks[at(series.mark)]);
}

void legend(Canvas& canvas, const CurvePanel& panel, double left, double top) {
  double x = left;
  for (const CurveSeries& series : panel.series) {
    if (!series.named) continue;
    const double width = 26 + text_width(series.name, 11);
    if (x > left && x + width > left + kCurveWidth) x = left, top += kLegendRow;
    const bool dots = series.mark == CurveSeries::Mark::Dots;
    canvas.path(fmt::format("M{} {}h{}", coordinate(x + (dots ? 7 : 0)), coordinate(top - 4), dots ? 0 : 16),
                css(series));
    canvas.text(x + 20, top, series.name, "quiet", 11);
    x += width + 8;
  }
}

void draw(Canvas& canvas, const CurvePanel& panel, double left, double top) {
  const double from = std::log(panel.marks.front().first), to = std::log(panel.marks.back().first);
  const auto x_of = [&](double x) {
    return left + kCurveWidth * std::clamp((std::log(x) - from) / (to - from), 0.0, 1.0);
  };
  const auto y_of = [&](double y) {
    return top + kCurveHeight * (1 - std::clamp((y - panel.least) / (panel.most - panel.least), 0.0, 1.0));
  };
  canvas.text(left, top - 10, panel.title, "title", 12);
  const int steps = static_cast<int>(std::lround((panel.most - panel.least) / panel.step));
  for (int i = 0; i <= steps; ++i) {
    const double share = panel.least + i * panel.step, percent = std::round(100 * share);
    canvas.line(left, y_of(share), left + kCurveWidth, y_of(share), panel.is_error && percent == 0 ? "tick" : "grid");
    canvas.text(
        left - 6, y_of(share) + 4,
        panel.is_error && percent != 0 ? fmt::format("{:+} %", percent) : fmt::format("{} %", std::abs(percent)),
        "end quiet", 11);
  }
  for (const auto& [x, label] : panel.marks) {
    canvas.line(x_of(x), top, x_of(x), top + kCurveHeight, "grid");
    canvas.text(x_of(x), top + kCurveHeight + 16, label, "mid quiet", 10);
  }
  canvas.text(left + kCurveWidth / 2, top + kCurveHeight + 32, panel.below, "mid quiet", 11);
  for (const CurveSeries& series : panel.series) {
    const bool dots = series.mark == CurveSeries::Mark::Dots;
    std::string d;
    for (const auto& [x, y] : series.points)
      d += fmt::format("{}{} {}{}", d.empty() || dots ? "M" : "L", coordinate(x_of(x)), coordinate(y_of(y)),
                       dots ? "h0" : "");
    if (!d.empty()) canvas.path(d, css(series), series.name);
  }
  legend(canvas, panel, left, top + kCurveHeight + 50);
}

std::string curve_svg(const std::string& title, const std::string& what, const std::vector<CurvePanel>& panels) {
  Canvas canvas;
  canvas.raw(kCurveStyle);
  canvas.text(12, 24, title, "title", 15);
  canvas.text(12, 44, what, "quiet", 12);
  for (std::size_t i = 0; i < panels.size(); ++i)
    draw(canvas, panels[i], kCurveLeft + static_cast<double>(i % kCurvesAcross) * (kCurveWidth + kCurveAcross),
         kCurveTop + 16 + static_cast<double>(i / kCurvesAcross) * (kCurveHeight + kCurveTop + kCurveDown - 30));
  const auto across = static_cast<double>(std::min(panels.size(), kCurvesAcross));
  const auto down = static_cast<double>((panels.size() + kCurvesAcross - 1) / kCurvesAcross);
  return canvas.document(std::max(640.0, kCurveLeft + across * (kCurveWidth + kCurveAcross) - 30),
                         kCurveTop + 16 + down * (kCurveHeight + kCurveTop + kCurveDown - 30), title);
}

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

}  // namespace pipewright::io
