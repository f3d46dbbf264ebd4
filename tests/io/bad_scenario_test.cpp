// Every bad scenario gives one clear message: place, key, value, law, way out.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/io/scratch.hpp"
#include "tests/support/texts.hpp"

using namespace pipewright::tests;

namespace {

std::string with_layers(const std::string& layers) {
  return error_in(ScenarioText{.model = "{layers: [" + layers + "]}"});
}
std::string with_links(const std::string& links) {
  return error_in(ScenarioText{.cluster = "{node: {devices: 2, device: {memory: 16 GiB}, links: {" + links + "}}}"});
}
}  // namespace

TEST_CASE("The scenario that the bad ones are made from is good") {
  CHECK(error_in(ScenarioText{}) == "");
}

TEST_CASE("An unknown key names the nearest known one") {
  CHECK(error_in(ScenarioText{.training = "{micro_batch_size: 1, micro_batchs: 4}"}) ==
        "x.yaml:3:33: unknown key \"training.micro_batchs\"; did you mean \"micro_batches\"? known: micro_batches, "
        "micro_batch_size, moments, "
        "update_bytes, global_batch_size, ragged, master_weights, zero, precision, amax_reduction, offload_weights, "
        "sharding and 12 more: docs/reference/scenario.md");
  holds(error_in(ScenarioText{.training = "{batch_size: 1, micro_batches: 4}"}),
        "unknown key \"training.batch_size\"; did you mean \"global_batch_size\" or \"micro_batch_size\"? known: ");
  holds(error_in(ScenarioText{.more = "extra: 1\n"}), "x.yaml:5:1: unknown key \"extra\";");
  holds(
      error_in(ScenarioText{.cluster = "{preset: dgx-h100x8}"}),
      "unknown key \"cluster.preset\"; a preset stands in place of the map: write cluster: NAME, and change its values "
      "by --set or the block set: of the file");
  holds(error_in(ScenarioText{.cluster = "{node: {device: {preset: h100-sxm-80g}}}"}),
        "write cluster.node.device: NAME, and");
  holds(error_in(ScenarioText{.plan = "{preset: 1}"}), "unknown key \"plan.preset\"; known: ");
  holds(error_in(ScenarioText{}, {.set = {"plan.stagez=4"}, .config_path = {}}),
        "--set plan.stagez=4: unknown key \"plan.stagez\"; did you mean \"stages\"?");
}

