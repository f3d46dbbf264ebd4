// The stopping rule, on times that are made up.
#include "calibrate/sampling.hpp"

#include <functional>
#include <vector>

#include <doctest/doctest.h>

using namespace pipewright::tests;

namespace {

// Reading i is what `script` says of i.
class Scripted : public Stopwatch {
 public:
  explicit Scripted(std::function<Reading(int)> script) : script_(std::move(script)) {}
  Reading time() override { return script_(read++); }
  void pause(double seconds) override { pauses.push_back(seconds); }

  int read = 0;
  std::vector<double> pauses;

 private:
  std::function<Reading(int)> script_;
};

}  // namespace

TEST_CASE("A time that never changes is known after the least number of readings") {
  Scripted constant([](int) { return Reading{1000}; });
  const Sampling s = sample(constant);
  CHECK(s.enough);
  CHECK(s.times.count == 10);
  CHECK(s.times.mean == 1000);
  CHECK(s.error == 0);
  CHECK(constant.pauses.empty());
  CHECK(text(s) == "1 us ± 0 % of 10 readings");
}

TEST_CASE("There are as many readings as it takes for the error that was asked for") {
  // s -> sqrt(8/3) = 1.633 ns, so n = (1.633 / 0.5)^2 = 10.7 -> 11 of a long series.
  const auto script = [](int i) { return Reading{std::vector<double>{100, 102, 98, 100, 102, 98}[i % 6]}; };
  Scripted wavering(script);
  SamplingRule rule;
  rule.least = 2;
  const Sampling s = sample(wavering, rule);
  CHECK(s.enough);
  CHECK(s.error <= 0.005);
  CHECK(s.times.count >= 10);
  CHECK(s.times.count <= 12);
  // Half the error takes four times the readings.
  Scripted again(script);
  rule.error = 0.0025;
  const Sampling finer = sample(again, rule);
  CHECK(finer.times.count >= 40);
  CHECK(finer.times.count <= 46);
}

TEST_CASE("A time with two modes ends when the time is used up, and says how well it is known") {
  Scripted bimodal([](int i) { return Reading{i % 2 == 0 ? 1e6 : 3e6}; });  // 2 ms on average: 15 ms are over after 8
  const Sampling s = sample(bimodal);
  CHECK_FALSE(s.enough);
  CHECK(s.times.count == 10);  // the least
  CHECK(s.error == doctest::Approx(1e6 * std::sqrt(10.0 / 9) / std::sqrt(10.0) / 2e6));
  CHECK(s.times.spread() > 0.9);
}

TEST_CASE("What readings took uses the time up, not the mean of their passes") {
  Scripted many([](int i) { return Reading{i % 2 == 0 ? 1500.0 : 4500.0, 1, 1e6}; });  // 1 ms each: 15 of them
  CHECK(sample(many).times.count == 15);
}

TEST_CASE("A drifting time uses its time up") {
  Scripted drifting([](int i) { return Reading{1e5 * (1 + 0.05 * i)}; });
  const Sampling s = sample(drifting);
  CHECK_FALSE(s.enough);
  double sum = 0;
  for (int i = 0; i + 1 < drifting.read; ++i)
    sum += 1e5 * (1 + 0.05 * i);
  CHECK(sum < 0.015e9);  // before the last reading there was time left
}

TEST_CASE("Readings at a low clock are discarded, with pauses that grow while they go on") {
  Scripted hot([](int i) { return i < 7 ? Reading{2000, 0.6} : Reading{1000, 0.98}; });
  const Sampling s = sample(hot);
  CHECK(s.discarded == 7);
  CHECK(s.times.mean == 1000);
  CHECK(s.clock == doctest::Approx(0.98));
  CHECK(hot.pauses == std::vector<double>{0.05, 0.05 * 1.5});
  CHECK_FALSE(s.slowed);
  CHECK(text(s) == "1 us ± 0 % of 10 readings, 7 discarded at a low clock");
}

TEST_CASE("Single readings at a low clock bring no pause") {
  Scripted flickering([](int i) { return Reading{1000, i % 2 == 0 ? 0.5 : 1.0}; });
  const Sampling s = sample(flickering);
  CHECK(s.discarded == 10);
  CHECK(s.times.count == 10);
  CHECK(flickering.pauses.empty());
}

TEST_CASE("A device that stays slow ends the sampling, and nothing is made up") {
  Scripted slow([](int) { return Reading{1000, 0.5}; });
  const Sampling s = sample(slow);
  CHECK(s.slowed);
  CHECK_FALSE(s.enough);
  CHECK(s.times.count == 0);
  CHECK(slow.read == 30);
  CHECK(slow.pauses.size() == 9);  // not after the last
  CHECK(text(s) == "no reading: the clock stayed low 30 times in a row");
}

TEST_CASE("A device that tells 0 ns for everything ends the sampling by the number of readings") {
  Scripted nothing([](int) { return Reading{0}; });
  SamplingRule rule;
  rule.most = 100;
  const Sampling s = sample(nothing, rule);
  CHECK(s.times.count == 100);
  CHECK_FALSE(s.enough);
  CHECK(s.error == 1);
  CHECK(nothing.read == 100);
}
