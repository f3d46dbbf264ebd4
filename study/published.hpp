// Published tables and sets of measured runs by name, and the tables evaluated.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/answers/expectation.hpp"
#include "io/read/scenario_file.hpp"

namespace pipewright::study {

struct Published {
  std::string_view name;
  std::string_view what;
  std::vector<std::string> files;
};

const std::vector<Published>& published();
const std::vector<Published>& measured_runs();
const Published* find_published(const std::vector<Published>& table, std::string_view name);  // or nullptr

// The file of a scenario that ships: in the working directory, or beside one of the folders with configs. Throws
// InputError.
std::string shipped_scenario(const std::string& file, const std::vector<std::string>& config_path);

// Every table of these files. The tables that are whole, should a signal ask to end. Throws InputError.
std::vector<TableResult> reproduced_tables(const std::vector<const ScenarioFile*>& files);

}  // namespace pipewright::study
