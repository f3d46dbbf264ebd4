#include "io/read/read_scenario.hpp"

#include <map>
#include <string>

#include <doctest/doctest.h>

#include "io/read/scenario_file.hpp"
#include "io/yaml/point_reader.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

std::string without_comments(const std::string& yaml) {
  std::string text;
  for (std::size_t begin = 0; begin < yaml.size();) {
    const std::size_t end = yaml.find('\n', begin);
    const std::string line = yaml.substr(begin, end - begin);
    const std::string content = line.substr(0, line.find("  # "));
    text += content.substr(0, content.find_last_not_of(' ') + 1) + "\n";
    begin = end + 1;
  }
  return text;
}

const char* const kLayers =
    "{batch: 4, layers: [{name: a, forward: 1 ms, backward: 2 ms, activation: 8 B},"
    " {name: b, repeat: 3, forward: 1 ms, backward_input: 1 ms, backward_weight: 3 ms, parameters: 4 MiB},"
    " {name: c, inputs: [a, b], forward: 1 ms, backward: 2 ms, flops: 2 GFLOP, stash: 1 kB}]}";

}  // namespace

TEST_CASE("A repeated layer is a chain: its inputs go to the first, users of its name get the last") {
  const Model model = read_text(ScenarioText{.model = kLayers}).model;
  REQUIRE(model.layers.size() == 5);
  CHECK(model.layers[1].name == "b.0");
  CHECK(model.layers[3].name == "b.2");
  CHECK(model.layers[0].inputs.empty());
  CHECK(model.layers[1].inputs == std::vector<LayerId>{0});
  CHECK(model.layers[3].inputs == std::vector<LayerId>{2});
  CHECK(model.layers[4].inputs == std::vector<LayerId>{0, 3});
}

TEST_CASE("Layers keep their figures: parts of the backward add up, sizes of parameters count fp32 weights") {
  const Model model = read_text(ScenarioText{.model = kLayers}).model;
  CHECK(model.batch == 4);
  CHECK(model.batch_stated);
  CHECK(model.layers[1].backward == Time{4'000'000});
  CHECK(model.layers[1].parameters == 1'048'576);
  CHECK(model.layers[4].flops == Flops{2e9});
  CHECK(model.layers[4].stashed() == Bytes{1000});
  CHECK(model.layers[0].stashed() == Bytes{8});
}

TEST_CASE("Layers may stand in any order that their names allow") {
  const Model model = read_text(ScenarioText{.model = "{layers: [{name: z, inputs: [y]}, {name: x, inputs: []}, "
                                                      "{name: y, inputs: [x]}]}"})
                          .model;
  CHECK(model.layers[0].name == "x");
  CHECK(model.layers[1].name == "y");
  CHECK(model.layers[2].name == "z");
}

TEST_CASE("The cost source follows from the layers unless it is stated") {
  CHECK(read_text(ScenarioText{}).cost == CostSourceKind::Explicit);
  CHECK(read_text(ScenarioText{.model = "{layers: [{flops: 1 GFLOP}]}"}).cost == CostSourceKind::Roofline);
  const Scenario uniform = read_text(ScenarioText{.more = "cost: {uniform: {forward: 1 ms, backward: 2 ms}}\n"});
  CHECK(uniform.cost == CostSourceKind::Uniform);
  CHECK(uniform.uniform_backward == Time{2'000'000});
}

TEST_CASE("A plan's cuts may name layers, and replicas give the number of stages") {
  const Scenario cut = read_text(ScenarioText{.model = kLayers, .plan = "{stages: 3, partition: {cuts: [b.1, 4]}}"});
  CHECK(std::get<CutLayers>(cut.plan.partition.value).first == std::vector<std::int64_t>{2, 4});
  const Scenario replicated = read_text(ScenarioText{.plan = "{replicas: [15, 1]}"});
  CHECK(replicated.plan.stages.value == 2);
  CHECK(replicated.plan.replicas.value == std::vector<std::int64_t>{15, 1});
  const Scenario list = read_text(ScenarioText{.plan = "{stages: 2, placement: [1, 0], recompute: [full, none]}"});
  const auto order = [](const std::string& name) {
    return std::get<PlacementOrder>(
        read_text(ScenarioText{.plan = "{stages: 2, placement: " + name + "}"}).plan.placement);
  };
  CHECK(order("llama3") == PlacementOrder::Pipeline);
  CHECK(order("megatron") == PlacementOrder::Data);
  CHECK(order("torchtitan") == PlacementOrder::Data);
  CHECK(std::get<std::vector<std::int64_t>>(list.plan.placement) == std::vector<std::int64_t>{1, 0});
  CHECK(list.plan.recompute.value == std::vector<Recompute>{Recompute::Full, Recompute::None});
}

