// `capacity`: the largest value of a whole number with which a scenario fits its devices.
#include "io/writers/capacity.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/campaign_options.hpp"
#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "cli/run_options.hpp"
#include "core/check.hpp"
#include "core/cost/memory_model.hpp"
#include "core/ending.hpp"
#include "io/console.hpp"
#include "io/read/scenario_file.hpp"
#include "io/text/errors.hpp"
#include "io/yaml/fields.hpp"
#include "planner/anchor.hpp"
#include "planner/capacity.hpp"
#include "runtime/backend_of.hpp"
#include "runtime/gpu_places.hpp"
#include "runtime/run_plan.hpp"
#include "runtime/signals.hpp"
#include "study/ranks.hpp"
#include "study/real_run.hpp"

namespace pipewright {
namespace {

constexpr std::array<Option, 10> kCapacityOptions = {{
    {"--over", "", "KEY", "the whole number to grow: model.layers, model.hidden, training.micro_batch_size, ..."},
    {"--at-most", "", "N", "try no larger value (default: where the training state alone passes all memory)"},
    {"--set", "", "KEY=VALUE", "change one value of the scenario first (repeatable)"},
    {"--fit", "", "PERCENT",
     "fit with this probability over the memory model's range (plan.fit; default: 95%; 50%: the estimate itself must "
     "fit)"},
    {"--backend", "", "NAME",
     "of run.backend: cpu or cuda, whose blocks lie at multiples of 64 or 512 B; no GPU is needed"},
    {"--virtual-devices", "", "K", "of run.virtual_devices: at least as many as the plan has workers"},
    {"--gpus", "", "N,N,...", "of run.gpus"},
    {"--output", "-o", "FILE", "also write FILE: .json .csv .md (repeatable)"},
    {"--json", "", "", "one JSON document on standard output instead of the table"},
    {"--width", "", "N", "columns of the table (default: the terminal's, else 100)"},
}};

using CapacityWriter = std::string (*)(const std::vector<Capacity>&, const std::string& scenario);
struct CapacityFormat {
  std::string_view ending;
  CapacityWriter write;
};
constexpr std::array<CapacityFormat, 3> kCapacityEndings = {{
    {".json", capacity_json},
    {".csv", [](const std::vector<Capacity>& rows, const std::string&) { return capacity_csv(rows); }},
    {".md", [](const std::vector<Capacity>& rows, const std::string&) { return capacity_markdown(rows); }},
}};

// What a run takes, from sizes alone.
std::vector<RunMemory> run_memory(const Scenario& scenario, const Plan& plan, const Schedule& schedule) {
  check_precision(scenario);
  const CostModel cost(scenario);
  const RunPlan run = run_plan(
      plan, schedule, scenario.model, scenario.training, *backend_for_sizes(scenario),
      {.weight_stashing = scenario.run.weight_stashing, .synthetic = scenario.run.synthetic ? &cost : nullptr});
  std::vector<RunMemory> workers;
  for (PositionId position = 0; position < plan.positions(); ++position) {
    const ArenaUse use = replayed(run, position);
    workers.push_back({memory_bytes(use), use.extent});
  }
  return workers;
}

// "plan.stages=8"
std::string name_of(const VariedPoint& point) {
  std::string text;
  for (const auto& [key, value] : point.values)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  return text;
}

// `most`: no larger value is tried. A scenario with a block `run:` is asked of what a real run takes. Throws InputError
// (planner/capacity.hpp).
Capacity capacity_row(const ScenarioFile& file, const std::string& over, const VariedPoint& point,
                      std::optional<std::int64_t> most) {
  const ScenarioWith with = [&](std::int64_t value) {
    Scenario scenario =
        fitting_by_default(anchored(file.scenario(point.changes, {over + "=" + std::to_string(value)})));
    return scenario.run.place == Place{} ? scenario : with_a_peak(std::move(scenario));
  };
  const std::string name = name_of(point);
  ProgressLine line;
  const CapacityOptions how{
      .first = file.whole_number(over, point.changes).value_or(1),
      .most = most,
      .run_memory = run_memory,
      .check_run = [](const Scenario& scenario, const Plan& plan) { check_gpu_keys(scenario.run, plan.workers()); },
      .progress =
          [&](std::int64_t value, std::int64_t read) {
            end_if_asked(fmt::format("{} = {} was being tried, after {} other values", over, value, read));
            line.say(fmt::format("capacity{}: {} values read, now {} = {}", name.empty() ? "" : ", " + name, read, over,
                                 value));
          }};
  Capacity found = capacity(over, with, how);
  found.varied = point.values;
  return found;
}

// Near is what differs in the last part only: another key of the same section is no misspelling of this one.
std::string unknown_key_name(const std::string& over, const std::vector<std::string>& known) {
  const std::string section = over.substr(0, over.rfind('.') + 1);
  std::vector<std::string> lasts;
  for (const std::string& key : known)
    if (key.rfind('.') + 1 == section.size() && key.starts_with(section)) lasts.push_back(key.substr(section.size()));
  const std::string last = over.substr(section.size()), meant = meant_by(last), near = nearest(last, lasts);
  return fmt::format("unknown {};{} known: {}", in_quotes(over),
                     !meant.empty()  ? " " + meant + ";"
                     : !near.empty() ? fmt::format(" did you mean {}?", in_quotes(section + near))
                                     : "",
                     fmt::join(known, ", "));
}

// What no scenario has, or is no whole number, is refused with the whole numbers that this one states.
void check_grows(const ScenarioFile& file, const std::string& over, int changes) {
  const std::vector<std::string> known = file.whole_numbers(changes);
  try {
    if (file.whole_number(over, changes)) return;
  } catch (const InputError& error) {
    throw InputError(Place{}, "--over",
                     fmt::format("{} cannot grow: {}; whole numbers of this scenario: {}", in_quotes(over),
                                 error.what(), fmt::join(known, ", ")));
  }
  try {
    file.scenario(changes, {over + "=1"});
  } catch (const InputError& error) {
    if (!error.is(ErrorCode::UnknownKey)) return;  // reported where it is tried
    const std::string last = over.substr(over.rfind('.') + 1);
    const auto same = std::find_if(known.begin(), known.end(),
                                   [&](const std::string& key) { return key.substr(key.rfind('.') + 1) == last; });
    throw InputError(Place{}, "--over",
                     (same == known.end() ? unknown_key_name(over, known)
                                          : fmt::format("unknown {}; did you mean \"{}\"? known: {}", in_quotes(over),
                                                        *same, fmt::join(known, ", "))));
  }
}

struct CapacityRows {
  std::vector<Capacity> found;
  std::string failed;  // a line for each variant that has no answer
  std::string ended;   // what was being done when a signal asked to end, or ""
};

CapacityRows rows_of(const ScenarioFile& file, const std::string& over, const std::vector<VariedPoint>& points,
                     std::optional<std::int64_t> most) {
  const Interruption interruption;
  CapacityRows rows;
  for (const VariedPoint& point : points) {
    try {
      rows.found.push_back(capacity_row(file, over, point, most));
    } catch (const Interrupted& ended) {
      rows.ended = ended.what();
      return rows;
    } catch (const InputError& error) {
      if (points.size() == 1) throw;
      rows.failed += fmt::format("{}{}: {}", rows.failed.empty() ? "" : "\n", name_of(point), error.what());
    }
  }
  if (rows.found.empty()) throw InputError(rows.failed);
  return rows;
}

int capacity_command(const Arguments& arguments) {
  if (!arguments.has("--over"))
    throw InputError(Place{}, "capacity",
                     "what is to grow? Name a whole number of the scenario, e.g. --over model.layers");
  const std::string over = arguments.last("--over", "");
  const std::string& path = arguments.positional.front();
  const TableOptions table{output_width(arguments), use_colour(arguments)};
  const auto most = option_number(arguments, "--at-most", {}, "128");
  const std::vector<std::string> outputs = arguments.all("--output");
  const auto writers = checked_formats<CapacityFormat>(outputs, {path}, kCapacityEndings);
  const ScenarioFile file(path,
                          {.set = with_run_settings(settings(arguments), arguments), .config_path = config_path()});
  std::vector<VariedPoint> points = file.varied();
  if (points.empty()) points.emplace_back();
  for (const VariedPoint& point : points)
    check_grows(file, over, point.changes);
  const auto [rows, failed, ended] = rows_of(file, over, points, most);
  if (rows.empty()) return interrupted(ended);
  print(arguments.has("--json") ? capacity_json(rows, path) : capacity_text(rows, table));
  for (std::size_t i = 0; i < outputs.size(); ++i)
    write_output(outputs[i], writers[i]->write(rows, path), "capacity");
  if (!ended.empty())
    return interrupted(fmt::format("{} of {} rows are printed; {}", rows.size(), points.size(), ended));
  if (!failed.empty()) throw InputError(failed);
  for (const Capacity& each : rows)
    if (!each.largest) return kNo;
  return kDone;
}

}  // namespace

constinit const Command kCapacity{
    .name = "capacity",
    .arguments = "SCENARIO --over KEY",
    .summary = "the largest model (or batch, or width) that fits the devices",
    .details =
        "KEY is a whole number of the scenario; everything else stays as the scenario says. The layers are cut so "
        "that\n"
        "every stage fits, with 95 % over the memory model's range as for `plan`, and among those cuts with the least\n"
        "bottleneck. With a vary: block, a row per variant.\n"
        "A variant without an answer is an error, and the other rows are still printed.\n"
        "With a run: block the answer is the largest model that really runs: its plan is taken as run takes it, and\n"
        "a worker's arena may span run.memory_cap, or else the device's memory less its reserve.\n"
        "  pipewright capacity scenarios/quickstart.yaml --over training.micro_batch_size\n"
        "Exit status 1: no value fits.\n",
    .options = kCapacityOptions,
    .least = 1,
    .most = 1,
    .run = capacity_command,
};

}  // namespace pipewright
