// The schedule as the papers draw it: a row per worker, a box per op with its micro-batch, idle time grey, collectives
// below the last of the workers that take part, all-reduces hatched; messages are lines from row to row. Runs with too many ops for
// boxes are drawn as shares of time per column. What is not drawn is said below the axis.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/quantity.hpp"
#include "io/writers/compare.hpp"
#include "io/writers/figure.hpp"
#include "io/writers/page_text.hpp"
#include "io/writers/svg_canvas.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {
namespace {

constexpr double kPlotWidth = 1000;
constexpr double kRightMargin = 84;       // "busy 100 %"
constexpr std::size_t kMostBoxes = 5000;  // beyond it files grow and viewers slow down: 65 536 boxes are 7 MB
constexpr int kMostDrawnRows = 64;
constexpr std::size_t kMostMessages = 600;     // between neighbouring rows: lines in the gap between them
constexpr std::size_t kMostRowsCrossed = 150;  // by messages that pass over rows: more would hide the boxes there
constexpr double kLeastMessageRow = 15;        // height; lower rows have no room for lines between them
constexpr double kCollectiveHeight = 7;
constexpr double kSmallestNumber = 7.5;  // smaller digits cannot be read
constexpr double kPixelsPerMm = 96 / 25.4;
constexpr std::string_view kMemoryOf = "memory of ";
constexpr double kLeastPlot = 150;  // narrower, the marks of its axis run into each other

struct RowSize {
  double height, gap, font;
};
RowSize row_size(int rows) {
  if (rows <= 8) return {26, 4, 12};
  if (rows <= 16) return {21, 3, 11};
  if (rows <= 32) return {15, 2, 10};
  return {11, 1, 9};
}

// What is explained beside the boxes: of odd chunks or units, or of the way up of two pipelines. Empty: nothing.
std::string_view light_words(const Answer& answer) {
  if (both_ways(answer.plan.chunk_order)) return "from the last worker up";
  if (answer.plan.units > 1) return "of every second unit";
  return answer.plan.virtual_stages > 1 ? "of odd chunks" : "";
}

// Only what occurs in the drawings.
void explain_looks(Canvas& canvas, Legend& legend, const std::vector<const Answer*>& answers, bool boxes) {
  for (int i = 0; i < kLooks; ++i)
    if (std::ranges::any_of(answers, [&](const Answer* answer) { return occurs(*answer, static_cast<Look>(i)); }))
      legend.entry(css_class(static_cast<Look>(i)), words(static_cast<Look>(i)));
  std::vector<std::string_view> light;
  for (const Answer* answer : answers)
    if (const std::string_view each = light_words(*answer); !each.empty() && std::ranges::count(light, each) == 0)
      light.push_back(each);
  if (!light.empty() && boxes)
    legend.entry(24, fmt::format("{}", fmt::join(light, " or ")), [&](double x, double y) {
      canvas.rect(x, y, 12, 11, css_class(Look::Forward, true));
      canvas.rect(x + 12, y, 12, 11, css_class(Look::Backward, true));
    });
}

StageId fullest_stage(const Answer& answer) {
  const StageReport* stage = fullest(answer.report);
  return stage == nullptr ? StageId{0} : stage->stage;
}

struct GanttStyle {
  const Palette* palette = &palettes().front();
  bool title = true, legend = true;
  int rows = 0;  // of all timelines of the picture, which share a height; 0: its own
  bool messages = true, tooltips = true;
};

class Gantt {
 public:
  Gantt(const Answer& answer, Canvas& canvas, const GanttStyle& style = {})
      : answer_(answer), style_(style), canvas_(canvas) {
    double label = text_width(fmt::format("stage {}", answer.plan.stages - 1), 12);  // of the memory strips
    for (const WorkerId w : rows_)
      label = std::max(label, text_width(worker_name(answer_, w), size_.font));
    axis_ = {std::ceil(label) + 36, kPlotWidth, answer.timeline.makespan};
  }

  const Axis& axis() const { return axis_; }
  void share(const Axis& axis) { axis_ = axis; }
  double width() const { return axis_.left + axis_.width + kRightMargin; }

  // Title, legend, rows and axis from `top` on; returns the height that they end at. `name` precedes the question.
  double draw(double from, std::string_view name) {
    if (style_.messages) choose_messages();
    if (!messages_.empty()) size_.gap = std::max(size_.gap, 9.0);
    double y = style_.title ? title(from, name) : from + 12;
    if (style_.legend) y = legend(y);
    return notes(time_axis(draw_rows(y)));
  }

