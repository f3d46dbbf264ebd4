// Forms of `model:` that are read apart from the others. Inside io only.
#pragma once

#include <string>

#include "core/model/graph.hpp"
#include "io/yaml/fields.hpp"

namespace pipewright::io {

// model: {hf: config.json, ...}
void read_hf_form(Reader& reader, const At& at, Model& model);
SectionDoc hf_form_doc();

// Notes `file` as the origin of all that is written of a model, but for what keys of its own say.
void came_from(Reader& reader, const std::string& file, const Model& model);

}  // namespace pipewright::io
