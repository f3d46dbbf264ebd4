// The convolutional and recurrent families that scenarios name, one file each.
#pragma once

#include "core/model/families/table.hpp"

namespace pipewright::core {

extern const Family kAlexnetFamily;
extern const Family kAmoebanetBFamily, kAmoebanetDFamily;
extern const Family kAwdLmFamily;
extern const Family kGnmtFamily;
extern const Family kMlpFamily;
extern const Family kResnet50Family, kResnet101Family, kResnet152Family;
extern const Family kS2vtFamily;
extern const Family kUnetFamily;
extern const Family kVgg16Family, kVgg19Family;

}  // namespace pipewright::core
