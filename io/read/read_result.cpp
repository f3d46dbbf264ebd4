#include "io/read/read_result.hpp"

#include <fmt/format.h>

#include "core/check.hpp"
#include "io/read/json_input.hpp"

namespace pipewright::io {
namespace {

constexpr std::string_view kResultSchema = "pipewright.result/1";

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

std::string layers_of(const JsonValue& stage) {
  std::string text;
  for (const JsonValue& chunk : stage.at("layers").items()) {
    const std::int64_t first = chunk.at("first"), last = chunk.at("last");
    text += text.empty() ? "" : ", ";
    text += first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
  }
  return text;
}

ResultFigures::Stage stage_of(const JsonValue& json) {
  return {.layers = layers_of(json),
          .forward = json.at("forward_s"),
          .backward = json.at("backward_s"),
          .recompute = json.at("recompute_s"),
          .busy = json.at("busy_s"),
          .peak = json.at("memory_bytes").at("peak"),
          .need = json.at("memory_need_bytes").at("with_reserve"),
          .capacity = json.at("capacity_bytes").number_or_null().value_or(0),
          .model = json.at("memory_need_bytes").at("model"),
          .reserve = json.at("memory_bytes").at("reserve"),
          .in_flight = json.at("in_flight")};
}

void shares_of_time(const std::vector<JsonValue>& workers, ResultFigures& figures) {
  figures.workers = std::ssize(workers);
  const double all = figures.makespan * static_cast<double>(figures.workers);
  if (all <= 0) return;
  for (const JsonValue& worker : workers) {
    const JsonValue idle = worker.at("idle");
    figures.busy += worker.at("busy_s").number() / all;
    figures.fill += idle.at("fill_s").number() / all;
    figures.imbalance += idle.at("imbalance_s").number() / all;
    figures.communication += idle.at("communication_s").number() / all;
    figures.stall += idle.at("stall_s").number() / all;
    figures.drain += idle.at("drain_s").number() / all;
  }
}

void whole_training(const JsonValue& campaign, ResultFigures& figures) {
  figures.days = campaign.at("days").number_or_null();
  figures.device_hours = campaign.at("device_hours").number_or_null();
  figures.cost = campaign.at("cost").number_or_null();
  figures.energy = campaign.at("energy_j").number_or_null();
  if (const JsonValue goodput = campaign.at("goodput"); !goodput.is_null())
    figures.goodput = goodput.at("by_formula").number();
}

ResultFigures figures_of(const JsonValue& json) {
  ResultFigures figures;
  const JsonValue scenario = json.at("scenario"), plan = json.at("plan");
  flatten(scenario.json(), "scenario", figures.inputs);
  flatten(plan.json(), "plan", figures.inputs);
  figures.name = scenario.at("name").text();
  figures.global_batch_size = plan.at("global_batch_size");
  figures.devices = std::ssize(plan.at("devices").items()) * plan.at("tensor_parallel").whole();
  if (const JsonValue length = scenario.at("sequence_length"); !length.is_null())
    figures.sequence_length = length.whole();
  figures.step_time = json.at("step_time_s");
  figures.makespan = json.at("makespan_s");
  figures.samples_per_s = json.at("samples_per_s");
  figures.tokens_per_s = json.at("tokens_per_s").number_or_null();
  figures.mfu = json.at("mfu").number_or_null();
  if (json.has("hfu")) figures.hfu = json.at("hfu").number_or_null();  // younger than the format
  if (json.has("interval_90"))                                         // younger than the format
    if (const JsonValue interval = json.at("interval_90"); !interval.is_null()) {
      figures.step_time_low = interval.at("step_time_low_s").number();
      figures.step_time_high = interval.at("step_time_high_s").number();
    }
  if (json.has("campaign")) whole_training(json.at("campaign"), figures);
  figures.bubble = json.at("bubble_fraction");
  figures.bubble_span = json.at("bubble_fraction_span");
  figures.speedup_one_device = json.at("speedup_over_one_device").number_or_null();
  figures.limiting_factor = json.at("limiting_factor").text();
  figures.fits = json.at("fits");
  if (!figures.fits) figures.shortfall = json.at("shortfall").at("reason").text();
  shares_of_time(json.at("workers").items(), figures);
  for (const JsonValue& stage : json.at("stages").items())
    figures.stages.push_back(stage_of(stage));
  for (const JsonValue& link : json.at("links").items())
    figures.links.push_back({link.at("name"), link.at("bytes"), link.at("utilization")});
  for (const JsonValue& part : json.at("critical_path").items())
    figures.critical_path.push_back({part.at("what"), part.at("time_s")});
  return figures;
}

}  // namespace

ResultFigures parse_result(const std::string& text, const std::string& file) {
  const Place place{file, 0, 0};
  const std::string way_out = "write one with pipewright simulate SCENARIO -o FILE.json";
  const Json json = parse_json(text, file, way_out);
  const auto schema = json.is_object() ? json.find("schema") : json.end();
  if (schema == json.end() || *schema != Json(std::string(kResultSchema)))
    throw InputError(place, fmt::format("is not a {} document; {}", kResultSchema, way_out));
  if (!json.contains("stages"))
    throw InputError(place, "has no figures: the plan did not fit; " + way_out + " --ignore-memory");
  return figures_of(JsonValue(json, file, fmt::format("this is not a whole {} document: {}", kResultSchema, way_out)));
}

}  // namespace pipewright::io
