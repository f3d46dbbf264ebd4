// Tokens on their way to the devices of the experts that they are sent to, and back (plan.expert_parallel).
//
// A stage has n = t c D devices, tensor members first. e x of them that follow one another hold all experts of a layer
// between them: x share an expert, so that there are e sets, of E / e experts each. T tokens of a device (with sequence
// parallelism its t-th), k experts each, rows of h values:            [Megatron26] RankGenerator, order tp-ep-dp-pp
//
//     all_to_all   T k rows leave and come, but for those that stay: (e - 1) / e of them; x > 1: gathered among the x
//                  behind it, scattered before the way back
//     all_gather   the tokens of all e x devices on each; back: a reduce-scatter
//     per_node     a row once per other node of its experts, over the network, beside the links of the nodes over which
//                  it is handed on, once per device that has some of them                                 [DeepEP25]
//
// 4096 tokens of 4096 values in bf16, 2 experts each, e = 8: 58 720 256 B leave a device.
// 256 experts on 8 nodes, 8 per token, on at most 4 nodes: 3.62901 nodes, 3.17538 of them others; 7.36 of their 32 devices.
//                                                                        tests/core/expert_exchange_test.cpp
#pragma once

#include <vector>

#include "core/cost/collectives.hpp"
#include "core/cost/exchange_link.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::core {

// Nodes, or devices, of `nodes` that hold the experts between them, to which a token is sent: k experts drawn at random, on
// at most `most` of them.      most (1 - C(E most / nodes - E / nodes, k) / C(E most / nodes, k))
double nodes_of_token(double experts, double active, int nodes, int most);

// Bytes that a device holds while tokens are exchanged, `tokens` of its own: what it sends and what it receives.
double expert_workspace(const ExpertTokens& layer, const PlanRequest& plan, double tokens, double value_bytes);

class TokenExchange {
 public:
  TokenExchange(const Scenario& scenario, const Topology& topology);

  bool any() const { return devices_ > 1; }
  // Nanoseconds of one way, of a device's own tokens, `row` bytes each.
  double time(const ExpertTokens& layer, double tokens, double row) const;
  // Bytes that leave a device on it.
  double bytes(const ExpertTokens& layer, double tokens, double row) const;
  int calls() const { return split_ > 1 && kind_ == ExpertExchange::AllToAll ? 2 : 1; }

 private:
  double gathered(const std::vector<AllReduceGroup>& groups, double all) const;

  ExpertExchange kind_;
  int experts_ = 1, split_ = 1;     // e, x
  std::int64_t devices_ = 1;        // e x
  int nodes_ = 1, most_nodes_ = 1;  // of a group, and that a token is sent to
  double load_ = 1;
  ExchangeLink sent_, inside_, between_;  // among all of a group; of its node; those with the same place in their nodes
  std::vector<AllReduceGroup> whole_, sharing_;  // e x devices; the x of an expert
};

}  // namespace pipewright::core
