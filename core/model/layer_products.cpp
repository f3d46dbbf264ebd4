// Matrix products, convolutions, attention, LSTMs and experts. Formulas with worked numbers: layer_builder.cpp
#include <algorithm>
#include <numeric>

#include "core/model/layer_rules.hpp"

namespace pipewright::core {

using namespace layer_rules;

namespace {

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

void check(const AttentionCore& core) {
  need_at_least_1(core.heads, "heads"), need_at_least_1(core.key_heads, "key_heads");
  need_at_least_1(std::min(core.queries, core.keys), "tokens"), need_at_least_1(core.key_size, "head size");
  if (core.heads % core.key_heads != 0)
    throw InputError(number(core.key_heads) + " key heads do not divide " + number(core.heads) +
                     " heads; use a divisor");
  if (core.causal && core.keys < core.queries) throw InputError("causal attention needs as many keys as queries");
}

// What prices a fused kernel by its size.
AttentionShape size_of(const AttentionCore& core) {
  return {.queries = static_cast<double>(core.queries),
          .keys = static_cast<double>(core.keys),
          .heads = static_cast<double>(core.heads),
          .key_heads = static_cast<double>(core.key_heads),
          .key_size = static_cast<double>(core.key_size),
          .value_size = static_cast<double>(core.value_size),
          .pairs = attended_pairs(core),
          .longest = static_cast<double>(core.window > 0 ? std::min(core.window, core.keys) : core.keys),
          .causal = core.causal};
}

// Of a product that a tensor-parallel group divides: its output once forwards, its input once backwards.
void add_reductions(Work& work, Module module, const Amount& x, const Amount& y) {
  work.reduced_forward += y, ++work.reductions_forward;
  Work::Reductions& within = work.reduced_within[static_cast<std::size_t>(module)];
  within.bytes += y, ++within.times;
  work.reduced_backward += x, ++work.reductions_backward;
}

std::string_view name_of_activation(const Experts& spec) {
  PP_CHECK(!(spec.squared && spec.gated));
  if (spec.squared) return "relu2";
  return spec.gated && spec.activation == Activation::Gelu ? "gelu_gate" : name_of(spec.activation);
}

// Between an expert's products: it reads what the first one opened, and is multiplied by a gate, or by itself.
void set_activation(Operator& act, const Experts& spec, const Amount& opened, const Amount& inner) {
  const PointwiseFlops flops = pointwise(spec.activation);
  const bool multiplied = spec.gated || spec.squared;
  act.divided = act.expert = true;
  act.forward_flops = (flops.forward + (multiplied ? 1 : 0)) * inner.sharded_values;
  act.input_flops = (flops.backward + (multiplied ? 2 : 0)) * inner.sharded_values;
  act.forward_bytes = opened + inner, act.input_bytes = 2.0 * opened + inner;
}

}  // namespace

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
  record("conv2d", {x}, y, conv);
  Operator& op = add_operator("conv2d", conv.groups > 1 ? OperatorKind::GroupedConvolution : OperatorKind::Convolution);
  op.product = true;
  const auto d = [](std::int64_t value) { return static_cast<double>(value); };
  if (conv.groups == 1)
    op.convolution = {.channels = d(in[0]),
                      .height = d(in[1]),
                      .width = d(in[2]),
                      .out_channels = d(out[0]),
                      .out_height = d(out[1]),
                      .out_width = d(out[2]),
                      .kernel_height = d(conv.kernel_height),
                      .kernel_width = d(conv.kernel_width),
                      .stride = d(conv.stride)};
  op.forward_flops = op.weight_flops = 2 * out.elements() * d(per_channel);
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
  const Value y = make(with_features(in, linear.features), columns || (at(x).sharded && !rows), gradient || !frozen_);
  record("linear", {x}, y, linear);
  Operator& op = add_operator(linear.routed ? "router" : "linear", OperatorKind::MatrixProduct);
  op.product = true, op.routed = linear.routed, op.logits = linear.logits;
  op.divided = linear.split != Split::None;
  op.shape = {.rows = in.elements() / static_cast<double>(features),
              .columns = static_cast<double>(linear.features),
              .depth = static_cast<double>(features),
              .divided = columns ? ProductOfLayer::Divided::Columns
                         : rows  ? ProductOfLayer::Divided::Depth
                                 : ProductOfLayer::Divided::None};
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
    Work::Reductions& within = work_.reduced_within[static_cast<std::size_t>(module_)];
    within.bytes += values(y), ++within.times;
  }
  if (columns && gradient) work_.reduced_backward += values(x), ++work_.reductions_backward;
  if (columns) work_.split_vocabulary = true;  // a head; inside a block what follows counts in `shards`
  if (frozen_)
    keep_again(x);
  else
    keep(x, linear.logits || linear.routed ? Reader::Other : Reader::Linear);
  replay_product(linear, y);
  return y;
}

