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
//
// A layer built from operators takes the sum of the same formula over its operators, each with the efficiency of its
// kind and a launch of its own; per pass the sum is rounded once:
//
//     t = sum over operators of max(FLOPs / (peak * e(kind, FLOPs)), (bytes * samples + weights) / (bandwidth *
//     e(memory)))
//                               + launch overhead                        + the collectives of the pass
//
//     forward           forward_flops, forward_bytes; weights: the operator's parameters are read
//     input gradient    input_flops and rebuilt_flops (what a fused attention kernel computes again), input_bytes;
//                       likewise
//     weight gradient   weight_flops, weight_bytes; the gradient of the parameters is written
//
// Of a table that is only looked up (gathered parameters) just the rows count, which are part of the bytes. A pass in
// which an operator does nothing has no launch.
//
// Tensor parallelism of degree t: FLOPs of divided operators / t, of the others / t with sequence parallelism (but for
// gathered ones); bytes and parameters as `Amount` and `parameters_on_device` divide them. What the group all-reduces
// is exposed, as a ring over its own links: [Shoeybi19] [Thakur05]
//
//     collectives = reductions * 2(t-1) * latency + 2(t-1)/t * reduced bytes * samples / ring bandwidth
//
// in the forward, and in the gradient of the input. With sequence parallelism a reduction is a reduce-scatter and an
// all-gather: the same bytes and steps [Korthikanti22]. Of all groups of the plan the slowest counts. Every group is
// priced as if alone on its links.
//
// With plan.tensor_overlap they run beside the products next to them: core/cost/tensor_overlap.hpp.
//
// Context parallelism of degree c: every device has a c-th of the tokens, so that all but attention is priced for samples / c;
// attention as core/cost/context_exchange.hpp says.
//
// A device that was measured prices layers by what their steps took (cost/measured_times.hpp), where it can.
//
// Products, fused attention and convolutions of a device with curves (core/cluster/kernel_curves.hpp) take what their
// kernels take, by size, in place of the share.
//
// One device: 1 GFLOP forward at 10 TFLOP/s * 0.5 = 200 us; 4 MB at 100 GB/s * 0.6 = 66.7 us: 200 us + 5 us.
// Test: tests/core/cost_sources_test.cpp, tests/core/operator_costs_test.cpp.
#include <algorithm>
#include <optional>
#include <tuple>

#include "core/cost/cost_model.hpp"
#include "core/cost/efficiency_words.hpp"
#include "core/cost/host_update.hpp"
#include "core/cost/issue_times.hpp"
#include "core/cost/low_precision.hpp"
#include "core/cost/measured_times.hpp"
#include "core/cost/muon.hpp"
#include "core/cost/sources/work_passes.hpp"

namespace pipewright::core {
namespace {

bool states_times(const Model& model) {
  return std::any_of(model.layers.begin(), model.layers.end(), [](const Layer& l) { return l.states_times(); });
}

class Roofline final : public CostSource {
 public:
  Roofline(const Scenario& scenario, int device_class, const Topology& topology)
      : scenario_(scenario),
        device_(scenario.cluster.device_of(device_class)),
        works_(scenario, device_class, topology),
        operators_(works_.operators()) {
    if (const Placed<double>& by_host = scenario.training.offload_optimizer; by_host.value > 0)
      for (const auto& [name, rate, example] : {std::tuple("host_link", device_.host_link, "50 GB/s"),
                                                std::tuple("host_update", device_.host_update, "10 GB/s")})
        if (!rate)
          throw InputError(by_host.place, "training.offload_optimizer",
                           "device " + device_.name + " does not state its " + name +
                               ", which an update on the host needs; give it, e.g. " + example);
    if (device_.measured) measured_.emplace(scenario, device_);
    if (states_times(scenario.model)) speed_ = stated_speed(scenario.cluster, device_class);
  }

