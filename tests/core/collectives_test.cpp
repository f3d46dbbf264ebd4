#include "core/cost/collectives.hpp"

#include <numeric>
#include <random>

#include <doctest/doctest.h>

#include "core/cost/exchange_link.hpp"
#include "core/cost/link_load.hpp"

using namespace pipewright::tests;

namespace {

constexpr Bytes kMB{1'000'000};

// Nodes of `per_node` devices behind a switch of 100 GB/s ports and 1 us; a NIC of 10 GB/s and 5 us per node.
Cluster cluster(int nodes, int per_node) {
  Cluster result;
  result.nodes = nodes;
  result.devices_per_node = per_node;
  result.links.kind = LinkKind::Nvswitch;
  result.links.bandwidth = Bandwidth{100e9};
  result.links.latency = Time{1'000};
  if (nodes > 1) {
    result.network.emplace();
    result.network->bandwidth = Bandwidth{10e9};
    result.network->latency = Time{5'000};
  }
  return result;
}

// Every group in one sum, as if none lay like another.
double rate_of_all(const std::vector<std::vector<DeviceId>>& groups, const Topology& topology) {
  LinkLoad load(topology);
  for (const std::vector<DeviceId>& group : groups)
    for (std::size_t i = 0; i < group.size(); ++i)
      for (std::size_t other = 1; other < group.size(); ++other)
        load.add(group[i], group[(i + other) % group.size()], 1.0 / static_cast<double>(group.size() - 1));
  return load.phase(1.0, 1).rate.value;
}

std::vector<DeviceId> first(int n) {
  std::vector<DeviceId> members(static_cast<std::size_t>(n));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

Collective run(AllReduce algorithm, const Cluster& c, const std::vector<DeviceId>& members, Bytes bytes) {
  return all_reduce(algorithm, members, bytes, Topology(c), c.devices_per_node);
}

Time sum_of_phases(const Collective& collective) {
  Time sum;
  for (const CollectivePhase& phase : collective.phases)
    sum += phase.time;
  return sum;
}

}  // namespace

TEST_CASE("One member needs no all-reduce") {
  for (const AllReduce algorithm : {AllReduce::Ring, AllReduce::Tree, AllReduce::Hierarchical}) {
    const Collective none = run(algorithm, cluster(1, 8), {3}, 100 * kMB);
    CHECK(none.time == Time{0});
    CHECK(none.phases.empty());
  }
}

TEST_CASE("Nothing to reduce takes no time") {
  CHECK(run(AllReduce::Ring, cluster(1, 8), first(8), Bytes{0}).time == Time{0});
}

TEST_CASE("A ring moves 2(n-1)/n of the bytes through every port") {
  for (int n = 2; n <= 16; ++n) {
    const Collective ring = run(AllReduce::Ring, cluster(1, 16), first(n), Bytes{1'000'000} * n);
    REQUIRE(ring.phases.size() == 1);
    CHECK(ring.phases[0].bytes == doctest::Approx(2.0 * (n - 1) * 1e6));
    CHECK(ring.phases[0].latency == Time{2 * (n - 1) * 1'000});
    CHECK(ring.phases[0].links.size() == 2 * static_cast<std::size_t>(n));
    for (const auto& [link, weight] : ring.phases[0].links)
      CHECK(weight == 1.0);
    // 2(n-1) MB at 100 GB/s are 20 us (n-1), and each of the 2(n-1) steps costs 1 us.
    CHECK(ring.time == Time{(n - 1) * 22'000});
  }
}

TEST_CASE("Eight devices on one switch: 14 us + 14 ms for 800 MB") {
  CHECK(run(AllReduce::Ring, cluster(1, 8), first(8), 800 * kMB).time == Time{14'014'000});
}

TEST_CASE("The order of the members does not matter") {
  const Collective sorted = run(AllReduce::Ring, cluster(2, 4), first(8), 80 * kMB);
  const Collective shuffled = run(AllReduce::Ring, cluster(2, 4), {5, 2, 7, 0, 3, 6, 1, 4}, 80 * kMB);
  CHECK(sorted.time == shuffled.time);
  CHECK(sorted.phases[0].links == shuffled.phases[0].links);
}

TEST_CASE("A ring over two nodes crosses each NIC once") {
  const Collective ring = run(AllReduce::Ring, cluster(2, 4), first(8), 80 * kMB);
  CHECK(ring.phases[0].rate.value == doctest::Approx(10e9));
  // 14 steps of the slowest hop's 5 us, and 140 MB at 10 GB/s.
  CHECK(ring.time == Time{70'000 + 14'000'000});
  const Topology topology(cluster(2, 4));
  double on_nics = 0;
  for (const auto& [link, weight] : ring.phases[0].links)
    if (topology.link(link).name.find("NIC") != std::string::npos) on_nics += weight;
  CHECK(on_nics == 4.0);  // two NICs, out and in
}

TEST_CASE("Half-duplex ports carry both neighbours of the ring") {
  Cluster half = cluster(1, 4);
  half.links.duplex = Duplex::Half;
  const Collective ring = run(AllReduce::Ring, half, first(4), 100 * kMB);
  CHECK(ring.phases[0].rate.value == doctest::Approx(50e9));
  CHECK(ring.time == Time{6'000 + 3'000'000});  // 150 MB at 50 GB/s
}

TEST_CASE("No hop of a ring is faster than its copy through host memory") {
  Cluster staged = cluster(1, 4);
  staged.links.kind = LinkKind::Pcie;
  staged.links.peer_access = false;
  CHECK(run(AllReduce::Ring, staged, first(4), 100 * kMB).phases[0].rate.value == doctest::Approx(50e9));
  // All four hops share host memory of 120 GB/s, and each byte passes it twice: 15 GB/s each.
  staged.links.host_bandwidth = Bandwidth{120e9};
  CHECK(run(AllReduce::Ring, staged, first(4), 100 * kMB).phases[0].rate.value == doctest::Approx(15e9));
  // Ports of 20 GB/s: a hop takes its two halves one after the other, 10 GB/s, before host memory binds at 15 GB/s.
  staged.links.bandwidth = Bandwidth{20e9};
  CHECK(run(AllReduce::Ring, staged, first(4), 100 * kMB).phases[0].rate.value == doctest::Approx(10e9));
}

TEST_CASE("Ideal links reduce in no time") {
  Cluster ideal = cluster(1, 8);
  ideal.links = {};
  for (const AllReduce algorithm : {AllReduce::Ring, AllReduce::Tree})
    CHECK(run(algorithm, ideal, first(8), 800 * kMB).time == Time{0});
}

TEST_CASE("A tree takes 2 ceil(log2 n) alpha + 2 S / beta") {
  const int depth[] = {0, 0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4};
  for (int n = 3; n <= 16; ++n) {
    const Collective tree = run(AllReduce::Tree, cluster(1, 16), first(n), 100 * kMB);
    REQUIRE(tree.phases.size() == 2);
    CHECK(tree.time == Time{2 * depth[n] * 1'000 + 2 * 1'000'000});
  }
  // Two members are root in one tree each: both directions at once.
  CHECK(run(AllReduce::Tree, cluster(1, 16), first(2), 100 * kMB).time == Time{2 * 1'000 + 1'000'000});
}

TEST_CASE("Every member but the two roots sends all bytes up and receives all bytes back") {
  for (int n = 2; n <= 33; ++n) {
    const Cluster c = cluster(1, 33);
    const Topology topology(c);
    const Collective tree = run(AllReduce::Tree, c, first(n), kMB);
    double sent = 0, received = 0;
    for (const auto& [link, weight] : tree.phases[0].links) {
      CHECK(weight <= 1.0);
      const std::string name = topology.link(link).name;
      (name.ends_with("out") ? sent : received) += weight;
    }
    CHECK(sent == doctest::Approx(n - 1));  // two trees of n - 1 edges with half the bytes each
    CHECK(received == doctest::Approx(n - 1));
  }
}

TEST_CASE("Hierarchical: reduce inside the nodes, a ring for each place between them, gather inside") {
  const Collective steps = run(AllReduce::Hierarchical, cluster(2, 4), first(8), 800 * kMB);
  REQUIRE(steps.phases.size() == 3);
  CHECK(steps.phases[0].time == Time{3 * 1'000 + 6'000'000});   // 3/4 of 800 MB at 100 GB/s
  CHECK(steps.phases[1].rate.value == doctest::Approx(2.5e9));  // four rings share each NIC
  CHECK(steps.phases[1].time == Time{2 * 5'000 + 80'000'000});  // 200 MB
  CHECK(steps.phases[2].time == steps.phases[0].time);
  CHECK(steps.time == Time{92'016'000});
}

TEST_CASE("With a NIC per device the rings between the nodes do not share") {
  Cluster c = cluster(2, 4);
  c.network->per = NicPer::Device;
  const Collective steps = run(AllReduce::Hierarchical, c, first(8), 800 * kMB);
  CHECK(steps.phases[1].rate.value == doctest::Approx(10e9));
  CHECK(steps.phases[1].time == Time{2 * 5'000 + 20'000'000});
}

TEST_CASE("Groups are hierarchical when every node holds the same number of members, at least two") {
  const Topology topology(cluster(3, 4));
  CHECK(AllReduceGroup({0, 1, 4, 5}, topology, 4).hierarchical());
  CHECK_FALSE(AllReduceGroup({0, 1, 4}, topology, 4).hierarchical());
  CHECK_FALSE(AllReduceGroup({0, 4, 8}, topology, 4).hierarchical());
  CHECK_FALSE(AllReduceGroup({0, 1, 2}, topology, 4).hierarchical());
}

TEST_CASE("The best algorithm is never slower than any other") {
  for (const int nodes : {1, 2, 4})
    for (const std::int64_t bytes : {1, 1'000, 1'000'000, 1'000'000'000}) {
      const Cluster c = cluster(nodes, 4);
      const AllReduceGroup group(first(c.devices()), Topology(c), 4);
      Time shortest =
          std::min(group.price(AllReduce::Ring, Bytes{bytes}).time, group.price(AllReduce::Tree, Bytes{bytes}).time);
      if (group.hierarchical()) shortest = std::min(shortest, group.price(AllReduce::Hierarchical, Bytes{bytes}).time);
      CHECK(group.best(Bytes{bytes}).time == shortest);
    }
}

TEST_CASE("Small messages go by tree, large ones by ring") {
  const AllReduceGroup group(first(16), Topology(cluster(1, 16)), 16);
  CHECK(group.best(Bytes{1'000}).phases.size() == 2);
  CHECK(group.best(800 * kMB).phases.size() == 1);
}

TEST_CASE("The time of an all-reduce is the sum of its phases") {
  const AllReduceGroup group(first(8), Topology(cluster(2, 4)), 4);
  for (const AllReduce algorithm : {AllReduce::Ring, AllReduce::Tree, AllReduce::Hierarchical}) {
    const Collective collective = group.price(algorithm, Bytes{123'456'789});
    CHECK(collective.bytes == Bytes{123'456'789});
    CHECK(collective.time == sum_of_phases(collective));
  }
}

TEST_CASE("gather: without a curve half of a ring's all-reduce, on nodes of a curve its own ways") {
  // Four members, 100 GB/s, 1 us, 8 MB: 3 us + 3/4 * 8 MB / (100 GB/s) = 63 us.
  CHECK(AllReduceGroup(first(4), Topology(cluster(1, 4)), 4).gather(8 * kMB) == Time{63'000});
  CHECK(AllReduceGroup(first(4), Topology(cluster(1, 4)), 4).gather(Bytes{0}) == Time{0});
  CHECK(AllReduceGroup({2}, Topology(cluster(1, 4)), 4).gather(8 * kMB) == Time{0});
}

namespace {

// A start of 3 us, nothing per hop, and half of the links' 100 GB/s whatever the size; all-gathers of n lose 1/n of it.
Cluster with_curve() {
  Cluster result = cluster(1, 4);
  result.device.collectives =
      CollectiveCurve{.start = 3, .small = 0.001, .middle = 0.001, .large_start = 3, .large = 0.5, .lost_gather = 1};
  return result;
}

}  // namespace

TEST_CASE("gather and all-reduce by the device's curve") {
  // All-reduce of 8 MB: 3 us + 2 * 3/4 * 8 MB / (50 GB/s) = 243 us. All-gather: 3 us + 3/4 * 8 MB / (50 GB/s * 3/4) = 163 us.
  const Cluster c = with_curve();
  const AllReduceGroup group(first(4), Topology(c), 4, &c);
  CHECK(group.best(8 * kMB).time == Time{243'000});
  CHECK(group.gather(8 * kMB) == Time{163'000});
}

// Copies by way of the host's memory are not what the curve was measured on, and slower than it.
TEST_CASE("without peer access a group takes no way of the device's curve") {
  Cluster c = with_curve();
  c.links.peer_access = false, c.links.host_bandwidth = Bandwidth{20e9};
  const AllReduceGroup group(first(4), Topology(c), 4, &c);
  CHECK(group.ways().empty());
  CHECK(group.gather_ways().empty());
  CHECK(group.best(8 * kMB).time > Time{243'000});
}

// Two nodes of two, a NIC of 10 GB/s each, 80 MB: a ring passes 60 MB over the NICs, in 6 ms and 3 x 5 us. In two levels half
// of all goes 1 us + 40 MB / 100 GB/s inside, and two rings of 20 MB at 5 GB/s each between the nodes.
TEST_CASE("a gather is half of an all-reduce in a ring or in two levels, whichever is shorter") {
  const Cluster c = cluster(2, 2);
  const AllReduceGroup group(first(4), Topology(c), 2);
  const Collective gather = group.gathering(80 * kMB);
  CHECK(gather.time == Time{401'000 + 4'005'000});
  CHECK(gather.phases.size() == 2);
  CHECK(gather.time == sum_of_phases(gather));
  CHECK(group.gather(80 * kMB) == gather.time);
  // One node: a ring alone.
  CHECK(AllReduceGroup(first(4), Topology(cluster(1, 4)), 4).gathering(8 * kMB).phases.size() == 1);
}

TEST_CASE("groups that lie alike are as slow as one of them, others as the slowest") {
  std::mt19937 random(5);
  int between = 0;
  for (int round = 0; round < 300; ++round) {
    Cluster wired = cluster(2 + static_cast<int>(random() % 6), 4);
    wired.network->per = random() % 2 == 0 ? NicPer::Node : NicPer::Device;
    wired.network->nodes_per_switch = 1 + static_cast<int>(random() % 3);
    wired.network->oversubscription = random() % 2 == 0 ? 1.0 : 4.0;
    const Topology topology(wired);
    std::vector<DeviceId> devices(static_cast<std::size_t>(wired.devices()));
    std::iota(devices.begin(), devices.end(), 0);
    // Strides as plans have them, now and then with two devices exchanged.
    const int size = 2 << (random() % 2), stride = 1 << (random() % 3);
    if (random() % 3 == 0) std::swap(devices[random() % devices.size()], devices[random() % devices.size()]);
    std::vector<std::vector<DeviceId>> groups;
    for (int begin = 0; begin + size * stride <= wired.devices(); begin += size * stride)
      for (int i = 0; i < stride; ++i) {
        groups.emplace_back();
        for (int j = 0; j < size; ++j)
          groups.back().push_back(devices[static_cast<std::size_t>(begin + i + j * stride)]);
      }
    if (groups.empty()) continue;
    const ExchangeLink link = exchange_link(groups, ExchangeTo::All, topology, wired);
    CHECK(link.rate == rate_of_all(groups, topology));
    between += link.rate < wired.links.bandwidth.value ? 1 : 0;
  }
  CHECK(between > 50);
}
