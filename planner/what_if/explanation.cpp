#include "planner/what_if/explanation.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/answers/campaign.hpp"
#include "core/cost/framework_memory.hpp"
#include "core/model/graph.hpp"
#include "core/plan/given_schedule.hpp"
#include "core/question/memory_anchor.hpp"
#include "core/question/scenario.hpp"
#include "planner/bucket_size.hpp"
#include "planner/what_if/formulas.hpp"
#include "planner/what_if/references.hpp"
#include "planner/what_if/sensitivity.hpp"
#include "planner/what_if/speed_range.hpp"
#include "planner/what_if/spread.hpp"
#include "planner/what_if/variants.hpp"
#include "planner/words.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

// "memory of v100: 15.8 GiB (measured: ...), of it 1.31 GiB is reserved before the model gets any (assumed: ...)"; "":
// nothing is said of how that is known.
std::string memory_provenance(const Device& device) {
  const auto figure = [&](const char* key, Bytes bytes) {
    const auto how = device.provenances.find(key);
    if (how == device.provenances.end()) return std::string();
    const auto source = device.sources.find(key);
    return fmt::format("{} ({}{})", bytes_text(bytes), in_words(how->second),
                       source == device.sources.end() ? "" : ": " + source->second);
  };
  const std::string memory = figure("memory", device.memory), reserve = figure("reserve", device.reserve);
  if (memory.empty()) return "";
  return fmt::format("memory of {}: {}{}", device.name, memory,
                     reserve.empty() ? "" : ", of it " + reserve + " is reserved before the model gets any");
}

// "memory of communicators: 1.3 GiB: 2 groups of a device beyond the one that its reserve has, 656 MiB each (measured: ...)";
// "": they take none.
std::string communicators_text(const Answer& answer, const Scenario& scenario) {
  Bytes most;
  std::string text;
  for (StageId k = 0; k < answer.plan.stages; ++k) {
    const Bytes bytes = communicators(answer.plan, scenario, k);
    if (bytes <= most) continue;
    most = bytes;
    const Device& device = scenario.cluster.device_of(class_of_stage(answer.plan, scenario.cluster, k));
    const auto how = device.provenances.find("communicator");
    const auto source = device.sources.find("communicator");
    const std::int64_t groups = bytes.value / device.communicator.value;
    text = fmt::format(
        "memory of communicators: {}: {} group{} of a device{}, {} each{}", bytes_text(bytes), groups,
        groups == 1 ? "" : "s", correction_of(scenario).reserve ? "" : " beyond the one that its reserve has",
        bytes_text(device.communicator),
        how == device.provenances.end() ? ""
                                        : fmt::format(" ({}{})", in_words(how->second),
                                                      source == device.sources.end() ? "" : ": " + source->second));
  }
  return text;
}

