#include "study/run_grid.hpp"

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/ending.hpp"
#include "io/console.hpp"
#include "runtime/signals.hpp"
#include "study/real_run.hpp"

namespace pipewright {
namespace {

// A run that does not go to its end is a row with what came before, and the reason.
// Over processes all ranks have the same outcome, and rank 0 alone the losses.
LossRow trained(const RealRun& real, std::int64_t point) {
  if (real.synthetic())
    throw InputError(real.scenario().run.place, "run.synthetic",
                     "a synthetic run has no loss; leave it out for sweep --run");
  LossRow row;
  row.point = point;
  std::vector<WorkerResult> workers;
  try {
    workers = real.run(real.settings());
  } catch (const RunFailed& failed) {
    if (real.ranks() != nullptr && !real.ranks()->recovered()) throw;
    row.failed = failed.what();
    workers = failed.results;
  } catch (const OutOfArena& error) {
    if (real.ranks() != nullptr && !real.ranks()->recovered()) throw;
    row.failed = error.what();
  }
  if (!prints()) return row;
  std::vector<double> losses;
  for (std::size_t s = 0; !workers.empty() && s < workers.front().steps.size(); ++s)
    losses.push_back(loss_of(workers, s));
  row.windows =
      loss_windows(losses, static_cast<std::size_t>(real.settings().steps), real.predicted().plan.global_batch_size);
  return row;
}

// Whatever is wrong with one point, the others are run.
LossRow row_of(PointReader& reader, const SweepFile& file, std::int64_t point, const Scenario* first, Ranks* ranks) {
  LossRow row;
  row.point = point;
  std::optional<Scenario> scenario;
  std::optional<RealRun> real;
  const auto noted = [&](const auto& act) {
    try {
      act();
    } catch (const OutOfArena& error) {
      row.failed = error.what();
    } catch (const InputError& error) {
      row.failed = error.what();
    }
  };
  noted([&] {
    scenario.emplace(reader.read(file.changes(point)));
    check_like_first(*first, *scenario);  // a first one there is: this one, if no other
    real.emplace(*scenario, ranks).check_memory();
  });
  if (ranks != nullptr) row.failed = ranks->first_failure(row.failed);
  if (row.failed.empty()) noted([&] { row = trained(*real, point); });
  return row;
}

// The first point that can be read at all.
std::optional<Scenario> first_readable(PointReader& reader, const SweepFile& file) {
  for (std::int64_t point = 0; point < file.question().points(); ++point)
    try {
      return reader.read(file.changes(point));
    } catch (const InputError&) {  // its row says so
    }
  return std::nullopt;
}

// "" or who was asked to end, which ends the sweep on all ranks.
std::string told_to_end(Ranks* ranks) {
  const std::string asked = asked_to_end() != 0 ? interrupted_by() : "";
  return ranks == nullptr ? asked : ranks->first_failure(asked);
}

}  // namespace

TrainedGrid train_grid(const SweepFile& file) {
  const SweepQuestion& question = file.question();
  TrainedGrid trained{{question, {}, 0}, "", nullptr};
  LossGrid& grid = trained.grid;
  PointReader reader(file.base());
  const std::optional<Scenario> first = first_readable(reader, file);
  Ranks* const ranks = first ? joined_ranks(*first) : nullptr;
  try {
    ProgressLine progress;
    const Interruption interruption;
    for (std::int64_t point = 0; point < question.points(); ++point) {
      if (trained.ended = told_to_end(ranks); !trained.ended.empty()) break;
      grid.rows.push_back(row_of(reader, file, point, first ? &*first : nullptr, ranks));
      if (prints()) progress.show("runs", point + 1, question.points(), "");
    }
  } catch (...) {
    trained.failed = std::current_exception();
  }
  grid.not_run = question.points() - std::ssize(grid.rows);
  return trained;
}

}  // namespace pipewright
