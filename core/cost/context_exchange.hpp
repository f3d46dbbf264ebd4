// Attention over sequences that c devices divide among them (context parallelism): what each of them computes, and what it
// waits for.
//
//     ring         c steps; keys and values of the next one arrive during each. Own keys and values: K bytes
//                      forward    max(step, send) (c - 1) + step                                     [RingAttention23]
//                      backward   max(step, send) + (c - 2) max(step, 2 send) + max(step, send) + send: the gradients of
//                                 keys and values go round behind the steps, one hop late, and home after the last one
//     all_gather   keys and values of all, then attention; backward: gathered again, gradients scattered   [LlamaTeam24]
//     all_to_all   queries, keys and values out, the result back; each device has all tokens of a c-th of the heads
//                                                                                                           [Ulysses23]
//     two_level    all_to_all among `inner` neighbours, rings of the c / inner that have the same heads          [USP24]
//
// Steps of 3 ms, four devices, 2 ms a send: 12 ms; 4 ms: 15 ms; all-gather of 6 ms first: 18 ms. Backward of two devices,
// steps of 6 ms, sends of 2 ms: 14 ms.                        tests/core/context_exchange_test.cpp
//
// All t devices of a tensor-parallel group exchange at once, each with those that have its heads. Rates are those of the
// links that such exchanges share, and where the device states its collectives by size, no more than these reach.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cost/collectives.hpp"
#include "core/cost/exchange_link.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::core {

// Pairs of query and key that the queries [begin, end) compute, per head: keys that they see. 4 tokens, causal, the first
// two: 1 + 2 = 3.
double pairs_of(const AttentionShape& shape, double begin, double end);
// Pairs of query and key that each of c devices computes, per head. 8 tokens on 2 devices, causal: zigzag 18 and 18,
// contiguous 10 and 26.                                        tests/core/context_exchange_test.cpp "pairs"
std::vector<double> pairs_by_device(const AttentionShape& shape, int devices, ContextSplit split);

// Bytes of one device's own part of attention's tensors.
struct ContextTensors {
  double keys = 0;     // keys and values
  double queries = 0;  // queries and results
};
ContextTensors context_tensors(const Operator& attention, const PlanRequest& plan, double samples, double value_bytes);

// Bytes that a device holds while a layer runs: what arrives, and in a backward the gradients that go round, in fp32.
double context_workspace(const ContextTensors& own, const PlanRequest& plan, double value_bytes);

// Of bytes of whole sequences, one device's part: rounded up.
Bytes context_part(Bytes whole, const PlanRequest& plan);
// Of that, what one of the slices of a sequence has (plan.slices), rounded up.               [Seq1F1B24] section 3.3
Bytes slice_part(Bytes whole, const PlanRequest& plan);

class ContextAttention {
 public:
  ContextAttention(const Scenario& scenario, const Topology& topology);

  int degree() const { return degree_; }
  bool divides() const { return degree_ > 1; }

  // A pass over attention runs `kernels()` of these, one after the other: what a kernel sees, and its share of the FLOPs and
  // bytes of the undivided pass.
  AttentionShape kernel(const AttentionShape& whole) const;
  double flops_share(const AttentionShape& whole) const;
  double bytes_share(const AttentionShape& whole) const;
  int kernels() const { return ring_; }

  // Nanoseconds of a pass whose kernels take `kernel` each, exchanges that nothing hides included.
  double forward(double kernel, const ContextTensors& own) const;
  double backward(double kernel, const ContextTensors& own) const;
  // Of a ring: so many bytes to the next device. Ideal links: 0.
  double hop(double bytes) const { return hop_.time(bytes); }
  // Collectives that the host issues in a pass.
  int calls(bool backward) const;

 private:
  void add_groups(const Scenario& scenario, const Topology& topology);
  void add_group(const Scenario& scenario, const Topology& topology, const std::vector<std::int64_t>& leads);
  double gathered(double own) const;
  double exchanged(double bytes) const;
  double ring_forward(double step, double send) const;
  double ring_backward(double step, double send) const;

  int degree_ = 1, ring_ = 1, inner_ = 1, tensor_ = 1;  // degree_ = ring_ x inner_, except for all_gather
  ContextExchange kind_;
  ContextSplit split_;
  double imbalance_ = 1;
  ExchangeLink hop_, exchange_;
  std::vector<AllReduceGroup> gathers_;  // of all_gather, groups that lie differently
};

}  // namespace pipewright::core
