// The answer of `schedule`: an order that was found, those with a name beside it, and what no order can beat.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/answers/report.hpp"
#include "core/plan/order_measure.hpp"

namespace pipewright::core {

struct OrderRow {
  std::string name;        // "found", "zb_h1"
  Time span, step;         // OrderMeasure
  double in_flight = 0;    // micro-batches that the fullest stage holds, from F to W
  Time jittered, slowest;  // the measure where times are off: mean and largest of kJitterDraws draws
};
constexpr int kJitterDraws = 100;

// The best order for one cap.
struct CapRow {
  double in_flight = 0;  // micro-batches that the cap admits on the first stage
  Time value, bound;     // of the measure
};

struct ScheduleAnswer {
  OrderMeasure measure = OrderMeasure::Step;
  int stages = 1, chunks = 1, micro_batches = 1;  // K, of each stage, M
  std::string cap;                                // "12 micro-batches", of the stage with the least room
  std::vector<OrderRow> rows;                     // the best of its measure first
  Time bound;
  std::string bound_why;
  std::int64_t evaluations = 0;
  std::uint64_t seed = 1;
  bool stopped = false;
  double jitter = 0;
  std::vector<CapRow> pareto;
  Answer answer;  // the scenario's plan with the order that was found
  // Cuts and recomputed layers that were chosen for the plan's own order, as --set takes them: "plan.partition={layers: [4, 4]}".
  std::vector<std::string> pinned;
  bool flush = true;    // plan.barrier
  std::string planned;  // the schedule that the plan names, and the step with it
  Time planned_step;

  double gap() const { return 1 - ratio(bound, value()); }  // share of the step that another order may save
  Time value() const { return measure == OrderMeasure::Span ? rows.front().span : rows.front().step; }
};

}  // namespace pipewright::core
