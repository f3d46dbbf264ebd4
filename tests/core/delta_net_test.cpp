// A gated delta net against loops that run it, forward and backward, against numbers worked out by hand and measured times.
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

Work rule_of(const DeltaNet& spec, std::int64_t tokens) {
  LayerBuilder layer;
  return layer.finish({layer.gated_delta_net(layer.input({tokens, features_of(spec)}), spec)});
}

const Operator& operator_of(const Work& work, std::string_view name) {
  const auto found =
      std::find_if(work.operators.begin(), work.operators.end(), [&](const Operator& op) { return op.name == name; });
  REQUIRE(found != work.operators.end());
  return *found;
}

using Rows = std::vector<std::vector<double>>;

Rows zeros(std::size_t rows, std::size_t columns) {
  return Rows(rows, std::vector<double>(columns));
}

// a b; transposed where it says so. Counts its multiply-adds.
Rows times(const Rows& a, const Rows& b, double& counted) {
  Rows c = zeros(a.size(), b[0].size());
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < b[0].size(); ++j)
      for (std::size_t k = 0; k < b.size(); ++k, ++counted)
        c[i][j] += a[i][k] * b[k][j];
  return c;
}
Rows turned(const Rows& a) {
  Rows t = zeros(a[0].size(), a.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[0].size(); ++j)
      t[j][i] = a[i][j];
  return t;
}
void add_to(Rows& sum, const Rows& more, double factor = 1) {
  for (std::size_t i = 0; i < sum.size(); ++i)
    for (std::size_t j = 0; j < sum[0].size(); ++j)
      sum[i][j] += factor * more[i][j];
}
Rows scaled(Rows a, const std::vector<double>& by_row) {
  for (std::size_t i = 0; i < a.size(); ++i)
    for (double& each : a[i])
      each *= by_row[i];
  return a;
}

// One head's input: q, k, v by token, beta and the logarithm of the decay.
struct Head {
  Rows q, k, v;
  std::vector<double> beta, decay;
};

// Multiply-adds by kernel, as the kernels of flash-linear-attention do them.
struct Products {
  double wy = 0, states = 0, output = 0;                 // forward
  double wy_back = 0, states_back = 0, output_back = 0;  // gradients
  double wy_again = 0, states_again = 0, output_again = 0;
};

// Of one chunk, what the backward needs again.
struct Chunk {
  std::vector<double> g, growth, left;  // sums of the decays, their exp, and exp of what is left to the chunk's end
  Rows q, k, v, inverse, w, u, fresh, state;
  std::vector<double> beta;
};

Rows part(const Rows& all, std::size_t begin, std::size_t end) {
  return {all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end)};
}

// exp(g_i - g_j) below the diagonal, and on it where `diagonal`; else 0.
Rows masked(Rows scores, const std::vector<double>& g, bool diagonal) {
  for (std::size_t i = 0; i < scores.size(); ++i)
    for (std::size_t j = 0; j < scores.size(); ++j)
      scores[i][j] *= j < i || (diagonal && j == i) ? std::exp(g[i] - g[j]) : 0;
  return scores;
}

Rows forward(const Head& head, std::size_t size, Products& counted, std::vector<Chunk>& chunks) {
  const std::size_t tokens = head.k.size(), keys = head.k[0].size(), values = head.v[0].size();
  Rows state = zeros(keys, values), out;
  for (std::size_t begin = 0; begin < tokens; begin += size) {
    const std::size_t end = std::min(tokens, begin + size), n = end - begin;
    Chunk c{
        .q = part(head.q, begin, end), .k = part(head.k, begin, end), .v = part(head.v, begin, end), .state = state};
    c.beta.assign(head.beta.begin() + static_cast<std::ptrdiff_t>(begin),
                  head.beta.begin() + static_cast<std::ptrdiff_t>(end));
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i)
      c.g.push_back(sum += head.decay[i]), c.growth.push_back(std::exp(sum));
    for (std::size_t i = 0; i < n; ++i)
      c.left.push_back(std::exp(sum - c.g[i]));
    // A below the diagonal, and (1 + A)^-1 row by row.
    c.inverse = zeros(n, n);
    for (std::size_t i = 0; i < n; ++i) {
      std::vector<double> a(i);
      for (std::size_t j = 0; j < i; ++j) {
        for (std::size_t m = 0; m < keys; ++m, ++counted.wy)
          a[j] += c.k[i][m] * c.k[j][m];
        a[j] *= c.beta[i] * std::exp(c.g[i] - c.g[j]);
      }
      c.inverse[i][i] = 1;
      for (std::size_t j = 0; j < i; ++j) {
        c.inverse[i][j] = -a[j];
        for (std::size_t m = j + 1; m < i; ++m, ++counted.wy)
          c.inverse[i][j] -= a[m] * c.inverse[m][j];
      }
    }
    c.w = times(c.inverse, scaled(scaled(c.k, c.beta), c.growth), counted.wy);
    c.u = times(c.inverse, scaled(c.v, c.beta), counted.wy);
    c.fresh = c.u;
    add_to(c.fresh, times(c.w, state, counted.states), -1);
    Rows o = scaled(times(c.q, state, counted.output), c.growth);
    add_to(o, times(masked(times(c.q, turned(c.k), counted.output), c.g, true), c.fresh, counted.output));
    out.insert(out.end(), o.begin(), o.end());
    for (auto& row : state)
      for (double& each : row)
        each *= c.growth.back();
    add_to(state, times(turned(scaled(c.k, c.left)), c.fresh, counted.states));
    chunks.push_back(std::move(c));
  }
  return out;
}