TEST_CASE("A key or a precision as other programs call it is answered with what it is called here") {
  const auto plan = [](const std::string& key) { return error_in(ScenarioText{.plan = "{" + key + ": 2}"}); };
  CHECK(plan("pp") == "x.yaml:4:8: unknown key \"plan.pp\"; use plan.stages");
  CHECK(plan("tp") == "x.yaml:4:8: unknown key \"plan.tp\"; use plan.tensor_parallel");
  CHECK(plan("dp") == "x.yaml:4:8: unknown key \"plan.dp\"; use plan.data_parallel");
  CHECK(plan("vpp") == "x.yaml:4:8: unknown key \"plan.vpp\"; use plan.virtual_stages");
  CHECK(plan("tensor-model-parallel-size") ==
        "x.yaml:4:8: unknown key \"plan.tensor-model-parallel-size\"; use plan.tensor_parallel");
  CHECK(plan("mbs") == "x.yaml:4:8: unknown key \"plan.mbs\"; use training.micro_batch_size");
  CHECK(plan("gbs") == "x.yaml:4:8: unknown key \"plan.gbs\"; use training.global_batch_size");
  CHECK(plan("zero") == "x.yaml:4:8: unknown key \"plan.zero\"; use training.zero");
  CHECK(plan("stagez") == "x.yaml:4:8: unknown key \"plan.stagez\"; did you mean \"stages\"? known: " +
                              plan("stagez").substr(plan("stagez").find("stages, slices,")));
  CHECK(error_in(ScenarioText{}, {.set = {"plan.pp=4"}, .config_path = {}}) ==
        "--set plan.pp=4: unknown key \"plan.pp\"; use plan.stages");
  const auto named = [](const std::string& key) { return error_in(ScenarioText{.plan = "{" + key + ": 2}"}); };
  CHECK(named("fsdp") == "x.yaml:4:8: unknown key \"plan.fsdp\"; use training.zero: 3");
  holds(named("data_parallel_shard_degree"), "use plan.data_parallel_shard");
  CHECK(named("cp") == "x.yaml:4:8: unknown key \"plan.cp\"; use plan.context_parallel");
  holds(named("cp_comm_type"), "use plan.context_exchange");
  CHECK(named("overlap_param_sync") ==
        "x.yaml:4:8: unknown key \"plan.overlap_param_sync\"; use plan.overlap_param_gather");
  holds(error_in(ScenarioText{.training = "{micro_batch_size: 1, micro_batches: 4, overlap_param_gather: true}"}),
        "use plan.overlap_param_gather");
  holds(error_in(ScenarioText{.plan = "{overlap_param_gather: later}"}), "plan.overlap_param_gather");
  holds(named("hsdp"), "use training.zero: 3 and plan.data_parallel_shard");
  const auto precision = [](const std::string& value) {
    return error_in(ScenarioText{.training = "{micro_batch_size: 1, micro_batches: 4, precision: " + value + "}"});
  };
  CHECK(precision("bfloat16") ==
        "x.yaml:3:62: training.precision: unknown \"bfloat16\"; use bf16; known: fp32, tf32, fp16, bf16");
  holds(precision("BF16"), "unknown \"BF16\"; use bf16;");
  holds(precision("half"), "unknown \"half\"; use fp16;");
  holds(precision("fp3"), "unknown \"fp3\"; did you mean \"fp32\"?");
}

TEST_CASE("What is not modelled is answered as such, and never with a key that means something else") {
  const auto plan = [](const std::string& key) { return error_in(ScenarioText{.plan = "{" + key + ": 2}"}); };
  holds(plan("expert_model_parallel_size"),
        "unknown key \"plan.expert_model_parallel_size\"; use plan.expert_parallel");
  holds(plan("offload_param"), "unknown key \"plan.offload_param\"; use training.offload_weights");
  holds(plan("enable_cpu_offload"), "unknown key \"plan.enable_cpu_offload\"; use training.offload_weights");
  holds(plan("offload_optimizer"), "unknown key \"plan.offload_optimizer\"; use training.offload_optimizer");
  holds(plan("delay_wgrad_compute"), "unknown key \"plan.delay_wgrad_compute\"; use plan.delay_wgrad");
  holds(plan("tp_comm_overlap"), "unknown key \"plan.tp_comm_overlap\"; use plan.tensor_overlap");
  holds(plan("offload"), "use plan.offload_layers, training.offload_optimizer or training.offload_weights");
  for (const char* key : {"nvme_path", "offload_nvme"}) {
    const std::string message = plan(key);
    CHECK_MESSAGE(message.find(" is not modelled yet: docs/guide/scope.md; take the key out") != std::string::npos,
                  message);
    CHECK(message.find("did you mean") == std::string::npos);
  }
  holds(error_in(ScenarioText{.model = "{family: mlp, expert_parallel: 8}"}),
        "unknown key \"model.expert_parallel\"; use plan.expert_parallel");
  const auto training = [](const std::string& pair) {
    return error_in(ScenarioText{.training = "{micro_batch_size: 1, micro_batches: 4, " + pair + "}"});
  };
  CHECK(
      training("precision: fp8") ==
      "x.yaml:3:62: training.precision: \"fp8\" is what products compute in, not what is trained in; write precision: "
      "bf16, and low_precision: fp8_tensorwise, fp8_delayed, fp8_blockwise, mxfp8 or nvfp4");
  CHECK(training("precision: mxfp8") ==
        "x.yaml:3:62: training.precision: unknown \"mxfp8\": products alone compute in it; write bf16, and "
        "low_precision: mxfp8; known: fp32, tf32, fp16, bf16");
  holds(training("fp8_recipe: delayed"), "unknown key \"training.fp8_recipe\"; use training.low_precision");
  holds(training("tp_only_amax_red: true"), "unknown key \"training.tp_only_amax_red\"; use training.amax_reduction: ");
  holds(training("precision: bf16, low_precision: mxfp8, amax_reduction: none"),
        "training.amax_reduction: no other recipe than fp8_delayed has largest values of earlier passes;");
  holds(training("low_precision: mxfp8"),
        "training.low_precision: needs training in 16 bits, not in fp32; write precision: bf16");
  holds(training("offload_weights: maybe"), "training.offload_weights: ");
  CHECK(training("moments: float8") ==
        "x.yaml:3:60: training.moments: unknown \"float8\"; use fp8; known: fp32, fp16, bf16, fp8, int8");
  holds(training("moments: e5m2"), "training.moments: unknown \"e5m2\"; use fp8;");
  CHECK(training("moments: mxfp8") ==
        "x.yaml:3:60: training.moments: unknown \"mxfp8\"; did you mean \"fp8\"? known: fp32, fp16, bf16, fp8, int8");
  holds(training("precision: float8"), "products alone compute in it; write bf16, and low_precision: fp8_tensorwise;");
  CHECK(training("zero: 4") ==
        "x.yaml:3:57: training.zero: \"4\" is not a stage of ZeRO; write 0, 1 (optimizer states divided), 2 (and "
        "gradients) or 3 (and weights)");
  holds(error_in(ScenarioText{.cluster = "{node: {devices: 2, device: {memory: 16 GiB, peak: {int8: 1979 TFLOP/s}}}}"}),
        "cluster.node.device.peak: unknown \"int8\"; known: fp32, tf32, fp16, bf16, fp8, fp4");
}

