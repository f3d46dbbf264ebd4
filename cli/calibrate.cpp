// `calibrate`: what a scenario's layers cost on this machine.
#include "calibrate/calibrate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/calibrate_device.hpp"
#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "cli/run_options.hpp"
#include "core/check.hpp"
#include "core/question/profile.hpp"
#include "io/read/read_scenario.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/names.hpp"
#include "io/writers/writers.hpp"
#include "runtime/signals.hpp"
#include "study/comparison.hpp"
#include "study/real_run.hpp"
#include "study/what_to_measure.hpp"

namespace pipewright::cli {
namespace {

constexpr std::array<Option, 9> kCalibrateOptions = {{
    {"--set", "", "KEY=VALUE", "change one value of the scenario first (repeatable)"},
    {"--backend", "", "NAME", "cpu (default) or cuda"},
    {"--virtual-devices", "", "K",
     "cuda: groups of SMs, one per worker (default: as many as workers); without SCENARIO those to be measured, "
     "K,K,... (default: 1,2,4,8)"},
    {"--gpus", "", "N,N,...", "cuda: GPUs over which workers are distributed (default: 0)"},
    {"--model", "", "FILE",
     "without SCENARIO: a model or scenario whose operations are measured first (repeatable; default on a GPU: the "
     "shipped scenarios' for GPUs)"},
    {"--precision", "", "P,P,...",
     "without SCENARIO: only what computes in these: bf16, fp32, fp16, tf32 (default: all)"},
    {"--budget", "", "TIME",
     "time for measured rounds (default: 3 s); without SCENARIO, for everything (default: 8 min)"},
    {"--sizes", "", "N,N,...",
     "micro-batches of these samples instead of the scenario's; others are priced by the line through them"},
    {"--output", "-o", "FILE", "write the profile there (default: standard output)"},
}};

std::string layers_table(const MachineProfile& profile) {
  std::string text = fmt::format("  {:>12} {:>12} {:>12}  {:>7} {:>6} {:>5}  layer, samples\n", "forward", "d input",
                                 "d weight", "spread", "times", "busy");
  for (const LayerTimes& layer : profile.layers)
    text += fmt::format("  {:>12} {:>12} {:>12}  {:>7} {:>6} {:>5}  {}{}, {}\n", short_time(layer.forward),
                        short_time(layer.input_gradient), short_time(layer.weight_gradient), percent(layer.spread),
                        layer.measured, layer.active == 0 ? "all" : std::to_string(layer.active),
                        layer.key.substr(0, 60), layer.key.size() > 60 ? "..." : "", layer.samples);
  return text;
}

std::string table(const MachineProfile& profile) {
  std::string text = profile.source + "\n" + layers_table(profile);
  text += fmt::format("  per op {}, message noticed after {}; copy {:.3f} ns/B, first read {:.3f} ns/B more\n",
                      short_time(profile.op_overhead), short_time(profile.handoff), profile.send.ns_per_unit,
                      profile.first_read.ns_per_unit);
  text += "  busy: workers that computed meanwhile\n";
  for (const AllReduceTime& sum : profile.all_reduces)
    text += fmt::format("  all-reduce over {} workers {} and {:.3f} ns/B\n", sum.members,
                        short_time({std::llround(sum.by_bytes.fixed_ns)}), sum.by_bytes.ns_per_unit);
  for (const UpdateTime& update : profile.updates)
    text += fmt::format("  step of {}: {:.3f} ns per parameter\n", name(update.optimizer),
                        update.by_parameters.ns_per_unit);
  return text;
}

// Of a calibration that was asked to end: what is no whole profile prices nothing, and no file is written.
int ended(MachineProfile so_far) {
  std::erase_if(so_far.layers, [](const LayerTimes& layer) { return layer.measured == 0; });
  if (so_far.layers.empty()) return interrupted("nothing was measured yet, and no profile is written");
  print(layers_table(so_far));
  return interrupted(
      fmt::format("the {} layers measured until then are printed; no profile is written, it would not be whole",
                  so_far.layers.size()));
}

int calibrate_scenarios(const Arguments& arguments) {
  refuse_options(arguments, {"--model", "--precision"}, " belongs to the calibration of a device; leave out SCENARIO");
  const std::vector<std::string> changes = with_run_settings(arguments.all("--set"), arguments);
  const double seconds = calibration_seconds(arguments);
  const std::vector<int> sizes =  // of micro-batches; 0: as the scenario has it
      arguments.has("--sizes") ? option_numbers(arguments, "--sizes", "") : std::vector<int>{0};
  constexpr std::array<std::string_view, 1> endings = {".yaml"};
  check_outputs(arguments.all("--output"), arguments.positional, endings);
  std::list<Scenario> scenarios;  // stay where they are: runs refer to them
  std::list<RealRun> runs;
  std::vector<const RealRun*> all;
  Ranks* ranks = nullptr;
  for (const std::string& path : arguments.positional)
    for (const int size : sizes) {
      std::vector<std::string> set = changes;
      if (size > 0) set.push_back(fmt::format("training.micro_batch_size={}", size));
      scenarios.push_back(read_scenario(path, {.set = std::move(set), .config_path = config_path()}));
      if (all.empty()) ranks = joined_ranks(scenarios.back());
      check_like_first(scenarios.front(), scenarios.back());
      all.push_back(&runs.emplace_back(scenarios.back(), ranks));
    }
  MachineProfile profile;
  try {
    const Interruption interruption;
    profile = calibrated(all, seconds, scenarios.front().name);
  } catch (CalibrationEnded& so_far) {
    return ended(std::move(so_far.profile));
  }
  if (!prints()) return kDone;
  const std::string path = arguments.last("--output", "");
  if (!path.empty()) write_output(path, profile_yaml(profile), "profile: --set 'cost={profile: " + path + "}'");
  print(path.empty() ? profile_yaml(profile) : table(profile));
  for (const RealRun& run : runs)
    if (const int members = all_reduce_not_measured(run, &profile); members > 0)
      note(fmt::format(
          "{}: no all-reduce over {} workers was measured ({}); a simulation takes the time of the "
          "cluster's links in its place",
          run.scenario().name, members,
          run.ranks() != nullptr ? "over processes none is"
                                 : fmt::format("{} workers on {} cores", run.predicted().plan.workers(), run.cores())));
  for (const Scenario& scenario : scenarios)
    note(what_to_measure(priced_with(scenario, profile)));
  return kDone;
}

int calibrate_command(const Arguments& arguments) {
  if (arguments.positional.empty() && arguments.has("--backend")) return calibrate_device(arguments);
  if (arguments.positional.empty())
    throw InputError(
        "calibrate: name a SCENARIO, or give --backend cuda alone to measure a whole GPU (--backend cpu: a core)");
  return with_run_failures([&] { return calibrate_scenarios(arguments); });
}

}  // namespace

constinit const Command kCalibrate{
    .name = "calibrate",
    .arguments = "[SCENARIO...]",
    .summary = "measure what a scenario's layers and messages cost on this machine",
    .details =
        "SCENARIO is a YAML file whose layers can be run. All workers of its plan compute at once while each layer is\n"
        "timed; then messages between two cores. Several scenarios give one profile, which prices all of them;\n"
        "with --sizes it prices other sizes of micro-batch, too. Exit status 1: a worker does not fit.\n"
        "  pipewright calibrate scenarios/validation/two-stage-gpipe.yaml -o here.yaml\n"
        "  pipewright simulate scenarios/validation/two-stage-gpipe.yaml --set 'cost={profile: ./here.yaml}'\n"
        "Without SCENARIO a whole device is measured: its operations at many sizes, as a preset that prices any "
        "model.\n"
        "  pipewright calibrate --backend cuda --model scenarios/validation/two-stage-gpipe.yaml -o "
        "configs/devices/mine.yaml\n",
    .options = kCalibrateOptions,
    .most = 64,
    .run = calibrate_command,
};

}  // namespace pipewright::cli
