// Transformer families against their papers: parameter counts as integers, kept tensors and FLOPs as identities.
#include <cmath>

#include <doctest/doctest.h>

#include "core/model/families/transformer_families.hpp"
#include "core/model/flops.hpp"
#include "tests/support/backward_flops.hpp"
#include "tests/support/family_model.hpp"

using namespace pipewright::tests;

namespace {

std::string text(std::int64_t value) {
  return std::to_string(value);
}

// One GPT block of [Korthikanti22]: h = 6144, 64 heads, s = 2048, the 22B model.
Model gpt_22b(const char* attention = "materialised") {
  return family_model("gpt", {{"layers", "48"},
                              {"hidden", "6144"},
                              {"heads", "64"},
                              {"vocabulary", "51200"},
                              {"sequence_length", "2048"},
                              {"attention", attention},
                              {"dropout", "yes"}});
}

namespace letters {
constexpr double s = 2048, h = 6144, a = 64, v = 51200;
}
constexpr Bytes kHalf{2};

// Everything that the backward of a block needs: its input and what it keeps.
double held(const Work& work, const Amount& kept, TensorParallel split) {
  return work.inputs[0].on_device(kHalf, split) + kept.on_device(kHalf, split);
}

}  // namespace

TEST_CASE("Transformer-L has 50,358,272 L + 131,108,096 parameters") {
  // Per layer 4h^2 + 4h (attention), 2hf + h + f (feed-forward), 4h (two norms); h = 2048, f = 8192:
  //   16,785,408 + 33,564,672 + 8,192 = 50,358,272.   Besides: 2Vh + V + 2h = 131,072,000 + 32,000 + 4,096.
  struct Row {
    std::int64_t layers, parameters;
  };
  for (const auto& [layers, parameters] : {Row{3, 282'182'912}, Row{13, 785'765'632}, Row{103, 5'318'010'112},
                                           Row{415, 21'029'790'976}, Row{1663, 83'876'914'432}}) {
    const Model model = family_model("transformer", {{"layers", text(layers)}});
    CHECK(parameters_of(model) == parameters);
    CHECK(parameters_of(model) == 50'358'272 * layers + 131'108'096);
    CHECK(model.layers.size() == static_cast<std::size_t>(layers) + 2);
    CHECK(model.works.size() == 3);  // embedding, block, head: however many layers
  }
}

TEST_CASE("The translation models T(L, H, A) of GPipe have the sizes that it prints") {
  // d = 1024, i = 64 A. Encoder block: 4di + 3i + d, 2dH + d + H, 4d; decoder block: 4di + 3i + d + 2d more.
  // L (8di + 6i + 4dH + 14d + 2H) + 3Vd + V + 4d.
  struct Row {
    std::int64_t layers, inner, heads;
    double printed, unit;
  };
  for (const Row& row : {Row{12, 16384, 32, 1.3, 0.1}, Row{24, 8192, 16, 1.3, 0.1}, Row{32, 16384, 32, 3, 1},
                         Row{64, 16384, 32, 6, 1}}) {
    const Model model =
        family_model("transformer_mt",
                     {{"layers", text(row.layers)}, {"feed_forward", text(row.inner)}, {"heads", text(row.heads)}});
    const std::int64_t d = 1024, V = 64000, i = 64 * row.heads;
    const std::int64_t attention = 4 * d * i + 3 * i + d, feed_forward = 2 * d * row.inner + d + row.inner;
    CHECK(parameters_of(model) ==
          row.layers * (3 * attention + 2 * feed_forward + 5 * 2 * d) + 3 * V * d + V + 2 * 2 * d);
    CHECK(std::round(static_cast<double>(parameters_of(model)) / 1e9 / row.unit) * row.unit ==
          doctest::Approx(row.printed));
  }
}

TEST_CASE("GPT has the parameters of Megatron's formula and its final norm") {
  // P = 12 l h^2 (1 + 13 / 12h + (V + s) / 12lh) = 12 l h^2 + 13 l h + (V + s) h        [Megatron21] section 5.1;
  // the formula leaves out the final norm's 2h.
  struct Row {
    double billions;
    std::int64_t heads, hidden, layers;
  };
  for (const auto& [billions, heads, hidden, layers] :
       {Row{1.7, 24, 2304, 24}, Row{3.6, 32, 3072, 30}, Row{7.5, 32, 4096, 36}, Row{18.4, 48, 6144, 40},
        Row{39.1, 64, 8192, 48}, Row{76.1, 80, 10240, 60}}) {
    const Model model =
        family_model("gpt", {{"layers", text(layers)}, {"hidden", text(hidden)}, {"heads", text(heads)}});
    const std::int64_t formula = 12 * layers * hidden * hidden + 13 * layers * hidden + (51200 + 2048) * hidden;
    CHECK(parameters_of(model) == formula + 2 * hidden);
    CHECK(std::round(static_cast<double>(formula) / 1e8) / 10 == doctest::Approx(billions));
  }
}

TEST_CASE("GPT has the FLOPs of Megatron's formula") {
  using namespace letters;
  // 72 s l h^2 (1 + s / 6h + V / 12lh) per sample without recomputation, 96 s l h^2 (1 + s / 6h + V / 16lh) with:
  // its logits are not computed twice, 96 and V / 16 are 72 and V / 12 of the same product. [Megatron21] equation 3
  const Model model = gpt_22b();
  const double l = 48, forward = 24 * s * l * h * h + 4 * s * s * l * h + 2 * s * h * v;
  CHECK(flop_count(model).forward == forward);
  CHECK(flop_count(model).training() == 3 * forward);
  CHECK(3 * forward == doctest::Approx(72 * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h))).epsilon(1e-14));
}

