// Forms of `model:` that are read apart from the others. Inside io only.
#pragma once

#include <string>

#include "core/model/graph.hpp"
#include "io/yaml/fields.hpp"

namespace pipewright::io {

// model: {hf: config.json, ...}
void read_hf_form(Reader& reader, const At& at, Model& model);
SectionDoc hf_form_doc();

// A parameter of a family that is a word or a list of words: "[q_proj, v_proj]".
bool read_argument(Reader& reader, const At& at, std::string& text);

// Notes `file` as the origin of all that is written of a model, but for what keys of its own say.
void came_from(Reader& reader, const std::string& file, const Model& model);

}  // namespace pipewright::io
