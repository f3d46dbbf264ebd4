// The schedule as text:   stage 0 ▕0123......aa4bb5cc6dd7ee.ff.gg.hh▏ busy 73 %
//
// One character is a fixed piece of time. When all ops begin and end on multiples of one unit and the run fits, the
// unit is that piece and the drawing is exact. Otherwise the piece is a round time, so that ops of round lengths look
// alike wherever they begin, and a character shows what ran at its middle; when ops would be shorter than a piece, two
// windows of the run are drawn instead of the whole.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "io/text/format_quantity.hpp"
#include "io/writers/compare.hpp"
#include "io/writers/drawing.hpp"
#include "io/writers/text_table.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {
namespace {

constexpr double kFillShare = 1.5;  // a window is at least that many times as long as the pipeline takes to fill
constexpr int kWorkers = 16;        // more workers than that: evenly spread ones are drawn, and the fullest
constexpr int kRows = 20;           // of workers and collectives, so that a screen shows them
constexpr int kFewestColumns = 10;

struct Window {
  Time begin;
  int columns = 0;
};

// Pieces of the run that are drawn, side by side. Character i of a window shows the moment begin + (i + 1/2) * cell.
struct Frame {
  double cell = 1;  // ns
  bool exact = false;
  std::vector<Window> windows;
};

char symbol(const Op& op) {
  switch (op.kind) {
    case Kind::F: return static_cast<char>('0' + op.micro_batch % 10);
    case Kind::R: return static_cast<char>('A' + op.micro_batch % 26);
    case Kind::W: return 'w';
    case Kind::Update: return 'u';
    case Kind::AllReduce:
    case Kind::TableReduce:
    case Kind::NormReduce: return '=';
    case Kind::AllGather: return '-';
    case Kind::Offload:
    case Kind::Store: return '>';
    case Kind::Reload:
    case Kind::Fetch: return '<';
    default: return static_cast<char>('a' + op.micro_batch % 26);
  }
}

std::vector<const std::vector<Span>*> streams_of(const LaneTimes& worker) {
  std::vector<const std::vector<Span>*> all = {&worker.compute};
  for (const std::vector<Span>& stream : worker.communication)
    all.push_back(&stream);
  return all;
}

// Largest unit of which every start and end is a multiple; gives up (0) once more than `columns` units fill the run.
std::int64_t common_unit(const Answer& answer, int columns) {
  std::int64_t unit = answer.timeline.makespan.value;
  for (const auto& worker : answer.timeline.workers)
    for (const auto* stream : streams_of(worker))
      for (const Span& span : *stream) {
        unit = std::gcd(std::gcd(unit, span.start.value), span.end.value);
        if (unit == 0 || answer.timeline.makespan.value / unit > columns) return 0;
      }
  return unit;
}

// At that size the ops of most workers are told apart: the shortest pass of any worker, but for those with passes less
// than half as long as the others' (beside a replicated stage, which runs r times as long for each micro-batch), which
// are drawn coarser; and so are small units (an embedding) beside blocks.
Time telling_size(const Answer& answer) {
  std::vector<Time> shortest;  // by worker
  Time longest{1};
  for (std::size_t w = 0; w < answer.timeline.workers.size(); ++w) {
    const auto& ops = lane(answer, static_cast<WorkerId>(w)).compute;
    Time mine = kNever, least{1};
    const auto over_passes = [&](const auto& look) {
      for (std::size_t i = 0; i < ops.size(); ++i)
        if (const Span& span = answer.timeline.workers[w].compute[i]; ops[i].kind != Kind::Update)
          look(span.end - span.start);
    };
    if (answer.plan.units > 1) over_passes([&](Time pass) { least = std::max(least, Time{pass.value / 4}); });
    over_passes([&](Time pass) { mine = pass >= least ? std::min(mine, pass) : mine; });
    if (mine == kNever) continue;
    longest = std::max(longest, mine);
    shortest.push_back(mine);
  }
  Time size = longest;
  for (const Time pass : shortest)
    if (2 * pass.value >= longest.value) size = std::min(size, pass);
  return size;
}

// Latest first start and earliest last end of any worker, the latter counted from the end of the run.
std::pair<Time, Time> fill_and_drain(const Answer& answer) {
  Time fill, drain;
  for (const auto& worker : answer.timeline.workers) {
    if (worker.compute.empty()) continue;
    fill = std::max(fill, worker.compute.front().start);
    drain = std::max(drain, answer.timeline.makespan - worker.compute.back().end);
  }
  return {fill, drain};
}

// Smallest of 1, 2, 2.5, 5 * 10^n ns (whole ones) that is at least `least`.
Time round_time(double least) {
  for (std::int64_t power = 1;; power *= 10)
    for (const std::int64_t tenths : {10, 20, 25, 50})
      if (power * tenths % 10 == 0 && static_cast<double>(power * tenths / 10) >= least)
        return Time{power * tenths / 10};
}

// The whole run in pieces of `cell`, as far as their middles lie in it.
Frame whole_run(Time makespan, double cell) {
  const double pieces = static_cast<double>(makespan.value) / cell;
  return {cell, false, {{Time{0}, static_cast<int>(std::ceil(pieces - 0.5))}}};
}

Frame frame(const Answer& answer, int columns) {
  const Time makespan = answer.timeline.makespan;
  if (const std::int64_t unit = common_unit(answer, columns); unit > 0)
    return {static_cast<double>(unit), true, {{Time{0}, static_cast<int>(makespan.value / unit)}}};
  const double whole = static_cast<double>(makespan.value) / columns;
  const double pass = static_cast<double>(telling_size(answer).value);
  const auto round = static_cast<double>(round_time(whole).value);
  if (round <= pass || columns < 2 * kFewestColumns) return whole_run(makespan, round);
  if (whole <= pass) return whole_run(makespan, whole);  // a round piece would hide ops
  // A piece is as long as a pass, or longer (then round) where the pipeline would not fill (drain) within the window.
  const int left = (columns - 3) / 2, right = columns - 3 - left;
  const auto [fill, drain] = fill_and_drain(answer);
  double cell = std::max(pass, kFillShare * static_cast<double>(fill.value) / left);
  if (answer.schedule.flush) cell = std::max(cell, kFillShare * static_cast<double>(drain.value) / right);
  if (whole <= cell) return whole_run(makespan, round);
  if (cell > pass) cell = static_cast<double>(round_time(cell).value);
  if (round <= cell) return whole_run(makespan, round);
  // The beginning, then the end (flush) or the middle (asynchronous: the steady state).
  const double from = static_cast<double>(makespan.value) - cell * right;
  const double right_begin = answer.schedule.flush ? from : from / 2;
  return {cell, false, {{Time{0}, left}, {Time{static_cast<std::int64_t>(std::max(0.0, right_begin))}, right}}};
}

std::string row(const std::vector<Op>& ops, const std::vector<Span>& spans, const Frame& frame) {
  std::string text;
  for (const Window& window : frame.windows) {
    if (&window != &frame.windows.front()) text += " ⋯ ";
    auto span = spans.begin();
    for (int i = 0; i < window.columns; ++i) {
      const double moment = static_cast<double>(window.begin.value) + (i + 0.5) * frame.cell;
      span = std::partition_point(span, spans.end(),
                                  [&](const Span& s) { return static_cast<double>(s.end.value) <= moment; });
      const bool runs = span != spans.end() && static_cast<double>(span->start.value) <= moment;
      text += runs ? symbol(ops[at(span - spans.begin())]) : '.';
    }
  }
  return text;
}

using Answers = std::initializer_list<const Answer*>;

// Of the schedules drawn in it; of several the frame is one window.
std::string legend(Answers answers, const Frame& frame, int width) {
  const auto occur = [&](Look kind) {
    return std::ranges::any_of(answers, [&](const Answer* answer) { return occurs(*answer, kind); });
  };
  const Time cell{static_cast<std::int64_t>(std::llround(frame.cell))};
  std::string text =
      fmt::format("1 character = {}{}; digit: forward of that micro-batch (last digit), letter: backward",
                  brief_time(cell), frame.exact ? "" : ", sampled at its midpoint");
  if (occur(Look::Recompute)) text += ", capital: recompute";
  if (occur(Look::WeightGradient)) text += ", w weight gradient";
  if (occur(Look::Update)) text += ", u update";
  if (occur(Look::AllReduce)) text += ", = all-reduce";
  if (occur(Look::AllGather)) text += ", - all-gather";
  if (occur(Look::Move)) text += ", > offload, < reload";
  text += ", . idle";
  if (frame.windows.size() > 1) {
    const Answer& answer = **answers.begin();
    const Window& right = frame.windows.back();
    const auto length = [&](const Window& w) {
      return short_time(Time{static_cast<std::int64_t>(std::llround(frame.cell * w.columns))});
    };
    text += fmt::format(". Of {} only two windows are drawn: the first {}, and {} from {} on{}",
                        short_time(answer.timeline.makespan), length(frame.windows.front()), length(right),
                        short_time(right.begin), answer.schedule.flush ? " (the end)" : " (the middle of the run)");
  }
  return wrapped("  ", text, width);
}

// Workers that get a row, so many that their all-reduces have one too.
std::vector<WorkerId> workers_with_rows(const Answer& answer) {
  std::vector<WorkerId> shown = drawn_workers(answer, kWorkers);
  const auto rows = [&] {
    int all = static_cast<int>(shown.size());
    for (const std::vector<bool>& stream : stream_rows(answer, shown))
      all += static_cast<int>(std::ranges::count(stream, true));
    return all;
  };
  for (int most = kWorkers - 1; rows() > kRows; --most)  // ends: no worker has more than one of a stream
    shown = drawn_workers(answer, most);
  return shown;
}

// The workers of one schedule that are drawn.
struct Drawn {
  std::vector<WorkerId> shown;
  ByStream<std::vector<bool>> streams;
  int label = 0;  // columns of the longest name
};

Drawn drawn(const Answer& answer) {
  Drawn result;
  result.shown = workers_with_rows(answer);
  result.streams = stream_rows(answer, result.shown);
  for (const int w : result.shown)
    result.label = std::max(result.label, display_width(worker_name(answer, w)));
  for (StreamId s = 0; s < kStreams.size(); ++s)
    if (std::ranges::count(result.streams[s], true) > 0)
      result.label = std::max(result.label, display_width(kStreams[s].op));
  return result;
}

int columns_beside(int label, int width) {
  const int around = 2 + label + 1 + 2 + 11;  // indent, label, frame, " busy 100 %"
  return std::max(kFewestColumns, width - around);
}

std::string rows(const Answer& answer, const Drawn& drawn, int label, const Frame& frame, int width) {
  std::string text;
  const auto add = [&](std::string_view name, const std::string& drawing, const std::string& after) {
    text += "  " + padded(name, label) + " ▕" + drawing + "▏" + after + "\n";
  };
  for (std::size_t i = 0; i < drawn.shown.size(); ++i) {
    const WorkerId w = drawn.shown[i];
    const auto& times = answer.times(w);
    const double busy = ratio(answer.report.workers[at(w)].busy, answer.timeline.makespan);
    add(worker_name(answer, w), row(lane(answer, w).compute, times.compute, frame),
        fmt::format(" busy {:.0f} %", 100 * busy));
    for (StreamId s = 0; s < kStreams.size(); ++s)
      if (drawn.streams[s][i])
        add(kStreams[s].op, row(lane(answer, w).communication[s], times.communication[s], frame), "");
  }
  if (const std::string note = not_drawn(answer, drawn.shown); !note.empty()) text += wrapped("  ", note, width);
  return text;
}

// One piece of time for both, exact where a unit divides all ops of both; each as long as its own run.
std::pair<Frame, Frame> common_frames(const Answer& a, const Answer& b, int columns) {
  const Time first = a.timeline.makespan, second = b.timeline.makespan, longest = std::max(first, second);
  const std::int64_t unit = std::gcd(common_unit(a, columns), common_unit(b, columns));
  if (unit > 0 && longest.value / unit <= columns && common_unit(a, columns) > 0 && common_unit(b, columns) > 0) {
    const auto exactly = [&](Time makespan) {
      return Frame{static_cast<double>(unit), true, {{Time{0}, static_cast<int>(makespan.value / unit)}}};
    };
    return {exactly(first), exactly(second)};
  }
  // A round piece unless it would hide ops.
  const double whole = static_cast<double>(longest.value) / columns;
  const auto round = static_cast<double>(round_time(whole).value);
  const auto pass = static_cast<double>(std::min(telling_size(a), telling_size(b)).value);
  const double cell = round <= pass ? round : whole;
  return {whole_run(first, cell), whole_run(second, cell)};
}

}  // namespace

std::string text_timeline(const Answer& answer, int width) {
  const Drawn drawn = io::drawn(answer);
  const Frame frame = io::frame(answer, columns_beside(drawn.label, width));
  return rows(answer, drawn, drawn.label, frame, width) + legend({&answer}, frame, width);
}

std::string text_timelines(const Answer& a, const Answer& b, int width) {
  const Drawn drawn_a = drawn(a), drawn_b = drawn(b);
  const int label = std::max(drawn_a.label, drawn_b.label);
  const auto [frame_a, frame_b] = common_frames(a, b, columns_beside(label, width));
  return "  A\n" + rows(a, drawn_a, label, frame_a, width) + "  B\n" + rows(b, drawn_b, label, frame_b, width) +
         legend({&a, &b}, frame_a, width);
}

}  // namespace pipewright::io
