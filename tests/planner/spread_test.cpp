// How far step time and memory may lie from the prediction: drawn, beside what can be told by hand.
#include "planner/what_if/spread.hpp"

#include <cmath>
#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "core/answers/campaign.hpp"
#include "io/read/read_scenario.hpp"
#include "planner/answer.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

// `answer` refers to the scenario.
struct Drawn {
  std::unique_ptr<Scenario> scenario;
  Answer answer;
  const SpreadReport& spread() const { return *answer.report.campaign->spread; }
};

Drawn drawn(const std::string& yaml) {
  const Scratch folder;
  auto scenario = std::make_unique<Scenario>(read_scenario(folder.write("s.yaml", yaml), {}));
  Answer found = std::get<Answer>(answer(*scenario, {.engine = Engine::Auto, .ignore_memory = true}));
  return {std::move(scenario), std::move(found)};
}

// One layer of 1000 x 1000 that is all matrix product, on devices that reach half of their peak, +- 20 %.
std::string product(const std::string& campaign, const std::string& plan = "{stages: 1}",
                    const std::string& memory = "80 GB") {
  return "model: {input_shape: [1000], layers: [{op: linear, features: 1000}]}\n"
         "cluster: {nodes: 1, node: {devices: 4, device: {memory: " +
         memory +
         ", memory_bandwidth: 1000 TB/s, peak: {fp32: 1 TFLOP/s}, efficiency: {matrix_product: {share: 0.5, band: 0.2, "
         "provenance: assumed, source: "
         "x}}}, links: {kind: ideal}}}\n"
         "training: {micro_batches: 4, micro_batch_size: 1000}\n"
         "plan: " +
         plan + "\ncampaign: " + campaign + "\n";
}

// Explicit times: a forward of 1 ms and a backward of 2 ms per stage.
std::string plain(const std::string& campaign, int stages, int copies) {
  std::string layers;
  for (int i = 0; i < stages; ++i)
    layers += std::string(i > 0 ? ", " : "") + "{name: l" + std::to_string(i) +
              ", forward: 1 ms, backward: 2 ms, activation: 1 kB, parameters: 10}";
  return "model: {layers: [" + layers + "]}\ncluster: {nodes: 1, node: {devices: " + std::to_string(stages * copies) +
         ", device: {memory: 1 GB}, links: {kind: ideal}}}\n"
         "training: {micro_batches: 8, micro_batch_size: 1}\n"
         "plan: {stages: " +
         std::to_string(stages) + ", data_parallel: " + std::to_string(copies) + "}\ncampaign: " + campaign + "\n";
}

}  // namespace

// Chunks 0 and 3 of a V lie on stage 0, and have all the time: one device sets the pace. Of two devices, one for each, the
// mean would be drawn, and 1.645 * 0.1 / sqrt(2) = 11.6 % be the 95 % quantile.
TEST_CASE("the chunks of a V are as fast as the device that they lie on") {
  const auto layer = [](const char* name, const char* forward, const char* backward) {
    return std::string("{name: ") + name + ", forward: " + forward + ", backward: " + backward +
           ", activation: 1 kB, parameters: 10}";
  };
  const Drawn run = drawn("model: {layers: [" + layer("a", "1 ms", "2 ms") + ", " + layer("b", "1 ns", "2 ns") + ", " +
                          layer("c", "1 ns", "2 ns") + ", " + layer("d", "1 ms", "2 ms") +
                          "]}\ncluster: {nodes: 1, node: {devices: 2, device: {memory: 1 GB}, links: {kind: ideal}}}\n"
                          "training: {micro_batches: 8, micro_batch_size: 1}\n"
                          "plan: {schedule: zbv, stages: 2, virtual_stages: 2}\n"
                          "campaign: {length: 1M samples, device_spread: 0.1, trials: 2000}\n");
  const Quantiles& step = *run.spread().step_time;
  CHECK(step.p95 == doctest::Approx(1.1645 * seconds(run.answer.report.step_time)).epsilon(0.01));
  CHECK(step.p5 == doctest::Approx(0.8355 * seconds(run.answer.report.step_time)).epsilon(0.01));
}

TEST_CASE("what is drawn of the causes lies as the 90 % interval says") {
  const Drawn run = drawn(product("{length: 1M samples, trials: 4000}"));
  const Quantiles& step = *run.spread().step_time;
  const SpeedRange& range = *run.answer.report.range;
  // All products, +-20 %, and what the model leaves out: ln 1.25 and ln 1.08 make 26.6 % slower, ln 1.2 and ln 1.08 18 %
  // faster. Of normal halves of unequal width the sum's quantiles differ a little from the roots.
  CHECK(seconds(range.slowest) == doctest::Approx(1.266 * seconds(run.answer.report.step_time)).epsilon(0.001));
  CHECK(seconds(range.fastest) == doctest::Approx(0.8205 * seconds(run.answer.report.step_time)).epsilon(0.001));
  CHECK(step.p5 == doctest::Approx(seconds(range.fastest)).epsilon(0.02));
  CHECK(step.p95 == doctest::Approx(seconds(range.slowest)).epsilon(0.02));
  CHECK(run.spread().step_distribution.starts_with("each cause of the 90 % interval normal"));
}

