#include "core/model/families/transformer.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace pipewright::core {
namespace {

using Value = LayerBuilder::Value;

// What tells one block from another of the same model.
struct BlockKind {
  std::int64_t window = 0;
  bool sparse = false;
  bool encoder = false;  // of a pair
  bool first = false;    // holds the relative bias; of a frozen model: no gradient runs on from it
  bool last = false;     // hands on the encoder's normalised output
  char part = '\0';      // of a hybrid: the only one
  bool operator==(const BlockKind&) const = default;
};

std::int64_t decoder_length(const Transformer& t) {
  return t.encoder_layers > 0 && t.target_length > 0 ? t.target_length : t.sequence_length;
}

NormSpec norm_of(const Transformer& t) {
  return {.kind = t.norm, .affine = true, .bias = t.norm_bias};
}

Value dropped(LayerBuilder& b, const Transformer& t, Value x) {
  return t.dropout ? b.dropout(x) : x;
}

// A linear layer with its adapters: one of the whole, or of the parts of its output, so many features each.
struct AdaptedPart {
  LoraTarget target;
  std::int64_t features;
};
Value linear_layer(LayerBuilder& b, const Transformer& t, Value x, const Linear& linear, LoraTarget whole,
                   std::initializer_list<AdaptedPart> parts = {}) {
  Adapters adapters{t.lora.rank, {}};
  if (t.lora.has(whole)) adapters.features.push_back(linear.features);
  for (const AdaptedPart& part : parts)
    if (t.lora.has(part.target)) adapters.features.push_back(part.features);
  return adapters.features.empty() ? b.linear(x, linear) : b.adapted(x, linear, adapters);
}

LayerBuilder builder_of(const Transformer& t) {
  LayerBuilder b;
  if (t.lora.rank > 0) b.freeze();
  return b;
}

// ---- attention ------------------------------------------------------------------------------------------------------

AttentionCore core_of(const Transformer& t, std::int64_t queries, std::int64_t keys, std::int64_t window, bool causal) {
  return {.heads = t.heads,
          .key_heads = t.key_heads,
          .key_size = t.head_size,
          .value_size = t.head_size,
          .queries = queries,
          .keys = keys,
          .causal = causal,
          .window = window,
          .flash = t.flash,
          .dropout = t.attention_dropout,
          .soft_cap = t.attention_soft_cap};
}

// Queries, keys and values from one product, as [Shoeybi19] fuses them.
Value ordinary_attention(LayerBuilder& b, const Transformer& t, Value x, std::int64_t window, bool causal) {
  const std::int64_t s = b.shape(x)[0], d = t.head_size;
  const std::int64_t query_key = (t.heads + t.key_heads) * d, values = t.key_heads * d;
  const std::int64_t gate = t.attention_gate ? t.heads * d : 0;
  const Value opened = linear_layer(
      b, t, x,
      {.features = query_key + values + gate,
       .bias = t.attention_bias != Transformer::Bias::None,
       .split = Split::Columns},
      LoraTarget::Qkv, {{LoraTarget::Q, t.heads * d + gate}, {LoraTarget::K, values}, {LoraTarget::V, values}});
  const auto gated = [&](Value attended) {
    return gate > 0 ? b.multiply(attended, b.activation(b.slice(opened, {s, gate}), Activation::Sigmoid)) : attended;
  };
  const bool cut = gate > 0 && t.qk_norm == Transformer::QkNorm::None;
  Value qkv = cut ? b.slice(opened, {s, query_key + values}) : opened;
  if (t.sinks) qkv = b.parameters(qkv, t.heads);
  AttentionCore core = core_of(t, s, s, window, causal);
  core.bias = t.positions == Transformer::Positions::RelativeBias;
  const double rotated = t.rotary_size > 0 ? static_cast<double>(t.rotary_size) / static_cast<double>(d) : 1;
  const bool rotary = t.positions == Transformer::Positions::Rotary;
  if (t.qk_norm == Transformer::QkNorm::None) {
    const double share = static_cast<double>(query_key) / static_cast<double>(query_key + values);
    return gated(b.attention({rotary ? b.rotary(qkv, share * rotated) : qkv}, core));
  }
  Value qk = b.slice(qkv, {s, query_key});
  const Value v = b.slice(qkv, {s, values});
  // One norm of queries and one of keys: alike in cost, so they stand as one over both with the parameters of two.
  if (t.qk_norm == Transformer::QkNorm::Head) {
    const Value normed = b.norm(b.reshape(qk, {s * (t.heads + t.key_heads), d}), {.kind = t.norm, .bias = t.norm_bias});
    qk = b.reshape(b.parameters(normed, t.norm == Norm::Layer && t.norm_bias ? 2 * d : d), {s, query_key});
  } else {
    qk = b.norm(qk, {.kind = t.norm, .bias = t.norm_bias});
  }
  return gated(b.attention({rotary ? b.rotary(qk, rotated) : qk, v}, core));
}

// Multi-head latent attention. Keys and values are opened from the compressed vector for every head, as in training;
// one rotated part is shared by all heads.                                     [DeepSeekII24] section 2.1
//     parameters: h q + q a (n + r) + h (c + r) + c a (n + v) + a v h, and the norms q + c
Value latent_attention(LayerBuilder& b, const Transformer& t, Value x, bool causal) {
  const Transformer::Latent& l = t.latent;
  const std::int64_t s = b.shape(x)[0], key_size = l.nope_size + l.rope_size;
  const auto part = [&](std::int64_t size) { return static_cast<double>(size) / static_cast<double>(key_size); };
  const auto linear = [&](Value from, std::int64_t features, Split split, LoraTarget target) {
    return linear_layer(b, t, from, {.features = features, .bias = false, .split = split}, target);
  };
  Value compressed = x;
  if (l.query_rank > 0) compressed = b.norm(linear(x, l.query_rank, Split::None, LoraTarget::QDown), norm_of(t));
  const Module around = b.within(Module::LatentUp);
  const Value queries = b.rotary(
      linear(compressed, t.heads * key_size, Split::Columns, l.query_rank > 0 ? LoraTarget::QUp : LoraTarget::Q),
      part(l.rope_size));
  b.within(around);
  const Value down = linear(x, l.rank + l.rope_size, Split::None, LoraTarget::KvDown);
  const Value normed = b.norm(b.slice(down, {s, l.rank}), norm_of(t));
  const Value rotated = b.rotary(b.slice(down, {s, l.rope_size}), 1);
  b.within(Module::LatentUp);
  const Value opened = linear(normed, t.heads * (l.nope_size + l.value_size), Split::Columns, LoraTarget::KvUp);
  const Value keys = b.concat({b.slice(opened, {s, t.heads * l.nope_size}), b.for_heads(rotated, t.heads)});
  const Value values = b.slice(opened, {s, t.heads * l.value_size});
  b.within(around);
  AttentionCore core = core_of(t, s, s, 0, causal);
  core.key_heads = t.heads, core.key_size = key_size, core.value_size = l.value_size;
  return b.attention({queries, keys, values}, core);
}

Value projected(LayerBuilder& b, const Transformer& t, Value attended) {
  return dropped(
      b, t,
      linear_layer(b, t, attended,
                   {.features = t.hidden, .bias = t.attention_bias == Transformer::Bias::All, .split = Split::Rows},
                   LoraTarget::O));
}

Value self_attention(LayerBuilder& b, const Transformer& t, Value x, const BlockKind& kind) {
  const bool causal = t.causal && !kind.encoder;
  if (t.positions == Transformer::Positions::RelativeBias && kind.first) x = b.parameters(x, t.position_rows * t.heads);
  return projected(
      b, t, t.latent.rank > 0 ? latent_attention(b, t, x, causal) : ordinary_attention(b, t, x, kind.window, causal));
}

Value cross_attention(LayerBuilder& b, const Transformer& t, Value x, Value memory) {
  const bool bias = t.attention_bias != Transformer::Bias::None;
  const std::int64_t queries = b.shape(x)[0], keys = b.shape(memory)[0];
  const Value q = b.linear(x, {.features = t.heads * t.head_size, .bias = bias, .split = Split::Columns});
  const Value kv = b.linear(memory, {.features = 2 * t.key_heads * t.head_size, .bias = bias, .split = Split::Columns});
  return projected(b, t, b.attention({q, kv}, core_of(t, queries, keys, 0, false)));
}

// ---- feed-forward ---------------------------------------------------------------------------------------------------

Value dense(LayerBuilder& b, const Transformer& t, Value x, std::int64_t inner) {
  const bool bias = t.feed_forward_bias;
  Linear opening{.features = t.gated ? 2 * inner : inner, .bias = bias, .split = Split::Columns};
  if (t.gated) opening.gate = t.activation;
  const auto parts = {AdaptedPart{LoraTarget::Gate, t.gated ? inner : 0}, AdaptedPart{LoraTarget::Up, inner}};
  Value y = linear_layer(b, t, x, opening, LoraTarget::Fc1, parts);
  y = t.gated ? b.gated(y, t.activation) : b.activation(y, t.activation);
  if (t.squared) y = b.multiply(y, y);
  if (t.inner_dropout) y = dropped(b, t, y);
  return linear_layer(b, t, y, {.features = t.hidden, .bias = bias, .split = Split::Rows}, LoraTarget::Down);
}

Value sparse(LayerBuilder& b, const Transformer& t, Value x) {
  const Transformer::Moe& moe = t.moe;
  const Value routes = b.router(x, moe.experts);
  if (moe.router_bias) b.parameters(routes, moe.experts);
  Value y = b.experts(x, routes,
                      {.experts = moe.experts,
                       .active = moe.active,
                       .hidden = moe.feed_forward,
                       .activation = t.activation,
                       .gated = t.gated,
                       .bias = moe.expert_bias,
                       .squared = t.squared});
  if (moe.shared_feed_forward == 0) return y;
  const Module around = b.within(Module::SharedExperts);
  const Value shared = dense(b, t, x, moe.shared_feed_forward);
  b.within(around);
  if (!moe.shared_gate) return b.add(y, shared);
  const Value gate = b.activation(b.linear(x, {.features = 1, .bias = false, .routed = true}), Activation::Sigmoid);
  return b.add(y, b.scale_rows(shared, gate));
}

Value feed_forward(LayerBuilder& b, const Transformer& t, Value x, bool is_sparse) {
  const Module around = b.within(is_sparse ? Module::Experts : Module::FeedForward);
  const Value y = is_sparse ? sparse(b, t, x) : dense(b, t, x, t.feed_forward);
  b.within(around);
  return dropped(b, t, y);
}

// ---- Mamba-2, gated delta nets --------------------------------------------------------------------------------------

// One product opens z, x, B, C and dt side by side, one closes; no biases.                             [DaoGu24] section 7
//     parameters: h (2 d + 2 g N + n) + (k + 1)(d + 2 g N) + 3 n + d + d h, d = n p
Value mixer(LayerBuilder& b, const Transformer& t, Value x) {
  const Value opened = linear_layer(b, t, x, {.features = features_of(t.mixer), .bias = false, .split = Split::Columns},
                                    LoraTarget::MixerIn);
  return dropped(b, t,
                 linear_layer(b, t, b.state_space(opened, t.mixer),
                              {.features = t.hidden, .bias = false, .split = Split::Rows}, LoraTarget::MixerOut));
}

// Likewise q, k, v, z, b and a.                                                     [GatedDelta24] section 3.4, figure 1
//     parameters: h (2 G K + 2 H V + 2 H) + k (2 G K + H V) + 2 H + V + h H V
Value delta_net(LayerBuilder& b, const Transformer& t, Value x) {
  const Value opened = b.linear(x, {.features = features_of(t.delta), .bias = false, .split = Split::Columns});
  return dropped(
      b, t, b.linear(b.gated_delta_net(opened, t.delta), {.features = t.hidden, .bias = false, .split = Split::Rows}));
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

// In front of a part of a block.
Value normed(LayerBuilder& b, const Transformer& t, Value x) {
  const Module around = b.within(Module::Norm);
  const Value y = b.norm(x, norm_of(t));
  b.within(around);
  return y;
}

// x + part(x), with the norms where the description puts them.
template <class Part>
Value residual(LayerBuilder& b, const Transformer& t, Value x, const Part& part) {
  const NormSpec norm = norm_of(t);
  switch (t.norms) {
    case Transformer::Norms::Pre: return b.add(x, part(normed(b, t, x)));
    case Transformer::Norms::Post: return b.norm(b.add(x, part(x)), norm);
    case Transformer::Norms::Sandwich: return b.add(x, b.norm(part(normed(b, t, x)), norm));
    case Transformer::Norms::Reordered: return b.add(x, b.norm(part(x), norm));
  }
  return x;
}

// The operators of one block, from x to its output.
Value block(LayerBuilder& b, const Transformer& t, Value x, const BlockKind& kind) {
  if (kind.part != '\0')
    return residual(b, t, x, [&](Value y) {
      return kind.part == 'M'   ? mixer(b, t, y)
             : kind.part == 'G' ? delta_net(b, t, y)
             : kind.part == '*' ? self_attention(b, t, y, kind)
                                : feed_forward(b, t, y, kind.part == 'E');
    });
  if (t.parallel_parts) {
    const Value attended = self_attention(b, t, normed(b, t, x), kind);
    return b.add(x, b.add(attended, feed_forward(b, t, normed(b, t, x), kind.sparse)));
  }
  x = residual(b, t, x, [&](Value y) { return self_attention(b, t, y, kind); });
  if (t.encoder_layers > 0 && !kind.encoder) {
    const Value memory = b.input({t.sequence_length, t.hidden});
    x = residual(b, t, x, [&](Value y) { return cross_attention(b, t, y, memory); });
  }
  return residual(b, t, x, [&](Value y) { return feed_forward(b, t, y, kind.sparse); });
}

Work block_work(const Transformer& t, const BlockKind& kind) {
  LayerBuilder b = builder_of(t);
  const Value x =
      b.input({kind.encoder ? t.sequence_length : decoder_length(t), t.hidden}, !(t.lora.rank > 0 && kind.first));
  Value y = block(b, t, x, kind);
  b.keeps(b.shape(x).elements() / static_cast<double>(t.hidden) * static_cast<double>(t.extra_kept));
  if (kind.last && t.norms != Transformer::Norms::Post) {
    y = b.norm(y, norm_of(t));
    if (t.inner_dropout) y = dropped(b, t, y);
  }
  return b.finish_block(y);
}

// ---- the two ends ---------------------------------------------------------------------------------------------------

Work token_embedding(const Transformer& t, std::int64_t tokens, Table table) {
  LayerBuilder b = builder_of(t);
  Value x = b.embedding(b.tokens(tokens), t.vocabulary, t.hidden, Split::Rows, table);
  if (t.token_types > 0) x = b.learned(x, t.token_types);
  if (t.positions == Transformer::Positions::Learned) x = b.learned(x, t.position_rows);
  if (t.embedding_norm) x = b.norm(x, norm_of(t));
  return b.finish({t.embedding_dropout ? b.dropout(x) : x});
}

// Patches as a strided convolution, the class token in front, learned positions.             [Dosovitskiy20]
// section 3.1
Work patch_embedding(const Transformer& t) {
  LayerBuilder b;
  const Value image = b.input({t.channels, t.image, t.image}, false);
  const std::int64_t patches = (t.image / t.patch) * (t.image / t.patch), h = t.hidden;
  const Value grid = b.conv2d(
      image, {.channels = h, .kernel_height = t.patch, .kernel_width = t.patch, .stride = t.patch, .bias = true});
  const Value first = b.parameters(b.slice(grid, {h}), h);  // stands for the class token: as many values
  const Value x = b.reshape(b.concat({b.reshape(grid, {patches * h}), first}), {patches + 1, h});
  const Value placed = b.learned(x, patches + 1);
  return b.finish({t.embedding_dropout ? b.dropout(placed) : placed});
}

Value logits(LayerBuilder& b, const Transformer& t, Value x) {
  const Value y = b.linear(
      x, {.features = t.vocabulary, .bias = t.head_bias, .split = Split::Columns, .tied = t.tied, .logits = true});
  return t.final_soft_cap ? b.soft_cap(y) : y;
}

Value masked_token_loss(LayerBuilder& b, const Transformer& t, Value x) {
  const Value y = b.norm(b.activation(b.linear(x, {.features = t.hidden}), t.activation), norm_of(t));
  return b.cross_entropy(logits(b, t, y));
}

Value pooled(LayerBuilder& b, const Transformer& t, Value x) {
  return b.activation(b.linear(b.slice(x, {t.hidden}), {.features = t.hidden}), Activation::Tanh);
}

Work head_work(const Transformer& t) {
  LayerBuilder b = builder_of(t);
  Value x = b.input({decoder_length(t), t.hidden});
  switch (t.head) {
    case Transformer::Head::Tokens:
      if (t.norms != Transformer::Norms::Post) x = b.norm(x, norm_of(t));
      if (t.inner_dropout) x = dropped(b, t, x);
      return b.finish({b.cross_entropy(logits(b, t, x))});
    case Transformer::Head::MaskedToken: return b.finish({masked_token_loss(b, t, x)});
    case Transformer::Head::Pretraining: {
      const Value words = masked_token_loss(b, t, x);
      const Value next = b.cross_entropy(b.linear(pooled(b, t, x), {.features = 2}));
      return b.finish({b.add(words, next)});
    }
    case Transformer::Head::Pooler: return b.finish({pooled(b, t, x)});
    case Transformer::Head::Classes: {
      const Value first = b.slice(b.norm(x, norm_of(t)), {t.hidden});
      return b.finish({b.cross_entropy(b.linear(first, {.features = t.classes, .bias = t.head_bias}))});
    }
  }
  return b.finish({x});
}

// A next-token module: both inputs normalised, joined by one product, then a block.  [DeepSeekIII24] section 2.2
Work module_work(const Transformer& t) {
  LayerBuilder b = builder_of(t);
  const Shape tokens{t.sequence_length, t.hidden};
  const Value hidden = b.input(tokens), next = b.input(tokens, t.lora.rank == 0);
  const Value both = b.concat({b.norm(hidden, norm_of(t)), b.norm(next, norm_of(t))});
  const Value x = b.linear(both, {.features = t.hidden, .bias = false});
  return b.finish({block(b, t, x, {.sparse = t.moe.experts > 0})});
}

// ---- the model ------------------------------------------------------------------------------------------------------

void need(bool holds, const std::string& message) {
  if (!holds) throw InputError(message);
}

void check_pattern(const Transformer& t) {
  if (t.pattern.empty()) return;
  const std::size_t other = t.pattern.find_first_not_of("MG*-E");
  need(other == std::string::npos, "pattern has the letter \"" +
                                       t.pattern.substr(other == std::string::npos ? 0 : other, 1) +
                                       "\"; use M (Mamba-2), G (gated delta net), * (attention), - (dense "
                                       "feed-forward) and E (experts)");
  need(t.pattern.size() == at(t.layers), "pattern has " + std::to_string(t.pattern.size()) +
                                             " letters for layers: " + std::to_string(t.layers) + "; use one a layer");
  const bool experts = t.pattern.find('E') != std::string::npos;
  need(experts == (t.moe.experts > 0), experts
                                           ? "pattern has E, but the model has no experts; add experts, or use -"
                                           : "experts are given, but pattern has no E; leave experts out, or use E");
  need(t.sparse.empty() && t.windows.empty() && !t.parallel_parts && t.modules == 0 && t.encoder_layers == 0 &&
           t.positions != Transformer::Positions::RelativeBias,
       "pattern does not go with dense_layers, sparse_step, window, parts: parallel or next_token_modules; leave them "
       "out");
}

void check(const Transformer& t) {
  need(std::min({t.layers, t.hidden, t.heads, t.key_heads, t.head_size, t.sequence_length}) >= 1,
       "layers, hidden, heads, key_heads, head_size and sequence_length must each be 1 or more");
  need(t.heads % t.key_heads == 0, "key_heads " + std::to_string(t.key_heads) + " does not divide heads " +
                                       std::to_string(t.heads) + "; use a divisor");
  need(t.moe.active <= t.moe.experts, "active_experts " + std::to_string(t.moe.active) + " is more than the " +
                                          std::to_string(t.moe.experts) + " experts; use at most that many");
  need(t.moe.experts == 0 || (t.moe.active >= 1 && t.moe.feed_forward >= 1),
       "experts " + std::to_string(t.moe.experts) + " need active_experts and expert_feed_forward of 1 or more");
  need(t.latent.rank == 0 || (t.latent.nope_size >= 1 && t.latent.rope_size >= 1 && t.latent.value_size >= 1),
       "latent attention needs nope_size, rope_size and value_size of 1 or more");
  need(t.rotary_size <= t.head_size, "rotary features " + std::to_string(t.rotary_size) + " are more than a head's " +
                                         std::to_string(t.head_size) + "; use at most that many");
  need(!t.squared || !t.gated, "a squared activation (relu2) has no gate; add gated: no, or use another activation");
  need(!t.attention_gate || t.latent.rank == 0,
       "attention_gate is not built with key_value_rank; leave one of the two out");
  check_pattern(t);
  const std::int64_t longest = std::max(t.encoder_layers > 0 ? t.sequence_length : 0, decoder_length(t));
  if (t.positions == Transformer::Positions::Learned && t.image == 0)
    need(longest <= t.position_rows, "sequence_length " + std::to_string(longest) + " is longer than the table of " +
                                         std::to_string(t.position_rows) + " positions; use at most that many tokens");
  for (const std::size_t listed : {t.windows.size(), t.sparse.size()})
    need(listed == 0 || listed == at(t.layers),
         "a list by layer has " + std::to_string(static_cast<std::int64_t>(listed)) + " entries for " +
             std::to_string(t.layers) + " layers; give one entry each");
  if (t.image > 0)
    need(t.image % t.patch == 0, "patch " + std::to_string(t.patch) + " does not divide the image size " +
                                     std::to_string(t.image) + "; use a divisor");
}

// Layers in order, works shared.
class Assembly {
 public:
  Assembly(Model& model, const Transformer& transformer) : model_(model), t_(transformer) {}

  LayerId add_block(std::string name, std::int32_t work, std::vector<LayerId> inputs) {
    const LayerId id = add(std::move(name), work, std::move(inputs));
    model_.layers.back().block = true;
    return id;
  }
  LayerId add(std::string name, std::int32_t work, std::vector<LayerId> inputs, LayerId tied_to = -1) {
    Layer& layer = model_.layers.emplace_back();
    layer.name = std::move(name);
    layer.work = work;
    layer.inputs = std::move(inputs);
    layer.tied_to = tied_to;
    return static_cast<LayerId>(model_.layers.size()) - 1;
  }
  std::int32_t share(Work work) {
    model_.works.push_back(std::move(work));
    return static_cast<std::int32_t>(model_.works.size()) - 1;
  }
  std::int32_t block(const BlockKind& kind) {
    for (const auto& [known, work] : blocks_)
      if (known == kind) return work;
    return blocks_.emplace_back(kind, share(block_work(t_, kind))).second;
  }

 private:
  Model& model_;
  const Transformer& t_;
  std::vector<std::pair<BlockKind, std::int32_t>> blocks_;
};

void add_modules(Assembly& all, const Transformer& t, LayerId embedding, LayerId hidden, LayerId head) {
  if (t.modules == 0) return;
  Transformer tied = t;
  tied.tied = true;
  const std::int32_t next = all.share(token_embedding(t, t.sequence_length, Table::Tied));
  const std::int32_t work = all.share(module_work(t)), loss = all.share(head_work(tied));
  for (std::int64_t i = 0; i < t.modules; ++i) {
    const std::string prefix = "next_token." + std::to_string(i);
    const LayerId embedded = all.add(prefix + ".embedding", next, {}, embedding);
    hidden = all.add(prefix + ".block", work, {hidden, embedded});
    all.add(prefix + ".head", loss, {hidden}, t.tied ? embedding : head);
  }
}

}  // namespace

Model build(const Transformer& t) {
  check(t);
  Model model;
  model.name = t.name;
  const bool pair = t.encoder_layers > 0, image = t.image > 0;
  if (!image) model.tokens = t.sequence_length;
  model.layers.reserve(at(t.layers + t.encoder_layers + 3 + 3 * t.modules));
  Assembly all(model, t);
  const LayerId embedding = all.add(
      "embedding", all.share(image ? patch_embedding(t) : token_embedding(t, t.sequence_length, Table::Own)), {});
  LayerId before = embedding, memory = -1;
  model.input_amount = model.works[0].inputs[0];
  const bool first_differs = t.positions == Transformer::Positions::RelativeBias || t.lora.rank > 0;
  for (std::int64_t i = 0; i < t.encoder_layers; ++i) {
    const BlockKind kind{.encoder = true, .first = first_differs && i == 0, .last = i + 1 == t.encoder_layers};
    before = all.add_block("encoder." + std::to_string(i), all.block(kind), {before});
  }
  if (pair) {
    memory = before;
    const Table table = t.tied_target ? Table::Tied : Table::Own;
    const std::int32_t work = all.share(token_embedding(t, decoder_length(t), table));
    model.input_amount += model.works[at(work)].inputs[0];
    before = all.add("decoder_embedding", work, {}, t.tied_target ? embedding : LayerId{-1});
  }
  const std::string prefix = pair ? "decoder." : "block.";
  for (std::int64_t i = 0; i < t.layers; ++i) {
    const BlockKind kind{
        .window = t.window(i), .sparse = t.is_sparse(i), .first = first_differs && i == 0, .part = t.part(i)};
    const std::int32_t work = all.block(kind);
    before = all.add_block(prefix + std::to_string(i), work,
                           pair ? std::vector<LayerId>{before, memory} : std::vector{before});
  }
  const LayerId head = all.add("head", all.share(head_work(t)), {before}, t.tied ? embedding : LayerId{-1});
  add_modules(all, t, embedding, before, head);
  if (t.stated_modules > t.modules)
    model.source += std::to_string(t.stated_modules - t.modules) +
                    " next-token module(s) (multi-token prediction) of the architecture are not built\n";
  else if (t.modules > 0)
    model.source += std::to_string(t.modules) + " next-token module(s) (multi-token prediction) built\n";
  return model;
}

}  // namespace pipewright::core