  // The rows alone; returns where they end.
  double draw_rows(double y) {
    const double top = y;
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      tops_.push_back(y);
      y = row_bottom(row) + size_.gap;
    }
    const double bottom = y - size_.gap;
    grid(top, bottom);
    for (std::size_t row = 0; row < rows_.size(); ++row)
      worker(row);
    for (const Transfer* message : messages_)
      draw(*message);
    for (const Number& n : numbers_)
      canvas_.text(n.x, n.y, n.text, n.css, n.font);
    return bottom;
  }

  double time_axis(double bottom) {
    canvas_.line(axis_.left, bottom + 4, axis_.left + axis_.width, bottom + 4, "tick");
    for (const auto& mark : axis_.marks()) {
      canvas_.line(mark.x, bottom + 4, mark.x, bottom + 8, "tick");
      canvas_.text(mark.x, bottom + 20, mark.label, "mid quiet", 11);
    }
    canvas_.text(axis_.left - 10, bottom + 20, "time in " + axis_.unit(), "end quiet", 11);
    return bottom + 28;
  }

  // What is not drawn.
  double notes(double y) {
    if (!style_.legend) return y;
    std::string note = not_drawn(answer_, rows_);
    if (!note.empty()) note += ". ";
    if (!boxes_)
      note +=
          fmt::format("{} ops are too many for boxes: each column shows how its {} divide between the kinds of work.",
                      op_count(answer_), short_time(Time{answer_.timeline.makespan.value / columns()}));
    for (const std::string& text : {note, messages_note_})
      for (const std::string& line : broken(text, 11, axis_.width + kRightMargin - 12, " ")) {
        canvas_.text(axis_.left, y + 11, line, "quiet", 11);
        y += 18;
      }
    return y;
  }

  // A heading of one line, where it fits into one.
  double heading(double y, std::string_view name) {
    const std::string figures = answer_line();
    const double names = text_width(name, 13) + 12;
    canvas_.text(12, y + 14, name, "title", 13);
    if (12 + names + text_width(figures, 12) <= width() - 12) {
      canvas_.text(12 + names, y + 14, figures, "quiet", 12);
      return y + 22;
    }
    for (const std::string& line : broken(figures, 12, width() - 24, " · "))
      canvas_.text(12, (y += 16) + 14, line, "quiet", 12);
    return y + 22;
  }

  bool boxes() const { return boxes_; }
  bool shows_messages() const { return !messages_.empty(); }

 private:
  double row_bottom(std::size_t row) const {
    double bottom = tops_[row] + size_.height;
    for (const std::vector<bool>& stream : bars_)
      bottom += stream[row] ? kCollectiveHeight + 1 : 0;
    return bottom;
  }

  double title(double from, std::string_view name) {
    double y = from + 4;
    const double bold = axis_.width < kPlotWidth ? 1.07 : 1;
    for (const std::string& line : broken(std::string(name) + question(answer_), 15 * bold, width() - 24, " · "))
      canvas_.text(12, y += 20, line, "title", 15);
    for (const std::string& line : broken(answer_line(), 13, width() - 24, " · "))
      canvas_.text(12, y += 20, line, "quiet", 13);
    return y + 12;
  }

  std::string answer_line() const {
    const Report& r = answer_.report;
    std::string text = "step " + short_time(r.step_time, 4);
    if (r.steady)
      text +=
          fmt::format(" · cycle {} per micro-batch · whole run {}",
                      short_time(Time{r.steady->growth.value / r.steady->micro_batches}, 4), short_time(r.makespan, 4));
    text += fmt::format(" · {} samples/s · bubble {}", with_separators(significant(r.samples_per_s, 4)),
                        percent(r.bubble_fraction));
    if (const StageReport* full = fullest(r))
      text += fmt::format(" · peak {}{} on stage {}", short_bytes(full->need.with_reserve),
                          of_capacity(full->need.capacity), full->stage);
    return text;
  }

  double legend(double y) {
    Legend legend(canvas_, 12, width() - 12, y);
    explain_looks(canvas_, legend, {&answer_}, boxes_);
    if (!messages_.empty())
      legend.entry(16, "message", [&](double x, double top) { canvas_.line(x, top + 2, x + 16, top + 9, "msg"); });
    return legend.y() + 24;
  }

