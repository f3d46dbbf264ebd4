// Memory over time, one strip per stage: what is there all the time, then the stash, what recomputation rebuilds, and
// the buffers, stacked; the dashed line is what the device has.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/cost/memory_model.hpp"
#include "io/text/format_quantity.hpp"
#include "io/writers/svg_canvas.hpp"

namespace pipewright {
namespace {

constexpr int kMostStrips = 8;
constexpr double kStrip = 40, kStripGap = 7;
constexpr int kLayers = 4;
constexpr std::array<std::string_view, kLayers> kNames = {"weights, gradients, optimizer, reserve", "stash and logits",
                                                          "recomputed, workspace", "buffers"};

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
  return *std::max_element(stage.workers.begin(), stage.workers.end(), [&](WorkerId a, WorkerId b) {
    const auto total = [&](WorkerId w) {
      return answer.report.workers[static_cast<std::size_t>(w)].memory.bytes.total();
    };
    return total(a) < total(b);
  });
}

void strip(Canvas& canvas, const Answer& answer, const Axis& axis, double top, WorkerId worker, double full_scale) {
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
    if (!d.empty()) canvas.path(d, fmt::format("m{}", layer), kNames[layer]);
  }
}

}  // namespace

double draw_memory(Canvas& canvas, const Answer& answer, const Axis& axis, double top) {
  const auto& stages = answer.report.stages;
  const std::vector<int> shown = drawn_stages(answer, kMostStrips);
  double largest = 1;
  std::array<bool, kLayers> used{};
  for (const auto& stage : stages) {
    largest = std::max(largest, static_cast<double>(stage.memory.bytes.total().value));
    for (std::size_t i = 0; i < kLayers; ++i)
      used[i] = used[i] || layers(stage.memory.bytes)[i].value > 0;
  }
  // The capacity sets the scale unless that would flatten everything.
  const auto [least, most] = std::minmax_element(
      stages.begin(), stages.end(), [](const auto& a, const auto& b) { return a.need.capacity < b.need.capacity; });
  const Bytes smallest_device = stages.empty() ? Bytes{} : least->need.capacity;
  const Bytes largest_device = stages.empty() ? Bytes{} : most->need.capacity;
  const double capacity = static_cast<double>(largest_device.value);
  const bool capacity_shown = capacity > 0 && capacity <= 2.5 * largest;
  const double full_scale = 1.04 * (capacity_shown ? std::max(capacity, largest) : largest);

  double y = top + 20;
  canvas.text(12, y, "memory", "title", 12);
  double x = axis.left;
  for (std::size_t i = 0; i < kLayers; ++i) {
    if (!used[i]) continue;
    canvas.rect(x, y - 10, 16, 11, fmt::format("m{}", i));
    canvas.text(x + 21, y, kNames[i], "", 12);
    x += 21 + text_width(kNames[i], 12) + 16;
  }
  if (capacity > 0) {
    if (capacity_shown) canvas.line(x, y - 4, x + 16, y - 4, "cap");
    canvas.text(
        x + (capacity_shown ? 21 : 0), y,
        fmt::format("capacity {}{}{}", smallest_device < largest_device ? short_bytes(smallest_device) + " to " : "",
                    short_bytes(largest_device), capacity_shown ? "" : " (above the strips)"),
        "", 12);
  }
  y += 10;
  for (const int k : shown) {
    const StageReport& stage = stages[static_cast<std::size_t>(k)];
    canvas.rect(axis.left, y, axis.width, kStrip, "i");
    strip(canvas, answer, axis, y, fullest_worker_of(answer, stage), full_scale);
    if (capacity_shown) {
      const double line = y + kStrip * (1 - static_cast<double>(stage.need.capacity.value) / full_scale);
      canvas.line(axis.left, line, axis.left + axis.width, line, "cap");
    }
    canvas.text(axis.left - 10, y + kStrip / 2 + 4, fmt::format("stage {}", k), "end", 12);
    canvas.text(axis.left + axis.width + 8, y + kStrip / 2 - 3, short_bytes(stage.memory.bytes.total()), "quiet", 11);
    if (capacity > 0)
      canvas.text(axis.left + axis.width + 8, y + kStrip / 2 + 11,
                  whole_percent(ratio(stage.memory.bytes.total(), stage.need.capacity)) + " full", "quiet", 11);
    y += kStrip + kStripGap;
  }
  if (shown.size() < stages.size()) {
    canvas.text(axis.left, y + 9,
                fmt::format("{} of {} stages are drawn, {}.", shown.size(), stages.size(),
                            how_spread(static_cast<int>(stages.size()), shown)),
                "quiet", 11);
    y += 16;
  }
  return y - top;
}

}  // namespace pipewright
