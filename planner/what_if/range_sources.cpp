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
#include "core/cost/measured_times.hpp"

namespace pipewright {
namespace {

constexpr std::array<std::string_view, kOperatorKinds> kKindWords = {
    "matrix products", "convolutions",     "grouped convolutions",
    "attention",       "recurrent layers", "operators that move bytes"};

std::string known(double band, Provenance provenance) {
  return fmt::format("+-{:.4g} %, {}", 100 * band, in_words(provenance));
}

// Of a band that stands under `key`, or that nobody states.
std::string known(const std::optional<double>& band, double assumed, const std::map<std::string, Provenance>& of,
                  const std::string& key) {
  const auto found = of.find(key);
  return known(band.value_or(assumed), band && found != of.end() ? found->second : Provenance::Assumed);
}

std::array<bool, kOperatorKinds> kinds_of(const Model& model) {
  std::array<bool, kOperatorKinds> used{};
  used[static_cast<std::size_t>(OperatorKind::Memory)] = true;  // the update, too
  for (const Work& work : model.works)
    for (const Operator& each : work.operators)
      used[static_cast<std::size_t>(each.kind)] = true;
  return used;
}

Device& device_of(Cluster& cluster, int device_class) {
  return device_class == 0 ? cluster.device : cluster.others[static_cast<std::size_t>(device_class - 1)].device;
}

// The attention kernel that runs, where there are several; nullptr: none has a curve of its own.
const AttentionKernel* kernel_of(const Efficiency& efficiency, const Training& training) {
  if (efficiency.kernels.empty()) return nullptr;
  const AttentionKernelName name = training.attention_kernel.value_or(efficiency.kernels.front().kernel);
  const auto found = std::find_if(efficiency.kernels.begin(), efficiency.kernels.end(),
                                  [&](const AttentionKernel& each) { return each.kernel == name; });
  return found == efficiency.kernels.end() ? nullptr : &*found;
}

void add_kinds(std::vector<RangeSource>& sources, const Scenario& scenario, int c) {
  const Device& device = scenario.cluster.device_of(c);
  const auto used = kinds_of(scenario.model);
  for (std::size_t kind = 0; kind < used.size(); ++kind) {
    const auto& stated = device.efficiency[kind];
    if (!used[kind] || !stated) continue;
    const AttentionKernel* const kernel = kernel_of(*stated, scenario.training);
    const double band = kernel ? kernel->band.value_or(stated->band) : stated->band;
    if (band <= 0) continue;
    const Provenance provenance = kernel ? kernel->provenance : stated->provenance;
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

void add_measured(std::vector<RangeSource>& sources, const Scenario& scenario, int c) {
  const Device& device = scenario.cluster.device_of(c);
  for (const std::string& operation : operations_of(scenario, *device.measured))
    sources.push_back({fmt::format("measured times of {} on {}", operation, device.name),
                       "standard errors of readings and formula", "calibrate with more sizes and a larger --budget",
                       [c, operation](Scenario& changed, double place) {
                         auto& measured = device_of(changed.cluster, c).measured;
                         measured = moved(*measured, -place * kSigmas90, operation);
                       }});
}

void add_device(std::vector<RangeSource>& sources, const Scenario& scenario, int c) {
  const Device& device = scenario.cluster.device_of(c);
  if (device.measured) add_measured(sources, scenario, c);
  add_kinds(sources, scenario, c);
  const HostTimes& host = device.host;
  if ((host.operation + host.backward.value_or(Time{}) + host.collective + host.skew + host.pass + host.message +
       host.step) > Time{})
    sources.push_back({fmt::format("the host of {}", device.name),
                       known(host.band, kHostBand, device.provenances, "host.band"),
                       "a step of a small model with the same framework (device.host)",
                       [c](Scenario& changed, double place) { move(device_of(changed.cluster, c).host, place); }});
  if (device.collectives && device.collectives->band > 0)
    sources.push_back({fmt::format("collectives inside a node of {}", device.name),
                       known(device.collectives->band, device.collectives->provenance),
                       "collectives by size on one node (device.collectives)", [c](Scenario& changed, double place) {
                         move(*device_of(changed.cluster, c).collectives, place);
                       }});
}

// Collectives with a curve of their own are shares of the nominal bandwidth that were measured: messages alone move.
void move_messages(Cluster& cluster, double place) {
  const double before = cluster.links.bandwidth.value;
  move(cluster.links, place);
  const double lost = before / cluster.links.bandwidth.value;
  each_device(cluster, [lost](Device& device) {
    if (!device.collectives) return;
    CollectiveCurve& curve = *device.collectives;
    for (double* share : {&curve.small, &curve.middle, &curve.large})
      *share *= lost;
    for (SwitchCurve& each : curve.in_switch)
      each.share *= lost;
  });
}

void add_links(std::vector<RangeSource>& sources, const Cluster& cluster) {
  if (cluster.links.kind != LinkKind::Ideal && cluster.links.band.value_or(kLinkBand) > 0)
    sources.push_back({"links inside a node",
                       known(cluster.links.band, kLinkBand, cluster.provenances, "node.links.band"),
                       "messages by size inside a node (cluster.node.links)",
                       [](Scenario& changed, double place) { move_messages(changed.cluster, place); }});
  if (cluster.nodes > 1 && cluster.network && !cluster.network->ideal &&
      cluster.network->band.value_or(kNetworkBand) > 0)
    sources.push_back({"the network", known(cluster.network->band, kNetworkBand, cluster.provenances, "network.band"),
                       "collectives by size between nodes (cluster.network)",
                       [](Scenario& changed, double place) { move(*changed.cluster.network, place); }});
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
        time->value = std::llround(static_cast<double>(time->value) * factor);
  return std::make_shared<const MachineProfile>(std::move(profile));
}

bool has_band(const Cluster& cluster) {
  for (int c = 0; c < cluster.classes(); ++c) {
    if (cluster.device_of(c).measured) return true;
    for (const auto& each : cluster.device_of(c).efficiency)
      if (each && each->band > 0) return true;
  }
  return false;
}

}  // namespace

std::vector<RangeSource> range_sources(const Scenario& scenario) {
  if (scenario.cost != CostSourceKind::Roofline || scenario.model.works.empty() || !has_band(scenario.cluster))
    return {};
  std::vector<RangeSource> sources;
  for (int c = 0; c < scenario.cluster.classes(); ++c)
    add_device(sources, scenario, c);
  add_links(sources, scenario.cluster);
  return sources;
}

std::vector<RangeSource> profile_sources(const Scenario& scenario) {
  if (scenario.cost != CostSourceKind::Profile || !scenario.profile) return {};
  const MachineProfile& profile = *scenario.profile;
  const auto source = [](std::string what, double error, std::string measure, const std::string& key) {
    return RangeSource{std::move(what), fmt::format("+-{:.3g} %, standard error", 100 * kSigmas90 * error),
                       std::move(measure), [error, key](Scenario& changed, double place) {
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

}  // namespace pipewright
