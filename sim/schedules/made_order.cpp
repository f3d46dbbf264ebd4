#include "sim/schedules/made_order.hpp"

#include <cmath>
#include <utility>

#include "sim/schedules/lists.hpp"

namespace pipewright {
namespace {

bool is_of(const GivenSchedule& order, const ScheduleShape& shape) {
  return order.stages == shape.stages && order.virtual_stages == shape.virtual_stages &&
         order.micro_batches == shape.micro_batches && order.chunk_order == shape.chunk_order;
}

ZeroBubbleTimes equal_times(const ScheduleShape& shape) {
  const std::vector<std::int64_t> ones(at(shape.chunks()), 1);
  return {.forward = ones, .input = ones, .weights = ones, .held = {}, .kept_after_input = {}, .cap = {}, .hop = 0};
}

}  // namespace

std::shared_ptr<const GivenSchedule> made_order(const ScheduleRule& rule, const ScheduleShape& shape,
                                                ZeroBubbleTimes times, std::int64_t in_flight, double kept) {
  constexpr std::int64_t whole = 1'000'000;  // of a chunk
  times.held.assign(at(shape.chunks()), whole);
  times.kept_after_input.assign(at(shape.chunks()), std::llround(whole * kept));
  const std::int64_t most = std::min<std::int64_t>(in_flight, 1 << 30) * shape.virtual_stages;
  times.cap.assign(at(shape.stages), most * whole);
  GivenSchedule order;
  order.stages = shape.stages, order.virtual_stages = shape.virtual_stages;
  order.micro_batches = shape.micro_batches, order.chunk_order = shape.chunk_order;
  order.compute = rule.made_for(shape.micro_batches, times);
  if (order.compute.empty()) return nullptr;
  return std::make_shared<const GivenSchedule>(std::move(order));
}

Schedule made_schedule(const ScheduleRule& rule, const ScheduleShape& shape) {
  if (shape.given && is_of(*shape.given, shape)) return schedule_of_lists(rule.name, shape, shape.given->compute);
  return schedule_of_lists(rule.name, shape, made_order(rule, shape, equal_times(shape), shape.stages)->compute);
}

std::string made_refusal(const ScheduleRule& rule, const ScheduleShape& shape) {
  if (std::string why = shape_refusal(shape, rule.chunk_order); !why.empty()) return why;
  if (std::string why =
          rule.chunks == 2 ? two_chunks_refusal(shape, rule.name) : chunk_refusal(shape, std::string(rule.name));
      !why.empty())
    return why;
  return replica_refusal(shape, rule.name);
}

}  // namespace pipewright
