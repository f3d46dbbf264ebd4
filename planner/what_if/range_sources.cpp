#include "planner/what_if/range_sources.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/cluster/bands.hpp"
#include "core/cluster/measured_device.hpp"
#include "core/cost/low_precision.hpp"
#include "core/cost/measured_times.hpp"
#include "core/question/profile.hpp"

namespace pipewright::planner {
namespace {

constexpr std::array<std::string_view, kOperatorKinds> kKindWords = {
    "matrix products",      "convolutions",
    "grouped convolutions", "attention",
    "recurrent layers",     "operators that move bytes",
    "products in fp8",      "products in fp8, by blocks",
    "products in fp4",      "permutations of tokens"};

std::string known(double band, Provenance provenance) {
  return fmt::format("+-{:.4g} %, {}", 100 * band, in_words(provenance));
}

// Of a band that stands under `key`, or that nobody states.
std::string known(const std::optional<double>& band, double assumed, const std::map<std::string, Provenance>& of,
                  const std::string& key) {
  const auto found = of.find(key);
  return known(band.value_or(assumed), band && found != of.end() ? found->second : Provenance::Assumed);
}

std::array<bool, kOperatorKinds> kinds_of(const Scenario& scenario) {
  std::array<bool, kOperatorKinds> used{};
  used[at(OperatorKind::Memory)] = true;  // the update, too
  const LowPrecisionRule* const low = low_precision(scenario.training);
  for (const Work& work : scenario.model.works)
    for (const Operator& each : work.operators) {
      used[at(each.kind)] = true;
      if (each.sent.tokens > 0) used[at(OperatorKind::Permutation)] = true;
      if (low && low_precision_product(each)) used[at(low->kind)] = true;
    }
  return used;
}

Device& device_of(Cluster& cluster, int device_class) {
  return device_class == 0 ? cluster.device : cluster.others[at(device_class - 1)].device;
}

struct KnownBand {
  double band = 0;
  Provenance provenance = Provenance::Assumed;
};

// The attention kernel of an operator, as core/cost/sources/roofline.cpp takes it; nullptr: it takes the share.
const AttentionKernel* kernel_of(const Efficiency& efficiency, const Operator& op, const Training& training) {
  const bool halves = training.precision == Precision::Fp16 || training.precision == Precision::Bf16;
  if (!halves || efficiency.kernels.empty() || op.attention.heads <= 0) return nullptr;
  return attention_kernel(efficiency.kernels, training.attention_kernel.value_or(efficiency.kernels.front().kernel),
                          (op.attention.key_size + op.attention.value_size) / 2);
}

// The widest band of what prices the operators of one kind.
KnownBand widest(const Efficiency& stated, OperatorKind kind, const Scenario& scenario) {
  if (stated.kernels.empty()) return {stated.band, stated.provenance};
  KnownBand widest{-1};
  for (const Work& work : scenario.model.works)
    for (const Operator& op : work.operators) {
      if (op.kind != kind) continue;
      const AttentionKernel* const kernel = kernel_of(stated, op, scenario.training);
      const double band = kernel ? kernel->band.value_or(stated.band) : stated.band;
      if (band > widest.band) widest = {band, kernel ? kernel->provenance : stated.provenance};
    }
  return widest;
}

void add_kinds(std::vector<RangeSource>& sources, const Scenario& scenario, int c) {
  const Device& device = scenario.cluster.device_of(c);
  const auto used = kinds_of(scenario);
  for (std::size_t kind = 0; kind < used.size(); ++kind) {
    const auto& stated = device.efficiency[kind];
    if (!used[kind] || !stated) continue;
    const auto [band, provenance] = widest(*stated, static_cast<OperatorKind>(kind), scenario);
    if (band <= 0) continue;
    sources.push_back({fmt::format("{} on {}", kKindWords[kind], device.name), known(band, provenance),
                       "calibrate --backend cuda on such a device", [c, kind](Scenario& changed, double place) {
                         move(*device_of(changed.cluster, c).efficiency[kind], place);
                       }});
  }
}

// Operations of the model, and its update, that the device was measured with.
std::set<std::string> operations_of(const Scenario& scenario, const MeasuredDevice& measured) {
  std::set<std::string> asked = {update_operation(scenario.training.optimizer)}, found;
  for (const Work& work : scenario.model.works)
    if (const Program* const program = work.program.get())
      for (const ProgramStep& step : program->steps)
        asked.insert(std::string(step.operation));
  for (const MeasuredSeries& series : measured.series)
    if (asked.contains(series.operation)) found.insert(series.operation);
  return found;
}

std::string standard_error(double error) {
  return fmt::format("+-{:.3g} %, standard error", 100 * kSigmas90 * error);
}

void add_measured(std::vector<RangeSource>& sources, const Scenario& scenario, int c) {
  const Device& device = scenario.cluster.device_of(c);
  const std::set<std::string> operations = operations_of(scenario, *device.measured);
  const auto moving = [c](const std::string& operation) {
    return [c, operation](Scenario& changed, double place) {
      auto& measured = device_of(changed.cluster, c).measured;
      measured = moved(*measured, -place * kSigmas90, operation);
    };
  };
  if (device.measured->repeat_error > 0 && !operations.empty())
    sources.push_back({fmt::format("repeated readings of {}", device.name),
                       standard_error(device.measured->repeat_error), "calibrate on a quiet machine", moving("")});
  for (const std::string& operation : operations)
    sources.push_back({fmt::format("measured times of {} on {}", operation, device.name),
                       "standard errors of readings and formula", "calibrate with more sizes and a larger --budget",
                       moving(operation)});
}

void add_device(std::vector<RangeSource>& sources, const Scenario& scenario, int c) {
  const Device& device = scenario.cluster.device_of(c);
  if (device.measured) add_measured(sources, scenario, c);
  add_kinds(sources, scenario, c);
  const HostTimes& host = device.host;
  if (host.band.value_or(kHostBand) > 0 && (host.operation + host.backward.value_or(Time{}) + host.collective +
                                            host.skew + host.pass + host.message + host.step) > Time{})
    sources.push_back({fmt::format("the host of {}", device.name),
                       known(host.band, kHostBand, device.provenances, "host.band"),
                       "a step of a small model with the same framework (device.host)",
                       [c](Scenario& changed, double place) { move(device_of(changed.cluster, c).host, place); },
                       host.band.has_value()});
  const bool updates = scenario.training.offload_optimizer.value > 0;
  if (updates && device.host_update)
    sources.push_back(
        {fmt::format("updates on the host of {}", device.name), known({}, kHostBand, device.provenances, "host_update"),
         "a step with training.offload_optimizer (device.host_update)", [c](Scenario& changed, double place) {
           device_of(changed.cluster, c).host_update->value *= band_factor(kHostBand, place);
         }});
  if ((updates || scenario.plan.offload_layers) && device.host_link)
    sources.push_back({fmt::format("the link of {} to its host's memory", device.name),
                       known({}, kLinkBand, device.provenances, "host_link"),
                       "copies of pinned memory by size (device.host_link)", [c](Scenario& changed, double place) {
                         device_of(changed.cluster, c).host_link->value *= band_factor(kLinkBand, place);
                       }});
  if (device.collectives && device.collectives->band > 0)
    sources.push_back({fmt::format("collectives inside a node of {}", device.name),
                       known(device.collectives->band, device.collectives->provenance),
                       "collectives by size on one node (device.collectives)", [c](Scenario& changed, double place) {
                         move(*device_of(changed.cluster, c).collectives, place);
                       }});
}

// Curves of collectives and messages are shares of the nominal bandwidth with bands of their own: these do not move.
void move_links(Cluster& cluster, double place) {
  const double before = cluster.links.bandwidth.value;
  move(cluster.links, place);
  const double lost = before / cluster.links.bandwidth.value;
  each_device(cluster, [lost](Device& device) {
    if (device.messages) device.messages->small *= lost, device.messages->large *= lost;
    if (!device.collectives) return;
    CollectiveCurve& curve = *device.collectives;
    for (double* share : {&curve.small, &curve.middle, &curve.large})
      *share *= lost;
    if (curve.handed_on) *curve.handed_on *= lost;
    for (SwitchCurve& each : curve.in_switch)
      each.share *= lost;
    for (AllToAllWay& each : curve.all_to_all)
      each.share *= lost;
  });
}

void add_links(std::vector<RangeSource>& sources, const Cluster& cluster) {
  if (const auto& messages = cluster.device.messages; messages && messages->band > 0)
    sources.push_back({fmt::format("messages of {}", cluster.device.name), known(messages->band, messages->provenance),
                       "messages by size from device to device (device.messages)",
                       [](Scenario& changed, double place) { move(*changed.cluster.device.messages, place); }});
  if (cluster.links.kind != LinkKind::Ideal && cluster.links.band.value_or(kLinkBand) > 0)
    sources.push_back(
        {"links inside a node", known(cluster.links.band, kLinkBand, cluster.provenances, "node.links.band"),
         "messages by size inside a node (cluster.node.links)",
         [](Scenario& changed, double place) { move_links(changed.cluster, place); }, cluster.links.band.has_value()});
  if (cluster.nodes > 1 && cluster.network && !cluster.network->ideal &&
      cluster.network->band.value_or(kNetworkBand) > 0)
    sources.push_back({"the network", known(cluster.network->band, kNetworkBand, cluster.provenances, "network.band"),
                       "collectives by size between nodes (cluster.network)",
                       [](Scenario& changed, double place) { move(*changed.cluster.network, place); },
                       cluster.network->band.has_value()});
}

void add_host_bandwidth(std::vector<RangeSource>& sources, const Scenario& scenario) {
  const bool copies = scenario.training.offload_optimizer.value > 0 || scenario.plan.offload_layers;
  if (!copies || !scenario.cluster.host_bandwidth) return;
  sources.push_back({"what a node's devices share to their host's memory",
                     known({}, kLinkBand, scenario.cluster.provenances, "node.host_bandwidth"),
                     "copies of pinned memory by all devices of a node at once (cluster.node.host_bandwidth)",
                     [](Scenario& changed, double place) {
                       changed.cluster.host_bandwidth->value *= band_factor(kLinkBand, place);
                     }});
}

// A layer that computes much has a long key.
std::string shortened(const std::string& key) {
  constexpr std::size_t kMost = 60;
  return key.size() <= kMost ? key : key.substr(0, kMost) + "...";
}

// Times of the layers of one key, or "": of all, so many times as long.
std::shared_ptr<const MachineProfile> scaled(MachineProfile profile, double factor, const std::string& key) {
  for (LayerTimes& layer : profile.layers)
    if (key.empty() || layer.key == key)
      for (Time* time : {&layer.forward, &layer.input_gradient, &layer.weight_gradient})
        time->value = rounded(static_cast<double>(time->value) * factor, "a layer's time");
  return std::make_shared<const MachineProfile>(std::move(profile));
}

}  // namespace

std::vector<RangeSource> range_sources(const Scenario& scenario) {
  if (scenario.cost != CostSourceKind::Roofline || scenario.model.works.empty()) return {};
  std::vector<RangeSource> sources;
  for (int c = 0; c < scenario.cluster.classes(); ++c)
    add_device(sources, scenario, c);
  add_links(sources, scenario.cluster);
  add_host_bandwidth(sources, scenario);
  if (std::ranges::none_of(sources, [](const RangeSource& each) { return each.stated; })) return {};
  return sources;
}

std::vector<RangeSource> profile_sources(const Scenario& scenario) {
  if (scenario.cost != CostSourceKind::Profile || !scenario.profile) return {};
  const MachineProfile& profile = *scenario.profile;
  const auto source = [](std::string what, double error, std::string measure, const std::string& key) {
    return RangeSource{std::move(what), standard_error(error), std::move(measure),
                       [error, key](Scenario& changed, double place) {
                         changed.profile = scaled(*changed.profile, std::exp(-place * kSigmas90 * error), key);
                       }};
  };
  std::vector<RangeSource> sources;
  if (profile.common_error > 0)
    sources.push_back(
        source("the clock of all measured times", profile.common_error, "calibrate on a quiet machine", ""));
  std::set<std::string> keys;
  for (const LayerTimes& layer : profile.layers)
    if (profile.independent_error > 0 && keys.insert(layer.key).second)
      sources.push_back(source("measured times of " + shortened(layer.key), profile.independent_error,
                               "calibrate with a larger --budget", layer.key));
  return sources;
}

}  // namespace pipewright::planner
