// The scan of a Mamba-2 mixer against loops that run it, and against numbers worked out by hand.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "core/cost/framework_kernels.hpp"
#include "core/model/flops.hpp"
#include "core/model/layer_builder.hpp"
#include "tests/support/family_model.hpp"

using namespace pipewright::tests;

namespace {

constexpr Bytes kHalf{2};

Work scan_of(const StateSpace& spec, std::int64_t tokens) {
  LayerBuilder layer;
  return layer.finish({layer.state_space(layer.input({tokens, features_of(spec)}), spec)});
}

const Operator& named(const Work& work, std::string_view name) {
  const auto found =
      std::find_if(work.operators.begin(), work.operators.end(), [&](const Operator& op) { return op.name == name; });
  REQUIRE(found != work.operators.end());
  return *found;
}

// Multiply-adds of a scan in chunks, product by product, counted while it runs; and its result beside that of the
// recurrence token by token, h = a h + x B^T, y = h C.
struct Counted {
  double scores = 0, masked = 0, states = 0, from_states = 0;
  double largest_difference = 0;
};

using Matrix = std::vector<std::vector<double>>;

Matrix made_up(std::int64_t rows, std::int64_t columns, double phase) {
  Matrix m(static_cast<std::size_t>(rows), std::vector<double>(static_cast<std::size_t>(columns)));
  double at = phase;
  for (auto& row : m)
    for (double& value : row)
      value = std::sin(at += 1.7);
  return m;
}

// One head, whose B and C its group shares.
void run_head(std::int64_t tokens, std::int64_t chunk, const Matrix& x, const Matrix& b, const Matrix& c,
              const std::vector<double>& log_decay, bool first_of_group, Counted& counted) {
  const std::size_t p = x[0].size(), n = b[0].size(), length = static_cast<std::size_t>(tokens);
  Matrix y(length, std::vector<double>(p)), state(p, std::vector<double>(n));
  for (std::size_t begin = 0; begin < length; begin += static_cast<std::size_t>(chunk)) {
    const std::size_t end = std::min(length, begin + static_cast<std::size_t>(chunk));
    std::vector<double> sum(end - begin);
    std::partial_sum(log_decay.begin() + static_cast<std::ptrdiff_t>(begin),
                     log_decay.begin() + static_cast<std::ptrdiff_t>(end), sum.begin());
    Matrix own(p, std::vector<double>(n));
    for (std::size_t i = begin; i < end; ++i) {
      for (std::size_t j = begin; j < end; ++j) {
        double score = 0;
        for (std::size_t k = 0; k < n; ++k, counted.scores += first_of_group ? 1 : 0)
          score += c[i][k] * b[j][k];
        if (j > i) continue;
        for (std::size_t k = 0; k < p; ++k, ++counted.masked)
          y[i][k] += score * std::exp(sum[i - begin] - sum[j - begin]) * x[j][k];
      }
      for (std::size_t k = 0; k < p; ++k)
        for (std::size_t m = 0; m < n; ++m) {
          y[i][k] += std::exp(sum[i - begin]) * state[k][m] * c[i][m], ++counted.from_states;
          own[k][m] += std::exp(sum.back() - sum[i - begin]) * x[i][k] * b[i][m], ++counted.states;
        }
    }
    for (std::size_t k = 0; k < p; ++k)
      for (std::size_t m = 0; m < n; ++m)
        state[k][m] = std::exp(sum.back()) * state[k][m] + own[k][m];
  }
  Matrix h(p, std::vector<double>(n));
  for (std::size_t i = 0; i < length; ++i)
    for (std::size_t k = 0; k < p; ++k) {
      double out = 0;
      for (std::size_t m = 0; m < n; ++m) {
        h[k][m] = std::exp(log_decay[i]) * h[k][m] + x[i][k] * b[i][m];
        out += h[k][m] * c[i][m];
      }
      counted.largest_difference = std::max(counted.largest_difference, std::fabs(out - y[i][k]));
    }
}

Counted run(const StateSpace& spec, std::int64_t tokens) {
  Counted counted;
  for (std::int64_t head = 0; head < spec.heads; ++head) {
    const auto phase = static_cast<double>(head);
    const std::int64_t of_group = spec.heads / spec.groups, group = head / of_group;
    std::vector<double> log_decay(static_cast<std::size_t>(tokens));
    for (std::size_t i = 0; i < log_decay.size(); ++i)
      log_decay[i] = -0.1 - 0.01 * static_cast<double>(i) - 0.05 * phase;
    run_head(tokens, spec.chunk, made_up(tokens, spec.head_size, phase),
             made_up(tokens, spec.state, 100 + static_cast<double>(group)),
             made_up(tokens, spec.state, 200 + static_cast<double>(group)), log_decay, head % of_group == 0, counted);
  }
  return counted;
}

// One block of a mixer alone: hidden 8, 4 heads of 2, groups of 2 heads, a state of 3.
Model tiny() {
  return family_model("decoder", {{"layers", "1"},
                                  {"hidden", "8"},
                                  {"heads", "1"},
                                  {"feed_forward", "8"},
                                  {"vocabulary", "16"},
                                  {"sequence_length", "6"},
                                  {"pattern", "M"},
                                  {"mamba_heads", "4"},
                                  {"mamba_head_size", "2"},
                                  {"mamba_groups", "2"},
                                  {"mamba_state", "3"},
                                  {"mamba_chunk", "4"}});
}

}  // namespace