TEST_CASE(
    "Adapters as other programs call them are answered with model.lora_rank, and wrong ones with the right names") {
  const auto training = [](const std::string& pair) {
    return error_in(ScenarioText{.training = "{micro_batch_size: 1, micro_batches: 4, " + pair + "}"});
  };
  CHECK(training("peft: lora") ==
        "x.yaml:3:51: unknown key \"training.peft\"; use model.lora_rank, of family decoder or gpt");
  holds(training("lora_rank: 8"), "unknown key \"training.lora_rank\"; use model.lora_rank, of family decoder or gpt");
  holds(training("target_modules: [q_proj]"), "use model.lora_targets, of family decoder or gpt");
  holds(training("lora_alpha: 16"),
        "unknown key \"training.lora_alpha\"; the scale of adapters, on which no time depends, is not modelled yet: "
        "docs/guide/scope.md; take the key out");
  const auto model = [](const std::string& pairs) {
    return error_in(
        ScenarioText{.model = "{family: decoder, layers: 2, hidden: 8, heads: 2, feed_forward: 16" + pairs + "}"});
  };
  CHECK(model(", lora_rank: 2, lora_targets: [q_proj, v_proj]") == "");
  CHECK(model(", lora_rank: 2, lora_targets: q_proj") == "");
  CHECK(model(", lora_rank: 0.5") ==
        "x.yaml:1:87: model.lora_rank: \"0.5\" is not a whole number; use a whole number from 1 to 100000");
  CHECK(model(", lora_rank: 0") ==
        "x.yaml:1:87: model.lora_rank: 0 is not a rank; write 1 or more, or leave lora_rank out to train "
        "all weights");
  holds(model(", lora_rank: 2, lora_targets: [q_proj, c_attn]"), "model.lora_targets: unknown \"c_attn\"");
  holds(model(", lora_rank: 2, lora_targets: {q: 1}"), "model.lora_targets");
  holds(model(", lora_targets: [q_proj]"), "model.lora_targets: [q_proj] is given without lora_rank; add lora_rank");
  holds(error_in(ScenarioText{.model = "{family: mlp, lora_rank: 8}"}),
        "use model.lora_rank, of family decoder or gpt");
}

