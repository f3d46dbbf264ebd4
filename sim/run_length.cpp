#include "sim/run_length.hpp"

#include <algorithm>

#include "core/folds.hpp"

namespace pipewright::sim {
namespace {

double ns(Time time) {
  return static_cast<double>(time.value);
}

// Of every op that there can be: a table's rows, each for all micro-batches. Fast, and too much where a backward is priced
// both whole and in two.
double computing_at_most(const StepCosts& costs, int micro_batches) {
  double sum = 0;
  for (std::size_t row = 0; row < costs.duration.size(); ++row) {
    double longest = ns(costs.duration[row]);
    if (!costs.duration_last.empty()) longest = std::max(longest, ns(costs.duration_last[row]));
    for (const StepCosts::Slice& slice : costs.slices)
      longest = std::max(longest, ns(slice.duration[row]));
    sum += longest * micro_batches;
  }
  for (const Time time : costs.settled)
    sum += ns(time);
  return sum;
}

double computing(const Schedule& schedule, const StepCosts& costs) {
  double sum = 0;
  for (const Lane& position : schedule.positions)
    for (const Op& op : position.compute)
      sum += ns(costs.time_of(op));
  return sum;
}

// Ops that run at once, or beside a collective, take longer than alone.
double slowed(const StepCosts& costs, int micro_batches, double computing) {
  if (costs.contention) computing *= std::ranges::max(costs.contention->computing);
  if (!costs.together) return computing;
  const double pairs = costs.together->pair ? ns(*costs.together->pair) * costs.shape.chunks() * micro_batches : 0;
  return computing * (1 + costs.together->share) + pairs;
}

// Collectives beside ops, too.
double slowed(const StepCosts& costs, double collectives) {
  return costs.contention ? collectives * std::ranges::max(costs.contention->collectives) : collectives;
}

double messages(const StepCosts& costs, int micro_batches) {
  double sum = 0;
  const auto longest = [](const std::vector<Message>& all, std::size_t begin, std::size_t end) {
    double most = 0;
    for (std::size_t i = begin; i < end; ++i)
      most = std::max(most, ns(all[i].occupancy) + ns(all[i].latency));
    return most;
  };
  for (std::size_t i = 0; i < costs.first_message.size(); ++i) {
    const std::size_t begin = costs.first_message[i],
                      end = i + 1 < costs.first_message.size() ? costs.first_message[i + 1] : costs.messages.size();
    sum += micro_batches * std::max(longest(costs.messages, begin, end), longest(costs.messages_last, begin, end));
  }
  return sum;
}

// Moves of activations differ from copy to copy.
double longest_of_copies(const StepCosts& costs, const Op& op) {
  return most_over<double>(counted_to((costs.moves.empty() ? 1 : costs.shape.data_parallel)),
                           [&](CopyId copy) { return ns(costs.collective(op, copy).time); });
}

double collectives(const Schedule& schedule, const StepCosts& costs) {
  double sum = 0;
  for (const Lane& position : schedule.positions)
    for (const auto& stream : position.communication)
      for (const Op& op : stream)
        sum += longest_of_copies(costs, op);
  return slowed(costs, sum);
}

// The event queue's clock ends below kLargest, so that a run of just so long is one too long.
constexpr double kMargin = 1 + 1e-15;

void check(double longest) {
  rounded(longest * kMargin, "the time of a run");
}

}  // namespace

void check_run_length(const Schedule& schedule, const StepCosts& costs, int copies) {
  const int micro_batches = schedule.shape.micro_batches;
  const double others = messages(costs, micro_batches) + collectives(schedule, costs);
  const double at_most = slowed(costs, micro_batches, computing_at_most(costs, micro_batches)) + others;
  if (at_most * copies * kMargin <= static_cast<double>(kLargest)) return;
  check((slowed(costs, micro_batches, computing(schedule, costs)) + others) * copies);
}

void check_run_length(const StepCosts& costs, double collectives, const std::function<double()>& computing) {
  const int micro_batches = costs.shape.micro_batches;
  const double others = messages(costs, micro_batches) + slowed(costs, collectives);
  const double at_most = slowed(costs, micro_batches, computing_at_most(costs, micro_batches)) + others;
  if (at_most * kMargin <= static_cast<double>(kLargest)) return;
  check(slowed(costs, micro_batches, computing()) + others);
}

}  // namespace pipewright::sim
