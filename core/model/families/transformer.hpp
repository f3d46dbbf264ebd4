// Transformers: one description for encoders, decoders and pairs of both, with one model layer per block.
//
//     embedding | block.0 | block.1 | ... | head            head: final norm, product with the vocabulary, loss
//
// Each block is built by LayerBuilder from its shapes: parameters, FLOPs, kept tensors and the volumes of tensor
// parallelism follow. Blocks that compute the same share one Work.
//
// Tensor parallelism as in [Shoeybi19]: queries, keys, values and the first product of a feed-forward network are split
// by columns, the attention's output and the second product by rows, embedding and head by vocabulary; heads and groups of
// Mamba-2 mixers and both kinds of heads of gated delta nets with them; norms, routers and the down-projections of latent attention stand whole on every device.
//
// Left out: rotary tables, the scaling of embeddings by a constant, auxiliary losses of routers (no parameters, and no
// FLOPs worth a line), and attention sinks cost no time. Of fused attention neither softmax nor dropout, soft caps or
// relative position biases count: arithmetic on the side of its products, and no bytes. ALiBi, which adds a multiple of
// the distance to each score, counts nowhere: Positions::None. The head computes the logits of every token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/graph.hpp"
#include "core/model/layer_builder.hpp"

namespace pipewright::core {

// Linear layers of a block, by their names in Hugging Face's and in Megatron-LM's models. Queries, keys and values are one
// product here, and so are gate and up: each part has adapters of its own, or the whole has one (Qkv, Fc1).
enum class LoraTarget : std::uint8_t {
  Q,
  K,
  V,
  O,
  Gate,
  Up,
  Down,
  Qkv,
  Fc1,
  QDown,  // latent attention: of queries, then of keys and values
  QUp,
  KvDown,
  KvUp,
  MixerIn,
  MixerOut,
};

// As many fields as configurations of published models have keys that times or memory depend on.
struct Transformer {
  // Post: norm(x + part(x)), and no final norm. Sandwich: before and after each part (Gemma 2). Reordered:
  // x + norm(part(x)) (OLMo 2).
  enum class Norms : std::uint8_t { Pre, Post, Sandwich, Reordered };
  enum class Positions : std::uint8_t { None, Learned, Rotary, RelativeBias };
  enum class Bias : std::uint8_t { None, Queries, All };  // of attention: none, of queries, keys and values, all four
  enum class QkNorm : std::uint8_t { None, Head, All };  // of queries and keys: over a head's features (Qwen 3), or all
  enum class Head : std::uint8_t {
    Tokens,       // final norm, logits of every token, cross-entropy
    MaskedToken,  // BERT: product, activation, norm, logits, cross-entropy
    Pretraining,  // BERT: MaskedToken and the next-sentence classifier on the pooler
    Pooler,       // BERT without a task: product and tanh of the first token
    Classes,      // ViT: final norm, logits of the first token, cross-entropy
  };
  // Sparse feed-forward networks: a router sends each token to `active` of `experts`.
  struct Moe {
    std::int64_t experts = 0, active = 0;  // experts = 0: dense
    std::int64_t feed_forward = 0;         // of one expert
    std::int64_t shared_feed_forward = 0;  // beside them, for every token; 0: none
    bool shared_gate = false;              // the shared expert's output is scaled by a sigmoid of one product (Qwen 2)
    bool router_bias = false;              // one value per expert (gpt-oss; DeepSeek-V3's balancing bias)
    bool expert_bias = false;              // biases of the experts' products
    bool operator==(const Moe&) const = default;
  };
  // Multi-head latent attention: keys and values from a compressed vector.                             [DeepSeekII24]
  struct Latent {
    std::int64_t query_rank = 0;                                // 0: queries are not compressed
    std::int64_t rank = 0;                                      // of keys and values; 0: ordinary attention
    std::int64_t nope_size = 0, rope_size = 0, value_size = 0;  // per head: without and with rotation, values
    bool operator==(const Latent&) const = default;
  };

  // Low-rank adapters beside linear layers of the blocks; all else is frozen.                                  [Hu21]
  struct Lora {
    std::int64_t rank = 0;      // 0: none, all weights are trained
    std::uint32_t targets = 0;  // a bit each: LoraTarget
    bool has(LoraTarget target) const { return rank > 0 && (targets >> static_cast<unsigned>(target) & 1) != 0; }
    bool operator==(const Lora&) const = default;
  };

