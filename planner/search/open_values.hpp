// The values that each open field of a scenario may take, by themselves: what goes together is space.hpp's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/answers/ranking.hpp"
#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::planner {

// Whether the scenario leaves a field of the plan ("stages") or of the training ("zero") open.
bool is_open(const Scenario& scenario, const std::string& key);
bool anything_open(const Scenario& scenario);
const OpenField* open_field(const Scenario& scenario, const std::string& key);  // nullptr: it is not

// The values of a field, ascending: its own, those it is restricted to, or `all`.
std::vector<std::int64_t> numbers(const Scenario& scenario, const std::string& key, std::int64_t own,
                                  const std::vector<std::int64_t>& all);
std::vector<std::int64_t> up_to(std::int64_t most);  // 1 .. most

// Throws InputError for one that the search cannot take.
std::vector<std::string> schedules_for(const Scenario& scenario);
// "interleaved_1f1b takes": the schedules with chunks, all or those `asked`, for a sentence.
std::string those_with_chunks(const std::vector<std::string>& asked = {});
constexpr int kMostChunksPerStage = 16;
// Numbers of chunks per stage, and of these those that a schedule takes.
std::vector<int> chunks_for(const Scenario& scenario, std::int64_t stages);
std::vector<int> chunks_of(const std::string& schedule, std::vector<int> chunks);
bool chunks_are_given(const Scenario& scenario);

// How many of the copies may divide among them what zero says; 0: all, or what the scenario says.
std::vector<int> shards_for(const Scenario& scenario, std::int64_t copies, std::int64_t devices_of_copy);
std::vector<PlacementOrder> placements_for(const Scenario& scenario);
std::vector<bool> sequence_parallel_for(const Scenario& scenario, std::int64_t group);

struct Batch {
  std::int64_t size, count;  // of a micro-batch, and how many per copy
};
// The micro-batches of a copy; empty: none divides its share of the batch.
std::vector<Batch> batches(const Scenario& scenario, std::int64_t copies);

// The recomputations that a stage may have: none, selective (where the model has attention cores), a set of layers
// (knapsack), full; blocks where it is asked for, for such sets have the blocks among them. Empty: the scenario fixes
// it. Of layers whose sequences are shared by several devices no operators are saved (plan.recompute_modules).
std::vector<Recompute> recomputations(const Scenario& scenario, std::int64_t context_parallel = 1);

// Whether t devices can compute every layer together; what settle() in core/model/graph.hpp refuses is left out.
bool divides(const Model& model, std::int64_t t);

}  // namespace pipewright::planner
