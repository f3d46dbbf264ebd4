// A signal ends every command with a last line that says what was ended and what is kept, with status 128 + the signal,
// and nothing half written stays. What was found is printed.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cli/refusals.hpp"
#include "tests/support/run_program.hpp"

using namespace pipewright::tests;

namespace {

// A pipe that has a writer, who writes nothing: whoever reads it waits.
struct SilentPipe {
  explicit SilentPipe(const std::string& path) : name(path) {
    REQUIRE(::mkfifo(name.c_str(), 0600) == 0);
    writer = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(writer >= 0);
  }
  ~SilentPipe() { ::close(writer); }
  SilentPipe(const SilentPipe&) = delete;
  SilentPipe& operator=(const SilentPipe&) = delete;
  std::string name;
  int writer = -1;
};

// No more than so many blocks of 512 bytes may be in a file.
ProgramInput with_files_up_to(int blocks) {
  ProgramInput input;
  input.launcher = {"sh", "-c", "ulimit -f " + std::to_string(blocks) + "; exec \"$@\"", "sh"};
  return input;
}

}  // namespace

TEST_CASE("Commands without results so far end at once and say so") {
  const ScratchFolder folder;
  const SilentPipe pipe(folder.path("scenario.yaml"));
  const auto ended = [&](const std::vector<std::string>& arguments, int signal, const std::string& name) {
    const ProgramRun run = run_program(arguments, {.interrupt_at_once = true, .signal = signal});
    CAPTURE(run.err);
    CHECK(run.status == 128 + signal);
    CHECK(run.out == "");
    CHECK(run.err == "interrupted (" + name + "): " + arguments.front() +
                         " was ended before it was done; what it has printed, and files that it has named as written, "
                         "are kept\n");
  };
  ended({"simulate", pipe.name}, SIGINT, "SIGINT");
  ended({"simulate", pipe.name}, SIGTERM, "SIGTERM");
  ended({"reproduce", pipe.name}, SIGHUP, "SIGHUP");
  ended({"run", pipe.name}, SIGTERM, "SIGTERM");
}

TEST_CASE("run: the steps that were done are printed, the newest checkpoint is named, and none is left half written") {
  const ScratchFolder folder;
  const ProgramRun run =
      run_program({"run", kSmall, "--steps", "1000000", "--checkpoint", folder.path("c"), "--every", "5"},
                  {.interrupt_at = "steps [", .signal = SIGTERM});
  CAPTURE(run.err);
  CHECK(run.status == 128 + SIGTERM);
  CHECK(contains(run.out, "measured until then:\n  step    0  loss "));
  CHECK(contains(run.err, "interrupted (SIGTERM): worker "));
  CHECK(contains(run.err, " SIGTERM ended the run; what was measured is printed; " + folder.path("c/step-")));
  CHECK(contains(run.err, " is kept: --resume goes on from there"));
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("c")))
    CHECK_FALSE(entry.path().string().ends_with(".partial"));
}

TEST_CASE("validate: the run's steps are printed, and the prediction is kept") {
  const ScratchFolder folder;
  const std::string out = folder.path("out");
  const ProgramRun run = run_program({"validate", kSmall, "--budget", "50 ms", "--steps", "1000000", "-o", out},
                                     {.interrupt_at = "steps [", .signal = SIGHUP});
  CAPTURE(run.err);
  CHECK(run.status == 128 + SIGHUP);
  CHECK(contains(run.out, "measured until then:\n"));
  CHECK(contains(run.err, "interrupted (SIGHUP): worker "));
  CHECK(contains(run.err, "; the prediction is kept in " + out));
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(out))
    files.push_back(entry.path().filename().string());
  std::sort(files.begin(), files.end());
  CHECK(files == std::vector<std::string>{"prediction.json", "profile.yaml"});
}

