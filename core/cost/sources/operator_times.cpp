#include "core/cost/sources/operator_times.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/cost/cost_model.hpp"
#include "core/cost/efficiency_words.hpp"

namespace pipewright::core {
namespace {

// Rate of a product whose rows of memory begin at addresses that are no multiples of 16 B, over that of an aligned one.
// Assumed: heads of an unpadded vocabulary of 50257 run at 0.33 to 0.42 of the rate in measured training steps.
constexpr double kMisaligned = 1.0 / 3;

// Share of the time of reading and writing a sum in fp32 by which a product that adds to it takes longer, as measured on B200
// and A100; a product that adds to a sum in bf16 takes no longer.                          docs/how-it-works/kernels.md
constexpr double kSumSeen = 0.5;

constexpr std::size_t of(OperatorKind kind) {
  return static_cast<std::size_t>(kind);
}

}  // namespace

const char* precision_key(Precision precision) {
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

double added_to_sum_ns(double values, double bandwidth) {
  return kSumSeen * 2 * 4 * values / bandwidth * 1e9;
}

OperatorTimes::OperatorTimes(const Scenario& scenario, int device_class)
    : scenario_(scenario),
      device_(scenario.cluster.device_of(device_class)),
      split_(scenario.plan.split()),
      weight_(static_cast<double>(weight_bytes(scenario.training.precision).value)),
      gradient_(static_cast<double>(gradient_bytes(scenario.training).value)) {
  read_rates();
  const Precision used = scenario.training.precision;
  if (used == Precision::Fp16 || used == Precision::Bf16) {
    if (const auto& products = device_.efficiency[of(OperatorKind::MatrixProduct)]; products && products->tiles)
      tiles_ = &*products->tiles;
    if (const auto& attention = device_.efficiency[of(OperatorKind::Attention)]) choose_kernel(*attention);
  }
  if (const auto& convolution = device_.efficiency[of(OperatorKind::Convolution)];
      used == Precision::Fp32 && convolution && convolution->tiles)
    convolutions_ = &*convolution->tiles;
  read_low_precision();
}

void OperatorTimes::refuse(const std::string& message) const {
  throw InputError(device_.place, "device \"" + device_.name + "\" " + message);
}

void OperatorTimes::read_rates() {
  const auto peak = device_.peak.find(scenario_.training.precision);
  const std::string precision = precision_key(scenario_.training.precision);
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
}

void OperatorTimes::read_low_precision() {
  low_ = low_precision(scenario_.training);
  if (!low_) return;
  const auto lower = device_.peak.find(low_->products);
  const std::string needed = precision_key(low_->products);
  if (lower == device_.peak.end())
    refuse("has no peak." + needed + ", which training.low_precision needs; give it, e.g. `peak: {" + needed +
           ": 1979 TFLOP/s}`, or leave training.low_precision out");
  low_rates_ = {lower->second.value, bandwidth_, device_.multiprocessors};
  const auto& own = device_.efficiency[of(low_->kind)];
  low_tiles_ = own && own->tiles ? &*own->tiles : own ? nullptr : tiles_;
}

// The kernel that the training names, or the device's first.
void OperatorTimes::choose_kernel(const Efficiency& attention) {
  if (attention.kernels.empty()) return;
  const AttentionKernelName name = scenario_.training.attention_kernel.value_or(attention.kernels.front().kernel);
  if (!attention_kernel(attention.kernels, name, 128))
    throw InputError(scenario_.training.place, "training.attention_kernel",
                     "device \"" + device_.name + "\" has no curve for " + in_words(name) + "; it has " +
                         in_words(attention.kernels.front().kernel) + " among others: see `pipewright show device " +
                         device_.name + "`");
  kernels_ = &attention.kernels, kernel_ = name;
}

std::string OperatorTimes::efficiencies() const {
  static constexpr std::array<const char*, kOperatorKinds> kNames = {
      "matrix_product", "convolution", "grouped_convolution", "attention",   "recurrent",
      "memory",         "fp8_product", "fp8_block_product",   "fp4_product", "permutation"};
  std::vector<KindPriced> kinds;
  for (std::size_t kind = 0; kind < kNames.size(); ++kind) {
    const auto& stated = device_.efficiency[kind];
    const bool of_low = kind > of(OperatorKind::Memory) && kind < of(OperatorKind::Permutation);
    if (!stated || (of_low && (!low_ || of(low_->kind) != kind))) continue;
    const bool attention = kind == of(OperatorKind::Attention) && kernels_;
    const bool by_size = (kind == of(OperatorKind::MatrixProduct) && tiles_) || (of_low && low_tiles_) || attention ||
                         (kind == of(OperatorKind::Convolution) && convolutions_);
    kinds.push_back({kNames[kind], &*stated, by_size, attention ? attention_kernel(*kernels_, kernel_, 128) : nullptr});
  }
  return in_words(kinds);
}

double OperatorTimes::share(OperatorKind kind, double work) const {
  if (const auto& stated = device_.efficiency[of(kind)]) return stated->at(work);
  return kind == OperatorKind::Memory ? device_.memory_efficiency : device_.compute_efficiency;
}

bool OperatorTimes::in_fewer_bits(const Operator& op) const {
  return low_ && low_precision_product(op);
}

OperatorTimes::Casts OperatorTimes::casts(const Operator& op, PassKind pass, double samples, double weights) const {
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
double OperatorTimes::product_time(const Operator& op, PassKind pass, double samples) const {
  const bool rows = divided_rows(op), low = in_fewer_bits(op);
  const ProductCurve& tiles = low ? *low_tiles_ : *tiles_;
  const bool looped = scenario_.training.expert_products == ExpertProducts::Looped && !op.shape.of_sample;
  const auto one = [&](PassKind kind) {
    const ProductShape shape = op.shape.call(kind, samples, split_, rows);
    double us = product_us(tiles, low ? low_rates_ : rates_, shape, low ? low_->bytes : weight_, weight_);
    if (looped && shape.batch > 1) us = looped_us(tiles, us, shape.batch, kind);
    if (!op.shape.aligned()) us = tiles.launch + (us - tiles.launch) / kMisaligned;
    // Where each micro-batch is reduced by itself, nothing is added up, but the gradient is cast to fp32 for it: 6 B, priced alike.
    const bool summed = kind == PassKind::Weight && gradient_ > weight_ && !op.shape.of_sample;
    return us + (summed ? added_to_sum_ns(shape.batch * shape.m * shape.n, bandwidth_) / 1e3 : 0);
  };
  // Two factors of activations have a gradient each.
  const double us = one(pass) + (op.shape.of_sample && pass == PassKind::Input ? one(PassKind::Weight) : 0);
  return us * 1e3 + static_cast<double>(device_.launch_overhead.value);
}

double OperatorTimes::attention_time(const Operator& op, PassKind pass, double samples) const {
  AttentionShape shape = op.attention;
  if (op.divided) shape.heads /= split_.degree, shape.key_heads /= split_.degree;
  const AttentionKernel& kernel = *attention_kernel(*kernels_, kernel_, (shape.key_size + shape.value_size) / 2);
  const bool backward = pass == PassKind::Input;
  const double us =
      attention_us(backward ? kernel.backward : kernel.forward, rates_, shape, samples, weight_, backward);
  return us * 1e3 + static_cast<double>(device_.launch_overhead.value);
}

double OperatorTimes::time(const Operator& op, PassKind pass, double samples, double flops, double bytes,
                           int kernels) const {
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
  const bool permutes = op.sent.tokens > 0 && device_.efficiency[of(OperatorKind::Permutation)];
  const OperatorKind moving = permutes ? OperatorKind::Permutation : OperatorKind::Memory;
  const double memory = bytes > 0 ? bytes / (bandwidth_ * share(moving, bytes)) : 0;
  const auto& stated = device_.efficiency[of(permutes ? OperatorKind::Permutation : kind)];
  const Time fixed = stated ? stated->fixed : Time{};
  return std::max(arithmetic, memory) * 1e9 + kernels * static_cast<double>((device_.launch_overhead + fixed).value);
}

}  // namespace pipewright::core
