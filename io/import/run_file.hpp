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
#include <vector>

#include "io/import/import_source.hpp"
#include "io/import/kineto.hpp"
#include "io/import/training_log.hpp"

namespace pipewright {

// Steps and actions that a run file holds at most: 8 MiB of YAML.
constexpr std::size_t kMostRunSteps = 50'000, kMostRunActions = 100'000;

struct ImportedRun {
  ImportSource source;
  std::optional<TrainingLog> log;
  std::optional<ActionTrace> trace;
};

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

}  // namespace pipewright
