#include "sim/at_load.hpp"

#include <doctest/doctest.h>

#include "tests/support/op.hpp"

using namespace pipewright::tests;

namespace {

// Stages that nothing joins: forwards of so many micro-batches, no messages.
struct Stages {
  Schedule schedule;
  StepCosts costs;
  Stages(int stages, int micro_batches) {
    schedule.shape = {.stages = stages, .micro_batches = micro_batches};
    for (int k = 0; k < stages; ++k) {
      Lane lane;
      for (int m = 0; m < micro_batches; ++m)
        lane.compute.push_back(op(Kind::F, k, m));
      schedule.positions.push_back(lane);
    }
    costs.shape = schedule.shape;
    costs.duration.assign(static_cast<std::size_t>(stages) * kKinds, Time{});
    costs.duration_last = costs.duration;
    costs.ready_before_end.resize(static_cast<std::size_t>(stages));
    for (int k = 0; k < stages; ++k)
      costs.ready_before_end[static_cast<std::size_t>(k)].resize(1);
  }
  void forward(int stage, Time all, Time alone) {
    const std::size_t row = static_cast<std::size_t>(stage) * kKinds + static_cast<std::size_t>(Kind::F);
    if (costs.loads.empty()) costs.loads.push_back({1, costs.duration, costs.duration_last});
    costs.duration[row] = costs.duration_last[row] = all;
    costs.loads[0].duration[row] = costs.loads[0].duration_last[row] = alone;
  }
};

}  // namespace

TEST_CASE("An op takes what it takes alone while nobody else computes, and more while somebody does") {
  // Stage 0 computes for 5 ns, whoever else does; stage 1's op takes 10 ns beside it and 8 ns alone. Half of it is done
  // when stage 0 ends, the rest takes 4.
  Stages two(2, 1);
  two.forward(0, Time{5}, Time{5});
  two.forward(1, Time{10}, Time{8});
  const Timeline timeline = settle(two.schedule, two.costs, Engine::StaticOrder);
  CHECK(timeline.workers[1].compute[0].end == Time{9});
  CHECK(timeline.workers[0].compute[0].end == Time{5});
  CHECK(two.costs.time_of(two.schedule.positions[1].compute[0]) == Time{9});
}

TEST_CASE("A worker that is always alone pays the price of one, and one that never is that of all") {
  Stages two(2, 3);
  two.forward(0, Time{100}, Time{80});
  CHECK(settle(two.schedule, two.costs, Engine::StaticOrder).makespan == Time{240});  // stage 1 takes no time
  Stages both(2, 3);
  both.forward(0, Time{100}, Time{80});
  both.forward(1, Time{100}, Time{90});
  CHECK(settle(both.schedule, both.costs, Engine::StaticOrder).makespan == Time{300});
}

TEST_CASE("Between two measured loads the price lies on the line") {
  Stages four(4, 1);  // 1: 80 ns, 4: 110 ns; stages 0 and 1 compute
  four.forward(0, Time{110}, Time{80});
  four.forward(1, Time{110}, Time{80});
  CHECK(settle(four.schedule, four.costs, Engine::StaticOrder).makespan == Time{90});
}

TEST_CASE("Without loads nothing is settled, and the timeline is that of the prices") {
  Stages two(2, 2);
  two.forward(0, Time{7}, Time{7});
  two.costs.loads.clear();
  const Timeline timeline = settle(two.schedule, two.costs, Engine::Auto);
  CHECK(two.costs.settled.empty());
  CHECK(timeline.makespan == Time{14});
}

TEST_CASE("What is settled is what was simulated, and both engines agree on it") {
  Stages three(3, 5);
  three.forward(0, Time{1000}, Time{700});
  three.forward(1, Time{900}, Time{800});
  three.forward(2, Time{1400}, Time{500});
  const Timeline timeline = settle(three.schedule, three.costs, Engine::StaticOrder);
  CHECK(validate(timeline, three.schedule, three.costs) == "");
  CHECK(validate(three.costs) == "");
  CHECK(simulate(three.schedule, three.costs, Engine::EventQueue).makespan == timeline.makespan);
}
