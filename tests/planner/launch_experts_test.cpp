// Experts and low precision: what launch files make of them.
#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "io/read/read_scenario.hpp"
#include "tests/io/scratch.hpp"
#include "tests/planner/launched.hpp"
#include "tests/support/texts.hpp"

using namespace pipewright::tests;

namespace {

// Six blocks with 8 experts each on 8 devices, in bf16.
Scenario with_experts(const std::string& plan, const std::string& training = "zero: 1", const std::string& model = "") {
  const Scratch scratch;
  return read_scenario(scratch.write(
      "x.yaml",
      "model: {family: decoder, layers: 6, hidden: 256, heads: 4, feed_forward: 512, vocabulary: 1024, "
      "sequence_length: 128, experts: 8, active_experts: 2, expert_feed_forward: 256" +
          model +
          "}\n"
          "cluster: {node: {devices: 8, device: {memory: 16 GiB, peak: {bf16: 20 TFLOP/s, fp8: 40 TFLOP/s}, "
          "memory_bandwidth: 1 TB/s}, links: {kind: nvswitch, bandwidth: 100 GB/s}}}\n"
          "training: {optimizer: adam, precision: bf16, gradient_precision: fp32, micro_batch_size: 1, micro_batches: "
          "4, " +
          training + "}\nplan: {placement: data, " + plan + "}\n"));
}

}  // namespace

