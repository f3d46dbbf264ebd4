// Every layer costs the same: the setting in which the papers' closed forms hold.
#include "core/cost/cost_model.hpp"

namespace pipewright {
namespace {

class Uniform final : public CostSource {
 public:
  explicit Uniform(const Scenario& scenario) : scenario_(scenario) {}

  Passes price(const Model& model, LayerId id, std::int64_t) const override {
    const auto [input, weight] =
        split_backward(scenario_.uniform_backward, model.layers[static_cast<std::size_t>(id)].parameters);
    return {scenario_.uniform_forward, input, weight};
  }

  Time op_overhead() const override { return scenario_.cluster.device.launch_overhead; }

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
};

}  // namespace

std::unique_ptr<CostSource> uniform(const Scenario& scenario, const Topology&) {
  return std::make_unique<Uniform>(scenario);
}

}  // namespace pipewright
