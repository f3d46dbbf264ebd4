// What looks at the times and memory of one device class alone cannot answer for a cluster of several: it says so.
#pragma once

#include <string>

#include "core/cluster/cluster.hpp"

namespace pipewright {

constexpr const char* kPlanSearch = "the search for the best plan";

// Throws InputError at `place` where the cluster has several classes; `who`: "plan.partition: balanced".
void refuse_classes(const Cluster& cluster, const Place& place, const std::string& who);

}  // namespace pipewright
