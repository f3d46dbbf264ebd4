// Every layer costs the same: the setting in which the papers' closed forms hold.
#include "core/cost/cost_model.hpp"

namespace pipewright::core {
namespace {

class Uniform final : public CostSource {
 public:
  Uniform(const Scenario& scenario, int device_class)
      : scenario_(scenario),
        device_(scenario.cluster.device_of(device_class)),
        speed_(stated_speed(scenario.cluster, device_class)) {}

  Passes price(const Model& model, LayerId id, std::int64_t) const override {
    const auto [input, weight] = split_backward(scenario_.uniform_backward, model.layers[id].parameters);
    return {at_speed(scenario_.uniform_forward, speed_), at_speed(input, speed_), at_speed(weight, speed_)};
  }

  Time op_overhead() const override { return device_.launch_overhead; }

  Time update(std::int64_t) const override { return {}; }

  std::string provenance() const override {
    std::string text = "layer times: uniform, forward " + std::to_string(scenario_.uniform_forward.value) +
                       " ns and backward " + std::to_string(scenario_.uniform_backward.value) +
                       " ns per layer and micro-batch";
    if (op_overhead() > Time{})
      text += "; each op adds " + std::to_string(op_overhead().value) + " ns of launch overhead";
    return text + "; optimizer time is not included";
  }

 private:
  const Scenario& scenario_;
  const Device& device_;
  double speed_;
};

}  // namespace

std::unique_ptr<CostSource> uniform(const Scenario& scenario, int device_class, const Topology&) {
  return std::make_unique<Uniform>(scenario, device_class);
}

}  // namespace pipewright::core
