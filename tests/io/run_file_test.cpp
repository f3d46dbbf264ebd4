// Measured runs as files of their own.
#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "io/import/import_run.hpp"
#include "io/import/nsys.hpp"
#include "io/sha256.hpp"
#include "io/store.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/input_error.hpp"

using namespace pipewright;

namespace {

// Written by hand, in the formats of the programs named.
const std::string kMegatron =
    " iteration 1/ 9 | elapsed time per iteration (ms): 5444.9 | throughput per GPU (TFLOP/s/GPU): 239.8 | global "
    "batch "
    "size: 64 | lm loss: 1.825991E+00 |\n[Rank 0] (after 1 iterations) memory (MB) | max allocated: 1024.0 | max "
    "reserved: 2048.0\n iteration 2/ 9 | elapsed time per iteration (ms): 36.125 | global batch size: 64 | lm loss: "
    "NAN "
    "|\n";
const std::string kTrace =
    R"({"distributedInfo": {"rank": 3}, "traceEvents": [{"ph": "X", "cat": "gpu_user_annotation", "name": "PP:0F3", )"
    R"("pid": 7, "ts": 1700000000000000.250, "dur": 21000.125}, {"ph": "X", "cat": "gpu_user_annotation", )"
    R"("name": "PP:0B3", "pid": 7, "ts": 1700000000050000.250, "dur": 5}, {"name": "PP:0SEND_F3"}]})";
const std::string kHead = "schema: pipewright.run/1\nsource: {format: x, file: y}\n";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string run_error(const std::string& text) {
  return error_of([&] { parse_run_file(text, "run.yaml"); });
}

std::string nsys_error(const std::string& text) {
  const Scratch scratch;
  return message_of([&] { import_nsys(scratch.write("r.csv", text)); }, scratch.path(""));
}

ImportedRun nsys(const std::string& text) {
  const Scratch scratch;
  return import_nsys(scratch.write("r.csv", text));
}

}  // namespace

TEST_CASE("A log that is imported reads as the log itself does, with its digest, and what was not in it") {
  const Scratch scratch;
  const std::string path = scratch.write("run.log", kMegatron),
                    file = scratch.write("run.yaml", run_yaml(import_log(path, "Megatron-LM")));
  CHECK(is_run_file(file));
  CHECK_FALSE(is_run_file(path));
  CHECK_FALSE(is_run_file(scratch.path("none")));
  CHECK(is_run_file(scratch.write("marked.yaml", "\xef\xbb\xbf" + kHead)));
  const ImportedRun run = read_run_file(file);
  const TrainingLog direct = read_training_log(path);
  CHECK(run.source.sha256 == sha256(kMegatron));
  CHECK(run.source.bytes == static_cast<std::int64_t>(kMegatron.size()));
  CHECK(run.source.dated.size() == 10);
  CHECK(run.source.absent == std::vector<std::string>{"model, plan and devices of the run"});
  REQUIRE(run.log);
  CHECK(run.log->format == "Megatron-LM");
  CHECK(run.log->max_allocated == direct.max_allocated);
  CHECK(run.log->max_reserved == direct.max_reserved);
  REQUIRE(run.log->steps.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(run.log->steps[i].number == direct.steps[i].number);
    CHECK(run.log->steps[i].time == direct.steps[i].time);
    CHECK(run.log->steps[i].global_batch_size == direct.steps[i].global_batch_size);
    CHECK(run.log->steps[i].flop_rate_device == direct.steps[i].flop_rate_device);
  }
  CHECK(run.log->steps[0].loss == 1.825991);
  CHECK(std::isnan(*run.log->steps[1].loss));
  CHECK(has(error_of([&] { import_log(path, "torchtitan"); }),
            "is a log of Megatron-LM, not of torchtitan; write import megatron-log instead"));
}