TEST_CASE("A scan in chunks has as many products as loops count, whatever is left for the last chunk") {
  for (const std::int64_t tokens : {1, 3, 6, 7, 8}) {
    const StateSpace spec{.heads = 4, .head_size = 2, .groups = 2, .state = 5, .kernel = 3, .chunk = 3};
    CAPTURE(tokens);
    const Work work = scan_of(spec, tokens);
    const Counted counted = run(spec, tokens);
    CHECK(counted.largest_difference < 1e-12);
    CHECK(named(work, "chunk_scores").forward_flops == 2 * counted.scores);
    CHECK(named(work, "chunk_state").forward_flops == 2 * counted.states);
    CHECK(named(work, "chunk_scan").forward_flops == 2 * (counted.masked + counted.from_states));
    for (const Operator& op : work.operators)
      if (op.product) CHECK(op.input_flops + op.weight_flops == 2 * op.forward_flops);
    // Again in the backward: scores and states, and the masked products for the gradient of the decays.
    CHECK(named(work, "chunk_scores").rebuilt_flops == 2 * counted.scores);
    CHECK(named(work, "chunk_state").rebuilt_flops == 2 * counted.states);
    CHECK(named(work, "chunk_scan").rebuilt_flops == 2 * counted.masked);
  }
}

TEST_CASE("The FLOPs of the example in layer_state_space.cpp: 384, 128, 32 and 96 + 128") {
  const Work work = scan_of({.heads = 2, .head_size = 4, .groups = 1, .state = 2, .kernel = 4, .chunk = 2}, 4);
  CHECK(named(work, "conv1d").forward_flops == 2 * 4 * 4 * 12);
  CHECK(named(work, "chunk_state").forward_flops == 128);
  CHECK(named(work, "chunk_scores").forward_flops == 2 * 2 * 2 * 2 * 2);
  CHECK(named(work, "chunk_scan").forward_flops == 96 + 128);
  CHECK(work.product_flops() == 384 + 128 + 32 + 96 + 128);
}

TEST_CASE("A mixer of hidden 8 has 448 parameters, and keeps 64 values of a token") {
  // d = 8; the first product h (2 d + 2 g N + n) = 8 x 32, the convolution (4 + 1) x 20, A, D and dt 3 x 4, the norm 8, the
  // second product 8 x 8; and the norm before the block, 8.
  const Model model = tiny();
  const Work& work = work_of(model, "block.0");
  CHECK(work.parameters == 8 * 32 + 5 * 20 + 3 * 4 + 8 + 8 * 8 + 8);
  std::vector<std::string_view> names;
  for (const Operator& op : work.operators)
    names.push_back(op.name);
  CHECK(names == std::vector<std::string_view>{"rms_norm", "linear", "conv1d", "chunk_decay", "chunk_state",
                                               "state_passing", "chunk_scores", "chunk_scan", "rms_norm", "linear",
                                               "add"});
  // Kept: the norm's output (8), the first product's (32), the scan's before and after the gate (8 + 8), the norm's (8). The
  // block's input is the layer's before.
  CHECK(work.kept.on_device(kHalf, {}) == 2 * 6 * (8 + 32 + 8 + 8 + 8));
  CHECK(work.keeps_input == std::vector<char>{1});
}

