// Primitives of the SVG drawings: fixed rounding (same answer, same bytes), escaped text, colours for light and dark.
//
// Colours are plain class rules with a prefers-color-scheme override, not CSS variables: converters for papers
// (rsvg-convert, Inkscape) know the former only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/units.hpp"
#include "io/writers/drawing.hpp"

namespace pipewright {

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
  std::vector<Mark> marks() const;  // about ten
  std::string unit() const;         // of the labels
};

// Smallest of 1, 2, 5 * 10^n that divides 0 .. largest into at most six steps.
double round_step(double largest);

class Canvas {
 public:
  void rect(double x, double y, double width, double height, std::string_view css, std::string_view tooltip = {});
  void line(double x1, double y1, double x2, double y2, std::string_view css);
  void path(std::string_view d, std::string_view css, std::string_view tooltip = {});
  void text(double x, double y, std::string_view content, std::string_view css, double size);
  void raw(std::string_view markup) { body_ += markup; }

  // The document. `name`: its title for readers that cannot see it.
  std::string document(double width, double height, std::string_view name) const;

 private:
  std::string body_;
};

// Width of text in a sans-serif font, estimated high: most digits and letters take 0.56 of the size.
double text_width(std::string_view text, double size);

// Memory over time of the stages, below the schedule and on the same axis. Returns the height it took.
double draw_memory(Canvas& canvas, const Answer& answer, const Axis& axis, double top);

}  // namespace pipewright