TEST_CASE("Figures of a cluster may carry their source") {
  const Scenario scenario = read_text(ScenarioText{
      .cluster = "{node: {devices: 1, device: {memory: {value: 16 GiB, source: card}, peak: {fp16: {value: 112 "
                 "TFLOP/s, source: sheet}}}}, network: {bandwidth: {value: 10 Gb/s, source: paper}}}"});
  CHECK(scenario.cluster.device.memory == Bytes{std::int64_t{16} << 30});
  CHECK(scenario.cluster.device.sources.at("memory") == "card");
  CHECK(scenario.cluster.device.sources.at("peak.fp16") == "sheet");
  CHECK(scenario.cluster.sources.at("network.bandwidth") == "paper");
  CHECK(scenario.cluster.network->bandwidth == Bandwidth{1.25e9});
}

TEST_CASE("A figure may say how it is known, and keeps that where the scenario is written back") {
  const Scratch scratch;
  const ScenarioText text{
      .cluster =
          "{node: {devices: 1, device: {memory: {value: 15 GiB, provenance: measured, source: card}, "
          "reserve: {value: 1 GiB, provenance: assumed}}}, other_nodes: {old: {nodes: 1, device: "
          "{memory: {value: 8 GiB, provenance: published}}}}, network: {bandwidth: 10 Gb/s}}"};
  const Scenario scenario = read_text(text);
  const Device& device = scenario.cluster.device;
  CHECK(device.provenances ==
        std::map<std::string, Provenance>{{"memory", Provenance::Measured}, {"reserve", Provenance::Assumed}});
  CHECK(scenario.cluster.provenances.empty());  // they are the devices'
  const Scenario again = read_scenario(scratch.write("again.yaml", resolved_yaml(scenario)), {});
  CHECK(again.cluster.device.provenances == device.provenances);
  CHECK(again.cluster.device.sources == device.sources);
  CHECK(again.cluster.others.at(0).device.provenances.at("memory") == Provenance::Published);
  CHECK_THROWS_WITH_AS(
      read_text(ScenarioText{.cluster = "{node: {devices: 1, device: {memory: {value: 1 GiB, provenance: guessed}}}}"}),
      doctest::Contains("cluster.node.device.memory.provenance: unknown \"guessed\""), InputError);
}

TEST_CASE("set: of a scenario changes what the files say that it names, before --set does") {
  const Scratch scratch;
  scratch.write("configs/devices/card.yaml",
                "device: {memory: {value: 15 GiB, provenance: measured, source: card}, reserve: 1 GiB}\n");
  scratch.write("configs/clusters/pair.yaml", "cluster: {node: {devices: 2, device: card}}\n");
  const ReadOptions options{.set = {}, .config_path = {scratch.path("configs")}};
  const std::string pinned = scratch.write(
      "x.yaml",
      ScenarioText{
          .cluster = "pair",
          .more = "set: {cluster.node.device.memory: 16 GiB, cluster.node.device.reserve: 0 B, plan.fit: 50%}\n"}
          .text());
  const Scenario scenario = read_scenario(pinned, options);
  CHECK(scenario.cluster.device.memory == Bytes{std::int64_t{16} << 30});
  CHECK(scenario.cluster.device.reserve == Bytes{});
  CHECK(scenario.cluster.device.provenances.empty());
  CHECK(scenario.plan.fit == 0.5);
  ReadOptions changed = options;
  changed.set = {"cluster.node.device.memory=2 GiB", "plan.fit=90%"};
  CHECK(read_scenario(pinned, changed).cluster.device.memory == Bytes{std::int64_t{2} << 30});
  CHECK(read_scenario(pinned, changed).plan.fit == 0.9);
  CHECK(ScenarioFile(pinned, changed).scenario().cluster.device.reserve == Bytes{});
  CHECK(PointReader(pinned, options).read({}).plan.fit == 0.5);
  changed.set = {"cluster.node.device=card"};  // a device of its own: nothing is left of the change
  CHECK(read_scenario(pinned, changed).cluster.device.reserve == Bytes{std::int64_t{1} << 30});
  changed.set = {"set.plan.fit=90%"};
  CHECK_THROWS_WITH_AS(read_scenario(pinned, changed), doctest::Contains("set: is a block of the file"), InputError);
  const auto error = [&](const std::string& set) {
    return error_in(ScenarioText{.cluster = "pair", .more = "set: " + set + "\n"}, options);
  };
  CHECK(error("5").find("set: \"5\" where a map of keys and values") != std::string::npos);
  CHECK(error("{expect: 1}").find("set: \"expect\" cannot be changed") != std::string::npos);
  CHECK(error("{plan.fitt: 50%}").find("unknown key \"plan.fitt\"; did you mean \"fit\"?") != std::string::npos);
}

