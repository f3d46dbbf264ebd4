// One or several timelines on one scale as a picture, in the size, the font and the colours of the page it is for.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/answers/report.hpp"
#include "io/writers/palette.hpp"

namespace pipewright::io {

struct FigurePanel {
  std::string name;  // above the timeline; of one panel alone "": the question
  const Answer* answer = nullptr;
};

enum class FigureMemory { Stages, Fullest, None };  // below each timeline: of every stage, of the fullest one

struct FigureStyle {
  double width = 0;       // of the document in CSS pixels, 96 an inch; 0: 1000 for the timeline
  double font_size = 12;  // of most labels, in CSS pixels; rows and gaps grow with it
  std::string fonts;      // as CSS names them; "": the system's
  const Palette* palette = &palettes().front();
  bool title = true;   // headings
  bool legend = true;  // of colours, and what is not drawn
  FigureMemory memory = FigureMemory::Stages;
};

// "84mm" as CSS pixels; mm, cm, in, pt and px. Nothing for any other text.
std::optional<double> length_in_pixels(std::string_view text);
// "Helvetica, sans-serif" as a style sheet has it. Nothing for what could end the rule there.
std::optional<std::string> css_fonts(std::string_view names);

// Throws InputError where the width has no room for a timeline.
std::string svg_figure(std::span<const FigurePanel> panels, const FigureStyle& style);

}  // namespace pipewright::io
