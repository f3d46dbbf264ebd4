// What `check` does with one file.
#pragma once

#include <string>

#include "io/read/read_scenario.hpp"

namespace pipewright::cli {

// Reads the file as what it is and makes its plan, so that late errors show, too. Returns what it holds, e.g.
// "scenario, 24 layers on 4 stages, 1f1b". Throws InputError. `resolved`: gets the scenario with every default.
std::string checked_file(const std::string& path, const ReadOptions& options, std::string* resolved = nullptr);

}  // namespace pipewright::cli
