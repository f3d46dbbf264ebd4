// What the tests of the command line share.
#pragma once

#include <cstdlib>
#include <fstream>
#include <ios>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/run_program.hpp"
#include "tests/support/texts.hpp"

namespace pipewright::tests {

inline const std::string kQuickstart = "scenarios/quickstart.yaml";
inline const std::string kBandwidth = "scenarios/what_if/bandwidth.yaml";  // a sweep
inline const std::string kLlama = "scenarios/megatron/llama3-70b-64xh100.yaml";
// These run on a CPU.
inline const std::string kSmall = "scenarios/validation/small-ops.yaml";
inline const std::string kTwoStages = "scenarios/validation/two-stage-gpipe.yaml";

// A file of that text; its path.
inline std::string written(const ScratchFolder& folder, const std::string& name, const std::string& text) {
  std::ofstream(folder.path(name), std::ios::binary) << text;
  return folder.path(name);
}

// Where not, it says what a test is skipped for.
inline bool has_mpi() {
  const bool built = contains(run_program({"--version"}).out, "MPI: transport mpi");
  const bool launcher = std::system("command -v mpirun >/dev/null 2>&1") == 0;
  if (!built || !launcher)
    MESSAGE("skipped: ", std::string(!built ? "pipewright was built without MPI" : "mpirun is not installed"));
  return built && launcher;
}

// A run that must fail: status 2, nothing on standard output, one "error: " line or more.
inline std::string error_of(const std::vector<std::string>& arguments) {
  const ProgramRun run = run_program(arguments);
  CHECK(run.status == 2);
  CHECK(run.out == "");
  CHECK(run.err.starts_with("error: "));
  return run.err;
}

}  // namespace pipewright::tests
