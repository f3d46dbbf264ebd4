#include "core/cluster/collective_curves.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipewright::core {
namespace {

constexpr double kAllChannels = 1.13;  // LL on all channels starts this much later than on one
constexpr double kSmallGroups = 1.05;

constexpr double kLowLatency = 20.4e9, kLowLatencyOn2 = 39e9;  // bytes per second of protocol LL between nodes
constexpr double kLl128 = 0.92, kTree = 0.92, kTreeLowLatency = 0.8;
constexpr double kSwitchTree = 0.82, kSwitchTreeOn2 = 1.30;   // of the NICs together
constexpr double kSwitchTreeStart = 25, kSwitchTreeHop = 14;  // us
constexpr int kSwitchTreeMembers = 4;                         // per node

double steps(CollectiveKind kind, int members) {
  return (kind == CollectiveKind::AllReduce ? 2.0 : 1.0) * (members - 1);
}

}  // namespace

std::vector<CollectiveWay> ways_inside(const CollectiveCurve& curve, CollectiveKind kind, int members) {
  const double k = steps(kind, members), n = members;
  if (kind == CollectiveKind::AllToAll && !curve.all_to_all.empty()) {
    std::vector<CollectiveWay> ways;
    for (const AllToAllWay& each : curve.all_to_all)
      ways.push_back({each.start + each.hop * k, each.share * (1 - each.lost / n)});
    return ways;
  }
  const bool all_reduce = kind == CollectiveKind::AllReduce;
  const double start = curve.start + curve.hop * k;
  std::vector<CollectiveWay> ways = {{start, curve.small},
                                     {kAllChannels * start, curve.middle * (1 - kSmallGroups / n)},
                                     {curve.large_start + curve.large_hop * k,
                                      curve.large * (1 - (all_reduce ? curve.lost_reduce : curve.lost_gather) / n)}};
  for (const SwitchCurve& each : curve.in_switch)
    if (all_reduce && members >= each.members) ways.push_back({each.start + each.hop * std::log2(n), each.share});
  return ways;
}

double collective_us(const CollectiveCurve& curve, CollectiveKind kind, int members, double bytes, double nominal) {
  if (members < 2 || bytes <= 0) return 0;
  const double moved = steps(kind, members) / members * bytes;
  double least = std::numeric_limits<double>::infinity();
  for (const CollectiveWay& way : ways_inside(curve, kind, members))
    least = std::min(least, way.start + (nominal > 0 ? moved / (way.rate * nominal) * 1e6 : 0));
  return least;
}

double message_us(const MessageCurve& curve, double bytes, double nominal) {
  const auto us = [&](double share) { return bytes / (share * nominal) * 1e6; };
  return curve.start + std::max(us(curve.large), std::min(us(curve.small), curve.middle));
}

std::array<double, 3> tuner_latency(CollectiveShape shape, CollectiveKind kind, int members, int nodes, double post,
                                    double nic) {
  constexpr std::array<double, 3> kTreeBase = {6.8, 14, 8.4}, kRingBase = {6.6, 14, 8.4};
  constexpr std::array<double, 3> kTreeHop = {0.6, 1.25, 4}, kRingHop = {0.6, 1.9, 3.4};
  constexpr std::array<double, 3> kTreeNet = {5, 8.5, 14}, kRingNet = {2.7, 4, 14};
  std::array<double, 3> latency{};
  for (std::size_t protocol = 0; protocol < 3; ++protocol) {
    const bool simple = protocol == 2;
    const bool tree = shape == CollectiveShape::Tree;
    // Where every node has one member, a ring's hops take what a tree's do.
    const double net = (tree || members == nodes ? kTreeNet : kRingNet)[protocol] + nic * (simple ? 2 : 1);
    double inside = (tree ? kTreeHop : kRingHop)[protocol];
    if (tree) {
      const double depth = members / static_cast<double>(nodes) - 1;
      latency[protocol] = kTreeBase[protocol] + 2 * (depth * inside + std::log2(nodes) * net);
      continue;
    }
    if (nodes > 1) inside = std::max(inside, post * (simple ? 3 : 1));
    const double all = steps(kind, members), between = nodes > 1 ? steps(kind, nodes) : 0;
    latency[protocol] = kRingBase[protocol] + (all - between) * inside + between * net;
  }
  return latency;
}

std::vector<CollectiveWay> ways_between(const CollectiveCurve& curve, CollectiveKind kind, const NodeSpan& span) {
  const int n = span.members, p = span.nodes, g = n / p;
  const bool all_reduce = kind == CollectiveKind::AllReduce;
  const double lost = all_reduce ? curve.lost_reduce : curve.lost_gather;
  const double inside = g > 1 && span.nominal > 0 ? curve.large * (1 - lost / g) * span.nominal : span.nics;
  const double bus = std::min(inside, span.nics), low = p == 2 ? kLowLatencyOn2 : kLowLatency;
  const double ll128 = std::min(kLl128 * bus, span.rails * curve.ll128 * 1e9);
  std::vector<CollectiveWay> ways;
  const auto add = [&](double start, double rate) { ways.push_back({start * span.slower, rate / span.slower}); };
  const auto ring = tuner_latency(CollectiveShape::Ring, kind, n, p, 1, span.nic_us);
  add(ring[0], std::min(bus / 2, low)), add(ring[1], ll128), add(ring[2], bus);
  if (!all_reduce) return ways;
  const auto tree = tuner_latency(CollectiveShape::Tree, kind, n, p, 1, span.nic_us);
  add(tree[0], std::min(kTree * bus / 2, kTreeLowLatency * low)), add(tree[1], kTree * ll128);
  add(tree[2], kTree * bus);
  if (curve.in_switch.empty() || g < kSwitchTreeMembers || span.nominal <= 0) return ways;
  const double cap = curve.in_switch.front().share * span.nominal;
  const double reached = (p == 2 ? kSwitchTreeOn2 : kSwitchTree) * span.nics;
  add(kSwitchTreeStart + 2 * (kSwitchTreeHop + 2 * span.nic_us) * std::log2(p), std::min(cap, reached));
  return ways;
}

}  // namespace pipewright::core