// How the answer is known: where costs, model and hardware come from, which engine ran, what is not modelled.
std::vector<std::string> provenance(const Answer& answer, const CostModel& cost) {
  const Scenario& scenario = cost.scenario();
  const auto from = [](const std::string& what, const std::string& name, const std::string& source) {
    std::string line = what + ": " + (name.empty() ? "unnamed" : name);
    if (!source.empty()) line += " (" + source + ")";
    for (std::size_t at = line.find('\n'); at != std::string::npos; at = line.find('\n', at))
      line.replace(at, 1, "; ");
    return line;
  };
  const Cluster& cluster = scenario.cluster;
  std::vector<std::string> lines = {cost.source().provenance()};
  if (cluster.classes() > 1 && scenario.cost == CostSourceKind::Roofline)
    for (int c = 1; c < cluster.classes(); ++c)
      lines.push_back(cost.source(c).provenance());
  lines.push_back(from("model", scenario.model.name, scenario.model.source));
  lines.push_back(from("cluster", cluster.name, cluster.source));
  for (int c = 0; c < cluster.classes(); ++c)
    lines.push_back(from("device", cluster.device_of(c).name, cluster.device_of(c).source));
  for (int c = 0; c < cluster.classes(); ++c)
    if (std::string memory = memory_provenance(cluster.device_of(c)); !memory.empty())
      lines.push_back(std::move(memory));
  if (const std::string text = communicators_text(answer, scenario); !text.empty()) lines.push_back(text);
  if (const auto& correction = scenario.training.framework.correction) lines.push_back(correction->text);
  for (const DeviceClass& other : cluster.others)
    if (other.speed)
      lines.push_back(fmt::format("speed of {}: {} x that of {} where a layer states its times", other.device.name,
                                  *other.speed, cluster.device.name));
  if (scenario.plan.reserve_pipeline > Bytes{} && answer.plan.stages > 1)
    lines.push_back(from("reserve of the pipeline on every device", bytes_text(scenario.plan.reserve_pipeline),
                         scenario.plan.reserve_pipeline_source));
  if (!answer.plan.cut.empty()) lines.push_back(answer.plan.cut);
  if (const auto& given = answer.plan.given; given && given->file.empty())
    lines.push_back(fmt::format(
        "schedule: {} made its order for the times of this plan; most micro-batches in flight: {}",
        answer.plan.schedule, answer.plan.most_in_flight ? answer.plan.most_in_flight->value : answer.plan.stages));
  else if (given)
    lines.push_back(fmt::format("schedule: the order of {}{}", given->file,
                                given->derived == 0 ? ""
                                                    : fmt::format(" (of it {} actions about messages and sharding are "
                                                                  "left out: they follow from the order)",
                                                                  given->derived)));
  std::string engine = fmt::format("engine: {}", name(answer.timeline.engine));
  if (!answer.timeline.engine_reason.empty()) engine += " (" + answer.timeline.engine_reason + ")";
  lines.push_back(engine);
  if (const auto& steady = answer.report.steady)
    lines.push_back(steady->exact
                        ? fmt::format("steady state: a period of {} micro-batches, exact, found in a run of {} ({})",
                                      steady->micro_batches, steady->simulated, name(steady->engine))
                        : fmt::format("steady state: no period in a run of {} micro-batches ({}); averaged over "
                                      "its second half",
                                      steady->simulated, name(steady->engine)));
  const bool inside = cluster.links.kind != LinkKind::Ideal && cluster.links.latency == Time{};
  const bool between = cluster.network && !cluster.network->ideal && cluster.network->latency == Time{} &&
                       answer.plan.devices() > cluster.devices_per_node;
  const auto& products = cluster.device.efficiency[static_cast<std::size_t>(OperatorKind::MatrixProduct)];
  const bool by_size = scenario.cost == CostSourceKind::Roofline && products && products->tiles;
  const auto& corrected = scenario.training.framework.correction;
  const bool fragments = cluster.device.fragmentation > 0 || (corrected && corrected->fragmentation);
  lines.push_back(fmt::format("not modelled: data loading, {}{}{}{}",
                              by_size ? "" : "kernels that slow down at small micro-batches, ",
                              fragments ? "" : "memory fragmentation, ",
                              cluster.device.spread > 0 ? "devices that fall behind for a while" : "stragglers",
                              answer.plan.devices() == 1 || !(inside || between) ? ""
                              : inside && between ? ", latencies of links and network (0: none is stated)"
                              : inside            ? ", latency of links inside a node (0: none is stated)"
                                                  : ", latency between nodes (0: none is stated)"));
  return lines;
}

// A checkpoint holds whole steps: what is asked for, or the best, may be less than one. "": it is not.
std::string short_interval(const Scenario& scenario, const Report& report) {
  if (!scenario.campaign || !(report.step_time > Time{})) return "";
  const auto too_short = [&](Time interval, const std::string& what, const char* way_out) {
    if (interval >= report.step_time) return std::string();
    return fmt::format(
        "campaign.interval: {} of {:.4g} s is shorter than one step, {:.4g} s, and a checkpoint holds "
        "whole steps: no run can do what the goodput says; {}",
        what, seconds(interval), seconds(report.step_time), way_out);
  };
  if (scenario.campaign->interval)
    return too_short(*scenario.campaign->interval, "the time between two checkpoints",
                     "write a step or more, or leave it out for the best one");
  if (!report.campaign || !report.campaign->goodput) return "";
  return too_short(report.campaign->goodput->interval, "the best time between two checkpoints",
                   "write a step or more (--set campaign.interval=TIME)");
}

