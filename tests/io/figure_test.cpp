// Pictures for pages, and the figures behind them as tables.
#include "io/writers/figure.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/check.hpp"
#include "core/cost/memory_model.hpp"
#include "io/writers/drawing.hpp"
#include "io/writers/svg_canvas.hpp"
#include "io/writers/writers.hpp"
#include "tests/support/small_answer.hpp"
#include "tests/support/texts.hpp"

namespace pipewright::tests {
namespace {

using Colour = std::array<double, 3>;
using ColourMatrix = std::array<Colour, 3>;

// Colour vision without one kind of cones, on linear sRGB ([Machado09], severity 1.0).
constexpr std::array<ColourMatrix, 4> kVisions = {{
    {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}},
    {{{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}}},
    {{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}},
    {{{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}}},
}};

Colour linear(std::string_view hex) {
  Colour colour{};
  for (std::size_t i = 0; i < 3; ++i) {
    int value = 0;
    std::from_chars(hex.data() + 1 + 2 * i, hex.data() + 3 + 2 * i, value, 16);
    const double v = value / 255.0;
    colour[i] = v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4);
  }
  return colour;
}

Colour times(const ColourMatrix& matrix, const Colour& colour) {
  Colour result{};
  for (std::size_t i = 0; i < 3; ++i)
    result[i] = std::clamp(matrix[i][0] * colour[0] + matrix[i][1] * colour[1] + matrix[i][2] * colour[2], 0.0, 1.0);
  return result;
}

// CIE 1976 L*a*b* under D65: distances are as the eye has them, about 2.3 to be seen at all side by side.
Colour lab(const Colour& c) {
  const auto f = [](double t) { return t > 0.008856 ? std::cbrt(t) : 7.787 * t + 16.0 / 116; };
  const double x = f((0.4124 * c[0] + 0.3576 * c[1] + 0.1805 * c[2]) / 0.9505),
               y = f(0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]),
               z = f((0.0193 * c[0] + 0.1192 * c[1] + 0.9505 * c[2]) / 1.089);
  return {116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

double apart(const Paint& a, const Paint& b, const ColourMatrix& vision) {
  const Colour p = lab(times(vision, linear(a.colour))), q = lab(times(vision, linear(b.colour)));
  return std::hypot(p[0] - q[0], p[1] - q[1], p[2] - q[2]);
}

const Palette& named(std::string_view name) {
  return *std::ranges::find(palettes(), name, &Palette::name);
}

bool stands_in_memory(const Paint& paint) {
  return paint.css.starts_with("m");
}

// The values of an attribute of all elements of a class.
std::vector<double> attribute(const std::string& svg, const std::string& css, const std::string& name) {
  std::vector<double> values;
  std::istringstream lines(svg);
  for (std::string line; std::getline(lines, line);)
    if (contains(line, "class=\"" + css + "\""))
      if (const std::size_t at = line.find(" " + name + "=\""); at != std::string::npos)
        values.push_back(std::stod(line.substr(at + name.size() + 3)));
  return values;
}

std::size_t count_of(const std::string& text, std::string_view what) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size())
    ++found;
  return found;
}

std::string figure(const std::vector<FigurePanel>& panels, const FigureStyle& style = {}) {
  return svg_figure(panels, style);
}

std::vector<std::vector<std::string>> rows_of(const std::string& csv) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream cells(line);
    rows.emplace_back();
    for (std::string cell; std::getline(cells, cell, ',');)
      rows.back().push_back(cell);
  }
  return rows;
}

TEST_CASE("Every kind of colour vision can distinguish the colours for paper") {
  for (const std::string_view name : {"colour-blind", "grey"}) {
    const Palette& palette = named(name);
    for (std::size_t i = 0; i < palette.paints.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) {
        const Paint &a = palette.paints[i], &b = palette.paints[j];
        if (stands_in_memory(a) != stands_in_memory(b) || a.mark != b.mark) continue;
        for (const ColourMatrix& vision : kVisions)
          CHECK_MESSAGE(apart(a, b, vision) > 12, name, ": ", a.css, " and ", b.css);
      }
  }
}