TEST_CASE("Names are found in the config folders, paths are relative to the file that holds them") {
  const Scratch scratch;
  scratch.write("configs/models/small.yaml", "model: {layers: [{name: a, forward: 1 ms, backward: 1 ms}]}\n");
  scratch.write("configs/devices/card.yaml", "device: {memory: 1 GiB}\n");
  scratch.write("configs/clusters/pair.yaml", "cluster: {node: {devices: 2, device: card}}\n");
  scratch.write("near/own.yaml", "model: {name: mine, layers: [{name: b, forward: 1 ms, backward: 1 ms}]}\n");
  const ReadOptions options{.set = {}, .config_path = {scratch.path("configs")}};
  const std::string named = scratch.write("near/x.yaml", ScenarioText{.model = "small", .cluster = "pair"}.text());
  const Scenario scenario = read_scenario(named, options);
  CHECK(scenario.name == "x");
  CHECK(scenario.model.name == "small");
  CHECK(scenario.cluster.name == "pair");
  CHECK(scenario.cluster.device.name == "card");
  const std::string by_path = scratch.write("near/y.yaml", ScenarioText{.model = "{file: own.yaml}"}.text());
  CHECK(read_scenario(by_path, options).model.name == "mine");
  CHECK(read_scenario(scratch.write("near/z.yaml", ScenarioText{.model = "./own.yaml"}.text()), options).model.name ==
        "mine");
  CHECK(config_files("models", options) == std::vector<std::string>{scratch.path("configs/models/small.yaml")});

  // --set reaches into what a name stands for
  ReadOptions changed = options;
  changed.set = {"cluster.node.device.memory=2 GiB", "cluster.node.devices=4", "model.layers.0.forward=3 ms"};
  const Scenario set = read_scenario(named, changed);
  CHECK(set.cluster.device.memory == Bytes{std::int64_t{2} << 30});
  CHECK(set.cluster.devices_per_node == 4);
  CHECK(set.model.layers[0].forward == Time{3'000'000});
}

TEST_CASE("--set of one form of model drops the other form, whatever the order of the options") {
  const Scratch scratch;
  scratch.write("graph.txt",
                "node1 -- Input -- forward_compute_time=1.0, backward_compute_time=0.0, activation_size=602112.0, "
                "parameter_size=0.0\nnode2 -- Linear(1) -- forward_compute_time=2.0, backward_compute_time=4.0, "
                "activation_size=8.0, parameter_size=8.0\n\tnode1 -- node2\n");
  const std::string profile = scratch.path("graph.txt");
  const auto model = [&](const std::vector<std::string>& set) {
    return read_text(ScenarioText{.model = "{name: old, batch: 4, input: 1 kB, layers: [{name: a, forward: 1 ms}]}",
                                  .plan = "{stages: 1}"},
                     {.set = set, .config_path = {}})
        .model;
  };
  CHECK(model({"model.batch=64", "model.pipedream_profile=" + profile}).batch == 64);
  CHECK(model({"model.pipedream_profile=" + profile}).batch == 1);  // derived: the file's batch went with its layers
  CHECK(model({"model.pipedream_profile=" + profile}).name == "graph");
  CHECK(model({"model.batch=8"}).batch == 8);
  CHECK(model({"model.layers=[{name: b, flops: 1 FLOP}]"}).batch == 4);  // the same form: only its layers change
}

