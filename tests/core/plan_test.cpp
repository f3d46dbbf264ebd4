#include "core/plan/plan.hpp"

#include <doctest/doctest.h>

using namespace pipewright::tests;

namespace {

Placed<std::int64_t> at(std::int64_t value, int line) {
  return {value, {"s.yaml", line, 3}};
}

// line 1: global batch, line 2: micro-batch size, line 3: micro-batches; 0: not given.
Training training(std::int64_t global, std::int64_t size, std::int64_t count, bool ragged = false) {
  Training result;
  if (global != 0) result.global_batch_size = at(global, 1);
  if (size != 0) result.micro_batch_size = at(size, 2);
  if (count != 0) result.micro_batches = at(count, 3);
  result.ragged = ragged;
  result.place = {"s.yaml", 9, 1};
  return result;
}

void check_split(const BatchSplit& split, std::int64_t global, std::int64_t size, std::int64_t count,
                 std::int64_t last) {
  CHECK(split.global_batch_size == global);
  CHECK(split.micro_batch_size == size);
  CHECK(split.micro_batches == count);
  CHECK(split.last_micro_batch_size == last);
}

Model four_layers() {
  Model model;
  model.layers.resize(4);
  return model;
}

Cluster five_devices() {
  Cluster cluster;
  cluster.devices_per_node = 5;
  return cluster;
}

// Two stages with 3 and 1 replicas.
Plan sound() {
  Plan plan;
  plan.stages = 2;
  plan.replicas = {3, 1};
  plan.recompute.assign(2, Recompute::None);
  plan.layers = {{0, 3}, {3, 4}};
  plan.micro_batches = 6;
  plan.micro_batch_size = plan.last_micro_batch_size = 2;
  plan.global_batch_size = 12;
  plan.device = {0, 1, 2, 3};
  return plan;
}

}  // namespace

TEST_CASE("Two of the three batch figures give the third") {
  check_split(batch_split(training(32, 4, 0), 1), 32, 4, 8, 4);
  check_split(batch_split(training(32, 0, 8), 1), 32, 4, 8, 4);
  check_split(batch_split(training(0, 4, 8), 1), 32, 4, 8, 4);
  check_split(batch_split(training(32, 4, 8), 1), 32, 4, 8, 4);
}

TEST_CASE("The global batch is shared by all copies of the pipeline") {
  check_split(batch_split(training(64, 0, 8), 2), 64, 4, 8, 4);
  check_split(batch_split(training(0, 4, 8), 2), 64, 4, 8, 4);
  CHECK_THROWS_WITH_AS(
      batch_split(training(100, 0, 8), 3),
      "s.yaml:1:3: training.global_batch_size: 100 does not divide over 3 copies (plan.data_parallel); use 99 or 102",
      InputError);
  CHECK_THROWS_WITH_AS(
      batch_split(training(2, 0, 8), 3),
      "s.yaml:1:3: training.global_batch_size: 2 does not divide over 3 copies (plan.data_parallel); use 3",
      InputError);
}

TEST_CASE("A number of micro-batches that does not divide the batch is refused with the valid ones") {
  CHECK_THROWS_WITH_AS(
      batch_split(training(32, 0, 5), 1),
      "s.yaml:3:3: training.micro_batches: 5 does not divide the global batch of 32; valid: 1, 2, 4, 8, "
      "16, 32; or set `ragged: true` for a smaller last micro-batch",
      InputError);
  CHECK_THROWS_WITH_AS(batch_split(training(36, 0, 5), 2),
                       "s.yaml:3:3: training.micro_batches: 5 does not divide the 18 samples of each of the 2 copies; "
                       "valid: 1, 2, 3, 6, 9, 18; or set `ragged: true` for a smaller last micro-batch",
                       InputError);
}

TEST_CASE("A micro-batch size that does not divide the batch is refused with the valid ones") {
  CHECK_THROWS_WITH_AS(
      batch_split(training(12, 5, 0), 1),
      "s.yaml:2:3: training.micro_batch_size: 5 does not divide the global batch of 12; valid: 1, 2, 3, "
      "4, 6, 12; or set `ragged: true` for a smaller last micro-batch",
      InputError);
}

TEST_CASE("Of many valid values those around the wrong one are listed") {
  // 720720 has 240 divisors; next to 4100 stand 4095 = 9*5*7*13 and 4290 = 2*3*5*11*13.
  try {
    batch_split(training(720'720, 0, 4'100), 1);
    FAIL("4100 does not divide 720720");
  } catch (const InputError& error) {
    const std::string message = error.what();
    CHECK(message.find("valid: ..., ") != std::string::npos);
    CHECK(message.find(" 4095, 4290, ") != std::string::npos);
    CHECK(message.find(", ...; or set") != std::string::npos);
    CHECK(message.size() < 400);
  }
}

TEST_CASE("Ragged: the last micro-batch holds the rest") {
  check_split(batch_split(training(30, 4, 0, true), 1), 30, 4, 8, 2);
  check_split(batch_split(training(30, 0, 8, true), 1), 30, 4, 8, 2);
  check_split(batch_split(training(30, 4, 8, true), 1), 30, 4, 8, 2);
  check_split(batch_split(training(32, 4, 0, true), 1), 32, 4, 8, 4);
  check_split(batch_split(training(3, 8, 0, true), 1), 3, 3, 1, 3);  // one micro-batch that is not full
}

TEST_CASE("Ragged: a number of micro-batches that leaves some empty is refused") {
  // 10 samples in 7: size 2 fills five of them.
  CHECK_THROWS_WITH_AS(batch_split(training(10, 0, 7, true), 1),
                       "s.yaml:3:3: training.micro_batches: 7 leave some empty: the global batch of 10 fill 5 of size "
                       "2; use 5",
                       InputError);
}