TEST_CASE("A file of another kind is told with what it is for") {
  CHECK(error_in("device: {memory: 16 GiB}\n") ==
        "x.yaml:1:1: this is a device file, not a scenario; name it in one: cluster.node.device: ./x.yaml");
  CHECK(error_in("version: 1\ncluster: {node: {devices: 1, device: {memory: 16 GiB}}}\n") ==
        "x.yaml:1:1: this is a cluster file, not a scenario; name it in one: cluster: ./x.yaml");
  CHECK(error_in("model: {layers: [{forward: 1 ms}]}\n") ==
        "x.yaml:1:1: this is a model file, not a scenario; write one with it: pipewright init scenario.yaml --model "
        "x.yaml");
  holds(error_in("model: {layers: [{forward: 1 ms}]}\ncluster: {}\n"), "training is missing");
}

TEST_CASE("A missing key says where and what to write") {
  CHECK(error_in("model: {layers: [{forward: 1 ms}]}\ncluster: {node: {devices: 1, device: {}}}\ntraining: {}\n") ==
        "x.yaml:1:1: plan is missing; write plan: map, or auto\n"
        "x.yaml:2:38: cluster.node.device.memory is missing; write memory: size");
}

TEST_CASE("Quantities without or with the wrong unit are refused") {
  CHECK(with_links("kind: mesh, bandwidth: 900") ==
        "x.yaml:2:87: cluster.node.links.bandwidth: \"900\" has no unit; write e.g. \"400 Gb/s\" (bits) or \"50 GB/s\" "
        "(bytes)");
  holds(with_links("kind: mesh, bandwidth: 900 GB"), "\"900 GB\" is a size, but a bandwidth is needed");
  holds(with_links("kind: mesh, bandwidth: 0 GB/s"),
        "\"0 GB/s\" must be more than 0; for links that take no time write kind: ideal");
  holds(with_links("kind: mesh"), "cluster.node.links.bandwidth is missing");
  holds(with_links("kind: mash"), "cluster.node.links.kind: unknown \"mash\"; did you mean \"mesh\"?");
  holds(with_layers("{forward: -1 ms}"), "model.layers.0.forward: \"-1 ms\" is negative; write 0 or more");
  holds(with_layers("{forward: .nan}"), "\".nan\" is not a number (NaN)");
  holds(with_layers("{forward: 1e30 s}"), "overflows: the longest time is 2^62 ns");
  holds(with_layers("{forward: 010 ms}"), "starts with a zero");
  holds(with_layers("{forward: }"),
        "model.layers.0.forward: has no value; write a time, e.g. 2.5 ms, or remove the key");
  holds(with_layers("{forward: [1 ms]}"), "model.layers.0.forward: a list where a time, e.g. 2.5 ms is needed");
}

TEST_CASE("A number below 0 is told what its law is, as 0 is") {
  const auto plan = [](const std::string& text) { return error_in(ScenarioText{.plan = "{" + text + "}"}); };
  CHECK(plan("stages: -1") == "x.yaml:4:16: plan.stages: \"-1\" must be at least 1");
  CHECK(plan("stages: 2, kept_for_weights: -0.5") ==
        "x.yaml:4:37: plan.kept_for_weights: \"-0.5\" must be more than 0, at most 1");
  holds(plan("stages: 2, replicas: [1, -1]"), "plan.replicas.1: \"-1\" must be at least 1");
  holds(plan("stages: 2, reshard_after_forward: -2"),
        "\"-2\" must be true, false, or a number of devices of 1 or more");
  holds(plan("stages: 2, bucket: -1 MB"), "plan.bucket: \"-1 MB\" must be more than 0");
  holds(with_links("kind: mesh, bandwidth: -1 GB/s"),
        "\"-1 GB/s\" must be more than 0; for links that take no time write kind: ideal");
  holds(error_in(ScenarioText{.training = "{micro_batch_size: 1, micro_batches: -4}"}),
        "training.micro_batches: \"-4\" must be at least 1");
  holds(error_in(ScenarioText{.training = "{micro_batch_size: 1, micro_batches: 4, zero: -1}"}),
        "training.zero: \"-1\" is not a stage of ZeRO; write 0, 1 (");
  holds(error_in(ScenarioText{.more = "run: {warmup: -1}\n"}), "run.warmup: \"-1\" is negative; write 0 or more");
  holds(error_in(ScenarioText{}, {.set = {"plan.stages=-1"}, .config_path = {}}),
        "--set plan.stages=-1: plan.stages: \"-1\" must be at least 1");
}

