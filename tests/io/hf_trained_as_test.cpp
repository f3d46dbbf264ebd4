// Hugging Face configurations: what a model is trained with, and where it comes from.
#include <doctest/doctest.h>

#include "core/model/families/transformer_families.hpp"
#include "io/import/hf.hpp"
#include "io/read/read_file.hpp"
#include "io/read/trained_as.hpp"
#include "io/store/sha256.hpp"
#include "tests/io/hf_configs.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/family_model.hpp"

using namespace pipewright::tests;

TEST_CASE("What a configuration is trained with is kept: base and scaling of rotary positions, epsilon of norms") {
  const auto of = [](const std::string& text) { return parse_hf_config(text, "config.json", {}).trained_as; };
  const TrainedAs known =
      of(hf_llama("\"rope_theta\": 500000.0, \"rms_norm_eps\": 1e-05, \"rope_scaling\": {\"rope_type\": \"llama3\", "
                  "\"factor\": 8.0, "
                  "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}"));
  CHECK(known.rope_theta == 500000.0);
  CHECK(known.norm_epsilon == 1e-05);
  REQUIRE(known.rope_scaling);
  CHECK(*known.rope_scaling == RopeScaling{.type = RopeScalingType::Llama3,
                                           .factor = 8,
                                           .original_length = 8192,
                                           .low_freq_factor = 1,
                                           .high_freq_factor = 4});
  CHECK(of(hf_llama()) == TrainedAs{});  // what is not stated is not guessed
  CHECK(of(hf_llama("\"rope_theta\": 10000, \"rope_scaling\": null")) == TrainedAs{.rope_theta = 10000.0});
  // As later versions of transformers write it, and with a table for each kind of block.
  CHECK(of(hf_llama("\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e6}")).rope_theta == 1e6);
  CHECK(of(hf_llama("\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1e6}, \"sliding_attention\": "
                    "{\"rope_theta\": 1e4}}"))
            .rope_theta == 1e6);
  CHECK(of(hf_llama("\"rotary_emb_base\": 10000, \"layer_norm_eps\": 1e-5", "gpt_neox")).rope_theta == 10000.0);
  const HfConfig other =
      parse_hf_config(hf_llama("\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1]}"), "config.json", {});
  CHECK_FALSE(other.trained_as.rope_scaling);
  CHECK(other.notes.back() == "rope_scaling of type longrope is not kept");
  CHECK(other.trained_as.rope_scaling_not_kept == "longrope");
  CHECK(of(hf_llama("\"rope_scaling\": {\"type\": \"a b\\n$(c)\"}")).rope_scaling_not_kept == "a_b___c_");
  // The scores of yarn: 0 is their publisher's default.
  const TrainedAs unscaled =
      of(hf_llama("\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, \"mscale\": 0.707, \"mscale_all_dim\": 0}"));
  CHECK(unscaled.rope_scaling->mscale == 0.707);
  CHECK_FALSE(unscaled.rope_scaling->mscale_all_dim.has_value());
  CHECK(
      hf_refusal(
          hf_llama("\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 0.5}"))
          .find("config.json:") != std::string::npos);
  CHECK(hf_refusal(hf_llama("\"rms_norm_eps\": 2")).find("is not a number above 0, below 1; correct it") !=
        std::string::npos);
  for (const char* wrong : {"\"rope_theta\": -1", "\"rope_theta\": \"10000\"", "\"rms_norm_eps\": 0"})
    CHECK(hf_refusal(hf_llama(wrong)).find("is not a number above 0") != std::string::npos);
  CHECK(hf_refusal(hf_llama("\"rope_scaling\": {\"type\": \"linear\"}")).find("has no factor of at least 1") !=
        std::string::npos);
  CHECK(hf_refusal(hf_llama("\"rope_scaling\": 8")).find("is not an object") != std::string::npos);
}

TEST_CASE("Every shipped configuration states its norms' epsilon, and its rotary base where it has one") {
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(shipped("x")).parent_path())) {
    const HfConfig config = parse_hf_config(read_file(entry.path().string()), "config.json", {});
    CAPTURE(entry.path().string());
    CHECK(config.trained_as.norm_epsilon.has_value());
    CHECK(config.trained_as.rope_theta.has_value() == (config.transformer.positions == Transformer::Positions::Rotary));
  }
}

TEST_CASE("How experts are chosen is kept, by the type of the model and by its words") {
  const Scratch scratch;
  const std::string path = scratch.write("deepseek.yaml", "model: {hf: " + shipped("deepseek-v3") + "}\n");
  const Model model = read_model(path);
  const Routing published{.scores = RouterScores::Sigmoid, .groups = 8, .groups_used = 4, .scale = 2.5};
  REQUIRE(trained_as(model).routing);
  CHECK(*trained_as(model).routing == published);
  CHECK(*trained_as(read_model(scratch.write("back.yaml", model_yaml(model, "")))).routing == published);
  const auto changed = [&](const std::string& routing) {
    return scratch.write("changed.yaml",
                         "model: {hf: " + shipped("deepseek-v3") + ", trained_as: {routing: " + routing + "}}\n");
  };
  CHECK(*trained_as(read_model(changed("{scores: softmax}"))).routing == Routing{});
  CHECK(message_of([&] {
          read_model(changed("{scores: sigmoid, groups: 2, groups_used: 4}"));
        }).find("groups_used: is more than groups") != std::string::npos);
  std::string text = read_file(shipped("deepseek-v3"));
  const auto with = [&](const std::string& before, const std::string& after) {
    std::string other = text;
    return other.replace(other.find(before), before.size(), after);
  };
  CHECK(hf_refusal(with("\"topk_group\": 4", "\"topk_group\": 9")).find("is more than the 8 of n_group") !=
        std::string::npos);
  CHECK(parse_hf_config(with("\"scoring_func\": \"sigmoid\",", ""), "config.json", {}).trained_as.routing == published);
  CHECK_FALSE(parse_hf_config(read_file(shipped("mixtral-8x7b")), "config.json", {}).trained_as.routing);
}

