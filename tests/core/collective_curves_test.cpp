// Collectives by size: numbers worked out beforehand, NCCL's own latencies, and that more bytes never take less time.
#include "core/cluster/collective_curves.hpp"

#include <algorithm>

#include <doctest/doctest.h>

using namespace pipewright::tests;

namespace {

const CollectiveCurve kCurveA100{.start = 8.74,
                                 .hop = 0.833,
                                 .small = 0.03,
                                 .middle = 0.437,
                                 .large_start = 31.5,
                                 .large_hop = 3.76,
                                 .large = 0.776,
                                 .lost_gather = 0.665,
                                 .lost_reduce = 0.35};
const CollectiveCurve kCurveH100{.start = 4.59,
                                 .hop = 0.8,
                                 .small = 0.0337,
                                 .middle = 0.459,
                                 .large_start = 15.7,
                                 .large_hop = 2.03,
                                 .large = 0.804,
                                 .lost_gather = 0.66,
                                 .lost_reduce = 0.275,
                                 .in_switch = {{.members = 5, .start = 34.6, .hop = 0, .share = 0.986}}};
constexpr CollectiveKind kCurveKinds[] = {CollectiveKind::AllReduce, CollectiveKind::AllGather,
                                          CollectiveKind::ReduceScatter};

}  // namespace

TEST_CASE("The constants of the presets give the times that they were found with") {
  CHECK(collective_us(kCurveA100, CollectiveKind::AllReduce, 8, 512, 300e9) == doctest::Approx(20.5016).epsilon(1e-4));
  CHECK(collective_us(kCurveA100, CollectiveKind::AllGather, 2, 67108864, 300e9) ==
        doctest::Approx(251.191).epsilon(1e-4));
  CHECK(collective_us(kCurveH100, CollectiveKind::AllReduce, 8, 268435456, 450e9) ==
        doctest::Approx(1093.34).epsilon(1e-4));
  CHECK(collective_us(kCurveH100, CollectiveKind::ReduceScatter, 4, 8388608, 450e9) ==
        doctest::Approx(42.6155).epsilon(1e-4));
}

TEST_CASE("By hand: four members, 1 MB over links of 100 GB/s") {
  // w = 3/4 MB. Small: 1 + 3 * 1 us + 0.75e6 B / (0.1 * 100 GB/s) = 79 us. Large: 10 + 3 * 2 + 0.75e6 / (0.5 * 100 GB/s)
  // = 31 us. Middle: 1.13 * 4 + 0.75e6 / (0.2 * (1 - 1.05/4) * 100 GB/s) = 55.37 us.
  const CollectiveCurve curve{
      .start = 1, .hop = 1, .small = 0.1, .middle = 0.2, .large_start = 10, .large_hop = 2, .large = 0.5};
  CHECK(collective_us(curve, CollectiveKind::AllGather, 4, 1e6, 100e9) == doctest::Approx(31));
  CHECK(collective_us(curve, CollectiveKind::AllGather, 4, 1, 100e9) == doctest::Approx(4.000075));
}

TEST_CASE("A larger message is never cheaper, and none is free") {
  for (const CollectiveCurve& curve : {kCurveA100, kCurveH100})
    for (const CollectiveKind kind : kCurveKinds)
      for (int members = 2; members <= 8; ++members) {
        double before = 0;
        for (double bytes = 1; bytes < 1e10; bytes *= 1.3) {
          const double now = collective_us(curve, kind, members, bytes, 300e9);
          CHECK(now > before);
          before = now;
        }
      }
}

TEST_CASE("A message: few channels for small ones, all of them for large ones, and a plateau in between") {
  // Links of 100 GB/s. 1 MB: 10 + 1e6 / (0.1 * 100 GB/s) = 110 us. 10 and 20 MB: 10 + 500. 100 MB: 10 + 1e8 / 50 GB/s = 2010.
  const MessageCurve curve{.start = 10, .small = 0.1, .large = 0.5, .middle = 500};
  CHECK(message_us(curve, 1e6, 100e9) == doctest::Approx(110));
  CHECK(message_us(curve, 10e6, 100e9) == doctest::Approx(510));
  CHECK(message_us(curve, 20e6, 100e9) == doctest::Approx(510));
  CHECK(message_us(curve, 100e6, 100e9) == doctest::Approx(2010));
}

