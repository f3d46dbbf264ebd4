// Bytes of a log or trace, piece by piece, unpacked where the file is gzip: neither has to fit in memory. A UTF-8
// byte-order mark at the head of the text is skipped.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/check.hpp"
#include "io/read/read_file.hpp"

namespace pipewright::io {

// Unpacked bytes that are read of one file at most: about 40 s of JSON, and the end of a file that unpacks without one.
constexpr std::int64_t kLargestImport = std::int64_t{4} << 30;

class ByteSource {
 public:
  // "-": standard input. Several gzip members behind one another are one text, as gunzip has it.
  explicit ByteSource(const std::string& path);
  ~ByteSource();

  // The next byte, or -1 at the end. Throws InputError with file and byte where gzip data are damaged or end early, and
  // beyond kLargestImport.
  int next() {
    if (at_ == end_ && !fill()) return -1;
    const char byte = *at_++;
    if (byte == '\n') ++line_, line_begin_ = before_ + (at_ - begin_);
    return static_cast<unsigned char>(byte);
  }

  const std::string& name() const { return file_.name(); }
  std::int64_t bytes() const { return before_ + (at_ - begin_); }  // read so far
  Place place() const;  // line, and byte within it (column), of the byte that was read last

 private:
  class Gunzip;
  bool fill();
  std::size_t unpacked(std::size_t from);

  FilePieces file_;
  std::string packed_, plain_;
  std::unique_ptr<Gunzip> gunzip_;
  const char *begin_ = nullptr, *at_ = nullptr, *end_ = nullptr;
  std::int64_t before_ = 0;  // bytes of the pieces before this one
  std::int64_t line_ = 1, line_begin_ = 0;
  bool opened_ = false, ended_ = false;
};

}  // namespace pipewright::io
