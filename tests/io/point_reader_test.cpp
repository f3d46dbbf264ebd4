// A point of a sweep is the scenario that the same changes make on the command line.
#include "io/yaml/point_reader.hpp"

#include <doctest/doctest.h>

#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

const ReadOptions kWithConfigs{.set = {}, .config_path = {std::string(std::getenv("PIPEWRIGHT_SOURCE")) + "/configs"}};
const std::string kFile = std::string(std::getenv("PIPEWRIGHT_SOURCE")) + "/scenarios/gpipe/transformer-48-k8-m32.yaml";

// Without the comments, which name places: of a point those of the sweep, of the other "--set".
std::string resolved(const Scenario& scenario) {
  std::string text = resolved_yaml(scenario), plain;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    std::string line = text.substr(begin, end - begin);
    line.resize(std::min(line.find("  # "), line.size()));
    line.resize(line.find_last_not_of(' ') + 1);
    plain += line + "\n";
    begin = end + 1;
  }
  return plain;
}

std::string at_once(const std::vector<std::string>& set) {
  ReadOptions options = kWithConfigs;
  options.set = set;
  return resolved(read_scenario(kFile, options));
}

}  // namespace

TEST_CASE("a point is what read_scenario reads") {
  const std::vector<std::vector<std::string>> points = {
      {},
      {"training.micro_batches=8"},
      {"training.micro_batches=8", "plan.stages=4", "plan.partition=balanced"},
      {"cluster.node.links.bandwidth=5 GB/s"},
      {"cluster=dgx-a100x8", "training.precision=bf16"},
      {"cluster=dgx-a100x8", "cluster.nodes=1", "training.precision=bf16"},
      {"cluster.node.device=v100-sxm2-16g"},
      {"cluster.node.device.memory=32 GiB"},
      {"model={family: gpt, layers: 24, hidden: 1024, heads: 16, vocabulary: 51200, sequence_length: 512}",
       "training.sequence_length=null", "plan.partition=balanced"},
      {"model={family: gpt, layers: 24, hidden: 1024, heads: 16, vocabulary: 51200, sequence_length: 512}",
       "training.sequence_length=null", "plan.partition=balanced", "plan.tensor_parallel=2", "plan.stages=4"},
      {"cost={uniform: {forward: 1 ms, backward: 2 ms}}"},
      {"cost=null"},
      {},
  };
  std::vector<std::vector<Assignment>> changes;
  for (const auto& set : points) {
    changes.emplace_back();
    for (const std::string& text : set)
      changes.back().push_back(parse_assignment(text));
  }
  PointReader reader(kFile, kWithConfigs);
  for (int round = 0; round < 2; ++round)
    for (std::size_t i = 0; i < points.size(); ++i) {
      std::vector<const Assignment*> pointers;
      for (const Assignment& change : changes[i])
        pointers.push_back(&change);
      CHECK(resolved(reader.read(pointers)) == at_once(points[i]));
    }
}

TEST_CASE("after a point that makes no scenario the next one is read as if nothing had been") {
  PointReader reader(kFile, kWithConfigs);
  const Assignment stages = parse_assignment("plan.stages=4"), wrong = parse_assignment("training.precision=fp7");
  const Assignment cut = parse_assignment("plan.partition=balanced");
  const Assignment no_model = parse_assignment("model={family: gpt, layers: 0}");
  const std::vector<const Assignment*> bad = {&stages, &cut, &wrong}, good = {&stages, &cut};
  CHECK_THROWS_AS(reader.read(bad), InputError);
  CHECK(resolved(reader.read(good)) == at_once({"plan.stages=4", "plan.partition=balanced"}));
  const std::vector<const Assignment*> worse = {&no_model, &stages, &cut};
  CHECK_THROWS_AS(reader.read(worse), InputError);
  CHECK(resolved(reader.read(good)) == at_once({"plan.stages=4", "plan.partition=balanced"}));
}

TEST_CASE("what stands under a key is its value, its default, or what follows from the batch") {
  const Scenario scenario = read_text(ScenarioText{.training = "{micro_batch_size: 2, micro_batches: 4}",
                                                   .plan = "{stages: 2, reserve_pipeline: 1 MiB}"});
  CHECK(magnitude_under(scenario, "plan.stages") == Magnitude{2});
  CHECK(magnitude_under(scenario, "plan.data_parallel") == Magnitude{1});
  CHECK(magnitude_under(scenario, "plan.reserve_pipeline") == Magnitude{1048576, Unit::Byte});
  CHECK(magnitude_under(scenario, "training.global_batch_size") == Magnitude{8});
  CHECK(magnitude_under(scenario, "cluster.node.devices") == Magnitude{2});
  CHECK(magnitude_under(scenario, "cluster.node.device.memory") == Magnitude{17179869184.0, Unit::Byte});
  CHECK(magnitude_under(scenario, "model.layers") == Magnitude{2});
  CHECK_FALSE(magnitude_under(scenario, "plan.schedule"));
  CHECK_FALSE(magnitude_under(scenario, "plan.stagse"));
  CHECK_FALSE(magnitude_under(scenario, "weather"));
}
