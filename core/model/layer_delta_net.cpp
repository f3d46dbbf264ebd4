// A gated delta net between its two products: convolution, norms of queries and keys, the delta rule in chunks, gated norm.
//                                                                                        [GatedDelta24] section 3.3
// Per sample: L tokens, H heads of values with V features, G of queries and keys with K, chunks of Q tokens. The input holds
// q, k (G K each), v, z (H V each), b and a (H each). Kernels are those of flash-linear-attention 0.5, chunk_gated_delta_rule,
// which Megatron-LM and Hugging Face call.                                                              [FlashLinear26]
//
//     causal_conv1d depthwise over q, k and v, then SiLU                                         2 k L (2 G K + H V)
//     l2_norm       of each head of q and k                                                     no product
//     chunk_gates   beta = sigmoid(b), g = -exp(A) softplus(a + dt), g summed up within a chunk  no product
//     chunk_wy      A = beta decay k k^T of each token and those before it, T = (1 + A)^-1 row by row,
//                   W = T (beta decay k), U = T (beta v)       per chunk and head 2 (K Q (Q - 1) / 2 + Q (Q - 1) (Q - 2) / 6)
//                                                              + 2 Q^2 (K + V)
//     chunk_states  v' = U - W S, S = decay S + k^T v', chunk after chunk                        4 L H K V
//     chunk_output  q S, and q k^T under mask and decay times v'         2 L H K V + 2 Q^2 (K + V) per chunk and head
//     gated_norm    rms norm over each head's values, times SiLU of z
// Squares that the kernels multiply whole count whole, triangles that they multiply by rows as triangles. L = 4, H = 2, G = 1,
// K = 2, V = 3, Q = 2, k = 4: 320; 176, 192, 96 + 160.            tests/core/delta_net_test.cpp "as many products as loops"
//
// Backward, each product has two gradients; that of the inverse is two products of whole squares, -T^T dT T^T, and those of A
// are whole squares, too. W, U, v' and the states run again, k k^T once and q k^T twice: `rebuilt_flops`. Gradients of q, k and
// W are made for each head of values, and summed up where heads share keys.
// Kept for it are the input, q and k behind their norms, v, beta, g, T, and the output before and behind its norm. g and its
// gradient are fp32, all else that goes from kernel to kernel has the training's precision. Gradients of weights come out
// of the same kernels. Reads that a cache serves (q and k of heads that share them) count once.
//
// Tensor parallelism divides both kinds of heads, and all parameters but the norm's, of one head.            [Megatron26]
#include <numeric>

#include "core/model/layer_rules.hpp"

