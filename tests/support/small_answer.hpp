// Answers for tests of the writers: prices stated by hand, no scenario file needed.
#pragma once

#include <memory>

#include "core/answers/report.hpp"

namespace pipewright::tests {

struct SmallShape {
  std::string schedule = "1f1b";
  int stages = 4;
  int micro_batches = 8;
  Time forward{1'000'000}, backward{2'000'000};  // per virtual stage and micro-batch; times the replicas of the stage
  Time hop{0};                                   // latency of a message
  Time wire{0};                                  // time a message occupies its channel
  Time update{0};
  Time all_reduce{0};  // per bucket
  int virtual_stages = 1;
  int data_parallel = 1;
  std::vector<int> replicas = {};
  bool recompute = false;
  int buckets = 1;
  Time table{0};   // of a table that the first and the last chunk share; 0: they share none
  Time gather{0};  // of a chunk's weights, which are given away after each pass; 0: they are not sharded
};

// The scenario of the answer, to be changed.
struct SmallAnswer {
  std::shared_ptr<Scenario> scenario = std::make_shared<Scenario>();
  Answer answer;
};

// One layer per virtual stage, one sample per micro-batch, timed by the static engine.
std::unique_ptr<SmallAnswer> small_answer(const SmallShape& shape = {});

}  // namespace pipewright::tests
