// The schedule as the papers draw it: a row per worker, a box per op with its micro-batch, idle time grey, collectives
// below the last of the workers that take part, all-reduces hatched; messages are lines from row to row. Runs with too many ops for
// boxes are drawn as shares of time per column. What is not drawn is said below the axis.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "io/text/format_quantity.hpp"
#include "io/writers/compare.hpp"
#include "io/writers/page_text.hpp"
#include "io/writers/svg_canvas.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {
namespace {

constexpr double kPlotWidth = 1000;
constexpr double kRightMargin = 76;       // "busy 100 %"
constexpr std::size_t kMostBoxes = 5000;  // beyond it files grow and viewers slow down: 65 536 boxes are 7 MB
constexpr int kMostDrawnRows = 64;
constexpr std::size_t kMostMessages = 600;     // between neighbouring rows: lines in the gap between them
constexpr std::size_t kMostRowsCrossed = 150;  // by messages that pass over rows: more would hide the boxes there
constexpr double kLeastMessageRow = 15;        // height; lower rows have no room for lines between them
constexpr double kCollectiveHeight = 7;
constexpr double kSmallestNumber = 7.5;  // smaller digits cannot be read

struct RowSize {
  double height, gap, font;
};
RowSize row_size(int rows) {
  if (rows <= 8) return {26, 4, 12};
  if (rows <= 16) return {21, 3, 11};
  if (rows <= 32) return {15, 2, 10};
  return {11, 1, 9};
}

class Gantt {
 public:
  Gantt(const Answer& answer, Canvas& canvas)
      : answer_(answer),
        rows_(drawn_workers(answer, kMostDrawnRows)),
        bars_(stream_rows(answer, rows_)),
        size_(row_size(static_cast<int>(rows_.size()))),
        boxes_(op_count(answer) * rows_.size() / answer.report.workers.size() <= kMostBoxes),
        canvas_(canvas) {
    double label = text_width(fmt::format("stage {}", answer.plan.stages - 1), 12);  // of the memory strips
    for (const int w : rows_)
      label = std::max(label, text_width(worker_name(answer_, w), size_.font));
    axis_ = {std::ceil(label) + 36, kPlotWidth, answer.timeline.makespan};
  }

  const Axis& axis() const { return axis_; }
  void share(const Axis& axis) { axis_ = axis; }
  double width() const { return axis_.left + kPlotWidth + kRightMargin; }

  // Title, legend, rows and axis from `top` on; returns the height that they end at. `name` precedes the question.
  double draw(double from, std::string_view name) {
    choose_messages();
    if (!messages_.empty()) size_.gap = std::max(size_.gap, 9.0);
    double y = title(from, name);
    y = legend(y);
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
    return time_axis(bottom);
  }

 private:
  double row_bottom(std::size_t row) const {
    double bottom = tops_[row] + size_.height;
    for (const std::vector<bool>& stream : bars_)
      bottom += stream[row] ? kCollectiveHeight + 1 : 0;
    return bottom;
  }

  double title(double from, std::string_view name) {
    double y = from + 24;
    // Broken before a separator where it is wider than the drawing.
    std::string line, rest = std::string(name) + question(answer_);
    const std::string separator = " · ";
    const double widest = width() - 24;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find(separator, 1), rest.size());
      if (!line.empty() && text_width(line + rest.substr(0, end), 15) > widest) {
        canvas_.text(12, y, line, "title", 15);
        line.clear();
        rest.erase(0, separator.size());
        y += 20;
        continue;
      }
      line += rest.substr(0, end);
      rest.erase(0, end);
    }
    canvas_.text(12, y, line, "title", 15);
    canvas_.text(12, y + 20, answer_line(), "quiet", 13);
    return y + 32;
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

