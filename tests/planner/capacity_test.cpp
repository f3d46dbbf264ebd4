// The largest value that fits: against trying every value, and with bytes worked out by hand.
#include "planner/capacity.hpp"

#include <doctest/doctest.h>

#include "io/scenario_file.hpp"
#include "planner/find_plan.hpp"
#include "planner/partitioners/fitting.hpp"
#include "planner/price.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright;

namespace {

// An embedding, a run of equal blocks (4 kB of state and 1 kB of kept tensors each), a head.
ScenarioText chain(const std::string& memory, const std::string& plan = "{stages: 2, schedule: gpipe}") {
  return {.model =
              "{layers: [{name: embedding, forward: 1 ms, backward: 2 ms, activation: 500 B, parameters: 1000}, "
              "{name: block, repeat: 2, forward: 1 ms, backward: 2 ms, activation: 500 B, stash: 1000 B, parameters: "
              "500}, {name: head, forward: 1 ms, backward: 2 ms, activation: 0 B, stash: 100 B, parameters: 1000}]}",
          .cluster = "{node: {devices: 4, device: {memory: " + memory + "}}}",
          .training = "{micro_batch_size: 1, micro_batches: 2}",
          .plan = plan};
}

struct Case {
  Scratch scratch;
  ScenarioFile file;
  explicit Case(const ScenarioText& text) : file(scratch.write("x.yaml", text.text()), {}) {}
  ScenarioWith with(const std::string& key) const {
    return [this, key](std::int64_t value) { return file.scenario(-1, {key + "=" + std::to_string(value)}); };
  }
  Capacity find(const std::string& key, std::optional<std::int64_t> most = std::nullopt) const {
    return capacity(key, with(key), {.first = file.whole_number(key, -1).value_or(1), .most = most});
  }
};

// Every value up to `most`, each priced with the cut that fits; the largest that does, or 0.
std::int64_t largest_of_all(const Case& c, const std::string& key, std::int64_t most) {
  std::int64_t largest = 0;
  for (std::int64_t value = 1; value <= most; ++value) {
    try {
      Scenario scenario = c.with(key)(value);
      scenario.plan.partition.value = Fitting{};
      const CostModel cost = cost_model(scenario);
      if (price(find_plan(scenario, cost), cost, Engine::Auto).report.fits) largest = value;
    } catch (const InputError&) {
      continue;
    }
  }
  return largest;
}

const std::string kBlocks = "model.layers.1.repeat";

}  // namespace

TEST_CASE("The search finds what trying every value finds, on one to four stages and three schedules") {
  for (const char* schedule : {"gpipe", "1f1b", "naive"})
    for (int stages = 1; stages <= 4; ++stages)
      for (const char* memory : {"20 kB", "31 kB", "64 kB"}) {
        CAPTURE(schedule);
        CAPTURE(stages);
        CAPTURE(memory);
        const Case c(chain(memory, "{stages: " + std::to_string(stages) + ", schedule: " + schedule + "}"));
        const std::int64_t expected = largest_of_all(c, kBlocks, 70);
        const Capacity found = c.find(kBlocks);
        CHECK(found.largest.value_or(0) == expected);
      }
}

// One stage holds everything: 8 B of state per parameter (weight and gradient, SGD). Embedding and head: 16000 B, kept
// 2 x (500 + 100) B; a block: 4000 B and 2 x 1000 B. 16000 + 1200 + 6000 n <= 64000 gives n = 7, with 4800 B left; the
// eighth needs 65200 B.
TEST_CASE("On one device the largest number of layers follows from the bytes of a layer") {
  const Case c(chain("64000 B", "{stages: 1, schedule: gpipe}"));
  const Capacity found = c.find(kBlocks);
  CHECK(found.largest == 7);
  CHECK(found.parameters == 5500);
  CHECK(found.training_state == Bytes{44000});
  CHECK(found.activations == Bytes{15200});
  CHECK(found.peak == Bytes{59200});
  CHECK(found.headroom == Bytes{4800});
  CHECK(found.least_memory == Bytes{59200});
  CHECK(found.next == 8);
  CHECK(found.next_bytes.total() == Bytes{65200});
  CHECK(found.next_least_memory == Bytes{65200});
  CHECK(found.method.starts_with("bisection: the model is a chain that grows by layers like their neighbours"));
  CHECK(found.upper_end == "with 16 the training state alone passes the memory of all devices");
}

// The same device, 5 blocks: 16000 + 20000 of state; kept b x (1200 + 10000) B for micro-batches of b: 28000 / 11200
// gives b = 2 (and a remainder).
TEST_CASE("Samples of a micro-batch are bisected: the same layers keep less of fewer samples") {
  ScenarioText text = chain("64000 B", "{stages: 1, schedule: gpipe}");
  text.model.replace(text.model.find("repeat: 2"), 9, "repeat: 5");
  const Case c(text);
  const Capacity found = c.find("training.micro_batch_size");
  CHECK(found.largest == 2);
  CHECK(found.method.starts_with("bisection: the same layers and micro-batches of fewer samples"));
}

// Micro-batches change what is in flight, not the layers: no proof, so every value is looked at.
TEST_CASE("Where nothing is proven the values are scanned downwards") {
  ScenarioText text = chain("64000 B", "{stages: 1, schedule: gpipe}");
  const Case c(text);
  const Capacity found = c.find("training.micro_batches", 100);
  CHECK(found.largest == largest_of_all(c, "training.micro_batches", 100));
  CHECK(found.method.starts_with("scan downwards from 100, value by value"));
}

