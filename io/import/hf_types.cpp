#include "io/import/hf_types.hpp"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

namespace pipewright::io {
namespace {

constexpr std::int64_t kMostBlocks = 100'000;
constexpr std::int64_t kMostModules = 100;  // as the decoder family allows

// ---- parts that several types share ---------------------------------------------------------------------------------

Activation activation(HfFields& config, std::string_view key, const char* otherwise) {
  const std::string name = config.word(key, otherwise);
  if (name == "silu" || name == "swish") return Activation::Silu;
  for (const std::string_view gelu :
       {"gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh", "quick_gelu"})
    if (name == gelu) return Activation::Gelu;
  if (name == "relu") return Activation::Relu;
  config.refuse(key,
                "is not known; write one of silu, swish, gelu, gelu_new, gelu_fast, gelu_python, "
                "gelu_pytorch_tanh, quick_gelu, relu");
}

void read_length(const HfReading& r, std::string_view key) {
  Transformer& t = r.out.transformer;
  if (r.options.sequence_length) {
    t.sequence_length = *r.options.sequence_length;
    static_cast<void>(r.config.find(key));
    return;
  }
  if (!r.config.has(key))
    throw InputError(r.config.place(key),
                     fmt::format("{} is missing, so the length of a sample is unknown; state sequence_length", key));
  t.sequence_length = r.config.count(key);
  r.out.notes.push_back(fmt::format("sequence_length {} is {} of the configuration", t.sequence_length, key));
}

// As many key heads as heads.
void read_equal_heads(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  t.heads = t.key_heads = c.count("num_attention_heads");
  if (!c.has("head_dim") && t.hidden % t.heads != 0)
    c.refuse("num_attention_heads", fmt::format("does not divide hidden_size {}; add head_dim", t.hidden));
  t.head_size = c.count("head_dim", t.hidden / t.heads);
}

// Blocks of the types whose heads all have keys of their own.
void read_blocks(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  t.layers = c.count("num_hidden_layers", {}, kMostBlocks);
  t.hidden = c.count("hidden_size");
  read_equal_heads(r);
  t.feed_forward = c.count("intermediate_size");
}

// Without num_key_value_heads Llama has as many as heads, the other types a number of their own (8, 16, 32, ...) that
// rarely is the model's. null means as many as heads for all.
void read_heads(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  read_equal_heads(r);
  if (r.type != "llama")
    c.need_stated("num_key_value_heads",
                  fmt::format("a divisor of num_attention_heads {}, or null for as many", t.heads));
  t.key_heads = c.count("num_key_value_heads", t.heads);
  if (t.heads % t.key_heads != 0)
    c.refuse("num_key_value_heads", fmt::format("does not divide num_attention_heads {}; use a divisor", t.heads));
}

// What Llama and its descendants have in common.
void read_decoder(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  t.layers = c.count("num_hidden_layers", {}, kMostBlocks);
  t.hidden = c.count("hidden_size");
  t.vocabulary = c.count("vocab_size");
  t.gated = true;
  t.norm = Norm::Rms;
  t.positions = Transformer::Positions::Rotary;
  t.tied = c.flag("tie_word_embeddings", false);
  t.attention_dropout = c.drops("attention_dropout", 0);
  read_length(r, "max_position_embeddings");
}

// The features of a head that are rotated, by the share that the configuration states.
void read_rotated_share(const HfReading& r, std::string_view key, double otherwise) {
  Transformer& t = r.out.transformer;
  const double share =
      r.config.share_within("rope_parameters", "partial_rotary_factor", r.config.share(key, otherwise));
  const double rotated = share * static_cast<double>(t.head_size);
  t.rotary_size = std::max<std::int64_t>(1, static_cast<std::int64_t>(rotated));
}

// Blocks that see a window: by `layer_types`, where stated, else by the rule of the model type.
void read_windows(const HfReading& r, const std::function<bool(std::int64_t)>& windowed) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  const std::int64_t window = c.count("sliding_window", 0);
  const Json* types = c.find("layer_types");
  if (types && (!types->is_array() || types->size() != static_cast<std::size_t>(t.layers)))
    c.refuse("layer_types", fmt::format("is not a list of {} entries, one a layer; correct it", t.layers));
  t.windows.assign(static_cast<std::size_t>(t.layers), 0);
  for (std::int64_t i = 0; i < t.layers; ++i) {
    bool has_window = windowed(i);
    if (types) {
      const Json& type = (*types)[static_cast<std::size_t>(i)];
      if (type != "full_attention" && type != "sliding_attention")
        c.refuse("layer_types", fmt::format("has an entry that is neither full_attention nor sliding_attention; other "
                                            "kinds of blocks are not read"));
      has_window = type == "sliding_attention";
    }
    if (has_window && window == 0)
      c.refuse("sliding_window", "is missing, though blocks have a window; write its tokens");
    if (has_window) t.windows[static_cast<std::size_t>(i)] = window;
  }
  if (std::all_of(t.windows.begin(), t.windows.end(), [](std::int64_t w) { return w == 0; })) t.windows.clear();
}

void ignore_router_details(HfFields& c) {
  c.ignore({"router_aux_loss_coef", "output_router_logits", "norm_topk_prob", "router_jitter_noise", "ep_size",
            "moe_router_dtype"});
}

// ---- one function per model type ------------------------------------------------------------------------------------

// All but the activation.
void read_llama(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  read_decoder(r), read_heads(r);
  t.feed_forward = c.count("intermediate_size");
  t.attention_bias = c.flag("attention_bias", false) ? Transformer::Bias::All : Transformer::Bias::None;
  t.feed_forward_bias = c.flag("mlp_bias", false);
}

void llama(const HfReading& r) {
  read_llama(r);
  r.out.transformer.activation = activation(r.config, "hidden_act", "silu");
}

// A norm of what each part adds and none in front of it; queries and keys are normalised over all heads.
void olmo2(const HfReading& r) {
  llama(r);
  r.out.transformer.norms = Transformer::Norms::Reordered;
  r.out.transformer.qk_norm = Transformer::QkNorm::All;
}

// Layer norms, whose weights are stored less 1; the square of ReLU, not gated; half of a head's features rotated.
void nemotron(const HfReading& r) {
  Transformer& t = r.out.transformer;
  read_llama(r), read_rotated_share(r, "partial_rotary_factor", 0.5);
  t.gated = false;
  t.norm = Norm::Layer;
  t.squared = r.config.word("hidden_act", "relu2") == "relu2";
  t.activation = t.squared ? Activation::Relu : activation(r.config, "hidden_act", "relu2");
}

// A part a block, no positions; feed-forwards and experts of squared ReLU without a gate.                [NemotronH25]
void nemotron_h(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  read_decoder(r), read_heads(r);
  if (c.has("attention_head_dim"))  // as Nemotron-H wrote it
    t.head_size = c.count("attention_head_dim");
  else if (!c.has("head_dim"))
    static_cast<void>(c.count("head_dim"));
  t.positions = Transformer::Positions::None;
  t.feed_forward = c.count("intermediate_size");
  t.gated = false;
  t.squared = c.word("mlp_hidden_act", "relu2") == "relu2";
  t.activation = t.squared ? Activation::Relu : activation(c, "mlp_hidden_act", "relu2");
  t.attention_bias = c.flag("attention_bias", false) ? Transformer::Bias::All : Transformer::Bias::None;
  t.feed_forward_bias = c.flag("mlp_bias", false);
  t.dropout = c.drops("hidden_dropout", 0);
  read_hf_hybrid(r);
}

void mistral(const HfReading& r) {
  llama(r);
  // Mistral's default is 4096 tokens, Mixtral's none.
  if (r.type == "mistral") r.config.need_stated("sliding_window", "its tokens, or null for none");
  read_windows(r, [&](std::int64_t) { return r.config.has("sliding_window"); });
}

void mixtral(const HfReading& r) {
  Transformer& t = r.out.transformer;
  mistral(r);
  t.moe = {.experts = r.config.count("num_local_experts"),
           .active = r.config.count("num_experts_per_tok"),
           .feed_forward = t.feed_forward};
  ignore_router_details(r.config);
}

// Of Qwen 2 and 3 the layers from max_window_layers on; of Qwen2-MoE every second one before it, beginning with the
// first; of Qwen3-MoE all. Only with use_sliding_window; max_window_layers is 28 where it is absent.
void read_qwen_windows(const HfReading& r) {
  const bool windows = r.config.flag("use_sliding_window", false);
  const std::int64_t limit = r.config.count_or_0("max_window_layers", 28);
  const bool alternate = r.type == "qwen2_moe", all = r.type == "qwen3_moe";
  read_windows(
      r, [&](std::int64_t i) { return windows && (all || (alternate ? (i + 1) % 2 != 0 && i < limit : i >= limit)); });
}

void qwen2(const HfReading& r) {
  llama(r);
  r.out.transformer.attention_bias = Transformer::Bias::Queries;
  read_qwen_windows(r);
}

void qwen3(const HfReading& r) {
  HfFields& c = r.config;
  if (!c.has("head_dim")) static_cast<void>(c.count("head_dim"));  // not hidden / heads by default
  llama(r);
  read_qwen_windows(r);
  r.out.transformer.qk_norm = Transformer::QkNorm::Head;
  r.out.transformer.attention_bias = c.flag("attention_bias", false) ? Transformer::Bias::All : Transformer::Bias::None;
}

// Qwen's rule for the blocks with experts.
void read_sparse_blocks(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  const std::int64_t step = c.count("decoder_sparse_step", 1);
  const Json* dense = c.find("mlp_only_layers");
  if (dense && (!dense->is_array() || dense->size() > static_cast<std::size_t>(t.layers)))
    c.refuse("mlp_only_layers", fmt::format("is not a list of at most {} layers; correct it", t.layers));
  t.sparse.assign(static_cast<std::size_t>(t.layers), 0);
  for (std::int64_t i = step - 1; i < t.layers; i += step)
    t.sparse[static_cast<std::size_t>(i)] = 1;
  if (dense)
    for (const Json& layer : *dense) {
      if (!layer.is_number_unsigned() || layer.get<std::uint64_t>() >= static_cast<std::uint64_t>(t.layers))
        c.refuse("mlp_only_layers",
                 fmt::format("has an entry that is not a layer from 0 to {}; correct it", t.layers - 1));
      t.sparse[layer.get<std::size_t>()] = 0;
    }
  if (std::all_of(t.sparse.begin(), t.sparse.end(), [](char s) { return s != 0; })) t.sparse.clear();
}

void read_qwen_experts(const HfReading& r) {
  Transformer& t = r.out.transformer;
  t.moe.experts = r.config.count("num_experts");
  t.moe.active = r.config.count("num_experts_per_tok");
  t.moe.feed_forward = r.config.count("moe_intermediate_size");
  read_sparse_blocks(r);
  ignore_router_details(r.config);
}

void qwen2_moe(const HfReading& r) {
  qwen2(r), read_qwen_experts(r);
  if (!r.config.flag("qkv_bias", true)) r.out.transformer.attention_bias = Transformer::Bias::None;
  r.out.transformer.moe.shared_feed_forward = r.config.count("shared_expert_intermediate_size");
  r.out.transformer.moe.shared_gate = true;
}

void qwen3_moe(const HfReading& r) {
  qwen3(r), read_qwen_experts(r);
}

// Gated delta nets and attention with a gate, each with a feed-forward behind it.                        [GatedDelta24]
void qwen3_next(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  if (!c.has("head_dim")) static_cast<void>(c.count("head_dim"));
  read_decoder(r), read_heads(r), read_rotated_share(r, "partial_rotary_factor", 0.25);
  t.activation = activation(c, "hidden_act", "silu");
  t.qk_norm = Transformer::QkNorm::Head;
  t.attention_bias = c.flag("attention_bias", false) ? Transformer::Bias::All : Transformer::Bias::None;
  c.need_off("use_sliding_window", "is not built: attention sees all tokens before; set it to false");
  if (c.count_or_0("num_experts") > 0) {
    read_qwen_experts(r);
    t.moe.shared_feed_forward = c.count("shared_expert_intermediate_size");
    t.moe.shared_gate = true;
  }
  read_hf_delta(r);
}

// Gemma: GELU as gate, tied tables, heads whose size is stated.
void gemma(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  if (!c.has("head_dim")) static_cast<void>(c.count("head_dim"));
  read_decoder(r), read_heads(r);
  t.feed_forward = c.count("intermediate_size");
  t.activation = c.has("hidden_activation") ? activation(c, "hidden_activation", "gelu_pytorch_tanh")
                                            : activation(c, "hidden_act", "gelu_pytorch_tanh");
  t.tied = c.flag("tie_word_embeddings", true);
  c.need_off("use_bidirectional_attention", "is not built: tokens see those before them only; set it to false");
  t.attention_bias = c.flag("attention_bias", false) ? Transformer::Bias::All : Transformer::Bias::None;
}

// Soft caps by the configuration; absent ones are Gemma 2's 30 on the logits and 50 on the scores, and none of Gemma 3.
void read_soft_caps(const HfReading& r) {
  r.out.transformer.final_soft_cap = r.config.caps("final_logit_softcapping", r.type == "gemma2");
  r.out.transformer.attention_soft_cap = r.config.caps("attn_logit_softcapping", r.type == "gemma2");
}

void gemma2(const HfReading& r) {
  gemma(r), read_soft_caps(r);
  r.out.transformer.norms = Transformer::Norms::Sandwich;
  read_windows(r, [](std::int64_t i) { return i % 2 == 0; });
}

void gemma3(const HfReading& r) {
  gemma(r), read_soft_caps(r);
  r.out.transformer.norms = Transformer::Norms::Sandwich;
  r.out.transformer.qk_norm = Transformer::QkNorm::Head;
  const std::int64_t every = r.config.count("sliding_window_pattern", r.config.count("_sliding_window_pattern", 6));
  read_windows(r, [&](std::int64_t i) { return (i + 1) % every != 0; });
}

void gpt2(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  t.layers = c.count("n_layer", {}, kMostBlocks);
  t.hidden = c.count("n_embd");
  t.heads = t.key_heads = c.count("n_head");
  if (t.hidden % t.heads != 0) c.refuse("n_head", fmt::format("does not divide n_embd {}; use a divisor", t.hidden));
  t.head_size = t.hidden / t.heads;
  t.feed_forward = c.count("n_inner", 4 * t.hidden);
  t.vocabulary = c.count("vocab_size");
  t.activation = activation(c, "activation_function", "gelu_new");
  t.tied = c.flag("tie_word_embeddings", true);
  t.positions = Transformer::Positions::Learned;
  t.position_rows = c.count("n_positions");
  t.attention_bias = Transformer::Bias::All;
  t.feed_forward_bias = true;
  t.dropout = c.drops("resid_pdrop", 0.1);
  t.embedding_dropout = c.drops("embd_pdrop", 0.1);
  t.attention_dropout = c.drops("attn_pdrop", 0.1);
  c.need_off("add_cross_attention", "is not built for gpt2; set it to false");
  read_length(r, "n_positions");
}

void gpt_neox(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  read_blocks(r);
  t.vocabulary = c.count("vocab_size");
  t.activation = activation(c, "hidden_act", "gelu");
  t.tied = c.flag("tie_word_embeddings", false);
  t.positions = Transformer::Positions::Rotary;
  read_rotated_share(r, "rotary_pct", 0.25);
  t.parallel_parts = c.flag("use_parallel_residual", true);
  t.attention_bias = c.flag("attention_bias", true) ? Transformer::Bias::All : Transformer::Bias::None;
  t.feed_forward_bias = true;
  t.dropout = t.embedding_dropout = c.drops("hidden_dropout", 0);
  t.attention_dropout = c.drops("attention_dropout", 0);
  read_length(r, "max_position_embeddings");
}

// Positions by ALiBi add a multiple of the distance to each score within attention and count nowhere: none. Both
// publishers of its code have a default of their own for `alibi` and for `no_bias`, so these are demanded.
void read_mpt_attention(const HfReading& r, HfFields c) {
  Transformer& t = r.out.transformer;
  const std::string type = c.word("attn_type", "multihead_attention");
  const bool grouped = type == "grouped_query_attention", one = type == "multiquery_attention";
  if (!grouped && !one && type != "multihead_attention")
    c.refuse("attn_type",
             "is not known; write one of multihead_attention, multiquery_attention, grouped_query_attention");
  const std::int64_t own = one ? 1 : t.heads;  // of the type; where queries are grouped, the number is stated
  t.key_heads = c.count("kv_n_heads", grouped ? std::nullopt : std::optional(own));
  if (!grouped && t.key_heads != own)
    c.refuse("kv_n_heads", fmt::format("is not the {} of attn_type {}; leave it out, or correct attn_type", own, type));
  if (t.heads % t.key_heads != 0)
    c.refuse("kv_n_heads", fmt::format("does not divide n_heads {}; use a divisor", t.heads));
  const bool rope = c.flag("rope", false);
  if (!rope) c.need_stated("alibi", "true or false");
  const bool alibi = c.flag("alibi", false);
  if (rope && alibi) c.refuse("alibi", "is not built beside rope; set one of the two to false");
  if (!rope && !alibi && r.config.flag("learned_pos_emb", true))
    c.refuse("alibi",
             "without rope leaves learned positions, which are not built for mpt; set alibi or rope to true, or "
             "learned_pos_emb to false");
  t.positions = rope ? Transformer::Positions::Rotary : Transformer::Positions::None;
  t.qk_norm = c.flag("qk_ln", false) ? Transformer::QkNorm::All : Transformer::QkNorm::None;
  t.attention_dropout = c.drops("attn_pdrop", 0);
  c.need_off("qk_gn", "is not built; set it to false, or use qk_ln");
  c.need_off("prefix_lm", "is not built: tokens see those before them only; set it to false");
  if (const Json* window = c.find("sliding_window_size"); window && *window != Json(-1))
    c.refuse("sliding_window_size", "is not built; only -1, which means none, is");
  if (c.find("clip_qkv")) r.out.notes.emplace_back("clip_qkv, a bound on queries, keys and values, is not built");
}

void mpt(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  t.layers = c.count("n_layers", {}, kMostBlocks);
  t.hidden = c.count("d_model");
  t.heads = c.count("n_heads");
  if (t.hidden % t.heads != 0) c.refuse("n_heads", fmt::format("does not divide d_model {}; use a divisor", t.hidden));
  t.head_size = t.hidden / t.heads;
  t.feed_forward = c.count("expansion_ratio", 4, 1000) * t.hidden;
  t.vocabulary = c.count("vocab_size");
  t.tied = c.flag("tie_word_embeddings", true);
  c.need_stated("no_bias", "true or false");
  const bool bias = !c.flag("no_bias", false);
  t.norm_bias = t.feed_forward_bias = bias;
  t.attention_bias = bias ? Transformer::Bias::All : Transformer::Bias::None;
  const std::string norm = c.word("norm_type", "layernorm");
  if (norm != "layernorm" && norm != "low_precision_layernorm")
    c.refuse("norm_type", "is not built; write one of layernorm, low_precision_layernorm");
  if (c.find("block_overrides")) c.refuse("block_overrides", "is not built: all blocks are alike; leave it out");
  HfFields inner = c.within("ffn_config");
  if (inner.word("ffn_type", "mptmlp") != "mptmlp") inner.refuse("ffn_type", "is not built; only mptmlp is");
  if (inner.has("ffn_act_fn")) inner.refuse("ffn_act_fn", "is not read: GELU is built; leave it out");
  t.feed_forward = inner.count("ffn_hidden_size", t.feed_forward);
  t.dropout = c.drops("resid_pdrop", 0);
  t.embedding_dropout = c.drops("emb_pdrop", 0);
  read_mpt_attention(r, c.within("attn_config"));
  read_length(r, "max_seq_len");
}

// Its activation is x sigmoid(1.702 x) as a gate, the sigmoid form of GELU, whatever `hidden_act` says.
void gpt_oss(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  if (!c.has("head_dim")) static_cast<void>(c.count("head_dim"));
  read_decoder(r), read_heads(r);
  t.feed_forward = c.count("intermediate_size");
  static_cast<void>(c.find("hidden_act"));
  t.activation = Activation::Gelu;
  t.attention_bias = c.flag("attention_bias", true) ? Transformer::Bias::All : Transformer::Bias::None;
  t.sinks = true;
  const std::int64_t active =
      c.has("num_experts_per_tok") ? c.count("num_experts_per_tok") : c.count("experts_per_token");
  c.ignore({"experts_per_token", "num_experts_per_tok"});
  t.moe = {.experts = c.count("num_local_experts"),
           .active = active,
           .feed_forward = t.feed_forward,
           .router_bias = true,
           .expert_bias = true};
  ignore_router_details(c);
  read_windows(r, [](std::int64_t i) { return i % 2 == 0; });
}

void deepseek(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  read_decoder(r);
  t.heads = t.key_heads = c.count("num_attention_heads");
  c.ignore({"num_key_value_heads", "qk_head_dim", "head_dim"});
  t.latent = {.query_rank = c.count("q_lora_rank", 0),
              .rank = c.count("kv_lora_rank"),
              .nope_size = c.count("qk_nope_head_dim"),
              .rope_size = c.count("qk_rope_head_dim"),
              .value_size = c.count("v_head_dim")};
  t.head_size = t.latent.nope_size + t.latent.rope_size;
  t.feed_forward = c.count("intermediate_size");
  t.activation = activation(c, "hidden_act", "silu");
  c.need_off("attention_bias", "is not built with compressed keys and values; set it to false");
  t.moe.experts = c.count("n_routed_experts");
  t.moe.active = c.count("num_experts_per_tok");
  t.moe.feed_forward = c.count("moe_intermediate_size");
  t.moe.shared_feed_forward = c.count("n_shared_experts", 0) * t.moe.feed_forward;
  const std::int64_t front = c.count_or_0("first_k_dense_replace"), step = c.count("moe_layer_freq", 1);
  for (std::int64_t i = 0; i < t.layers; ++i)
    t.sparse.push_back(i >= front && i % step == 0 ? 1 : 0);
  if (front == 0 && step == 1) t.sparse.clear();
  ignore_router_details(c);
}

void deepseek_v3(const HfReading& r) {
  Transformer& t = r.out.transformer;
  deepseek(r);
  t.moe.router_bias = true;  // e_score_correction_bias
  r.out.trained_as.routing = Routing{.scores = RouterScores::Sigmoid};
  t.stated_modules = r.config.count_or_0("num_nextn_predict_layers", 0, kMostModules);
  t.modules = r.options.next_token_modules;
  if (t.modules > t.stated_modules)
    r.config.refuse("num_nextn_predict_layers",
                    fmt::format("is less than the {} next_token_modules that were asked for", t.modules));
}

// The heads of BERT's classes that are built, by the name of the class.
void read_bert_head(const HfReading& r) {
  Transformer& t = r.out.transformer;
  t.head = Transformer::Head::Pooler;
  t.tied = r.config.flag("tie_word_embeddings", true);
  t.head_bias = true;
  const Json* classes = r.config.find("architectures");
  const std::string name = !classes ? "BertModel"
                           : classes->is_array() && classes->size() == 1 && (*classes)[0].is_string()
                               ? (*classes)[0].get<std::string>()
                               : "";
  if (name == "BertForMaskedLM")
    t.head = Transformer::Head::MaskedToken;
  else if (name == "BertForPreTraining")
    t.head = Transformer::Head::Pretraining;
  else if (name != "BertModel")
    r.config.refuse("architectures", "is not known; write one of BertModel, BertForMaskedLM, BertForPreTraining");
  if (t.head == Transformer::Head::Pooler) r.out.notes.emplace_back("no loss: BertModel ends with its pooler");
}

void bert(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  read_blocks(r);
  t.vocabulary = c.count("vocab_size");
  t.activation = activation(c, "hidden_act", "gelu");
  t.token_types = c.count("type_vocab_size", 2);
  t.positions = Transformer::Positions::Learned;
  t.position_rows = c.count("max_position_embeddings");
  t.embedding_norm = true;
  t.norms = Transformer::Norms::Post;
  t.attention_bias = Transformer::Bias::All;
  t.feed_forward_bias = true;
  t.causal = false;
  t.dropout = t.embedding_dropout = c.drops("hidden_dropout_prob", 0.1);
  t.attention_dropout = c.drops("attention_probs_dropout_prob", 0.1);
  if (c.word("position_embedding_type", "absolute") != "absolute")
    c.refuse("position_embedding_type", "is not built; only absolute is");
  c.need_off("is_decoder", "is not built for bert; set it to false");
  c.need_off("add_cross_attention", "is not built for bert; set it to false");
  read_bert_head(r);
  read_length(r, "max_position_embeddings");
}

void t5(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  t.encoder_layers = c.count("num_layers", {}, kMostBlocks);
  t.layers = c.count("num_decoder_layers", t.encoder_layers, kMostBlocks);
  t.hidden = c.count("d_model");
  t.heads = t.key_heads = c.count("num_heads");
  t.head_size = c.count("d_kv");
  t.feed_forward = c.count("d_ff");
  t.vocabulary = c.count("vocab_size");
  const std::string projection = c.word("feed_forward_proj", "relu");
  t.gated = projection == "gated-gelu";
  t.activation = t.gated ? Activation::Gelu : Activation::Relu;
  if (!t.gated && projection != "relu") c.refuse("feed_forward_proj", "is not known; write one of relu, gated-gelu");
  t.tied = c.flag("tie_word_embeddings", true);
  t.tied_target = true;
  t.norm = Norm::Rms;
  t.positions = Transformer::Positions::RelativeBias;
  t.position_rows = c.count("relative_attention_num_buckets", 32);
  t.dropout = t.embedding_dropout = t.attention_dropout = t.inner_dropout = c.drops("dropout_rate", 0.1);
  t.target_length = r.options.target_length.value_or(0);
  read_length(r, "n_positions");
}

void vit(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  read_blocks(r);
  t.activation = activation(c, "hidden_act", "gelu");
  t.image = c.count("image_size", {}, 100'000);
  t.patch = c.count("patch_size", {}, 100'000);
  t.channels = c.count("num_channels", 3, 10'000);
  if (t.image % t.patch != 0)
    c.refuse("patch_size", fmt::format("does not divide image_size {}; use a divisor", t.image));
  const Json* labels = c.find("id2label");
  if (!labels || c.has("num_labels"))
    t.classes = c.count("num_labels");
  else if (labels->is_object() && !labels->empty())
    t.classes = static_cast<std::int64_t>(labels->size());
  else
    c.refuse("id2label", "names no classes; write num_labels");
  t.sequence_length = (t.image / t.patch) * (t.image / t.patch) + 1;
  if (r.options.sequence_length && *r.options.sequence_length != t.sequence_length)
    c.refuse("patch_size",
             fmt::format("gives {} tokens, not the sequence_length of {} that was asked for; leave it out",
                         t.sequence_length, *r.options.sequence_length));
  t.head = Transformer::Head::Classes;
  t.head_bias = true;
  t.attention_bias = Transformer::Bias::All;
  t.feed_forward_bias = true;
  if (!c.flag("qkv_bias", true)) c.refuse("qkv_bias", "is not built; only true is");
  t.causal = false;
  t.dropout = t.embedding_dropout = c.drops("hidden_dropout_prob", 0);
  t.attention_dropout = c.drops("attention_probs_dropout_prob", 0);
}

constexpr HfType kTypes[] = {
    {"bert", bert},
    {"deepseek_v2", deepseek},
    {"deepseek_v3", deepseek_v3},
    {"gemma", gemma},
    {"gemma2", gemma2},
    {"gemma3_text", gemma3},
    {"gpt2", gpt2},
    {"gpt_neox", gpt_neox},
    {"gpt_oss", gpt_oss},
    {"llama", llama},
    {"mistral", mistral},
    {"mixtral", mixtral},
    {"mpt", mpt},
    {"nemotron", nemotron},
    {"nemotron_h", nemotron_h},
    {"olmo2", olmo2},
    {"qwen2", qwen2},
    {"qwen2_moe", qwen2_moe},
    {"qwen3", qwen3},
    {"qwen3_5_moe_text", qwen3_next},
    {"qwen3_5_text", qwen3_next},
    {"qwen3_moe", qwen3_moe},
    {"qwen3_next", qwen3_next},
    {"t5", t5},
    {"vit", vit},
};

}  // namespace

std::span<const HfType> hf_types() {
  return kTypes;
}

}  // namespace pipewright::io
