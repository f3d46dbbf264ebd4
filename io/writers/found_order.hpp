// The answer of `schedule`: as a table and as JSON (docs/how-it-works/finder.md).
#pragma once

#include <string>

#include "core/answers/found_order.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {

std::string found_order_text(const ScheduleAnswer& found, const TableOptions& options);
std::string found_order_json(const ScheduleAnswer& found);

}  // namespace pipewright::io
