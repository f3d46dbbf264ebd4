// A ring all-reduce step by step: the oracle of its closed form, which knows one flow. Each of 2(n-1) steps sends an n-th
// of the bytes over every hop, all at once, and begins when the last message of the one before has arrived. Links that
// hops share are divided fairly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/cost/step_costs.hpp"
#include "sim/des/shared_link.hpp"

namespace pipewright::tests {

inline Time ring_by_steps(const std::vector<Route>& hops, const std::vector<Link>& links, double bytes) {
  std::vector<Bandwidth> capacity;
  for (const Link& link : links)
    capacity.push_back(link.bandwidth);
  SharedLinks shared(capacity, LinkPolicy::MaxMin);
  const double piece = bytes / static_cast<double>(hops.size());
  Time begin;
  for (std::size_t step = 0; step < 2 * (hops.size() - 1); ++step) {
    for (std::uint32_t i = 0; i < hops.size(); ++i) {
      std::vector<LinkWeight> passed;
      for (const int link : hops[i].links)
        passed.push_back({static_cast<std::uint32_t>(link), 1});
      shared.start(begin, {piece, hops[i].bandwidth, transfer_time(piece, hops[i].bandwidth), i}, passed);
    }
    Time end = begin;
    for (Time next = shared.settle(begin); shared.live() > 0; next = shared.settle(next))
      for (const SharedLinks::Done& done : shared.take_finished(next))
        end = std::max(end, next + hops[done.owner].latency);
    begin = end;
  }
  return begin;
}

}  // namespace pipewright::tests
