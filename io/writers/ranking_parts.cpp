#include "io/writers/ranking_parts.hpp"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "core/answers/campaign.hpp"
#include "core/cost/low_precision.hpp"
#include "core/folds.hpp"
#include "io/text/names.hpp"
#include "io/writers/campaign_lines.hpp"

namespace pipewright::io::ranked {
namespace {

// What a device is called in a head: a TPU or a processor's core is no GPU.
bool is_gpu(const Device& device) {
  return !device.name.starts_with("tpu") && !device.name.starts_with("xeon");
}

std::string in_unit_of(const Ranking& ranking, double value) {
  switch (ranking.objective) {
    case Objective::Throughput: return fmt::format("{:.4g} samples/s", value > 0 ? 1 / value : 0);
    case Objective::StepTime: return fmt::format("{:.4g} s per step", value);
    case Objective::Cost: {
      const bool money = price_per_hour(*ranking.plans.front().scenario, 0).has_value();
      return fmt::format("{:.4g} {}per sample", value, money ? "" : "device seconds ");
    }
    case Objective::Memory: return short_bytes(Bytes{static_cast<std::int64_t>(value)});
  }
  return "";
}

}  // namespace

// Of all stages in one word, where they agree; "3 layers" where some layers repeat their forward and nothing else does.
std::string short_recompute(const Plan& plan) {
  const auto& all = plan.recompute;
  const auto by_layers = [](Recompute mode) { return mode == Recompute::None || mode == Recompute::Layers; };
  if (!plan.rebuilt.empty() && std::ranges::all_of(all, by_layers))
    return fmt::format("{} layer{}", plan.rebuilt.size(), plan.rebuilt.size() == 1 ? "" : "s");
  if (std::ranges::adjacent_find(all, std::not_equal_to<>()) != all.end()) return "mixed";
  return std::string(name(all.front()));
}

// "15-1", or "-" where no stage has a replica.
std::string replicas_text(const Plan& plan) {
  if (std::ranges::all_of(plan.replicas, [](int r) { return r == 1; })) return "-";
  return fmt::format("{}", fmt::join(plan.replicas, "-"));
}

bool several_classes(const Found& found) {
  return found.scenario->cluster.classes() > 1;
}

Fullest fullest(const Found& found) {
  const Cluster& cluster = found.scenario->cluster;
  auto fit = most_over<double>(found.report.stages, [](const StageReport& stage) { return stage.need.fit; });
  if (!several_classes(found)) return {found.peak, found.peak_high, cluster.device.memory, found.to_fit, fit};
  std::optional<Fullest> most;
  for (const StageReport& stage : found.report.stages) {
    const Bytes memory = cluster.device_of(class_of_stage(found.plan, cluster, stage.stage)).memory;
    if (!most || memory - stage.need.to_fit < most->capacity - most->to_fit)
      most = Fullest{stage.need.with_reserve, stage.need.high, memory, stage.need.to_fit, fit};
  }
  return most.value_or(Fullest{});
}

std::optional<double> tflops_per_device(const Found& found) {
  const Scenario& scenario = *found.scenario;
  const auto peak = scenario.cluster.device.peak.find(rated_precision(scenario));
  if (several_classes(found)) return std::nullopt;  // of whose peak?
  if (!found.report.mfu || peak == scenario.cluster.device.peak.end()) return std::nullopt;
  return *found.report.mfu * peak->second.value * 1e-12;
}

std::optional<double> tokens_per_s_per_device(const Found& found) {
  if (!found.report.tokens_per_s) return std::nullopt;
  return *found.report.tokens_per_s / found.plan.devices();
}

std::optional<double> fit_probability(const Found& found) {
  if (found.scenario->model.works.empty()) return std::nullopt;
  return core::fit_probability(found.report);
}

std::string memory_text(const Found& found, const Sizes& sizes) {
  const Fullest device = fullest(found);
  std::string text = fmt::format("{} of {} on the fullest device, {} left", sizes(device.need),
                                 sizes.with_unit(device.capacity), sizes.with_unit(device.capacity - device.need));
  if (found.scenario->training.framework.correction) text += ", anchored on a measured run";
  const double asked = found.scenario->plan.fit;
  if (device.fit > 0)
    text += fmt::format("; fits with {}: needs up to {} of {}", fit_text(device.fit), sizes(device.to_fit),
                        sizes.with_unit(device.capacity));
  else if (asked > 0.5 && !fit_probability(found))
    text += fmt::format("; fits with {}: the layers state what they hold, so that there is no range", fit_text(asked));
  else if (device.high > device.capacity)
    text += fmt::format("; tight: frameworks differ, and real use may reach {} ({:.0f} % chance to fit)",
                        sizes.with_unit(device.high), 100 * fit_probability(found).value_or(1));
  return text;
}

// By stage.
std::vector<int> classes_of(const Found& found) {
  return mapped<int>(counted_to(found.plan.stages),
                     [&](StageId k) { return class_of_stage(found.plan, found.scenario->cluster, k); });
}

// "0-0-1"
std::string classes_text(const Found& found) {
  return fmt::format("{}", fmt::join(classes_of(found), "-"));
}

// "class 0: 8 x a100-sxm-80g, class 1: 8 x v100-sxm2-32g"
std::string class_names(const Cluster& cluster) {
  std::string text;
  for (int c = 0; c < cluster.classes(); ++c)
    text += fmt::format("{}class {}: {} x {}", c > 0 ? ", " : "", c, cluster.nodes_of(c) * cluster.devices_per_node,
                        cluster.device_of(c).name);
  return text;
}

std::string figure(const std::optional<double>& value, const char* form) {
  return value ? fmt::format(fmt::runtime(form), *value) : "-";
}

std::string seconds_text(Time time) {
  const double s = seconds(time);
  return s >= 100 ? fmt::format("{:.1f}", s) : fmt::format("{:.4g}", s);
}

Figures whole_training(const Found& found) {
  const auto whole = campaign(*found.scenario, found.plan, found.report);
  if (!whole) return {};
  Figures figures{whole->days(), whole->device_hours, whole->cost, {}, {}};
  if (whole->energy) figures.energy_kwh = whole->energy->value / 3.6e6;
  if (whole->goodput) figures.goodput = whole->goodput->formula;
  return figures;
}

std::vector<std::string> switches_of(const std::vector<Found>& plans) {
  std::vector<std::string> keys;
  for (const Found& found : plans)
    for (const auto& [key, value] : found.switches)
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
  return keys;
}

std::string value_of_switch(const Found& found, const std::string& key) {
  for (const auto& [own, value] : found.switches)
    if (own == key) return value;
  return "-";
}

std::vector<TextColumn> columns(const std::vector<Found>& plans) {
  const Sizes sizes(*plans.front().scenario);
  const bool classes = std::ranges::any_of(plans, several_classes);
  const bool gpus = is_gpu(plans.front().scenario->cluster.device);
  const std::string each = gpus ? "/GPU" : "/device";
  struct Row {
    const Found& found;
    const Layout& layout;
    Fullest device;
    Figures whole;
  };
  std::vector<Row> rows;
  for (const Found& found : plans)
    rows.push_back({found, found.layout, fullest(found), whole_training(found)});
  std::vector<TextColumn> all;
  const auto add = [&](TextColumn column, const auto& cell) {
    for (const Row& row : rows)
      column.cells.push_back(cell(row));
    all.push_back(std::move(column));
  };
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  const auto above_1 = [](std::int64_t value) { return value > 1 ? std::to_string(value) : "-"; };
  const auto percent_of = [](std::optional<double> share) { return share ? fmt::format("{:.1f}", 100 * *share) : "-"; };
  add({"#"}, [&](const Row& row) { return number(&row - rows.data() + 1); });
  add({gpus ? "GPUs" : "devices"}, [&](const Row& row) { return number(row.found.plan.devices()); });
  add({"GBS"}, [&](const Row& row) { return number(row.found.plan.global_batch_size); });
  add({"MBS"}, [&](const Row& row) { return number(row.layout.micro_batch_size); });
  add({.head = "Seq", .drop_zero = true}, [](const Row& row) {
    const auto tokens = row.found.scenario->training.sequence_length;
    return tokens ? std::to_string(*tokens) : "-";
  });
  add({"TP"}, [&](const Row& row) { return number(row.layout.tensor_parallel); });
  add({.head = "CP", .drop_zero = true}, [&](const Row& row) { return above_1(row.layout.context_parallel); });
  add({.head = "EP", .drop_zero = true}, [&](const Row& row) { return above_1(row.layout.expert_parallel); });
  add({"PP"}, [&](const Row& row) { return number(row.layout.stages); });
  add({.head = "VP", .drop_zero = true}, [&](const Row& row) { return above_1(row.layout.virtual_stages); });
  add({"DP"}, [&](const Row& row) { return number(row.layout.data_parallel); });
  add({.head = "replicas", .left = true, .drop_zero = true},
      [](const Row& row) { return replicas_text(row.found.plan); });
  add({.head = "class", .left = true, .drop_zero = true},
      [&](const Row& row) { return classes ? classes_text(row.found) : "-"; });
  add({.head = "schedule", .left = true}, [](const Row& row) { return row.layout.schedule; });
  add({.head = "recompute", .left = true}, [](const Row& row) { return short_recompute(row.found.plan); });
  add({.head = "ZeRO", .drop_zero = true}, [&](const Row& row) {
    return row.layout.shard > 0 ? fmt::format("{} by {}", row.layout.zero, row.layout.shard) : number(row.layout.zero);
  });
  for (const std::string& key : switches_of(plans))
    add({.head = key, .left = true}, [&](const Row& row) { return value_of_switch(row.found, key); });
  add({"step s"}, [](const Row& row) { return seconds_text(row.found.report.step_time); });
  add({"samples/s"}, [](const Row& row) { return fmt::format("{:.4g}", row.found.report.samples_per_s); });
  add({.head = "tok/s" + each, .drop_zero = true},
      [](const Row& row) { return figure(tokens_per_s_per_device(row.found), "{:.0f}"); });
  add({.head = "TFLOP/s" + each, .drop_zero = true},
      [](const Row& row) { return figure(tflops_per_device(row.found), "{:.0f}"); });
  add({.head = "MFU %", .drop_zero = true}, [&](const Row& row) { return percent_of(row.found.report.mfu); });
  add({"bubble %"}, [&](const Row& row) { return percent_of(row.found.report.bubble_fraction); });
  add({"peak " + sizes.unit()}, [&](const Row& row) { return sizes(row.device.need); });
  add({"left " + sizes.unit()}, [&](const Row& row) { return sizes(row.device.capacity - row.device.need); });
  add({.head = "days", .drop_zero = true}, [](const Row& row) { return figure(row.whole.days, "{:.4g}"); });
  add({.head = "cost", .drop_zero = true},
      [](const Row& row) { return row.whole.cost ? money_text(*row.whole.cost) : "-"; });
  add({.head = "goodput %", .drop_zero = true}, [&](const Row& row) { return percent_of(row.whole.goodput); });
  return all;
}

// Why the search ended before it was through, and what the reader can do about it.
std::string ended_text(const Ranking& ranking) {
  if (ranking.ended == Ended::Interrupted) return "an interrupt (Ctrl-C or SIGTERM) ended the search";
  return "the time limit ended the search; a longer --time-limit looks further";
}

// "optimal within the model" or how far from it the plan may be.
std::string quality(const Ranking& ranking) {
  const double best = ranking.plans.front().value;
  const char* better = ranking.objective == Objective::Throughput ? "faster" : "better";
  const std::string why = ranking.ended != Ended::No  ? "; " + ended_text(ranking)
                          : !ranking.gap_left.empty() ? "; what is left: " + ranking.gap_left
                                                      : "";
  if (ranking.bound <= 0)
    return fmt::format("{}; how much better another plan could be is not known", in_unit_of(ranking, best)) + why;
  if (ranking.proven())
    return fmt::format("optimal within the model: {}, and no plan in the search space is {}", in_unit_of(ranking, best),
                       better);
  constexpr double kShown = 5e-5;  // of two decimals of a percent
  const std::string gap = ranking.gap() < kShown ? "gap below 0.01 %"
                          : ranking.gap() >= 9   ? fmt::format("gap of a factor of {:.0f}", 1 + ranking.gap())
                                                 : fmt::format("gap {:.2f} %", 100 * ranking.gap());
  return fmt::format("{}: {}, and no plan in the search space can be {} than {}", gap, in_unit_of(ranking, best),
                     better, in_unit_of(ranking, ranking.bound)) +
         why;
}

// "layers 11 10 10 10": per stage, or chunk by chunk.
std::string layers_text(const Plan& plan) {
  std::string text = plan.virtual_stages > 1 ? "layers per chunk" : "layers per stage";
  const std::vector<LayerRange> layers = plan.uncut();
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i;
    while (end < layers.size() && layers[end].size() == layers[i].size())
      ++end;
    text += end - i > 2 ? fmt::format(" {}*{}", layers[i].size(), end - i) : "";
    for (std::size_t j = i; end - i <= 2 && j < end; ++j)
      text += fmt::format(" {}", layers[j].size());
    i = end;
  }
  return text;
}

