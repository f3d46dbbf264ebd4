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
  if (r.options.sequence_length) {
    r.model.sequence_length = *r.options.sequence_length;
    static_cast<void>(r.config.find(key));
    return;
  }
  if (!r.config.has(key))
    throw InputError(r.config.place(key),
                     fmt::format("{} is missing, so the length of a sample is unknown; state sequence_length", key));
  r.model.sequence_length = r.config.count(key);
  r.out.notes.push_back(fmt::format("sequence_length {} is {} of the configuration", r.model.sequence_length, key));
}

// As many key heads as heads.
void read_equal_heads(const HfReading& r) {
  r.model.heads = r.model.key_heads = r.config.count("num_attention_heads");
  if (!r.config.has("head_dim") && r.model.hidden % r.model.heads != 0)
    r.config.refuse("num_attention_heads", fmt::format("does not divide hidden_size {}; add head_dim", r.model.hidden));
  r.model.head_size = r.config.count("head_dim", r.model.hidden / r.model.heads);
}

// Blocks of the types whose heads all have keys of their own.
void read_blocks(const HfReading& r) {
  r.model.layers = r.config.count("num_hidden_layers", {}, kMostBlocks);
  r.model.hidden = r.config.count("hidden_size");
  read_equal_heads(r);
  r.model.feed_forward = r.config.count("intermediate_size");
}

// Without num_key_value_heads Llama has as many as heads, the other types a number of their own (8, 16, 32, ...) that
// rarely is the model's. null means as many as heads for all.
void read_heads(const HfReading& r) {
  read_equal_heads(r);
  if (r.type != "llama")
    r.config.need_stated("num_key_value_heads",
                         fmt::format("a divisor of num_attention_heads {}, or null for as many", r.model.heads));
  r.model.key_heads = r.config.count("num_key_value_heads", r.model.heads);
  if (r.model.heads % r.model.key_heads != 0)
    r.config.refuse("num_key_value_heads",
                    fmt::format("does not divide num_attention_heads {}; use a divisor", r.model.heads));
}

// What Llama and its descendants have in common.
void read_decoder(const HfReading& r) {
  r.model.layers = r.config.count("num_hidden_layers", {}, kMostBlocks);
  r.model.hidden = r.config.count("hidden_size");
  r.model.vocabulary = r.config.count("vocab_size");
  r.model.gated = true;
  r.model.norm = Norm::Rms;
  r.model.positions = Transformer::Positions::Rotary;
  r.model.tied = r.config.flag("tie_word_embeddings", false);
  r.model.attention_dropout = r.config.drops("attention_dropout", 0);
  read_length(r, "max_position_embeddings");
}

// The features of a head that are rotated, by the share that the configuration states.
void read_rotated_share(const HfReading& r, std::string_view key, double otherwise) {
  const double share =
      r.config.share_within("rope_parameters", "partial_rotary_factor", r.config.share(key, otherwise));
  const double rotated = share * static_cast<double>(r.model.head_size);
  r.model.rotary_size = std::max<std::int64_t>(1, static_cast<std::int64_t>(rotated));
}

// Blocks that see a window: by `layer_types`, where stated, else by the rule of the model type.
void read_windows(const HfReading& r, const std::function<bool(std::int64_t)>& windowed) {
  const std::int64_t window = r.config.count("sliding_window", 0);
  const Json* types = r.config.find("layer_types");
  if (types && (!types->is_array() || types->size() != at(r.model.layers)))
    r.config.refuse("layer_types", fmt::format("is not a list of {} entries, one a layer; correct it", r.model.layers));
  r.model.windows.assign(at(r.model.layers), 0);
  for (std::int64_t i = 0; i < r.model.layers; ++i) {
    bool has_window = windowed(i);
    if (types) {
      const Json& type = (*types)[at(i)];
      if (type != "full_attention" && type != "sliding_attention")
        r.config.refuse("layer_types",
                        fmt::format("has an entry that is neither full_attention nor sliding_attention; other "
                                    "kinds of blocks are not read"));
      has_window = type == "sliding_attention";
    }
    if (has_window && window == 0)
      r.config.refuse("sliding_window", "is missing, though blocks have a window; write its tokens");
    if (has_window) r.model.windows[at(i)] = window;
  }
  if (std::ranges::all_of(r.model.windows, [](std::int64_t w) { return w == 0; })) r.model.windows.clear();
}

