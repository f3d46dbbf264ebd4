// What a layer computes, step by step: what a real run executes. `LayerBuilder` writes it down beside the figures, so
// that the layer that is priced and the layer that runs are one description.
//
// Tensors are of one sample; a micro-batch of b samples has b of each, one behind the other.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/rooms.hpp"

namespace pipewright::core {

struct Shape {
  std::array<std::int64_t, 4> dim{};
  int rank = 0;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  double elements() const;
  std::int64_t operator[](int axis) const { return dim[static_cast<std::size_t>(axis)]; }
  bool operator==(const Shape&) const = default;
};
std::string text(const Shape& shape);  // "64 x 112 x 112"

enum class Split : std::uint8_t { None, Columns, Rows };  // how tensor parallelism divides a product's weight
enum class Table : std::uint8_t { Own, Tied };            // Tied: of another layer, no parameters of its own
enum class Norm : std::uint8_t { Layer, Rms, Batch, Instance };
enum class Activation : std::uint8_t { Relu, Gelu, Silu, Tanh, Sigmoid };
enum class Pool : std::uint8_t { Max, Average };

struct Conv2d {
  std::int64_t channels = 1;  // of the output
  std::int64_t kernel_height = 1, kernel_width = 1;
  std::int64_t stride = 1;
  std::int64_t padding_height = 0, padding_width = 0;
  std::int64_t groups = 1;
  bool bias = false;
  bool operator==(const Conv2d&) const = default;
};
struct Linear {
  std::int64_t features = 1;  // of the output
  bool bias = true;
  Split split = Split::None;
  bool tied = false;                    // its weight is a table of another layer: no parameters of its own
  bool routed = false;                  // a router
  bool logits = false;                  // the product with the vocabulary
  std::optional<Activation> gate = {};  // LayerBuilder::gated follows: half of the features are gates
  bool operator==(const Linear&) const = default;
};
// Low-rank adapters beside a linear layer whose weight is frozen, one for each part of its output that has one: two
// products over `rank`, and their scaled sum with the layer's output.                                     [Hu21] section 4.1
struct Adapters {
  std::int64_t rank = 0;
  std::vector<std::int64_t> features;  // of the parts: 4096, 1024 of queries and values
};
struct AttentionCore {
  std::int64_t heads = 1, key_heads = 1;      // grouped-query attention: key_heads < heads
  std::int64_t key_size = 1, value_size = 1;  // per head
  std::int64_t queries = 1, keys = 1;         // tokens
  bool causal = false;
  std::int64_t window = 0;  // sliding window: a query sees this many keys, itself included; 0: all
  bool flash = false;       // fused kernel: no materialised scores, masked pairs are not computed
  bool dropout = false;
  bool bias = false;      // a value per pair is added to the scores (T5); a fused kernel adds it on the side
  bool soft_cap = false;  // scores pass cap * tanh(score / cap) (Gemma 2); likewise
  int parts = 1;          // devices that share the sequence: `keys` are those of one, and come from all in turn
  bool operator==(const AttentionCore&) const = default;
};
struct NormSpec {
  Norm kind = Norm::Layer;
  bool affine = true;  // scale and shift (rms: scale only)
  bool bias = true;    // layer norm without a shift: false
  bool operator==(const NormSpec&) const = default;
};
struct PoolSpec {
  Pool kind = Pool::Max;
  std::int64_t kernel = 2, stride = 2, padding = 0;
  bool ceil = false;  // the output size is rounded up
  bool operator==(const PoolSpec&) const = default;
};
struct Lstm {
  std::int64_t hidden = 1;
  bool bidirectional = false;
  int biases = 2;  // per gate and direction (cuDNN has two)
  bool operator==(const Lstm&) const = default;
};
struct Experts {
  std::int64_t experts = 1, active = 1;  // active: per token
  std::int64_t hidden = 1;               // of one expert
  Activation activation = Activation::Silu;
  bool gated = true;
  bool bias = false;
  bool squared = false;  // the activation's output, value by value; not gated
};
// Rows of experts in a program, of a sample with T tokens, each of which goes to k experts of E: token t goes as its copies
// t k + j, j < k, and copy q goes to expert q mod E, to its row q / E. So each expert has T k / E rows, which E divides, and
// a token's experts differ. A router that chooses would send others; what a run shows is how long as many rows take.
//     T = 4, k = 2, E = 4: token 1 has copies 2 and 3, row 0 of experts 2 and 3     tests/runtime/experts_test.cpp "rows"
struct ExpertRows {
  std::int64_t experts = 1, active = 1;
  bool operator==(const ExpertRows&) const = default;
};
// Products of each expert's rows with a weight of its own: {groups * rows, in} -> {groups * rows, features}.
struct GroupedLinear {
  std::int64_t groups = 1, features = 1;
  bool bias = false;
  bool operator==(const GroupedLinear&) const = default;
};
// Rows of experts on their way to the devices that hold the experts, or back (`of_expert_devices`). `devices` of them hold
// `experts`, each as many as the others; each device sends to each other one the rows of its experts.
//     out   {experts, rows} of one device become {its own experts, devices, rows}      back   the other way
struct RowExchange {
  std::int64_t experts = 1, devices = 1;
  bool back = false;
  bool operator==(const RowExchange&) const = default;
};
// What lies between the two products of a Mamba-2 mixer.                                                [DaoGu24]
struct StateSpace {
  std::int64_t heads = 1, head_size = 1;  // their product d: the inner features
  std::int64_t groups = 1, state = 1;     // heads of a group share B and C, of `state` features a token each
  std::int64_t kernel = 4;                // of the causal convolution, in tokens
  std::int64_t chunk = 128;               // tokens whose pairs are computed one by one
  bool operator==(const StateSpace&) const = default;
};

// What lies between the two products of a gated delta net.                                                [GatedDelta24]
struct DeltaNet {
  std::int64_t heads = 1, key_heads = 1;          // of values; of queries and keys, each shared by as many of the first
  std::int64_t key_size = 128, value_size = 128;  // features of such heads
  std::int64_t kernel = 4;                        // of the causal convolution, in tokens
  std::int64_t chunk = 64;                        // tokens whose pairs are computed one by one
  bool operator==(const DeltaNet&) const = default;
};

// What tells one step of an operation from another: the shapes say the rest. Steps of other operations have none.
struct Embedding {
  std::int64_t vocabulary = 1;
  bool operator==(const Embedding&) const = default;
};
struct LearnedTable {
  std::int64_t rows = 1;
  bool operator==(const LearnedTable&) const = default;
};
struct GatedActivation {
  Activation kind = Activation::Silu;
  bool operator==(const GatedActivation&) const = default;
};
using StepSpec = std::variant<std::monostate, Conv2d, Linear, AttentionCore, NormSpec, PoolSpec, Activation,
                              GatedActivation, Embedding, LearnedTable, Lstm, ExpertRows, GroupedLinear, RowExchange>;

struct ProgramStep {
  std::string_view operation;  // a literal: "linear", "attention", "add"
  std::vector<std::int32_t> inputs;
  std::int32_t output = -1;
  StepSpec spec;
  bool operator==(const ProgramStep&) const = default;
};

struct ProgramTensor {
  Shape shape;
  // The values of that tensor in another shape: no memory of its own, unless a step makes it.
  std::int32_t same_as = -1;
  bool indices = false;  // token numbers, 8 B each; else values of the training precision
  bool needs_gradient = true;
  bool operator==(const ProgramTensor&) const = default;
};

struct Program {
  std::vector<ProgramTensor> tensors;
  std::vector<ProgramStep> steps;             // in execution order
  std::vector<std::int32_t> inputs, outputs;  // the layer's, by number of the tensor
  std::int64_t extra_parameters = 0;          // trained values that no step uses: a figure only, it cannot be run
  bool operator==(const Program&) const = default;
};

// A program that copies of its layer's work share.
class SharedProgram {
 public:
  SharedProgram() = default;
  explicit SharedProgram(Program program) : program_(std::make_shared<const Program>(std::move(program))) {}
  const Program* get() const { return program_.get(); }  // nullptr: none was written down
  const std::shared_ptr<const Program>& shared() const { return program_; }
  bool operator==(const SharedProgram& other) const {
    return program_ == other.program_ || (program_ && other.program_ && *program_ == *other.program_);
  }

 private:
  std::shared_ptr<const Program> program_;
};

}  // namespace pipewright::core