TEST_CASE("the same seed draws the same, another one something else") {
  const auto median = [](const std::string& seed) {
    return drawn(product("{length: 1M samples, trials: 20, seed: " + seed + "}")).spread().step_time->p50;
  };
  CHECK(median("1") == median("1"));
  CHECK(median("1") != median("2"));
}

TEST_CASE("explicit times have no error to be drawn from, and say so") {
  const Drawn run = drawn(plain("{length: 1M samples}", 2, 1));
  CHECK(!run.spread().step_time);
  CHECK(run.spread().step_distribution.starts_with("nothing to be drawn"));
  CHECK(!run.spread().memory);
  CHECK_THROWS_AS(drawn(plain("{length: 1M samples, ask: [spread]}", 2, 1)), InputError);
}

TEST_CASE("devices that differ in speed: the slowest of several copies is waited for") {
  const std::string spread = "{length: 1M samples, device_spread: 0.05, trials: 1000}";
  const Drawn one = drawn(plain(spread, 1, 1)), four = drawn(plain(spread, 1, 4));
  const double step = seconds(one.answer.report.step_time);
  // One device: normal around the step, 5 %. Its 95 % quantile lies 1.645 deviations away.
  CHECK(one.spread().step_time->p50 == doctest::Approx(step).epsilon(0.01));
  CHECK(one.spread().step_time->p95 == doctest::Approx(step * (1 + 1.645 * 0.05)).epsilon(0.01));
  // The median of the slowest of four is where one device lies below with probability 0.5^(1/4) = 84.1 %: 0.998
  // deviations.
  CHECK(four.spread().step_time->p50 == doctest::Approx(step * (1 + 0.998 * 0.05)).epsilon(0.01));
}

TEST_CASE("ops that vary make a pipeline slower in the mean, one device hardly") {
  const std::string spread = "{length: 1M samples, op_spread: 0.1, trials: 400}";
  const Drawn alone = drawn(plain(spread, 1, 1)), piped = drawn(plain(spread, 4, 1));
  CHECK(alone.spread().step_time->p50 == doctest::Approx(seconds(alone.answer.report.step_time)).epsilon(0.005));
  CHECK(piped.spread().step_time->p50 > seconds(piped.answer.report.step_time) * 1.02);
}

TEST_CASE("the probability of not fitting is the share of the band beyond the capacity") {
  const Drawn roomy = drawn(product("{length: 1M samples, trials: 20}"));
  CHECK(roomy.spread().not_fitting == 0);
  const MemoryNeed& need = roomy.answer.report.stages[0].need;
  REQUIRE(need.high > need.low);
  const std::int64_t capacity = need.low.value + (need.high.value - need.low.value) * 3 / 4;
  const Drawn tight =
      drawn(product("{length: 1M samples, trials: 20}", "{stages: 1}", std::to_string(capacity) + " B"));
  CHECK(tight.spread().not_fitting == doctest::Approx(0.25).epsilon(0.06));  // of 10000 draws: four deviations
  const auto at = [&](double share) {
    return static_cast<double>(need.low.value) + share * static_cast<double>(need.high.value - need.low.value);
  };
  CHECK(tight.spread().memory->p5 == doctest::Approx(at(0.05)).epsilon(0.01));
  CHECK(tight.spread().memory->p95 == doctest::Approx(at(0.95)).epsilon(0.01));
}

// 1F1B on two stages, eight micro-batches: 9 * 3 = 27 ms, if all devices are alike. Of eight the slowest is expected to be
// 1.4236 standard deviations behind.
TEST_CASE("device.spread: every op takes what it takes on the slowest device") {
  const auto step = [](const std::string& spread, int copies) {
    std::string yaml = plain("{length: 1000 samples}", 2, copies);
    yaml.replace(yaml.find("memory: 1 GB"), 12, "memory: 1 GB" + spread);
    return drawn(yaml).answer.report.step_time;
  };
  CHECK(step("", 4) == Time{27'000'000});
  CHECK(seconds(step(", spread: 0.1", 4)) == doctest::Approx(27e-3 * 1.14236).epsilon(1e-5));
  CHECK(seconds(step(", spread: 0.1", 1)) == doctest::Approx(27e-3 * 1.05642).epsilon(1e-5));
  std::string both = plain("{length: 1000 samples, device_spread: 0.05}", 2, 1);
  both.replace(both.find("memory: 1 GB"), 12, "memory: 1 GB, spread: 0.1");
  CHECK(message_of([&] {
          drawn(both);
        }).find("cluster.node.device.spread: the slowest device is in every op already") != std::string::npos);
}