namespace pipewright::core {

using namespace layer_rules;

namespace {

void check(const DeltaNet& spec) {
  need_at_least_1(spec.heads, "heads"), need_at_least_1(spec.key_heads, "key heads");
  need_at_least_1(spec.key_size, "key size"), need_at_least_1(spec.value_size, "value size");
  need_at_least_1(spec.kernel, "kernel"), need_at_least_1(spec.chunk, "chunk");
  if (spec.heads % spec.key_heads != 0)
    throw InputError(number(spec.key_heads) + " key heads do not divide " + number(spec.heads) +
                     " heads; use a divisor");
}

// What the kernels read and write.
struct DeltaTensors {
  Amount convolved;  // q, k and v side by side
  Amount keys;       // of all key heads: q or k
  Amount wide;       // k, or W, of every head of values
  Amount values;     // v, z, U, an output
  Amount steps;      // b, a or beta
  Amount steps32;    // g, in fp32
  Amount inverse;    // T
  Amount states;     // before every chunk
};

// FLOPs of one sample's products, and the bytes that their kernels move.
struct DeltaCosts {
  double forward = 0, gradient = 0, rebuilt = 0;
  Amount bytes, backward;
};

DeltaCosts wy_costs(const DeltaNet& spec, const Chunks& chunks, const DeltaTensors& t) {
  const double heads = real(spec.heads), k = real(spec.key_size), both = k + real(spec.value_size);
  const double scores = 2 * heads * k * chunks.earlier(), whole_scores = 2 * heads * k * chunks.squares;
  const double inverse = 2 * heads * (chunks.cubes - 3 * chunks.squares + 2 * chunks.tokens) / 6;
  const double opened = 2 * heads * both * chunks.squares;
  const Amount again = t.inverse + t.keys + 2.0 * t.values + t.steps32 + t.steps + t.wide;
  // The gradient reads T, k, v, g, beta and the gradients of W and U, and writes those of k, v, beta and g; then what
  // heads share is summed up, and all is added to what the output's gradient left.
  const Amount shared = spec.heads == spec.key_heads ? Amount{} : t.wide + t.keys;
  const Amount gradient = t.inverse + t.keys + 3.0 * t.values + 3.0 * t.steps32 + t.steps + 2.0 * t.wide + shared +
                          3.0 * t.keys + 3.0 * t.steps32;
  return {scores + inverse + opened, 2 * opened + 4 * heads * chunks.cubes + 2 * whole_scores, opened + whole_scores,
          again + t.keys + t.steps32 + t.steps + t.inverse, again + gradient};
}

DeltaCosts state_costs(const DeltaNet& spec, const Chunks& chunks, const DeltaTensors& t) {
  const double flops = 4 * chunks.tokens * real(spec.heads) * real(spec.key_size) * real(spec.value_size);
  const Amount bytes = t.wide + 2.0 * t.values + t.keys + t.steps32 + t.states;
  return {flops, 2 * flops, flops, bytes, bytes + 2.0 * t.keys + t.wide + 3.0 * t.values + t.steps32 + t.states};
}

DeltaCosts output_costs(const DeltaNet& spec, const Chunks& chunks, const DeltaTensors& t) {
  const double heads = real(spec.heads), k = real(spec.key_size), v = real(spec.value_size);
  const double scores = 2 * heads * k * chunks.squares;
  const double flops = 2 * chunks.tokens * heads * k * v + scores + 2 * heads * v * chunks.squares;
  const Amount shared = spec.heads == spec.key_heads ? Amount{} : 2.0 * (t.wide + t.keys);
  // Two kernels: the gradient of v' within a chunk, and those of q, k, W and g.
  const Amount within = 2.0 * (t.keys + t.values) + t.steps32;
  const Amount others = 2.0 * t.keys + 3.0 * t.values + 2.0 * t.states + 3.0 * t.wide + 2.0 * t.steps32;
  return {flops, 2 * flops, 2 * scores, 2.0 * (t.keys + t.values) + t.steps32 + t.states,
          within + others + shared + 2.0 * t.steps32};
}

}  // namespace

std::int64_t features_of(const DeltaNet& spec) {
  const std::int64_t keys = checked_product(spec.key_heads, spec.key_size, "the features");
  const std::int64_t values = checked_product(spec.heads, spec.value_size, "the features");
  const std::int64_t all = checked_sum(checked_sum(keys, values, "the features"), spec.heads, "the features");
  return checked_product(2, all, "the features");
}

LayerBuilder::Value LayerBuilder::gated_delta_net(Value x, const DeltaNet& spec) {
  check(spec);
  const Shape in = shape(x);
  need_rank(in, 2, "a gated delta net", "tokens x features");
  if (in[1] != features_of(spec))
    throw InputError("a gated delta net of " + number(spec.heads) + " heads of " + number(spec.value_size) + " and " +
                     number(spec.key_heads) + " key heads of " + number(spec.key_size) + " needs an input of " +
                     number(features_of(spec)) + " features, not " + number(in[1]));
  const Module around = within(Module::StateSpace);
  const bool sharded = at(x).sharded;
  const std::int64_t keys = spec.key_heads * spec.key_size, values = spec.heads * spec.value_size;
  const std::int64_t convolved = 2 * keys + values;
  const double tokens = real(in[0]), heads = real(spec.heads), size = real(spec.value_size);
  const Chunks chunks = chunks_of(in[0], spec.chunk);
  const auto sized = [&](double count, double fixed = 0) { return amount_of(sharded, count, fixed); };
  const DeltaTensors t{.convolved = sized(tokens * real(convolved)),
                       .keys = sized(tokens * real(keys)),
                       .wide = sized(tokens * heads * real(spec.key_size)),
                       .values = sized(tokens * real(values)),
                       .steps = sized(tokens * heads),
                       .steps32 = sized(0, 4 * tokens * heads),
                       .inverse = sized(tokens * heads * real(spec.chunk)),
                       .states = sized(chunks.count * heads * real(spec.key_size) * size)};
  const Value y = make({in[0], values}, sharded, true);
  record("gated_delta_net", {x}, y);
  const auto add = [&](std::string_view name, OperatorKind kind, const DeltaCosts& costs) -> Operator& {
    Operator& op = add_operator(name, kind);
    op.product = kind != OperatorKind::Memory, op.divided = sharded;
    op.forward_flops = costs.forward, op.input_flops = costs.gradient, op.rebuilt_flops = costs.rebuilt;
    op.forward_bytes = costs.bytes, op.input_bytes = costs.backward;
    return op;
  };
  const auto trained = [&](Operator& op, std::int64_t parameters) {
    op.parameters = parameters, op.sharded_parameters = sharded ? parameters : 0;
  };
  constexpr OperatorKind kMemory = OperatorKind::Memory, kProducts = OperatorKind::Attention;
  const double convolution = 2 * real(spec.kernel) * tokens * real(convolved), both = 2 * tokens * real(keys);
  Operator& conv = add("causal_conv1d", OperatorKind::GroupedConvolution,
                       {convolution, 2 * convolution, convolution, 2.0 * t.convolved, 3.0 * t.convolved});
  trained(conv, checked_product(convolved, spec.kernel, "the parameters"));
  conv.all_pairs_flops = convolution;  // Megatron-LM counts it
  add("l2_norm", kMemory, {3 * both, 6 * both, 0, 4.0 * t.keys, 6.0 * t.keys});
  // a, b, beta, g and its sums; then the sums of the gradients of g, those, a, b and the gradients of both.
  trained(add("chunk_gates", kMemory,
              {12 * tokens * heads, 12 * tokens * heads, 0, 3.0 * (t.steps + t.steps32), 4.0 * (t.steps + t.steps32)}),
          2 * spec.heads);
  add("chunk_wy", kProducts, wy_costs(spec, chunks, t));
  add("chunk_states", kProducts, state_costs(spec, chunks, t)).in_turn = chunks.count;
  Operator& output = add("chunk_output", kProducts, output_costs(spec, chunks, t));
  // What a backward holds towards its end: W, its gradient and that of k; of q and k what is summed up; U, v' and gradients
  // of v' and v; the states and their gradients.
  output.workspace = 3.0 * t.wide + 2.0 * t.keys + 4.0 * t.values + 2.0 * t.states;
  output.all_pairs_flops = 8 * tokens * heads * size * size;  // Megatron-LM's count of the whole rule
  const double normed = tokens * real(values);
  add("gated_norm", kMemory, {10 * normed, 19 * normed, 0, 3.0 * t.values, 5.0 * t.values}).parameters =
      spec.value_size;
  keep(x), keep_own(2.0 * t.keys + 2.0 * t.values + t.steps + t.steps32 + t.inverse);
  if (sharded) work_.shards = std::gcd(work_.shards, std::gcd(spec.heads, spec.key_heads));
  within(around);
  return y;
}

}  // namespace pipewright::core
