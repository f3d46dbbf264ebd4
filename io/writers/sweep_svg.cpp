// A sweep as line plots: a key of the grid to the right, a figure upwards, a line per variant (or, of one variant, per
// value of the longest key that is left), and a panel per combination of the keys that then are left, all on one scale.
// Points without figures leave a gap; what does not fit is hollow.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "core/folds.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/quote.hpp"
#include "io/writers/page_text.hpp"
#include "io/writers/svg_canvas.hpp"
#include "io/writers/sweep.hpp"
#include "io/writers/sweep_cells.hpp"

namespace pipewright::io {
namespace {

// Of a panel, by how many stand side by side; all are at most 1176 wide, as a page is.
struct PanelSize {
  double width, height;
};
constexpr std::array<PanelSize, 4> kPanelSizes = {{{}, {820, 380}, {510, 260}, {336, 210}}};
constexpr double kPanelGap = 28, kPanelRight = 24, kBetweenRows = 64;
constexpr std::size_t kMostPanels = 24;
constexpr std::size_t kSweepColours = 8;
constexpr std::size_t kMostLines = 2 * kSweepColours;  // the second half is dotted
constexpr double kFromZeroBelow = 0.6;  // least over largest figure: from there on the scale does not begin at 0
constexpr double kLogarithmicFrom = 8;  // largest over smallest value: below it equal steps are easier to read

constexpr std::string_view kSweepStyle = R"svg(<style>
.s{fill:none;stroke-width:2}.dash{stroke-dasharray:2 3}.over{stroke-dasharray:9 9}.over2{stroke-dasharray:4 14}.p{stroke-width:1.6}.hollow{fill:#fff}
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
  return std::ranges::all_of(axis.amounts,
                             [&](const auto& amount) { return amount && amount->unit == axis.amounts.front()->unit; });
}

// The longest of some axes of a grid, the first of several; nothing where none has two values.
std::optional<std::size_t> longest(const SweepQuestion& question, const auto& wanted) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < question.axes.size(); ++i) {
    const std::size_t values = question.axes[i].texts.size();
    if (values > 1 && wanted(i) && (!best || values > question.axes[*best].texts.size())) best = i;
  }
  return best;
}

std::size_t x_axis(const SweepQuestion& question, const std::string& key) {
  if (key.empty()) {
    if (const auto found = longest(question, [&](std::size_t i) { return numeric(question.axes[i]); })) return *found;
    throw InputError(Place{}, "--output",
                     "an SVG needs a key of the grid with two numbers or more to plot over; write .csv or .json");
  }
  std::vector<std::string_view> known;
  for (std::size_t i = 0; i < question.axes.size(); ++i) {
    const SweepAxis& axis = question.axes[i];
    if (axis.key == key) {
      if (numeric(axis)) return i;
      throw InputError(Place{}, "--x", "the values of " + key + " are not all numbers of one unit; name another key");
    }
    known.push_back(axis.key);
  }
  throw InputError(Place{}, "--x", unknown_name(key, known));
}

SweepFigure y_figure(const std::string& name) {
  if (name.empty()) return SweepFigure::SamplesPerS;
  if (const SweepFigureName* found = find_sweep_figure(name)) return found->figure;
  auto known = mapped<std::string_view>(kSweepFigures, &SweepFigureName::name);
  throw InputError(Place{}, "--y", unknown_name(name, known));
}

class Plot {
 public:
  Plot(const Sweep& sweep, const SweepAxes& axes)
      : sweep_(sweep), axis_(x_axis(sweep.question, axes.x)), figure_(y_figure(axes.y)) {
    choose_axes();
    collect();
    keep_best();
    columns_ = panels_.size() <= 2 ? panels_.size() : panels_.size() == 4 ? 2 : 3;
    size_ = kPanelSizes[columns_];
    scale_y();
    scale_x();
  }

