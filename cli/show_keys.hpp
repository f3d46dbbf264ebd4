// `pipewright show keys`: every key that --set can change, with what it takes and means.
#pragma once

#include <string>
#include <vector>

namespace pipewright {

struct ListEntry {
  std::string name, summary;
};

// In the order of docs/reference/scenario.md; the keys of one layer, of profiles and of published tables are not among
// them.
std::vector<ListEntry> settable_keys();

// Those that contain `part`. Throws InputError where none does.
std::vector<ListEntry> keys_with(const std::string& part);
// The same as lines of `width` columns.
std::string key_list(const std::string& part, int width);

}  // namespace pipewright
