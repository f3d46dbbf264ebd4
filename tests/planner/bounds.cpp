#include "tests/planner/bounds.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace pipewright::tests {
namespace {

void check(const PipelineTimes& times, std::int64_t micro_batches) {
  PP_CHECK(!times.forward.empty() && times.backward.size() == times.forward.size());
  PP_CHECK(times.hop.size() + 1 == times.forward.size() && micro_batches >= 1);
}

Time product(std::int64_t count, Time time) {
  return {checked_product(count, time.value, "a bound")};
}

// f + b + 2c of stage j; the last stage sends nothing on.
Time round_trip(const PipelineTimes& times, std::size_t j) {
  const Time there_and_back = j < times.hop.size() ? checked_sum(times.hop[j], times.hop[j]) : Time{};
  return checked_sum(checked_sum(times.forward[j], times.backward[j]), there_and_back);
}

// The largest of head(k) + body(k), where head(k) is the round trips of the stages before k.
template <class Body>
Time largest(const PipelineTimes& times, const Body& body) {
  Time head, bound;
  for (std::size_t k = 0; k < times.forward.size(); ++k) {
    bound = std::max(bound, checked_sum(head, body(k)));
    head = checked_sum(head, round_trip(times, k));
  }
  return bound;
}

}  // namespace

Time gpipe_step(const PipelineTimes& times, std::int64_t micro_batches) {
  check(times, micro_batches);
  Time first;
  for (std::size_t k = 0; k < times.forward.size(); ++k)
    first = checked_sum(first, round_trip(times, k));
  const Time slowest = checked_sum(*std::max_element(times.forward.begin(), times.forward.end()),
                                   *std::max_element(times.backward.begin(), times.backward.end()));
  return checked_sum(first, product(micro_batches - 1, slowest));
}

Time work_bound(const PipelineTimes& times, std::int64_t micro_batches) {
  check(times, micro_batches);
  return largest(
      times, [&](std::size_t k) { return product(micro_batches, checked_sum(times.forward[k], times.backward[k])); });
}

Time window_bound(const PipelineTimes& times, std::int64_t micro_batches) {
  check(times, micro_batches);
  const std::size_t stages = times.forward.size();
  std::vector<Time> behind(stages + 1);  // round trips of stage k and those behind it
  for (std::size_t k = stages; k-- > 0;)
    behind[k] = checked_sum(behind[k + 1], round_trip(times, k));
  return largest(times, [&](std::size_t k) {
    const auto window = static_cast<std::int64_t>(stages - k);
    return product((micro_batches + window - 1) / window, behind[k]);
  });
}

}  // namespace pipewright::tests
