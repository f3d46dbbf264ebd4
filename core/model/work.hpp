// What a layer computes, operator by operator, and the figures that follow: FLOPs, bytes, parameters, kept tensors.
//
// All figures are for one sample; a micro-batch of b samples has b times as many (parameters and the bytes of weights
// do not scale). They do not depend on the precision or on how many devices share the layer: `Amount` tells the bytes
// once both are known. `layer_builder.hpp` derives the figures from shapes.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "core/model/program.hpp"
#include "core/units.hpp"

namespace pipewright::core {

// Devices that compute one layer together.                                                            [Shoeybi19]
struct TensorParallel {
  int degree = 1;                  // t
  bool sequence_parallel = false;  // what lies outside the split products is divided along the sequence [Korthikanti22]
  int experts = 1;                 // e: devices that hold experts of their own                          [GShard20]
  int expert_tensor = 0;           // x: devices that divide one expert among them; 0: t
  bool operator==(const TensorParallel&) const = default;

  constexpr int expert_split() const { return expert_tensor > 0 ? expert_tensor : degree; }
  // Devices that hold all experts of a layer between them, each once.
  constexpr std::int64_t expert_devices() const { return std::int64_t{experts} * expert_split(); }
  // Tokens are sent to the devices of their experts; else the t devices of a group have a part of each expert.
  constexpr bool sends_tokens() const { return experts > 1 || expert_split() != degree; }
};

// Bytes of tensors, as far as they are known without precision and split:
//     bytes = (values * bytes per value + bytes_fixed) / (1, or t with sequence parallelism)
//           + (sharded values * bytes per value + sharded bytes_fixed) / t
//           + gathered values * bytes per value
// 1 B dropout masks, 8 B indices and fp32 logits are `fixed`.
// t = 2: {whole 100 values, sharded 40 values} of 2 B: 200 + 40 = 240 B; with sequence parallelism 100 + 40 = 140 B.
// Gathered values stand whole on every device even with sequence parallelism: tokens that experts read. Where tokens are
// sent to their experts, a device has x / t of them.
struct Amount {
  double values = 0, fixed = 0;                  // on every device of the group
  double sharded_values = 0, sharded_fixed = 0;  // divided among the devices
  double gathered_values = 0;                    // on every device, with sequence parallelism, too

  Amount& operator+=(const Amount& other);
  Amount& operator-=(const Amount& other);
  friend Amount operator+(Amount a, const Amount& b) { return a += b; }
  friend Amount operator-(Amount a, const Amount& b) { return a -= b; }
  friend Amount operator*(double factor, Amount a);
  double on_device(Bytes per_value, TensorParallel split) const;  // bytes, not rounded
  bool operator==(const Amount&) const = default;
};

// Kinds that run at different shares of a device's peak: the keys of a device's `efficiency`.
enum class OperatorKind : std::uint8_t {
  MatrixProduct,       // linear layers, expert layers
  Convolution,         // also factorised (1x7); groups > 1 is GroupedConvolution
  GroupedConvolution,  // depthwise, too
  Attention,           // the products of queries, keys and values
  Recurrent,           // LSTM: products that wait for the step before
  Memory,              // everything whose time is the bytes it moves: norms, activations, pooling, gathers, additions
  Fp8Product,          // matrix products under training.low_precision, scaled by tensor or by the hardware's blocks
  Fp8BlockProduct,     // likewise, in fp8 scaled by blocks in software
  Fp4Product,          // likewise, in fp4
  Permutation,         // of Memory, what moves rows of tokens by their experts
};
constexpr int kOperatorKinds = 10;

// Parts of a Transformer's block that selective recomputation may rebuild, as Megatron-LM names them.
enum class Module : std::uint8_t {
  Other,
  AttentionCore,     // core_attn: scores, softmax, dropout and what they weigh; not where one kernel does it all
  Norm,              // layernorm: the norms before attention and before feed-forward, whose outputs are not kept either
  FeedForward,       // mlp: both products and the activation of a dense feed-forward
  ExpertActivation,  // moe_act: of the experts, whose output is not kept either
  Experts,           // moe: router, exchange and products of the experts, shared ones among them
  Operators,         // operators, of no operator: all but what `Replay` saves of a block's
  StateSpace,        // between the products of a Mamba-2 mixer or a gated delta net; never rebuilt alone
  LatentUp,       // mla_up_proj: latent attention's products out of its latents, rotations; outputs are not kept either
  SharedExperts,  // shared_experts: those that every token uses
};
constexpr int kModules = 10;
// Some of them; AttentionCore, Norm: 0b110.
class Modules {
 public:
  constexpr Modules() = default;
  constexpr Modules(std::initializer_list<Module> list) {
    for (const Module each : list)
      add(each);
  }
  constexpr void add(Module module) { bits_ |= 1u << static_cast<unsigned>(module); }
  constexpr bool has(Module module) const { return (bits_ >> static_cast<unsigned>(module) & 1) != 0; }
  constexpr bool within(Modules all) const { return (bits_ & ~all.bits_) == 0; }
  constexpr bool meets(Modules others) const { return (bits_ & others.bits_) != 0; }
  bool operator==(const Modules&) const = default;

