// The layers of a model as classes of PyTorch: the same operators that a real run computes, in the same order.
#pragma once

#include <string>

#include "core/model/graph.hpp"

namespace pipewright::io {

struct TorchLayers {
  // "class Layer0(nn.Module): ..": one for every program, and BUILT, the class of every layer. The loss of the last one
  // is left out: it is the schedule's.
  std::string classes;
  // Samples as the model reads them and labels as its loss does: "torch.randint(256, (samples, 64))".
  std::string input, labels;
};

// Of a model whose layers a run can compute.  tests/cli/launch_files_test.py, tests/torch/launched_test.py
TorchLayers torch_layers(const Model& model);

// "INPUTS = [(), (0,), ..": the layers whose output each layer takes; none: the model's own input.
std::string torch_inputs(const Model& model);

}  // namespace pipewright::io
