// The best plans for what a scenario leaves open: what a search found, and how it is known.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/answers/report.hpp"
#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::core {

// Everything about a plan but its cuts and its recomputation.
struct Layout {
  int tensor_parallel = 1;
  bool sequence_parallel = false;
  int context_parallel = 1;
  int expert_parallel = 1;
  int stages = 1, virtual_stages = 1, data_parallel = 1;
  std::string schedule;
  std::int64_t micro_batch_size = 1, micro_batches = 1;  // M per copy
  std::int64_t zero = 0;
  int shard = 0;  // copies that divide what `zero` says; 0: all of them, or what the scenario says
  PlacementOrder placement = PlacementOrder::Pipeline;  // where the scenario gives no list of devices

  int copies() const { return data_parallel * context_parallel; }
  int devices() const { return tensor_parallel * stages * copies(); }
  std::int64_t global_batch() const { return micro_batch_size * micro_batches * data_parallel; }
  auto operator<=>(const Layout&) const = default;
};

enum class Objective {
  Throughput,  // samples per second
  StepTime,    // of one optimizer step
  Cost,        // device seconds per sample, or money where devices have a price
  Memory,      // of the fullest device
};

// One plan, priced as `simulate` prices it.
struct Found {
  Layout layout;
  // Of keys that are searched and no part of a layout: "context_exchange", "ring".     planner/search/switches.hpp
  std::vector<std::pair<std::string, std::string>> switches = {};
  std::shared_ptr<const Scenario> scenario;  // with this plan, nothing open
  Plan plan;
  Report report;
  Bytes peak;        // of the fullest device: what it must have
  Bytes peak_high;   // up to which that is expected (MemoryNeed::high)
  Bytes to_fit;      // what is compared with the capacity (MemoryNeed::to_fit)
  double value = 0;  // of the objective, less is better: seconds per sample, seconds, device seconds (or money) per
                     // sample, bytes
};

struct NearestMiss {
  Layout layout;
  Bytes need, capacity;  // of the fullest device
  StageId stage = 0;
  bool at_least = false;  // `need` is a bound: the states of the parameters alone are too much
  double fit = 0;         // plan.fit, where `need` is what it takes to fit with that probability; 0: not asked for
};

// Where another of the plans becomes the best one, everything else unchanged.
struct Flip {
  std::string what;  // "network bandwidth"
  Bandwidth at;      // per direction: below it `plan` is better (or above it)
  bool below = true;
  Layout plan;
  double gain = 1;  // of its throughput over today's best plan at a half, or at the double of `at`
};

// A bandwidth that may change so far without another plan becoming the best one.
struct Unmoved {
  std::string what;
  Bandwidth from, to;
};

// Why a search ended before the gap asked for was reached.
enum class Ended : std::uint8_t { No, TimeLimit, Interrupted };
std::string_view name(Ended ended);  // "", "the time limit", "interrupted"

struct SearchLog {
  // Every layout is counted once. Those of the first line are proven to be no better, or are no plans at all; those of
  // the second have their share in `Ranking::bound`.
  //     layouts = evaluated + bounded + too_large + refused
  //             + within_gap + no_cut + not_simulated + not_reached            tests/planner/search_limits_test.cpp
  std::int64_t layouts = 0, evaluated = 0, refined = 0, simulations = 0;
  std::int64_t bounded = 0;                           // cannot be better than the best plan
  std::int64_t too_large = 0;                         // do not fit their devices, however they are cut
  std::int64_t within_gap = 0;                        // may be better, by less than the gap that was asked for
  std::int64_t no_cut = 0;                            // no cut was found that fits, and nothing proves that none does
  std::int64_t not_reached = 0;                       // nobody looked at them before the end
  std::map<std::string, std::int64_t> left_out;       // combinations that make no layout, by reason
  std::map<std::string, std::int64_t> refused;        // by the schedule, by reason
  std::map<std::string, std::int64_t> not_simulated;  // too large for the simulator, by reason
  std::optional<NearestMiss> nearest_miss;
  int idle_devices = 0;  // of the first plan
};

struct Ranking : SearchLog {
  Objective objective = Objective::Throughput;
  std::vector<Found> plans;   // best first, never empty
  std::vector<Found> pareto;  // where asked for: no other plan found is better in all of time, memory and cost
  std::vector<std::string> pareto_axes;
  double bound = 0;  // of the objective: no plan of the space is better
  Ended ended{};
  // Without `ended`: why the gap asked for was not reached all the same; "": it was.
  std::string gap_left;
  std::string order;      // plan.order: graph: which orders were cut, and how their cuts are known; "": one order only
  std::string framework;  // whose plans alone were searched; "": anyone's
  std::vector<std::string> restricted;          // what that left out: "schedule: 1f1b or interleaved_1f1b"
  std::vector<std::string> framework_warnings;  // what the framework has otherwise than the scenario states it
  std::vector<Flip> flips;
  std::vector<Unmoved> unmoved;

  double gap() const { return bound > 0 ? plans.front().value / bound - 1 : 0; }
  bool proven() const { return bound >= plans.front().value; }
};

// The search ended before it had a plan, and before it knew that there is none.
struct NoPlanYet {
  Ended ended{};  // never No
  std::int64_t layouts = 0, not_reached = 0;
  std::vector<std::string> details;  // what is known of those that were looked at, a line each
};

// "TP4 PP8 VP5 DP2, 64 micro-batches of 1, interleaved_1f1b, ZeRO-1"
std::string in_words(const Layout& layout);

// "no plan found yet: the time limit ended the search after 12 of 57 layouts"
std::string in_words(const NoPlanYet& none);

std::string_view word(Recompute mode);  // "full"

// "recompute full on stages 0-1, none on stages 2-7"
std::string in_words(const std::vector<Recompute>& recompute);

// The same with the layers that repeat their forward: "recompute layers 0-2, 5, full on stages 3-6"
std::string recompute_in_words(const Plan& plan);

}  // namespace pipewright::core
