// Layer times as stated: measured by a profiler, published, or made up for an example.
#include "core/cost/cost_model.hpp"

namespace pipewright::core {
namespace {

class ExplicitTimes final : public CostSource {
 public:
  ExplicitTimes(const Scenario& scenario, int device_class)
      : scenario_(scenario),
        device_(scenario.cluster.device_of(device_class)),
        speed_(stated_speed(scenario.cluster, device_class)) {}

  Passes price(const Model& model, LayerId id, std::int64_t samples) const override {
    const Layer& layer = model.layers[id];
    if (!layer.forward) refuse(layer, "forward");
    const auto backward = stated_backward(layer, samples, model.batch);
    if (!backward) refuse(layer, "backward");
    return {at_speed(scaled(*layer.forward, samples, model.batch), speed_), at_speed(backward->input, speed_),
            at_speed(backward->weight, speed_)};
  }

  Time op_overhead() const override { return device_.launch_overhead; }

  Time update(std::int64_t) const override { return {}; }

  std::string provenance() const override {
    const Model& model = scenario_.model;
    std::string text = (model.measured_pieces ? "layer times: measured pieces, of " : "layer times: as stated for ") +
                       std::to_string(model.batch) + (model.batch == 1 ? " sample" : " samples") +
                       ", scaled to the micro-batch";
    if (op_overhead() > Time{})
      text += "; each op adds " + std::to_string(op_overhead().value) + " ns of launch overhead";
    return text + "; optimizer time is not included";
  }

 private:
  [[noreturn]] static void refuse(const Layer& layer, const std::string& pass) {
    throw InputError(layer.place, "layer \"" + layer.name + "\" has no " + pass +
                                      " time; give `forward:` and `backward:`, or set `cost: roofline` and give flops");
  }

  const Scenario& scenario_;
  const Device& device_;
  double speed_;
};

}  // namespace

std::unique_ptr<CostSource> explicit_times(const Scenario& scenario, int device_class, const Topology&) {
  return std::make_unique<ExplicitTimes>(scenario, device_class);
}

}  // namespace pipewright::core