TEST_CASE("A resolved scenario reads back to the same scenario, and names the origin of every value") {
  const Scratch scratch;
  const ScenarioText text{.model = kLayers,
                          .cluster =
                              "{nodes: 2, node: {devices: 2, device: {memory: {value: 16 GiB, source: 'a: \"b\"'}, "
                              "peak: {fp32: 15.7 TFLOP/s}}, links: {kind: pcie, bandwidth: 10 GB/s}}, network: "
                              "{bandwidth: 100 Gb/s, latency: 5 us, per: device}}",
                          .training = "{global_batch_size: 32, micro_batches: 4, optimizer: adam}",
                          .plan = "{replicas: [2, 1], partition: {layers: [3, 2]}, recompute: [full, none]}",
                          .more = "name: \"on\"\ndescription: \"a # b\"\n"};
  const Scenario scenario =
      read_scenario(scratch.write("x.yaml", text.text()), {.set = {"training.micro_batches=8"}, .config_path = {}});
  const std::string once = resolved_yaml(scenario);
  const std::string twice = resolved_yaml(read_scenario(scratch.write("y.yaml", once)));
  CHECK(without_comments(once) == without_comments(twice));
  CHECK(once.find("micro_batches: 8 ") != std::string::npos);
  CHECK(once.find("# --set training.micro_batches=8\n") != std::string::npos);
  CHECK(once.find("x.yaml:3:64\n") != std::string::npos);  // optimizer
  CHECK(once.find("# default\n") != std::string::npos);
  const std::size_t layer = once.find("name: b.2");  // the third of `repeat: 3`, which stands in line 1
  REQUIRE(layer != std::string::npos);
  const std::string line = once.substr(layer, once.find('\n', layer) - layer);
  CHECK(line.find("x.yaml:1:") != std::string::npos);
}

TEST_CASE("A plan left open with nothing but the global batch opens the micro-batches, as if they said auto") {
  const auto open = [](const std::string& plan, const std::string& training, std::vector<std::string> set = {}) {
    const Scenario scenario = read_text(ScenarioText{.training = training, .plan = plan}, {.set = std::move(set)});
    return scenario.training.open.contains("micro_batch_size");
  };
  const std::string batch = "{global_batch_size: 8}";
  CHECK(open("auto", batch));
  CHECK(open("{stages: auto}", batch));
  CHECK(open("auto", batch, {"plan.stages=2"}));
  CHECK_FALSE(open("{stages: 2}", batch));
  CHECK_FALSE(open("auto", "{global_batch_size: 8, micro_batches: 4}"));
  CHECK_FALSE(open("auto", "{global_batch_size: 8, micro_batches: auto}"));
  CHECK_FALSE(open("auto", batch, {"training.micro_batch_size=2"}));
  CHECK_FALSE(open("auto", "{micro_batch_size: 2, micro_batches: 4}"));
  const std::string text = resolved_yaml(read_text(ScenarioText{.training = batch, .plan = "auto"}));
  CHECK(text.find("micro_batch_size: auto") != std::string::npos);
  CHECK(read_text(text).training.open.contains("micro_batch_size"));
}

TEST_CASE("A partition of whole plans leaves stages, replicas and placement open, and reads back as it was") {
  const Scratch scratch;
  const Scenario scenario = read_text(ScenarioText{.plan = "{schedule: pipedream, partition: suffix_dp}"});
  REQUIRE(std::holds_alternative<SuffixDp>(scenario.plan.partition.value));
  CHECK(scenario.plan.open.size() == kSetByWholePlan.size());
  const std::string once = resolved_yaml(scenario);
  CHECK(once.find("partition: suffix_dp") != std::string::npos);
  CHECK(once.find("stages: auto") != std::string::npos);
  const Scenario again = read_scenario(scratch.write("y.yaml", once));
  CHECK(std::holds_alternative<SuffixDp>(again.plan.partition.value));
  CHECK(without_comments(resolved_yaml(again)) == without_comments(once));
  CHECK(read_text(ScenarioText{.plan = "{stages: 1, partition: suffix_dp}"}).plan.open.count("stages") == 0);
  CHECK(read_text(ScenarioText{.plan = "{stages: auto, partition: suffix_dp}"}).plan.open.count("stages") == 1);
}