TEST_CASE("What tensor parallelism cannot divide is refused where the plan asks for it, with the numbers that can") {
  const std::string model = "{family: gpt, layers: 2, hidden: 256, heads: 32, vocabulary: 128, sequence_length: 16}";
  const auto divided = [&](const std::string& by) {
    return error_in(ScenarioText{.model = model, .plan = "{stages: 1, tensor_parallel: " + by + "}"});
  };
  CHECK(divided("3") ==
        "x.yaml:4:36: plan.tensor_parallel: 3 does not divide layer \"block.0\", which is split 32 ways at most (the "
        "common "
        "divisor of its heads, key heads, groups and inner features); use 1, 2, 4, 8, 16 or 32");
  CHECK(divided("4") == "");
  CHECK(error_in(ScenarioText{.model = model}, {.set = {"plan.tensor_parallel=3"}, .config_path = {}})
            .starts_with("--set plan.tensor_parallel=3: plan.tensor_parallel: 3 does not divide layer"));
  CHECK(error_in(ScenarioText{.plan = "{stages: 1, tensor_parallel: 2}"}) ==
        "x.yaml:4:36: plan.tensor_parallel: 2 cannot divide layer \"a\", whose figures are stated; use a model family, "
        "or "
        "1");
}

TEST_CASE("Numbers and booleans are what YAML 1.2 says, nothing looser") {
  const auto training = [](const std::string& text) { return error_in(ScenarioText{.training = "{" + text + "}"}); };
  holds(training("micro_batches: 0"), "training.micro_batches: \"0\" must be at least 1");
  holds(training("micro_batches: 010"), "training.micro_batches: \"010\" starts with a zero");
  holds(training("micro_batches: 4.5"), "\"4.5\" is not a whole number");
  holds(training("micro_batches: \"4\""),
        "\"4\" is text (in quotes) where a whole number is needed; remove the quotes");
  holds(training("micro_batches: 99999999999999999999"), "overflows");
  holds(training("ragged: yes"), "training.ragged: \"yes\" is not a boolean; write true");
  holds(training("ragged: no"), "\"no\" is not a boolean; write false");
  holds(training("ragged: maybe"), "\"maybe\" is not a boolean; write true or false");
  holds(training("precision: fp8"), "training.precision: \"fp8\" is what products compute in");
}

TEST_CASE("All errors of a file are told at once, in the order of its lines") {
  const std::string message = error_in(
      "plan: {stages: 0}\nmodel: {layers: [{forward: 1}]}\ncluster: {node: {devices: 1, device: {memory: 1 GiB}}}\n"
      "training: {ragged: yes}\n");
  CHECK(message ==
        "x.yaml:1:16: plan.stages: \"0\" must be at least 1\n"
        "x.yaml:2:28: model.layers.0.forward: \"1\" has no unit; write e.g. \"2.5 ms\"\n"
        "x.yaml:4:20: training.ragged: \"yes\" is not a boolean; write true");
}

TEST_CASE("A layer graph with a cycle names its layers") {
  const std::string message = with_layers("{name: a, inputs: [b]}, {name: b, inputs: [a]}");
  holds(message, "cycle");
  holds(message, "a");
  holds(message, "b");
  CHECK(message.starts_with("x.yaml:1:"));
}

