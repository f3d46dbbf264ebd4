// What a phase of a collective loads: its hops, added up by link.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/cluster/topology.hpp"
#include "core/cost/step_costs.hpp"

namespace pipewright::core {

// Adds up what the hops of one phase load, then turns it into the phase.
class LinkLoad {
 public:
  explicit LinkLoad(const Topology& topology) : topology_(topology) {}

  // A hop that carries `weight` for each unit of the phase.
  void add(DeviceId from, DeviceId to, double weight) {
    topology_.route(from, to, route_);
    latency_ = std::max(latency_, route_.latency);
    for (const int link : route_.links)
      links_.emplace_back(link, weight);
    if (route_.bandwidth.value > 0) limit(route_.bandwidth.value / weight);
  }

  // share: bytes moved per byte of the all-reduce; steps: hops that follow one another.
  CollectivePhase phase(double share, int steps) {
    CollectivePhase phase;
    phase.bytes = share;
    phase.latency = Time{checked_product(latency_.value, steps, "the latency of an all-reduce")};
    phase.links = dense() ? summed_densely() : summed();
    for (const auto& [link, weight] : phase.links)
      limit(topology_.bandwidth(link).value / weight);
    phase.rate = Bandwidth{rate_};
    return phase;
  }

 private:
  // What each link carries, by link. The sums are formed in the order of the hops either way.
  std::vector<std::pair<std::int32_t, double>> summed() {
    std::vector<std::pair<std::int32_t, double>> sums;
    std::stable_sort(links_.begin(), links_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [link, weight] : links_)
      if (!sums.empty() && sums.back().first == link)
        sums.back().second += weight;
      else
        sums.emplace_back(link, weight);
    return sums;
  }
  // The same for groups that pass a good part of the cluster's links: a table of them takes less time than sorting.
  std::vector<std::pair<std::int32_t, double>> summed_densely() const {
    std::vector<double> carried(static_cast<std::size_t>(topology_.link_count()));
    for (const auto& [link, weight] : links_)
      carried[static_cast<std::size_t>(link)] += weight;
    std::vector<std::pair<std::int32_t, double>> sums;
    for (std::size_t link = 0; link < carried.size(); ++link)
      if (carried[link] > 0) sums.emplace_back(static_cast<std::int32_t>(link), carried[link]);
    return sums;
  }
  bool dense() const { return static_cast<std::int64_t>(links_.size()) * 8 > topology_.link_count(); }

  void limit(double rate) { rate_ = rate_ == 0 ? rate : std::min(rate_, rate); }

  const Topology& topology_;
  Route route_;  // scratch
  std::vector<std::pair<std::int32_t, double>> links_;
  double rate_ = 0;
  Time latency_;
};

}  // namespace pipewright::core
