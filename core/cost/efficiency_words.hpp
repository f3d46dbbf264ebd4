// What a report says of the shares and curves that price operators by kind.
#pragma once

#include <span>
#include <string>

#include "core/cluster/cluster.hpp"

namespace pipewright::core {

struct KindPriced {
  const char* name = "";  // of the kind: "matrix_product"
  const Efficiency* stated = nullptr;
  bool by_size = false;                     // by curves, not by its share
  const AttentionKernel* kernel = nullptr;  // of attention by size
};
// "by kind: matrix_product 55 % (assumed, +- 30 %), memory 80 % (published)"
std::string in_words(std::span<const KindPriced> kinds);
std::string rounded_percent(double share);  // "55 %"
std::string microseconds(double ns);        // "84", "1.5"

}  // namespace pipewright::core