// Gradients of q, k and v, of the sum of the outputs times `weights`; those of beta and the decays need no products.
Head backward(const Rows& weights, const std::vector<Chunk>& chunks, Products& counted) {
  const std::size_t keys = chunks[0].k[0].size(), values = chunks[0].v[0].size();
  Head all;
  Rows dstate = zeros(keys, values);
  std::size_t end = weights.size();
  for (auto c = chunks.rbegin(); c != chunks.rend(); ++c) {
    const std::size_t n = c->k.size();
    const Rows dout = part(weights, end - n, end);
    end -= n;
    // Again: W, U, v' and the states; q k^T for each of two kernels.
    times(c->inverse, c->k, counted.wy_again), times(c->inverse, c->v, counted.wy_again);
    times(c->w, c->state, counted.states_again), times(turned(c->k), c->fresh, counted.states_again);
    const Rows scores = masked(times(c->q, turned(c->k), counted.output_again), c->g, true);
    times(c->q, turned(c->k), counted.output_again);  // of the decays' gradient
    Rows dfresh = times(turned(scores), dout, counted.output_back);
    add_to(dfresh, scaled(times(c->k, dstate, counted.states_back), c->left));
    const Rows dscores = masked(times(dout, turned(c->fresh), counted.output_back), c->g, true);
    Rows dq = times(dscores, c->k, counted.output_back), dk = times(turned(dscores), c->q, counted.output_back);
    add_to(dq, scaled(times(dout, turned(c->state), counted.output_back), c->growth));
    add_to(dk, scaled(times(c->fresh, turned(dstate), counted.states_back), c->left));
    Rows dw = times(dfresh, turned(c->state), counted.states_back);
    for (auto& row : dw)
      for (double& each : row)
        each = -each;
    Rows before = times(turned(scaled(c->q, c->growth)), dout, counted.output_back);
    add_to(before, times(turned(c->w), dfresh, counted.states_back), -1);
    add_to(before, dstate, c->growth.back());
    dstate = before;
    // T, W and U.
    const Rows opened = scaled(scaled(c->k, c->beta), c->growth);
    Rows dinverse = times(dw, turned(opened), counted.wy_back);
    add_to(dinverse, times(dfresh, turned(scaled(c->v, c->beta)), counted.wy_back));
    add_to(dk, scaled(scaled(times(turned(c->inverse), dw, counted.wy_back), c->beta), c->growth));
    const Rows dv = scaled(times(turned(c->inverse), dfresh, counted.wy_back), c->beta);
    const Rows inner = times(times(turned(c->inverse), dinverse, counted.wy_back), turned(c->inverse), counted.wy_back);
    Rows da = masked(inner, c->g, false);
    for (std::size_t i = 0; i < n; ++i)
      for (double& each : da[i])
        each *= -c->beta[i];
    times(c->k, turned(c->k), counted.wy_again);  // of the gradients of beta and the decays
    add_to(dk, times(da, c->k, counted.wy_back)), add_to(dk, times(turned(da), c->k, counted.wy_back));
    all.q.insert(all.q.begin(), dq.begin(), dq.end()), all.k.insert(all.k.begin(), dk.begin(), dk.end());
    all.v.insert(all.v.begin(), dv.begin(), dv.end());
  }
  return all;
}

