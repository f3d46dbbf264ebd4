// Logs and traces of others. All of them are written by hand here, in the formats of their frameworks: no run made
// them.
#include <doctest/doctest.h>

#include "io/import/kineto.hpp"
#include "io/import/logged_memory.hpp"
#include "io/import/training_log.hpp"
#include "io/writers/writers.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/input_error.hpp"
#include "tests/support/texts.hpp"

using namespace pipewright::tests;

namespace {

// Written by hand: Megatron-LM's lines, a step of two ranks, and what else a log holds.
const std::string kMegatron =
    "using world size: 4, data-parallel size: 1, iteration counts\n"
    " [2026-01-02 10:00:00] iteration        1/     100 | consumed samples:           64 | elapsed time per iteration "
    "(ms): 5444.9 | throughput per GPU (TFLOP/s/GPU): 1.8 | learning rate: 8.6E-06 | global batch size:    64 | lm "
    "loss: "
    "1.825991E+00 | loss scale: 1.0 | grad norm: 1.426 | number of skipped iterations:   0 |\n"
    "[Rank 0] (after 1 iterations) memory (MB) | allocated: 800.5 | max allocated: 1024.0 | reserved: 1500.0 | max "
    "reserved: 2048.0\n"
    "[Rank 3] (after 1 iterations) memory (MB) | allocated: 800.5 | max allocated: 512.0 | reserved: 1500.0 | max "
    "reserved: 4096.0\n"
    " iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 36.125/40.0 | "
    "global "
    "batch size:    64 | lm loss: NAN |\n"
    " iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 36.0 | global "
    "batch "
    "size:    64 | lm loss: 1.5 |\n";

// Written by hand: torchtitan's lines, one in colours, one of its validation loop.
const std::string kTitan =
    "[rank0]:[titan] 2026-01-02 10:00:00,000 - root - INFO - Training starts at step 1\n"
    "[rank0]:[titan] 2026-01-02 10:00:01,000 - root - INFO - step:  1  loss:  8.1661  grad_norm:  3.6855  memory:  "
    "2.50GiB(3.12%)  tps: 3,502  tflops: 1.90  mfu: 0.19%\n"
    "[rank3]:[titan] 2026-01-02 10:00:01,000 - root - INFO - step:  1  loss: -1.0000  memory:  3.00GiB(3.12%)  tps: "
    "3,500 "
    " tflops: 1.90  mfu: 0.19%\n"
    "\x1b[31mstep: 10  \x1b[32mloss:  6.1098  \x1b[38;2;180;60;0mmemory:  2.49GiB(3.14%)  \x1b[34mtps: 177,138  "
    "\x1b[36mtflops: 96.17  \x1b[35mmfu: 9.72%\x1b[0m\n"
    "[titan] - root - INFO - validate step: 10  loss:  5.0  memory:  9.99GiB(3.14%)  tps: 1\n";

std::string event(const std::string& name, const std::string& ts, const std::string& dur,
                  const std::string& category = "user_annotation") {
  return R"({"ph": "X", "cat": ")" + category + R"(", "name": ")" + name + R"(", "pid": 7, "tid": 7, "ts": )" + ts +
         R"(, "dur": )" + dur + R"(, "args": {"name": "PP:9F9", "External id": 1, "list": [1, {"ts": 5}]}})";
}

// Written by hand: the skeleton of a trace of torch.profiler.
std::string trace_of(const std::string& events) {
  return R"({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "x", "ts": 1}], "distributedInfo": {"backend": )"
         R"("nccl", "rank": 3, "world_size": 4}, "displayTimeUnit": "ms", "traceEvents": [)" +
         events + R"(], "traceName": "rank3.json"})";
}

struct Files {
  Scratch scratch;
  std::string log(const std::string& text) { return scratch.write("run.log", text); }
  std::string trace(const std::string& text) { return scratch.write("trace.json", text); }
};

std::string without_folder(const std::string& message) {
  return message.substr(message.rfind('/', message.find(": ")) + 1);
}

std::string log_error(const std::string& text) {
  Files files;
  return without_folder(error_of([&] { read_training_log(files.log(text)); }));
}

std::string trace_error(const std::string& text) {
  Files files;
  return without_folder(error_of([&] { read_action_trace(files.trace(text)); }));
}

}  // namespace