void ignore_router_details(HfFields& c) {
  c.ignore({"router_aux_loss_coef", "output_router_logits", "norm_topk_prob", "router_jitter_noise", "ep_size",
            "moe_router_dtype"});
}

// ---- one function per model type ------------------------------------------------------------------------------------

// All but the activation.
void read_llama(const HfReading& r) {
  read_decoder(r), read_heads(r);
  r.model.feed_forward = r.config.count("intermediate_size");
  r.model.attention_bias = r.config.flag("attention_bias", false) ? Transformer::Bias::All : Transformer::Bias::None;
  r.model.feed_forward_bias = r.config.flag("mlp_bias", false);
}

void llama(const HfReading& r) {
  read_llama(r);
  r.model.activation = activation(r.config, "hidden_act", "silu");
}

// A norm of what each part adds and none in front of it; queries and keys are normalised over all heads.
void olmo2(const HfReading& r) {
  llama(r);
  r.model.norms = Transformer::Norms::Reordered;
  r.model.qk_norm = Transformer::QkNorm::All;
}

// Layer norms, whose weights are stored less 1; the square of ReLU, not gated; half of a head's features rotated.
void nemotron(const HfReading& r) {
  read_llama(r), read_rotated_share(r, "partial_rotary_factor", 0.5);
  r.model.gated = false;
  r.model.norm = Norm::Layer;
  r.model.squared = r.config.word("hidden_act", "relu2") == "relu2";
  r.model.activation = r.model.squared ? Activation::Relu : activation(r.config, "hidden_act", "relu2");
}

// A part a block, no positions; feed-forwards and experts of squared ReLU without a gate.                [NemotronH25]
void nemotron_h(const HfReading& r) {
  read_decoder(r), read_heads(r);
  if (r.config.has("attention_head_dim"))  // as Nemotron-H wrote it
    r.model.head_size = r.config.count("attention_head_dim");
  else if (!r.config.has("head_dim"))
    static_cast<void>(r.config.count("head_dim"));
  r.model.positions = Transformer::Positions::None;
  r.model.feed_forward = r.config.count("intermediate_size");
  r.model.gated = false;
  r.model.squared = r.config.word("mlp_hidden_act", "relu2") == "relu2";
  r.model.activation = r.model.squared ? Activation::Relu : activation(r.config, "mlp_hidden_act", "relu2");
  r.model.attention_bias = r.config.flag("attention_bias", false) ? Transformer::Bias::All : Transformer::Bias::None;
  r.model.feed_forward_bias = r.config.flag("mlp_bias", false);
  r.model.dropout = r.config.drops("hidden_dropout", 0);
  read_hf_hybrid(r);
}

void mistral(const HfReading& r) {
  llama(r);
  // Mistral's default is 4096 tokens, Mixtral's none.
  if (r.type == "mistral") r.config.need_stated("sliding_window", "its tokens, or null for none");
  read_windows(r, [&](std::int64_t) { return r.config.has("sliding_window"); });
}

void mixtral(const HfReading& r) {
  mistral(r);
  r.model.moe = {.experts = r.config.count("num_local_experts"),
                 .active = r.config.count("num_experts_per_tok"),
                 .feed_forward = r.model.feed_forward};
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
  r.model.attention_bias = Transformer::Bias::Queries;
  read_qwen_windows(r);
}

void qwen3(const HfReading& r) {
  if (!r.config.has("head_dim")) static_cast<void>(r.config.count("head_dim"));  // not hidden / heads by default
  llama(r);
  read_qwen_windows(r);
  r.model.qk_norm = Transformer::QkNorm::Head;
  r.model.attention_bias = r.config.flag("attention_bias", false) ? Transformer::Bias::All : Transformer::Bias::None;
}