 private:
  std::uint32_t bits_ = 0;
};

// The experts' module holds two that can be run again alone.
constexpr Modules with_experts(Modules modules) {
  if (modules.has(Module::Experts)) modules.add(Module::ExpertActivation), modules.add(Module::SharedExperts);
  return modules;
}

// One call of a matrix product C[m, n] = A[m, k] B[k, n], `batch` of them together.
struct ProductShape {
  double m = 0, n = 0, k = 0, batch = 1;
};

enum class PassKind { Forward, Input, Weight };  // forward, gradients of the input and of the weights

// A product as a layer has it: what one sample adds to its rows, and what a tensor-parallel group divides.
struct ProductOfLayer {
  enum class Divided : std::uint8_t { None, Columns, Depth, Groups };
  double rows = 0;  // per sample; 0: there is no product
  double columns = 0, depth = 0;
  double groups = 1;       // products in one call: heads of attention, experts
  bool of_sample = false;  // every sample has groups of its own, with its own rows (attention)
  Divided divided = Divided::None;
  bool expert =
      false;  // groups are experts: where tokens are sent, a device has 1 / e of them with the rows of e x devices

  explicit operator bool() const { return rows > 0; }
  // The call of a pass on one device. Gradient of the input: C[m, k] sums over n; of the weights C[n, k] over m.
  // 512 rows, 1024 columns, depth 256, 2 samples: (1024, 1024, 256), (1024, 256, 1024), (1024, 256, 1024).
  ProductShape call(PassKind pass, double samples, TensorParallel split, bool divided_rows) const;
  // fp16 and bf16 products run at full rate where rows of memory begin at multiples of 16 B.
  bool aligned() const;
  bool operator==(const ProductOfLayer&) const = default;
};

// Fused attention of one sample.
struct AttentionShape {
  double queries = 0, keys = 0, heads = 0, key_heads = 0, key_size = 0, value_size = 0;
  double pairs = 0;    // of query and key that are computed, per head
  double longest = 0;  // keys that the last query sees
  bool causal = false;
  bool operator==(const AttentionShape&) const = default;
};

// What a layer of experts exchanges, of one sample: operators `dispatch` and `combine`.
struct ExpertTokens {
  double tokens = 0, active = 0;     // 0: it is none; experts that each is sent to
  double experts = 0, features = 0;  // of the layer; values per token
  bool operator==(const ExpertTokens&) const = default;
};

// A convolution of one group, of one sample.
struct ConvolutionShape {
  double channels = 0, height = 0, width = 0;  // of the input; 0: it is none
  double out_channels = 0, out_height = 0, out_width = 0;
  double kernel_height = 1, kernel_width = 1, stride = 1;
  bool operator==(const ConvolutionShape&) const = default;
};

// Whether training changes an operator's parameters: not the frozen ones, beside which low-rank adapters are trained. [Hu21]
enum class Weights : std::uint8_t { Trained, Frozen, Adapter };

// One operator of a layer, for one sample: every pass has FLOPs and bytes of its own, and publishers count them differently.
struct Operator {
  std::string_view name;  // a literal: "conv2d", "layer_norm"
  OperatorKind kind = OperatorKind::Memory;
  // Products count two FLOPs per multiply-add; other arithmetic as its own operations (see layer_builder.cpp).
  double forward_flops = 0, input_flops = 0, weight_flops = 0;  // forward, input gradient, weight gradient
  // What a fused attention kernel computes again in its backward: hardware FLOPs, which take time with the input
  // gradient's but are none of the model's.
  double rebuilt_flops = 0;
  bool product = false;   // FLOPs of matrix products and convolutions: what MFU counts
  bool divided = false;   // its FLOPs divide among the devices of a tensor-parallel group; else by sequence parallelism
  bool gathered = false;  // its FLOPs are done on every device of the group, with sequence parallelism, too
  bool logits = false;    // the product with the vocabulary
  Module module = Module::Other;                    // what selective recomputation can rebuild it with
  bool routed = false;                              // belongs to a router: left out by some publishers' FLOP counts
  std::int64_t parameters = 0;                      // whole count
  std::int64_t sharded_parameters = 0;              // of them: divided among the devices
  std::int64_t gathered_parameters = 0;             // of them: a table of which only few rows are read (embedding)
  std::int64_t idle_parameters = 0;                 // of them: of experts that a token is not sent to
  Amount forward_bytes, input_bytes, weight_bytes;  // activations read and written by each pass, without parameters
  Amount workspace;                                 // scratch memory while it runs
  // What publishers' ways to count FLOPs differ in (core/model/flops.hpp); all of one forward pass.
  // Attention: with every pair of query and key, masked or not. Of a state space: what publishers count for all of it.
  double all_pairs_flops = 0;
  double other_gate_flops = 0;  // part of forward_flops that computes a gate other than SwiGLU's
  bool causal = false;          // attention: of all pairs, each query sees the keys before it
  double in_turn = 0;           // parts of a sample that wait for the one before: chunks of linear attention
  ProductOfLayer shape;         // of a product
  AttentionShape attention;     // of fused attention; heads 0: it is none
  ConvolutionShape convolution;
  ExpertTokens sent;    // of what exchanges tokens
  bool expert = false;  // its work grows with the tokens that the device's experts get
  Weights weights = Weights::Trained;
  bool operator==(const Operator&) const = default;
};

// A product of experts that every token uses.
inline bool of_shared_expert(const Operator& op) {
  return op.product && op.module == Module::SharedExperts && !op.routed;
}

// What no part of a sample's tokens can compute by itself, or with the keys and values of the others.
inline bool needs_whole_sequences(const Operator& op) {
  return op.module == Module::AttentionCore || op.kind == OperatorKind::Recurrent ||
         op.kind == OperatorKind::Convolution || op.kind == OperatorKind::GroupedConvolution;
}

// Tensors kept from forward to backward, of one maker and the same readers.
struct KeptTensors {
  Module made_by = Module::Other;
  Modules read_by;      // whose backward reads them
  bool expert = false;  // they grow with the tokens that a device's experts get
  Amount amount;
  // Of it: what the backward of linear layers alone reads, and what other operators' reads, too. Where products are
  // computed in fewer bits these layers keep a copy in them, and the first need not be kept.
  Amount by_linear, by_linear_too;
  Amount before_shares;  // kept beside where the router's shares multiply what is read in an operator of their own
  bool operator==(const KeptTensors&) const = default;
};

// An operator of a block that PyTorch's selective checkpoints wrap with torchtitan's list of operators: of these the
// outputs are saved in the forward, all others run again before the backward.                        [torchtitan26]
//     fused attention, products of scores and values, products with a bias (addmm)      saved
//     products without a bias (mm)                                                      every second one runs again
//     a router's product, all else                                                      runs again
// A product with a gate is two of them, as torchtitan runs it; queries, keys and values are one.
//     qkv 1, out 2, gate 3, up 4, down 5: 1, 3 and 5 are saved       tests/core/families/transformer_test.cpp "Replay"
struct Replay {
  double again = 1;  // share of its columns that run again
  Amount saved;      // of its output
  Amount scattered;  // with sequence parallelism saved, too: the output behind its reduce-scatter
  Amount kept;       // of what it makes, what the backward keeps where nothing is checkpointed
  bool operator==(const Replay&) const = default;
};

// A layer: its operators in execution order and what follows from them together.
struct Work {
  std::vector<Operator> operators;
  std::vector<Amount> inputs, outputs;  // tensors from other layers, tensors handed on
  // Kept from forward to backward, without the layer's inputs: those count where they were produced, or at the boundary
  // of the stage. `keeps_input[i]`: the backward of this layer reads input i.
  Amount kept;
  std::vector<KeptTensors> kept_tensors;  // `kept` by who makes and who reads it: see kept_without
  // Of a frozen layer: what its products read and nobody keeps, unless one of `read_by` runs again.
  std::vector<KeptTensors> read_again;
  Amount inputs_by_linear;        // of the layer's inputs: what linear layers keep a copy of in fewer bits
  Amount logits;                  // of `kept`: what the loss keeps of the logits
  std::vector<char> keeps_input;  // by input
  bool keeps_output = false;      // `kept` holds the outputs: this layer's own backward reads them
  std::int64_t parameters = 0, sharded_parameters = 0;
  std::int64_t expert_parameters = 0;  // of the sharded ones
  // Of a frozen layer adapters alone are trained: how many of the parameters, and of the sharded ones. Tables of other
  // layers that it uses are frozen, too.
  bool frozen = false;
  std::int64_t adapter_parameters = 0, sharded_adapters = 0;
  // Of what is reduced: by experts, where each is divided among the group. Where tokens are sent, they are not.
  Amount reduced_by_experts;  // forward; backward as much
  int expert_layers = 0;
  std::int64_t tied_parameters = 0;  // a table of another layer that this one uses, too (tied embedding and head)
  // Bytes all-reduced by a tensor-parallel group per sample, and how many all-reduces. Sequence parallelism turns each
  // into a reduce-scatter and an all-gather of together the same volume.
  Amount reduced_forward, reduced_backward;
  int reductions_forward = 0, reductions_backward = 0;
  struct Reductions {
    Amount bytes;
    int times = 0;
    bool operator==(const Reductions&) const = default;
  };
  std::array<Reductions, kModules> reduced_within;  // of the forward's: by the module that ends with them
  std::vector<Replay> replay;                       // of a block, by operator; else empty
  // Common divisor of what is split (heads, key heads, inner features), which a tensor-parallel degree must divide; 0:
  // nothing is. A vocabulary is padded instead.
  std::int64_t shards = 0;
  bool split_vocabulary = false;

