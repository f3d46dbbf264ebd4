// Gated delta nets from Hugging Face configurations: patterns, sizes, and what is refused.
#include <doctest/doctest.h>

#include "core/model/families/transformer_families.hpp"
#include "core/model/flops.hpp"
#include "io/import/pipedream.hpp"
#include "io/read/read_file.hpp"
#include "io/read/trained_as.hpp"
#include "tests/io/hf_configs.hpp"
#include "tests/support/family_model.hpp"

using namespace pipewright::tests;

namespace {

// Four layers: hidden 64, 8 heads of 24 values and 4 of 16 keys, experts.
std::string next_config(const std::string& more = "", const std::string& type = "qwen3_next") {
  return "{\"model_type\": \"" + type +
         "\", \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 4,\n"
         "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 32, \"vocab_size\": 1000, "
         "\"max_position_embeddings\": 512,\n\"linear_num_value_heads\": 8, \"linear_num_key_heads\": 4, "
         "\"linear_key_head_dim\": 16, \"linear_value_head_dim\": 24, \"linear_conv_kernel_dim\": 3,\n"
         "\"num_experts\": 6, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 40, "
         "\"shared_expert_intermediate_size\": 48" +
         (more.empty() ? "" : ",\n" + more) + "}";
}

std::string with(std::string text, const std::string& was, const std::string& becomes) {
  const std::size_t at = text.find(was);
  REQUIRE(at != std::string::npos);
  return text.replace(at, was.size(), becomes);
}

bool has_words(const std::string& text, const char* words) {
  return text.find(words) != std::string::npos;
}

std::int64_t counted(const Transformer& t) {
  return parameters_of(build(t));
}

}  // namespace