TEST_CASE("A larger message from device to device is never cheaper, and none is free") {
  const MessageCurve curve{.start = 12.9, .small = 0.249, .large = 0.606, .middle = 917};
  double before = 0;
  for (double bytes = 1; bytes < 1e10; bytes *= 1.3) {
    const double now = message_us(curve, bytes, 450e9);
    CHECK(now >= before);
    CHECK(now >= 12.9);
    before = now;
  }
}

namespace {

constexpr NodeSpan kEightNodes{.members = 64, .nodes = 8, .nominal = 450e9, .rails = 8, .nics = 368e9, .nic_us = 7.1};

double least(const std::vector<CollectiveWay>& ways, double moved) {
  double us = 1e300;
  for (const CollectiveWay& way : ways)
    us = std::min(us, way.start + moved / way.rate * 1e6);
  return us;
}

}  // namespace

TEST_CASE("Between nodes: an all-gather is a ring of n - 1 steps in three protocols, an all-reduce has trees as well") {
  // No NIC latency: 81.5, 148.4, 296.8 us. Rates: large 0.804 (1 - 0.66/8) 450 = 331.97 GB/s, below the NICs' 368; LL 20.4
  // GB/s; LL128 the less of 0.92 * 331.97 = 305.4 and 8 * 20 = 160 GB/s.
  NodeSpan span = kEightNodes;
  span.nic_us = 0;
  const std::vector<CollectiveWay> ways = ways_between(kCurveH100, CollectiveKind::AllGather, span);
  REQUIRE(ways.size() == 3);
  CHECK(ways[0].start == doctest::Approx(81.5));
  CHECK(ways[1].start == doctest::Approx(148.4));
  CHECK(ways[2].start == doctest::Approx(296.8));
  CHECK(ways[0].rate == doctest::Approx(20.4e9));
  CHECK(ways[1].rate == doctest::Approx(160e9));
  CHECK(ways[2].rate == doctest::Approx(331.97e9).epsilon(1e-4));
  CHECK(ways_between(kCurveH100, CollectiveKind::ReduceScatter, span).size() == 3);
  CHECK(ways_between(kCurveH100, CollectiveKind::AllReduce, span).size() == 7);
}

TEST_CASE("Between nodes a larger message is never cheaper either, by any collective") {
  for (const CollectiveCurve& curve : {kCurveA100, kCurveH100})
    for (const CollectiveKind kind : kCurveKinds)
      for (int nodes = 2; nodes <= 64; nodes *= 2) {
        NodeSpan span = kEightNodes;
        span.nodes = nodes, span.members = 8 * nodes;
        const std::vector<CollectiveWay> ways = ways_between(curve, kind, span);
        double before = 0;
        for (double bytes = 1; bytes < 1e11; bytes *= 1.5) {
          const double now = least(ways, bytes);
          CHECK(now > before);
          before = now;
        }
      }
}

TEST_CASE("Between nodes without a switch inside them nothing is summed in one") {
  NodeSpan bridged = kEightNodes;
  bridged.nominal = 0;
  const std::vector<CollectiveWay> ways = ways_between(kCurveH100, CollectiveKind::AllReduce, bridged);
  CHECK(ways.size() == 6);
  for (const CollectiveWay& way : ways)
    CHECK(way.rate > 0);
}

TEST_CASE("On a network that others use every collective takes as many times as long") {
  NodeSpan shared = kEightNodes;
  shared.slower = 2;
  for (const CollectiveKind kind : kCurveKinds)
    CHECK(least(ways_between(kCurveH100, kind, shared), 1e8) ==
          doctest::Approx(2 * least(ways_between(kCurveH100, kind, kEightNodes), 1e8)));
}

TEST_CASE("NCCL's latencies: eight members in a node, 64 in eight nodes") {
  const auto is = [](const std::array<double, 3>& latency, double ll, double ll128, double simple) {
    return latency[0] == doctest::Approx(ll) && latency[1] == doctest::Approx(ll128) &&
           latency[2] == doctest::Approx(simple);
  };
  using enum CollectiveKind;
  CHECK(is(tuner_latency(CollectiveShape::Ring, AllReduce, 8, 1, 1, 0), 15.0, 40.6, 56.0));
  CHECK(is(tuner_latency(CollectiveShape::Ring, AllReduce, 64, 8, 1, 0), 156.4, 282.8, 585.2));
  CHECK(is(tuner_latency(CollectiveShape::Ring, AllGather, 64, 8, 1, 0), 81.5, 148.4, 296.8));
}