  // Only what occurs in the drawing.
  double legend(double y) {
    double x = 12;
    const auto entry = [&](std::string_view css, std::string_view name) {
      canvas_.rect(x, y, 16, 11, css);
      canvas_.text(x + 21, y + 10, name, "", 12);
      x += 21 + text_width(name, 12) + 16;
    };
    for (int i = 0; i < kLooks; ++i)
      if (occurs(answer_, static_cast<Look>(i))) entry(css_class(static_cast<Look>(i)), words(static_cast<Look>(i)));
    if (const std::string_view name = light_words(); !name.empty() && boxes_) {
      canvas_.rect(x, y, 12, 11, css_class(Look::Forward, true));
      canvas_.rect(x + 12, y, 12, 11, css_class(Look::Backward, true));
      canvas_.text(x + 29, y + 10, name, "", 12);
      x += 29 + text_width(name, 12) + 16;
    }
    if (!messages_.empty()) {
      canvas_.line(x, y + 2, x + 16, y + 9, "msg");
      canvas_.text(x + 21, y + 10, "message", "", 12);
    }
    return y + 24;
  }

  // What the light colors show; empty: there are none.
  std::string_view light_words() const {
    if (both_ways(answer_.plan.chunk_order)) return "from the last worker up";
    return answer_.plan.virtual_stages > 1 ? "of odd chunks" : "";
  }

  // Every second chunk of a worker; both ways, the one on the way up.
  bool light(const Op& op) const {
    const Seating seating = answer_.plan.seating();
    const int holder = seating.holder_of(op.virtual_stage, op.micro_batch);
    return seating.local(op.virtual_stage, seating.stage_of(op.virtual_stage, holder)) % 2 == 1;
  }

  void grid(double top, double bottom) {
    for (const auto& mark : axis_.marks())
      canvas_.line(mark.x, top, mark.x, bottom, "grid");
  }

  double time_axis(double bottom) {
    canvas_.line(axis_.left, bottom + 4, axis_.left + axis_.width, bottom + 4, "tick");
    for (const auto& mark : axis_.marks()) {
      canvas_.line(mark.x, bottom + 4, mark.x, bottom + 8, "tick");
      canvas_.text(mark.x, bottom + 20, mark.label, "mid quiet", 11);
    }
    canvas_.text(axis_.left - 10, bottom + 20, "time in " + axis_.unit(), "end quiet", 11);
    double y = bottom + 28;
    std::string note = not_drawn(answer_, rows_);
    if (!note.empty()) note += ". ";
    if (!boxes_)
      note +=
          fmt::format("{} ops are too many for boxes: each column shows how its {} divide between the kinds of work.",
                      op_count(answer_), short_time(Time{answer_.timeline.makespan.value / columns()}));
    for (const std::string& line : {note, messages_note_}) {
      if (line.empty()) continue;
      canvas_.text(axis_.left, y + 11, line, "quiet", 11);
      y += 18;
    }
    return y;
  }

  void worker(std::size_t row) {
    const WorkerId w = rows_[row];
    const double y = tops_[row];
    const auto& times = answer_.timeline.workers[static_cast<std::size_t>(w)];
    canvas_.text(axis_.left - 10, y + size_.height / 2 + size_.font * 0.36, worker_name(answer_, w), "end", size_.font);
    canvas_.rect(axis_.left, y, axis_.x(answer_.timeline.makespan) - axis_.left, size_.height, "i");
    if (boxes_) {
      boxes(lane(answer_, w).compute, times.compute, y);
    } else {
      shares(lane(answer_, w).compute, times.compute, y, size_.height);
    }
    double below = y + size_.height + 1;
    for (StreamId s = 0; s < kStreams.size(); ++s)
      if (bars_[s][row]) {
        collectives(lane(answer_, w).communication[s], times.communication[s], below);
        below += kCollectiveHeight + 1;
      }
    canvas_.text(axis_.x(answer_.timeline.makespan) + 8, y + size_.height / 2 + size_.font * 0.36,
                 fmt::format("busy {:.0f} %", 100 * ratio(answer_.report.workers[static_cast<std::size_t>(w)].busy,
                                                          answer_.timeline.makespan)),
                 "quiet", size_.font);
  }

