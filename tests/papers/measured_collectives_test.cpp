// Measured collectives and messages beside the presets' curves: the rows that no constant was fitted on, which are those whose
// number, counted from 0, five does not divide. A program of its own, so that without the data (env PIPEWRIGHT_TEST_DATA,
// default ../shared/data beside the source tree) the test runner shows it as skipped.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include "core/cluster/collective_curves.hpp"
#include "core/cost/expert_exchange.hpp"
#include "core/cost/sources/operator_times.hpp"
#include "io/read/read_scenario.hpp"
#include "tests/support/run_program.hpp"

using namespace pipewright::tests;

namespace {

constexpr double kMiB = 1024.0 * 1024.0;

std::string curves() {
  const char* data = std::getenv("PIPEWRIGHT_TEST_DATA");
  const std::string folder = (data ? data : source_folder() + "/../shared/data") + "/curves/";
  if (!std::filesystem::exists(folder)) {
    std::printf("skipped: no curves in %s (PIPEWRIGHT_TEST_DATA names the folder above)\n", folder.c_str());
    std::exit(77);
  }
  return folder;
}

struct Row {
  int number = 0;
  std::map<std::string, std::string> cells;
  const std::string& text(const std::string& head) const { return cells.at(head); }
  double value(const std::string& head) const { return std::atof(text(head).c_str()); }
};

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> parts;
  std::istringstream text(line);
  for (std::string part; std::getline(text, part, ',');)
    parts.push_back(part);
  return parts;
}

std::vector<Row> rows(const std::string& file) {
  std::ifstream in(curves() + file);
  REQUIRE(in.good());
  std::vector<std::string> heads;
  std::vector<Row> found;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::vector<std::string> parts = split(line);
    if (heads.empty()) {
      heads = std::move(parts);
      continue;
    }
    parts.resize(heads.size());
    Row& row = found.emplace_back();
    row.number = static_cast<int>(found.size()) - 1;
    for (std::size_t i = 0; i < heads.size(); ++i)
      row.cells[heads[i]] = parts[i];
  }
  return found;
}
bool judged(const Row& row) {
  return row.number % 5 != 0;
}

struct Preset {
  CollectiveCurve curve;
  MessageCurve messages;
  double links = 0;
};
Preset preset(const std::string& name, double links) {
  const Device device = read_device(source_folder() + "/configs/devices/" + name + ".yaml");
  return {device.collectives.value(), device.messages.value(), links};
}

const std::map<std::string, Preset>& presets() {
  static const std::map<std::string, Preset> all = {{"A100", preset("a100-sxm-80g", 300e9)},
                                                    {"H100", preset("h100-sxm-80g", 450e9)},
                                                    {"B200", preset("b200-sxm-180g", 900e9)},
                                                    {"GB20", preset("gb200", 900e9)},
                                                    {"GB30", preset("gb300", 900e9)}};
  return all;
}

std::optional<CollectiveKind> kind(const std::string& name) {
  if (name == "all_reduce" || name == "all-reduce" || name == "AllReduce") return CollectiveKind::AllReduce;
  if (name == "all_gather" || name == "all-gather" || name == "AllGather") return CollectiveKind::AllGather;
  if (name == "reduce_scatter" || name == "reduce-scatter" || name == "ReduceScatter")
    return CollectiveKind::ReduceScatter;
  if (name == "alltoall" || name == "all-to-all") return CollectiveKind::AllToAll;
  return std::nullopt;
}

struct Mean {
  double sum = 0, signed_sum = 0;
  int count = 0;
  void add(double predicted, double measured) {
    sum += std::abs(predicted / measured - 1), signed_sum += predicted / measured - 1, ++count;
  }
  double percent() const { return 100 * sum / count; }
  double signed_percent() const { return 100 * signed_sum / count; }
};

double least(const std::vector<CollectiveWay>& ways, double moved) {
  double us = 1e300;
  for (const CollectiveWay& way : ways)
    us = std::min(us, way.start + moved / way.rate * 1e6);
  return us;
}
double steps(CollectiveKind kind, int members) {
  return (kind == CollectiveKind::AllReduce ? 2.0 : 1.0) * (members - 1);
}

// Errors by the smallest size of the rows, in bytes; of all-to-alls, or of the others.
Mean inside_a_node(const std::string& file, const char* group, const char* size, double smallest,
                   const std::vector<std::string>& devices, bool to_all = false) {
  Mean mean;
  for (const Row& row : rows(file)) {
    const std::string device = row.text("device").substr(0, 4);
    const auto what = kind(row.text("op"));
    const double bytes = row.value(size), us = row.value("time_us");
    const bool wanted = std::find(devices.begin(), devices.end(), device) != devices.end();
    if (!judged(row) || !what || !wanted || bytes < smallest || us <= 0) continue;
    if ((*what == CollectiveKind::AllToAll) != to_all) continue;
    const Preset& here = presets().at(device);
    mean.add(collective_us(here.curve, *what, static_cast<int>(row.value(group)), bytes, here.links), us);
  }
  return mean;
}

}  // namespace

