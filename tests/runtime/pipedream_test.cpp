// What PipeDream's variants promise about the weights that an op reads.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/runtime/run_case.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

// A chain of equal layers and a loss; nine micro-batches.
RunCase chain(int layers, int stages, const std::vector<std::string>& more = {}, const RunOptions& options = {}) {
  std::vector<std::string> changes = {
      "model={name: chain, input_shape: [6], layers: [{name: body, repeat: " + std::to_string(layers) +
          ", ops: [{op: linear, features: 6}]}, {name: loss, op: cross_entropy}]}",
      "model.input_tokens=null",
      "cluster.node.devices=8",
      "plan.schedule=pipedream",
      "plan.stages=" + std::to_string(stages),
      "training.micro_batches=9"};
  changes.insert(changes.end(), more.begin(), more.end());
  return RunCase(changes, options);
}

using Versions = std::map<std::pair<VirtualStageId, MicroBatchId>, std::pair<std::int64_t, std::int64_t>>;

// Updates that were in the weights that (stage, micro-batch) read forwards and backwards: tags of the buffers.
Versions versions(const RunCase& run) {
  Versions all;
  for (const WorkerResult& worker : run.run(one_step()))
    for (const auto& read : worker.versions)
      all[{read.virtual_stage, read.micro_batch}] = {read.forward, read.backward};
  return all;
}

std::vector<std::vector<float>> weights(const RunCase& run) {
  RunSettings settings = one_step();
  settings.optimizer.learning_rate = 0.2;
  std::vector<std::vector<float>> all;
  for (const WorkerResult& worker : run.run(settings))
    for (const auto& values : worker.weights)
      if (!values.empty()) all.push_back(values);
  return all;
}

const RunOptions kNewest = {.weight_stashing = false};

}  // namespace

// Stage k of K has K - k micro-batches in flight: micro-batch m is computed with the updates of m - (K - 1 - k) others,
// backwards with the same, or without a stash with all m before it.                       [PipeDream19] section 3.3
TEST_CASE("Stage k computes with weights that K - 1 - k updates are missing in; the tags of the buffers say so") {
  for (const bool stashing : {true, false}) {
    const RunCase run = chain(6, 3, {}, stashing ? RunOptions{} : kNewest);
    const Versions read = versions(run);
    CHECK(read.size() == 3 * 9);
    for (const auto& [key, version] : read) {
      const std::int64_t k = key.first, m = key.second;
      CAPTURE(k);
      CAPTURE(m);
      CHECK(version.first == std::max<std::int64_t>(0, m - (2 - k)));
      CHECK(version.second == (stashing ? version.first : m));
    }
  }
}

TEST_CASE("With vertical sync every stage reads, forwards and backwards, the version that the input stage read") {
  const Versions read = versions(chain(6, 3, {"plan.vertical_sync=true"}));
  CHECK(read.size() == 3 * 9);
  for (const auto& [key, version] : read) {
    CHECK(version.first == std::max<std::int64_t>(0, std::int64_t{key.second} - 2));
    CHECK(version.second == version.first);
  }
}

TEST_CASE("PipeDream-2BW: a round of micro-batches reads, on every stage, the weights before the last update") {
  const Versions read = versions(chain(6, 3, {"plan.schedule=pipedream_2bw", "plan.update_every=4"}));
  CHECK(read.size() == 3 * 9);
  for (const auto& [key, version] : read) {
    CHECK(version.first == std::max<std::int64_t>(0, std::int64_t{key.second} / 4 - 1));
    CHECK(version.second == version.first);
  }
}

TEST_CASE("PipeDream-2BW learns the same on any number of stages, bit by bit, and holds two versions") {
  const auto learned = [&](int stages, const std::vector<std::string>& more = {}) {
    std::vector<std::string> changes = {"plan.schedule=pipedream_2bw", "plan.update_every=3",
                                        "training.micro_batches=12"};
    changes.insert(changes.end(), more.begin(), more.end());
    const RunCase run = chain(6, stages, changes);
    for (const auto& chunk : run.run_plan.chunks)
      CHECK(chunk.buffers == 2);
    std::vector<float> all;  // of all layers, in order
    for (const auto& values : weights(run))
      all.insert(all.end(), values.begin(), values.end());
    return all;
  };
  const std::vector<float> on_one = learned(1);
  CHECK(learned(2) == on_one);
  CHECK(learned(3) == on_one);
  CHECK(learned(3, {"plan.update_every=4"}) != on_one);
}

// The gradient of a first stage that is one linear layer is x^T dy: its own weights are not in it. With two layers the
// first one's gradient has the second one's weights in it.
TEST_CASE("On two stages stashing changes nothing with one linear layer per stage, and what is learned with two") {
  const auto plan = std::vector<std::string>{"plan.partition={layers: [1, 2]}"};
  CHECK(weights(chain(2, 2, plan)) == weights(chain(2, 2, plan, kNewest)));
  const auto deeper = std::vector<std::string>{"plan.partition={layers: [2, 3]}"};
  const auto kept = weights(chain(4, 2, deeper)), newest = weights(chain(4, 2, deeper, kNewest));
  REQUIRE(kept.size() == 2);
  CHECK(kept[0] != newest[0]);
  CHECK(kept[1] != newest[1]);  // by what it is sent
}

TEST_CASE("Replicas of a stage read one version per round, and with stashing the same backwards") {
  const Versions read = versions(chain(4, 2, {"plan.replicas=[2, 1]", "training.micro_batches=8"}));
  CHECK(read.size() == 2 * 8);
  for (const auto& [key, version] : read)
    CHECK(version.second == version.first);
  for (MicroBatchId m = 0; m + 1 < 8; m += 2)
    CHECK(read.at({0, m}) == read.at({0, m + 1}));
}