  // Every second chunk, or unit, of a worker; both ways, the one on the way up.
  bool light(const Op& op) const {
    const Seating seating = answer_.plan.seating();
    const int holder = seating.holder_of(op.virtual_stage, op.micro_batch);
    if (both_ways(answer_.plan.chunk_order)) return seating.goes_up(holder);
    return seating.local(op.virtual_stage, seating.stage_of(op.virtual_stage, holder)) % 2 == 1;
  }

  void grid(double top, double bottom) {
    for (const auto& mark : axis_.marks())
      canvas_.line(mark.x, top, mark.x, bottom, "grid");
  }

  void worker(std::size_t row) {
    const WorkerId w = rows_[row];
    const double y = tops_[row];
    const auto& times = answer_.timeline.workers[at(w)];
    canvas_.text(axis_.left - 10, y + size_.height / 2 + size_.font * 0.36, worker_name(answer_, w), "end", size_.font);
    canvas_.rect(axis_.left, y, axis_.x(answer_.timeline.makespan) - axis_.left, size_.height, "i");
    if (boxes_) {
      draw_boxes(lane(answer_, w).compute, times.compute, y);
    } else {
      shares(lane(answer_, w).compute, times.compute, y, size_.height);
    }
    double below = y + size_.height + 1;
    for (StreamId s = 0; s < kStreams.size(); ++s)
      if (bars_[s][row]) {
        collectives(lane(answer_, w).communication[s], times.communication[s], below);
        below += kCollectiveHeight + 1;
      }
    canvas_.text(
        axis_.x(answer_.timeline.makespan) + 8, y + size_.height / 2 + size_.font * 0.36,
        fmt::format("busy {:.0f} %", 100 * ratio(answer_.report.workers[at(w)].busy, answer_.timeline.makespan)),
        "quiet", size_.font);
  }

  std::string tooltip(const Op& op, const Span& span) const {
    if (!style_.tooltips) return {};
    const Look kind = look(op.kind);
    const bool round = kind == Look::Update || kind == Look::AllReduce;
    const Seating seating = answer_.plan.seating();
    const int holder = round ? 0 : seating.holder_of(op.virtual_stage, op.micro_batch);
    if (op.kind == Kind::TableReduce || op.kind == Kind::NormReduce)
      return fmt::format("{} · {} on stage {} · {} to {}", label(op), rule(op.kind).words,
                         seating.stage_of(op.virtual_stage, holder), short_time(span.start, 4),
                         short_time(span.end, 4));
    return fmt::format("{} · {} of {} {} on stage {} · {} to {}", label(op), words(kind),
                       round ? "round" : "micro-batch", op.micro_batch, seating.stage_of(op.virtual_stage, holder),
                       short_time(span.start, 4), short_time(span.end, 4));
  }

