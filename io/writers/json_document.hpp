// How the JSON documents begin, and what their ends have in common.
#pragma once

#include <string_view>

#include "io/writers/json_text.hpp"

namespace pipewright {

// {"schema": "pipewright.KIND/1", "tool": {...}: the caller writes the other keys and closes.
void open_document(JsonText& json, std::string_view schema);

}  // namespace pipewright
