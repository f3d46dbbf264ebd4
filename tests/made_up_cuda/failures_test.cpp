// Each call that a run makes fails once: the words, the status, and that nothing is left.
#include <algorithm>
#include <fstream>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tests/made_up_cuda/made_up_run.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::made_up_cuda;

namespace {

struct Failed {
  MadeUpRun run;
  std::vector<std::string> files;  // in the folder of its output
};

Failed failed(const std::string& settings, const std::vector<std::string>& options = {}) {
  const ScratchFolder folder;
  std::vector<std::string> arguments = {"run", tiny(), "-o", folder.path("step.json")};
  arguments.insert(arguments.end(), options.begin(), options.end());
  Failed out;
  out.run = made_up_run(settings, arguments);
  out.files = folder.files();
  return out;
}

std::string failing(const std::string& function, long nth, int error) {
  return "fail=" + function + ":" + std::to_string(nth) + ":" + std::to_string(error);
}

bool says(const MadeUpRun& run, const std::string& pattern) {
  return std::regex_search(run.err, std::regex(pattern));
}

bool is_one_of(const std::string& name, const std::vector<std::string_view>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr int kOutOfMemory = 2, kIllegalAddress = 700, kUnknown = 999;

// What gives something back: nothing can be done about it. And what is told where it is known, but needed by nobody.
const std::vector<std::string_view> kDoNotMatter = {
    "cudaEventDestroy",      "cudaStreamDestroy",          "cudaFree",
    "cudaFreeHost",          "cuGreenCtxDestroy",          "cudaDriverGetVersion",
    "cudaDeviceGetPCIBusId", "cudaDeviceDisablePeerAccess"};
// Their failure is an answer of its own ("gives none", "does not reach").
const std::vector<std::string_view> kInOtherWords = {"cudaDeviceCanAccessPeer", "cudaGetDriverEntryPointByVersion"};

// Each function's last call fails, and one in the middle. `only`: of these functions; none: of all.
void check_each(const std::string& settings, const std::vector<std::string>& options,
                const std::vector<std::string_view>& only = {}) {
  const Failed whole = failed(settings, options);
  REQUIRE_MESSAGE(whole.run.status == 0, whole.run.err);
  REQUIRE(whole.run.clean());
  for (const auto& [name, count] : whole.run.calls) {
    if (name == "kernel" || is_one_of(name, {"cudaMalloc", "cudaMallocHost"})) continue;
    if (!only.empty() && !is_one_of(name, only)) continue;
    for (const long nth : {(count + 1) / 2, count}) {
      const bool matters = !is_one_of(name, kDoNotMatter);
      CAPTURE(name);
      CAPTURE(nth);
      const Failed one = failed(settings + " " + failing(name, nth, kUnknown), options);
      CAPTURE(one.run.err);
      CHECK(one.run.status == (matters ? 2 : 0));
      CHECK(one.files.size() == (matters ? 0 : 1));
      CHECK(one.run.clean());
      if (matters && !is_one_of(name, kInOtherWords))
        CHECK(says(one.run, name == "cudaLaunchKernel" ? "kernel [a-z_ ()]+: unknown error" : name));
    }
  }
}

}  // namespace

TEST_SUITE_BEGIN("failures");

TEST_CASE("made-up GPU: a call that fails ends a run with its name, and nothing is left behind") {
  check_each("", {});
}

TEST_CASE("made-up GPU: so it does between two GPUs") {
  check_each("gpus=2", {"--transport", "peer", "--gpus", "0,1"},
             {"cudaDeviceCanAccessPeer", "cudaDeviceEnablePeerAccess", "cudaDeviceDisablePeerAccess",
              "cudaMemcpyPeerAsync", "cudaStreamCreateWithFlags", "cudaSetDevice"});
}

TEST_CASE("made-up GPU: a launch that fails is told with worker, op and kernel") {
  const long all = failed("").run.calls.at("cudaLaunchKernel");
  const Failed one = failed(failing("cudaLaunchKernel", all / 2, kUnknown));
  CAPTURE(one.run.err);
  CHECK(one.run.status == 2);
  CHECK(says(one.run, "worker [01] at op [01][FBWU][0-9]+: kernel [a-z_ ()]+: unknown error"));
}

TEST_CASE(
    "made-up GPU: a kernel that fails while it runs ends the run, and all memory, streams and groups are given back") {
  const long all = failed("").run.calls.at("kernel");
  for (const long nth : {all / 3, all / 2, all}) {
    CAPTURE(nth);
    const Failed one = failed(failing("kernel", nth, kIllegalAddress));
    CAPTURE(one.run.err);
    CHECK(one.run.status == 2);
    CHECK(says(one.run, "worker [01] at op .*an illegal memory access was encountered \\(cudaErrorIllegalAddress\\)"));
    CHECK(one.files.empty());
    CHECK(one.run.clean());
  }
}

TEST_CASE("made-up GPU: no memory for an arena or for what goes through the host is an answer, with the worker") {
  const long blocks = failed("").run.calls.at("cudaMalloc");
  CHECK(blocks == 4);  // of each worker: its arena, and what its speed is told by
  for (long nth = 1; nth <= blocks; ++nth) {
    CAPTURE(nth);
    const Failed block = failed(failing("cudaMalloc", nth, kOutOfMemory));
    CAPTURE(block.run.err);
    CHECK(block.run.status == 1);
    CHECK(block.run.out.find("infeasible: worker " + std::to_string((nth - 1) / 2) + ": cudaMalloc of ") == 0);
    CHECK(block.files.empty());
    CHECK(block.run.clean());
  }
  for (const long nth : {1, 2}) {
    CAPTURE(nth);
    const Failed staging = failed(failing("cudaMallocHost", nth, kOutOfMemory), {"--transport", "staged"});
    CHECK(staging.run.status == 1);
    CHECK(staging.run.out.find("cudaMallocHost of ") != std::string::npos);
    CHECK(staging.run.out.find("memory_cap") == std::string::npos);  // no cap is what was too small
    CHECK(staging.files.empty());
    CHECK(staging.run.clean());
  }
}

TEST_CASE("made-up GPU: of several processes, one whose GPU is full ends all with status 1, and rank 0 says so") {
  const ScratchFolder folder;
  const std::vector<std::vector<std::string>> commands = {
      {"run", tiny()}, {"calibrate", tiny(), "--budget", "10ms"}, {"validate", tiny(), "-o", folder.path("study")}};
  for (const auto& command : commands)
    for (const std::size_t full : {0, 1}) {
      CAPTURE(command.front());
      CAPTURE(full);
      std::vector<std::string> settings(2, "gpus=2");
      settings[full] += " memory=601MiB";  // room for the contexts and 1 MiB
      const auto runs = made_up_ranks(settings, command);
      CAPTURE(runs[0].err);
      CHECK(runs[0].out.starts_with("infeasible: worker " + std::to_string(full) + ": cudaMalloc of "));
      CHECK(runs[0].out.find("out of memory") != std::string::npos);
      CHECK(runs[0].out.find("memory_cap") == std::string::npos);
      CHECK((runs[0].err.empty() && runs[1].out.empty() && runs[1].err.empty()));
      for (const MadeUpRun& run : runs)
        CHECK((run.status == 1 && run.clean()));
      CHECK(folder.files().empty());
    }
}

TEST_CASE("made-up GPU: of several processes, a full GPU at one point of a sweep is that point's answer only") {
  const ScratchFolder folder;
  const std::string sweep = folder.path("sweep.yaml");
  std::ofstream(sweep) << "version: 1\nsweep:\n  base: " << tiny()
                       << "\n  grid:\n    training.micro_batch_size: [1, 4096, 2]\n";
  const auto runs =
      made_up_ranks({"gpus=2", "gpus=2 memory=602MiB"}, {"sweep", "--run", sweep, "--csv", "--set", "run.steps=2"});
  CAPTURE(runs[0].out);
  CAPTURE(runs[0].err);
  for (const MadeUpRun& run : runs)
    CHECK((run.status == 0 && run.clean()));
  CHECK(runs[0].out.find("worker 1: cudaMalloc of ") == runs[0].out.rfind("worker 1: cudaMalloc of "));
  CHECK(runs[0].out.find("worker 1: cudaMalloc of ") != std::string::npos);
}

TEST_CASE("made-up GPU: of several processes, a full GPU fails each run of a study, and all ranks come to its end") {
  const ScratchFolder folder;
  const std::string profile = folder.path("profile.yaml"), other = folder.path("other.yaml");
  std::string named = file_text(tiny());
  named.replace(named.find("name: tiny"), 10, "name: other");
  std::ofstream(other) << named;
  CHECK(made_up_ranks({"gpus=2", "gpus=2"}, {"calibrate", tiny(), "--budget", "10ms", "-o", profile})[0].status == 0);
  const auto runs = made_up_ranks({"gpus=2", "gpus=2 memory=601MiB"},
                                  {"validate", tiny(), other, "--profile", profile, "-o", folder.path("study")});
  CAPTURE(runs[0].out);
  CAPTURE(runs[0].err);
  CHECK(runs[0].out.find("0 of 2 scenarios judged, 2 failed.") != std::string::npos);
  CHECK(runs[0].out.find("failed: worker 1: cudaMalloc of ") != runs[0].out.rfind("failed: worker 1: cudaMalloc of "));
  for (const MadeUpRun& run : runs)
    CHECK((run.status == 2 && run.clean()));
  CHECK((runs[1].out.empty() && runs[1].err.empty()));
}

TEST_SUITE_END();