// Qwen's rule for the blocks with experts.
void read_sparse_blocks(const HfReading& r) {
  const std::int64_t step = r.config.count("decoder_sparse_step", 1);
  const Json* dense = r.config.find("mlp_only_layers");
  if (dense && (!dense->is_array() || dense->size() > at(r.model.layers)))
    r.config.refuse("mlp_only_layers", fmt::format("is not a list of at most {} layers; correct it", r.model.layers));
  r.model.sparse.assign(at(r.model.layers), 0);
  for (std::int64_t i = step - 1; i < r.model.layers; i += step)
    r.model.sparse[at(i)] = 1;
  if (dense)
    for (const Json& layer : *dense) {
      if (!layer.is_number_unsigned() || layer.get<std::uint64_t>() >= static_cast<std::uint64_t>(r.model.layers))
        r.config.refuse("mlp_only_layers",
                        fmt::format("has an entry that is not a layer from 0 to {}; correct it", r.model.layers - 1));
      r.model.sparse[layer.get<std::size_t>()] = 0;
    }
  if (std::ranges::all_of(r.model.sparse, [](char s) { return s != 0; })) r.model.sparse.clear();
}

void read_qwen_experts(const HfReading& r) {
  r.model.moe.experts = r.config.count("num_experts");
  r.model.moe.active = r.config.count("num_experts_per_tok");
  r.model.moe.feed_forward = r.config.count("moe_intermediate_size");
  read_sparse_blocks(r);
  ignore_router_details(r.config);
}

void qwen2_moe(const HfReading& r) {
  qwen2(r), read_qwen_experts(r);
  if (!r.config.flag("qkv_bias", true)) r.model.attention_bias = Transformer::Bias::None;
  r.model.moe.shared_feed_forward = r.config.count("shared_expert_intermediate_size");
  r.model.moe.shared_gate = true;
}

void qwen3_moe(const HfReading& r) {
  qwen3(r), read_qwen_experts(r);
}

// Gated delta nets and attention with a gate, each with a feed-forward behind it.                        [GatedDelta24]
void qwen3_next(const HfReading& r) {
  if (!r.config.has("head_dim")) static_cast<void>(r.config.count("head_dim"));
  read_decoder(r), read_heads(r), read_rotated_share(r, "partial_rotary_factor", 0.25);
  r.model.activation = activation(r.config, "hidden_act", "silu");
  r.model.qk_norm = Transformer::QkNorm::Head;
  r.model.attention_bias = r.config.flag("attention_bias", false) ? Transformer::Bias::All : Transformer::Bias::None;
  r.config.need_off("use_sliding_window", "is not built: attention sees all tokens before; set it to false");
  if (r.config.count_or_0("num_experts") > 0) {
    read_qwen_experts(r);
    r.model.moe.shared_feed_forward = r.config.count("shared_expert_intermediate_size");
    r.model.moe.shared_gate = true;
  }
  read_hf_delta(r);
}

// Gemma: GELU as gate, tied tables, heads whose size is stated.
void gemma(const HfReading& r) {
  if (!r.config.has("head_dim")) static_cast<void>(r.config.count("head_dim"));
  read_decoder(r), read_heads(r);
  r.model.feed_forward = r.config.count("intermediate_size");
  r.model.activation = r.config.has("hidden_activation")
                           ? activation(r.config, "hidden_activation", "gelu_pytorch_tanh")
                           : activation(r.config, "hidden_act", "gelu_pytorch_tanh");
  r.model.tied = r.config.flag("tie_word_embeddings", true);
  r.config.need_off("use_bidirectional_attention", "is not built: tokens see those before them only; set it to false");
  r.model.attention_bias = r.config.flag("attention_bias", false) ? Transformer::Bias::All : Transformer::Bias::None;
}

// Soft caps by the configuration; absent ones are Gemma 2's 30 on the logits and 50 on the scores, and none of Gemma 3.
void read_soft_caps(const HfReading& r) {
  r.model.final_soft_cap = r.config.caps("final_logit_softcapping", r.type == "gemma2");
  r.model.attention_soft_cap = r.config.caps("attn_logit_softcapping", r.type == "gemma2");
}

