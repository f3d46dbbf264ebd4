#include "io/writers/palette.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "io/writers/svg_canvas.hpp"

namespace pipewright::io {
namespace {

// Blue, vermilion, green, yellow and purple of [OkabeIto08], with paler ones for second chunks.
constexpr std::array kColourBlind = {
    Paint{"f", "#0072b2"},  Paint{"f2", "#8cc4ea", ' ', "", true},
    Paint{"b", "#d55e00"},  Paint{"b2", "#f2b48a", ' ', "", true},
    Paint{"w", "#009e73"},  Paint{"r", "#f0e442", ' ', "", true},
    Paint{"u", "#3b2160"},  Paint{"a", "#ffffff", '/', "#000000"},
    Paint{"g", "#cc79a7"},  Paint{"i", "#ececec"},
    Paint{"m0", "#999999"}, Paint{"m1", "#0072b2"},
    Paint{"m2", "#f0e442"}, Paint{"m3", "#d55e00"},
};

// Greys that a printer keeps apart; where there are too many, marks.
constexpr std::array kGrey = {
    Paint{"f", "#b4b4b4", ' ', "", true},
    Paint{"f2", "#dcdcdc", ' ', "", true},
    Paint{"b", "#5c5c5c"},
    Paint{"b2", "#8f8f8f"},
    Paint{"w", "#ffffff", '/', "#8f8f8f", true},
    Paint{"r", "#ffffff", '.', "#5c5c5c", true},
    Paint{"u", "#000000"},
    Paint{"a", "#ffffff", '\\', "#000000"},
    Paint{"g", "#ffffff", '-', "#000000"},
    Paint{"i", "#ffffff"},
    Paint{"m0", "#c4c4c4"},
    Paint{"m1", "#5c5c5c"},
    Paint{"m2", "#ffffff", '.', "#5c5c5c"},
    Paint{"m3", "#000000"},
};

constexpr std::array kPalettes = {
    Palette{"screen", "for screens, dark ones too", {}, "", ""},
    Palette{"colour-blind", "told apart by every kind of colour vision", kColourBlind, "stroke:#fff;stroke-width:.6",
            ""},
    Palette{"grey", "for print without colour", kGrey, "stroke:#000;stroke-width:.35", "stroke:#999;stroke-width:.4"},
};

constexpr std::string_view kPaperRules =
    "text{fill:#000}.bg{fill:#fff}.tick{stroke:#444;stroke-width:1}.grid{stroke:#ccc;stroke-width:.6}\n"
    ".quiet{fill:#333}.title{font-weight:600}.end{text-anchor:end}.mid{text-anchor:middle}.num{fill:#fff}.num2{fill:#"
    "000}\n"
    ".msg{stroke:#444;stroke-width:.9;fill:none}.halo{stroke:#fff;stroke-width:2.6;opacity:.7}\n"
    ".cap{stroke:#000;stroke-width:1.2;stroke-dasharray:5 3}\n";

std::string marks(const Paint& paint) {
  const auto line = [&](std::string_view ends) { return fmt::format(R"(<line {} stroke="{}"/>)", ends, paint.ink); };
  switch (paint.mark) {
    case '/': return line(R"(x1="0" y1="4" x2="4" y2="0")");
    case '\\': return line(R"(x1="0" y1="0" x2="4" y2="4")");
    case '-': return line(R"(x1="0" y1="2" x2="4" y2="2")");
    default: return fmt::format(R"(<circle cx="2" cy="2" r=".9" fill="{}"/>)", paint.ink);
  }
}

}  // namespace

bool Palette::dark_number(Look look, bool light) const {
  if (paints.empty()) return light || look == Look::Recompute || look == Look::WeightGradient;
  const auto found = std::ranges::find(paints, css_class(look, light), &Paint::css);
  return found != paints.end() && found->dark_number;
}

std::span<const Palette> palettes() {
  return kPalettes;
}

std::string style_sheet(const Palette& palette, std::string_view fonts) {
  std::string rules = fmt::format("<style>\nsvg{{font-family:{}}}\n{}.box{{{}}}.i{{{}}}\n", fonts, kPaperRules,
                                  palette.edge, palette.idle_edge);
  std::string patterns;
  for (const Paint& paint : palette.paints) {
    if (paint.mark == ' ') {
      rules += fmt::format(".{}{{fill:{}}}", paint.css, paint.colour);
      continue;
    }
    rules += fmt::format(".{0}{{fill:url(#pipewright-{1}-{0})}}", paint.css, palette.name);
    patterns += fmt::format(
        "<pattern id=\"pipewright-{}-{}\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\"><rect width=\"4\" "
        "height=\"4\" fill=\"{}\"/>{}</pattern>\n",
        palette.name, paint.css, paint.colour, marks(paint));
  }
  return rules + "\n</style>\n<defs>\n" + patterns + "</defs>\n";
}

}  // namespace pipewright::io
