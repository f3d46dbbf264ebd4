// Measures what a scenario's layers cost on this machine, with all its workers busy, and what handing messages over
// costs: a profile that prices this plan and any other cut of the same model.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/handoff.hpp"
#include "core/ending.hpp"
#include "core/model/graph.hpp"
#include "core/question/profile.hpp"
#include "runtime/executor.hpp"
#include "runtime/ranks.hpp"

namespace pipewright::calibrate {

// How layers are measured. In four passes over all runs (one, if the time is short), so that a machine whose speed
// changes does so for all: each worker walks its op list in rounds, all workers at once for half of the time, then
// fewer of them (1, 2, 4, ...). Of all rounds of a worker the middle half by length counts (`middle_half`), and a
// layer's time is its mean over these rounds: what it takes in a round of median length, which is what a run's step of
// median length is made of.
struct CalibrationSettings {
  double seconds = 3;               // of measured rounds, of each run
  std::string name;                 // of the profile
  std::string revision;             // of pipewright
  Staging staging = Staging::None;  // of messages and sums between threads
  // Over processes: what a message costs and what carries it; empty: the wire.
  std::function<Handoff(Ranks&, const BackendMaker&)> handoff = {};
  // Called before each piece: what is measured next, and how many pieces of all are done.
  std::function<void(const std::string& what, std::int64_t done, std::int64_t all)> progress = {};
};

// The process was asked to end (core/ending.hpp): the layers that were measured until then, and nothing of messages. It
// prices nothing.
class CalibrationEnded : public Interrupted {
 public:
  explicit CalibrationEnded(MachineProfile so_far)
      : Interrupted("the calibration was ended, so nothing is predicted"), profile(std::move(so_far)) {}
  MachineProfile profile;
};

// What is measured: the layers of a model at a plan's sizes of micro-batches, and the step of its optimizer.
struct CalibrationRun {
  const RunPlan& run;
  const Model& model;
  const Data& data;
  RunSettings settings;
  std::string name;  // for the progress line
};

// One profile of all runs, which are measured one after the other, in their order: layers that compute the same, at the
// same size, are one entry. At least one run. Over processes, each measures its own worker, messages go from rank 0 to
// rank 1, and all get the one profile. Throws RunFailed; CalibrationEnded.
MachineProfile calibrate(const std::vector<CalibrationRun>& runs, const BackendMaker& backend,
                         const CalibrationSettings& settings, Ranks* ranks = nullptr);

// Rank 0's profile for everybody.
MachineProfile broadcast(Ranks& ranks, const MachineProfile& profile);

// This machine, as profiles name it.
Fingerprint fingerprint(const Backend& backend, const std::string& revision);

}  // namespace pipewright::calibrate
