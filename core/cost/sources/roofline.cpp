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
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <tuple>
#include <variant>
#include <vector>

#include "core/cost/context_exchange.hpp"
#include "core/cost/cost_model.hpp"
#include "core/cost/efficiency_words.hpp"
#include "core/cost/expert_exchange.hpp"
#include "core/cost/fused_softmax.hpp"
#include "core/cost/host_update.hpp"
#include "core/cost/issue_times.hpp"
#include "core/cost/low_precision.hpp"
#include "core/cost/measured_times.hpp"
#include "core/cost/pass_kernels.hpp"
#include "core/cost/tensor_exchange.hpp"

namespace pipewright::core {
namespace {

// Rate of a product whose rows of memory begin at addresses that are no multiples of 16 B, over that of an aligned one.
// Assumed: heads of an unpadded vocabulary of 50257 run at 0.33 to 0.42 of the rate in measured training steps.
constexpr double kMisaligned = 1.0 / 3;

constexpr std::size_t of(OperatorKind kind) {
  return static_cast<std::size_t>(kind);
}

const char* key(Precision precision) {
  switch (precision) {
    case Precision::Fp32: return "fp32";
    case Precision::Tf32: return "tf32";
    case Precision::Fp16: return "fp16";
    case Precision::Bf16: return "bf16";
    case Precision::Fp8: return "fp8";
    case Precision::Fp4: return "fp4";
  }
  return "";
}

bool states_times(const Model& model) {
  return std::any_of(model.layers.begin(), model.layers.end(),
                     [](const Layer& l) { return l.forward || l.backward || l.backward_input; });
}

class Roofline final : public CostSource {
 public:
  Roofline(const Scenario& scenario, int device_class, const Topology& topology)
      : scenario_(scenario),
        device_(scenario.cluster.device_of(device_class)),
        split_(scenario.plan.split()),
        weight_(static_cast<double>(weight_bytes(scenario.training.precision).value)),
        gradient_(static_cast<double>(gradient_bytes(scenario.training).value)),
        tensor_(scenario, topology),
        context_(scenario, topology),
        sent_(scenario, topology) {
    const auto refuse = [&](const std::string& message) {
      throw InputError(device_.place, "device \"" + device_.name + "\" " + message);
    };
    const auto peak = device_.peak.find(scenario.training.precision);
    const std::string precision = key(scenario.training.precision);
    if (peak == device_.peak.end() || !(peak->second.value > 0))
      refuse("has no peak." + precision + ", which `cost: roofline` needs; give e.g. `peak: {" + precision +
             ": 15.7 TFLOP/s}`, or another training.precision");
    if (!device_.memory_bandwidth || !(device_.memory_bandwidth->value > 0))
      refuse("has no memory_bandwidth, which `cost: roofline` needs; give e.g. `memory_bandwidth: 900 GB/s`");
    if (!(device_.compute_efficiency > 0 && device_.compute_efficiency <= 1))
      refuse("compute_efficiency: must be larger than 0 and at most 1");
    if (!(device_.memory_efficiency > 0 && device_.memory_efficiency <= 1))
      refuse("memory_efficiency: must be larger than 0 and at most 1");
    flop_rate_ = peak->second * device_.compute_efficiency;
    byte_rate_ = *device_.memory_bandwidth * device_.memory_efficiency;
    peak_ = peak->second.value;
    bandwidth_ = device_.memory_bandwidth->value;
    rates_ = {peak_, bandwidth_, device_.multiprocessors};
    const Precision used = scenario.training.precision;
    if (used == Precision::Fp16 || used == Precision::Bf16) {
      if (const auto& products = device_.efficiency[of(OperatorKind::MatrixProduct)]; products && products->tiles)
        tiles_ = &*products->tiles;
      if (const auto& attention = device_.efficiency[of(OperatorKind::Attention)]) choose_kernel(*attention);
    }
    if (const auto& convolution = device_.efficiency[of(OperatorKind::Convolution)];
        used == Precision::Fp32 && convolution && convolution->tiles)
      convolutions_ = &*convolution->tiles;
    if (const Placed<double>& by_host = scenario.training.offload_optimizer; by_host.value > 0)
      for (const auto& [name, rate, example] : {std::tuple("host_link", device_.host_link, "50 GB/s"),
                                                std::tuple("host_update", device_.host_update, "10 GB/s")})
        if (!rate)
          throw InputError(by_host.place, "training.offload_optimizer",
                           "device " + device_.name + " does not state its " + name +
                               ", which an update on the host needs; give it, e.g. " + example);
    low_ = low_precision(scenario.training);
    if (low_) {
      const auto lower = device_.peak.find(low_->products);
      const std::string needed = key(low_->products);
      if (lower == device_.peak.end())
        refuse("has no peak." + needed + ", which training.low_precision needs; give it, e.g. `peak: {" + needed +
               ": 1979 TFLOP/s}`, or leave training.low_precision out");
      low_rates_ = {lower->second.value, bandwidth_, device_.multiprocessors};
      const auto& own = device_.efficiency[of(low_->kind)];
      low_tiles_ = own && own->tiles ? &*own->tiles : own ? nullptr : tiles_;
    }
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
    const Passes of_all = by_operators(work, static_cast<double>(samples)),
                 of_attention = by_operators(attention, static_cast<double>(samples));
    const auto share = [](Time part, Time all) { return all > Time{} ? std::min(1.0, ratio(part, all)) : 0.0; };
    return {share(of_attention.forward, of_all.forward), share(of_attention.backward_input, of_all.backward_input)};
  }
  std::vector<int> loads() const override { return measured_ ? measured_->loads() : std::vector<int>{}; }
  Passes price_at(const Model& model, LayerId id, std::int64_t samples, int active) const override {
    const Layer& layer = model.layers[static_cast<std::size_t>(id)];
    const auto backward = stated_backward(layer, samples, model.batch);
    Passes passes;
    if (layer.forward && backward) {
      // Both are stated: nothing to estimate.
    } else if (layer.work >= 0) {
      const Work& work = model.works[static_cast<std::size_t>(layer.work)];
      const auto known = measured_ ? measured_->price(work, samples, active) : std::nullopt;
      passes = known ? *known : by_operators(work, static_cast<double>(samples));
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
    }
    if (layer.forward || backward) passes.issued.reset();
    if (!passes.issued && host_limits()) {
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
    if (host_limits() && !waits_between_passes(host.blocking, stages)) return {};
    return host.around_pass(stages);
  }

  Time cast(std::int64_t low) const override {
    const double bytes = cast_bytes(low, scenario_.training, device_);
    return bytes > 0 ? transfer_time(bytes, Bandwidth{bandwidth_ * share(OperatorKind::Memory, bytes)}) : Time{};
  }
  // The host's part, then the device's.
  Time update(std::int64_t parameters) const override {
    const std::int64_t by_host = updated_by_host(parameters, scenario_.training);
    return checked_sum(host_update(by_host, scenario_.training, device_), update_here(parameters - by_host));
  }

  std::string caution(const Model& model, std::int64_t samples) const override {
    return measured_ ? measured_->caution(model, samples) : at_full_peak(model);
  }

  std::string provenance() const override {
    const auto& layers = scenario_.model.layers;
    const auto stated = std::count_if(layers.begin(), layers.end(),
                                      [](const Layer& l) { return l.forward || l.backward || l.backward_input; });
    std::string text = "layer times: roofline from FLOPs and bytes on " + device_.name + " (" +
                       key(scenario_.training.precision) + recipe() + ", " +
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
  // The step over parameters whose states are on the device.
  Time update_here(std::int64_t parameters) const {
    if (parameters == 0) return {};
    if (measured_)
      if (const std::optional<Time> known = measured_->update(parameters))
        return checked_sum(*known, device_.host.step);
    const Precision precision = scenario_.training.precision;
    const Bytes states = optimizer_bytes(precision, scenario_.training.optimizer);
    const Bytes once = 2 * weight_bytes(precision) + gradient_bytes(scenario_.training) + 2 * states;
    const Bytes moved = scenario_.training.update_bytes.value_or(once);
    const double bytes = static_cast<double>(parameters) * static_cast<double>(moved.value);
    const Bandwidth rate =
        scenario_.model.works.empty() ? byte_rate_ : Bandwidth{bandwidth_ * share(OperatorKind::Memory, bytes)};
    return checked_sum(transfer_time(bytes, rate), checked_sum(device_.launch_overhead, device_.host.step));
  }

  std::string recipe() const { return low_ ? std::string(", linear layers in ") + low_->name : std::string(); }
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
    static constexpr std::array<const char*, kOperatorKinds> kNames = {
        "matrix_product", "convolution", "grouped_convolution", "attention",  "recurrent",
        "memory",         "fp8_product", "fp8_block_product",   "fp4_product"};
    std::vector<KindPriced> kinds;
    for (std::size_t kind = 0; kind < kNames.size(); ++kind) {
      const auto& stated = device_.efficiency[kind];
      const bool of_low = kind > of(OperatorKind::Memory);
      if (!stated || (of_low && (!low_ || of(low_->kind) != kind))) continue;
      const bool attention = kind == of(OperatorKind::Attention) && kernels_;
      const bool by_size = (kind == of(OperatorKind::MatrixProduct) && tiles_) || (of_low && low_tiles_) || attention ||
                           (kind == of(OperatorKind::Convolution) && convolutions_);
      kinds.push_back(
          {kNames[kind], &*stated, by_size, attention ? attention_kernel(*kernels_, kernel_, 128) : nullptr});
    }
    std::string text = in_words(kinds);
    if (device_.collectives)
      text += std::string("; collectives by size (") + in_words(device_.collectives->provenance) + ")";
    if (host_limits())
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

  bool overlaps() const { return scenario_.plan.tensor_overlap.value && split_.sequence_parallel && split_.degree > 1; }
  // Of what is exchanged, the share that is left to wait for; the wait for the slowest member is.
  double left_of(const PassKernels& pass, double exchanged, int count) const {
    const double skew = count * static_cast<double>(device_.host.skew.value), sent = exchanged - skew;
    if (!overlaps() || count == 0 || sent <= 0) return 1;
    const double left = left_of_exchanges(pass.gathers, pass.scatters, count, sent / count / 2, split_.degree);
    return (left + skew) / exchanged;
  }

  // Nanoseconds that the group of a worker spends on its all-reduces of one pass. With sequence parallelism the half that
  // gathers moves what products in fewer bits read.                                            [TransformerEngine26]
  double collectives(const Work& work, const Amount& reduced, int reductions, double samples) const {
    double bytes = reduced.on_device(Bytes{static_cast<std::int64_t>(weight_)}, TensorParallel{}) * samples;
    if (low_ && split_.sequence_parallel &&
        std::any_of(work.operators.begin(), work.operators.end(), low_precision_product))
      bytes *= (weight_ + low_->bytes) / (2 * weight_);
    return tensor_.time(bytes, reductions, static_cast<double>(device_.host.skew.value));
  }

  double share(OperatorKind kind, double work) const {
    if (const auto& stated = device_.efficiency[of(kind)]) return stated->at(work);
    return kind == OperatorKind::Memory ? device_.memory_efficiency : device_.compute_efficiency;
  }

  // The kernel that the training names, or the device's first.
  void choose_kernel(const Efficiency& attention) {
    if (attention.kernels.empty()) return;
    const AttentionKernelName name = scenario_.training.attention_kernel.value_or(attention.kernels.front().kernel);
    if (!attention_kernel(attention.kernels, name, 128))
      throw InputError(scenario_.training.place, "training.attention_kernel",
                       "device \"" + device_.name + "\" has no curve for " + in_words(name) + "; it has " +
                           in_words(attention.kernels.front().kernel) + " among others: see `pipewright show device " +
                           device_.name + "`");
    kernels_ = &attention.kernels, kernel_ = name;
  }

  bool in_fewer_bits(const Operator& op) const { return low_ && low_precision_product(op); }
  bool divided_rows(const Operator& op) const { return !op.divided && split_.sequence_parallel && !op.gathered; }

  // Casting what a product reads in that pass: its input, or the gradient of its output; `weights` of them too, where
  // they are cast for every use.
  struct Casts {
    double time = 0;
    int kernels = 0;
  };
  Casts casts(const Operator& op, PassKind pass, double samples, double weights) const {
    Casts all;
    if (!in_fewer_bits(op) || !op.shape || pass == PassKind::Weight) return all;
    using Divided = ProductOfLayer::Divided;
    const ProductShape shape = op.shape.call(PassKind::Forward, samples, split_, divided_rows(op));
    const bool forward = pass == PassKind::Forward;
    double values = shape.m * shape.batch * (forward ? shape.k : shape.n);
    // Cast before they are gathered along the sequence.
    const bool sent = op.expert && split_.sends_tokens();
    if (split_.sequence_parallel && !sent && op.shape.divided == (forward ? Divided::Columns : Divided::Depth))
      values /= split_.degree;
    const auto add = [&](double count) {
      const double bytes = count * (weight_ * (low_->finds_largest ? 2 : 1) + copies_of(*low_, device_) * low_->bytes);
      const int kernels = low_->finds_largest ? 2 : 1;
      // As measured beside products, else as other kernels that move bytes.
      const auto& own = device_.efficiency[of(low_->kind)];
      const auto& stated = own ? own : device_.efficiency[of(OperatorKind::Memory)];
      all.time += bytes / (bandwidth_ * share(OperatorKind::Memory, bytes)) * 1e9 +
                  kernels * static_cast<double>((device_.launch_overhead + (stated ? stated->fixed : Time{})).value);
      all.kernels += kernels;
    };
    add(values);
    if (scenario_.training.zero >= kWeightsSharded && !scenario_.training.low_precision_weights) add(weights);
    return all;
  }

  // One pass of a product whose shape is known, by tiles and waves.
  double product_time(const Operator& op, PassKind pass, double samples) const {
    const bool rows = divided_rows(op), low = in_fewer_bits(op);
    const ProductCurve& tiles = low ? *low_tiles_ : *tiles_;
    const bool looped = scenario_.training.expert_products == ExpertProducts::Looped && !op.shape.of_sample;
    const auto one = [&](PassKind kind) {
      const bool added = kind == PassKind::Weight && gradient_ > weight_;  // to an fp32 buffer, read and written
      const ProductShape shape = op.shape.call(kind, samples, split_, rows);
      double us = product_us(tiles, low ? low_rates_ : rates_, shape, low ? low_->bytes : weight_,
                             added ? 2 * gradient_ : weight_);
      if (looped && shape.batch > 1) us = looped_us(tiles, us, shape.batch, kind);
      return op.shape.aligned() ? us : tiles.launch + (us - tiles.launch) / kMisaligned;
    };
    // Two factors of activations have a gradient each.
    const double us = one(pass) + (op.shape.of_sample && pass == PassKind::Input ? one(PassKind::Weight) : 0);
    return us * 1e3 + static_cast<double>(device_.launch_overhead.value);
  }

  double attention_time(const Operator& op, PassKind pass, double samples) const {
    AttentionShape shape = op.attention;
    if (op.divided) shape.heads /= split_.degree, shape.key_heads /= split_.degree;
    const AttentionKernel& kernel = *attention_kernel(*kernels_, kernel_, (shape.key_size + shape.value_size) / 2);
    const bool backward = pass == PassKind::Input;
    const double us =
        attention_us(backward ? kernel.backward : kernel.forward, rates_, shape, samples, weight_, backward);
    return us * 1e3 + static_cast<double>(device_.launch_overhead.value);
  }

  // Nanoseconds of one operator in one pass, its launches included.
  double operator_time(const Operator& op, PassKind pass, double samples, double flops, double bytes,
                       int kernels = 1) const {
    if (flops <= 0 && bytes <= 0) return 0;
    const bool low = in_fewer_bits(op);
    if ((low ? low_tiles_ : tiles_) && op.shape && flops > 0) return product_time(op, pass, samples);
    if (kernels_ && op.attention.heads > 0) return attention_time(op, pass, samples);
    if (convolutions_ && op.convolution.channels > 0 && flops > 0)
      return convolution_us(*convolutions_, rates_, op.convolution, pass, flops / op.forward_flops, weight_,
                            share(OperatorKind::Memory, bytes)) *
                 1e3 +
             static_cast<double>(device_.launch_overhead.value);
    // What only moves bytes computes on the side: at the share that products reach without one of their own.
    const OperatorKind kind = low && device_.efficiency[of(low_->kind)] ? low_->kind : op.kind;
    const double compute = kind == OperatorKind::Memory ? device_.compute_efficiency : share(kind, flops);
    const double arithmetic = flops > 0 ? flops / ((low ? low_rates_.peak : peak_) * compute) : 0;
    const double memory = bytes > 0 ? bytes / (bandwidth_ * share(OperatorKind::Memory, bytes)) : 0;
    const auto& stated = device_.efficiency[of(kind)];
    const Time fixed = stated ? stated->fixed : Time{};
    return std::max(arithmetic, memory) * 1e9 + kernels * static_cast<double>((device_.launch_overhead + fixed).value);
  }

  // Attention over a sequence that devices share, of so many samples: the pass, and what exchanges add that attention does
  // not hide.
  void add_attention(const Operator& op, PassKind pass, double samples, double host, PassKernels& kernels) const {
    const bool backward = pass == PassKind::Input;
    Operator part = op;
    part.attention = context_.kernel(op.attention);
    const double flops = (backward ? op.input_flops + op.rebuilt_flops : op.forward_flops) * samples *
                         context_.flops_share(op.attention) / (op.divided ? split_.degree : 1);
    const double bytes =
        (backward ? op.input_bytes : op.forward_bytes).on_device(Bytes{static_cast<std::int64_t>(weight_)}, split_) *
        samples * context_.bytes_share(op.attention);
    const double one = operator_time(part, pass, samples, flops, bytes);
    const ContextTensors own = context_tensors(op, scenario_.plan, samples, weight_);
    const double all = backward ? context_.backward(one, own) : context_.forward(one, own);
    kernels.add(host, one * context_.kernels(), context_.kernels());
    kernels.add_exchanges(issue_times(device_.host, scenario_.training.execution).collective,
                          all - one * context_.kernels(), context_.calls(backward));
  }

  // One way of the tokens to or from their experts.
  double exchange_time(const Operator& op, double samples) const {
    if (op.sent.tokens <= 0) return 0;
    const bool out = op.name == "dispatch";
    const double each = out && scenario_.plan.expert_dispatch_fp8 ? 1 + 4.0 / 128 : weight_;
    return sent_.time(op.sent, op.sent.tokens * samples / split_.degree, op.sent.features * each);
  }

  // Passes over a device's part of the samples' tokens.
  Passes by_operators(const Work& work, double whole_samples) const {
    const double of_device = whole_samples / context_.degree();
    const Bytes per_value{static_cast<std::int64_t>(weight_)};
    const double t = split_.degree;
    const IssueTimes host = issue_times(device_.host, scenario_.training.execution);
    PassKernels forward, input, weight, core, again;
    ProductOfLayer scores;
    const std::size_t repeated =
        scenario_.training.checkpoint_early_stop ? repeated_until_read(work) : work.operators.size();
    for (const Operator& op : work.operators) {
      const bool at_experts = op.expert && split_.sends_tokens();
      // The tokens that a device's experts get: those of the fullest.
      const double samples =
          at_experts && split_.experts > 1 ? of_device * scenario_.plan.expert_imbalance.value : of_device;
      const bool shared = op.divided || (split_.sequence_parallel && !op.gathered) || at_experts;
      const double flops = samples / (shared ? t : 1.0);
      const std::int64_t dense = op.parameters - op.gathered_parameters;
      const std::int64_t sharded = std::min(dense, op.sharded_parameters);
      const double parameters =
          static_cast<double>(dense - sharded) +
          std::ceil(static_cast<double>(sharded) / (at_experts ? static_cast<double>(split_.expert_devices()) : t));
      const auto bytes = [&](const Amount& amount, double of_weights) {
        const double tensors = amount.on_device(per_value, split_) * samples;
        return tensors > 0 ? tensors + parameters * of_weights : 0;
      };
      if (context_.divides() && op.attention.heads > 0) {
        add_attention(op, PassKind::Forward, whole_samples, host.forward, forward);
        if (&op < work.operators.data() + repeated)
          add_attention(op, PassKind::Forward, whole_samples, host.forward, again);
        add_attention(op, PassKind::Input, whole_samples, host.backward, input);
        continue;
      }
      if (op.name == "scores") scores = op.shape;
      const bool apart = scenario_.training.framework.megatron() && softmax_apart(op, scores, samples, split_);
      const int kernels = apart ? kSoftmaxKernels : 1;
      const bool rebuilt = rebuilt_with(op, scenario_.plan.recompute_modules),
                 repeats = &op < work.operators.data() + repeated;
      // What a forward adds is added to what repeats it, too.
      const auto to_forward = [&](const auto& add) {
        add(forward);
        if (rebuilt) add(core);
        if (repeats) add(again);
      };
      const double exchange = at_experts ? exchange_time(op, of_device) : 0;
      const auto exchanged = [&](PassKernels& pass) {
        if (exchange > 0) pass.add_exchanges(host.collective, exchange, sent_.calls());
      };
      const bool returns =
          op.name == "combine";  // rows come back before they are summed; sent ones leave behind the copy
      if (returns) to_forward(exchanged);
      if (const Casts of = casts(op, PassKind::Forward, samples, parameters); of.kernels > 0)
        to_forward([&](PassKernels& pass) { pass.add(host.forward, of.time, of.kernels); });
      const double once = operator_time(op, PassKind::Forward, samples, op.forward_flops * flops,
                                        bytes(op.forward_bytes, weight_) * (apart ? kSoftmaxForward : 1), kernels);
      to_forward([&](PassKernels& pass) { pass.add(host.forward, once, kernels); });
      using Divided = ProductOfLayer::Divided;
      const bool columns = op.shape.divided == Divided::Columns, depth = op.shape.divided == Divided::Depth;
      const bool beside = overlaps() && !op.expert && (columns || depth);
      // Also in t parts, of as many rows each.
      const auto divided = [&](PassKind pass, double whole, double work_of_pass, const Amount& amount) {
        const double moved = amount.on_device(per_value, split_) * samples / t + parameters * weight_;
        return DividedProduct{whole, operator_time(op, pass, samples / t, work_of_pass * flops / t, moved) * t};
      };
      if (beside)
        to_forward(
            [&, product = divided(PassKind::Forward, once, op.forward_flops, op.forward_bytes)](PassKernels& pass) {
              auto& products = columns ? pass.gathers : pass.scatters;
              // Several products read what was gathered once, up to the one whose output is scattered.
              const bool joins = columns && pass.gathers.size() > pass.scatters.size();
              if (!joins) return products.push_back(product);
              products.back().whole += product.whole, products.back().parts += product.parts;
            });
      if (!returns) to_forward(exchanged);
      if (returns) exchanged(input);  // the list is turned round below
      const double of_input = operator_time(op, PassKind::Input, samples, (op.input_flops + op.rebuilt_flops) * flops,
                                            bytes(op.input_bytes, weight_) * (apart ? kSoftmaxBackward : 1), kernels);
      input.add(host.backward, of_input, kernels);
      if (beside && of_input > 0)
        (columns ? input.gathers : input.scatters)
            .push_back(divided(PassKind::Input, of_input, op.input_flops, op.input_bytes));
      if (!returns) exchanged(input);
      if (const Casts of = casts(op, PassKind::Input, samples, parameters); of.kernels > 0)
        input.add(host.backward, of.time, of.kernels);
      weight.add(host.backward, operator_time(op, PassKind::Weight, samples, op.weight_flops * flops,
                                              bytes(op.weight_bytes, gradient_)));
    }
    std::reverse(input.list.begin(), input.list.end());
    std::reverse(weight.list.begin(), weight.list.end());
    const auto reduced = [&](const PassKernels& pass, const Amount& amount, int count) {
      const double exchanged = collectives(work, amount, count, of_device);
      return pass.with(count, host.collective, exchanged * left_of(pass, exchanged, count));
    };
    Amount within;  // the modules that are run again
    int reductions = 0;
    for (std::size_t module = 0; module < work.reduced_within.size(); ++module)
      if (scenario_.plan.recompute_modules.has(static_cast<Module>(module)))
        within += work.reduced_within[module].bytes, reductions += work.reduced_within[module].times;
    // Where tokens are sent to their experts, no group sums up what these make.
    const bool sent = split_.sends_tokens();
    const auto of_all = [&](Amount amount) { return sent ? amount - work.reduced_by_experts : amount; };
    const auto times = [&](int count) { return sent ? count - work.expert_layers : count; };
    if (sent && scenario_.plan.recompute_modules.has(Module::Experts) && reductions >= work.expert_layers)
      within = of_all(within), reductions = times(reductions);
    IssuedPasses issued{reduced(forward, of_all(work.reduced_forward), times(work.reductions_forward)),
                        reduced(input, of_all(work.reduced_backward), times(work.reductions_backward)),
                        weight.with(),
                        reduced(core, within, reductions),
                        {}};
    issued.again = issued.forward;
    if (repeated < work.operators.size()) {  // the last product's all-reduce goes with it
      const int all = times(work.reductions_forward), left = std::max(0, all - 1);
      const double time = all == 0 ? 0 : collectives(work, of_all(work.reduced_forward), all, of_device) * left / all;
      issued.again = again.with(left, host.collective, time * left_of(again, time, left));
    }
    Passes passes;
    passes.forward = issued.forward.device;
    passes.backward_input = issued.input.device;
    passes.backward_weight = issued.weight.device;
    passes.rebuild = issued.rebuild.device;
    passes.again = issued.again.device;
    if (host_limits()) passes.issued = issued;
    return passes;
  }

  bool host_limits() const {
    const HostTimes& host = device_.host;
    return host.operation.value > 0 || host.backward.value_or(Time{}).value > 0 || host.collective.value > 0;
  }

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
    return checked_sum(time, device_.launch_overhead);
  }

  const Scenario& scenario_;
  const Device& device_;
  TensorParallel split_;
  double weight_, gradient_;  // bytes
  double peak_ = 0, bandwidth_ = 0, speed_ = 1;
  FlopRate flop_rate_;
  Bandwidth byte_rate_;
  DeviceRates rates_, low_rates_;
  const LowPrecisionRule* low_ = nullptr;
  const ProductCurve* low_tiles_ = nullptr;                // as tiles_, of products in fewer bits
  const ProductCurve* tiles_ = nullptr;                    // nullptr: products take their share of the peak
  const ProductCurve* convolutions_ = nullptr;             // likewise
  const std::vector<AttentionKernel>* kernels_ = nullptr;  // likewise
  AttentionKernelName kernel_ = AttentionKernelName::Fa2;
  std::optional<MeasuredTimes> measured_;
  TensorExchange tensor_;
  ContextAttention context_;
  TokenExchange sent_;
};

}  // namespace

std::unique_ptr<CostSource> roofline(const Scenario& scenario, int device_class, const Topology& topology) {
  return std::make_unique<Roofline>(scenario, device_class, topology);
}

}  // namespace pipewright::core
