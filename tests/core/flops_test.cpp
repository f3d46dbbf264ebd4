// How publishers count FLOPs: their figures per token, from shapes alone.
#include "core/model/flops.hpp"

#include <cmath>

#include <doctest/doctest.h>

#include "tests/support/family_model.hpp"

using namespace pipewright::tests;

namespace {

using Given = std::initializer_list<std::pair<const char*, std::string>>;

const FlopConvention& convention(std::string_view name) {
  const auto all = flop_conventions();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const FlopConvention& each) { return each.name == name; });
  PP_CHECK(found != all.end());
  return *found;
}

double per_token(const Model& model, const char* name) {
  return flop_count(model, convention(name)).training() / static_cast<double>(*model.tokens) / 1e9;
}

Model decoder(Given given) {
  return family_model("decoder", given);
}

Model llama(const char* layers, const char* hidden, const char* inner, const char* heads) {
  return decoder({{"layers", layers},
                  {"hidden", hidden},
                  {"feed_forward", inner},
                  {"heads", heads},
                  {"key_heads", "8"},
                  {"vocabulary", "128256"},
                  {"sequence_length", "8192"}});
}
Model qwen3_moe(const char* layers, const char* hidden, const char* heads, const char* inner) {
  return decoder({{"layers", layers},
                  {"hidden", hidden},
                  {"feed_forward", "1"},
                  {"heads", heads},
                  {"key_heads", "4"},
                  {"head_size", "128"},
                  {"vocabulary", "151936"},
                  {"experts", "128"},
                  {"active_experts", "8"},
                  {"expert_feed_forward", inner}});
}
Model deepseek_v3(const char* modules_name, const char* modules) {
  return decoder({{"layers", "61"},
                  {"hidden", "7168"},
                  {"feed_forward", "18432"},
                  {"heads", "128"},
                  {"vocabulary", "129280"},
                  {"experts", "256"},
                  {"active_experts", "8"},
                  {"expert_feed_forward", "2048"},
                  {"shared_feed_forward", "2048"},
                  {"dense_layers", "3"},
                  {"query_rank", "1536"},
                  {"key_value_rank", "512"},
                  {"nope_size", "128"},
                  {"rope_size", "64"},
                  {"value_size", "128"},
                  {modules_name, modules}});
}
Model gpt_oss(const char* sequence) {
  return decoder({{"layers", "36"},
                  {"hidden", "2880"},
                  {"feed_forward", "2880"},
                  {"heads", "64"},
                  {"key_heads", "8"},
                  {"head_size", "64"},
                  {"vocabulary", "201088"},
                  {"activation", "gelu"},  // x sigmoid(1.702 x), the sigmoid form of GELU, as a gate
                  {"experts", "128"},
                  {"active_experts", "4"},
                  {"expert_feed_forward", "2880"},
                  {"window", "128"},
                  {"full_every", "2"},
                  {"sequence_length", sequence}});
}

struct Row {
  const char* name;
  Model model;
  double flops;               // GFLOP per token, as printed in docs/reference/models.md
  double rate, tokens;        // published TFLOP/s and tokens/s, per GPU
  double parameters, active;  // billions, as shown there
  double unit, active_unit;   // of their last digits
};

std::vector<Row> published() {
  // Rates: NVIDIA Megatron-Bridge, performance summary of release 25.11.
  std::vector<Row> rows;
  rows.push_back({"Llama 3 8B", llama("32", "4096", "14336", "32"), 51.47, 744, 14451, 8.030, 8.030, .001, .001});
  rows.push_back({"Llama 3 70B", llama("80", "8192", "28672", "64"), 449.22, 719, 1602, 70.554, 70.554, .001, .001});
  rows.push_back(
      {"Llama 3.1 405B", llama("126", "16384", "53248", "128"), 2523.96, 737, 292, 405.85, 405.85, .01, .01});
  rows.push_back({"Qwen3 30B-A3B", qwen3_moe("48", "2048", "32", "768"), 23.01, 666, 28934, 30.532, 3.353, .001, .001});
  rows.push_back(
      {"Qwen3 235B-A22B", qwen3_moe("94", "4096", "64", "1536"), 148.03, 907, 6131, 235.09, 22.19, .01, .01});
  rows.push_back({"DeepSeek-V3", deepseek_v3("tied", "no"), 249.81, 961, 3848, 671.03, 37.55, .01, .01});
  rows.push_back({"GPT-OSS 120B", gpt_oss("4096"), 27.16, 153, 5630, 116.79, 5.71, .01, .01});
  return rows;
}

}  // namespace

