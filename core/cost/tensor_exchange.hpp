// What the devices of a tensor-parallel group wait for: all-reduces of a layer, or with sequence parallelism the
// reduce-scatters and all-gathers that stand for them. Of all groups of a plan the slowest counts, each as if alone on its
// links.                                            [Shoeybi19] [Korthikanti22]; tests/core/operator_costs_test.cpp
#pragma once

#include <cstdint>
#include <vector>

#include "core/cluster/topology.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::core {

class AllReduceGroup;

constexpr double kPerByte = 1000;  // ns, of TensorLinks::Counted

class TensorExchange {
 public:
  TensorExchange(const Scenario& scenario, const Topology& topology);

  // Nanoseconds of `count` all-reduces of `bytes` together, each with `skew` on top; 0 where nothing is exchanged.
  double time(double bytes, int count, double skew) const;

 private:
  // So many times, in the least of several ways.
  struct Way {
    double latency = 0, share = 0, rate = 0;  // ns of all steps; bytes per byte; bytes per second, 0: no time
    bool operator==(const Way&) const = default;
    double time(double bytes) const { return latency + (rate > 0 ? share * bytes / rate * 1e9 : 0); }
  };
  struct Exchange {
    int times = 1;
    std::vector<Way> ways;
    bool operator==(const Exchange&) const = default;
    double time(double bytes, TensorLinks links) const;
  };
  static Exchange exchange(const Scenario& scenario, const AllReduceGroup& group);

  std::vector<Exchange> rings_;  // of groups that lie differently
  TensorLinks links_;
};

// How many of the blocks of so many consecutive devices lie differently: those that begin at the same place of a leaf
// switch are alike.
std::int64_t different_blocks(const Cluster& cluster, std::int64_t block);

}  // namespace pipewright::core