TEST_CASE("experts on devices of their own: flags of each framework that has them, and what it lacks") {
  using List = std::vector<std::string>;
  const std::string plan = "data_parallel: 8, expert_parallel: 8";
  const Launched megatron = launched(with_experts(plan), Framework::Megatron);
  CHECK(megatron.nearest.differences.empty());
  const std::string flags = file(megatron, written(megatron), megatron_launch);
  CHECK(contains(flags, "--expert-model-parallel-size 8 --expert-tensor-parallel-size 1"));
  CHECK(contains(flags, "--moe-token-dispatcher-type alltoall\n"));
  CHECK(contains(flags, "--moe-grouped-gemm\n"));
  CHECK(contains(
      file(launched(with_experts(plan + ", expert_exchange: per_node"), Framework::Megatron),
           written(launched(with_experts(plan + ", expert_exchange: per_node"), Framework::Megatron)), megatron_launch),
      "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep"));
  const std::string capacity = plan + ", expert_capacity: 1.5, expert_exchange: all_gather";
  const Launched limited = launched(with_experts(capacity + ", expert_padding: true"), Framework::Megatron);
  CHECK(limited.nearest.differences ==
        List{"expert_exchange: all_gather is not there with expert_capacity; all_to_all"});
  CHECK(contains(file(limited, written(limited), megatron_launch),
                 "--moe-expert-capacity-factor 1.5 --moe-pad-expert-input-to-capacity\n"));
  CHECK(contains(
      file(launched(with_experts(plan + ", expert_capacity: 2"), Framework::Megatron),
           written(launched(with_experts(plan + ", expert_capacity: 2"), Framework::Megatron)), megatron_launch),
      "--moe-expert-capacity-factor 2\n"));
  const std::string per_node = plan + ", expert_capacity: 2, expert_padding: true, expert_exchange: per_node";
  CHECK(launched(with_experts(per_node), Framework::Megatron).nearest.differences ==
        List{"expert_exchange: per_node is not there with expert_padding; all_to_all"});
  const Launched all_here =
      launched(with_experts("data_parallel: 8, expert_capacity: 2, expert_padding: true"), Framework::Megatron);
  CHECK(contains(file(all_here, written(all_here), megatron_launch),
                 "--moe-expert-capacity-factor 2 --moe-pad-expert-input-to-capacity"));
  CHECK(launched(with_experts(capacity), Framework::Torchtitan).nearest.differences.front() ==
        "expert_capacity: 1.5 is not written here; experts take every token that comes");
  const Launched beside = launched(with_experts(plan + ", shared_experts_beside: true"), Framework::Megatron);
  CHECK(contains(file(beside, written(beside), megatron_launch), "--moe-shared-expert-overlap\n"));
  const auto differences = [&](const std::string& more, Framework framework, const std::string& model) {
    const char* const training = framework == Framework::Torchtitan ? "zero: 3, sharding: per_parameter" : "zero: 3";
    return launched(with_experts(plan + ", shared_experts_beside: true" + more, training, model), framework)
        .nearest.differences;
  };
  const std::string shared = ", shared_feed_forward: 256";
  CHECK(differences(", expert_exchange: all_gather", Framework::Megatron, shared).front() ==
        "shared_experts_beside needs expert_exchange: all_to_all there; shared experts wait: false");
  CHECK(differences("", Framework::Torchtitan, shared) ==
        List{"shared_experts_beside is not there; shared experts wait: false"});
  CHECK(differences("", Framework::Torchtitan, "").empty());  // nothing waits
  const std::string pairs = "stages: 2, schedule: moe_overlap_1f1b, virtual_stages: 2, partition: balanced, ";
  const Launched overlap =
      launched(with_experts(pairs + "micro_batch_group: 4, data_parallel: 4, expert_parallel: 4"), Framework::Megatron);
  CHECK(overlap.nearest.differences.empty());
  CHECK(launched(with_experts(pairs + "micro_batch_group: 4, data_parallel: 4, expert_parallel: 4, "
                                      "shared_experts_beside: true"),
                 Framework::Megatron)
            .nearest.differences ==
        List{"shared_experts_beside is not there beside another micro-batch; shared experts wait: false"});
  const std::string overlapped = file(overlap, written(overlap), megatron_launch);
  CHECK(contains(overlapped, "--overlap-moe-expert-parallel-comm\n"));
  CHECK(contains(overlapped, "--microbatch-group-size-per-virtual-pipeline-stage 4\n"));
  const Launched alone = launched(
      with_experts("stages: 1, schedule: moe_overlap_1f1b, data_parallel: 8, expert_parallel: 4"), Framework::Megatron);
  CHECK(alone.nearest.differences.empty());
  CHECK(contains(file(alone, written(alone), megatron_launch), "--overlap-moe-expert-parallel-comm\n"));
  const std::string fused = "pairs: fused, delay_wgrad: true";
  const Launched delayed =
      launched(with_experts("stages: 1, schedule: moe_overlap_1f1b, data_parallel: 8, expert_parallel: 4, " + fused),
               Framework::Megatron);
  CHECK(delayed.nearest.differences.empty());
  CHECK(contains(file(delayed, written(delayed), megatron_launch),
                 "--overlap-moe-expert-parallel-comm --delay-wgrad-compute\n"));
  const Launched not_there =
      launched(with_experts(pairs + "data_parallel: 4, expert_parallel: 4, " + fused, "zero: 0"), Framework::Torch);
  CHECK(std::ranges::find(not_there.nearest.differences,
                          "delay_wgrad is not there; gradients of weights with those of inputs: false") !=
        not_there.nearest.differences.end());
  const Launched whole = launched(with_experts(pairs + "micro_batch_group: 4, data_parallel: 4"), Framework::Megatron);
  CHECK(whole.nearest.differences == List{"schedule: moe_overlap_1f1b needs expert_parallel there; interleaved_1f1b"});
  CHECK(contains(overlapped, "export CUDA_DEVICE_MAX_CONNECTIONS=32\n"));
  const auto unpaired = [&](const std::string& more) {
    return launched(
               with_experts("schedule: moe_overlap_1f1b, partition: balanced, data_parallel: 4, expert_parallel: 4, " +
                            more),
               Framework::Megatron)
        .nearest.differences;
  };
  CHECK(unpaired("stages: 2, virtual_stages: 2, recompute: blocks") ==
        List{"schedule: moe_overlap_1f1b does not recompute whole blocks there; interleaved_1f1b"});
  CHECK(unpaired("stages: 1, recompute: selective, recompute_modules: [moe]") ==
        List{"schedule: moe_overlap_1f1b does not recompute experts (moe) there; 1f1b"});
  CHECK(unpaired("stages: 1, recompute: selective, recompute_modules: [moe_act]").empty());
  CHECK(unpaired("stages: 1, expert_exchange: all_gather") ==
        List{"schedule: moe_overlap_1f1b needs expert_exchange: all_to_all there; 1f1b"});
  CHECK(unpaired("stages: 1, recompute: blocks") ==
        List{"schedule: moe_overlap_1f1b does not recompute whole blocks there; 1f1b"});
  const Launched torch = launched(
      with_experts(
          "stages: 2, schedule: interleaved_1f1b, virtual_stages: 2, partition: balanced, micro_batch_group: 4"),
      Framework::Torch);
  CHECK(torch.nearest.differences.front() == "micro_batch_group: 4 is not there; as many as stages: 2");
  const Launched titan = launched(with_experts(plan), Framework::Torchtitan);
  CHECK(titan.nearest.differences ==
        List{"zero: 1 is not there with expert parallelism; experts lie on devices that divide weights among them: 3",
             "sharding: shards are in fp32, their own masters, and copied to be sent; per_parameter"});
  CHECK(contains(file(titan, written(titan), torchtitan_launch), "parallel.expert_parallel_degree = 8\n"));
  CHECK(contains(file(titan, written(titan), torchtitan_launch), "parallel.data_parallel_shard_degree = 8\n"));
  const Launched both_ways =
      launched(with_experts("stages: 2, schedule: dualpipev, virtual_stages: 2, partition: balanced, data_parallel: 4, "
                            "expert_parallel: 4, pairs: fused"),
               Framework::Torchtitan);
  CHECK(std::ranges::count(both_ways.nearest.differences,
                           "pairs: fused does not go with weights that are gathered; serial") == 1);
  const Launched deepspeed = launched(with_experts(plan, "zero: 0"), Framework::DeepSpeed);
  CHECK(deepspeed.plan.expert_parallel == 1);
  CHECK(deepspeed.nearest.differences.front() ==
        "expert_parallel: 8 is not written here; each device has a part of every expert: 1");
  // Its model is that of the plan that is written: all experts on each device.
  for (const Layer& layer : deepspeed.nearest.scenario.model.layers)
    CHECK(layer.expert_parameters == 0);
}