TEST_CASE("A GPT block keeps s b h (34 + 5 a s / h) bytes") {
  using namespace letters;
  // Attention 11 s h + 5 a s^2: its input 2, queries, keys, values 6, the projection's input 2, a mask 1; softmax 2,
  // its mask 1 and what passes it 2. Feed-forward 19: 2 + 8 + 8 + mask 1. Norms 4.     [Korthikanti22] section 4.1
  const Model model = gpt_22b();
  const Work& block = work_of(model, "block.7");
  CHECK(held(block, block.kept, {}) == 34 * s * h + 5 * a * s * s);
  CHECK(held(block, kept_without(block, {Module::AttentionCore}), {}) == 34 * s * h);
  CHECK(block.inputs[0].on_device(kHalf, {}) == 2 * s * h);  // full recomputation keeps this alone
  CHECK(block.keeps_input == std::vector<char>{1});
  CHECK_FALSE(block.keeps_output);
}

TEST_CASE("Selective recomputation drops what its modules make for themselves") {
  using namespace letters;
  // Of 34 s h + 5 a s^2: scores and what is made of them; outputs of both norms, 2 each; what the feed-forward keeps
  // between its products, 16. The input of a feed-forward stays unless its norm is rebuilt, too.
  const Model model = gpt_22b();
  const Work& block = work_of(model, "block.7");
  const auto without = [&](Modules modules) { return held(block, kept_without(block, modules), {}); };
  const double scores = 5 * a * s * s;
  CHECK(without({}) == 34 * s * h + scores);
  CHECK(without({Module::Norm}) == 30 * s * h + scores);
  CHECK(without({Module::FeedForward}) == 18 * s * h + scores);
  CHECK(without({Module::Norm, Module::FeedForward}) == 14 * s * h + scores);
  CHECK(without({Module::AttentionCore, Module::Norm, Module::FeedForward}) == 14 * s * h);
  CHECK(without({Module::Experts, Module::ExpertActivation}) == 34 * s * h + scores);  // it has none
}

TEST_CASE("Tensor parallelism divides 24 of the 34, sequence parallelism all") {
  using namespace letters;
  // s b h (10 + 24 / t + 5 a s / (h t)) and s b h / t (34 + 5 a s / h)               [Korthikanti22] section 4.2
  const Model model = gpt_22b();
  const Work& block = work_of(model, "block.0");
  for (const int t : {2, 4, 8, 16}) {
    CHECK(held(block, block.kept, {t, false}) == 10 * s * h + (24 * s * h + 5 * a * s * s) / t);
    CHECK(held(block, kept_without(block, {Module::AttentionCore}), {t, false}) == 10 * s * h + 24 * s * h / t);
    CHECK(held(block, block.kept, {t, true}) == (34 * s * h + 5 * a * s * s) / t);
    CHECK(held(block, kept_without(block, {Module::AttentionCore}), {t, true}) == 34 * s * h / t);
    CHECK(block.inputs[0].on_device(kHalf, {t, true}) == 2 * s * h / t);
  }
}

