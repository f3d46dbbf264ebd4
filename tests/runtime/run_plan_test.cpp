#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/runtime/run_case.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

// Slots by (receiving position, direction).
std::map<std::pair<int, bool>, int> slots(const RunPlan& run) {
  std::map<std::pair<int, bool>, int> by;
  for (const RunChannel& channel : run.channels)
    by[{channel.to, channel.forward}] = channel.slots;
  return by;
}

RunCase four_stages(const std::string& schedule, const std::vector<std::string>& more = {}) {
  std::vector<std::string> changes = {"cluster.node.devices=8", "plan.stages=4", "plan.schedule=" + schedule};
  changes.insert(changes.end(), more.begin(), more.end());
  return RunCase(changes);
}

}  // namespace

TEST_CASE("slots: 1F1B needs one more than the receiver has in flight, min(M, K - k + 1)") {
  const auto by = slots(four_stages("1f1b").run_plan);
  CHECK(by.at({1, true}) == 4);
  CHECK(by.at({2, true}) == 3);
  CHECK(by.at({3, true}) == 2);
  const auto few = slots(four_stages("1f1b", {"training.micro_batches=2"}).run_plan);
  CHECK(few.at({1, true}) == 2);
}

TEST_CASE("slots: GPipe keeps every micro-batch's boundary, but no more than two gradients") {
  const auto by = slots(four_stages("gpipe").run_plan);
  for (const int stage : {1, 2, 3})
    CHECK(by.at({stage, true}) == 8);
  for (const int stage : {0, 1, 2})
    CHECK(by.at({stage, false}) == 2);
}

TEST_CASE("slots: the naive schedule never has two messages on one way") {
  for (const auto& [end, count] : slots(four_stages("naive").run_plan))
    CHECK(count == 1);
}

TEST_CASE("Every message of a channel has one number, and its ends agree on the bytes") {
  const RunCase run = four_stages("1f1b", {"training.ragged=true", "training.global_batch_size=15"});
  for (const RunChannel& channel : run.run_plan.channels) {
    CHECK(channel.bytes[1] < channel.bytes[0]);
    for (std::size_t i = 0; i < channel.micro_batches.size(); ++i) {
      const auto way = run.run_plan.way(channel.edge, channel.forward, channel.micro_batches[i]);
      CHECK(&run.run_plan.channels[static_cast<std::size_t>(way.channel)] == &channel);
      CHECK(way.number == static_cast<int>(i));
    }
  }
}

TEST_CASE("PipeDream holds as many weight versions as micro-batches are in flight, without stashing one") {
  const RunCase stashing({"plan.stages=2", "plan.schedule=pipedream"});
  CHECK(stashing.run_plan.chunks[0].buffers == 2);
  CHECK(stashing.run_plan.chunks[1].buffers == 1);
  const RunCase newest({"plan.stages=2", "plan.schedule=pipedream"}, {.weight_stashing = false});
  CHECK(newest.run_plan.chunks[0].buffers == 1);
}

TEST_CASE("A model that cannot be run is refused before anything is, with every reason and a way out") {
  const auto why = [](const std::string& layer) {
    try {
      RunCase run({"model.layers=" + layer, "model.input_tokens=null", "model.input_shape=[8, 8, 8]", "plan.stages=1"});
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string batch_norm =
      why("[{name: n, op: batch_norm}, {name: f, op: flatten}, {name: loss, op: cross_entropy}]");
  CHECK(batch_norm.find("layer \"n\" cannot be run: ") != std::string::npos);
  CHECK(batch_norm.find("batch_norm") != std::string::npos);
  CHECK_THROWS_WITH_AS(RunCase({"training.precision=bf16", "cost={uniform: {forward: 1 ms, backward: 2 ms}}"}),
                       doctest::Contains("computes in fp32"), InputError);
  CHECK_THROWS_WITH_AS(RunCase({"plan.recompute=selective"}), doctest::Contains("keeps everything (none) or"),
                       InputError);
}