  void draw_boxes(const std::vector<Op>& ops, const std::vector<Span>& spans, double y) {
    const std::string largest = std::to_string(answer_.plan.micro_batches - 1);
    std::map<std::string, std::string> joined;  // by class, where boxes say nothing of their own: a third of the text
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (spans[i].end == spans[i].start) continue;
      const double x = axis_.x(spans[i].start), width = axis_.x(spans[i].end) - x;
      const Look kind = look(ops[i].kind);
      const bool pale = light(ops[i]);
      const std::string css = fmt::format("{}{}", css_class(kind, pale), width > 3 ? " box" : "");
      if (style_.tooltips)
        canvas_.rect(x, y, width, size_.height, css, tooltip(ops[i], spans[i]));
      else
        joined[css] += fmt::format("M{} {}h{}v{}h-{}z", coordinate(x), coordinate(y), coordinate(width),
                                   coordinate(size_.height), coordinate(width));
      const std::string number = kind == Look::Update ? "" : std::to_string(ops[i].micro_batch);
      // One size for all numbers of a kind: the one that the largest micro-batch number allows.
      const double font = std::min({size_.font, size_.height - 3, (width - 2) / text_width(largest, 1)});
      if (number.empty() || font < kSmallestNumber) continue;
      const bool dark = style_.palette->dark_number(kind, pale);
      numbers_.push_back(
          {x + width / 2, y + size_.height / 2 + font * 0.36, number, dark ? "mid num2" : "mid num", font});
    }
    for (const auto& [css, path] : joined)
      canvas_.path(path, css);
  }

  void collectives(const std::vector<Op>& ops, const std::vector<Span>& spans, double y) {
    if (!boxes_) return shares(ops, spans, y, kCollectiveHeight);
    for (std::size_t i = 0; i < ops.size(); ++i)
      if (spans[i].end > spans[i].start)
        canvas_.rect(axis_.x(spans[i].start), y, axis_.x(spans[i].end) - axis_.x(spans[i].start), kCollectiveHeight,
                     css_class(look(ops[i].kind)), tooltip(ops[i], spans[i]));
  }

  int columns() const { return rows_.size() > 16 ? 250 : 500; }

  // Each column: how its stretch of time divides into the kinds of work, stacked from the bottom; the rest is idle.
  void shares(const std::vector<Op>& ops, const std::vector<Span>& spans, double y, double height) {
    const auto n = at(columns());
    const double cell = static_cast<double>(answer_.timeline.makespan.value) / static_cast<double>(n);
    std::vector<std::array<double, kLooks>> share(n);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const double start = static_cast<double>(spans[i].start.value) / cell,
                   end = static_cast<double>(spans[i].end.value) / cell;
      for (auto c = static_cast<std::size_t>(start); c < n && static_cast<double>(c) < end; ++c)
        share[c][at(look(ops[i].kind))] +=
            std::min(end, static_cast<double>(c + 1)) - std::max(start, static_cast<double>(c));
    }
    std::vector<double> base(n, y + height);
    for (int kind = 0; kind < kLooks; ++kind) {
      std::string d;
      for (std::size_t c = 0; c < n;) {
        const auto quantized = [&](std::size_t i) {  // half pixels, so that equal columns join
          return std::round(2 * height * share[i][at(kind)]) / 2;
        };
        const double h = quantized(c), bottom = base[c];
        std::size_t end = c;
        while (end < n && quantized(end) == h && base[end] == bottom)
          base[end++] -= h;
        const double scale = (axis_.x(answer_.timeline.makespan) - axis_.left) / static_cast<double>(n);
        if (h > 0)
          d += fmt::format("M{} {}h{}v-{}h-{}z", coordinate(axis_.left + static_cast<double>(c) * scale),
                           coordinate(bottom), coordinate(static_cast<double>(end - c) * scale), coordinate(h),
                           coordinate(static_cast<double>(end - c) * scale));
        c = end;
      }
      if (!d.empty()) canvas_.path(d, css_class(static_cast<Look>(kind)), words(static_cast<Look>(kind)));
    }
  }

  // Messages as lines from row to row, wherever they stay readable; what is left out is said below the axis.
  void choose_messages() {
    std::vector<const Transfer*> beside, over;
    std::size_t all = 0, hidden = 0, brief = 0, crossed = 0;
    // Copies that run as copy 0 does have no rows, and no messages of their own to tell of.
    const auto workers = static_cast<WorkerId>(distinct_workers(answer_).size());
    for (const Transfer& t : answer_.timeline.transfers) {
      if (t.from == t.to || t.arrived == t.start || t.from >= workers) continue;
      ++all;
      if (!has_row(t.from) || !has_row(t.to)) {
        ++hidden;
      } else if (axis_.width * ratio(t.arrived - t.start, axis_.end) < 1) {
        ++brief;
      } else {
        const std::size_t passed = rows_passed(t);
        crossed += passed;
        (passed == 0 ? beside : over).push_back(&t);
      }
    }
    if (all == 0) return;
    if (!boxes_ || size_.height < kLeastMessageRow) {
      messages_note_ =
          fmt::format("{} messages between workers are not drawn: there are too many {} for lines between them.", all,
                      boxes_ ? "rows" : "ops");
      return;
    }
    std::vector<std::string> left_out;
    const auto leave_out = [&](std::size_t count, std::string_view why) {
      if (count > 0) left_out.push_back(fmt::format("{} {}", count, why));
    };
    leave_out(hidden, "go to or come from workers without a row");
    leave_out(brief, brief == 1 ? "is shorter than a pixel" : "are shorter than a pixel");
    if (beside.size() > kMostMessages)
      leave_out(beside.size(), "are between neighbouring rows and too many to tell apart");
    if (crossed > kMostRowsCrossed) leave_out(over.size(), "would pass over other rows and are too many to tell apart");
    if (beside.size() <= kMostMessages) messages_ = beside;
    if (crossed <= kMostRowsCrossed) messages_.insert(messages_.end(), over.begin(), over.end());
    if (!left_out.empty())
      messages_note_ =
          messages_.empty() && left_out.size() == 1
              ? fmt::format("No messages are drawn: {}.", left_out.front())
              : fmt::format("{} of {} messages are drawn. {}.", messages_.size(), all, fmt::join(left_out, ", "));
  }

  bool has_row(WorkerId w) const { return std::ranges::binary_search(rows_, w); }
  std::size_t row_of(WorkerId w) const { return at(std::ranges::lower_bound(rows_, w) - rows_.begin()); }

  std::size_t rows_passed(const Transfer& t) const {
    const std::size_t from = row_of(t.from), to = row_of(t.to);
    return std::max(from, to) - std::min(from, to) - 1;
  }

  void draw(const Transfer& t) {
    const std::size_t from = row_of(t.from), to = row_of(t.to);
    const bool down = to > from;
    const double x1 = axis_.x(t.start), y1 = down ? row_bottom(from) : tops_[from];
    const double x2 = axis_.x(t.arrived), y2 = down ? tops_[to] : row_bottom(to);
    if (rows_passed(t) > 0) canvas_.line(x1, y1, x2, y2, "halo");
    canvas_.line(x1, y1, x2, y2, "msg");
  }

  const Answer& answer_;
  GanttStyle style_;
  std::vector<WorkerId> rows_ = drawn_workers(answer_, kMostDrawnRows);
  ByStream<std::vector<bool>> bars_ = stream_rows(answer_, rows_);  // by row: the stream is drawn below it
  RowSize size_ = row_size(std::max(style_.rows, static_cast<int>(rows_.size())));
  bool boxes_ = op_count(answer_) * rows_.size() / answer_.report.workers.size() <= kMostBoxes;
  std::vector<const Transfer*> messages_;  // that are drawn
  std::string messages_note_;              // those that are not, and why
  Axis axis_;
  Canvas& canvas_;
  std::vector<double> tops_;  // by row
  struct Number {
    double x, y;
    std::string text;
    std::string_view css;
    double font;
  };
  std::vector<Number> numbers_;  // of the boxes; drawn after the messages, which may pass over boxes
};

}  // namespace

