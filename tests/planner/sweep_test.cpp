// The rows of a sweep against values worked out by hand.
#include "planner/what_if/sweep.hpp"

#include <algorithm>
#include <memory>

#include <doctest/doctest.h>

#include "io/read/read_sweep.hpp"
#include "io/writers/sweep.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/texts.hpp"

using namespace pipewright::tests;

namespace {

// Four equal layers, 1 ms forward and 2 ms backward, free communication: on K stages M micro-batches take
// (M + K - 1) (4 / K) 3 ms. 1000 parameters a layer.
const std::string kBase =
    ScenarioText{
        .model =
            "{layers: [{name: a, repeat: 4, forward: 1 ms, backward: 2 ms, activation: 1000 B, parameters: 1000}]}",
        .cluster = "{node: {devices: 4, device: {memory: 16 GiB}}}"}
        .text();

struct Asked {
  Scratch scratch;
  SweepFile file;
  explicit Asked(const std::string& sweep)
      : file((scratch.write("base.yaml", kBase), scratch.write("s.yaml", "sweep: {base: base.yaml, " + sweep + "}\n")),
             {}) {}

  Sweep run(
      int jobs = 1, std::function<bool()> stopped = [] { return false; }, bool stops_inside = false) const {
    return sweep(file.question(), {.jobs = jobs,
                                   .points = [this]() -> SweepPoints {
                                     const auto reader = std::make_shared<PointReader>(file.base());
                                     return {.scenario = [this, reader](std::int64_t point) -> const Scenario& {
                                               return reader->read(file.changes(point));
                                             },
                                             .magnitude = magnitude_under};
                                   },
                                   .stopped = std::move(stopped),
                                   .stops_inside = stops_inside});
  }
};

}  // namespace

TEST_CASE("Every point has the figures of its own scenario") {
  const Sweep result = Asked("grid: {plan.stages: [1, 2, 4], training.micro_batches: [4, 8]}").run();
  REQUIRE(result.rows.size() == 6);
  std::vector<std::int64_t> milliseconds;
  for (const SweepRow& row : result.rows)
    milliseconds.push_back(row.step_time.value / 1'000'000);
  // (M + K - 1) * (4 / K) * 3 ms
  CHECK(milliseconds == std::vector<std::int64_t>{48, 96, 30, 54, 21, 33});
  CHECK(result.rows[2].bubble == doctest::Approx(1.0 / 5));
  CHECK(result.rows[5].bubble == doctest::Approx(3.0 / 11));
  CHECK(result.rows[4].devices == 4);
  CHECK(result.rows[4].plan == "PP4 MBS1 x 4 1f1b");
  CHECK(result.rows[4].layers == "1 1 1 1");
  // 4 B weight + 4 B gradient of 4000 parameters, and 4 activations of one sample.
  CHECK(result.rows[0].peak_memory >= Bytes{32'000 + 4'000});
}

TEST_CASE("Ratios are of samples per second: to the baseline variant, or to the first row") {
  const Sweep variants = Asked(
                             "variants: {two: {plan.stages: 2}, four: {plan.stages: 4}}, baseline: two, "
                             "grid: {training.micro_batches: [4, 8]}")
                             .run();
  REQUIRE(variants.rows.size() == 4);
  CHECK(*variants.rows[0].speed_up == 1);
  CHECK(*variants.rows[2].speed_up == doctest::Approx(30.0 / 21));
  CHECK(*variants.rows[3].speed_up == doctest::Approx(54.0 / 33));
  CHECK_FALSE(variants.rows[0].plan_changes);
  CHECK(variants.rows[2].plan_changes);
  const Sweep grid = Asked("grid: {plan.stages: [8, 2, 4]}").run();  // 8 stages of 4 layers: no scenario
  CHECK_FALSE(grid.rows[0].speed_up);
  CHECK(*grid.rows[1].speed_up == 1);
  CHECK(*grid.rows[2].speed_up == doctest::Approx(30.0 / 21));
}

TEST_CASE("A point that is not a scenario, or does not fit, is a row with its reason") {
  const Sweep result =
      Asked("grid: {plan.stages: [4, 5], cluster.node.device.memory: [9 kB, 1 GB], training.global_batch_size: [4, 7]}")
          .run();
  REQUIRE(result.rows.size() == 8);
  const SweepRow& small = result.rows[0];
  CHECK(small.outcome == SweepRow::Outcome::DoesNotFit);
  CHECK(contains(small.reason, "stage"));
  CHECK(small.step_time == Time{21'000'000});
  CHECK(result.rows[2].outcome == SweepRow::Outcome::Fits);
  CHECK(result.rows[2].reason == "");
  CHECK(result.rows[3].outcome == SweepRow::Outcome::Invalid);  // 7 samples in 4 micro-batches of 1
  CHECK(contains(result.rows[3].reason, "training."));
  CHECK(contains(result.rows[6].reason, "5 stages for 4 layers"));
  CHECK_FALSE(figure(result.rows[6], SweepFigure::StepTime));
}

