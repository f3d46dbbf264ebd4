// What an imported file was: every file that `import` writes says where its figures come from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipewright {

// Beyond this a file is told by its size and date alone: reading a trace of a gigabyte twice takes seconds.
constexpr std::int64_t kLargestHashed = std::int64_t{64} << 20;

struct ImportSource {
  std::string file;                  // its name without folders; "standard input"
  std::string format;                // "Megatron-LM log", "trace of PyTorch's profiler"
  std::string tool;                  // who imported it
  std::string dated;                 // when it was last changed, "2026-11-22" (UTC); "": a pipe
  std::string sha256;                // "": a pipe, or larger than kLargestHashed
  std::int64_t bytes = -1;           // -1: a pipe
  std::string synthetic;             // what the file says of itself where no run made it; "": it does not
  std::vector<std::string> assumed;  // what a reader should look over, a line each
  std::vector<std::string> absent;   // what the file does not say
};

// Of a file that can be read. Throws InputError.
ImportSource source_of(const std::string& path, const std::string& format);

// As lines of a comment.
std::string as_comment(const ImportSource& source);

}  // namespace pipewright
