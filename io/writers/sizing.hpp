// How many nodes a training needs: the best plan on each number of them, as a table, JSON
// (docs/reference/sizing-json.md), CSV, Markdown and a page.
#pragma once

#include <string>
#include <string_view>

#include "core/answers/sizing.hpp"
#include "core/question/scenario.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {

std::string sizing_text(const Sizing& sizing, const Scenario& asked, const TableOptions& options);
std::string sizing_json(const Sizing& sizing, const Scenario& asked);
std::string sizing_csv(const Sizing& sizing);
std::string sizing_markdown(const Sizing& sizing);
std::string sizing_html(const Sizing& sizing, const Scenario& asked, std::string_view command);

}  // namespace pipewright::io
