#include "io/writers/curve_svg.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "io/writers/svg_canvas.hpp"

namespace pipewright {
namespace {

constexpr double kWidth = 420, kHeight = 250, kLeft = 60, kTop = 74, kAcross = 70, kDown = 78, kLegendRow = 16;
constexpr std::size_t kPanelsAcross = 2;

constexpr std::string_view kStyle = R"svg(<style>
.c{fill:none;stroke-width:1.8;stroke-linejoin:round}.dash{stroke-dasharray:5 3}.dots{stroke-width:2.6;stroke-linecap:round;opacity:.55}
.c0{stroke:#3b78c9}.c1{stroke:#2e8b57}.c2{stroke:#b07d00}.c3{stroke:#c0392b}.c4{stroke:#7d5ba6}.c5{stroke:#8c96a3}
@media(prefers-color-scheme:dark){.c0{stroke:#6aa5f0}.c1{stroke:#57bd84}.c2{stroke:#f0b849}.c3{stroke:#f0776b}.c4{stroke:#b79be0}.c5{stroke:#9ca6b1}}
</style>
)svg";

std::string css(const CurveSeries& series) {
  constexpr std::string_view kMarks[] = {"", " dash", " dots"};
  return fmt::format("c c{}{}", series.colour, kMarks[static_cast<std::size_t>(series.mark)]);
}

void legend(Canvas& canvas, const CurvePanel& panel, double left, double top) {
  double x = left;
  for (const CurveSeries& series : panel.series) {
    if (!series.named) continue;
    const double width = 26 + text_width(series.name, 11);
    if (x > left && x + width > left + kWidth) x = left, top += kLegendRow;
    const bool dots = series.mark == CurveSeries::Mark::Dots;
    canvas.path(fmt::format("M{} {}h{}", coordinate(x + (dots ? 7 : 0)), coordinate(top - 4), dots ? 0 : 16),
                css(series));
    canvas.text(x + 20, top, series.name, "quiet", 11);
    x += width + 8;
  }
}

void draw(Canvas& canvas, const CurvePanel& panel, double left, double top) {
  const double from = std::log(panel.marks.front().first), to = std::log(panel.marks.back().first);
  const auto x_of = [&](double x) { return left + kWidth * std::clamp((std::log(x) - from) / (to - from), 0.0, 1.0); };
  const auto y_of = [&](double y) {
    return top + kHeight * (1 - std::clamp((y - panel.least) / (panel.most - panel.least), 0.0, 1.0));
  };
  canvas.text(left, top - 10, panel.title, "title", 12);
  const int steps = static_cast<int>(std::lround((panel.most - panel.least) / panel.step));
  for (int i = 0; i <= steps; ++i) {
    const double share = panel.least + i * panel.step, percent = std::round(100 * share);
    canvas.line(left, y_of(share), left + kWidth, y_of(share), panel.is_error && percent == 0 ? "tick" : "grid");
    canvas.text(
        left - 6, y_of(share) + 4,
        panel.is_error && percent != 0 ? fmt::format("{:+} %", percent) : fmt::format("{} %", std::abs(percent)),
        "end quiet", 11);
  }
  for (const auto& [x, label] : panel.marks) {
    canvas.line(x_of(x), top, x_of(x), top + kHeight, "grid");
    canvas.text(x_of(x), top + kHeight + 16, label, "mid quiet", 10);
  }
  canvas.text(left + kWidth / 2, top + kHeight + 32, panel.below, "mid quiet", 11);
  for (const CurveSeries& series : panel.series) {
    const bool dots = series.mark == CurveSeries::Mark::Dots;
    std::string d;
    for (const auto& [x, y] : series.points)
      d += fmt::format("{}{} {}{}", d.empty() || dots ? "M" : "L", coordinate(x_of(x)), coordinate(y_of(y)),
                       dots ? "h0" : "");
    if (!d.empty()) canvas.path(d, css(series), series.name);
  }
  legend(canvas, panel, left, top + kHeight + 50);
}

}  // namespace

std::string curve_svg(const std::string& title, const std::string& what, const std::vector<CurvePanel>& panels) {
  Canvas canvas;
  canvas.raw(kStyle);
  canvas.text(12, 24, title, "title", 15);
  canvas.text(12, 44, what, "quiet", 12);
  for (std::size_t i = 0; i < panels.size(); ++i)
    draw(canvas, panels[i], kLeft + static_cast<double>(i % kPanelsAcross) * (kWidth + kAcross),
         kTop + 16 + static_cast<double>(i / kPanelsAcross) * (kHeight + kTop + kDown - 30));
  const auto across = static_cast<double>(std::min(panels.size(), kPanelsAcross));
  const auto down = static_cast<double>((panels.size() + kPanelsAcross - 1) / kPanelsAcross);
  return canvas.document(std::max(640.0, kLeft + across * (kWidth + kAcross) - 30),
                         kTop + 16 + down * (kHeight + kTop + kDown - 30), title);
}

}  // namespace pipewright
