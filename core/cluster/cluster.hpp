// The hardware, as a user states it: devices in nodes, nodes on a network. `topology.hpp` turns it into links and
// routes.
//
// Nodes may hold devices of up to three classes, each node of one: new machines beside the old ones. The nodes of a
// class follow one another, so devices are numbered class by class. All nodes have as many devices, wired alike.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "core/cluster/collective_curves.hpp"
#include "core/cluster/kernel_curves.hpp"
#include "core/ids.hpp"
#include "core/model/work.hpp"
#include "core/units.hpp"

namespace pipewright::core {

enum class Precision { Fp32, Tf32, Fp16, Bf16, Fp8, Fp4 };  // the last two: of products alone, see LowPrecision

// The share of a peak rate that operators of one kind reach: of the FLOP rate, or for OperatorKind::Memory of the
// memory bandwidth, which all kinds share.
struct Efficiency {
  // Work per call on one device (FLOPs; Memory: bytes) and share, by growing work. Between two points the share is
  // interpolated over the logarithm of the work; outside it stays at the nearest point. One point: a constant.
  std::vector<std::pair<double, double>> curve;
  // Work per call at which half of that share is reached: a call of w takes as long as w + half_work at the full share,
  // what is lost while it fills and drains the device.                    share * w / (w + half_work)   [Hockney94]
  // Share 0.6, half_work 2e9, 1e10 FLOPs: 0.5.
  double half_work = 0;
  // Products whose shape is known: by tiles and waves, in place of the share: fp16 and bf16 products, and convolutions
  // in fp32 (their share is for other precisions).
  std::optional<ProductCurve> tiles;
  std::vector<AttentionKernel> kernels;  // fused attention by kernel and head size, in place of the share; likewise
  Time fixed;                            // of a call beside its work: what starting a kernel that moves few bytes takes
  double band = 0;                       // of the share: core/cluster/bands.hpp
  Provenance provenance = Provenance::Assumed;
  std::string source;
  Place place;

  // {[1e9, 0.2], [1e11, 0.6]} at 1e10: 0.4.     tests/core/operator_costs_test.cpp "an efficiency curve"
  double at(double work) const;
};

// How memory is handed out. Caching: as PyTorch's allocator, in blocks of 512 B, from 1 MiB on in segments of 2 MiB.
enum class Allocator { Exact, Caching };

// Where the host waits until its device has done all that was issued.
enum class Blocking : std::uint8_t {
  Passes,    // before and after each forward and backward: timers that synchronise, as those of early Megatron-LM
  Messages,  // after an exchange with a neighbouring stage, and at the end of a step: batched sends and receives
  Step,      // at the end of a step alone: messages beside the computing
};
constexpr bool waits_between_passes(Blocking blocking, std::int64_t stages) {
  return blocking == Blocking::Passes || (blocking == Blocking::Messages && stages > 1);
}

// What the host spends on issuing work to a device, kernel by kernel; it runs ahead of the device from one blocking
// point to the next (core/cost/kernel_queue.hpp). All 0: the host never limits.
struct HostTimes {
  Time operation;                // to issue one operator of one pass
  std::optional<Time> backward;  // likewise, of a backward, which issues more kernels; absent: as operation
  Time collective;               // to issue one all-reduce of a tensor-parallel group
  Time skew;                     // that the device waits at each of them, as its members do not come at the same time
  Time pass;     // around each forward and each backward of a stage: reading the batch, starting and ending the pass
  Time message;  // likewise, in a pipeline of several stages: to exchange tensors with the neighbours
  Time step;     // around each optimizer step
  Blocking blocking = Blocking::Messages;
  // To launch one kernel of compiled code, and one node of a CUDA graph: see Training::execution.
  Time compiled{5'000}, graph_node{1'500};

  constexpr Time around_pass(std::int64_t stages) const { return stages > 1 ? pass + message : pass; }
  std::optional<double> band;  // of all of them together; absent: kHostBand
};

// What kernels of collectives and of computing take from one another while both run: each rate is as given here from the
// moment on at which the other begins, and whole again when it ends.
struct KernelContention {
  int multiprocessors = 0;  // that a collective's kernels hold
  double memory = 1;        // times as long takes what memory limits, beside a collective
  double collective = 1;    // times as long takes a collective, beside computing

