// Layer times from arithmetic and bytes moved, whichever takes longer:                                 [Williams09]
//
//     t = max(FLOPs / (peak * compute_efficiency), bytes / (memory_bandwidth * memory_efficiency)) + launch overhead
//
//     forward           FLOPs of the layer;   bytes: its inputs, its output, its parameters
//     input gradient    as many FLOPs and bytes as the forward
//     weight gradient   likewise
//     no parameters     the input gradient is all of the backward: twice the FLOPs, the bytes once. An attention
//                       product, the layer of this sort whose arithmetic counts, has two inputs and so two gradients
//
// So the backward has twice the forward's FLOPs for every layer, as MFU and `flops:` count it.
//     optimizer step    per parameter: read weight, gradient and states, write weight and states
//
// 2 GFLOP, 30 MB, 10 TFLOP/s at 50 %, 100 GB/s at 60 %, 5 us: max(400 us, 500 us) + 5 us = 505 us.
// Test: tests/core/cost_sources_test.cpp.
#include <algorithm>
#include <cmath>

#include "core/cost/cost_model.hpp"

namespace pipewright {
namespace {

const char* key(Precision precision) {
  switch (precision) {
    case Precision::Fp32: return "fp32";
    case Precision::Tf32: return "tf32";
    case Precision::Fp16: return "fp16";
    case Precision::Bf16: return "bf16";
  }
  return "";
}

class Roofline final : public CostSource {
 public:
  explicit Roofline(const Scenario& scenario) : scenario_(scenario) {
    const Device& device = scenario.cluster.device;
    const auto refuse = [&](const std::string& message) {
      throw InputError(device.place, "device \"" + device.name + "\" " + message);
    };
    const auto peak = device.peak.find(scenario.training.precision);
    const std::string precision = key(scenario.training.precision);
    if (peak == device.peak.end() || !(peak->second.value > 0))
      refuse("has no peak." + precision + ", which `cost: roofline` needs; give e.g. `peak: {" + precision +
             ": 15.7 TFLOP/s}`, or another training.precision");
    if (!device.memory_bandwidth || !(device.memory_bandwidth->value > 0))
      refuse("has no memory_bandwidth, which `cost: roofline` needs; give e.g. `memory_bandwidth: 900 GB/s`");
    if (!(device.compute_efficiency > 0 && device.compute_efficiency <= 1))
      refuse("compute_efficiency: must be larger than 0 and at most 1");
    if (!(device.memory_efficiency > 0 && device.memory_efficiency <= 1))
      refuse("memory_efficiency: must be larger than 0 and at most 1");
    flop_rate_ = peak->second * device.compute_efficiency;
    byte_rate_ = *device.memory_bandwidth * device.memory_efficiency;
  }

  Passes price(const Model& model, LayerId id, std::int64_t samples) const override {
    const Layer& layer = model.layers[static_cast<std::size_t>(id)];
    const auto backward = stated_backward(layer, samples, model.batch);
    if (layer.forward && backward)
      return {scaled(*layer.forward, samples, model.batch), backward->input, backward->weight};
    const Time pass = estimate(model, layer, samples, 1);
    Passes passes{pass, pass, pass};
    if (layer.parameters == 0) passes.backward_input = estimate(model, layer, samples, 2), passes.backward_weight = {};
    if (layer.forward) passes.forward = scaled(*layer.forward, samples, model.batch);
    if (backward) passes.backward_input = backward->input, passes.backward_weight = backward->weight;
    return passes;
  }

  Time op_overhead() const override { return {}; }  // each layer's time has its launch

  Time update(std::int64_t parameters) const override {
    if (parameters == 0) return {};
    const Precision precision = scenario_.training.precision;
    const Bytes states = optimizer_bytes(precision, scenario_.training.optimizer);
    const Bytes moved = 2 * weight_bytes(precision) + gradient_bytes(precision) + 2 * states;
    const double bytes = static_cast<double>(parameters) * static_cast<double>(moved.value);
    return checked_sum(transfer_time(bytes, byte_rate_), scenario_.cluster.device.launch_overhead);
  }

  std::string provenance() const override {
    const auto& layers = scenario_.model.layers;
    const auto stated = std::count_if(layers.begin(), layers.end(),
                                      [](const Layer& l) { return l.forward || l.backward || l.backward_input; });
    const Device& device = scenario_.cluster.device;
    std::string text = "layer times: roofline from FLOPs and bytes on " + device.name + " (" +
                       key(scenario_.training.precision) + ", " + percent(device.compute_efficiency) +
                       " of the peak FLOP rate, " + percent(device.memory_efficiency) + " of the memory bandwidth)";
    if (stated > 0)
      text += "; " + std::to_string(stated) + " of " + std::to_string(layers.size()) + " layers use their stated times";
    return text;
  }

 private:
  static std::string percent(double share) { return std::to_string(std::lround(share * 100)) + " %"; }

  // One pass over the layer: forward, one of the two gradients, or both at once with `work` = 2 times the FLOPs.
  Time estimate(const Model& model, const Layer& layer, std::int64_t samples, int work) const {
    if (!layer.flops)
      throw InputError(layer.place,
                       "layer \"" + layer.name + "\" has no flops; give `flops:`, or `forward:` and `backward:` times");
    double moved = static_cast<double>(layer.activation.value);
    if (layer.inputs.empty()) moved += static_cast<double>(model.input.value);
    for (const LayerId input : layer.inputs)
      moved += static_cast<double>(model.layers[static_cast<std::size_t>(input)].activation.value);
    const double share = static_cast<double>(samples) / static_cast<double>(model.batch);
    const double parameters =
        static_cast<double>(layer.parameters) * static_cast<double>(weight_bytes(scenario_.training.precision).value);
    const double arithmetic = work * layer.flops->value * share / flop_rate_.value;
    const double memory = (moved * share + parameters) / byte_rate_.value;
    const Time time{rounded(std::max(arithmetic, memory) * 1e9, "a layer's time")};
    return checked_sum(time, scenario_.cluster.device.launch_overhead);
  }

  const Scenario& scenario_;
  FlopRate flop_rate_;
  Bandwidth byte_rate_;
};

}  // namespace

std::unique_ptr<CostSource> roofline(const Scenario& scenario) {
  return std::make_unique<Roofline>(scenario);
}

}  // namespace pipewright