TEST_CASE("A partition that is stated stays as it is, and says so") {
  const Case c(chain("64000 B", "{stages: 2, schedule: gpipe, partition: {layers: [2, 2]}}"));
  const Capacity found = c.find("training.micro_batch_size");
  CHECK(found.method.find("the cut that the scenario states") != std::string::npos);
  CHECK(found.largest.value_or(0) > 1);
}

TEST_CASE("When nothing fits, that is the answer, and what the smallest value needs is told") {
  const Case c(chain("10000 B", "{stages: 1, schedule: gpipe}"));
  const Capacity found = c.find(kBlocks);
  CHECK_FALSE(found.largest);
  CHECK(found.next == 1);
  CHECK(found.next_bytes.total() == Bytes{23200});
}

TEST_CASE("A value that makes no scenario is refused with the scenario's own message") {
  const Case c(chain("64000 B"));
  CHECK(message_of([&] { c.find("model.layrs"); }).find("unknown key \"model.layrs\"") != std::string::npos);
  CHECK(message_of([&] { c.find("plan.schedule"); }).find("\"gpipe\"") != std::string::npos);
}

// More stages: no larger model, so no bound by state; beyond the cluster's four devices there is no scenario.
TEST_CASE("Values beyond which there is no scenario end the search") {
  const Case c(chain("64000 B"));
  const Capacity found = c.find("plan.stages");
  CHECK(found.largest == 4);
  CHECK(found.next_refused.find("5 stages for 4 layers") != std::string::npos);
}

TEST_CASE("Repetition: only chains whose runs get longer, behind layers that hand on no more") {
  const auto model = [](const std::string& layers) {
    return read_text(ScenarioText{.model = "{layers: [" + layers + "]}"}).model;
  };
  const auto run = [](int length, const std::string& activation = "4 B") {
    return "{name: r, repeat: " + std::to_string(length) +
           ", forward: 1 ms, backward: 1 ms, activation: " + activation + ", parameters: 9}";
  };
  const std::string thin = "{name: a, forward: 1 ms, backward: 1 ms, activation: 4 B}, ";
  const std::string thick = "{name: a, forward: 1 ms, backward: 1 ms, activation: 8 B}, ";
  const auto found = repetition(model(thin + run(3)), model(thin + run(5)));
  REQUIRE(found);
  CHECK(found->in_smaller == 3);
  CHECK(found->in_larger == 5);
  CHECK_FALSE(repetition(model(thin + run(5)), model(thin + run(3))));
  CHECK_FALSE(repetition(model(thin + run(3)), model(thin + run(3))));
  CHECK_FALSE(repetition(model(thick + run(3)), model(thick + run(5))));
  CHECK_FALSE(repetition(model(thin + run(3)), model(thin + run(5, "2 B"))));
  const std::string skip = ", {name: s, forward: 1 ms, backward: 1 ms, inputs: [a, r]}";
  CHECK_FALSE(repetition(model(thin + run(3) + skip), model(thin + run(5) + skip)));
}

// ---- of a real run ----

namespace {

// Extents by number of layers: a run of 3 blocks (5 layers) takes more than one of 4 or 5.
RunMemoryOf uneven() {
  return [](const Scenario& scenario, const Plan& plan, const Schedule&) {
    const auto layers = static_cast<std::int64_t>(scenario.model.layers.size());
    const Bytes extent{layers == 5 ? 90'000 : layers * 10'000};
    return std::vector<RunMemory>(static_cast<std::size_t>(plan.positions()), RunMemory{{.stash = extent}, extent});
  };
}
RunMemoryOf refusing() {
  return [](const Scenario&, const Plan&, const Schedule&) -> std::vector<RunMemory> {
    throw InputError("layer \"embedding\" cannot be run: it has no operator");
  };
}

Capacity found_with(const std::string& run, const RunMemoryOf& run_memory) {
  ScenarioText text = chain("64000 B", "{stages: 1, schedule: gpipe}");
  text.more = run;
  const Case c(text);
  return capacity(kBlocks, c.with(kBlocks), {.first = 2, .most = 20, .run_memory = run_memory});
}

}  // namespace

TEST_CASE("A scenario that is to be run is asked of what its run takes, value by value") {
  // 2 + n layers of 10 kB each under a cap of 75 kB: n = 5. That n = 3 does not fit proves nothing about 5.
  const Capacity found = found_with("run: {memory_cap: 75 kB}", uneven());
  CHECK(found.of_run);
  CHECK(found.largest == 5);
  CHECK(found.peak == Bytes{70000});
  CHECK(found.device_memory == Bytes{75000});
  CHECK(found.headroom == Bytes{5000});
  CHECK(found.next == 6);
  CHECK(found.next_need == Bytes{80000});
  CHECK(found.method.find("replaying a run's arena") != std::string::npos);
  CHECK(found_with("run: {memory_cap: 49999 B}", uneven()).largest == 2);
}

TEST_CASE("Without a cap a run may fill the device, and without a run the memory model answers") {
  CHECK(found_with("run: {steps: 1}", uneven()).largest == 4);  // 6 layers, 60000 of 64000 B
  const Capacity modelled = found_with("", uneven());
  CHECK_FALSE(modelled.of_run);
  CHECK(modelled.largest == 7);  // as above
}

TEST_CASE("A model that cannot be run is answered by the memory model, unless a cap of its run is stated") {
  const Capacity found = found_with("run: {steps: 1}", refusing());
  CHECK_FALSE(found.of_run);
  CHECK(found.largest == 7);
  CHECK(
      found.method.ends_with("by the memory model, as a run is refused (layer \"embedding\" cannot be run: it has no "
                             "operator)"));
  CHECK_THROWS_WITH_AS(found_with("run: {memory_cap: 7500 B}", refusing()), doctest::Contains("cannot be run"),
                       InputError);
}