TEST_CASE("linear layers in fewer bits, and what is run again, by Megatron-LM's names") {
  const auto flags_of = [](const std::string& plan, const std::string& training) {
    const Launched l = launched(with_experts("data_parallel: 8, " + plan, training), Framework::Megatron);
    CHECK(l.nearest.differences.empty());
    return file(l, written(l), megatron_launch);
  };
  CHECK(
      contains(flags_of("schedule: 1f1b", "low_precision: fp8_delayed"), "--fp8-format hybrid --fp8-recipe delayed\n"));
  CHECK(contains(flags_of("schedule: 1f1b", "low_precision: fp8_delayed, amax_reduction: tensor_parallel"),
                 "--fp8-recipe delayed --tp-only-amax-red\n"));
  const auto nobody = [](Framework framework) {
    return launched(with_experts("data_parallel: 8", "low_precision: fp8_delayed, amax_reduction: none"), framework)
        .nearest;
  };
  CHECK(nobody(Framework::Megatron).differences.front() == "amax_reduction: takes place there; tensor_parallel");
  CHECK(nobody(Framework::Torchtitan).scenario.training.amax_reduction.value == AmaxReduction::All);
  CHECK(contains(flags_of("schedule: 1f1b", "low_precision: mxfp8, low_precision_weights: true"),
                 "--fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather\n"));
  CHECK(contains(flags_of("recompute: selective, recompute_modules: [layernorm, moe_act]", "zero: 1"),
                 "--recompute-granularity selective --recompute-modules layernorm moe_act\n"));
  CHECK(contains(flags_of("recompute: selective, recompute_modules: [layernorm, mla_up_proj]", "zero: 1"),
                 "--recompute-granularity selective --recompute-modules layernorm\n"));
  const Launched titan = launched(with_experts("data_parallel: 8", "low_precision: mxfp8"), Framework::Torchtitan);
  CHECK(titan.nearest.scenario.training.low_precision.value == LowPrecision::Mxfp8);
  CHECK(titan.nearest.scenario.training.execution == Execution::Compiled);
  CHECK(titan.nearest.differences.front() == "execution: low_precision wants compiled models there; compiled");
  CHECK(contains(file(titan, written(titan), torchtitan_launch),
                 "# in the model_registry of your model: converters=[MXFP8LinearConverter.Config(fqns=[\"attention\", "
                 "\"feed_forward\"], model_compile_enabled=True), "
                 "MXFP8GroupedExpertsConverter.Config(model_compile_enabled=True)]\n"));
  const Launched deepspeed = launched(with_experts("data_parallel: 8", "low_precision: mxfp8"), Framework::DeepSpeed);
  CHECK(deepspeed.nearest.scenario.training.low_precision.value == LowPrecision::None);
  CHECK(deepspeed.nearest.differences.front() == "low_precision: is not there; none");
}

