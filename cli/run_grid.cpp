#include "cli/run_grid.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/outputs.hpp"
#include "cli/progress.hpp"
#include "cli/real_run.hpp"
#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "core/ending.hpp"
#include "core/plan/loss_grid.hpp"
#include "io/writers/losses.hpp"
#include "io/writers/writers.hpp"
#include "runtime/signals.hpp"

namespace pipewright {
namespace {

struct Ending {
  std::string_view ending;
  std::string (*write)(const LossGrid&);
};
constexpr std::array<Ending, 3> kEndings = {{{".csv", losses_csv}, {".json", losses_json}, {".svg", losses_svg}}};

// A run that does not go to its end is a row with what came before, and the reason.
// Over processes all ranks have the same outcome, and rank 0 alone the losses.
LossRow trained(const RealRun& real, std::int64_t point) {
  if (real.synthetic())
    throw InputError(real.scenario().run.place,
                     "run.synthetic: a synthetic run has no loss; leave it out for sweep --run");
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

int status_of(const LossGrid& grid, const std::string& ended) {
  const std::string there = fmt::format("the rows that are there are printed; {} points were not run", grid.not_run);
  if (asked_to_end() != 0) return interrupted(there);
  const bool any =
      std::any_of(grid.rows.begin(), grid.rows.end(), [](const LossRow& row) { return !row.windows.empty(); });
  if (any && ended.empty()) return kDone;
  note("error: " +
       (ended.empty() ? "no point could be run; the reason of each stands in its row" : ended + ": " + there));
  return kBadInput;
}

}  // namespace

void check_run_grid(const SweepFile& file, const Arguments& arguments) {
  for (const std::string_view option : {"--x", "--y", "--jobs", "--time-limit", "--shard", "--resume", "--all"})
    if (arguments.has(option))
      throw InputError(
          fmt::format("{} is of simulated sweeps; with --run there are the table of every point, --csv, --json, and "
                      "--output with "
                      ".csv, .json or .svg",
                      option));
  checked_formats<Ending>(arguments.all("--output"), {arguments.positional.front(), file.question().base}, kEndings,
                          arguments.last("--format", ""));
}

int run_grid(const SweepFile& file, const Arguments& arguments) {
  const SweepQuestion& question = file.question();
  LossGrid grid{question, {}, 0};
  PointReader reader(file.base());
  const std::optional<Scenario> first = first_readable(reader, file);
  Ranks* const ranks = first ? joined_ranks(*first) : nullptr;
  std::string ended;
  std::exception_ptr failed;  // all that is there is printed before it is told
  try {
    ProgressLine progress;
    const Interruption interruption;
    for (std::int64_t point = 0; point < question.points(); ++point) {
      if (ended = told_to_end(ranks); !ended.empty()) break;
      grid.rows.push_back(row_of(reader, file, point, first ? &*first : nullptr, ranks));
      if (prints()) progress.show("runs", point + 1, question.points(), "");
    }
  } catch (...) {
    failed = std::current_exception();
  }
  grid.not_run = question.points() - std::ssize(grid.rows);
  if (failed && (grid.rows.empty() || !prints())) std::rethrow_exception(failed);
  if (!prints()) return kDone;  // the status is rank 0's
  print(arguments.has("--csv")    ? losses_csv(grid)
        : arguments.has("--json") ? losses_json(grid)
                                  : losses_text(grid, output_width(arguments)));
  const std::vector<std::string> outputs = arguments.all("--output");
  const auto writers = checked_formats<Ending>(outputs, {arguments.positional.front(), question.base}, kEndings,
                                               arguments.last("--format", ""));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    write_file(outputs[i], writers[i]->write(grid));
    note("wrote " + outputs[i] + " (losses)");
  }
  if (failed) std::rethrow_exception(failed);
  return status_of(grid, ended);
}

}  // namespace pipewright