  std::string draw() {
    canvas_.raw(kSweepStyle);
    const std::string name =
        without_folders(sweep_.question.description.empty() ? sweep_.question.file : sweep_.question.description);
    title(name);
    for (std::size_t i = 0; i < panels_.size(); ++i) {
      panels_[i].labelled = i % columns_ == 0;
      panels_[i].left = left_ + static_cast<double>(i % columns_) * (size_.width + kPanelGap);
      panels_[i].top = top_ + static_cast<double>(i / columns_) * (size_.height + kBetweenRows);
      grid(panels_[i]);
      for (std::size_t line = 0; line < lines_.size(); ++line)
        draw_line(panels_[i], line);
      taken_.clear();
    }
    const double bottom = panels_.back().top + size_.height;
    canvas_.text((left_ + right()) / 2, bottom + 38, axis().key + (logarithmic_ ? " (logarithmic)" : ""), "mid quiet",
                 12);
    const double height = legend(bottom + 62);
    return canvas_.document(right() + kPanelRight, height, name);
  }

 private:
  struct Panel {
    std::string name;                                // "" where it is the only one
    std::vector<std::vector<const SweepRow*>> rows;  // by line, and by the value of the axis; nullptr: no figures
    double left = 0, top = 0;
    bool labelled = false;  // the leftmost of its row has the figures of the scale
  };

  const SweepQuestion& question() const { return sweep_.question; }
  const SweepAxis& axis() const { return question().axes[axis_]; }
  double right() const { return left_ + static_cast<double>(columns_) * (size_.width + kPanelGap) - kPanelGap; }

  // Which keys make lines and which make panels.
  void choose_axes() {
    const bool variants = question().variants.size() > 1;
    if (!variants) line_axis_ = longest(question(), [&](std::size_t i) { return i != axis_; });
    for (std::size_t i = 0; i < question().axes.size(); ++i)
      if (i != axis_ && i != line_axis_ && question().axes[i].texts.size() > 1) panel_axes_.push_back(i);
    if (variants)
      lines_ = question().variants;
    else if (line_axis_)
      for (std::size_t value = 0; value < question().axes[*line_axis_].texts.size(); ++value)
        lines_.push_back(named(*line_axis_, value));
    else
      lines_ = {"base"};
  }

  // "stages 4"
  std::string named(std::size_t axis, std::size_t value) const {
    const std::string& key = question().axes[axis].key;
    return key.substr(key.rfind('.') + 1) + " " + question().axes[axis].texts[value];
  }

  void collect() {
    std::map<std::vector<std::size_t>, std::size_t> known;  // values of the panel's keys
    for (const SweepRow& row : sweep_.rows) {
      const std::vector<std::size_t> values = question().values(row.point);
      std::vector<std::size_t> place;
      for (const std::size_t i : panel_axes_)
        place.push_back(values[i]);
      const auto [at, is_new] = known.emplace(place, panels_.size());
      if (is_new) panels_.push_back(empty_panel(place));
      const std::size_t line = line_axis_ ? values[*line_axis_] : question().variant(row.point);
      if (figure(row, figure_)) panels_[at->second].rows[line][values[axis_]] = &row;
    }
    if (panels_.empty()) panels_.push_back(empty_panel({}));
  }

  Panel empty_panel(const std::vector<std::size_t>& place) const {
    Panel panel;
    for (std::size_t i = 0; i < place.size(); ++i)
      panel.name += (i > 0 ? " · " : "") + named(panel_axes_[i], place[i]);
    panel.rows.assign(lines_.size(), std::vector<const SweepRow*>(axis().texts.size()));
    return panel;
  }

  // Of more lines or panels than can be told apart: those that reach furthest with what fits, then with what does not;
  // in their order. Those without a figure would be empty ones.
  void keep_best() {
    const auto all_lines = [&](std::size_t line, const auto& see) {
      for (const Panel& panel : panels_)
        see(panel.rows[line]);
    };
    const auto all_panels = [&](std::size_t panel, const auto& see) {
      for (const auto& rows : panels_[panel].rows)
        see(rows);
    };
    if (lines_.size() > kMostLines) {
      const std::vector<std::size_t> kept = furthest(lines_.size(), kMostLines, all_lines, left_out_lines_);
      lines_ = picked(lines_, kept);
      for (Panel& panel : panels_)
        panel.rows = picked(panel.rows, kept);
    }
    if (panels_.size() > 1) {
      const std::vector<std::size_t> kept = furthest(panels_.size(), kMostPanels, all_panels, left_out_panels_);
      panels_ = kept.empty() ? std::vector<Panel>{panels_.front()} : picked(panels_, kept);
    }
  }

