// Where the copies of a plan lie that are simulated: all of them, or those that a fold keeps (core/cost/fold.hpp).
#pragma once

#include <vector>

#include "core/cluster/topology.hpp"
#include "core/cost/fold.hpp"
#include "core/plan/plan.hpp"

namespace pipewright::core {

class SimulatedCopies {
 public:
  SimulatedCopies(const Plan& plan, const Topology& topology, const Fold* fold)
      : plan_(plan), topology_(topology), fold_(fold), positions_(plan.positions()) {}

  int count() const { return fold_ == nullptr ? plan_.copies() : static_cast<int>(fold_->copies.size()); }
  DeviceId device(WorkerId worker) const {
    const CopyId copy = worker / positions_;
    const CopyId in_plan = fold_ == nullptr ? copy : fold_->copies[at(copy)];
    return plan_.device[in_plan * positions_ + worker % positions_];
  }
  std::vector<Link> links() const {
    if (fold_ == nullptr) return topology_.links();
    std::vector<Link> links;
    for (const std::int32_t first : fold_->names)
      links.push_back(topology_.link(first));
    return links;
  }
  Route route(WorkerId from, WorkerId to) const {
    Route route = topology_.route(device(from), device(to));
    if (fold_ == nullptr) return route;
    for (int& link : route.links)
      link = fold_->kept_link(link);
    std::erase(route.links, -1);  // all of them, or none
    return route;
  }

 private:
  const Plan& plan_;
  const Topology& topology_;
  const Fold* fold_;
  int positions_;
};

}  // namespace pipewright::core
