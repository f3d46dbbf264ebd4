// `validate`: calibrate, predict, run, compare.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/real_run.hpp"
#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "io/format_quantity.hpp"
#include "io/profile_file.hpp"
#include "io/quantity.hpp"
#include "io/read_scenario.hpp"
#include "io/writers/compare.hpp"
#include "io/writers/json_text.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {
namespace {

constexpr std::array<Option, 19> kOptions = {{
    {"--set", "", "KEY=VALUE", "change one value of the scenario first (repeatable)"},
    {"--profile", "", "FILE", "prices from this profile instead of a calibration now"},
    {"--budget", "", "TIME", "of the calibration (default: 3 s)"},
    {"--tolerance", "", "PERCENT", "of the step time, for the verdict (default: 10%)"},
    {"--force", "", "", "judge a run on a machine that was not quiet, too; marked as forced"},
    {"--backend", "", "NAME", "cpu (default); this and the following replace the keys of `run:`"},
    {"--transport", "", "NAME", "local (default), throttled: links as slow as the cluster's"},
    {"--steps", "", "N", "steps that are timed (default: 20)"},
    {"--warmup", "", "N", "steps before them (default: 3)"},
    {"--seed", "", "N", "of weights and data (default: 1)"},
    {"--data", "", "FILE", "synthetic (default), a text, or images in IDX"},
    {"--learning-rate", "", "X", "of the optimizer (default: 0.1)"},
    {"--momentum", "", "X", "of optimizer momentum (default: 0.9)"},
    {"--betas", "", "[X, X]", "decays of adam (default: [0.9, 0.999])"},
    {"--epsilon", "", "X", "of rmsprop and adam (default: 1e-08)"},
    {"--memory-cap", "", "SIZE", "that a worker's arena may span (default: none)"},
    {"--timeout", "", "SECONDS", "until a silent worker ends the run (default: 120)"},
    {"--output", "-o", "FOLDER", "for profile, prediction, measurement (default: pipewright-out/SCENARIO)"},
    {"--json", "", "", "the comparison as one JSON document instead of the table"},
}};

// ---- the comparison
// --------------------------------------------------------------------------------------------------

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

// Half the width of the 90 % band around the predicted step, as a share of it: one error that all ops share, and one of
// each op's own, which partly cancel along the n ops of the busiest worker.
//     1.645 sqrt(common^2 + independent^2 / n)                       1 %, 4 % and 16 ops: 2.3 %
double band(const Answer& predicted) {
  const MachineProfile& profile = *predicted.scenario->profile;
  std::size_t ops = 1;
  for (const Lane& lane : predicted.schedule.positions)
    ops = std::max(ops, lane.compute.size());
  return 1.645 * std::sqrt(profile.common_error * profile.common_error +
                           profile.independent_error * profile.independent_error / static_cast<double>(ops));
}

double share(double predicted, double measured) {
  return measured > 0 ? predicted / measured - 1 : 0;
}
std::string signed_percent(double value) {
  return fmt::format("{:+.1f} %", 100 * value);
}

enum class Verdict { Within, Outside, Withheld };

struct Comparison {
  const Answer& predicted;
  const Answer& measured;
  const std::vector<WorkerResult>& workers;
  const RunPlan& run;
  StepTimes times;
  double tolerance = 0.1;
  bool forced = false;
  std::string withheld;  // why the run says nothing about time; "": it does