TEST_CASE("where keeps points by their keys and by their figures") {
  const auto kept = [](const std::string& where) {
    const Sweep result = Asked("grid: {plan.stages: [1, 2, 4], training.micro_batches: [4, 8]}, where: " + where).run();
    std::vector<std::int64_t> points;
    for (const SweepRow& row : result.rows)
      points.push_back(row.point);
    CHECK(result.left_out == 6 - static_cast<std::int64_t>(points.size()));
    return points;
  };
  using Points = std::vector<std::int64_t>;
  CHECK(kept("plan.stages * training.micro_batches <= 16") == Points{0, 1, 2, 3, 4});
  CHECK(kept("plan.stages > 1 and training.micro_batches == 8") == Points{3, 5});
  CHECK(kept("step_time < 33 ms") == Points{2, 4});
  CHECK(kept("[plan.stages > 1, step_time >= 33 ms]") == Points{3, 5});
  CHECK(kept("devices * step_time <= 84 ms") == Points{0, 2, 4});  // 48, 60, 84 ms of devices; 96, 108, 132 are more
  CHECK(kept("plan.stages > 9") == Points{});
}

TEST_CASE("Whoever answers the points may choose other plans, or find none") {
  const Asked asked("grid: {plan.stages: [1, 2, 4]}");
  const SweepPoints one = [&]() -> SweepPoints {
    const auto reader = std::make_shared<PointReader>(asked.file.base());
    return {.scenario = [&asked, reader](std::int64_t point) -> const Scenario& {
              return reader->read(asked.file.changes(point));
            },
            .magnitude = magnitude_under};
  }();
  const Sweep result =
      sweep(asked.file.question(), {.points = [&] { return one; },
                                    .priced = [](const Scenario& scenario) -> std::variant<Answer, Infeasible> {
                                      if (scenario.plan.stages.value == 1) return Infeasible{"nothing fits", {}, {}};
                                      Scenario other = scenario;
                                      other.plan.stages.value = 4;
                                      return priced_as_stated(other);
                                    }});
  REQUIRE(result.rows.size() == 3);
  CHECK(result.rows[0].outcome == SweepRow::Outcome::NoPlan);
  CHECK(result.rows[0].reason == "nothing fits");
  CHECK(result.rows[1].step_time == Time{21'000'000});  // of four stages
  CHECK(result.rows[1].plan == result.rows[2].plan);
}

TEST_CASE("Any number of threads gives the same rows") {
  const Asked asked(
      "variants: {a: {plan.schedule: gpipe}, b: {plan.schedule: eager_1f1b}}, "
      "grid: {plan.stages: [1, 2, 3, 4, 5], training.micro_batches: [1, 2, 3, 4, 5, 6, 7], "
      "training.micro_batch_size: [1, 2, 3]}");
  const Sweep one = asked.run(1);
  REQUIRE(one.rows.size() == 315);
  for (const int jobs : {2, 4, 7}) {
    const Sweep several = asked.run(jobs);
    CHECK(sweep_csv(several) == sweep_csv(one));
    CHECK(sweep_json(several) == sweep_json(one));
  }
}

TEST_CASE("A sweep that is stopped gives the rows that are there") {
  const Asked asked("grid: {plan.stages: [1, 2, 4], training.micro_batches: [4, 8]}");
  int looked = 0;
  const Sweep result = asked.run(1, [&] { return ++looked > 2; });
  REQUIRE(result.rows.size() == 2);
  CHECK(result.not_run == 4);
  CHECK(result.rows[1].step_time == Time{96'000'000});
  CHECK(contains(sweep_text(result, {}), "interrupted: 4 of 6 points were not run"));
  // Asked before and after each point: the third one's search was cut short.
  looked = -3;
  CHECK(asked
            .run(
                1, [&] { return ++looked > 2; }, true)
            .rows.size() == 2);
}

TEST_CASE(
    "shards share the points: each is of one, neighbours stay together, and no shard has much more than another") {
  CHECK(points_of({1, 3}, 100).size() == 36);  // 4 at a time, 25 turns: 9 + 8 + 8
  CHECK(points_of({2, 3}, 100).size() == 32);
  CHECK(points_of({2, 3}, 100).front() == 4);
  CHECK(points_of({3, 4}, 3) == std::vector<std::int64_t>{2});
  CHECK(points_of({4, 4}, 3).empty());
  CHECK(shard_of(1'000'000 - 1, 1'000'000, 1'000'000) == 1'000'000);
  for (const int of : {1, 2, 7, 32}) {
    std::vector<std::int64_t> all;
    for (int number = 1; number <= of; ++number)
      for (const std::int64_t point : points_of({number, of}, 1000))
        all.push_back(point);
    std::sort(all.begin(), all.end());
    CHECK(all == points_of({}, 1000));
  }
}
