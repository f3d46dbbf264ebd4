// A sweep as a line plot: a key of the grid to the right, a figure upwards, a line per variant and combination of the
// other keys. Points without figures leave a gap; what does not fit is hollow.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "io/format_quantity.hpp"
#include "io/quote.hpp"
#include "io/writers/svg_canvas.hpp"
#include "io/writers/sweep.hpp"
#include "io/writers/sweep_cells.hpp"

namespace pipewright {
namespace {

constexpr double kWidth = 820, kHeight = 380, kRight = 24;
constexpr std::size_t kColours = 8;
constexpr std::size_t kMostLines = 2 * kColours;  // the second half is dashed
constexpr double kLogarithmicFrom = 8;  // largest over smallest value: below it equal steps are easier to read

constexpr std::string_view kStyle = R"svg(<style>
.s{fill:none;stroke-width:2}.dash{stroke-dasharray:6 4}.p{stroke-width:1.6}.hollow{fill:#fff}
.s0{stroke:#3b78c9}.s1{stroke:#c0392b}.s2{stroke:#2e8b57}.s3{stroke:#b07d00}.s4{stroke:#7d5ba6}.s5{stroke:#0b7c8c}.s6{stroke:#c2558f}.s7{stroke:#59636e}
.p0{fill:#3b78c9}.p1{fill:#c0392b}.p2{fill:#2e8b57}.p3{fill:#b07d00}.p4{fill:#7d5ba6}.p5{fill:#0b7c8c}.p6{fill:#c2558f}.p7{fill:#59636e}
@media(prefers-color-scheme:dark){
.hollow{fill:#0d1117}
.s0{stroke:#6aa5f0}.s1{stroke:#f0776b}.s2{stroke:#57bd84}.s3{stroke:#f0b849}.s4{stroke:#b394e0}.s5{stroke:#4cc3d4}.s6{stroke:#ec8fc0}.s7{stroke:#9ca6b1}
.p0{fill:#6aa5f0}.p1{fill:#f0776b}.p2{fill:#57bd84}.p3{fill:#f0b849}.p4{fill:#b394e0}.p5{fill:#4cc3d4}.p6{fill:#ec8fc0}.p7{fill:#9ca6b1}
}
</style>
)svg";

bool numeric(const SweepAxis& axis) {
  return std::all_of(axis.amounts.begin(), axis.amounts.end(),
                     [&](const auto& amount) { return amount && amount->unit == axis.amounts.front()->unit; });
}

std::size_t x_axis(const SweepQuestion& question, const std::string& key) {
  std::vector<std::string_view> known;
  for (std::size_t i = 0; i < question.axes.size(); ++i) {
    const SweepAxis& axis = question.axes[i];
    if (key.empty() && axis.texts.size() > 1 && numeric(axis)) return i;
    if (!key.empty() && axis.key == key) {
      if (numeric(axis)) return i;
      throw InputError("--x: the values of " + key + " are not all numbers of one unit; name another key");
    }
    known.push_back(axis.key);
  }
  if (!key.empty()) throw InputError("--x: " + unknown_name(key, known));
  throw InputError(
      "--output: an SVG needs a key of the grid with two numbers or more to plot over; write .csv or .json");
}

SweepFigure y_figure(const std::string& name) {
  if (name.empty()) return SweepFigure::SamplesPerS;
  if (const SweepFigureName* found = find_sweep_figure(name)) return found->figure;
  std::vector<std::string_view> known;
  for (const SweepFigureName& each : kSweepFigures)
    known.push_back(each.name);
  throw InputError("--y: " + unknown_name(name, known));
}

class Plot {
 public:
  Plot(const Sweep& sweep, const SweepAxes& axes)
      : sweep_(sweep), axis_(x_axis(sweep.question, axes.x)), figure_(y_figure(axes.y)) {
    collect();
    scale_y();
    scale_x();
  }

  std::string draw() {
    canvas_.raw(kStyle);
    const std::string name = sweep_.question.description.empty() ? sweep_.question.file : sweep_.question.description;
    title(name);
    grid();
    for (std::size_t i = 0; i < lines_.size(); ++i)
      line(i);
    const double height = legend(top_ + kHeight + 62);
    return canvas_.document(left_ + kWidth + kRight, height, name);
  }

 private:
  struct Point {
    double x, y;
    const SweepRow* row;
  };
  struct Line {
    std::string name;
    std::vector<const SweepRow*> rows;  // by the value of the axis; nullptr: no figures
  };

  const SweepAxis& axis() const { return sweep_.question.axes[axis_]; }

  // Rows of one line agree in all but the value of the axis.
  void collect() {
    const SweepQuestion& question = sweep_.question;
    std::map<std::int64_t, std::size_t> known;
    for (const SweepRow& row : sweep_.rows) {
      const std::vector<std::size_t> values = question.values(row.point);
      std::int64_t stride = 1;
      for (std::size_t i = axis_ + 1; i < question.axes.size(); ++i)
        stride *= static_cast<std::int64_t>(question.axes[i].texts.size());
      const std::int64_t start = row.point - static_cast<std::int64_t>(values[axis_]) * stride;
      const auto [at, is_new] = known.emplace(start, lines_.size());
      if (is_new) lines_.push_back({line_name(row, values), std::vector<const SweepRow*>(axis().texts.size())});
      if (figure(row, figure_)) lines_[at->second].rows[values[axis_]] = &row;
    }
    if (lines_.size() > kMostLines) keep_best();
  }

  // Of more lines than can be told apart: those that reach furthest with what fits, then with what does not; in their
  // order. Lines without a figure would be empty ones.
  void keep_best() {
    const double sign = less_is_better(figure_) ? -1 : 1;
    using Reach = std::pair<bool, double>;
    std::vector<std::pair<Reach, std::size_t>> reached;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      std::optional<Reach> furthest;
      for (const SweepRow* const row : lines_[i].rows)
        if (row)
          furthest = std::max(
              furthest, std::optional<Reach>({row->outcome == SweepRow::Outcome::Fits, sign * *figure(*row, figure_)}));
      if (furthest) reached.emplace_back(*furthest, i);
    }
    without_figures_ = lines_.size() - reached.size();
    std::stable_sort(reached.begin(), reached.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    uncounted_ = reached.size() - std::min(reached.size(), kMostLines);
    reached.resize(reached.size() - uncounted_);
    std::sort(reached.begin(), reached.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    std::vector<Line> kept;
    for (const auto& [reach, line] : reached)
      kept.push_back(std::move(lines_[line]));
    lines_ = std::move(kept);
  }

  std::string line_name(const SweepRow& row, const std::vector<std::size_t>& values) const {
    const SweepQuestion& question = sweep_.question;
    std::string text = question.variants.size() > 1 ? question.variants[question.variant(row.point)] : "";
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i == axis_ || question.axes[i].texts.size() < 2) continue;
      const std::string& key = question.axes[i].key;
      text += fmt::format("{}{} {}", text.empty() ? "" : " · ", key.substr(key.rfind('.') + 1),
                          question.axes[i].texts[values[i]]);
    }
    return text.empty() ? "base" : text;
  }

  void scale_y() {
    double largest = 0, least = 0;
    for (std::size_t i = 0; i < lines_.size(); ++i)
      for (const SweepRow* row : lines_[i].rows)
        if (row) {
          largest = std::max(largest, *figure(*row, figure_));
          least = std::min(least, *figure(*row, figure_));
        }
    const SweepFigureName& named = name_of(figure_);
    label_ = std::string(named.name);
    std::replace(label_.begin(), label_.end(), '_', ' ');
    if (named.figure == SweepFigure::SamplesPerS) label_ = "samples/s";
    if (named.figure == SweepFigure::TokensPerS) label_ = "tokens/s";
    if (named.unit == Unit::Second) {
      const Scale scale = time_scale(Time{std::llround(largest * 1e9)});
      unit_ = scale.unit * 1e-9, label_ += " in " + scale.name;
    } else if (named.unit == Unit::Byte) {
      const Scale scale = bytes_scale(Bytes{static_cast<std::int64_t>(std::max(largest, -least))});
      unit_ = scale.unit, label_ += " in " + scale.name;
    } else if (figure_ == SweepFigure::Mfu || figure_ == SweepFigure::Hfu || figure_ == SweepFigure::Bubble ||
               figure_ == SweepFigure::Goodput) {
      unit_ = 0.01, label_ += " in %";
    }
    step_ = largest - least > 0 ? round_step((largest - least) / unit_) : 1;
    top_value_ = std::max(1.0, std::ceil(largest / unit_ / step_)) * step_;
    bottom_value_ = std::floor(least / unit_ / step_) * step_;
    double widest = 0;
    for (double value = bottom_value_; value < top_value_ + step_ / 2; value += step_)
      widest = std::max(widest, text_width(tick(value), 11));
    left_ = std::ceil(widest) + 30;
  }

  std::string tick(double value) const { return brief(std::abs(value) < step_ / 2 ? 0 : value); }

  void scale_x() {
    smallest_ = largest_ = axis().amounts.front()->value;
    for (const auto& amount : axis().amounts) {
      smallest_ = std::min(smallest_, amount->value);
      largest_ = std::max(largest_, amount->value);
    }
    logarithmic_ = smallest_ > 0 && largest_ / smallest_ >= kLogarithmicFrom;
  }

  double x(double value) const {
    constexpr double kInset = 18;  // the outermost points lie clear of the frame
    if (largest_ == smallest_) return left_ + kWidth / 2;
    const double share = logarithmic_ ? std::log(value / smallest_) / std::log(largest_ / smallest_)
                                      : (value - smallest_) / (largest_ - smallest_);
    return left_ + kInset + (kWidth - 2 * kInset) * share;
  }
  double y(double value) const {
    return top_ + kHeight * (1 - (value / unit_ - bottom_value_) / (top_value_ - bottom_value_));
  }

  void title(const std::string& name) {
    std::string line;
    double at = 24;
    for (std::size_t begin = 0; begin < name.size();) {
      const std::size_t end = std::min(name.find(' ', begin + 1), name.size());
      const std::string word = name.substr(begin, end - begin);
      if (!line.empty() && text_width(line + word, 15) > left_ + kWidth) {
        canvas_.text(12, at, line, "title", 15);
        line.clear();
        at += 20;
      }
      line += line.empty() && word.starts_with(' ') ? word.substr(1) : word;
      begin = end;
    }
    canvas_.text(12, at, line, "title", 15);
    canvas_.text(12, at + 22, label_, "quiet", 12);
    top_ = at + 34;
  }

  void grid() {
    for (double value = bottom_value_; value < top_value_ + step_ / 2; value += step_) {
      const double at = y(value * unit_);
      canvas_.line(left_, at, left_ + kWidth, at, "grid");
      canvas_.text(left_ - 8, at + 4, tick(value), "end quiet", 11);
    }
    const double bottom = top_ + kHeight;
    canvas_.line(left_, bottom, left_ + kWidth, bottom, "tick");
    std::vector<std::pair<double, std::string>> marks;
    for (std::size_t i = 0; i < axis().texts.size(); ++i)
      marks.emplace_back(x(axis().amounts[i]->value), axis().texts[i]);
    std::sort(marks.begin(), marks.end());
    double free_from = 0;
    for (const auto& [at, text] : marks) {
      canvas_.line(at, bottom, at, bottom + 4, "tick");
      const double half = text_width(text, 11) / 2;
      if (at - half < free_from) continue;
      canvas_.text(at, bottom + 18, text, "mid quiet", 11);
      free_from = at + half + 6;
    }
    canvas_.text(left_ + kWidth / 2, bottom + 38, axis().key + (logarithmic_ ? " (logarithmic)" : ""), "mid quiet", 12);
  }

  void line(std::size_t number) {
    std::vector<std::pair<double, const SweepRow*>> points;
    for (std::size_t i = 0; i < lines_[number].rows.size(); ++i)
      points.emplace_back(axis().amounts[i]->value, lines_[number].rows[i]);
    std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::string d;
    bool pen_down = false;
    for (const auto& [value, row] : points) {
      if (row)
        d += fmt::format("{}{} {}", pen_down ? "L" : "M", coordinate(x(value)), coordinate(y(*figure(*row, figure_))));
      pen_down = row != nullptr;
    }
    if (!d.empty())
      canvas_.path(d, fmt::format("s s{}{}", number % kColours, number >= kColours ? " dash" : ""),
                   lines_[number].name);
    for (const auto& [value, row] : points)
      if (row) mark(number, value, *row);
  }

  void mark(std::size_t number, double value, const SweepRow& row) {
    const bool fits = row.outcome == SweepRow::Outcome::Fits;
    hollow_ |= !fits;
    const double at = *figure(row, figure_);
    std::string tooltip = fmt::format("{}: {} {}", point_name(sweep_.question, row.point), label_, brief(at / unit_));
    if (!fits) tooltip += " (does not fit)";
    if (sweep_.question.replan) tooltip += " · " + row.plan;
    canvas_.raw(fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"3.6\" class=\"p s{} {}\"><title>{}</title></circle>\n",
                            coordinate(x(value)), coordinate(y(at)), number % kColours,
                            fits ? fmt::format("p{}", number % kColours) : "hollow", xml(tooltip)));
    if (sweep_.question.replan && row.plan_changes) {
      changed_ = true;
      canvas_.raw(fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"7\" class=\"s s{}\"/>\n", coordinate(x(value)),
                              coordinate(y(at)), number % kColours));
    }
  }

  double legend(double at) {
    double x_at = left_;
    const auto entry = [&](const std::string& name, const auto& swatch) {
      const double width = 34 + text_width(name, 12) + 14;
      if (x_at > left_ && x_at + width > left_ + kWidth) x_at = left_, at += 20;
      swatch();
      canvas_.text(x_at + 34, at + 4, name, "", 12);
      x_at += width;
    };
    if (lines_.size() > 1)
      for (std::size_t i = 0; i < lines_.size(); ++i)
        entry(lines_[i].name, [&] {
          canvas_.path(fmt::format("M{} {}h26", coordinate(x_at), coordinate(at)),
                       fmt::format("s s{}{}", i % kColours, i >= kColours ? " dash" : ""));
        });
    const auto circle = [&](const char* radius, const char* css) {
      canvas_.raw(fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" class=\"{}\"/>\n", coordinate(x_at + 13),
                              coordinate(at), radius, css));
    };
    if (hollow_) entry("does not fit the device", [&] { circle("3.6", "p s7 hollow"); });
    if (changed_) entry("plan changes", [&] { circle("7", "s s7"); });
    if (uncounted_ > 0)
      canvas_.text(
          left_, at += 24,
          fmt::format("{} more lines, which do not reach as far, are not drawn; a CSV file has every row.", uncounted_),
          "quiet", 11);
    if (without_figures_ > 0)
      canvas_.text(
          left_, at += uncounted_ > 0 ? 16 : 24,
          fmt::format("{} {} no figures.", without_figures_, without_figures_ == 1 ? "line has" : "lines have"),
          "quiet", 11);
    return at + 22;
  }

  const Sweep& sweep_;
  std::size_t axis_;
  SweepFigure figure_;
  std::vector<Line> lines_;
  std::size_t uncounted_ = 0, without_figures_ = 0;  // lines that are not drawn
  std::string label_;
  double unit_ = 1, step_ = 1, top_value_ = 1, bottom_value_ = 0;
  double left_ = 0, top_ = 0;
  double smallest_ = 0, largest_ = 0;
  bool logarithmic_ = false, hollow_ = false, changed_ = false;
  Canvas canvas_;
};

}  // namespace

void check_axes(const SweepQuestion& question, const SweepAxes& axes) {
  x_axis(question, axes.x);
  y_figure(axes.y);
}

std::string sweep_svg(const Sweep& sweep, const SweepAxes& axes) {
  return Plot(sweep, axes).draw();
}

}  // namespace pipewright
