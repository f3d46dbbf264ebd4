// The language of the YAML files as JSON Schema (draft-07), for editors and other programs: written from the tables
// that the readers themselves use, keys, what they take and what they mean.
//
// A schema is weaker than the reader: it knows keys, kinds of values, names and bounds, and nothing that follows from
// several values together. Whatever the reader takes it takes.     tests/docs/schema_test.py
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "core/rooms.hpp"

namespace pipewright::io {

// A kind of file each. Documents in JSON have their forms next to their writers (io/writers/json_fields.hpp).
inline constexpr std::array<std::string_view, 7> kSchemaNames = {"scenario", "sweep",   "model", "device",
                                                                 "cluster",  "profile", "run"};

// The document. Throws InputError for a name that there is not.
std::string json_schema(std::string_view name);

}  // namespace pipewright::io
