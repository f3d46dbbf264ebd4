// Tables that an embedding and a head share, on several stages: who has a copy, and what the sum of its gradients costs.
#include "core/plan/tied_tables.hpp"

#include <doctest/doctest.h>

#include "core/cost/buckets.hpp"
#include "core/cost/memory_model.hpp"
#include "core/cost/step_pricer.hpp"
#include "core/cost/table_exchange.hpp"
#include "io/read/read_scenario.hpp"
#include "sim/static_order.hpp"
#include "tests/io/scratch.hpp"
#include "tests/planner/plan_of.hpp"

using namespace pipewright::tests;

namespace {

// A table of 50 000 x 1024 = 51.2 M parameters, and six blocks; nodes of two devices with NICs of 10 GB/s, without latency.
Scenario gpt(const std::string& plan, const std::string& training = "", const std::string& model = "") {
  const Scratch scratch;
  return read_scenario(
      scratch.write("x.yaml",
                    "model: {family: gpt, layers: 6, hidden: 1024, heads: 16, vocabulary: 50000, sequence_length: 512" +
                        model +
                        "}\ncluster: {nodes: 8, node: {devices: 2, device: {memory: 80 GB, memory_bandwidth: 1 TB/s, "
                        "peak: {bf16: 100 TFLOP/s}}, links: {kind: nvswitch, bandwidth: 100 GB/s}}, network: "
                        "{bandwidth: 10 GB/s, per: device}}\ntraining: {micro_batches: 8, micro_batch_size: 1, "
                        "precision: bf16, gradient_precision: fp32, optimizer: adam" +
                        training + "}\nplan: {" + plan + "}\n"),
      {});
}

constexpr std::int64_t kTable = 50'000LL * 1024;

std::int64_t copied(const Scenario& scenario, VirtualStageId v) {
  const Plan plan = plan_of(scenario);
  return tables_of(plan, scenario.model, v, plan.layers[v], table_copied);
}

Time price(const Scenario& scenario) {
  const CostModel cost(scenario);
  const Plan plan = find_plan(scenario, cost);
  const std::vector<TiedTable> tables = tied_tables(plan, scenario.model);
  REQUIRE(tables.size() == 1);
  return TableExchange(plan, tables[0], cost).price().time;
}

}  // namespace

TEST_CASE("The last stage has a copy of the table, shared by the devices of a group; one worker with both has none") {
  CHECK(copied(gpt("stages: 2"), 0) == 0);
  CHECK(copied(gpt("stages: 2"), 1) == kTable);
  CHECK(copied(gpt("stages: 2, tensor_parallel: 2"), 1) == kTable / 2);
  CHECK(copied(gpt("stages: 2", "", ", tied: no"), 1) == 0);
  CHECK(copied(gpt("stages: 1"), 0) == 0);
  const Scenario there_and_back = gpt("stages: 2, virtual_stages: 2, schedule: zbv");
  CHECK(copied(there_and_back, 3) == 0);
  const auto tied = [](const Scenario& scenario) {
    const std::vector<TiedTable> tables = tied_tables(plan_of(scenario), scenario.model);
    return tables.empty() ? std::vector<VirtualStageId>() : tables[0].chunks;
  };
  CHECK(tied(gpt("stages: 3")) == std::vector<VirtualStageId>{0, 2});
  CHECK(tied(gpt("stages: 2, virtual_stages: 2, schedule: interleaved_1f1b")) == std::vector<VirtualStageId>{0, 3});
  CHECK(tied(there_and_back).empty());
  CHECK(tied(gpt("stages: 2", "", ", tied: no")).empty());
}

// Two members pass half of 204.8 MB on, twice: 204.8 MB over 10 GB/s are 20.48 ms; of two devices per worker 10.24 ms each.
TEST_CASE("The sum of the gradients by hand: 204.8 MB between two nodes in 20.48 ms") {
  CHECK(price(gpt("stages: 2, data_parallel: 2, placement: data")) == Time{20'480'000});
  CHECK(price(gpt("stages: 2, tensor_parallel: 2")) == Time{10'240'000});
  // In one node over ports of 100 GB/s.
  CHECK(price(gpt("stages: 2")) == Time{2'048'000});
  CHECK(price(gpt("stages: 2, data_parallel: 2, placement: data", ", zero: 1")) == Time{20'480'000});
  // Replicas of a stage hold the same sum: one of them takes part.
  CHECK(price(gpt("stages: 2, replicas: [3, 1]")) == Time{20'480'000});
  // Of four stages the first and the last.
  CHECK(price(gpt("stages: 4, data_parallel: 2, placement: data")) == Time{20'480'000});
}

