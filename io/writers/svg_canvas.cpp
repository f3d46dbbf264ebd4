#include "io/writers/svg_canvas.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "io/text/format_quantity.hpp"
#include "io/text/quote.hpp"

namespace pipewright::io {
namespace {

constexpr std::string_view kCanvasStyle = R"svg(<style>
svg{color-scheme:light dark;color:#1f2328;font-family:system-ui,-apple-system,"Segoe UI","Liberation Sans",Arial,sans-serif}
text{fill:currentColor}
.bg{fill:#fff}.i{fill:#e8eaed}.tick{stroke:#59636e;stroke-width:1}.grid{stroke:#d1d9e0;stroke-width:.6}
.quiet{fill:#59636e}.title{font-weight:600}.end{text-anchor:end}.mid{text-anchor:middle}
.box{stroke:#fff;stroke-width:.6}
.f{fill:#3775c6}.f2{fill:#8db6e8}.b{fill:#2b8553}.b2{fill:#86cba0}.w{fill:#a3c94f}.r{fill:#f0b849}.u{fill:#7d5ba6}
.a{fill:url(#pipewright-hatch)}.abg{fill:#fbe3e1}.hatch{stroke:#c0392b;stroke-width:1.3}.g{fill:#e0922f}
.num{fill:#fff}.num2{fill:#1f2328}.msg{stroke:#59636e;stroke-width:.9;fill:none}.halo{stroke:#fff;stroke-width:2.6;opacity:.7}.msghead{fill:#59636e}
.m0{fill:#8c96a3}.m1{fill:#3775c6}.m2{fill:#f0b849}.m3{fill:#c0392b}.cap{stroke:#c0392b;stroke-width:1.2;stroke-dasharray:5 3}
@media(prefers-color-scheme:dark){
svg{color:#e6edf3}
.bg{fill:#0d1117}.i{fill:#272d36}.tick{stroke:#8b949e}.grid{stroke:#30363d}.quiet{fill:#9ca6b1}
.box{stroke:#0d1117}.abg{fill:#3b1d1b}.hatch{stroke:#f0776b}
.f{fill:#3977c8}.f2{fill:#86b3ea}.b{fill:#2c8655}.b2{fill:#7cc79a}.u{fill:#9775c4}.msg{stroke:#9ca6b1}.halo{stroke:#0d1117}.msghead{fill:#9ca6b1}
.num2{fill:#0d1117}.m0{fill:#6e7885}.m1{fill:#3977c8}.m3{fill:#f0776b}.cap{stroke:#f0776b}
}
</style>
<defs><pattern id="pipewright-hatch" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="4" height="4" class="abg"/><line x1="1" y1="0" x2="1" y2="4" class="hatch"/></pattern></defs>
)svg";

}  // namespace

std::string coordinate(double value) {
  const auto hundredths = static_cast<std::int64_t>(std::llround(value * 100));
  if (hundredths % 100 == 0) return fmt::format("{}", hundredths / 100);
  std::string text =
      fmt::format("{}{}.{:02d}", hundredths < 0 ? "-" : "", std::abs(hundredths) / 100, std::abs(hundredths) % 100);
  if (text.back() == '0') text.pop_back();
  return text;
}

std::string_view css_class(Look look, bool light) {
  switch (look) {
    case Look::Forward: return light ? "f2" : "f";
    case Look::Backward: return light ? "b2" : "b";
    case Look::WeightGradient: return "w";
    case Look::Recompute: return "r";
    case Look::Update: return "u";
    case Look::AllReduce: return "a";
    case Look::AllGather: return "g";
    case Look::Move: return "w";  // in rows of their own
    case Look::Idle: break;
  }
  return "i";
}

std::string Axis::unit() const {
  return time_scale(end).name;
}

std::vector<Axis::Mark> Axis::marks() const {
  if (end.value <= 0) return {};
  // Smallest of 1, 2, 5 * 10^n ns that gives at most ten steps, or as many as have room for their labels.
  constexpr double kMark = 45;
  const auto most = static_cast<std::int64_t>(std::clamp(width / kMark, 2.0, 10.0));
  std::int64_t power = 1, step = 1;
  for (int i = 0; end.value / step > most; ++i) {
    constexpr int kSteps[] = {1, 2, 5};
    if (i > 0 && i % 3 == 0) power *= 10;
    step = power * kSteps[i % 3];
  }
  const Scale scale = time_scale(end);
  std::vector<Mark> marks;
  for (std::int64_t t = 0; t <= end.value; t += step)
    marks.push_back({x(Time{t}), fmt::format("{:g}", static_cast<double>(t) / scale.unit)});
  return marks;
}

double round_step(double largest) {
  const double power = std::pow(10, std::floor(std::log10(largest / 6)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (largest / (factor * power) <= 6) return factor * power;
  return 10 * power;
}

double text_width(std::string_view text, double size) {
  return 0.57 * size * display_width(text);
}

void Canvas::rect(double x, double y, double width, double height, std::string_view css, std::string_view tooltip) {
  body_ += fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}" class="{}")", coordinate(x), coordinate(y),
                       coordinate(width), coordinate(height), css);
  body_ += tooltip.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", xml(tooltip));
}

void Canvas::line(double x1, double y1, double x2, double y2, std::string_view css) {
  body_ += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"{}\"/>\n", coordinate(x1), coordinate(y1),
                       coordinate(x2), coordinate(y2), css);
}

void Canvas::path(std::string_view d, std::string_view css, std::string_view tooltip) {
  body_ += fmt::format(R"(<path d="{}" class="{}")", d, css);
  body_ += tooltip.empty() ? "/>\n" : fmt::format("><title>{}</title></path>\n", xml(tooltip));
}

void Canvas::text(double x, double y, std::string_view content, std::string_view css, double size) {
  body_ += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\"{}>{}</text>\n", coordinate(x), coordinate(y),
                       coordinate(size), css.empty() ? "" : fmt::format(" class=\"{}\"", css), xml(content));
}

std::string Canvas::document(double width, double height, std::string_view name, std::string_view style,
                             double scale) const {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {} "
             "{}\" style=\"max-width:100%;height:auto\">\n"
             "<title>{}</title>\n",
             coordinate(width * scale), coordinate(height * scale), coordinate(width), coordinate(height), xml(name)) +
         std::string(style) + "<rect width=\"100%\" height=\"100%\" class=\"bg\"/>\n" + body_ + "</svg>\n";
}

std::string_view screen_style() {
  return kCanvasStyle;
}

std::vector<std::string> broken(std::string_view text, double size, double widest, std::string_view separator) {
  std::vector<std::string> lines;
  std::string line;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator, 1), text.size());
    if (!line.empty() && text_width(line + std::string(text.substr(0, end)), size) > widest) {
      lines.push_back(std::move(line));
      line.clear();
      text.remove_prefix(separator.size());
      continue;
    }
    line += text.substr(0, end);
    text.remove_prefix(end);
  }
  if (!line.empty()) lines.push_back(line);
  if (separator == " ") return lines;
  std::vector<std::string> all;  // a part that is wider by itself: between words
  for (const std::string& each : lines)
    if (text_width(each, size) <= widest)
      all.push_back(each);
    else
      std::ranges::move(broken(each, size, widest, " "), std::back_inserter(all));
  return all;
}

void Legend::entry(double sign, std::string_view text, const std::function<void(double x, double y)>& draw) {
  constexpr double kFont = 12, kBetween = 16, kLine = 17;
  const double words = sign > 0 ? sign + 5 : 0, width = words + text_width(text, kFont);
  if (x_ > left_ && x_ + width > right_) x_ = left_, y_ += kLine;
  draw(x_, y_);
  canvas_.text(x_ + words, y_ + 10, text, "", kFont);
  x_ += width + kBetween;
}

void Legend::entry(std::string_view css, std::string_view text) {
  constexpr double kSign = 16;
  entry(kSign, text, [&](double x, double y) { canvas_.rect(x, y, kSign, 11, css); });
}

}  // namespace pipewright::io