TEST_CASE("Qwen3-Next 80B: 36 gated delta nets, 12 of attention, 48 of experts; 3.87 B parameters are active") {
  // Net: 2048 (2 x 2048 + 2 x 4096 + 64) + 4 x 8192 + 64 + 128 + 4096 x 2048, and a norm. Attention: 2048 (2 x 4096 + 2 x 512)
  // + 2 x 256 + 4096 x 2048 and a norm. Experts: 513 x 3 x 2048 x 512, router 512 x 2048, gate 2048 and a norm.
  const Model model = read_hf_config(shipped("qwen3-next-80b-a3b"), {.sequence_length = 4096});
  CHECK(work_of(model, "block.0").parameters == 33'720'512);
  CHECK(work_of(model, "block.6").parameters == 27'265'536);
  CHECK(work_of(model, "block.1").parameters == 1'614'811'136);
  CHECK(parameters_of(model) == 79'674'391'296);  // as transformers counts Qwen3NextForCausalLM
  CHECK(active_parameters(model) == 3'874'929'408);
  CHECK(model.works.size() == 5);
  CHECK(has_words(model.source, "each of 48 layers is two blocks"));
  // Megatron's count of a forward pass, per token.
  const double nets = 36 * (2.0 * 2048 * (12352 + 4096) + 2.0 * 4 * 8192 + 8.0 * 32 * 128 * 128),
               attention = 12 * (2.0 * 2048 * (9216 + 4096) + 2 * 4096.0 * 4096),
               experts = 48 * (6.0 * 2048 * 11 * 512), logits = 2.0 * 2048 * 151936;
  const double gates = 48 * 2.0 * 2048;  // of the shared expert
  const double whole = flop_count(model, flop_conventions()[1]).training() / 4096 / 3;
  CHECK(whole == doctest::Approx(nets + attention + experts + logits).epsilon(gates / whole));
  // The pattern comes back from a written file.
  const Scratch scratch;
  const Model back = read_model(scratch.write("back.yaml", model_yaml(model, "")));
  CHECK(parameters_of(back) == parameters_of(model));
  CHECK(flop_count(back).training() == flop_count(model).training());
}

TEST_CASE("qwen3_next: letters by layer types or the interval, sparse layers by Qwen's rule; counts as transformers'") {
  const Transformer t = parsed_hf(next_config());
  CHECK(t.pattern == "GEGEGE*E");
  CHECK(t.layers == 8);
  CHECK(t.delta == DeltaNet{.heads = 8, .key_heads = 4, .key_size = 16, .value_size = 24, .kernel = 3});
  CHECK(t.attention_gate);
  CHECK(t.moe.shared_gate);
  CHECK(t.rotary_size == 8);
  CHECK(family_form(t).has_value());
  CHECK(counted(t) == 525'624);
  const Transformer dense = parsed_hf(next_config("\"mlp_only_layers\": [1]"));
  CHECK(dense.pattern == "GEG-GE*E");
  CHECK(counted(dense) == 488'312);
  const Transformer second = parsed_hf(next_config("\"decoder_sparse_step\": 2"));
  CHECK(second.pattern == "G-GEG-*E");
  CHECK(counted(second) == 451'000);
  CHECK(counted(parsed_hf(next_config("\"attention_bias\": true"))) == 526'072);
  CHECK(parsed_hf(next_config("\"full_attention_interval\": 2")).pattern == "GE*EGE*E");
  CHECK(parsed_hf(next_config("\"layer_types\": [\"full_attention\", \"linear_attention\", \"linear_attention\", "
                              "\"linear_attention\"]"))
            .pattern == "*EGEGEGE");
  CHECK(parsed_hf(with(next_config(), "\"num_experts\": 6", "\"num_experts\": 0")).pattern == "G-G-G-*-");
}

TEST_CASE("qwen3_next: what is not built is refused") {
  const auto refused = [](const std::string& more) { return hf_refusal(next_config(more)); };
  CHECK(has_words(refused("\"layer_types\": [\"full_attention\"]"),
                  "layer_types: [\"full_attention\"] is not a list of 4 entries, one a layer; correct it"));
  CHECK(has_words(refused("\"layer_types\": [\"full_attention\", \"mamba\", \"mamba\", \"mamba\"]"),
                  "has an entry that is neither full_attention nor linear_attention"));
  CHECK(has_words(refused("\"use_sliding_window\": true"), "use_sliding_window: true is not built"));
  CHECK(has_words(refused("\"output_gate_type\": \"sigmoid\""), "output_gate_type: \"sigmoid\" is not built"));
  CHECK(has_words(refused("\"linear_allow_neg_eigval\": true"), "is not known for model_type \"qwen3_next\""));
  CHECK(has_words(hf_refusal(with(next_config(), "\"linear_num_key_heads\": 4", "\"linear_num_key_heads\": 3")),
                  "linear_num_key_heads: 3 does not divide linear_num_value_heads 8; use a divisor"));
  CHECK(has_words(hf_refusal(with(next_config(), "\"linear_key_head_dim\": 16, ", "")),
                  "linear_key_head_dim: is missing; write a whole number"));
}

TEST_CASE("qwen3_5: dense or with experts, within a wrapping configuration; its next-token modules are not built") {
  const Transformer moe = parsed_hf("{\"model_type\": \"qwen3_5_moe\", \"text_config\": " +
                                    next_config("\"mtp_num_hidden_layers\": 1, \"mamba_ssm_dtype\": \"float32\", "
                                                "\"attn_output_gate\": true",
                                                "qwen3_5_moe_text") +
                                    "}");
  CHECK(moe.pattern == "GEGEGE*E");
  CHECK(moe.stated_modules == 1);
  CHECK(moe.modules == 0);
  CHECK(counted(moe) == 525'624);
  CHECK_FALSE(parsed_hf(next_config("\"attn_output_gate\": false", "qwen3_5_moe_text")).attention_gate);
  const Model dense = read_hf_config(shipped("qwen3.5-9b"), {});
  CHECK(has_words(dense.source, "1 next-token module(s) (multi-token prediction) of the architecture are not built"));
  const HfConfig config = parse_hf_config(read_file(shipped("qwen3.5-9b")), "qwen3.5-9b.json", {});
  CHECK(config.trained_as.rope_theta == 10'000'000.0);
  CHECK(config.transformer.rotary_size == 64);
  CHECK(config.transformer.pattern.substr(0, 8) == "G-G-G-*-");
}

TEST_CASE("A gated delta net as an operator of a layer of one's own") {
  const auto net = [](const std::string& sizes) {
    const Scratch scratch;
    return read_model(
        scratch.write("net.yaml",
                      "model: {name: net, input_shape: [6, 8], layers: [{name: mixer, ops: [{op: linear, features: "
                      "40, bias: no}, {op: gated_delta_net, " +
                          sizes + "}, {op: linear, features: 8, bias: no}]}, {name: loss, op: cross_entropy}]}\n"));
  };
  const Model model = net("heads: 4, key_heads: 2, key_size: 2, value_size: 3, chunk: 4");
  CHECK(work_of(model, "mixer").parameters == 8 * 40 + 4 * 20 + 2 * 4 + 3 + 12 * 8);
  const Model wider = net("heads: 4, key_size: 1, value_size: 3, kernel: 3");  // as many key heads
  CHECK(work_of(wider, "mixer").parameters == 8 * 40 + 3 * 20 + 2 * 4 + 3 + 12 * 8);
  CHECK(has_words(message_of([&] { net("heads: 4, key_heads: 3, key_size: 2, value_size: 3"); }),
                  "3 key heads do not divide 4 heads; use a divisor"));
  CHECK(has_words(message_of([&] { net("heads: 4"); }), "needs an input of 2056 features, not 40"));
}
