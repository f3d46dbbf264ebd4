#include "io/writers/sweep_cells.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

namespace pipewright::io {

std::string head_of(const SweepQuestion& question, std::size_t axis) {
  const auto last = [](const std::string& key) { return key.substr(key.rfind('.') + 1); };
  const std::string head = last(question.axes[axis].key);
  const auto alike = std::count_if(question.axes.begin(), question.axes.end(),
                                   [&](const SweepAxis& other) { return last(other.key) == head; });
  return alike > 1 ? question.axes[axis].key : head;
}

std::string head_of(SweepFigure figure, const Scale& scale) {
  switch (figure) {
    case SweepFigure::StepTime: return "step " + scale.name;
    case SweepFigure::SamplesPerS: return "samples/s";
    case SweepFigure::SamplesPerSDevice: return "samples/s/dev";
    case SweepFigure::TokensPerS: return "tokens/s";
    case SweepFigure::TokensPerSDevice: return "tokens/s/dev";
    case SweepFigure::Mfu: return "MFU";
    case SweepFigure::Bubble: return "bubble";
    case SweepFigure::PeakMemory: return "peak " + scale.name;
    case SweepFigure::Headroom: return "left " + scale.name;
    case SweepFigure::Devices: return "devices";
    case SweepFigure::SpeedUp: return "speed-up";
    case SweepFigure::Hfu: return "HFU";
    case SweepFigure::LongestSpan: return "span " + scale.name;
    case SweepFigure::WeightsMemory: return "weights " + scale.name;
    case SweepFigure::Days: return "days";
    case SweepFigure::DeviceHours: return "device-h";
    case SweepFigure::Cost: return "cost";
    case SweepFigure::EnergyKwh: return "kWh at most";
    case SweepFigure::Goodput: return "goodput";
    case SweepFigure::DaysExpected: return "days with failures";
    case SweepFigure::CostExpected: return "cost with failures";
  }
  return "";
}

std::string cell_of(SweepFigure figure, double value, const Scale& scale) {
  switch (figure) {
    case SweepFigure::StepTime:
    case SweepFigure::LongestSpan: return in_scale(std::llround(value * 1e9), scale);
    case SweepFigure::WeightsMemory:
    case SweepFigure::PeakMemory:
    case SweepFigure::Headroom: return in_scale(static_cast<std::int64_t>(value), scale);
    case SweepFigure::Mfu:
    case SweepFigure::Hfu:
    case SweepFigure::Goodput:
    case SweepFigure::Bubble: return percent(value);
    case SweepFigure::Days:
    case SweepFigure::DaysExpected: return significant(value);
    case SweepFigure::DeviceHours:
    case SweepFigure::Cost:
    case SweepFigure::CostExpected:
    case SweepFigure::EnergyKwh: return significant(value, 4);
    case SweepFigure::Devices: return fmt::format("{:.0f}", value);
    case SweepFigure::SpeedUp: return significant(value) + "x";
    case SweepFigure::TokensPerS:
    case SweepFigure::TokensPerSDevice:
    case SweepFigure::SamplesPerS:
    case SweepFigure::SamplesPerSDevice: return significant(value, 4);
  }
  return "";
}

Scale scale_of(const Sweep& sweep, SweepFigure figure) {
  double largest = 0;
  for (const SweepRow& row : sweep.rows)
    largest = std::max(largest, std::abs(core::figure(row, figure).value_or(0)));
  if (figure == SweepFigure::StepTime || figure == SweepFigure::LongestSpan)
    return time_scale(Time{std::llround(largest * 1e9)});
  // One point that is far too large must not blur the others.
  constexpr double kGiB = 1073741824, kTiB = 1024 * kGiB;
  if (largest >= kTiB) return {kGiB, "GiB", 1};
  return bytes_scale(Bytes{static_cast<std::int64_t>(largest)});
}

bool less_is_better(SweepFigure figure) {
  switch (figure) {
    case SweepFigure::StepTime:
    case SweepFigure::Bubble:
    case SweepFigure::PeakMemory:
    case SweepFigure::LongestSpan:
    case SweepFigure::WeightsMemory:
    case SweepFigure::Devices:
    case SweepFigure::Days:
    case SweepFigure::DeviceHours:
    case SweepFigure::Cost:
    case SweepFigure::EnergyKwh:
    case SweepFigure::DaysExpected:
    case SweepFigure::CostExpected: return true;
    default: return false;
  }
}

}  // namespace pipewright::io
