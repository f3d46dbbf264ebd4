// `draw`: timelines as a picture for a page: in its width, its font, its colours, several on one scale.
#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "cli/pdf.hpp"
#include "core/check.hpp"
#include "core/folds.hpp"
#include "io/text/errors.hpp"
#include "io/writers/figure.hpp"
#include "study/compared_sides.hpp"

namespace pipewright::cli {
namespace {

constexpr std::array<Option, 10> kDrawOptions = {{
    {"--set", "", "KEY=VALUE", "change one value of every timeline (repeatable)"},
    {"--panel", "", "CHANGES", "one timeline with these changes: plan.schedule=zbv,plan.virtual_stages=2 (repeatable)"},
    {"--output", "-o", "FILE",
     "write FILE: .svg, or .pdf by rsvg-convert (repeatable; default: SVG on standard output)"},
    {"--figure-width", "", "LENGTH", "of the picture: 84mm, 3.3in, 240pt, 640px (default: 1000px for the timeline)"},
    {"--font", "", "NAMES", "\"Latin Modern Roman, serif\": the first one that is there (default: the system's)"},
    {"--font-size", "", "LENGTH", "of the labels; rows and gaps grow with it (default: 12px, which is 9pt)"},
    {"--palette", "", "NAME", "screen (default), colour-blind, grey; the last two for paper"},
    {"--memory", "", "NAME", "below each timeline: stages, fullest (the fullest stage alone) or none"},
    {"--no-title", "", "", "no headings"},
    {"--no-legend", "", "", "no legends, and no lines that say what is not drawn"},
}};

struct AskedPanel {
  std::string name;
  std::vector<std::string> changes;
};

bool begins_change(std::string_view text) {
  const std::size_t end = std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_."), text.size());
  return end > 0 && end < text.size() && text[end] == '=';
}

// "NAME: KEY=VALUE,KEY=VALUE", the name as one likes. A comma ends a value where the next change begins.
AskedPanel parsed_panel(const std::string& text) {
  AskedPanel panel;
  std::string_view rest = text;
  if (const std::size_t colon = rest.find(": "); colon != std::string_view::npos && colon < rest.find('='))
    panel.name = rest.substr(0, colon), rest.remove_prefix(colon + 2);
  for (std::size_t begin = 0, at = 0; at <= rest.size(); ++at) {
    if (at < rest.size() && rest[at] != ',') continue;
    const std::size_t next = std::min(rest.find_first_not_of(' ', at + 1), rest.size());
    if (at < rest.size() && !begins_change(rest.substr(next))) continue;
    panel.changes.emplace_back(rest.substr(begin, at - begin));
    begin = next;
  }
  for (const std::string& change : panel.changes)
    if (!begins_change(change))
      throw InputError(Place{}, "--panel",
                       fmt::format("{} is not KEY=VALUE; write e.g. --panel plan.schedule=gpipe", in_quotes(change)));
  return panel;
}

double option_length(const Arguments& arguments, std::string_view option, double least, double most, double otherwise,
                     std::string_view example) {
  if (!arguments.has(option)) return otherwise;
  const std::string text = only_value(arguments, option);
  const auto pixels = length_in_pixels(text);
  if (!pixels || *pixels < least || *pixels > most)
    throw InputError(
        Place{}, std::string(option),
        fmt::format("{} is not a length from {:.0f} to {:.0f} px in mm, cm, in, pt or px; write e.g. {} {}",
                    in_quotes(text), least, most, option, example));
  return *pixels;
}

std::string option_fonts(const Arguments& arguments) {
  const std::string text = only_value(arguments, "--font");
  if (const auto fonts = css_fonts(text)) return *fonts;
  throw InputError(Place{}, "--font",
                   fmt::format("{} is not a list of fonts, names of letters, digits, blanks and hyphens with commas "
                               "between; write e.g. --font \"Helvetica, sans-serif\"",
                               in_quotes(text)));
}

FigureStyle figure_style(const Arguments& arguments, bool alone) {
  FigureStyle style{.title = !arguments.has("--no-title"), .legend = !arguments.has("--no-legend")};
  style.width = option_length(arguments, "--figure-width", 50, 10'000, style.width, "84mm");
  style.font_size = option_length(arguments, "--font-size", 4, 60, style.font_size, "7pt");
  if (arguments.has("--font")) style.fonts = option_fonts(arguments);
  auto names = mapped<std::string_view>(palettes(), &Palette::name);
  style.palette = &palettes()[option_word(arguments, "--palette", names.front(), names)];
  constexpr std::array<std::string_view, 3> kMemory = {"stages", "fullest", "none"};
  style.memory = static_cast<FigureMemory>(option_word(arguments, "--memory", kMemory[alone ? 0 : 1], kMemory));
  return style;
}

// What tells the timelines apart: their schedules, else their scenarios, else what was changed.
void name_panels(std::vector<FigurePanel>& panels, const std::vector<LoadedSide>& sides) {
  std::set<std::string> schedules, scenarios;
  for (const FigurePanel& panel : panels)
    schedules.insert(panel.answer->plan.schedule), scenarios.insert(panel.answer->scenario->name);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    if (!panels[i].name.empty() || panels.size() == 1) continue;
    panels[i].name = schedules.size() == panels.size()   ? panels[i].answer->plan.schedule
                     : scenarios.size() == panels.size() ? panels[i].answer->scenario->name
                                                         : sides[i].side.name;
  }
}

int draw_command(const Arguments& arguments) {
  constexpr std::array<std::string_view, 2> kEndings = {".svg", ".pdf"};
  const std::vector<std::string>& paths = arguments.positional;
  const std::vector<std::string> outputs = arguments.all("--output");
  const std::vector<std::size_t> endings = check_outputs(outputs, paths, kEndings);
  if (std::ranges::count(endings, 1U) > 0) check_pdf_converter();
  std::vector<AskedPanel> asked;
  for (const std::string& text : arguments.all("--panel"))
    asked.push_back(parsed_panel(text));
  if (asked.empty()) asked.emplace_back();
  const FigureStyle style = figure_style(arguments, paths.size() * asked.size() == 1);
  const ReadOptions how{.set = arguments.all("--set"), .config_path = config_path()};
  std::vector<LoadedSide> sides;
  std::vector<FigurePanel> panels;
  for (const std::string& path : paths)
    for (const AskedPanel& panel : asked) {
      sides.push_back(loaded_side(path, how, panel.changes));
      if (sides.back().answer == nullptr)
        throw InputError(path + ": a result document has no timeline to draw; name its scenario instead");
      panels.push_back({panel.name, sides.back().answer.get()});
      if (!panels.back().answer->report.fits)
        note("does not fit: " + sides.back().side.name + ": " + panels.back().answer->report.shortfall.reason);
    }
  name_panels(panels, sides);
  const std::string svg = svg_figure(panels, style);
  if (outputs.empty()) print(svg);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    write_output(outputs[i], endings[i] == 1 ? pdf_of(svg) : svg,
                 endings[i] == 1 ? "drawing, by rsvg-convert" : "drawing");
  return kDone;
}

}  // namespace

constinit const Command kDraw{
    .name = "draw",
    .arguments = "SCENARIO...",
    .summary = "timelines as a picture for a page: its width, font and colours, several on one scale",
    .details =
        "Each --panel is a timeline of each SCENARIO; \"NAME: CHANGES\" names it. All share one scale of time and one "
        "of\n"
        "bytes. The picture is SVG.\n"
        "  pipewright draw scenarios/quickstart.yaml --figure-width 84mm --font-size 7pt --palette grey -o step.pdf\n"
        "  pipewright draw scenarios/quickstart.yaml --panel plan.schedule=gpipe --panel plan.schedule=1f1b -o "
        "two.svg\n",
    .options = kDrawOptions,
    .least = 1,
    .most = 64,
    .run = draw_command,
};

}  // namespace pipewright::cli
