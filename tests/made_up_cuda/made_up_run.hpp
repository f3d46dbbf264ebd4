// A run of the whole program on the made-up CUDA, and what it left there.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/support/run_program.hpp"

namespace pipewright::tests::made_up_cuda {

struct MadeUpRun {
  int status = -1;
  std::string out, err;
  int processes = 0;                  // that wrote what they left
  std::map<std::string, long> calls;  // by name, over all processes; "kernel": launches that were taken
  long most_device_bytes = 0;         // of one GPU at once
  std::string left;                   // "streams 2, ": what is not 0
  std::string misuse;                 // a line each

  // Ended by itself, gave everything back, did nothing that a driver takes amiss or does not notice.
  bool clean() const { return processes > 0 && left.empty() && misuse.empty(); }
};

// settings: of MADE_UP_CUDA (machine.hpp); kernels take 500 ns there unless it says otherwise.
// `instead`: of the program.
MadeUpRun made_up_run(const std::string& settings, const std::vector<std::string>& arguments,
                      const std::string& instead = "");

// As ranks of one run, each with its own settings; `transport` tcp between them.
std::vector<MadeUpRun> made_up_ranks(const std::vector<std::string>& settings,
                                     const std::vector<std::string>& arguments);

// The smallest scenario with two workers on virtual devices.
std::string tiny();

}  // namespace pipewright::tests::made_up_cuda
