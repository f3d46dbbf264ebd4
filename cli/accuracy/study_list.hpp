// Which runs a study of the accuracy on GPUs is made of: the scenarios under scenarios/gpu, one after the other, each
// in the variants of its block `vary:`. The order is fixed.
//
// In a dry run every scenario becomes one that any machine can run: backend cpu, precision fp32, the model NAME-small
// instead of NAME, few steps, a small memory cap.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/scenario_file.hpp"

namespace pipewright {

// One run; of part 5 one search for the largest number of layers.
struct StudyItem {
  int part = 0;
  std::string name;  // "pipeline-k4-m16-1f1b", unique
  std::shared_ptr<const ScenarioFile> file;
  int changes = -1;  // of the file's variants
  Scenario scenario;

  // The scenario with one more change: its whole number `key` is `value`.
  Scenario with(const std::string& key, std::int64_t value) const;
};

struct StudyListOptions {
  std::vector<std::string> set;  // --set, of every scenario
  bool dry_run = false;
};

// Throws InputError: a scenario that cannot be read, two of one name.
std::vector<StudyItem> study_items(const StudyListOptions& options);

// Whose products a run takes: "own", or "library" for cuBLASLt's.
std::string kernels_of(const Scenario& scenario);

// The whole number that part 5 grows.
inline const std::string kLayersKey = "model.layers.1.repeat";

}  // namespace pipewright
