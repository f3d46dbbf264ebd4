// `sweep`: what-if questions, a row of figures per point of a grid.
#include "planner/what_if/sweep.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cli/campaign_options.hpp"
#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "cli/run_options.hpp"
#include "cli/sweep_database.hpp"
#include "core/check.hpp"
#include "io/read/read_sweep.hpp"
#include "io/writers/html.hpp"
#include "io/writers/losses.hpp"
#include "runtime/launch.hpp"
#include "study/ranks.hpp"
#include "study/sweep_ranks.hpp"
#include "study/sweep_run.hpp"

namespace pipewright::cli {
namespace {

constexpr int kMostJobs = 1024;
constexpr int kMostShards = 1'000'000;  // as many as a sweep may have points

constexpr std::array<Option, 14> kOwnSweepOptions = {{
    {"--set", "", "KEY=VALUE", "change one value of the base first (repeatable)"},
    {"--run", "", "", "run every point for real, and show how its loss falls (docs/how-it-works/running.md)"},
    {"--jobs", "-j", "N", "threads per process (default: one per core); the rows do not depend on it"},
    {"--output", "-o", "FILE",
     "also write FILE: .html .json .csv .svg (repeatable); .db .sqlite: rows are stored there"},
    {"--format", "", "NAME", "write the file of -o in this format, whatever its extension: --format csv"},
    {"--resume", "", "", "continue with the database of -o; its points are not computed again"},
    {"--shard", "", "I/N", "only part I of N, for merge (default in a Slurm array: its task; else 1/1)"},
    {"--json", "", "", "one JSON document on standard output instead of the table"},
    {"--csv", "", "", "comma-separated values on standard output instead of the table"},
    {"--all", "", "", "every row of the table (default: of more than 200 rows, the first 40 that fit)"},
    {"--x", "", "KEY", "key of the grid on the x axis (default: the one with most numbers)"},
    {"--y", "", "FIGURE", "figure on the y axis (default: samples_per_s)"},
    {"--time-limit", "", "TIME", "with replan: true, time limit of the search at each point (default: 10s)"},
    {"--width", "", "N", "columns of the table (default: the terminal's, else 100)"},
}};
constexpr auto kSweepOptions = with_campaign(kOwnSweepOptions);

int jobs(const Arguments& arguments) {
  const auto asked = option_number(arguments, "--jobs", {1, kMostJobs}, "4");
  return asked ? static_cast<int>(*asked) : usual_jobs();
}

// One of several parts of a sweep, which run apart (an array job) and are merged.
struct AskedShard {
  SweepShard shard;
  std::string by;  // the variables that said so; "": the command line, or nobody
};

SweepShard of_option(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash != std::string::npos) {
    const auto number = digits(std::string_view(text).substr(0, slash));
    const auto of = digits(std::string_view(text).substr(slash + 1));
    if (number && of && 1 <= *number && *number <= *of && *of <= kMostShards)
      return {static_cast<int>(*number), static_cast<int>(*of)};
  }
  throw InputError(Place{}, "--shard", fmt::format("\"{}\" is not one of 1/N to N/N; write e.g. --shard 1/4", text));
}

// `--shard`, else in a job of a Slurm array SLURM_ARRAY_TASK_ID, counted from SLURM_ARRAY_TASK_MIN in steps of
// SLURM_ARRAY_TASK_STEP, of SLURM_ARRAY_TASK_COUNT; else the whole. Throws InputError.
//     sbatch --array=0-31: the task with SLURM_ARRAY_TASK_ID=2 is shard 3/32
AskedShard asked_shard(const Arguments& arguments) {
  if (arguments.has("--shard")) return {of_option(arguments.last("--shard", "")), ""};
  const char* const id = environment("SLURM_ARRAY_TASK_ID");
  if (id == nullptr) return {};
  const auto number = [&](const char* name, int otherwise) {
    const char* const text = environment(name);
    const std::optional<std::int64_t> value = text == nullptr ? otherwise : digits(text);
    if (!value || *value > 2 * kMostShards)
      throw InputError(fmt::format(
          "{}=\"{}\" in the environment is not a whole number; say which shard this is, e.g. --shard 1/4", name, text));
    return static_cast<int>(*value);
  };
  const int task = number("SLURM_ARRAY_TASK_ID", 0), least = number("SLURM_ARRAY_TASK_MIN", -1);
  const int count = number("SLURM_ARRAY_TASK_COUNT", 0), step = number("SLURM_ARRAY_TASK_STEP", 1);
  const int place = step > 0 ? (task - least) / step + 1 : 0;
  if (least < 0 || step < 1 || task < least || (task - least) % step != 0 || place > count)
    throw InputError(
        fmt::format("SLURM_ARRAY_TASK_ID={} is not one of SLURM_ARRAY_TASK_COUNT={} tasks in steps of {} from "
                    "SLURM_ARRAY_TASK_MIN={}; say which shard this is, e.g. --shard 1/4, or --shard 1/1 for all points",
                    task, count, step, least));
  return {{place, count}, fmt::format("SLURM_ARRAY_TASK_ID={} of SLURM_ARRAY_TASK_COUNT={}", task, count)};
}

std::string text_of(const SweepShard& shard) {
  return fmt::format("{}/{}", shard.number, shard.of);
}

struct SweepFormat {
  std::string_view ending;
  std::string (*write)(const Sweep&, const SweepAxes&, std::string_view command);
};
constexpr std::array<SweepFormat, 6> kSweepEndings = {{
    {".html", sweep_html},
    {".json", [](const Sweep& sweep, const SweepAxes&, std::string_view) { return sweep_json(sweep); }},
    {".csv", [](const Sweep& sweep, const SweepAxes&, std::string_view) { return sweep_csv(sweep); }},
    {".svg", [](const Sweep& sweep, const SweepAxes& axes, std::string_view) { return sweep_svg(sweep, axes); }},
    {kDatabaseEndings[0], nullptr},
    {kDatabaseEndings[1], nullptr},
}};

// The files to write, and the database to keep rows in.
struct SweepOutputs {
  std::vector<std::pair<std::string, const SweepFormat*>> files;
  std::string database;
};

SweepOutputs outputs_of(const Arguments& arguments, const std::vector<std::string>& inputs) {
  const std::vector<std::string> names = arguments.all("--output");
  const auto endings = checked_formats<SweepFormat>(names, inputs, kSweepEndings, arguments.last("--format", ""));
  SweepOutputs outputs;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (endings[i]->write != nullptr) {
      outputs.files.emplace_back(names[i], endings[i]);
      continue;
    }
    if (!outputs.database.empty())
      throw InputError(Place{}, "--output", "\"" + names[i] + "\" is a second database; rows are kept in one");
    check_store_available();
    outputs.database = names[i];
  }
  if (outputs.database.empty() && arguments.has("--resume"))
    throw InputError("--resume goes on with a database; name it, e.g. -o results.db --resume");
  return outputs;
}

