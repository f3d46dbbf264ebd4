// One confrontation of a prediction with a run: predicted, written down, run, compared; and what tables say of it.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/writers/writers.hpp"
#include "study/comparison.hpp"
#include "study/real_run.hpp"

namespace pipewright::study {

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

// The prices for these scenarios: of `file`, which rank 0 reads, else calibrated now for about `seconds` each, in the
// folder, once the scenarios are known to run; `calibrates` is called before. Throws InputError, CalibrationEnded,
// RunFailed, OutOfArena.
MachineProfile profile_for(const std::string& file, std::span<const Scenario> scenarios, double seconds,
                           const std::string& name, std::optional<StudyFolder>& folder,
                           const std::function<void()>& calibrates, Ranks* ranks);

// A scenario's name as that of a file: letters, digits, "-", "_", ".".
std::string file_name_of(const Scenario& scenario);

// ---- an attempt as a row of a table

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

}  // namespace pipewright::study
