// Builds the `Work` of one layer from shapes: each call adds an operator and returns the tensor it makes.
//
//     LayerBuilder block;
//     const auto x = block.input({s, h});
//     const auto y = block.linear(block.norm(x, {Norm::Layer}), {.features = 4 * h, .split = Split::Columns});
//     const Work work = block.finish({block.add(x, y)});
//
// Shapes are of one sample: {channels, height, width} of an image, {tokens, features} of a sequence, {features}.
// Bad shapes throw InputError without a place ("kernel 3 x 3 is larger than its 2 x 2 input"); the caller adds one.
//
// Kept tensors. An operator keeps what its derivative needs; a tensor that several need is kept once:
//     conv2d, linear, experts   their input                     relu                  its output
//     norm                      its input (statistics, 8 B per token or channel, are left out as in [Korthikanti22])
//     gelu, silu                their input                     tanh, sigmoid         their output
//     soft cap                  its tanh                        multiply              both inputs
//     max pool                  its input, and an 8 B index per output                average pool, add, concat nothing
//     dropout                   a mask of 1 B per value         softmax               its output
//     attention                 queries, keys, values, and of its core: materialised the products after softmax, the
//                               mask and the dropped products (5 a s^2 B in fp16); flash the output and 4 B per row
//     gated activation          both halves of its input        cross-entropy         fp32 probabilities
//     embedding                 token numbers (8 B each)        LSTM                  gates, cells, inputs, outputs
//     additive attention        the tanh of every pair, its weights, and the keys
//     state space               its input, the scan's output before the gate and after it (layer_state_space.cpp)
//
// A frozen layer keeps nothing that only gradients of weights would read: not the input of linear layers and experts, but
// where an adapter reads it.
//
// A tensor that needs no gradient (the model's own input) has no input gradient: the first convolution has none.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model/program.hpp"
#include "core/model/work.hpp"

namespace pipewright::core {

std::int64_t features_of(const StateSpace& spec);  // of its input
std::int64_t features_of(const DeltaNet& spec);    // likewise

class LayerBuilder {
 public:
  struct Value {
    int tensor = -1;
  };

  // Inputs of the layer, in the order of Layer::inputs. The model's own input needs no gradient.
  Value input(Shape shape, bool needs_gradient = true);
  Value tokens(std::int64_t count);  // an input of token numbers, 8 B each: {count}

  Value conv2d(Value x, const Conv2d& conv);
  Value linear(Value x, const Linear& linear);  // over the last dimension
  // Its weight is frozen and has low-rank adapters beside it (layer_adapters.cpp). Of a frozen builder.
  Value adapted(Value x, const Linear& linear, const Adapters& adapters);
  Value attention(std::initializer_list<Value> queries_keys_values, const AttentionCore& core);
  // Additive attention: each query weighs the keys with softmax(v . tanh(W query + U key)), v of `units` values.
  // {queries, features}, {keys, features} -> {queries, features of the keys}                             [Bahdanau15]
  Value additive_attention(Value queries, Value keys, std::int64_t units);
  Value norm(Value x, const NormSpec& norm);
  Value activation(Value x, Activation kind);
  Value gated(Value x, Activation kind);  // act(first half of the features) * second half
  Value pool(Value x, const PoolSpec& pool);
  Value global_average_pool(Value x);  // {c, h, w} -> {c}
  Value embedding(Value tokens, std::int64_t vocabulary, std::int64_t features, Split split = Split::None,
                  Table table = Table::Own);
  Value learned(Value x, std::int64_t rows);  // adds a learned table of `rows` x last dimension
  Value lstm(Value x, const Lstm& lstm);      // {tokens, features} -> {tokens, hidden * directions}
  Value softmax(Value x);
  Value cross_entropy(Value logits);  // -> {1}: softmax and loss, in fp32
  Value add(Value a, Value b);
  Value multiply(Value a, Value b);
  Value scale_rows(Value x, Value factors);          // {rows, features} times {rows, 1}
  Value scale(Value x);                              // times a constant
  Value soft_cap(Value x);                           // cap * tanh(x / cap), as three operators
  Value concat(std::initializer_list<Value> parts);  // along channels, or the last dimension
  Value concat(std::span<const Value> parts);
  Value upsample(Value x, std::int64_t factor);
  Value dropout(Value x, bool per_channel = false);              // per_channel: dropout2d, a mask per channel
  Value router(Value x, std::int64_t experts);                   // {tokens, h} -> {tokens, experts}
  Value experts(Value x, const Experts& experts);                // as many as each token is sent to, summed
  Value experts(Value x, Value routes, const Experts& experts);  // likewise, each times the router's share
  // What lies between the products of a Mamba-2 mixer: {tokens, z, x, B, C, dt side by side} -> {tokens, inner features}
  Value state_space(Value x, const StateSpace& spec);
  // Likewise of a gated delta net: {tokens, q, k, v, z, b, a side by side} -> {tokens, features of all values}
  Value gated_delta_net(Value x, const DeltaNet& spec);
  // The same values: no operator, no bytes. A layer that does nothing else hands on its input, which then counts where
  // it was produced.
  Value reshape(Value x, Shape shape);
  // {c, h, w} -> {h * w, c}. Priced as a reshape: frameworks hand on a view with other strides.
  Value image_to_tokens(Value x);
  Value parameters(Value x, std::int64_t count);  // further trained values that cost no arithmetic
  Value slice(Value x, Shape shape);              // a part of x, copied
  Value rotary(Value x, double share);            // rotary positions on that share of the features [Su21]
  // A copy of x for each of `heads`, which tensor parallelism divides: {tokens, f} -> {tokens, heads * f}.
  Value for_heads(Value x, std::int64_t heads);