void check_drawings(const SweepOutputs& outputs, const SweepQuestion& question, const Arguments& arguments) {
  const SweepAxes axes{arguments.last("--x", ""), arguments.last("--y", "")};
  const bool plot = std::ranges::any_of(outputs.files, [](const auto& each) { return each.second->ending == ".svg"; });
  const bool page = arguments.has("--x") || arguments.has("--y");  // a page draws what can be drawn
  if (plot || page) check_axes(question, axes);
}

// A plot of a figure that no row has would be an empty one: "" or why there is none, which `lacks` says of one point.
std::string nothing_to_draw(const Sweep& result, const std::string& y,
                            const std::function<std::string(std::int64_t, SweepFigure)>& lacks) {
  const SweepFigureName* const asked = find_sweep_figure(y);
  if (asked == nullptr) return "";
  const SweepRow* first = nullptr;
  for (const SweepRow& row : result.rows) {
    if (figure(row, asked->figure)) return "";
    if (first == nullptr && row.has_figures()) first = &row;
  }
  if (first == nullptr) return "";  // the table tells why
  const std::string why = lacks(first->point, asked->figure);
  return fmt::format("--y: no row has {}", why.empty() ? y + "; name another figure" : why);
}

void show(const Sweep& result, const SweepOutputs& outputs, const Arguments& arguments, const TableOptions& table,
          const std::function<std::string(std::int64_t, SweepFigure)>& lacks) {
  const SweepAxes axes{arguments.last("--x", ""), arguments.last("--y", "")};
  print(arguments.has("--json") ? sweep_json(result)
        : arguments.has("--csv")
            ? sweep_csv(result)
            : sweep_text(result, table, arguments.has("--all") ? SweepTable::All : SweepTable::Cut));
  const std::string nothing = nothing_to_draw(result, axes.y, lacks);
  for (const auto& [name, ending] : outputs.files) {
    if (ending->ending == ".svg" && !nothing.empty()) continue;
    write_output(name, ending->write(result, axes, command_line("sweep", arguments)), "sweep");
  }
  if (!nothing.empty()) throw InputError(nothing);  // the rows, which may have taken long, are told all the same
}

