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
// output's gradient and writes the input's; the weight gradient reads the output's gradient and the input.
//
// Tests: tests/core/layer_builder_test.cpp
#include "core/model/layer_builder.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/check.hpp"

namespace pipewright {
namespace {

constexpr double kIndexBytes = 8;  // token numbers and positions of maxima, as PyTorch keeps them

std::string number(std::int64_t value) {
  return std::to_string(value);
}

void need_at_least_1(std::int64_t value, const char* what) {
  if (value < 1) throw InputError(std::string(what) + " " + number(value) + " is too small; use 1 or more");
}

void need_rank(const Shape& shape, int rank, const char* op, const char* needs) {
  if (shape.rank != rank)
    throw InputError(std::string(op) + " needs an input of shape " + needs + ", not " + text(shape));
}

// Size of a window's output; refuses windows larger than what they slide over.
std::int64_t slid(std::int64_t size, std::int64_t kernel, std::int64_t stride, std::int64_t padding, bool ceil,
                  const char* what) {
  const std::int64_t room = size + 2 * padding - kernel;
  if (room < 0)
    throw InputError(std::string(what) + ": kernel " + number(kernel) + " is larger than its input of " + number(size) +
                     (padding > 0 ? " padded by " + number(padding) + " on each side" : "") +
                     "; use a larger input or a smaller kernel");
  std::int64_t out = room / stride + 1;
  if (ceil && room % stride != 0) {
    ++out;
    if ((out - 1) * stride >= size + padding) --out;  // a window must begin inside the input
  }
  return out;
}

double attended_pairs(const AttentionCore& core) {
  const auto q = static_cast<double>(core.queries), k = static_cast<double>(core.keys);
  if (!core.flash) return q * k;
  const double window = core.window > 0 ? std::min(static_cast<double>(core.window), k) : k;
  if (!core.causal) return q * window;
  // The last query sees all keys; one with fewer than `window` keys before it sees those.
  const double full = k - q;  // keys that every query sees
  double pairs = 0;
  if (full >= window) return q * window;
  const double growing = std::min(q, window - full);  // queries that see less than a window, or just it
  pairs = growing * full + growing * (growing + 1) / 2 + (q - growing) * window;
  return pairs;
}

struct PointwiseFlops {
  double forward, backward;
};
PointwiseFlops pointwise(Activation kind) {
  switch (kind) {
    case Activation::Relu: return {1, 1};
    case Activation::Gelu: return {5, 11};
    case Activation::Silu: return {5, 9};
    case Activation::Tanh: return {1, 3};
    case Activation::Sigmoid: return {4, 3};
  }
  return {};
}
std::string_view name_of(Activation kind) {
  switch (kind) {
    case Activation::Relu: return "relu";
    case Activation::Gelu: return "gelu";
    case Activation::Silu: return "silu";
    case Activation::Tanh: return "tanh";
    case Activation::Sigmoid: return "sigmoid";
  }
  return "";
}
bool keeps_output(Activation kind) {
  return kind == Activation::Relu || kind == Activation::Tanh || kind == Activation::Sigmoid;
}

// The last dimension becomes `features`.
Shape with_features(Shape shape, std::int64_t features) {
  shape.dim[static_cast<std::size_t>(shape.rank - 1)] = features;
  return shape;
}

}  // namespace

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
  tensors_.back().needs_gradient = needs_gradient;
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

void LayerBuilder::keep(Value x, bool core) {
  Tensor& tensor = at(Value{root(x)});
  tensor.kept_by_core = core && (!tensor.kept || tensor.kept_by_core);
  tensor.kept = true;
}

void LayerBuilder::keeps(double values) {
  keep_own({.values = values});
}

void LayerBuilder::keep_own(const Amount& amount, bool core) {
  (core ? kept_own_core_ : kept_own_) += amount;
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
  return work_.operators.back();
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

// ---- products -------------------------------------------------------------------------------------------------------

LayerBuilder::Value LayerBuilder::conv2d(Value x, const Conv2d& conv) {
  const Shape in = shape(x);
  need_rank(in, 3, "conv2d", "channels x height x width");
  need_at_least_1(conv.channels, "channels"), need_at_least_1(conv.stride, "stride");
  need_at_least_1(std::min(conv.kernel_height, conv.kernel_width), "kernel"), need_at_least_1(conv.groups, "groups");
  if (std::min(conv.padding_height, conv.padding_width) < 0) throw InputError("padding is negative; use 0 or more");
  if (in[0] % conv.groups != 0 || conv.channels % conv.groups != 0)
    throw InputError("groups " + number(conv.groups) + " does not divide the " + number(in[0]) + " input and " +
                     number(conv.channels) + " output channels; use a common divisor");
  const Shape out = {conv.channels,
                     slid(in[1], conv.kernel_height, conv.stride, conv.padding_height, false, "conv2d height"),
                     slid(in[2], conv.kernel_width, conv.stride, conv.padding_width, false, "conv2d width")};
  const std::int64_t per_channel =
      checked_product(checked_product(in[0] / conv.groups, conv.kernel_height, "the parameters of a channel"),
                      conv.kernel_width, "the parameters of a channel");
  const bool gradient = at(x).needs_gradient;
  const Value y = make(out, at(x).sharded, true);
  Operator& op = add_operator("conv2d", conv.groups > 1 ? OperatorKind::GroupedConvolution : OperatorKind::Convolution);
  op.product = true;
  op.forward_flops = op.weight_flops = 2 * out.elements() * static_cast<double>(per_channel);
  op.parameters = checked_sum(checked_product(conv.channels, per_channel, "the parameters"),
                              conv.bias ? conv.channels : 0, "the parameters");
  op.forward_bytes = op.weight_bytes = values(x) + values(y);
  if (gradient) op.input_flops = op.forward_flops, op.input_bytes = op.forward_bytes;
  keep(x);
  return y;
}

LayerBuilder::Value LayerBuilder::linear(Value x, const Linear& linear) {
  const Shape in = shape(x);
  need_at_least_1(linear.features, "features");
  const std::int64_t features = in[in.rank - 1];
  const bool rows = linear.split == Split::Rows, columns = linear.split == Split::Columns;
  PP_CHECK(rows == at(x).sharded || linear.split == Split::None);
  const bool gradient = at(x).needs_gradient;
  const Value y = make(with_features(in, linear.features), columns || (at(x).sharded && !rows), true);
  Operator& op = add_operator(linear.routed ? "router" : "linear", OperatorKind::MatrixProduct);
  op.product = true, op.routed = linear.routed, op.logits = linear.logits;
  op.divided = linear.split != Split::None;
  op.forward_flops = op.weight_flops = 2 * in.elements() * static_cast<double>(linear.features);
  if (linear.gate && *linear.gate != Activation::Silu) op.other_gate_flops = op.forward_flops / 2;
  op.forward_bytes = op.weight_bytes = values(x) + values(y);
  if (gradient) op.input_flops = op.forward_flops, op.input_bytes = op.forward_bytes;
  const std::int64_t weight = checked_product(features, linear.features, "the parameters");
  const std::int64_t bias = linear.bias ? linear.features : 0;
  op.parameters = checked_sum(linear.tied ? 0 : weight, bias, "the parameters");
  if (linear.tied) work_.tied_parameters = checked_sum(work_.tied_parameters, weight, "the parameters");
  if (columns) op.sharded_parameters = op.parameters;
  if (rows) op.sharded_parameters = linear.tied ? 0 : weight;  // every device holds the bias
  if (rows) {
    work_.shards = std::gcd(work_.shards, features);
    work_.reduced_forward += values(y), ++work_.reductions_forward;
  }
  if (columns && gradient) work_.reduced_backward += values(x), ++work_.reductions_backward;
  if (columns) work_.split_vocabulary = true;  // a head; inside a block what follows counts in `shards`
  keep(x);
  return y;
}

LayerBuilder::Value LayerBuilder::attention(std::initializer_list<Value> inputs, const AttentionCore& core) {
  need_at_least_1(core.heads, "heads"), need_at_least_1(core.key_heads, "key_heads");
  need_at_least_1(std::min(core.queries, core.keys), "tokens"), need_at_least_1(core.key_size, "head size");
  if (core.heads % core.key_heads != 0)
    throw InputError(number(core.key_heads) + " key heads do not divide " + number(core.heads) +
                     " heads; use a divisor");
  if (core.causal && core.keys < core.queries) throw InputError("causal attention needs as many keys as queries");
  bool sharded = false;
  Amount read;
  for (const Value x : inputs) {
    sharded = sharded || at(x).sharded;
    read += values(x);
    keep(x);
  }
  const auto heads = static_cast<double>(core.heads);
  const double pairs = attended_pairs(core) * heads;
  const auto scores = static_cast<double>(core.queries) * static_cast<double>(core.keys) * heads;
  const Value y = make({core.queries, checked_product(core.heads, core.value_size, "the features")}, sharded, true);
  // Key heads divide, too: Megatron-LM wants num_query_groups to be a multiple of the degree.
  if (sharded) work_.shards = std::gcd(work_.shards, std::gcd(core.heads, core.key_heads));
  const auto sized = [&](double values_count, double fixed) {
    Amount amount;
    (sharded ? amount.sharded_values : amount.values) = values_count;
    (sharded ? amount.sharded_fixed : amount.fixed) = fixed;
    return amount;
  };
  const auto product = [&](std::string_view name, double size, const Amount& bytes) -> Operator& {
    Operator& op = add_operator(name, OperatorKind::Attention);
    op.product = true, op.divided = sharded;
    op.forward_flops = 2 * pairs * size, op.input_flops = 2 * op.forward_flops;
    op.all_pairs_flops = 2 * scores * size, op.causal = core.causal;
    op.forward_bytes = bytes, op.input_bytes = 2.0 * bytes;
    return op;
  };
  const auto key_size = static_cast<double>(core.key_size), value_size = static_cast<double>(core.value_size);
  if (core.flash) {
    const Amount rows = sized(0, 4 * heads * static_cast<double>(core.queries));  // log of each row's sum, fp32
    product("attention", key_size + value_size, read + values(y) + rows).rebuilt_flops = 2 * pairs * key_size;
    keep(y), keep_own(rows);
    return y;
  }
  const Amount matrix = sized(scores, 0);
  const Amount query_key =
      read - sized(static_cast<double>(core.keys) * static_cast<double>(core.key_heads) * value_size, 0);
  product("scores", key_size, query_key + matrix).attention_core = true;
  const auto over_scores = [&](std::string_view name, double forward, double backward,
                               const Amount& extra) -> Operator& {
    Operator& op = add_operator(name, OperatorKind::Memory);
    op.attention_core = true, op.divided = sharded;
    op.forward_flops = forward * scores, op.input_flops = backward * scores;
    op.forward_bytes = 2.0 * matrix + extra, op.input_bytes = 2.0 * matrix + (name == "softmax" ? matrix : extra);
    return op;
  };
  if (core.soft_cap) {  // scale, tanh, scale: each reads and writes; the backward also reads the tanh
    Operator& op = over_scores("soft_cap", 3, 5, {});
    op.forward_bytes = 6.0 * matrix, op.input_bytes = 7.0 * matrix;
    keep_own(matrix, true);
  }
  if (core.bias) over_scores("add", 1, 1, matrix);  // the bias is read; its gradient is summed up over samples
  over_scores("softmax", 6, 5, {});                 // with the scaling by 1 / sqrt(key size)
  keep_own(matrix, true);
  if (core.dropout) {
    const Amount mask = sized(0, scores);
    over_scores("dropout", 1, 1, mask);
    keep_own(mask + matrix, true);
  }
  product("weighted_values", value_size, matrix + (read - query_key) + values(y)).attention_core = true;
  work_.operators[work_.operators.size() - 1].workspace = matrix;
  return y;
}

LayerBuilder::Value LayerBuilder::additive_attention(Value queries, Value keys, std::int64_t units) {
  const Shape of_queries = shape(queries), of_keys = shape(keys);
  need_rank(of_queries, 2, "additive attention", "tokens x features");
  need_rank(of_keys, 2, "additive attention", "tokens x features");
  const Linear projection = {.features = units, .bias = false};
  const Value from_queries = linear(queries, projection), from_keys = linear(keys, projection);
  Amount pairs, sums;
  pairs.values = static_cast<double>(of_queries[0]) * static_cast<double>(of_keys[0]);
  sums.values = pairs.values * static_cast<double>(units);
  {
    Operator& op = add_operator("tanh_of_sums", OperatorKind::Memory);  // the sums are written, then their tanh
    op.forward_flops = 2 * sums.values, op.input_flops = 5 * sums.values;
    op.forward_bytes = values(from_queries) + values(from_keys) + 3.0 * sums;
    op.input_bytes = 5.0 * sums + values(from_queries) + values(from_keys);
  }
  const auto product = [&](std::string_view name, double flops, const Amount& bytes) -> Operator& {
    Operator& op = add_operator(name, OperatorKind::Attention);
    op.product = true;
    op.forward_flops = op.all_pairs_flops = flops;
    op.forward_bytes = bytes;
    return op;
  };
  {
    Operator& op = product("scores", 2 * sums.values, sums + pairs);
    op.parameters = units;
    op.input_flops = op.weight_flops = op.forward_flops, op.input_bytes = op.weight_bytes = op.forward_bytes;
  }
  {
    Operator& op = add_operator("softmax", OperatorKind::Memory);
    op.forward_flops = 5 * pairs.values, op.input_flops = 4 * pairs.values;
    op.forward_bytes = 2.0 * pairs, op.input_bytes = 3.0 * pairs;
  }
  const Value y = make({of_queries[0], of_keys[1]}, false, true);
  Operator& op =
      product("weighted_values", 2 * pairs.values * static_cast<double>(of_keys[1]), pairs + values(keys) + values(y));
  op.input_flops = 2 * op.forward_flops, op.input_bytes = 2.0 * op.forward_bytes;
  keep(keys), keep_own(sums + pairs);
  return y;
}

LayerBuilder::Value LayerBuilder::lstm(Value x, const Lstm& lstm) {
  const Shape in = shape(x);
  need_rank(in, 2, "lstm", "tokens x features");
  need_at_least_1(lstm.hidden, "hidden");
  if (lstm.biases < 0 || lstm.biases > 2) throw InputError("biases: an LSTM has 0, 1 or 2 per gate");
  const std::int64_t directions = lstm.bidirectional ? 2 : 1, tokens = in[0], features = in[1], hidden = lstm.hidden;
  const bool gradient = at(x).needs_gradient;
  const Value y = make({tokens, checked_product(hidden, directions, "lstm")}, false, true);
  const auto cells = static_cast<double>(tokens) * static_cast<double>(hidden * directions);
  Operator& op = add_operator("lstm", OperatorKind::Recurrent);
  op.product = true;
  const std::int64_t columns =
      checked_sum(checked_sum(features, hidden, "the parameters"), lstm.biases, "the parameters");
  op.parameters =
      checked_product(checked_product(checked_product(4, hidden, "the parameters"), columns, "the parameters"),
                      directions, "the parameters");
  const double input = 8 * cells * static_cast<double>(features), state = 8 * cells * static_cast<double>(hidden);
  op.forward_flops = op.weight_flops = input + state;
  op.input_flops = (gradient ? input : 0) + state;  // the state's gradient runs back through the steps in any case
  Amount gates;
  gates.values = 4 * cells;
  op.forward_bytes = op.weight_bytes = values(x) + values(y) + gates;
  op.input_bytes = op.forward_bytes;
  Operator& pointwise = add_operator("lstm_cell", OperatorKind::Memory);
  pointwise.forward_flops = 18 * cells, pointwise.input_flops = 36 * cells;
  Amount cell;
  cell.values = cells;
  pointwise.forward_bytes = pointwise.input_bytes = gates + 2.0 * cell;
  keep(x), keep(y);
  keep_own(gates + cell);
  return y;
}

LayerBuilder::Value LayerBuilder::router(Value x, std::int64_t experts) {
  need_rank(shape(x), 2, "router", "tokens x features");
  return softmax(linear(x, {.features = experts, .bias = false, .routed = true}));
}

LayerBuilder::Value LayerBuilder::experts(Value x, const Experts& spec) {
  const Shape in = shape(x);
  need_rank(in, 2, "experts", "tokens x features");
  need_at_least_1(spec.active, "active experts"), need_at_least_1(spec.hidden, "hidden");
  if (spec.active > spec.experts)
    throw InputError(number(spec.active) + " experts per token of only " + number(spec.experts) + "; use at most " +
                     number(spec.experts));
  const std::int64_t features = in[1], inner = checked_product(spec.gated ? 2 : 1, spec.hidden, "the features");
  const auto active = static_cast<double>(spec.active);
  const double rows = static_cast<double>(in[0]) * active;
  const std::int64_t up = checked_product(features, inner, "the parameters"),
                     down = checked_product(features, spec.hidden, "the parameters"), b_up = spec.bias ? inner : 0,
                     b_down = spec.bias ? features : 0;
  Amount sent, opened, inner_values;  // what the chosen experts read; their first product; what enters the second
  // Tokens are gathered before they are sent: whole on every device that holds a part of each expert.
  sent.gathered_values = rows * static_cast<double>(features);
  opened.sharded_values = rows * static_cast<double>(inner);
  inner_values.sharded_values = rows * static_cast<double>(spec.hidden);
  Operator& dispatch = add_operator("dispatch", OperatorKind::Memory);
  dispatch.forward_bytes = dispatch.input_bytes = values(x) + sent;
  dispatch.input_flops = sent.gathered_values, dispatch.gathered = true;
  const auto product = [&](std::int64_t weight, std::int64_t bias, const Amount& from, const Amount& to) -> Operator& {
    Operator& op = add_operator("experts", OperatorKind::MatrixProduct);
    op.product = true, op.divided = true;
    op.forward_flops = op.input_flops = op.weight_flops = 2 * rows * static_cast<double>(weight);
    op.forward_bytes = op.input_bytes = op.weight_bytes = from + to;
    const std::int64_t each = checked_sum(weight, bias, "the parameters");
    op.parameters = checked_product(spec.experts, each, "the parameters");
    op.sharded_parameters = op.parameters;
    op.idle_parameters = (spec.experts - spec.active) * each;
    return op;
  };
  Operator& opening = product(up, b_up, sent, opened);
  if (spec.gated && spec.activation != Activation::Silu) opening.other_gate_flops = opening.forward_flops / 2;
  const PointwiseFlops flops = pointwise(spec.activation);
  Operator& act = add_operator(name_of(spec.activation), OperatorKind::Memory);
  act.divided = true;
  act.forward_flops = (flops.forward + (spec.gated ? 1 : 0)) * inner_values.sharded_values;
  act.input_flops = (flops.backward + (spec.gated ? 2 : 0)) * inner_values.sharded_values;
  act.forward_bytes = opened + inner_values, act.input_bytes = 2.0 * opened + inner_values;
  product(down, b_down, inner_values, sent);
  const Value y = make(in, false, true);
  Operator& combine = add_operator("combine", OperatorKind::Memory);
  combine.forward_flops = combine.input_flops = 2 * sent.gathered_values, combine.gathered = true;
  combine.forward_bytes = combine.input_bytes = sent + values(y);
  keep_own(sent + opened + inner_values);
  keep_own(sent);  // the experts' outputs: the gradient of the router's weights reads them
  work_.shards = std::gcd(work_.shards, spec.hidden);
  work_.reduced_forward += values(y), ++work_.reductions_forward;
  work_.reduced_backward += values(x), ++work_.reductions_backward;
  return y;
}

// ---- operators bound by memory --------------------------------------------------------------------------------------

LayerBuilder::Value LayerBuilder::norm(Value x, const NormSpec& norm) {
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
  Operator& op = work_.operators.back();
  op.parameters = !norm.affine ? 0 : norm.kind == Norm::Rms || !norm.bias ? width : 2 * width;
  if (op.parameters > 0) at(y).needs_gradient = true;
  if (!at(x).needs_gradient && op.parameters > 0)
    op.weight_flops = forward * in.elements(), op.weight_bytes = values(x);
  keep(x);
  return y;
}

LayerBuilder::Value LayerBuilder::activation(Value x, Activation kind) {
  const PointwiseFlops flops = pointwise(kind);
  const Value y = memory_operator(name_of(kind), {x}, shape(x), {flops.forward, flops.backward, true});
  keep(keeps_output(kind) ? y : x);
  return y;
}

LayerBuilder::Value LayerBuilder::gated(Value x, Activation kind) {
  const Shape in = shape(x);
  const std::int64_t features = in[in.rank - 1];
  if (features % 2 != 0)
    throw InputError("a gated activation halves its " + number(features) + " features; use an even number");
  const PointwiseFlops flops = pointwise(kind);
  const Value y = memory_operator(name_of(kind), {x}, with_features(in, features / 2),
                                  {flops.forward + 1, flops.backward + 2, true});
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
  return memory_operator("average_pool", {x}, {in[0]}, {window, window, false});
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
  const Value y = make({in[0], features}, false, true);
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
  keep(tokens);
  return y;
}

LayerBuilder::Value LayerBuilder::learned(Value x, std::int64_t rows) {
  const Shape in = shape(x);
  const Value y = memory_operator("learned_table", {x}, in, {1, 0, false});
  Operator& op = work_.operators.back();
  op.parameters = checked_product(rows, in[in.rank - 1], "the parameters");
  op.gathered_parameters = op.parameters;
  op.weight_flops = in.elements(), op.weight_bytes = values(x);
  at(y).needs_gradient = true;
  return y;
}

LayerBuilder::Value LayerBuilder::softmax(Value x) {
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
  return make({1}, false, true);
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
  if (shape(a) != shape(b))
    throw InputError("multiply needs two tensors of one shape, not " + text(shape(a)) + " and " + text(shape(b)));
  const Value y = memory_operator("multiply", {a, b}, shape(a), {1, 2, true});
  keep(a), keep(b);
  return y;
}

LayerBuilder::Value LayerBuilder::scale_rows(Value x, Value factors) {
  if (shape(factors) != with_features(shape(x), 1))
    throw InputError("rows of " + text(shape(x)) + " need one factor each, not " + text(shape(factors)));
  const Value y = memory_operator("multiply", {x, factors}, shape(x), {1, 3, true});  // gradient of a factor: a sum
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

LayerBuilder::Value LayerBuilder::parameters(Value x, std::int64_t count) {
  if (count < 0) throw InputError("parameters " + number(count) + " is negative");
  add_operator("parameters", OperatorKind::Memory).parameters = count;
  return x;
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
  Amount by_core = kept_own_core_;
  work_.kept = kept_own_;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    if (!tensor.kept) continue;
    if (tensor.input >= 0)
      work_.keeps_input[static_cast<std::size_t>(tensor.input)] = 1;
    else
      (tensor.kept_by_core ? by_core : work_.kept) += values(Value{static_cast<int>(i)});
  }
  work_.kept_selective = work_.kept;
  work_.kept += by_core;
  for (const Operator& op : work_.operators) {
    work_.parameters = checked_sum(work_.parameters, op.parameters, "the parameters");
    work_.sharded_parameters = checked_sum(work_.sharded_parameters, op.sharded_parameters, "the parameters");
  }
  return std::move(work_);
}

}  // namespace pipewright