  struct LeftOut {
    std::size_t behind = 0, empty = 0;  // those that do not reach as far, and those without figures
  };

  std::vector<std::size_t> furthest(std::size_t count, std::size_t most, const auto& each, LeftOut& left_out) const {
    const double sign = name_of(figure_).better == Better::Less ? -1 : 1;
    using Reach = std::pair<bool, double>;
    std::vector<std::pair<Reach, std::size_t>> reached;
    for (std::size_t i = 0; i < count; ++i) {
      std::optional<Reach> reach;
      each(i, [&](const std::vector<const SweepRow*>& rows) {
        for (const SweepRow* const row : rows)
          if (row)
            reach = std::max(
                reach, std::optional<Reach>({row->outcome == SweepRow::Outcome::Fits, sign * *figure(*row, figure_)}));
      });
      if (reach) reached.emplace_back(*reach, i);
    }
    left_out.empty = count - reached.size();
    std::ranges::stable_sort(reached, [](const auto& a, const auto& b) { return a.first > b.first; });
    left_out.behind = reached.size() - std::min(reached.size(), most);
    reached.resize(reached.size() - left_out.behind);
    std::vector<std::size_t> kept;
    for (const auto& [reach, i] : reached)
      kept.push_back(i);
    std::ranges::sort(kept);
    return kept;
  }

  template <class T>
  static std::vector<T> picked(std::vector<T>& all, const std::vector<std::size_t>& numbers) {
    std::vector<T> some;
    for (const std::size_t i : numbers)
      some.push_back(std::move(all[i]));
    return some;
  }

