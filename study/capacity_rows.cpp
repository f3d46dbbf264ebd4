#include "study/capacity_rows.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/cost/cost_model.hpp"
#include "core/cost/memory_model.hpp"
#include "core/ending.hpp"
#include "io/console.hpp"
#include "io/text/errors.hpp"
#include "io/yaml/fields.hpp"
#include "planner/anchor.hpp"
#include "planner/capacity.hpp"
#include "runtime/backend_of.hpp"
#include "runtime/gpu_places.hpp"
#include "runtime/run_plan.hpp"
#include "runtime/signals.hpp"
#include "study/real_run.hpp"

namespace pipewright::study {
namespace {

// What a run takes, from sizes alone.
std::vector<RunMemory> run_memory(const Scenario& scenario, const Plan& plan, const Schedule& schedule) {
  check_precision(scenario);
  const CostModel cost(scenario);
  const RunPlan run = run_plan(
      plan, schedule, scenario.model, scenario.training, *backend_for_sizes(scenario),
      {.weight_stashing = scenario.run.weight_stashing, .synthetic = scenario.run.synthetic ? &cost : nullptr});
  std::vector<RunMemory> workers;
  for (PositionId position = 0; position < plan.positions(); ++position) {
    const ArenaUse use = replayed(run, position);
    workers.push_back({memory_bytes(use), use.extent});
  }
  return workers;
}

// "plan.stages=8"
std::string varied_name(const VariedPoint& point) {
  std::string text;
  for (const auto& [key, value] : point.values)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  return text;
}

// `most`: no larger value is tried. A scenario with a block `run:` is asked of what a real run takes. Throws InputError
// (planner/capacity.hpp).
Capacity capacity_row(const ScenarioFile& file, const std::string& over, const VariedPoint& point,
                      std::optional<std::int64_t> most) {
  const ScenarioWith with = [&](std::int64_t value) {
    Scenario scenario =
        fitting_by_default(anchored(file.scenario(point.changes, {over + "=" + std::to_string(value)})));
    return scenario.run.place == Place{} ? scenario : with_a_peak(std::move(scenario));
  };
  const std::string name = varied_name(point);
  ProgressLine line;
  const CapacityOptions how{
      .first = file.whole_number(over, point.changes).value_or(1),
      .most = most,
      .run_memory = run_memory,
      .check_run = [](const Scenario& scenario, const Plan& plan) { check_gpu_keys(scenario.run, plan.workers()); },
      .progress =
          [&](std::int64_t value, std::int64_t read) {
            end_if_asked(fmt::format("{} = {} was being tried, after {} other values", over, value, read));
            line.say(fmt::format("capacity{}: {} values read, now {} = {}", name.empty() ? "" : ", " + name, read, over,
                                 value));
          }};
  Capacity found = capacity(over, with, how);
  found.varied = point.values;
  return found;
}

// Near is what differs in the last part only: another key of the same section is not a misspelling of this one.
std::string unknown_key_name(const std::string& over, const std::vector<std::string>& known) {
  const std::string section = over.substr(0, over.rfind('.') + 1);
  std::vector<std::string> lasts;
  for (const std::string& key : known)
    if (key.rfind('.') + 1 == section.size() && key.starts_with(section)) lasts.push_back(key.substr(section.size()));
  const std::string last = over.substr(section.size()), meant = meant_by(last), near = nearest(last, lasts);
  return fmt::format("unknown {};{} known: {}", in_quotes(over),
                     !meant.empty()  ? " " + meant + ";"
                     : !near.empty() ? fmt::format(" did you mean {}?", in_quotes(section + near))
                                     : "",
                     fmt::join(known, ", "));
}

// What no scenario has, or is not a whole number, is refused with the whole numbers that this one states.
void check_grows(const ScenarioFile& file, const std::string& over, int changes) {
  const std::vector<std::string> known = file.whole_numbers(changes);
  try {
    if (file.whole_number(over, changes)) return;
  } catch (const InputError& error) {
    throw InputError(Place{}, "--over",
                     fmt::format("{} cannot grow: {}; whole numbers of this scenario: {}", in_quotes(over),
                                 error.what(), fmt::join(known, ", ")));
  }
  try {
    file.scenario(changes, {over + "=1"});
  } catch (const InputError& error) {
    if (!error.is(ErrorCode::UnknownKey)) return;  // reported where it is tried
    const std::string last = over.substr(over.rfind('.') + 1);
    const auto same =
        std::ranges::find_if(known, [&](const std::string& key) { return key.substr(key.rfind('.') + 1) == last; });
    throw InputError(Place{}, "--over",
                     (same == known.end() ? unknown_key_name(over, known)
                                          : fmt::format("unknown {}; did you mean \"{}\"? known: {}", in_quotes(over),
                                                        *same, fmt::join(known, ", "))));
  }
}

}  // namespace

CapacityRows capacity_rows(const ScenarioFile& file, const std::string& over, std::optional<std::int64_t> most) {
  std::vector<VariedPoint> points = file.varied();
  if (points.empty()) points.emplace_back();
  for (const VariedPoint& point : points)
    check_grows(file, over, point.changes);
  const Interruption interruption;
  CapacityRows rows;
  for (const VariedPoint& point : points) {
    try {
      rows.found.push_back(capacity_row(file, over, point, most));
    } catch (const Interrupted& ended) {
      rows.ended = ended.what();
      return rows;
    } catch (const InputError& error) {
      if (points.size() == 1) throw;
      rows.failed += fmt::format("{}{}: {}", rows.failed.empty() ? "" : "\n", varied_name(point), error.what());
    }
  }
  if (rows.found.empty()) throw InputError(rows.failed);
  return rows;
}

}  // namespace pipewright::study
