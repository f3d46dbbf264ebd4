// `reproduce` of scenarios whose `measured:` block names files of runs: each run priced next to its measurement.
#pragma once

#include <string>
#include <vector>

#include "core/answers/expectation.hpp"
#include "io/read/scenario_file.hpp"
#include "io/writers/measured.hpp"
#include "planner/measured.hpp"

namespace pipewright::study {

struct MeasuredSet {
  std::string name;
  const ScenarioFile* file;
};

struct ComparedSets {
  std::vector<MeasuredResult> results;
  std::vector<const MeasuredTable*> tables;  // of the results
  std::vector<std::string> absent;           // of several sets, those whose files are not in the folder
};
// Throws InputError; Interrupted where it is asked to end.
ComparedSets compared_sets(const std::vector<MeasuredSet>& sets, const std::string& folder);

// What the constant for all that the model leaves out would have to be, by these sets; "": they do not say.
std::string left_out_text(const ComparedSets& sets);

// The constants of a set, searched again on the lines that were chosen for that, and these lines.
std::string fit_text(const MeasuredSet& set, const std::string& folder);

}  // namespace pipewright::study