TEST_CASE("Layers that are not graph are refused") {
  holds(with_layers(""), "model.layers: no layers; a model needs at least one");
  holds(with_layers("{name: a}, {name: a}"), "model.layers.1: a layer \"a\" stands above already");
  holds(with_layers("{name: a}, {name: b, inputs: [c]}"), "model.layers.1.inputs: no layer is called \"c\"");
  holds(with_layers("{name: a}, {name: b, inputs: [a, a]}"), "\"a\" stands there twice");
  holds(with_layers("{name: a, repeat: 1000000000}"),
        "model.layers.0.repeat: 1000000000 makes more than 1000000 layers in all; use fewer");
  holds(with_layers("{name: a, repeat: 0}"), "model.layers.0.repeat: \"0\" must be at least 1");
  holds(with_layers("{name: a, parameters: 7 bytes}"), "is not a whole number of fp32 weights");
  holds(with_layers("{name: a, parameters: 8B}"),
        "model.layers.0.parameters: \"8B\" may be billions or bytes; write e.g. 8e9");
  holds(with_layers("{name: a, parameters: \"8\"}"), "\"8\" is text (in quotes) where a count is needed");
  holds(with_layers("{name: a, backward: 3 ms, backward_input: 1 ms, backward_weight: 1 ms}"),
        "is not backward_input + backward_weight");
  holds(with_layers("{name: a, backward: 3 ms, backward_input: 4 ms}"), "is less than a part of it");
  holds(with_layers("{name: a, backward_input: 4 ms}"),
        "model.layers.0.backward: is missing where a part of it is stated");
}

TEST_CASE("The forms of model exclude each other") {
  holds(error_in(ScenarioText{.model = "{layers: [{name: a}], pipedream_profile: x.txt}"}),
        "model: layers and pipedream_profile exclude each other; keep one of them");
  holds(error_in(ScenarioText{.model = "{batch: 4}"}), "model: says nothing of its layers");
  holds(error_in(ScenarioText{.model = "{file: other.yaml, batch: 4}"}), "unknown key \"model.batch\"");
}

TEST_CASE("Unknown names list the known ones, and files that name each other are not endless loop") {
  const Scratch scratch;
  scratch.write("configs/models/vgg16.yaml", "model: {layers: [{name: a}]}\n");
  const ReadOptions options{.set = {}, .config_path = {scratch.path("configs")}};
  holds(error_in(ScenarioText{.model = "vgg61"}, options),
        "model: unknown \"vgg61\"; did you mean \"vgg16\"? known: vgg16");
  holds(error_in(ScenarioText{.model = "vgg16"}), "unknown model \"vgg16\"; no config folder holds any model");
  const std::string self = scratch.write("self.yaml", "model: {file: self.yaml}\n");
  holds(message_of([&] { read_model(self); }), "name each other in a circle");
  const std::string none = scratch.write("none.yaml", "layers: []\n");
  holds(message_of([&] { read_model(none); }), "this is not a model file: its top key must be model:");
  const std::string later = scratch.write("later.yaml", "version: 2\nmodel: {layers: [{name: a}]}\n");
  holds(message_of([&] { read_model(later); }), "later.yaml:1:10: version: \"2\" is not a known version");
}

TEST_CASE("Clusters that cannot be are refused") {
  const auto cluster = [](const std::string& text) { return error_in(ScenarioText{.cluster = "{" + text + "}"}); };
  const std::string node = ", node: {devices: 2, device: {memory: 1 GiB}}";
  holds(cluster("nodes: 2" + node), "cluster.network is missing: 2 nodes need one");
  holds(cluster("nodes: 1000000" + node), "are more than 262144 devices");
  holds(cluster("nodes: 2, network: {bandwidth: 0 Gb/s}" + node), "\"0 Gb/s\" must be more than 0");
  holds(cluster("nodes: 2, network: {bandwidth: 1 Gb/s, oversubscription: 0.5}" + node), "must be at least 1");
  holds(cluster("node: {devices: 5000, device: {memory: 1 GiB}, links: {kind: mesh, bandwidth: 1 GB/s}}"),
        "a mesh of 5000 devices in each of 1 nodes has 24995000 links");
  holds(cluster("node: {devices: 1, device: {memory: 1 GiB, compute_efficiency: 1.5}}"),
        "must be more than 0, at most 1");
  holds(cluster("node: {devices: 1, device: {memory: 1 GiB, reserve: 2 GiB}}"), "is more than memory");
  holds(cluster("node: {devices: 1, host_bandwidth: 0 GB/s, device: {memory: 1 GiB}}"), "cluster.node.host_bandwidth");
  holds(cluster("node: {devices: 1, device: {memory: 1 GiB, peak: {float8: 1 TFLOP/s}}}"), "unknown \"float8\"");
}

