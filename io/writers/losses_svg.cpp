// Panels of loss curves. Lines over bands: mean over the seeds, and the range that they span.
#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "io/writers/losses.hpp"
#include "io/writers/svg_canvas.hpp"

namespace pipewright::io {
namespace {

constexpr double kPanelWidth = 260, kPanelHeight = 150, kLossGap = 18, kLossLeft = 104, kLossTop = 84;
constexpr std::size_t kLossColours = 8;

constexpr std::string_view kLossStyle = R"svg(<style>
.c{fill:none;stroke-width:1.8}.b{opacity:.16}
.c0{stroke:#3b78c9}.c1{stroke:#c0392b}.c2{stroke:#2e8b57}.c3{stroke:#b07d00}.c4{stroke:#7d5ba6}.c5{stroke:#0b7c8c}.c6{stroke:#c2558f}.c7{stroke:#59636e}
.b0{fill:#3b78c9}.b1{fill:#c0392b}.b2{fill:#2e8b57}.b3{fill:#b07d00}.b4{fill:#7d5ba6}.b5{fill:#0b7c8c}.b6{fill:#c2558f}.b7{fill:#59636e}
.d1{stroke-dasharray:7 3}.d2{stroke-dasharray:2 3}.d3{stroke-dasharray:9 3 2 3}.d4{stroke-dasharray:4 2}
@media(prefers-color-scheme:dark){
.c0{stroke:#6aa5f0}.c1{stroke:#f0776b}.c2{stroke:#57bd84}.c3{stroke:#f0b849}.c4{stroke:#b394e0}.c5{stroke:#4cc3d4}.c6{stroke:#ec8fc0}.c7{stroke:#9ca6b1}
.b{opacity:.22}
}
</style>
)svg";

std::string brief_key(const std::string& key) {
  std::string text = key.substr(key.rfind('.') + 1);
  std::ranges::replace(text, '_', ' ');
  return text;
}

class Panels {
 public:
  explicit Panels(const LossGrid& grid)
      : question_(grid.question), axes_(axes_beside_seed(grid.question)), curves_(loss_curves(grid)) {
    columns_ = axes_.empty() ? 1 : question_.axes[axes_.back()].texts.size();
    for (std::size_t i = 0; i + 1 < axes_.size(); ++i)
      rows_ *= question_.axes[axes_[i]].texts.size();
    scale();
  }

  std::string draw() {
    canvas_.raw(kLossStyle);
    const std::string name = question_.description.empty() ? question_.file : question_.description;
    canvas_.text(12, 24, name, "title", 15);
    canvas_.text(12, 46, "loss over samples trained on: mean of the seeds (line), and the range that they span (band)",
                 "quiet", 12);
    for (std::size_t row = 0; row < rows_; ++row)
      for (std::size_t column = 0; column < columns_; ++column)
        frame(row, column);
    for (const LossCurve& curve : curves_)
      band(curve);
    for (const LossCurve& curve : curves_)
      line(curve);
    const double bottom = kLossTop + static_cast<double>(rows_) * (kPanelHeight + kLossGap) + 18;
    return canvas_.document(right() + 24, legend(bottom + 16) + 18, name);
  }

 private:
  double right() const { return kLossLeft + static_cast<double>(columns_) * (kPanelWidth + kLossGap) - kLossGap; }

  // From the best loss of all to a little above where the middle one of the curves begins: what diverges leaves its
  // panel at the top.
  void scale() {
    std::vector<double> firsts;
    least_ = 1e300;
    for (const LossCurve& curve : curves_)
      for (const LossCurve::At& at : curve.at) {
        most_samples_ = std::max(most_samples_, static_cast<double>(at.samples));
        if (std::isfinite(at.least)) least_ = std::min(least_, at.least);
        if (&at == &curve.at.front() && std::isfinite(at.mean)) firsts.push_back(at.mean);
      }
    if (least_ > 1e299) least_ = 0;
    std::ranges::sort(firsts);
    const double first = firsts.empty() ? least_ : least_ + 1.3 * (firsts[firsts.size() / 2] - least_);
    step_ = std::max(0.25, std::pow(2, std::ceil(std::log2(std::max(first - least_, 1e-3) / 5))));
    least_ = std::floor(least_ / step_) * step_;
    most_ = std::max(least_ + step_, std::ceil(first / step_) * step_);
  }

  std::size_t row_of(const LossCurve& curve) const {
    std::size_t row = 0;
    for (std::size_t i = 0; i + 1 < curve.values.size(); ++i)
      row = row * question_.axes[axes_[i]].texts.size() + curve.values[i];
    return row;
  }
  std::size_t column_of(const LossCurve& curve) const { return curve.values.empty() ? 0 : curve.values.back(); }

  static double left_of(std::size_t column) {
    return kLossLeft + static_cast<double>(column) * (kPanelWidth + kLossGap);
  }
  static double top_of(std::size_t row) { return kLossTop + static_cast<double>(row) * (kPanelHeight + kLossGap); }
  double x(const LossCurve& curve, std::int64_t samples) const {
    return left_of(column_of(curve)) + kPanelWidth * static_cast<double>(samples) / std::max(1.0, most_samples_);
  }
  double y(const LossCurve& curve, double loss) const {
    const double inside = std::isfinite(loss) ? std::clamp(loss, least_, most_) : most_;
    return top_of(row_of(curve)) + kPanelHeight * (most_ - inside) / (most_ - least_);
  }

  void frame(std::size_t row, std::size_t column) {
    const double left = left_of(column), top = top_of(row);
    for (double value = least_; value < most_ + step_ / 2; value += step_) {
      const double at = top + kPanelHeight * (most_ - value) / (most_ - least_);
      canvas_.line(left, at, left + kPanelWidth, at, "grid");
      if (column == 0) canvas_.text(left - 8, at + 4, fmt::format("{:.4g}", value), "end quiet", 11);
    }
    canvas_.line(left, top + kPanelHeight, left + kPanelWidth, top + kPanelHeight, "tick");
    if (row == 0 && !axes_.empty())
      canvas_.text(left + kPanelWidth / 2, top - 8,
                   brief_key(question_.axes[axes_.back()].key) + " " + question_.axes[axes_.back()].texts[column],
                   "mid", 12);
    if (column == 0) {
      std::string name;
      std::size_t rest = row;
      for (std::size_t i = axes_.size(); i-- > 1;) {
        const SweepAxis& axis = question_.axes[axes_[i - 1]];
        name = brief_key(axis.key) + " " + axis.texts[rest % axis.texts.size()] + (name.empty() ? "" : ", ") + name;
        rest /= axis.texts.size();
      }
      canvas_.text(12, top + kPanelHeight / 2, name, "", 12);
    }
    if (row + 1 == rows_) {
      canvas_.text(left, top + kPanelHeight + 16, "0", "quiet", 11);
      canvas_.text(left + kPanelWidth, top + kPanelHeight + 16, fmt::format("{:.0f} samples", most_samples_),
                   "end quiet", 11);
    }
  }

  void band(const LossCurve& curve) {
    if (curve.at.size() < 2 || curve.runs < 2) return;
    std::string d;
    for (const LossCurve::At& at : curve.at)
      d += fmt::format("{}{} {}", d.empty() ? "M" : "L", coordinate(x(curve, at.samples)),
                       coordinate(y(curve, at.largest)));
    for (auto at = curve.at.rbegin(); at != curve.at.rend(); ++at)
      d += fmt::format("L{} {}", coordinate(x(curve, at->samples)), coordinate(y(curve, at->least)));
    canvas_.path(d + "Z", fmt::format("b b{}", curve.variant % kLossColours));
  }

  void line(const LossCurve& curve) {
    std::string d;
    for (const LossCurve::At& at : curve.at)
      d += fmt::format("{}{} {}", d.empty() ? "M" : "L", coordinate(x(curve, at.samples)),
                       coordinate(y(curve, at.mean)));
    if (!d.empty()) canvas_.path(d, css(curve.variant), tooltip(curve));
    // A run that ended early: a cross where its curve ends.
    if (curve.failed > 0 && !curve.at.empty()) {
      const double at_x = x(curve, curve.at.back().samples), at_y = y(curve, curve.at.back().mean);
      canvas_.path(fmt::format("M{} {}l8 8m0 -8l-8 8", coordinate(at_x - 4), coordinate(at_y - 4)),
                   fmt::format("c c{}", curve.variant % kLossColours), tooltip(curve));
    }
  }

  static std::string css(std::size_t variant) { return fmt::format("c c{} d{}", variant % kLossColours, variant % 5); }

  std::string tooltip(const LossCurve& curve) const {
    std::string text = question_.variants[curve.variant];
    if (!curve.at.empty())
      text += fmt::format(": {:.3f} [{:.3f}, {:.3f}]", curve.at.back().mean, curve.at.back().least,
                          curve.at.back().largest);
    if (curve.failed > 0) text += fmt::format(", {} of {} runs ended early", curve.failed, curve.runs);
    return text;
  }

  double legend(double at) {
    double x_at = kLossLeft;
    bool ended = false;
    for (const LossCurve& curve : curves_)
      ended |= curve.failed > 0;
    const auto entry = [&](const std::string& name, const auto& swatch) {
      const double width = 36 + text_width(name, 12) + 16;
      if (x_at > kLossLeft && x_at + width > right()) x_at = kLossLeft, at += 20;
      swatch();
      canvas_.text(x_at + 36, at + 4, name, "", 12);
      x_at += width;
    };
    for (std::size_t i = 0; i < question_.variants.size(); ++i)
      entry(question_.variants[i],
            [&] { canvas_.path(fmt::format("M{} {}h28", coordinate(x_at), coordinate(at)), css(i)); });
    if (ended)
      entry("a seed's loss was no number any more", [&] {
        canvas_.path(fmt::format("M{} {}l8 8m0 -8l-8 8", coordinate(x_at + 10), coordinate(at - 4)), "c c7");
      });
    return at;
  }

  const SweepQuestion& question_;
  std::vector<std::size_t> axes_;
  std::vector<LossCurve> curves_;
  std::size_t rows_ = 1, columns_ = 1;
  double most_samples_ = 0, least_ = 0, most_ = 1, step_ = 1;
  Canvas canvas_;
};

}  // namespace

std::string losses_svg(const LossGrid& grid) {
  return Panels(grid).draw();
}

}  // namespace pipewright::io