std::string more_than_peak(const Scenario& scenario) {
  bool filtered = false;
  for (int c = 0; c < scenario.cluster.classes(); ++c) {
    const auto& efficiency = scenario.cluster.device_of(c).efficiency;
    const auto& convolution = efficiency[static_cast<std::size_t>(OperatorKind::Convolution)];
    filtered |= convolution && convolution->tiles && scenario.training.precision == Precision::Fp32;
  }
  return filtered ? "MFU is above 100 %: FLOPs are counted as the textbook multiplies, and convolutions are priced by "
                    "Winograd's algorithm, which multiplies less"
                  : "MFU is above 100 %: the times are shorter than the device's peak FLOP rate allows; are they of "
                    "another device or precision?";
}

}  // namespace

std::vector<std::string> campaign_warnings(const Scenario& scenario, const Report& report) {
  std::vector<std::string> warnings;
  if (scenario.campaign && !scenario.campaign->length)
    warnings.push_back(
        "campaign: has no length, so nothing is reported of the whole training; write e.g. length: 300G tokens "
        "(--tokens 300G), or samples, or epochs");
  if (std::string warning = short_interval(scenario, report); !warning.empty()) warnings.push_back(std::move(warning));
  return warnings;
}

std::vector<std::string> scenario_warnings(const Scenario& scenario) {
  std::vector<std::string> warnings = campaign_warnings(scenario, {});
  if (std::string caution = expert_caution(scenario); !caution.empty()) warnings.push_back(std::move(caution));
  return warnings;
}

void add_warnings(Answer& answer, const CostModel& cost) {
  const Scenario& scenario = cost.scenario();
  Report& report = answer.report;
  for (std::string& warning : campaign_warnings(scenario, report))
    report.warnings.push_back(std::move(warning));
  for (const std::int64_t samples : {answer.plan.micro_batch_size, answer.plan.last_micro_batch_size}) {
    std::string caution = cost.source().caution(scenario.model, samples);
    if (!caution.empty() && (report.warnings.empty() || report.warnings.back() != caution))
      report.warnings.push_back(std::move(caution));
  }
  if (std::string caution = expert_caution(scenario); !caution.empty()) report.warnings.push_back(std::move(caution));
  std::int64_t pairs = 0;
  for (const Lane& lane : answer.schedule.positions)
    pairs += overlapped_cells(lane.compute);
  if (pairs > 0 && answer.plan.pairs.value == Pairs::Serial)
    report.warnings.push_back(
        fmt::format("{} cells of {} ask for two actions at a time (OVERLAP_F_B); they are priced one after the other, "
                    "so a real run may be faster; plan.pairs: fused prices them at once",
                    pairs, answer.plan.given ? answer.plan.given->file : answer.plan.schedule));
  for (std::string& line : options_without_effect(scenario, answer.plan))
    report.warnings.push_back(std::move(line));
  if (report.makespan == Time{})
    report.warnings.push_back(
        "no layer and no transfer takes any time, so throughput, bubble and speed-up say nothing; give the layers "
        "times, or FLOPs and cost: roofline");
  if (std::string larger = coarsened_buckets(answer.plan, scenario); !larger.empty())
    report.warnings.push_back(std::move(larger));
  if (report.mfu > 1) report.warnings.push_back(more_than_peak(scenario));
}

void explain(Answer& answer, const CostModel& cost, const std::string& order, Engine engine) {
  Report& report = answer.report;
  report.formulas = formulas(answer);
  add_references(answer, cost);
  SensitivityAnswer changes = sensitivity(answer, engine);
  report.sensitivity = std::move(changes.rows);
  if (!changes.skipped.empty()) report.warnings.push_back(changes.skipped);
  SpeedRangeAnswer range = speed_range(answer, engine);
  report.range = range.range;
  if (!range.caution.empty()) report.warnings.push_back(std::move(range.caution));
  report.campaign = whole_training(answer, engine);
  add_warnings(answer, cost);
  report.hints = hints(answer);
  report.provenance = provenance(answer, cost);
  if (!order.empty()) report.provenance.insert(report.provenance.begin() + 1, order);
}

}  // namespace pipewright::planner
