// Copies that run alike are simulated once.
//
// All copies of a plan run the same lists of ops with the same durations. What can tell them apart is where their
// workers lie: which routes their messages take, and with whom they share links. Two copies are alike in time when
// message for message their routes are of one kind (Topology::Way), hence of one bandwidth and latency: without shared
// links they run alike, op for op. That is enough for the engine of fixed orders alone (StepPricer).
//
// Alike on links asks for more, so that the event queue may share links among what is left. Copies whose messages pass
// a common link form a component. Two components are alike when a renaming of their copies (in their order) and links
// (by first appearance) turns the routes of one into those of the other, links keep their kind, and each of them
// carries the same share (CollectivePhase::links) of every phase of every all-reduce. Of alike components the first is
// kept, of links that no message passes one of each kind and load.
//
//     Claim: the kept copies run in the folded system as they do in the whole one, and all others as the copy that they
//     are like. By induction over the instants at which anything happens: until then both systems have seen the same.
//     An all-reduce begins when its last member is ready; each member is ready when the one it is like is. The rates of
//     flows are max-min fair, and there is one such allocation: the folded one, given to every flow that is like a kept
//     one, is feasible on every link, as each has the flows and the capacity of the link it is like; and every flow has
//     its bottleneck, the link that is like that of its kept flow. So nothing ends at another time.
//     [BertsekasGallager92]
//
// First come, first served has no such proof (who comes first of two at one instant is a matter of numbers), and
// neither have ops whose time depends on how many workers compute (StepCosts::loads), or that begin with a flow of their own
// (StepCosts::tensor_flows): with these, all copies are simulated.
//
// Worked: TP8, 16 stages and 128 copies on 2048 nodes of 8 devices with a NIC each. Every worker has a node, every copy
// is a component of its own. The rings of the all-reduces load all NICs alike, their trees those of the first and the
// last copy half as much as the others: 2 copies of 128 are kept, and 64 links of 65 536. tests/core/fold_test.cpp That
// folded and whole runs agree to the nanosecond: tests/planner/folding_test.cpp
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/ids.hpp"

namespace pipewright::core {

class CostModel;
struct Plan;

// `like` of the simulated copies themselves: like[copies[i]] == i. At least two copies are kept where there are two, so
// that gradients are still exchanged.
struct Fold {
  std::vector<CopyId> copies;      // that are simulated, ascending; the first is copy 0
  std::vector<std::int32_t> like;  // [copy of the plan]: runs as copies[like] does
  // Alike::OnLinks only; a run that is folded in time has no links. Kept links stand in the order of the first link of
  // the topology that is like each.
  std::vector<std::int32_t> links;      // [kept link]: that link of the topology
  std::vector<std::int32_t> names;      // [kept link]: the first link of the topology that is like it
  std::vector<std::int32_t> link_like;  // [link of the topology]: kept link; -1: nothing passes it

  // How many copies run as each of the simulated ones.
  std::vector<int> counts() const;
  // Its number among the kept links; -1: it is not one.
  std::int32_t kept_link(int link) const;
};

enum class Alike { InTime, OnLinks };

// Depends on the plan's shape and devices and on how the cluster is wired, not on its bandwidths and latencies: a fold
// holds for every what-if that changes these alone. nullptr: nothing to be folded.
std::shared_ptr<const Fold> fold_copies(const Plan& plan, const CostModel& cost, Alike alike);

// The worker of the simulated copies that runs as `worker` of the plan does.
WorkerId simulated_worker(const Fold* fold, WorkerId worker, int positions);

}  // namespace pipewright::core
