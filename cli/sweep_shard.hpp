// --shard i/n: one of several parts of a sweep, which run apart (an array job) and are merged.
#pragma once

#include <functional>
#include <string>

#include "cli/commands.hpp"
#include "core/plan/sweep.hpp"

namespace pipewright {

struct AskedShard {
  SweepShard shard;
  std::string by;  // the variables that said so; "": the command line, or nobody
};

// `--shard`, else in a job of a Slurm array SLURM_ARRAY_TASK_ID, counted from SLURM_ARRAY_TASK_MIN in steps of
// SLURM_ARRAY_TASK_STEP, of SLURM_ARRAY_TASK_COUNT; else the whole. Throws InputError.
//     sbatch --array=0-31: the task with SLURM_ARRAY_TASK_ID=2 is shard 3/32
AskedShard asked_shard(const Arguments& arguments, const std::function<const char*(const char*)>& variables);

std::string text_of(const SweepShard& shard);  // "3/32"

}  // namespace pipewright