std::string svg_timeline(const Answer& simulated) {
  const FigurePanel panel{"", &simulated};
  return svg_figure({&panel, 1}, {});
}

std::string svg_timelines(const Answer& simulated_a, const Answer& simulated_b, std::string_view name_a,
                          std::string_view name_b) {
  const DrawnCopies whole_a(simulated_a, DrawnCopies::Of::Distinct), whole_b(simulated_b, DrawnCopies::Of::Distinct);
  const Answer &a = whole_a.answer(), &b = whole_b.answer();
  const std::string head_a = std::string(name_a) + ": ", head_b = std::string(name_b) + ": ";
  Canvas canvas;
  Gantt first(a, canvas), second(b, canvas);
  const Axis axis{std::max(first.axis().left, second.axis().left), kPlotWidth,
                  std::max(a.timeline.makespan, b.timeline.makespan)};
  first.share(axis);
  second.share(axis);
  const double y = second.draw(first.draw(0, head_a) + 12, head_b);
  return canvas.document(first.width(), y + 12, head_a + question(a) + " · " + head_b + question(b));
}

std::optional<double> length_in_pixels(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 5> kUnits = {
      {{"mm", 96 / 25.4}, {"cm", 96 / 2.54}, {"in", 96}, {"pt", 96.0 / 72}, {"px", 1}}};
  for (const auto& [unit, pixels] : kUnits) {
    if (!text.ends_with(unit)) continue;
    std::string_view digits = text.substr(0, text.size() - unit.size());
    while (digits.ends_with(' '))
      digits.remove_suffix(1);
    if (const auto number = parse_number(digits).value) return *number * pixels;
  }
  return std::nullopt;
}

