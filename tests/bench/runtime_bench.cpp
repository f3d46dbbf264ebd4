// How fast the CPU backend's arithmetic is, one thread. Not part of `meson test`: run build/tests/bench/bench_runtime.
//
//   of_eigen  the layer's rate over that of plain Eigen products of its size, compiled with the same flags
//   of_triad  bytes read and written, over the memory bandwidth of one core (tests/bench/limits.hpp)
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include <benchmark/benchmark.h>

#include "core/model/layer_builder.hpp"
#include "runtime/backends/cpu.hpp"
#include "tests/bench/limits.hpp"
#include "tests/bench/plain_eigen.hpp"
#include "tests/runtime/step_runner.hpp"

namespace pipewright::tests {
namespace {

using runtime_test::Block;
using runtime_test::program_of;
using runtime_test::Random;
using runtime_test::StepRunner;
using Value = LayerBuilder::Value;

template <class Layer>
StepRunner<float> step(Shape in, std::int64_t samples, const Layer& layer) {
  LayerBuilder builder;
  const Value x = builder.input(in);
  return {cpu_backend(), program_of(builder, {layer(builder, x)}), samples};
}

double eigen_rate(std::int64_t rows, std::int64_t in, std::int64_t out, double flops) {
  const Block<float> x(rows * in), w(out * in), dy(rows * out), y(rows * out), dx(rows * in), dw(out * in);
  Random random(1);
  random.fill(x), random.fill(w), random.fill(dy), random.fill(dw);
  const int times = std::max(1, static_cast<int>(1e9 / flops));
  return best_rate(flops * times, [&] {
    for (int i = 0; i < times; ++i) {
      plain_eigen_linear(rows, in, out, x.data(), w.data(), dy.data(), y.data(), dx.data(), dw.data());
      benchmark::DoNotOptimize(y.data());
      benchmark::ClobberMemory();
    }
  });
}

// Forward and both gradients.
void linear(benchmark::State& state) {
  const std::int64_t rows = state.range(0), in = state.range(1), out = state.range(2);
  auto layer = step({rows, in}, 1, [&](LayerBuilder& b, Value x) { return b.linear(x, {.features = out}); });
  const double flops = 6.0 * static_cast<double>(rows * in * out);
  const double limit = eigen_rate(rows, in, out, flops);
  for (auto _ : state)
    layer.forward(), layer.both_gradients();
  using benchmark::Counter;
  const double total = flops * static_cast<double>(state.iterations());
  state.counters["flops"] = Counter(total, Counter::kIsRate);
  state.counters["of_eigen"] = Counter(total / limit, Counter::kIsRate);
}
BENCHMARK(linear)->Args({256, 512, 512})->Args({64, 256, 256})->Args({16, 128, 128})->Args({512, 1024, 4096});

void report_bytes(benchmark::State& state, double bytes) {
  using benchmark::Counter;
  const double total = bytes * static_cast<double>(state.iterations());
  state.counters["bytes"] = Counter(total, Counter::kIsRate);
  state.counters["of_triad"] = Counter(total / triad_rate(), Counter::kIsRate);
}

enum class Run { Forward, Gradient };

// Forward reads x and writes y; the gradient reads x and dy and writes dx.
template <class Layer>
void over_values(benchmark::State& state, Run run, const Layer& layer) {
  const std::int64_t rows = state.range(0), features = 1024;
  auto values = step({rows, features}, 1, layer);
  values.forward();
  for (auto _ : state)
    run == Run::Forward ? values.forward() : values.input_gradient();
  report_bytes(state, 4.0 * (run == Run::Forward ? 2 : 3) * static_cast<double>(rows * features));
}
void layer_norm(benchmark::State& state, Run run) {
  over_values(state, run, [](LayerBuilder& b, Value x) { return b.norm(x, {Norm::Layer}); });
}
void gelu(benchmark::State& state, Run run) {
  over_values(state, run, [](LayerBuilder& b, Value x) { return b.activation(x, Activation::Gelu); });
}
void relu(benchmark::State& state, Run run) {
  over_values(state, run, [](LayerBuilder& b, Value x) { return b.activation(x, Activation::Relu); });
}
void softmax(benchmark::State& state, Run run) {
  over_values(state, run, [](LayerBuilder& b, Value x) { return b.softmax(x); });
}
// 64 x 1024 values: 512 KiB read and written, within an L2; 4096 x 1024: 32 MiB, from memory.
#define BOTH(name)                                                    \
  BENCHMARK_CAPTURE(name, forward, Run::Forward)->Arg(64)->Arg(4096); \
  BENCHMARK_CAPTURE(name, gradient, Run::Gradient)->Arg(64)->Arg(4096)
BOTH(layer_norm);
BOTH(gelu);
BOTH(relu);
BOTH(softmax);

void attention(benchmark::State& state) {
  const bool flash = state.range(0) != 0;
  auto layer = step({256, 3 * 256}, 1, [&](LayerBuilder& b, Value x) {
    return b.attention({x}, {.heads = 4,
                             .key_heads = 4,
                             .key_size = 64,
                             .value_size = 64,
                             .queries = 256,
                             .keys = 256,
                             .causal = true,
                             .flash = flash});
  });
  for (auto _ : state)
    layer.forward(), layer.input_gradient();
}
BENCHMARK(attention)->Arg(0)->Arg(1);

void convolution(benchmark::State& state) {
  auto layer = step({32, 28, 28}, 1, [](LayerBuilder& b, Value x) {
    return b.conv2d(x,
                    {.channels = 64, .kernel_height = 3, .kernel_width = 3, .padding_height = 1, .padding_width = 1});
  });
  for (auto _ : state)
    layer.forward(), layer.both_gradients();
  using benchmark::Counter;
  const double flops = 6.0 * 64 * 28 * 28 * 32 * 9 * static_cast<double>(state.iterations());
  state.counters["flops"] = Counter(flops, Counter::kIsRate);
}
BENCHMARK(convolution);

// What a step costs beside its arithmetic: linear 1 x 1 of one row, as often as the backend is asked.
void smallest_step(benchmark::State& state) {
  auto layer = step({1}, 1, [](LayerBuilder& b, Value x) { return b.activation(x, Activation::Relu); });
  for (auto _ : state)
    layer.forward();
}
BENCHMARK(smallest_step);

void adam(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  const Block<float> w(n), g(n), m(n), v(n);
  Random random(1);
  random.fill(w), random.fill(g), random.fill(m);
  for (float& square : v)
    square = 1;
  const auto backend = cpu_backend();
  const UpdatedParameter one = {n, w.data(), w.data(), g.data(), {m.data(), v.data()}};
  for (auto _ : state)
    backend->update({.kind = Optimizer::Adam, .learning_rate = 1e-6}, 10, {&one, 1});
  report_bytes(state, 28.0 * static_cast<double>(n));
}
BENCHMARK(adam)->Arg(1 << 14)->Arg(1 << 22);

}  // namespace
}  // namespace pipewright::tests

BENCHMARK_MAIN();
