// Layers whose weights are frozen, and the low-rank adapters beside their products.                                 [Hu21]
//
//     y = W x + s B A x        A: rank x in, B: out x rank, s a constant; W is frozen
//
// Of one adapter on rows of `in` features, `out` features made of them:
//
//     lora_a    2 rows in rank; each gradient the same (that of the input only where one runs on)
//     lora_b    2 rows rank out; each gradient the same
//     scale     1 per value of the output, 1 backward; add  1, which is read and written where the output lies
//     parameters rank (in + out)             rank 8, 4096 -> 4096: 65 536
//     kept      the input, which the frozen product would not keep, and rank values a row
//
// Of a frozen product two passes are left: 4 FLOPs a parameter and token where a full training has 6.
//
// Tensor parallelism as Megatron Bridge's ParallelLinearAdapter: beside a product divided by columns A is divided along the
// rank and its output gathered, B along the outputs; beside one divided by rows A is divided along the inputs and its output
// summed up, B along the outputs, and what it makes is gathered. Beside one that stands whole adapters do, too.
//
//     forward   columns: gather rank                             rows: sum of rank, gather of out          (values a row)
//     backward  columns: sum of rank, sum of the input's gradient     rows: sum of rank
//
// A gather moves half of what a sum does; in the count of all-reduces it is one. With sequence parallelism they are priced
// as without.                                                      tests/core/families/lora_test.cpp
#include <algorithm>
#include <numeric>

#include "core/model/layer_rules.hpp"

namespace pipewright::core {

using namespace layer_rules;

LayerBuilder::Idle::Idle(LayerBuilder& builder, std::span<const Value> inputs)
    : builder_(builder),
      first_(builder.work_.operators.size()),
      reduced_(builder.work_.reduced_backward),
      reductions_(builder.work_.reductions_backward) {
  const auto runs = [&](Value x) { return builder.at(x).needs_gradient; };
  ends_ = builder.frozen_ && !builder.idle_ && std::none_of(inputs.begin(), inputs.end(), runs);
  if (ends_) builder.idle_ = true;
}

LayerBuilder::Idle::~Idle() {
  if (!ends_) return;
  builder_.idle_ = false;
  builder_.work_.reduced_backward = reduced_, builder_.work_.reductions_backward = reductions_;
  for (std::size_t i = first_; i < builder_.work_.operators.size(); ++i) {
    Operator& op = builder_.work_.operators[i];
    op.input_flops = op.weight_flops = op.rebuilt_flops = 0;
    op.input_bytes = op.weight_bytes = {};
  }
}

// What gradients of weights take, of all operators but adapters.
void LayerBuilder::freeze_operators() {
  for (Operator& op : work_.operators) {
    if (op.weights == Weights::Adapter) {
      work_.adapter_parameters = checked_sum(work_.adapter_parameters, op.parameters, "the parameters");
      work_.sharded_adapters = checked_sum(work_.sharded_adapters, op.sharded_parameters, "the parameters");
      continue;
    }
    if (op.parameters > 0 || op.weight_flops > 0) op.weights = Weights::Frozen;
    op.weight_flops = 0, op.weight_bytes = {};
  }
}

void LayerBuilder::add_exchange(const Amount& amount, double share, bool backward) {
  if (backward) {
    work_.reduced_backward += share * amount, ++work_.reductions_backward;
    return;
  }
  work_.reduced_forward += share * amount, ++work_.reductions_forward;
  Work::Reductions& within = work_.reduced_within[static_cast<std::size_t>(module_)];
  within.bytes += share * amount, ++within.times;
}

LayerBuilder::Value LayerBuilder::adapted(Value x, const Linear& spec, const Adapters& adapters) {
  PP_CHECK(frozen_);
  const Value y = linear(x, spec);
  for (const std::int64_t features : adapters.features)
    add_adapter(x, y, spec, adapters.rank, features);
  return y;
}

void LayerBuilder::add_adapter(Value x, Value y, const Linear& linear, std::int64_t rank, std::int64_t features) {
  need_at_least_1(rank, "rank");
  using Divided = ProductOfLayer::Divided;
  const Shape in = shape(x);
  const std::int64_t from = in[in.rank - 1];
  const double rows = in.elements() / static_cast<double>(from);
  const bool split = linear.split != Split::None, by_rows = linear.split == Split::Rows;
  const bool gradient = at(x).needs_gradient;
  const Value low = make(with_features(in, rank), false, true);
  const Value full = make(with_features(in, features), at(y).sharded, true);
  at(y).needs_gradient = true;
  const auto product = [&](std::string_view name, Value read, Value made, std::int64_t depth, Divided divided) {
    Operator& op = add_operator(name, OperatorKind::MatrixProduct);
    const std::int64_t columns = shape(made)[in.rank - 1];
    op.product = true, op.divided = split, op.weights = Weights::Adapter;
    op.shape = {.rows = rows,
                .columns = static_cast<double>(columns),
                .depth = static_cast<double>(depth),
                .divided = split ? divided : Divided::None};
    op.forward_flops = op.weight_flops = 2 * rows * static_cast<double>(depth) * static_cast<double>(columns);
    op.forward_bytes = op.weight_bytes = values(read) + values(made);
    op.parameters = checked_product(depth, columns, "the parameters");
    if (split) op.sharded_parameters = op.parameters;
    if (read.tensor != x.tensor || gradient) op.input_flops = op.forward_flops, op.input_bytes = op.forward_bytes;
    keep(read);
    replay_product({.features = columns, .bias = false}, made);
  };
  product("lora_a", x, low, from, by_rows ? Divided::Depth : Divided::Columns);
  product("lora_b", low, full, rank, Divided::Columns);
  const double n = shape(full).elements();
  Operator& scale = add_operator("scale", OperatorKind::Memory);
  scale.forward_flops = scale.input_flops = n, scale.divided = at(y).sharded;
  scale.forward_bytes = scale.input_bytes = 2.0 * values(full);
  Operator& add = add_operator("add", OperatorKind::Memory);
  add.forward_flops = n, add.divided = at(y).sharded;
  add.forward_bytes = 3.0 * values(full);
  if (!split) return;
  work_.shards = std::gcd(work_.shards, rank);
  add_exchange(values(low), by_rows ? 1 : 0.5, false);
  if (by_rows) add_exchange(values(full), 0.5, false);
  add_exchange(values(low), 1, true);
  if (!by_rows && gradient) add_exchange(values(x), 1, true);
}

}  // namespace pipewright::core
