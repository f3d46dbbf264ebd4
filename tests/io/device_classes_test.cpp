// cluster.other_nodes: nodes with devices of further classes.
#include <doctest/doctest.h>

#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

ScenarioText with_others(const std::string& others) {
  return {.cluster =
              "{nodes: 2, node: {devices: 2, device: {name: new, memory: 16 GiB}}, network: {kind: ideal}, "
              "other_nodes: " +
              others + "}"};
}

void says(const std::string& others, const std::string& part) {
  const std::string message = error_in(with_others(others));
  INFO(message);
  CHECK(message.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("Nodes of other classes stand behind the first ones, in their order") {
  const Scenario scenario = read_text(
      with_others("{old: {nodes: 3, device: {name: b, memory: {value: 8 GiB, source: datasheet}}, speed: 0.5}, "
                  "spare: {nodes: 1, device: {name: c, memory: 4 GiB}}}"));
  const Cluster& cluster = scenario.cluster;
  CHECK(cluster.nodes == 6);
  CHECK(cluster.classes() == 3);
  CHECK(cluster.nodes_of(0) == 2);
  CHECK(cluster.first_node_of(2) == 5);
  CHECK(cluster.device_of(2).memory == Bytes{std::int64_t{4} << 30});
  CHECK(cluster.others[0].speed == 0.5);
  CHECK_FALSE(cluster.others[1].speed.has_value());
  CHECK(cluster.others[0].device.sources.at("memory") == "datasheet");
  CHECK(cluster.sources.empty());
}

TEST_CASE("A resolved scenario with other nodes reads back to the same") {
  const Scratch scratch;
  const std::string text =
      with_others("{old: {nodes: 3, device: {name: b, memory: {value: 8 GiB, source: datasheet}}, speed: 0.5}}").text();
  const std::string once = resolved_yaml(read_scenario(scratch.write("x.yaml", text)));
  INFO(once);
  const Scenario again = read_scenario(scratch.write("y.yaml", once));
  CHECK(again.cluster.nodes == 5);
  CHECK(again.cluster.nodes_of(0) == 2);
  CHECK(again.cluster.others.at(0).name == "old");
  CHECK(again.cluster.others.at(0).speed == 0.5);
  CHECK(again.cluster.others.at(0).device.sources.at("memory") == "datasheet");
}

TEST_CASE("--set reaches into other nodes, and takes them away") {
  const std::string old = "{old: {nodes: 3, device: {name: b, memory: 8 GiB}, speed: 0.5}}";
  const auto with = [&](const std::string& set) {
    return read_text(with_others(old), {.set = {set}, .config_path = {}});
  };
  CHECK(with("cluster.other_nodes.old.nodes=4").cluster.nodes == 6);
  CHECK(with("cluster.nodes=1").cluster.nodes == 4);
  CHECK(with("cluster.other_nodes.old.device.memory=9 GiB").cluster.device_of(1).memory ==
        Bytes{std::int64_t{9} << 30});
  CHECK(with("cluster.other_nodes=null").cluster.classes() == 1);
}

TEST_CASE("Other nodes that cannot be are refused") {
  const std::string device = "device: {memory: 1 GiB}";
  says("{a: {nodes: 0, " + device + "}}", "cluster.other_nodes.a.nodes: \"0\" must be at least 1");
  says("{a: {" + device + "}}", "cluster.other_nodes.a.nodes is missing");
  says("{a: {nodes: 1}}", "cluster.other_nodes.a.device is missing");
  says("{a: {nodes: 1, " + device + ", speed: 0}}", "cluster.other_nodes.a.speed: \"0\" must be more than 0");
  says("[1]", "a list where a map of names, e.g. {old: {nodes: 2, device: a100-80g}}, is needed");
  std::string three;
  for (const char* name : {"a", "b", "c"})
    three += std::string(three.empty() ? "{" : ", ") + name + ": {nodes: 1, " + device + "}";
  says(three + "}",
       "cluster.other_nodes: 3 classes of devices in addition to node.device; use at most 2, or put devices that "
       "compute alike into one");
}
