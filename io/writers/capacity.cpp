#include "io/writers/capacity.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/text/format_quantity.hpp"
#include "io/text/quote.hpp"
#include "io/writers/documents.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/text_table.hpp"

namespace pipewright::io {
namespace {

// GiB, or MiB where no device has one.
struct SizeUnit {
  std::string_view name = "GiB";
  double bytes = 1073741824.0;
  std::string operator()(Bytes value) const { return fmt::format("{:.2f}", static_cast<double>(value.value) / bytes); }
};

SizeUnit size_unit(Bytes largest) {
  return largest < Bytes{std::int64_t{1} << 30} ? SizeUnit{"MiB", 1048576.0} : SizeUnit{};
}
SizeUnit size_unit(const Capacity& row) {
  return size_unit(std::max({row.device_memory, row.peak, row.next_need}));
}

// The last part of a key is enough for a column.
std::string short_key(const std::string& key) {
  return key.substr(key.rfind('.') + 1);
}

std::vector<TextColumn> capacity_columns(const std::vector<Capacity>& rows) {
  std::vector<TextColumn> all;
  if (!rows.empty())
    for (const auto& [key, value] : rows.front().varied)
      all.push_back({short_key(key)});
  const std::size_t varied = all.size();
  Bytes most;
  for (const Capacity& row : rows)
    most = std::max({most, row.device_memory, row.peak, row.next_need});
  const SizeUnit unit = size_unit(most);
  for (const char* head : {"largest", "devices", "parameters", "state {}", "activations {}", "per device", "peak {}",
                           "left {}", "next", "needs {}"})
    all.push_back({fmt::format(fmt::runtime(head), unit.name)});
  if (!rows.empty()) all[varied].head = short_key(rows.front().over);
  for (const Capacity& row : rows) {
    std::vector<std::string> cells;
    for (std::size_t i = 0; i < varied; ++i)
      cells.push_back(i < row.varied.size() ? row.varied[i].second : "");
    const bool some = row.largest.has_value();
    const auto shown = [&](const std::string& text) { cells.push_back(some ? text : "-"); };
    cells.push_back(some ? std::to_string(*row.largest) : "none");
    shown(std::to_string(row.devices));
    shown(short_count(static_cast<double>(row.parameters)));
    shown(unit(row.training_state));
    shown(unit(row.activations));
    shown(unit(row.largest_activations));
    shown(unit(row.peak));
    shown(unit(row.headroom));
    cells.push_back(row.next ? std::to_string(*row.next) : row.stopped ? "not tried" : "none");
    cells.push_back(row.next ? unit(row.next_need) : "-");
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i].cells.push_back(cells[i]);
  }
  return all;
}

// "weights 3.1, stash 10.2, reserve 1.5"
std::string parts(const MemoryBytes& bytes, const SizeUnit& unit) {
  std::string text;
  for (std::size_t i = 0; i < kMemoryCategories.size(); ++i)
    if (category(bytes, i).value > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kMemoryCategories[i], unit(category(bytes, i)));
  return text;
}

std::string name_of(const Capacity& row) {
  std::string text;
  for (const auto& [key, value] : row.varied)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  return text;
}

// What ends the values that fit: the devices' memory, the scenario (no larger value makes one), or the search itself.
std::string_view limited_by(const Capacity& row) {
  return row.next ? "memory" : row.stopped ? "search" : "scenario";
}

// What the scenario must have for `simulate` to find the answer; the keys of the variant are its own.
std::vector<std::string> changes(const Capacity& row) {
  std::vector<std::string> list;
  if (row.largest) list.push_back(fmt::format("{}={}", row.over, *row.largest));
  if (!row.other_cut.empty()) list.emplace_back("plan.partition=fitting");
  return list;
}

// What stops the next one, and between which amounts of memory the answer stays what it is.
std::vector<std::string> explanation(const Capacity& row) {
  const SizeUnit unit = size_unit(row);
  std::vector<std::string> lines;
  if (!row.largest) {
    lines.push_back(
        fmt::format("no value of {}{} fits", row.over, row.tried_to ? fmt::format(" up to {}", *row.tried_to) : ""));
  } else {
    lines.push_back(fmt::format("{} = {}: stage {} is the fullest, {} {} of {}", row.over, *row.largest, row.fullest,
                                unit(row.peak), unit.name, unit(row.device_memory)));
  }
  if (!row.other_cut.empty())
    lines.push_back(
        fmt::format("this cut is not that of plan.partition: {} (which {}); simulate finds it with: --set {}",
                    row.other_cut, row.other_fits ? "fits, too" : "does not fit", fmt::join(changes(row), " --set ")));
  if (row.stopped)
    lines.push_back(fmt::format(
        "no limit was found: the search stopped at {}, the largest value allowed; larger ones were not tried",
        *row.stopped));
  else if (row.next)
    lines.push_back(fmt::format("{} does not fit: stage {} needs {} {} ({})", *row.next, row.next_stage,
                                unit(row.next_need), unit.name, parts(row.next_bytes, unit)));
  else
    lines.push_back((row.largest ? "memory is not a limit here: no larger value makes a scenario: "
                                 : "no larger value makes a scenario: ") +
                    row.next_refused);
  if (row.largest && row.next && row.tried_to)
    lines.push_back(fmt::format("no value from {} to {} fits; larger ones were not tried, and one may fit",
                                *row.largest + 1, *row.tried_to));
  if (row.needs_grow && row.largest && row.next && row.next_least_memory > row.least_memory && !row.of_run)
    lines.push_back(fmt::format("the answer is the same for {} to {} {} per device", unit(row.least_memory),
                                unit(row.next_least_memory), unit.name));
  if (row.fit > 0)
    lines.push_back(fmt::format(
        "peak and needs: the memory that fits with {} probability over the memory model's range", fit_text(row.fit)));
  if (!row.anchored.empty()) lines.push_back(row.anchored);
  if (row.of_run)
    lines.push_back("as a real run takes it: peak and need are what a worker's arena spans, memory is its cap");
  lines.push_back(
      fmt::format("method: {}; {} value{} tried, {}", row.method, row.tried, row.tried == 1 ? "" : "s", row.upper_end));
  return lines;
}

void write_row(JsonFields& json, const Capacity& row) {
  json.field("over", row.over).field("varied", row.varied).field("largest", row.largest);
  json.word("limited_by", limited_by(row), {"memory", "scenario", "search"});
  json.field("method", row.method).field("upper_end", row.upper_end).field("tried", row.tried);
  json.field("proven", row.proven).field("tried_to", row.tried_to);
  json.when(row.largest.has_value(), [&] {
    json.field("stages", row.stages).field("devices", row.devices).field("layers", row.layers);
    json.field("parameters", row.parameters).field("device_memory_bytes", row.device_memory);
    json.field("reserve_bytes", row.reserve).field("training_state_bytes", row.training_state);
    json.field("activations_bytes", row.activations).field("largest_activations_bytes", row.largest_activations);
    json.field("fullest_stage", row.fullest).field("peak_bytes", row.peak).field("headroom_bytes", row.headroom);
    json.field("least_memory_bytes", row.least_memory).field("set", changes(row));
  });
  json.maybe("next", row.next, [&](std::int64_t next) {
    json.field("value", next).field("stage", row.next_stage);
    write_memory(json, row.next_bytes);
    json.field("need_bytes", row.next_need).field("least_memory_bytes", row.next_least_memory);
  });
}

void write_capacities(JsonFields& json, const std::vector<Capacity>& rows, const std::string& scenario) {
  json.field("scenario", scenario).list("rows", rows, [&](const Capacity& row) { write_row(json, row); });
}

}  // namespace

