// Layer times as `calibrate` measured them, by what a layer computes and the size of the micro-batch. Messages are made
// by the workers themselves: the sender's copy and the receiver's first read lengthen their ops.
//
// A size of micro-batch that was not measured, between two that were, lies on the line through them:
//
//     t(s) = t(a) + (t(b) - t(a)) (s - a) / (b - a),  a < s < b           100 ns at 2, 160 at 8: 120 at 4
// Beyond them it lies on the line through all of them, `fit_sizes`; the report says so, and the error bar is wider.
//
//     F(v) = sum of its layers' forwards + op overhead + first read(bytes in) + send(bytes out);   likewise backwards
//
// Tests: tests/core/profile_test.cpp
#include "core/question/profile.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/cost/cost_model.hpp"

namespace pipewright::core {
namespace {

// Of the nearest measured sizes on both sides; nothing where there is none on one of them.
std::optional<CostSource::Passes> between(const MachineProfile& profile, std::string_view key, std::int64_t samples,
                                          int active) {
  const LayerTimes* below = nullptr;
  const LayerTimes* above = nullptr;
  for (const LayerTimes& times : profile.layers) {
    if (times.key != key || times.active != active) continue;
    if (times.samples < samples && (below == nullptr || times.samples > below->samples)) below = &times;
    if (times.samples > samples && (above == nullptr || times.samples < above->samples)) above = &times;
  }
  if (below == nullptr || above == nullptr) return std::nullopt;
  const double share =
      static_cast<double>(samples - below->samples) / static_cast<double>(above->samples - below->samples);
  const auto at = [&](Time a, Time b) {
    return Time{a.value + std::llround(share * static_cast<double>(b.value - a.value))};
  };
  return CostSource::Passes{at(below->forward, above->forward),
                            at(below->input_gradient, above->input_gradient),
                            at(below->weight_gradient, above->weight_gradient),
                            {},
                            {}};
}

// By the line through all measured sizes; nothing where there are fewer than two.
std::optional<CostSource::Passes> beyond(const MachineProfile& profile, std::string_view key, std::int64_t samples,
                                         int active) {
  const auto pass = [&](Time LayerTimes::*member) -> std::optional<Time> {
    std::vector<std::pair<double, double>> points;
    std::size_t sizes = 0;
    for (const LayerTimes& times : profile.layers) {
      if (times.key != key || times.active != active) continue;
      ++sizes;
      if (const Time time = times.*member; time > Time{})
        points.emplace_back(static_cast<double>(times.samples), static_cast<double>(time.value));
    }
    if (sizes < 2) return std::nullopt;
    if (points.size() < 2) return Time{};  // a pass that takes no time
    const double ns = fit_sizes(points, profile.independent_error).line.at(static_cast<double>(samples));
    return Time{std::llround(std::min(ns, 9e18))};
  };
  const auto forward = pass(&LayerTimes::forward), input = pass(&LayerTimes::input_gradient),
             weight = pass(&LayerTimes::weight_gradient);
  if (!forward) return std::nullopt;
  return CostSource::Passes{*forward, *input, *weight, {}, {}};
}

class Measured final : public CostSource {
 public:
  explicit Measured(const Scenario& scenario) : scenario_(scenario), profile_(*scenario.profile) {
    for (const Work& work : scenario.model.works)
      keys_.push_back(work.program.get() != nullptr ? describe(*work.program.get()) : "");
  }

  Passes price(const Model& model, LayerId id, std::int64_t samples) const override {
    return price_at(model, id, samples, 0);
  }
  // The last is that of the times without a load of their own.
  std::vector<int> loads() const override {
    std::vector<int> loads = loads_of(profile_);
    if (!loads.empty() && loads.back() < profile_.active) loads.push_back(profile_.active);
    return loads;
  }
  // A layer that was not measured with so few busy takes what it takes with the next larger number, at last all.
  Passes price_at(const Model& model, LayerId id, std::int64_t samples, int active) const override {
    const Layer& layer = model.layers[static_cast<std::size_t>(id)];
    if (layer.work < 0)
      throw InputError(layer.place, "layer \"" + layer.name +
                                        "\" has stated figures only, and a profile prices what it "
                                        "measured; give the layer an `op:`, or use cost: explicit");
    const std::string& key = keys_[static_cast<std::size_t>(layer.work)];
    if (const LayerTimes* const times = find_times(profile_, key, samples, active))
      return {times->forward, times->input_gradient, times->weight_gradient, {}, {}};
    if (const auto passes = between(profile_, key, samples, active)) return *passes;
    if (const auto passes = beyond(profile_, key, samples, active)) return *passes;
    if (active == 0) refuse(layer, key, samples);
    const std::vector<int> measured = loads_of(profile_);
    const auto more = std::upper_bound(measured.begin(), measured.end(), active);
    return price_at(model, id, samples, more == measured.end() ? 0 : *more);
  }