TEST_CASE("Published FLOPs per token are met within 0.1 % when counted as their publisher counts") {
  for (const Row& row : published()) {
    CAPTURE(row.name);
    const double ours = per_token(row.model, "megatron"), theirs = row.rate / row.tokens * 1e3;
    CHECK(std::abs(ours / theirs - 1) < 1e-3);
    CHECK(std::abs(ours - row.flops) <= 0.005 + 1e-9);
  }
  CHECK(per_token(gpt_oss("8192"), "megatron") == doctest::Approx(30.80).epsilon(1e-3));
}

TEST_CASE("Parameters of the same models, all and active, to the digits shown") {
  for (const Row& row : published()) {
    CAPTURE(row.name);
    CHECK(std::abs(static_cast<double>(parameters_of(row.model)) / 1e9 - row.parameters) <= row.unit / 2);
    CHECK(std::abs(static_cast<double>(active_parameters(row.model)) / 1e9 - row.active) <= row.active_unit / 2);
  }
}

TEST_CASE("The complete count has what the convention leaves out: gates, routers, windows as they are") {
  // GPT-OSS, 4096 tokens: the gate adds 36 blocks * 4 experts * 2 * 2880^2 per token and pass (x 3 = 7.166 GFLOP), the
  // routers 36 * 2 * 2880 * 128 (x 3 = 0.080); half the blocks see 128 keys instead of 2048 on average.
  const Model model = gpt_oss("4096");
  const double s = 4096, gates = 36.0 * 4 * 2 * 2880 * 2880, routers = 36.0 * 2 * 2880 * 128;
  const double pair = 2.0 * 64 * (64 + 64);
  const double half = 36 * pair * s / 2, seen = 18 * pair * (s + 1) / 2 + 18 * pair * (128 - 127.0 * 128 / 2 / s);
  const double megatron = per_token(model, "megatron") * 1e9, complete = per_token(model, "complete") * 1e9;
  CHECK(std::abs(complete / 1e9 - 32.71) < 0.005);
  CHECK(complete == doctest::Approx(megatron + 3 * (gates + routers + seen - half)).epsilon(1e-12));
}

TEST_CASE("The next-token module of DeepSeek-V3 adds a block, a head and the product that joins its inputs") {
  // Latent attention: h q + q a (n + r) + h (c + r) + c a (n + v) + a v h = 187,105,280; 9 experts of 3 h f; head V h;
  // joining product 2h h. Core: half of 2 s a (n + r + v).
  const double h = 7168, q = 1536, c = 512, a = 128, n = 128, r = 64, v = 128, s = 4096;
  const double attention = h * q + q * a * (n + r) + h * (c + r) + c * a * (n + v) + a * v * h;
  CHECK(attention == 187'105'280);
  const double products = attention + 9 * 3 * h * 2048 + 129280 * h + 2 * h * h;
  const double module = 3 * (2 * products + s * a * (n + r + v)) / 1e9;
  const double with = per_token(deepseek_v3("next_token_modules", "1"), "megatron");
  const double without = per_token(deepseek_v3("tied", "no"), "megatron");
  CHECK(with - without == doctest::Approx(module).epsilon(1e-9));
  CHECK(std::abs(with - 259.99) < 0.005);
}

TEST_CASE("Megatron's equation of 2021 counts all pairs and the forward twice but for the logits") {
  // 96 s l h^2 (1 + s / 6h + V / 16lh): l 24, h 2304, s 2048, V 51200                     [Megatron21] equation 3
  const Model model =
      family_model("gpt", {{"layers", "24"}, {"hidden", "2304"}, {"heads", "24"}, {"attention", "flash"}});
  const double s = 2048, l = 24, h = 2304, V = 51200;
  const double equation = 96 * s * l * h * h * (1 + s / (6 * h) + V / (16 * l * h));
  const double ours = flop_count(model, convention("megatron21")).training();
  CHECK(ours == doctest::Approx(equation).epsilon(1e-13));
  CHECK(std::abs(ours / 1e12 - 30.21) < 0.005);
}

TEST_CASE("FLOPs by kind sum up to the products, and what is not a product stands at memory") {
  const Model model = llama("2", "256", "512", "8");
  const FlopCount count = flop_count(model);
  double products = 0;
  for (const OperatorKind kind : {OperatorKind::MatrixProduct, OperatorKind::Attention})
    products += count.by_kind[static_cast<std::size_t>(kind)];
  CHECK(products == count.forward);
  CHECK(count.by_kind[static_cast<std::size_t>(OperatorKind::Memory)] > 0);
  CHECK(count.by_kind[static_cast<std::size_t>(OperatorKind::Convolution)] == 0);
}

TEST_CASE("Layers with stated FLOPs count per sample, and twice that backward") {
  Model model;
  model.batch = 4;
  model.layers.resize(1);
  model.layers[0].flops = Flops{400};
  CHECK(flop_count(model).forward == 100);
  CHECK(flop_count(model).training() == 300);
}
