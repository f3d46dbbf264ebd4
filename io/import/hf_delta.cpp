// Gated delta nets beside attention: model_type qwen3_next, and qwen3_5_text, qwen3_5_moe_text.
#include <string>

#include <fmt/format.h>

#include "io/import/hf_types.hpp"

namespace pipewright::io {
namespace {

// Of every layer, G or *: by layer_types, where stated, else each full_attention_interval-th attends.
std::string attention_letters(const HfReading& r, std::int64_t layers) {
  HfFields& c = r.config;
  const std::int64_t every = c.count("full_attention_interval", 4);
  const Json* const types = c.find("layer_types");
  std::string letters;
  if (!types) {
    for (std::int64_t i = 0; i < layers; ++i)
      letters += (i + 1) % every == 0 ? '*' : 'G';
    return letters;
  }
  if (!types->is_array() || types->size() != at(layers))
    c.refuse("layer_types", fmt::format("is not a list of {} entries, one a layer; correct it", layers));
  for (const Json& type : *types) {
    if (type != "full_attention" && type != "linear_attention")
      c.refuse("layer_types",
               "has an entry that is neither full_attention nor linear_attention; other kinds of layers are not read");
    letters += type == "full_attention" ? '*' : 'G';
  }
  return letters;
}

void read_delta_net(const HfReading& r) {
  HfFields& c = r.config;
  DeltaNet& delta = r.out.transformer.delta;
  delta = {.heads = c.count("linear_num_value_heads"),
           .key_heads = c.count("linear_num_key_heads"),
           .key_size = c.count("linear_key_head_dim"),
           .value_size = c.count("linear_value_head_dim"),
           .kernel = c.count("linear_conv_kernel_dim", 4)};
  if (delta.heads % delta.key_heads != 0)
    c.refuse("linear_num_key_heads",
             fmt::format("does not divide linear_num_value_heads {}; use a divisor", delta.heads));
  if (const std::string gate = c.word("output_gate_type", "swish"); gate != "swish" && gate != "silu")
    c.refuse("output_gate_type", "is not built; only swish is");
}

}  // namespace

void read_hf_delta(const HfReading& r) {
  Transformer& t = r.out.transformer;
  HfFields& c = r.config;
  const std::string letters = attention_letters(r, t.layers);
  for (std::int64_t i = 0; i < t.layers; ++i) {
    t.pattern += letters[at(i)];
    t.pattern += t.is_sparse(i) ? 'E' : '-';
  }
  t.feed_forward = t.pattern.find('-') == std::string::npos ? c.count("intermediate_size", t.moe.feed_forward)
                                                            : c.count("intermediate_size");
  if (t.pattern.find('E') == std::string::npos) t.moe = {};
  t.sparse.clear();
  if (letters.find('G') != std::string::npos) read_delta_net(r);
  t.attention_gate = c.flag("attn_output_gate", true);
  r.out.notes.push_back(
      fmt::format("each of {} layers is two blocks: attention or a gated delta net, then its feed-forward", t.layers));
  t.layers *= 2;
  t.stated_modules = c.count_or_0("mtp_num_hidden_layers", 0, 100);
  t.modules = r.options.next_token_modules;
  // Of parts that no layer has, and of what a state is stored in while text is made.
  c.ignore({"linear_num_value_heads", "linear_num_key_heads", "linear_key_head_dim", "linear_value_head_dim",
            "linear_conv_kernel_dim", "mamba_ssm_dtype", "mtp_use_dedicated_embeddings", "num_experts_per_tok",
            "moe_intermediate_size", "shared_expert_intermediate_size"});
}

}  // namespace pipewright::io