  Time op_overhead() const override { return profile_.op_overhead; }
  Time update(std::int64_t parameters) const override {
    if (parameters == 0) return {};
    const LinearTime* const time = find_update(profile_, scenario_.training.optimizer);
    if (time == nullptr)
      throw InputError(scenario_.model.place, "training.optimizer",
                       "its step was not measured in profile \"" + profile_.name +
                           "\"; calibrate with this scenario: pipewright calibrate SCENARIO");
    return time->at(static_cast<double>(parameters));
  }
  Time sending(Bytes bytes) const override { return profile_.send.at(static_cast<double>(bytes.value)); }
  Time first_reading(Bytes bytes) const override { return profile_.first_read.at(static_cast<double>(bytes.value)); }
  Time handing_over() const override { return profile_.handoff; }

  std::optional<Time> all_reduce(int members, Bytes bytes) const override {
    const LinearTime* const time = find_all_reduce(profile_, members);
    if (time == nullptr) return std::nullopt;
    return time->at(static_cast<double>(bytes.value));
  }
  std::string caution(const Model& model, std::int64_t samples) const override {
    const BeyondMeasured b = beyond_measured(profile_, model, samples);
    if (b.layers == 0) return "";
    return std::to_string(b.layers) + " layers were measured for micro-batches of " + std::to_string(b.smallest) +
           " to " + std::to_string(b.largest) + " samples and are priced at " + std::to_string(samples) +
           " by the line through those sizes, +- " + std::to_string(std::llround(1000 * 1.645 * b.error) / 10) + "." +
           std::to_string(std::llround(1000 * 1.645 * b.error) % 10) +
           " % (90 %); calibrate --sizes with that size to know";
  }

  std::string provenance() const override { return "layer times: " + profile_.source + "; " + loads_text(profile_); }

 private:
  [[noreturn]] void refuse(const Layer& layer, const std::string& key, std::int64_t samples) const {
    std::string sizes;
    std::set<std::int64_t> known;
    for (const LayerTimes& times : profile_.layers)
      if (times.key == key) known.insert(times.samples);
    for (const std::int64_t size : known)
      sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
    throw InputError(
        layer.place,
        "layer \"" + layer.name + "\" was not measured for micro-batches of " + std::to_string(samples) + " samples" +
            (sizes.empty() ? "" : " (measured: " + sizes + ")") + " in profile \"" + profile_.name +
            "\"; calibrate with this scenario: pipewright calibrate SCENARIO, with --sizes for more sizes");
  }

  const Scenario& scenario_;
  const MachineProfile& profile_;
  std::vector<std::string> keys_;  // by work
};

}  // namespace

std::unique_ptr<CostSource> measured_profile(const Scenario& scenario, int device_class, const Topology&) {
  if (!scenario.profile) throw InputError(scenario.model.place, "cost", "no profile was read");
  if (device_class > 0)
    throw InputError(scenario.cluster.place, "cost",
                     "a profile holds for one class of devices; use cost: roofline for " +
                         scenario.cluster.device_of(device_class).name);
  // A scenario that says nothing of runs is priced for whatever was measured.
  if (scenario.run.place != Place{})
    if (const std::string why =
            other_backend(*scenario.profile, scenario.run.backend == RunBackend::Cuda ? "cuda" : "cpu");
        !why.empty())
      throw InputError(scenario.run.place, "cost", why);
  if (const std::string why = other_precision(*scenario.profile, scenario.training.precision); !why.empty())
    throw InputError(scenario.training.place, "cost", why);
  return std::make_unique<Measured>(scenario);
}

}  // namespace pipewright::core
