// `capacity`: the largest value of a whole number with which a scenario fits its devices.
#include "io/writers/capacity.hpp"

#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/outputs.hpp"
#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "io/scenario_file.hpp"
#include "planner/capacity.hpp"

namespace pipewright {
namespace {

constexpr std::array<Option, 6> kOptions = {{
    {"--over", "", "KEY", "the whole number to grow: model.layers, model.hidden, training.micro_batch_size, ..."},
    {"--at-most", "", "N", "try no larger value (default: where the training state alone passes all memory)"},
    {"--set", "", "KEY=VALUE", "change one value of the scenario first (repeatable)"},
    {"--output", "-o", "FILE", "also write FILE: .json .csv .md (repeatable)"},
    {"--json", "", "", "one JSON document on standard output instead of the table"},
    {"--width", "", "N", "columns of the table (default: the terminal's, else 100)"},
}};

std::optional<std::int64_t> at_most(const Arguments& arguments) {
  if (!arguments.has("--at-most")) return std::nullopt;
  const std::string text = arguments.last("--at-most", "");
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1)
    throw InputError("--at-most: \"" + text + "\" is no whole number of at least 1; write e.g. --at-most 128");
  return value;
}

using Write = std::string (*)(const std::vector<Capacity>&, const std::string& scenario);
struct Ending {
  std::string_view ending;
  Write write;
};
constexpr std::array<Ending, 3> kEndings = {{
    {".json", capacity_json},
    {".csv", [](const std::vector<Capacity>& rows, const std::string&) { return capacity_csv(rows); }},
    {".md", [](const std::vector<Capacity>& rows, const std::string&) { return capacity_markdown(rows); }},
}};

Capacity row(const ScenarioFile& file, const std::string& over, const VariedPoint& point,
             std::optional<std::int64_t> most) {
  const ScenarioWith with = [&](std::int64_t value) {
    return file.scenario(point.changes, {over + "=" + std::to_string(value)});
  };
  Capacity found = capacity(over, with, {.first = file.whole_number(over, point.changes).value_or(1), .most = most});
  found.varied = point.values;
  return found;
}

int run(const Arguments& arguments) {
  if (!arguments.has("--over"))
    throw InputError("capacity: what is to grow? Name a whole number of the scenario, e.g. --over model.layers");
  const std::string over = arguments.last("--over", "");
  const std::string& path = arguments.positional.front();
  const TableOptions table{output_width(arguments), use_colour(arguments)};
  const auto most = at_most(arguments);
  const std::vector<std::string> outputs = arguments.all("--output");
  const auto writers = checked_formats<Ending>(outputs, {path}, kEndings);
  const ScenarioFile file(path, {.set = arguments.all("--set"), .config_path = config_path()});
  std::vector<VariedPoint> points = file.varied();
  if (points.empty()) points.emplace_back();
  std::vector<Capacity> rows;
  for (const VariedPoint& point : points)
    rows.push_back(row(file, over, point, most));
  print(arguments.has("--json") ? capacity_json(rows, path) : capacity_text(rows, table));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    write_file(outputs[i], writers[i]->write(rows, path));
    note("wrote " + outputs[i] + " (capacity)");
  }
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
        "every stage fits, and among those cuts with the least bottleneck. With a vary: block, a row per variant.\n"
        "  pipewright capacity scenarios/quickstart.yaml --over training.micro_batch_size\n"
        "Exit status 1: no value fits.\n",
    .options = kOptions,
    .least = 1,
    .most = 1,
    .run = run,
};

}  // namespace pipewright
