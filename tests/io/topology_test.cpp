// Machines as nvidia-smi and NCCL tell them. The files are written by hand here, in their formats.
#include <cmath>

#include <doctest/doctest.h>

#include "io/import/topology_file.hpp"
#include "io/read_file.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/input_error.hpp"

using namespace pipewright;

namespace {

// n GPUs, each pair joined as `cell` says, with a card of its own each.
std::string matrix(int gpus, const std::string& cell, const std::string& card = "PIX") {
  std::string text = "\t", rows;
  for (int i = 0; i < gpus; ++i)
    text += "GPU" + std::to_string(i) + "\t";
  for (int i = 0; i < gpus; ++i)
    text += "NIC" + std::to_string(i) + "\t";
  text += "CPU Affinity\tNUMA Affinity\n";
  for (int a = 0; a < 2 * gpus; ++a) {
    rows += (a < gpus ? "GPU" : "NIC") + std::to_string(a % gpus) + "\t";
    for (int b = 0; b < 2 * gpus; ++b)
      rows += (a == b ? " X " : a % gpus == b % gpus ? card : a < gpus && b < gpus ? cell : "SYS") + "\t";
    rows += a < gpus ? "0-23\t0\n" : "\n";
  }
  return text + rows + "\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n";
}

Cluster cluster_of(const MachineTopology& machine, const TopologyOptions& options) {
  const Scratch scratch;
  const std::string device = scratch.write(
      "devices/" + (options.device.empty() ? machine.device : options.device) + ".yaml", "device: {memory: 80 GiB}\n");
  return read_cluster(scratch.write("c.yaml", cluster_file(machine, options)), {.config_path = {scratch.path("")}});
}

std::string topo_error(const std::string& text) {
  return error_of([&] { parse_topo_matrix(text, "topo.txt"); });
}

std::string xml_error(const std::string& text) {
  return error_of([&] { parse_nccl_xml(text, "t.xml"); });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Two GPUs of compute capability 9.0 behind PCIe switches of their own, a card of 400 Gb/s beside the first.
std::string xml(const std::string& links0, const std::string& links1, const std::string& speed = "32.0 GT/s PCIe") {
  const auto gpu = [&](int number, const std::string& bus, const std::string& links) {
    return "<pci busid=\"" + bus + "\" class=\"0x060400\"><pci busid=\"" + bus +
           "1\" class=\"0x030200\" device=\"0x2330\" link_speed=\"" + speed + "\" link_width=\"16\"><gpu dev=\"" +
           std::to_string(number) + "\" sm=\"90\">" + links + "</gpu></pci>" + "<pci busid=\"" + bus +
           "2\"><nic><net name=\"mlx5_" + std::to_string(number) + "\" speed=\"400000\"/></nic></pci></pci>";
  };
  return "<system version=\"1\"><cpu numaid=\"0\">" + gpu(0, "a", links0) + gpu(1, "b", links1) + "</cpu></system>\n";
}

}  // namespace

TEST_CASE("PCIe: gigatransfers times lanes, less what the encoding takes") {
  CHECK(pcie_rate(32, 16)->value == std::floor(32e9 * 16 * 128 / 130 / 8));  // 63.015 GB/s
  CHECK(pcie_rate(2.5, 4)->value == 1e9);                                    // 10 GT/s x 8/10 / 8
  CHECK_FALSE(pcie_rate(64, 16));
  CHECK_FALSE(pcie_rate(16, 0));
}

TEST_CASE("topo: eight GPUs with 18 NVLinks to each other have a switch; 450 GB/s each, a card each") {
  const Cluster cluster = cluster_of(parse_topo_matrix(matrix(8, "NV18"), "topo.txt"),
                                     {.device = "h100-sxm-80g", .nic = Bandwidth{50e9}, .nodes = 8});
  CHECK(cluster.nodes == 8);
  CHECK(cluster.devices_per_node == 8);
  CHECK(cluster.links.kind == LinkKind::Nvswitch);
  CHECK(cluster.links.bandwidth.value == 450e9);
  REQUIRE(cluster.network);
  CHECK(cluster.network->per == NicPer::Device);
  CHECK(cluster.network->bandwidth.value == 50e9);
}

TEST_CASE("topo: four A100 with four links per pair use all twelve of each GPU: a link of its own per pair") {
  const Cluster cluster = cluster_of(parse_topo_matrix(matrix(4, "NV4"), "topo.txt"), {.device = "a100-sxm-80g"});
  CHECK(cluster.links.kind == LinkKind::Mesh);
  CHECK(cluster.links.bandwidth.value == 100e9);
  CHECK_FALSE(cluster.network);  // the matrix has no speeds
}

TEST_CASE("topo: without NVLinks the slot counts, which the device's generation tells; cards are shared by the node") {
  const MachineTopology machine = parse_topo_matrix(matrix(2, "PHB", "NODE"), "topo.txt");
  const Cluster cluster = cluster_of(machine, {.device = "rtx-3090-24g", .nic = Bandwidth{1.25e9}, .nodes = 2});
  CHECK(cluster.links.kind == LinkKind::Pcie);
  CHECK(cluster.links.bandwidth.value == pcie_rate(16, 16)->value);
  REQUIRE(cluster.network);
  CHECK(cluster.network->per == NicPer::Node);
  CHECK(cluster.network->bandwidth.value == 2.5e9);  // two cards
  CHECK(has(cluster_file(machine, {.device = "rtx-3090-24g"}), "# assumed: rtx-3090-24g sits in a slot of PCIe 4"));
}

TEST_CASE("topo: the header may be underlined and its columns apart by blanks; cards may have names of their own") {
  const MachineTopology machine = parse_topo_matrix(
      "\x1b[4m        GPU0    GPU1    mlx5_0  CPU Affinity\x1b[0m\nGPU0     X      NV12    NODE    0-63\n"
      "GPU1    NV12     X      NODE    0-63\nmlx5_0  NODE    NODE     X\n",
      "topo.txt");
  CHECK(machine.gpus == std::vector<std::string>{"GPU0", "GPU1"});
  CHECK(machine.nvlinks[0][1] == 12);
  CHECK(machine.cards[0].name == "mlx5_0");
  CHECK(machine.near[0].empty());
}

TEST_CASE("topo: where only some pairs have NVLinks all are priced as PCIe, and the file says so") {
  const std::string text = "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV2\tSYS\nGPU1\tNV2\tX\tNV1\nGPU2\tSYS\tNV1\tX\n";
  const std::string file = cluster_file(parse_topo_matrix(text, "topo.txt"), {.device = "v100-sxm2-16g"});
  CHECK(has(file, "kind: pcie"));
  CHECK(has(file, "# assumed: 2 of 3 pairs have NVLinks, which one kind of links cannot say"));
  CHECK(has(file, "# GPU0   X      NV2    SYS\n"));
}

TEST_CASE("What is wrong with a matrix is said with line and column, and a way out") {
  CHECK(has(topo_error("hello\n"), "topo.txt: has no matrix (a line that begins with GPU0)"));
  CHECK(has(topo_error("\tGPU0\tGPU1\nGPU0\tX\tNV2\n"), "has a column GPU1 and no such row; is the file cut off?"));
  CHECK(has(topo_error("\tGPU0\tGPU1\nGPU0\tX\nGPU1\tSYS\tX\n"), "topo.txt:2:6: row GPU0 has 1 cells"));
  CHECK(has(topo_error("\tGPU0\tGPU1\nGPU0\tX\tNVX\nGPU1\tSYS\tX\n"), "topo.txt:2:8: \"NVX\" is no connection"));
  CHECK(has(topo_error("\tGPU0\tGPU1\nGPU0\tSYS\tSYS\nGPU1\tSYS\tX\n"), "\"SYS\" where a device meets itself"));
  CHECK(has(topo_error("\tGPU0\tGPU1\nGPU0\tX\tNV2\nGPU1\tNV1\tX\n"),
            "topo.txt:2:1: GPU0 and GPU1 are joined by NV2, and by NV1 the other way"));
  CHECK(has(topo_error("\tGPU0\tGPU0\n"), "topo.txt:1:7: two columns \"GPU0\""));
  const MachineTopology machine = parse_topo_matrix(matrix(2, "NV4"), "topo.txt");
  CHECK(has(error_of([&] { cluster_file(machine, {}); }), "add --device NAME"));
  CHECK(has(error_of([&] { cluster_file(machine, {.device = "mine"}); }), "add --nvlink RATE"));
  CHECK(has(error_of([&] { cluster_file(machine, {.device = "a100-sxm-80g", .nodes = 2}); }), "add --nic RATE"));
}

TEST_CASE("NCCL: links into switches, the slot, the card beside a GPU and which device it is") {
  const std::string links =
      "<nvlink target=\"s0\" count=\"10\" tclass=\"0x068000\"/><nvlink target=\"s1\" count=\"8\" tclass=\"0x068000\"/>";
  const MachineTopology machine = parse_nccl_xml(xml(links, links), "t.xml");
  CHECK(machine.device == "h100-sxm-80g");
  CHECK(machine.nvlinks[0][1] == 18);
  CHECK(machine.near[0] == std::vector<std::size_t>{0});
  CHECK(machine.pcie_rate->value == pcie_rate(32, 16)->value);
  const Cluster cluster = cluster_of(machine, {});
  CHECK(cluster.links.kind == LinkKind::Nvswitch);
  CHECK(cluster.links.bandwidth.value == 450e9);
  CHECK(cluster.network->per == NicPer::Device);
  CHECK(cluster.network->bandwidth.value == 50e9);
}

TEST_CASE("NCCL: links between two GPUs are a link of the pair; without any the narrowest slot counts") {
  const MachineTopology pair = parse_nccl_xml(xml("<nvlink target=\"b1\" count=\"6\" tclass=\"0x030200\"/>",
                                                  "<nvlink target=\"a1\" count=\"6\" tclass=\"0x030200\"/>"),
                                              "t.xml");
  CHECK(cluster_of(pair, {}).links.kind == LinkKind::Mesh);
  CHECK(cluster_of(pair, {}).links.bandwidth.value == 150e9);
  const MachineTopology none = parse_nccl_xml(xml("", "", "8 GT/s"), "t.xml");
  CHECK(cluster_of(none, {}).links.kind == LinkKind::Pcie);
  CHECK(cluster_of(none, {}).links.bandwidth.value == pcie_rate(8, 16)->value);
}

TEST_CASE("What is wrong with NCCL's file is said with line and column; nothing in it grows") {
  CHECK(has(xml_error(""), "t.xml: is empty"));
  CHECK(has(xml_error("<system>\n<cpu>"), "t.xml:2:6: not valid XML: it ends early, so the file may be cut off"));
  CHECK(has(xml_error("<graph/>"), "t.xml:1:1: \"graph\" instead of <system>"));
  CHECK(has(xml_error("<system/>"), "t.xml: has no <gpu>"));
  CHECK(has(xml_error("<system><gpu sm=\"x\"/></system>"), "t.xml:1:9: sm: \"x\" is no whole number"));
  CHECK(has(xml_error("<!DOCTYPE a [<!ENTITY b \"c\">]><system/>"), ": a document type"));
  std::string deep = "<system>";
  for (int i = 0; i < 100; ++i)
    deep += "<pci>";
  CHECK(has(xml_error(deep), "elements are more than 64 deep"));
  // A name with a line end stays in its comment.
  const MachineTopology hostile = parse_nccl_xml(
      "<system><pci link_speed=\"8 GT/s\" link_width=\"4\"><gpu sm=\"70\"/></pci><net name=\"a&#10;evil: "
      "1\"/></system>",
      "t.xml");
  CHECK(has(cluster_file(hostile, {.device = "v100-sxm2-16g"}), "# network card a evil: 1\n"));
}
