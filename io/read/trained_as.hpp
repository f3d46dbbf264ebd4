// `trained_as:` of a model: what it is trained with beside its shapes. Inside io only.
#pragma once

#include <vector>

#include "core/model/graph.hpp"
#include "core/model/trained_as.hpp"
#include "io/yaml/fields.hpp"

namespace pipewright::io {

// Reads the map over what is there already. `rotary`: whether the model's positions are. Errors are added.
void read_trained_as(Reader& reader, const At& at, bool rotary, TrainedAs& trained);

// Among `Model::form`, to be written back with it; nothing where nothing is known.
void keep_trained_as(Model& model, const TrainedAs& trained);
TrainedAs trained_as(const Model& model);

// A type of scaling as one word of letters, digits, _ and -, at most 64; other characters become _.
std::string rope_type_word(std::string_view type);

std::vector<SectionDoc> trained_as_docs();

}  // namespace pipewright::io
