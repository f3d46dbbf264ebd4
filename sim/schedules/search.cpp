// The best order that the finder of orders (sim/finder) finds for the plan's own times and a limit of what is in flight:
// of its measure, the step with a flush. `pipewright schedule` searches longer, says how far from the best it is, and
// has a choice of measures and limits. `search`: chunks in a loop, as many on each stage as are asked for; `v_search`: two,
// there and back.
//
//   00112233aa44bbwwcc55ddwwee66...   the times of the plan decide
//
// Its bound and its search: docs/how-it-works/finder.md; 5000 orders are tried, of seed 1, and fewer of many passes, so that
// it takes a few seconds.
//                                                    tests/planner/made_order_test.cpp "as good as the fixed one"
#include <algorithm>

#include "sim/finder/find_order.hpp"
#include "sim/schedules/made_order.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

constexpr std::int64_t kMostOrders = 5000, kLeastOrders = 50, kMostPasses = 4'000'000;  // of all orders

std::vector<std::vector<Op>> searched_order(const OrderProblem& problem) {
  const std::int64_t passes = std::int64_t{kPassKinds} * problem.chunks() * problem.micro_batches;
  const std::int64_t orders = std::clamp(kMostPasses / passes, kLeastOrders, kMostOrders);
  const FoundOrder found = find_order(problem, {.evaluations = orders, .seed = 1});
  if (found.order.begin.empty()) return {};
  return ops_of(problem, found.order.codes);
}

std::string found_order_refusal(const ScheduleShape& shape) {
  if (shape.virtual_stages <= kMostRows) return "";
  return "virtual_stages is " + std::to_string(shape.virtual_stages) +
         ", more chunks on a stage than orders are found for: set plan.virtual_stages: " + std::to_string(kMostRows) +
         " or less, or use schedule: interleaved_zb";
}

// A rule without name, title and seats.
ScheduleRule finds_order(Schedule (*compute)(const ScheduleShape&)) {
  return {.name = {},
          .title = {},
          .source = "ZeroBubble23",
          .memory = "plan.most_in_flight micro-batches on every stage, by default K",
          .flush = true,
          .splits_backward = true,
          .compute = compute,
          .also_refused = found_order_refusal,
          .peak_in_flight = [](const ScheduleShape&, StageId) -> std::optional<std::int64_t> { return std::nullopt; },
          .facts = {.takes_chunks = true, .limits_in_flight = true},
          .made_for = searched_order,
          .finds_order = true};
}

}  // namespace

ScheduleRule search_order() {
  ScheduleRule rule = finds_order([](const ScheduleShape& shape) { return made_schedule(search_order(), shape); });
  rule.name = "search";
  rule.title = "split backwards in the best order that is found for the times of the plan";
  return rule;
}

ScheduleRule v_search() {
  ScheduleRule rule = finds_order([](const ScheduleShape& shape) { return made_schedule(v_search(), shape); });
  rule.name = "v_search";
  rule.title = "split backwards in the best order that is found, with two chunks on each stage, there and back";
  rule.chunk_order = ChunkOrder::V, rule.chunks = 2;
  return rule;
}

}  // namespace pipewright::sim
