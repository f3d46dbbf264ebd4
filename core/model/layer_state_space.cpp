// A Mamba-2 mixer between its two products: convolution, scan in chunks, gate, norm.              [DaoGu24] section 6, 7
//
// Per sample: L tokens, h heads of p (d = h p), g groups with a state of N, chunks of Q tokens. The input holds z (d), x (d),
// B and C (g N each) and dt (h). Kernels are those of mamba_ssm's mamba_split_conv1d_scan_combined, which Megatron-LM's
// MambaMixer calls without a norm of its own: the gate comes at the end of the scan, the norm behind it.    [MambaSSM26]
//
//     conv1d         depthwise and causal over x, B and C, then SiLU        2 k L (d + 2 g N)
//     chunk_decay    softplus of dt, times A, summed up within a chunk     no product
//     chunk_state    B^T X of every chunk                                   2 L d N
//     state_passing  states of the chunks, one after the other             no product
//     chunk_scores   C B^T within a chunk, per group, masked pairs, too     2 N g Q^2 per chunk
//     chunk_scan     scores under mask and decay times X, and C times the state before: d Q (Q + 1) per chunk, 2 L d N
//     rms_norm       per group, of the gated output
// Each product has two gradients of as many FLOPs. L = 4, h = 2, p = 4, g = 1, N = 2, Q = 2, k = 4: convolution 384;
// 128 + 32 + 96 + 128.                                  tests/core/state_space_test.cpp "as many products as loops count"
//
// Kept for the backward are the input, the scan's output before the gate, the norm's input and its output. The backward
// runs convolution, decays, states and scores again, and the masked products a second time for the gradient of the decays:
// `rebuilt_flops`. dt, decays, scores and states of the chunks are fp32 on their way; states are passed on in 16 bits. The
// gradients of weights come out of the same kernels, so they count with those of the input. Reads that a cache serves (scores
// of a group, read by each of its heads) count once.
//
// Tensor parallelism divides heads and groups: every parameter here, and all that is computed.        [DaoGu24] section 8.1
#include <numeric>

#include "core/model/layer_rules.hpp"

