#include "io/writers/pareto_svg.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "io/text/format_quantity.hpp"
#include "io/text/quote.hpp"
#include "io/writers/svg_canvas.hpp"

namespace pipewright {
namespace {

constexpr double kLeft = 90, kTop = 30, kWidth = 760, kHeight = 340, kRight = 40, kBottom = 64;

struct Scaled {
  double step, end;
  explicit Scaled(double largest)
      : step(round_step(largest > 0 ? largest : 1)), end(step * std::ceil(1.02 * (largest > 0 ? largest : 1) / step)) {}
};

}  // namespace

std::string pareto_svg(const Ranking& ranking) {
  const auto& plans = ranking.pareto;
  const auto& axes = ranking.pareto_axes;
  const bool memory = std::find(axes.begin(), axes.end(), "memory") != axes.end();
  const auto x_of = [](const Found& found) {
    return found.report.samples_per_s > 0 ? 1000 / found.report.samples_per_s : 0;
  };
  const auto y_of = [&](const Found& found) {
    if (memory) return static_cast<double>(found.peak.value) / 1073741824.0;
    return found.report.samples_per_s > 0 ? found.plan.devices() / found.report.samples_per_s : 0;
  };
  double largest_x = 0, largest_y = 0;
  for (const Found& found : plans)
    largest_x = std::max(largest_x, x_of(found)), largest_y = std::max(largest_y, y_of(found));
  const Scaled x(largest_x), y(largest_y);
  const auto px = [&](double value) { return kLeft + kWidth * value / x.end; };
  const auto py = [&](double value) { return kTop + kHeight * (1 - value / y.end); };
  Canvas canvas;
  for (double at = 0; at <= x.end * 1.001; at += x.step) {
    canvas.line(px(at), kTop, px(at), kTop + kHeight, "grid");
    canvas.text(px(at), kTop + kHeight + 18, fmt::format("{:.4g}", at), "mid quiet", 11);
  }
  for (double at = 0; at <= y.end * 1.001; at += y.step) {
    canvas.line(kLeft, py(at), kLeft + kWidth, py(at), "grid");
    canvas.text(kLeft - 8, py(at) + 4, fmt::format("{:.4g}", at), "end quiet", 11);
  }
  canvas.text(kLeft + kWidth / 2, kTop + kHeight + 38, "ms per sample", "mid quiet", 12);
  canvas.text(12, kTop - 12, memory ? "memory of the fullest device in GiB" : "device seconds per sample", "quiet", 12);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const double at_x = px(x_of(plans[i])), at_y = py(y_of(plans[i]));
    canvas.raw(fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"9\" class=\"f\"><title>{}</title></circle>\n",
                           coordinate(at_x), coordinate(at_y), xml(in_words(plans[i].layout))));
    canvas.text(at_x, at_y + 4, std::to_string(i + 1), "mid num", 11);
  }
  return canvas.document(kLeft + kWidth + kRight, kTop + kHeight + kBottom, "plans that no other beats");
}

}  // namespace pipewright