  Passes price(const Model& model, LayerId id, std::int64_t samples) const override {
    return price_at(model, id, samples, 0);
  }
  AttentionShares attention_shares(const Work& work, std::int64_t samples) const override {
    Work attention;
    for (const Operator& op : work.operators)
      if (op.attention.heads > 0) attention.operators.push_back(op);
    if (attention.operators.empty()) return {};
    const Passes of_all = works_.price(work, static_cast<double>(samples)),
                 of_attention = works_.price(attention, static_cast<double>(samples));
    const auto share = [](Time part, Time all) { return all > Time{} ? std::min(1.0, ratio(part, all)) : 0.0; };
    return {share(of_attention.forward, of_all.forward), share(of_attention.backward_input, of_all.backward_input)};
  }
  // What more operators add: a dispatch counts before its exchange, a combine behind.
  ExchangeCuts exchange_cuts(const Work& work, std::int64_t samples) const override {
    ExchangeCuts cuts;
    Work upto;
    Passes before;
    double sent = 0, sent_again = 0;
    const auto cut = [&] {
      const Passes now = works_.price(upto, static_cast<double>(samples));
      const auto more = [&](Time Passes::*pass, double less) {
        return std::max(0.0, static_cast<double>((now.*pass - before.*pass).value) - less);
      };
      cuts.forward.push_back(more(&Passes::forward, sent));
      cuts.input.push_back(more(&Passes::backward_input, sent));
      cuts.weight.push_back(more(&Passes::backward_weight, 0));
      cuts.rebuilt.push_back(more(&Passes::rebuild, sent_again));
      before = now, sent = sent_again = 0;
    };
    for (const Operator& op : work.operators) {
      const bool travels = op.expert && op.sent.tokens > 0, back = op.name == "combine";
      if (travels && back) cut();
      upto.operators.push_back(op);
      if (!travels) continue;
      cuts.exchanges.push_back(works_.exchange_time(op, static_cast<double>(samples)));
      sent += cuts.exchanges.back();
      cuts.rebuilt_exchanges.push_back(rebuilt_with(op, scenario_.plan.recompute_modules) ? cuts.exchanges.back() : 0);
      sent_again += cuts.rebuilt_exchanges.back();
      if (!back) cut();
    }
    cut();
    return cuts;
  }
  std::vector<int> loads() const override { return measured_ ? measured_->loads() : std::vector<int>{}; }
  Passes price_at(const Model& model, LayerId id, std::int64_t samples, int active) const override {
    const Layer& layer = model.layers[id];
    const auto backward = stated_backward(layer, samples, model.batch);
    Passes passes;
    if (layer.forward && backward) {
      // Both are stated: nothing to estimate.
    } else if (layer.work >= 0) {
      const Work& work = model.works[static_cast<std::size_t>(layer.work)];
      const auto known = measured_ ? measured_->price(work, samples, active) : std::nullopt;
      passes = known ? *known : works_.price(work, static_cast<double>(samples));
    } else {
      const Time pass = estimate(model, layer, samples, 1);
      passes.forward = passes.backward_input = passes.backward_weight = pass;
      if (layer.parameters == 0)
        passes.backward_input = estimate(model, layer, samples, 2), passes.backward_weight = {};
    }
    if (layer.forward)
      passes.forward = at_speed(scaled(*layer.forward, samples, model.batch), speed_), passes.again.reset();
    if (backward) {
      passes.backward_input = at_speed(backward->input, speed_);
      passes.backward_weight = at_speed(backward->weight, speed_);
      passes.apart = {};
    }
    if (layer.forward || backward) passes.issued.reset();
    if (!passes.issued && works_.host_limits()) {
      const auto alone = [](Time device) { return KernelQueue::kernel({}, device); };
      passes.issued = {alone(passes.forward), alone(passes.backward_input), alone(passes.backward_weight),
                       alone(passes.rebuild), alone(passes.again.value_or(passes.forward))};
    }
    return passes;
  }

  // Each layer's time has its launch; the host's part of a pass remains. Where the host does not wait for the device
  // between passes it is the first entry of the pass's queue (`step_costs`).
  Time op_overhead() const override {
    const HostTimes& host = device_.host;
    const std::int64_t stages = scenario_.plan.stages.value;
    if (works_.host_limits() && !waits_between_passes(host.blocking, stages)) return {};
    return host.around_pass(stages);
  }