TEST_CASE("A trace that is imported keeps every nanosecond; starts count from its first action") {
  const Scratch scratch;
  const ImportedRun run = parse_run_file(run_yaml(import_kineto(scratch.write("t.json", kTrace))), "run.yaml");
  REQUIRE(run.trace);
  CHECK(run.trace->on_device);
  CHECK(run.trace->rank == 3);
  CHECK(run.trace->other_actions == 1);
  REQUIRE(run.trace->actions.size() == 2);
  CHECK(run.trace->actions[0].start == Time{0});
  CHECK(run.trace->actions[0].duration == Time{21'000'125});
  CHECK(run.trace->actions[0].process == 7);
  CHECK(run.trace->actions[1].kind == 'B');
  CHECK(run.trace->actions[1].start == Time{50'000'000});
}

TEST_CASE("What is wrong with a run file is said with line, column and a way out") {
  CHECK(has(run_error(""), "run.yaml"));
  CHECK(has(run_error(kHead), "has neither log nor trace nor kernels"));
  CHECK(has(run_error("schema: pipewright.run/2\nsource: {format: x, file: y}\nlog: {steps: [{number: 1}]}\n"),
            "run.yaml:1:9: schema: \"pipewright.run/2\" is no schema of runs"));
  CHECK(has(run_error(kHead + "log: {steps: []}\n"), "run.yaml:3:14: log.steps: 0 steps"));
  CHECK(has(run_error(kHead + "log: {steps: [{number: 2}, {number: 2}]}\n"),
            "run.yaml:3:28: log.steps.1: step 2 behind step 2"));
  CHECK(has(run_error(kHead + "log: {steps: [{number: 2, time: 5}]}\n"), "run.yaml:3:33: log.steps.0.time: \"5\""));
  CHECK(has(run_error(kHead + "log: {steps: [{number: 2, time: 0 s}]}\n"), "must be more than 0"));
  CHECK(has(run_error(kHead + "trace: {on_device: true, actions: [0F0 at 1 ms]}\n"),
            "run.yaml:3:36: trace.actions.0: \"0F0 at 1 ms\" is no action; write e.g. 0F3 at 0 ns for 21 ms"));
  CHECK(has(run_error(kHead + "kernels: [{name: a, calls: 0, total: 1 s}]\n"), "kernels.0.calls"));
  const Scratch scratch;
  CHECK(has(message_of([&] { read_scenario(scratch.write("x.yaml", kHead + "log: {steps: [{number: 1}]}\n")); },
                       scratch.path("")),
            "this is a run that was measured, not a scenario; put it next to one: pipewright validate SCENARIO"));
}

TEST_CASE("A run file holds so much; what is larger says what to do instead") {
  ImportedRun run{.source = {.file = "run.log", .format = "Megatron-LM"}};
  run.log.emplace().steps.resize(kMostRunSteps + 1);
  CHECK(has(error_of([&] { run_yaml(run); }),
            "run.log: has 50001 steps, and a run file holds 50000 at most; give validate --log the log itself"));
}

TEST_CASE("nsys: ranges of any domain are actions, times of the device where they are projected") {
  const ImportedRun device = nsys(
      "Processing [x.sqlite]...\n\nName,Projected Start (ns),Projected Duration (ns),Orig Start (ns),Style,PID\n"
      ":PP:0F0,1000,500,900,PushPop,101\n\"torch:PP:0B0\",2000,1500,1,PushPop,101\nNone,1,2,None,None,101\n"
      "my PP:0F1,3,4,5,PushPop,101\n:PP:0SEND_F0,5,6,7,PushPop,101\n");
  REQUIRE(device.trace);
  CHECK(device.trace->on_device);
  CHECK(device.trace->other_actions == 1);
  REQUIRE(device.trace->actions.size() == 2);
  CHECK(device.trace->actions[1].duration == Time{1500});
  CHECK(device.trace->actions[1].process == 101);
  const ImportedRun host = nsys("Start (ns),End (ns),Name,PID\n10,30,PP:1F0,7\n");
  CHECK_FALSE(host.trace->on_device);
  CHECK(host.trace->actions[0].duration == Time{20});
  const ImportedRun half = nsys("Start (ns),End (ns),Projected Start (ns),Name,PID\n10,30,15,PP:1F0,7\n");
  CHECK_FALSE(half.trace->on_device);  // the device's times are there by half
  CHECK(half.trace->actions[0].duration == Time{20});
  const ImportedRun marked = nsys("\xef\xbb\xbfName,Start (ns),End (ns)\nPP:1F0,10,30\n");
  CHECK(marked.trace->actions[0].duration == Time{20});
}

