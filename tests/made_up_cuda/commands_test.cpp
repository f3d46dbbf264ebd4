// Every command that a GPU stands behind, from its beginning to its end, on the made-up CUDA.
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/made_up_cuda/made_up_run.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::made_up_cuda;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::size_t times(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++n;
  return n;
}

void check_clean(const MadeUpRun& run) {
  CHECK(run.left == "");
  CHECK(run.misuse == "");
  CHECK(run.processes > 0);
}

MadeUpRun run_of(const std::string& settings, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"run", tiny()});
  return made_up_run(settings, arguments);
}

}  // namespace

TEST_SUITE_BEGIN("commands");

TEST_CASE("made-up GPU: doctor shows GPUs, their groups of SMs, links and missing libraries") {
  const MadeUpRun run = made_up_run("gpus=2 sms=132 memory=80GiB", {"doctor"});
  CHECK(run.status == 0);
  CHECK(has(run.out, "GPU 1       made-up GPU, architecture 9.0, 132 SMs, at 0000:02:00.0"));
  CHECK(has(run.out, "memory    80.0 GiB"));
  CHECK(has(run.out, "2 x 64, 4 left over; 4 x 32, 4 left over; 8 x 16, 4 left over"));
  CHECK(has(run.out, "peers     GPU 0: direct"));
  CHECK((has(run.out, "cuBLASLt    not found") || has(run.out, "cuBLASLt    left out")));
  check_clean(run);
}

TEST_CASE("made-up GPU: run counts the memory of every worker to the byte, over threads and through the host") {
  for (const std::string transport : {"local", "staged"}) {
    CAPTURE(transport);
    const ScratchFolder folder;
    const std::string file = folder.path("step.json");
    const MadeUpRun run = run_of("", {"--transport", transport, "-o", file});
    CAPTURE(run.err);
    CHECK(run.status == 0);
    CHECK(times(run.out, "as counted, to the byte") == 2);
    CHECK(has(run.out, "backend cuda (64 SMs, fp32, own products)"));
    CHECK(has(file_text(file), "pipewright.result/1"));
    CHECK(run.calls.at("kernel") > 100);
    CHECK((run.calls.contains("cudaMallocHost") == (transport == "staged")));
    check_clean(run);
  }
}

TEST_CASE("made-up GPU: a worker's memory on the GPU is its arena and the block of its probe") {
  const MadeUpRun run = run_of("", {});
  // extents of the two arenas, KiB, and 1 MiB each (runtime/backends/gpu.cpp)
  CHECK(has(run.out, "27.5 KiB     28.0 KiB"));
  CHECK(has(run.out, "22.5 KiB     22.5 KiB"));
  CHECK(run.most_device_bytes == 28 * 1024 + 22 * 1024 + 512 + 2 * (1 << 20));
}

TEST_CASE("made-up GPU: run in every precision, with replicas, recomputation and split backwards") {
  const std::vector<std::vector<std::string>> runs = {
      {"--set", "training.precision=bf16", "--set", "training.gradient_precision=fp32"},
      {"--set", "training.precision=fp16", "--set", "training.gradient_precision=fp32"},
      {"--set", "training.precision=tf32", "--set", "plan.recompute=full"},
      {"--set", "plan.schedule=zb_h1", "--set", "training.micro_batches=4"},
      {"--set", "plan.data_parallel=2", "--set", "cluster.node.devices=4"},
      {"--set", "plan.data_parallel=2", "--set", "cluster.node.devices=4", "--transport", "staged"},
  };
  for (const auto& arguments : runs) {
    CAPTURE(arguments.at(1));
    const MadeUpRun run = run_of("", arguments);
    CHECK_MESSAGE(run.status == 0, run.err);
    CHECK(has(run.out, "as counted, to the byte"));
    check_clean(run);
  }
}

TEST_CASE("made-up GPU: messages between two GPUs go by their link") {
  const MadeUpRun run = run_of("gpus=2", {"--transport", "peer", "--gpus", "0,1"});
  CHECK_MESSAGE(run.status == 0, run.err);
  CHECK(times(run.out, "as counted, to the byte") == 2);
  CHECK(run.calls.at("cudaMemcpyPeerAsync") == 12);        // an activation and a gradient, 2 micro-batches, 3 steps
  CHECK(run.calls.at("cudaDeviceEnablePeerAccess") == 2);  // either way
  check_clean(run);
}

TEST_CASE("made-up GPU: links as slow as the cluster's need no kernel of their own") {
  const MadeUpRun run = run_of("", {"--transport", "throttled"});
  CHECK_MESSAGE(run.status == 0, run.err);
  CHECK(run.calls.at("kernel") == run_of("", {}).calls.at("kernel"));
  check_clean(run);
}

