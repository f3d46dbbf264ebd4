// Looks at a machine that others use, too, between the steps of a run: the very ops of the plan, in rounds that wait
// for no message, as a calibration measures them. Run and rounds take turns (look, steps, look, steps, ..., look), so
// both have met the same machine, however it changes meanwhile.
//
// A short piece of arithmetic would not do: it sees the clock, and misses that the system gives a core to another
// program for milliseconds at a time. On two cores with four programs that want them, 20 us of multiplications took as
// long as on idle ones, and an op of 7 ms three times as long (2026-11-24).
#pragma once

#include <vector>

#include "runtime/executor.hpp"
#include "runtime/ranks.hpp"

namespace pipewright::calibrate {

// What one worker saw of the machine.
struct WorkerLook {
  std::vector<std::vector<Time>> rounds;  // lengths of ops: [round][op of its list]
  CoreUse core;
};
using MachineLook = std::vector<WorkerLook>;  // by worker

constexpr int kMachineLooks = 6;

class MachineLooks {
 public:
  // Each look takes about `seconds`, and at least kLeastRounds rounds of every worker. What is referred to must outlive
  // it, as must the run that has its `pauses`.
  MachineLooks(const RunPlan& run, BackendMaker backend, const Data& data, const RunSettings& settings, double seconds,
               const Ranks* ranks = nullptr);

  const Pauses* pauses() const { return &pauses_; }
  // Over processes: of all of them at rank 0, elsewhere this one's. Called once, after the run.
  std::vector<MachineLook> taken(Ranks* ranks);

 private:
  static constexpr int kLeastRounds = 5;
  void look();

  LayerRounds rounds_;
  double seconds_;
  std::vector<WorkerId> busy_;  // of this process; empty: all
  Pauses pauses_;
  std::vector<MachineLook> looks_;
};

// Steps before which there is a look: before the first timed one, behind the last one, four in between.
// 3 of warm-up, 20 timed: 3, 7, 11, 15, 19, 23.                             tests/calibrate/looks_test.cpp "looked at"
std::vector<int> looked_at(const RunSettings& settings);

}  // namespace pipewright::calibrate