TEST_CASE("launch: optimizers' states in fewer bits are Megatron-LM's precision-aware optimizer") {
  using Lines = std::vector<std::string>;
  const auto with = [](const std::string& training, Framework framework) {
    return launched(with_experts("stages: 1, data_parallel: 8, expert_parallel: 4", training), framework);
  };
  const Launched remainder = with("zero: 1, moments: bf16, master_weights: remainder", Framework::Megatron);
  CHECK(remainder.nearest.differences.empty());
  CHECK(contains(
      file(remainder, written(remainder), megatron_launch),
      "--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 --main-params-dtype fp32\n"));
  const Launched whole = with("zero: 1, moments: fp8", Framework::Megatron);
  CHECK(whole.nearest.differences ==
        Lines{"master_weights: with moments in fewer bits, the 16 bits that bf16 weights lack are kept; remainder"});
  const Launched alone = with("zero: 0, moments: int8, master_weights: none", Framework::Megatron);
  CHECK(alone.nearest.differences ==
        Lines{"moments: in fewer bits are not there; fp32", "master_weights: are whole there; fp32"});
  Scenario scenario = with_experts("stages: 1, data_parallel: 8, expert_parallel: 4");
  scenario.training.optimizer = Optimizer::Muon;
  scenario.plan.gradient_sync = GradientSync::Overlapped;
  const Launched matrices = launched(scenario, Framework::Megatron);
  CHECK(matrices.nearest.differences ==
        Lines{"gradient_sync: gradients are all-reduced behind the last backward with muon; blocking"});
  const std::string text = file(matrices, written(matrices), megatron_launch);
  CHECK(contains(text, "--optimizer dist_muon\n"));
  CHECK(!contains(text, "--use-distributed-optimizer"));
  CHECK(!contains(text, "--overlap-grad-reduce"));
  scenario.training.optimizer = Optimizer::Adam, scenario.training.precision = Precision::Fp32;
  scenario.training.master_weights.value = MasterWeights::Fp16;
  scenario.cluster.device.peak[Precision::Fp32] = FlopRate{10e12};
  const Launched single = launched(scenario, Framework::Megatron);
  CHECK(!contains(file(single, written(single), megatron_launch), "--main-params-dtype"));
  scenario.training.optimizer = Optimizer::Muon, scenario.training.precision = Precision::Bf16;
  const Lines differences = launched(scenario, Framework::Torch).nearest.differences;
  CHECK(std::ranges::find(differences, "optimizer: muon is not there; adam") != differences.end());
}

TEST_CASE("launch: torchtitan's converters put a known model's linear layers into fp8, but the head") {
  const Scratch scratch;
  const Scenario scenario = read_scenario(scratch.write(
      "x.yaml",
      "model: {family: decoder, layers: 32, hidden: 4096, heads: 32, key_heads: 8, feed_forward: 14336, vocabulary: "
      "128256, sequence_length: 1024}\n"
      "cluster: {node: {devices: 8, device: {memory: 800 GiB, peak: {bf16: 20 TFLOP/s, fp8: 40 TFLOP/s}, "
      "memory_bandwidth: 1 TB/s}, links: {kind: nvswitch, bandwidth: 100 GB/s}}}\n"
      "training: {optimizer: adam, precision: bf16, low_precision: fp8_blockwise, low_precision_weights: true, "
      "micro_batch_size: 1, micro_batches: 1, execution: compiled}\nplan: {data_parallel: 8}\n"));
  const Launched fp8 = launched(scenario, Framework::Torchtitan);
  using Lines = std::vector<std::string>;
  const Lines& differences = fp8.nearest.differences;
  CHECK(std::ranges::count(differences, "low_precision: fp8 has a scale per row there; priced as fp8_tensorwise") == 1);
  CHECK(std::ranges::count(differences, "low_precision_weights: are not there; 16 bits are kept and gathered: false") ==
        1);
  const std::string text = file(fp8, written(fp8), torchtitan_launch);
  CHECK(contains(text, "from torchtitan.components.quantization import Float8LinearConverter\n"));
  CHECK(contains(text, "from torchtitan.models.llama3 import model_registry\n"));
  CHECK(contains(text,
                 "    config.model_spec = model_registry(\"8B\", converters=[Float8LinearConverter.Config("
                 "filter_fqns=[\"lm_head\"], model_compile_enabled=True)])\n"));
  CHECK(contains(text, "    config.compile.enable = True\n"));
}