// A next-token module on a stage of its own reads the embedding of stage 0 and the head of stage 2; both are sums of their own.
TEST_CASE("Tables of two layers are two sums; a frozen one is none") {
  const auto decoder = [](const std::string& model, const std::string& plan) {
    const Scratch scratch;
    return read_scenario(
        scratch.write(
            "x.yaml",
            "model: {family: decoder, layers: 6, hidden: 256, heads: 4, feed_forward: 1024, vocabulary: 20000, "
            "sequence_length: 128, " +
                model +
                "}\ncluster: {nodes: 4, node: {devices: 1, device: {memory: 80 GB, memory_bandwidth: 1 TB/s, peak: "
                "{bf16: 10 TFLOP/s}}}, network: {bandwidth: 1 GB/s}}\ntraining: {micro_batches: 8, "
                "micro_batch_size: 1, precision: bf16, gradient_precision: fp32, optimizer: adam}\nplan: {" +
                plan + "}\n"),
        {});
  };
  const Answer two = priced(decoder("next_token_modules: 1, tied: no", "stages: 4, partition: {layers: [2, 4, 2, 3]}"));
  const std::vector<std::vector<VirtualStageId>> tied = {{0, 3}, {2, 3}};
  CHECK(two.costs.shape.tied == tied);
  CHECK(two.timeline.workers[0].communication[kTables].size() == 1);
  CHECK(two.timeline.workers[3].communication[kTables].size() == 2);
  CHECK(two.costs.tied[0].time == Time{20'480'000});  // 20.48 MB over 1 GB/s
  CHECK(validate(two.schedule) == "");
  const Answer frozen = priced(decoder("tied: yes, lora_rank: 8", "stages: 2"));
  CHECK(frozen.costs.shape.tied.empty());
  for (const Collective& bucket :
       frozen.costs.collectives.empty() ? std::vector<Collective>() : frozen.costs.collectives[1])
    CHECK(bucket.bytes < Bytes{1'000'000});
}

// Behind the gradients' own sums, and before the updates of both stages.
TEST_CASE("A step with a tied table takes its sum longer, and updates the copy, too") {
  const Answer tied = priced(gpt("stages: 2, data_parallel: 2, placement: data")),
               own = priced(gpt("stages: 2, data_parallel: 2, placement: data", "", ", tied: no"));
  CHECK(tied.report.step_time >= own.report.step_time + Time{20'000'000});
  const auto update = [](const Answer& answer, VirtualStageId v) {
    return answer.costs.time_of({Kind::Update, static_cast<std::uint16_t>(int{v}), 0, 0});
  };
  CHECK(update(tied, 1) == update(own, 1));  // the same parameters, as table of its own or as copy
  const auto bytes = [](const Answer& answer) {
    Bytes sum;
    for (const Collective& bucket : answer.costs.collectives[VirtualStageId{1}])
      sum += bucket.bytes;
    return sum;
  };
  CHECK(bytes(tied) == bytes(own));
  CHECK(tied.report.workers[0].memory.bytes.weights == own.report.workers[0].memory.bytes.weights);
  bool told = false;
  for (const auto& part : tied.report.critical_path)
    told = told || part.what == "all-reduce of tied tables";
  CHECK(told);
}

TEST_CASE("Cuts of one plan are priced as the whole, wherever the table lies") {
  for (const std::string plan :
       {"stages: 3, data_parallel: 2", "stages: 2, virtual_stages: 2, schedule: interleaved_1f1b",
        "stages: 2, virtual_stages: 2, schedule: zbv, data_parallel: 2",
        "stages: 4, data_parallel: 2, tensor_parallel: 2"})
    for (const std::string training : {"", ", zero: 1"}) {
      CAPTURE(plan);
      const Scenario scenario = gpt(plan, training);
      const CostModel cost(scenario);
      const Plan found = find_plan(scenario, cost);
      StepPricer pricer(found, cost);
      const StepCosts cut = pricer.costs(std::vector<LayerRange>(found.layers.begin(), found.layers.end()),
                                         std::vector<Recompute>(found.recompute.begin(), found.recompute.end()));
      CHECK(validate(step_costs(found, cost)) == "");
      const Schedule schedule = make_schedule(found, cut.shape);
      CHECK(static_order_makespan(schedule, cut) ==
            pipewright::planner::price(found, cost, Engine::StaticOrder).report.makespan);
    }
}