TEST_CASE("nsys: sums of kernels, longest first; quotes hold commas, quotes and line ends") {
  const ImportedRun run = nsys(
      "Time (%),Total Time (ns),Instances,Avg "
      "(ns),Name\r\n1.0,100,1,100.0,gemm\r\n99.0,28918591,5,5783718.2,\"burn(float "
      "*, \"\"a\"\"\nb)\"\r\n");
  REQUIRE(run.kernels.size() == 2);
  CHECK(run.kernels[0].name == "burn(float *, \"a\" b)");
  CHECK(run.kernels[0].calls == 5);
  CHECK(run.kernels[0].total == Time{28'918'591});
  CHECK(parse_run_file(run_yaml(run), "r.yaml").kernels[0].name == run.kernels[0].name);
}

TEST_CASE("nsys: of more kernels than a run file holds the longest are kept, and those dropped are counted") {
  std::string text = "Total Time (ns),Instances,Name\n";
  const std::size_t all = 2 * kMostRunKernels + 5;  // beyond what is held at once
  for (std::size_t i = 1; i <= all; ++i)            // the longest last
    text += std::to_string(i) + ",1,k" + std::to_string(i) + "\n";
  const ImportedRun run = nsys(text);
  REQUIRE(run.kernels.size() == kMostRunKernels);
  CHECK(run.kernels.front().total == Time{static_cast<std::int64_t>(all)});
  CHECK(run.kernels.back().total == Time{static_cast<std::int64_t>(all - kMostRunKernels + 1)});
  const auto& assumed = run.source.assumed;
  CHECK(std::count(assumed.begin(), assumed.end(), "of 40005 kernels the 20000 longest are kept") == 1);
}

TEST_CASE("What is wrong with a report of nsys is said with its line and a way out") {
  CHECK(has(nsys_error(""), "r.csv: is empty"));
  CHECK(has(nsys_error("a,b\n1,2\n"), "r.csv: has no header with a column Name"));
  const bool without = store_status().starts_with("no");
  CHECK(has(nsys_error(std::string("SQLite format 3\0x", 17)),
            without ? "and this pipewright was built without SQLite; install it (Debian: libsqlite3-dev)"
                    : "r.csv: is no sound export ("));
  CHECK(has(nsys_error("Name,Start\nx,1\n"), "r.csv:1:1: a header without times in ns"));
  CHECK(has(nsys_error("Name,Start (ns),Duration (ns)\nx,1,2\n"), "has no range such as \"PP:0F3\""));
  CHECK(has(nsys_error("Name,Start (ns),Duration (ns)\nPP:0F0,1\n"), "r.csv:2:1: has 2 fields, the header has 3"));
  CHECK(has(nsys_error("Name,Start (ns),Duration (ns)\nPP:0F0,None,2\n"),
            "r.csv:2:1: Start (ns): \"None\" is no number"));
  CHECK(has(nsys_error("Name,Start (ns),End (ns)\nPP:0F0,5,2\n"), "r.csv:2:1: an action that ends before it starts"));
  CHECK(has(nsys_error("Name,Start (ns),Duration (ns)\n\"PP:0F0,1,2\n"), "r.csv:2:1: a quote that never ends"));
  CHECK(has(nsys_error("Time (%),Total Time (ns),Instances,Name\n1,5,0,a\n"),
            "r.csv:2:1: Instances: \"0\" is no number of calls"));
}