TEST_CASE("What a model is trained with, and where it comes from, goes to a written file and back") {
  const Scratch scratch;
  scratch.write("config.json", hf_llama("\"rope_theta\": 1e6, \"rms_norm_eps\": 1e-06, \"rope_scaling\": {\"type\": "
                                        "\"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 32768}"));
  const Model model = read_model(scratch.write("m.yaml", "model: {hf: config.json, name: mine}\n"));
  const std::string written = model_yaml(model, "from here");
  const Model back = read_model(scratch.write("back.yaml", written));
  CHECK(trained_as(back) == trained_as(model));
  CHECK(trained_as(back).rope_theta == 1e6);
  CHECK(trained_as(back).rope_scaling->original_length == 32768);
  CHECK(model.source.find("Hugging Face configuration config.json, sha256 ") == 0);
  CHECK(back.source == model.source);
  CHECK(model_yaml(back, "from here").find(written.substr(written.find("  trained_as:"))) != std::string::npos);
  // Keys beside hf come before those of the file.
  const Model changed =
      read_model(scratch.write("changed.yaml", "model: {hf: config.json, trained_as: {rope_theta: 5e5}}\n"));
  CHECK(trained_as(changed).rope_theta == 5e5);
  CHECK(trained_as(changed).norm_epsilon == 1e-06);
}

TEST_CASE("The type of a rope scaling that is not kept goes to a written file and back, until a scaling is stated") {
  const Scratch scratch;
  scratch.write("config.json", hf_llama("\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1]}"));
  const Model model = read_model(scratch.write("m.yaml", "model: {hf: config.json, name: mine}\n"));
  CHECK(trained_as(model).rope_scaling_not_kept == "longrope");
  CHECK(model.source.find("rope_scaling of type longrope is not kept") != std::string::npos);
  CHECK(trained_as(read_model(scratch.write("back.yaml", model_yaml(model, "")))) == trained_as(model));
  const Model stated = read_model(
      scratch.write("stated.yaml", "model: {hf: config.json, trained_as: {rope_scaling: {type: yarn, factor: 4}}}\n"));
  CHECK(trained_as(stated).rope_scaling_not_kept.empty());
  CHECK(trained_as(stated).rope_scaling->factor == 4);
}

TEST_CASE("A family writes back numbers within their ranges only, which its JSON Schema takes") {
  const Scratch scratch;
  const Model model = read_model(scratch.write(
      "m.yaml", "model: {family: decoder, layers: 2, hidden: 64, heads: 8, feed_forward: 128, vocabulary: 100}\n"));
  for (const FamilyParameter& parameter : kDecoderFamily.parameters)
    for (const auto& [key, value] : model.form)
      if (key == parameter.name && parameter.is_number()) CHECK(std::stoll(value) >= parameter.least);
  CHECK(model_yaml(model, "").find("head_size") == std::string::npos);  // hidden / heads, as nothing else was said
  CHECK(model_yaml(read_model(scratch.write("back.yaml", model_yaml(model, ""))), "") == model_yaml(model, ""));
}

TEST_CASE("Wrong keys of trained_as are named with their place") {
  const auto with = [](const std::string& keys) {
    const Scratch scratch;
    const std::string path = scratch.write("m.yaml", "model: {" + keys + "}\n");
    return message_of([&] { read_model(path); });
  };
  const std::string decoder = "family: decoder, layers: 2, hidden: 64, heads: 8, feed_forward: 128, trained_as: ";
  CHECK(with(decoder + "{rope_theta: 0}").find("model.trained_as.rope_theta: \"0\" must be more than 0") !=
        std::string::npos);
  CHECK(with(decoder + "{norm_epsilon: 1}").find("must be more than 0, below 1") != std::string::npos);
  CHECK(with(decoder + "{rope_scaling_not_kept: \"a\\nb\"}").find("must be 1 to 64 letters, digits, _ or -") !=
        std::string::npos);
  CHECK(with(decoder + "{theta: 1}").find("unknown key \"model.trained_as.theta\"") != std::string::npos);
  CHECK(with(decoder + "{rope_scaling: {type: yran, factor: 2}}").find("did you mean \"yarn\"") != std::string::npos);
  CHECK(with(decoder + "{rope_scaling: {type: yarn}}").find("rope_scaling.factor is missing") != std::string::npos);
  CHECK(with("family: decoder, layers: 2, hidden: 64, heads: 8, feed_forward: 128, positions: none, trained_as: "
             "{rope_theta: 10000}")
            .find("is for rotary positions, which this model has not") != std::string::npos);
  CHECK(with("family: gpt, layers: 2, hidden: 64, heads: 8, trained_as: {rope_theta: 10000}")
            .find("is for rotary positions, which this model has not") != std::string::npos);
}
