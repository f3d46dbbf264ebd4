#include "sim/at_load.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "core/check.hpp"

namespace pipewright::sim {
namespace {

constexpr int kRounds = 20;
constexpr double kSame = 1e-4;

std::size_t index_of(const StepCosts& costs, const Op& op) {
  const auto row = static_cast<std::size_t>(op.virtual_stage) * kKinds + static_cast<std::size_t>(op.kind);
  return row * static_cast<std::size_t>(costs.shape.micro_batches) + op.micro_batch;
}

// The price of an op by the number of workers that compute.
class AtLoad {
 public:
  AtLoad(const StepCosts& costs, int workers) : costs_(costs), workers_(workers) {}
  double operator()(const Op& op, int active) const {
    const auto row = static_cast<std::size_t>(op.virtual_stage) * kKinds + static_cast<std::size_t>(op.kind);
    const auto of = [&](const std::vector<Time>& full, const std::vector<Time>& last) {
      return static_cast<double>((costs_.is_last(op) ? last : full)[row].value);
    };
    int below = 0;
    double time_below = 0;
    for (const StepCosts::Load& load : costs_.loads) {
      const double time = of(load.duration, load.duration_last);
      if (active <= load.active) return below == 0 ? time : between(below, time_below, load.active, time, active);
      below = load.active, time_below = time;
    }
    return between(below, time_below, workers_, of(costs_.duration, costs_.duration_last), active);
  }

 private:
  static double between(int below, double time_below, int above, double time_above, int active) {
    if (above <= below) return time_above;
    return time_below + (time_above - time_below) * static_cast<double>(active - below) / (above - below);
  }
  const StepCosts& costs_;
  int workers_;
};

// How many workers compute from each moment at which that changes.
std::vector<std::pair<std::int64_t, int>> activity(const Timeline& timeline) {
  std::map<std::int64_t, int> change;
  for (const LaneTimes& worker : timeline.workers)
    for (const Span& span : worker.compute)
      if (span.end > span.start) ++change[span.start.value], --change[span.end.value];
  std::vector<std::pair<std::int64_t, int>> active;
  int now = 0;
  for (const auto& [at, by] : change)
    if (by != 0) active.emplace_back(at, now += by);
  return active;
}

// What the op would take at the loads that its span has seen.
double settled_time(const Op& op, const Span& span, const AtLoad& price,
                    const std::vector<std::pair<std::int64_t, int>>& active) {
  const auto length = static_cast<double>((span.end - span.start).value);
  auto at = std::ranges::upper_bound(active, std::pair(span.start.value, INT32_MAX));
  double done = 0;
  std::int64_t from = span.start.value;
  for (int now = at == active.begin() ? 1 : std::prev(at)->second; from < span.end.value; ++at) {
    const std::int64_t to = at == active.end() ? span.end.value : std::min(at->first, span.end.value);
    const double time = price(op, std::max(1, now));
    if (!(time > 0)) return 0;
    done += static_cast<double>(to - from) / time;
    from = to;
    if (at == active.end()) break;
    now = at->second;
  }
  return done > 0 ? length / done : price(op, 1);
}

// Whether any op changes by more than kSame.
bool settle_once(const Schedule& schedule, StepCosts& costs, const Timeline& timeline) {
  const auto active = activity(timeline);
  const AtLoad price(costs, static_cast<int>(timeline.workers.size()));
  std::vector<double> sum(costs.settled.size());
  std::vector<int> count(costs.settled.size());  // copies of a stage settle alike, at their mean
  for (WorkerId w = 0; w < std::ssize(timeline.workers); ++w) {
    const std::vector<Op>& ops = schedule.lane_of(w).compute;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].kind == Kind::Update) continue;
      const std::size_t index = index_of(costs, ops[i]);
      sum[index] += settled_time(ops[i], timeline.workers[w].compute[i], price, active), ++count[index];
    }
  }
  bool changed = false;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    if (count[i] == 0) continue;
    const Time time{std::llround(sum[i] / count[i])};
    const auto by = static_cast<double>(std::abs(time.value - costs.settled[i].value));
    changed = changed || by > std::max(1.0, kSame * static_cast<double>(time.value));
    costs.settled[i] = time;
  }
  return changed;
}

}  // namespace

Timeline settle(const Schedule& schedule, StepCosts& costs, Engine engine) {
  costs.settled.clear();
  Timeline timeline = simulate(schedule, costs, engine);
  if (costs.loads.empty()) return timeline;
  const auto micro_batches = static_cast<std::size_t>(costs.shape.micro_batches);
  std::vector<Time> settled(costs.duration.size() * micro_batches);
  for (std::size_t i = 0; i < settled.size(); ++i)
    settled[i] = (i % micro_batches + 1 == micro_batches ? costs.duration_last : costs.duration)[i / micro_batches];
  costs.settled = std::move(settled);
  for (int round = 0; round < kRounds && settle_once(schedule, costs, timeline); ++round)
    timeline = simulate(schedule, costs, engine);
  return timeline = simulate(schedule, costs, engine);
}

}  // namespace pipewright::sim