// S = a (S - beta k (S^T k)^T) + beta k v^T, o = S^T q, token by token.
Rows by_token(const Head& head) {
  const std::size_t keys = head.k[0].size(), values = head.v[0].size();
  Rows state = zeros(keys, values), out;
  for (std::size_t i = 0; i < head.k.size(); ++i) {
    std::vector<double> o(values);
    for (std::size_t v = 0; v < values; ++v) {
      double known = 0;
      for (std::size_t m = 0; m < keys; ++m)
        known += (state[m][v] *= std::exp(head.decay[i])) * head.k[i][m];
      for (std::size_t m = 0; m < keys; ++m) {
        state[m][v] += head.beta[i] * head.k[i][m] * (head.v[i][v] - known);
        o[v] += state[m][v] * head.q[i][m];
      }
    }
    out.push_back(o);
  }
  return out;
}

Rows made_of_sines(std::size_t rows, std::size_t columns, double phase) {
  Rows m = zeros(rows, columns);
  for (auto& row : m)
    for (double& value : row)
      value = std::sin(phase += 1.3) / 2;
  return m;
}

Head head_of(const DeltaNet& spec, std::int64_t tokens, double phase) {
  const auto length = static_cast<std::size_t>(tokens), keys = static_cast<std::size_t>(spec.key_size);
  Head head{made_of_sines(length, keys, phase),
            made_of_sines(length, keys, phase + 100),
            made_of_sines(length, static_cast<std::size_t>(spec.value_size), phase + 200),
            {},
            {}};
  for (std::size_t i = 0; i < length; ++i)
    head.beta.push_back(0.3 + 0.1 * std::sin(phase + static_cast<double>(i))),
        head.decay.push_back(-0.05 - 0.02 * static_cast<double>(i % 3));
  return head;
}

double weighed(const Rows& out, const Rows& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < out.size(); ++i)
    sum += std::inner_product(out[i].begin(), out[i].end(), weights[i].begin(), 0.0);
  return sum;
}

// The largest difference of a gradient from the quotient of differences of what the recurrence gives.
double worst_gradient(Head head, Rows Head::*of, const Rows& gradient, const Rows& weights) {
  constexpr double kStep = 1e-5;
  double worst = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i)
    for (std::size_t j = 0; j < gradient[0].size(); ++j) {
      double& value = (head.*of)[i][j];
      const double was = value;
      value = was + kStep;
      const double more = weighed(by_token(head), weights);
      value = was - kStep;
      const double less = weighed(by_token(head), weights);
      value = was;
      worst = std::max(worst, std::abs((more - less) / (2 * kStep) - gradient[i][j]));
    }
  return worst;
}

// One block of a gated delta net alone: hidden 8, 4 heads of 3, 2 of keys of 2, chunks of 4.
FamilyArguments small_arguments() {
  FamilyArguments arguments;
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, const char*>>{{"layers", "1"},
                                                                                             {"hidden", "8"},
                                                                                             {"heads", "1"},
                                                                                             {"feed_forward", "8"},
                                                                                             {"vocabulary", "16"},
                                                                                             {"sequence_length", "6"},
                                                                                             {"pattern", "G"},
                                                                                             {"delta_heads", "4"},
                                                                                             {"delta_key_heads", "2"},
                                                                                             {"delta_key_size", "2"},
                                                                                             {"delta_value_size", "3"},
                                                                                             {"delta_chunk", "4"}})
    arguments[key] = {value, {}};
  return arguments;
}
Model small_net() {
  return build_family(*find_family("decoder"), small_arguments(), {});
}

}  // namespace

