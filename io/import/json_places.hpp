// Where the values of a JSON text stand, which nlohmann-json does not tell, so that messages name line and column.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/check.hpp"

namespace pipewright::io {

// Places of the values of an object's keys, and of the keys of objects in it ("text_config.hidden_size"); deeper ones
// are left out. `text` is well-formed JSON whose top is an object.
std::map<std::string, Place, std::less<>> json_places(std::string_view text, const std::string& file);

// Line and column of a byte (0-based offset).
Place json_place(std::string_view text, std::size_t offset, const std::string& file);

}  // namespace pipewright::io
