// The nearest plan that a framework can run, and what the launch file makes of it.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "io/read/read_scenario.hpp"
#include "planner/find_plan.hpp"
#include "sim/schedules/table.hpp"
#include "tests/io/scratch.hpp"
#include "tests/planner/launched.hpp"
#include "tests/support/input_error.hpp"
#include "tests/support/megatron_layout.hpp"
#include "tests/support/texts.hpp"

using namespace pipewright::tests;

namespace {

// 10 blocks between embedding and head, on 8 devices.
Scenario small(const std::string& plan, const std::string& training = "micro_batch_size: 1, micro_batches: 8",
               const std::string& more = "", const std::string& nodes = "") {
  const Scratch scratch;
  const bool names_one = training.find("optimizer") != std::string::npos;
  return read_scenario(
      scratch.write("x.yaml",
                    "model: {family: gpt, layers: 10, hidden: 256, heads: 4, vocabulary: 1024, sequence_length: 128}\n"
                    "cluster: {node: {devices: 8, device: {memory: 16 GiB, host_link: 50 GB/s, peak: {fp32: 10 "
                    "TFLOP/s, bf16: 20 TFLOP/s}, "
                    "memory_bandwidth: 1 TB/s}, links: {kind: nvswitch, bandwidth: 100 GB/s}}" +
                        nodes + "}\n" + more + "training: {" + (names_one ? "" : "optimizer: adam, ") + training +
                        "}\nplan: {" + plan + "}\n"));
}

std::vector<std::int64_t> layer_sizes(const Plan& plan) {
  std::vector<std::int64_t> list;
  for (const LayerRange& range : plan.layers)
    list.push_back(range.size());
  return list;
}

constexpr const char* kNodes = ", nodes: 4, network: {bandwidth: 25 GB/s, latency: 5 us}";

std::string page_of_launch() {
  std::ifstream file(std::string(std::getenv("PIPEWRIGHT_SOURCE")) + "/docs/reference/launch.md");
  return {std::istreambuf_iterator<char>(file), {}};
}

using LaunchWriter = std::string (*)(const LaunchRequest&);
constexpr std::array<std::pair<Framework, LaunchWriter>, 4> kWriters = {{{Framework::Megatron, megatron_launch},
                                                                         {Framework::Torchtitan, torchtitan_launch},
                                                                         {Framework::Torch, torch_launch},
                                                                         {Framework::DeepSpeed, deepspeed_launch}}};

// The number behind the first of these words that the text holds; none: 1.
int number(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (const std::size_t at = text.find(word); at != std::string::npos)
      return std::stoi(text.substr(at + word.size()));
  return 1;
}

std::pair<int, int> ranks_in(const std::string& text) {
  return {number(text, {"--nnodes=", "--num_nodes="}), number(text, {"--nproc-per-node=", "--num_gpus=", "NGPU="})};
}

std::vector<std::string> differences(const std::string& training, Framework framework,
                                     const std::string& plan = "stages: 4") {
  return launched(small(plan, training + ", micro_batch_size: 1, micro_batches: 8"), framework).nearest.differences;
}

}  // namespace

TEST_CASE("as many ranks on every node as the plan has devices there, with every framework, by hand and as a job") {
  struct Case {
    const char* plan;
    int nodes, each;
  };
  for (const auto& [plan, nodes, each] :
       {Case{"stages: 4", 1, 4}, Case{"stages: 4, data_parallel: 4", 2, 8}, Case{"stages: 3, data_parallel: 4", 2, 6},
        Case{"stages: 3, data_parallel: 2, tensor_parallel: 2", 2, 6},
        Case{"stages: 4, placement: [8, 9, 16, 17]", 2, 2},
        Case{"stages: 9, placement: [0, 1, 2, 8, 9, 10, 16, 17, 18]", 3, 3}})
    for (const auto& [framework, writer] : kWriters)
      for (const bool sbatch : {false, true}) {
        CAPTURE(plan);
        CAPTURE(name(framework));
        CAPTURE(sbatch);
        const Launched l = launched(small(plan, "micro_batch_size: 1, micro_batches: 8", "", kNodes), framework);
        const Answer answer = written(l);
        const std::string text = file(l, answer, writer, sbatch);
        CHECK(ranks_in(text) == std::pair(nodes, each));
        CHECK(nodes * each == answer.plan.devices());
        if (sbatch) CHECK(number(text, {"--nodes="}) * number(text, {"--gpus-per-node="}) == answer.plan.devices());
      }
}

