// What devices that exchange with one another wait for: the slowest of their links, all groups at once.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "core/cluster/topology.hpp"

namespace pipewright::core {

// One exchange: of so many bytes that leave each device. Links alone, or the least of several ways where those take longer.
struct ExchangeLink {
  struct Way {
    double start = 0, rate = 0;  // ns; bytes per second, not 0
    bool operator==(const Way&) const = default;
  };
  double latency = 0, rate = 0;  // ns; bytes per second, 0: no time
  std::vector<Way> ways;         // of a group inside a node whose device states them

  double time(double bytes) const {
    const double by_links = latency + (rate > 0 ? bytes / rate * 1e9 : 0);
    double least = ways.empty() ? 0 : std::numeric_limits<double>::infinity();
    for (const Way& way : ways)
      least = std::min(least, way.start + bytes / way.rate * 1e9);
    return std::max(by_links, least);
  }
  bool operator==(const ExchangeLink&) const = default;
};
// Of groups as large as one another. Where only some lie in one node, the others are slower, and have no ways.
ExchangeLink slower(const ExchangeLink& a, const ExchangeLink& b);

// Each device sends to all others of its group, the same to each, or all of it to the next one (ExchangeTo::Next). Rates are those
// of the links that such exchanges share; inside a node no more than its collectives reach, an all-to-all as its curve has it
// (core/cluster/collective_curves.hpp), between nodes a part of the network's rate. Tokens that kernels of their own hand on
// inside a node (HandedOn) are such an all-to-all, at the share that the device states for them.
enum class ExchangeTo { All, Next, HandedOn };
ExchangeLink exchange_link(const DeviceGroups& groups, ExchangeTo to, const Topology& topology, const Cluster& cluster);

}  // namespace pipewright::core
