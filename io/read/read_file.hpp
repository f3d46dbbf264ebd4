// A whole input file as text, whatever the path turns out to be.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "core/rooms.hpp"

namespace pipewright::io {

constexpr std::size_t kLargestInput = std::size_t{8} << 20;

// "-": standard input. Ordinary pipes are read to their end. Refuses, without waiting: directories, devices, sockets, a
// FIFO without a writer, and anything over `limit`. Throws InputError with the path and a way out.
// A UTF-8 byte-order mark at its head is no part of the text: tests/io/read_file_test.cpp "A byte-order mark".
std::string read_file(const std::string& path, std::size_t limit = kLargestInput);

// The same file byte by byte, its mark too: what `sha256sum` reads.
std::string read_bytes(const std::string& path, std::size_t limit = kLargestInput);

// The same bytes piece by piece, for what may be larger than memory.
class FilePieces {
 public:
  explicit FilePieces(const std::string& path);
  ~FilePieces();
  std::size_t read(std::span<char> room);  // how many bytes; 0: the end
  const std::string& name() const { return name_; }

 private:
  class File;
  std::string name_;  // as messages call it
  std::unique_ptr<File> file_;
};

}  // namespace pipewright::io
