// A sweep over the processes of mpirun. Skipped where there is none, or pipewright was built without MPI.
#include <cstdlib>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

ProgramRun over(int processes, const std::vector<std::string>& arguments,
                const std::vector<std::string>& through = {}) {
  ProgramInput input;
  input.settings = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "ASAN_OPTIONS=detect_leaks=0"};
  input.launcher = {"mpirun", "--oversubscribe", "-n", std::to_string(processes)};
  input.launcher.insert(input.launcher.end(), through.begin(), through.end());
  return run_program(arguments, input);
}

TEST_CASE("Processes of mpirun give the rows of one process, in every output, and keep them") {
  if (!has_mpi()) return;
  const ScratchFolder folder;
  const ProgramRun run =
      over(3, {"sweep", kBandwidth, "--jobs", "2", "--csv", "-o", folder.path("r.db"), "-o", folder.path("r.json")});
  CHECK(run.status == 0);
  CHECK(run.out == run_program({"sweep", kBandwidth, "--csv"}).out);
  CHECK(file_text(folder.path("r.json")) == run_program({"sweep", kBandwidth, "--json"}).out);
  CHECK(run_program({"sweep", folder.path("r.db"), "--csv"}).out == run.out);
  CHECK(contains(over(1, {"sweep", kBandwidth, "--csv"}).out, run.out));  // one process prices, too
}

TEST_CASE("A process that dies ends the run; what was kept is gone on with") {
  if (!has_mpi()) return;
  const ScratchFolder folder;
  const std::vector<std::string> asked = {"sweep", kBandwidth, "--csv", "-o", folder.path("r.db"), "--resume"};
  const ProgramRun run =
      over(3, asked, {"sh", "-c", "if [ $OMPI_COMM_WORLD_RANK = 2 ]; then exit 3; else exec \"$@\"; fi", "sh"});
  CHECK(run.status != 0);
  const ProgramRun rest = run_program(asked);
  CHECK(rest.status == 0);
  CHECK(rest.out == run_program({"sweep", kBandwidth, "--csv"}).out);
}

TEST_CASE("What one process cannot do is one error of the run") {
  if (!has_mpi()) return;
  const ProgramRun none = over(2, {"sweep", "scenarios/what_if/none.yaml"});
  CHECK(none.status == 2);
  CHECK(contains(none.err, "none.yaml"));
  const ProgramRun other = over(2, {"sweep"},
                                {"sh", "-c",
                                 "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then exec \"$@\" "
                                 "scenarios/what_if/hardware.yaml; else exec \"$@\" " +
                                     kBandwidth + "; fi",
                                 "sh"});
  CHECK(other.status == 2);
  CHECK(contains(other.err, "rank 1 has read another sweep than rank 0"));
}

}  // namespace
}  // namespace pipewright::tests