std::string capacity_text(const std::vector<Capacity>& rows, const TableOptions& options) {
  std::string text = text_table(capacity_columns(rows), options.width, 0) + "\n";
  for (const Capacity& row : rows) {
    const std::string name = name_of(row);
    if (!name.empty()) text += name + "\n";
    for (const std::string& line : explanation(row))
      text += wrapped(name.empty() ? "" : "  ", line, options.width);
  }
  return text;
}

constinit const JsonDocument kCapacityDocument{"pipewright.capacity/1",
                                               [](JsonFields& json) { write_capacities(json, {}, ""); }};

std::string capacity_json(const std::vector<Capacity>& rows, const std::string& scenario) {
  return kCapacityDocument.text([&](JsonFields& json) { write_capacities(json, rows, scenario); });
}

std::string capacity_csv(const std::vector<Capacity>& rows) {
  std::string text;
  if (!rows.empty())
    for (const auto& [key, value] : rows.front().varied)
      text += csv_field(key) + ",";
  text +=
      "over,largest,stages,devices,layers,parameters,device_memory_bytes,reserve_bytes,training_state_bytes,"
      "activations_bytes,largest_activations_bytes,fullest_stage,peak_bytes,headroom_bytes,least_memory_bytes,next,"
      "next_stage,next_peak_bytes,next_least_memory_bytes,tried,proven,tried_to,method,set,limited_by\n";
  for (const Capacity& row : rows) {
    for (const auto& [key, value] : row.varied)
      text += csv_field(value) + ",";
    text += csv_field(row.over) + "," + (row.largest ? std::to_string(*row.largest) : "");
    const std::int64_t figures[] = {row.stages,
                                    row.devices,
                                    row.layers,
                                    row.parameters,
                                    row.device_memory.value,
                                    row.reserve.value,
                                    row.training_state.value,
                                    row.activations.value,
                                    row.largest_activations.value,
                                    row.fullest,
                                    row.peak.value,
                                    row.headroom.value,
                                    row.least_memory.value};
    for (const std::int64_t figure : figures)
      text += "," + (row.largest ? std::to_string(figure) : "");
    if (row.next)
      text += fmt::format(",{},{},{},{}", *row.next, row.next_stage, row.next_need.value, row.next_least_memory.value);
    else
      text += ",,,,";
    text +=
        fmt::format(",{},{},{},{},{},{}\n", row.tried, row.proven, row.tried_to ? std::to_string(*row.tried_to) : "",
                    csv_field(row.method), csv_field(fmt::format("{}", fmt::join(changes(row), " "))), limited_by(row));
  }
  return text;
}

std::string capacity_markdown(const std::vector<Capacity>& rows) {
  std::string text = markdown_table(capacity_columns(rows));
  text += "\n";
  for (const Capacity& row : rows) {
    const std::string name = name_of(row);
    std::string line;
    for (const std::string& part : explanation(row))
      line += (line.empty() ? "" : "; ") + part;
    text += "- " + (name.empty() ? "" : markdown_code(name) + ": ") + markdown_text(line) + "\n";
  }
  return text;
}

}  // namespace pipewright::io