TEST_CASE("validate: an interrupted calibration predicts nothing and leaves no folder") {
  const ScratchFolder folder;
  const ProgramRun run = run_program({"validate", kSmall, "--budget", "60 s", "-o", folder.path("out")},
                                     {.interrupt_at = "calibrating ["});
  CAPTURE(run.err);
  CHECK(run.status == 130);
  CHECK(run.out == "");
  CHECK(contains(run.err, "interrupted (SIGINT): the calibration was ended, so nothing is predicted"));
  CHECK(folder.files().empty());
}

TEST_CASE("calibrate: the layers that were measured are printed, and no profile that is not whole is written") {
  const ScratchFolder folder;
  const ProgramRun run = run_program({"calibrate", kSmall, "--budget", "8 s", "-o", folder.path("here.yaml")},
                                     {.interrupt_at = "] 1/", .signal = SIGTERM});
  CAPTURE(run.err);
  CHECK(run.status == 128 + SIGTERM);
  CHECK(contains(run.out, "layer, samples\n"));
  CHECK(contains(run.out, "embedding"));
  CHECK(contains(run.err, " layers measured until then are printed; no profile is written"));
  CHECK(folder.files().empty());
}

TEST_CASE("capacity: the rows that were found are printed" * doctest::test_suite("whole searches")) {
  const ScratchFolder folder;
  const std::string path = folder.path("x.yaml");
  std::ofstream(path) << file_text(source_folder() + "/" + kQuickstart)
                      << "vary: {training.micro_batches: [4, 300000]}\n";
  const ProgramRun run = run_program({"capacity", path, "--over", "model.layers.0.repeat"},
                                     {.interrupt_at = "capacity, training.micro_batches=300000: ", .signal = SIGTERM});
  CAPTURE(run.err);
  CHECK(run.status == 128 + SIGTERM);
  CHECK(contains(run.out, "\ntraining.micro_batches=4\n"));
  CHECK_FALSE(contains(run.out, "\ntraining.micro_batches=300000\n"));
  CHECK(contains(run.err, "interrupted (SIGTERM): 1 of 2 rows are printed; model.layers.0.repeat = "));
  const ProgramRun none = run_program({"capacity", path, "--over", "model.layers.0.repeat", "--set",
                                       "vary={training.micro_batches: [300000]}", "--json"},
                                      {.interrupt_at = "capacity, training.micro_batches=300000: "});
  CHECK(none.status == 130);
  CHECK(none.out == "");
}

TEST_CASE("reproduce: the tables that are whole are printed" * doctest::test_suite("whole searches")) {
  const ScratchFolder folder;
  const std::string path = folder.path("x.yaml");
  std::ofstream(path) << file_text(source_folder() + "/" + kQuickstart) << R"(
expect:
  - {table: one, source: the test, rows: [{name: a, quantity: parameters, published: 1, tolerance: 10, reason: none}]}
  - table: two
    source: the test
    set: {training.micro_batches: 300000}
    rows: [{name: b, quantity: capacity(model.layers.0.repeat), published: 1, tolerance: 10, reason: none}]
)";
  const ProgramRun run = run_program({"reproduce", path}, {.interrupt_at = "reproduce: ", .signal = SIGHUP});
  CAPTURE(run.err);
  CHECK(run.status == 128 + SIGHUP);
  CHECK(contains(run.out, "one"));
  CHECK_FALSE(contains(run.out, "two"));
  CHECK(contains(run.err, "interrupted (SIGHUP): the tables that were whole are printed"));
}

TEST_CASE("A file that may not grow is an error with a way out, and leaves nothing behind") {
  const ScratchFolder folder;
  const ProgramRun run =
      run_program({"simulate", kQuickstart, "-o", folder.path("x.trace.json")}, with_files_up_to(16));
  CAPTURE(run.err);
  CHECK(run.status == 2);
  CHECK(run.err ==
        "error: " + folder.path("x.trace.json") +
            ": cannot write: File too large; files may not be so large here: raise the limit (ulimit -f), or "
            "write elsewhere with -o\n");
  CHECK(folder.files().empty());
}
