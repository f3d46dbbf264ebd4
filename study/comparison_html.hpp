// What `validate` found, as one page: predicted next to measured, both timelines on one scale, the verdict.
#pragma once

#include <string>
#include <vector>

#include "study/attempt.hpp"

namespace pipewright {

// Of one run. `command`: how it was made.
std::string comparison_html(const RunComparison& c, const std::string& command);

// Of several scenarios: the table of all attempts, then each one's timelines. `remarks`: what the study says of them
// together. `profile`: what it was predicted with. Drawings are read from `folder`, where the attempts left them; one
// that is not there (the run failed) is left out.
std::string study_html(const std::vector<Row>& rows, const std::vector<std::string>& remarks,
                       const std::string& profile, const std::string& folder, const std::string& command);

}  // namespace pipewright