  std::string name = "transformer";
  std::int64_t layers = 1;          // blocks; of a pair: of the decoder
  std::int64_t encoder_layers = 0;  // > 0: a pair; each decoder block also attends to the encoder's output
  std::int64_t hidden = 1;
  std::int64_t heads = 1, key_heads = 1, head_size = 1;
  std::int64_t feed_forward = 1;
  bool gated = false;
  Activation activation = Activation::Gelu;
  bool squared = false;  // the activation's output, value by value (Nemotron, with ReLU); not gated
  std::int64_t sequence_length = 1;
  std::int64_t target_length = 0;  // of a pair's decoder; 0: sequence_length

  std::int64_t vocabulary = 0;
  bool tied = false;             // the head uses the embedding's table
  bool tied_target = false;      // of a pair: so does the decoder's embedding
  bool head_bias = false;        // one value per word (or class)
  std::int64_t token_types = 0;  // BERT: a table of segments
  bool embedding_norm = false;   // BERT: a norm after the sum of embeddings
  Head head = Head::Tokens;

  Norms norms = Norms::Pre;
  Norm norm = Norm::Layer;
  bool norm_bias = true;        // of layer norm
  bool parallel_parts = false;  // attention and feed-forward read the same input and are added together (GPT-NeoX)
  Positions positions = Positions::None;
  std::int64_t position_rows = 0;  // of the learned table, or buckets of the relative bias
  std::int64_t rotary_size = 0;    // features of a head that are rotated; 0: all

  Bias attention_bias = Bias::None;
  bool feed_forward_bias = false;
  QkNorm qk_norm = QkNorm::None;
  bool attention_gate = false;      // a sigmoid of as many further features as queries scales its output (Qwen3-Next)
  bool attention_soft_cap = false;  // scores pass cap * tanh(score / cap) (Gemma 2)
  bool final_soft_cap = false;      // and so do the logits
  bool sinks = false;               // one trained logit per head (gpt-oss)
  bool causal = true;
  std::vector<std::int64_t> windows;  // by block: sliding window in tokens, 0: none; empty: none anywhere
  bool flash = true;                  // fused attention; else materialised scores
  bool dropout = false;               // after both parts of a block
  bool embedding_dropout = false;     // after the embedding
  bool attention_dropout = false;     // of attention probabilities
  bool inner_dropout = false;  // also between the products of the feed-forward network and after final norms (T5)

  // Values per token that a block keeps for its backward beyond what its operators need: what a framework holds on to
  // and no publication lists. A figure set here is a fitted one.
  std::int64_t extra_kept = 0;

  Moe moe;
  std::vector<char> sparse;  // by block: uses `moe`; empty: all, if there are experts
  Latent latent;
  // Hybrid stacks (Nemotron-H, Qwen3-Next): by block the one part that it has, in the letters of Megatron-LM's
  // --hybrid-layer-pattern: M a Mamba-2 mixer, G a gated delta net, * attention, - a dense feed-forward, E experts. Empty:
  // every block has attention and feed-forward.
  std::string pattern;
  StateSpace mixer;
  DeltaNet delta;
  // Multi-token prediction of DeepSeek-V3: each module is a block more, fed by the block before and the embedding of
  // the next token, with the main model's tables. `stated_modules`: of the architecture; of them `modules` are built.
  std::int64_t modules = 0, stated_modules = 0;

  Lora lora;  // of decoders: the families with `lora_rank`

  // Images instead of tokens (ViT): {channels, image, image} cut into patches, a class token in front.
  std::int64_t image = 0, patch = 0, channels = 3;
  std::int64_t classes = 0;

  bool operator==(const Transformer&) const = default;

  std::int64_t window(std::int64_t block) const { return windows.empty() ? 0 : windows[at(block)]; }
  bool is_sparse(std::int64_t block) const { return moe.experts > 0 && (sparse.empty() || sparse[at(block)] != 0); }
  char part(std::int64_t block) const { return pattern.empty() ? '\0' : pattern[at(block)]; }
};

// The model, for one sample per batch. `Model::source` tells what the description left out (next-token modules).
// Throws InputError where the shapes contradict each other (heads that key heads do not divide, more active experts
// than experts, a sequence longer than the table of positions).
Model build(const Transformer& transformer);

}  // namespace pipewright::core
