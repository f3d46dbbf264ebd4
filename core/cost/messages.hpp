// What crosses the cuts of a plan, and the messages that carry it: the part of step_costs about edges.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/cost/collectives.hpp"
#include "core/cost/step_costs.hpp"
#include "core/cost/step_pricer.hpp"
#include "core/plan/plan.hpp"

namespace pipewright::core {

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

// One tensor from worker to worker as the lead device sends it: its share of the bytes; how much longer than these at the
// nominal bandwidth it keeps its channel; and what it takes on top until the receiving group has all of it.
struct SentShare {
  Bytes bytes;
  Time slower, later;
};

// What a tensor of some bytes takes from device to device. Where the device states its messages by size
// (core/cluster/collective_curves.hpp) one inside a node takes as long as that; between nodes of such devices the start of a
// message comes to the network's latency, and its bytes pass at `share` of the bandwidth, slowed down by contention of two
// nodes. All but the start and the latency keeps the channel: a stream of messages is no faster than their bytes pass.
// H100, 32 MB, 450 GB/s: 12.9 us, then 286 on the channel, 71 at the nominal bandwidth.
//                                                              tests/core/step_costs_test.cpp "message by size"
// `scatter_gather`: each of t devices sends S / t; then the receivers gather all of it [Megatron21] section 4.1. 8 MB, t = 4,
// 1 us, 100 GB/s: 2 MB each, then 3 + 60 us.      tests/core/step_costs_test.cpp "scatter and gather"
class Sending {
 public:
  // `topology`: as each device sees it, of the whole cluster.
  Sending(const Plan& plan, const Cluster& cluster, const Topology& topology)
      : degree_(plan.scatter_gather ? plan.tensor_parallel : 1), cluster_(cluster), topology_(topology) {}
  SentShare operator()(Bytes bytes, DeviceId from, DeviceId to);

 private:
  struct Way {
    double rate = 0, latency = 0;  // bytes per us, us
    bool by_size = false, inside = false;
  };
  const Way& way(DeviceId from, DeviceId to);
  const AllReduceGroup& group_of(DeviceId lead);
  int degree_;
  const Cluster& cluster_;
  const Topology& topology_;
  std::map<std::pair<DeviceId, DeviceId>, Way> ways_;
  std::map<DeviceId, AllReduceGroup> groups_;
};

// Lays out the messages of all edges; `full` and `last` are the bytes of each edge in the two micro-batch sizes.
// `route` is asked once for every ordered pair of workers, `sent` says how a tensor of the first reaches the second.
void lay_messages(StepCosts& costs, const std::vector<Bytes>& full, const std::vector<Bytes>& last,
                  const std::function<Route(WorkerId, WorkerId)>& route,
                  const std::function<SentShare(Bytes, WorkerId, WorkerId)>& sent);

// Workers that hand messages over themselves: see CostSource::sending. F and the backward that gives the input's
// gradient (B, or BW) carry the copies they send and the first reading of what they received; R and W carry none.
// tests/core/profile_test.cpp "handing over"
void add_handing_over(StepCosts& costs, const CostSource& source, const std::vector<Bytes>& full,
                      const std::vector<Bytes>& last);

}  // namespace pipewright::core