LayerBuilder::Value LayerBuilder::attention(std::initializer_list<Value> inputs, const AttentionCore& core) {
  check(core);
  const Idle idle(*this, inputs);
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
  record("attention", inputs, y, core);
  // Key heads divide, too: Megatron-LM wants num_query_groups to be a multiple of the degree.
  if (sharded) work_.shards = std::gcd(work_.shards, std::gcd(core.heads, core.key_heads));
  const auto sized = [&](double count, double fixed) { return amount_of(sharded, count, fixed); };
  const auto product = [&](std::string_view name, double size, const Amount& bytes, const Amount& saved) -> Operator& {
    Operator& op = add_operator(name, OperatorKind::Attention);
    op.product = true, op.divided = sharded;
    op.forward_flops = 2 * pairs * size, op.input_flops = 2 * op.forward_flops;
    op.all_pairs_flops = 2 * scores * size, op.causal = core.causal;
    op.forward_bytes = bytes, op.input_bytes = 2.0 * bytes;
    replay_.back() = {.again = 0, .saved = saved};
    return op;
  };
  const auto key_size = static_cast<double>(core.key_size), value_size = static_cast<double>(core.value_size);
  if (core.flash) {
    const Amount rows = sized(0, 4 * heads * static_cast<double>(core.queries));  // log of each row's sum, fp32
    Operator& op = product("attention", key_size + value_size, read + values(y) + rows, values(y) + rows);
    op.rebuilt_flops = 2 * pairs * key_size;
    op.attention = size_of(core);
    keep(y), keep_own(rows);
    return y;
  }
  const Amount matrix = sized(scores, 0);
  const Amount query_key =
      read - sized(static_cast<double>(core.keys) * static_cast<double>(core.key_heads) * value_size, 0);
  const auto of_heads = [&](Operator& op, std::int64_t columns, std::int64_t depth) {
    op.module = Module::AttentionCore;
    op.shape = {.rows = static_cast<double>(core.queries),
                .columns = static_cast<double>(columns),
                .depth = static_cast<double>(depth),
                .groups = heads,
                .of_sample = true,
                .divided = sharded ? ProductOfLayer::Divided::Groups : ProductOfLayer::Divided::None};
  };
  of_heads(product("scores", key_size, query_key + matrix, matrix), core.keys, core.key_size);
  const auto over_scores = [&](std::string_view name, double forward, double backward,
                               const Amount& extra) -> Operator& {
    Operator& op = add_operator(name, OperatorKind::Memory);
    op.module = Module::AttentionCore, op.divided = sharded;
    op.forward_flops = forward * scores, op.input_flops = backward * scores;
    op.forward_bytes = 2.0 * matrix + extra, op.input_bytes = 2.0 * matrix + (name == "softmax" ? matrix : extra);
    return op;
  };
  if (core.soft_cap) {  // scale, tanh, scale: each reads and writes; the backward also reads the tanh
    Operator& op = over_scores("soft_cap", 3, 5, {});
    op.forward_bytes = 6.0 * matrix, op.input_bytes = 7.0 * matrix;
    keep_own(matrix, Module::AttentionCore);
  }
  if (core.bias) over_scores("add", 1, 1, matrix);  // the bias is read; its gradient is summed up over samples
  over_scores("softmax", 6, 5, {});                 // with the scaling by 1 / sqrt(key size)
  keep_own(matrix, Module::AttentionCore);
  if (core.dropout) {
    const Amount mask = sized(0, scores);
    over_scores("dropout", 1, 1, mask);
    keep_own(mask + matrix, Module::AttentionCore);
  }
  of_heads(product("weighted_values", value_size, matrix + (read - query_key) + values(y), values(y)), core.value_size,
           core.keys);
  work_.operators.back().workspace = matrix, at(y).made_at = work_.operators.size() - 1;
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
  record("additive_attention", {from_queries, from_keys, keys}, y);
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
  record("lstm", {x}, y, lstm);
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
  const Value y = price_experts(x, spec);
  record("experts", {x}, y);
  return y;
}

