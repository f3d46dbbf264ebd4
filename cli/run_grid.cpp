#include "cli/run_grid.hpp"

#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/outputs.hpp"
#include "cli/progress.hpp"
#include "cli/real_run.hpp"
#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "core/plan/loss_grid.hpp"
#include "io/writers/losses.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {
namespace {

struct Ending {
  std::string_view ending;
  std::string (*write)(const LossGrid&);
};
constexpr std::array<Ending, 2> kEndings = {{{".csv", losses_csv}, {".svg", losses_svg}}};

// A run that does not go to its end is a row with what came before, and the reason.
LossRow trained(const Scenario& scenario, std::int64_t point) {
  const RealRun real(scenario);
  real.check_memory();
  LossRow row;
  row.point = point;
  std::vector<WorkerResult> workers;
  try {
    workers = real.run(real.settings());
  } catch (const RunFailed& failed) {
    row.failed = failed.what();
    workers = failed.results;
  }
  std::vector<double> losses;
  for (std::size_t s = 0; !workers.empty() && s < workers.front().steps.size(); ++s)
    losses.push_back(loss_of(workers, s));
  row.windows =
      loss_windows(losses, static_cast<std::size_t>(real.settings().steps), real.predicted().plan.global_batch_size);
  return row;
}

// Whatever is wrong with one point, the others are run.
LossRow row_of(PointReader& reader, const SweepFile& file, std::int64_t point) {
  LossRow row;
  row.point = point;
  try {
    return trained(reader.read(file.changes(point)), point);
  } catch (const OutOfArena& error) {
    row.failed = error.what();
  } catch (const InputError& error) {
    row.failed = error.what();
  }
  return row;
}

}  // namespace

void check_run_grid(const SweepFile& file, const Arguments& arguments) {
  for (const std::string_view option : {"--json", "--x", "--y", "--jobs", "--time-limit"})
    if (arguments.has(option))
      throw InputError(
          fmt::format("{} is of simulated sweeps; with --run there are the table, --csv, and --output with "
                      ".csv or .svg",
                      option));
  checked_formats<Ending>(arguments.all("--output"), {arguments.positional.front(), file.question().base}, kEndings);
}

int run_grid(const SweepFile& file, const Arguments& arguments) {
  const SweepQuestion& question = file.question();
  LossGrid grid{question, {}, 0};
  PointReader reader(file.base());
  {
    ProgressLine progress;
    const Interruption interruption;
    for (std::int64_t point = 0; point < question.points(); ++point) {
      if (interruption.requested()) {
        grid.not_run = question.points() - point;
        break;
      }
      grid.rows.push_back(row_of(reader, file, point));
      progress.show("runs", point + 1, question.points(), "");
    }
  }
  print(arguments.has("--csv") ? losses_csv(grid) : losses_text(grid, output_width(arguments)));
  const std::vector<std::string> outputs = arguments.all("--output");
  const auto writers = checked_formats<Ending>(outputs, {arguments.positional.front(), question.base}, kEndings);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    write_file(outputs[i], writers[i]->write(grid));
    note("wrote " + outputs[i] + " (losses)");
  }
  if (grid.not_run > 0) note(fmt::format("interrupted: {} points were not run", grid.not_run));
  return grid.not_run > 0 ? kInterrupted : kDone;
}

}  // namespace pipewright
