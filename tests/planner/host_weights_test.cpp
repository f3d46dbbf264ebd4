// training.offload_weights and cluster.node.host_bandwidth: prices, memory and the step by hand, and what is refused.
#include <algorithm>
#include <string>
#include <variant>

#include <doctest/doctest.h>

#include "core/cost/host_copies.hpp"
#include "core/cost/host_update.hpp"
#include "core/cost/memory_model.hpp"
#include "io/writers/schedule_csv.hpp"
#include "planner/answer.hpp"
#include "planner/search/search.hpp"
#include "planner/what_if/formulas.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/planner/sharded_scenario.hpp"
#include "tests/support/transformer_block.hpp"

namespace pipewright::tests {
namespace {

void leave_on_host(Scenario& scenario) {
  scenario.training.zero = 3;
  scenario.training.precision = Precision::Bf16, scenario.training.gradient_precision = Precision::Fp32;
  scenario.training.optimizer = Optimizer::Adam;
  scenario.training.offload_optimizer = {1, {"s.yaml", 7, 3}};
  scenario.training.offload_weights = {true, {"s.yaml", 8, 3}};
  scenario.cluster.device.host_link = Bandwidth{50e9}, scenario.cluster.device.host_update = Bandwidth{10e9};
}

// Blocks of 100 million parameters on two devices, 3 ms forward and 6 ms backward; gathers of 1 ms, reductions of 2.
Scenario weights_on_host(std::int64_t micro_batches) {
  Scenario scenario = sharded(4, 2, micro_batches);
  leave_on_host(scenario);
  scenario.cost = CostSourceKind::Roofline;
  scenario.cluster.device.peak[Precision::Bf16] = FlopRate{1e12};
  scenario.cluster.device.memory_bandwidth = Bandwidth{1e15};
  return scenario;
}

}  // namespace

TEST_CASE("a shard of weights and of gradients takes its own link; the host reads two and writes one where it adds") {
  const Answer answer = priced(weights_on_host(1));
  CHECK(answer.plan.resharding == Resharding{true, true, 0, true});
  const auto& copies = answer.costs.host_copies;
  REQUIRE(copies.size() == 4 * 3);
  CHECK(copies[0].bytes == Bytes{100'000'000});  // 2 B x 1e8 / 2
  CHECK(copies[0].time == Time{2'000'000});
  CHECK(copies[1].bytes == Bytes{200'000'000});
  CHECK(copies[1].time == Time{4'000'000});
  CHECK(copies[2].time == Time{4'000'000 + 60'000'000});  // 3 x 200 MB at 10 GB/s
}

// Shards come in 2 ms and are gathered in 1: the first forward begins at 3. The backwards end at 3 + 4 * 9 = 39, the last
// reduction at 41, its shard is on the host at 45; 4 updates of 5e7 x (4 + 24 + 2) B at 10 GB/s follow, 150 ms each.
TEST_CASE("a step with weights on the host: 3 + 36 + 2 + 4 + 600 ms") {
  const Answer answer = priced(weights_on_host(1));
  CHECK(answer.report.step_time == Time{645'000'000});
  const auto& times = answer.timeline.workers[0];
  CHECK(times.compute[0].start == Time{3'000'000});
  CHECK(times.communication[kOut].back() == Span{Time{41'000'000}, Time{45'000'000}});
  CHECK(validate(answer.timeline, answer.schedule, answer.costs) == "");
  // With the shards on the device an update waits for its own gradients alone, so that the last reduction hides; each sends
  // its gradients and fetches its weights, 4 and 2 ms.
  Scenario there = weights_on_host(1);
  there.training.offload_weights.value = false;
  CHECK(priced(there).report.step_time == Time{1'000'000 + 36'000'000 + 4 * (4 + 150 + 2) * 1'000'000});
}

// Of the second micro-batch the host adds each shard to that of the first, in 60 ms: most of the step waits for that. The
// updates take 4 x 150 ms.
TEST_CASE("what limits a step names gradients that the host adds, and copies that are no offloads of activations") {
  const Report report = priced(weights_on_host(2)).report;
  CAPTURE(report.limiting_factor);
  const auto says = [&](const char* words) { return report.limiting_factor.find(words) != std::string::npos; };
  CHECK(says("optimizer updates"));
  CHECK(says("gradients copied to the host and added there"));
  CHECK(says("copies of weights from the host"));
  CHECK_FALSE(says("offloads"));
  CHECK_FALSE(says("reloads"));
  CHECK(std::ranges::any_of(report.critical_path, [](const CriticalPart& part) {
    return part.what == "gradients to the host, added there, of stage 0" && part.kind == CriticalPart::Class::Add;
  }));
  const Report once = priced(weights_on_host(1)).report;
  CHECK(once.limiting_factor.find("copies of gradients to the host") != std::string::npos);
  CHECK(once.limiting_factor.find("added") == std::string::npos);
}

// While the third backward begins: weights of two blocks, gradients of one, a shard of weights that is being gathered, the
// gradients of the second backward that are being reduced, and the shard of those of the first.
TEST_CASE("of weights, gradients and states the device holds what is on its way, to the byte") {
  const Answer answer = priced(weights_on_host(1));
  for (const ChunkMemory& chunk : answer.memory.chunks) {
    CHECK(chunk.weights + chunk.gradients + chunk.optimizer + chunk.rounding == Bytes{});
    CHECK(chunk.on_host == Bytes{600'000'000 + 100'000'000 + 200'000'000});
  }
  CHECK(in_host_memory(answer.memory, answer.schedule, answer.plan, 0) == Bytes{3'600'000'000});
  const MemoryBytes& most = answer.report.stages[0].memory.bytes;
  CHECK(most.weights == Bytes{2 * 200'000'000});
  CHECK(most.gradients == Bytes{400'000'000});
  CHECK(most.buffers == Bytes{100'000'000 + 400'000'000 + 200'000'000});
  CHECK(most.optimizer == Bytes{});
  // fp32: the weights are among the states that the host has.
  Scenario fp32 = weights_on_host(1);
  fp32.training.precision = Precision::Fp32, fp32.cluster.device.peak[Precision::Fp32] = FlopRate{1e12};
  const CostModel cost(fp32);
  CHECK(memory_model(find_plan(fp32, cost), cost).chunks[0].on_host == Bytes{50'000'000 * (4 + 8 + 4)});
}

TEST_CASE("the devices of a node share what their host gives, and none has more than its link") {
  Cluster cluster;
  cluster.device.host_link = Bandwidth{50e9}, cluster.devices_per_node = 8;
  CHECK(to_host(cluster, cluster.device).value == 50e9);
  cluster.host_bandwidth = Bandwidth{200e9};
  CHECK(to_host(cluster, cluster.device).value == 25e9);
  cluster.host_bandwidth = Bandwidth{800e9};
  CHECK(to_host(cluster, cluster.device).value == 50e9);
  // 50 GB/s for two devices: half the rate for every copy, of weights and of the optimizer's part.
  Scenario scenario = weights_on_host(1);
  scenario.cluster.devices_per_node = 2, scenario.cluster.host_bandwidth = Bandwidth{50e9};
  CHECK(priced(scenario).costs.host_copies[0].time == Time{4'000'000});
  scenario.training.offload_weights.value = false;
  CHECK(host_update(50'000'000, scenario.training, scenario.cluster, scenario.cluster.device) ==
        Time{8'000'000 + 150'000'000 + 4'000'000});
}

TEST_CASE("the textbook's efficiency: ait bw / (ait bw + peak)") {
  Scenario scenario = block_scenario({.sequence = 1024, .hidden = 1024, .heads = 16, .inner = 4096}, 2, 8, {});
  leave_on_host(scenario);
  scenario.cluster.device.peak[Precision::Bf16] = FlopRate{70e12};
  scenario.plan.data_parallel.value = 8;
  scenario.training.sequence_length = 1024;
  scenario.training.global_batch_size.reset();
  scenario.training.micro_batch_size = Placed<std::int64_t>{2, {}},
  scenario.training.micro_batches = Placed<std::int64_t>{1, {}};
  const Answer found = std::get<Answer>(answer(scenario));
  const auto figure = [&](std::string_view quantity) {
    for (const FormulaReport& one : formulas(found))
      if (one.quantity == quantity) {
        CHECK(one.source == "ZeROInfinity21");
        CHECK(one.simulated == doctest::Approx(100 * *found.report.mfu));
        return one;
      }
    return FormulaReport{};
  };
  const FormulaReport weights = figure("efficiency by weights and gradients");
  CHECK(weights.value == doctest::Approx(100 * 8.192e14 / (8.192e14 + 0.7e14)));
  CHECK(weights.formula == "ait bw / (ait bw + peak), ait = 2048 tokens, bw = 8 x 50 GB/s");
  CHECK(weights.applies == "forwards are not repeated, gradients have 4 B, not 2");
  CHECK(figure("efficiency by optimizer states").value == doctest::Approx(100 * 4.096e13 / (4.096e13 + 7e13)));
  scenario.training.offload_weights.value = false, scenario.training.offload_optimizer.value = 0;
  const Answer none = std::get<Answer>(answer(scenario));
  for (const FormulaReport& one : formulas(none))
    CHECK(one.source != "ZeROInfinity21");
}

TEST_CASE("what cannot lie in the host's memory says why") {
  const auto refused = [](const auto& change) {
    Scenario scenario = weights_on_host(1);
    change(scenario);
    return error_of(scenario);
  };
  CHECK(refused([](Scenario&) {}) == "no error");
  CHECK(refused([](Scenario& s) { s.training.zero = 2; }) ==
        "s.yaml:8:3: training.offload_weights: true: weights come from the host where they are gathered, which "
        "training.zero: 2 does not do; write training.zero: 3; false, or no such line, keeps them on the device");
  CHECK(refused([](Scenario& s) { s.training.offload_optimizer.value = 0.5; })
            .find("not offload_optimizer: 0.5; write "
                  "training.offload_optimizer: 1") != std::string::npos);
  CHECK(refused([](Scenario& s) { s.plan.data_parallel.value = 1; }).find("one copy gathers no weights") !=
        std::string::npos);
  CHECK(refused([](Scenario& s) {
          s.plan.offload_layers = Placed<std::int64_t>{1, {}};
        }).find("would share the link") != std::string::npos);
  CHECK(refused([](Scenario& s) { s.cluster.device.host_update.reset(); }).find("host_update") != std::string::npos);
  Scenario open = weights_on_host(1);
  open.plan.open["stages"] = {};
  CHECK_THROWS_WITH_AS(search(open), doctest::Contains("training.offload_weights: the search does not bound"),
                       InputError);
  CHECK(not_in_schedule_csv(priced(weights_on_host(1)).schedule).find("training.offload_weights") == 0);
}

}  // namespace pipewright::tests
