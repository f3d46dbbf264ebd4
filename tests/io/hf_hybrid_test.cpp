// Hybrid stacks from Hugging Face configurations: patterns, sizes, and what is refused.
#include <doctest/doctest.h>

#include "core/model/families/transformer_families.hpp"
#include "core/model/flops.hpp"
#include "io/import/pipedream.hpp"
#include "io/read/read_file.hpp"
#include "tests/io/hf_configs.hpp"
#include "tests/support/family_model.hpp"

using namespace pipewright::tests;

TEST_CASE("Nemotron 3 Nano: 23 mixers, 23 blocks of experts, 6 of attention; 3.58 B parameters are active") {
  // Mixer: 2688 (2 x 4096 + 2 x 8 x 128 + 64) + 5 (4096 + 2 x 8 x 128) + 3 x 64 + 4096 + 4096 x 2688, and a norm.
  // Attention: 2 x 2688 (4096 + 256) and a norm. Experts: 128 x 2 x 2688 x 1856, the shared 2 x 2688 x 3712, router, a norm.
  const Model model = read_hf_config(shipped("nemotron-3-nano-30b-a3b"), {.sequence_length = 8192});
  CHECK(work_of(model, "block.0").parameters == 38'744'896);
  CHECK(work_of(model, "block.5").parameters == 23'399'040);
  CHECK(work_of(model, "block.1").parameters == 1'297'468'160);
  CHECK(active_parameters(model) == 3'580'076'352);  // published: 3.6 B, 3.2 B without the embedding's table
  CHECK(model.works.size() == 5);
  // Megatron's count of a forward pass, per token: products, half of all pairs, 7 FLOPs per inner feature and state.
  const double mixers = 23 * (2.0 * 2688 * (10304 + 4096) + 7.0 * 4096 * 128),
               attention = 6 * (2.0 * 2688 * (2 * 4096 + 2 * 256) + 2 * 8192.0 * 4096),
               experts = 23 * 4.0 * 2688 * (6 * 1856 + 3712), logits = 2.0 * 2688 * 131072;
  CHECK(flop_count(model, flop_conventions()[1]).training() / 8192 ==
        doctest::Approx(3 * (mixers + attention + experts + logits)).epsilon(1e-9));
  // The pattern comes back from a written file, whose text begins as an alias would.
  const Scratch scratch;
  const Model back = read_model(scratch.write("back.yaml", model_yaml(model, "")));
  CHECK(parameters_of(back) == parameters_of(model));
  CHECK(flop_count(back).training() == flop_count(model).training());
  const Model star = read_model(scratch.write(
      "star.yaml", "model: {family: decoder, layers: 2, hidden: 64, heads: 8, feed_forward: 128, pattern: \"*-\"}\n"));
  CHECK(model_yaml(star, "").find("pattern: \"*-\"") != std::string::npos);
  CHECK(model_yaml(read_model(scratch.write("again.yaml", model_yaml(star, ""))), "") == model_yaml(star, ""));
}

TEST_CASE("nemotron_h: patterns in letters or words, and what is not built is refused") {
  const auto says = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const auto hybrid = [](const std::string& pattern, const std::string& more = "") {
    return "{\"model_type\": \"nemotron_h\", \"hidden_size\": 64, \"intermediate_size\": 128, \"num_hidden_layers\": "
           "4,\n"
           "\"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"head_dim\": 16, \"vocab_size\": 1000, "
           "\"max_position_embeddings\": 512,\n\"mamba_num_heads\": 4, \"mamba_head_dim\": 32, \"ssm_state_size\": 16, "
           "\"n_groups\": 2, \"use_mamba_kernels\": true,\n" +
           pattern + more + "}";
  };
  const std::string letters = "\"hybrid_override_pattern\": \"M-M*\"";
  const Transformer t = parsed_hf(hybrid(letters));
  CHECK(t.pattern == "M-M*");
  CHECK(t.mixer == StateSpace{.heads = 4, .head_size = 32, .groups = 2, .state = 16});
  CHECK(t.squared);
  CHECK_FALSE(t.gated);
  CHECK(t.positions == Transformer::Positions::None);
  CHECK(t.moe.experts == 0);
  CHECK(family_form(t).has_value());
  CHECK(parsed_hf(hybrid("\"layers_block_type\": [\"mamba\", \"mlp\", \"linear_attention\", \"attention\"]")).pattern ==
        "M-M*");
  // As Python writes it.
  CHECK(parsed_hf(hybrid(letters,
                         ", \"time_step_limit\": [0.0, Infinity], \"time_step_floor\": -Infinity, "
                         "\"time_step_min\": NaN, \"_name_or_path\": \"a \\\" Infinity\""))
            .pattern == "M-M*");
  CHECK(says(hf_refusal(hybrid(letters, ", \"conv_kernel\": Infinity")), "conv_kernel"));
  CHECK(parsed_hf(hybrid(letters + ", \"layer_types\": [\"mamba\", \"mlp\", \"mamba\", \"attention\"]")).pattern ==
        "M-M*");
  CHECK(says(hf_refusal(hybrid(letters + ", \"layer_types\": [\"mlp\", \"mlp\", \"mamba\", \"attention\"]")),
             "says other parts than hybrid_override_pattern; correct one of them, or leave it out"));
  CHECK(parsed_hf(hybrid(letters, ", \"conv_kernel\": 3, \"chunk_size\": 256")).mixer.chunk == 256);
  CHECK(says(
      hf_refusal(hybrid("\"hybrid_override_pattern\": \"M-M\"")),
      "config.json:4:28: hybrid_override_pattern: \"M-M\" has 3 layers, num_hidden_layers 4; correct one of them"));
  CHECK(says(hf_refusal(hybrid("\"hybrid_override_pattern\": \"M-M+\"")),
             "has a letter at 4 that is not known; write M (Mamba-2), * (attention)"));
  CHECK(says(hf_refusal(hybrid("\"layers_block_type\": [\"mamba\", \"mlp\", \"mamba\", \"rwkv\"]")),
             "has an entry that is not known; write one of mamba, attention, mlp, moe"));
  CHECK(says(hf_refusal(hybrid("\"use_bias\": false")), "hybrid_override_pattern: is missing; write a letter a layer"));
  CHECK(says(hf_refusal(hybrid("\"hybrid_override_pattern\": \"M-ME\"")), "n_routed_experts: is missing"));
  CHECK(says(hf_refusal(hybrid(letters, ", \"mamba_proj_bias\": true")), "mamba_proj_bias: true is not built"));
  CHECK(says(hf_refusal(hybrid(letters, ", \"use_conv_bias\": false")), "use_conv_bias: false is not built"));
  CHECK(says(hf_refusal(hybrid("\"hybrid_override_pattern\": \"M-ME\"", ", \"moe_latent_size\": 8")),
             "moe_latent_size: 8 is not built: experts read all features of a token; write null"));
  std::string groups = hybrid(letters);
  groups.replace(groups.find("\"n_groups\": 2"), 13, "\"n_groups\": 3");
  CHECK(says(hf_refusal(groups), "n_groups: 3 does not divide mamba_num_heads 4; use a divisor"));
  CHECK(says(hf_refusal(hybrid(letters, ", \"moe_top_p\": 3")), "is not known for model_type \"nemotron_h\""));
}
