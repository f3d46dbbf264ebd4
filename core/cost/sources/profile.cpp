// Layer times as `calibrate` measured them, by what a layer computes and the size of the micro-batch. Messages are made
// by the workers themselves: the sender's copy and the receiver's first read lengthen their ops.
//
// A size of micro-batch that was not measured, between two that were, lies on the line through them:
//
//     t(s) = t(a) + (t(b) - t(a)) (s - a) / (b - a),  a < s < b           100 ns at 2, 160 at 8: 120 at 4
//
//     F(v) = sum of its layers' forwards + op overhead + first read(bytes in) + send(bytes out);   likewise backwards
//
// Tests: tests/core/profile_test.cpp
#include "core/cost/profile.hpp"

#include <cmath>
#include <optional>
#include <set>

#include "core/cost/cost_model.hpp"

namespace pipewright {
namespace {

// Of the nearest measured sizes on both sides; nothing where there is none on one of them.
std::optional<CostSource::Passes> between(const MachineProfile& profile, std::string_view key, std::int64_t samples) {
  const LayerTimes* below = nullptr;
  const LayerTimes* above = nullptr;
  for (const LayerTimes& times : profile.layers) {
    if (times.key != key) continue;
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

class Measured final : public CostSource {
 public:
  explicit Measured(const Scenario& scenario) : scenario_(scenario), profile_(*scenario.profile) {
    for (const Work& work : scenario.model.works)
      keys_.push_back(work.program.get() != nullptr ? describe(*work.program.get()) : "");
  }

  Passes price(const Model& model, LayerId id, std::int64_t samples) const override {
    const Layer& layer = model.layers[static_cast<std::size_t>(id)];
    if (layer.work < 0)
      throw InputError(layer.place, "layer \"" + layer.name +
                                        "\" has stated figures only, and a profile prices what it "
                                        "measured; give the layer an `op:`, or use cost: explicit");
    const std::string& key = keys_[static_cast<std::size_t>(layer.work)];
    const LayerTimes* const times = find_times(profile_, key, samples);
    if (times == nullptr) {
      if (const auto passes = between(profile_, key, samples)) return *passes;
      refuse(layer, key, samples);
    }
    return {times->forward, times->input_gradient, times->weight_gradient, {}, {}};
  }

  Time op_overhead() const override { return profile_.op_overhead; }
  Time update(std::int64_t parameters) const override {
    if (parameters == 0) return {};
    const LinearTime* const time = find_update(profile_, scenario_.training.optimizer);
    if (time == nullptr)
      throw InputError(scenario_.model.place, "training.optimizer: its step was not measured in profile \"" +
                                                  profile_.name +
                                                  "\"; calibrate with this scenario: pipewright calibrate SCENARIO");
    return time->at(static_cast<double>(parameters));
  }
  Time sending(Bytes bytes) const override { return profile_.send.at(static_cast<double>(bytes.value)); }
  Time first_reading(Bytes bytes) const override { return profile_.first_read.at(static_cast<double>(bytes.value)); }
  Time handing_over() const override { return profile_.handoff; }

  std::string provenance() const override { return "layer times: " + profile_.source; }

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
  if (!scenario.profile) throw InputError(scenario.model.place, "cost: no profile was read");
  if (device_class > 0)
    throw InputError(scenario.cluster.place, "cost: a profile holds for one class of devices; use cost: roofline for " +
                                                 scenario.cluster.device_of(device_class).name);
  return std::make_unique<Measured>(scenario);
}

}  // namespace pipewright