std::optional<std::string> css_fonts(std::string_view names) {
  constexpr std::array<std::string_view, 3> kGeneric = {"serif", "sans-serif", "monospace"};
  std::string fonts;
  for (bool more = true; more;) {
    const std::size_t end = std::min(names.find(','), names.size());
    std::string_view name = names.substr(0, end);
    more = end < names.size();
    names.remove_prefix(more ? end + 1 : end);
    name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
    while (name.ends_with(' '))
      name.remove_suffix(1);
    const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == ' ' || c == '-'; };
    if (name.empty() || !std::ranges::all_of(name, plain)) return std::nullopt;
    const bool generic = std::ranges::count(kGeneric, name) > 0;
    fonts += fmt::format("{}{}", fonts.empty() ? "" : ",", generic ? std::string(name) : fmt::format("\"{}\"", name));
  }
  return fonts;
}

std::string svg_figure(std::span<const FigurePanel> panels, const FigureStyle& style) {
  const bool alone = panels.size() == 1;
  std::vector<DrawnCopies> whole;
  whole.reserve(panels.size());
  std::vector<const Answer*> answers;
  int rows = 0;
  for (const FigurePanel& panel : panels) {
    whole.emplace_back(*panel.answer, DrawnCopies::Of::Distinct);
    answers.push_back(&whole.back().answer());
    rows += static_cast<int>(drawn_workers(*answers.back(), kMostDrawnRows).size());
  }
  const double scale = style.font_size / FigureStyle{}.font_size;
  const bool fullest_only = style.memory == FigureMemory::Fullest;
  Canvas canvas;
  std::vector<Gantt> timelines;
  Axis axis;
  bool boxes = false;
  for (const Answer* answer : answers) {
    timelines.emplace_back(*answer, canvas,
                           GanttStyle{.palette = style.palette,
                                      .title = style.title && panels[0].name.empty(),
                                      .legend = style.legend,
                                      .rows = rows,
                                      .messages = alone,
                                      .tooltips = alone});
    axis.left = std::max(axis.left, timelines.back().axis().left);
    axis.end = std::max(axis.end, answer->timeline.makespan);
    boxes = boxes || timelines.back().boxes();
  }
  if (fullest_only) axis.left = std::max(axis.left, text_width(kMemoryOf, 10) + 80);
  axis.width = style.width > 0 ? std::floor(style.width / scale - axis.left - kRightMargin) : kPlotWidth;
  if (axis.width < kLeastPlot)
    throw InputError(
        fmt::format("the figure is {:.0f} mm wide, and its labels leave no room for a timeline: at least {:.0f} mm, or "
                    "a smaller font",
                    style.width / kPixelsPerMm, (axis.left + kLeastPlot + kRightMargin) * scale / kPixelsPerMm + 0.5));
  for (Gantt& timeline : timelines)
    timeline.share(axis);
  const double width = timelines.front().width();
  const MemoryStrips strips(answers);

  double y = 0;
  if (alone) {
    y = style.title && !panels[0].name.empty() ? timelines[0].heading(4, panels[0].name) : 0;
    y = timelines[0].draw(y, "");
  } else {
    y = 12;
    if (style.legend) {
      Legend legend(canvas, 12, width - 12, y);
      explain_looks(canvas, legend, answers, boxes);
      y = legend.y() + 24;
    }
  }
  for (std::size_t i = 0; i < panels.size(); ++i) {
    if (!alone) {
      if (style.title) y = timelines[i].heading(y, panels[i].name);
      y = timelines[i].time_axis(timelines[i].draw_rows(y));
    }
    if (style.memory == FigureMemory::Stages) y += draw_memory(canvas, *answers[i], axis, y, style.legend);
    if (fullest_only) y += strips.draw(canvas, *answers[i], axis, y + 2, {fullest_stage(*answers[i])}, kMemoryOf) + 4;
    if (!alone) y = timelines[i].notes(y) + 8;
  }
  if (fullest_only && style.legend) {
    Legend legend(canvas, axis.left, width - 12, y + 2);
    strips.explain(canvas, legend);
    y = legend.y() + 16;
  }
  std::string name;
  for (std::size_t i = 0; i < panels.size(); ++i)
    name += (i > 0 ? " · " : "") + (panels[i].name.empty() ? question(*answers[i]) : panels[i].name);
  const std::string_view fonts = style.fonts.empty() ? kScreenFonts : std::string_view(style.fonts);
  std::string sheet(screen_style());
  if (!style.palette->paints.empty())
    sheet = style_sheet(*style.palette, fonts);
  else
    sheet.replace(sheet.find(kScreenFonts), kScreenFonts.size(), fonts);
  return canvas.document(width, y + 12, name, sheet, scale);
}

}  // namespace pipewright::io
