#include "cli/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "calibrate/all_reduce.hpp"
#include "cli/shapes.hpp"
#include "cli/terminal.hpp"
#include "core/cost/loads_text.hpp"
#include "io/format_quantity.hpp"
#include "io/writers/compare.hpp"
#include "io/writers/json_text.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {
namespace {

constexpr double kOtherSpeed = 0.05;  // of the cores, off which a profile says nothing about a run

// Time per op of one kind on one virtual stage, ns: priced, and the mean over all timed steps.
struct OpError {
  std::string what;  // "stage 0 F"
  double predicted = 0, measured = 0;
  double total = 0;  // difference over all ops of a step
  std::size_t count = 0;
};

std::vector<OpError> op_errors(const Answer& predicted, const std::vector<WorkerResult>& workers, int warmup) {
  std::map<std::pair<int, Kind>, OpError> all;
  const int positions = predicted.plan.positions();
  for (std::size_t w = 0; w < workers.size(); ++w) {
    const auto& ops = predicted.schedule.positions[w % static_cast<std::size_t>(positions)].compute;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      OpError& error = all[{ops[i].virtual_stage, ops[i].kind}];
      error.what = fmt::format("virtual stage {} {}", ops[i].virtual_stage, name(ops[i].kind));
      for (std::size_t s = static_cast<std::size_t>(warmup); s < workers[w].steps.size(); ++s) {
        const Span& span = workers[w].steps[s].times.compute[i];
        error.predicted += static_cast<double>(predicted.costs.time_of(ops[i]).value);
        error.measured += static_cast<double>((span.end - span.start).value);
        ++error.count;
      }
    }
  }
  const double steps = static_cast<double>(workers.front().steps.size()) - warmup;
  std::vector<OpError> list;
  for (auto& [key, error] : all) {
    const auto count = static_cast<double>(error.count);
    error.total = (error.predicted - error.measured) / steps;
    error.predicted /= count, error.measured /= count;
    list.push_back(error);
  }
  std::sort(list.begin(), list.end(),
            [](const OpError& a, const OpError& b) { return std::abs(a.total) > std::abs(b.total); });
  return list;
}

double share(double predicted, double measured) {
  return measured > 0 ? predicted / measured - 1 : 0;
}
// Whether the speed of the cores was measured with the profile.
bool has_probe(const RunComparison& c) {
  return c.predicted.scenario->profile != nullptr && c.predicted.scenario->profile->probe > Time{};
}
// What the probe has timed.
std::string computing(const MachineProfile* profile) {
  return profile != nullptr && profile->machine.sms > 0 ? "SMs" : "cores";
}
std::string signed_percent(double value) {
  return fmt::format("{:+.1f} %", 100 * value);
}
ComparedRow time_row(const std::string& what, Time predicted, Time measured) {
  return {what, short_time(predicted), short_time(measured),
          signed_percent(share(static_cast<double>(predicted.value), static_cast<double>(measured.value)))};
}

}  // namespace

double band(const Answer& predicted) {
  if (predicted.scenario->profile == nullptr) return 0;
  const MachineProfile& profile = *predicted.scenario->profile;
  std::size_t ops = 1;
  for (const Lane& lane : predicted.schedule.positions)
    ops = std::max(ops, lane.compute.size());
  const double beyond = beyond_measured(profile, predicted.scenario->model, predicted.plan.micro_batch_size).error;
  return 1.645 *
         std::sqrt(profile.common_error * profile.common_error +
                   profile.independent_error * profile.independent_error / static_cast<double>(ops) + beyond * beyond);
}

double RunComparison::step_error() const {
  return share(static_cast<double>(predicted.report.makespan.value), static_cast<double>(times.median.value));
}

bool RunComparison::memory_exact() const {
  for (std::size_t w = 0; w < workers.size(); ++w)
    if (!(replayed(run, static_cast<PositionId>(w) % run.plan->positions()) == workers[w].memory)) return false;
  return true;
}

Verdict RunComparison::verdict() const {
  if (!withheld.empty() && !forced) return Verdict::Withheld;
  return std::abs(step_error()) <= tolerance && memory_exact() ? Verdict::Within : Verdict::Outside;
}

std::string RunComparison::verdict_text() const {
  const std::string mark =
      forced && !withheld.empty() ? " (forced: " + withheld.substr(0, withheld.find(';')) + ")" : "";
  switch (verdict()) {
    case Verdict::Within: return fmt::format("within {} of the measured step{}", whole_percent(tolerance), mark);
    case Verdict::Outside:
      return (memory_exact() ? fmt::format("more than {} off the measured step", whole_percent(tolerance))
                             : std::string("memory was not what was counted")) +
             mark;
    case Verdict::Withheld: return "withheld: " + withheld;
  }
  return "";
}

