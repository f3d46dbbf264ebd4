// The largest value that fits: against trying every value, and with bytes worked out by hand.
#include "planner/capacity.hpp"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "core/random.hpp"
#include "io/read/scenario_file.hpp"
#include "planner/anchor.hpp"
#include "planner/capacity_growth.hpp"
#include "planner/figures.hpp"
#include "planner/find_plan.hpp"
#include "planner/partitioners/fitting.hpp"
#include "planner/price.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

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

// Priced with its cut; with one chunk per stage, where the scenario asks for the balanced one, with that which fits.
bool fits(Scenario scenario) {
  Partition& partition = scenario.plan.partition.value;
  if (std::holds_alternative<Balanced>(partition) && scenario.plan.virtual_stages.value == 1) partition = Fitting{};
  const CostModel cost(scenario);
  return price(find_plan(scenario, cost), cost, Engine::Auto).report.fits;
}

// Every value from `least` to `most`; the largest that fits, or 0.
std::int64_t largest_of_all(const Case& c, const std::string& key, std::int64_t most, std::int64_t least = 1) {
  for (std::int64_t value = most; value >= least; --value) {
    try {
      if (fits(c.with(key)(value))) return value;
    } catch (const InputError&) {
      continue;
    }
  }
  return 0;
}

const std::string kBlocks = "model.layers.1.repeat";

}  // namespace

