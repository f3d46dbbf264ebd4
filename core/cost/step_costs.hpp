// The prices of one step: how long each op, message and collective takes for one plan on one cluster.
//
// This is all that the engines know of the world. `step_costs` compiles it from a plan; tests write it by hand.
//                                                                         tests/core/step_costs_test.cpp
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/cluster/topology.hpp"
#include "core/cost/fold.hpp"
#include "core/plan/schedule.hpp"
#include "core/plan/timeline.hpp"
#include "core/units.hpp"

namespace pipewright::core {

class CostModel;
struct Plan;

// The way of tensors between two virtual stages: activations from -> to, their gradients to -> from.
// An edge stands for tensors: two virtual stages that share none have no edge, neighbours included. Edges between
// neighbours come first, in their order; those of `skips: direct` that skip a stage follow.
struct Edge {
  std::uint16_t from = 0, to = 0;
};

// One message of an edge between two workers. Messages of a channel (an ordered pair of workers) follow one another:
//     sent = max(channel free, end of the producing op) + occupancy;   channel free = sent;   arrived = sent + latency
// No worker is ever blocked by it. Checked by hand in tests/sim/static_order_test.cpp.
struct Message {
  Time occupancy;  // alone on its route; at least bytes / bandwidth
  Time latency;
  Bytes bytes;
  std::int32_t channel = -1;  // -1: both ends on one worker, arrives at once
  std::int32_t route = -1;    // index into StepCosts::routes; -1: passes no link
};

// One phase of a collective: every link in `links` carries weight * rate while the phase runs.
struct CollectivePhase {
  double bytes = 0;   // amount moved at `rate`
  Bandwidth rate{0};  // alone: min over links of bandwidth / weight, and the routes' own limits; 0: takes no time
  Time latency;
  Time time;                                           // alone: round(bytes / rate) + latency
  std::vector<std::pair<std::int32_t, double>> links;  // link, weight
};

// All-reduce of one bucket, or all-gather of the weights, over all replicas and copies of one virtual stage: phases one
// after the other (ring: one; tree: two; hierarchical: inside the nodes, between them, inside again).
struct Collective {
  Bytes bytes;  // gradients of the bucket, or weights
  Time time;    // alone: sum of the phases
  std::vector<CollectivePhase> phases;
};

struct StepCosts {
  ScheduleShape shape;
  // Durations of full micro-batches and of the last one (the same unless ragged): [chunk * kKinds + kind].
  std::vector<Time> duration, duration_last;
  // Where ops take longer the more workers compute at once: the same tables with `active` of them computing, ascending,
  // up to the first not below the shape's workers; those above hold from the last on. Empty: it makes no difference.
  struct Load {
    int active = 1;
    std::vector<Time> duration, duration_last;
  };
  std::vector<Load> loads;
  // Where slices of a micro-batch take unequal times (core/cost/slices.hpp), by slice; empty: each as `duration`, which is
  // their mean.
  struct Slice {
    std::vector<Time> duration;                                   // as above
    Indexed<VirtualStageId, std::vector<Time>> ready_before_end;  // as below
  };
  std::vector<Slice> slices;
  // Where the ops of a cell run at once (core/cost/cells.hpp); none: one after the other.
  struct Part {
    Time computing, weights;  // the latter: of it gradients of weights
    Time exchange;            // then tokens travel to their experts or back
    bool operator==(const Part&) const = default;
  };
  struct Together {
    std::vector<std::vector<Part>> parts;  // of `duration`; [chunk * kKinds + kind]; empty: it computes all the time
    double share = 0;                      // of a device's processors that an exchange takes from computing
    bool delay_wgrad = false;              // tokens travel as soon as `computing` without `weights` is done
    std::optional<Time> pair;              // stated: a forward with a backward
  };
  std::optional<Together> together;
  // What computing and collectives take from one another while both run on a worker (Device::contention), each as a
  // multiple, >= 1, of its time alone; none: nothing.
  struct Contention {
    std::vector<double> computing;    // of an op beside a collective: [chunk * kKinds + kind]
    std::vector<double> collectives;  // of a chunk's collective while one of its members computes
  };
  std::optional<Contention> contention;
  // What ops of a tensor-parallel group exchange, where it shares links with other traffic (core/cost/tensor_flows.hpp): of an
  // op's duration a flow takes `sent` alone, half of it before and half of it behind what is computed. None: no flow of its own.
  struct TensorFlows {
    struct Sent {
      Time time;         // alone
      double bytes = 0;  // that every member of the ring passes on
      bool operator==(const Sent&) const = default;
    };
    std::vector<Sent> of_full, of_last;                               // as `duration`: micro-batches
    std::vector<std::vector<std::pair<std::int32_t, double>>> links;  // [worker]: link, weight
  };
  std::optional<TensorFlows> tensor_flows;
  // What `settle` (sim/at_load.hpp) made of them, by op: [(chunk * kKinds + kind) * micro_batches + m]; empty: nothing.
  std::vector<Time> settled;
  std::vector<Edge> edges;
  // Messages of full and of the last micro-batch: [first_message[2 * edge + direction] + (copy * r_from + holder of
  // `from`) * r_to + holder of `to`], where r_from and r_to are the holders of the edge's chunks (core/plan/seating.hpp).
  // Pairs of holders that no micro-batch joins hold an empty message.
  std::vector<Message> messages, messages_last;
  std::vector<std::uint32_t> first_message;
  std::int32_t channels = 0;
  std::vector<Route> routes;
  std::vector<Link> links;
  Sharing sharing = Sharing::MaxMin;
  // Gradients of bucket j of a chunk are complete this long before the end of the round's last backward op of that
  // chunk; [chunk][bucket], descending; 0 for the last bucket when the chunk's first layer has parameters.
  // Empty `_last`: the same with the round's last backward being the (smaller) last micro-batch's.
  Indexed<VirtualStageId, std::vector<Time>> ready_before_end, ready_before_end_last;
  Indexed<VirtualStageId, std::vector<Collective>>
      collectives;                              // [chunk][bucket]; empty: no all-reduce needed (one worker)
  Indexed<VirtualStageId, Collective> gathers;  // of its weights; empty: the schedule gathers none
  // Likewise: from shards of Resharding::over members, or of UpdatedParts::BesideForwards what runs beside the forward.
  Indexed<VirtualStageId, Collective> other_gathers;
  std::vector<Collective> tied;  // of gradients, by table of ScheduleShape::tied
  Collective norm;               // of gradients; none where nobody waits for it: ScheduleShape::norm
  // Of a micro-batch's activations to the partner and back, which is as long; empty: the schedule moves none.
  // [((copy * chunks + chunk) * 2 + back) * 2 + last micro-batch]
  std::vector<Collective> moves;
  // Of a chunk's shards to and from the host: core/cost/host_copies.hpp; empty: they lie on the device.
  std::vector<Collective> host_copies;
  // Which copies of the plan these are; nullptr: all of them. The engines do not look at it.
  std::shared_ptr<const Fold> fold;

