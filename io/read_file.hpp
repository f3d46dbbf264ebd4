// A whole input file as text, whatever the path turns out to be.
#pragma once

#include <cstddef>
#include <string>

namespace pipewright {

constexpr std::size_t kLargestInput = std::size_t{8} << 20;

// "-": standard input. Ordinary pipes are read to their end. Refuses, without waiting: directories, devices, sockets, a
// FIFO without a writer, and anything over `limit`. Throws InputError with the path and a way out.
std::string read_file(const std::string& path, std::size_t limit = kLargestInput);

}  // namespace pipewright
