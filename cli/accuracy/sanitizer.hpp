// compute-sanitizer, where the CUDA toolkit has it, on the program that tests the kernels.
#pragma once

#include <string>
#include <vector>

namespace pipewright {

struct SanitizerFindings {
  std::string not_run;  // why, or ""
  std::string tool;     // its path
  bool clean = false;
  std::string last_line;  // of what it said: "========= ERROR SUMMARY: 0 errors"
};

// Runs the tool on `tests`, less those that time something or fail on purpose; what it says goes to the file `log`. Not
// run: no tool (where it was looked for), no tests, or not done within `seconds`. Then the tool and the tests that it
// started, which would hold the GPU, are killed.
SanitizerFindings run_sanitizer(const std::string& tests, const std::string& log, double seconds);

// Where the tool is looked for, in this order: the folders of PATH, $CUDA_HOME/bin, /usr/local/cuda/bin.
std::vector<std::string> sanitizer_places();

}  // namespace pipewright
