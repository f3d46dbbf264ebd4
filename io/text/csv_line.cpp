#include "io/text/csv_line.hpp"

#include <algorithm>

#include "io/text/trimmed.hpp"

namespace pipewright::io {

std::vector<CsvField> csv_fields(std::string_view line) {
  std::vector<CsvField> fields;
  for (std::size_t begin = 0; begin <= line.size();) {
    CsvField field{.text = {}, .column = static_cast<int>(begin) + 1};
    std::size_t end = begin;
    if (begin < line.size() && line[begin] == '"') {
      for (++end; end < line.size(); ++end) {
        if (line[end] == '"' && (end + 1 == line.size() || line[++end] != '"')) break;
        field.text += line[end];
      }
      end = std::min(line.find(',', end), line.size());
    } else {
      end = std::min(line.find(',', begin), line.size());
      const std::string_view plain = trimmed(line.substr(begin, end - begin), " \t\r");
      field.text = plain;
      if (!plain.empty()) field.column = static_cast<int>(plain.data() - line.data()) + 1;
    }
    fields.push_back(std::move(field));
    begin = end + 1;
  }
  return fields;
}

}  // namespace pipewright::io