namespace pipewright::core {

using namespace layer_rules;

namespace {

void check(const StateSpace& spec) {
  need_at_least_1(spec.heads, "heads"), need_at_least_1(spec.head_size, "head size");
  need_at_least_1(spec.groups, "groups"), need_at_least_1(spec.state, "state");
  need_at_least_1(spec.kernel, "kernel"), need_at_least_1(spec.chunk, "chunk");
  if (spec.heads % spec.groups != 0)
    throw InputError(number(spec.groups) + " groups do not divide " + number(spec.heads) + " heads; use a divisor");
}

// What the kernels read and write.
struct Tensors {
  Amount convolved;   // x, B and C side by side
  Amount inner;       // x, z, or an output
  Amount shared;      // B or C
  Amount steps;       // dt
  Amount steps32;     // dt or the decays, in fp32
  Amount scores;      // in fp32
  Amount states;      // of the chunks
  Amount gradient32;  // of B or C, in fp32
};

}  // namespace

std::int64_t features_of(const StateSpace& spec) {
  const std::int64_t inner = checked_product(spec.heads, spec.head_size, "the features");
  const std::int64_t shared = checked_product(spec.groups, spec.state, "the features");
  return checked_sum(checked_product(2, checked_sum(inner, shared, "the features"), "the features"), spec.heads,
                     "the features");
}

LayerBuilder::Value LayerBuilder::state_space(Value x, const StateSpace& spec) {
  check(spec);
  const Shape in = shape(x);
  need_rank(in, 2, "a state space", "tokens x features");
  if (in[1] != features_of(spec))
    throw InputError("a state space of " + number(spec.heads) + " heads of " + number(spec.head_size) + " and " +
                     number(spec.groups) + " groups with a state of " + number(spec.state) + " needs an input of " +
                     number(features_of(spec)) + " features, not " + number(in[1]));
  const Idle idle(*this, {x});
  const Module around = within(Module::StateSpace);
  const bool sharded = at(x).sharded;
  const std::int64_t inner = spec.heads * spec.head_size, convolved = inner + 2 * spec.groups * spec.state;
  const double tokens = real(in[0]), d = real(inner), state = real(spec.state);
  const Chunks chunks = chunks_of(in[0], spec.chunk);
  const auto sized = [&](double count, double fixed = 0) { return amount_of(sharded, count, fixed); };
  const double scores = real(spec.groups) * chunks.squares, states = chunks.count * d * state;
  const double shared = tokens * real(spec.groups) * state;
  const Tensors t{.convolved = sized(tokens * real(convolved)),
                  .inner = sized(tokens * d),
                  .shared = sized(shared),
                  .steps = sized(tokens * real(spec.heads)),
                  .steps32 = sized(0, 4 * tokens * real(spec.heads)),
                  .scores = sized(0, 4 * scores),
                  .states = sized(states),
                  .gradient32 = sized(0, 4 * shared)};
  const Amount states32 = sized(0, 4 * states), decays = 2.0 * t.steps32;
  const Value y = make({in[0], inner}, sharded, true);
  record("state_space", {x}, y);
  const auto add = [&](std::string_view name, OperatorKind kind, double flops, const Amount& bytes,
                       const Amount& gradient, std::int64_t parameters) -> Operator& {
    Operator& op = add_operator(name, kind);
    op.product = kind != OperatorKind::Memory, op.divided = sharded;
    op.forward_flops = flops, op.input_flops = 2 * flops, op.rebuilt_flops = flops;
    op.forward_bytes = bytes, op.input_bytes = bytes + gradient;
    op.parameters = parameters, op.sharded_parameters = sharded ? parameters : 0;
    return op;
  };
  constexpr OperatorKind kMemory = OperatorKind::Memory, kProducts = OperatorKind::Attention;
  add("conv1d", OperatorKind::GroupedConvolution, 2 * real(spec.kernel) * tokens * real(convolved), 2.0 * t.convolved,
      3.0 * t.convolved, checked_product(convolved, spec.kernel + 1, "the parameters"));
  add("chunk_decay", kMemory, 6 * tokens * real(spec.heads), t.steps + decays, decays + 2.0 * t.steps, 2 * spec.heads);
  add("chunk_state", kProducts, 2 * tokens * d * state, t.inner + t.shared + decays + states32,
      t.inner + t.states + decays + t.gradient32, 0);
  // Backward: what is passed on again is written in fp32; then states and their gradients, to 16 bits.
  add("state_passing", kMemory, 2 * states, states32 + t.states, 3.0 * states32 + t.states, 0);
  add("chunk_scores", kProducts, 2 * state * scores, 2.0 * t.shared + t.scores,
      2.0 * (t.scores + 2.0 * t.shared + t.gradient32), 0);
  const double masked = 2 * d * chunks.pairs();
  Operator& scan = add("chunk_scan", kProducts, masked + 2 * tokens * d * state,
                       4.0 * t.inner + t.shared + t.scores + t.states + decays, {}, spec.heads);
  // The gate (x, z, output and its gradient read, two gradients written), then the gradients of the states, of X, C, the
  // scores and the decays. Nothing of the forward is repeated but the masked products.
  scan.rebuilt_flops = masked;
  scan.input_bytes =
      15.0 * t.inner + 3.0 * t.shared + t.gradient32 + 3.0 * t.scores + 2.0 * t.states + states32 + 5.0 * decays;
  // What a backward holds while it passes gradients of states on: these and the states in both precisions, scores, decays,
  // and what was convolved again.
  scan.workspace = 2.0 * (states32 + t.states) + t.scores + decays + t.convolved;
  scan.all_pairs_flops = 7 * tokens * d * state;  // Megatron-LM's count of the whole scan
  keep(x), keep_own(t.inner);
  if (sharded) work_.shards = std::gcd(work_.shards, std::gcd(spec.heads, spec.groups));
  const Value normed = norm(y, {.kind = Norm::Rms});
  if (sharded) work_.operators.back().sharded_parameters = work_.operators.back().parameters;
  within(around);
  return normed;
}

}  // namespace pipewright::core