TEST_CASE("Inside a node: all-reduce, all-gather and reduce-scatter of 2, 4 and 8 GPUs within 8 % on average") {
  const std::vector<std::string> devices = {"A100", "H100", "B200"};
  const Mean all = inside_a_node("nccl_nvlink.csv", "gpus", "bytes", 0, devices);
  CHECK(all.count > 400);
  CHECK(all.percent() <= 8);
  CHECK(inside_a_node("nccl_nvlink.csv", "gpus", "bytes", kMiB, devices).percent() <= 10);
  CHECK(inside_a_node("nccl_nvlink.csv", "gpus", "bytes", 64 * kMiB, devices).percent() <= 5);
}

TEST_CASE("Inside a node: all-to-alls within 12 % on average, among up to 72 devices within 20 %") {
  const std::vector<std::string> devices = {"A100", "H100", "B200"}, racks = {"GB20", "GB30"};
  const Mean all = inside_a_node("nccl_nvlink.csv", "gpus", "bytes", 0, devices, true);
  CHECK(all.count == 151);
  CHECK(all.percent() <= 12);
  CHECK(inside_a_node("nccl_nvlink.csv", "gpus", "bytes", 64 * kMiB, devices, true).percent() <= 5);
  CHECK(inside_a_node("collectives.csv", "group_size", "tensor_bytes", 0, racks, true).percent() <= 20);
  CHECK(inside_a_node("collectives.csv", "group_size", "tensor_bytes", kMiB, racks, true).percent() <= 13);
}

TEST_CASE("One NVLink domain of 72: groups of 4 to 72 GB200 and GB300 within 12 % on average") {
  const std::vector<std::string> devices = {"GB20", "GB30"};
  const Mean all = inside_a_node("collectives.csv", "group_size", "tensor_bytes", 0, devices);
  CHECK(all.count > 1000);
  CHECK(all.percent() <= 12);
  CHECK(inside_a_node("collectives.csv", "group_size", "tensor_bytes", kMiB, devices).percent() <= 10);
}

TEST_CASE("All-reduces of 32 A100 on four nodes with eight NICs of 100 Gb/s: from 1 MiB on within 15 % on average") {
  const NodeSpan span{
      .members = 32, .nodes = 4, .nominal = 300e9, .rails = 8, .nics = 8 * 12.5e9 * 0.92, .nic_us = 7.1};
  Mean mean, large;
  for (const Row& row : rows("all-reduce.csv")) {
    const double bytes = row.value("bytes"), us = bytes / row.value("algbw_GBps") * 1e-3;
    if (!judged(row) || bytes < kMiB) continue;
    const double predicted =
        least(ways_between(presets().at("A100").curve, CollectiveKind::AllReduce, span), 2 * 31.0 / 32 * bytes);
    mean.add(predicted, us);
    if (bytes >= 64 * kMiB) large.add(predicted, us);
  }
  CHECK(mean.count == 12);
  CHECK(mean.percent() <= 15);
  CHECK(large.percent() <= 5);
}

TEST_CASE("256 MiB on 2 to 64 nodes with EFA: the best of repeated runs within 8 %, their median within 17 %") {
  const ReadOptions options{.set = {}, .config_path = {source_folder() + "/configs"}};
  const Network network = *read_cluster(source_folder() + "/configs/clusters/aws-p5x8.yaml", options).network;
  Mean best, median;
  for (const Row& row : rows("comm_bandwidth_256MB.csv")) {
    const int nodes = static_cast<int>(row.value("nodes")), n = 8 * nodes;
    if (nodes < 2 || !judged(row)) continue;
    const auto bus = [&](double slower) {
      const CollectiveKind what = *kind(row.text("collective"));
      const NodeSpan span{.members = n,
                          .nodes = nodes,
                          .nominal = 450e9,
                          .rails = 8,
                          .nics = 8 * network.bandwidth.value * network.share,
                          .nic_us = static_cast<double>(network.latency.value) * 1e-3,
                          .slower = slower};
      const double moved = steps(what, n) / n * 256 * kMiB;
      return moved / least(ways_between(presets().at("H100").curve, what, span), moved) * 1e-3;
    };
    best.add(bus(1), row.value("band_hi"));
    median.add(bus(std::pow(nodes, network.contention)), row.value("bus_or_alg_bw_GBps"));
  }
  CHECK(best.count == 14);
  CHECK(best.percent() <= 8);
  CHECK(median.percent() <= 17);
}

