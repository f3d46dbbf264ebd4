// What devices that exchange with one another wait for: the slowest of their links, all groups at once.
#pragma once

#include <vector>

#include "core/cluster/topology.hpp"

namespace pipewright::core {

// One exchange: of so many bytes that leave each device.
struct ExchangeLink {
  double latency = 0, rate = 0;  // ns; bytes per second, 0: no time
  double time(double bytes) const { return latency + (rate > 0 ? bytes / rate * 1e9 : 0); }
  bool operator==(const ExchangeLink&) const = default;
};
ExchangeLink slower(const ExchangeLink& a, const ExchangeLink& b);

// Each device sends to all others of its group, the same to each, or all of it to the next one (ExchangeTo::Next). Rates are those
// of the links that such exchanges share; inside a node no more than its collectives reach, between nodes a part of the
// network's rate.
enum class ExchangeTo { All, Next };
ExchangeLink exchange_link(const std::vector<std::vector<DeviceId>>& groups, ExchangeTo to, const Topology& topology,
                           const Cluster& cluster);

}  // namespace pipewright::core