// Of a database: its rows, in any format.
int show_database(const Arguments& arguments, const TableOptions& table) {
  const std::string& path = arguments.positional.front();
  refuse_options(arguments, {"--set", "--run", "--jobs", "--resume", "--shard", "--time-limit"},
                 fmt::format(": is for sweeps that run, and {} holds the rows of one; to go on with it: pipewright "
                             "sweep FILE -o {} --resume",
                             path, path));
  if (const std::string option = campaign_option(arguments); !option.empty())
    throw InputError(option + ": " + path +
                     " holds the rows of a sweep that ran; ask for the whole training when it runs");
  check_store_available();
  SweepStore store = SweepStore::existing(path);
  const SweepOutputs outputs = outputs_of(arguments, {path});
  if (!outputs.database.empty())
    throw InputError(Place{}, "--output",
                     "a database is written by the sweep itself, and from several by pipewright merge");
  check_drawings(outputs, store.question(), arguments);
  show(sweep_in(store), outputs, arguments, table, [&](std::int64_t, SweepFigure figure) {
    if (figure == SweepFigure::Mfu || figure == SweepFigure::Hfu)
      return fmt::format(
          "{} in {}; it needs the flops of every layer (model.layers) and the peak of the device "
          "(cluster.node.device.peak) when the sweep runs, and hfu a plan.recompute",
          name_of(figure).name, path);
    return fmt::format("{} in {}; ask for what it needs when the sweep runs, e.g. --tokens 15T --price 2.50",
                       name_of(figure).name, path);
  });
  return kDone;
}

int work_for_rank_0(SweepRanks& ranks, const Arguments& arguments, int threads, double seconds) {
  try {
    const SweepFile file(arguments.positional.front(), {.set = settings(arguments), .config_path = config_path()});
    return ranks.work(file.question(), pricing(file, threads, seconds, [&] { return ranks.stopped(); }),
                      hash_of(file, seconds));
  } catch (const InputError& error) {
    return ranks.refuse(error.what());
  }
}

// ---- sweep --run

struct LossEnding {
  std::string_view ending;
  std::string (*write)(const LossGrid&);
};
constexpr std::array<LossEnding, 3> kLossEndings = {
    {{".csv", losses_csv}, {".json", losses_json}, {".svg", losses_svg}}};

int status_of(const LossGrid& grid, const std::string& ended) {
  const std::string there = fmt::format("the rows that are there are printed; {} points were not run", grid.not_run);
  if (asked_to_end() != 0) return interrupted(there);
  const bool any = std::ranges::any_of(grid.rows, [](const LossRow& row) { return !row.windows.empty(); });
  if (any && ended.empty()) return kDone;
  note("error: " +
       (ended.empty() ? "no point could be run; the reason of each stands in its row" : ended + ": " + there));
  return kBadInput;
}

std::vector<const LossEnding*> loss_files(const SweepFile& file, const Arguments& arguments) {
  refuse_options(arguments, {"--x", "--y", "--jobs", "--time-limit", "--shard", "--resume", "--all"},
                 ": is for simulated sweeps; with --run there are the table of every point, --csv, --json, and "
                 "--output with .csv, .json or .svg");
  return checked_formats<LossEnding>(arguments.all("--output"), {arguments.positional.front(), file.question().base},
                                     kLossEndings, arguments.last("--format", ""));
}