  SharedProgram program;  // the same operators, to be run

  double forward_flops() const;  // all operators
  double product_flops() const;  // forward, matrix products and convolutions only
  Amount output() const;         // sum of `outputs`
  bool operator==(const Work&) const = default;
};

// What is kept where `rebuilt` modules are run again before the backward: not what one of them makes and nobody else reads,
// nor the outputs of norms, of the experts' activations and of latent attention's products, whoever reads them.
//     fp16, 34 s h + 5 a s^2 of a GPT block; AttentionCore: 34 s h          [Korthikanti22] section 4, 5
bool dropped_with(const KeptTensors& kept, Modules rebuilt);
// Whether modules that run again need it, and do not make it themselves.
bool needed_with(const KeptTensors& read_again, Modules rebuilt);
Amount kept_without(const Work& work, Modules rebuilt);
// Whether an operator runs again then.
constexpr bool rebuilt_with(const Operator& op, Modules rebuilt) {
  return with_experts(rebuilt).has(op.module);
}

// Bytes of one sample that a device keeps of a block under these checkpoints, and the most that it holds while the block's
// forward runs again: what is still to be read of the saved, and what the operators so far have made.
struct ReplayBytes {
  double saved = 0, most = 0;
};
ReplayBytes replay_bytes(const Work& work, Bytes per_value, TensorParallel split);

// Products that training.low_precision computes in fewer bits: those of linear layers and experts, not those of attention,
// of routers, of adapters and with the vocabulary, which stay as they are in Transformer Engine and torchtitan.
bool low_precision_product(const Operator& op);
// Their parameters on one device of the group.
std::int64_t low_precision_parameters(const Work& work, TensorParallel split);

// How many of the operators, from the first on, are repeated before a backward that stops where it has what it reads: not
// the last product, whose input is there then, nor sums behind it.     tests/core/operator_costs_test.cpp "stops early"
//     norm, qkv, attention, out, add, norm, up, silu, down, add: all but the last two
std::size_t repeated_until_read(const Work& work);

// Parameters that one device of the group holds: whole ones, ceil(sharded / t), and of experts ceil(all / (e x)).
std::int64_t parameters_on_device(const Work& work, TensorParallel split);
std::int64_t expert_parameters_on_device(const Work& work, TensorParallel split);  // of them; 0: tokens are not sent
// Of a frozen layer, those that it trains.
std::int64_t adapters_on_device(const Work& work, TensorParallel split);

}  // namespace pipewright::core
