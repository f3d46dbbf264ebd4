// The description behind a model that was built from one.
#pragma once

#include <optional>

#include "core/model/families/table.hpp"
#include "core/model/families/transformer.hpp"

namespace pipewright::core {

// What `Model::form` says of a transformer with blocks of one stack, as a Transformer; nothing for any other model.
std::optional<Transformer> described(const Model& model);

// Whether a family's models are described by a Transformer, of one stack or of two.
bool is_transformer(const Family& family);

}  // namespace pipewright::core