// Eight devices and more: 4096 tokens, 8 of 256 experts each, hidden 7168, fp8 out and bf16 back. A figure counts the rows
// that each device gets (NVLink), or each node (RDMA), the own one among them.
TEST_CASE("DeepEP's kernels: bandwidths that are published for them within 10 % on average") {
  Mean mean;
  for (const Row& row : rows("all-to-all.csv")) {
    if (row.text("mode") != "normal") continue;
    const bool nvlink = row.text("link") == "NVLink", blackwell = row.text("device").starts_with("SM100");
    const std::string &ep = row.text("ep"), per_node = ep.find(" x ") == std::string::npos ? "" : ep.substr(4);
    const int nodes = !per_node.empty() ? std::atoi(per_node.c_str()) : std::max(1, std::atoi(ep.c_str()) / 8);
    Scenario scenario;
    const bool h800 = row.text("device").starts_with("H800");
    scenario.cluster.device = read_device(source_folder() + "/configs/devices/" +
                                          (blackwell ? "b200-sxm-180g"
                                           : h800    ? "h800-sxm-80g"
                                                     : "h100-sxm-80g") +
                                          ".yaml");
    scenario.cluster.nodes = nodes, scenario.cluster.devices_per_node = 8;
    scenario.cluster.links.kind = LinkKind::Nvswitch;
    scenario.cluster.links.bandwidth = Bandwidth{blackwell ? 900e9 : h800 ? 200e9 : 450e9};
    scenario.cluster.network = Network{};
    scenario.cluster.network->bandwidth = Bandwidth{50e9}, scenario.cluster.network->per = NicPer::Device;
    scenario.cluster.network->share = 0.92;  // InfiniBand, as the presets have it
    scenario.plan.placement = PlacementOrder::Data;
    scenario.plan.data_parallel.value = scenario.plan.expert_parallel.value = 8 * nodes;
    scenario.plan.expert_exchange.value = ExpertExchange::PerNode;
    scenario.plan.expert_nodes = Placed<std::int64_t>{4, {}};
    const TokenExchange exchange(scenario, Topology(scenario.cluster));
    for (const char* const way : {"dispatch_GBps", "combine_GBps"}) {
      const double bytes = way[0] == 'd' ? 7168 * (1 + 4.0 / 128) : 7168 * 2;
      const double copies = nvlink ? nodes_of_token(256, 8, 8, 8) : nodes_of_token(256, 8, nodes, std::min(nodes, 4));
      const double ns = exchange.time({4096, 8, 256, 7168}, 4096, bytes);
      mean.add(4096 * copies * bytes / ns, row.value(way));
    }
  }
  CHECK(mean.count == 18);
  CHECK(mean.percent() <= 10);
}

// Gradients of weights that are added to a sum in fp32, beside forward and gradient of the input of the same layer.
TEST_CASE("Products that add to a sum in fp32 take longer than those of the other passes, by part of its bytes") {
  const std::vector<Row> all = rows("operators-b200.csv");
  for (const auto& [device, bandwidth, count] : {std::tuple{"B200 SXM", 8.0e12, 144}, {"A100 PCIe", 1.94e12, 61}}) {
    std::map<std::multiset<double>, std::vector<double>> others;  // us, by the three sizes
    const auto sizes = [](const Row& row) {
      return std::multiset<double>{row.value("m"), row.value("k"), row.value("n")};
    };
    const auto us = [](const Row& row) {
      return 2 * row.value("m") * row.value("k") * row.value("n") / row.value("tflops") / 1e6;
    };
    for (const Row& row : all)
      if (row.text("device") == device && row.text("op") == "matmul" && row.text("layout") != "NT")
        others[sizes(row)].push_back(us(row));
    Mean alike, longer;
    for (const Row& row : all) {
      if (row.text("device") != device || row.text("layout") != "NT" || row.text("extra") != "acc=True out=fp32")
        continue;
      const std::vector<double>& both = others.at(sizes(row));
      const double mean = std::accumulate(both.begin(), both.end(), 0.0) / static_cast<double>(both.size());
      alike.add(mean, us(row));
      longer.add(mean + added_to_sum_ns(row.value("m") * row.value("n"), bandwidth) / 1e3, us(row));
    }
    CAPTURE(device);
    CHECK(longer.count == count);
    CHECK(longer.percent() <= 0.8 * alike.percent());
    CHECK(std::abs(longer.signed_percent()) <= 1);
    CHECK(alike.signed_percent() <= -4);
  }
}

TEST_CASE("Messages inside a node within 25 % on average, where the links' bandwidth alone is 70 % off or more") {
  for (const char* const device : {"H100", "B200", "GB20"}) {
    const Preset& here = presets().at(device);
    Mean curve, links;
    for (const Row& row : rows("collectives.csv")) {
      if (!judged(row) || row.text("op") != "collective-permute" || row.text("device").substr(0, 4) != device) continue;
      const double bytes = row.value("tensor_bytes"), us = row.value("time_us");
      curve.add(message_us(here.messages, bytes, here.links), us);
      links.add(bytes / here.links * 1e6, us);
    }
    CAPTURE(device);
    CHECK(curve.count > 50);
    CHECK(curve.percent() <= 25);
    CHECK(links.percent() >= 70);
  }
}