TEST_CASE("Replay: checkpoints by operator save attention and every second product") {
  // Llama 3 8B. qkv 1, out 2, gate 3, up 4, down 5: the outputs of 1, 3 and 5 are saved, and attention's with the sums of
  // its rows.
  const double s = 8192, h = 4096, g = 1024, f = 14336, a = 32;
  const Model model = family_model("decoder", {{"layers", "32"},
                                               {"hidden", "4096"},
                                               {"heads", "32"},
                                               {"key_heads", "8"},
                                               {"feed_forward", "14336"},
                                               {"vocabulary", "128256"},
                                               {"sequence_length", "8192"}});
  const Work& block = work_of(model, "block.3");
  const auto bytes = [&](TensorParallel split) { return replay_bytes(block, kHalf, split); };
  const double qkv = 2 * s * (h + 2 * g), attention = 2 * s * h + 4 * s * a, gate = 2 * s * f, down = 2 * s * h;
  CHECK(bytes({}).saved == qkv + attention + gate + down);
  // Behind the gated product all is there that the backward reads, and the output of `down` still waits to be read.
  CHECK(bytes({}).most == block.kept.on_device(kHalf, {}) + down);
  double repeated = 0;
  REQUIRE(block.replay.size() == block.operators.size());
  for (std::size_t i = 0; i < block.replay.size(); ++i)
    if (block.operators[i].product) repeated += block.replay[i].again * block.operators[i].forward_flops;
  CHECK(repeated == 2 * s * h * h + 2 * s * h * f);
  // Of `down` each of t devices has a whole sum of its own; with sequence parallelism what is scattered of it and of `out`
  // is saved, too.
  CHECK(bytes({4, false}).saved == (qkv + attention + gate) / 4 + down);
  CHECK(bytes({4, true}).saved == (qkv + attention + gate) / 4 + down + 2 * down / 4);
  // Products with a bias are addmm: all are saved. Scores that are kept come from two products of their own.
  const Model gpt = gpt_22b();
  const Work& biased = work_of(gpt, "block.3");
  for (std::size_t i = 0; i < biased.replay.size(); ++i)
    CHECK(biased.replay[i].again == (biased.operators[i].product ? 0 : 1));
  CHECK(replay_bytes(biased, kHalf, {}).saved == 2 * letters::s * letters::h * (3 + 1 + 4 + 1) +
                                                     2 * letters::a * letters::s * letters::s +
                                                     2 * letters::s * letters::h);
  CHECK(work_of(model, "head").replay.empty());
}

TEST_CASE("The first stage of the 22B model keeps 59.25 GiB of activations, 9.5625 GiB with both savings") {
  // 48 layers, micro-batches of 4, t = 8.                                                [Korthikanti22] figure 1
  const Model model = gpt_22b();
  const Work& block = work_of(model, "block.0");
  const double gib = 1 << 30;
  CHECK(48 * 4 * held(block, block.kept, {8, false}) / gib == 59.25);
  CHECK(48 * 4 * held(block, kept_without(block, {Module::AttentionCore}), {8, true}) / gib == 9.5625);
}

TEST_CASE("The head keeps 4 s b h (1 + v / h) bytes, divided with sequence parallelism") {
  using namespace letters;
  // Inputs of the final norm and of the product, and fp32 logits.                      [Korthikanti22] section 4.3
  const Model model = gpt_22b();
  const Work& head = work_of(model, "head");
  CHECK(held(head, head.kept, {}) == 4 * s * h + 4 * s * v);
  CHECK(held(head, head.kept, {8, true}) == (4 * s * h + 4 * s * v) / 8);
}

TEST_CASE("Flash attention keeps what selective recomputation keeps, and one fp32 number per row and head") {
  using namespace letters;
  const Model model = gpt_22b("flash");
  const Work& block = work_of(model, "block.0");
  CHECK(held(block, block.kept, {}) == 34 * s * h + 4 * a * s);
}

TEST_CASE("A GPT block all-reduces twice each way, s h values at a time") {
  using namespace letters;
  const Model model = gpt_22b();
  const Work& block = work_of(model, "block.0");
  CHECK(block.reductions_forward == 2);
  CHECK(block.reductions_backward == 2);
  CHECK(block.reduced_forward.on_device(kHalf, {}) == 2 * 2 * s * h);
  CHECK(block.reduced_backward.on_device(kHalf, {}) == 2 * 2 * s * h);
  CHECK(block.shards == 64);  // heads; 24576 inner features are divisible further
}