TEST_CASE("A delta rule in chunks has as many products as loops count, forward and backward") {
  const DeltaNet spec{.heads = 4, .key_heads = 2, .key_size = 3, .value_size = 2, .kernel = 3, .chunk = 3};
  for (const std::int64_t tokens : {1, 3, 5, 6, 7}) {
    CAPTURE(tokens);
    Products counted;
    for (std::int64_t h = 0; h < spec.heads; ++h) {
      const Head head = head_of(spec, tokens, static_cast<double>(h));
      std::vector<Chunk> chunks;
      const Rows out = forward(head, 3, counted, chunks), exact = by_token(head);
      for (std::size_t i = 0; i < out.size(); ++i)
        for (std::size_t j = 0; j < out[0].size(); ++j)
          CHECK(std::abs(out[i][j] - exact[i][j]) < 1e-12);
      const Rows weights = made_of_sines(out.size(), out[0].size(), 300);
      const Head gradients = backward(weights, chunks, counted);
      CHECK(worst_gradient(head, &Head::q, gradients.q, weights) < 1e-8);
      CHECK(worst_gradient(head, &Head::k, gradients.k, weights) < 1e-8);
      CHECK(worst_gradient(head, &Head::v, gradients.v, weights) < 1e-8);
    }
    const Work work = rule_of(spec, tokens);
    const auto check = [&](const char* name, double forward, double back, double again) {
      CAPTURE(name);
      const Operator& op = operator_of(work, name);
      CHECK(op.product);
      CHECK(op.forward_flops == 2 * forward);
      CHECK(op.input_flops == 2 * back);
      CHECK(op.rebuilt_flops == 2 * again);
    };
    check("chunk_wy", counted.wy, counted.wy_back, counted.wy_again);
    check("chunk_states", counted.states, counted.states_back, counted.states_again);
    check("chunk_output", counted.output, counted.output_back, counted.output_again);
    CHECK(operator_of(work, "chunk_states").in_turn == static_cast<double>((tokens + 2) / 3));
  }
}

TEST_CASE("The FLOPs of the example in layer_delta_net.cpp: 320, 176, 192 and 96 + 160") {
  const DeltaNet spec{.heads = 2, .key_heads = 1, .key_size = 2, .value_size = 3, .kernel = 4, .chunk = 2};
  const Work work = rule_of(spec, 4);
  CHECK(features_of(spec) == 2 * 2 + 2 * 6 + 2 * 2);
  CHECK(operator_of(work, "causal_conv1d").forward_flops == 2 * 4 * 4 * 10);
  CHECK(operator_of(work, "chunk_wy").forward_flops == 16 + 160);
  CHECK(operator_of(work, "chunk_states").forward_flops == 192);
  CHECK(operator_of(work, "chunk_output").forward_flops == 96 + 160);
  CHECK(work.product_flops() == 320 + 176 + 192 + 256);
}

TEST_CASE("A gated delta net of hidden 8 has 515 parameters, and keeps 112 values and more of a token") {
  // The first product 8 (2 x 4 + 2 x 12 + 2 x 4) = 8 x 40, the convolution 4 x 20, A and dt 2 x 4, the norm 3, the second
  // product 12 x 8; and the norm before the block, 8.
  const Model model = small_net();
  const Work& work = work_of(model, "block.0");
  CHECK(work.parameters == 8 * 40 + 4 * 20 + 2 * 4 + 3 + 12 * 8 + 8);
  std::vector<std::string_view> names;
  for (const Operator& op : work.operators)
    names.push_back(op.name);
  CHECK(names == std::vector<std::string_view>{"rms_norm", "linear", "causal_conv1d", "l2_norm", "chunk_gates",
                                               "chunk_wy", "chunk_states", "chunk_output", "gated_norm", "linear",
                                               "add"});
  // Kept: the norm's output (8), the first product's (40), q and k (2 x 4), v and the output (2 x 12), the gated norm's (12),
  // beta (4), T (4 x 4), and g in fp32 (4 x 4 B).
  CHECK(work.kept.on_device(Bytes{2}, {}) == 6 * (2 * (8 + 40 + 8 + 24 + 12 + 4 + 16) + 4 * 4));
}

