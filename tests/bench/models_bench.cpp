// How long it takes to build a model from its family's parameters: every question of a sweep over models begins so.
// Not part of `meson test`: run build/tests/bench/bench_models.
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/check.hpp"
#include "core/model/families/table.hpp"

namespace pipewright {
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

}  // namespace
}  // namespace pipewright

BENCHMARK_MAIN();
