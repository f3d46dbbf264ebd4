#include "core/cluster/topology.hpp"

#include <iterator>
#include <set>
#include <string>
#include <utility>

#include <doctest/doctest.h>

using namespace pipewright::tests;

namespace {

constexpr Bandwidth GB(double n) {
  return {n * 1e9};
}

// `nodes` of four devices; links of 100 GB/s and 3 us, NICs of 10 GB/s and 20 us.
Cluster cluster(LinkKind kind, int nodes = 1) {
  Cluster result;
  result.nodes = nodes;
  result.devices_per_node = 4;
  result.links.kind = kind;
  result.links.bandwidth = GB(100);
  result.links.latency = Time{3'000};
  if (nodes > 1) {
    result.network.emplace();
    result.network->bandwidth = GB(10);
    result.network->latency = Time{20'000};
  }
  return result;
}

// Names of the links of a route, joined by " | ".
std::string way(const Topology& topology, DeviceId from, DeviceId to) {
  std::string text;
  for (const int link : topology.route(from, to).links)
    text += (text.empty() ? "" : " | ") + topology.link(link).name;
  return text;
}

}  // namespace

TEST_CASE("A transfer from a device to itself passes no link and takes no time") {
  const Route route = Topology(cluster(LinkKind::Nvswitch)).route(2, 2);
  CHECK(route.links.empty());
  CHECK(route.bandwidth.value == 0);
  CHECK(route.latency == Time{0});
}

TEST_CASE("Ideal links have no capacity and take no time") {
  const Topology topology(cluster(LinkKind::Ideal));
  CHECK(topology.links().empty());
  CHECK(topology.route(0, 3).bandwidth.value == 0);
  CHECK(topology.route(0, 3).latency == Time{0});
}

TEST_CASE("Through a switch a transfer takes one port out and one port in") {
  const Topology topology(cluster(LinkKind::Nvswitch));
  CHECK(topology.links().size() == 8);
  CHECK(way(topology, 1, 3) == "node 0 device 1 out | node 0 device 3 in");
  CHECK(topology.route(1, 3).bandwidth == GB(100));
  CHECK(topology.route(1, 3).latency == Time{3'000});
}

TEST_CASE("In a mesh every ordered pair has a link of its own") {
  const Topology topology(cluster(LinkKind::Mesh, 2));
  std::set<int> links;
  for (DeviceId from = 0; from < 4; ++from)
    for (DeviceId to = 0; to < 4; ++to)
      if (from != to) {
        const Route route = topology.route(4 + from, 4 + to);
        REQUIRE(route.links.size() == 1);
        links.insert(route.links[0]);
        CHECK(way(topology, 4 + from, 4 + to) == "node 1 device " + std::to_string(from) + " to " + std::to_string(to));
      }
  CHECK(links.size() == 12);
}

TEST_CASE("In a half-duplex mesh both directions of a pair are one link") {
  Cluster half = cluster(LinkKind::Mesh);
  half.links.duplex = Duplex::Half;
  const Topology topology(half);
  CHECK(topology.links().size() == 6);
  for (DeviceId a = 0; a < 4; ++a)
    for (DeviceId b = a + 1; b < 4; ++b) {
      CHECK(way(topology, a, b) == "node 0 device " + std::to_string(a) + " - " + std::to_string(b));
      CHECK(way(topology, b, a) == way(topology, a, b));
    }
}

TEST_CASE("A half-duplex port carries both directions") {
  Cluster half = cluster(LinkKind::Pcie);
  half.links.duplex = Duplex::Half;
  const Topology topology(half);
  CHECK(topology.links().size() == 4);
  CHECK(way(topology, 0, 1) == "node 0 device 0 port | node 0 device 1 port");
  CHECK(way(topology, 1, 0) == "node 0 device 1 port | node 0 device 0 port");
}

TEST_CASE("Without peer access a copy is stored in host memory and forwarded") {
  Cluster staged = cluster(LinkKind::Pcie);
  staged.links.bandwidth = GB(12);
  staged.links.peer_access = false;
  CHECK(way(Topology(staged), 0, 1) == "node 0 device 0 out | node 0 device 1 in");
  CHECK(Topology(staged).route(0, 1).bandwidth.value == doctest::Approx(6e9));  // 1 / (1/12 + 1/12)

  staged.links.host_bandwidth = GB(24);
  const Topology topology(staged);
  CHECK(way(topology, 0, 1) == "node 0 device 0 out | node 0 host memory | node 0 device 1 in");
  CHECK(topology.route(0, 1).bandwidth == GB(6));      // neither half notices host memory: 1 / (1/12 + 1/12)
  CHECK(topology.links().back().bandwidth == GB(12));  // but each byte is written and read: half of 24 for all copies

  staged.links.host_bandwidth = GB(8);  // slower than the ports: both halves go at 8 GB/s, all of host memory's rate
  CHECK(Topology(staged).route(0, 1).bandwidth == GB(4));
  CHECK(Topology(staged).links().back().bandwidth == GB(4));
}

TEST_CASE("Between nodes a switch fabric leaves through the node's NIC") {
  const Topology topology(cluster(LinkKind::Nvswitch, 2));
  CHECK(way(topology, 1, 6) == "node 0 NIC out | node 1 NIC in");
  CHECK(topology.route(1, 6).bandwidth == GB(10));
  CHECK(topology.route(1, 6).latency == Time{20'000});
}

TEST_CASE("On PCIe the device's port is also its way to the NIC") {
  Cluster slow_port = cluster(LinkKind::Pcie, 2);
  slow_port.links.bandwidth = GB(8);
  const Topology topology(slow_port);
  CHECK(way(topology, 1, 6) == "node 0 device 1 out | node 0 NIC out | node 1 NIC in | node 1 device 2 in");
  CHECK(topology.route(1, 6).bandwidth == GB(8));
  CHECK(topology.route(1, 6).latency == Time{20'000});
}

TEST_CASE("A single device per node still passes its PCIe port") {
  Cluster one_each = cluster(LinkKind::Pcie, 2);
  one_each.devices_per_node = 1;
  CHECK(way(Topology(one_each), 0, 1) == "node 0 device 0 out | node 0 NIC out | node 1 NIC in | node 1 device 0 in");
}

TEST_CASE("A NIC per device belongs to its device alone") {
  Cluster many = cluster(LinkKind::Nvswitch, 2);
  many.network->per = NicPer::Device;
  CHECK(way(Topology(many), 1, 6) == "node 0 device 1 NIC out | node 1 device 2 NIC in");
}

TEST_CASE("Oversubscribed leaves share an uplink, and only between leaves") {
  Cluster tree = cluster(LinkKind::Nvswitch, 4);
  tree.network->per = NicPer::Device;
  tree.network->nodes_per_switch = 2;
  tree.network->oversubscription = 16;
  const Topology topology(tree);
  CHECK(way(topology, 0, 4) == "node 0 device 0 NIC out | node 1 device 0 NIC in");
  CHECK(way(topology, 0, 8) == "node 0 device 0 NIC out | leaf 0 up | leaf 1 down | node 2 device 0 NIC in");
  CHECK(way(topology, 12, 1) == "node 3 device 0 NIC out | leaf 1 up | leaf 0 down | node 0 device 1 NIC in");
  CHECK(topology.route(0, 8).bandwidth == GB(5));  // 2 nodes x 4 NICs x 10 GB/s / 16
}

TEST_CASE(
    "On rails a message leaves by the neighbour on the receiver's rail, and passes the spine between pods alone") {
  Cluster rails = cluster(LinkKind::Nvswitch, 4);
  rails.network->per = NicPer::Device, rails.network->rails = true;
  rails.network->nodes_per_switch = 2;
  CHECK(way(Topology(rails), 0, 4) == "node 0 device 0 NIC out | node 1 device 0 NIC in");
  CHECK(way(Topology(rails), 0, 9) ==
        "node 0 device 0 out | node 0 device 1 in | node 0 device 1 NIC out | node 2 device 1 NIC in");
  rails.network->oversubscription = 4;
  const Topology topology(rails);
  CHECK(way(topology, 0, 5) ==
        "node 0 device 0 out | node 0 device 1 in | node 0 device 1 NIC out | node 1 device 1 NIC in");
  CHECK(way(topology, 0, 8) ==
        "node 0 device 0 NIC out | leaf 0 rail 0 up | leaf 1 rail 0 down | node 2 device 0 NIC in");
  CHECK(way(topology, 3, 9) ==
        "node 0 device 3 out | node 0 device 1 in | node 0 device 1 NIC out | leaf 0 rail 1 up | leaf 1 rail 1 down | "
        "node 2 device 1 NIC in");
  CHECK(topology.route(0, 8).bandwidth == GB(5));  // 2 nodes x 10 GB/s / 4
  CHECK(topology.route(0, 5).bandwidth == GB(10));
  CHECK(topology.way(0, 5) == Topology::Way::ByNeighbour);
  CHECK(topology.way(3, 9) == Topology::Way::ByNeighbourAndSpine);
  // Without a switch inside the node other rails are reached over the spine, also in the same pod.
  rails.links.kind = LinkKind::Pcie;
  CHECK(way(Topology(rails), 0, 5) ==
        "node 0 device 0 out | node 0 device 0 NIC out | leaf 0 rail 0 up | leaf 0 rail 1 down | node 1 device 1 NIC "
        "in | "
        "node 1 device 1 in");
  rails.network->nodes_per_switch = 4;
  CHECK(way(Topology(rails), 0, 5).find("leaf 0 rail 1 down") != std::string::npos);
  CHECK(Topology(rails).period() == 16);
  rails.network->nodes_per_switch = 1 << 30;
  CHECK(Topology(rails).period() == 16);
  // Links that cost nothing: as behind a switch.
  rails.links.kind = LinkKind::Ideal;
  CHECK(way(Topology(rails), 0, 5) == "node 0 device 1 NIC out | node 1 device 1 NIC in");
  rails.network->per = NicPer::Node;
  CHECK_THROWS_WITH_AS(Topology{rails},
                       "cluster.network.rails: a rail joins the NICs of one place of many nodes; write per: device",
                       InputError);
}

TEST_CASE("An uplink that cannot bind is left out") {
  Cluster tree = cluster(LinkKind::Nvswitch, 4);
  tree.network->nodes_per_switch = 2;
  CHECK(way(Topology(tree), 0, 8) == "node 0 NIC out | node 2 NIC in");
}

TEST_CASE("An ideal network takes no time even from PCIe") {
  Cluster ideal = cluster(LinkKind::Pcie, 2);
  ideal.network->ideal = true;
  const Topology topology(ideal);
  CHECK(topology.route(0, 4).links.empty());
  CHECK(topology.route(0, 4).bandwidth.value == 0);
  CHECK(topology.route(0, 1).bandwidth == GB(100));
}

TEST_CASE("A link's place and name follow from its number") {
  for (const LinkKind kind : {LinkKind::Ideal, LinkKind::Mesh, LinkKind::Nvswitch, LinkKind::Pcie})
    for (const Duplex duplex : {Duplex::Full, Duplex::Half})
      for (const NicPer per : {NicPer::Node, NicPer::Device}) {
        Cluster c = cluster(kind, 4);
        c.links.duplex = c.network->duplex = duplex;
        c.links.peer_access = kind != LinkKind::Pcie;
        if (kind == LinkKind::Pcie) c.links.host_bandwidth = GB(24);
        c.network->per = per, c.network->nodes_per_switch = 2, c.network->oversubscription = 2;
        const Topology topology(c);
        std::set<std::string> names;
        for (int i = 0; i < topology.link_count(); ++i) {
          names.insert(topology.link(i).name);
          CHECK(topology.link(i).bandwidth == topology.bandwidth(i));
        }
        CHECK(std::ssize(names) == topology.link_count());
        for (DeviceId from = 0; from < 16; ++from)
          for (DeviceId to = 0; to < 16; ++to) {
            const Route route = topology.route(from, to);
            for (const int link : route.links) {
              const LinkPlace place = topology.place(link);
              const bool switches = place.kind == LinkPlace::Kind::Up || place.kind == LinkPlace::Kind::Down;
              CHECK((place.owner == (switches ? from / 8 : from / 4) || place.owner == (switches ? to / 8 : to / 4)));
            }
            const bool far = topology.way(from, to) == Topology::Way::BetweenLeaves;
            CHECK(far == (from / 8 != to / 8));
          }
      }
}

TEST_CASE("Links on a route are distinct and no slower than the route") {
  for (const LinkKind kind : {LinkKind::Ideal, LinkKind::Mesh, LinkKind::Nvswitch, LinkKind::Pcie})
    for (const auto& [duplex, rails] :
         {std::pair{Duplex::Full, false}, {Duplex::Half, false}, {Duplex::Full, true}, {Duplex::Half, true}}) {
      Cluster c = cluster(kind, 4);
      c.links.duplex = c.network->duplex = duplex;
      c.network->oversubscription = 3;
      if (rails) c.network->rails = true, c.network->per = NicPer::Device, c.network->nodes_per_switch = 2;
      const Topology topology(c);
      for (DeviceId from = 0; from < c.devices(); ++from)
        for (DeviceId to = 0; to < c.devices(); ++to) {
          const Route route = topology.route(from, to);
          CHECK(std::set<int>(route.links.begin(), route.links.end()).size() == route.links.size());
          for (const int link : route.links)
            CHECK(route.bandwidth <= topology.bandwidth(link));
        }
    }
}

TEST_CASE("What no cluster can be is refused with a way out") {
  Cluster c = cluster(LinkKind::Nvswitch, 2);
  c.place = {"c.yaml", 3, 1};
  c.network.reset();
  CHECK_THROWS_WITH_AS(Topology{c}, "c.yaml:3:1: cluster: 2 nodes but no network; add `network:`, or use one node",
                       InputError);
  c = cluster(LinkKind::Nvswitch);
  c.links.bandwidth = GB(0);
  CHECK_THROWS_WITH_AS(Topology{c},
                       "cluster.links.bandwidth: must be larger than 0; write e.g. \"25 GB/s\", or `ideal` where "
                       "transfers shall take no time",
                       InputError);
  c = cluster(LinkKind::Mesh);
  c.links.peer_access = false;
  CHECK_THROWS_AS(Topology{c}, InputError);
  c = cluster(LinkKind::Mesh);
  c.devices_per_node = 2000;
  CHECK_THROWS_AS(Topology{c}, InputError);
  c = cluster(LinkKind::Nvswitch);
  c.devices_per_node = 2'000'000'000;
  CHECK_THROWS_WITH_AS(Topology{c}, "cluster: 2000000000 devices; at most 262144 are supported", InputError);
  c = cluster(LinkKind::Nvswitch, 2);
  c.network->oversubscription = 0.5;
  CHECK_THROWS_AS(Topology{c}, InputError);
}
