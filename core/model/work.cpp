#include "core/model/work.hpp"

#include <algorithm>
#include <cmath>

#include "core/folds.hpp"

namespace pipewright::core {

Amount& Amount::operator+=(const Amount& other) {
  values += other.values, fixed += other.fixed;
  sharded_values += other.sharded_values, sharded_fixed += other.sharded_fixed;
  gathered_values += other.gathered_values;
  return *this;
}

Amount& Amount::operator-=(const Amount& other) {
  return *this += -1.0 * other;
}

Amount operator*(double factor, Amount a) {
  a.values *= factor, a.fixed *= factor;
  a.sharded_values *= factor, a.sharded_fixed *= factor;
  a.gathered_values *= factor;
  return a;
}

double Amount::on_device(Bytes per_value, TensorParallel split) const {
  const auto each = static_cast<double>(per_value.value);
  const double whole = values * each + fixed, sharded = sharded_values * each + sharded_fixed;
  const double gathered =
      split.sends_tokens() ? gathered_values * split.expert_split() / split.degree : gathered_values;
  return (split.sequence_parallel ? whole / split.degree : whole) + sharded / split.degree + gathered * each;
}

namespace {

// What one device of the group has of a divided side; where the degree does not divide it, it is padded to 128 each.
double divided_among(double size, int degree) {
  if (degree == 1 || std::fmod(size, degree) == 0) return size / degree;
  return std::ceil(size / degree / 128) * 128;
}

}  // namespace

ProductShape ProductOfLayer::call(PassKind pass, double samples, TensorParallel split, bool divided_rows) const {
  const bool sent = expert && split.sends_tokens();
  const int t = sent ? split.expert_split() : split.degree;
  const double from = sent ? static_cast<double>(split.expert_devices()) / split.degree : 1;
  const double m = rows * from * (of_sample ? 1 : samples) / (divided_rows ? t : 1);
  const double n = divided == Divided::Columns ? divided_among(columns, t) : columns;
  const double k = divided == Divided::Depth ? divided_among(depth, t) : depth;
  const double batch =
      groups * (of_sample ? samples : 1) / (divided == Divided::Groups ? t : 1) / (sent ? split.experts : 1);
  switch (pass) {
    case PassKind::Forward: return {m, n, k, batch};
    case PassKind::Input: return {m, k, n, batch};
    case PassKind::Weight: return {n, k, m, batch};
  }
  return {};
}

bool ProductOfLayer::aligned() const {
  return std::fmod(columns, 8) == 0 && std::fmod(depth, 8) == 0;
}

double Work::forward_flops() const {
  return sum_over<double>(operators, &Operator::forward_flops);
}

double Work::product_flops() const {
  double sum = 0;
  for (const Operator& op : operators)
    if (op.product) sum += op.forward_flops;
  return sum;
}

bool dropped_with(const KeptTensors& kept, Modules rebuilt) {
  rebuilt = with_experts(rebuilt);
  const bool output_too = Modules{Module::Norm, Module::ExpertActivation, Module::LatentUp}.has(kept.made_by);
  return rebuilt.has(kept.made_by) && (output_too || kept.read_by.within(rebuilt));
}

bool needed_with(const KeptTensors& read_again, Modules rebuilt) {
  rebuilt = with_experts(rebuilt);
  return read_again.read_by.meets(rebuilt) && !rebuilt.has(read_again.made_by);
}

Amount kept_without(const Work& work, Modules rebuilt) {
  Amount kept;
  for (const KeptTensors& each : work.read_again)
    if (needed_with(each, rebuilt)) kept += each.amount;
  for (const KeptTensors& each : work.kept_tensors)
    if (!dropped_with(each, rebuilt)) kept += each.amount;
  return kept;
}

ReplayBytes replay_bytes(const Work& work, Bytes per_value, TensorParallel split) {
  const auto saved = [&](const Replay& op) {
    const bool scattered = split.sequence_parallel && split.degree > 1;
    return op.saved.on_device(per_value, split) + (scattered ? op.scattered.on_device(per_value, split) : 0);
  };
  ReplayBytes bytes;
  for (const Replay& op : work.replay)
    bytes.saved += saved(op);
  double now = bytes.most = bytes.saved;
  for (const Replay& op : work.replay) {
    now += op.kept.on_device(per_value, split) - saved(op);
    bytes.most = std::max(bytes.most, now);
  }
  // Users of the output count on it, whether it is rebuilt or not.
  if (work.keeps_output) bytes.saved += work.output().on_device(per_value, split);
  return bytes;
}

bool low_precision_product(const Operator& op) {
  return op.kind == OperatorKind::MatrixProduct && op.product && !op.logits && !op.routed &&
         op.weights != Weights::Adapter && op.module != Module::AttentionCore;
}

std::int64_t low_precision_parameters(const Work& work, TensorParallel split) {
  std::int64_t sum = 0;
  for (const Operator& op : work.operators) {
    if (!low_precision_product(op)) continue;
    const std::int64_t whole = op.parameters - op.sharded_parameters;
    const std::int64_t among = op.expert && split.sends_tokens() ? split.expert_devices() : split.degree;
    sum += whole + (op.sharded_parameters + among - 1) / among;
  }
  return sum;
}

std::size_t repeated_until_read(const Work& work) {
  std::size_t end = work.operators.size();
  while (end > 0 && work.operators[end - 1].name == "add")  // keeps nothing
    --end;
  if (end > 0 && work.operators[end - 1].product) --end;
  return end;
}

Amount Work::output() const {
  Amount sum;
  for (const Amount& output : outputs)
    sum += output;
  return sum;
}

std::int64_t parameters_on_device(const Work& work, TensorParallel split) {
  const std::int64_t experts = split.sends_tokens() ? work.expert_parameters : 0,
                     sharded = work.sharded_parameters - experts;
  return work.parameters - work.sharded_parameters + (sharded + split.degree - 1) / split.degree +
         expert_parameters_on_device(work, split);
}

std::int64_t adapters_on_device(const Work& work, TensorParallel split) {
  return work.adapter_parameters - work.sharded_adapters + (work.sharded_adapters + split.degree - 1) / split.degree;
}

std::int64_t expert_parameters_on_device(const Work& work, TensorParallel split) {
  const std::int64_t devices = split.expert_devices();
  return split.sends_tokens() ? (work.expert_parameters + devices - 1) / devices : 0;
}

}  // namespace pipewright::core
