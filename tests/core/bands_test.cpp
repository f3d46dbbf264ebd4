// Figures at a place of their band.
#include "core/cluster/bands.hpp"

#include <cmath>

#include <doctest/doctest.h>

using namespace pipewright::tests;

TEST_CASE("a band's ends are 1 - band and 1 + band of the rate, and what lies between them is even on the logarithm") {
  CHECK(band_factor(0.3, -1) == doctest::Approx(0.7));
  CHECK(band_factor(0.3, 0) == 1);
  CHECK(band_factor(0.3, 1) == doctest::Approx(1.3));
  CHECK(band_factor(0.3, 0.5) == doctest::Approx(1.1402).epsilon(1e-4));
  CHECK(band_factor(0.9, -3) > 0);  // no rate is ever negative
}

TEST_CASE("shares of a peak do not pass 1, and a kernel with its own band keeps to it") {
  Efficiency efficiency;
  efficiency.curve = {{1.0, 0.4}, {1e9, 0.9}};
  efficiency.band = 0.2;
  AttentionKernel kernel;
  kernel.forward.share = 0.5, kernel.backward.share = 0.4, kernel.band = 0.1;
  efficiency.kernels = {kernel};
  move(efficiency, 1);
  CHECK(efficiency.curve[0].second == doctest::Approx(0.48));
  CHECK(efficiency.curve[1].second == 1);
  CHECK(efficiency.kernels[0].forward.share == doctest::Approx(0.55));
  CHECK(efficiency.kernels[0].backward.share == doctest::Approx(0.44));
}

TEST_CASE("a host, a link and a network at their lower ends are slower; unstated bands are those that are assumed") {
  HostTimes host;
  host.operation = Time{600}, host.backward = Time{1200}, host.step = Time{0}, host.compiled = Time{500};
  move(host, -1);
  CHECK(host.operation == Time{1200});  // 600 / (1 - 0.5)
  CHECK(*host.backward == Time{2400});
  CHECK(host.step == Time{0});
  CHECK(host.compiled == Time{1000});  // so a band has its effect on compiled code and graphs, too
  CHECK(host.graph_node == Time{3000});
  NodeLinks links;
  links.bandwidth = Bandwidth{100}, links.latency = Time{700}, links.band = 0.3;
  move(links, -1);
  CHECK(links.bandwidth.value == doctest::Approx(70));
  CHECK(links.latency == Time{1000});
  move(links, 1);
  CHECK(links.bandwidth.value == doctest::Approx(70));  // no message is faster than its link's nominal bandwidth
}

TEST_CASE("a network whose collectives reach a share of its rate reaches all of it at most") {
  Network network;
  network.bandwidth = Bandwidth{100}, network.share = 0.8, network.band = 0.5;
  move(network, 1);
  CHECK(network.bandwidth.value * network.share == doctest::Approx(100));
  CHECK(network.bandwidth.value == 100);  // where no device states curves its share is not used
  network.bandwidth = Bandwidth{100};
  move(network, -1);
  CHECK(network.bandwidth.value == doctest::Approx(50));
}

TEST_CASE("a time that its band makes too long is an error, no other number") {
  HostTimes host;
  host.step = Time{kLargest / 2}, host.band = 0.95;
  CHECK_THROWS_AS(move(host, -1), OverflowError);
}

TEST_CASE("collectives at the upper end start sooner and move more") {
  CollectiveCurve curve;
  curve.start = 11, curve.large = 0.5, curve.band = 0.1;
  curve.in_switch = {{.members = 4, .start = 22, .hop = 0, .share = 0.6}};
  move(curve, 1);
  CHECK(curve.start == doctest::Approx(10));
  CHECK(curve.large == doctest::Approx(0.55));
  CHECK(curve.in_switch[0].start == doctest::Approx(20));
  CHECK(curve.in_switch[0].share == doctest::Approx(0.66));
  curve.small = curve.middle = curve.large = 0.95, curve.in_switch[0].share = 0.95;
  move(curve, 1);
  for (const double share : {curve.small, curve.middle, curve.large, curve.in_switch[0].share})
    CHECK(share == 1);
}

TEST_CASE("messages at the upper end start sooner and move more, and no more than the link does") {
  MessageCurve curve;
  curve.start = 12, curve.middle = 600, curve.small = 0.2, curve.large = 0.9, curve.band = 0.2;
  move(curve, 1);
  CHECK(curve.start == doctest::Approx(10));
  CHECK(curve.middle == doctest::Approx(500));
  CHECK(curve.small == doctest::Approx(0.24));
  CHECK(curve.large == 1);
}