  // Five iterations of three products each, of all matrices on the device or of a worker's share of them.
  Time orthogonalise(LayerRange layers, Sharing among) const override {
    if (scenario_.training.optimizer != Optimizer::Muon) return {};
    double all = 0, largest = 0;
    for (LayerId i = layers.begin; i < layers.end; ++i) {
      const std::int32_t work = scenario_.model.layers[i].work;
      if (work < 0) continue;
      for (const Operator& op : scenario_.model.works[static_cast<std::size_t>(work)].operators) {
        if (!muon_matrix(op)) continue;
        const MuonMatrix matrix = muon_matrix_of(op, operators_.split());
        const double one = 5 * (2 * alone(matrix.m, matrix.n, matrix.m) + alone(matrix.m, matrix.m, matrix.m));
        const bool apart = op.expert && operators_.split().sends_tokens();
        all += one * matrix.count / (apart ? among.of_experts : among.members), largest = std::max(largest, one);
      }
    }
    return Time{rounded(std::max(all, largest), "the optimizer's time")};
  }
  Time cast(std::int64_t low) const override { return copy(cast_bytes(low, scenario_.training, device_)); }
  Time copy(double bytes) const override {
    return bytes > 0 ? transfer_time(bytes, operators_.moved_at(bytes)) : Time{};
  }
  // The host's part, then the device's.
  Time update(std::int64_t parameters) const override {
    const std::int64_t by_host = updated_by_host(parameters, scenario_.training);
    return checked_sum(host_update(by_host, scenario_.training, scenario_.cluster, device_),
                       update_here(parameters - by_host));
  }

  std::string caution(const Model& model, std::int64_t samples) const override {
    return measured_ ? measured_->caution(model, samples) : at_full_peak(model);
  }

  std::string provenance() const override {
    const auto& layers = scenario_.model.layers;
    const auto stated = std::count_if(layers.begin(), layers.end(), [](const Layer& l) { return l.states_times(); });
    std::string text = "layer times: roofline from FLOPs and bytes on " + device_.name + " (" +
                       precision_key(scenario_.training.precision) + recipe() + ", " +
                       rounded_percent(device_.compute_efficiency) + " of the peak FLOP rate, " +
                       rounded_percent(device_.memory_efficiency) + " of the memory bandwidth)";
    if (!scenario_.model.works.empty()) text += "; " + efficiencies();
    if (measured_ && !scenario_.model.works.empty())
      text = "layer times: " + measured_->provenance() + "; what was not measured: " + text.substr(13);
    if (stated > 0)
      text += "; " + std::to_string(stated) + " of " + std::to_string(layers.size()) + " layers use their stated times";
    return text;
  }

 private:
  // One product, rows x depth times depth x columns, that nobody divides.
  double alone(double rows, double depth, double columns) const {
    Operator op{.name = "muon", .kind = OperatorKind::MatrixProduct};
    op.shape = {.rows = rows, .columns = columns, .depth = depth};
    op.product = op.routed = op.gathered = true;  // in the precision of training, whole
    const double moved = operators_.weight() * (rows * depth + depth * columns + rows * columns);
    return operators_.time(op, PassKind::Forward, 1, 2 * rows * depth * columns, moved);
  }
  // Of a parameter's states, on average over the model.
  double state_bytes() const {
    const auto other = static_cast<double>(optimizer_bytes(scenario_.training).value);
    if (scenario_.training.optimizer != Optimizer::Muon) return other;
    double all = 0, matrices = 0;
    for (LayerId i = 0; i < std::ssize(scenario_.model.layers); ++i) {
      all += static_cast<double>(scenario_.model.layers[i].trained());
      matrices += static_cast<double>(muon_parameters(scenario_, static_cast<LayerId>(i)).all);
    }
    const auto of_matrix = static_cast<double>(optimizer_bytes(scenario_.training, true).value);
    return all > 0 ? other - (other - of_matrix) * matrices / all : other;
  }
  // The step over parameters whose states are on the device.
  Time update_here(std::int64_t parameters) const {
    if (parameters == 0) return {};
    if (measured_)
      if (const std::optional<Time> known = measured_->update(parameters))
        return checked_sum(*known, device_.host.step);
    const Precision precision = scenario_.training.precision;
    const double once = static_cast<double>((2 * weight_bytes(precision) + gradient_bytes(scenario_.training)).value) +
                        2 * state_bytes();
    const std::optional<Bytes> stated = scenario_.training.update_bytes;
    const double bytes = static_cast<double>(parameters) * (stated ? static_cast<double>(stated->value) : once);
    const Bandwidth rate = scenario_.model.works.empty() ? operators_.byte_rate() : operators_.moved_at(bytes);
    return checked_sum(transfer_time(bytes, rate), checked_sum(device_.launch_overhead, device_.host.step));
  }

