#include "planner/anchor.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/cost/framework_memory.hpp"
#include "core/question/memory_anchor.hpp"
#include "planner/figures.hpp"
#include "planner/find_plan.hpp"
#include "planner/layer_order.hpp"
#include "planner/price.hpp"
#include "planner/words.hpp"

namespace pipewright::planner {
namespace {

// A prediction that is off by more than this factor is of another run, or the figures have other units.
constexpr double kOtherRun = 3;

struct Predicted {
  const std::string device;
  Bytes memory;           // of the device
  Bytes held, allocated;  // of the device that the anchor's figures are of
  Bytes rounding;
  double fragmentation;  // of its class
  Bytes beside;          // communicators of all its groups, and what the pipeline takes
};

double number(Bytes bytes) {
  return static_cast<double>(bytes.value);
}

Bytes whole(double bytes) {
  return {rounded(bytes, "a size")};
}

Predicted predicted(const MemoryAnchor& anchor) {
  try {
    const CostModel cost(in_graph_order(anchor.run).scenario);
    const Scenario& run = cost.scenario();
    const Answer answer = price(find_plan(run, cost), cost, Engine::Auto);
    const auto [where, stage] = anchor.where.value_or(std::pair{Where::Fullest, std::int64_t{0}});
    const auto part = [&](const char* of) {
      return whole(figure_of(answer, {.text = of, .figure = Figure::Memory, .of = of, .where = where, .stage = stage}));
    };
    const FigureDevice of = device_of(answer, where, stage);
    const Device& device = run.cluster.device_of(class_of_stage(answer.plan, run.cluster, of.stage));
    Bytes beside{communicating_groups(answer.plan, run, of.stage) * device.communicator.value};
    if (answer.plan.stages > 1) beside += answer.plan.reserve_pipeline;
    return {device.name,      device.memory,        part("held"), part("allocated"),
            of.need.rounding, device.fragmentation, beside};
  } catch (const InputError& error) {
    throw InputError(anchor.place, "training.framework.anchor",
                     fmt::format("its run cannot be priced: {}; write what ran "
                                 "under anchor.set, and where the plan is open the whole plan: set: "
                                 "{{plan: {{stages: 1}}, model.layers: 4}}",
                                 error.what()));
  }
}

// What was allocated at the peak: as measured, or what is left of what was reserved.
double allocated_of(const MemoryAnchor& anchor, const Predicted& run) {
  if (anchor.allocated) return number(*anchor.allocated);
  return number(*anchor.reserved - run.rounding) / (1 + run.fragmentation);
}

void refuse_other_run(const MemoryAnchor& anchor, const char* what, double measured, Bytes predicted) {
  if (measured <= kOtherRun * number(predicted) && number(predicted) <= kOtherRun * measured) return;
  throw InputError(anchor.place, "training.framework.anchor",
                   fmt::format("{} was {}, and {} is predicted of its run: too far apart to "
                               "carry over; is anchor.set what ran, and are the units right?",
                               what, bytes_text(whole(measured)), bytes_text(predicted)));
}

// What was allocated is no more than what was held, so that nothing is left for activations.
[[noreturn]] void refuse_no_activations(const MemoryAnchor& anchor, const Predicted& run, double allocated) {
  const std::string most = bytes_text(whole(allocated));
  if (!anchor.held)
    throw InputError(anchor.place, "training.framework.anchor",
                     fmt::format("{} were allocated at most, and {} are predicted to be held "
                                 "between steps; add held, to separate the two",
                                 most, bytes_text(run.held)));
  throw InputError(anchor.place, "training.framework.anchor",
                   fmt::format("{} were held between steps and {} allocated at most{}, which "
                               "leaves nothing for the activations; {}",
                               bytes_text(*anchor.held), most,
                               anchor.allocated ? "" : ", as reserved has it without rounding and fragmentation",
                               anchor.allocated ? "is held of between steps, and allocated the peak?"
                                                : "add allocated, or leave held out"));
}

// nvidia-smi shows up to 1 % more than CUDA gives a program.
void refuse_more_than_there_is(const MemoryAnchor& anchor, const Predicted& run) {
  const auto check = [&](const char* key, const std::optional<Bytes>& bytes) {
    if (!bytes || run.memory.value == 0 || number(*bytes) <= 1.05 * number(run.memory)) return;
    throw InputError(anchor.place, fmt::format("training.framework.anchor.{}: {} are more than a {} has, {}; are the "
                                               "units right?",
                                               key, bytes_text(*bytes), run.device, bytes_text(run.memory)));
  };
  check("held", anchor.held);
  check("allocated", anchor.allocated);
  check("reserved", anchor.reserved);
  check("in_use", anchor.in_use);
}

std::string text_of(const MemoryAnchor& anchor, const MemoryCorrection& correction, double measured, Bytes predicted) {
  std::string run;
  for (const auto& [key, value] : anchor.set)
    run += fmt::format("{}{} {}", run.empty() ? "" : ", ", key, value);
  const int figures =
      anchor.held.has_value() + anchor.allocated.has_value() + anchor.reserved.has_value() + anchor.in_use.has_value();
  std::string text =
      fmt::format("memory: anchored on {} figure{} of a run{}{}: {} allocated{}, {} predicted, {:+.1f} %", figures,
                  figures == 1 ? "" : "s", run.empty() ? " of the same plan" : " with " + run,
                  anchor.source.empty() ? "" : " (" + anchor.source + ")", bytes_text(whole(measured)),
                  anchor.allocated ? "" : fmt::format(" of {} reserved", bytes_text(*anchor.reserved)),
                  bytes_text(predicted), 100 * (measured / number(predicted) - 1));
  text += "; carried over: ";
  if (correction.held.value != 0)
    text += fmt::format("{}{} held, ", correction.held.value < 0 ? "-" : "+",
                        bytes_text(Bytes{std::abs(correction.held.value)}));
  text += fmt::format("activations x {:.3f}", correction.activations);
  if (correction.fragmentation) text += fmt::format(", fragmentation {:.1f} %", 100 * *correction.fragmentation);
  if (correction.reserve) text += fmt::format(", {} of context and libraries", bytes_text(*correction.reserve));
  return text;
}

MemoryCorrection correction_by(const MemoryAnchor& anchor) {
  const Predicted run = predicted(anchor);
  refuse_more_than_there_is(anchor, run);
  const double allocated = allocated_of(anchor, run);
  refuse_other_run(anchor, "the memory allocated", allocated, run.allocated);
  if (anchor.held) refuse_other_run(anchor, "the memory held", number(*anchor.held), run.held);
  const double held = anchor.held ? number(*anchor.held) : number(run.held);
  if (allocated < held || (allocated == held && run.allocated > run.held))
    refuse_no_activations(anchor, run, allocated);
  if (run.allocated > run.held)
    refuse_other_run(anchor, "what is allocated beyond what is held", allocated - held, run.allocated - run.held);
  MemoryCorrection correction;
  correction.held = whole(held) - run.held;
  if (run.allocated > run.held)
    correction.activations = activations_carried((allocated - held) / number(run.allocated - run.held) - 1);
  correction.band = std::abs(correction.activations - 1) / 2;
  if (anchor.reserved && anchor.allocated)
    correction.fragmentation = std::clamp((number(*anchor.reserved - run.rounding) - allocated) / allocated, 0.0, 0.99);
  if (anchor.in_use) correction.reserve = std::max(*anchor.in_use - *anchor.reserved - run.beside, Bytes{});
  correction.text = text_of(anchor, correction, allocated, run.allocated);
  return correction;
}

}  // namespace

double activations_carried(double x) {
  return std::abs(x) <= kRunNoise ? 1 : 1 + x - kRunNoise * kRunNoise / x;
}

Scenario anchored(Scenario scenario) {
  FrameworkMemory& framework = scenario.training.framework;
  if (!framework.anchor) return scenario;
  const MemoryCorrection correction = correction_by(*framework.anchor);
  if (const int classes = scenario.cluster.classes(); classes > 1 && (correction.fragmentation || correction.reserve))
    throw InputError(framework.anchor->place, "training.framework.anchor",
                     fmt::format("reserved and in_use are of one device class, and the "
                                 "cluster has {}; write held and allocated alone, without reserved, in_use and log",
                                 classes));
  framework.correction = std::make_shared<const MemoryCorrection>(correction);
  return scenario;
}

}  // namespace pipewright::planner
