// A trace of PyTorch's profiler (Kineto), as far as pipelines are in it: PyTorch's schedules wrap every action in an
// annotation "PP:0F3", the forward of micro-batch 3 on (virtual) stage 0 [PyTorchPP26].
//
//   {"schemaVersion": 1, "distributedInfo": {"rank": 3, ...}, "traceEvents": [
//     {"ph": "X", "cat": "user_annotation", "name": "PP:0F3", "pid": 1, "tid": 1, "ts": 1000.250, "dur": 21000.125, ...
//
// ts and dur are microseconds, read as decimal text into whole nanoseconds. "user_annotation" tells when the host
// issued it, "gpu_user_annotation" (and any other category) when the device worked on it. Names without "PP:" are
// taken, too: the traces that `simulate` and `run` write. Files are read by a SAX parser, plain or gzip, so that their
// size does not matter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.hpp"
#include "core/units.hpp"

namespace pipewright::io {

struct TracedAction {
  char kind = 'F';  // PyTorch's: F, B (whole backward), I (gradient of the input), W (of the weights)
  std::int64_t stage = 0, micro_batch = 0;
  Time start, duration;
  std::int64_t process = 0;  // pid: a rank, or for times of the device its device
  int line = 0;              // of the event
};

struct ActionTrace {
  std::string file;
  std::optional<std::int64_t> rank;
  bool on_device = false;             // times of the device; else of the host
  std::vector<TracedAction> actions;  // by start; all of one source: the device's where the file has any
  std::int64_t other_actions = 0;     // "PP:" names that are no such action: sends, receives, overlapped pairs
};

// The action of a name such as "0F3", without times; nothing for any other name.
std::optional<TracedAction> action_named(std::string_view name);

// The profiler marks an action of the device once for each stream that it had work on: marks of one name and process
// that overlap are one action. By start, as they come.
void join_streams(std::vector<TracedAction>& actions);

// Throws InputError naming file, line and byte: an empty file, no JSON, JSON that ends early, a trace without actions,
// times that are none, values deeper or longer than any trace has.
ActionTrace read_action_trace(const std::string& path);

}  // namespace pipewright::io
