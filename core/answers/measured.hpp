// Measured runs against predictions: the `measured:` block of a scenario, the runs that its files hold, and what comes
// of them.
//
// A file has a line per run. Its columns set keys of the scenario and hold the figures that were measured. Rows that the
// scenario language cannot express, that did not run or that the source doubts are counted with the reason. Constants of
// the hardware may be fitted on lines chosen by a rule, every n-th line of each file; these lines are marked, left out of
// every average, and all others are predictions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/answers/expectation.hpp"
#include "core/check.hpp"

namespace pipewright::core {

struct RunFile {
  std::string name;  // of the group that its runs form: "one node"
  std::string file;  // in the folder of the data: "runs/b200-node.csv", or its last part
  bool fit = true;   // constants are fitted on lines of it; else all of them are predictions
};

// What the cell of a column must say: a text, a number within limits, anything, or nothing.
struct CellTest {
  struct Choice {
    std::string is;                     // "8B", "1" (holds for 1.0, too); "": empty
    bool other = false;                 // any text but `is`
    std::optional<double> least, most;  // a number within limits
    bool strict = false;                // that exclude the limit itself
    bool holds(std::string_view cell) const;
  };
  std::string head;
  std::vector<Choice> choices;  // one of them
};
using RowTest = std::vector<CellTest>;  // all of them
using RowTests = std::vector<RowTest>;  // one of them

// What a key of the scenario is in each row: the cell of one column, or the product of several.
struct RunColumn {
  std::string key;                 // "plan.tensor_parallel"
  std::vector<std::string> heads;  // as the header has them
  // What the texts of the column are in the scenario; empty: the same. A text that is not here cannot be expressed.
  std::map<std::string, std::string> values;
  std::string unit;  // follows the cell: "GB/s"
};

// What a row sets when it passes a test.
struct RowSetting {
  RowTest when;
  std::vector<std::pair<std::string, std::string>> set;  // key and value
};

// A test and what it means: why a row is left out, which key is missing, the name of a subset.
struct RowNote {
  RowTests when;
  std::string text;
};

// A figure that was measured.
struct RunFigure {
  std::string name;  // "time"
  FigureSought sought;
  std::string head;      // of its column
  double unit_size = 1;  // in SI base units
  // Of a cell with several: of "46.77*2 36.59*2" the second is 36.59, on each of two devices; 0: the cell is the figure.
  std::int64_t word = 0;
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
  std::vector<RowSetting> settings;
  std::vector<RunFigure> figures;
  std::vector<RowNote> left_out, missing, subsets;
  std::vector<std::string> by;  // heads of columns whose texts have errors of their own: "model", "device"
  // Heads whose texts name a series of runs on more and more devices, and of the batch: rows of a series have the same
  // batch on each device.
  std::vector<std::string> weak_scaling;
  std::string weak_batch;
  RowTest weak_when;                    // rows that belong to a series; empty: all
  RowTest failed;                       // empty: none did
  std::string devices;                  // head of the column with the number of devices; "": there is none
  std::int64_t fit_every = 0;           // lines 14, 28, ... of every file, the header being line 1; 0: none
  std::vector<std::int64_t> fit_lines;  // in addition, by their number in the file, as errors name them
  double noise = 0.05;  // of a run: relative standard deviation, against which the fit weighs what is expected
  double faulty = 0;    // share of the runs that a fit takes to have gone wrong
  std::vector<FittedConstant> constants;
  Place place;
};

enum class RunState {
  Compared,
  LeftOut,   // the source, or we, doubt it
  Missing,   // the scenario language lacks a key for it
  Failed,    // the run did not come to an end
  Unpriced,  // the row makes no scenario that can be priced
};

struct MeasuredRun {
  std::string group;                           // name of its file's group
  Place place;                                 // file and line
  std::vector<std::string> values;             // by column, as the scenario has them; "": left as it is
  std::vector<std::string> set;                // "key=value", columns and settings
  std::int64_t devices = 0;                    // 0: the file does not say
  std::vector<std::optional<double>> figures;  // by figure, SI base units
  std::vector<bool> in_subset;                 // by subset
  std::vector<std::string> by;                 // cells of the columns of MeasuredTable::by
  std::vector<std::string> series;             // likewise of weak_scaling, then the batch of a device; none: no series
  RunState state = RunState::Compared;
  std::string why;      // left out, missing
  bool fitted = false;  // a constant was fitted on it: no prediction
};

// The 90 % interval of a figure.
struct FigureRange {
  double low = 0, high = 0;
};

struct PredictedRun {
  MeasuredRun run;
  // By figure, SI base units: nothing of a stage that the plan does not have; none where the run was not priced.
  std::vector<std::optional<double>> figures;
  std::vector<std::optional<FigureRange>> ranges = {};  // likewise; none: not asked for
  bool fits = true;                                     // its devices' memory
  bool from_operators = true;                           // so what the model leaves out is part of its ranges
  // Relative error of a figure that was measured and predicted.
  std::optional<double> error(std::size_t figure) const { return run.fitted ? std::nullopt : off(figure); }
  // Likewise, of runs that a constant was fitted on, too.
  std::optional<double> off(std::size_t figure) const {
    if (figures.empty() || !figures[figure] || !run.figures[figure]) return std::nullopt;
    return *figures[figure] / *run.figures[figure] - 1;
  }
  std::optional<FigureRange> range(std::size_t figure) const {
    return figure < ranges.size() ? ranges[figure] : std::nullopt;
  }
};

// Relative errors of the runs that are predictions.
struct ErrorSummary {
  std::string figure;
  std::string split, of;  // "tp", "4"
  int runs = 0;
  double mean = 0, median = 0, largest = 0;  // of the magnitudes
  double bias = 0;                           // mean with signs
  int ranged = 0;                            // runs with a 90 % interval
  double inside = 0;                         // share of them whose measured figure lies in it
  double half_width = 0;                     // median of the intervals: half of high - low, over the predicted figure
};

// Runs of one model, batch and number of devices: what the layout that we rank first costs in the measurement.
struct RankedGroup {
  Place place;    // of the run that is predicted fastest
  Place fastest;  // of the run that was measured fastest
  int runs = 0;
  double excess = 0;  // measured time of the first over that of the second, less 1
};

// Weak scaling: the speed of a device on the most devices over that on the least, of runs with the same work on each.
struct ScalingSeries {
  std::string of;  // "Nemotron4 340b FP8"
  std::int64_t least = 0, most = 0;
  double measured = 0, predicted = 0;
};

// Rows of a subset that fit, or were run, of tables where some failed.
struct SubsetCounts {
  std::string of;
  int compared = 0, compared_fit = 0, failed = 0, failed_fit = 0;
};

// What became of the rows of the files.
struct RowCounts {
  int rows = 0, compared = 0, fitted = 0, failed = 0;
  int failed_fit = 0;    // failed runs that are predicted to fit their devices
  int compared_fit = 0;  // compared runs that are
  std::vector<std::pair<std::string, int>> left_out, missing, unpriced;  // by reason, the most frequent first
  std::vector<SubsetCounts> subsets;                                     // with failed runs
};

struct MeasuredResult {
  std::string name;  // of the set, as the command has it
  std::string title, source, note;
  std::vector<RunColumn> columns;
  std::vector<RunFigure> figures;
  std::vector<PredictedRun> runs;
  RowCounts counts;
  // Of each figure: all, by subset, by group, by the columns of `by`, then by the columns of the layout.
  std::vector<ErrorSummary> summaries;
  std::vector<RankedGroup> ranking;
  std::vector<ScalingSeries> scaling;
  std::vector<std::pair<FittedConstant, std::string>> constants;  // with the value that was used
};

}  // namespace pipewright::core
