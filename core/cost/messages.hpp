// What crosses the cuts of a plan, and the messages that carry it: the part of step_costs about edges.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "core/cost/collectives.hpp"
#include "core/cost/step_costs.hpp"
#include "core/cost/step_pricer.hpp"
#include "core/plan/plan.hpp"

namespace pipewright {

// Worker ids of a shape: copy * positions + position.
struct Workers {
  explicit Workers(const ScheduleShape& shape) : first(static_cast<std::size_t>(shape.stages)) {
    for (int k = 0; k < shape.stages; ++k) {
      first[static_cast<std::size_t>(k)] = positions;
      positions += shape.replicas_of(k);
    }
  }
  WorkerId id(CopyId copy, StageId stage, int replica) const {
    return copy * positions + first[static_cast<std::size_t>(stage)] + replica;
  }
  std::vector<PositionId> first;
  int positions = 0;
};

// Bytes of the tensors that live across each cut of the model, and how many those are.
StepPricer::TensorsOverCuts tensors_over_cuts(const Model& model, const std::vector<Bytes>& tensor);

// The edges with the bytes of each.
struct EdgeTraffic {
  std::vector<Edge> edges;
  std::vector<Bytes> bytes;
};

// Of `tensor`, bytes of each layer's output, by the plan's way with skips; `over` is tensors_over_cuts of the same.
EdgeTraffic edge_traffic(const Plan& plan, const Model& model, const std::vector<Bytes>& tensor,
                         const StepPricer::TensorsOverCuts& over);

// The table of messages has an entry for every pair of replicas of neighbouring stages. Throws InputError at `replicas`
// where those are too many.
void check_pairs(const StepCosts& costs, const Place& replicas);

// One tensor from worker to worker as the lead device sends it: its share of the bytes, and the time until the
// receiving group has all of it.
struct SentShare {
  Bytes bytes;
  Time gather;
};

// `scatter_gather`: each of t devices sends S / t; the receivers' all-gather is half an all-reduce around their ring,
//     (t - 1) alpha + (t - 1) / t * S / B                                          [Megatron21] section 4.1, [Thakur05]
// 8 MB, t = 4, 1 us, 100 GB/s: 2 MB each, then 3 + 60 us.      tests/core/step_costs_test.cpp "scatter and gather"
class Scatter {
 public:
  Scatter(const Plan& plan, const Cluster& cluster)
      : degree_(plan.scatter_gather ? plan.tensor_parallel : 1), cluster_(cluster) {
    if (degree_ > 1) whole_.emplace(cluster);
  }
  SentShare operator()(Bytes bytes, DeviceId to) {
    if (degree_ < 2 || bytes == Bytes{}) return {bytes, {}};
    const Time both = ring_of(to).price(AllReduce::Ring, bytes).time;
    return {{(bytes.value + degree_ - 1) / degree_}, {(both.value + 1) / 2}};
  }

 private:
  const AllReduceGroup& ring_of(DeviceId lead) {
    const auto found = rings_.find(lead);
    if (found != rings_.end()) return found->second;
    std::vector<DeviceId> members;
    for (int member = 0; member < degree_; ++member)
      members.push_back(lead + member);
    return rings_.emplace(lead, AllReduceGroup(std::move(members), *whole_, cluster_.devices_per_node, &cluster_))
        .first->second;
  }
  int degree_;
  const Cluster& cluster_;
  std::optional<Topology> whole_;  // as each device sees it
  std::map<DeviceId, AllReduceGroup> rings_;
};

// Lays out the messages of all edges; `full` and `last` are the bytes of each edge in the two micro-batch sizes.
// `route` is asked once for every ordered pair of workers, `sent` says how a tensor reaches a receiver.
void lay_messages(StepCosts& costs, const std::vector<Bytes>& full, const std::vector<Bytes>& last,
                  const std::function<Route(WorkerId, WorkerId)>& route,
                  const std::function<SentShare(Bytes, WorkerId)>& sent);

}  // namespace pipewright