  bool is_last(const Op& op) const { return op.micro_batch + 1 == static_cast<std::uint32_t>(shape.micro_batches); }
  const Slice& slice(const Op& op) const { return slices[op.micro_batch % static_cast<std::uint32_t>(shape.slices)]; }
  Time time_of(const Op& op) const {
    const auto row = static_cast<std::size_t>(op.virtual_stage) * kKinds + static_cast<std::size_t>(op.kind);
    if (!settled.empty() && op.kind != Kind::Update)
      return settled[row * static_cast<std::size_t>(shape.micro_batches) + op.micro_batch];
    if (!slices.empty() && op.kind != Kind::Update) return slice(op).duration[row];
    const auto& table = is_last(op) && op.kind != Kind::Update ? duration_last : duration;
    return table[row];
  }
  // What the flow of an op sends. Where the op takes less than it was priced at (what-ifs), no longer than that.
  TensorFlows::Sent sent_by(const Op& op) const {
    if (!tensor_flows) return {};
    const auto& table = is_last(op) && op.kind != Kind::Update ? tensor_flows->of_last : tensor_flows->of_full;
    TensorFlows::Sent sent =
        table[static_cast<std::size_t>(op.virtual_stage) * kKinds + static_cast<std::size_t>(op.kind)];
    if (sent.time > Time{}) sent.time = std::min(sent.time, time_of(op));
    return sent;
  }
  // How long before the end of `gradient`, the op that completes a round's gradients, those of `bucket` are complete.
  // Which micro-batch comes last is the schedule's choice: GPipe's last backward is that of micro-batch 0.
  Time ready_before_end_of(const Op& gradient, std::size_t bucket) const {
    if (!slices.empty()) return slice(gradient).ready_before_end[gradient.virtual_stage][bucket];
    const auto& table = is_last(gradient) && !ready_before_end_last.empty() ? ready_before_end_last : ready_before_end;
    return table[gradient.virtual_stage][bucket];
  }
  // Of an op of a communication stream, on a worker of that copy.
  const Collective& collective(const Op& op, CopyId copy) const {
    if (op.kind == Kind::AllReduce) return collectives[op.virtual_stage][op.bucket];
    if (op.kind == Kind::AllGather)
      return ((op.bucket & (kFromFew | kBesideForward)) != 0 ? other_gathers : gathers)[op.virtual_stage];
    if (op.kind == Kind::TableReduce) return tied[op.bucket];
    if (op.kind == Kind::NormReduce) return norm;
    if (op.kind == Kind::Fetch || op.kind == Kind::Store) return host_copies[host_copy(op)];
    return moves[move(op, copy)];
  }
  // By chunk: the weights in, the gradients out, and those that the host adds to what it has.
  static std::size_t host_copy(const Op& op) {
    return std::size_t{3} * op.virtual_stage + (op.kind == Kind::Fetch ? 0 : 1 + op.bucket);
  }
  std::size_t move(const Op& op, CopyId copy) const {
    const std::size_t back = op.kind == Kind::Reload ? 1 : 0;
    return ((at(copy) * at(shape.chunks()) + op.virtual_stage) * 2 + back) * 2 + (is_last(op) ? 1 : 0);
  }
  // The message that carries micro-batch m over `edge` in copy d.
  const Message& message(std::size_t edge, Direction direction, CopyId copy, MicroBatchId m) const {
    const Seating seating = shape.seating();
    const auto [from, to] = edges[edge];
    const int pair = (copy * seating.holders(from) + seating.holder_of(from, m)) * seating.holders(to);
    const auto index = first_message[2 * edge + static_cast<std::size_t>(direction)] +
                       static_cast<std::uint32_t>(pair + seating.holder_of(to, m));
    return m + 1 == shape.micro_batches ? messages_last[index] : messages[index];
  }
};

// The layers' figures compiled into the prices of one step of `plan`. The plan must be valid (`validate`).
//
// Per virtual stage: F, BW, B, W sum their layers' passes, R repeats F, each plus the source's overhead per op; Update
// is the optimizer step over its parameters. Where a host limits (`LayerCosts::issued`) an op is the queue of its
// kernels (core/cost/kernel_queue.hpp), from one blocking point to the next (`HostTimes::blocking`): from its start on;
// on the last stage, as the host issued it during the forward before it; or, where the host waits at the end of a step
// alone, with an even share of what the device waits in the whole step. Two kernels of 205 us, 300 us of host each:
// 805 us. Never less than the sum of the device's times.
// tests/core/operator_costs_test.cpp "the device waits for its host"
// A worker id is copy * positions + position.
//
// Messages. `skips: hop`: the edge between chunks v and v + 1 carries every tensor produced up to chunk v and used
// after it. `skips: direct`: each pair of chunks of which one uses a tensor that the other produces has an edge with
// these tensors; a tensor counts once per edge. Chunks that no tensor joins wait for nothing of one another and have no
// edge; a tensor of 0 bytes is one, and still takes its latency. Gradients have the size of the tensors. Only pairs of
// replicas that some micro-batch joins (equal modulo the common divisor) have a channel.
//
// `fold`: of this plan, or nullptr for every copy. The shape counts the copies that are simulated, messages and links
// are theirs; all-reduces are priced over the members of all copies. Ring hops are those of whole steps only.
StepCosts step_costs(const Plan& plan, const CostModel& cost, std::shared_ptr<const Fold> fold = nullptr);

// Prices for equal or unequal stages without a cluster: forward[v], backward[v] per chunk (R costs as F, B and W half
// the backward each, Update nothing), the same hop on every edge as pure latency. The textbook setting, and the tests'.
StepCosts plain_costs(const ScheduleShape& shape, const std::vector<Time>& forward, const std::vector<Time>& backward,
                      Time hop);

// An independent look at the tables: sizes fit the shape, no negative time, channels, routes and links exist, no phase
// carries more than its links do. Returns "" or one sentence that names what is wrong.
std::string validate(const StepCosts& costs);

}  // namespace pipewright::core
