// Parts 3 and 4: every scenario predicted, run once, in its order; those whose run was withheld again, at most twice,
// after all others. Every attempt is kept, also one that never ended.
#include <algorithm>
#include <cmath>
#include <optional>
#include <variant>

#include <fmt/format.h>

#include "cli/accuracy/parts.hpp"
#include "cli/accuracy/prices.hpp"
#include "cli/study_row.hpp"
#include "core/check.hpp"
#include "io/format_quantity.hpp"
#include "io/names.hpp"
#include "planner/answer.hpp"

namespace pipewright {
namespace {

constexpr double kTolerance = 0.12;  // no step is to be further off

// The number of the attempt that is due, or 0.
int due(const StudyResults& results, const StudyItem& item) {
  const StudyRecord* const last = results.latest(item.part, item.name);
  if (last == nullptr || last->attempt == 0) return 1;
  const bool again = last->status == "interrupted" || (last->status == "withheld" && last->word("again") == "yes");
  return again && last->attempt < kAttempts ? last->attempt + 1 : 0;
}

// Warm-up and timed steps, as long as they are predicted to be; 0 where there is no prediction.
Time expected(const Scenario& priced) {
  try {
    const auto found = answer(priced, {.engine = Engine::Auto, .ignore_memory = true});
    if (const Answer* const told = std::get_if<Answer>(&found))
      return {told->report.makespan.value * (priced.run.steps + priced.run.warmup)};
  } catch (const InputError&) {  // the attempt says so
  }
  return {};
}

void say_what_it_is(const Scenario& scenario, StudyRecord& record) {
  record.words["schedule"] = scenario.plan.schedule.value;
  record.words["precision"] = std::string(name(scenario.training.precision));
  record.words["transport"] = std::string(name(scenario.run.transport));
  record.words["model"] = scenario.model.name;
  record.words["recompute"] =
      scenario.plan.recompute.value.empty() || scenario.plan.recompute.value.front() == Recompute::None ? "no" : "yes";
  record.figures["stages"] = static_cast<double>(scenario.plan.stages.value);
  record.figures["micro_batches"] =
      scenario.training.micro_batches ? static_cast<double>(scenario.training.micro_batches->value) : 1;
}

// `validate` has an option to judge all the same; a study has none, and repeats by itself.
std::string without_advice(std::string text) {
  constexpr std::string_view kAdvice = "; stop what else runs here and run again, or --force";
  if (const std::size_t at = text.find(kAdvice); at != std::string::npos) text.erase(at, kAdvice.size());
  return text;
}

StudyRecord record_of(const Row& row, StudyRecord record) {
  record.status = !row.failed.empty() ? "failed" : row.judged() ? "done" : "withheld";
  record.reason = !row.failed.empty() ? row.failed : row.judged() ? "" : without_advice(row.text);
  if (record.reason.starts_with("withheld: ")) record.reason.erase(0, 10);
  std::replace(record.reason.begin(), record.reason.end(), '\n', ' ');
  if (!row.failed.empty()) return record;
  record.words["group"] = row.group;
  record.words["verdict"] = without_advice(row.text);
  record.words["again"] = row.calls_for_another() ? "yes" : "no";
  record.figures["shortest_op_s"] = seconds(row.shortest_op);
  record.figures["predicted_s"] = seconds(row.predicted), record.figures["measured_s"] = seconds(row.median);
  record.figures["p5_s"] = seconds(row.p5), record.figures["p95_s"] = seconds(row.p95);
  record.figures["error"] = row.error, record.figures["band"] = row.half_band;
  record.figures["in_band"] = row.in_band ? 1 : 0;
  record.figures["bubble_predicted"] = row.bubble_predicted, record.figures["bubble_measured"] = row.bubble_measured;
  record.figures["memory_exact"] = row.memory_exact ? 1 : 0;
  for (const Time step : row.timed)
    record.lists["timed_s"].push_back(seconds(step));
  return record;
}

void attempt(const PartTask& task, const StudyItem& item, const Scenario& priced, int number) {
  StudyRecord begun{.part = item.part, .name = item.name, .attempt = number, .status = "interrupted"};
  begun.reason = "was begun and did not end";
  say_what_it_is(item.scenario, begun);
  task.results.keep(begun);  // should the program end here
  Row row;
  try {
    row =
        attempted(priced, number,
                  {.folder = fmt::format("{}/{}/attempt-{}", task.results.folder_of(item.part), item.name, number),
                   .tolerance = kTolerance,
                   .forced = false,
                   .write = [&](const std::string& path, const std::string& text) { task.results.write(path, text); }});
  } catch (const std::exception& error) {  // of a GPU
    row.failed = what_failed(error);
  }
  begun.reason.clear();
  const StudyRecord record = record_of(row, std::move(begun));
  task.results.keep(record);
  tell(task, item.name,
       fmt::format("attempt {}: {}", number,
                   record.status == "failed" ? "failed: " + record.reason
                                             : fmt::format("predicted {}, measured {}, {}", short_time(row.predicted),
                                                           short_time(row.median), without_advice(row.text))));
  if (record.status == "failed") check_gpu_is_there(task, item.name, record.reason);
}

}  // namespace

void runs_part(const PartTask& task) {
  const PartBudget budget(task.limit);
  Prices prices(task.results);
  std::vector<const StudyItem*> items;
  for (const StudyItem* const item : task.own_items()) {
    if (!task.has_turn(price_group(item->scenario))) continue;
    if (const std::string why = prices.missing(*item); !why.empty()) {
      if (due(task.results, *item) == 1) leave_out(task, item->name, why);
      continue;
    }
    static_cast<void>(prices.priced(*item));  // nothing begins where no calibration was tried
    items.push_back(item);
  }
  for (int round = 1; round <= kAttempts; ++round)
    for (const StudyItem* const item : items) {
      if (due(task.results, *item) != round) continue;
      const Scenario priced = prices.priced(*item);
      if (budget.allows(expected(priced)))
        attempt(task, *item, priced, round);
      else if (round == 1)
        leave_out(task, item->name);
    }
}

}  // namespace pipewright