  void scale_y() {
    double largest = 0, least = std::numeric_limits<double>::infinity();
    for (const Panel& panel : panels_)
      for (const auto& rows : panel.rows)
        for (const SweepRow* row : rows)
          if (row) {
            largest = std::max(largest, *figure(*row, figure_));
            least = std::min(least, *figure(*row, figure_));
          }
    if (least < kFromZeroBelow * largest || !(largest - least > 5e-3 * largest)) least = std::min(0.0, least);
    if (least > largest) least = 0;  // there are no figures
    const SweepFigureName& chosen = name_of(figure_);
    label_ = std::string(chosen.name);
    std::ranges::replace(label_, '_', ' ');
    if (chosen.figure == SweepFigure::SamplesPerS) label_ = "samples/s";
    if (chosen.figure == SweepFigure::TokensPerS) label_ = "tokens/s";
    if (chosen.unit == Unit::Second) {
      const Scale scale = time_scale(Time{std::llround(largest * 1e9)});
      unit_ = scale.unit * 1e-9, label_ += " in " + scale.name;
    } else if (chosen.unit == Unit::Byte) {
      const Scale scale = bytes_scale(Bytes{static_cast<std::int64_t>(std::max(largest, -least))});
      unit_ = scale.unit, label_ += " in " + scale.name;
    } else if (chosen.form == CellForm::Percent) {
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

  std::string tick(double value) const { return with_separators(brief(std::abs(value) < step_ / 2 ? 0 : value)); }

  void scale_x() {
    smallest_ = largest_ = axis().amounts.front()->value;
    for (const auto& amount : axis().amounts) {
      smallest_ = std::min(smallest_, amount->value);
      largest_ = std::max(largest_, amount->value);
    }
    logarithmic_ = smallest_ > 0 && largest_ / smallest_ >= kLogarithmicFrom;
  }

  double x(const Panel& panel, double value) const {
    constexpr double kInset = 18;  // the outermost points lie clear of the frame
    if (largest_ == smallest_) return panel.left + size_.width / 2;
    const double share = logarithmic_ ? std::log(value / smallest_) / std::log(largest_ / smallest_)
                                      : (value - smallest_) / (largest_ - smallest_);
    return panel.left + kInset + (size_.width - 2 * kInset) * share;
  }
  double y(const Panel& panel, double value) const {
    return panel.top + size_.height * (1 - (value / unit_ - bottom_value_) / (top_value_ - bottom_value_));
  }

  void title(const std::string& name) {
    std::string line;
    double at = 24;
    for (std::size_t begin = 0; begin < name.size();) {
      const std::size_t end = std::min(name.find(' ', begin + 1), name.size());
      const std::string word = name.substr(begin, end - begin);
      if (!line.empty() && text_width(line + word, 15) > right()) {
        canvas_.text(12, at, line, "title", 15);
        line.clear();
        at += 20;
      }
      line += line.empty() && word.starts_with(' ') ? word.substr(1) : word;
      begin = end;
    }
    canvas_.text(12, at, line, "title", 15);
    canvas_.text(12, at + 22, label_ + (bottom_value_ > 0 ? "; the scale does not begin at 0" : ""), "quiet", 12);
    top_ = at + (panels_.size() > 1 ? 58 : 34);
  }

  void grid(const Panel& panel) {
    const double bottom = panel.top + size_.height, right = panel.left + size_.width;
    if (panels_.size() > 1) canvas_.text(panel.left, panel.top - 10, panel.name, "", 12);
    for (double value = bottom_value_; value < top_value_ + step_ / 2; value += step_) {
      const double at = y(panel, value * unit_);
      canvas_.line(panel.left, at, right, at, "grid");
      if (panel.labelled) canvas_.text(left_ - 8, at + 4, tick(value), "end quiet", 11);
    }
    canvas_.line(panel.left, bottom, right, bottom, "tick");
    std::vector<std::pair<double, std::string>> marks;
    for (std::size_t i = 0; i < axis().texts.size(); ++i)
      marks.emplace_back(x(panel, axis().amounts[i]->value), axis().texts[i]);
    std::ranges::sort(marks);
    double free_from = 0;
    for (const auto& [at, text] : marks) {
      canvas_.line(at, bottom, at, bottom + 4, "tick");
      const double half = text_width(text, 11) / 2;
      if (at - half < free_from) continue;
      canvas_.text(at, bottom + 18, text, "mid quiet", 11);
      free_from = at + half + 6;
    }
  }

  // Of the line style: the second half of the colours is dotted.
  static std::string css(std::size_t number) {
    return fmt::format("s s{}{}", number % kSweepColours, number >= kSweepColours ? " dash" : "");
  }

  void draw_line(const Panel& panel, std::size_t number) {
    std::vector<std::pair<double, const SweepRow*>> points;
    for (std::size_t i = 0; i < panel.rows[number].size(); ++i)
      points.emplace_back(axis().amounts[i]->value, panel.rows[number][i]);
    std::ranges::sort(points, [](const auto& a, const auto& b) { return a.first < b.first; });
    // What lies on an earlier line is dashed, so that both are seen.
    std::array<std::string, 3> paths;
    std::string* drawn = nullptr;  // which of them the last piece is in
    std::string before;
    Pixel from;
    for (const auto& [value, row] : points) {
      if (row == nullptr) {
        before.clear(), drawn = nullptr;
        continue;
      }
      const double at_x = x(panel, value), at_y = y(panel, *figure(*row, figure_));
      const Pixel to{std::lround(at_x), std::lround(at_y)};
      const std::string here = fmt::format("{} {}", coordinate(at_x), coordinate(at_y));
      if (!before.empty()) {
        std::string& d = paths[at(std::min(2, taken_[{from, to}]++))];
        d += (&d == drawn ? "L" : "M" + before + "L") + here;
        drawn = &d;
      }
      before = here, from = to;
    }
    constexpr std::array<std::string_view, 3> kOver = {"", " over", " over2"};
    for (std::size_t i = 0; i < paths.size(); ++i)
      if (!paths[i].empty()) canvas_.path(paths[i], fmt::format("{}{}", css(number), kOver[i]), lines_[number]);
    seen_.over |= !paths[1].empty();
    for (const auto& [value, row] : points)
      if (row) mark(x(panel, value), y(panel, *figure(*row, figure_)), number, *row);
  }

  void mark(double at_x, double at_y, std::size_t number, const SweepRow& row) {
    const bool fits = row.outcome == SweepRow::Outcome::Fits;
    seen_.hollow |= !fits;
    std::string tooltip = fmt::format("{}: {} {}", point_name(question(), row.point), label_,
                                      with_separators(brief(*figure(row, figure_) / unit_)));
    if (!fits) tooltip += " (does not fit)";
    if (question().replan) tooltip += " · " + row.plan;
    // On an earlier one: inside of it.
    const Pixel here{std::lround(at_x), std::lround(at_y)};
    const std::string_view radius = taken_[{here, here}]++ == 0 ? "3.6" : "1.4";
    canvas_.raw(fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" class=\"p s{} {}\"><title>{}</title></circle>\n",
                            coordinate(at_x), coordinate(at_y), radius, number % kSweepColours,
                            fits ? fmt::format("p{}", number % kSweepColours) : "hollow", xml(tooltip)));
    if (question().replan && row.plan_changes) {
      seen_.changed = true;
      canvas_.raw(fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"7\" class=\"s s{}\"/>\n", coordinate(at_x),
                              coordinate(at_y), number % kSweepColours));
    }
  }

