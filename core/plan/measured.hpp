// Measured runs beside predictions: the `measured:` block of a scenario, the runs that its files hold, and what comes
// of them.
//
// A file has a line per run: columns that set keys of the scenario, and the time of an iteration. Constants of the
// hardware may be fitted on lines chosen by a rule, every n-th line of each file; these lines are marked, left out of
// every average, and all others are predictions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/check.hpp"

namespace pipewright {

struct RunFile {
  std::string name;  // of the group that its runs form: "one node"
  std::string file;  // in the folder of the data
};

// A whole number of each line and the key that it sets.
struct RunColumn {
  std::string key;   // "plan.tensor_parallel"
  std::string head;  // as the header has it
};

// A constant that is fitted: what is known of it beforehand, and what it is physically.
struct FittedConstant {
  std::string key;
  std::string unit;     // of expected; "": a plain number
  double expected = 0;  // before any run was seen
  double factor =
      0;            // > 1: the true value is as likely within expected / factor ... expected * factor as not (1 sigma)
  double most = 0;  // 0: no limit; a share: 1
  std::string meaning, source;
  Place place;
};

struct MeasuredTable {
  std::string title, source, note;
  std::vector<RunFile> files;
  std::vector<RunColumn> columns;
  std::string devices;  // heads of the columns with the number of devices and the time
  std::string time;
  double unit = 1e-3;          // of the time, in seconds
  std::int64_t fit_every = 0;  // lines 14, 28, ... of every file, the header being line 1; 0: none
  double noise = 0.05;         // of a run: relative standard deviation, against which the fit weighs what is expected
  std::vector<FittedConstant> constants;
  Place place;
};

struct MeasuredRun {
  std::string group;                 // name of its file's group
  Place place;                       // file and line
  std::vector<std::int64_t> values;  // by column
  std::int64_t devices = 0;
  double seconds = 0;
  bool fitted = false;  // a constant was fitted on it: no prediction
};

struct PredictedRun {
  MeasuredRun run;
  double seconds = 0;
  bool fits = true;                                           // its devices' memory
  double error() const { return seconds / run.seconds - 1; }  // relative
};

// Relative errors of the runs that are predictions.
struct ErrorSummary {
  std::string split, of;  // "plan.stages", "4"
  int runs = 0;
  double mean = 0, median = 0, largest = 0;  // of the magnitudes
  double bias = 0;                           // mean with signs
};

// Runs of one model, batch and number of devices: what the layout that we rank first costs in the measurement.
struct RankedGroup {
  Place place;    // of the run that is predicted fastest
  Place fastest;  // of the run that was measured fastest
  int runs = 0;
  double excess = 0;  // measured time of the first over that of the second, less 1
};

struct MeasuredResult {
  std::string title, source, note;
  std::vector<RunColumn> columns;
  std::vector<PredictedRun> runs;
  std::vector<ErrorSummary> summaries;  // all, by group, then by the columns of the layout
  std::vector<RankedGroup> ranking;
  std::vector<std::pair<FittedConstant, std::string>> constants;  // with the value that was used
};

}  // namespace pipewright