TEST_CASE("Kernels of the scan read and write what their tensors hold") {
  // 6 tokens in chunks of 4 and 2: d = 8, B and C of 6, convolution over 20 channels, states of 2 x 8 x 3, scores of 2 x
  // (16 + 4). 2 B a value, 4 B where a kernel hands on fp32.
  const Model model = tiny();
  const Work& work = work_of(model, "block.0");
  const auto forward = [&](std::string_view name) { return named(work, name).forward_bytes.on_device(kHalf, {}); };
  CHECK(forward("conv1d") == 2 * 2 * 6 * 20);
  CHECK(forward("chunk_decay") == 2 * 6 * 4 + 2 * 4 * 6 * 4);
  CHECK(forward("chunk_state") == 2 * 6 * (8 + 6) + 2 * 4 * 6 * 4 + 4 * 2 * 8 * 3);
  CHECK(forward("state_passing") == (4 + 2) * 2 * 8 * 3);
  CHECK(forward("chunk_scores") == 2 * 2 * 6 * 6 + 4 * 2 * (16 + 4));
  // Scores, x, z, both outputs, C, states and decays.
  CHECK(forward("chunk_scan") == 4 * 2 * 20 + 2 * 6 * (4 * 8 + 6) + 2 * 2 * 8 * 3 + 2 * 4 * 6 * 4);
  // The convolution again, and its gradient of three tensors.
  const auto backward = [&](std::string_view name) { return named(work, name).input_bytes.on_device(kHalf, {}); };
  const std::int64_t x = 2 * 6 * 8, b = 2 * 6 * 6, b32 = 2 * b, states = 2 * 2 * 8 * 3, decays = 2 * 4 * 6 * 4;
  const std::int64_t scores = 4 * 2 * 20;
  CHECK(backward("conv1d") == 2 * 5 * 6 * 20);
  CHECK(backward("chunk_decay") == forward("chunk_decay") + decays + 2 * 2 * 6 * 4);
  CHECK(backward("chunk_state") == forward("chunk_state") + x + states + decays + b32);
  CHECK(backward("state_passing") == forward("state_passing") + 3 * 2 * states + states);
  CHECK(backward("chunk_scores") == forward("chunk_scores") + 2 * (scores + 2 * b + b32));
  // Of the forward nothing but the masked products is repeated: 15 of x, 3 of B, its gradient, 3 of the scores, states twice
  // in 16 bits and once in 32, 5 of the decays' pair.
  CHECK(backward("chunk_scan") == 15 * x + 3 * b + b32 + 3 * scores + 2 * states + 2 * states + 5 * decays);
  // Scratch memory: states and their gradients in fp32 and in 16 bits, scores, decays, and what was convolved again.
  CHECK(named(work, "chunk_scan").workspace.on_device(kHalf, {}) == 2 * 3 * states + scores + decays + 2 * 6 * 20);
}

TEST_CASE("Tensor parallelism divides heads and groups of a mixer, and no more") {
  Model model = tiny();
  const Work& work = work_of(model, "block.0");
  CHECK(work.shards == 2);
  CHECK(parameters_on_device(work, {.degree = 2}) == (work.parameters - 8) / 2 + 8);  // but the block's norm
  CHECK(work.reductions_forward == 1);
  CHECK(work.reductions_backward == 1);
  for (const Operator& op : work.operators)
    if (op.module == Module::StateSpace)
      CHECK(op.forward_bytes.on_device(kHalf, {.degree = 2}) * 2 == op.forward_bytes.on_device(kHalf, {}));
  settle(model, kHalf, {.degree = 2});
  try {
    settle(model, kHalf, {.degree = 4});
    FAIL("accepted");
  } catch (const InputError& error) {
    CHECK(std::string(error.what())
              .find("plan.tensor_parallel: 4 does not divide layer \"block.0\", which is split 2 ways at "
                    "most") != std::string::npos);
  }
}

TEST_CASE("The backward of a scan is one kernel of the forward and one of the gradient, or more") {
  const Work work = scan_of({.heads = 2, .head_size = 4, .groups = 1, .state = 2}, 4);
  int forward = 0, backward = 0;
  for (const Operator& op : work.operators) {
    const KernelsOfOperator by = scan_kernels(op);
    forward += by.kernels, backward += by.kernels_back;
  }
  CHECK(forward == 7);
  CHECK(backward == 2 + 2 + 2 + 2 + 3 + 6 + 1);
}

TEST_CASE("A scan is about as fast as measured on an H100") {
  // [VllmSSD25]: 128 heads of 64, one group, a state of 128, chunks of 256, bf16, without gate; million tokens per second.
  const StateSpace spec{.heads = 128, .head_size = 64, .groups = 1, .state = 128, .chunk = 256};
  const std::pair<std::int64_t, double> measured[] = {{8192, 12.62},  {16384, 12.92},  {32768, 11.80},
                                                      {65536, 11.07}, {131072, 10.70}, {262144, 10.82}};
  const double bandwidth = 3350e9 * 0.89;
  double sum = 0;
  for (const auto& [tokens, millions] : measured) {
    const Work work = scan_of(spec, tokens);
    double bytes = 0;
    for (const Operator& op : work.operators)
      if (op.name != "conv1d" && op.name != "rms_norm")
        bytes += op.forward_bytes.on_device(kHalf, {}) * scan_kernels(op).forward;
    bytes -= kScanSlowdown * 2 * 2 * static_cast<double>(tokens * 128 * 64);  // the gate, and the output before it
    const double predicted = static_cast<double>(tokens) / (bytes / bandwidth) / 1e6;
    CHECK(std::abs(predicted / millions - 1) < 0.12);
    sum += millions / predicted;
  }
  CHECK(std::abs(sum / 6 - 1) < 0.02);
}

