// `sweep`: what-if questions, a row of figures per point of a grid.
#include "planner/what_if/sweep.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cli/campaign_options.hpp"
#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/outputs.hpp"
#include "cli/progress.hpp"
#include "cli/real_run.hpp"
#include "cli/run_grid.hpp"
#include "cli/sweep_database.hpp"
#include "cli/sweep_progress.hpp"
#include "cli/sweep_ranks.hpp"
#include "cli/sweep_shard.hpp"
#include "cli/terminal.hpp"
#include "cli/time_limit.hpp"
#include "core/check.hpp"
#include "core/plan/campaign.hpp"
#include "io/names.hpp"
#include "io/read_sweep.hpp"
#include "io/sha256.hpp"
#include "io/writers/html.hpp"
#include "planner/search/replan.hpp"
#include "runtime/launch.hpp"
#include "runtime/signals.hpp"

namespace pipewright {
namespace {

constexpr int kMostJobs = 1024;

constexpr std::array<Option, 14> kOwnOptions = {{
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
constexpr auto kOptions = with_campaign(kOwnOptions);

int jobs(const Arguments& arguments) {
  const std::string text = arguments.last("--jobs", "");
  if (text.empty() && !arguments.has("--jobs")) return usual_jobs();
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1 || value > kMostJobs)
    throw InputError(
        fmt::format("--jobs: \"{}\" is no whole number from 1 to {}; write e.g. --jobs 4", text, kMostJobs));
  return value;
}

struct Ending {
  std::string_view ending;
  std::string (*write)(const Sweep&, const SweepAxes&, std::string_view command);
};
constexpr std::array<Ending, 6> kEndings = {{
    {".html", sweep_html},
    {".json", [](const Sweep& sweep, const SweepAxes&, std::string_view) { return sweep_json(sweep); }},
    {".csv", [](const Sweep& sweep, const SweepAxes&, std::string_view) { return sweep_csv(sweep); }},
    {".svg", [](const Sweep& sweep, const SweepAxes& axes, std::string_view) { return sweep_svg(sweep, axes); }},
    {kDatabaseEndings[0], nullptr},
    {kDatabaseEndings[1], nullptr},
}};

// The files to write, and the database to keep rows in.
struct Outputs {
  std::vector<std::pair<std::string, const Ending*>> files;
  std::string database;
};

Outputs outputs_of(const Arguments& arguments, const std::vector<std::string>& inputs) {
  const std::vector<std::string> names = arguments.all("--output");
  const auto endings = checked_formats<Ending>(names, inputs, kEndings, arguments.last("--format", ""));
  Outputs outputs;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (endings[i]->write != nullptr) {
      outputs.files.emplace_back(names[i], endings[i]);
      continue;
    }
    if (!outputs.database.empty())
      throw InputError("--output: \"" + names[i] + "\" is a second database; rows are kept in one");
    check_store_available();
    outputs.database = names[i];
  }
  if (outputs.database.empty() && arguments.has("--resume"))
    throw InputError("--resume goes on with a database; name it, e.g. -o results.db --resume");
  return outputs;
}

void check_drawings(const Outputs& outputs, const SweepQuestion& question, const Arguments& arguments) {
  const SweepAxes axes{arguments.last("--x", ""), arguments.last("--y", "")};
  const bool plot = std::any_of(outputs.files.begin(), outputs.files.end(),
                                [](const auto& each) { return each.second->ending == ".svg"; });
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

void show(const Sweep& result, const Outputs& outputs, const Arguments& arguments, const TableOptions& table,
          const std::function<std::string(std::int64_t, SweepFigure)>& lacks) {
  const SweepAxes axes{arguments.last("--x", ""), arguments.last("--y", "")};
  print(arguments.has("--json") ? sweep_json(result)
        : arguments.has("--csv")
            ? sweep_csv(result)
            : sweep_text(result, table, arguments.has("--all") ? SweepTable::All : SweepTable::Cut));
  const std::string nothing = nothing_to_draw(result, axes.y, lacks);
  for (const auto& [name, ending] : outputs.files) {
    if (ending->ending == ".svg" && !nothing.empty()) continue;
    write_file(name, ending->write(result, axes, command_line("sweep", arguments)));
    note("wrote " + name + " (sweep)");
  }
  if (!nothing.empty()) throw InputError(nothing);  // the rows, which may have taken long, are told all the same
}

SweepPoints points_of(const SweepFile& file) {
  const auto reader = std::make_shared<PointReader>(file.base());
  return {
      .scenario = [&file, reader](std::int64_t point) -> const Scenario& { return reader->read(file.changes(point)); },
      .magnitude = magnitude_under};
}

// Rows are committed about so often: what is lost with the process is asked again.
constexpr std::chrono::milliseconds kBetweenCommits{300};

// Takes findings as they come: for the answer, the progress and the database.
class Findings {
 public:
  Findings(SweepStore* store, std::int64_t points) : store_(store), progress_(points) {}

  void take(std::vector<SweepFinding> news) {
    progress_.found(news);
    all_.insert(all_.end(), news.begin(), news.end());
    if (store_ == nullptr) return;
    const auto now = std::chrono::steady_clock::now();
    pending_.insert(pending_.end(), std::make_move_iterator(news.begin()), std::make_move_iterator(news.end()));
    if (now - committed_ >= kBetweenCommits) commit();
  }
  // What has come, where something else goes wrong.
  void save() noexcept {
    try {
      if (store_ != nullptr) commit();
    } catch (const std::exception&) {  // the first failure is told
    }
  }
  // Once no more will come.
  std::vector<SweepFinding> taken() {
    if (store_ != nullptr) commit();
    return std::move(all_);
  }

 private:
  void commit() {
    store_->keep(pending_);
    pending_.clear();
    committed_ = std::chrono::steady_clock::now();
  }

  SweepStore* store_;
  SweepProgress progress_;
  std::vector<SweepFinding> all_, pending_;
  std::chrono::steady_clock::time_point committed_ = std::chrono::steady_clock::now();
};

// How every process prices its points.
SweepOptions pricing(const SweepFile& file, int threads, double seconds, std::function<bool()> stopped) {
  SweepOptions options{.jobs = threads,
                       .points = [&] { return points_of(file); },
                       .stopped = std::move(stopped),
                       .next = {},
                       .found = {}};
  options.stops_inside = file.question().replan;
  if (file.question().replan)
    options.priced = [seconds, stop = options.stopped](const Scenario& scenario) {
      return replanned(scenario, {.top = 1, .time_limit = seconds, .stop = stop});
    };
  return options;
}

std::string search_of(double seconds) {
  return fmt::format("at most {} s a point", seconds);
}

std::string hash_of(const SweepFile& file, double seconds) {
  std::string text;
  for (const auto& [name, value] : identity_of(file, search_of(seconds)))
    text += name + "\n" + value;
  return sha256(text);
}

// The first key without which the FLOPs of a step, or what the devices could do, is not known; "": all are there.
std::string utilization_lacks(const Scenario& scenario) {
  for (const Layer& layer : scenario.model.layers)
    if (!layer.flops)
      return fmt::format(
          "model.layers: \"{}\" has no flops; write those of its forward, e.g. flops: 40 GFLOP, for every layer",
          layer.name);
  for (int c = 0; c < scenario.cluster.classes(); ++c) {
    const auto& peaks = scenario.cluster.device_of(c).peak;
    const std::string precision(name(scenario.training.precision));
    if (const auto peak = peaks.find(scenario.training.precision); peak == peaks.end() || !(peak->second.value > 0))
      return device_key(scenario.cluster, c, ("peak." + precision).c_str()) +
             " is not given; write it, e.g. 15.7 TFLOP/s, or another training.precision";
  }
  return "";
}

// Of mfu and hfu: a figure that depends on no question, so nothing but its inputs can be missing.
std::string utilization_lacks(const Scenario& scenario, SweepFigure figure) {
  std::string why = utilization_lacks(scenario);
  if (why.empty() && figure == SweepFigure::Hfu)
    why = "no forward is repeated (plan.recompute), so that it is the same as mfu; write --y mfu";
  return why;
}

// Why a point has no such figure: the key that it needs.
std::string lacking(const SweepFile& file, std::int64_t point, SweepFigure figure) {
  SweepQuestion question = file.question();
  question.metrics = {figure}, question.where.clear();
  std::string why;
  bool asked = false;
  SweepOptions options{.jobs = 1, .points = [&] { return points_of(file); }};  // the plan as stated: whichever it is
  options.next = [&] {
    return std::exchange(asked, true) ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{point};
  };
  options.found = [&](const std::vector<SweepFinding>& news) {
    for (const SweepFinding& finding : news)
      if (finding.row && !finding.row->has_figures()) why = finding.row->reason;
  };
  price_points(question, options);
  const std::string name(name_of(figure).name);
  if (why.empty() && (figure == SweepFigure::TokensPerS || figure == SweepFigure::TokensPerSDevice))
    return name + ": training.sequence_length is not given; write it";
  if (why.empty() && (figure == SweepFigure::Mfu || figure == SweepFigure::Hfu)) {
    const SweepPoints points = points_of(file);
    why = utilization_lacks(points.scenario(point), figure);
    return why.empty() ? "" : name + ": " + why;
  }
  return why.starts_with(name) ? why : "";
}

// The points of the shard that are not known, priced; the answer, with those that are.
Sweep swept(const SweepFile& file, const SweepShard& shard, SweepStore* store, int threads, double seconds,
            SweepRanks* ranks) {
  const SweepQuestion& question = file.question();
  std::vector<SweepFinding> known = store != nullptr ? store->findings() : std::vector<SweepFinding>{};
  std::vector<std::int64_t> points = points_of(shard, question.points());
  std::erase_if(points, [&](std::int64_t point) {
    const auto found = std::lower_bound(known.begin(), known.end(), point,
                                        [](const SweepFinding& each, std::int64_t p) { return each.point < p; });
    return found != known.end() && found->point == point;
  });
  const auto asked = static_cast<std::int64_t>(known.size() + points.size());
  if (store != nullptr) store->note(shard);
  if (!known.empty())
    note(fmt::format("{} holds {} of {} points; {} remain", store->path(), known.size(), asked, points.size()));
  std::vector<SweepFinding> found;
  if (!points.empty() || ranks != nullptr) {
    Findings findings(store, static_cast<std::int64_t>(points.size()));
    const Interruption interruption;
    SweepOptions options = pricing(file, threads, seconds, [&] { return interruption.requested(); });
    options.next = in_turn(std::move(points), ranks != nullptr ? threads * ranks->size() : threads);
    options.found = [&](std::vector<SweepFinding> news) { findings.take(std::move(news)); };
    try {
      if (ranks != nullptr)
        ranks->serve(options, hash_of(file, seconds));
      else
        price_points(question, options);
    } catch (...) {
      findings.save();
      throw;
    }
    found = findings.taken();
  }
  known.insert(known.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  return swept(question, std::move(known), asked, asked == question.points() ? SweepShard{} : shard);
}

// Of a database: its rows, in any format.
int show_database(const Arguments& arguments, const TableOptions& table) {
  const std::string& path = arguments.positional.front();
  for (const std::string_view option : {"--set", "--run", "--jobs", "--resume", "--shard", "--time-limit"})
    if (arguments.has(option))
      throw InputError(
          fmt::format("{} is of sweeps that run, and {} holds the rows of one; to go on with it: "
                      "pipewright sweep FILE -o {} --resume",
                      option, path, path));
  if (const std::string option = campaign_option(arguments); !option.empty())
    throw InputError(option + ": " + path +
                     " holds the rows of a sweep that ran; ask for the whole training when it runs");
  check_store_available();
  SweepStore store = SweepStore::existing(path);
  const Outputs outputs = outputs_of(arguments, {path});
  if (!outputs.database.empty())
    throw InputError("--output: a database is written by the sweep itself, and from several by pipewright merge");
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

int run(const Arguments& arguments) {
  const std::string& path = arguments.positional.front();
  const TableOptions table{output_width(arguments), use_colour(arguments)};
  const int threads = jobs(arguments);
  const double seconds = time_limit(arguments);
  if (arguments.has("--json") && arguments.has("--csv"))
    throw InputError("sweep: --json and --csv exclude each other; keep one of them");
  const std::optional<Launch> launch = arguments.has("--run") ? std::nullopt : sweep_launch();
  if (names_database(path)) return launch && launch->rank > 0 ? kDone : show_database(arguments, table);
  std::optional<SweepRanks> ranks;
  if (launch) ranks.emplace(*launch);
  if (ranks && !ranks->first()) return work_for_rank_0(*ranks, arguments, threads, seconds);
  const AskedShard asked = asked_shard(arguments, environment);
  const SweepFile file(path, {.set = settings(arguments), .config_path = config_path()});
  if (arguments.has("--run")) {
    check_run_grid(file, arguments);
    return with_run_failures([&] { return run_grid(file, arguments); });
  }
  const Outputs outputs = outputs_of(arguments, {path, file.question().base});
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
        "it is a "
        "database\n"
        "of results.\n"
        "  pipewright sweep scenarios/what_if/bandwidth.yaml -o bandwidth.svg\n"
        "  pipewright sweep scenarios/what_if/bandwidth.yaml -o results.db --resume   # continues where it was killed\n"
        "  pipewright sweep results.db -o results.csv\n"
        "A point that does not fit or is not a valid scenario is a row with the reason; the exit status stays 0. "
        "Ctrl-C\n"
        "prints the finished rows; the exit status is then 130.\n",
    .options = kOptions,
    .least = 1,
    .most = 1,
    .run = run,
};

}  // namespace pipewright
