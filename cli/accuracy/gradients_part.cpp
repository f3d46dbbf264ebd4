// Part 6: gradients of one step on K workers against those of the first scenario of the part, one worker; and what
// compute-sanitizer says of the kernels' tests.
#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "cli/accuracy/parts.hpp"
#include "cli/accuracy/sanitizer.hpp"
#include "cli/gradients.hpp"
#include "core/check.hpp"
#include "io/names.hpp"
#include "runtime/sequential.hpp"

namespace pipewright {
namespace {

using Tensors = std::vector<std::vector<float>>;

const std::string kSanitizer = "compute-sanitizer";  // the record
constexpr double kSanitizerReserve = 20;  // seconds of the part's time that are kept back behind the sanitizer

// Of the part's time what the runs leave to the sanitizer while it is due: a third.
Time for_the_sanitizer(const PartTask& task) {
  return task.dry_run() || task.turn > 0 || task.results.done(task.part, kSanitizer) ? Time{}
                                                                                     : Time{task.limit.value / 3};
}

// Runs of one arithmetic have one reference.
std::string arithmetic_of(const StudyItem& item) {
  return std::string(name(item.scenario.training.precision)) + " " + kernels_of(item.scenario);
}

// Of all tensors together; `relative`: of the tensor that is furthest off.
Difference furthest(const Tensors& got, const Tensors& reference) {
  Difference all;
  for (std::size_t t = 0; t < reference.size(); ++t) {
    const Difference one =
        difference(t < got.size() ? std::span<const float>(got[t]) : std::span<const float>(), reference[t]);
    all.values += one.values, all.differing += one.differing;
    if (!(one.relative <= all.relative)) all.relative = one.relative;  // a NaN stays
  }
  return all;
}

// What one worker without pipeline, schedule or transport computes.
Tensors alone(const RealRun& run) {
  RunSettings settings = run.settings();
  settings.steps = 1, settings.warmup = 0, settings.keep_gradients = true;
  return by_tensor(sequential_gradients(run.run_plan(), run.backend(), run.data(), settings), run.run_plan());
}

StudyRecord compared(const StudyItem& item, std::optional<Tensors>& reference) {
  StudyRecord record{.part = item.part, .name = item.name};
  const Scenario& scenario = item.scenario;
  record.figures["stages"] = static_cast<double>(scenario.plan.stages.value);
  record.words["precision"] = std::string(name(scenario.training.precision));
  record.words["kernels"] = kernels_of(scenario);
  try {
    const RealRun run(scenario);
    const Tensors got = by_tensor(pipelined_gradients(run, run.settings()), run.run_plan());
    record.words["against"] = reference ? "one worker of the same backend" : "the same, without schedule or transport";
    const Difference d = furthest(got, reference ? *reference : alone(run));
    if (!reference && scenario.plan.stages.value == 1) reference = got;
    record.figures["values"] = static_cast<double>(d.values),
    record.figures["differing"] = static_cast<double>(d.differing);
    record.figures["tensors"] = static_cast<double>(got.size());
    record.figures["relative"] = d.relative;
  } catch (const std::exception& error) {
    record.status = "failed", record.reason = what_failed(error);
  }
  return record;
}

// The gradients of a whole model are large: those of an arithmetic that is done go.
void forget_others(std::map<std::string, std::optional<Tensors>>& references, const std::string& kept) {
  for (auto& [arithmetic, tensors] : references)
    if (arithmetic != kept) tensors.reset();
}

void sanitize(const PartTask& task, const PartBudget& budget) {
  const std::string& name = kSanitizer;
  if (task.results.done(task.part, name)) return;
  if (task.dry_run()) return keep_not_applicable(task, name);
  const double seconds = static_cast<double>(budget.left().value) * 1e-9 - kSanitizerReserve;
  if (seconds <= 0) return leave_out(task, name);
  const SanitizerFindings found =
      run_sanitizer(task.kernel_tests, task.results.folder_of(task.part) + "/compute-sanitizer.txt", seconds);
  if (!found.not_run.empty()) return keep_without_figures(task, name, "not run", found.not_run);
  StudyRecord record{.part = task.part, .name = name};
  record.words = {{"tool", found.tool}, {"clean", found.clean ? "yes" : "no"}, {"said", found.last_line}};
  tell(task, name, found.last_line);
  task.results.keep(std::move(record));
}

}  // namespace

void gradients_part(const PartTask& task) {
  const PartBudget budget(task.limit);
  const Time reserve = for_the_sanitizer(task);
  std::map<std::string, std::optional<Tensors>> references;  // by arithmetic
  const auto due = [&](const StudyItem& item) {
    return !task.results.done(task.part, item.name) && task.has_turn(item.name);
  };
  const auto own = task.own_items();
  for (const StudyItem* const item : own) {
    std::optional<Tensors>& reference = references[arithmetic_of(*item)];
    const bool needed = std::any_of(own.begin(), own.end(), [&](const StudyItem* other) {
      return due(*other) && arithmetic_of(*other) == arithmetic_of(*item);
    });
    // What others are compared with is computed again where it is known, but not kept.
    const bool one_worker = task.results.done(task.part, item->name) && item->scenario.plan.stages.value == 1;
    if (!due(*item) && (reference || !needed || !one_worker)) continue;
    if (!budget.allows(reserve)) {
      if (due(*item)) leave_out(task, item->name);
      continue;
    }
    if (!reference && references.size() > 1) forget_others(references, arithmetic_of(*item));
    StudyRecord record = compared(*item, reference);
    if (!due(*item)) {
      if (!record.done()) check_gpu_is_there(task, item->name, record.reason);
      continue;
    }
    record.attempt = task.results.next_attempt(task.part, item->name);
    tell(task, item->name,
         record.done() ? fmt::format("{:.0f} of {:.0f} values differ, relative distance {:.2g}",
                                     record.figure("differing"), record.figure("values"), record.figure("relative"))
                       : "failed: " + record.reason);
    task.results.keep(record);
    if (!record.done()) check_gpu_is_there(task, item->name, record.reason);
  }
  if (task.turn == 0) sanitize(task, budget);
}

}  // namespace pipewright
