// `show model` as JSON: every layer with its figures, which hold for the model's batch.
// docs/reference/command-line.md
#pragma once

#include <string>
#include <vector>

#include "core/model/graph.hpp"

namespace pipewright {

struct ModelParts {
  bool operators = false;  // of every distinct layer
  bool flops = false;      // of one sample, by every counting convention and by kind of operator
};

// `written`: files that the model was drawn to. Schema pipewright.layers/1.
std::string model_json(const Model& model, const ModelParts& parts, const std::vector<std::string>& written);

}  // namespace pipewright