void gemma2(const HfReading& r) {
  gemma(r), read_soft_caps(r);
  r.model.norms = Transformer::Norms::Sandwich;
  read_windows(r, [](std::int64_t i) { return i % 2 == 0; });
}

void gemma3(const HfReading& r) {
  gemma(r), read_soft_caps(r);
  r.model.norms = Transformer::Norms::Sandwich;
  r.model.qk_norm = Transformer::QkNorm::Head;
  const std::int64_t every = r.config.count("sliding_window_pattern", r.config.count("_sliding_window_pattern", 6));
  read_windows(r, [&](std::int64_t i) { return (i + 1) % every != 0; });
}

void gpt2(const HfReading& r) {
  r.model.layers = r.config.count("n_layer", {}, kMostBlocks);
  r.model.hidden = r.config.count("n_embd");
  r.model.heads = r.model.key_heads = r.config.count("n_head");
  if (r.model.hidden % r.model.heads != 0)
    r.config.refuse("n_head", fmt::format("does not divide n_embd {}; use a divisor", r.model.hidden));
  r.model.head_size = r.model.hidden / r.model.heads;
  r.model.feed_forward = r.config.count("n_inner", 4 * r.model.hidden);
  r.model.vocabulary = r.config.count("vocab_size");
  r.model.activation = activation(r.config, "activation_function", "gelu_new");
  r.model.tied = r.config.flag("tie_word_embeddings", true);
  r.model.positions = Transformer::Positions::Learned;
  r.model.position_rows = r.config.count("n_positions");
  r.model.attention_bias = Transformer::Bias::All;
  r.model.feed_forward_bias = true;
  r.model.dropout = r.config.drops("resid_pdrop", 0.1);
  r.model.embedding_dropout = r.config.drops("embd_pdrop", 0.1);
  r.model.attention_dropout = r.config.drops("attn_pdrop", 0.1);
  r.config.need_off("add_cross_attention", "is not built for gpt2; set it to false");
  read_length(r, "n_positions");
}

void gpt_neox(const HfReading& r) {
  read_blocks(r);
  r.model.vocabulary = r.config.count("vocab_size");
  r.model.activation = activation(r.config, "hidden_act", "gelu");
  r.model.tied = r.config.flag("tie_word_embeddings", false);
  r.model.positions = Transformer::Positions::Rotary;
  read_rotated_share(r, "rotary_pct", 0.25);
  r.model.parallel_parts = r.config.flag("use_parallel_residual", true);
  r.model.attention_bias = r.config.flag("attention_bias", true) ? Transformer::Bias::All : Transformer::Bias::None;
  r.model.feed_forward_bias = true;
  r.model.dropout = r.model.embedding_dropout = r.config.drops("hidden_dropout", 0);
  r.model.attention_dropout = r.config.drops("attention_dropout", 0);
  read_length(r, "max_position_embeddings");
}