TEST_CASE("Plans that cannot be read are refused") {
  const auto plan = [](const std::string& text) { return error_in(ScenarioText{.plan = "{" + text + "}"}); };
  holds(plan("stages: 3, replicas: [15, 1]"), "plan.replicas: 2 entries for 3 stages");
  holds(plan("stages: 2, partition: even"), "plan.partition: \"even\" is not a partition; write balanced,");
  holds(plan("partition: {auto: [balanced, suffix_dp]}"),
        "plan.partition: suffix_dp also chooses stages and replicas, and must be given alone; write partition: "
        "suffix_dp");
  holds(plan("stages: 2, partition: {layers: [2, 0]}"), "plan.partition.layers.1: \"0\" must be at least 1");
  holds(plan("stages: 2, partition: {cuts: [c]}"), "plan.partition.cuts.0: \"c\" is not a layer of the model");
  holds(plan("stages: 2, recompute: partial"),
        "plan.recompute: unknown \"partial\"; known: none, selective, blocks, full, knapsack, layers");
  holds(plan("stages: 2, recompute: layers"),
        "plan.recompute: \"layers\" does not say which; write e.g. {layers: [3, 4, 7..9]}");
  holds(plan("stages: 2, recompute: {layers: [0, nothing]}"), "plan.recompute.layers.1: \"nothing\" is not a layer");
  holds(plan("stages: 2, recompute: {layers: [3..1]}"), "plan.recompute.layers.0: \"3..1\" is not a range of layers");
  holds(plan("stages: 2, recompute: {blocks: [1]}"), "unknown key \"plan.recompute.blocks\"; known: layers");
  holds(plan("stages: 2, recompute: {every: 0}"), "plan.recompute.every: \"0\" must be 1 (every block) or more");
  holds(plan("stages: 2, recompute: {every: 2}"), "plan.recompute.every: \"2\" counts blocks of a Transformer");
  holds(plan("stages: 2, recompute: {every: 2, layers: [1]}"), "names layers twice; write one of layers and every");
  holds(plan("recompute: selective, recompute_modules: [operators, mlp]"), "write [operators] alone");
  holds(plan("reshard_after_forward: 0"), "plan.reshard_after_forward: \"0\" must be true, false, or a number");
  holds(plan("reshard_after_forward: some"), "plan.reshard_after_forward: \"some\"");
  holds(plan("bucket: nemo"), "plan.bucket: \"nemo\" is not a size and not a known framework; write e.g. 25 MB,");
  holds(plan("stages: 2, bucket: 0 MB"), "plan.bucket: \"0 MB\" must be more than 0");
  holds(plan("stages: 2, placement: spread"), "plan.placement: unknown \"spread\"");
  holds(error_in(ScenarioText{.more = "cost: measured\n"}), "cost: unknown \"measured\"");
  holds(error_in(ScenarioText{.more = "cost: {uniform: {forward: 1 ms}}\n"}), "cost.uniform.backward is missing");
  holds(error_in(ScenarioText{.more = "version: 2\n"}), "version: \"2\" is not a known version; write version: 1");
}

TEST_CASE("Thousands of errors are counted, not printed, and long values are cut") {
  std::string layers;
  for (int i = 0; i < 5000; ++i)
    layers += "{forwrd: 1}, ";
  const std::string message = error_in("{a: 1, " + std::string(5'000'000, 'k') + ": 1, layers: [" + layers + "]}");
  CHECK(message.size() < 10'000);
  holds(error_in("[1, 2]"), "x.yaml:1:1: a list where a map is needed");
}
