#include "planner/figures.hpp"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/folds.hpp"
#include "core/model/flops.hpp"
#include "sim/kth_wrap.hpp"

namespace pipewright::planner {
namespace {

const StageReport& stage_of(const Answer& answer, Where where, std::int64_t stage) {
  const auto stages = static_cast<std::int64_t>(answer.report.stages.size());
  if (where == Where::Last) return answer.report.stages.back();
  if (stage >= stages)
    throw InputError(fmt::format("where: there is no stage {}; the plan has 0..{}", stage, stages - 1));
  return answer.report.stages[stage];
}

// A figure that every stage has: the largest, the sum, or one stage's.
double over_stages(const Answer& answer, const FigureSought& quantity, double (*figure)(const StageReport&)) {
  if (quantity.where == Where::Stage || quantity.where == Where::Last)
    return figure(stage_of(answer, quantity.where, quantity.stage));
  double sum = 0, largest = 0;
  for (const StageReport& stage : answer.report.stages) {
    sum += figure(stage);
    largest = std::max(largest, figure(stage));
  }
  return quantity.where == Where::All ? sum : largest;
}

double memory_of(const Answer& answer, const MemoryPeak& peak, std::string_view part, StageId stage) {
  if (part == "held")
    return static_cast<double>((held_between_steps(answer.memory, peak.bytes, stage) + answer.memory.correction).value);
  const MemoryNeed needed = need(answer.memory, peak.bytes, stage);
  if (part == "allocated") return static_cast<double>((needed.model + needed.anchored).value);
  if (part == "total") return static_cast<double>((needed.model + needed.anchored + peak.bytes.reserve).value);
  if (part == "in_use") return static_cast<double>(needed.with_reserve.value);
  if (part != "reserved") return static_cast<double>(memory_part(peak.bytes, part).value);
  return static_cast<double>((needed.model + needed.anchored + needed.rounding + needed.fragmentation).value);
}

// Of its 90 % the lower end (-1) or the upper one (1). A device needs what the allocator adds at most; what it did add is half of that off.
double memory_end(const Answer& answer, const MemoryPeak& peak, std::string_view part, StageId stage, int end) {
  MemoryNeed needed = need(answer.memory, peak.bytes, stage);
  const Bytes allocator = needed.rounding + needed.fragmentation;
  Bytes stated = needed.with_reserve;
  if (part == "reserved" || part == "in_use") {
    needed.low = needed.low + Bytes{allocator.value / 2};
    needed.high = needed.high + Bytes{allocator.value / 2};
  } else {
    needed.high = needed.high - allocator;
    stated = stated - allocator;
  }
  const Bytes reserve = part == "total" || part == "in_use" ? Bytes{} : peak.bytes.reserve;
  const Bytes at = end < 0 ? std::min(quantile(needed, 0.05), stated) : std::max(quantile(needed, 0.95), stated);
  return static_cast<double>((at - reserve).value);
}

// `fullest`: the device with the largest peak decides, also for a part of it; `all`: each device at its own peak.
double memory(const Answer& answer, const FigureSought& quantity, int end) {
  const auto part = [&](const MemoryPeak& peak, StageId stage) {
    return end == 0 ? memory_of(answer, peak, quantity.of, stage) : memory_end(answer, peak, quantity.of, stage, end);
  };
  if (quantity.where != Where::All) {
    const FigureDevice device = device_of(answer, quantity.where, quantity.stage);
    return part(device.memory, device.stage);
  }
  return sum_over<double>(answer.report.workers,
                          [&](const WorkerReport& worker) { return part(worker.memory, worker.stage); });
}

double or_refuse(const std::optional<double>& figure, const char* needs) {
  if (!figure) throw InputError(std::string("the scenario says too little for it: ") + needs);
  return *figure;
}

// 1 - work / (workers * makespan)
double bubble_with_kth_wraps(const Answer& answer) {
  const auto makespan = makespan_with_kth_wraps(answer.schedule, answer.costs);
  if (!makespan)
    throw InputError(
        "bubble_fraction_kth_wrap is of whole backwards, chunks in a loop and one worker a stage: not of " +
        answer.plan.schedule + " here; use bubble_fraction_span");
  auto work =
      sum_over<Time>(answer.report.workers, [](const WorkerReport& worker) { return worker.busy - worker.update; });
  return 1 - ratio(work, static_cast<std::int64_t>(answer.report.workers.size()) * *makespan);
}

}  // namespace

FigureDevice device_of(const Answer& answer, Where where, std::int64_t stage) {
  if (where != Where::Fullest) {
    const StageReport& of = stage_of(answer, where, stage);
    return {of.stage, of.memory, of.need};
  }
  const auto& workers = answer.report.workers;
  const auto less = [](const WorkerReport& a, const WorkerReport& b) {
    return a.memory.bytes.total() < b.memory.bytes.total();
  };
  const WorkerReport& fullest = *std::ranges::max_element(workers, less);
  return {fullest.stage, fullest.memory, fullest.need};
}

std::optional<double> figure_of(const Scenario& scenario, const FigureSought& quantity) {
  if (quantity.figure == Figure::Parameters && quantity.where == Where::All)
    return static_cast<double>(parameter_count(scenario.model));
  if (quantity.figure == Figure::Layers) return static_cast<double>(scenario.model.layers.size());
  return std::nullopt;
}

double figure_of(const Answer& answer, const FigureSought& quantity) {
  const Report& report = answer.report;
  const double devices = answer.plan.devices();
  switch (quantity.figure) {
    case Figure::StepTime: return seconds(report.step_time);
    case Figure::SamplesPerS: return report.samples_per_s;
    case Figure::SamplesPerSDevice: return report.samples_per_s / devices;
    case Figure::TokensPerS: return or_refuse(report.tokens_per_s, "give training.sequence_length");
    case Figure::TokensPerSDevice: return or_refuse(report.tokens_per_s, "give training.sequence_length") / devices;
    case Figure::Mfu: return or_refuse(report.mfu, "give the FLOPs of the layers and the peak of the device");
    case Figure::TflopsDevice:
    case Figure::TflopsDeviceAllPairs: {
      FlopConvention counted = flop_conventions().front();
      if (quantity.figure == Figure::TflopsDeviceAllPairs) counted.pairs = FlopConvention::Pairs::All;
      return flop_count(answer.scenario->model, counted).training() * report.samples_per_s / devices * 1e-12;
    }
    case Figure::BubbleFraction: return report.bubble_fraction;
    case Figure::BubbleFractionSpan: return report.bubble_fraction_span;
    case Figure::BubbleFractionKthWrap: return bubble_with_kth_wraps(answer);
    case Figure::ForwardTime:
      return over_stages(answer, quantity, [](const StageReport& s) { return seconds(s.forward); });
    case Figure::BackwardTime:
      return over_stages(answer, quantity, [](const StageReport& s) { return seconds(s.backward + s.recompute); });
    case Figure::Parameters:
      return over_stages(answer, quantity, [](const StageReport& s) { return static_cast<double>(s.parameters); });
    case Figure::Memory: return memory(answer, quantity, 0);
    case Figure::Fits: return report.fits ? 1 : 0;
    case Figure::Layers:
    case Figure::Capacity: break;
  }
  check_failed("a figure has its value", __FILE__, __LINE__);
}

std::optional<FigureRange> range_of(const Answer& answer, const FigureSought& quantity, double value,
                                    const std::optional<SpeedRange>& range) {
  if (quantity.figure == Figure::Memory) {
    const bool open =
        quantity.of == "allocated" || quantity.of == "total" || quantity.of == "reserved" || quantity.of == "in_use";
    if (!open || !(answer.memory.activation_band > 0)) return std::nullopt;
    return FigureRange{memory(answer, quantity, -1), memory(answer, quantity, 1)};
  }
  if (!range) return std::nullopt;
  const double shorter = ratio(range->fastest, answer.report.step_time);
  const double longer = ratio(range->slowest, answer.report.step_time);
  switch (quantity.figure) {
    case Figure::StepTime: return FigureRange{value * shorter, value * longer};
    case Figure::SamplesPerS:
    case Figure::SamplesPerSDevice:
    case Figure::TokensPerS:
    case Figure::TokensPerSDevice:
    case Figure::Mfu:
    case Figure::TflopsDevice:
    case Figure::TflopsDeviceAllPairs: return FigureRange{value / longer, value / shorter};
    default: return std::nullopt;
  }
}

}  // namespace pipewright::planner