// Positions by ALiBi add a multiple of the distance to each score within attention and count nowhere: none. Both
// publishers of its code have a default of their own for `alibi` and for `no_bias`, so these are demanded.
void read_mpt_attention(const HfReading& r, HfFields c) {
  const std::string type = c.word("attn_type", "multihead_attention");
  const bool grouped = type == "grouped_query_attention", one = type == "multiquery_attention";
  if (!grouped && !one && type != "multihead_attention")
    c.refuse("attn_type",
             "is not known; write one of multihead_attention, multiquery_attention, grouped_query_attention");
  const std::int64_t own = one ? 1 : r.model.heads;  // of the type; where queries are grouped, the number is stated
  r.model.key_heads = c.count("kv_n_heads", grouped ? std::nullopt : std::optional(own));
  if (!grouped && r.model.key_heads != own)
    c.refuse("kv_n_heads", fmt::format("is not the {} of attn_type {}; leave it out, or correct attn_type", own, type));
  if (r.model.heads % r.model.key_heads != 0)
    c.refuse("kv_n_heads", fmt::format("does not divide n_heads {}; use a divisor", r.model.heads));
  const bool rope = c.flag("rope", false);
  if (!rope) c.need_stated("alibi", "true or false");
  const bool alibi = c.flag("alibi", false);
  if (rope && alibi) c.refuse("alibi", "is not built beside rope; set one of the two to false");
  if (!rope && !alibi && r.config.flag("learned_pos_emb", true))
    c.refuse("alibi",
             "without rope leaves learned positions, which are not built for mpt; set alibi or rope to true, or "
             "learned_pos_emb to false");
  r.model.positions = rope ? Transformer::Positions::Rotary : Transformer::Positions::None;
  r.model.qk_norm = c.flag("qk_ln", false) ? Transformer::QkNorm::All : Transformer::QkNorm::None;
  r.model.attention_dropout = c.drops("attn_pdrop", 0);
  c.need_off("qk_gn", "is not built; set it to false, or use qk_ln");
  c.need_off("prefix_lm", "is not built: tokens see those before them only; set it to false");
  if (const Json* window = c.find("sliding_window_size"); window && *window != Json(-1))
    c.refuse("sliding_window_size", "is not built; only -1, which means none, is");
  if (c.find("clip_qkv")) r.out.notes.emplace_back("clip_qkv, a bound on queries, keys and values, is not built");
}

void mpt(const HfReading& r) {
  r.model.layers = r.config.count("n_layers", {}, kMostBlocks);
  r.model.hidden = r.config.count("d_model");
  r.model.heads = r.config.count("n_heads");
  if (r.model.hidden % r.model.heads != 0)
    r.config.refuse("n_heads", fmt::format("does not divide d_model {}; use a divisor", r.model.hidden));
  r.model.head_size = r.model.hidden / r.model.heads;
  r.model.feed_forward = r.config.count("expansion_ratio", 4, 1000) * r.model.hidden;
  r.model.vocabulary = r.config.count("vocab_size");
  r.model.tied = r.config.flag("tie_word_embeddings", true);
  r.config.need_stated("no_bias", "true or false");
  const bool bias = !r.config.flag("no_bias", false);
  r.model.norm_bias = r.model.feed_forward_bias = bias;
  r.model.attention_bias = bias ? Transformer::Bias::All : Transformer::Bias::None;
  const std::string norm = r.config.word("norm_type", "layernorm");
  if (norm != "layernorm" && norm != "low_precision_layernorm")
    r.config.refuse("norm_type", "is not built; write one of layernorm, low_precision_layernorm");
  if (r.config.find("block_overrides"))
    r.config.refuse("block_overrides", "is not built: all blocks are alike; leave it out");
  HfFields inner = r.config.within("ffn_config");
  if (inner.word("ffn_type", "mptmlp") != "mptmlp") inner.refuse("ffn_type", "is not built; only mptmlp is");
  if (inner.has("ffn_act_fn")) inner.refuse("ffn_act_fn", "is not read: GELU is built; leave it out");
  r.model.feed_forward = inner.count("ffn_hidden_size", r.model.feed_forward);
  r.model.dropout = r.config.drops("resid_pdrop", 0);
  r.model.embedding_dropout = r.config.drops("emb_pdrop", 0);
  read_mpt_attention(r, r.config.within("attn_config"));
  read_length(r, "max_seq_len");
}

// Its activation is x sigmoid(1.702 x) as a gate, the sigmoid form of GELU, whatever `hidden_act` says.
void gpt_oss(const HfReading& r) {
  if (!r.config.has("head_dim")) static_cast<void>(r.config.count("head_dim"));
  read_decoder(r), read_heads(r);
  r.model.feed_forward = r.config.count("intermediate_size");
  static_cast<void>(r.config.find("hidden_act"));
  r.model.activation = Activation::Gelu;
  r.model.attention_bias = r.config.flag("attention_bias", true) ? Transformer::Bias::All : Transformer::Bias::None;
  r.model.sinks = true;
  const std::int64_t active =
      r.config.has("num_experts_per_tok") ? r.config.count("num_experts_per_tok") : r.config.count("experts_per_token");
  r.config.ignore({"experts_per_token", "num_experts_per_tok"});
  r.model.moe = {.experts = r.config.count("num_local_experts"),
                 .active = active,
                 .feed_forward = r.model.feed_forward,
                 .router_bias = true,
                 .expert_bias = true};
  ignore_router_details(r.config);
  read_windows(r, [](std::int64_t i) { return i % 2 == 0; });
}

