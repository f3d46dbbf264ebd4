// Host time per kernel, in ns, as the training runs: compiled code launches without Python, a CUDA graph holds
// collectives, too. Neither is slower than the host is without it.        tests/core/operator_costs_test.cpp
#pragma once

#include <algorithm>

#include "core/cluster/cluster.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::core {

struct IssueTimes {
  double forward, backward, collective;
};

inline IssueTimes issue_times(const HostTimes& host, Execution execution) {
  const auto ns = [](Time time) { return static_cast<double>(time.value); };
  IssueTimes times{ns(host.operation), ns(host.backward.value_or(host.operation)), ns(host.collective)};
  if (execution == Execution::Eager) return times;
  const bool graphs = execution == Execution::Graphs;
  const double each = ns(graphs ? host.graph_node : host.compiled);
  times.forward = std::min(times.forward, each), times.backward = std::min(times.backward, each);
  if (graphs) times.collective = std::min(times.collective, each);
  return times;
}

}  // namespace pipewright::core
