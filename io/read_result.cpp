#include "io/read_result.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/check.hpp"

namespace pipewright {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kSchema = "pipewright.result/1";

// What says who wrote it, not what was asked.
bool is_label(const std::string& key) {
  return key == "description" || key == "file" || key == "source";
}

void flatten(const Json& value, const std::string& path, KeysAndValues& values) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items())
      if (!is_label(key) && !(path == "scenario" && key == "name")) flatten(inner, path + "." + key, values);
  } else {
    values.emplace_back(path, value.is_string() ? value.get<std::string>() : value.dump());
  }
}

std::string layers_of(const Json& stage) {
  std::string text;
  for (const Json& chunk : stage.at("layers")) {
    const auto first = chunk.at("first").get<std::int64_t>(), last = chunk.at("last").get<std::int64_t>();
    text += text.empty() ? "" : ", ";
    text += first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
  }
  return text;
}

std::optional<double> maybe(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

ResultFigures::Stage stage_of(const Json& json) {
  return {.layers = layers_of(json),
          .forward = json.at("forward_s"),
          .backward = json.at("backward_s"),
          .recompute = json.at("recompute_s"),
          .busy = json.at("busy_s"),
          .peak = json.at("memory_bytes").at("peak"),
          .need = json.at("memory_need_bytes").at("with_reserve"),
          .capacity = maybe(json.at("capacity_bytes")).value_or(0),
          .model = json.at("memory_need_bytes").at("model"),
          .reserve = json.at("memory_bytes").at("reserve"),
          .in_flight = json.at("in_flight")};
}

void shares_of_time(const Json& workers, ResultFigures& figures) {
  figures.workers = static_cast<std::int64_t>(workers.size());
  const double all = figures.makespan * static_cast<double>(figures.workers);
  if (all <= 0) return;
  for (const Json& worker : workers) {
    const Json& idle = worker.at("idle");
    figures.busy += worker.at("busy_s").get<double>() / all;
    figures.fill += idle.at("fill_s").get<double>() / all;
    figures.imbalance += idle.at("imbalance_s").get<double>() / all;
    figures.communication += idle.at("communication_s").get<double>() / all;
    figures.stall += idle.at("stall_s").get<double>() / all;
    figures.drain += idle.at("drain_s").get<double>() / all;
  }
}

void whole_training(const Json& campaign, ResultFigures& figures) {
  figures.days = maybe(campaign.at("days"));
  figures.device_hours = maybe(campaign.at("device_hours"));
  figures.cost = maybe(campaign.at("cost"));
  figures.energy = maybe(campaign.at("energy_j"));
  if (const Json& goodput = campaign.at("goodput"); !goodput.is_null()) figures.goodput = goodput.at("by_formula");
}

ResultFigures figures_of(const Json& json) {
  ResultFigures figures;
  flatten(json.at("scenario"), "scenario", figures.inputs);
  flatten(json.at("plan"), "plan", figures.inputs);
  const Json& plan = json.at("plan");
  figures.name = json.at("scenario").at("name");
  figures.global_batch_size = plan.at("global_batch_size");
  figures.devices = static_cast<std::int64_t>(plan.at("devices").size()) * plan.at("tensor_parallel").get<int>();
  if (const Json& length = json.at("scenario").at("sequence_length"); !length.is_null())
    figures.sequence_length = length.get<std::int64_t>();
  figures.step_time = json.at("step_time_s");
  figures.makespan = json.at("makespan_s");
  figures.samples_per_s = json.at("samples_per_s");
  figures.tokens_per_s = maybe(json.at("tokens_per_s"));
  figures.mfu = maybe(json.at("mfu"));
  if (json.contains("hfu")) figures.hfu = maybe(json.at("hfu"));  // younger than the format
  if (json.contains("campaign")) whole_training(json.at("campaign"), figures);
  figures.bubble = json.at("bubble_fraction");
  figures.bubble_span = json.at("bubble_fraction_span");
  figures.speedup_one_device = maybe(json.at("speedup_over_one_device"));
  figures.limiting_factor = json.at("limiting_factor");
  figures.fits = json.at("fits");
  if (!figures.fits) figures.shortfall = json.at("shortfall").at("reason");
  shares_of_time(json.at("workers"), figures);
  for (const Json& stage : json.at("stages"))
    figures.stages.push_back(stage_of(stage));
  for (const Json& link : json.at("links"))
    figures.links.push_back({link.at("name"), link.at("bytes"), link.at("utilization")});
  for (const Json& part : json.at("critical_path"))
    figures.critical_path.push_back({part.at("what"), part.at("time_s")});
  return figures;
}

// nlohmann's messages begin with "[json.exception.out_of_range.403] ".
std::string plain(const char* what) {
  const std::string text = what;
  const std::size_t end = text.find("] ");
  return text.starts_with("[json") && end != std::string::npos ? text.substr(end + 2) : text;
}

}  // namespace

ResultFigures parse_result(const std::string& text, const std::string& file) {
  const Place place{file, 0, 0};
  constexpr std::string_view way_out = "write one with pipewright simulate SCENARIO -o FILE.json";
  try {
    const Json json = Json::parse(text);
    if (!json.is_object() || json.value("schema", "") != kSchema)
      throw InputError(place, fmt::format("is no {} document; {}", kSchema, way_out));
    if (!json.contains("stages"))
      throw InputError(place, "has no figures: the plan did not fit; " + std::string(way_out) + " --ignore-memory");
    return figures_of(json);
  } catch (const nlohmann::json::exception& error) {
    throw InputError(place, fmt::format("is no {} document: {}; {}", kSchema, plain(error.what()), way_out));
  }
}

}  // namespace pipewright
