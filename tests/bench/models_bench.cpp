// How long it takes to build a model from its family's parameters: every question of a sweep over models begins so.
// Not part of `meson test`: run build/tests/bench/bench_models.
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/check.hpp"
#include "core/model/families/table.hpp"
#include "core/model/families/transformer_families.hpp"

namespace pipewright::tests {
namespace {

void build(benchmark::State& state, const char* name, const std::vector<std::pair<const char*, const char*>>& given) {
  const Family* const family = find_family(name);
  PP_CHECK(family != nullptr);
  FamilyArguments arguments;
  for (const auto& [key, value] : given)
    arguments[key] = {value, {}};
  std::size_t layers = 0, works = 0;
  for (auto _ : state) {
    Model model = build_family(*family, arguments, {});
    settle(model, Bytes{4}, {});
    layers = model.layers.size(), works = model.works.size();
    benchmark::DoNotOptimize(model);
  }
  state.counters["layers"] = static_cast<double>(layers);
  state.counters["works"] = static_cast<double>(works);
}
BENCHMARK_CAPTURE(build, amoebanet_d_72_512, "amoebanet_d", {{"layers", "72"}, {"filters", "512"}})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(build, vgg16, "vgg16", {})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(build, resnet152, "resnet152", {})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(build, unet_11_128, "unet", {{"convolutions", "11"}, {"channels", "128"}})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(build, gnmt_16, "gnmt", {{"layers", "16"}})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(build, transformer_1663, "transformer", {{"layers", "1663"}})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(build, decoder_with_experts, "decoder",
                  {{"layers", "61"},
                   {"hidden", "7168"},
                   {"heads", "128"},
                   {"feed_forward", "18432"},
                   {"experts", "256"},
                   {"active_experts", "8"},
                   {"expert_feed_forward", "2048"},
                   {"dense_layers", "3"},
                   {"key_value_rank", "512"},
                   {"nope_size", "128"},
                   {"rope_size", "64"},
                   {"value_size", "128"}})
    ->Unit(benchmark::kMicrosecond);

// What a search over shapes builds: 10 000 GPTs, hidden 736 to 10 240 in a hundred steps, 8 to 128 layers, tensor
// parallelism of 1 to 8, each built anew and settled.
void configurations(benchmark::State& state) {
  constexpr int kWidths = 100, kDepths = 25, kSplits = 4;
  for (auto _ : state) {
    std::int64_t parameters = 0;
    for (int width = 1; width <= kWidths; ++width)
      for (int depth = 1; depth <= kDepths; ++depth)
        for (int split = 0; split < kSplits; ++split) {
          Transformer t;
          t.layers = 3 + 5 * depth;
          t.heads = t.key_heads = 16, t.head_size = 6 * width + 40, t.hidden = t.heads * t.head_size;
          t.feed_forward = 4 * t.hidden;
          t.vocabulary = 51200, t.sequence_length = 2048;
          t.positions = Transformer::Positions::Learned, t.position_rows = 2048;
          t.attention_bias = Transformer::Bias::All, t.feed_forward_bias = true;
          Model model = build(t);
          settle(model, Bytes{2}, {.degree = 1 << split, .sequence_parallel = true});
          parameters += model.layers.back().parameters;
        }
    benchmark::DoNotOptimize(parameters);
  }
  state.SetItemsProcessed(state.iterations() * kWidths * kDepths * kSplits);
}
BENCHMARK(configurations)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright::tests

BENCHMARK_MAIN();