void deepseek(const HfReading& r) {
  read_decoder(r);
  r.model.heads = r.model.key_heads = r.config.count("num_attention_heads");
  r.config.ignore({"num_key_value_heads", "qk_head_dim", "head_dim"});
  r.model.latent = {.query_rank = r.config.count("q_lora_rank", 0),
                    .rank = r.config.count("kv_lora_rank"),
                    .nope_size = r.config.count("qk_nope_head_dim"),
                    .rope_size = r.config.count("qk_rope_head_dim"),
                    .value_size = r.config.count("v_head_dim")};
  r.model.head_size = r.model.latent.nope_size + r.model.latent.rope_size;
  r.model.feed_forward = r.config.count("intermediate_size");
  r.model.activation = activation(r.config, "hidden_act", "silu");
  r.config.need_off("attention_bias", "is not built with compressed keys and values; set it to false");
  r.model.moe.experts = r.config.count("n_routed_experts");
  r.model.moe.active = r.config.count("num_experts_per_tok");
  r.model.moe.feed_forward = r.config.count("moe_intermediate_size");
  r.model.moe.shared_feed_forward = r.config.count("n_shared_experts", 0) * r.model.moe.feed_forward;
  const std::int64_t front = r.config.count_or_0("first_k_dense_replace"), step = r.config.count("moe_layer_freq", 1);
  for (std::int64_t i = 0; i < r.model.layers; ++i)
    r.model.sparse.push_back(i >= front && i % step == 0 ? 1 : 0);
  if (front == 0 && step == 1) r.model.sparse.clear();
  ignore_router_details(r.config);
}

void deepseek_v3(const HfReading& r) {
  deepseek(r);
  r.model.moe.router_bias = true;  // e_score_correction_bias
  r.out.trained_as.routing = Routing{.scores = RouterScores::Sigmoid};
  r.model.stated_modules = r.config.count_or_0("num_nextn_predict_layers", 0, kMostModules);
  r.model.modules = r.options.next_token_modules;
  if (r.model.modules > r.model.stated_modules)
    r.config.refuse("num_nextn_predict_layers",
                    fmt::format("is less than the {} next_token_modules that were asked for", r.model.modules));
}

// The heads of BERT's classes that are built, by the name of the class.
void read_bert_head(const HfReading& r) {
  r.model.head = Transformer::Head::Pooler;
  r.model.tied = r.config.flag("tie_word_embeddings", true);
  r.model.head_bias = true;
  const Json* classes = r.config.find("architectures");
  const std::string name = !classes ? "BertModel"
                           : classes->is_array() && classes->size() == 1 && (*classes)[0].is_string()
                               ? (*classes)[0].get<std::string>()
                               : "";
  if (name == "BertForMaskedLM")
    r.model.head = Transformer::Head::MaskedToken;
  else if (name == "BertForPreTraining")
    r.model.head = Transformer::Head::Pretraining;
  else if (name != "BertModel")
    r.config.refuse("architectures", "is not known; write one of BertModel, BertForMaskedLM, BertForPreTraining");
  if (r.model.head == Transformer::Head::Pooler) r.out.notes.emplace_back("no loss: BertModel ends with its pooler");
}

