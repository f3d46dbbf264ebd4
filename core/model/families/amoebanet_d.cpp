// AmoebaNet-D: the network of GPipe's and torchgpipe's image experiments.    [Real19] figure 3, [GPipe19], [torchgpipe20]
//
// The output of a normal cell is states 0, 3, 4 and 6, as TensorFlow's and torchgpipe's code have it; the paper's text
// says 4, 5 and 6, which misses the published sizes.
//
// Parameters of a normal cell at c channels whose inputs have 4 c, both from normal cells:
//     inputs       2 (4 c * c + 2 c)                                    8 c^2    +  4 c
//     1 x 1        3 (c * c + 2 c)                                      3 c^2    +  6 c
//     1 x 7, 7 x 1 2 (2 (c * c/4) + 2 * 7 (c/4)^2 + 3 * 2 c/4 + 2 c)    2.75 c^2 +  7 c
// together 13.75 c^2 + 17 c: c = 1024 (third group of (18, 256)) 14 435 328. AmoebaNet-D(18, 256): 122 470 120.
//
// Tests: tests/core/families/amoebanet_test.cpp
#include <array>

#include "core/model/families/amoebanet.hpp"
#include "core/model/families/network_families.hpp"

namespace pipewright::core {
namespace {

using enum CellOperation;

constexpr std::array kAmoebanetDParameters = {
    FamilyParameter{"layers", "L: normal cells, a multiple of 3", 3, 30'000},
    FamilyParameter{"filters", "D: four times the channels of the stem, a multiple of 4", 8, 65'536},
    FamilyParameter{"image", "height and width of the image, a multiple of 32", 32, 8192, 224},
    FamilyParameter{"classes", "outputs of the last layer", 1, 1'000'000, 1000},
    FamilyParameter{.name = "max_pools",
                    .meaning = "what 3 x 3 max pools compute; torchgpipe's are averages",
                    .choices = "maximum | average"},
};

constexpr std::array kNormalOutputD = {0, 3, 4, 6}, kReductionOutputD = {4, 5, 6, -1};

constexpr AmoebaNet kAmoebanetD = {
    "AmoebaNet-D",
    "[Real19] AmoebaNet-D, output states as in torchgpipe [torchgpipe20]",
    {{{{1, Conv1x1},
       {1, MaxPool3x3},
       {1, Identity},
       {0, Conv1x7},
       {0, Conv1x1},
       {0, Conv1x7},
       {2, MaxPool3x3},
       {2, Identity},
       {1, AveragePool3x3},
       {5, Conv1x1}}},
     kNormalOutputD},
    {{{{0, MaxPool2x2},
       {0, MaxPool3x3},
       {2, Identity},
       {1, Conv3x3},
       {2, Conv1x7},
       {2, MaxPool3x3},
       {3, Identity},
       {1, MaxPool2x2},
       {2, AveragePool3x3},
       {3, Conv1x1}}},
     std::span(kReductionOutputD).first(3)},
};

Model build_amoebanet_d(const FamilyValues& values) {
  return build_amoebanet(kAmoebanetD, values);
}

}  // namespace

constinit const Family kAmoebanetDFamily = {
    "amoebanet_d", "AmoebaNet-D(layers, filters): chain of cells with two inputs each [Real19] [GPipe19]",
    kAmoebanetDParameters, build_amoebanet_d};

}  // namespace pipewright::core
