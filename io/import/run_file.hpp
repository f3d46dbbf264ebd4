// A run that was measured elsewhere, as a file of its own: what `import megatron-log`, `torchtitan-log`, `kineto`
// write, `validate` and `compare` read. Schema "pipewright.run/1" (docs/reference/importing.md):
//
//   schema: pipewright.run/1
//   source: {format: Megatron-LM log, file: run.log, dated: 2026-11-22, bytes: 51234, sha256: ..., tool: ...}
//   log:
//     max_allocated: 62.5 GiB
//     steps:
//       - {number: 1, time: 5444.9 ms, global_batch_size: 64, loss: 1.82}
//   trace:
//     actions:
//       - 0F3 at 0 ns for 21000.125 us on 7          # forward of micro-batch 3 on stage 0, of process 7
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/import/kineto.hpp"
#include "io/import/training_log.hpp"

namespace pipewright::io {

// Above this size a file is identified by its size and date alone: reading a trace of a gigabyte twice takes seconds.
constexpr std::int64_t kLargestHashed = std::int64_t{64} << 20;
// Steps and actions that a run file holds at most: 8 MiB of YAML.
constexpr std::size_t kMostRunSteps = 50'000, kMostRunActions = 100'000;

// What an imported file was: every file that `import` writes says where its figures come from.
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

struct ImportedRun {
  ImportSource source;
  std::optional<TrainingLog> log;
  std::optional<ActionTrace> trace;
};

// Of a file that can be read. Throws InputError.
ImportSource source_of(const std::string& path, const std::string& format);

// As lines of a comment.
std::string as_comment(const ImportSource& source);

// Logs and traces of others as measured runs: what their readers find, with what was assumed and what is not in them.
// `format`: as TrainingLog has it, "Megatron-LM" or "torchtitan". Throws InputError where the log is of the other.
ImportedRun import_log(const std::string& path, std::string_view format);

// A trace of PyTorch's profiler.
ImportedRun import_kineto(const std::string& path);

// Whether the file says, as the first key, that it is one. A file that cannot be read is none: whoever reads it tells.
bool is_run_file(const std::string& path);

// Reading it back gives the same run, but for starts of actions, which count from the first one. Throws InputError for
// more than a run file holds.
std::string run_yaml(ImportedRun run);

// Throws InputError with one line per error: file:line:column, value, way out.
ImportedRun read_run_file(const std::string& path);
ImportedRun parse_run_file(const std::string& text, const std::string& file);

// The keys of such a file; the first section is the file itself.
struct SectionDoc;
std::vector<SectionDoc> run_file_docs();

}  // namespace pipewright::io