  double step_error() const {
    return share(static_cast<double>(predicted.report.makespan.value), static_cast<double>(times.median.value));
  }
  bool memory_exact() const {
    for (std::size_t w = 0; w < workers.size(); ++w)
      if (!(replayed(run, static_cast<PositionId>(w) % run.plan->positions()) == workers[w].memory)) return false;
    return true;
  }
  Verdict verdict() const {
    if (!withheld.empty() && !forced) return Verdict::Withheld;
    return std::abs(step_error()) <= tolerance && memory_exact() ? Verdict::Within : Verdict::Outside;
  }
  std::string verdict_text() const {
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
};

std::string table(const Comparison& c) {
  std::string text = fmt::format("  {:<34} {:>12} {:>12} {:>9}\n", "", "predicted", "measured", "error");
  const auto times = [&](const std::string& what, Time predicted, Time measured) {
    text +=
        fmt::format("  {:<34} {:>12} {:>12} {:>9}\n", what, short_time(predicted), short_time(measured),
                    signed_percent(share(static_cast<double>(predicted.value), static_cast<double>(measured.value))));
  };
  times("step", c.predicted.report.makespan, c.times.median);
  const double half = band(c.predicted), step = static_cast<double>(c.predicted.report.makespan.value);
  text += fmt::format("  {:<34} {} to {}: the measured step is {}\n", "  90 % band of the prediction",
                      short_time({std::llround(step * (1 - half))}), short_time({std::llround(step * (1 + half))}),
                      std::abs(static_cast<double>(c.times.median.value) - step) <= half * step ? "in it" : "outside");
  text += fmt::format("  {:<34} {:>12} {:>12} {:>+7.1f} pt\n", "bubble", percent(c.predicted.report.bubble_fraction),
                      percent(c.measured.report.bubble_fraction),
                      100 * (c.predicted.report.bubble_fraction - c.measured.report.bubble_fraction));
  for (std::size_t w = 0; w < c.workers.size(); ++w)
    times(fmt::format("busy, worker {} (stage {})", w,
                      c.predicted.plan.stage_at(static_cast<int>(w) % c.predicted.plan.positions())),
          c.predicted.report.workers[w].busy, c.measured.report.workers[w].busy);
  for (std::size_t w = 0; w < c.workers.size(); ++w) {
    const ArenaUse counted = replayed(c.run, static_cast<PositionId>(w) % c.run.plan->positions());
    text += fmt::format("  {:<34} {:>12} {:>12} {:>9}\n", fmt::format("peak memory, worker {}", w),
                        short_bytes(counted.live), short_bytes(c.workers[w].memory.live),
                        counted == c.workers[w].memory ? "exact" : "NOT EXACT");
  }
  std::int64_t predicted_bytes = 0, measured_bytes = 0;
  for (const Transfer& t : c.predicted.timeline.transfers)
    predicted_bytes += t.bytes.value;
  for (const Transfer& t : c.measured.timeline.transfers)
    measured_bytes += t.bytes.value;
  text += fmt::format("  {:<34} {:>12} {:>12} {:>9}\n", "traffic between workers", short_bytes({predicted_bytes}),
                      short_bytes({measured_bytes}), predicted_bytes == measured_bytes ? "exact" : "NOT EXACT");
  text += "\n  ops, by what they add to the error of a step\n";
  const auto errors =
      op_errors(c.predicted, c.workers, static_cast<int>(c.workers.front().steps.size() - c.times.timed.size()));
  for (std::size_t i = 0; i < std::min<std::size_t>(5, errors.size()); ++i)
    times("  " + errors[i].what, {std::llround(errors[i].predicted)}, {std::llround(errors[i].measured)});
  return text;
}

std::string json_of(const Comparison& c) {
  JsonText json;
  const auto pair = [&](std::string_view key, const auto& predicted, const auto& measured) {
    json.key(key).open('{').field("predicted", predicted).field("measured", measured).close();
  };
  json.open('{').field("schema", "pipewright.validation/1").field("scenario", c.predicted.scenario->name);
  json.field("verdict", c.verdict() == Verdict::Within    ? "within"
                        : c.verdict() == Verdict::Outside ? "outside"
                                                          : "withheld");
  json.field("reason", c.verdict_text()).field("forced", c.forced).field("tolerance", c.tolerance);
  json.key("step").open('{').field("predicted", c.predicted.report.makespan).field("measured_median", c.times.median);
  json.field("measured_p5", c.times.p5).field("measured_p95", c.times.p95);
  json.field("timed_steps", static_cast<std::int64_t>(c.times.timed.size())).field("error", c.step_error());
  json.field("band", band(c.predicted)).close();
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

std::string losses(const std::vector<WorkerResult>& workers) {
  std::string text = "step,loss\n";
  for (std::size_t s = 0; s < workers.front().steps.size(); ++s)
    text += fmt::format("{},{:.9g}\n", s, loss_of(workers, s));
  return text;
}

// ---- the command
// -----------------------------------------------------------------------------------------------------

double tolerance(const Arguments& arguments) {
  std::string text = arguments.last("--tolerance", "10%");
  const std::string given = text;
  if (text.ends_with('%')) text.pop_back();
  const Parsed<double> value = parse_number(text);
  if (!value.value || *value.value <= 0 || *value.value > 1000 || text == given)
    throw InputError("--tolerance: \"" + given + "\" is no share in percent; write e.g. --tolerance 5%");
  return *value.value / 100;
}

std::string folder(const Arguments& arguments, const Scenario& scenario) {
  std::string name = scenario.name;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.') c = '-';
  if (name.empty() || name.front() == '.') name = "scenario" + name;
  const std::string path = arguments.last("--output", "pipewright-out/" + name);
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw InputError("--output: \"" + path + "\" cannot be made: " + error.message());
  return path;
}

// Why times of this run cannot be judged, or "".
std::string withheld(const RealRun& real, const StepTimes& times) {
  const int threads = threads_of(real.run_plan()), workers = real.predicted().plan.workers();
  if (threads > workers)
    return "all-reduces run in threads of their own, which a profile does not price: memory and gradients can be "
           "judged, times cannot";
  if (workers > available_cores())
    return fmt::format("{} workers on {} cores: memory and gradients can be judged, times cannot", workers,
                       available_cores());
  if (times.timed.size() < 5)
    return fmt::format("{} timed steps are too few to tell how quiet the machine was; use --steps 20",
                       times.timed.size());
  if (times.noisy())
    return fmt::format(
        "p95/p5 = {:.2f} of the measured steps, more than {:.2f}: the machine was not quiet; run again, "
        "or --force",
        times.spread(), kNoisy);
  return "";
}

int validate_scenario(const Arguments& arguments) {
  std::vector<std::string> changes = arguments.all("--set");
  for (std::string& change : run_settings_as_changes(arguments))
    changes.push_back(std::move(change));
  const Scenario asked =
      read_scenario(arguments.positional.front(), {.set = std::move(changes), .config_path = config_path()});
  const double within = tolerance(arguments);
  const Parsed<Time> budget = parse_time(arguments.last("--budget", "3 s"));
  if (!budget.value || *budget.value <= Time{})
    throw InputError("--budget: \"" + arguments.last("--budget", "") + "\" is no time; write e.g. --budget 5s");
  const std::string out = folder(arguments, asked);

  MachineProfile profile;
  if (arguments.has("--profile")) {
    profile = read_profile(arguments.last("--profile", ""));
    if (const std::string warning = other_machine(profile); !warning.empty()) note("warning: " + warning);
    if (const std::string here = optimizer_name(asked.training.optimizer);
        !profile.optimizer.empty() && profile.optimizer != here)
      note("warning: profile \"" + profile.name + "\" has the optimizer step of " + profile.optimizer + ", not of " +
           here);
  } else {
    const RealRun real(asked);
    real.check_memory();
    profile = real.calibrated(static_cast<double>(budget.value->value) * 1e-9);
  }
  write_file(out + "/profile.yaml", profile_yaml(profile));

  // The prediction is on disk before the run begins.
  const Scenario scenario = priced_with(asked, std::move(profile));
  const RealRun real(scenario);
  write_file(out + "/prediction.json", json_report(real.predicted()));

  const RunSettings settings = real.settings();
  const auto workers = real.run(settings);
  const StepTimes times = step_times(workers, settings.warmup);
  const Answer measured = real.measured(workers, times);
  const Comparison comparison{
      real.predicted(),     measured, workers, real.run_plan(), times, within, arguments.has("--force"),
      withheld(real, times)};
  write_file(out + "/measurement.json", json_report(measured));
  write_file(out + "/comparison.json", json_of(comparison));
  write_file(out + "/loss.csv", losses(workers));
  write_file(out + "/overlay.svg", svg_timelines(real.predicted(), measured, "predicted", "measured"));
  write_file(out + "/measured.trace.json", trace_json(measured));
  if (arguments.has("--json"))
    print(json_of(comparison));
  else
    print(fmt::format("{}: predicted, then run ({}, {} timed steps)\n", scenario.name, real.backend_name(),
                      times.timed.size()) +
          table(comparison) + fmt::format("\n  verdict: {}\n", comparison.verdict_text()));
  note("wrote " + out + "/: profile.yaml prediction.json measurement.json comparison.json loss.csv overlay.svg");
  switch (comparison.verdict()) {
    case Verdict::Within: return kDone;
    case Verdict::Outside: return kNo;
    case Verdict::Withheld: return kBadInput;
  }
  return kBadInput;
}

int run(const Arguments& arguments) {
  return with_run_failures([&] { return validate_scenario(arguments); });
}

}  // namespace

constinit const Command kValidate{
    .name = "validate",
    .arguments = "SCENARIO",
    .summary = "calibrate, predict, run for real, and show how far the prediction was off",
    .details =
        "The prediction is written before the run. Exit status 0: within the tolerance, 1: not, 2: withheld, since "
        "the\n"
        "machine was not quiet or has fewer cores than workers.\n"
        "  pipewright validate scenarios/validation/two-stage-gpipe.yaml\n",
    .options = kOptions,
    .least = 1,
    .most = 1,
    .run = run,
};

}  // namespace pipewright
