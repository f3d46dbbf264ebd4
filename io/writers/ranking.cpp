#include "io/writers/ranking.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/answers/campaign.hpp"
#include "core/answers/idle_devices.hpp"
#include "core/question/scenario.hpp"
#include "io/read/read_scenario.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/names.hpp"
#include "io/text/quote.hpp"
#include "io/writers/campaign_lines.hpp"
#include "io/writers/documents.hpp"
#include "io/writers/html.hpp"
#include "io/writers/interval_text.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/ranking_parts.hpp"
#include "io/writers/text_table.hpp"

namespace pipewright::io {

using namespace ranked;

namespace {

// Of the model, and of the best plan.
std::vector<std::string> warnings_of(const Ranking& ranking) {
  const Found& best = ranking.plans.front();
  std::vector<std::string> warnings = ranking.framework_warnings;
  warnings.insert(warnings.end(), best.report.warnings.begin(), best.report.warnings.end());
  if (std::string caution = expert_caution(*best.scenario); !caution.empty())
    warnings.insert(warnings.begin(), std::move(caution));
  if (best.report.mfu > 1)
    warnings.push_back("MFU is above 100 %, more than the peak allows: `pipewright simulate` of the plan says why");
  return warnings;
}

// What limits each plan, and why layouts were left out.
std::string explained(const Ranking& ranking, int width) {
  std::string text = "\nbottleneck of each plan; rejected layouts (-)\n";
  for (std::size_t i = 0; i < ranking.plans.size(); ++i)
    text += wrapped(fmt::format("  {:<3} ", i + 1),
                    fmt::format("{}, {}: {}", in_words(ranking.plans[i].layout),
                                recompute_in_words(ranking.plans[i].plan), ranking.plans[i].report.limiting_factor),
                    width);
  const auto counted = [](std::int64_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  for (const auto& [reason, count] : ranking.left_out)
    text += wrapped("  -   ", counted(count, "combination") + ": " + reason, width);
  for (const auto& [reason, count] : ranking.refused)
    text += wrapped("  -   ", counted(count, "layout") + ": " + reason, width);
  text += wrapped("  ",
                  fmt::format("Optimal means: over contiguous cuts of the model's layers in {}, for the values that "
                              "the open fields may take, under the simulator's cost model",
                              ranking.order.empty() ? "their order" : "any of their orders"),
                  width);
  return text;
}

// Of plans that differ in keys that are no part of a layout.
bool searches_switches(const Ranking& ranking) {
  return std::ranges::any_of(ranking.plans, [](const Found& found) { return !found.switches.empty(); });
}
std::string switches_in_words(const Ranking& ranking) {
  std::string text;
  for (const std::string& key : switches_of(ranking.plans))
    text += (text.empty() ? "plan." : ", plan.") + key;
  return text;
}

void write_layout(JsonFields& json, const Layout& layout) {
  json.field("tensor_parallel", layout.tensor_parallel).field("sequence_parallel", layout.sequence_parallel);
  json.when(layout.context_parallel > 1, "context_parallel", layout.context_parallel);
  json.when(layout.expert_parallel > 1, "expert_parallel", layout.expert_parallel);
  json.field("stages", layout.stages).field("virtual_stages", layout.virtual_stages);
  json.field("data_parallel", layout.data_parallel).field("schedule", layout.schedule);
  json.field("micro_batch_size", layout.micro_batch_size).field("micro_batches", layout.micro_batches);
  json.field("zero", layout.zero);
  json.when(layout.shard > 0, "data_parallel_shard", layout.shard);
  json.field("placement", layout.placement);
}

const char* name_of(Objective objective) {
  switch (objective) {
    case Objective::Throughput: return "throughput";
    case Objective::StepTime: return "step_time";
    case Objective::Cost: return "cost";
    case Objective::Memory: return "memory";
  }
  return "";
}

void write_asked(JsonFields& json, const Scenario& asked, Objective objective) {
  std::vector<std::string_view> all;
  for (const Objective each : {Objective::Throughput, Objective::StepTime, Objective::Cost, Objective::Memory})
    all.emplace_back(name_of(each));
  json.field("scenario", asked.name).word("objective", name_of(objective), all);
}

void write_plans(JsonFields& json, const char* key, const std::vector<Found>& plans) {
  json.list(key, plans, [&](const Found& found) { write_plan(json, found); });
}

void write_none(JsonFields& json, const NoPlanYet& none, const Scenario& asked, Objective objective) {
  write_asked(json, asked, objective);
  json.field("ended", name(none.ended));
  write_plans(json, "plans", {});
  json.object("searched", [&] { json.field("layouts", none.layouts).field("not_reached", none.not_reached); });
  json.field("notes", none.details);
}

void write_ranking(JsonFields& json, const Ranking& ranking, const Scenario& asked) {
  write_asked(json, asked, ranking.objective);
  json.field("bound", ranking.bound).field("gap", ranking.gap()).field("proven", [&] { return ranking.proven(); });
  json.field("layer_order", ranking.order);
  json.field("framework", ranking.framework).field("restricted", ranking.restricted);
  json.field("fit", asked.plan.fit > 0 ? std::optional(asked.plan.fit) : std::nullopt);
  json.field("ended", name(ranking.ended))
      .field("gap_left", ranking.gap_left)
      .field("idle_devices", ranking.idle_devices);
  json.field("unused_classes", [&] { return unused_classes(ranking.plans.front().plan, asked.cluster); });
  json.field("warnings", [&] { return warnings_of(ranking); });
  write_plans(json, "plans", ranking.plans);
  write_plans(json, "pareto", ranking.pareto);
  json.object("searched", [&] {
    json.field("layouts", ranking.layouts).field("simulated", ranking.evaluated);
    json.field("simulations", ranking.simulations).field("cuts_searched", ranking.refined);
    json.field("bounded", ranking.bounded).field("too_large", ranking.too_large);
    json.field("within_gap", ranking.within_gap).field("no_cut", ranking.no_cut);
    json.field("not_reached", ranking.not_reached).field("left_out", ranking.left_out);
    json.field("refused", ranking.refused).field("not_simulated", ranking.not_simulated);
  });
  json.maybe("nearest_miss", ranking.nearest_miss, [&](const NearestMiss& miss) {
    write_layout(json, miss.layout);
    json.field("need_bytes", miss.need).field("capacity_bytes", miss.capacity).field("stage", miss.stage);
  });
  json.list("flips", ranking.flips, [&](const Flip& flip) {
    json.field("what", flip.what).field("bytes_per_s", flip.at).field("below", flip.below).field("gain", flip.gain);
    json.object("plan", [&] { write_layout(json, flip.plan); });
  });
}

}  // namespace

std::string ranking_text(const Ranking& ranking, const Scenario& asked, const RankingText& options) {
  const int width = options.table.width;
  const Found& best = ranking.plans.front();
  std::string head_line =
      fmt::format("{} · {} ({} layers) on {}{}", asked.name, asked.model.name, asked.model.layers.size(),
                  asked.cluster.devices_in_words(), asked.cluster.name.empty() ? "" : " (" + asked.cluster.name + ")");
  if (const std::string idle = idle_devices_in_words(best.plan, asked.cluster); !idle.empty())
    head_line += " · in the best plan " + idle;
  std::string text = wrapped("", head_line, width);
  text += text_table(columns(ranking.plans), width) + "\n";
  // The label stands before the first of them.
  const auto lines = [&](std::string_view label, const std::vector<std::string>& all) {
    for (const std::string& each : all)
      text += wrapped(fmt::format("{:<14}", std::exchange(label, "")), each, width);
  };
  std::string chosen = in_words(best.layout) + ", " + recompute_in_words(best.plan);
  for (const auto& [key, value] : best.switches)
    chosen += fmt::format(", {}: {}", key, value);
  if (replicas_text(best.plan) != "-") chosen += ", replicas " + replicas_text(best.plan);
  if (several_classes(best))
    chosen += fmt::format(", on class {} ({})", classes_text(best), class_names(asked.cluster));
  lines("best plan", {chosen, layers_text(best.plan)});
  if (!ranking.order.empty()) lines("layer order", {ranking.order});
  lines("optimality", {quality(ranking)});
  std::vector<std::string> restricted = ranking.restricted;
  if (!restricted.empty()) restricted.front().insert(0, ranking.framework + " alone: ");
  lines("searched for", restricted);
  if (const auto& range = best.report.range)
    lines("step time", {fmt::format("{} s ({})", seconds_text(best.report.step_time),
                                    within_90(seconds_text(range->fastest), seconds_text(range->slowest)))});
  for (const auto& [label, line] : interval_lines(best.report))
    lines(label, {line});
  lines("memory", {memory_text(best, Sizes(asked))});
  lines("limited by", {best.report.limiting_factor});
  const bool beside_late_copies = best.report.steady && std::ranges::any_of(ranking.plans, [](const Found& found) {
                                    return found.plan.stages == 1;
                                  });
  if (beside_late_copies)
    lines("note", {"copies of one stage update one round late here, next to their computation; `simulate` compares "
                   "with data parallelism that waits for its gradients, which is slower"});
  const bool one_batch = std::ranges::all_of(
      ranking.plans, [&](const Found& found) { return found.plan.global_batch_size == best.plan.global_batch_size; });
  if (!one_batch)
    lines("batch", {"the plans have different global batches (GBS); training.global_batch_size would hold it"});
  lines("searched", tried(ranking));
  std::vector<std::string> flips;
  for (const Flip& flip : ranking.flips)
    flips.push_back(flip_text(flip));
  for (const Unmoved& range : ranking.unmoved)
    flips.push_back(
        fmt::format("none for a {} from {} to {}", range.what, short_bandwidth(range.from), short_bandwidth(range.to)));
  if (options.explain && ranking.ended != Ended::No)
    flips.push_back("not looked for: " + ended_text(ranking));
  else if (options.explain && !ranking.order.empty())
    flips.push_back("not looked for with plan.order: graph; write the plan with -o and ask that one");
  else if (options.explain && searches_switches(ranking))
    flips.push_back("not looked for while " + switches_in_words(ranking) +
                    " may change; write the plan with -o and ask that one");
  lines("flips", flips);
  if (options.explain) text += explained(ranking, width);
  for (const std::string& warning : warnings_of(ranking))
    text += "\n" + wrapped("warning: ", warning, width);
  if (!ranking.pareto.empty()) {
    text += fmt::format("\nof the plans that were looked at, not beaten in all of {}\n",
                        fmt::join(ranking.pareto_axes, ", "));
    text += text_table(columns(ranking.pareto), width);
  }
  return text;
}

void ranked::write_plan(JsonFields& json, const Found& found) {
  const Plan& plan = found.plan;
  const Report& report = found.report;
  write_layout(json, found.layout);
  json.when(!found.switches.empty(), [&] {
    json.list("switches", found.switches,
              [&](const auto& each) { json.field("key", "plan." + each.first).field("value", each.second); });
  });
  json.field("devices", plan.devices()).field("global_batch_size", plan.global_batch_size);
  json.list("layers", plan.uncut(), [](const LayerRange& range) { return range.size(); });
  json.field("order", [&] { return found.scenario->model.order; }).field("replicas", plan.replicas);
  json.when(found.scenario && several_classes(found),
            [&] { json.field("classes", [&] { return classes_of(found); }); });
  json.field("recompute", plan.recompute);
  json.when(!plan.rebuilt.empty(), "rebuilt_layers", plan.rebuilt);
  json.field("step_time_s", report.step_time).field("samples_per_s", report.samples_per_s);
  json.field("tokens_per_s", report.tokens_per_s).field("mfu", report.mfu).field("hfu", report.hfu);
  json.field("tokens_per_s_per_device", [&] { return tokens_per_s_per_device(found); });
  json.field("tflops_per_device", [&] { return tflops_per_device(found); });
  const Fullest device = found.scenario ? fullest(found) : Fullest{};
  json.field("bubble_fraction", report.bubble_fraction).field("peak_bytes", device.need);
  json.field("capacity_bytes", device.capacity);
  json.when(device.fit > 0, "to_fit_bytes", device.to_fit);
  json.field("fit_probability", [&] { return fit_probability(found); }).field("value", found.value);
  json.field("limiting_factor", report.limiting_factor);
  const auto whole = found.scenario ? campaign(*found.scenario, plan, report) : std::nullopt;
  write_campaign(json, whole ? &*whole : nullptr, report);
}

std::string no_plan_text(const NoPlanYet& none) {
  std::string text = in_words(none) + "\n";
  for (const std::string& line : none.details)
    text += "  " + line + "\n";
  return text + (none.ended == Ended::Interrupted ? "a longer wait" : "a longer --time-limit") +
         " looks further; fewer fields left open make the search shorter\n";
}

constinit const JsonDocument kRankingDocument{"pipewright.ranking/1",
                                              [](JsonFields& json) { write_ranking(json, {}, {}); },
                                              [](JsonFields& json) { write_none(json, {}, {}, {}); }};

std::string no_plan_json(const NoPlanYet& none, const Scenario& asked, Objective objective) {
  return kRankingDocument.text([&](JsonFields& json) { write_none(json, none, asked, objective); });
}

std::string ranking_json(const Ranking& ranking, const Scenario& asked) {
  return kRankingDocument.text([&](JsonFields& json) { write_ranking(json, ranking, asked); });
}

std::string ranking_csv(const Ranking& ranking) {
  std::string text =
      "rank,devices,global_batch_size,micro_batch_size,micro_batches,tensor_parallel,stages,virtual_stages,data_"
      "parallel,schedule,recompute,zero,placement,step_time_s,samples_per_s,tokens_per_s,mfu,bubble_fraction,peak_"
      "bytes,capacity_bytes,layers,replicas,classes";
  const bool asked = whole_training(ranking.plans.front()).days.has_value();
  const bool contexts =
      std::ranges::any_of(ranking.plans, [](const Found& found) { return found.layout.context_parallel > 1; });
  const bool experts =
      std::ranges::any_of(ranking.plans, [](const Found& found) { return found.layout.expert_parallel > 1; });
  if (contexts) text += ",context_parallel";
  const std::vector<std::string> switched = switches_of(ranking.plans);
  for (const std::string& key : switched)
    text += "," + key;
  if (experts) text += ",expert_parallel";
  const bool shards = std::ranges::any_of(ranking.plans, [](const Found& found) { return found.layout.shard > 0; });
  if (shards) text += ",data_parallel_shard";
  text += asked ? ",days,device_hours,cost,energy_kwh,goodput\n" : "\n";
  for (std::size_t i = 0; i < ranking.plans.size(); ++i) {
    const Found& found = ranking.plans[i];
    const Layout& layout = found.layout;
    std::string layers;
    for (const LayerRange& range : found.plan.uncut())
      layers += (layers.empty() ? "" : " ") + std::to_string(range.size());
    text += fmt::format(
        "{},{},{},{},{},{},{},{},{},{},{},{},{},{:.9f},{},{},{},{},{},{},{},{},{}", i + 1, found.plan.devices(),
        found.plan.global_batch_size, layout.micro_batch_size, layout.micro_batches, layout.tensor_parallel,
        layout.stages, layout.virtual_stages, layout.data_parallel, layout.schedule, short_recompute(found.plan),
        layout.zero, layout.placement == PlacementOrder::Data ? "data" : "pipeline", seconds(found.report.step_time),
        found.report.samples_per_s, figure(found.report.tokens_per_s, "{}"), figure(found.report.mfu, "{}"),
        found.report.bubble_fraction, fullest(found).need.value, fullest(found).capacity.value, csv_field(layers),
        fmt::join(found.plan.replicas, " "), fmt::join(classes_of(found), " "));
    if (contexts) text += fmt::format(",{}", layout.context_parallel);
    for (const std::string& key : switched)
      text += "," + value_of_switch(found, key);
    if (experts) text += fmt::format(",{}", layout.expert_parallel);
    if (shards)
      text += layout.zero == 0 ? "," : fmt::format(",{}", layout.shard > 0 ? layout.shard : layout.data_parallel);
    const Figures whole = whole_training(found);
    if (asked)
      for (const auto& value : {whole.days, whole.device_hours, whole.cost, whole.energy_kwh, whole.goodput})
        text += value ? fmt::format(",{}", *value) : ",";
    text += "\n";
  }
  return text;
}

std::string ranking_markdown(const Ranking& ranking) {
  std::string text = markdown_table(columns(ranking.plans));
  text += "\n" + markdown_text(quality(ranking)) + "\n";
  const Fullest device = fullest(ranking.plans.front());
  if (device.fit > 0)
    text +=
        "\nMemory: " + markdown_text(memory_text(ranking.plans.front(), Sizes(*ranking.plans.front().scenario))) + "\n";
  else if (const std::string tight = tight_memory(ranking.plans.front().report); !tight.empty())
    text += "\n" + tight + "\n";
  for (const std::string& warning : warnings_of(ranking))
    text += "\nWarning: " + markdown_text(warning) + "\n";
  return text;
}

std::string plan_yaml(const Ranking& ranking, const Found& found, const Scenario& asked, const std::string& command) {
  std::string text = comment("Found by: " + command) +
                     comment("From: " + (asked.file == "-" ? "standard input" : asked.file)) +
                     comment(quality(ranking));
  const Sizes sizes(*found.scenario);
  text += comment(fmt::format("Predicted: step {} s, {:.4g} samples/s, bubble {:.1f} %, peak {} of {}",
                              seconds_text(found.report.step_time), found.report.samples_per_s,
                              100 * found.report.bubble_fraction, sizes(fullest(found).need),
                              sizes.with_unit(fullest(found).capacity)));
  // Not "default": where `plan` put a value, the comment beside it says so.
  Scenario scenario = *found.scenario;
  const Place chosen = {"chosen by plan", 0, 0};
  for (const auto& [section, open] : {std::pair{"plan.", &asked.plan.open}, {"training.", &asked.training.open}})
    for (const auto& [key, field] : *open)
      scenario.origins[section + key] = chosen;
  scenario.origins.try_emplace("training.global_batch_size", chosen);
  if (asked.plan.order.value.unsettled()) scenario.origins["plan.order"] = chosen;
  return text + resolved_yaml(scenario);
}

}  // namespace pipewright::io