TEST_CASE("The search finds what trying every value finds, on one to four stages and three schedules" *
          doctest::test_suite("whole searches")) {
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

// The run has none of the reserve of 20 kB, 1500 B less than predicted are held, and half of the activations are there.
TEST_CASE("With a measured run the search finds what trying every value finds" *
          doctest::test_suite("whole searches")) {
  for (const int stages : {1, 2, 3})
    for (const char* memory : {"40 kB", "50 kB", "64 kB"}) {
      CAPTURE(stages);
      CAPTURE(memory);
      ScenarioText text =
          chain(std::string(memory) + ", reserve: 20 kB", "{stages: " + std::to_string(stages) + ", schedule: gpipe}");
      const auto figure = [&](const std::string& of) {
        const Scratch scratch;
        const Scenario run =
            read_scenario(scratch.write("x.yaml", text.text()), {.set = {"plan.stages=1"}, .config_path = {}});
        const CostModel cost(run);
        return static_cast<std::int64_t>(figure_of(price(find_plan(run, cost), cost, Engine::Auto),
                                                   {.text = of, .figure = Figure::Memory, .of = of}));
      };
      const std::int64_t held = figure("held") - 1500;
      const std::int64_t most = held + (figure("allocated") - figure("held")) / 2;
      text.training = fmt::format(
          "{{micro_batch_size: 1, micro_batches: 2, framework: {{anchor: {{set: {{plan: {{stages: 1, schedule: "
          "gpipe}}}}, held: {} B, allocated: {} B, reserved: {} B, in_use: {} B}}}}}}",
          held, most, most, most);
      const Case c(text);
      const ScenarioWith with = [&](std::int64_t value) { return anchored(c.with(kBlocks)(value)); };
      std::int64_t expected = 0;
      for (std::int64_t value = 1; value <= 70; ++value)
        if (fits(with(value))) expected = value;
      const Capacity found = capacity(kBlocks, with, {.first = 2});
      CHECK(found.largest.value_or(0) == expected);
      CHECK(found.proven);
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

// Two stages of two chunks each: the balanced cut of n + 3 layers moves with n, and with it what stage 0 keeps. 13 do
// not fit, 14 do; 15 and more were tried one by one, and with 48 what one micro-batch keeps passes both devices.
TEST_CASE("With several chunks per stage fitting is not monotone, and 14 is the answer from every start") {
  for (const int start : {2, 3, 7, 12, 13}) {
    CAPTURE(start);
    const Case c({.model = "{layers: [{name: l0, repeat: " + std::to_string(start) +
                           ", forward: 600 us, backward: 1 ms, activation: 0 B, stash: 800 kB, parameters: 0}, {name: "
                           "l1, repeat: 3, forward: 600 us, backward: 1 ms, activation: 0 B, stash: 200 kB, "
                           "parameters: 0}]}",
                  .cluster = "{node: {devices: 2, device: {memory: 12 MB}, links: {kind: ideal}}}",
                  .training = "{micro_batch_size: 1, micro_batches: 2}",
                  .plan = "{stages: 2, schedule: interleaved_1f1b, virtual_stages: 2}"});
    CHECK_FALSE(fits(c.with("model.layers.0.repeat")(13)));
    const Capacity found = c.find("model.layers.0.repeat");
    CHECK(found.largest == 14);
    CHECK(found.next == 15);
    CHECK(found.proven);
    CHECK_FALSE(found.needs_grow);  // with 13 MB 15 fit, although 15 need more than 12 MB
    CHECK(found.method.starts_with("scan downwards from"));
    CHECK(found.upper_end.find("the training state and what one micro-batch keeps pass") != std::string::npos);
  }
}

// Times round otherwise with more samples, and with them the balanced cut of two chunks per stage moves: 16 and 17 samples
// do not fit, 18 do.
TEST_CASE("With several chunks per stage fitting is not monotone in the samples either") {
  for (const int start : {4, 9}) {
    CAPTURE(start);
    const Case c({.model =
                      "{batch: 4, layers: [{name: l0, forward: 8 ns, backward: 8 ns, activation: 0 B, stash: 100 kB, "
                      "parameters: 0}, {name: l1, forward: 4 ns, backward: 1 ns, activation: 0 B, stash: 800 "
                      "kB, parameters: 0}, {name: l2, forward: 3 ns, backward: 9 ns, activation: 0 B, stash: "
                      "200 kB, parameters: 0}, {name: l3, forward: 7 ns, backward: 8 ns, activation: 0 B, "
                      "stash: 100 kB, parameters: 0}, {name: l4, forward: 6 ns, backward: 5 ns, activation: 0 "
                      "B, stash: 200 kB, parameters: 0}, {name: l5, forward: 3 ns, backward: 6 ns, activation: "
                      "0 B, stash: 200 kB, parameters: 0}, {name: l6, forward: 3 ns, backward: 9 ns, "
                      "activation: 0 B, stash: 400 kB, parameters: 0}, {name: l7, forward: 4 ns, backward: 9 "
                      "ns, activation: 0 B, stash: 800 kB, parameters: 0}, {name: l8, forward: 8 ns, backward: "
                      "8 ns, activation: 0 B, stash: 1600 kB, parameters: 0}]}",
                  .cluster = "{node: {devices: 2, device: {memory: 18 MB}, links: {kind: ideal}}}",
                  .training = "{micro_batch_size: " + std::to_string(start) + ", micro_batches: 2}",
                  .plan = "{stages: 2, schedule: interleaved_1f1b, virtual_stages: 2}"});
    CHECK_FALSE(fits(c.with("training.micro_batch_size")(16)));
    const Capacity found = c.find("training.micro_batch_size");
    CHECK(found.largest == 18);
    CHECK_FALSE(found.needs_grow);
  }
}

namespace {

ScenarioText random_text(Random& random) {
  const auto below = [&](std::uint64_t n) { return static_cast<int>(random.bits() % n); };
  const auto one_of = [&](std::initializer_list<const char*> texts) {
    return std::string(texts.begin()[below(texts.size())]);
  };
  ScenarioText text;
  text.model = "{layers: [";
  const int specs = 1 + below(3);
  for (int i = 0; i < specs; ++i)
    text.model += std::string(i > 0 ? ", " : "") + "{name: l" + std::to_string(i) +
                  ", repeat: " + std::to_string(1 + below(4)) + ", forward: " + std::to_string(100 * (1 + below(8))) +
                  " us, backward: 1 ms, activation: " + std::to_string(100 * below(3)) +
                  " kB, stash: " + std::to_string(200 * (1 + below(5))) +
                  " kB, parameters: " + std::to_string(20'000 * below(4)) + "}";
  text.model += "]}";
  const int stages = 1 + below(3), chunks = stages > 1 ? 1 + below(3) : 1;
  text.cluster =
      "{node: {devices: 4, device: {memory: " + std::to_string(6 + below(9)) + " MB}, links: {kind: ideal}}}";
  text.training = "{micro_batch_size: 1, micro_batches: " + std::to_string(stages * (1 + below(2))) + "}";
  text.plan = "{stages: " + std::to_string(stages) + ", schedule: " +
              (chunks > 1 ? "interleaved_1f1b, virtual_stages: " + std::to_string(chunks)
                          : one_of({"gpipe", "1f1b", "zb_h1", "naive"})) +
              ", partition: " + one_of({"balanced", "balanced", "equal_layers", "block_partition"}) +
              ", recompute: " + one_of({"none", "none", "full"}) + "}";
  return text;
}

}  // namespace

TEST_CASE("What the search claims of random scenarios is what trying every value shows") {
  int unlike = 0, chunked = 0;  // cases in which some value fits and a smaller one does not
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const ScenarioText text = random_text(random);
    CAPTURE(text.text());
    const Case c(text);
    const std::string key = "model.layers.0.repeat";
    const Capacity found = capacity(key, c.with(key), {.first = 1 + static_cast<std::int64_t>(seed % 7), .most = 24});
    CAPTURE(found.method);
    REQUIRE((found.proven || found.tried_to || found.stopped));
    const std::int64_t largest = found.largest.value_or(0),
                       to = std::min<std::int64_t>(found.tried_to.value_or(24), 24);
    CHECK(largest_of_all(c, key, to, largest) == largest);
    const std::int64_t first_miss = [&] {
      std::int64_t value = 1;
      while (value < largest && largest_of_all(c, key, value, value) == value)
        ++value;
      return value;
    }();
    unlike += first_miss < largest ? 1 : 0;
    chunked += text.plan.find("interleaved") != std::string::npos ? 1 : 0;
  }
  CHECK(unlike > 0);
  CHECK(chunked > 10);
}

// 70 stages of a model hold less each than one: a state that does not fit one device bounds nothing.
TEST_CASE("Where a larger value takes less of every device, a small one that does not fit ends nothing") {
  ScenarioText text = chain("20 kB", "{stages: 1, schedule: gpipe}");
  text.model.replace(text.model.find("repeat: 2"), 9, "repeat: 6");
  const Case c(text);
  CHECK(largest_of_all(c, "plan.stages", 1) == 0);
  CHECK(c.find("plan.stages").largest == 4);
}

namespace {

// Scenarios of a chain, of which only some values make one, and how many values were read.
struct Some {
  Case c{chain("64000 B", "{stages: 1, schedule: gpipe}")};
  std::int64_t read = 0;
  Capacity find(std::int64_t first, const std::function<bool(std::int64_t)>& valid, bool grows) {
    const ScenarioWith with = [&](std::int64_t value) {
      if (!valid(value)) throw InputError(std::to_string(value) + " nodes are refused");
      return c.with(kBlocks)(grows ? value : 2);
    };
    return capacity(kBlocks, with, {.first = first, .progress = [&](std::int64_t, std::int64_t done) { read = done; }});
  }
};

}  // namespace

TEST_CASE("Values that make no scenario are read in numbers, not by the hundred thousand") {
  Some some;
  const Capacity found = some.find(
      4, [](std::int64_t value) { return value <= 200'000; }, false);
  CHECK(found.largest == 200'000);
  CHECK_FALSE(found.next);
  CHECK(found.next_refused == "200001 nodes are refused (200001 to 200256 were read)");
  CHECK(found.upper_end == "200001 makes no scenario: 200001 nodes are refused");
  CHECK(some.read < 500);
}

TEST_CASE("Values between which others make no scenario are found") {
  Some some;
  CHECK(some.find(
                1, [](std::int64_t value) { return value % 2 == 1; }, true)
            .largest == 7);
  CHECK(some.find(
                1, [](std::int64_t value) { return value % 5 == 1; }, true)
            .largest == 6);
  CHECK(some.find(
                8, [](std::int64_t value) { return 24 % value == 0; }, false)
            .largest == 24);
  CHECK(some.find(
                2, [](std::int64_t value) { return value == 2 || value == 7; }, true)
            .largest == 7);
}

TEST_CASE("What is too much to look at value by value is climbed, and how far is said") {
  // gpipe keeps all its micro-batches: 24000 B of state and 2600 B each leave room for 1529 of them, less buffers.
  const Case c(chain("4 MB", "{stages: 1, schedule: gpipe}"));
  const Capacity found = c.find("training.micro_batches", 100'000);
  CHECK(found.largest == largest_of_all(c, "training.micro_batches", 1540, 1500));
  CHECK_FALSE(found.proven);
  REQUIRE(found.tried_to);
  CHECK(*found.tried_to >= *found.largest + kLeastBeyond);
  CHECK(found.method.starts_with("doubling, then bisection, then value by value up to " +
                                 std::to_string(*found.tried_to)));
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