TEST_CASE("frameworks end a step on all stages: a plan without a barrier is written with one") {
  for (const auto& [framework, writer] : kWriters) {
    CAPTURE(name(framework));
    const Launched l =
        launched(small("stages: 4, schedule: 1f1b, barrier: none", "micro_batch_size: 1, micro_batches: 8"), framework);
    const auto& all = l.nearest.differences;
    CHECK(std::count(all.begin(), all.end(), "barrier: steps do not overlap there; a flush between them") == 1);
    CHECK(l.plan.barrier.value == Barrier::Flush);
  }
}

TEST_CASE("devices that do not fill the last node are spread over all, which is a difference with a price") {
  const Launched l = launched(small("stages: 3, data_parallel: 4", "micro_batch_size: 1, micro_batches: 8", "", kNodes),
                              Framework::Megatron);
  CHECK(l.nearest.differences ==
        std::vector<std::string>{"placement: 12 devices do not fill 2 nodes of 8; 6 ranks on each"});
  CHECK(l.asked.plan.device == std::vector<DeviceId>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  CHECK(l.plan.device == std::vector<DeviceId>{0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13});
  CHECK(file(l, written(l), megatron_launch).find("--use-tp-pp-dp-mapping") != std::string::npos);
}

TEST_CASE("devices that cannot be spread evenly are refused, with numbers that can") {
  for (const char* plan : {"stages: 3, tensor_parallel: 4", "stages: 9"})
    for (const auto& [framework, writer] : kWriters) {
      const Launched l = launched(small(plan, "micro_batch_size: 1, micro_batches: 8", "", kNodes), framework);
      const std::string error = error_of([&, writer = writer] { file(l, written(l), writer); });
      CHECK(error.find(" nodes of 8 alike (8, ") != std::string::npos);
      CHECK(error.find("plan for 8 or 16 devices") != std::string::npos);
    }
}

TEST_CASE("settings of the training that a framework lacks are named, none is dropped") {
  using List = std::vector<std::string>;
  CHECK(differences("optimizer: sgd", Framework::Torchtitan) == List{"optimizer: sgd is not there; adam"});
  CHECK(differences("optimizer: momentum", Framework::Torchtitan) == List{"optimizer: momentum is not there; adam"});
  CHECK(differences("optimizer: rmsprop", Framework::DeepSpeed, "stages: 4, partition: equal_layers") ==
        List{"optimizer: rmsprop is not there; adam"});
  CHECK(differences("optimizer: rmsprop", Framework::Torch).empty());
  CHECK(differences("precision: bf16", Framework::Torchtitan) ==
        List{"gradient_precision: bf16 training accumulates its gradients in fp32"});
  CHECK(differences("precision: bf16, gradient_precision: fp32", Framework::Torch) ==
        List{"gradient_precision: a gradient is of its weight's type; bf16"});
  CHECK(differences("precision: bf16, gradient_precision: bf16", Framework::Torch).empty());
  CHECK(differences("precision: bf16", Framework::DeepSpeed, "stages: 4, partition: equal_layers") ==
        List{"gradient_precision: bf16 training accumulates its gradients in fp32"});
  CHECK(differences("precision: bf16, gradient_precision: fp32", Framework::DeepSpeed,
                    "stages: 4, partition: equal_layers")
            .empty());
  for (const Framework framework : {Framework::Torch, Framework::Torchtitan})
    CHECK(differences("optimizer: adam", framework,
                      "stages: 4, data_parallel: 2, placement: data, gradient_sync: blocking") ==
          List{"gradient_sync: gradients are all-reduced during the backward; overlapped"});
}

TEST_CASE("fp16 becomes bf16 where it is not there, and the price is that of bf16") {
  Scenario scenario =
      small("stages: 4", "precision: fp16, gradient_precision: fp32, micro_batch_size: 1, micro_batches: 8");
  scenario.cluster.device.peak[Precision::Fp16] = scenario.cluster.device.peak[Precision::Bf16];
  const Launched l = launched(scenario, Framework::Torchtitan);
  CHECK(l.nearest.differences == std::vector<std::string>{"precision: fp16 is not there; bf16"});
  CHECK(file(l, written(l), torchtitan_launch).find("mixed_precision_param = \"bfloat16\"") != std::string::npos);
  scenario.plan.partition.value = EqualLayers{};
  const Launched deep = launched(scenario, Framework::DeepSpeed);
  CHECK(deep.nearest.differences ==
        std::vector<std::string>{
            "gradient_precision: fp16 training accumulates its gradients in fp16 but with ZeRO; fp16"});
  CHECK(file(deep, written(deep), deepspeed_launch).find("\"grad_accum_dtype\": \"fp16\"") != std::string::npos);
}

TEST_CASE("momentum is said as the plan has it") {
  const auto text = [](const char* optimizer, Framework framework, LaunchWriter writer) {
    const Launched l =
        launched(small("stages: 4", std::string("optimizer: ") + optimizer + ", micro_batch_size: 1, micro_batches: 8"),
                 framework);
    return file(l, written(l), writer);
  };
  CHECK(text("sgd", Framework::Megatron, megatron_launch).find("--sgd-momentum 0.0") != std::string::npos);
  CHECK(text("momentum", Framework::Megatron, megatron_launch).find("--sgd-momentum 0.9") != std::string::npos);
  CHECK(text("adam", Framework::Megatron, megatron_launch).find("--sgd-momentum") == std::string::npos);
  CHECK(text("momentum", Framework::DeepSpeed, deepspeed_launch)
            .find("\"SGD\", \"params\": {\"lr\": 1e-4, \"momentum\": 0.9}") != std::string::npos);
  CHECK(text("sgd", Framework::DeepSpeed, deepspeed_launch).find("momentum") == std::string::npos);
}

TEST_CASE("Megatron-LM trains as many steps as the plan's campaign has") {
  // 8 samples a step: 1000 samples are 125 steps.
  const std::string training = "micro_batch_size: 1, micro_batches: 8";
  const Launched l = launched(small("stages: 4", training, "campaign: {length: 1000 samples}\n"), Framework::Megatron);
  CHECK(file(l, l.asked, megatron_launch).find("--train-iters 125\n") != std::string::npos);
  const Launched without = launched(small("stages: 4"), Framework::Megatron);
  CHECK(file(without, without.asked, megatron_launch).find("--train-iters 50  # yours") != std::string::npos);
}

TEST_CASE("the keys that changed make one plan the other") {
  const Scenario before = small("stages: 4, schedule: gpipe"),
                 after = small("stages: 4, schedule: 1f1b, partition: {layers: [3, 3, 3, 3]}",
                               "global_batch_size: 8, micro_batch_size: 1");
  CHECK(changed_keys(before, after) == std::vector<std::string>{"training.micro_batches=null",
                                                                "training.global_batch_size=8", "plan.schedule=1f1b",
                                                                "plan.partition={layers: [3, 3, 3, 3]}"});
  CHECK(changed_keys(after, after).empty());
}

TEST_CASE("uniform: the first stages take one layer more") {
  CHECK(uniform_cut(10, 4) == std::vector<std::int64_t>{3, 3, 2, 2});
  CHECK(uniform_cut(12, 4) == std::vector<std::int64_t>{3, 3, 3, 3});
  CHECK(uniform_cut(5, 4) == std::vector<std::int64_t>{2, 1, 1, 1});
}

TEST_CASE("a plan that the framework can express stays as it is") {
  const Scenario scenario =
      small("schedule: 1f1b, stages: 4, data_parallel: 2, placement: data, partition: {layers: [4, 3, 3, 2]}");
  for (const Framework framework : {Framework::Megatron, Framework::Torchtitan, Framework::Torch}) {
    const Launched l = launched(scenario, framework);
    CHECK(l.nearest.differences == std::vector<std::string>{});
    CHECK(layer_sizes(l.plan) == layer_sizes(l.asked.plan));
    CHECK(l.plan.schedule == "1f1b");
    CHECK(l.plan.device == l.asked.plan.device);
  }
}

TEST_CASE("the layout in Megatron-LM's script reads back as the plan's chunks") {
  const Scenario scenario =
      small("schedule: interleaved_1f1b, stages: 2, virtual_stages: 3, partition: {layers: [2, 2, 1, 2, 2, 3]}");
  const Launched l = launched(scenario, Framework::Megatron);
  const std::string text = file(l, l.asked, megatron_launch);
  const std::string flag = "--pipeline-model-parallel-layout '";
  const std::size_t at = text.find(flag) + flag.size();
  REQUIRE(at > flag.size());
  const std::vector<LayoutChunk> chunks = chunks_of_layout(text.substr(at, text.find('\'', at) - at));
  std::vector<std::int64_t> layers;
  for (const LayoutChunk& chunk : chunks)
    layers.push_back(chunk.blocks + chunk.embedding + chunk.head);
  CHECK(layers == layer_sizes(l.asked.plan));
  CHECK(text.find("--num-layers 10 --hidden-size 256 --ffn-hidden-size 1024") != std::string::npos);
}

TEST_CASE("schedules that a framework does not have become 1F1B, and it says so") {
  const Scenario scenario = small("schedule: gpipe, stages: 4");
  for (const Framework framework : {Framework::Megatron, Framework::DeepSpeed}) {
    const Launched l = launched(scenario, framework);
    REQUIRE(!l.nearest.differences.empty());
    CHECK(l.nearest.differences.front() == "schedule: gpipe is not there; 1f1b");
    CHECK(l.plan.schedule == "1f1b");
  }
  CHECK(launched(scenario, Framework::Torch).nearest.differences.empty());
}

TEST_CASE("a stage with several workers becomes several stages") {
  const Launched l = launched(small("schedule: pipedream, stages: 2, replicas: [3, 1]"), Framework::Torch);
  CHECK(l.plan.stages == 4);
  CHECK(l.plan.schedule == "1f1b");
  CHECK(l.plan.workers() == l.asked.plan.workers());
}

TEST_CASE("Megatron-LM rebuilds the first blocks of every chunk, as many on each") {
  // Blocks are layers 1 to 10; chunks [0, 6) and [6, 12).
  const Launched exact =
      launched(small("schedule: 1f1b, stages: 2, partition: {layers: [6, 6]}, recompute: {layers: [1, 2, 6, 7]}"),
               Framework::Megatron);
  CHECK(exact.nearest.differences.empty());
  CHECK(file(exact, exact.asked, megatron_launch).find("--recompute-method block --recompute-num-layers 2") !=
        std::string::npos);
  const Launched other =
      launched(small("schedule: 1f1b, stages: 2, partition: {layers: [6, 6]}, recompute: {layers: [4, 5, 6]}"),
               Framework::Megatron);
  CHECK(other.nearest.differences.size() == 1);
  CHECK(other.plan.rebuilt == std::vector<LayerId>{1, 2, 6, 7});
}

TEST_CASE("DeepSpeed cuts by its own methods and reduces behind the backward") {
  const Launched l =
      launched(small("schedule: 1f1b, stages: 4, data_parallel: 2, placement: data, partition: {layers: [4, 4, 2, 2]}"),
               Framework::DeepSpeed);
  CHECK(layer_sizes(l.plan) == uniform_cut(12, 4));
  CHECK(l.plan.gradient_sync == GradientSync::Blocking);
  CHECK(l.nearest.differences.size() == 2);
}

namespace {

struct Sharded {
  std::vector<std::string> differences;
  std::string text;
  Plan plan;
};
// torchtitan has no other shards of weights: where nothing is said of them, its own are meant.
std::string with_own_shards(const std::string& training, Framework framework) {
  const bool said = training.find("sharding: ") != std::string::npos;
  const bool divided = training.find("zero: 3") != std::string::npos;
  return framework == Framework::Torchtitan && divided && !said ? training + ", sharding: per_parameter" : training;
}
Sharded sharded(const std::string& training, const std::string& plan, Framework framework) {
  const Launched l = launched(small("data_parallel: 8, " + plan, "precision: bf16, gradient_precision: fp32, " +
                                                                     with_own_shards(training, framework) +
                                                                     ", micro_batch_size: 1, micro_batches: 4"),
                              framework);
  const auto writer =
      std::find_if(kWriters.begin(), kWriters.end(), [&](const auto& w) { return w.first == framework; });
  return {l.nearest.differences, file(l, written(l), writer->second), l.plan};
}
}  // namespace

TEST_CASE("activations in the host's memory: Megatron-LM's flag, and the others' difference") {
  const Sharded megatron = sharded("zero: 3", "offload_layers: 2", Framework::Megatron);
  CHECK(megatron.differences.empty());
  CHECK(contains(megatron.text, "--cpu-offloading-num-layers 2\n"));
  CHECK(sharded("zero: 3", "offload_layers: 2, recompute: blocks", Framework::Megatron).differences ==
        std::vector<std::string>{
            "offload_layers: 2 is not there in a pipeline, nor with recomputation; activations stay on "
            "the device"});
  for (const Framework framework : {Framework::Torchtitan, Framework::DeepSpeed})
    CHECK(sharded("zero: 3", "offload_layers: 2", framework).differences ==
          std::vector<std::string>{"offload_layers: 2 is not written here; activations stay on the device"});
}

TEST_CASE("exchanges beside products: flags of Megatron-LM and torchtitan, and the others' difference") {
  std::string keys = "stages: 2, tensor_parallel: 2, sequence_parallel: true, tensor_overlap: true";
  const auto of = [&](Framework framework, LaunchWriter writer) {
    const Launched l = launched(small(keys, "micro_batch_size: 1, micro_batches: 8"), framework);
    return std::pair(l.nearest.differences, file(l, written(l), writer));
  };
  const auto [none, megatron] = of(Framework::Megatron, megatron_launch);
  CHECK(none.empty());
  CHECK(contains(megatron, "--tp-comm-overlap"));
  CHECK_FALSE(contains(megatron, "--tp-comm-overlap-rs-dgrad"));
  const auto [parts, torchtitan] = of(Framework::Torchtitan, torchtitan_launch);
  CHECK(contains(torchtitan, "config.compile.enable = True\n    config.compile.enable_async_tensor_parallel = True\n"));
  CHECK((parts ==
         std::vector<std::string>{"tensor_overlap: true is Transformer Engine's; every exchange in parts: ring"}));
  for (const auto& [framework, writer] : {kWriters[2], kWriters[3]}) {  // torch.distributed.pipelining, DeepSpeed
    const auto differences = of(framework, writer).first;
    CHECK(std::find(differences.begin(), differences.end(),
                    "tensor_overlap: is not written here; exchanges of tensor parallelism are waited for: false") !=
          differences.end());
  }
  keys.replace(keys.find("overlap: true"), 13, "overlap: ring");
  for (const auto& [framework, writer] : {kWriters[0], kWriters[1]})
    CHECK(of(framework, writer).first.empty());
  CHECK(contains(of(Framework::Megatron, megatron_launch).second, "--tp-comm-overlap-rs-dgrad"));
  keys.replace(keys.find("overlap: ring"), 13, "overlap: backward");  // what Megatron-LM's layers do, without a flag
  const auto [own, layers] = of(Framework::Megatron, megatron_launch);
  CHECK(own.empty());
  CHECK_FALSE(contains(layers, "--tp-comm-overlap"));
  const auto [waits, waiting] = of(Framework::Torchtitan, torchtitan_launch);
  CHECK((waits == std::vector<std::string>{"tensor_overlap: backward is Megatron-LM's; exchanges of tensor parallelism "
                                           "are waited for: false"}));
  CHECK(contains(waiting, "enable_async_tensor_parallel = False"));
}

TEST_CASE(
    "the optimizer on the host: flags of Megatron-LM and DeepSpeed, which want ZeRO for it, and the others' "
    "difference") {
  using List = std::vector<std::string>;
  const auto of = [](const std::string& training, Framework framework, Optimizer optimizer = Optimizer::Adam) {
    Scenario scenario =
        small("data_parallel: 8", "precision: bf16, gradient_precision: fp32, optimizer: adam, " +
                                      with_own_shards(training, framework) + ", micro_batch_size: 1, micro_batches: 4");
    scenario.cost = CostSourceKind::Roofline, scenario.training.optimizer = optimizer;
    scenario.cluster.device.host_link = Bandwidth{50e9}, scenario.cluster.device.host_update = Bandwidth{10e9};
    const Launched l = launched(scenario, framework);
    const auto writer =
        std::find_if(kWriters.begin(), kWriters.end(), [&](const auto& w) { return w.first == framework; });
    return std::pair(l.nearest.differences, file(l, written(l), writer->second));
  };
  const auto megatron = of("zero: 1, offload_optimizer: 0.5", Framework::Megatron);
  CHECK(megatron.first.empty());
  CHECK(contains(megatron.second, "--optimizer-cpu-offload --optimizer-offload-fraction 0.5"));
  CHECK(of("zero: 1, offload_optimizer: 0.5", Framework::Megatron, Optimizer::Momentum).first ==
        List{"offload_optimizer: is there with adam alone, not with momentum; states stay on the device: 0"});
  CHECK(of("offload_optimizer: 0.5", Framework::Megatron).first ==
        List{"zero: 0 is not there with offload_optimizer; optimizer states are divided: 1"});
  const auto all = of("zero: 1, offload_optimizer: 0.5", Framework::DeepSpeed);
  CHECK(std::find(all.first.begin(), all.first.end(),
                  "offload_optimizer: 0.5 is there with zero: 3 alone; all states are on the host: 1") !=
        all.first.end());
  CHECK(contains(all.second, "\"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": True}"));
  CHECK(contains(of("zero: 3, offload_optimizer: 0.5", Framework::DeepSpeed).second,
                 "\"pin_memory\": True, \"ratio\": 0.5}"));
  CHECK(of("zero: 3, offload_optimizer: 0.5", Framework::Torchtitan).first ==
        List{"offload_optimizer: 0.5 is not there; states stay on the device: 0"});
  // Weights and gradients, too: both of these leave all three there.
  const std::string weights = "zero: 3, offload_optimizer: 1, offload_weights: true";
  const auto titan = of(weights, Framework::Torchtitan);
  CHECK(titan.first.empty());
  CHECK(contains(titan.second, "    training.enable_cpu_offload = True\n"));
  const auto deepspeed = of(weights, Framework::DeepSpeed);
  CHECK(deepspeed.first.empty());
  CHECK(contains(deepspeed.second, "\"ratio\": 1}, \"offload_param\": {\"device\": \"cpu\", \"pin_memory\": True}"));
  CHECK(of(weights, Framework::Megatron).first ==
        List{"offload_weights: true is not there; weights and gradients stay on the device: false"});
  const List torch = of(weights, Framework::Torch).first;
  CHECK(std::find(torch.begin(), torch.end(),
                  "offload_weights: true is not there; weights and gradients stay on the device: false") !=
        torch.end());
}

TEST_CASE("weights that are divided: flags of each framework that has them") {
  using List = std::vector<std::string>;
  const Sharded titan = sharded("zero: 3", "data_parallel_shard: 4", Framework::Torchtitan);
  CHECK(titan.differences.empty());
  CHECK(contains(titan.text,
                 "parallel.data_parallel_replicate_degree = 2\n    parallel.data_parallel_shard_degree = 4\n"));
  CHECK(contains(titan.text, "parallel.fsdp_reshard_after_forward = \"default\""));
  const Sharded always = sharded("zero: 3", "reshard_after_forward: always", Framework::Torchtitan);
  CHECK(always.differences.empty());
  CHECK(contains(always.text, "parallel.fsdp_reshard_after_forward = \"always\""));
  CHECK(sharded("zero: 3", "reshard_after_forward: always", Framework::DeepSpeed).differences ==
        List{"reshard_after_forward: always is not there; true"});
  CHECK(contains(sharded("zero: 3", "reshard_after_forward: false", Framework::Torchtitan).text, "= \"never\""));

  const Sharded megatron = sharded("zero: 3", "data_parallel_shard: 4", Framework::Megatron);
  CHECK(megatron.differences.empty());
  CHECK(contains(megatron.text, "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params"));
  CHECK(contains(megatron.text, "--num-distributed-optimizer-instances 2"));
  CHECK(contains(sharded("zero: 2", "", Framework::Megatron).text, "--data-parallel-sharding-strategy optim_grads\n"));

  const Sharded deepspeed = sharded("zero: 3", "recompute: blocks", Framework::DeepSpeed);
  CHECK(deepspeed.differences.empty());
  CHECK(contains(deepspeed.text, "\"stage\": 3, \"overlap_comm\": True"));
  CHECK(contains(deepspeed.text, "deepspeed.zero.Init"));
  CHECK(contains(deepspeed.text, "use_reentrant=False) if isinstance(layer, Block) else layer(x)"));
  CHECK_FALSE(contains(deepspeed.text, "PipelineModule"));

  // What is not there becomes the nearest that is.
  CHECK(sharded("zero: 3", "", Framework::Torch).differences ==
        List{"gradient_precision: a gradient is of its weight's type; bf16",
             "zero: 3 is not there; optimizer states alone are divided: 1"});
  const Sharded kept = sharded("zero: 2", "", Framework::Torchtitan);
  const std::string fp32 = "sharding: shards are in fp32, their own masters, and copied to be sent; per_parameter";
  CHECK(kept.differences ==
        List{"zero: 2 is not there; weights are divided, too, and kept from forward to backward: 3", fp32});
  CHECK(sharded("zero: 3, sharding: flat", "", Framework::Torchtitan).differences == List{fp32});
  CHECK(sharded("zero: 3, sharding: per_parameter", "", Framework::Megatron).differences ==
        List{"sharding: per_parameter is not there; flat"});
  CHECK(kept.plan.resharding == Resharding{false, true});
  CHECK(sharded("zero: 2", "data_parallel_shard: 2", Framework::DeepSpeed).differences ==
        List{"data_parallel_shard: 2 is not there; all copies divide among them"});
}

TEST_CASE("shards of few: DeepSpeed's secondary partition, and the others' difference") {
  const Sharded deepspeed = sharded("zero: 3", "reshard_after_forward: 4", Framework::DeepSpeed);
  CHECK(deepspeed.differences.empty());
  CHECK(contains(deepspeed.text, "\"zero_hpz_partition_size\": 4"));
  for (const Framework framework : {Framework::Torchtitan, Framework::Megatron}) {
    const Sharded other = sharded("zero: 3", "reshard_after_forward: 4", framework);
    CHECK(other.differences == std::vector<std::string>{"reshard_after_forward: 4 is not there; true"});
    CHECK(other.plan.resharding == Resharding{true, true});
  }
}

TEST_CASE("buckets: a framework's own need no flag, those of others are written as a number") {
  const auto text = [](const std::string& plan, Framework framework) {
    return sharded("zero: 2", plan, framework).text;
  };
  CHECK_FALSE(contains(text("bucket: megatron", Framework::Megatron), "--ddp-bucket-size"));
  CHECK(contains(text("bucket: deepspeed", Framework::Megatron), "--ddp-bucket-size 500000000\n"));
  CHECK(contains(text("bucket: deepspeed", Framework::DeepSpeed), "\"reduce_bucket_size\": 500000000"));
  CHECK(contains(text("bucket: megatron", Framework::DeepSpeed), "\"reduce_bucket_size\": 40000000"));
}

TEST_CASE("weights that are gathered beside forwards: Megatron-LM's flag, and the others' difference") {
  using List = std::vector<std::string>;
  const Sharded megatron = sharded("zero: 1", "overlap_param_gather: true", Framework::Megatron);
  CHECK(megatron.differences.empty());
  CHECK(contains(megatron.text, "--overlap-grad-reduce\n"));
  CHECK(contains(megatron.text, "--overlap-param-gather\n"));
  CHECK_FALSE(contains(sharded("zero: 1", "", Framework::Megatron).text, "--overlap-param-gather"));
  const Sharded behind = sharded("zero: 1", "overlap_param_gather: true, gradient_sync: blocking", Framework::Megatron);
  CHECK(behind.differences ==
        List{"overlap_param_gather: goes with gradient_sync: overlapped alone; weights are gathered "
             "behind the update: false"});
  CHECK_FALSE(contains(behind.text, "--overlap-param-gather"));
  for (const Framework framework : {Framework::Torch, Framework::DeepSpeed}) {
    const List said = sharded("zero: 1", "overlap_param_gather: true", framework).differences;
    CHECK(std::ranges::count(said, "overlap_param_gather: weights are gathered behind the update; false") == 1);
  }
}

// Which blocks are repeated, and which operators of all of them.
TEST_CASE("torchtitan's checkpoints: of all blocks, of some, and by operator") {
  const auto of = [](const std::string& plan, Framework framework) { return sharded("zero: 3", plan, framework); };
  const Sharded operators = of("recompute: selective, recompute_modules: [operators]", Framework::Torchtitan);
  CHECK(operators.differences.empty());
  CHECK(contains(operators.text, "activation_checkpoint import SelectiveAC\n"));
  CHECK(contains(operators.text, "config.activation_checkpoint = SelectiveAC.Config()\n"));
  const Sharded some = of("recompute: {every: 2}", Framework::Torchtitan);
  CHECK(some.differences.empty());
  CHECK(contains(some.text, "config.activation_checkpoint = FullAC.Config()\n"));
  CHECK(contains(some.text, "for i in [1, 3, 5, 7, 9]}\n"));
  const Sharded head = of("recompute: {layers: [1, 11]}", Framework::Torchtitan);
  CHECK(head.differences == std::vector<std::string>{"recompute: blocks alone; 1 of these layers"});
  CHECK(of("recompute: selective", Framework::Torchtitan).differences ==
        std::vector<std::string>{"recompute: its selective keeps and rebuilds other tensors; none"});
  CHECK(of("recompute: selective, recompute_modules: [operators]", Framework::Megatron).differences ==
        std::vector<std::string>{"recompute_modules: operators are not there; core_attn"});
  CHECK(of("recompute: blocks", Framework::Torchtitan).differences.empty());
  // It repeats blocks to their end.                                                              [torchtitan26]
  CHECK(sharded("zero: 3, checkpoint_early_stop: true", "recompute: blocks", Framework::Torchtitan).differences ==
        std::vector<std::string>{"checkpoint_early_stop: repeated layers run to their end; false"});
}

TEST_CASE("weights that are divided in a pipeline: torchtitan has it, the others divide optimizer states alone") {
  const std::string plan = "stages: 2, data_parallel: 4, placement: data, partition: equal_layers";
  const std::string training =
      "zero: 3, precision: bf16, gradient_precision: fp32, micro_batch_size: 1, micro_batches: 4";
  const Launched titan = launched(small(plan, training + ", sharding: per_parameter"), Framework::Torchtitan);
  CHECK(titan.nearest.differences.empty());
  CHECK(titan.plan.units > 1);
  CHECK(layer_sizes(find_plan(titan.nearest.scenario, CostModel(titan.nearest.scenario))) ==
        layer_sizes(titan.asked.plan));
  const Launched again = launched(small(plan + ", reshard_after_forward: true", training + ", sharding: per_parameter"),
                                  Framework::Torchtitan);
  CHECK(again.nearest.differences ==
        std::vector<std::string>{
            "reshard_after_forward: in a pipeline the last unit of a stage is given away, too; always"});
  CHECK(again.plan.resharding->always);
  for (const Framework framework : {Framework::Megatron, Framework::DeepSpeed}) {
    const Launched other = launched(small(plan + ", gradient_sync: blocking", training), framework);
    CHECK(other.nearest.differences ==
          std::vector<std::string>{"zero: 3 is not there in a pipeline; optimizer states alone are divided: 1"});
    CHECK(other.plan.units == 1);
  }
}

TEST_CASE("a ragged batch becomes one of whole micro-batches") {
  const Launched l =
      launched(small("schedule: 1f1b, stages: 2", "global_batch_size: 7, micro_batch_size: 2, ragged: true"),
               Framework::Megatron);
  CHECK(l.plan.global_batch_size == 8);
}

TEST_CASE("a model that is not a decoder is refused where the framework builds the model itself") {
  const Scratch scratch;
  const Scenario scenario = read_scenario(scratch.write("x.yaml", ScenarioText{}.text()));
  const Plan plan = find_plan(scenario, CostModel(scenario));
  CHECK(error_of([&] { nearest_plan(scenario, plan, Framework::Megatron); }).find("is not a decoder of one stack") !=
        std::string::npos);
  CHECK(nearest_plan(scenario, plan, Framework::Torch).differences.empty());
}

TEST_CASE("the program for PyTorch holds the plan's order of ops") {
  const Launched l = launched(
      small("schedule: zb_h1, stages: 2, recompute: full", "micro_batch_size: 1, micro_batches: 2"), Framework::Torch);
  const std::string text = file(l, l.asked, torch_launch);
  CHECK(text.find("0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n") != std::string::npos);
  CHECK(text.find("WHOLE_CHUNKS = {0, 6}") != std::string::npos);
}

TEST_CASE("the page of launch names the schedules that torchtitan has by name, and no others") {
  const std::string page = page_of_launch();
  const std::size_t begin = page.find("| schedules by name"), end = page.find('\n', begin);
  REQUIRE(begin != std::string::npos);
  std::string row = page.substr(begin, end - begin);
  for (const ScheduleRule& rule : schedules()) {
    const std::string named = fmt::format("{} ({})", rule.name, rule.facts.pytorch);
    CAPTURE(named);
    CHECK((row.find(named) != std::string::npos) == !rule.facts.pytorch.empty());
  }
}
