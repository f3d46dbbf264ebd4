#include "study/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "calibrate/all_reduce.hpp"
#include "core/folds.hpp"
#include "core/model/each_device.hpp"
#include "core/question/profile.hpp"
#include "io/console.hpp"
#include "io/text/format_quantity.hpp"
#include "io/writers/compare.hpp"
#include "io/writers/drawing.hpp"
#include "io/writers/html.hpp"
#include "io/writers/html_page.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/writers.hpp"
#include "study/documents.hpp"

namespace pipewright::study {
namespace {

// Time per op of one kind on one virtual stage, ns: priced, and the mean over all timed steps.
struct OpError {
  std::string what;  // "stage 0 F"
  double predicted = 0, measured = 0;
  double total = 0;  // difference over all ops of a step
  std::size_t count = 0;
};

std::vector<OpError> op_errors(const Answer& predicted, const std::vector<WorkerResult>& workers, int warmup) {
  std::map<std::pair<int, Kind>, OpError> all;
  for (std::size_t w = 0; w < workers.size(); ++w) {
    const auto& ops = predicted.schedule.lane_of(WorkerId{w}).compute;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      OpError& error = all[{ops[i].virtual_stage, ops[i].kind}];
      error.what = fmt::format("virtual stage {} {}", ops[i].virtual_stage, name(ops[i].kind));
      for (std::size_t s = at(warmup); s < workers[w].steps.size(); ++s) {
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
  std::ranges::sort(list, [](const OpError& a, const OpError& b) { return std::abs(a.total) > std::abs(b.total); });
  return list;
}

double share(double predicted, double measured) {
  return measured > 0 ? predicted / measured - 1 : 0;
}
// What the probe has timed.
std::string computing(const MachineProfile* profile) {
  return profile != nullptr && profile->machine.sms > 0 ? "SMs" : "cores";
}
ComparedRow time_row(const std::string& what, Time predicted, Time measured) {
  return {what, short_time(predicted), short_time(measured),
          signed_percent(share(static_cast<double>(predicted.value), static_cast<double>(measured.value)))};
}

// Of one worker; memory: counted and as it was.
struct ComparedWorker {
  std::size_t worker = 0;
  Time predicted, measured;
  ArenaUse counted, held;
};

std::vector<ComparedWorker> compared_workers(const RunComparison& c) {
  return mapped<ComparedWorker>(counted_to(c.workers.size()), [&](std::size_t w) {
    return ComparedWorker{w, c.predicted.report.workers[w].busy, c.measured.report.workers[w].busy,
                          replayed(c.run, static_cast<PositionId>(w) % c.run.plan->positions()), c.workers[w].memory};
  });
}

void write(JsonFields& json, const RunComparison& c) {
  json.field("scenario", c.predicted.scenario->name);
  json.when(c.run.synthetic, "synthetic", kSynthetic);
  json.field("verdict", c.verdict()).field("reason", c.verdict_text()).field("forced", c.forced);
  json.field("tolerance", c.tolerance).object("step", [&] {
    json.field("predicted", c.predicted.report.makespan).field("corrected", c.judgement.predicted);
    json.field("measured_median", c.times.median);
    json.field("measured_p5", c.times.p5).field("measured_p95", c.times.p95);
    json.field("timed_steps", c.times.timed.size()).field("error", std::optional(c.judgement.error()));
    json.field("band", c.judgement.half).field("in_band", c.judgement.holds());
  });
  json.object("machine", [&] {
    json.field("speed", c.judgement.speed).field("looks", c.judgement.speeds);
    json.field("unrest", c.judgement.unrest).field("waits", c.judgement.waits).field("away", c.judgement.away);
  });
  write_compared(json, "bubble", c.predicted.report.bubble_fraction, c.measured.report.bubble_fraction);
  json.list("workers", compared_workers(c), [&](const ComparedWorker& each) {
    json.field("worker", each.worker);
    write_compared(json, "busy", each.predicted, each.measured);
    write_compared(json, "live_peak", each.counted.live, each.held.live);
    write_compared(json, "extent", each.counted.extent, each.held.extent);
  });
}

void empty_comparison(JsonFields& json) {
  Answer answer;
  answer.scenario = std::make_shared<const Scenario>();
  const RunPlan run{};
  write(json, {answer, answer, {}, run, {}, {}});
}

// How fast cores were in the timed steps over how fast they were while they were calibrated, by the same piece of
// arithmetic (`probe`); 1 where there is no profile, or it has none.
double speed_by_probe(const MachineProfile* profile, const std::vector<WorkerResult>& workers, const StepTimes& times) {
  std::vector<Time> probes;
  for (const WorkerResult& worker : workers)
    for (std::size_t s = worker.steps.size() - std::min(worker.steps.size(), times.timed.size());
         s < worker.steps.size(); ++s)
      probes.push_back(worker.steps[s].probe);
  if (probes.empty() || profile == nullptr || profile->probe == Time{}) return 1;
  const Time probe = median(std::move(probes));
  return probe > Time{} ? static_cast<double>(profile->probe.value) / static_cast<double>(probe.value) : 1;
}

// The timed steps between each two looks.
std::vector<std::vector<Time>> parts_of(const StepTimes& times, const RunSettings& settings) {
  std::vector<std::vector<Time>> parts;
  const std::vector<int> looks = looked_at(settings);
  for (std::size_t k = 0; k + 1 < looks.size(); ++k)
    parts.emplace_back(times.timed.begin() + (looks[k] - settings.warmup),
                       times.timed.begin() + (looks[k + 1] - settings.warmup));
  return parts;
}

// Prices of the plan's ops without messages: what rounds of looks take.
StepCosts without_messages(const RealRun& real) {
  Scenario scenario = real.scenario();
  MachineProfile profile = *scenario.profile;
  profile.send = profile.first_read = {};
  if (real.predicted().plan.context_parallel > 1 ||
      real.predicted().plan.expert_parallel > 1) {  // exchanges within ops
    profile.handoff = {};
    scenario.cluster.links = {};
    if (scenario.cluster.network) scenario.cluster.network->ideal = true;
  }
  scenario.profile = std::make_shared<const MachineProfile>(std::move(profile));
  return step_costs(real.predicted().plan, CostModel(scenario));
}

constexpr std::size_t kMostOps = 24;

std::vector<TextColumn> table_of(const std::string& head, const std::vector<ComparedRow>& rows) {
  std::vector<TextColumn> columns = {{head, true}, {"predicted"}, {"measured"}, {"error"}};
  for (const ComparedRow& row : rows) {
    const std::string* const cells[] = {&row.what, &row.predicted, &row.measured, &row.error};
    for (std::size_t i = 0; i < columns.size(); ++i)
      columns[i].cells.push_back(*cells[i]);
  }
  return columns;
}

// What the median is taken of: "33.4 ms, 33.1 ms, ..."
std::string step_times(const std::vector<Time>& timed) {
  return text_over(timed, [&](const Time step) { return short_time(step, 4); });
}

}  // namespace

double error_of_prices(const Answer& predicted, bool common) {
  if (predicted.scenario->profile == nullptr) return 0;
  const MachineProfile& profile = *predicted.scenario->profile;
  auto ops = most_over<std::size_t>(
      predicted.schedule.positions, [](const Lane& lane) { return lane.compute.size(); }, 1);
  const Plan& plan = predicted.plan;
  const double beyond = beyond_measured(profile,
                                        of_each_device(predicted.scenario->model, plan.context_parallel,
                                                       plan.expert_parallel, static_cast<int>(plan.slices_of_each())),
                                        plan.micro_batch_size, static_cast<int>(plan.slices_of_each()))
                            .error;
  if (!common) return beyond;
  return std::sqrt(profile.common_error * profile.common_error +
                   profile.independent_error * profile.independent_error / static_cast<double>(ops) + beyond * beyond);
}

bool RunComparison::memory_exact() const {
  for (std::size_t w = 0; w < workers.size(); ++w)
    if (!(replayed(run, static_cast<PositionId>(w) % run.plan->positions()) == workers[w].memory)) return false;
  return true;
}

Verdict RunComparison::verdict() const {
  if (!withheld.empty() && !forced) return Verdict::Withheld;
  const bool near = std::abs(judgement.error()) <= tolerance || judgement.holds();
  return near && memory_exact() ? Verdict::Within : Verdict::Outside;
}

std::string RunComparison::verdict_text() const {
  const std::string mark =
      forced && !withheld.empty() ? " (forced: " + withheld.substr(0, withheld.find(';')) + ")" : "";
  const std::string off = whole_percent(std::max(tolerance, judgement.half));
  switch (verdict()) {
    case Verdict::Within:
      return (std::abs(judgement.error()) <= tolerance
                  ? "within: the corrected prediction is within " + whole_percent(tolerance) + " of the measured step"
                  : fmt::format("within: the measured step is in the interval, which is {} wide to either side as the "
                                "machine was not quiet",
                                off)) +
             mark;
    case Verdict::Outside:
      return (memory_exact() ? fmt::format("outside: more than {} off the measured step", off)
                             : std::string("outside: memory was not what was counted")) +
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
  times("step, before the run", c.predicted.report.makespan, c.times.median);
  times("step, corrected for the load", c.judgement.predicted, c.judgement.measured);
  rows.push_back(
      {"bubble", percent(c.predicted.report.bubble_fraction), percent(c.measured.report.bubble_fraction),
       fmt::format("{:+.1f} pt", 100 * (c.predicted.report.bubble_fraction - c.measured.report.bubble_fraction))});
  for (std::size_t w = 0; w < c.workers.size(); ++w)
    times(fmt::format("busy, worker {} (stage {})", w,
                      c.predicted.plan.seating().stage_at(static_cast<int>(w) % c.predicted.plan.positions())),
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
    if (t.from != t.to) measured_bytes += t.bytes.value;  // chunks that are neighbours on one worker hand over there
  rows.push_back({"traffic between stages", short_bytes({predicted_bytes}), short_bytes({measured_bytes}),
                  predicted_bytes == measured_bytes ? "exact" : "NOT EXACT"});
  return rows;
}

std::vector<ComparedRow> compared_ops(const RunComparison& c, std::size_t most) {
  const auto errors =
      op_errors(c.predicted, c.workers, static_cast<int>(c.workers.front().steps.size() - c.times.timed.size()));
  return mapped<ComparedRow>(counted_to(std::min(most, errors.size())), [&](std::size_t i) {
    return time_row(errors[i].what, {std::llround(errors[i].predicted)}, {std::llround(errors[i].measured)});
  });
}

std::string interval_text(const RunComparison& c) {
  return fmt::format("{} to {}: the measured step is {}", short_time(c.judgement.low()), short_time(c.judgement.high()),
                     c.judgement.holds() ? "in it" : "outside");
}

std::string movement_text(const RunComparison& c) {
  return movement_text(c.judgement, computing(c.predicted.scenario->profile.get()));
}

std::string comparison_table(const RunComparison& c) {
  std::string text = fmt::format("  {:<34} {:>12} {:>12} {:>9}\n", "", "predicted", "measured", "error");
  for (const ComparedRow& row : compared_rows(c)) {
    if (row.what == "bubble") text += fmt::format("  {:<34} {}\n", "  90 % interval", interval_text(c));
    std::string line = fmt::format("  {:<34} {:>12} {:>12} {:>9}", row.what, row.predicted, row.measured, row.error);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  text += "  bubble and busy times are compared with the prediction before the run\n";
  text += "  machine: " + movement_text(c) + "\n";
  for (const std::string& warning : c.predicted.report.warnings)
    text += "  note: " + warning + "\n";
  if (const MachineProfile* const profile = c.predicted.scenario->profile.get())
    text += "  prices: " + loads_text(*profile) + "\n";
  text += "\n  ops, by what they add to the error of a step\n";
  for (const ComparedRow& row : compared_ops(c, 5))
    text += fmt::format("  {:<34} {:>12} {:>12} {:>9}\n", "  " + row.what, row.predicted, row.measured, row.error);
  return text;
}

constinit const JsonDocument kValidationDocument{"pipewright.validation/1", empty_comparison, nullptr, false};

std::string comparison_json(const RunComparison& c) {
  return kValidationDocument.text([&](JsonFields& json) { write(json, c); });
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

Judgement judgement_of(const RealRun& real, const std::vector<WorkerResult>& workers, const StepTimes& times,
                       const std::vector<MachineLook>& looks) {
  const Answer& predicted = real.predicted();
  if (looks.empty())
    return judged(predicted.report.makespan, speed_by_probe(real.scenario().profile.get(), workers, times),
                  error_of_prices(predicted, true), times);
  const StepCosts bare = without_messages(real);
  auto seen = mapped<SeenStep>(looks, [&](const MachineLook& look) { return seen_step(predicted, bare, look); });
  return judged(seen, parts_of(times, real.settings()), error_of_prices(predicted, false));
}

int all_reduce_not_measured(const RealRun& real, const MachineProfile* profile) {
  for (const int members : group_sizes(real.run_plan()))
    if (profile == nullptr || find_all_reduce(*profile, members) == nullptr) return members;
  return 0;
}

std::string why_times_say_nothing(const RealRun& real, std::size_t timed) {
  const int workers = real.predicted().plan.workers();
  if (const int members = all_reduce_not_measured(real, real.scenario().profile.get()); members > 0)
    return fmt::format("no all-reduce over {} workers was measured{}: memory and gradients can be judged, times cannot",
                       members, real.ranks() != nullptr ? " (over processes none is)" : "");
  if (workers > real.cores())
    return fmt::format("{} workers on {} cores: memory and gradients can be judged, times cannot", workers,
                       real.cores());
  if (timed < 5)
    return fmt::format("{} timed steps are too few to tell how quiet the machine was; use --set run.steps=20", timed);
  return "";
}

std::string why_withheld(const RealRun& real, const Judgement& judgement, const StepTimes& times) {
  if (std::string always = why_times_say_nothing(real, times.timed.size()); !always.empty()) return always;
  if (!judgement.too_wide()) return "";
  return fmt::format(
      "the machine changed too much: the interval is the prediction +- {}, its upper end more than twice its lower "
      "one; stop what else runs here and run again, or --force",
      whole_percent(judgement.half));
}

std::string comparison_html(const RunComparison& c, const std::string& command) {
  const Report &predicted = c.predicted.report, &measured = c.measured.report;
  const Scenario& scenario = *c.predicted.scenario;
  HtmlPage page(scenario.name, question(c.measured));
  page.figures({{"error of the step", signed_percent(c.judgement.error()),
                 "predicted as the machine was meanwhile / measured - 1"},
                {"verdict", std::string(name(c.verdict())), fmt::format("tolerance {}", whole_percent(c.tolerance))}});
  if (c.verdict() == Verdict::Withheld)
    page.warning(c.verdict_text());
  else
    page.paragraph("Verdict: " + c.verdict_text() + ".");
  for (const std::string& warning : predicted.warnings)
    page.warning(warning);
  page.heading("Predicted next to measured");
  page.table(table_of("", compared_rows(c)));
  page.paragraph("90 % interval of the prediction: " + interval_text(c) + ". The machine: " + movement_text(c) + ".");
  page.heading("Both timelines on one scale");
  page.drawing(svg_timelines(c.predicted, c.measured, "predicted", "measured"));
  page.heading("Ops, by what they add to the error of a step");
  page.table(table_of("op", compared_ops(c, kMostOps)));
  page.heading("Timed steps, in their order");
  page.paragraph(step_times(c.times.timed));
  page.paragraph(fmt::format("Median {}, p5 {}, p95 {}.", short_time(c.times.median, 4), short_time(c.times.p5),
                             short_time(c.times.p95)));
  page.heading("How it is known");
  std::vector<std::string> known = measured.provenance;
  if (scenario.profile != nullptr)
    known.push_back("prices: " + scenario.profile->source + "; " + loads_text(*scenario.profile));
  page.list(known);
  add_making(page, command, scenario);
  return page.document();
}

}  // namespace pipewright::study
