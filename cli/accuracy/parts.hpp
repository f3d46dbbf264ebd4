// The six parts of `pipewright accuracy`, one file each. Every part writes its results one by one (results.hpp), leaves
// out what is there already, and begins nothing when its time is used up.
#pragma once

#include <chrono>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cli/accuracy/results.hpp"
#include "cli/accuracy/study_list.hpp"
#include "core/units.hpp"

namespace pipewright {

constexpr int kParts = 6;
constexpr std::string_view kDeviceFacts = "device";  // the record of part 1

// The time that a part may take, from now on.
class PartBudget {
 public:
  explicit PartBudget(Time limit) : limit_(limit), begin_(std::chrono::steady_clock::now()) {}
  Time used() const;
  Time left() const { return limit_ - used(); }
  // Whether something that is expected to take so long may begin.
  bool allows(Time expected = {}) const { return left() > expected; }

 private:
  Time limit_;
  std::chrono::steady_clock::time_point begin_;
};

struct PartTask {
  StudyResults& results;
  const std::vector<StudyItem>& items;  // of all parts
  int part = 0;
  Time budget;               // of each part
  Time limit;                // what is left of it
  std::string kernel_tests;  // the program that tests the kernels on a GPU; "": unknown
  // What earlier calls failed to measure, and how often. It is tried again behind all that never failed, what failed
  // least often first: what takes the GPU with it each time keeps no call from the rest.
  std::map<std::string, int> failed_before = {};
  int turn = 0;  // of what failed so often, and of what hangs on it

  bool dry_run() const { return results.dry_run(); }
  bool has_turn(const std::string& name) const;
  std::vector<const StudyItem*> own_items() const;
};

// Facts of the device; whether SM groups are disjoint and work at once.
void device_part(const PartTask& task);
// In its place, in a dry run: the processor.
void processor_part(const PartTask& task);
// One calibration of everything that parts 3 and 4 predict.
void calibration_part(const PartTask& task);
// Parts 3 and 4: predicted, written down, run, compared. Throws InputError where part 2 is missing.
void runs_part(const PartTask& task);
// The largest number of layers: predicted, then found by real runs.
void largest_part(const PartTask& task);
// Gradients on K workers against one; compute-sanitizer.
void gradients_part(const PartTask& task);

// A line on standard error: "part 3: pipeline-k4: ..."
void tell(const PartTask& task, const std::string& name, const std::string& what);
// Keeps the record that nothing was begun, since the part's time is used up, or as `why` says.
void leave_out(const PartTask& task, const std::string& name);
void leave_out(const PartTask& task, const std::string& name, const std::string& why);
// Keeps a record without figures: "not applicable", "not run".
void keep_without_figures(const PartTask& task, const std::string& name, const std::string& status,
                          const std::string& reason);
// Of what a dry run has nothing to say.
void keep_not_applicable(const PartTask& task, const std::string& name);
// After an illegal address and the like nothing of a GPU works any more in this process: what comes next would fail
// without having been tried.
class GpuLost : public std::runtime_error {
 public:
  // `words`: of what failed, or ""; `lost`: of what asked for the GPU then.
  GpuLost(const PartTask& task, const std::string& name, const std::string& words, const std::string& lost);
};
// Why the GPU is lost, or "".
std::string lost_gpu(const PartTask& task);
// Throws GpuLost, if it is.
void check_gpu_is_there(const PartTask& task, const std::string& name, const std::string& words);
// Why a step failed, whatever it threw: a GPU's error names the call.
std::string what_failed(const std::exception& error);

}  // namespace pipewright
