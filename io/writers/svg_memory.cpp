// Memory over time, one strip per stage: what is there all the time, then the stash, what recomputation rebuilds, and
// the buffers, stacked; the dashed line is what the device has.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/cost/memory_model.hpp"
#include "io/text/format_quantity.hpp"
#include "io/writers/svg_canvas.hpp"

namespace pipewright::io {
namespace {

constexpr int kMostStrips = 8;
constexpr double kStrip = 40, kStripGap = 7;
constexpr int kLayers = 4;
constexpr std::array<std::string_view, kLayers> kLayerNames = {"weights, gradients, optimizer, reserve",
                                                               "stash and logits", "recomputed, workspace", "buffers"};

std::array<Bytes, kLayers> layers(const MemoryBytes& m) {
  return {m.weights + m.gradients + m.optimizer + m.reserve, m.stash + m.logits, m.recompute + m.workspace, m.buffers};
}

// What a pixel shows: the largest total within it.
std::vector<MemoryBytes> by_pixel(const std::vector<MemoryPoint>& points, Time end, std::size_t pixels) {
  std::vector<MemoryBytes> result(pixels);
  MemoryBytes current;
  std::size_t next = 0;
  for (std::size_t x = 0; x < pixels; ++x) {
    const double until = static_cast<double>(end.value) * static_cast<double>(x + 1) / static_cast<double>(pixels);
    MemoryBytes most = current;
    for (; next < points.size() && static_cast<double>(points[next].at.value) < until; ++next) {
      current = points[next].bytes;
      // What began exactly at the pixel's left edge replaces what was before it.
      if (current.total() > most.total() || static_cast<double>(points[next].at.value) <=
                                                until - static_cast<double>(end.value) / static_cast<double>(pixels))
        most = current;
    }
    result[x] = most;
  }
  return result;
}

WorkerId fullest_worker_of(const Answer& answer, const StageReport& stage) {
  return *std::ranges::max_element(stage.workers, [&](WorkerId a, WorkerId b) {
    const auto total = [&](WorkerId w) { return answer.report.workers[at(w)].memory.bytes.total(); };
    return total(a) < total(b);
  });
}

void memory_strip(Canvas& canvas, const Answer& answer, const Axis& axis, double top, WorkerId worker,
                  double full_scale) {
  const auto points = series(answer.memory, answer.schedule, answer.costs, answer.timeline, answer.simulated(worker));
  const auto pixels = by_pixel(points, axis.end, static_cast<std::size_t>(axis.width));
  std::vector<double> base(pixels.size(), 0);  // bytes below this layer
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    std::string d;
    for (std::size_t x = 0; x < pixels.size();) {
      const double height = static_cast<double>(layers(pixels[x])[layer].value), below = base[x];
      std::size_t end = x;
      while (end < pixels.size() && static_cast<double>(layers(pixels[end])[layer].value) == height &&
             base[end] == below)
        base[end++] += height;
      if (height > 0) {
        const auto y = [&](double bytes) { return top + kStrip * (1 - bytes / full_scale); };
        d += fmt::format("M{} {}h{}V{}h-{}z", coordinate(axis.left + static_cast<double>(x)), coordinate(y(below)),
                         end - x, coordinate(y(below + height)), end - x);
      }
      x = end;
    }
    if (!d.empty()) canvas.path(d, fmt::format("m{}", layer), kLayerNames[layer]);
  }
}

}  // namespace

MemoryStrips::MemoryStrips(const std::vector<const Answer*>& answers) {
  double largest = 1;
  bool first = true;
  for (const Answer* answer : answers)
    for (const StageReport& stage : answer->report.stages) {
      largest = std::max(largest, static_cast<double>(stage.memory.bytes.total().value));
      for (std::size_t i = 0; i < kLayers; ++i)
        used_[i] = used_[i] || layers(stage.memory.bytes)[i].value > 0;
      smallest_device_ = first ? stage.need.capacity : std::min(smallest_device_, stage.need.capacity);
      largest_device_ = std::max(largest_device_, stage.need.capacity);
      first = false;
    }
  // The capacity sets the scale unless that would flatten everything.
  const double capacity = static_cast<double>(largest_device_.value);
  capacity_shown_ = capacity > 0 && capacity <= 2.5 * largest;
  full_scale_ = 1.04 * (capacity_shown_ ? std::max(capacity, largest) : largest);
}

void MemoryStrips::explain(Canvas& canvas, Legend& legend) const {
  for (std::size_t i = 0; i < kLayers; ++i)
    if (used_[i]) legend.entry(fmt::format("m{}", i), kLayerNames[i]);
  if (largest_device_ > Bytes{})
    legend.entry(
        capacity_shown_ ? 16 : 0,
        fmt::format("capacity {}{}{}", smallest_device_ < largest_device_ ? short_bytes(smallest_device_) + " to " : "",
                    short_bytes(largest_device_), capacity_shown_ ? "" : " (above the strips)"),
        [&](double x, double y) {
          if (capacity_shown_) canvas.line(x, y + 6, x + 16, y + 6, "cap");
        });
}

double MemoryStrips::draw(Canvas& canvas, const Answer& answer, const Axis& axis, double top,
                          const std::vector<StageId>& stages, std::string_view label) const {
  double y = top;
  for (const int k : stages) {
    const StageReport& stage = answer.report.stages[at(k)];
    canvas.rect(axis.left, y, axis.width, kStrip, "i");
    memory_strip(canvas, answer, axis, y, fullest_worker_of(answer, stage), full_scale_);
    if (capacity_shown_) {
      const double line = y + kStrip * (1 - static_cast<double>(stage.need.capacity.value) / full_scale_);
      canvas.line(axis.left, line, axis.left + axis.width, line, "cap");
    }
    canvas.text(axis.left - 10, y + kStrip / 2 + 4, fmt::format("{}stage {}", label, k), "end",
                label.empty() ? 12 : 10);
    canvas.text(axis.left + axis.width + 8, y + kStrip / 2 - 3, short_bytes(stage.memory.bytes.total()), "quiet", 11);
    if (largest_device_ > Bytes{})
      canvas.text(axis.left + axis.width + 8, y + kStrip / 2 + 11,
                  whole_percent(ratio(stage.memory.bytes.total(), stage.need.capacity)) + " full", "quiet", 11);
    y += kStrip + kStripGap;
  }
  return y - top;
}

double draw_memory(Canvas& canvas, const Answer& answer, const Axis& axis, double top, bool explained) {
  const std::vector<StageId> shown = drawn_stages(answer, kMostStrips);
  const MemoryStrips strips({&answer});
  double y = top + 20;
  canvas.text(12, y, "memory", "title", 12);
  if (explained) {
    Legend legend(canvas, axis.left, axis.left + axis.width + 64, y - 10);
    strips.explain(canvas, legend);
    y = legend.y() + 10;
  }
  y += 10;
  y += strips.draw(canvas, answer, axis, y, shown);
  if (const std::size_t stages = answer.report.stages.size(); shown.size() < stages) {
    canvas.text(axis.left, y + 9,
                fmt::format("{} of {} stages are drawn, {}.", shown.size(), stages,
                            how_spread(static_cast<int>(stages), {shown.begin(), shown.end()})),
                "quiet", 11);
    y += 16;
  }
  return y - top;
}

}  // namespace pipewright::io
