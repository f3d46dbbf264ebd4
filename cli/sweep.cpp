// `sweep`: what-if questions, a row of figures per point of a grid.
#include "planner/what_if/sweep.hpp"

#include <array>
#include <charconv>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/outputs.hpp"
#include "cli/progress.hpp"
#include "cli/real_run.hpp"
#include "cli/run_grid.hpp"
#include "cli/terminal.hpp"
#include "cli/time_limit.hpp"
#include "core/check.hpp"
#include "io/read_sweep.hpp"
#include "io/writers/sweep.hpp"
#include "planner/search/replan.hpp"

namespace pipewright {
namespace {

constexpr int kMostJobs = 1024;

constexpr std::array<Option, 10> kOptions = {{
    {"--set", "", "KEY=VALUE", "change one value of the base first (repeatable)"},
    {"--run", "", "", "run every point for real, and show how its loss falls (docs/running.md)"},
    {"--jobs", "-j", "N", "threads (default: as many as the machine has cores); the rows are the same"},
    {"--output", "-o", "FILE", "also write FILE: .json .csv .svg (repeatable)"},
    {"--json", "", "", "one JSON document on standard output instead of the table"},
    {"--csv", "", "", "comma-separated values on standard output instead of the table"},
    {"--x", "", "KEY", "key of the grid that the plot has to the right (default: the first with several numbers)"},
    {"--y", "", "FIGURE", "figure that it has upwards (default: samples_per_s)"},
    {"--time-limit", "", "TIME", "with replan: true, of the search at each point (default: 10s)"},
    {"--width", "", "N", "columns of the table (default: the terminal's, else 100)"},
}};

int jobs(const Arguments& arguments) {
  if (!arguments.has("--jobs")) return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const std::string text = arguments.last("--jobs", "");
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1 || value > kMostJobs)
    throw InputError(
        fmt::format("--jobs: \"{}\" is no whole number from 1 to {}; write e.g. --jobs 4", text, kMostJobs));
  return value;
}

struct Ending {
  std::string_view ending;
  std::string (*write)(const Sweep&, const SweepAxes&);
};
constexpr std::array<Ending, 3> kEndings = {{
    {".json", [](const Sweep& sweep, const SweepAxes&) { return sweep_json(sweep); }},
    {".csv", [](const Sweep& sweep, const SweepAxes&) { return sweep_csv(sweep); }},
    {".svg", sweep_svg},
}};

SweepPoints points_of(const SweepFile& file) {
  const auto reader = std::make_shared<PointReader>(file.base());
  return {
      .scenario = [&file, reader](std::int64_t point) -> const Scenario& { return reader->read(file.changes(point)); },
      .magnitude = magnitude_under};
}

Sweep swept(const SweepFile& file, int threads, double seconds) {
  ProgressLine progress;
  const Interruption interruption;
  SweepOptions options{
      .jobs = threads,
      .points = [&] { return points_of(file); },
      .stopped = [&] { return interruption.requested(); },
      .progress = [&](std::int64_t done, std::int64_t all) { progress.show("points", done, all, ""); }};
  options.stops_inside = file.question().replan;
  if (file.question().replan)
    options.priced = [seconds, stop = options.stopped](const Scenario& scenario) {
      return replanned(scenario, {.top = 1, .time_limit = seconds, .stop = stop});
    };
  return sweep(file.question(), options);
}

int run(const Arguments& arguments) {
  const std::string& path = arguments.positional.front();
  const TableOptions table{output_width(arguments), use_colour(arguments)};
  const int threads = jobs(arguments);
  const double seconds = time_limit(arguments);
  const SweepAxes axes{arguments.last("--x", ""), arguments.last("--y", "")};
  if (arguments.has("--json") && arguments.has("--csv"))
    throw InputError("sweep: --json and --csv exclude each other; keep one of them");
  const SweepFile file(path, {.set = arguments.all("--set"), .config_path = config_path()});
  if (arguments.has("--run")) {
    check_run_grid(file, arguments);
    return with_run_failures([&] { return run_grid(file, arguments); });
  }
  const std::vector<std::string> outputs = arguments.all("--output");
  const auto writers = checked_formats<Ending>(outputs, {path, file.question().base}, kEndings);
  const bool plot =
      std::any_of(writers.begin(), writers.end(), [](const Ending* each) { return each->ending == ".svg"; });
  if (plot) check_axes(file.question(), axes);
  const Sweep result = swept(file, threads, seconds);
  print(arguments.has("--json")  ? sweep_json(result)
        : arguments.has("--csv") ? sweep_csv(result)
                                 : sweep_text(result, table));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    write_file(outputs[i], writers[i]->write(result, axes));
    note("wrote " + outputs[i] + " (sweep)");
  }
  const bool told = !arguments.has("--json") && !arguments.has("--csv");  // by the table
  if (result.not_run > 0 && !told) note(fmt::format("interrupted: {} points were not run", result.not_run));
  return result.not_run > 0 ? kInterrupted : kDone;
}

}  // namespace

constinit const Command kSweep{
    .name = "sweep",
    .arguments = "FILE",
    .summary = "what-if questions: variants of a scenario x a grid of values, a row each",
    .details =
        "FILE names a base scenario, variants of it and a grid (docs/sweep.md), or - for standard input.\n"
        "  pipewright sweep scenarios/what_if/bandwidth.yaml -o bandwidth.svg\n"
        "A point that does not fit or is no scenario is a row with the reason; the exit status stays 0. Ctrl-C prints\n"
        "the rows that are there; the exit status is then 130.\n",
    .options = kOptions,
    .least = 1,
    .most = 1,
    .run = run,
};

}  // namespace pipewright