std::vector<ComparedRow> compared_rows(const RunComparison& c) {
  std::vector<ComparedRow> rows;
  const auto times = [&](const std::string& what, Time predicted, Time measured) {
    rows.push_back(time_row(what, predicted, measured));
  };
  times("step", c.predicted.report.makespan, c.times.median);
  const MachineProfile* const profile = c.predicted.scenario->profile.get();
  if (has_probe(c))
    rows.push_back({"speed of the " + computing(profile), "100 %",
                    fmt::format("{:.1f} %", 100 * speed_of_cores(profile, c.workers, c.times)), ""});
  rows.push_back(
      {"bubble", percent(c.predicted.report.bubble_fraction), percent(c.measured.report.bubble_fraction),
       fmt::format("{:+.1f} pt", 100 * (c.predicted.report.bubble_fraction - c.measured.report.bubble_fraction))});
  for (std::size_t w = 0; w < c.workers.size(); ++w)
    times(fmt::format("busy, worker {} (stage {})", w,
                      c.predicted.plan.stage_at(static_cast<int>(w) % c.predicted.plan.positions())),
          c.predicted.report.workers[w].busy, c.measured.report.workers[w].busy);
  for (std::size_t w = 0; w < c.workers.size(); ++w) {
    const ArenaUse counted = replayed(c.run, static_cast<PositionId>(w) % c.run.plan->positions());
    rows.push_back({fmt::format("peak memory, worker {}", w), short_bytes(counted.live),
                    short_bytes(c.workers[w].memory.live), counted == c.workers[w].memory ? "exact" : "NOT EXACT"});
  }
  std::int64_t predicted_bytes = 0, measured_bytes = 0;
  for (const Transfer& t : c.predicted.timeline.transfers)
    predicted_bytes += t.bytes.value;
  for (const Transfer& t : c.measured.timeline.transfers)
    measured_bytes += t.bytes.value;
  rows.push_back({"traffic between workers", short_bytes({predicted_bytes}), short_bytes({measured_bytes}),
                  predicted_bytes == measured_bytes ? "exact" : "NOT EXACT"});
  return rows;
}

std::vector<ComparedRow> compared_ops(const RunComparison& c, std::size_t most) {
  const auto errors =
      op_errors(c.predicted, c.workers, static_cast<int>(c.workers.front().steps.size() - c.times.timed.size()));
  std::vector<ComparedRow> rows;
  for (std::size_t i = 0; i < std::min(most, errors.size()); ++i)
    rows.push_back(time_row(errors[i].what, {std::llround(errors[i].predicted)}, {std::llround(errors[i].measured)}));
  return rows;
}

std::string band_text(const RunComparison& c) {
  if (c.run.synthetic) return "";
  const double half = band(c.predicted), step = static_cast<double>(c.predicted.report.makespan.value);
  return fmt::format("{} to {}: the measured step is {}", short_time({std::llround(step * (1 - half))}),
                     short_time({std::llround(step * (1 + half))}),
                     std::abs(static_cast<double>(c.times.median.value) - step) <= half * step ? "in it" : "outside");
}