void bert(const HfReading& r) {
  read_blocks(r);
  r.model.vocabulary = r.config.count("vocab_size");
  r.model.activation = activation(r.config, "hidden_act", "gelu");
  r.model.token_types = r.config.count("type_vocab_size", 2);
  r.model.positions = Transformer::Positions::Learned;
  r.model.position_rows = r.config.count("max_position_embeddings");
  r.model.embedding_norm = true;
  r.model.norms = Transformer::Norms::Post;
  r.model.attention_bias = Transformer::Bias::All;
  r.model.feed_forward_bias = true;
  r.model.causal = false;
  r.model.dropout = r.model.embedding_dropout = r.config.drops("hidden_dropout_prob", 0.1);
  r.model.attention_dropout = r.config.drops("attention_probs_dropout_prob", 0.1);
  if (r.config.word("position_embedding_type", "absolute") != "absolute")
    r.config.refuse("position_embedding_type", "is not built; only absolute is");
  r.config.need_off("is_decoder", "is not built for bert; set it to false");
  r.config.need_off("add_cross_attention", "is not built for bert; set it to false");
  read_bert_head(r);
  read_length(r, "max_position_embeddings");
}

void t5(const HfReading& r) {
  r.model.encoder_layers = r.config.count("num_layers", {}, kMostBlocks);
  r.model.layers = r.config.count("num_decoder_layers", r.model.encoder_layers, kMostBlocks);
  r.model.hidden = r.config.count("d_model");
  r.model.heads = r.model.key_heads = r.config.count("num_heads");
  r.model.head_size = r.config.count("d_kv");
  r.model.feed_forward = r.config.count("d_ff");
  r.model.vocabulary = r.config.count("vocab_size");
  const std::string projection = r.config.word("feed_forward_proj", "relu");
  r.model.gated = projection == "gated-gelu";
  r.model.activation = r.model.gated ? Activation::Gelu : Activation::Relu;
  if (!r.model.gated && projection != "relu")
    r.config.refuse("feed_forward_proj", "is not known; write one of relu, gated-gelu");
  r.model.tied = r.config.flag("tie_word_embeddings", true);
  r.model.tied_target = true;
  r.model.norm = Norm::Rms;
  r.model.positions = Transformer::Positions::RelativeBias;
  r.model.position_rows = r.config.count("relative_attention_num_buckets", 32);
  r.model.dropout = r.model.embedding_dropout = r.model.attention_dropout = r.model.inner_dropout =
      r.config.drops("dropout_rate", 0.1);
  r.model.target_length = r.options.target_length.value_or(0);
  read_length(r, "n_positions");
}

void vit(const HfReading& r) {
  read_blocks(r);
  r.model.activation = activation(r.config, "hidden_act", "gelu");
  r.model.image = r.config.count("image_size", {}, 100'000);
  r.model.patch = r.config.count("patch_size", {}, 100'000);
  r.model.channels = r.config.count("num_channels", 3, 10'000);
  if (r.model.image % r.model.patch != 0)
    r.config.refuse("patch_size", fmt::format("does not divide image_size {}; use a divisor", r.model.image));
  const Json* labels = r.config.find("id2label");
  if (!labels || r.config.has("num_labels"))
    r.model.classes = r.config.count("num_labels");
  else if (labels->is_object() && !labels->empty())
    r.model.classes = static_cast<std::int64_t>(labels->size());
  else
    r.config.refuse("id2label", "names no classes; write num_labels");
  r.model.sequence_length = (r.model.image / r.model.patch) * (r.model.image / r.model.patch) + 1;
  if (r.options.sequence_length && *r.options.sequence_length != r.model.sequence_length)
    r.config.refuse("patch_size",
                    fmt::format("gives {} tokens, not the sequence_length of {} that was asked for; leave it out",
                                r.model.sequence_length, *r.options.sequence_length));
  r.model.head = Transformer::Head::Classes;
  r.model.head_bias = true;
  r.model.attention_bias = Transformer::Bias::All;
  r.model.feed_forward_bias = true;
  if (!r.config.flag("qkv_bias", true)) r.config.refuse("qkv_bias", "is not built; only true is");
  r.model.causal = false;
  r.model.dropout = r.model.embedding_dropout = r.config.drops("hidden_dropout_prob", 0);
  r.model.attention_dropout = r.config.drops("attention_probs_dropout_prob", 0);
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