TEST_CASE("Of a GPT block the products divide by columns and rows, norms and the biases of the rows stay whole") {
  using namespace letters;
  // Whole: two norms 4h, and the biases of projection and second product, 2h.
  const Model model = gpt_22b();
  const Work& block = work_of(model, "block.0");
  const auto hidden = static_cast<std::int64_t>(h);
  CHECK(block.parameters == 12 * hidden * hidden + 13 * hidden);
  CHECK(block.parameters - block.sharded_parameters == 6 * hidden);
}

TEST_CASE("A tied head uses the embedding's table and has none of its own") {
  const Model model = gpt_22b();
  CHECK(model.layers.back().name == "head");
  CHECK(model.layers.back().tied_to == 0);
  CHECK(work_of(model, "head").parameters == 2 * 6144);
  CHECK(work_of(model, "head").tied_parameters == 51200 * 6144);
  const Model untied = family_model("gpt", {{"layers", "1"}, {"hidden", "64"}, {"heads", "4"}, {"tied", "no"}});
  CHECK(untied.layers.back().tied_to == -1);
  CHECK(work_of(untied, "head").parameters == 51200 * 64 + 2 * 64);
}

TEST_CASE("BERT base has 109,482,240 parameters up to its pooler, 110,106,428 with the heads of its pre-training") {
  CHECK(parameters_of(family_model("bert", {{"head", "pooler"}})) == 109'482'240);
  // + 768^2 + 768 + 2 * 768 (transform), 30522 (bias of the tied decoder), 2 * 768 + 2 (next sentence)
  CHECK(parameters_of(family_model("bert", {})) == 110'106'428);
  // without pooler (590,592) and next sentence (1,538)
  CHECK(parameters_of(family_model("bert", {{"head", "masked_lm"}})) == 109'514'298);
}

TEST_CASE("T5 base has 222,903,552 parameters; each decoder block also reads the encoder's last") {
  const Model model = family_model("t5", {});
  CHECK(parameters_of(model) == 222'903'552);
  REQUIRE(model.layers.size() == 1 + 12 + 1 + 12 + 1);
  CHECK(model.layers[12].name == "encoder.11");
  CHECK(model.layers[13].name == "decoder_embedding");
  CHECK(model.layers[13].inputs.empty());
  CHECK(model.layers[13].tied_to == 0);
  CHECK(model.layers[14].inputs == std::vector<LayerId>{13, 12});
  CHECK(model.layers[25].inputs == std::vector<LayerId>{24, 12});
  CHECK(model.works.size() == 8);  // two embeddings, a head; encoder: with bias, inner, with the norm; decoder: two
  // T5 1.1 base: gated, untied: 247,577,856.
  CHECK(parameters_of(family_model("t5", {{"gated", "yes"}, {"feed_forward", "2048"}, {"tied", "no"}})) == 247'577'856);
}

TEST_CASE("A decoder shorter than its encoder has smaller tensors and attends to all of it") {
  const Model model = family_model("t5", {{"sequence_length", "512"}, {"target_length", "114"}});
  const Work& block = work_of(model, "decoder.3");
  CHECK(block.inputs[0].values == 114 * 768);
  CHECK(block.inputs[1].values == 512 * 768);
  CHECK(block.output().values == 114 * 768);
  CHECK(model.input_amount.fixed == 8 * (512 + 114));
}

TEST_CASE("ViT base with patches of 16 has 86,567,656 parameters and 197 tokens") {
  const Model model = family_model("vit", {});
  CHECK(parameters_of(model) == 86'567'656);
  CHECK(work_of(model, "block.0").inputs[0].values == 197 * 768);
  CHECK(model.input_amount.values == 3 * 224 * 224);
  // 17.58 GFLOP per image, two per multiply-add ("8.8 G multiply-adds"): patches 2 * 196 * 768 * 768,
  // 12 blocks of 24 n h^2 + 4 n^2 h, classifier 2 * 768 * 1000.
  const double n = 197, H = 768;
  CHECK(flop_count(model).forward == 2 * 196 * H * H + 12 * (24 * n * H * H + 4 * n * n * H) + 2 * H * 1000);
  CHECK(parameters_of(family_model("vit", {{"layers", "24"}, {"hidden", "1024"}, {"heads", "16"}})) ==
        304'326'632);  // ViT large
}

