// The file that starts a plan in a training framework, and what is said of it: `launch`.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "io/read/read_scenario.hpp"

namespace pipewright::study {

constexpr std::array<std::string_view, 5> kLaunchTargets = {"megatron", "torchtitan", "torch", "deepspeed", "slurm"};

struct LaunchAsked {
  std::string target;   // of kLaunchTargets
  std::string path;     // of the plan
  ReadOptions read;     // of it
  std::string command;  // how it was asked, for the header
  bool sbatch = false;  // as a Slurm job
};

struct Launched {
  std::string text;
  std::vector<std::string> differences;  // from what was planned
  std::vector<std::string> notes;        // these, and what they cost, tight memory, why it does not fit
  bool fits = true;                      // what is written
};

// Throws InputError where the plan leaves fields open, or cannot be launched there.
Launched launched(const LaunchAsked& launch);

}  // namespace pipewright::study