TEST_CASE("Layers that repeat their forward are numbers, names and ranges, and read back as they were") {
  const Scratch scratch;
  const Scenario scenario = read_text(
      ScenarioText{.model = kLayers, .plan = "{stages: 3, recompute: [{layers: [b.0, 0]}, none, {layers: [2..4]}]}"});
  CHECK(scenario.plan.recompute.value == std::vector{Recompute::Layers, Recompute::None, Recompute::Layers});
  REQUIRE(scenario.plan.recompute_layers.size() == 3);
  CHECK(scenario.plan.recompute_layers[0].value == std::vector<std::int64_t>{1, 0});
  CHECK(scenario.plan.recompute_layers[2].value == std::vector<std::int64_t>{2, 3, 4});
  const std::string once = resolved_yaml(scenario);
  CHECK(once.find("recompute: [{layers: [1, 0]}, none, {layers: [2..4]}]") != std::string::npos);
  const Scenario again = read_scenario(scratch.write("y.yaml", once));
  CHECK(again.plan.recompute.value == scenario.plan.recompute.value);
  CHECK(again.plan.recompute_layers[2].value == scenario.plan.recompute_layers[2].value);
  const Scenario everywhere = read_text(ScenarioText{.model = kLayers, .plan = "{stages: 2, recompute: knapsack}"});
  CHECK(everywhere.plan.recompute.value == std::vector{Recompute::Knapsack});
  CHECK(resolved_yaml(everywhere).find("recompute: knapsack") != std::string::npos);
}

TEST_CASE("What a framework's settings are called is read, and reads back as it was") {
  const Scratch scratch;
  const Scenario scenario = read_text(
      ScenarioText{.model = "{family: gpt, layers: 5, hidden: 64, heads: 4, vocabulary: 128, sequence_length: 16}",
                   .plan = "{stages: 1, recompute: {every: 2}, recompute_modules: [operators], bucket: megatron, "
                           "reshard_after_forward: 4}"});
  // Embedding, five blocks, head: the second and the fourth.
  CHECK(scenario.plan.recompute_layers[0].value == std::vector<std::int64_t>{2, 4});
  CHECK(scenario.plan.recompute_modules == Modules{Module::Operators});
  CHECK(scenario.plan.bucket_rule == BucketRule::Megatron);
  CHECK(scenario.plan.reshard_after_forward->value);
  CHECK(scenario.plan.reshard_over == 4);
  const std::string once = resolved_yaml(scenario);
  for (const std::string line : {"recompute: {layers: [2, 4]} ", "recompute_modules: [operators] ", "bucket: megatron ",
                                 "reshard_after_forward: 4 "})
    CHECK_MESSAGE(once.find(line) != std::string::npos, line);
  const Scenario again = read_scenario(scratch.write("y.yaml", once));
  CHECK(again.plan.recompute_layers[0].value == scenario.plan.recompute_layers[0].value);
  CHECK(again.plan.recompute_modules == scenario.plan.recompute_modules);
  CHECK(again.plan.bucket_rule == scenario.plan.bucket_rule);
  CHECK(again.plan.reshard_over == scenario.plan.reshard_over);
  // One member has whole weights.
  const Scenario kept = read_text(ScenarioText{.plan = "{stages: 1, reshard_after_forward: 1, bucket: 30 MB}"});
  CHECK_FALSE(kept.plan.reshard_after_forward->value);
  CHECK(kept.plan.reshard_over == 0);
  CHECK(kept.plan.bucket_rule == BucketRule::Size);
  CHECK(kept.plan.bucket == Bytes{30'000'000});
}

TEST_CASE("A model of a million repeated layers is read") {
  const Model model = read_text(ScenarioText{.model = "{layers: [{name: a, repeat: 1000000, forward: 1 ns}]}"}).model;
  CHECK(model.layers.size() == 1'000'000);
  CHECK(model.layers.back().name == "a.999999");
}