// Kernels do nothing here, so that both have the same gradients: what they compare is tests/runtime's to show.
TEST_CASE("made-up GPU: --check gradients runs one worker more, on the whole GPU, and says what came of it") {
  const MadeUpRun run = run_of("", {"--check", "gradients"});
  CHECK_MESSAGE(run.status == 0, run.err);
  CHECK(has(run.out, "gradients: bit-identical to one worker's"));
  check_clean(run);
}

TEST_CASE("made-up GPU: a checkpoint is written, and gone on from") {
  const ScratchFolder folder;
  const MadeUpRun first = run_of("", {"--checkpoint", folder.path("state")});
  CHECK_MESSAGE(first.status == 0, first.err);
  const MadeUpRun second = run_of("", {"--checkpoint", folder.path("state"), "--resume", "--steps", "4"});
  CHECK_MESSAGE(second.status == 0, second.err);
  check_clean(first);
  check_clean(second);
}

TEST_CASE("made-up GPU: calibrate times layers and messages of a scenario") {
  const ScratchFolder folder;
  const std::string file = folder.path("profile.yaml");
  const MadeUpRun run = made_up_run("", {"calibrate", tiny(), "--budget", "10ms", "-o", file});
  CHECK_MESSAGE(run.status == 0, run.err);
  CHECK(has(file_text(file), "made-up GPU"));
  check_clean(run);
}

// The times are made up, so a prediction may miss (status 1); that all of it is done is what is claimed.
TEST_CASE("made-up GPU: validate calibrates two stages, predicts, runs and compares") {
  const ScratchFolder folder;
  const MadeUpRun run = made_up_run(
      "", {"validate", tiny(), "--set", "run.steps=20", "--force", "--budget", "10ms", "-o", folder.path("study")});
  CAPTURE(run.err);
  CHECK((run.status == 0 || run.status == 1));
  CHECK(has(run.out + run.err, "verdict: "));
  for (const std::string name : {"profile.yaml", "prediction.json", "measurement.json", "comparison.json", "loss.csv",
                                 "overlay.svg", "overlay.trace.json"})
    CHECK_MESSAGE(file_text(folder.path("study/" + name)) != "", name);
  CHECK(has(file_text(folder.path("study/profile.yaml")), "made-up GPU"));
  check_clean(run);
}

TEST_CASE("made-up GPU: validate whose calibration fails leaves no folder, of one scenario nor of several") {
  const ScratchFolder other, folder;
  std::string text = file_text(tiny());
  text.replace(text.find("name: tiny"), 10, "name: teeny");
  std::ofstream(other.path("teeny.yaml")) << text;
  for (const bool several : {false, true}) {
    CAPTURE(several);
    std::vector<std::string> words = {"validate", tiny(), "--budget", "10ms", "-o", folder.path("deep/study")};
    if (several) words.insert(words.begin() + 2, other.path("teeny.yaml"));
    const MadeUpRun run = made_up_run("fail=kernel:20:700", words);
    CHECK(run.status == 2);
    CHECK_MESSAGE(has(run.err, "error: "), run.err);
    CHECK(folder.files().empty());
    check_clean(run);
  }
  const MadeUpRun run = made_up_run("", {"validate", tiny(), other.path("teeny.yaml"), "--set", "run.steps=20",
                                         "--force", "--budget", "10ms", "-o", folder.path("deep/study")});
  CHECK_MESSAGE((run.status == 0 || run.status == 1), run.err);
  CHECK(has(file_text(folder.path("deep/study/accuracy.json")), "teeny"));
}

TEST_CASE("made-up GPU: validate withholds its verdict where the SMs are slower than when they were calibrated") {
  const ScratchFolder folder;
  const std::string profile = folder.path("profile.yaml");
  const MadeUpRun quiet = made_up_run("", {"calibrate", tiny(), "--budget", "10ms", "-o", profile});
  REQUIRE_MESSAGE(quiet.status == 0, quiet.err);
  const auto validated = [&](const std::string& settings, const std::string& study) {
    return made_up_run(settings,
                       {"validate", tiny(), "--set", "run.steps=20", "--profile", profile, "-o", folder.path(study)});
  };
  const MadeUpRun shared = validated("kernel_ns=1000", "shared");
  CHECK(shared.status == 2);
  CHECK_MESSAGE(has(shared.out, "machine: SMs ran at 50 % of their calibrated speed"), shared.out);
  CHECK_MESSAGE(has(shared.out, "verdict: withheld: the machine changed too much"), shared.out);
  CHECK(has(file_text(folder.path("shared/comparison.json")), "the machine changed too much"));
  const MadeUpRun alone = validated("", "alone");
  CHECK_MESSAGE(!has(alone.out, "SMs ran at 50 %"), alone.out);
  check_clean(shared);
  check_clean(alone);
}

