#include "planner/anchor.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/cost/framework_memory.hpp"
#include "core/plan/memory_anchor.hpp"
#include "planner/figures.hpp"
#include "planner/find_plan.hpp"
#include "planner/layer_order.hpp"
#include "planner/price.hpp"
#include "planner/what_if/bytes_text.hpp"

namespace pipewright {
namespace {

// A prediction that is off by more than this factor is of another run, or the figures have other units.
constexpr double kOtherRun = 3;

struct Predicted {
  Bytes held, allocated;  // of the device that the anchor's figures are of
  Bytes rounding;
  Bytes communicators;  // of all its groups
};

double number(Bytes bytes) {
  return static_cast<double>(bytes.value);
}

Bytes whole(double bytes) {
  return {rounded(bytes, "a size")};
}

Predicted predicted(const MemoryAnchor& anchor) {
  try {
    const InOrder ordered = in_graph_order(*anchor.run);
    const Scenario& run = ordered.or_else(*anchor.run);
    const CostModel cost = cost_model(run);
    const Answer answer = price(find_plan(run, cost), cost, Engine::Auto);
    const auto [where, stage] = anchor.where.value_or(std::pair{Where::Fullest, std::int64_t{0}});
    const auto part = [&](const char* of) {
      return whole(figure_of(answer, {.text = of, .figure = Figure::Memory, .of = of, .where = where, .stage = stage}));
    };
    const StageReport* device = &answer.report.stages.back();
    for (const StageReport& other : answer.report.stages)
      if (where == Where::Stage ? other.stage == stage
                                : where == Where::Fullest && other.memory.bytes.total() > device->memory.bytes.total())
        device = &other;
    const std::int64_t groups = communicating_groups(answer.plan, run, device->stage);
    return {
        part("held"),
        part("allocated"),
        device->need.rounding,
        {groups * run.cluster.device_of(class_of_stage(answer.plan, run.cluster, device->stage)).communicator.value}};
  } catch (const InputError& error) {
    throw InputError(anchor.place, fmt::format("training.framework.anchor: its run cannot be priced: {}; state under "
                                               "anchor.set what ran",
                                               error.what()));
  }
}

// What was allocated at the peak: as measured, or what is left of what was reserved.
double allocated_of(const MemoryAnchor& anchor, const Predicted& run) {
  if (anchor.allocated) return number(*anchor.allocated);
  return number(*anchor.reserved - run.rounding) / (1 + anchor.run->cluster.device.fragmentation);
}

void refuse_other_run(const MemoryAnchor& anchor, const char* what, double measured, Bytes predicted) {
  if (measured <= kOtherRun * number(predicted) && number(predicted) <= kOtherRun * measured) return;
  throw InputError(anchor.place,
                   fmt::format("training.framework.anchor: {} was {}, and {} is predicted of its run: too far apart to "
                               "carry over; is anchor.set what ran, and are the units right?",
                               what, bytes_text(whole(measured)), bytes_text(predicted)));
}

std::string text_of(const MemoryAnchor& anchor, const MemoryCorrection& correction, double measured, Bytes predicted) {
  std::string run;
  for (const auto& [key, value] : anchor.set)
    run += fmt::format("{}{} {}", run.empty() ? "" : ", ", key, value);
  const int figures =
      anchor.held.has_value() + anchor.allocated.has_value() + anchor.reserved.has_value() + anchor.in_use.has_value();
  std::string text = fmt::format("memory: anchored on {} figure{} of a run{}{}: {} allocated, {} predicted, {:+.1f} %",
                                 figures, figures == 1 ? "" : "s", run.empty() ? " of the same plan" : " with " + run,
                                 anchor.source.empty() ? "" : " (" + anchor.source + ")", bytes_text(whole(measured)),
                                 bytes_text(predicted), 100 * (measured / number(predicted) - 1));
  text += fmt::format("; carried over: {}{} held, activations x {:.3f}", correction.held.value < 0 ? "-" : "+",
                      bytes_text(Bytes{std::abs(correction.held.value)}), correction.activations);
  if (correction.fragmentation) text += fmt::format(", fragmentation {:.1f} %", 100 * *correction.fragmentation);
  if (correction.reserve) text += fmt::format(", {} of context and libraries", bytes_text(*correction.reserve));
  return text;
}

MemoryCorrection correction_by(const MemoryAnchor& anchor) {
  const Predicted run = predicted(anchor);
  const double allocated = allocated_of(anchor, run);
  refuse_other_run(anchor, "the memory allocated", allocated, run.allocated);
  if (anchor.held) refuse_other_run(anchor, "the memory held", number(*anchor.held), run.held);
  if (!anchor.held && allocated < number(run.held))
    throw InputError(
        anchor.place,
        fmt::format("training.framework.anchor: {} were allocated at most, and {} are predicted to be held "
                    "between steps; add held, so that both are told apart",
                    bytes_text(whole(allocated)), bytes_text(run.held)));
  MemoryCorrection correction;
  const double held = anchor.held ? number(*anchor.held) : number(run.held);
  correction.held = whole(held) - run.held;
  if (run.allocated > run.held)
    correction.activations = activations_carried((allocated - held) / number(run.allocated - run.held) - 1);
  correction.band = std::abs(correction.activations - 1) / 2;
  if (anchor.reserved && anchor.allocated)
    correction.fragmentation = std::clamp((number(*anchor.reserved - run.rounding) - allocated) / allocated, 0.0, 0.99);
  if (anchor.in_use) correction.reserve = std::max(*anchor.in_use - *anchor.reserved - run.communicators, Bytes{});
  correction.text = text_of(anchor, correction, allocated, run.allocated);
  return correction;
}

}  // namespace

double activations_carried(double x) {
  return std::abs(x) <= kRunNoise ? 1 : 1 + x - kRunNoise * kRunNoise / x;
}

Scenario anchored(Scenario scenario) {
  FrameworkMemory& framework = scenario.training.framework;
  if (framework.anchor)
    framework.correction = std::make_shared<const MemoryCorrection>(correction_by(*framework.anchor));
  return scenario;
}

}  // namespace pipewright
