// An Answer made by hand, for tests of the writers: every figure is stated here or follows from the timeline.
#pragma once

#include <memory>

#include "core/plan/report.hpp"

namespace pipewright {

struct SmallShape {
  int stages = 4;
  int micro_batches = 8;
  Time forward{1'000'000}, backward{2'000'000};  // per stage and micro-batch
  Time hop{0};                                   // latency of a message
  Time wire{0};                                  // time a message occupies its channel
};

// The scenario lives beside the answer that points to it.
struct SmallAnswer {
  Scenario scenario;
  Answer answer;
};

// 1F1B with a flush: one layer per stage, timed by walking the ops until none is left.
std::unique_ptr<SmallAnswer> small_answer(const SmallShape& shape = {});

}  // namespace pipewright
