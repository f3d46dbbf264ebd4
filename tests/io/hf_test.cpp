// Hugging Face configurations: published parameter counts from shapes, and what is refused.
#include "io/import/hf.hpp"

#include <doctest/doctest.h>

#include "core/model/families/transformer_families.hpp"
#include "core/model/flops.hpp"
#include "io/import/pipedream.hpp"
#include "io/read/read_file.hpp"
#include "io/read/trained_as.hpp"
#include "io/store/sha256.hpp"
#include "tests/io/hf_configs.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/family_model.hpp"

using namespace pipewright::tests;

TEST_CASE("Published configurations have their published numbers of parameters") {
  // The counts of the checkpoints; each is also the sum of the architecture's parts, e.g. Llama 3 8B:
  //   32 (2 h^2 + 2 h 1024 + 3 h f + 2 h) + 2 V h + h, h = 4096, f = 14336, V = 128256.
  // BERT with its pooler and no further head; T5 with its tied table, and Qwen3 0.6B, 1.7B and 4B with theirs counted
  // once; ViT with 1000 classes; DeepSeek-V3 without its next-token module, with 256 balancing biases in each of 58
  // blocks; Nemotron 3 Nano with 128 of them in each of 23 blocks, which its 31,577,937,344 leave out.
  struct Row {
    const char* name;
    std::int64_t parameters;
  };
  constexpr Row rows[] = {{"llama3-8b", 8'030'261'248},
                          {"llama3-70b", 70'553'706'496},
                          {"mistral-7b", 7'241'732'096},
                          {"mixtral-8x7b", 46'702'792'704},
                          {"qwen2-7b", 7'615'616'512},
                          {"qwen2-moe-a2.7b", 14'315'784'192},
                          {"qwen3-8b", 8'190'735'360},
                          {"qwen3-30b-a3b", 30'532'122'624},
                          {"gemma-7b", 8'537'680'896},
                          {"gemma2-2b", 2'614'341'888},
                          {"gemma3-1b", 999'885'952},
                          {"gpt2", 124'439'808},
                          {"gpt-neox-20b", 20'554'567'680},
                          {"gpt-oss-20b", 20'914'757'184},
                          {"gpt-oss-120b", 116'829'156'672},
                          {"deepseek-v2-lite", 15'706'484'224},
                          {"deepseek-v3", 671'026'419'200},
                          {"bert-base", 109'482'240},
                          {"t5-base", 222'903'552},
                          {"vit-base-16", 86'567'656},
                          {"llama3.1-8b", 8'030'261'248},
                          {"llama3.1-70b", 70'553'706'496},
                          {"qwen3-0.6b", 596'049'920},
                          {"llama3.1-405b", 405'853'388'800},
                          {"qwen3-1.7b", 1'720'574'976},
                          {"qwen3-4b", 4'022'468'096},
                          {"qwen3-14b", 14'768'307'200},
                          {"qwen3-32b", 32'762'123'264},
                          {"olmo2-7b", 7'298'617'344},
                          {"olmo2-13b", 13'716'198'400},
                          {"olmo2-32b", 32'234'279'936},
                          {"mpt-7b", 6'649'286'656},
                          {"mpt-30b", 29'957'200'896},
                          {"nemotron-3-nano-30b-a3b", 31'577'937'344 + 23 * 128},
                          {"nemotron-4-15b", 15'628'775'424},
                          {"nemotron-4-340b", 341'029'195'776},
                          {"qwen3-next-80b-a3b", 79'674'391'296},
                          {"qwen3.5-35b-a3b", 34'660'610'688},
                          {"qwen3.5-9b", 8'953'803'264}};
  for (const auto& [name, parameters] : rows) {
    CAPTURE(name);
    const Model model = read_hf_config(shipped(name), {});
    CHECK(model.name == name);
    CHECK(parameters_of(model) == parameters);
  }
}

TEST_CASE("Every model type has a shipped configuration, and each is described by a family, parameter by parameter") {
  std::size_t types = 0;
  std::string seen;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(shipped("x")).parent_path())) {
    const std::string path = entry.path().string();
    const Transformer t = parse_hf_config(read_file(path), path, {}).transformer;
    const auto form = family_form(t);
    CAPTURE(path);
    REQUIRE(form.has_value());
    FamilyArguments arguments;
    for (const auto& [name, value] : form->arguments)
      arguments[name] = {value, {}};
    const Model family = build_family(*find_family(form->family), arguments, {}), model = read_hf_config(path, {});
    CHECK(parameters_of(family) == parameters_of(model));
    CHECK(flop_count(family).training() == flop_count(model).training());
    seen += read_file(path);
  }
  for (const std::string_view type : hf_model_types()) {
    CAPTURE(type);
    CHECK(seen.find("\"model_type\": \"" + std::string(type) + "\"") != std::string::npos);
    ++types;
  }
  CHECK(types == 25);
}

TEST_CASE("Of experts, those that a token is sent to are active") {
  // 12,879,925,248 = 46,702,792,704 less 6 of 8 experts in 32 blocks, 3 * 4096 * 14336 each.
  CHECK(active_parameters(read_hf_config(shipped("mixtral-8x7b"), {})) == 12'879'925'248);
  CHECK(active_parameters(read_hf_config(shipped("qwen3-30b-a3b"), {})) ==
        30'532'122'624 - std::int64_t{48} * 120 * 3 * 2048 * 768);
  // gpt-oss 120b: 5.13 billion by its publisher, who leaves the embedding out (201088 * 2880).
  CHECK(active_parameters(read_hf_config(shipped("gpt-oss-120b"), {})) - std::int64_t{201088} * 2880 ==
        doctest::Approx(5.13e9).epsilon(1e-3));
}

TEST_CASE("The next-token module of DeepSeek-V3 is built when asked for, and the report says which") {
  const Model without = read_hf_config(shipped("deepseek-v3"), {});
  CHECK(without.source.find("1 next-token module(s) (multi-token prediction) of the architecture are not built") !=
        std::string::npos);
  const Model with = read_hf_config(shipped("deepseek-v3"), {.next_token_modules = 1});
  CHECK(with.source.find("1 next-token module(s) (multi-token prediction) built") != std::string::npos);
  // a sparse block, two norms, the joining product 2h h, a final norm
  const std::int64_t h = 7168;
  CHECK(parameters_of(with) - parameters_of(without) ==
        work_of(without, "block.60").parameters + 2 * h + 2 * h * h + h);
  CHECK(message_of([] {
          read_hf_config(shipped("llama3-8b"), {.next_token_modules = 1});
        }).find("next_token_modules: 1 where model_type llama has none; leave it out") != std::string::npos);
}

TEST_CASE("The length of a sample is what was asked for, else the longest that the configuration states") {
  CHECK(parsed_hf(hf_llama()).sequence_length == 512);
  CHECK(parsed_hf(hf_llama(), {.sequence_length = 2048}).sequence_length == 2048);  // rotary positions have no table
  CHECK(read_hf_config(shipped("llama3-8b"), {}).tokens == 8192);
  CHECK(read_hf_config(shipped("llama3-8b"), {}).source.find("sequence_length 8192 is max_position_embeddings") !=
        std::string::npos);
  CHECK(message_of([] {
          read_hf_config(shipped("gpt2"), {.sequence_length = 2048});
        }).find("sequence_length 2048 is longer than the table of 1024 positions") != std::string::npos);
  CHECK(hf_refusal(
            "{\"model_type\": \"t5\", \"d_model\": 8, \"d_ff\": 8, \"d_kv\": 8, \"num_layers\": 1, \"num_heads\": 1, "
            "\"vocab_size\": 8}") ==
        "config.json: n_positions is missing, so the length of a sample is unknown; state sequence_length");
}

TEST_CASE("Windows follow the rule of each model type, or layer_types") {
  using Windows = std::vector<std::int64_t>;
  CHECK(parsed_hf(hf_llama("\"sliding_window\": 64", "mistral")).windows == Windows{64, 64, 64, 64});
  CHECK(parsed_hf(hf_llama("\"sliding_window\": null", "mistral")).windows.empty());
  CHECK(parsed_hf(hf_llama("\"sliding_window\": 64, \"max_window_layers\": 3, \"use_sliding_window\": true", "qwen2"))
            .windows == Windows{0, 0, 0, 64});
  CHECK(parsed_hf(hf_llama("\"sliding_window\": 64, \"use_sliding_window\": false", "qwen2")).windows.empty());
  // max_window_layers is 28 where it is absent: none of 4 layers has a window.
  CHECK(parsed_hf(hf_llama("\"sliding_window\": 64, \"use_sliding_window\": true", "qwen2")).windows.empty());
  const std::string use =
      "\"sliding_window\": 64, \"use_sliding_window\": true, \"head_dim\": 8, \"num_experts\": 8, "
      "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, "
      "\"shared_expert_intermediate_size\": 32, \"max_window_layers\": ";
  CHECK(parsed_hf(hf_llama(use + "3", "qwen2_moe")).windows == Windows{64, 0, 64, 0});
  CHECK(parsed_hf(hf_llama(use + "2", "qwen2_moe")).windows == Windows{64, 0, 0, 0});
  CHECK(parsed_hf(hf_llama(use + "null", "qwen2_moe")).windows == Windows{64, 0, 64, 0});
  CHECK(parsed_hf(hf_llama("\"sliding_window\": 64, \"use_sliding_window\": true, \"head_dim\": 8, \"num_experts\": 8, "
                           "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, \"max_window_layers\": 3",
                           "qwen3_moe"))
            .windows == Windows{64, 64, 64, 64});
  CHECK(hf_refusal(hf_llama("", "mistral")) ==
        "config.json: sliding_window: is missing; write its tokens, or null for none");
  CHECK(parsed_hf(hf_llama("\"sliding_window\": 64, \"head_dim\": 8", "gemma2")).windows == Windows{64, 0, 64, 0});
  CHECK(parsed_hf(hf_llama("\"sliding_window\": 64, \"head_dim\": 8, \"sliding_window_pattern\": 3", "gemma3_text"))
            .windows == Windows{64, 64, 0, 64});
  const std::string types =
      R"("layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"])";
  CHECK(parsed_hf(hf_llama("\"sliding_window\": 64, " + types, "mistral")).windows == Windows{0, 64, 64, 0});
  CHECK(hf_refusal(hf_llama("\"sliding_window\": 64, \"layer_types\": [\"full_attention\"]", "mistral")) ==
        "config.json:5:39: layer_types: [\"full_attention\"] is not a list of 4 entries, one a layer; correct it");
  CHECK(hf_refusal(hf_llama("\"sliding_window\": 64, \"layer_types\": [\"a\", \"b\", \"c\", \"d\"]", "mistral"))
            .find("neither full_attention nor sliding_attention") != std::string::npos);
}

TEST_CASE("Blocks with experts follow decoder_sparse_step, mlp_only_layers and first_k_dense_replace") {
  using Sparse = std::vector<char>;
  const std::string experts =
      "\"head_dim\": 8, \"num_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, ";
  CHECK(parsed_hf(hf_llama(experts + "\"decoder_sparse_step\": 2", "qwen3_moe")).sparse == Sparse{0, 1, 0, 1});
  CHECK(parsed_hf(hf_llama(experts + "\"mlp_only_layers\": [1]", "qwen3_moe")).sparse == Sparse{1, 0, 1, 1});
  CHECK(parsed_hf(hf_llama(experts + "\"mlp_only_layers\": []", "qwen3_moe")).sparse.empty());
  CHECK(hf_refusal(hf_llama(experts + "\"mlp_only_layers\": [0, 1, 2, 3, 3]", "qwen3_moe"))
            .find("mlp_only_layers: [0,1,2,3,3] is not a list of at most 4 layers; correct it") != std::string::npos);
  CHECK(hf_refusal(hf_llama(experts + "\"mlp_only_layers\": [4]", "qwen3_moe"))
            .find("has an entry that is not a layer from 0 to 3") != std::string::npos);
}

TEST_CASE("A sparse model never becomes a dense one silently") {
  CHECK(hf_refusal(hf_llama("\"num_local_experts\": 8")) ==
        "config.json:5:23: num_local_experts: 8 is not known for model_type \"llama\"; without it the model would be "
        "another: remove it, or correct model_type");
  CHECK(hf_refusal(hf_llama("\"sliding_window\": null, \"kv_lora_rank\": 512", "mistral"))
            .find("kv_lora_rank: 512 is not known") != std::string::npos);
  CHECK(hf_refusal(hf_llama("\"head_dim\": 8, \"moe_intermediate_size\": 32", "qwen3"))
            .find("moe_intermediate_size: 32") != std::string::npos);
  CHECK(hf_refusal(hf_llama("\"head_dim\": 8, \"num_experts_per_tok\": 2", "qwen3_moe")) ==
        "config.json: num_experts: is missing; write a whole number from 1 to 100000000");
  CHECK(hf_refusal(hf_llama("\"num_local_experts\": 0")).empty());  // what some tools write into dense configurations
  CHECK(hf_refusal(hf_llama("\"num_local_experts\": null")).empty());
}

TEST_CASE("An unknown model_type is refused with the known ones") {
  CHECK(
      hf_refusal("{\"model_type\": \"lama\"}") ==
      "config.json:1:16: model_type: unknown \"lama\"; did you mean \"llama\"? known: bert, deepseek_v2, deepseek_v3, "
      "gemma, gemma2, gemma3_text, gpt2, gpt_neox, gpt_oss, llama, mistral, mixtral, mpt, nemotron, nemotron_h, "
      "olmo2, qwen2, qwen2_moe, qwen3, qwen3_5_moe_text, qwen3_5_text, qwen3_moe, qwen3_next, t5, vit");
  CHECK(hf_refusal("{}") ==
        "config.json: is not a Hugging Face configuration: model_type is missing; name a config.json of a model, e.g. "
        "with "
        "\"model_type\": \"llama\"");
  CHECK(hf_refusal("{\"model_type\": 3}") == "config.json:1:16: model_type: 3 is not text; correct it");
}

TEST_CASE("A byte-order mark in front of a configuration is skipped; the digest in the report is that of the file") {
  const Scratch scratch;
  const std::string marked = "\xef\xbb\xbf" + hf_llama("");
  const Model model = read_hf_config(scratch.write("marked.json", marked), {});
  CHECK(model.source.find("sha256 " + sha256(marked)) != std::string::npos);
  const std::string wrong = scratch.write("wrong.json", "\xef\xbb\xbf{\"model_type\": \"no\"}");
  CHECK(message_of([&] { read_hf_config(wrong, {}); }).find("wrong.json:1:16: model_type") != std::string::npos);
}

TEST_CASE("Missing and wrong fields are named with their place, value and law") {
  CHECK(hf_refusal("{\"model_type\": \"llama\"}") ==
        "config.json: num_hidden_layers: is missing; write a whole number from 1 to 100000");
  CHECK(hf_refusal(hf_llama("\"num_key_value_heads\": 3")) ==
        "config.json:5:25: num_key_value_heads: 3 does not divide num_attention_heads 8; use a divisor");
  CHECK(hf_refusal(hf_llama("\"num_key_value_heads\": 0")) ==
        "config.json:5:25: num_key_value_heads: 0 is not a whole number from 1 to 100000000; correct it");
  CHECK(hf_refusal(hf_llama("\"head_dim\": -8")) ==
        "config.json:5:14: head_dim: -8 is not a whole number from 1 to 100000000; correct it");
  CHECK(hf_refusal(hf_llama("\"head_dim\": 8.5")).find("head_dim: 8.5 is not a whole number") != std::string::npos);
  CHECK(hf_refusal(hf_llama("\"head_dim\": \"8\"")).find("head_dim: \"8\" is not a whole number") != std::string::npos);
  CHECK(hf_refusal(hf_llama("\"head_dim\": 18446744073709551615")).find("is not a whole number") != std::string::npos);
  CHECK(hf_refusal(hf_llama("\"mlp_bias\": 1")) ==
        "config.json:5:14: mlp_bias: 1 is neither true nor false; correct it");
  CHECK(hf_refusal(hf_llama("\"attention_dropout\": 2")) ==
        "config.json:5:23: attention_dropout: 2 is not a probability below 1; correct it");
  CHECK(hf_refusal(hf_llama("\"hidden_act\": \"selu\""))
            .find("config.json:5:16: hidden_act: \"selu\" is not known; write one of silu") == 0);
  CHECK(
      hf_refusal("{\"model_type\": \"bert\", \"architectures\": [\"BertForTokenClassification\"], \"hidden_size\": 8, "
                 "\"num_hidden_layers\": 1, \"num_attention_heads\": 1, \"intermediate_size\": 8, \"vocab_size\": 8, "
                 "\"max_position_embeddings\": 8}") ==
      "config.json:1:41: architectures: [\"BertForTokenClassification\"] is not known; write one of BertModel, "
      "BertForMaskedLM, BertForPreTraining");
}

TEST_CASE("A text model inside a wrapping configuration is read, and its places are those of the inner field") {
  const std::string inner = hf_llama("\"num_key_value_heads\": 2");
  const HfConfig config = parse_hf_config(
      "{\"model_type\": \"llava\", \"vision_config\": {\"hidden_size\": 7},\n\"text_config\": " + inner + "}",
      "x/LLaVA/config.json", {});
  CHECK(config.transformer.hidden == 64);
  CHECK(config.transformer.key_heads == 2);
  CHECK(config.transformer.name == "LLaVA");
  CHECK(config.notes.front() == "only the text model of a wrapping configuration (llava) is built");
  CHECK(hf_refusal("{\"model_type\": \"llava\",\n\"text_config\": " + hf_llama("\"head_dim\": 0") + "}") ==
        "config.json:6:14: text_config.head_dim: 0 is not a whole number from 1 to 100000000; correct it");
}

TEST_CASE("What is not a JSON, cut off, nested without end, or too large is refused") {
  CHECK(hf_refusal("") == "config.json: is empty; a config.json is needed");
  CHECK(
      hf_refusal("[1]") ==
      "config.json:1:1: is not a config.json of Hugging Face, which is one JSON object, {...}; look at its first line");
  const std::string whole = hf_llama();
  CHECK(hf_refusal(whole.substr(0, 40)).find("config.json:2:") == 0);
  CHECK(
      hf_refusal(whole.substr(0, 40)).find("it ends within a value, so the file may be cut off; copy the file again") !=
      std::string::npos);
  CHECK(
      hf_refusal("model:\n  layers: 3") ==
      "config.json:1:1: is not a config.json of Hugging Face, which is one JSON object, {...}; look at its first line");
  CHECK(hf_refusal("{\"a\": }").find("config.json:1:7: not valid JSON: \"}\" is not expected here; ") == 0);
  CHECK(hf_refusal("{\"a\": \"\xff\"}").find("not valid JSON: byte 0xff is not UTF-8 text") != std::string::npos);
  CHECK(hf_refusal(std::string(100'000, '[')).starts_with("config.json:1:1: is not a config.json of Hugging Face"));
  std::string objects;
  for (int i = 0; i < 50'000; ++i)
    objects += "{\"a\":";
  CHECK(hf_refusal(objects) == "config.json: nests deeper than 32 levels; copy the file again from its publisher");
  CHECK(hf_refusal("{\"model_type\": 1e999}") ==
        "config.json:1:16: not valid JSON: the number 1e999 is out of range; copy the file again from its publisher");
  const Scratch scratch;
  const std::string path = scratch.write("config.json", "{}");
  std::filesystem::resize_file(path, std::size_t{1} << 30);  // sparse: takes no disk
  CHECK(message_of([&] { read_hf_config(path, {}); }, scratch.path("")).find("config.json: is larger than 8 MiB") == 0);
}

TEST_CASE("Every cut of a configuration is read or refused, never a crash") {
  const std::string text = read_file(shipped("deepseek-v3"));
  for (std::size_t size = 0; size < text.size() - 2; ++size)
    CHECK_FALSE(hf_refusal(text.substr(0, size)).empty());
}

TEST_CASE("A scenario names a configuration, and what import writes of it reads back to the same model") {
  const Scratch scratch;
  scratch.write("config.json", hf_llama("\"num_key_value_heads\": 2"));
  const std::string yaml = scratch.write("m.yaml", "model: {hf: config.json, sequence_length: 128, name: mine}\n");
  const Model model = read_model(yaml);
  CHECK(model.name == "mine");
  CHECK(model.tokens == 128);
  CHECK(model.layers.size() == 6);
  CHECK(model.form.front() == std::pair<std::string, std::string>{"family", "decoder"});
  const std::string written = model_yaml(model, "from here");
  CHECK(written.find("  name: mine\n  family: decoder\n  layers: 4\n") != std::string::npos);
  const Model back = read_model(scratch.write("back.yaml", written));
  CHECK(parameters_of(back) == parameters_of(model));
  CHECK(flop_count(back).training() == flop_count(model).training());
  CHECK(back.tokens == 128);
  // The third of four blocks alone is dense: no family has such a rule, so the configuration stays the description.
  scratch.write("odd.json", hf_llama("\"head_dim\": 8, \"num_experts\": 8, \"num_experts_per_tok\": 2, "
                                     "\"moe_intermediate_size\": 32, \"mlp_only_layers\": [2]",
                                     "qwen3_moe"));
  const Model odd = read_model(scratch.write("odd.yaml", "model: {hf: odd.json, attention: materialised}\n"));
  CHECK(odd.form.front().first == "hf");
  CHECK(odd.form.front().second.find(scratch.path("odd.json")) != std::string::npos);
  const Model odd_back = read_model(scratch.write("odd_back.yaml", model_yaml(odd, "from here")));
  CHECK(parameters_of(odd_back) == parameters_of(odd));
  CHECK(odd_back.works.size() == 4);  // embedding, sparse, dense, head
}

TEST_CASE("A configuration is named like a model file: by path, or by its name in a config folder") {
  const Scratch scratch;
  scratch.write("configs/models/hf/tiny.json", hf_llama());
  scratch.write("configs/models/hf/both.json", hf_llama());
  scratch.write("configs/models/both.yaml", "model: {layers: [{name: a, forward: 1 ms, backward: 1 ms}]}\n");
  scratch.write("near/config.json", hf_llama());
  ReadOptions options{.set = {}, .config_path = {scratch.path("configs")}};
  const auto model = [&](const std::string& text) {
    return read_scenario(scratch.write("near/s.yaml", ScenarioText{.model = text, .plan = "auto"}.text()), options)
        .model;
  };
  const Model by_form = model("{hf: config.json}");
  CHECK(by_form.tokens == 512);
  for (const char* text : {"tiny", "{hf: tiny}", "./config.json", "config.json", "{file: config.json}"}) {
    CAPTURE(text);
    const Model found = model(text);
    CHECK(parameters_of(found) == parameters_of(by_form));
    CHECK(found.form == by_form.form);
  }
  CHECK(model("both").layers.size() == 1);  // a model file comes before a configuration
  CHECK(model("tiny").name == "tiny");
  CHECK(config_files("models", options) ==
        std::vector{scratch.path("configs/models/both.yaml"), scratch.path("configs/models/hf/tiny.json")});
  CHECK(read_model(scratch.path("configs/models/hf/tiny.json"), options).tokens == 512);
  options.set = {"model.sequence_length=32"};
  CHECK(model("tiny").tokens == 32);
  CHECK(model("./config.json").tokens == 32);
  options.set.clear();
  const auto refused = [&](const std::string& text) { return message_of([&] { model(text); }, scratch.path("near/")); };
  CHECK(refused("tyni") ==
        "s.yaml:1:8: model: unknown \"tyni\"; did you mean \"tiny\"? known: both, tiny; a path needs a "
        "\"/\" or must end in .yaml or .json");
  CHECK(refused("{hf: tyni}") == "s.yaml:1:13: model.hf: unknown \"tyni\"; did you mean \"tiny\"? known: tiny");
  CHECK(refused("./absent.json").find("s.yaml:1:8: model.hf: ") == 0);
}

TEST_CASE("A configuration in place of a scenario is told with the way to one") {
  const Scratch scratch;
  const std::string config = scratch.write("config.json", hf_llama());
  CHECK(message_of([&] { read_scenario(config, {}); }, scratch.path(""))
            .find("config.json:1:1: this is a Hugging Face configuration, not a scenario; write one with it: "
                  "pipewright init "
                  "scenario.yaml --model ") == 0);
}

TEST_CASE("Wrong keys beside hf are named with their place") {
  const auto with = [](const std::string& keys) {
    const Scratch scratch;
    scratch.write("config.json", hf_llama());
    const std::string path = scratch.write("m.yaml", "model: {hf: config.json" + keys + "}\n");
    return message_of([&] { read_model(path); }, scratch.path(""));
  };
  CHECK(with("") == "");
  CHECK(with(", sequence_length: 0").find("m.yaml:1:43: model.sequence_length") == 0);
  CHECK(with(", attention: flush").find("m.yaml:1:37: model.attention: ") == 0);
  CHECK(with(", attention: flush").find("unknown \"flush\"; did you mean \"flash\"? known: flash, materialised") !=
        std::string::npos);
  CHECK(with(", family: gpt") == "m.yaml:1:26: model: hf and family exclude each other; keep one of them");
  CHECK(with(", next_token_modules: 1").find("m.yaml:1:13: model.hf: config.json:2:16: next_token_modules: 1 where") ==
        0);
  CHECK(with(", sequence_lenght: 1").find("sequence_length") != std::string::npos);
}
