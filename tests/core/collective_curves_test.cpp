// Collectives by size: numbers worked out beforehand, NCCL's own latencies, and that more bytes never take less time.
#include "core/cluster/collective_curves.hpp"

#include <doctest/doctest.h>

using namespace pipewright;

namespace {

const CollectiveCurve kA100{.start = 8.74,
                            .hop = 0.833,
                            .small = 0.03,
                            .middle = 0.437,
                            .large_start = 31.5,
                            .large_hop = 3.76,
                            .large = 0.776,
                            .lost_gather = 0.665,
                            .lost_reduce = 0.35};
const CollectiveCurve kH100{.start = 4.59,
                            .hop = 0.8,
                            .small = 0.0337,
                            .middle = 0.459,
                            .large_start = 15.7,
                            .large_hop = 2.03,
                            .large = 0.804,
                            .lost_gather = 0.66,
                            .lost_reduce = 0.275,
                            .in_switch = {{.members = 5, .start = 34.6, .hop = 0, .share = 0.986}}};
constexpr CollectiveKind kKinds[] = {CollectiveKind::AllReduce, CollectiveKind::AllGather,
                                     CollectiveKind::ReduceScatter};

}  // namespace

TEST_CASE("The constants of the presets give the times that they were found with") {
  CHECK(collective_us(kA100, CollectiveKind::AllReduce, 8, 512, 300e9) == doctest::Approx(20.5016).epsilon(1e-4));
  CHECK(collective_us(kA100, CollectiveKind::AllGather, 2, 67108864, 300e9) == doctest::Approx(251.191).epsilon(1e-4));
  CHECK(collective_us(kH100, CollectiveKind::AllReduce, 8, 268435456, 450e9) == doctest::Approx(1093.34).epsilon(1e-4));
  CHECK(collective_us(kH100, CollectiveKind::ReduceScatter, 4, 8388608, 450e9) ==
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
  for (const CollectiveCurve& curve : {kA100, kH100})
    for (const CollectiveKind kind : kKinds)
      for (int members = 2; members <= 8; ++members) {
        double before = 0;
        for (double bytes = 1; bytes < 1e10; bytes *= 1.3) {
          const double now = collective_us(curve, kind, members, bytes, 300e9);
          CHECK(now > before);
          before = now;
        }
      }
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
