// Figures of every operator, for one sample. n values in the output; a product counts two FLOPs per multiply-add.
//
//   conv2d      2 C' H' W' (C / groups) kh kw; each gradient the same         [Dumoulin16] for H' = (H + 2p - k) / s +
//   1
//               64 channels 7 x 7 / 2 of 3 x 224 x 224: 2 * 64 * 112 * 112 * 147 = 236 027 904
//   linear      2 rows in out; each gradient the same                        1 row 4096 -> 1000: 8 192 000
//   attention   2 pairs heads (key size + value size), and twice that for the gradients; pairs = queries * keys, or
//               what a fused kernel leaves of them: causal s (s + 1) / 2, with a window w of s: w (w + 1) / 2 + (s - w)
//               w s = 4, 1 head of 2 + 2: 128; fused causal: 80                 [Vaswani17] section 3.2.1, [Dao22]
//               A fused kernel keeps no scores and its backward computes them again: five products instead of four,
//               2 pairs heads (3 key size + 2 value size); 2 pairs heads key size of them are `rebuilt_flops`, which no
//               count of the model's FLOPs has. s = 4, 1 head of 2 + 2, fused causal: 160 + 40              [Dao22]
//   additive    linear layers, 2 pairs units, 2 pairs features; outside: 2 per pair and unit, backward 5   [Bahdanau15]
//   lstm        8 hidden (in + hidden) per token and direction; each gradient the same; 18 n outside the products
//   experts     as the linear layers of the experts that a token is sent to
//   adapters    layer_adapters.cpp
//
// Arithmetic outside of products, per value of the output; exp, tanh, erf, division and square root count as one:
//               forward  backward                                              forward  backward
//   relu        1        1              layer, batch, instance norm   7        14     (mean, centre, square, sum,
//   gelu (erf)  5        11             rms norm                      4        8       scale, affine 2)
//   silu        5        9              softmax                       5        4
//   tanh        1        3              cross-entropy, per class      6        1
//   rotary      3        3
//   sigmoid     4        3              dropout, multiply             1        1, 2
//   scale       1        1              soft cap                      3        5
//   scale rows  1        3
//   pooling     k^2 - 1 per output value (max), k^2 (average)         add      1        0
// The adding of biases happens within the products and is not counted; where a tensor has several users, adding up
// its gradients is not counted either.
//
// Bytes: a pass reads and writes each tensor once, the passes of a product likewise: the input gradient reads the
// output's gradient and writes the input's; the weight gradient reads the output's gradient and the input. Norms over
// whole images (batch, instance) sum up before they scale: the forward reads its input twice, 3 n in place of 2 n, the
// backward the input and the gradient, 5 n in place of 3 n.
//
// Tests: tests/core/layer_builder_test.cpp
#include "core/model/layer_builder.hpp"

#include <algorithm>

#include "core/model/layer_rules.hpp"

