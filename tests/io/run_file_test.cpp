// Measured runs as files of their own.
#include "io/import/run_file.hpp"

#include <cmath>

#include <doctest/doctest.h>

#include "io/store/sha256.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/input_error.hpp"
#include "tests/support/texts.hpp"

using namespace pipewright::tests;

namespace {

// Written by hand, in the formats of the programs named.
const std::string kTwoIterations =
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
const std::string kRunHead = "schema: pipewright.run/1\nsource: {format: x, file: y}\n";

std::string run_error(const std::string& text) {
  return error_of([&] { parse_run_file(text, "run.yaml"); });
}

}  // namespace

TEST_CASE("A log that is imported reads as the log itself does, with its digest, and what was not in it") {
  const Scratch scratch;
  const std::string path = scratch.write("run.log", kTwoIterations),
                    file = scratch.write("run.yaml", run_yaml(import_log(path, "Megatron-LM")));
  CHECK(is_run_file(file));
  CHECK_FALSE(is_run_file(path));
  CHECK_FALSE(is_run_file(scratch.path("none")));
  CHECK(is_run_file(scratch.write("marked.yaml", "\xef\xbb\xbf" + kRunHead)));
  const ImportedRun run = read_run_file(file);
  const TrainingLog direct = read_training_log(path);
  CHECK(run.source.sha256 == sha256(kTwoIterations));
  CHECK(run.source.bytes == static_cast<std::int64_t>(kTwoIterations.size()));
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
  CHECK(contains(error_of([&] { import_log(path, "torchtitan"); }),
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
  CHECK(contains(run_error(""), "run.yaml"));
  CHECK(contains(run_error(kRunHead), "has neither log nor trace"));
  CHECK(contains(run_error("schema: pipewright.run/2\nsource: {format: x, file: y}\nlog: {steps: [{number: 1}]}\n"),
                 "run.yaml:1:9: schema: \"pipewright.run/2\" is not a schema of runs"));
  CHECK(contains(run_error(kRunHead + "log: {steps: []}\n"), "run.yaml:3:14: log.steps: 0 steps"));
  CHECK(contains(run_error(kRunHead + "log: {steps: [{number: 2}, {number: 2}]}\n"),
                 "run.yaml:3:28: log.steps.1: step 2 behind step 2"));
  CHECK(contains(run_error(kRunHead + "log: {steps: [{number: 2, time: 5}]}\n"),
                 "run.yaml:3:33: log.steps.0.time: \"5\""));
  CHECK(contains(run_error(kRunHead + "log: {steps: [{number: 2, time: 0 s}]}\n"), "must be more than 0"));
  CHECK(contains(run_error(kRunHead + "trace: {on_device: true, actions: [0F0 at 1 ms]}\n"),
                 "run.yaml:3:36: trace.actions.0: \"0F0 at 1 ms\" is not an action; write e.g. 0F3 at 0 ns for 21 ms"));
  const Scratch scratch;
  CHECK(contains(message_of([&] { read_scenario(scratch.write("x.yaml", kRunHead + "log: {steps: [{number: 1}]}\n")); },
                            scratch.path("")),
                 "this is a run that was measured, not a scenario; put it next to one: pipewright validate SCENARIO"));
}

TEST_CASE("A run file holds so much; what is larger says what to do instead") {
  ImportedRun run{.source = {.file = "run.log", .format = "Megatron-LM"}};
  run.log.emplace().steps.resize(kMostRunSteps + 1);
  CHECK(contains(error_of([&] { run_yaml(run); }),
                 "run.log: has 50001 steps, and a run file holds 50000 at most; give validate --log the log itself"));
}
