// One confrontation of a prediction with a run: predicted, written down, run, compared.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/comparison.hpp"
#include "cli/real_run.hpp"

namespace pipewright {

class Attempt {
 public:
  // Predicts with the profile and writes prediction.json into the folder before the run begins; then runs, and writes
  // measurement.json, comparison.json, loss.csv, overlay.svg and measured.trace.json. Throws InputError where the
  // scenario cannot be run, RunFailed, OutOfArena. Over processes, rank 0 alone writes and compares.
  Attempt(const Scenario& asked, const MachineProfile& profile, double tolerance, bool forced,
          const std::string& folder, Ranks* ranks = nullptr);
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  const Scenario& scenario() const { return scenario_; }
  const RealRun& real() const { return real_; }
  const Comparison& comparison() const { return *comparison_; }

 private:
  const Scenario scenario_;
  const RealRun real_;
  std::vector<WorkerResult> workers_;
  Answer measured_;
  std::optional<Comparison> comparison_;
};

// The folder, made. Throws InputError where it cannot be.
std::string made_folder(const std::string& path);
// A scenario's name as that of a file: letters, digits, "-", "_", ".".
std::string file_name_of(const Scenario& scenario);

}  // namespace pipewright