TEST_CASE("A grey palette has no colour, and marks are seen on what they are drawn over") {
  for (const Paint& paint : named("grey").paints) {
    CHECK_MESSAGE(paint.colour.substr(1, 2) == paint.colour.substr(3, 2), paint.css);
    CHECK_MESSAGE(paint.colour.substr(1, 2) == paint.colour.substr(5, 2), paint.css);
  }
  for (const Palette& palette : palettes())
    for (const Paint& paint : palette.paints)
      if (paint.mark != ' ') {
        const Colour over = lab(linear(paint.colour)), ink = lab(linear(paint.ink));
        CHECK_MESSAGE(std::abs(over[0] - ink[0]) > 35, palette.name, ": ", paint.css);
      }
}

TEST_CASE("Every class that is drawn has a paint, and numbers are read on it") {
  for (const Palette& palette : palettes()) {
    if (palette.paints.empty()) continue;
    for (int i = 0; i < kLooks; ++i)
      for (const bool light : {false, true}) {
        const auto look = static_cast<Look>(i);
        const auto paint = std::ranges::find(palette.paints, css_class(look, light), &Paint::css);
        REQUIRE_MESSAGE(paint != palette.paints.end(), palette.name, ": ", css_class(look, light));
        if (look == Look::AllReduce || look == Look::AllGather || look == Look::Move || look == Look::Idle ||
            look == Look::Update)
          continue;
        const double lightness = lab(linear(paint->colour))[0];
        CHECK_MESSAGE((palette.dark_number(look, light) ? lightness > 60 : lightness < 61), palette.name, ": ",
                      paint->css);
      }
  }
}

TEST_CASE("A figure has the width that was asked for, and its labels the size") {
  const auto small = small_answer();
  const FigurePanel panel{"", &small->answer};
  // 84 mm are 317.48 px; 7 pt are 9.33 px.
  const std::string svg = figure({panel}, {.width = 84 * 96 / 25.4, .font_size = 7 * 96.0 / 72});
  const auto number = [&](std::string_view before) { return std::stod(svg.substr(svg.find(before) + before.size())); };
  const double across = number("viewBox=\"0 0 ");
  CHECK(number("width=\"") == doctest::Approx(across * 7 / 9).epsilon(0.001));
  CHECK(number("width=\"") <= 84 * 96 / 25.4);
  CHECK(number("width=\"") > 84 * 96 / 25.4 - 1);
  CHECK(count_of(svg, "<text x=\"12\" y=\"24\" font-size=\"15\" class=\"title\"") == 1);
  CHECK_THROWS_AS(figure({panel}, {.width = 200}), InputError);
  // Long lines are broken where they would leave the picture.
  std::istringstream lines(svg);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("<text") || contains(line, "end") || contains(line, "mid")) continue;
    const double x = std::stod(line.substr(line.find(" x=\"") + 4)),
                 size = std::stod(line.substr(line.find("font-size=\"") + 11));
    const std::size_t begin = line.find('>') + 1;
    const std::string text = line.substr(begin, line.find('<', begin) - begin);
    CHECK_MESSAGE(x + text_width(text, size) <= across, text);
  }
}

TEST_CASE("Headings and legends can be left out, and nothing else with them") {
  const auto small = small_answer();
  const FigurePanel panel{"", &small->answer};
  const std::string all = figure({panel}), none = figure({panel}, {.title = false, .legend = false});
  CHECK(contains(all, ">forward</text>"));
  CHECK(contains(all, "samples/s"));
  CHECK(!contains(none, ">forward</text>"));
  CHECK(!contains(none, "samples/s"));
  CHECK(attribute(none, "f box", "x") == attribute(all, "f box", "x"));
  CHECK(none.size() < all.size());
  const std::string bare = figure({panel}, {.memory = FigureMemory::None});
  CHECK(contains(all, "stash and logits"));
  CHECK(!contains(bare, "stash and logits"));
}

