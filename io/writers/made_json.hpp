// What commands say as JSON whose product is a file: `init`, `import`, `merge`, `launch`.
// docs/reference/command-line.md
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pipewright {

struct StartedScenario {  // by `init`
  std::string file, holds, next;
};
std::string init_json(const StartedScenario& made);  // schema pipewright.init/1

struct ImportedFile {
  std::string format, file, gives;   // "hf", "config.json", "model"
  std::string yaml;                  // what was made of it
  std::vector<std::string> written;  // files
};
// Schema pipewright.import/1. The comments of the YAML, which tell the provenance, are `comments`; what it says is
// `document`, its scalars as YAML has them: numbers, true, false and null, all else text ("312 TFLOP/s").
// Throws InputError where the YAML is too large for one document.
std::string import_json(const ImportedFile& made);

struct MergedSweep {
  std::string database;
  std::vector<std::string> from;
  std::int64_t points = 0, found = 0;
  std::string missing, go_on;  // in words, and the command that makes it whole; "": nothing is missing
};
std::string merge_json(const MergedSweep& merged);  // schema pipewright.merge/1

struct LaunchFile {
  struct Figures {
    double step_time_s = 0, samples_per_s = 0;
  };
  std::string plan, framework;  // the path, "megatron"
  std::string asked, launched;  // the plans in words
  Figures predicted_asked, predicted_launched;
  std::vector<std::string> differences;  // what the framework cannot express
  std::string better_question;           // a command; "": none is known to be better
  std::string shortfall;                 // "": it fits
  std::string memory_warning;            // "": memory is not tight
  std::string text;
  std::vector<std::string> written;
};
std::string launch_json(const LaunchFile& made);  // schema pipewright.launch/1

}  // namespace pipewright