namespace pipewright::core {

using namespace layer_rules;

Shape::Shape(std::initializer_list<std::int64_t> dims) : rank(static_cast<int>(dims.size())) {
  PP_CHECK(dims.size() >= 1 && dims.size() <= dim.size());
  std::copy(dims.begin(), dims.end(), dim.begin());
}

double Shape::elements() const {
  double product = 1;
  for (int i = 0; i < rank; ++i)
    product *= static_cast<double>((*this)[i]);
  return product;
}

std::string text(const Shape& shape) {
  std::string out;
  for (int i = 0; i < shape.rank; ++i)
    out += (i > 0 ? " x " : "") + number(shape[i]);
  return out;
}

// ---- tensors --------------------------------------------------------------------------------------------------------

LayerBuilder::Value LayerBuilder::make(Shape shape, bool sharded, bool needs_gradient) {
  for (int i = 0; i < shape.rank; ++i)
    if (shape[i] < 1) throw InputError("a tensor of shape " + text(shape) + " is empty; use a larger input");
  if (shape.elements() > 1e15) throw InputError("a tensor of shape " + text(shape) + " is larger than 1e15 values");
  tensors_.push_back({});
  tensors_.back().shape = shape;
  tensors_.back().sharded = sharded;
  tensors_.back().needs_gradient = needs_gradient && !idle_;
  tensors_.back().made_by = module_;
  tensors_.back().made_at = work_.operators.size();
  return {static_cast<int>(tensors_.size()) - 1};
}

const LayerBuilder::Tensor& LayerBuilder::at(Value x) const {
  PP_CHECK(x.tensor >= 0 && static_cast<std::size_t>(x.tensor) < tensors_.size());
  return tensors_[static_cast<std::size_t>(x.tensor)];
}
LayerBuilder::Tensor& LayerBuilder::at(Value x) {
  PP_CHECK(x.tensor >= 0 && static_cast<std::size_t>(x.tensor) < tensors_.size());
  return tensors_[static_cast<std::size_t>(x.tensor)];
}

int LayerBuilder::root(Value x) const {
  while (at(x).same_as >= 0)
    x.tensor = at(x).same_as;
  return x.tensor;
}

void LayerBuilder::keep(Value x, Reader reader) {
  if (idle_) return;
  Tensor& tensor = at(Value{root(x)});
  tensor.kept = true;
  tensor.read_by.add(module_);
  (reader == Reader::Linear ? tensor.read_by_linear : tensor.by_others) = true;
}

void LayerBuilder::keep_again(Value x) {
  if (!idle_ && module_ != Module::Other) at(Value{root(x)}).read_again.add(module_);
}

void LayerBuilder::keeps(double values) {
  keep_own({.values = values});
}

void LayerBuilder::keep_own(const Amount& amount, Module made_by) {
  if (idle_) return;
  add_kept({.made_by = made_by, .read_by = {made_by}, .amount = amount});
  if (!replay_.empty()) replay_.back().kept += amount;
}

void LayerBuilder::add_kept(const KeptTensors& kept) {
  if (idle_) return;
  work_.kept += kept.amount;
  for (KeptTensors& each : work_.kept_tensors)
    if (each.made_by == kept.made_by && each.read_by == kept.read_by && each.expert == kept.expert) {
      each.amount += kept.amount, each.by_linear += kept.by_linear, each.by_linear_too += kept.by_linear_too;
      each.before_shares += kept.before_shares;
      return;
    }
  work_.kept_tensors.push_back(kept);
}

Amount LayerBuilder::values(Value x) const {
  const Tensor& tensor = at(x);
  const double elements = tensor.shape.elements();
  Amount amount;
  if (tensor.bytes_each > 0)
    (tensor.sharded ? amount.sharded_fixed : amount.fixed) = elements * tensor.bytes_each;
  else
    (tensor.sharded ? amount.sharded_values : amount.values) = elements;
  return amount;
}

Shape LayerBuilder::shape(Value x) const {
  return at(x).shape;
}

LayerBuilder::Value LayerBuilder::input(Shape shape, bool needs_gradient) {
  const Value x = make(shape, false, needs_gradient);
  at(x).input = static_cast<int>(work_.inputs.size());
  work_.inputs.push_back(values(x));
  return x;
}

LayerBuilder::Value LayerBuilder::tokens(std::int64_t count) {
  need_at_least_1(count, "tokens");
  const Value x = make({count}, false, false);
  at(x).bytes_each = kIndexBytes;
  at(x).input = static_cast<int>(work_.inputs.size());
  work_.inputs.push_back(values(x));
  return x;
}

Operator& LayerBuilder::add_operator(std::string_view name, OperatorKind kind) {
  work_.operators.push_back({});
  work_.operators.back().name = name;
  work_.operators.back().kind = kind;
  work_.operators.back().module = module_;
  replay_.emplace_back();
  return work_.operators.back();
}

void LayerBuilder::replay_product(const Linear& linear, Value y) {
  Replay& replay = replay_.back();
  Amount output = values(y);
  if (linear.split == Split::Rows) {
    replay.scattered = output;
    output = {.gathered_values = shape(y).elements()};  // each device has a whole sum of its own
  }
  const int calls = linear.gate ? 2 : 1;
  double saved = linear.bias ? 1 : 0;
  for (int i = 0; i < calls && !linear.bias && !linear.routed; ++i)
    if (++products_ % 2 == 1) saved += 1.0 / calls;
  replay.again = 1 - saved;
  replay.saved = saved * output;
}

void LayerBuilder::record(std::string_view operation, std::span<const Value> inputs, Value out, StepSpec spec) {
  ProgramStep step{operation, {}, out.tensor, std::move(spec)};
  for (const Value x : inputs)
    step.inputs.push_back(x.tensor);
  steps_.push_back(std::move(step));
}

LayerBuilder::Value LayerBuilder::memory_operator(std::string_view name, std::initializer_list<Value> inputs,
                                                  Shape shape, PerValue flops) {
  bool sharded = false, gradient = false;
  Amount read, written;
  for (const Value x : inputs) {
    sharded = sharded || at(x).sharded;
    gradient = gradient || at(x).needs_gradient;
    read += values(x);
    if (at(x).needs_gradient) written += values(x);
  }
  const Value out = make(shape, sharded, gradient);
  record(name, inputs, out);
  Operator& op = add_operator(name, OperatorKind::Memory);
  const double n = shape.elements();
  op.forward_flops = flops.forward * n;
  op.forward_bytes = read + values(out);
  op.divided = sharded;
  if (!gradient) return out;
  op.input_flops = flops.backward * n;
  op.input_bytes = values(out) + written;
  if (flops.backward_reads) op.input_bytes += read;
  return out;
}

// ---- the layer ------------------------------------------------------------------------------------------------------

Work LayerBuilder::finish(std::span<const Value> outputs) {
  for (const Value output : outputs) {
    work_.outputs.push_back(values(output));
    if (at(Value{root(output)}).kept) work_.keeps_output = true;
  }
  work_.keeps_input.assign(work_.inputs.size(), 0);
  // A view of an input is no tensor of its own: what users keep of it is kept where the input was made.
  const int seen = outputs.size() == 1 ? at(Value{root(outputs[0])}).input : -1;
  if (seen >= 0) work_.keeps_output = true, work_.keeps_input[static_cast<std::size_t>(seen)] = 1;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    const Amount amount = values(Value{static_cast<int>(i)});
    if (!tensor.kept) {
      if (!(tensor.read_again == Modules{}) && tensor.input < 0)
        work_.read_again.push_back({.made_by = tensor.made_by, .read_by = tensor.read_again, .amount = amount});
      continue;
    }
    if (tensor.input >= 0) {
      work_.keeps_input[static_cast<std::size_t>(tensor.input)] = 1;
      if (tensor.read_by_linear) work_.inputs_by_linear += amount;
      continue;
    }
    KeptTensors kept{.made_by = tensor.made_by, .read_by = tensor.read_by, .amount = amount};
    if (tensor.read_by_linear) (tensor.by_others ? kept.by_linear_too : kept.by_linear) = amount;
    add_kept(kept);
    if (tensor.made_at < replay_.size()) replay_[tensor.made_at].kept += amount;
  }
  if (frozen_) freeze_operators();
  for (const Operator& op : work_.operators) {
    work_.parameters = checked_sum(work_.parameters, op.parameters, "the parameters");
    work_.sharded_parameters = checked_sum(work_.sharded_parameters, op.sharded_parameters, "the parameters");
  }
  Program program;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    program.tensors.push_back({tensor.shape, tensor.same_as, tensor.bytes_each > 0, tensor.needs_gradient});
    if (tensor.input >= 0) program.inputs.push_back(static_cast<std::int32_t>(i));
  }
  for (const Value output : outputs)
    program.outputs.push_back(output.tensor);
  program.steps = std::move(steps_);
  program.extra_parameters = extra_parameters_;
  work_.program = SharedProgram(std::move(program));
  return std::move(work_);
}

Work LayerBuilder::finish_block(Value output) {
  Work work = finish({output});
  work.replay = std::move(replay_);
  return work;
}

}  // namespace pipewright::core