std::string comparison_table(const RunComparison& c) {
  std::string text = fmt::format("  {:<34} {:>12} {:>12} {:>9}\n", "", "predicted", "measured", "error");
  const std::string band = band_text(c);
  for (const ComparedRow& row : compared_rows(c)) {
    if (row.what == "bubble" && !band.empty())
      text += fmt::format("  {:<34} {}\n", "  90 % band of the prediction", band);
    std::string line = fmt::format("  {:<34} {:>12} {:>12} {:>9}", row.what, row.predicted, row.measured, row.error);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  for (const std::string& warning : c.predicted.report.warnings)
    text += "  note: " + warning + "\n";
  if (const MachineProfile* const profile = c.predicted.scenario->profile.get())
    text += "  prices: " + loads_text(*profile) + "\n";
  text += "\n  ops, by what they add to the error of a step\n";
  for (const ComparedRow& row : compared_ops(c, 5))
    text += fmt::format("  {:<34} {:>12} {:>12} {:>9}\n", "  " + row.what, row.predicted, row.measured, row.error);
  return text;
}

std::string comparison_json(const RunComparison& c) {
  JsonText json;
  const auto pair = [&](std::string_view key, const auto& predicted, const auto& measured) {
    json.key(key).open('{').field("predicted", predicted).field("measured", measured).close();
  };
  json.open('{').field("schema", "pipewright.validation/1").field("scenario", c.predicted.scenario->name);
  if (c.run.synthetic) json.field("synthetic", kSynthetic);
  json.field("verdict", c.verdict() == Verdict::Within    ? "within"
                        : c.verdict() == Verdict::Outside ? "outside"
                                                          : "withheld");
  json.field("reason", c.verdict_text()).field("forced", c.forced).field("tolerance", c.tolerance);
  json.key("step").open('{').field("predicted", c.predicted.report.makespan).field("measured_median", c.times.median);
  json.field("measured_p5", c.times.p5).field("measured_p95", c.times.p95);
  json.field("timed_steps", static_cast<std::int64_t>(c.times.timed.size())).field("error", c.step_error());
  if (!c.run.synthetic) json.field("band", band(c.predicted));
  json.close();
  if (has_probe(c))
    json.field("speed_of_cores", speed_of_cores(c.predicted.scenario->profile.get(), c.workers, c.times));
  pair("bubble", c.predicted.report.bubble_fraction, c.measured.report.bubble_fraction);
  json.key("workers").open('[');
  for (std::size_t w = 0; w < c.workers.size(); ++w) {
    const ArenaUse counted = replayed(c.run, static_cast<PositionId>(w) % c.run.plan->positions());
    json.open('{').field("worker", static_cast<std::int64_t>(w));
    pair("busy", c.predicted.report.workers[w].busy, c.measured.report.workers[w].busy);
    pair("live_peak", counted.live, c.workers[w].memory.live);
    pair("extent", counted.extent, c.workers[w].memory.extent);
    json.close();
  }
  json.close().close();
  return std::move(json).text();
}

std::string loss_csv(const std::vector<WorkerResult>& workers) {
  std::string text = "step,loss\n";
  for (std::size_t s = 0; s < workers.front().steps.size(); ++s)
    text += fmt::format("{},{:.9g}\n", s, loss_of(workers, s));
  return text;
}

int exit_status(Verdict verdict) {
  switch (verdict) {
    case Verdict::Within: return kDone;
    case Verdict::Outside: return kNo;
    case Verdict::Withheld: return kBadInput;
  }
  return kBadInput;
}

double speed_of_cores(const MachineProfile* profile, const std::vector<WorkerResult>& workers, const StepTimes& times) {
  std::vector<Time> probes;
  for (const WorkerResult& worker : workers)
    for (std::size_t s = worker.steps.size() - std::min(worker.steps.size(), times.timed.size());
         s < worker.steps.size(); ++s)
      probes.push_back(worker.steps[s].probe);
  if (probes.empty() || profile == nullptr || profile->probe == Time{}) return 1;
  std::sort(probes.begin(), probes.end());
  const Time median = percentile(probes, 0.5);
  return median > Time{} ? static_cast<double>(profile->probe.value) / static_cast<double>(median.value) : 1;
}

bool at_other_speed(const RunComparison& c) {
  return std::abs(speed_of_cores(c.predicted.scenario->profile.get(), c.workers, c.times) - 1) > kOtherSpeed;
}

std::string why_times_say_nothing(const RealRun& real, const StepTimes& times) {
  const int workers = real.predicted().plan.workers();
  const MachineProfile* const profile = real.scenario().profile.get();
  for (const int members : group_sizes(real.run_plan()))
    if (profile == nullptr || find_all_reduce(*profile, members) == nullptr)
      return fmt::format(
          "no all-reduce over {} workers was measured{}: memory and gradients can be judged, times cannot", members,
          real.ranks() != nullptr ? " (over processes none is)" : "");
  if (workers > real.cores())
    return fmt::format("{} workers on {} cores: memory and gradients can be judged, times cannot", workers,
                       real.cores());
  if (times.timed.size() < 5)
    return fmt::format("{} timed steps are too few to tell how quiet the machine was; use --set run.steps=20",
                       times.timed.size());
  return "";
}

std::string why_withheld(const RealRun& real, const std::vector<WorkerResult>& results, const StepTimes& times) {
  if (std::string always = why_times_say_nothing(real, times); !always.empty()) return always;
  const MachineProfile* const profile = real.scenario().profile.get();
  std::string why;
  if (times.noisy())
    why = fmt::format("p95/p5 = {:.3f} of the measured steps, more than {:.2f}: the machine was not quiet",
                      times.spread(), kNoisy);
  if (const double speed = speed_of_cores(profile, results, times); std::abs(speed - 1) > kOtherSpeed)
    why += fmt::format(
        "{}{} ran at {:.1f} % of the speed that they had while they were calibrated (a fixed piece of arithmetic "
        "before each step){}",
        why.empty() ? "" : "; ", computing(profile), 100 * speed,
        computing(profile) == "SMs" ? "; another program may use the GPU, or its clock was another" : "");
  return why.empty() ? "" : why + "; run again, or --force";
}

// `dry_run` is what `accuracy --dry-run` adds to the files that it keeps.
JsonShape validation_shape() {
  using namespace shape;
  const JsonShape step = object({{"predicted", number()},
                                 {"measured_median", number()},
                                 {"measured_p5", number()},
                                 {"measured_p95", number()},
                                 {"timed_steps", whole()},
                                 {"error", maybe(number())},
                                 {"band?", number()}});
  const JsonShape worker = object({{"worker", whole()},
                                   {"busy", compared(number())},
                                   {"live_peak", compared(whole())},
                                   {"extent", compared(whole())}});
  return bare_document("pipewright.validation/1", {{"dry_run?", flag()},
                                                   {"scenario", text()},
                                                   {"synthetic?", text()},
                                                   {"verdict", one_of({"within", "outside", "withheld"})},
                                                   {"reason", text()},
                                                   {"forced", flag()},
                                                   {"tolerance", number()},
                                                   {"step", step},
                                                   {"speed_of_cores?", number()},
                                                   {"bubble", compared(number())},
                                                   {"workers", list(worker)}});
}

}  // namespace pipewright