std::vector<std::string> tried(const Ranking& ranking) {
  std::vector<std::string> lines;
  std::string text =
      fmt::format("{} layout{}: {} simulated ({} simulation{}", ranking.layouts, ranking.layouts == 1 ? "" : "s",
                  ranking.evaluated, ranking.simulations, ranking.simulations == 1 ? "" : "s");
  if (ranking.refined > 0) text += fmt::format(", cuts of {} searched", ranking.refined);
  text += fmt::format("), {} pruned by bound, {} {} not fit", ranking.bounded, ranking.too_large,
                      ranking.too_large == 1 ? "does" : "do");
  std::int64_t refused = 0;
  for (const auto& [reason, count] : ranking.refused)
    refused += count;
  if (refused > 0) text += fmt::format(", {} refused", refused);
  if (ranking.within_gap > 0)
    text += fmt::format(", {} may be better by less than the gap asked for", ranking.within_gap);
  if (ranking.no_cut > 0) text += fmt::format(", of {} no cut was found that fits", ranking.no_cut);
  if (ranking.not_reached > 0) text += fmt::format(", {} not looked at", ranking.not_reached);
  lines.push_back(text);
  for (const auto& [reason, count] : ranking.not_simulated)
    lines.push_back(fmt::format("{} not simulated, their bounds are in the one above: {}", count, reason));
  if (ranking.nearest_miss) {
    const NearestMiss& miss = *ranking.nearest_miss;
    const Sizes sizes(*ranking.plans.front().scenario);
    lines.push_back(fmt::format("nearest miss: {} needs {}{}{} on stage {}, {} too much", in_words(miss.layout),
                                miss.at_least ? "at least " : "", sizes.with_unit(miss.need),
                                miss.fit > 0 ? " to fit with " + fit_text(miss.fit) : "", miss.stage,
                                sizes.with_unit(miss.need - miss.capacity)));
  }
  return lines;
}

std::string flip_text(const Flip& flip) {
  return fmt::format("{} {} {}: {} is better ({:.2f}x at {})", flip.what, flip.below ? "below" : "above",
                     short_bandwidth(flip.at), in_words(flip.plan), flip.gain,
                     short_bandwidth(Bandwidth{flip.at.value * (flip.below ? 0.5 : 2)}));
}

}  // namespace pipewright::io::ranked
