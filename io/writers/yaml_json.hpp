// A tree of YAML as JSON.
#pragma once

#include "io/writers/json_text.hpp"

namespace pipewright {

struct Yaml;

// Plain scalars as YAML's core schema has them: numbers of JSON's form that a double or 64 bits hold, true, false,
// null; whatever is in quotes, and all else, is text.
void write_yaml(JsonText& json, const Yaml& tree);

}  // namespace pipewright
