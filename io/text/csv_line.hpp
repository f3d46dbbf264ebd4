// A line of comma-separated values as its fields.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/rooms.hpp"

namespace pipewright::io {

// A field and where it begins. Quotes around a field are removed, "" inside of them is one quote.
struct CsvField {
  std::string text;
  int column = 1;
};
std::vector<CsvField> csv_fields(std::string_view line);

}  // namespace pipewright::io