  double legend(double at) {
    double x_at = left_;
    const auto entry = [&](const std::string& name, const auto& swatch) {
      const double width = 34 + text_width(name, 12) + 14;
      if (x_at > left_ && x_at + width > right()) x_at = left_, at += 20;
      swatch();
      canvas_.text(x_at + 34, at + 4, name, "", 12);
      x_at += width;
    };
    if (lines_.size() > 1)
      for (std::size_t i = 0; i < lines_.size(); ++i)
        entry(lines_[i], [&] { canvas_.path(fmt::format("M{} {}h26", coordinate(x_at), coordinate(at)), css(i)); });
    const auto circle = [&](const char* radius, const char* style) {
      canvas_.raw(fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" class=\"{}\"/>\n", coordinate(x_at + 13),
                              coordinate(at), radius, style));
    };
    if (seen_.hollow) entry("does not fit the device", [&] { circle("3.6", "p s7 hollow"); });
    if (seen_.changed) entry("plan changes", [&] { circle("7", "s s7"); });
    if (seen_.over)
      entry("lines that lie on one another", [&] {
        const std::string line = fmt::format("M{} {}h26", coordinate(x_at), coordinate(at));
        canvas_.path(line, css(0)), canvas_.path(line, css(1) + " over");
      });
    at += 8;
    for (const std::string& note : notes())
      canvas_.text(left_, at += 16, note, "quiet", 11);
    return at + 14;
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> all;
    const auto behind = [&](std::size_t count, const char* what) {
      if (count > 0)
        all.push_back(fmt::format("{} more {}, which do not reach as far, are not drawn; a CSV file has every row.",
                                  count, what));
    };
    const auto empty = [&](std::size_t count, const std::string& what) {
      if (count > 0)
        all.push_back(fmt::format("{} {} no figures.", count, count == 1 ? what + " has" : what + "s have"));
    };
    behind(left_out_lines_.behind, "lines");
    behind(left_out_panels_.behind, "panels");
    empty(left_out_lines_.empty, "line");
    empty(left_out_panels_.empty, "panel");
    return all;
  }

  const Sweep& sweep_;
  std::size_t axis_;                      // to the right
  std::optional<std::size_t> line_axis_;  // whose values are lines; nothing: variants are, or there is one line
  std::vector<std::size_t> panel_axes_;
  SweepFigure figure_;
  std::vector<std::string> lines_;  // names
  std::vector<Panel> panels_;
  LeftOut left_out_lines_, left_out_panels_;
  std::size_t columns_ = 1;  // of panels
  PanelSize size_{};
  std::string label_;
  double unit_ = 1, step_ = 1, top_value_ = 1, bottom_value_ = 0;
  double left_ = 0, top_ = 0;
  double smallest_ = 0, largest_ = 0;
  bool logarithmic_ = false;
  struct {
    bool hollow = false, changed = false, over = false;
  } seen_;
  using Pixel = std::pair<long, long>;
  std::map<std::pair<Pixel, Pixel>, int>
      taken_;  // of the panel that is drawn: lines from one to the other, marks on one
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

}  // namespace pipewright::io
