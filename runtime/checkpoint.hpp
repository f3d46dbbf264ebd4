// A run's state between two of its steps, on disk: another process goes on from it to the same bits.
//
//     DIR/step-12/            after 12 steps, warm-up counted
//         manifest            what the run is, and where in it and in the data this is
//         worker-0, ...       per virtual stage of the worker: updates made, weights, optimizer states
//     DIR/step-18.partial/    being written; never read
//
// Between two steps nothing is under way, whatever the schedule: all workers meet before a step, an asynchronous
// schedule has drained, every gradient has been used and is zero, and one version of the weights is left.
//
// Every worker writes its file into the partial folder and has the system store it (fsync). When all have met, worker 0
// adds the manifest and renames the folder. A rename happens or does not [POSIX]: whenever a process dies, the folders
// named step-N are whole. The newest two are kept.
//
// A file: 8 letters, format, bytes of what follows, that, and a checksum of all of it. No size in a file is believed:
// the manifest is small, and how long a worker's file is follows from the plan.
//
// Tests: tests/runtime/checkpoint_test.cpp, tests/cli/run_test.cpp
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/rank_run.hpp"

namespace pipewright::runtime {

// What a worker carries from step to step for one virtual stage: views of its memory.
struct ChunkState {
  VirtualStageId virtual_stage = 0;
  std::int64_t* updates = nullptr;
  std::vector<std::span<std::byte>> blocks;  // weights, then the optimizer's states
};

// What must be alike for the same bits: as between ranks, but for how many steps there are; every byte of the data
// instead of the file's name; and the version of pipewright.
std::vector<MustMatch> checkpoint_identity(const RunPlan& run, const RunSettings& settings, const Data& data,
                                           const Backend& backend, const std::string& version);

// The checkpoints of one run. Its workers use it at once, from their own threads or processes.
class Checkpoints {
 public:
  // Written after every `every` steps (0: none) and after the last of `steps`. Throws InputError when the folder cannot
  // be used.
  Checkpoints(std::string folder, int every, int steps, std::vector<MustMatch> identity, const Plan& plan);

  void begin_anew();        // throws InputError when the folder has a checkpoint
  int newest() const;       // steps after which the newest checkpoint was left; 0: there is none
  void resume(int newest);  // from that one; throws InputError when it is of another run, broken, or not there

  int first_step() const { return first_step_; }  // steps that are done
  int every() const { return every_; }
  bool due(int done) const { return done == steps_ || (every_ > 0 && done % every_ == 0); }
  const std::string& folder() const { return folder_; }
  std::string folder(int done) const;  // of the checkpoint after `done` steps

  // Of the checkpoint that is resumed. Throws InputError for a file that is cut short, damaged or of another run.
  void read(WorkerId worker, const std::vector<ChunkState>& state) const;
  // Throws std::runtime_error with the path and the system's reason.
  void write(int done, WorkerId worker, const std::vector<ChunkState>& state) const;
  void complete(int done) const;  // by one worker, when all have written
  void tidy() const;              // before the first step: what dead runs have left half written

 private:
  std::vector<std::byte> manifest(int done) const;
  void check(const std::string& path, const std::vector<std::byte>& payload, int done) const;

  std::string folder_;
  int every_ = 0, steps_ = 0, first_step_ = 0, workers_ = 0;
  std::int64_t step_samples_ = 0;
  std::vector<MustMatch> identity_;
};

}  // namespace pipewright::runtime
