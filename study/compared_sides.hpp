// The sides of `compare`: a scenario that is simulated even if it does not fit, or a result document.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/answers/report.hpp"
#include "io/read/read_scenario.hpp"
#include "io/writers/compare.hpp"

namespace pipewright::study {

// With what the side is made from: the answer refers to the scenario, the side to the answer.
struct LoadedSide {
  std::unique_ptr<Scenario> scenario;
  std::unique_ptr<Answer> answer;
  ComparedSide side;
};

// A path that ends in .json is a result document. `own`: values changed in this side alone, after those of `how`.
// Throws InputError.
LoadedSide loaded_side(const std::string& path, const ReadOptions& how, const std::vector<std::string>& own);

}  // namespace pipewright::study
