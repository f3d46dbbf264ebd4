// AmoebaNet-B: the network with which GPipe reached 84.4 % on ImageNet, (18, 512) at 480 x 480.   [Real19], [GPipe19]
//
// The cell is that of TensorFlow's TPU models (models/official/amoeba_net, `amoeba_net_b`), the chain and the stem
// those of AmoebaNet-D. The dilation of the 5 x 5 separable convolution changes neither shapes nor figures and is left
// out.
//
// Parameters of a normal cell at c channels, both inputs from normal cells (4 c channels):
//     inputs 8 c^2 + 4 c, four 1 x 1 4 c^2 + 8 c, two separable 3 x 3 2 * 2 (9 c + c^2 + 2 c) = 4 c^2 + 44 c
// together 16 c^2 + 56 c. (18, 512): 560 053 608. GPipe gives 557 million, 0.5 % less; its counts of AmoebaNet-D are up
// to 0.6 % below the exact ones, too (table 1), so the cell stays as published.
//
// Tests: tests/core/families/amoebanet_test.cpp
#include <array>

#include "core/model/families/amoebanet.hpp"
#include "core/model/families/network_families.hpp"

namespace pipewright::core {
namespace {

using enum CellOperation;

constexpr std::array kAmoebanetBParameters = {
    FamilyParameter{"layers", "L: normal cells, a multiple of 3", 3, 30'000, 18},
    FamilyParameter{"filters", "D: four times the channels of the stem, a multiple of 4", 8, 65'536, 512},
    FamilyParameter{"image", "height and width of the image, a multiple of 32", 32, 8192, 480},
    FamilyParameter{"classes", "outputs of the last layer", 1, 1'000'000, 1000},
    FamilyParameter{.name = "max_pools", .meaning = "what 3 x 3 max pools compute", .choices = "maximum | average"},
};

constexpr std::array kNormalOutputB = {0, 3, 4, 6}, kReductionOutputB = {5, 6, -1, -1};

constexpr AmoebaNet kAmoebanetB = {
    "AmoebaNet-B",
    "[Real19] AmoebaNet-B, cell as in TensorFlow's TPU models",
    {{{{1, Conv1x1},
       {1, MaxPool3x3},
       {1, Identity},
       {0, Separable3x3},
       {1, Conv1x1},
       {0, Separable3x3},
       {2, Conv1x1},
       {2, Identity},
       {1, AveragePool3x3},
       {5, Conv1x1}}},
     kNormalOutputB},
    {{{{0, MaxPool2x2},
       {0, MaxPool3x3},
       {2, Identity},
       {1, Conv3x3},
       {2, Separable5x5},
       {2, MaxPool3x3},
       {3, Identity},
       {1, Separable3x3},
       {4, AveragePool3x3},
       {3, Conv1x1}}},
     std::span(kReductionOutputB).first(2)},
};

Model build_amoebanet_b(const FamilyValues& values) {
  return build_amoebanet(kAmoebanetB, values);
}

}  // namespace

constinit const Family kAmoebanetBFamily = {"amoebanet_b",
                                            "AmoebaNet-B(layers, filters), 18 and 512 in GPipe [Real19] [GPipe19]",
                                            kAmoebanetBParameters, build_amoebanet_b};

}  // namespace pipewright::core
