// The largest models that fit, a row each: as a table, JSON (docs/reference/capacity-json.md), CSV and Markdown.
#pragma once

#include <string>
#include <vector>

#include "core/answers/capacity.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {

std::string capacity_text(const std::vector<Capacity>& rows, const TableOptions& options);
std::string capacity_json(const std::vector<Capacity>& rows, const std::string& scenario);
std::string capacity_csv(const std::vector<Capacity>& rows);
std::string capacity_markdown(const std::vector<Capacity>& rows);

}  // namespace pipewright::io