TEST_CASE("Kernels of a delta rule read and write what their tensors hold") {
  // 6 tokens: q or k 4 values a token, W 8, v 12, T 16, beta 4, g 4 x 4 B; states of two chunks, 2 x 4 x 6. 2 B a value.
  const Model model = small_net();
  const Work& work = work_of(model, "block.0");
  const std::int64_t key = 2 * 6 * 4, wide = 2 * 6 * 8, value = 2 * 6 * 12, t = 2 * 6 * 16, beta = 2 * 6 * 4,
                     g = 4 * 6 * 4;
  const std::int64_t states = 2 * 2 * 4 * 6;
  const auto forward = [&](const char* name) { return operator_of(work, name).forward_bytes.on_device(Bytes{2}, {}); };
  const auto backward = [&](const char* name) { return operator_of(work, name).input_bytes.on_device(Bytes{2}, {}); };
  CHECK(forward("causal_conv1d") == 2 * 2 * 6 * 20);
  CHECK(backward("causal_conv1d") == 3 * 2 * 6 * 20);
  CHECK(forward("l2_norm") == 4 * key);
  CHECK(backward("l2_norm") == 6 * key);
  CHECK(forward("chunk_gates") == 3 * beta + 3 * g);
  CHECK(backward("chunk_gates") == 4 * beta + 4 * g);
  // k, g, beta read, T written; then these and v read, W and U written.
  CHECK(forward("chunk_wy") == (key + g + beta + t) + (key + g + beta + t + value) + wide + value);
  CHECK(forward("chunk_states") == wide + value + key + g + value + states);
  CHECK(forward("chunk_output") == 2 * key + value + states + g + value);
  CHECK(forward("gated_norm") == 3 * value);
  CHECK(backward("gated_norm") == 5 * value);
  // W and U again. Then T, k, v, g, beta and two gradients read, those of k, v, beta and g written; the gradient of k summed up
  // over heads that share it, and added, like that of g.
  CHECK(backward("chunk_wy") == (key + g + beta + t + value + wide + value) +
                                    (t + key + value + g + beta + wide + value) + (wide + value + 2 * g) +
                                    (wide + key) + 3 * key + 3 * g);
  CHECK(backward("chunk_states") == forward("chunk_states") + (2 * key + wide + 2 * value + g) + (states + value));
  CHECK(backward("chunk_output") == (2 * key + value + g + value) + (3 * value + 2 * states + 2 * key + g) +
                                        (3 * wide + g) + 2 * (wide + key) + 2 * g);
  CHECK(operator_of(work, "chunk_output").workspace.on_device(Bytes{2}, {}) ==
        3 * wide + 2 * key + 4 * value + 2 * states);
  // No head shares keys: nothing is summed up.
  const Work own = rule_of({.heads = 4, .key_heads = 4, .key_size = 2, .value_size = 3, .chunk = 4}, 6);
  CHECK(operator_of(own, "chunk_output").input_bytes.on_device(Bytes{2}, {}) ==
        (4 * wide + 2 * value + 2 * g + 3 * value + 2 * states) + 3 * wide + 3 * g);
}

TEST_CASE("Tensor parallelism divides both kinds of heads of a gated delta net, not its norm") {
  Model model = small_net();
  const Work& work = work_of(model, "block.0");
  CHECK(work.shards == 2);
  CHECK(parameters_on_device(work, {.degree = 2}) == (work.parameters - 8 - 3) / 2 + 8 + 3);
  CHECK(work.reductions_forward == 1);
  for (const Operator& op : work.operators)
    if (op.module == Module::StateSpace) {
      CAPTURE(op.name);
      CHECK(op.forward_bytes.on_device(Bytes{2}, {.degree = 2}) * 2 == op.forward_bytes.on_device(Bytes{2}, {}));
    }
  settle(model, Bytes{2}, {.degree = 2});
  CHECK_THROWS_WITH_AS(settle(model, Bytes{2}, {.degree = 4}),
                       doctest::Contains("plan.tensor_parallel: 4 does not divide layer \"block.0\""), InputError);
}

TEST_CASE(
    "Megatron's count of a gated delta net: its products, its convolution and 8 V^2 a token and head, three times") {
  const Model model = small_net();
  const double tokens = 6, net = tokens * (2 * 8 * 40 + 2 * 4 * 20 + 8 * 4 * 3 * 3 + 2 * 12 * 8),
               head = tokens * 2 * 8 * 16;
  REQUIRE(flop_conventions()[1].name == "megatron");
  CHECK(flop_count(model, flop_conventions()[1]).training() == 3 * (net + head));
}