TEST_CASE("made-up GPU: the benchmark of kernels and executor goes to its end") {
  const char* const benchmark = std::getenv("MADE_UP_BENCHMARK");
  REQUIRE(benchmark != nullptr);
  // Which targets times that are made up meet does not matter (status 1); 1 GiB need not be copied.
  const MadeUpRun run = made_up_run("copy_up_to=65536", {}, benchmark);
  CAPTURE(run.out);
  CHECK((run.status == 0 || run.status == 1));
  for (const std::string line : {"copy, own kernel over the driver's", "softmax, rows of 1024", "Adam in fp32",
                                 "executor, beside an op's layers", "calibration in bf16, at four SM counts"})
    CHECK_MESSAGE(has(run.out, line), line);
  check_clean(run);
}

TEST_CASE("made-up GPU: calibrate finds out that kernels that do nothing are wrong, and writes nothing") {
  const ScratchFolder folder;
  const std::string file = folder.path("device.yaml");
  const MadeUpRun run = made_up_run("copy_up_to=65536", {"calibrate", "--backend", "cuda", "--precision", "bf16",
                                                         "--virtual-devices", "1", "--budget", "3s", "-o", file});
  CHECK(run.status == 2);
  CHECK(has(run.err, "bf16, its result is wrong (weight gradient of 1 x 10 x 128 x 16: off by"));
  CHECK(has(run.err, "error: no product and no copy of the whole device was measured"));
  CHECK(folder.files().empty());
  check_clean(run);
}

TEST_CASE(
    "made-up GPU: all goes on where groups take events of their own context only, also where none compares them") {
  for (const std::string events : {"own", "apart"}) {
    CAPTURE(events);
    const std::string settings = "events=" + events;
    const ScratchFolder folder;
    const MadeUpRun doctor = made_up_run(settings, {"doctor"});
    CHECK(doctor.status == 0);
    const std::string apart = events == "apart" ? "; not comparable between groups\n" : "\n";
    CHECK_MESSAGE(has(doctor.out, "; events in their streams: made in each group's own context" + apart), doctor.out);
    const MadeUpRun run = run_of(settings, {"--transport", "staged"});
    CHECK_MESSAGE(run.status == 0, run.err);
    CHECK(times(run.out, "as counted, to the byte") == 2);
    CHECK(run.calls.at("cuEventCreate") > 0);
    const MadeUpRun layers =
        made_up_run(settings, {"calibrate", tiny(), "--budget", "10ms", "-o", folder.path("profile.yaml")});
    CHECK_MESSAGE(layers.status == 0, layers.err);
    const MadeUpRun validate = made_up_run(settings, {"validate", tiny(), "--set", "run.steps=20", "--force",
                                                      "--budget", "10ms", "-o", folder.path("study")});
    CHECK_MESSAGE((validate.status == 0 || validate.status == 1), validate.err);
    CHECK(has(validate.out + validate.err, "verdict: "));
    for (const MadeUpRun* const each : {&doctor, &run, &layers, &validate})
      check_clean(*each);
  }
}

TEST_CASE("made-up GPU: capacity asks no GPU") {
  const MadeUpRun run = made_up_run(
      "", {"capacity", tiny(), "--over", "model.layers.1.repeat", "--set", "cluster.node.device.memory=1MiB"});
  CHECK_MESSAGE(run.status == 0, run.err);
  CHECK(run.calls.empty());
}

TEST_CASE(
    "made-up GPU: accuracy goes on behind a scenario that took the GPU with it, which the next call tries again") {
  const ScratchFolder folder;
  std::string text = file_text(tiny());
  text.replace(text.find("name: tiny"), 10, "name: teeny");
  std::ofstream(folder.path("teeny.yaml")) << text;
  const std::string results = folder.path("results");
  const auto called = [&](const std::string& settings, const std::string& first, const std::string& second) {
    return made_up_run(settings,
                       {"accuracy", first, second, "--set", "run.steps=20", "--budget", "10ms", "-o", results});
  };
  const MadeUpRun lost = called("fail=kernel:20:700", tiny(), folder.path("teeny.yaml"));
  CAPTURE(lost.err);
  CHECK(lost.status == 2);
  for (const std::string name : {"tiny", "teeny"}) {
    CHECK(has(lost.err, name + ": failed: error: "));
    CHECK(has(file_text(results + "/" + name + "/validate.txt"), "an illegal memory access was encountered"));
  }
  const MadeUpRun again = called("", tiny(), folder.path("teeny.yaml"));
  CAPTURE(again.err);
  CHECK_FALSE(has(again.err, "failed: "));
  CHECK(has(again.out, "Device: made-up GPU, "));
  for (const std::string name : {"tiny", "teeny"})
    CHECK(has(file_text(results + "/" + name + "/comparison.json"), "\"scenario\": \"" + name + "\""));
  check_clean(again);
  const MadeUpRun nothing_left = called("fail=kernel:1:700", tiny(), folder.path("teeny.yaml"));
  CHECK(nothing_left.status == again.status);
  CHECK(nothing_left.out == again.out);
}

TEST_SUITE_END();
