// AmoebaNets: chains of cells that evolution found, each fed by the two cells before it.        [Real19] section 3.1
//
// AmoebaNet(L, D): a stem convolution 3 x 3 / 2 to c = D / 4 channels, two reduction cells (they belong to the stem),
// L / 3 normal cells, a reduction cell, L / 3 normal cells, a reduction cell, L / 3 normal cells, a classifier: L + 6
// layers. A reduction cell doubles c and halves the image.
//
// Cell i reads the outputs of layers i-1 and i-2, so the boundary between two stages carries two tensors, as the tuple
// does that torchgpipe hands along its chain; the classifier gets both as well and reads one. Inside the cell:
//   1. both inputs are brought to c channels: ReLU, 1 x 1 convolution, batch norm; the older one by two 1 x 1 / 2
//      convolutions side by side if the cell between reduced the image, and not at all if it has c channels already;
//      the newer is state 0, the older state 1;
//   2. five additions of two states, each through an operation, make states 2 to 6;
//   3. the states named in `concat` go side by side: the output.
// Where a reduction cell reads state 0 or 1, the operation has stride 2.
//
// Operations, each convolution behind a ReLU and before a batch norm, none with a bias: 1 x 1; 3 x 3 and 1 x 7 with
// 7 x 1 between 1 x 1 convolutions to and from c / 4 channels; `separable`: twice a depthwise convolution and a 1 x 1;
// pools of 2 x 2 and 3 x 3; the state itself.
//
// Deviations from torchgpipe: the copy of the input that the second 1 x 1 / 2 convolution shifts by a pixel is left out
// (no parameters, no FLOPs), and the classifier averages over whatever size is left, not over 7 x 7.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/model/families/table.hpp"

namespace pipewright::core {

enum class CellOperation : std::uint8_t {
  Identity,
  Conv1x1,
  Conv3x3,
  Conv1x7,
  Separable3x3,
  Separable5x5,
  MaxPool2x2,
  MaxPool3x3,
  AveragePool3x3,
};

struct CellStep {
  int state;
  CellOperation operation;
};

struct CellRecipe {
  std::array<CellStep, 10> steps;  // two by two: their sum is the next state
  std::span<const int> concat;
};

struct AmoebaNet {
  const char* name;    // "AmoebaNet-D"
  const char* source;  // "[Real19] figure 3"
  CellRecipe normal, reduction;
};

// Parameters `layers` (L, a multiple of 3), `filters` (D, a multiple of 4, from 8), `image` (a multiple of 32),
// `classes` and `max_pools`: "maximum", or "average" as torchgpipe computes its max_pool_3x3.
Model build_amoebanet(const AmoebaNet& net, const FamilyValues& values);

}  // namespace pipewright::core
