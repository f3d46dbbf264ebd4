// One attempt at one scenario of a study: predicted, run, and what its tables say of it.
#pragma once

#include <string>
#include <vector>

#include "cli/attempt.hpp"

namespace pipewright {

constexpr int kAttempts = 3;  // a run, and two repetitions where it was withheld

struct Row {
  std::string scenario, group;  // group: the scenarios that train the same with the same devices
  std::string file;             // the scenario's name as that of a folder
  int attempt = 1;
  std::string schedule;
  int stages = 0;
  std::int64_t micro_batches = 0;
  Time shortest_op;                 // predicted
  Time predicted, median, p5, p95;  // predicted: as the machine was meanwhile
  std::vector<Time> timed;
  double error = 0, half_band = 0, bubble_predicted = 0, bubble_measured = 0;
  bool in_band = false, memory_exact = false;
  bool never = false;  // no repetition could be judged either
  Verdict verdict = Verdict::Withheld;
  std::string text;    // of the verdict
  std::string failed;  // why there is none

  bool judged() const { return failed.empty() && verdict != Verdict::Withheld; }
  // Whether another attempt may find the machine quieter.
  bool calls_for_another() const { return failed.empty() && verdict == Verdict::Withheld && !never; }
  double bubble_off() const { return bubble_predicted - bubble_measured; }
  double spread() const { return p5.value > 0 ? static_cast<double>(p95.value) / static_cast<double>(p5.value) : 1; }
};

// How a scenario is confronted with its run.
struct AttemptSettings {
  std::string folder;  // made; prediction and measurement go there
  double tolerance = 0.1;
  bool forced = false;
  double seconds = 3;  // of the looks at the machine between the steps
};

// Predicts, writes the prediction down, runs, compares. A run that fails is a row as well. Over processes all ranks
// have the same outcome; others than rank 0 know nothing else of the row.
Row attempted(const Scenario& priced, int number, const AttemptSettings& how, Ranks* ranks = nullptr);

}  // namespace pipewright
