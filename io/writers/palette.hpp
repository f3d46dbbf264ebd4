// Colours of a drawing of timelines. Those for paper have no dark variant: a page is white.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "io/writers/drawing.hpp"

namespace pipewright::io {

// How the boxes of one class are filled.
struct Paint {
  std::string_view css;       // class of boxes: css_class(), "i" for idle, "m0" to "m3" for memory
  std::string_view colour;    // "#0072b2"
  char mark = ' ';            // drawn over it: / and \ diagonals, - lines, . dots
  std::string_view ink = {};  // colour of the marks
  bool dark_number = false;   // the number in the box is dark
};

struct Palette {
  std::string_view name, what;
  std::span<const Paint> paints;     // empty: those of the style sheet for screens
  std::string_view edge, idle_edge;  // of boxes, of what is idle; as CSS
  bool dark_number(Look look, bool light) const;
};

// "screen", "colour-blind", "grey"; the first one is the default.  tests/io/figure_test.cpp "can distinguish"
std::span<const Palette> palettes();

// Rules and patterns of a palette that has paints, with fonts as CSS names them.
std::string style_sheet(const Palette& palette, std::string_view fonts);

}  // namespace pipewright::io
