// Primitives of the SVG drawings: fixed rounding (same answer, same bytes), escaped text, colours for light and dark.
//
// Colours are plain class rules with a prefers-color-scheme override, not CSS variables: converters for papers
// (rsvg-convert, Inkscape) know the former only.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/units.hpp"
#include "io/writers/drawing.hpp"

namespace pipewright::io {

std::string coordinate(double value);  // at most two decimals: 12.5, 3, 0.33

// Class of a look's boxes in the style sheet; `light`: the paler variant that tells odd chunks from even ones.
std::string_view css_class(Look look, bool light = false);

// Time axis: x of a moment, and marks at round times.
struct Axis {
  double left = 0, width = 0;
  Time end;
  double x(Time time) const { return left + width * ratio(time, end); }
  struct Mark {
    double x;
    std::string label;
  };
  std::vector<Mark> marks() const;  // about ten, fewer where it is short
  std::string unit() const;         // of the labels
};

// Smallest of 1, 2, 5 * 10^n that divides 0 .. largest into at most six steps.
double round_step(double largest);

// Rules and patterns for screens, light and dark.
std::string_view screen_style();
inline constexpr std::string_view kScreenFonts =
    R"(system-ui,-apple-system,"Segoe UI","Liberation Sans",Arial,sans-serif)";

class Canvas {
 public:
  void rect(double x, double y, double width, double height, std::string_view css, std::string_view tooltip = {});
  void line(double x1, double y1, double x2, double y2, std::string_view css);
  void path(std::string_view d, std::string_view css, std::string_view tooltip = {});
  void text(double x, double y, std::string_view content, std::string_view css, double size);
  void raw(std::string_view markup) { body_ += markup; }

  // The document. `name`: its title for readers that cannot see it. `style`: rules and patterns; `scale`: of its size.
  std::string document(double width, double height, std::string_view name, std::string_view style = screen_style(),
                       double scale = 1) const;

 private:
  std::string body_;
};

// Width of text in a sans-serif font, estimated high: most digits and letters take 0.56 of the size.
double text_width(std::string_view text, double size);
// Lines that are no wider, where the text can be broken: before `separator`, which a line does not begin with, else
// between words.
std::vector<std::string> broken(std::string_view text, double size, double widest, std::string_view separator);

// Entries of a legend, from left to right in as many lines as they take.
class Legend {
 public:
  Legend(Canvas& canvas, double left, double right, double y)
      : canvas_(canvas), left_(left), right_(right), x_(left), y_(y) {}
  // A sign of this width, which `draw` draws with its upper left corner there, and a text behind it.
  void entry(double sign, std::string_view text, const std::function<void(double x, double y)>& draw);
  void entry(std::string_view css, std::string_view text);  // a box
  double y() const { return y_; }                           // top of the signs of the line it is in

 private:
  Canvas& canvas_;
  double left_, right_, x_, y_;
};

// Memory over time below schedules, on their axes and on one scale of bytes.
class MemoryStrips {
 public:
  explicit MemoryStrips(const std::vector<const Answer*>& answers);
  // Lines of `stages`, each with its axis; returns the height they took. `label`: before the number of the stage.
  double draw(Canvas& canvas, const Answer& answer, const Axis& axis, double top, const std::vector<StageId>& stages,
              std::string_view label = "") const;
  void explain(Canvas& canvas, Legend& legend) const;

 private:
  bool used_[4] = {};
  Bytes smallest_device_, largest_device_;
  bool capacity_shown_ = false;
  double full_scale_ = 1;
};

// The strips of the stages of one schedule, with their legend. Returns the height it took.
double draw_memory(Canvas& canvas, const Answer& answer, const Axis& axis, double top, bool explained = true);

}  // namespace pipewright::io
