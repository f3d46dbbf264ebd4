// The convolutional and recurrent families that scenarios name, one file each.
#pragma once

#include "core/model/families/table.hpp"

namespace pipewright {

extern const Family kAmoebanetBFamily, kAmoebanetDFamily;
extern const Family kVgg16Family, kVgg19Family;

}  // namespace pipewright
