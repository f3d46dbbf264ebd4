// What a training framework prints step by step: Megatron-LM [MegatronLog26], torchtitan [torchtitanLog26].
//
//   Megatron-LM  [2024-04-06 02:59:36] iteration 43/ 100 | consumed samples: 5504 | elapsed time per iteration (ms):
//   5444.9 |
//                throughput per GPU (TFLOP/s/GPU): 239.8 | global batch size: 128 | lm loss: 1.825991E+00 | ...
//                [Rank 0] (after 2 iterations) memory (MB) | allocated: .. | max allocated: .. | reserved: .. | max
//                reserved: ..
//   torchtitan   [rank0]:[titan] 2025-06-16 22:30:50,322 - root - INFO - step: 200  loss:  6.1384
//   memory: 49.66GiB(52.28%)
//                tps: 5,856  tflops: 339.16  mfu: 34.29%
//
// Everything else in the file is passed over; colours (escape sequences) are taken out. Of several lines of one step
// (ranks, a restart) the slowest time, the most memory and the largest loss count: ranks that do not have the loss
// print -1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.hpp"
#include "core/units.hpp"

namespace pipewright::io {

struct LoggedStep {
  std::int64_t number = 0;
  Place place;                                // of its first line
  std::optional<Time> time;                   // Megatron-LM: of an iteration, the mean since the line before
  std::optional<double> tokens_per_s_device;  // torchtitan's tps: tokens of the batch / (time * devices)
  std::optional<double> flop_rate_device;     // FLOP/s of a device, by the framework's own count
  std::optional<double> loss;
  std::optional<std::int64_t> global_batch_size;
};

struct TrainingLog {
  std::string file, format;            // "Megatron-LM", "torchtitan"
  std::vector<LoggedStep> steps;       // by number, each once
  std::optional<Bytes> max_allocated;  // of the fullest rank that says so
  std::optional<Bytes> max_reserved;   // by its caching allocator; without context and libraries
  std::string layout;     // as Megatron-LM prints it: "world size: 64, data-parallel size: 4, ..."; "": not
  std::string synthetic;  // its first line, where that is a comment which says so; "": it says no such thing
};

// What such a line says of the run.
struct LoggedLayout {
  std::optional<std::int64_t> devices, data_parallel, tensor_parallel, pipeline_parallel;
};
LoggedLayout logged_layout(std::string_view line);

// Text or gzip; "-": standard input. Throws InputError naming file and line: an empty file, one without lines of steps,
// lines of both frameworks, a figure that is none, a line that is cut off.
TrainingLog read_training_log(const std::string& path);

}  // namespace pipewright::io