TEST_CASE("Wrong scans are refused with what would do") {
  const auto refused = [](const StateSpace& spec, std::int64_t features) -> std::string {
    LayerBuilder layer;
    try {
      layer.state_space(layer.input({4, features}), spec);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refused({.heads = 3, .head_size = 2, .groups = 2, .state = 2}, 23) ==
        "2 groups do not divide 3 heads; use a divisor");
  CHECK(refused({.heads = 2, .head_size = 4, .groups = 1, .state = 2}, 23) ==
        "a state space of 2 heads of 4 and 1 groups with a state of 2 needs an input of 22 features, not 23");
  CHECK(refused({.heads = 2, .head_size = 4, .groups = 1, .state = 2, .chunk = 0}, 22) ==
        "chunk 0 is too small; use 1 or more");
}

TEST_CASE("A hybrid's blocks have one part each, and patterns that contradict the rest are refused") {
  const auto hybrid = [](std::initializer_list<std::pair<const char*, std::string>> more, const char* pattern) {
    FamilyArguments arguments;
    for (const auto& [key, value] :
         std::initializer_list<std::pair<const char*, std::string>>{{"layers", "4"},
                                                                    {"hidden", "64"},
                                                                    {"heads", "4"},
                                                                    {"feed_forward", "96"},
                                                                    {"vocabulary", "100"},
                                                                    {"sequence_length", "32"},
                                                                    {"activation", "relu2"},
                                                                    {"gated", "no"},
                                                                    {"positions", "none"},
                                                                    {"pattern", pattern}})
      arguments[key] = {value, {}};
    for (const auto& [key, value] : more)
      arguments[key] = {value, {}};
    return build_family(*find_family("decoder"), arguments, {});
  };
  const std::pair<const char*, std::string> heads{"mamba_heads", "8"}, experts{"experts", "4"},
      active{"active_experts", "2"}, inner{"expert_feed_forward", "48"};
  const Model model = hybrid({heads, experts, active, inner}, "M*-E");
  const auto parameters = [&](const char* layer) { return work_of(model, layer).parameters; };
  const std::int64_t d = 8 * 64, shared = 2 * 8 * 128;
  CHECK(parameters("block.0") == 64 * (2 * d + shared + 8) + 5 * (d + shared) + 3 * 8 + d + d * 64 + 64);
  CHECK(parameters("block.1") == 4 * 64 * 64 + 64);
  CHECK(parameters("block.2") == 2 * 64 * 96 + 64);
  CHECK(parameters("block.3") == 4 * 2 * 64 * 48 + 64 * 4 + 64);
  CHECK(model.layers[1].block);
  CHECK(model.form.back() == std::pair<std::string, std::string>{"dropout", "no"});
  const auto refused = [&](std::initializer_list<std::pair<const char*, std::string>> more, const char* pattern) {
    try {
      hybrid(more, pattern);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto says = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  CHECK(says(refused({}, "M*X-"), "model.pattern: has another letter at place 3; write a text of the letters MG*-E"));
  CHECK(says(refused({}, "M\u2013\u2013X"), "model.pattern: has another letter at place 2; write a text"));
  CHECK(refused({heads}, std::string(50'000, 'M').c_str()).size() < 300);
  CHECK(says(refused({heads}, "M*-"), "model.pattern: M*- has 3 letters for layers: 4; write one a layer"));
  CHECK(says(refused({}, "M*--"), "model.pattern: M*-- has M, but mamba_heads is missing; add it"));
  CHECK(says(refused({heads}, "*-*-"), "model.mamba_heads: 8 is given without M in pattern"));
  CHECK(says(refused({heads, {"mamba_groups", "3"}}, "M*--"),
             "model.mamba_heads: 8 is not a multiple of mamba_groups 3; use one, or"));
  CHECK(says(refused({heads}, "M*-E"), "pattern has E, but the model has no experts; add experts, or use -"));
  CHECK(says(refused({heads, experts, active, inner}, "M*--"), "experts are given, but pattern has no E"));
  CHECK(says(refused({heads, {"window", "8"}}, "M*--"), "pattern does not go with dense_layers, sparse_step, window"));
  CHECK(says(refused({heads, {"next_token_modules", "1"}}, "M*--"), "next_token_modules; leave them out"));
}

TEST_CASE("Megatron's count of a mixer: its products and 7 d N a token, three times") {
  const Model model = tiny();
  const double tokens = 6, h = 8, d = 8, state = 3;
  const double mixer = tokens * (2 * h * 32 + 7 * d * state + 2 * d * h), head = tokens * 2 * h * 16;
  const auto* megatron = &flop_conventions()[1];
  REQUIRE(megatron->name == "megatron");
  CHECK(flop_count(model, *megatron).training() == 3 * (mixer + head));
}