  std::string recipe() const {
    return operators_.low() ? std::string(", linear layers in ") + operators_.low()->name : std::string();
  }
  // What nobody states is 1, and no device reaches its data sheet's peaks.
  std::string at_full_peak(const Model& model) const {
    const auto states_any = [](const auto& kind) { return kind.has_value(); };
    if (device_.compute_efficiency < 1 ||
        std::any_of(device_.efficiency.begin(), device_.efficiency.end(), states_any) ||
        std::all_of(model.layers.begin(), model.layers.end(),
                    [](const Layer& l) { return l.forward && (l.backward || l.backward_input); }))
      return "";
    return "device " + device_.name +
           " states no efficiency, so layers are priced at 100 % of its peaks, which no device reaches: times, days "
           "and "
           "costs are too low, and no range is known; write efficiency: with a band for each kind of operator, as "
           "configs/devices/h100-sxm-80g.yaml does, or compute_efficiency and memory_efficiency";
  }
  std::string efficiencies() const {
    std::string text = operators_.efficiencies();
    if (device_.collectives)
      text += std::string("; collectives by size (") + in_words(device_.collectives->provenance) + ")";
    if (works_.host_limits())
      text += "; the host issues each operator in " +
              microseconds(issue_times(device_.host, scenario_.training.execution).forward) + " us" + how_executed();
    return text;
  }

  const char* how_executed() const {
    switch (scenario_.training.execution) {
      case Execution::Eager: return "";
      case Execution::Compiled: return " (compiled)";
      case Execution::Graphs: return " (CUDA graphs)";
    }
    return "";
  }

  // One pass over the layer: forward, one of the two gradients, or both at once with `work` = 2 times the FLOPs.
  Time estimate(const Model& model, const Layer& layer, std::int64_t samples, int work) const {
    if (!layer.flops)
      throw InputError(layer.place,
                       "layer \"" + layer.name + "\" has no flops; give `flops:`, or `forward:` and `backward:` times");
    double moved = static_cast<double>(layer.activation.value);
    if (layer.inputs.empty()) moved += static_cast<double>(model.input.value);
    for (const LayerId input : layer.inputs)
      moved += static_cast<double>(model.layers[input].activation.value);
    const double share = static_cast<double>(samples) / static_cast<double>(model.batch);
    const double parameters =
        static_cast<double>(layer.parameters) * static_cast<double>(weight_bytes(scenario_.training.precision).value);
    const double arithmetic = work * layer.flops->value * share / operators_.flop_rate().value;
    const double memory = (moved * share + parameters) / operators_.byte_rate().value;
    const Time time{rounded(std::max(arithmetic, memory) * 1e9, "a layer's time")};
    return checked_sum(time, device_.launch_overhead);
  }

  const Scenario& scenario_;
  const Device& device_;
  WorkPasses works_;
  const OperatorTimes& operators_;
  double speed_ = 1;  // of layers with stated times
  std::optional<MeasuredTimes> measured_;
};

}  // namespace

std::unique_ptr<CostSource> roofline(const Scenario& scenario, int device_class, const Topology& topology) {
  return std::make_unique<Roofline>(scenario, device_class, topology);
}

}  // namespace pipewright::core
