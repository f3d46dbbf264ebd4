// What there is of a kind, as JSON: models, schedules, published tables.
#pragma once

#include <string>
#include <vector>

namespace pipewright {

struct Yaml;

struct ListEntry {
  std::string name, summary, file;  // file: "" of what is built in
  const Yaml* document = nullptr;   // of one that is asked for: what its file holds
};

// Schema pipewright.show/1.   docs/reference/command-line.md
std::string list_json(const std::string& kind, const std::vector<ListEntry>& entries);

}  // namespace pipewright
