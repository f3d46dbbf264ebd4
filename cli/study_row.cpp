#include "cli/study_row.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "core/check.hpp"

namespace pipewright {
namespace {

Time shortest_op(const Answer& answer) {
  Time shortest{INT64_MAX};
  for (const Lane& lane : answer.schedule.positions)
    for (const Op& op : lane.compute)
      if (op.kind != Kind::Update) shortest = std::min(shortest, answer.costs.time_of(op));
  return shortest;
}

std::string group_of(const Scenario& scenario, const Plan& plan) {
  return fmt::format("{}, {} samples per step on {}", scenario.model.name, plan.global_batch_size,
                     scenario.cluster.name);
}

Row row_of(const Attempt& attempt, int number) {
  const RunComparison& c = attempt.comparison();
  const Plan& plan = c.predicted.plan;
  Row row;
  row.scenario = attempt.scenario().name, row.file = file_name_of(attempt.scenario());
  row.group = group_of(attempt.scenario(), plan), row.attempt = number;
  row.schedule = plan.schedule, row.stages = plan.stages, row.micro_batches = plan.micro_batches;
  row.shortest_op = shortest_op(c.predicted);
  row.predicted = c.judgement.predicted, row.median = c.judgement.measured;
  row.p5 = c.times.p5, row.p95 = c.times.p95, row.timed = c.times.timed;
  row.error = c.judgement.error(), row.half_band = c.judgement.half;
  row.in_band = c.judgement.holds();
  row.bubble_predicted = c.predicted.report.bubble_fraction, row.bubble_measured = c.measured.report.bubble_fraction;
  row.memory_exact = c.memory_exact();
  row.never = !why_times_say_nothing(attempt.real(), c.times.timed.size()).empty();
  row.verdict = c.verdict(), row.text = c.verdict_text();
  return row;
}

}  // namespace

Row attempted(const Scenario& priced, int number, const AttemptSettings& how, Ranks* ranks) {
  Row row;
  row.scenario = priced.name, row.attempt = number;
  std::optional<Attempt> attempt;
  try {
    if (prints()) made_folder(how.folder);
    attempt.emplace(priced, how.tolerance, how.forced, how.seconds, how.folder, ranks);
  } catch (const InputError& error) {  // a layer that the profile does not have
    row.failed = error.what();
  }
  if (ranks != nullptr) row.failed = ranks->first_failure(row.failed);
  if (!row.failed.empty()) return row;
  note_other_machine(attempt->real());
  try {
    attempt->run();
    return prints() ? row_of(*attempt, number) : row;
  } catch (const RunFailed& failed) {
    if (ranks != nullptr && !ranks->recovered()) throw;
    row.failed = failed.what();
  } catch (const OutOfArena& error) {
    if (ranks != nullptr && !ranks->recovered()) throw;
    row.failed = error.what();
  } catch (const InputError& error) {  // plans that differ
    row.failed = error.what();
  }
  return row;
}

}  // namespace pipewright
