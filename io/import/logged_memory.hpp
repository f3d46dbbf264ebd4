// What frameworks print of PyTorch's allocator, in bytes per rank:
//
//   Megatron-LM  [Rank 0] (after 2 iterations) memory (MB) | allocated: 26571.5 | max allocated: 28965.4 | reserved: .. |
//                max reserved: 29816.0                      megabytes of 2^20 bytes
//                ... | mem-allocated-gigabytes: 63.66 | mem-max-allocated-gigabytes: 153.4 | ...   gigabytes of 10^9
//   nanotron     Memory usage: 1234.50MiB. Peak allocated 5678.90MiB. Peak reserved: 7890.00MiB      usage is that in the
//                middle of a step: it is not taken
//   torchtitan   step: 12  loss: ..  memory: 49.66GiB(52.28%)  ...                the most that was reserved
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/check.hpp"
#include "core/units.hpp"

namespace pipewright::io {

inline constexpr double kMebi = 1024.0 * 1024;
inline constexpr std::size_t kLongestLogLine = std::size_t{1} << 20;

struct LoggedMemory {
  std::optional<Bytes> held, allocated, reserved;  // now (between steps), at the peak, by the allocator at the peak
  Place place;                                     // of the line
};

// Of one line; a figure that is none is passed over.
LoggedMemory memory_of_line(std::string_view line);

// Of the line with the most that was allocated, or where none says that, reserved: ranks differ, and what one of them
// holds belongs together. Text or gzip. Throws InputError naming the file where no line says anything of memory.
LoggedMemory read_logged_memory(const std::string& path);

}  // namespace pipewright::io
