// What a scenario leaves open, as a list of layouts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/answers/ranking.hpp"
#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"
#include "planner/search/open_values.hpp"

namespace pipewright::planner {

// Layouts that share all but schedule, chunks, ZeRO, its groups and placement: they have one bound in common.
struct LayoutGroup {
  Layout first;  // schedule "", virtual_stages 1, zero 0
  std::vector<std::string> schedules;
  std::vector<std::int64_t> zeros;
  std::vector<int> shards;  // of a layout with `zero`: Layout::shard
  std::vector<PlacementOrder> placements;
  std::vector<int> chunks;  // per stage, for schedules that take several; ascending
};

struct Space {
  std::vector<LayoutGroup> groups;
  std::int64_t layouts = 0;  // of all groups
  // Combinations that make no layout, by reason: "the batch does not divide", "more devices than the cluster has".
  std::map<std::string, std::int64_t> left_out;
  bool whole_sequences = false;  // with shared ones there are more combinations than are listed
};

// What no field of a scenario can say about the plans that are searched.
struct Within {
  bool whole_nodes = false;    // devices of one node, or all devices of several: launchers start as many on each
  bool one_recompute = false;  // the same recomputation on all stages
  // Why a layout is none of those asked for, for Space::left_out; empty: it is one. Nothing: all are.
  std::function<std::string(const Layout&)> lacks;
  std::function<bool(const Layout&)> elsewhere;  // it is in another space, and counts nowhere; nothing: none is
};

// Every combination of the values that open fields may take, in a fixed order. A field that is not open keeps its
// value.
//   stages            1 .. layers                    tensor_parallel   divisors of the devices of a node
//   data_parallel     every number                   sequence_parallel with tensor_parallel > 1
//   context_parallel  powers of 2 up to 64 that divide tokens and heads
//   expert_parallel   powers of 2 up to 256 that divide the experts and the devices of a stage
//   micro_batch_size  every divisor of a copy's share of the batch (needs training.global_batch_size)
//   schedule          gpipe, 1f1b, eager_1f1b, interleaved_1f1b; with one stage 1f1b stands for gpipe and eager_1f1b
//   virtual_stages    2 .. layers / stages for interleaved_1f1b, at most kMostChunksPerStage
//   data_parallel_shard  all copies, or as many as a node has devices for; each with zero from 1 on
//   zero 0 | 1, and 2 | 3 on one stage; placement pipeline | data      where there are several copies
// Throws InputError for fields that contradict one another, naming them, and for more than 2^18 groups.
Space layouts_of(const Scenario& scenario, const Within& within = {});

// The members of a group, in order.
std::vector<Layout> members(const LayoutGroup& group);

// The scenario with the layout, cuts and recomputation of a plan, nothing left open. The model is settled for it.
Scenario settled(const Scenario& scenario, const Layout& layout, const Plan* plan);

}  // namespace pipewright::planner
