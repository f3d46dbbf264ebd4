// A timeline that both engines and the oracle agree on, and that the check has nothing against; each difference is a failed check.
#pragma once

#include <doctest/doctest.h>

#include "sim/event_order.hpp"
#include "sim/simulate.hpp"
#include "sim/static_order.hpp"
#include "tests/support/oracle_engine.hpp"

namespace pipewright::tests {

inline Timeline agreed_timeline(const Schedule& schedule, const StepCosts& costs) {
  const Timeline timeline = event_order(schedule, costs, LinkUse::Private);
  CHECK(timeline.workers == static_order(schedule, costs).workers);
  CHECK(timeline.workers == oracle_timeline(schedule, costs).workers);
  CHECK(validate(timeline, schedule, costs) == "");
  return timeline;
}

}  // namespace pipewright::tests
