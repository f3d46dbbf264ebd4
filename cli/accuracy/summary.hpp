// What the results of a study say together: errors and targets, ranking, speed-ups. Made from the results alone, so
// that it can be made anew anywhere.
//
//     |error| of a step = |predicted / measured - 1|; it counts to the targets where the shortest op was predicted to
//     take at least 0.5 ms, and is reported where it did not.  5.25, 10.5 and 21 ms for 5, 10 and 20: 5 % each
//     speed-up of K over 1 at M micro-batches = T(1, M) / T(K, M): the same samples in less time
//     a pair of plans of one model, batch and number of workers is ranked right where the one predicted faster was
//     measured faster; pairs whose medians lie nearer than half the p5-to-p95 range of either are not told apart
//                                                                      tests/cli/accuracy_summary_test.cpp
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/study_record.hpp"

namespace pipewright {

struct StudyItem;

// A row that the tables have, whether there is a result or not.
struct PlannedRow {
  int part = 0;
  std::string name;
  std::int64_t stages = 1, micro_batches = 1;
  std::string schedule, precision;
  std::string kernels = "own";   // whose products: own, library
  std::string price_group = {};  // the profile of part 2 that predicts it
};
std::vector<PlannedRow> planned(const std::vector<StudyItem>& items);

enum class TargetState { NotMeasured, NotApplicable, Met, Missed };

struct StudyTarget {
  int part = 0;
  std::string quantity, target;
  std::string result = "not measured";
  TargetState state = TargetState::NotMeasured;
  bool stretch = false;  // hoped for: the exit status does not depend on it
};

// Of the judged runs of part 3 with K workers.
struct StepErrors {
  std::int64_t stages = 1;
  int judged = 0, long_ops = 0;   // the latter count to the target
  double mean = 0, largest = 0;   // |error| where ops are long
  double largest_with_short = 0;  // of all
};

struct SpeedUp {
  std::int64_t stages = 1, micro_batches = 1;
  std::optional<double> predicted, measured;  // over one worker
};

struct PairsInOrder {
  int right = 0, told_apart = 0, pairs = 0;
};

struct StudySummary {
  bool dry_run = false;
  std::vector<PlannedRow> plan;
  std::vector<StudyRecord> records;
  std::vector<StepErrors> steps;  // K = 1, 2, 4, 8, as far as planned
  PairsInOrder ranking;
  std::vector<SpeedUp> speed_ups;  // by M, then K > 1
  std::vector<StudyTarget> targets;

  // The attempt that counts: the first that was judged; else the latest; nullptr: none.
  const StudyRecord* counted(int part, const std::string& name) const;
};

StudySummary summarized(std::vector<StudyRecord> records, std::vector<PlannedRow> plan, bool dry_run);

// 1: a target is missed that is no stretch; 2: something was withheld (no dry run), failed, never ended or was left
// out, in whichever part; else 0, also where something was not run or is not applicable.
int exit_status(const StudySummary& summary);

std::string summary_markdown(const StudySummary& summary);  // cells without a result: "not measured"
// Schema pipewright.study-summary/1. `written`: files of the same; a file that is one of them does not name itself.
std::string summary_json(const StudySummary& summary, const std::vector<std::string>& written = {});
std::string summary_svg(const StudySummary& summary);  // predicted over measured steps

}  // namespace pipewright
