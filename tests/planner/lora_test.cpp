// Low-rank adapters in plans: states, messages between copies, versions and what refuses them.                      [Hu21]
#include <string>

#include <doctest/doctest.h>

#include "core/cost/cost_model.hpp"
#include "core/model/flops.hpp"
#include "io/read/read_scenario.hpp"
#include "io/text/errors.hpp"
#include "io/writers/writers.hpp"
#include "planner/answer.hpp"
#include "planner/figures.hpp"
#include "planner/launch/frameworks.hpp"
#include "tests/io/hf_configs.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

// 1992 parameters: embedding 256, two blocks of 656 + 80, head 264. Of them 160 are trained.
const std::string kAdapted =
    "{family: decoder, layers: 2, hidden: 8, heads: 2, feed_forward: 16, vocabulary: 32, sequence_length: 4, "
    "lora_rank: "
    "2, lora_targets: [q_proj, down_proj]}";

const std::string kTrained =
    "{family: decoder, layers: 2, hidden: 8, heads: 2, feed_forward: 16, vocabulary: 32, sequence_length: 4}";

std::string lora_text(const std::string& plan, const std::string& training = "", const std::string& model = kAdapted) {
  return "model: " + model +
         "\ncluster: {nodes: 1, node: {devices: 8, device: {memory: 1 GB, memory_bandwidth: 1 TB/s, peak: {bf16: 1 "
         "PFLOP/s}}, links: {kind: nvswitch, bandwidth: 100 GB/s}}}\ntraining: {micro_batches: 4, micro_batch_size: 1, "
         "precision: bf16, gradient_precision: fp32, optimizer: adam" +
         training + "}\nplan: " + plan + "\n";
}

Scenario lora_scenario(const std::string& plan, const std::string& training = "", const std::string& model = kAdapted) {
  const Scratch folder;
  return read_scenario(folder.write("s.yaml", lora_text(plan, training, model)), {});
}

double memory_part(const Answer& answer, const std::string& part, std::int64_t stage = 0) {
  return figure_of(answer, {.text = part, .figure = Figure::Memory, .of = part, .where = Where::Stage, .stage = stage});
}

Answer lora_answer(const Scenario& scenario) {
  return std::get<Answer>(answer(scenario, {.engine = Engine::Auto, .ignore_memory = true}));
}

}  // namespace

TEST_CASE("lora: frozen parameters take the bytes of their weights, adapters gradients and states") {
  const Scenario scenario = lora_scenario("{stages: 1}");
  const Answer plain = lora_answer(scenario);
  CHECK(memory_part(plain, "weights") == 1992 * 2);
  CHECK(memory_part(plain, "gradients") == 160 * 4);
  CHECK(memory_part(plain, "optimizer") == 160 * 12);
  const std::string report = terminal_report(plain, {});
  CHECK_MESSAGE(report.find("parameters  trained") != std::string::npos, report);
  // Two copies divide what training.zero says: states of adapters, their gradients, weights of both.
  const Scenario one = lora_scenario("{stages: 1, data_parallel: 2}", ", zero: 1");
  const Answer first = lora_answer(one);
  CHECK(memory_part(first, "weights") == 1992 * 2);
  CHECK(memory_part(first, "optimizer") == 80 * 12);
  // Reduced is what is trained: a bucket of 640 B.
  REQUIRE(first.costs.collectives.at(0).size() == 1);
  CHECK(first.costs.collectives[0][0].bytes == Bytes{640});
  const Scenario three = lora_scenario("{stages: 1, data_parallel: 2, reshard_after_forward: false}", ", zero: 3");
  const Answer divided = lora_answer(three);
  CHECK(memory_part(divided, "optimizer") == 80 * 12);
  double gathered = 0;  // all weights, frozen ones among them
  for (const Collective& each : divided.costs.gathers)
    gathered += static_cast<double>(each.bytes.value);
  CHECK(gathered == 1992 * 2);
}

TEST_CASE("lora: of frozen weights there is one version") {
  // Stage 0: embedding and a block, 992 parameters, of which 80 are trained and stand there twice.
  const Scenario scenario = lora_scenario("{stages: 2, partition: {layers: [2, 2]}, schedule: pipedream}");
  const Answer found = lora_answer(scenario);
  CHECK(found.report.workers.at(0).memory.weight_versions == 2);
  CHECK(memory_part(found, "weights") == 2 * (992 + 80));
  CHECK(memory_part(found, "weights", 1) == 2 * 1000);
}

