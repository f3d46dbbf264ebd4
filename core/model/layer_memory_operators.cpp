// Operators whose time is the bytes they move. Formulas with worked numbers: layer_builder.cpp

#include "core/model/layer_rules.hpp"

namespace pipewright::core {

using namespace layer_rules;

namespace {

bool keeps_output(Activation kind) {
  return kind == Activation::Relu || kind == Activation::Tanh || kind == Activation::Sigmoid;
}

}  // namespace

LayerBuilder::Value LayerBuilder::norm(Value x, const NormSpec& norm) {
  const Idle idle(*this, {x});
  const Shape in = shape(x);
  const bool image = norm.kind == Norm::Batch || norm.kind == Norm::Instance;
  if (image) need_rank(in, 3, "this norm", "channels x height x width");
  const std::int64_t width = image ? in[0] : in[in.rank - 1];
  const std::string_view name = norm.kind == Norm::Layer   ? "layer_norm"
                                : norm.kind == Norm::Rms   ? "rms_norm"
                                : norm.kind == Norm::Batch ? "batch_norm"
                                                           : "instance_norm";
  const double forward = norm.kind == Norm::Rms ? 4 : 7;
  const Value y = memory_operator(name, {x}, in, {forward, 2 * forward, true});
  steps_.back().spec = norm;
  Operator& op = work_.operators.back();
  op.parameters = !norm.affine ? 0 : norm.kind == Norm::Rms || !norm.bias ? width : 2 * width;
  if (image) {  // sums over whole images first: forward reads its input twice, backward both of its own
    op.forward_bytes += values(x);
    if (at(x).needs_gradient) op.input_bytes += values(x) + values(y);
  }
  if (op.parameters > 0 && !frozen_) at(y).needs_gradient = true;
  if (!at(x).needs_gradient && op.parameters > 0)
    op.weight_flops = forward * in.elements(), op.weight_bytes = values(x);
  keep(x);
  return y;
}

LayerBuilder::Value LayerBuilder::activation(Value x, Activation kind) {
  const Idle idle(*this, {x});
  const PointwiseFlops flops = pointwise(kind);
  const Value y = memory_operator(name_of(kind), {x}, shape(x), {flops.forward, flops.backward, true});
  steps_.back().spec = kind;
  keep(keeps_output(kind) ? y : x);
  return y;
}

LayerBuilder::Value LayerBuilder::gated(Value x, Activation kind) {
  const Idle idle(*this, {x});
  const Shape in = shape(x);
  const std::int64_t features = in[in.rank - 1];
  if (features % 2 != 0)
    throw InputError("a gated activation halves its " + number(features) + " features; use an even number");
  const PointwiseFlops flops = pointwise(kind);
  const Value y = memory_operator(name_of(kind), {x}, with_features(in, features / 2),
                                  {flops.forward + 1, flops.backward + 2, true});
  steps_.back().operation = "gated", steps_.back().spec = GatedActivation{kind};
  keep(x);
  return y;
}

LayerBuilder::Value LayerBuilder::pool(Value x, const PoolSpec& pool) {
  const Shape in = shape(x);
  need_rank(in, 3, "pooling", "channels x height x width");
  need_at_least_1(pool.kernel, "kernel"), need_at_least_1(pool.stride, "stride");
  if (pool.padding < 0 || 2 * pool.padding > pool.kernel)
    throw InputError("padding " + number(pool.padding) + " of a pooling window; use 0 to half the kernel");
  const Shape out = {in[0], slid(in[1], pool.kernel, pool.stride, pool.padding, pool.ceil, "pooling height"),
                     slid(in[2], pool.kernel, pool.stride, pool.padding, pool.ceil, "pooling width")};
  const auto window = static_cast<double>(checked_product(pool.kernel, pool.kernel, "a pooling window"));
  const bool maximum = pool.kind == Pool::Max;
  const Value y = memory_operator(maximum ? "max_pool" : "average_pool", {x}, out,
                                  {maximum ? window - 1 : window, maximum ? 1 : window, false});
  steps_.back().spec = pool;
  if (maximum && at(x).needs_gradient) {
    Amount indices;
    indices.fixed = kIndexBytes * out.elements();
    work_.operators.back().forward_bytes += indices, work_.operators.back().input_bytes += indices;
    keep_own(indices);
    keep(x);
  }
  return y;
}

LayerBuilder::Value LayerBuilder::global_average_pool(Value x) {
  const Shape in = shape(x);
  need_rank(in, 3, "pooling", "channels x height x width");
  const auto window = static_cast<double>(in[1] * in[2]);
  const Value y = memory_operator("average_pool", {x}, {in[0]}, {window, window, false});
  steps_.back().operation = "global_average_pool";
  return y;
}

LayerBuilder::Value LayerBuilder::embedding(Value tokens, std::int64_t vocabulary, std::int64_t features, Split split,
                                            Table table) {
  const Shape in = shape(tokens);
  need_rank(in, 1, "embedding", "tokens");
  if (at(tokens).bytes_each == 0)
    throw InputError(
        "embedding looks up token numbers, but its input holds values; give model.input_tokens and let it "
        "be the first operator");
  need_at_least_1(vocabulary, "vocabulary"), need_at_least_1(features, "features");
  const Value y = make({in[0], features}, false, !frozen_);
  if (table == Table::Own)
    record("embedding", {tokens}, y, Embedding{vocabulary});
  else
    record("tied_embedding", {tokens}, y);
  Operator& op = add_operator("embedding", OperatorKind::Memory);
  const std::int64_t size = checked_product(vocabulary, features, "the parameters");
  if (table == Table::Own)
    op.parameters = op.gathered_parameters = size;
  else
    work_.tied_parameters += size;
  op.forward_bytes = values(tokens) + 2.0 * values(y);  // rows of the table, and the output
  op.weight_flops = shape(y).elements();
  op.weight_bytes = values(tokens) + 2.0 * values(y);
  if (split != Split::None) {
    op.sharded_parameters = op.parameters;
    work_.reduced_forward += values(y), ++work_.reductions_forward;
    work_.split_vocabulary = true;
  }
  if (!frozen_) keep(tokens);
  return y;
}

LayerBuilder::Value LayerBuilder::learned(Value x, std::int64_t rows) {
  const Shape in = shape(x);
  const Value y = memory_operator("learned_table", {x}, in, {1, 0, false});
  steps_.back().spec = LearnedTable{rows};
  Operator& op = work_.operators.back();
  op.parameters = checked_product(rows, in[in.rank - 1], "the parameters");
  op.gathered_parameters = op.parameters;
  op.weight_flops = in.elements(), op.weight_bytes = values(x);
  if (!frozen_) at(y).needs_gradient = true;
  return y;
}

LayerBuilder::Value LayerBuilder::softmax(Value x) {
  const Idle idle(*this, {x});
  const Value y = memory_operator("softmax", {x}, shape(x), {5, 4, true});
  keep(y);
  return y;
}

LayerBuilder::Value LayerBuilder::cross_entropy(Value logits) {
  const double n = shape(logits).elements();
  const bool sharded = at(logits).sharded;
  Operator& op = add_operator("cross_entropy", OperatorKind::Memory);
  op.divided = sharded;
  op.forward_flops = 6 * n, op.input_flops = n;
  Amount probabilities;
  (sharded ? probabilities.sharded_fixed : probabilities.fixed) = 4 * n;
  op.forward_bytes = op.input_bytes = values(logits) + probabilities;
  keep_own(probabilities);
  work_.logits += probabilities;
  const Value loss = make({1}, false, true);
  record("cross_entropy", {logits}, loss);
  return loss;
}

LayerBuilder::Value LayerBuilder::add(Value a, Value b) {
  if (shape(a) != shape(b))
    throw InputError("add needs two tensors of one shape, not " + text(shape(a)) + " and " + text(shape(b)));
  const Value y = memory_operator("add", {a, b}, shape(a), {1, 0, false});
  work_.operators.back().input_bytes = {};  // both gradients are the output's: nothing moves
  at(y).sharded = at(a).sharded && at(b).sharded;
  return y;
}

LayerBuilder::Value LayerBuilder::multiply(Value a, Value b) {
  const Idle idle(*this, {a, b});
  if (shape(a) != shape(b))
    throw InputError("multiply needs two tensors of one shape, not " + text(shape(a)) + " and " + text(shape(b)));
  const Value y = memory_operator("multiply", {a, b}, shape(a), {1, 2, true});
  if (root(a) == root(b)) {  // a square: its input is read once, and has one gradient
    Operator& op = work_.operators.back();
    op.forward_bytes = values(a) + values(y);
    if (at(a).needs_gradient) op.input_bytes = 2.0 * values(a) + values(y);
  }
  keep(a), keep(b);
  return y;
}

LayerBuilder::Value LayerBuilder::scale_rows(Value x, Value factors) {
  const Idle idle(*this, {x, factors});
  if (shape(factors) != with_features(shape(x), 1))
    throw InputError("rows of " + text(shape(x)) + " need one factor each, not " + text(shape(factors)));
  const Value y = memory_operator("multiply", {x, factors}, shape(x), {1, 3, true});  // gradient of a factor: a sum
  steps_.back().operation = "scale_rows";
  keep(x), keep(factors);
  return y;
}

LayerBuilder::Value LayerBuilder::scale(Value x) {
  return memory_operator("scale", {x}, shape(x), {1, 1, false});
}

LayerBuilder::Value LayerBuilder::soft_cap(Value x) {
  return scale(activation(scale(x), Activation::Tanh));
}

LayerBuilder::Value LayerBuilder::concat(std::initializer_list<Value> parts) {
  return concat(std::span(parts.begin(), parts.size()));
}

LayerBuilder::Value LayerBuilder::concat(std::span<const Value> parts) {
  PP_CHECK(!parts.empty());
  Shape out = shape(parts[0]);
  const int axis = out.rank == 3 ? 0 : out.rank - 1;
  bool gradient = at(parts[0]).needs_gradient, sharded = at(parts[0]).sharded;
  Amount bytes = values(parts[0]);
  for (const Value part : parts.subspan(1)) {
    Shape other = shape(part);
    std::int64_t& grows = out.dim[static_cast<std::size_t>(axis)];
    std::int64_t& more = other.dim[static_cast<std::size_t>(axis)];
    const std::int64_t sum = checked_sum(grows, more, "the features");
    grows = more = 0;
    if (out != other)
      throw InputError("concat needs tensors that differ along one dimension only, not " + text(shape(parts[0])) +
                       " and " + text(shape(part)));
    grows = sum;
    gradient = gradient || at(part).needs_gradient, sharded = sharded && at(part).sharded;
    bytes += values(part);
  }
  const Value y = make(out, sharded, gradient);
  record("concat", parts, y);
  Operator& op = add_operator("concat", OperatorKind::Memory);
  op.forward_bytes = bytes + values(y);
  if (gradient) op.input_bytes = op.forward_bytes;
  return y;
}

LayerBuilder::Value LayerBuilder::upsample(Value x, std::int64_t factor) {
  const Shape in = shape(x);
  need_rank(in, 3, "upsample", "channels x height x width");
  need_at_least_1(factor, "factor");
  return memory_operator(
      "upsample", {x}, {in[0], checked_product(in[1], factor, "upsample"), checked_product(in[2], factor, "upsample")},
      {0, 1, false});
}

LayerBuilder::Value LayerBuilder::dropout(Value x, bool per_channel) {
  const Idle idle(*this, {x});
  const Shape in = shape(x);
  const Value y = memory_operator("dropout", {x}, in, {1, 1, false});
  const double mask_size = per_channel ? static_cast<double>(in[0]) : in.elements();
  Amount mask;
  (at(x).sharded ? mask.sharded_fixed : mask.fixed) = mask_size;
  work_.operators.back().forward_bytes += mask, work_.operators.back().input_bytes += mask;
  keep_own(mask);
  return y;
}

LayerBuilder::Value LayerBuilder::slice(Value x, Shape shape) {
  if (shape.elements() > at(x).shape.elements())
    throw InputError("a slice of " + text(shape) + " is larger than its tensor of " + text(at(x).shape));
  const Value y = memory_operator("slice", {x}, shape, {0, 0, false});
  work_.operators.back().forward_bytes = 2.0 * values(y);
  if (at(x).needs_gradient) work_.operators.back().input_bytes = values(x) + values(y);
  return y;
}

LayerBuilder::Value LayerBuilder::rotary(Value x, double share) {
  const Value y = memory_operator("rotary", {x}, shape(x), {3 * share, 3 * share, false});
  Operator& op = work_.operators.back();
  op.forward_bytes = share * op.forward_bytes, op.input_bytes = share * op.input_bytes;
  return y;
}

LayerBuilder::Value LayerBuilder::for_heads(Value x, std::int64_t heads) {
  const Shape in = shape(x);
  need_at_least_1(heads, "heads");
  const Value y = memory_operator(
      "for_heads", {x}, with_features(in, checked_product(in[in.rank - 1], heads, "the features")), {0, 1, false});
  if (at(x).sharded) return y;
  at(y).sharded = true;
  Operator& op = work_.operators.back();
  op.divided = true;
  op.forward_bytes = values(x) + values(y);
  if (!at(x).needs_gradient) return y;
  op.input_bytes = op.forward_bytes;
  work_.reduced_backward += values(x), ++work_.reductions_backward;
  return y;
}

LayerBuilder::Value LayerBuilder::reshape(Value x, Shape shape) {
  if (shape.elements() != at(x).shape.elements())
    throw InputError("reshape of " + text(at(x).shape) + " to " + text(shape) + " changes the number of values");
  const Value y = make(shape, at(x).sharded, at(x).needs_gradient);
  at(y).bytes_each = at(x).bytes_each;
  at(y).same_as = x.tensor;
  return y;
}

LayerBuilder::Value LayerBuilder::image_to_tokens(Value x) {
  const Shape in = shape(x);
  need_rank(in, 3, "image_to_tokens", "channels x height x width");
  const Value y = reshape(x, {in[1] * in[2], in[0]});
  record("image_to_tokens", {x}, y);
  return y;
}

LayerBuilder::Value LayerBuilder::parameters(Value x, std::int64_t count) {
  if (count < 0) throw InputError("parameters " + number(count) + " is negative");
  add_operator("parameters", OperatorKind::Memory).parameters = count;
  extra_parameters_ = checked_sum(extra_parameters_, count, "the parameters");
  return x;
}

}  // namespace pipewright::core
