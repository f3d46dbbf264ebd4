#include "study/sweep_run.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "core/answers/campaign.hpp"
#include "core/check.hpp"
#include "core/cost/low_precision.hpp"
#include "core/ending.hpp"
#include "io/console.hpp"
#include "io/store/sha256.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/names.hpp"
#include "runtime/signals.hpp"
#include "study/real_run.hpp"

namespace pipewright::study {
namespace {

// Where standard error is no terminal (a job's log): a line per tenth, the first one after so long.
constexpr std::chrono::seconds kBetweenLines{10};

std::string clock(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

// How far a sweep is: "points [####....] 1200/5000  840/s, 0:04 left, best 7.752 samples/s".
class SweepProgress {
 public:
  explicit SweepProgress(std::int64_t points) : points_(points) {}  // that are to be priced
  void found(const std::vector<SweepFinding>& findings) {
    done_ += static_cast<std::int64_t>(findings.size());
    for (const SweepFinding& finding : findings)
      if (finding.row && finding.row->outcome == SweepRow::Outcome::Fits)
        best_ = std::max(best_, finding.row->samples_per_s);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
    std::string more;
    if (done_ > 0 && spent.count() > 0) {
      const double rate = static_cast<double>(done_) / spent.count();
      more = fmt::format("{}/s, {} left", significant(rate), clock(static_cast<double>(points_ - done_) / rate));
    }
    if (best_ > 0) more += fmt::format("{}best {} samples/s", more.empty() ? "" : ", ", significant(best_, 4));
    if (terminal_) return line_.show("points", done_, points_, more);
    const std::int64_t tenths = points_ > 0 ? 10 * done_ / points_ : 10;
    if (tenths == tenths_ || spent - logged_ < kBetweenLines || done_ == points_) return;
    tenths_ = tenths, logged_ = spent;
    note(fmt::format("points {}/{}  {}", done_, points_, more));
  }

 private:
  ProgressLine line_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::duration<double> logged_{0};
  std::int64_t points_, done_ = 0, tenths_ = 0;
  double best_ = 0;
  bool terminal_ = isatty(STDERR_FILENO) == 1;
};

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
    } catch (const std::exception&) {  // the first failure is reported
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

// The first key without which the FLOPs of a step, or what the devices could do, is not known; "": all are there.
std::string utilization_lacks(const Scenario& scenario) {
  for (const Layer& layer : scenario.model.layers)
    if (!layer.flops)
      return fmt::format(
          "model.layers: \"{}\" has no flops; write those of its forward, e.g. flops: 40 GFLOP, for every layer",
          layer.name);
  for (int c = 0; c < scenario.cluster.classes(); ++c) {
    const auto& peaks = scenario.cluster.device_of(c).peak;
    const Precision rated = rated_precision(scenario);
    const std::string precision(name(rated));
    if (const auto peak = peaks.find(rated); peak == peaks.end() || !(peak->second.value > 0))
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
  row.windows = loss_windows(losses, at(real.settings().steps), real.predicted().plan.global_batch_size);
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

Sweep swept(const SweepFile& file, const SweepShard& shard, SweepStore* store, int threads, double seconds,
            SweepRanks* ranks) {
  const SweepQuestion& question = file.question();
  std::vector<SweepFinding> known = store != nullptr ? store->findings() : std::vector<SweepFinding>{};
  std::vector<std::int64_t> points = points_of(shard, question.points());
  std::erase_if(points, [&](std::int64_t point) {
    const auto found = std::ranges::lower_bound(known, point, {}, &SweepFinding::point);
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

}  // namespace pipewright::study