  // No weight of the layer is trained but those of adapters: no gradient of weights is computed, and nothing kept for
  // one. Before the first operator.
  void freeze() { frozen_ = work_.frozen = true; }
  // What operators that are added from here on belong to; returns what it was.
  Module within(Module module) { return std::exchange(module_, module); }
  void keeps(double values);  // kept for the backward beyond what the operators keep
  Shape shape(Value x) const;

  // The layer, with these tensors handed on. The builder is used up.
  Work finish(std::span<const Value> outputs);
  Work finish(std::initializer_list<Value> outputs) { return finish(std::span(outputs.begin(), outputs.size())); }
  Work finish_block(Value output);  // a block of a Transformer: with Work::replay

 private:
  struct Tensor {
    Shape shape;
    bool sharded = false;  // divided among the devices of a tensor-parallel group
    bool needs_gradient = true;
    double bytes_each = 0;  // of tensors that are no values (token numbers); 0: values of the training precision
    int input = -1;         // number of the layer's input, or -1
    int same_as = -1;       // a view of that tensor
    Module made_by = Module::Other;
    bool kept = false;                               // for backward
    Modules read_by;                                 // then: whose backward reads it
    std::size_t made_at = 0;                         // operator
    bool read_by_linear = false, by_others = false;  // a linear layer's, another operator's
    Modules read_again;  // of a frozen layer: whose products read it, and nothing keeps it for them
  };
  Value make(Shape shape, bool sharded, bool needs_gradient);
  int root(Value x) const;
  const Tensor& at(Value x) const;
  Tensor& at(Value x);
  enum class Reader : std::uint8_t { Linear, Other };
  void keep(Value x, Reader reader = Reader::Other);
  // Of a frozen product: kept where its module runs again.
  void keep_again(Value x);
  void keep_own(const Amount& amount, Module made_by);  // a mask, an index: a tensor that no other operator sees
  void keep_own(const Amount& amount) { keep_own(amount, module_); }
  void add_kept(const KeptTensors& kept);  // to those of the same maker and readers
  Amount values(Value x) const;
  Operator& add_operator(std::string_view name, OperatorKind kind);
  // The last operator is a product that PyTorch runs as so many calls of mm, or as addmm.
  void replay_product(const Linear& linear, Value y);
  // While it lives, operators over these inputs have no backward, and keep nothing, if they belong to a frozen layer and
  // no gradient runs through their inputs.
  class Idle {
   public:
    Idle(LayerBuilder& builder, std::span<const Value> inputs);
    Idle(LayerBuilder& builder, std::initializer_list<Value> inputs)
        : Idle(builder, std::span(inputs.begin(), inputs.size())) {}
    ~Idle();
    Idle(const Idle&) = delete;
    Idle& operator=(const Idle&) = delete;

   private:
    LayerBuilder& builder_;
    std::size_t first_;  // operator
    Amount reduced_;     // backward, before it
    int reductions_;
    bool ends_;
  };
  void add_adapter(Value x, Value y, const Linear& linear, std::int64_t rank, std::int64_t features);
  // Of adapters, between the devices of a group: so many all-reduces, or halves of them, of a tensor.
  void add_exchange(const Amount& amount, double share, bool backward);
  void freeze_operators();
  // Adds the step that makes `out` to the program.
  Value price_experts(Value x, const Experts& experts);
  void record(std::string_view operation, std::span<const Value> inputs, Value out, StepSpec spec = {});
  void record(std::string_view operation, std::initializer_list<Value> inputs, Value out, StepSpec spec = {}) {
    record(operation, std::span(inputs.begin(), inputs.size()), out, std::move(spec));
  }
  // An operator whose time is the bytes it moves: reads its inputs, writes `out`; backward reads the gradient and what
  // was kept, writes the inputs' gradients. FLOPs per value of the output.
  struct PerValue {
    double forward = 0, backward = 0;
    bool backward_reads = true;  // a kept tensor
  };
  Value memory_operator(std::string_view name, std::initializer_list<Value> inputs, Shape shape, PerValue flops);

  std::vector<Tensor> tensors_;
  std::vector<ProgramStep> steps_;
  std::int64_t extra_parameters_ = 0;
  Work work_;
  Module module_ = Module::Other;
  std::vector<Replay> replay_;  // by operator
  int products_ = 0;            // calls of mm so far
  bool frozen_ = false;
  bool idle_ = false;  // no gradient runs here
};

}  // namespace pipewright::core
