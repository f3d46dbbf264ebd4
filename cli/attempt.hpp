// One confrontation of a prediction with a run: predicted, written down, run, compared.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/comparison.hpp"
#include "cli/real_run.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {

using FileWriter = std::function<void(const std::string& path, const std::string& text)>;

class Attempt {
 public:
  // `priced`: the scenario with the prices of the prediction (`priced_with`; of a synthetic run, its own). Predicts and
  // writes prediction.json into the folder. Throws InputError where the scenario cannot be run.
  // `write`: writes the files, in one piece each.
  // `seconds`: of the looks at the machine between its steps, all together.
  Attempt(Scenario priced, double tolerance, bool forced, double seconds, const std::string& folder,
          Ranks* ranks = nullptr, FileWriter write = write_file);
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // Runs, compares, and writes measurement.json, comparison.json, loss.csv, overlay.svg and overlay.trace.json. Throws
  // RunFailed, OutOfArena. Over processes, rank 0 alone writes and compares.
  void run();

  const Scenario& scenario() const { return scenario_; }
  const RealRun& real() const { return real_; }
  const RunComparison& comparison() const { return *comparison_; }

 private:
  bool can_look() const;

  const Scenario scenario_;
  const RealRun real_;
  const double tolerance_;
  const bool forced_;
  const double seconds_;
  const std::string folder_;
  const FileWriter write_;
  std::vector<WorkerResult> workers_;
  Answer measured_;
  std::optional<RunComparison> comparison_;
};

// The folder, made. Throws InputError where it cannot be.
std::string made_folder(const std::string& path);
// The folder of a validation. A study that is there already is not written over where the user has `chosen` the folder,
// which is said at once: throws InputError. In the folder that nobody named it is replaced. Made (and what it replaces
// told) only by `make`, once nothing else is refused: a call that ends before leaves no folder. One that fails after it
// calls `unmake`: folders that were made and hold nothing go again.
class StudyFolder {
 public:
  StudyFolder(std::string path, bool chosen);
  void make();
  void unmake();

 private:
  std::string path_;
  bool replaces_ = false, there_ = false;
  std::vector<std::string> made_;  // the outermost first
};
// A scenario's name as that of a file: letters, digits, "-", "_", ".".
std::string file_name_of(const Scenario& scenario);

}  // namespace pipewright