int run_for_real(const SweepFile& file, const Arguments& arguments) {
  const std::vector<const LossEnding*> writers = loss_files(file, arguments);
  const TrainedGrid trained = train_grid(file);
  const LossGrid& grid = trained.grid;
  if (trained.failed && (grid.rows.empty() || !prints())) std::rethrow_exception(trained.failed);
  if (!prints()) return kDone;  // the status is rank 0's
  print(arguments.has("--csv")    ? losses_csv(grid)
        : arguments.has("--json") ? losses_json(grid)
                                  : losses_text(grid, output_width(arguments)));
  const std::vector<std::string> outputs = arguments.all("--output");
  for (std::size_t i = 0; i < outputs.size(); ++i)
    write_output(outputs[i], writers[i]->write(grid), "losses");
  if (trained.failed) std::rethrow_exception(trained.failed);
  return status_of(grid, trained.ended);
}

int sweep_command(const Arguments& arguments) {
  const std::string& path = arguments.positional.front();
  const TableOptions table{output_width(arguments), use_colour(arguments)};
  const int threads = jobs(arguments);
  const double seconds = core::seconds(option_time(arguments, "--time-limit", "10s"));
  if (arguments.has("--json") && arguments.has("--csv"))
    throw InputError(Place{}, "sweep", "--json and --csv exclude each other; keep one of them");
  const std::optional<Launch> launch = arguments.has("--run") ? std::nullopt : sweep_launch();
  if (names_database(path)) return launch && launch->rank > 0 ? kDone : show_database(arguments, table);
  std::optional<SweepRanks> ranks;
  if (launch) ranks.emplace(*launch);
  if (ranks && !ranks->first()) return work_for_rank_0(*ranks, arguments, threads, seconds);
  const AskedShard asked = asked_shard(arguments);
  const SweepFile file(path, {.set = settings(arguments), .config_path = config_path()});
  if (arguments.has("--run")) return with_run_failures([&] { return run_for_real(file, arguments); });
  const SweepOutputs outputs = outputs_of(arguments, {path, file.question().base});
  check_drawings(outputs, file.question(), arguments);
  if (!asked.by.empty())
    note(fmt::format("shard {}, as {} say; --shard 1/1 asks for all points", text_of(asked.shard), asked.by));
  std::optional<SweepStore> store;
  if (!outputs.database.empty())
    store.emplace(database_for(outputs.database, file, search_of(seconds), arguments.has("--resume")));
  if (store) store->note_asked(asked_with(arguments));
  const Sweep result = swept(file, asked.shard, store ? &*store : nullptr, threads, seconds, ranks ? &*ranks : nullptr);
  show(result, outputs, arguments, table,
       [&](std::int64_t point, SweepFigure figure) { return lacking(file, point, figure); });
  if (store) note(fmt::format("wrote {} ({} points)", store->path(), store->count()));
  if (result.not_run == 0) return kDone;
  std::string words = fmt::format("the rows that are there are printed; {} points were not run", result.not_run);
  if (store)
    words += fmt::format("; go on with: {} -o {}{}", command_line("sweep", arguments), store->path(),
                         arguments.has("--resume") ? "" : " --resume");
  return interrupted(words);
}

}  // namespace

constinit const Command kSweep{
    .name = "sweep",
    .arguments = "FILE",
    .summary = "what-if questions: variants of a scenario x a grid of values, a row each",
    .details =
        "FILE names a base scenario, variants of it and a grid (docs/reference/sweep.md), or - for standard input; or "
        "it is a database\n"
        "of results.\n"
        "  pipewright sweep scenarios/what_if/bandwidth.yaml -o bandwidth.svg\n"
        "  pipewright sweep scenarios/what_if/bandwidth.yaml -o results.db --resume   # continues where it was killed\n"
        "  pipewright sweep results.db -o results.csv\n"
        "A point that does not fit or is not a valid scenario is a row with the reason; the exit status stays 0. "
        "Ctrl-C\n"
        "prints the finished rows; the exit status is then 130.\n",
    .options = kSweepOptions,
    .least = 1,
    .most = 1,
    .run = sweep_command,
};

}  // namespace pipewright::cli
