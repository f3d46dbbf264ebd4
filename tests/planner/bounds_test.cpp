
#include "tests/planner/bounds.hpp"

#include <random>

#include <doctest/doctest.h>

#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"

using namespace pipewright::tests;

namespace {

PipelineTimes random_times(std::mt19937& random, std::size_t stages, std::int64_t hop) {
  PipelineTimes times;
  for (std::size_t k = 0; k < stages; ++k) {
    times.forward.push_back({1 + static_cast<std::int64_t>(random() % 50)});
    times.backward.push_back({1 + static_cast<std::int64_t>(random() % 90)});
  }
  times.hop.assign(stages - 1, Time{hop});
  return times;
}

Time simulated(const char* schedule, const PipelineTimes& times, int micro_batches) {
  const ScheduleShape shape{.stages = static_cast<int>(times.forward.size()), .micro_batches = micro_batches};
  return static_order_makespan(
      find_schedule(schedule)->generate(shape),
      plain_costs(shape, times.forward, times.backward, times.hop.empty() ? Time{} : times.hop.front()));
}

}  // namespace

TEST_CASE("the worked numbers of the formulas") {
  CHECK(gpipe_step({{Time{2}, Time{1}}, {Time{2}, Time{5}}, {Time{1}}}, 3) == Time{26});
  CHECK(work_bound({{Time{1}, Time{1}}, {Time{1}, Time{1}}, {Time{0}}}, 4) == Time{10});
  CHECK(window_bound({{Time{1}, Time{1}}, {Time{1}, Time{1}}, {Time{3}}}, 4) == Time{20});
  CHECK(window_bound({{Time{1}, Time{1}}, {Time{1}, Time{1}}, {Time{3}}}, 3) == Time{20});  // two trips of 10 as well
}

TEST_CASE("GPipe's step is its formula on random stages, to the nanosecond") {
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    const PipelineTimes times = random_times(random, 1 + random() % 9, static_cast<std::int64_t>(random() % 40));
    const int micro_batches = 1 + static_cast<int>(random() % 20);
    CHECK(simulated("gpipe", times, micro_batches) == gpipe_step(times, micro_batches));
  }
}

TEST_CASE("no simulated step is below the bounds") {
  std::mt19937 random(12);
  for (int i = 0; i < 500; ++i) {
    const PipelineTimes times = random_times(random, 1 + random() % 9, static_cast<std::int64_t>(random() % 60));
    const int micro_batches = 1 + static_cast<int>(random() % 24);
    const Time one_f_one_b = simulated("1f1b", times, micro_batches);
    CHECK(work_bound(times, micro_batches) <= one_f_one_b);
    CHECK(work_bound(times, micro_batches) <= simulated("gpipe", times, micro_batches));
    CHECK(work_bound(times, micro_batches) <= simulated("eager_1f1b", times, micro_batches));
    CHECK(window_bound(times, micro_batches) <= one_f_one_b);
  }
}

TEST_CASE("equal stages without messages: both bounds of 1F1B are its step") {
  for (std::size_t K = 1; K <= 8; ++K)
    for (int M = static_cast<int>(K); M <= 24; M += static_cast<int>(K)) {
      const PipelineTimes times{std::vector<Time>(K, Time{2}), std::vector<Time>(K, Time{4}),
                                std::vector<Time>(K - 1, Time{})};
      CHECK(work_bound(times, M) == simulated("1f1b", times, M));
      CHECK(window_bound(times, M) == simulated("1f1b", times, M));
    }
}
