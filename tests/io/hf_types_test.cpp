// Hugging Face configurations: what single model types mean by their fields.
#include <doctest/doctest.h>

#include "core/model/families/transformer_families.hpp"
#include "io/import/hf.hpp"
#include "tests/io/hf_configs.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/family_model.hpp"

using namespace pipewright::tests;

TEST_CASE("Key heads: absent is refused where the publisher's default is a number, null is as many as heads") {
  for (const char* type : {"gemma", "gemma2", "gemma3_text", "gpt_oss", "mistral", "mixtral", "nemotron", "olmo2",
                           "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"}) {
    CAPTURE(type);
    std::string text = hf_llama("\"head_dim\": 8", type);
    const std::string key = ", \"num_key_value_heads\": null";
    text.erase(text.find(key), key.size());
    CHECK(
        hf_refusal(text) ==
        "config.json: num_key_value_heads: is missing; write a divisor of num_attention_heads 8, or null for as many");
  }
  CHECK(parsed_hf(hf_llama()).key_heads == 8);
  CHECK(parsed_hf(hf_llama("\"use_sliding_window\": false", "qwen2")).key_heads == 8);
}

TEST_CASE("Types without grouped queries ignore num_key_value_heads") {
  for (const char* type : {"bert", "gpt_neox"}) {
    CAPTURE(type);
    CHECK(parsed_hf(hf_llama("\"num_key_value_heads\": 2", type)).key_heads == 8);
  }
}

TEST_CASE("BERT with an untied head has a second table, 132,955,194 parameters of base; only absolute positions") {
  const std::string base =
      "{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"], \"hidden_size\": 768, "
      "\"num_hidden_layers\": "
      "12, \"num_attention_heads\": 12, \"intermediate_size\": 3072, \"vocab_size\": 30522, "
      "\"max_position_embeddings\": 512, ";
  // 109,514,298 and 30522 * 768 more.
  const Transformer untied = parsed_hf(base + "\"tie_word_embeddings\": false}");
  CHECK(parameters_of(build(untied)) == 132'955'194);
  CHECK(parameters_of(build(parsed_hf(base + "\"tie_word_embeddings\": true}"))) == 109'514'298);
  CHECK(family_form(untied).has_value());
  CHECK(hf_refusal(base + "\"position_embedding_type\": \"relative_key\"}")
            .find("position_embedding_type: \"relative_key\" is not built; only absolute is") != std::string::npos);
}

TEST_CASE("Soft caps are Gemma 2's unless null, and Gemma 3's where set; attention to both sides is refused") {
  const std::string window = "\"head_dim\": 8, \"sliding_window\": 64";
  CHECK(parsed_hf(hf_llama(window, "gemma2")).final_soft_cap);
  CHECK(parsed_hf(hf_llama(window, "gemma2")).attention_soft_cap);
  const std::string null = ", \"final_logit_softcapping\": null, \"attn_logit_softcapping\": 20.0";
  CHECK_FALSE(parsed_hf(hf_llama(window + null, "gemma2")).final_soft_cap);
  CHECK(parsed_hf(hf_llama(window + null, "gemma2")).attention_soft_cap);
  CHECK_FALSE(parsed_hf(hf_llama(window, "gemma3_text")).final_soft_cap);
  CHECK(parsed_hf(hf_llama(window + ", \"final_logit_softcapping\": 30.0", "gemma3_text")).final_soft_cap);
  CHECK(hf_refusal(hf_llama(window + ", \"final_logit_softcapping\": -1", "gemma2")).find("is not a number above 0") !=
        std::string::npos);
  CHECK(hf_refusal(hf_llama(window + ", \"use_bidirectional_attention\": true", "gemma3_text"))
            .find("use_bidirectional_attention: true is not built") != std::string::npos);
}

TEST_CASE("Qwen2-MoE without biases of queries, keys and values has none") {
  const std::string experts =
      "\"num_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, "
      "\"shared_expert_intermediate_size\": 32";
  CHECK(parsed_hf(hf_llama(experts, "qwen2_moe")).attention_bias == Transformer::Bias::Queries);
  CHECK(parsed_hf(hf_llama(experts + ", \"qkv_bias\": false", "qwen2_moe")).attention_bias == Transformer::Bias::None);
}

TEST_CASE("GPT-NeoX takes its rotated share from rope_parameters, else from rotary_pct") {
  CHECK(parsed_hf(hf_llama("\"rotary_pct\": 0.5", "gpt_neox")).rotary_size == 4);
  CHECK(parsed_hf(hf_llama("\"rope_parameters\": {\"partial_rotary_factor\": 1.0}", "gpt_neox")).rotary_size == 8);
  CHECK(parsed_hf(hf_llama("\"rope_parameters\": {\"rope_theta\": 10000}", "gpt_neox")).rotary_size == 2);
  CHECK(hf_refusal(hf_llama("\"rope_parameters\": {\"partial_rotary_factor\": 2}", "gpt_neox"))
            .find("has a partial_rotary_factor that is not a share from 0 to 1") != std::string::npos);
}

TEST_CASE("GPT-2 drops values after the embedding and inside blocks by two shares") {
  const auto of = [](const char* residual, const char* embedding) {
    const Transformer t =
        parsed_hf(std::string("{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": 8, \"n_head\": 1, "
                              "\"vocab_size\": 8, \"n_positions\": 8, \"resid_pdrop\": ") +
                  residual + ", \"embd_pdrop\": " + embedding + "}");
    return std::pair(t.dropout, t.embedding_dropout);
  };
  CHECK(of("0.1", "0") == std::pair(true, false));
  CHECK(of("0", "0.1") == std::pair(false, true));
}

