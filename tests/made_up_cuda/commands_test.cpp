// Every command that a GPU stands behind, from its beginning to its end, on the made-up CUDA.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/made_up_cuda/made_up_run.hpp"

using namespace pipewright;
using namespace pipewright::made_up_cuda;

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
  for (const std::string line :
       {"copy, own kernel over the driver's", "softmax, rows of 1024", "Adam in fp32", "cuBLASLt was not found",
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

TEST_CASE("made-up GPU: accuracy looks at the device and at its groups of SMs") {
  const ScratchFolder folder;
  const MadeUpRun run = made_up_run("", {"accuracy", "--part", "1", "--budget", "20s", "-o", folder.path("results")});
  CHECK_MESSAGE(run.status == 0, run.err);
  CHECK(has(file_text(folder.path("results/part-1/device.attempt-1.json")), "\"made-up GPU\""));
  for (const std::string groups : {"2", "4", "8"}) {
    CAPTURE(groups);
    const std::string file = file_text(folder.path("results/part-1/groups-" + groups + ".attempt-1.json"));
    CHECK(has(file, "\"status\": \"done\""));
    CHECK(has(file, "\"groups\": " + groups + ","));
    CHECK(has(file, "\"sms_shared\": 0\n"));
  }
  check_clean(run);
}

TEST_CASE("made-up GPU: accuracy ends where the GPU is lost, and tries the groups again behind the rest") {
  const ScratchFolder folder;
  const std::vector<std::string> words = {"accuracy", "--part", "1", "--budget", "20s", "-o", folder.path("results")};
  const auto record = [&](const std::string& name) {
    return file_text(folder.path("results/part-1/groups-" + name + ".json"));
  };
  const MadeUpRun lost = made_up_run("fail=kernel:3:700", words);  // two are of the device's facts
  CAPTURE(lost.err);
  CHECK(lost.status == 2);
  CHECK(has(lost.err, "part 1: groups-2: the GPU is lost to this process (cuda"));
  CHECK(has(record("2.attempt-1"), "\"status\": \"failed\""));
  CHECK(record("4.attempt-1") == "");
  CHECK(record("8.attempt-1") == "");
  CHECK(made_up_run("", {"accuracy", "--summary", "-o", folder.path("results")}).status == 2);
  const MadeUpRun again = made_up_run("", words);
  CAPTURE(again.err);
  CHECK(again.status == 0);
  CHECK(has(record("2.attempt-1"), "\"status\": \"failed\""));
  for (const std::string done : {"2.attempt-2", "4.attempt-1", "8.attempt-1"})
    CHECK_MESSAGE(has(record(done), "\"status\": \"done\""), done);
  CHECK(again.err.find("part 1: groups-8") < again.err.find("part 1: groups-2"));
  check_clean(again);
}

TEST_CASE("made-up GPU: accuracy takes no fact of a GPU that was lost meanwhile, and asks for them again") {
  for (const std::string kernel : {"1", "2"}) {
    CAPTURE(kernel);
    const ScratchFolder folder;
    const std::vector<std::string> words = {"accuracy", "--part", "1", "--budget", "20s", "-o", folder.path("results")};
    const auto facts = [&](const std::string& attempt) {
      return file_text(folder.path("results/part-1/device.attempt-" + attempt + ".json"));
    };
    const MadeUpRun lost = made_up_run("fail=kernel:" + kernel + ":700", words);
    CAPTURE(lost.err);
    CHECK(lost.status == 2);
    CHECK(has(lost.err, "part 1: device: the GPU is lost to this process (fail: cuda"));
    CHECK(has(facts("1"), "\"status\": \"failed\""));
    const MadeUpRun again = made_up_run("", words);
    CAPTURE(again.err);
    CHECK(again.status == 0);
    CHECK(has(facts("2"), "\"status\": \"done\""));
    CHECK_FALSE(has(facts("2"), "illegal memory access"));
    CHECK(has(file_text(folder.path("results/accuracy.md")), "| toolkit | 13."));
  }
}

TEST_CASE("made-up GPU: accuracy begins what failed before with what failed least often") {
  const ScratchFolder folder;
  const std::vector<std::string> words = {"accuracy", "--part", "1", "--budget", "20s", "-o", folder.path("results")};
  REQUIRE(made_up_run("fail=kernel:3:700", words).status == 2);
  for (const std::string next : {"4", "8", "2", "4"}) {  // each takes the GPU with it
    CAPTURE(next);
    const MadeUpRun lost = made_up_run("fail=kernel:1:700", words);
    CAPTURE(lost.err);
    CHECK(has(lost.err, "part 1: groups-" + next + ": failed: "));
  }
  const MadeUpRun rest = made_up_run("", words);
  CAPTURE(rest.err);
  CHECK(rest.status == 0);
  const auto told = [&](const std::string& groups) { return rest.err.find("part 1: groups-" + groups + ": "); };
  CHECK(told("8") < told("2"));
  CHECK(told("2") < told("4"));
  CHECK(file_text(folder.path("results/part-1/groups-8.attempt-2.json")) != "");
  CHECK(file_text(folder.path("results/part-1/groups-4.attempt-3.json")) != "");
}

TEST_CASE("made-up GPU: accuracy ends with 2 where SM groups cannot be had, the device's facts being there") {
  for (const std::string machine : {"sms=16", "groups=0", "without=cuGreenCtxCreate"}) {
    CAPTURE(machine);
    const ScratchFolder folder;
    const MadeUpRun run = made_up_run(machine, {"accuracy", "--part", "1", "-o", folder.path("results")});
    CHECK(run.status == 2);
    CHECK(has(run.err, "part 1: groups-8: failed: "));
    CHECK(has(file_text(folder.path("results/part-1/device.attempt-1.json")), "\"status\": \"done\""));
    CHECK(made_up_run(machine, {"accuracy", "--summary", "-o", folder.path("results")}).status == 2);
  }
}

TEST_CASE("made-up GPU: a run of accuracy's part 5 that takes the GPU keeps its words, and the next call goes on") {
  const ScratchFolder folder;
  const std::vector<std::string> words = {"accuracy", "--part", "5", "-o", folder.path("results")};
  for (const std::string name : {"k1.layers-1.attempt-1", "k2.layers-2.attempt-1", "k4.layers-4.attempt-1",
                                 "k8.layers-8.attempt-1", "k1.layers-1.attempt-2"}) {
    CAPTURE(name);
    const MadeUpRun lost = made_up_run("copy_up_to=0 fail=kernel:20:700", words);
    CAPTURE(lost.err);
    CHECK(lost.status == 2);
    const std::string run = name.substr(0, name.find(".attempt"));
    CHECK(has(lost.err, "part 5: largest-" + run + ": the GPU is lost to this process (worker "));
    const std::string record = file_text(folder.path("results/part-5/largest-" + name + ".json"));
    CHECK(has(record, "\"status\": \"failed\""));
    CHECK(has(record, "\"reason\": \"worker "));
    CHECK(has(record, "an illegal memory access was encountered"));
  }
}

TEST_CASE("made-up GPU: a compute-sanitizer that is not there is no longer left out for its time") {
  const ScratchFolder folder;
  const auto part = [&](const std::string& budget) {
    return made_up_run("", {"accuracy", "--part", "6", "--budget", budget, "--kernel-tests", folder.path("nothing"),
                            "-o", folder.path("results")});
  };
  CHECK(part("1ns").status == 2);
  const std::string at = folder.path("results/part-6/"), left_out = "compute-sanitizer.attempt-0.json";
  REQUIRE(file_text(at + left_out) != "");
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(at))
    files.push_back(entry.path().filename().string());
  for (const std::string& file : files) {  // as if they had been compared
    if (file == left_out) continue;
    std::string text = file_text(at + file), name = file;
    text.replace(text.find("left out"), 8, "done").replace(text.find("\"attempt\": 0"), 12, "\"attempt\": 1");
    std::ofstream(at + name.replace(name.find("attempt-0"), 9, "attempt-1")) << text;
    std::filesystem::remove(at + file);
  }
  const MadeUpRun run = part("30s");
  CHECK_MESSAGE(has(run.err, "part 6: compute-sanitizer: not run: "), run.err);
  CHECK(file_text(at + left_out) == "");
  CHECK(has(file_text(at + "compute-sanitizer.attempt-1.json"), "\"status\": \"not run\""));
}

TEST_SUITE_END();