TEST_CASE("A delta rule is about as fast as measured on an H200 and an H100") {
  // [FlashQLA26], fla 0.5.1, bf16, K = V = 128: key heads, heads, tokens, tokens of a sample, ms.
  struct Row {
    std::int64_t key_heads, heads, tokens, sample;
    double ms;
  };
  constexpr Row forward[] = {{2, 8, 32768, 32768, 0.902},   {2, 8, 8192, 8192, 0.234},     {2, 8, 2048, 2048, 0.081},
                             {4, 16, 32768, 32768, 1.241},  {4, 16, 8192, 8192, 0.316},    {4, 16, 2048, 2048, 0.098},
                             {8, 32, 32768, 32768, 1.885},  {8, 32, 8192, 8192, 0.466},    {8, 32, 4096, 4096, 0.244},
                             {16, 64, 32768, 32768, 3.331}, {16, 64, 8192, 8192, 0.814},   {16, 64, 2048, 2048, 0.220},
                             {16, 32, 32768, 32768, 1.890}, {16, 32, 16384, 16384, 0.930}, {16, 32, 8192, 8192, 0.472},
                             {16, 32, 4096, 4096, 0.247},   {16, 32, 2048, 2048, 0.132},   {8, 24, 8192, 8192, 0.391},
                             {16, 48, 8192, 8192, 0.665},   {16, 16, 8192, 8192, 0.334},   {32, 32, 8192, 8192, 0.500},
                             {2, 8, 32768, 8192, 0.467},    {2, 8, 32768, 4096, 0.471},    {4, 16, 32768, 8192, 0.935},
                             {8, 32, 32768, 4096, 1.902},   {16, 64, 32768, 4096, 3.390},  {16, 32, 8192, 2048, 0.485}};
  constexpr Row backward[] = {{16, 32, 8192, 8192, 1.444},  {16, 32, 32768, 32768, 5.697}, {8, 16, 8192, 8192, 0.957},
                              {8, 16, 32768, 32768, 3.701}, {4, 8, 8192, 8192, 0.722},     {4, 8, 32768, 32768, 2.743},
                              {2, 4, 8192, 8192, 0.606},    {2, 4, 32768, 32768, 2.311}};
  const auto predicted = [](const Row& row, double bandwidth, bool back) {
    const Work work = rule_of({.heads = row.heads, .key_heads = row.key_heads}, row.sample);
    double ns = 0;
    for (const Operator& op : work.operators) {
      if (!op.product || op.name == "causal_conv1d") continue;
      const KernelsOfOperator by = scan_kernels(op);
      const double bytes = (back ? op.input_bytes : op.forward_bytes).on_device(Bytes{2}, {}) *
                           static_cast<double>(row.tokens / row.sample) * (back ? by.backward : by.forward);
      ns += std::max(bytes / (bandwidth * 0.89) * 1e9 + 5000.0 * (back ? by.kernels_back : by.kernels),
                     back ? by.backward_ns : by.forward_ns);
    }
    return ns / 1e6;
  };
  double sum = 0;
  for (const Row& row : forward) {
    CAPTURE(row.heads);
    CAPTURE(row.tokens);
    const double ratio = predicted(row, 4800e9, false) / row.ms;
    CHECK(std::abs(ratio - 1) < 0.13);
    sum += std::abs(ratio - 1);
  }
  CHECK(sum / std::size(forward) < 0.06);
  for (const Row& row : backward) {
    CAPTURE(row.heads);
    CAPTURE(row.tokens);
    CHECK(std::abs(predicted(row, 4800e9, true) / row.ms - 1) < 0.025);
  }
  // Another's measurements on an H100, on which nothing is fitted.                               [FlashInferGdn26]
  constexpr Row elsewhere[] = {{2, 8, 65536, 65536, 1.954}, {2, 8, 32768, 32768, 0.997}, {2, 8, 16384, 16384, 0.508},
                               {2, 8, 8192, 8192, 0.259},   {2, 8, 4096, 4096, 0.144},   {2, 8, 2048, 2048, 0.086}};
  for (const Row& row : elsewhere) {
    CAPTURE(row.tokens);
    CHECK(std::abs(predicted(row, 3350e9, false) / row.ms - 1) < 0.1);
  }
}

