// `capacity`: the largest value of a whole number with which a scenario fits its devices.
#include "io/writers/capacity.hpp"

#include <algorithm>
#include <array>
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
#include "io/read/scenario_file.hpp"
#include "study/capacity_rows.hpp"
#include "study/ranks.hpp"

namespace pipewright::cli {
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
  const auto [rows, failed, ended] = capacity_rows(file, over, most);
  if (rows.empty()) return interrupted(ended);
  print(arguments.has("--json") ? capacity_json(rows, path) : capacity_text(rows, table));
  for (std::size_t i = 0; i < outputs.size(); ++i)
    write_output(outputs[i], writers[i]->write(rows, path), "capacity");
  if (!ended.empty())
    return interrupted(fmt::format("{} of {} rows are printed; {}", rows.size(),
                                   std::max<std::size_t>(1, file.varied().size()), ended));
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

}  // namespace pipewright::cli