// What a run computes: tokens to rows of experts, their products, and the sum of what comes back.
LayerBuilder::Value LayerBuilder::experts(Value x, Value routes, const Experts& spec) {
  if (shape(routes) != Shape{shape(x)[0], spec.experts})
    throw InputError("shares of " + text(shape(routes)) + " for " + number(shape(x)[0]) + " tokens and " +
                     number(spec.experts) +
                     " experts; write from: [x, shares], the latter of a router with experts: " + number(spec.experts));
  const Value y = price_experts(x, spec);
  const std::int64_t features = shape(x)[1], copies = checked_product(shape(x)[0], spec.active, "the rows of experts");
  if (copies % spec.experts != 0) {  // a run has no program for this
    record("experts", {x, routes}, y, ExpertRows{spec.experts, spec.active});
    return y;
  }
  const ExpertRows rows{spec.experts, spec.active};
  const auto made = [&](std::string_view operation, Value from, std::int64_t width, StepSpec step) {
    const Value to = make({copies, width}, false, true);
    record(operation, {from}, to, std::move(step));
    return to;
  };
  Value rest = made("dispatch", x, features, rows);
  rest = made("grouped_linear", rest, (spec.gated ? 2 : 1) * spec.hidden,
              GroupedLinear{spec.experts, (spec.gated ? 2 : 1) * spec.hidden, spec.bias});
  if (spec.gated)
    rest = made("gated", rest, spec.hidden, GatedActivation{spec.activation});
  else
    rest = made(name_of(spec.activation), rest, spec.hidden, spec.activation);
  if (spec.squared) {
    const Value square = make({copies, spec.hidden}, false, true);
    record("multiply", {rest, rest}, square);
    rest = square;
  }
  rest = made("grouped_linear", rest, features, GroupedLinear{spec.experts, features, spec.bias});
  record("combine", {rest, routes}, y, rows);
  return y;
}

LayerBuilder::Value LayerBuilder::price_experts(Value x, const Experts& spec) {
  const Shape in = shape(x);
  need_rank(in, 2, "experts", "tokens x features");
  const Idle idle(*this, {x});
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
  const ExpertTokens tokens{static_cast<double>(in[0]), active, static_cast<double>(spec.experts),
                            static_cast<double>(features)};
  Operator& dispatch = add_operator("dispatch", OperatorKind::Memory);
  dispatch.forward_bytes = dispatch.input_bytes = values(x) + sent;
  dispatch.input_flops = sent.gathered_values, dispatch.gathered = dispatch.expert = true, dispatch.sent = tokens;
  using Divided = ProductOfLayer::Divided;
  const auto product = [&](std::int64_t weight, std::int64_t bias, const Amount& from, const Amount& to,
                           Divided divided) -> Operator& {
    Operator& op = add_operator("experts", OperatorKind::MatrixProduct);
    const std::int64_t columns = divided == Divided::Columns ? inner : features;
    op.shape = {.rows = rows / static_cast<double>(spec.experts),
                .columns = static_cast<double>(columns),
                .depth = static_cast<double>(weight / columns),
                .groups = static_cast<double>(spec.experts),
                .divided = divided,
                .expert = true};
    op.product = true, op.divided = true, op.expert = true;
    op.forward_flops = op.input_flops = op.weight_flops = 2 * rows * static_cast<double>(weight);
    op.forward_bytes = op.input_bytes = op.weight_bytes = from + to;
    const std::int64_t each = checked_sum(weight, bias, "the parameters");
    op.parameters = checked_product(spec.experts, each, "the parameters");
    op.sharded_parameters = op.parameters;
    work_.expert_parameters = checked_sum(work_.expert_parameters, op.parameters, "the parameters");
    op.idle_parameters = (spec.experts - spec.active) * each;
    return op;
  };
  Operator& opening = product(up, b_up, sent, opened, Divided::Columns);
  if (spec.gated && spec.activation != Activation::Silu) opening.other_gate_flops = opening.forward_flops / 2;
  Operator& act = add_operator(name_of_activation(spec), OperatorKind::Memory);
  const Module of_activation = act.module = module_ == Module::Experts ? Module::ExpertActivation : module_;
  set_activation(act, spec, opened, inner_values);
  product(down, b_down, inner_values, sent, Divided::Depth);
  if (spec.bias) {
    Operator& bias = add_operator("expert_bias", OperatorKind::Memory);
    bias.gathered = bias.expert = true;
    bias.forward_flops = bias.input_flops = sent.gathered_values;
    bias.forward_bytes = bias.input_bytes = 2.0 * sent;
  }
  const Value y = make(in, false, true);
  Operator& combine = add_operator("combine", OperatorKind::Memory);
  combine.forward_flops = combine.input_flops = 2 * sent.gathered_values, combine.gathered = true;
  combine.expert = true, combine.sent = tokens;
  combine.forward_bytes = combine.input_bytes = sent + values(y);
  const auto kept = [&](Module made_by, const Amount& amount, const Amount& by_linear, const Amount& before = {}) {
    add_kept({made_by, {module_}, true, amount, by_linear, {}, before});
  };
  if (frozen_) {
    keep_again(x);
    kept(module_, opened, {});
  } else {
    kept(module_, sent + opened, sent);
    kept(of_activation, inner_values, inner_values);
  }
  if (!spec.gated) kept(of_activation, {}, {}, inner_values);
  work_.reduced_by_experts += values(y), ++work_.expert_layers;
  kept(module_, sent, {});  // the experts' outputs: the gradient of the router's weights reads them
  work_.shards = std::gcd(work_.shards, spec.hidden);
  add_reductions(work_, module_, values(x), values(y));
  return y;
}

}  // namespace pipewright::core