TEST_CASE("OLMo 2 normalises what each part adds, and queries and keys over all heads") {
  const Transformer t = parsed_hf(hf_llama("\"rope_theta\": 500000", "olmo2"));
  CHECK(t.norms == Transformer::Norms::Reordered);
  CHECK(t.qk_norm == Transformer::QkNorm::All);
  CHECK(t.norm == Norm::Rms);
  CHECK(t.gated);
}

TEST_CASE("Nemotron squares ReLU without a gate, rotates half of a head, and has layer norms with biases") {
  const Transformer t = parsed_hf(hf_llama("", "nemotron"));
  CHECK(t.activation == Activation::Relu);
  CHECK(t.squared);
  CHECK_FALSE(t.gated);
  CHECK(t.norm == Norm::Layer);
  CHECK(t.norm_bias);
  CHECK(t.rotary_size == 4);
  CHECK(parsed_hf(hf_llama("\"partial_rotary_factor\": 0.25", "nemotron")).rotary_size == 2);
  CHECK_FALSE(parsed_hf(hf_llama("\"hidden_act\": \"gelu\"", "nemotron")).squared);
  CHECK(parse_hf_config(hf_llama("\"norm_eps\": 1e-05", "nemotron"), "config.json", {}).trained_as.norm_epsilon ==
        1e-05);
  CHECK(hf_refusal(hf_llama("\"hidden_act\": \"relu2\"")).find("hidden_act: \"relu2\" is not known") !=
        std::string::npos);
}

TEST_CASE("MPT: ALiBi or rotary positions, biases as stated, and what is not built is refused") {
  const auto mpt = [](const std::string& attention = "\"alibi\": true", const std::string& more = "\"no_bias\": true") {
    return "{\"model_type\": \"mpt\", \"d_model\": 64, \"n_heads\": 8, \"n_layers\": 2, \"max_seq_len\": 128, "
           "\"vocab_size\": 1000, " +
           more + ",\n\"attn_config\": {" + attention + "}}";
  };
  const Transformer t = parsed_hf(mpt());
  CHECK(t.positions == Transformer::Positions::None);
  CHECK(t.feed_forward == 256);
  CHECK(t.tied);
  CHECK_FALSE(t.norm_bias);
  CHECK_FALSE(t.feed_forward_bias);
  CHECK(t.attention_bias == Transformer::Bias::None);
  CHECK(family_form(t).has_value());
  const Transformer biased = parsed_hf(mpt("\"alibi\": true", "\"no_bias\": false"));
  CHECK(biased.norm_bias);
  CHECK(biased.attention_bias == Transformer::Bias::All);
  CHECK(parsed_hf(mpt("\"alibi\": true, \"qk_ln\": true")).qk_norm == Transformer::QkNorm::All);
  CHECK(parsed_hf(mpt("\"alibi\": true, \"attn_type\": \"grouped_query_attention\", \"kv_n_heads\": 2")).key_heads ==
        2);
  CHECK(parsed_hf(mpt("\"alibi\": true, \"attn_type\": \"multiquery_attention\"")).key_heads == 1);
  const HfConfig rotary = parse_hf_config(mpt("\"rope\": true, \"rope_theta\": 10000"), "config.json", {});
  CHECK(rotary.transformer.positions == Transformer::Positions::Rotary);
  CHECK(rotary.trained_as.rope_theta == 10000.0);
  CHECK(parsed_hf(mpt("\"alibi\": false", "\"no_bias\": true, \"learned_pos_emb\": false")).positions ==
        Transformer::Positions::None);
  CHECK(
      hf_refusal(mpt("\"alibi\": false")) ==
      "config.json:2:26: attn_config.alibi: false without rope leaves learned positions, which are not built for mpt; "
      "set alibi or rope to true, or learned_pos_emb to false");
  CHECK(hf_refusal(mpt("")) == "config.json: attn_config.alibi: is missing; write true or false");
  CHECK(hf_refusal(mpt("\"alibi\": true", "\"resid_pdrop\": 0")) ==
        "config.json: no_bias: is missing; write true or false");
  CHECK(hf_refusal(mpt("\"alibi\": true, \"rope\": true")).find("alibi: true is not built beside rope") !=
        std::string::npos);
  CHECK(hf_refusal(mpt("\"alibi\": true, \"kv_n_heads\": 2")).find("kv_n_heads: 2 is not the 8 of attn_type") !=
        std::string::npos);
  CHECK(hf_refusal(mpt("\"alibi\": true, \"attn_type\": \"grouped_query_attention\"")).find("kv_n_heads: is missing") !=
        std::string::npos);
  CHECK(hf_refusal(mpt("\"alibi\": true", "\"no_bias\": true, \"ffn_config\": {\"ffn_type\": \"mb_moe\"}"))
            .find("ffn_config.ffn_type: \"mb_moe\" is not built; only mptmlp is") != std::string::npos);
  CHECK(hf_refusal(mpt("\"alibi\": true", "\"no_bias\": true, \"ffn_config\": 3"))
            .find("ffn_config: 3 is not an object; correct it, or write null") != std::string::npos);
}

TEST_CASE("More than 100 next-token modules are refused") {
  std::string text = read_file(shipped("deepseek-v3"));
  const std::string key = "\"num_nextn_predict_layers\": 1";
  REQUIRE(text.find(key) != std::string::npos);
  text.insert(text.find(key) + key.size(), "01");
  CHECK(hf_refusal(text).find("num_nextn_predict_layers: 101 is not a whole number from 1 to 100; correct it") !=
        std::string::npos);
}
