// Verdicts over machines that are made up: what was measured here, and when, does not matter.
#include "study/judgement.hpp"

#include <vector>

#include <doctest/doctest.h>

using namespace pipewright::tests;

namespace {

constexpr Time ms(std::int64_t count) {
  return {count * 1'000'000};
}

std::vector<SeenStep> looks(const std::vector<std::int64_t>& steps, double waits = 0) {
  std::vector<SeenStep> list;
  for (const std::int64_t step : steps)
    list.push_back({ms(step), 100.0 / static_cast<double>(step), waits});
  return list;
}

std::vector<std::vector<Time>> parts(const std::vector<std::int64_t>& medians) {
  std::vector<std::vector<Time>> list;
  for (const std::int64_t median : medians)
    list.push_back({ms(median - 50), ms(median), ms(3 * median)});
  return list;
}

// Two stages, two forwards each, and a message from the first to the second; all ops of `price`.
Answer two_stages(Time price) {
  Answer answer;
  Schedule& schedule = answer.schedule;
  schedule.shape = {.stages = 2, .micro_batches = 2};
  schedule.positions.resize(2);
  for (std::uint16_t stage = 0; stage < 2; ++stage)
    for (std::uint32_t m = 0; m < 2; ++m)
      schedule.positions[stage].compute.push_back({Kind::F, stage, m, 0});
  StepCosts& costs = answer.costs;
  costs.shape = schedule.shape;
  costs.duration.assign(2 * kKinds, price);
  costs.duration_last = costs.duration;
  costs.edges = {{0, 1}};
  costs.messages = {{.channel = 0}, {.channel = 1}};
  costs.messages_last = costs.messages;
  costs.first_message = {0, 1};
  costs.channels = 2;
  costs.ready_before_end.assign(2, std::vector<Time>(1));
  return answer;
}

WorkerLook saw(const std::vector<std::vector<Time>>& rounds, const CoreUse& core = {}) {
  return {rounds, core};
}

}  // namespace

TEST_CASE("judgement: by hand") {
  const Judgement j = judged(looks({95, 105, 115, 125}, 0.02), parts({104, 108, 118}), 0.01);
  CHECK(j.predicted == ms(110));
  CHECK(j.measured == ms(110));
  CHECK(j.unrest == doctest::Approx(0.01818).epsilon(0.001));
  CHECK(j.half == doctest::Approx(0.0676).epsilon(0.001));
  CHECK(j.holds());
  CHECK(j.error() == doctest::Approx(0));
}

TEST_CASE("judgement: a machine at half its speed, or slower and slower, is judged as a quiet one") {
  const Judgement quiet = judged(looks({100, 100, 100, 100}), parts({102, 102, 102}), 0);
  const Judgement slow = judged(looks({200, 200, 200, 200}), parts({204, 204, 204}), 0);
  const Judgement falling = judged(looks({100, 200, 400, 800}), parts({152, 302, 602}), 0);
  CHECK(slow.half == doctest::Approx(quiet.half));
  CHECK(slow.error() == doctest::Approx(quiet.error()));
  CHECK(slow.speed == doctest::Approx(0.5));
  CHECK(falling.half == doctest::Approx(quiet.half));
  CHECK(falling.predicted == ms(350));
  CHECK(falling.holds());
  CHECK_FALSE(falling.too_wide());
}

TEST_CASE("judgement: what happens within a part widens the interval, until it says nothing") {
  const Judgement some = judged(looks({100, 100, 100, 100}), parts({95, 115, 120}), 0);
  CHECK(some.half > 0.1);
  CHECK(some.holds());
  CHECK_FALSE(some.too_wide());
  const Judgement much = judged(looks({100, 100, 100, 100}), parts({100, 100, 190}), 0);
  CHECK(much.too_wide());
  CHECK(much.high() > much.low() + much.low());
  std::vector<SeenStep> away = looks({100, 100});
  away[0].away = 0.6, away[1].away = 0.2;
  CHECK(judged(away, parts({110}), 0).half == doctest::Approx(1.645 * 0.07088).epsilon(0.001));
  CHECK(judged(looks({100, 100}), parts({110}), 0).half == doctest::Approx(1.645 * 0.02));  // one part has no spread
}

TEST_CASE("judgement: on a machine that does not move, a price that is wrong is outside") {
  const Judgement j = judged(looks({100, 101, 100, 101}), parts({115, 116, 114}), 0);
  CHECK_FALSE(j.holds());
  CHECK(j.half < 0.05);
  CHECK(judged(looks({100, 101, 100, 101}), parts({115, 116, 114}), 0.1).holds());  // of a size that was not measured
}

TEST_CASE("judgement: without looks by the probe, and by how much single steps differ") {
  StepTimes steps;
  steps.timed.assign(20, ms(100)), steps.median = ms(100), steps.p5 = ms(90), steps.p95 = Time{122'900'000};
  const Judgement even = judged(ms(100), 1, 0.02, steps);
  CHECK(even.unrest == doctest::Approx(0.1));
  CHECK(even.half == doctest::Approx(1.645 * 0.10198).epsilon(0.001));
  const Judgement slow = judged(ms(80), 0.8, 0.02, steps);
  CHECK(slow.predicted == ms(100));
  CHECK(slow.half == doctest::Approx(even.half + 0.2));
  CHECK(slow.too_wide());
  CHECK(slow.speeds.empty());
}

TEST_CASE("judgement: a step is made of rounds: each worker's own, priced messages kept, waits for a core added") {
  const Answer predicted = two_stages(ms(12));  // 10 ms of work, 2 ms of messages
  const StepCosts bare = two_stages(ms(10)).costs;
  const std::vector<Time> quiet = {ms(10), ms(10)}, held_up = {ms(10), ms(30)};
  const SeenStep same = seen_step(predicted, bare, {saw({quiet}), saw({quiet})});
  CHECK(same.step == ms(36));
  CHECK(same.speed == doctest::Approx(1));
  CHECK(same.waits == 0);
  // Stage 0's second op takes 32 ms: stage 1 waits for it.
  const SeenStep first = seen_step(predicted, bare, {saw({held_up}), saw({quiet})});
  CHECK(first.step == ms(12 + 32 + 12));
  CHECK(first.speed == doctest::Approx(40.0 / 60));
  // Away for 2 of 3 s, in pieces of 8 ms: 5.33 ms more, before stage 1's second op the second time.
  const CoreUse third{3'000'000'000, 1'000'000'000, 250};
  const SeenStep away = seen_step(predicted, bare, {saw({held_up}, third), saw({quiet}, third)});
  CHECK(away.step == first.step + Time{5'333'333});
  CHECK(away.away == doctest::Approx(2.0 / 3));
  CHECK(away.waits == doctest::Approx(5.333 / 61.333).epsilon(0.001));
}

TEST_CASE("judgement: what an op takes beside fewer counts where calibration and look were quiet") {
  Answer predicted = two_stages(ms(12));
  predicted.costs.settled.assign(2 * kKinds * 2, ms(6));  // alone: half of it
  const StepCosts bare = two_stages(ms(12)).costs;
  const std::vector<Time> as_priced = {ms(12), ms(12)}, faster = {ms(8), ms(8)};
  CHECK(seen_step(predicted, bare, {saw({as_priced}), saw({as_priced})}).step == ms(3 * 6));
  CHECK(seen_step(predicted, bare, {saw({faster}), saw({faster})}).step == ms(3 * 8));
  const CoreUse half{2'000'000'000, 1'000'000'000, 0};
  CHECK(seen_step(predicted, bare, {saw({as_priced}, half), saw({as_priced}, half)}).step == ms(3 * 12));
}