TEST_CASE("Timelines of one figure share the scales of time and of bytes") {
  const auto short_one = small_answer(), long_one = small_answer({.micro_batches = 16});
  const std::string svg =
      figure({{"short", &short_one->answer}, {"long", &long_one->answer}}, {.memory = FigureMemory::Fullest});
  // 33 ms and 57 ms on 1000 units: a forward of 1 ms is 17.54 in both.
  CHECK(count_of(svg, "h17.54v") == 4 * 8 + 4 * 16);
  CHECK(contains(svg, ">short</text>"));
  CHECK(contains(svg, ">long</text>"));
  CHECK(attribute(svg, "f", "x").size() == 1);  // one legend
  CHECK(contains(svg, "memory of stage 0"));
}

TEST_CASE("Fonts and palettes stand in the style sheet; those for paper have no dark variant") {
  const auto small = small_answer();
  const FigurePanel panel{"", &small->answer};
  CHECK(contains(figure({panel}, {.fonts = "\"Latin Modern Roman\",serif"}),
                 "font-family:\"Latin Modern Roman\",serif}"));
  for (const Palette& palette : palettes()) {
    const std::string svg = figure({panel}, {.palette = &palette});
    CHECK(contains(svg, "prefers-color-scheme") == palette.paints.empty());
    for (const Paint& paint : palette.paints)
      if (paint.mark != ' ')
        CHECK(contains(svg, "<pattern id=\"pipewright-" + std::string(palette.name) + "-" + std::string(paint.css)));
  }
}

TEST_CASE("The timeline as a table has a row per op, and its times add up to what the report says") {
  const auto small = small_answer({.wire = Time{100'000}, .all_reduce = Time{500'000}, .data_parallel = 2});
  const auto rows = rows_of(timeline_csv(small->answer));
  CHECK(rows[0] ==
        std::vector<std::string>{"worker", "stage", "chunk", "micro_batch", "kind", "stream", "start_s", "end_s"});
  const std::size_t workers = distinct_workers(small->answer).size();
  CHECK(rows.size() == 1 + op_count(small->answer) * workers / small->answer.report.workers.size());
  std::map<std::string, double> busy;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    CHECK(rows[i].size() == rows[0].size());
    if (rows[i][5] == "compute") busy[rows[i][0]] += std::stod(rows[i][7]) - std::stod(rows[i][6]);
  }
  CHECK(busy.size() == workers);
  for (std::size_t w = 0; w < workers; ++w)
    CHECK(busy[std::to_string(w)] == doctest::Approx(seconds(small->answer.report.workers[w].busy)));
  const auto messages = rows_of(messages_csv(small->answer));
  CHECK(messages.size() == 1 + 2 * 3 * 8);  // there and back over three boundaries
  for (std::size_t i = 1; i < messages.size(); ++i)
    CHECK(std::stod(messages[i][8]) - std::stod(messages[i][6]) == doctest::Approx(1e-4));
}

TEST_CASE("Memory as a table: its largest total is the peak of the report") {
  const auto small = small_answer();
  const auto rows = rows_of(memory_csv(small->answer));
  REQUIRE(rows[0].size() == 3 + kMemoryCategories.size() + 1);
  std::map<std::string, std::int64_t> most;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    std::int64_t sum = 0;
    for (std::size_t c = 3; c + 1 < rows[i].size(); ++c)
      sum += std::stoll(rows[i][c]);
    CHECK(sum == std::stoll(rows[i].back()));
    most[rows[i][0]] = std::max(most[rows[i][0]], sum);
  }
  for (const WorkerReport& worker : small->answer.report.workers)
    CHECK(most[std::to_string(worker.id)] == worker.memory.bytes.total().value);
}

TEST_CASE("The document with the timeline has the rows of the tables, and all else as without") {
  const auto small = small_answer({.wire = Time{100'000}});
  auto with = nlohmann::json::parse(json_report(small->answer, true));
  const auto timeline = with.at("timeline");
  CHECK(timeline.at("ops").size() + 1 == rows_of(timeline_csv(small->answer)).size());
  CHECK(timeline.at("messages").size() + 1 == rows_of(messages_csv(small->answer)).size());
  std::size_t points = 0;
  for (const auto& curve : timeline.at("memory"))
    points += curve.at("points").size();
  CHECK(points + 1 == rows_of(memory_csv(small->answer)).size());
  with.erase("timeline");
  CHECK(with == nlohmann::json::parse(json_report(small->answer)));
}

}  // namespace
}  // namespace pipewright::tests