TEST_CASE("lora: the pass for gradients of weights is that of the adapters") {
  const Scenario scenario = lora_scenario("{stages: 1}");
  const LayerCosts costs = CostModel(scenario).layers(1);
  CHECK(costs.backward_weight[0] == Time{});  // embedding
  CHECK(costs.backward_input[0] == Time{});
  CHECK(costs.backward_weight[1] > Time{});
  CHECK(costs.backward_weight[3] == Time{});  // head
  CHECK(costs.backward_input[3] > Time{});
}

TEST_CASE("lora: MFU counts the passes that are computed") {
  const Scenario scenario = lora_scenario("{stages: 1}");
  const Answer found = lora_answer(scenario);
  REQUIRE(found.report.mfu.has_value());
  const double of_peak = flop_count(scenario.model).training() * found.report.samples_per_s / 1e15;
  CHECK(*found.report.mfu == doctest::Approx(of_peak));
  CHECK(forward_passes(scenario.model) < 2.5);
  CHECK(forward_passes(lora_scenario("{stages: 1}", "", kTrained).model) == 3);
}

TEST_CASE("lora: a Hugging Face configuration takes adapters, and is written with them") {
  const Scenario scenario =
      lora_scenario("{stages: 1}", "", "{hf: " + shipped("llama3-8b") + ", sequence_length: 128, lora_rank: 16}");
  CHECK(trained_count(scenario.model) == 41'943'040);
  CHECK(scenario.model.source.find("Hugging Face configuration") != std::string::npos);
  const Scenario two = lora_scenario(
      "{stages: 1}", "",
      "{hf: " + shipped("llama3-8b") + ", sequence_length: 128, lora_rank: 16, lora_targets: [q_proj, v_proj]}");
  CHECK(trained_count(two.model) == 32 * 16 * (8192 + 5120));
  const auto refused = [](const std::string& model) -> std::string {
    try {
      lora_scenario("{stages: 1}", "", model);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refused("{hf: " + shipped("bert-base") + ", lora_rank: 16}")
            .find("model.lora_rank: adapters are built in decoders that a family of models describes, and this is "
                  "none; leave it out") != std::string::npos);
  CHECK(refused("{hf: " + shipped("llama3-8b") + ", lora_targets: [q_proj]}")
            .find("model.lora_targets: [q_proj] is given without lora_rank; add lora_rank") != std::string::npos);
  CHECK(refused("{hf: " + shipped("llama3-8b") + ", lora_rank: 0}")
            .find("model.lora_rank: 0 is not a rank; write 1 or more, or leave lora_rank out") != std::string::npos);
}

TEST_CASE("lora: launch files refuse frozen weights") {
  const Scenario scenario = lora_scenario("{stages: 1}");
  for (const Framework framework : {Framework::Megatron, Framework::Torchtitan, Framework::DeepSpeed, Framework::Torch})
    CHECK_THROWS_WITH(check_model(scenario, framework),
                      doctest::Contains("has frozen weights and adapters, which no launch file says"));
}

// Its input of 4 x 8 values, which a trained product would keep: made by a norm, unless that runs again, too.
TEST_CASE("lora: a frozen module that runs again needs its input") {
  const std::string one_target =
      "{family: decoder, layers: 2, hidden: 8, heads: 2, feed_forward: 16, vocabulary: 32, sequence_length: 4, "
      "lora_rank: 2, lora_targets: [o_proj]}";
  const auto kept = [&](const std::string& modules) {
    const Scenario scenario =
        lora_scenario("{stages: 1, recompute: selective, recompute_modules: [" + modules + "]}", "", one_target);
    const LayerCosts layers = CostModel(scenario).layers(1);
    return std::pair{layers.selective[2].value, layers.stash[2].value - layers.core[2].value};
  };
  const auto mlp = kept("mlp"), both = kept("layernorm, mlp");
  CHECK(mlp.first == mlp.second + 4 * 8 * 2);
  CHECK(both.first == both.second);
}

TEST_CASE("lora: frozen weights in fp32 lie on the host with the others") {
  const auto on_host = [](const char* precision) {
    Scenario scenario =
        lora_scenario("{stages: 1, data_parallel: 8}", ", zero: 3, offload_optimizer: 1, offload_weights: true");
    for (std::string_view name : {"fp32", "bf16"})
      if (name == precision) scenario.training.precision = name == "fp32" ? Precision::Fp32 : Precision::Bf16;
    scenario.cluster.device.peak[Precision::Fp32] = FlopRate{1e15};
    scenario.cluster.device.host_link = Bandwidth{50e9}, scenario.cluster.device.host_update = Bandwidth{10e9};
    std::int64_t sum = 0;
    for (const ChunkMemory& chunk : lora_answer(scenario).memory.chunks)
      sum += chunk.on_host.value;
    return sum;
  };
  CHECK(on_host("fp32") >= 1992 * 4 / 8);
  CHECK(on_host("bf16") >= 1992 * 2 / 8);
}