  bool takes() const { return multiprocessors > 0 || memory > 1; }  // from what computes
  bool any() const { return takes() || collective > 1; }
};

struct MeasuredDevice;  // core/cluster/measured_device.hpp

// One accelerator. Peak rates are dense (no sparsity); each figure has a `source` in its file.
struct Device {
  std::string name;
  Bytes memory;   // what a program is given of it, in total: on a GPU what CUDA reports, less than its nominal size
  Bytes reserve;  // of that, taken by context, communicators and libraries before the model gets any
  // That a group of devices takes in addition once it communicates: NCCL's buffers of each channel and peer. One group
  // is in `reserve`.
  Bytes communicator = {};
  Allocator allocator = Allocator::Exact;
  double fragmentation = 0;            // share of what the model holds that is lost between blocks
  std::map<Precision, FlopRate> peak;  // by precision
  std::optional<Bandwidth> memory_bandwidth;
  std::optional<Bandwidth> host_link;    // to the memory of its host, each way
  std::optional<Bandwidth> host_update;  // that the host reads and writes for it while it updates parameters
  Time launch_overhead;                  // per scheduled op (explicit and uniform times) or per layer (roofline)
  HostTimes host;                        // roofline, layers built from operators
  KernelContention contention;
  bool fp8_any_layout = false;  // fp8 products read either operand along either side; else transposed copies are made
  double spread = 0;            // of the speeds of such devices, relative standard deviation; 0: all alike
  double compute_efficiency = 1.0;  // share of the peak that a layer reaches (roofline source), 0 < e <= 1
  double memory_efficiency = 1.0;   // share of the memory bandwidth, likewise
  // By OperatorKind; absent: compute_efficiency, or for Memory memory_efficiency.
  std::array<std::optional<Efficiency>, kOperatorKinds> efficiency;
  // Collectives over the links of its node; absent: rings at the links' bandwidth and latency.
  std::optional<CollectiveCurve> collectives;
  std::optional<MessageCurve> messages;  // from device to device; absent: at the links' bandwidth and latency
  // What `calibrate --backend cuda` measured on it: prices operations in place of the shares above. Null: nothing.
  std::shared_ptr<const MeasuredDevice> measured;
  int multiprocessors = 0;               // that run kernels; 0: not stated
  int virtual_devices = 1;               // measured: this device is one of so many equal groups of a GPU's SMs
  std::optional<double> price_per_hour;  // of one device, in any currency: the same for all that is compared
  std::optional<Power> power;            // that it draws at most while it computes: its thermal design power
  std::optional<Time> mtbf;              // mean time between failures that stop the training, of one device
  std::string source;
  std::map<std::string, std::string> sources;     // of single figures, by key: "peak.fp16"
  std::map<std::string, Provenance> provenances;  // likewise, where it is stated how a figure is known: "memory"
  Place place;
};

enum class Duplex { Full, Half };     // Half: both directions share one capacity
enum class Sharing { MaxMin, Fifo };  // how transfers divide a link

// Links inside a node. Bandwidth is per direction.
struct NodeLinks {
  LinkKind kind = LinkKind::Ideal;
  Bandwidth bandwidth{0};
  Time latency;
  Duplex duplex = Duplex::Full;
  bool peer_access = true;  // false: a copy goes device -> host memory -> device, both halves one after the other
  std::optional<Bandwidth> host_bandwidth;  // host memory, shared by all such copies of a node; absent: no limit
  std::optional<double> band;               // of the rates that messages reach; absent: kLinkBand
};

enum class NicPer { Node, Device };

// Links between nodes. Bandwidth is per NIC and direction.
struct Network {
  bool ideal = false;
  Bandwidth bandwidth{0};
  Time latency;
  double share = 1;       // of the bandwidth that collectives and messages reach
  double contention = 0;  // beside the traffic of others what passes n nodes takes n^contention times as long
  NicPer per = NicPer::Node;
  Duplex duplex = Duplex::Full;
  double oversubscription = 1.0;  // bandwidth into a leaf switch / bandwidth out of it, >= 1
  int nodes_per_switch = 1;       // nodes under one leaf switch
  bool rails = false;             // a leaf switch has the NICs of one place of these nodes alone (rail-optimised)
  std::optional<double> band;     // of the rates that messages reach; absent: kNetworkBand
};

// A class beside the first one.
struct DeviceClass {
  std::string name;  // "old"
  int nodes = 0;
  Device device;
  // How many times faster than the first class it runs what has a stated time: such a time is one device's, and knows
  // no other. Roofline times come from the device's own figures.     tests/core/device_classes_test.cpp "speed"
  std::optional<double> speed;
  Place place;
};
// Class counts are part of the state of the planner's dynamic program (partitioners/suffix_dp.hpp).
constexpr int kMostClasses = 3;

struct Cluster {
  std::string name;
  int nodes = 1;  // of all classes
  int devices_per_node = 1;
  Device device;                    // of the first class
  std::vector<DeviceClass> others;  // further classes, on the last nodes in this order; most clusters have none
  NodeLinks links;
  std::optional<Bandwidth>
      host_bandwidth;              // of copies between a node's devices and its host, each way; absent: no limit
  std::optional<Network> network;  // must be there when nodes > 1
  Sharing sharing = Sharing::MaxMin;
  std::string source;
  std::map<std::string, std::string> sources;     // of single figures, by key: "node.links.bandwidth"
  std::map<std::string, Provenance> provenances;  // likewise
  Place place;

  int devices() const { return nodes * devices_per_node; }
  int classes() const { return 1 + static_cast<int>(others.size()); }
  int nodes_of(int device_class) const;
  int first_node_of(int device_class) const;
  int class_of(DeviceId id) const;  // -1 is no device: class 0
  const Device& device_of(int device_class) const;
  // "4 x h100-sxm-80g + 8 x a100-80g"; of one class "4 x v100".
  std::string devices_in_words() const;
};

// use(device) of every class, for questions that ask "what if every device ...".
void each_device(Cluster& cluster, const auto& use) {
  use(cluster.device);
  for (DeviceClass& other : cluster.others)
    use(other.device);
}

}  // namespace pipewright::core