TEST_CASE("Wrong gated delta nets are refused with what would do") {
  const auto refused = [](const DeltaNet& spec, std::int64_t features) -> std::string {
    LayerBuilder layer;
    try {
      layer.gated_delta_net(layer.input({4, features}), spec);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refused({.heads = 3, .key_heads = 2}, 23) == "2 key heads do not divide 3 heads; use a divisor");
  CHECK(refused({.heads = 2, .key_heads = 1, .key_size = 2, .value_size = 3}, 23) ==
        "a gated delta net of 2 heads of 3 and 1 key heads of 2 needs an input of 20 features, not 23");
  CHECK(refused({.heads = 2, .key_heads = 1, .key_size = 2, .value_size = 3, .chunk = 0}, 20) ==
        "chunk 0 is too small; use 1 or more");
}

TEST_CASE("Patterns with gated delta nets: their defaults, and what contradicts them") {
  const auto net = [](std::initializer_list<std::pair<const char*, const char*>> changes) {
    FamilyArguments arguments = small_arguments();
    for (const auto& [key, value] : changes)
      if (*value == '\0')
        arguments.erase(key);
      else
        arguments[key] = {value, {}};
    return build_family(*find_family("decoder"), arguments, {});
  };
  const auto refused = [&](std::initializer_list<std::pair<const char*, const char*>> changes) -> std::string {
    try {
      net(changes);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  const auto says = [](const std::string& text, const char* words) { return text.find(words) != std::string::npos; };
  // 128 features each, as many key heads as heads, a convolution of 4: h (8 x 512 + 8) ... with 4 heads.
  const Model plain =
      net({{"delta_key_heads", ""}, {"delta_key_size", ""}, {"delta_value_size", ""}, {"delta_chunk", ""}});
  CHECK(work_of(plain, "block.0").parameters == 8 * (4 * 512 + 8) + 4 * 3 * 512 + 8 + 128 + 512 * 8 + 8);
  CHECK(says(refused({{"delta_heads", ""},
                      {"delta_key_heads", ""},
                      {"delta_key_size", ""},
                      {"delta_value_size", ""},
                      {"delta_chunk", ""}}),
             "model.pattern: G has G, but delta_heads is missing; add it"));
  CHECK(says(refused({{"pattern", "-"}}), "is given without G in pattern; write a pattern with G, or leave it out"));
  CHECK(says(refused({{"delta_key_heads", "3"}}),
             "model.delta_heads: 4 is not a multiple of delta_key_heads 3; use one, or give delta_key_heads"));
  // Six tokens. A chunk that nobody asked for may be longer.
  CHECK(
      says(refused({{"delta_chunk", "65"}}),
           "model.delta_chunk: 65 is longer than sequence_length 6; write no more than that, or leave it out for 64"));
  CHECK(refused({{"delta_chunk", "64"}}) == "");
  CHECK(says(refused({{"sequence_length", "100"}, {"delta_chunk", "101"}}), "101 is longer than sequence_length 100;"));
  CHECK(refused({{"sequence_length", "100"}, {"delta_chunk", "100"}}) == "");
  // Both kinds of mixers in one stack.
  const Model both = net({{"layers", "2"}, {"pattern", "MG"}, {"mamba_heads", "8"}});
  CHECK(work_of(both, "block.1").parameters == work_of(small_net(), "block.0").parameters);
}

TEST_CASE("A gate of the attention: a product wider by the queries, and a sigmoid that scales the output") {
  const auto gated = [](const char* norm, const char* gate) {
    return family_model("decoder", {{"layers", "1"},
                                    {"hidden", "8"},
                                    {"heads", "4"},
                                    {"key_heads", "2"},
                                    {"head_size", "6"},
                                    {"feed_forward", "8"},
                                    {"vocabulary", "16"},
                                    {"sequence_length", "5"},
                                    {"pattern", "*"},
                                    {"qk_norm", norm},
                                    {"attention_gate", gate}});
  };
  for (const char* norm : {"none", "head"}) {
    CAPTURE(norm);
    const Model with = gated(norm, "yes"), without = gated(norm, "no");
    const Work &gate = work_of(with, "block.0"), &none = work_of(without, "block.0");
    CHECK(gate.parameters - none.parameters == 8 * 4 * 6);
    CHECK(gate.product_flops() - none.product_flops() == 2 * 5 * 8 * 4 * 6);
    CHECK(operator_of(gate, "sigmoid").forward_bytes.on_device(Bytes{2}, {}) == 2 * 2 * 5 * 24);
    CHECK(operator_of(gate, "multiply").forward_bytes.on_device(Bytes{2}, {}) == 3 * 2 * 5 * 24);
    CHECK(operator_of(gate, "multiply").divided);
    CHECK(gate.shards == none.shards);
  }
  CHECK_THROWS_WITH_AS(family_model("decoder", {{"layers", "1"},
                                                {"hidden", "8"},
                                                {"heads", "4"},
                                                {"feed_forward", "8"},
                                                {"key_value_rank", "4"},
                                                {"nope_size", "4"},
                                                {"rope_size", "2"},
                                                {"value_size", "4"},
                                                {"attention_gate", "yes"}}),
                       doctest::Contains("attention_gate: yes is not built with key_value_rank"), InputError);
}