TEST_CASE("Every ragged split holds exactly the batch, in micro-batches that are not empty") {
  for (std::int64_t samples = 1; samples <= 60; ++samples)
    for (std::int64_t size = 1; size <= 61; ++size) {
      const BatchSplit split = batch_split(training(samples, size, 0, true), 1);
      REQUIRE((split.micro_batches - 1) * split.micro_batch_size + split.last_micro_batch_size == samples);
      REQUIRE((split.last_micro_batch_size >= 1 && split.last_micro_batch_size <= split.micro_batch_size));
    }
}

TEST_CASE("Batch figures that contradict one another are refused") {
  CHECK_THROWS_WITH_AS(
      batch_split(training(32, 4, 4), 1),
      "s.yaml:3:3: training: global_batch_size 32 is not micro_batch_size 4 x micro_batches 4; leave out "
      "one of the three, on the command line with --set training.micro_batches=null",
      InputError);
  CHECK_THROWS_WITH_AS(batch_split(training(32, 4, 8), 2),
                       "s.yaml:3:3: training: global_batch_size 32 is not micro_batch_size 4 x micro_batches 8 x "
                       "data_parallel 2; leave out one of the three, on the command line with --set "
                       "training.micro_batches=null",
                       InputError);
  Training asked = training(32, 4, 4);
  asked.micro_batches->place = {"--set training.micro_batches=4", 0, 0};  // what was asked for is not what has to go
  CHECK_THROWS_WITH_AS(batch_split(asked, 1),
                       "--set training.micro_batches=4: training: global_batch_size 32 is not micro_batch_size 4 x "
                       "micro_batches 4; leave out one of the three, on the command line with --set "
                       "training.global_batch_size=null",
                       InputError);
}

TEST_CASE("One batch figure is not enough") {
  for (const auto& one : {training(32, 0, 0), training(0, 4, 0), training(0, 0, 8), training(0, 0, 0)})
    CHECK_THROWS_WITH_AS(
        batch_split(one, 1),
        "s.yaml:9:1: training: give two of global_batch_size, micro_batch_size and micro_batches; the third follows",
        InputError);
}

TEST_CASE("Zero, negative and enormous batch figures are refused, never wrapped") {
  Training none = training(32, 0, 0);
  none.micro_batches = at(0, 3);
  CHECK_THROWS_WITH_AS(batch_split(none, 1), "s.yaml:3:3: training.micro_batches: 0; must be at least 1", InputError);
  CHECK_THROWS_AS(batch_split(training(-4, 4, 0), 1), InputError);
  CHECK_THROWS_WITH_AS(batch_split(training(0, 1, 20'000'000), 1),
                       "s.yaml:3:3: training.micro_batches: 20000000; at most 16777216 are supported", InputError);
  CHECK_THROWS_AS(batch_split(training(0, kLargest, 8), 1), InputError);
  CHECK_THROWS_AS(batch_split(training(0, kLargest / 8, 8), 2), InputError);
  CHECK_THROWS_AS(batch_split(training(kLargest, 1, 0), 1), InputError);
}

TEST_CASE("Positions count the replicas of the stages before") {
  const Plan plan = sound();
  CHECK(plan.positions() == 4);
  CHECK(plan.workers() == 4);
  CHECK(plan.seating().first_position(0) == 0);
  CHECK(plan.seating().first_position(1) == 3);
  CHECK(plan.seating().stage_at(0) == 0);
  CHECK(plan.seating().stage_at(2) == 0);
  CHECK(plan.seating().stage_at(3) == 1);
}

TEST_CASE("A sound plan passes the independent check") {
  CHECK_NOTHROW(validate(sound(), four_layers(), five_devices()));
}

TEST_CASE("The independent check names what is wrong with a plan") {
  const auto refusal = [](auto&& spoil) {
    Plan plan = sound();
    spoil(plan);
    try {
      validate(plan, four_layers(), five_devices());
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK(refusal([](Plan& p) { p.layers[1].begin = 2; }) ==
        "plan: virtual stage 1 begins at layer 2, but layer 3 is next");
  CHECK(refusal([](Plan& p) {
          p.layers = {{0, 4}, {4, 4}};
        }) == "plan: virtual stage 1 has no layers; use fewer stages or other cuts");
  CHECK(refusal([](Plan& p) { p.layers = {{0, 1}, {1, 3}}; }) == "plan: the stages hold 3 of 4 layers");
  CHECK(refusal([](Plan& p) { p.layers.pop_back(); }) == "plan: 1 layer ranges for 2 virtual stages");
  CHECK(refusal([](Plan& p) { p.device[2] = 5; }) ==
        "plan: worker 2 is placed on device 5, but the cluster has devices 0 to 4");
  CHECK(refusal([](Plan& p) { p.device[2] = 1; }) == "plan: workers 1 and 2 are both placed on device 1");
  CHECK(refusal([](Plan& p) { p.device.pop_back(); }) == "plan: 3 devices for 4 workers");
  CHECK(refusal([](Plan& p) { p.replicas = {3}; }) == "plan: replicas for 1 of 2 stages");
  CHECK(refusal([](Plan& p) { p.global_batch_size = 13; }) ==
        "plan: the micro-batches of all copies hold 12 samples, but the global batch has 13");
  CHECK(refusal([](Plan& p) { p.data_parallel = 0; }) == "plan: data_parallel is 0; must be at least 1");
}