TEST_CASE("Megatron-LM's steps: the slowest line of a step, the most memory of all ranks, in its megabytes of 2^20") {
  Files files;
  const TrainingLog log = read_training_log(files.log(kMegatron));
  CHECK(log.format == "Megatron-LM");
  REQUIRE(log.steps.size() == 2);
  CHECK(log.steps[0].time == Time{5'444'900'000});
  CHECK(log.steps[0].flop_rate_device == 1.8e12);
  CHECK(log.steps[0].loss == 1.825991);
  CHECK(log.steps[0].place.line == 2);
  CHECK(log.steps[1].time == Time{36'125'000});
  CHECK(log.steps[1].global_batch_size == 64);
  CHECK(log.max_allocated == Bytes{std::int64_t{1} << 30});
  CHECK(log.max_reserved == Bytes{std::int64_t{4} << 30});
}

TEST_CASE("torchtitan's steps, in colours too; steps of its validation loop are none") {
  Files files;
  const TrainingLog log = read_training_log(files.log(kTitan));
  CHECK(log.format == "torchtitan");
  REQUIRE(log.steps.size() == 2);
  CHECK(log.steps[0].tokens_per_s_device == 3500);
  CHECK(log.steps[0].loss == 8.1661);
  CHECK(log.steps[1].number == 10);
  CHECK(log.steps[1].tokens_per_s_device == 177138);
  CHECK_FALSE(log.steps[1].time);
  CHECK(log.max_reserved == Bytes{std::int64_t{3} << 30});
}

TEST_CASE("A log in gzip, in two members behind one another, reads as its text does") {
  Files files;
  const std::size_t half = kMegatron.size() / 2;
  const std::string packed = gzip(kMegatron.substr(0, half)) + gzip(kMegatron.substr(half));
  const TrainingLog log = read_training_log(files.log(packed));
  CHECK(log.steps.size() == 2);
  CHECK(log.steps[1].time == Time{36'125'000});
}

TEST_CASE("Zeros behind gzip data, as tapes and some copiers add them, are not damage; anything else there is") {
  Files files;
  const std::string packed = gzip(kMegatron);
  for (const std::size_t zeros : {1, 512, 200'000})  // more than is read at once
    CHECK(read_training_log(files.log(packed + std::string(zeros, '\0'))).steps.size() == 2);
  for (const std::string& behind :
       {std::string("garbage"), std::string(512, '\0') + "garbage", std::string(512, '\0') + gzip(kMegatron)})
    CHECK(contains(log_error(packed + behind), "of the gzip data: something that is not gzip data follows them"));
}

TEST_CASE("What is wrong with a log is said with its line and a way out") {
  CHECK(log_error("") == "run.log: is empty; name the log of a run");
  CHECK(contains(log_error("hello\nworld\n"), "run.log: no line of a step in 2 lines; expected are Megatron-LM's"));
  const std::string cut = kMegatron.substr(0, kMegatron.find("36.0 |") + 2);
  CHECK(log_error(cut) == "run.log:6:1: the last line is cut off; take it out, e.g. with head -n -1");
  CHECK(contains(log_error(kMegatron + kTitan), "run.log:8:1: a step of torchtitan behind those of Megatron-LM"));
  CHECK(contains(log_error(" iteration 2/ 100 | elapsed time per iteration (ms): soon |\n"),
                 "run.log:1:1: elapsed time per iteration (ms): \"soon\" is not a time above 0"));
  CHECK(contains(log_error("step: 1 loss: 2 memory: 1GiB(1%) tps: \n"), "run.log:1:1: tps has no figure"));
  CHECK(contains(log_error(std::string(2 << 20, 'x')), "run.log:1:1: a line of more than 1 MiB"));
}

TEST_CASE(
    "Actions of a trace: PyTorch's names, microseconds to whole nanoseconds, the rank, nothing from within args") {
  Files files;
  const ActionTrace trace = read_action_trace(files.trace(
      trace_of(event("PP:0F3", "1700000000000000.250", "21000.125") + "," + event("PP:12B0", "1700000000000000", "5") +
               "," + event("PP:0SEND_F3", "1", "2") + "," + event("PP:(0F1;1B0)OVERLAP_F_B", "1", "2") + "," +
               event("aten::mm", "1", "2") + R"(,{"ph": "M", "name": "process_name", "pid": "Spans"})")));
  CHECK(trace.rank == 3);
  CHECK_FALSE(trace.on_device);
  CHECK(trace.other_actions == 2);
  REQUIRE(trace.actions.size() == 2);
  CHECK(trace.actions[0].kind == 'B');  // by start
  CHECK(trace.actions[0].stage == 12);
  CHECK(trace.actions[1].start == Time{1'700'000'000'000'000'250});
  CHECK(trace.actions[1].duration == Time{21'000'125});
  CHECK(trace.actions[1].micro_batch == 3);
  CHECK(trace.actions[1].process == 7);
}

TEST_CASE("Where a trace has times of the device, those of the host are left out") {
  Files files;
  const std::string events = event("PP:0F0", "1", "10") + "," + event("PP:0F0", "5", "30", "gpu_user_annotation");
  const ActionTrace trace = read_action_trace(files.trace(gzip(trace_of(events))));
  CHECK(trace.on_device);
  REQUIRE(trace.actions.size() == 1);
  CHECK(trace.actions[0].duration == Time{30'000});
  CHECK(read_action_trace(files.trace("[" + events + "]")).actions.size() == 1);  // a bare list of events
}

// Two streams in one action from 5 to 35 us, the second step of it at 100; another action's in between.
TEST_CASE("Marks of one action on several streams are one action; a later step's is another") {
  Files files;
  const std::string gpu = "gpu_user_annotation";
  const std::string events = event("PP:0F0", "5", "20", gpu) + "," + event("PP:0F1", "8", "4", gpu) + "," +
                             event("PP:0F0", "10", "25", gpu) + "," + event("PP:0F0", "100", "30", gpu);
  const ActionTrace trace = read_action_trace(files.trace(trace_of(events)));
  REQUIRE(trace.actions.size() == 3);
  CHECK(trace.actions[0].start == Time{5'000});
  CHECK(trace.actions[0].duration == Time{30'000});
  CHECK(trace.actions[1].micro_batch == 1);
  CHECK(trace.actions[2].start == Time{100'000});
}

TEST_CASE("What is wrong with a trace is said with its line, byte and a way out") {
  const std::string good = trace_of(event("PP:0F0", "1", "10") + ",\n" + event("PP:0B0", "5", "30"));
  CHECK(trace_error("") == "trace.json: is empty; name a trace of PyTorch's profiler");
  CHECK(contains(trace_error("iteration 1"), "trace.json:1:"));
  CHECK(contains(trace_error("iteration 1"), "no JSON at "));
  CHECK(contains(trace_error(good.substr(0, good.find("PP:0B0") + 3)),
                 "trace.json:2:50: the JSON ends early, behind 1 action of a pipeline"));
  CHECK(contains(trace_error("{\"a\": 1}"), "trace.json: has no list of events"));
  CHECK(contains(trace_error(trace_of(event("aten::mm", "1", "2"))), "trace.json: has no action of a pipeline"));
  CHECK(contains(trace_error(trace_of(event("PP:0F0", "-1", "2"))), "the event \"PP:0F0\" lacks ts or dur"));
  CHECK(contains(trace_error(trace_of(event("PP:0F0", "1e300", "2"))), "the event \"PP:0F0\""));
  CHECK(contains(trace_error(std::string(600, '[')), "values are more than 512 deep"));
  CHECK(contains(trace_error(std::string(20 << 20, ' ')), "no value for 16 MiB"));
  CHECK(contains(trace_error("{\"a\": \"" + std::string(20 << 20, 'x')), "no value for 16 MiB"));
}

TEST_CASE("A byte-order mark at the head of a log or trace is skipped, packed or not, and columns count behind it") {
  Files files;
  const std::string mark = "\xef\xbb\xbf";
  const std::string first = " iteration 1/ 9 | elapsed time per iteration (ms): 36.0 | global batch size: 64 |\n";
  for (const std::string& text : {mark + first, gzip(mark + first)})
    CHECK(read_training_log(files.log(text)).steps.at(0).time == Time{36'000'000});
  const std::string trace = trace_of(event("PP:0F0", "1", "10"));
  for (const std::string& text : {mark + trace, gzip(mark + trace)})
    CHECK(read_action_trace(files.trace(text)).actions.size() == 1);
  CHECK(trace_error(mark + "iteration 1") == trace_error("iteration 1"));
}

TEST_CASE("Hostile gzip data end in an error that names the byte, and never in more than they unpack to") {
  const std::string good = gzip(trace_of(event("PP:0F0", "1", "10")));
  CHECK(contains(trace_error(good.substr(0, good.size() - 9)), "of the gzip data: they end before their stream does"));
  std::string damaged = good;
  damaged[good.size() - 6] = static_cast<char>(damaged[good.size() - 6] ^ 1);  // the checksum
  CHECK(contains(trace_error(damaged), "of the gzip data: they are damaged"));
  CHECK(contains(trace_error(gzip(std::string(64 << 20, ' '))), "no value for 16 MiB"));  // 64 kB that unpack to 64 MiB
  CHECK(contains(trace_error("\x1f\x8b"), "of the gzip data"));
}

TEST_CASE("memory of a log: what each framework prints, in bytes") {
  const LoggedMemory megatron = memory_of_line(
      "[Rank 0] (after 2 iterations) memory (MB) | allocated: 1.5 | max allocated: 2.0 | reserved: 2.5 | max reserved: "
      "3.0");
  CHECK(megatron.held == Bytes{3 << 19});
  CHECK(megatron.allocated == Bytes{2 << 20});
  CHECK(megatron.reserved == Bytes{3 << 20});
  const LoggedMemory newer = memory_of_line(
      "[Rank 1] memory (GB) | mem-allocated-gigabytes: 63.66 | mem-max-allocated-gigabytes: 153.4 | "
      "mem-max-reserved-gigabytes: 182.2 | mem-alloc-retires: 0");
  CHECK(newer.held == Bytes{63'660'000'000});
  CHECK(newer.allocated == Bytes{153'400'000'000});
  CHECK(newer.reserved == Bytes{182'200'000'000});
  const LoggedMemory nanotron =
      memory_of_line(" Memory usage: 1.50MiB. Peak allocated 2.00MiB. Peak reserved: 3.00MiB");
  CHECK_FALSE(nanotron.held);  // printed in the middle of a step
  CHECK(memory_of_line("Memory usage: 0.04MiB. Peak allocated: 2.00MiB Peak reserved: 3.00MiB").allocated ==
        megatron.allocated);
  CHECK(nanotron.allocated == megatron.allocated);
  CHECK(nanotron.reserved == megatron.reserved);
  const LoggedMemory titan = memory_of_line("step: 12  loss:  8.1  memory:  2.50GiB(3.12%)  tps: 3,502");
  CHECK(titan.reserved == Bytes{std::int64_t{5} << 29});
  CHECK_FALSE(titan.allocated);
  CHECK_FALSE(memory_of_line("memory: 2.50 of 80").reserved);
  CHECK_FALSE(memory_of_line("| max allocated: none |").allocated);
}

TEST_CASE("memory of a log: of the rank with the most, whose figures belong together") {
  Files files;
  const LoggedMemory most =
      read_logged_memory(files.log("memory (MB) | allocated: 3.0 | max allocated: 4.0 | max reserved: 9.0\n"
                                   "noise\n"
                                   "memory (MB) | allocated: 2.0 | max allocated: 5.0 | max reserved: 6.0\n"));
  CHECK(most.held == Bytes{2 << 20});
  CHECK(most.reserved == Bytes{6 << 20});
  CHECK(most.place.line == 3);
  CHECK(without_folder(error_of([&] {
          read_logged_memory(files.log("hello\n"));
        })).starts_with("run.log: no line says what memory was allocated or reserved; expected are Megatron-LM's"));
}
