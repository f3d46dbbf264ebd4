// `run`: a scenario's plan for real.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "cli/run_options.hpp"
#include "core/check.hpp"
#include "io/read/read_scenario.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/utf8.hpp"
#include "io/writers/writers.hpp"
#include "runtime/checkpoint.hpp"
#include "runtime/export.hpp"
#include "runtime/sequential.hpp"
#include "runtime/signals.hpp"
#include "study/real_run.hpp"

namespace pipewright::cli {
namespace {

constexpr std::array<Option, 1> kScenarioOption = {{
    {"--set", "", "KEY=VALUE", "change one value of the scenario first (repeatable)"},
}};
constexpr std::array<Option, 7> kOwnRunOptions = {{
    {"--checkpoint", "", "DIR", "leave what is needed to go on in DIR, after the last step and as --every says"},
    {"--every", "", "N", "steps between checkpoints, warm-up included"},
    {"--resume", "", "", "continue from the newest checkpoint in --checkpoint, with bit-identical results"},
    {"--export", "", "FILE",
     "write the weights of the start, the samples and the losses of all steps, for other programs"},
    {"--check", "", "gradients", "compare the gradients of the first step with one worker's, and stop"},
    {"--output", "-o", "FILE",
     "also write the step of median length as FILE, in the format of its extension (repeatable)"},
    {"--json", "", "", "the step of median length as one JSON document instead of the report"},
}};
constexpr auto kRunCommandOptions = joined(kScenarioOption, kRunOptions, kOwnRunOptions);

std::string memory_line(const RunPlan& run, std::size_t worker, const ArenaUse& measured) {
  const ArenaUse counted = replayed(run, static_cast<PositionId>(worker) % run.plan->positions());
  return fmt::format("{:>12} {:>12}   {}", short_bytes(measured.live), short_bytes(measured.extent),
                     counted == measured
                         ? "as counted, to the byte"
                         : "counted: " + short_bytes(counted.live) + ", " + short_bytes(counted.extent));
}

std::string report(const RealRun& run, const Answer& measured, const std::vector<WorkerResult>& workers,
                   const StepTimes& times, const Scenario& scenario) {
  const Plan& plan = measured.plan;
  std::string text = fmt::format("{}: {} for real, {} stages on {}, M = {}, backend {}\n", one_line(scenario.name),
                                 plan.schedule, plan.stages, run.workers(), plan.micro_batches, run.backend_name());
  const std::size_t last = workers.front().steps.size() - 1;
  const std::int64_t first = workers.front().steps.front().number;
  if (run.synthetic())
    text += fmt::format("  {}\n", kSynthetic);
  else
    text += fmt::format("  {:<10} {} -> {} over {} steps of {} samples{} ({})\n", "loss",
                        significant(loss_of(workers, 0), 4), significant(loss_of(workers, last), 4), last + 1,
                        plan.global_batch_size, first > 0 ? fmt::format(" behind the {} of the checkpoint", first) : "",
                        run.data().name());
  text += fmt::format("  {:<10} {} (median of {}; p5 {}, p95 {}, p95/p5 = {:.2f}{})\n", "step",
                      short_time(times.median), times.timed.size(), short_time(times.p5), short_time(times.p95),
                      times.spread(), times.noisy() ? ": the machine was not quiet" : "");
  text += fmt::format("  {:<10} {}\n", "samples/s",
                      significant(static_cast<double>(plan.global_batch_size) * 1e9 /
                                      static_cast<double>(std::max<std::int64_t>(1, times.median.value)),
                                  4));
  text += fmt::format("  {:<10} {}\n", "bubble", percent(measured.report.bubble_fraction));
  text += "  worker  stage        busy    live peak       extent\n";
  for (std::size_t w = 0; w < workers.size(); ++w) {
    const auto worker = static_cast<WorkerId>(w);
    text += fmt::format("  {:>6}  {:>5}  {:>10} {}\n", w, plan.seating().stage_at(worker % plan.positions()),
                        short_time(measured.report.workers[w].busy), memory_line(run.run_plan(), w, workers[w].memory));
  }
  if (plan.workers() > run.cores())
    text += fmt::format("  {} workers on {} cores: times say nothing about the plan, {} and memory do\n",
                        plan.workers(), run.cores(), run.synthetic() ? "traffic" : "losses");
  return text;
}

// A signal ends it with what was measured until then.
template <class Body>
auto until_interrupted(const Body& body) {
  const Interruption interruption;
  return body();
}

int check_gradients(const RealRun& run, RunSettings settings) {
  if (!run.run_plan().schedule->flush)
    throw InputError(
        "--check gradients: an asynchronous schedule updates between micro-batches, so no single worker "
        "has its gradients; use a schedule with a flush");
  if (run.scenario().run.transport == RunTransport::Nccl)
    for (const RunChunk& chunk : run.run_plan().chunks)
      if (chunk.members > 2)
        throw InputError(
            run.scenario().run.place,
            fmt::format("--check gradients: NCCL adds the gradients of {} workers in an order of its own, so "
                        "they need not be one worker's bit by bit; use --transport tcp",
                        chunk.members));
  settings.steps = 1, settings.warmup = 0;
  const std::vector<Gradients> all = until_interrupted([&] { return pipelined_gradients(run, settings); });
  if (!prints()) return kDone;
  settings.keep_gradients = true;
  bool same = true;
  std::string text;
  for (std::size_t device = 0; device < all.size(); ++device) {
    const Gradients& got = all[device];
    const Gradients reference =
        sequential_gradients(run.run_plan(), run.backend(), run.data(), settings, static_cast<int>(device));
    for (std::size_t v = 0; v < reference.size(); ++v) {
      const Difference d = difference(v < got.size() ? std::span(got[v]) : std::span<const float>(), reference[v]);
      same = same && d.differing == 0;
      text += fmt::format("  virtual stage {:>3}{}: {} values, {} differ, relative distance {}\n", v,
                          all.size() > 1 ? fmt::format(", experts {}", device) : "", d.values, d.differing,
                          d.relative == 0 ? "0" : significant(d.relative));
    }
  }
  print((same ? "gradients: bit-identical to one worker's\n" : "gradients: NOT those of one worker\n") + text);
  return same ? kDone : kNo;
}

// Goes on from the newest checkpoint, which is the one that rank 0 sees; where there is none, begins. The command of a
// job that is put back into its queue never changes.
void go_on(Checkpoints& all, Ranks* ranks) {
  const int newest = told_by_first(ranks, prints() ? all.newest() : 0);
  if (newest > 0)
    all.resume(newest);
  else if (prints())
    note("no checkpoint in " + all.folder() + " yet: the run begins");
}

std::string use_of_checkpoints(const Arguments& arguments) {
  return !arguments.has("--checkpoint") ? "none" : arguments.has("--resume") ? "--resume" : "from the beginning";
}

// As --checkpoint, --every and --resume say; none: nullptr.
std::unique_ptr<Checkpoints> checkpoints(const RealRun& run, const RunSettings& settings, const Arguments& arguments) {
  if (!arguments.has("--checkpoint")) {
    refuse_options(arguments, {"--every", "--resume"}, " needs the folder of the checkpoints; add --checkpoint DIR");
    return nullptr;
  }
  if (arguments.has("--check"))
    throw InputError("--checkpoint does not go with --check gradients, which runs one step and stops; leave one out");
  const auto steps = static_cast<int>(option_number(arguments, "--every", {1, INT32_MAX}, "10").value_or(0));
  auto all = std::make_unique<Checkpoints>(
      arguments.last("--checkpoint", ""), steps, settings.steps,
      checkpoint_identity(run.run_plan(), settings, run.data(), *run.backend()(), PIPEWRIGHT_VERSION),
      *run.run_plan().plan);
  if (arguments.has("--resume"))
    go_on(*all, run.ranks());
  else
    all->begin_anew();
  return all;
}

// Of a run that goes on where all steps are done.
int nothing_left(const Checkpoints& kept, const RunSettings& settings, const Arguments& arguments) {
  if (!prints()) return kDone;
  const std::string text =
      fmt::format("done: all {} steps, warm-up counted, are in {}; a larger --steps goes on from there", settings.steps,
                  kept.folder(kept.first_step()));
  if (arguments.has("--json"))
    note(text);
  else
    print(text + "\n");
  if (arguments.has("--output")) note("nothing was written: no step was left to measure");
  return kDone;
}

// What an interrupted run can go on from.
std::string to_go_on(const Checkpoints* kept) {
  const int newest = kept == nullptr ? 0 : kept->newest();
  return newest == 0 ? "" : fmt::format("; {} is kept: --resume goes on from there", kept->folder(newest));
}

void refuse_export(const Arguments& arguments, const std::string& file, const PlanRequest& plan) {
  for (const std::string_view option : {"--check", "--resume"})
    if (arguments.has(option))
      throw InputError(fmt::format("--export writes a run from its first step on; leave it or {} out", option));
  if (same_file(arguments.positional.front(), file))
    throw InputError(Place{}, "--export", "\"" + file + "\" is read by this command; name another");
  if (plan.expert_parallel.value > 1)
    throw InputError(plan.expert_parallel.place, "plan.expert_parallel",
                     "--export writes a model's weights once, and here each device has experts of its own; use 1");
}

int run_scenario(const Arguments& arguments, std::unique_ptr<Checkpoints>& kept) {
  std::vector<std::string> changes = with_run_settings(arguments.all("--set"), arguments);
  const std::string check = arguments.last("--check", "");
  if (arguments.has("--check") && check != "gradients")
    throw InputError(Place{}, "--check", "unknown \"" + check + "\"; known: gradients");
  const std::vector<std::string> paths = arguments.all("--output");
  const std::vector<const Writer*> files = checked_formats<Writer>(paths, {arguments.positional.front()}, writers());
  const Scenario scenario =
      read_scenario(arguments.positional.front(), {.set = std::move(changes), .config_path = config_path()});
  const std::string to = arguments.last("--export", "");
  if (!to.empty()) {
    refuse_export(arguments, to, scenario.plan);
    check_writable(to);
  }
  if (scenario.run.synthetic)
    for (const std::string_view option : {"--check", "--checkpoint", "--export"})
      if (arguments.has(option))
        throw InputError(scenario.run.place,
                         fmt::format("{}: a synthetic run does no arithmetic, so it has no gradients and no state to "
                                     "keep; leave out {} or run.synthetic",
                                     option, option));
  const RealRun real(scenario, joined_ranks(scenario));
  RunSettings settings = real.settings();
  if (real.ranks() != nullptr) real.ranks()->agree({{"use of checkpoints", use_of_checkpoints(arguments)}});
  kept = checkpoints(real, settings, arguments);
  settings.checkpoints = kept.get();
  if (first_step(settings) >= settings.steps) return nothing_left(*kept, settings, arguments);
  if (!check.empty()) return check_gradients(real, settings);
  const std::vector<WorkerResult> workers = until_interrupted([&] { return real.run(settings); });
  if (!prints()) return kDone;
  // What is left of a resumed run warms up, too, but for its last step.
  const StepTimes times =
      step_times(workers, std::min(settings.warmup, static_cast<int>(workers.front().steps.size()) - 1));
  const Answer measured = real.measured(workers, times);
  print(arguments.has("--json") ? json_report(measured) : report(real, measured, workers, times, scenario));
  if (kept != nullptr) note("wrote " + kept->folder(settings.steps) + " (checkpoint)");
  if (!to.empty())
    write_output(to, exported(real.run_plan(), real.predicted().scenario->model, real.data(), settings, workers),
                 "weights, samples and losses");
  for (std::size_t i = 0; i < files.size(); ++i)
    write_output(paths[i], files[i]->write(measured, command_line("run", arguments)), files[i]->what);
  return kDone;
}

int run_command(const Arguments& arguments) {
  std::unique_ptr<Checkpoints> kept;
  return with_run_failures([&] { return run_scenario(arguments, kept); }, [&] { return to_go_on(kept.get()); });
}

}  // namespace

constinit const Command kRun{
    .name = "run",
    .arguments = "SCENARIO",
    .summary = "train for real with exactly the simulated schedule",
    .details =
        "SCENARIO is a YAML file, or - for standard input; its layers need operators (`op:`, `ops:`, a family).\n"
        "  pipewright run scenarios/validation/two-stage-gpipe.yaml --steps 40 -o measured.svg\n"
        "  pipewright run scenarios/validation/two-stage-gpipe.yaml --check gradients\n"
        "  pipewright run scenarios/validation/two-stage-gpipe.yaml --checkpoint DIR --every 5    (then: --resume)\n"
        "Times and memory are measured; the step of median length is what is shown and written.\n",
    .options = kRunCommandOptions,
    .least = 1,
    .most = 1,
    .run = run_command,
};

}  // namespace pipewright::cli
