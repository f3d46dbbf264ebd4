#include "planner/one_class.hpp"

#include <fmt/format.h>

namespace pipewright {

void refuse_classes(const Cluster& cluster, const Place& place, const std::string& who) {
  if (cluster.classes() == 1) return;
  throw InputError(place,
                   fmt::format("{} knows devices of one class, and the cluster has {}; write "
                               "plan.partition: suffix_dp, which chooses the class of every stage, or simulate the "
                               "layers of each stage with plan.placement, or leave out cluster.other_nodes",
                               who, cluster.devices_in_words()));
}

}  // namespace pipewright