  std::string tooltip(const Op& op, const Span& span) const {
    const Look kind = look(op.kind);
    const bool round = kind == Look::Update || kind == Look::AllReduce;
    const Seating seating = answer_.plan.seating();
    const int holder = round ? 0 : seating.holder_of(op.virtual_stage, op.micro_batch);
    return fmt::format("{} · {} of {} {} on stage {} · {} to {}", label(op), words(kind),
                       round ? "round" : "micro-batch", op.micro_batch, seating.stage_of(op.virtual_stage, holder),
                       short_time(span.start, 4), short_time(span.end, 4));
  }

  void boxes(const std::vector<Op>& ops, const std::vector<Span>& spans, double y) {
    const std::string largest = std::to_string(answer_.plan.micro_batches - 1);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (spans[i].end == spans[i].start) continue;
      const double x = axis_.x(spans[i].start), width = axis_.x(spans[i].end) - x;
      const Look kind = look(ops[i].kind);
      const bool pale = light(ops[i]);
      canvas_.rect(x, y, width, size_.height, fmt::format("{}{}", css_class(kind, pale), width > 3 ? " box" : ""),
                   tooltip(ops[i], spans[i]));
      const std::string number = kind == Look::Update ? "" : std::to_string(ops[i].micro_batch);
      // One size for all numbers of a kind: the one that the largest micro-batch number allows.
      const double font = std::min({size_.font, size_.height - 3, (width - 2) / text_width(largest, 1)});
      if (number.empty() || font < kSmallestNumber) continue;
      const bool dark = pale || kind == Look::Recompute || kind == Look::WeightGradient;
      numbers_.push_back(
          {x + width / 2, y + size_.height / 2 + font * 0.36, number, dark ? "mid num2" : "mid num", font});
    }
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
    const auto n = static_cast<std::size_t>(columns());
    const double cell = static_cast<double>(answer_.timeline.makespan.value) / static_cast<double>(n);
    std::vector<std::array<double, kLooks>> share(n);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const double start = static_cast<double>(spans[i].start.value) / cell,
                   end = static_cast<double>(spans[i].end.value) / cell;
      for (auto c = static_cast<std::size_t>(start); c < n && static_cast<double>(c) < end; ++c)
        share[c][static_cast<std::size_t>(look(ops[i].kind))] +=
            std::min(end, static_cast<double>(c + 1)) - std::max(start, static_cast<double>(c));
    }
    std::vector<double> base(n, y + height);
    for (int kind = 0; kind < kLooks; ++kind) {
      std::string d;
      for (std::size_t c = 0; c < n;) {
        const auto quantized = [&](std::size_t i) {  // half pixels, so that equal columns join
          return std::round(2 * height * share[i][static_cast<std::size_t>(kind)]) / 2;
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
    leave_out(hidden, "to or from workers without a row");
    leave_out(brief, "shorter than a pixel");
    if (beside.size() > kMostMessages) leave_out(beside.size(), "between neighbouring rows, too many to tell apart");
    if (crossed > kMostRowsCrossed) leave_out(over.size(), "that would pass over other rows, too many to tell apart");
    if (beside.size() <= kMostMessages) messages_ = beside;
    if (crossed <= kMostRowsCrossed) messages_.insert(messages_.end(), over.begin(), over.end());
    if (!left_out.empty())
      messages_note_ =
          fmt::format("{} of {} messages are drawn; not drawn: {}.", messages_.size(), all, fmt::join(left_out, ", "));
  }

  bool has_row(WorkerId w) const { return std::binary_search(rows_.begin(), rows_.end(), w); }
  std::size_t row_of(WorkerId w) const {
    return static_cast<std::size_t>(std::lower_bound(rows_.begin(), rows_.end(), w) - rows_.begin());
  }

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
  std::vector<int> rows_;
  ByStream<std::vector<bool>> bars_;  // by row: the stream is drawn below it
  RowSize size_;
  bool boxes_;
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
  const DrawnCopies whole(simulated, DrawnCopies::Of::Distinct);
  const Answer& answer = whole.answer();
  Canvas canvas;
  Gantt gantt(answer, canvas);
  double y = gantt.draw(0, "");
  y += draw_memory(canvas, answer, gantt.axis(), y);
  return canvas.document(gantt.width(), y + 12, question(answer));
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

}  // namespace pipewright