TEST_CASE("A sliding window costs its band of pairs, and blocks of one kind share a work") {
  const auto of = [](const char* every) {
    return family_model("decoder", {{"layers", "6"},
                                    {"hidden", "64"},
                                    {"heads", "4"},
                                    {"feed_forward", "128"},
                                    {"sequence_length", "1024"},
                                    {"window", "128"},
                                    {"full_every", every}});
  };
  const Model model = of("3");
  CHECK(model.works.size() == 4);  // embedding, windowed, full, head
  CHECK(model.layers[3].work != model.layers[2].work);
  CHECK(model.layers[3].work == model.layers[6].work);
  // 4 heads of 16: 2 * 32 FLOPs per pair and head; 1024 * 1025 / 2 pairs, or 128 * 129 / 2 + 896 * 128.
  const auto attention = [&](const char* layer) {
    double sum = 0;
    for (const Operator& op : work_of(model, layer).operators)
      if (op.kind == OperatorKind::Attention) sum += op.forward_flops;
    return sum;
  };
  CHECK(attention("block.2") == 2.0 * 32 * 4 * 524'800);
  CHECK(attention("block.0") == 2.0 * 32 * 4 * 122'944);
}

TEST_CASE(
    "Norms of queries and keys add two rows of a head's size; biases of queries, keys and values their features") {
  const auto parameters = [](const char* name, const char* value) {
    return parameters_of(family_model("decoder", {{"layers", "1"},
                                                  {"hidden", "64"},
                                                  {"heads", "4"},
                                                  {"key_heads", "2"},
                                                  {"feed_forward", "128"},
                                                  {name, value}}));
  };
  const std::int64_t plain = parameters("qk_norm", "none");
  CHECK(plain == 2 * 32000 * 64 + 64 + (64 * 64 + 2 * 64 * 32 + 64 * 64) + 3 * 64 * 128 + 2 * 64);
  CHECK(parameters("qk_norm", "head") == plain + 2 * 16);
  CHECK(parameters("qk_norm", "all") == plain + 64 + 32);
  CHECK(parameters("attention_bias", "qkv") == plain + 64 + 2 * 32);
  CHECK(parameters("attention_bias", "all") == plain + 64 + 2 * 32 + 64);
  CHECK(parameters("feed_forward_bias", "yes") == plain + 2 * 128 + 64);
  CHECK(parameters("norms", "sandwich") == plain + 2 * 64);
  CHECK(parameters("norms", "post") == plain - 64);  // the last block's norm stands for the final one
  CHECK(parameters("norms", "reordered") == plain);  // as many as in front, and the final one
  CHECK(parameters("norm", "layer") == plain + 3 * 64);
  CHECK(parameters("tied", "yes") == plain - 32000 * 64);
}

TEST_CASE("Experts: all are parameters, those that a token is sent to are active") {
  // 8 experts, 2 active: per block 3 h f 8 + 8 h (router).
  const Model model = family_model("decoder", {{"layers", "2"},
                                               {"hidden", "64"},
                                               {"heads", "4"},
                                               {"feed_forward", "128"},
                                               {"experts", "8"},
                                               {"active_experts", "2"},
                                               {"expert_feed_forward", "32"},
                                               {"shared_feed_forward", "48"},
                                               {"dense_layers", "1"}});
  const std::int64_t attention = 4 * 64 * 64 + 2 * 64, expert = 3 * 64 * 32;
  CHECK(work_of(model, "block.0").parameters == attention + 3 * 64 * 128);
  CHECK(work_of(model, "block.1").parameters == attention + 8 * expert + 64 * 8 + 3 * 64 * 48);
  CHECK(active_parameters(model) == parameters_of(model) - 6 * expert);
}

TEST_CASE("Latent attention has the parameters of its five products and two norms") {
  // h q + q a (n + r) + h (c + r) + c a (n + v) + a v h + q + c, with h 64, a 4, q 24, c 16, n 8, r 4, v 6
  const Model model = family_model("decoder", {{"layers", "1"},
                                               {"hidden", "64"},
                                               {"heads", "4"},
                                               {"feed_forward", "128"},
                                               {"query_rank", "24"},
                                               {"key_value_rank", "16"},
                                               {"nope_size", "8"},
                                               {"rope_size", "4"},
                                               {"value_size", "6"},
                                               {"sequence_length", "32"}});
  const Work& block = work_of(model, "block.0");
  CHECK(block.parameters ==
        64 * 24 + 24 * 4 * 12 + 64 * 20 + 16 * 4 * 14 + 4 * 6 * 64 + 24 + 16 + 3 * 64 * 128 + 2 * 64);
  // Whole on every device: down-projections and norms.
  CHECK(block.parameters - block.sharded_parameters == 64 * 24 + 64 * 20 + 24 + 16 + 2 * 64);
  double pairs = 0;
  for (const Operator& op : block.operators)
    pairs += op.all_pairs_flops;
  CHECK(pairs == 2.0 * 32 * 32 * 4 * (12 + 6));
}

TEST_CASE("A next-token module is a block more, fed by the block before and the next token's embedding") {
  const auto of = [](const char* name, const char* value) {
    return family_model("decoder",
                        {{"layers", "2"}, {"hidden", "64"}, {"heads", "4"}, {"feed_forward", "128"}, {name, value}});
  };
  const Model plain = of("tied", "no"), model = of("next_token_modules", "1");
  REQUIRE(model.layers.size() == plain.layers.size() + 3);
  CHECK(model.layers[4].name == "next_token.0.embedding");
  CHECK(model.layers[4].tied_to == 0);
  CHECK(model.layers[5].inputs == std::vector<LayerId>{2, 4});
  CHECK(model.layers[6].tied_to == 3);
  // two norms, the joining product 2h x h, a block, a final norm
  CHECK(parameters_of(model) ==
        parameters_of(plain) + 2 * 64 + 2 * 64 * 64 + work_of(plain, "block.0").parameters + 64);
  CHECK(model.source.find("1 next-token module(s) (multi-token prediction) built") != std::string::npos);
}

TEST_CASE("Shapes that contradict each other are refused with a way out") {
  const auto refusal = [](std::string_view family,
                          std::initializer_list<std::pair<const char*, std::string>> given) -> std::string {
    try {
      family_model(family, given);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refusal("gpt", {{"layers", "1"}, {"hidden", "100"}, {"heads", "3"}}) ==
        "model.heads: 3 does not divide hidden 100; use a divisor, or give head_size");
  CHECK(refusal("decoder",
                {{"layers", "1"}, {"hidden", "64"}, {"heads", "4"}, {"key_heads", "3"}, {"feed_forward", "8"}}) ==
        "model.key_heads: 3 does not divide heads 4; use a divisor");
  CHECK(refusal("gpt",
                {{"layers", "1"}, {"hidden", "64"}, {"heads", "4"}, {"sequence_length", "8"}, {"positions", "4"}}) ==
        "model: family gpt: sequence_length 8 is longer than the table of 4 positions; use at most that many tokens");
  CHECK(refusal("vit", {{"image", "225"}}) == "model.patch: 16 does not divide image 225; use a divisor");
  CHECK(refusal("decoder", {{"layers", "1"},
                            {"hidden", "64"},
                            {"heads", "4"},
                            {"feed_forward", "8"},
                            {"experts", "4"},
                            {"active_experts", "5"},
                            {"expert_feed_forward", "8"}})
            .find("active_experts 5 is more than the 4 experts") != std::string::npos);
  CHECK(refusal("decoder",
                {{"layers", "1"}, {"hidden", "64"}, {"heads", "4"}, {"feed_forward", "8"}, {"nope_size", "4"}}) ==
        "model.nope_size: 4 is given without key_value_rank; add key_value_rank");
}

// 100 values per token on 1024 tokens; nothing else of the block changes.
TEST_CASE("extra_kept adds so many values per token to what a block keeps, and nothing to its cost") {
  const Model plain = family_model("transformer", {{"layers", "2"}});
  const Model more = family_model("transformer", {{"layers", "2"}, {"extra_kept", "100"}});
  const auto block = [](const Model& model) -> const Work& {
    return model.works[static_cast<std::size_t>(model.layers[1].work)];
  };
  CHECK((block(more).kept - block(plain).kept).values == 102'400);
  CHECK(block(more).forward_flops() == block(plain).forward_flops());
  CHECK(backward_flops(block(more)) == backward_flops(block(plain)));
  CHECK(parameter_count(more) == parameter_count(plain));
}

TEST_CASE("The shared expert is scaled, row by row, by the sigmoid of its gate") {
  const auto of = [](const char* gate) {
    return family_model("decoder", {{"layers", "1"},
                                    {"hidden", "64"},
                                    {"heads", "4"},
                                    {"feed_forward", "128"},
                                    {"sequence_length", "32"},
                                    {"experts", "8"},
                                    {"active_experts", "2"},
                                    {"expert_feed_forward", "32"},
                                    {"shared_feed_forward", "48"},
                                    {"shared_gate", gate}});
  };
  // 32 tokens: the sigmoid's output, and of the product the shared expert's 64 features (the gate's output is kept
  // once).
  const Work gated = work_of(of("yes"), "block.0"), plain = work_of(of("no"), "block.0");
  CHECK(gated.parameters - plain.parameters == 64);
  CHECK(gated.kept.on_device(kHalf, {}) - plain.kept.on_device(kHalf, {}) == 2 * 32 * (1 + 64));
  CHECK(gated.forward_flops() - plain.forward_flops() == 2 * 32 * 64 + 4 * 32 + 32 * 64);
}

TEST_CASE("Only T5 drops values after the encoder's final norm") {
  const auto dropouts = [](const Model& model, const char* layer) {
    int count = 0;
    for (const Operator& op : work_of(model, layer).operators)
      count += op.name == "dropout";
    return count;
  };
  const Model mt = family_model("transformer_mt", {{"layers", "3"}, {"feed_forward", "64"}, {"heads", "2"}});
  CHECK(dropouts(mt, "encoder.2") == dropouts(mt, "encoder.1"));
  const Model t5 = family_model("t5", {});
  CHECK(dropouts(t5, "encoder.11") == dropouts(t5, "encoder.10") + 1);
}

TEST_CASE("T5 adds its relative bias to the stored scores of self-attention, not to those of cross-attention") {
  int adds = 0, scores = 0;
  const Model t5 = family_model("t5", {});
  for (const Operator& op : work_of(t5, "decoder.3").operators) {
    adds += op.name == "add" && op.module == Module::AttentionCore;
    scores += op.name == "scores";
  }
  CHECK(scores == 2);
  CHECK(adds == 1);
}

namespace {

// One block of 64 features on 32 tokens, with a feed-forward of 128.
Model small_decoder(std::initializer_list<std::pair<const char*, std::string>> more) {
  std::vector<std::pair<const char*, std::string>> given = {{"layers", "1"},        {"hidden", "64"},
                                                            {"heads", "4"},         {"feed_forward", "128"},
                                                            {"vocabulary", "1000"}, {"sequence_length", "32"}};
  given.insert(given.end(), more.begin(), more.end());
  FamilyArguments arguments;
  for (const auto& [name, value] : given)
    arguments[name] = {value, {}};
  return build_family(kDecoderFamily, arguments, {});
}

std::string refused(std::initializer_list<std::pair<const char*, std::string>> more) {
  try {
    small_decoder(more);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> operators_of(const Model& model, const char* layer) {
  std::vector<std::string> names;
  for (const Operator& op : work_of(model, layer).operators)
    names.emplace_back(op.name);
  return names;
}

}  // namespace

TEST_CASE("Reordered norms stand behind each part, none before it, and the head has a final one") {
  const Model model = small_decoder({{"norms", "reordered"}, {"positions", "none"}});
  CHECK(operators_of(model, "block.0") == std::vector<std::string>{"linear", "attention", "linear", "rms_norm", "add",
                                                                   "linear", "silu", "linear", "rms_norm", "add"});
  CHECK(operators_of(model, "head").front() == "rms_norm");
  // Kept are what both norms read and the sum between the parts; with norms in front, what these write and that sum.
  const Model before = small_decoder({{"positions", "none"}});
  const Work &behind = work_of(model, "block.0"), &pre = work_of(before, "block.0");
  CHECK((behind.kept - pre.kept).on_device(kHalf, {}) == 0);
  CHECK(behind.keeps_input == std::vector<char>{1});
  CHECK(behind.forward_flops() == pre.forward_flops());
}

TEST_CASE("A decoder without biases and rotation, as MPT's, has 12 h^2 + 2 h parameters per block and h at its end") {
  const Model model = small_decoder({{"feed_forward", "256"},
                                     {"gated", "no"},
                                     {"activation", "gelu"},
                                     {"norm", "layer"},
                                     {"norm_bias", "no"},
                                     {"positions", "none"},
                                     {"tied", "yes"}});
  CHECK(work_of(model, "block.0").parameters == 12 * 64 * 64 + 2 * 64);
  CHECK(work_of(model, "head").parameters == 64);
  CHECK(parameters_of(model) == 1000 * 64 + 12 * 64 * 64 + 3 * 64);
  CHECK(operators_of(model, "block.0") == std::vector<std::string>{"layer_norm", "linear", "attention", "linear", "add",
                                                                   "layer_norm", "linear", "gelu", "linear", "add"});
  CHECK(refused({{"positions", "none"}, {"key_value_rank", "16"}, {"nope_size", "8"}, {"rope_size", "4"}})
            .find("model.positions: none is not built with key_value_rank") == 0);
  CHECK(refused({{"positions", "none"}, {"rotary_size", "8"}}) ==
        "model.rotary_size: 8 is given with positions: none; leave one of the two out");
}

TEST_CASE("The square of ReLU keeps ReLU's output beside its own, and reads it once") {
  const auto of = [](const char* activation) {
    return work_of(small_decoder({{"gated", "no"}, {"activation", activation}}), "block.0");
  };
  const Work squared = of("relu2"), plain = of("relu");
  const double values = 32 * 128;
  CHECK((squared.kept - plain.kept).on_device(kHalf, {}) == 2 * values);
  CHECK(squared.forward_flops() - plain.forward_flops() == values);
  CHECK(backward_flops(squared) - backward_flops(plain) == 2 * values);
  CHECK(squared.product_flops() == plain.product_flops());
  CHECK(squared.parameters == plain.parameters);
  int squares = 0;
  for (const Operator& op : squared.operators) {
    if (op.name != "multiply") continue;
    ++squares;
    CHECK(op.forward_bytes.on_device(kHalf, {}) == 2 * 2 * values);  // reads one, writes one
    CHECK(op.input_bytes.on_device(kHalf, {}) == 3 * 2 * values);    // reads the gradient and the input, writes one
    CHECK(op.module == Module::FeedForward);
  }
  CHECK(squares == 1);
  CHECK(refused({{"activation", "relu2"}}).find("a squared activation (relu2) has no gate; add gated: no") !=
        std::string::npos);  // gated by default
}

TEST_CASE("Experts with the square of ReLU have one kernel for both, and keep as much as with ReLU") {
  const auto of = [](const char* activation) {
    return work_of(small_decoder({{"gated", "no"},
                                  {"activation", activation},
                                  {"experts", "4"},
                                  {"active_experts", "2"},
                                  {"expert_feed_forward", "8"}}),
                   "block.0");
  };
  const Work squared = of("relu2"), plain = of("relu");
  CHECK(squared.parameters == plain.parameters);
  CHECK(squared.parameters == 4 * 64 * 64 + 2 * 64 + 4 * 64 + 4 * 2 * 64 * 8);
  CHECK(squared.kept.on_device(kHalf, {}) == plain.kept.on_device(kHalf, {}));
  CHECK(squared.operators.size() == plain.operators.size());
  const double values = 32 * 2 * 8;
  CHECK(squared.forward_flops() - plain.forward_flops() == values);
  CHECK(backward_flops(squared) - backward_flops(plain) == 2 * values);
  CHECK(std::count_if(squared.operators.begin(), squared.operators.end(),
                      [](const Operator& op) { return op.name == "relu2"; }) == 1);
}

TEST_CASE("Capped logits keep their tanh beside the loss's probabilities") {
  const auto of = [](const char* capped) {
    return family_model("decoder", {{"layers", "1"},
                                    {"hidden", "64"},
                                    {"heads", "4"},
                                    {"feed_forward", "128"},
                                    {"vocabulary", "1000"},
                                    {"sequence_length", "32"},
                                    {"final_soft_cap", capped}});
  };
  const Work with = work_of(of("yes"), "head"), without = work_of(of("no"), "head");
  CHECK((with.kept - without.kept).on_device(kHalf, {}) == 2 * 32 * 1000);
  CHECK((with.kept - without.kept).on_device(kHalf, {.degree = 4}) == 2 * 32 * 1000 / 4);
  CHECK(with.product_flops() == without.product_flops());
}
