#include "planner/answer.hpp"

#include <algorithm>
#include <string>

#include <doctest/doctest.h>

#include "planner/words.hpp"
#include "tests/support/uniform_scenario.hpp"

namespace pipewright::tests {
namespace {

constexpr std::int64_t kMs = 1'000'000;

Answer found(const Scenario& scenario, const AnswerOptions& options = {}) {
  auto result = answer(scenario, options);
  REQUIRE(std::holds_alternative<Answer>(result));
  return std::get<Answer>(std::move(result));
}

Infeasible refused(const Scenario& scenario) {
  auto result = answer(scenario);
  REQUIRE(std::holds_alternative<Infeasible>(result));
  return std::get<Infeasible>(std::move(result));
}

const Sensitivity* changed(const Answer& answer, const std::string& what) {
  for (const Sensitivity& row : answer.report.sensitivity)
    if (row.what == what) return &row;
  return nullptr;
}

bool mentions(const std::vector<std::string>& lines, const std::string& text) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

// 8 layers of 1 + 2 ms on 4 stages: 6 ms per stage and micro-batch; 8 + 4 - 1 = 11 of them.
TEST_CASE("1F1B on equal stages takes M + K - 1 turns") {
  const Report report = found(uniform_scenario()).report;
  CHECK(report.step_time == Time{66 * kMs});
  CHECK(report.bubble_fraction == doctest::Approx(3.0 / 11));
  CHECK(report.samples_per_s == doctest::Approx(8 / 0.066));
}

// 1.28 TB of gradients in buckets of 25 MB on 2048 workers would be 105 million all-reduces; but a bucket is at least a
// layer, and copies that run alike count once.
TEST_CASE("A plan on thousands of devices is answered with the default buckets") {
  Scenario scenario = uniform_scenario({.layers = 16, .stages = 16, .micro_batches = 16});
  scenario.cluster.nodes = 2048, scenario.cluster.devices_per_node = 1;
  scenario.cluster.network = Network{.bandwidth = {50e9}, .latency = {5000}};
  scenario.plan.data_parallel.value = 128;
  for (Layer& layer : scenario.model.layers)
    layer.activation = {100'000'000}, layer.parameters = 20'000'000'000;
  scenario.plan.bucket = PlanRequest{}.bucket;
  const Answer large = found(scenario, {.ignore_memory = true});
  CHECK(large.plan.bucket == Bytes{25'000'000});
  CHECK(large.report.workers.size() == 2048);
  CHECK(large.timeline.workers.size() == 32);
  CHECK(large.times(2047).compute == large.times(15).compute);  // the last copy runs as the first, at the trees' end
  CHECK(large.report.links.size() == 4096);
  CHECK_FALSE(large.report.sensitivity.empty());
}

// A port in and one out per device: every permutation of the devices sees the same links.
TEST_CASE("Shuffled devices of a symmetric node give the same times, in both engines") {
  Scenario scenario = uniform_scenario();
  scenario.cluster.links = {.kind = LinkKind::Nvswitch, .bandwidth = {1e9}, .latency = {1000}};
  for (Layer& layer : scenario.model.layers)
    layer.activation = {700'000};  // 0.7 ms on the wire
  scenario.plan.data_parallel.value = 2;
  for (const Engine engine : {Engine::Auto, Engine::StaticOrder, Engine::EventQueue}) {
    scenario.plan.placement = std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7};
    const Answer straight = found(scenario, {.engine = engine});
    scenario.plan.placement = std::vector<std::int64_t>{6, 1, 4, 3, 0, 7, 5, 2};
    const Answer shuffled = found(scenario, {.engine = engine});
    CHECK(shuffled.timeline.workers == straight.timeline.workers);
    CHECK(shuffled.timeline.transfers == straight.timeline.transfers);
    for (std::size_t w = 0; w < straight.report.workers.size(); ++w)
      CHECK(shuffled.report.workers[w].memory.bytes == straight.report.workers[w].memory.bytes);
  }
}

TEST_CASE("The bubble formula stands beside the simulated bubble and misses nothing on equal stages") {
  const Report report = found(uniform_scenario()).report;
  REQUIRE(report.formulas.size() == 3);
  CHECK(report.formulas[0].formula == "(K-1)/(M+K-1) = 3/11");
  CHECK(report.formulas[0].value == doctest::Approx(report.formulas[0].simulated));
  CHECK(report.formulas[0].applies == "");
  CHECK(report.formulas[1].quantity == "peak in flight, stage 0");
  CHECK(report.formulas[1].value == 4);
  CHECK(report.formulas[1].simulated == 4);
  CHECK(report.formulas[2].simulated == 1);
}

// Stages of 2 layers, f = 2 ms and a backward of 4 ms, half of it for the weights: f = b = w, M = 8, K = 4.
// (K-1)(f+b-w) / (M(f+b+w) + (K-1)(f+b-w)) = 3 / (24 + 3)                                    [ZeroBubble23] section 2.3
TEST_CASE("ZB-H1's bubble stands beside its formula, which depends on the times of the passes") {
  Scenario scenario = uniform_scenario();
  scenario.plan.schedule.value = "zb_h1";
  const Report report = found(scenario).report;
  REQUIRE(report.formulas.size() == 3);
  CHECK(report.formulas[0].quantity == "bubble");
  CHECK(report.formulas[0].formula == "(K-1)(f+b-w)/(M(f+b+w)+(K-1)(f+b-w)) = 1/9");
  CHECK(report.formulas[0].value == doctest::Approx(100.0 / 9));
  CHECK(report.formulas[0].simulated == doctest::Approx(report.formulas[0].value));
  CHECK(report.formulas[0].source == "ZeroBubble23");
  CHECK(report.formulas[0].applies == "");
  scenario.plan.partition.value = LayerCounts{{1, 3, 2, 2}};
  CHECK(found(scenario).report.formulas[0].applies == "stages are unequal");
  scenario.plan.partition.value = Balanced{};
  scenario.training.micro_batches->value = 3;  // fewer than stages: the formula does not hold
  CHECK(found(scenario).report.formulas[0].quantity != "bubble");
}

TEST_CASE("Unequal stages are named as what the bubble formula misses") {
  Scenario scenario = uniform_scenario();
  scenario.plan.partition.value = LayerCounts{{1, 3, 2, 2}};
  CHECK(found(scenario).report.formulas[0].applies == "stages are unequal");
}

TEST_CASE("GPipe's step time with unequal stages is its closed form") {
  Scenario scenario = uniform_scenario();
  scenario.plan.schedule.value = "gpipe";
  scenario.plan.partition.value = LayerCounts{{1, 3, 2, 2}};
  const Report report = found(scenario).report;
  const auto step = std::find_if(report.formulas.begin(), report.formulas.end(),
                                 [](const FormulaReport& formula) { return formula.quantity == "step time"; });
  REQUIRE(step != report.formulas.end());
  CHECK(step->value == doctest::Approx(0.024 + 7 * 0.009));  // sum(f+b) = 24 ms, the slowest stage 3 + 6 ms
  CHECK(step->simulated == doctest::Approx(step->value));
}

// One device: 8 micro-batches of 8 layers of 3 ms = 192 ms.
TEST_CASE("Speed-up over one device is its time over the step, efficiency that per worker") {
  const Report report = found(uniform_scenario()).report;
  CHECK(report.speedup_one_device == doctest::Approx(192.0 / 66));
  CHECK(report.scaling_efficiency == doctest::Approx(192.0 / 66 / 4));
}

// Four workers with the whole model and free all-reduce: 2 micro-batches of 24 ms each.
TEST_CASE("Data parallelism on the same workers has no bubble when all-reduce is free") {
  const Report report = found(uniform_scenario()).report;
  REQUIRE(report.speedup_data_parallel.has_value());
  CHECK(*report.speedup_data_parallel == doctest::Approx(48.0 / 66));
  CHECK(report.references.back().note == "");
}

TEST_CASE("Data parallelism says when its batch differs and when the model does not fit on one device") {
  Scenario scenario = uniform_scenario({.micro_batches = 6});  // 6 samples over 4 workers: one each
  scenario.cluster.device.memory = Bytes{24 << 20};            // 1F1B: at most 4 x 2 stashes of 1 MiB per stage
  scenario.model.layers[0].parameters = scenario.model.layers[4].parameters = 1'500'000;  // 12 MB each with gradients
  const Report report = found(scenario).report;
  CHECK(report.references.back().note.find("with a global batch of 4 instead of 6; does not fit: it needs") == 0);
}

TEST_CASE("Twice the FLOP rate halves a step of compute alone") {
  const Answer answer = found(uniform_scenario());
  const Sensitivity* row = changed(answer, "2x FLOP rate (compute times halved)");
  REQUIRE(row != nullptr);
  CHECK(row->step_time == Time{33 * kMs});
  CHECK(row->speedup == doctest::Approx(2));
}

// K = 2, M = 1: 12 + 12 ms of compute and two hops of 1 MiB at 1 MiB/s = 1 s each.
TEST_CASE("Twice the bandwidth inside the node halves the hops; other links are not mentioned") {
  Scenario scenario = uniform_scenario({.stages = 2, .micro_batches = 1});
  scenario.cluster.links = {.kind = LinkKind::Nvswitch, .bandwidth = Bandwidth{1 << 20}};
  const Answer answer = found(scenario);
  CHECK(answer.report.step_time == Time{2'024 * kMs});
  REQUIRE(changed(answer, "2x link bandwidth inside the node") != nullptr);
  CHECK(changed(answer, "2x link bandwidth inside the node")->step_time == Time{1'024 * kMs});
  CHECK(changed(answer, "2x network bandwidth") == nullptr);
  CHECK(changed(answer, "half the latencies") == nullptr);
}

TEST_CASE("A hint for more micro-batches states the bubble that they have") {
  const Report report = found(uniform_scenario()).report;
  CHECK(mentions(report.hints, "32 micro-batches would cut the bubble to 8.6 %: --set training.micro_batches=32"));
}

TEST_CASE("A hint keeps a given global batch") {
  Scenario scenario = uniform_scenario();
  scenario.training.global_batch_size = Placed<std::int64_t>{32, {}};
  scenario.training.micro_batch_size.reset();
  const Report report = found(scenario).report;
  CHECK(mentions(report.hints, "32 micro-batches would cut the bubble to 8.6 %: --set training.micro_batches=32"));
}

TEST_CASE("An unbalanced partition gets the hint to balance it") {
  Scenario scenario = uniform_scenario({.micro_batches = 64});
  scenario.plan.partition.value = LayerCounts{{1, 3, 2, 2}};
  CHECK(mentions(found(scenario).report.hints, "--set plan.partition=balanced"));
}

TEST_CASE("A long balanced run gets no hint") {
  CHECK(found(uniform_scenario({.micro_batches = 256})).report.hints.empty());
}

// A micro-batch leaves 3 MiB on stages 1 to 3: the tensor that came in and the outputs of two layers. GPipe keeps all
// 64 of them, 192 MiB. 1F1B keeps 3 on stage 1, and two tensors wait there (one each way): 9 + 2 MiB. With
// recomputation GPipe keeps 64 incoming tensors, rebuilds 2 MiB, and a gradient waits: 67 MiB.
// f = 2 ms, b = 4 ms: 1F1B takes (64 + 3) * 6 = 402 ms. With recomputation (2 ms) the forwards end at 67 * 2 = 134 ms;
// the last stage then works 64 * 6 ms, and the gradient passes three more stages, which have recomputed by then: 530
// ms.
TEST_CASE("A plan that does not fit says what does, each remedy with its need and its setting") {
  Scenario scenario = uniform_scenario({.micro_batches = 64});
  scenario.plan.schedule.value = "gpipe";
  scenario.cluster.device.memory = Bytes{100 << 20};
  const Infeasible why = refused(scenario);
  CHECK(why.reason.find("stage") != std::string::npos);
  CHECK(mentions(why.remedies, "schedule: 1f1b needs 11.0 MiB, 159.2 samples/s: --set plan.schedule=1f1b"));
  CHECK(mentions(why.remedies, "recompute: full needs 67.0 MiB, 120.8 samples/s: --set plan.recompute=full"));
  CHECK_FALSE(mentions(why.remedies, "nothing"));
}

// More stages want one way to recompute for all, which the second change of such a pair gives anew.
TEST_CASE("No remedy sets a key twice") {
  CHECK(with_later_changes({"plan.stages=8", "plan.recompute=none"}, {"plan.recompute=full"}) ==
        std::vector<std::string>{"plan.stages=8", "plan.recompute=full"});
  CHECK(with_later_changes({"plan.stages=8", "training.zero=1"}, {"plan=auto"}) ==
        std::vector<std::string>{"training.zero=1", "plan=auto"});
  Scenario scenario = uniform_scenario({.layers = 8, .stages = 2});
  for (Layer& layer : scenario.model.layers)
    layer.activation = Bytes{1 << 20}, layer.stash = Bytes{3 << 20}, layer.parameters = 1'000'000;
  scenario.plan.recompute.value = {Recompute::None, Recompute::None};
  scenario.cluster.device.memory = Bytes{22 << 20};
  const std::vector<std::string> remedies = refused(scenario).remedies;
  CHECK(mentions(remedies, "stages: 8 and recompute: full needs 19.6 MiB, "));
  CHECK(mentions(remedies, ": --set plan.stages=8 --set plan.recompute=full"));
}

TEST_CASE("When nothing helps, the remedies say so") {
  Scenario scenario = uniform_scenario();
  scenario.cluster.device.memory = Bytes{1000};
  CHECK(mentions(refused(scenario).remedies, "nothing that was tried fits"));
}

TEST_CASE("A plan that does not fit gets the warnings of one that does") {
  Scenario scenario = uniform_scenario();
  scenario.plan.scatter_gather.value = true;
  const std::vector<std::string> warnings = found(scenario).report.warnings;
  CHECK(mentions(warnings, "plan.scatter_gather has no effect"));
  scenario.cluster.device.memory = Bytes{1000};
  CHECK(refused(scenario).warnings == warnings);
}

TEST_CASE("A plan that does not fit is priced all the same when memory is ignored") {
  Scenario scenario = uniform_scenario();
  scenario.cluster.device.memory = Bytes{1000};
  const Report report = found(scenario, {.ignore_memory = true}).report;
  CHECK_FALSE(report.fits);
  CHECK(report.step_time == Time{66 * kMs});
}

// Four equal stages of 6 ms: one micro-batch every 6 ms once the pipeline is full.
TEST_CASE("PipeDream's step is the steady cycle, whatever the length of the run") {
  for (const std::int64_t micro_batches : {1, 3, 200}) {
    Scenario scenario = uniform_scenario({.micro_batches = micro_batches});
    scenario.plan.schedule.value = "pipedream";
    const Report report = found(scenario).report;
    REQUIRE(report.steady.has_value());
    CHECK(report.steady->exact);
    CHECK(report.step_time == Time{micro_batches * 6 * kMs});
    CHECK(report.samples_per_s == doctest::Approx(1 / 0.006));
    CHECK(report.bubble_fraction == doctest::Approx(0));
    CHECK(report.makespan > report.step_time);
  }
}

TEST_CASE("Both engines give the same answer where nothing is shared") {
  const Scenario scenario = uniform_scenario();
  const Answer a = found(scenario, {.engine = Engine::StaticOrder}),
               b = found(scenario, {.engine = Engine::EventQueue});
  CHECK(a.timeline.workers == b.timeline.workers);
  CHECK(a.timeline.engine != b.timeline.engine);
}

TEST_CASE("The answer says where its figures come from") {
  const Report report = found(uniform_scenario()).report;
  CHECK(mentions(report.provenance, "layer times: as stated for 1 sample"));
  CHECK(mentions(report.provenance, "model: equal layers"));
  CHECK(mentions(report.provenance, "device: roomy"));
  CHECK(mentions(report.provenance, "engine: static order"));
  CHECK(mentions(report.provenance, "not modelled: "));
}

}  // namespace
}  // namespace pipewright::tests
