#include "planner/replicated.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/cost/buckets.hpp"
#include "planner/price.hpp"
#include "planner/replica_shapes.hpp"
#include "planner/words.hpp"
#include "sim/schedules/table.hpp"
#include "sim/steady_state.hpp"
#include "sim/summarize.hpp"

namespace pipewright::planner {
namespace {

using Shape = ReplicaShape;
using Order = ReplicaShape::Order;

struct ShapeCandidate {
  Shape shape;
  Time estimate;
  std::string from;
};

struct SimulatedPlan {
  ShapeCandidate candidate;
  Plan plan;
  double samples_per_s = 0;
};

// Faster first; then fewer workers, fewer stages, and the shape itself.
bool better(const SimulatedPlan& a, const SimulatedPlan& b) {
  if (a.samples_per_s != b.samples_per_s) return a.samples_per_s > b.samples_per_s;
  const auto key = [](const SimulatedPlan& s) {
    return std::tuple(s.candidate.shape.workers(), s.candidate.shape.ends.size(), s.candidate.shape);
  };
  return key(a) < key(b);
}

class ReplicatedSearch {
 public:
  ReplicatedSearch(const Plan& shell, const CostModel& cost, const ReplicatedOptions& options)
      : shell_(shell), cost_(cost), options_(options) {
    PP_CHECK(shell.data_parallel == 1 && shell.virtual_stages == 1 && rule_ != nullptr);
  }

  ReplicatedAnswer run() {
    for (const Shape& one : shapes_.one_stage())
      consider(candidate(one, "data parallelism"));
    answer_.lower_bound = lower_bound();
    // What messages take in buffers shows in the simulation alone: where it was too much, more room is set aside.
    for (const std::int64_t messages : {0, 1, 2, 4, 8}) {
      if (proven() || stopped()) break;
      shapes_.set_buffered(messages);
      promising_rejected_ = 0;
      simulate_in_order(by_stages());
      improve();
      if (promising_rejected_ == 0) break;
    }
    also_elsewhere();
    finish();
    return std::move(answer_);
  }

 private:
  bool stopped() {
    if (!answer_.interrupted && options_.stopped && options_.stopped()) answer_.interrupted = true;
    return answer_.interrupted;
  }
  bool may_simulate() { return answer_.simulated < options_.most_simulations && !stopped(); }

  // Nothing better than the best so far is left.
  bool proven() const { return !found_.empty() && best_cycle() <= answer_.lower_bound; }

  // Times are rounded once per layer and bucket: so much less than the DP's bottleneck a cycle may be. Where no plan is
  // below the best so far, that one is the bound; where there is none so far, either, no plan fits.
  Time lower_bound() const {
    SuffixProblem problem = suffix_problem(shell_, cost_, StagePlaces::Anywhere);
    problem.devices = shapes_.workers_of(0);
    problem.limit = best_cycle();
    const SuffixAnswer least = suffix_dp(problem);
    if (least.stages.empty()) return best_cycle();
    const std::int64_t rounding = static_cast<std::int64_t>(problem.compute.size()) + 1;
    return {std::max(least.bottleneck.value - rounding, std::int64_t{0})};
  }

  Time best_cycle() const { return found_.empty() ? kNever : cycle(found_.front()); }
  Time cycle(const SimulatedPlan& simulated) const {
    if (!(simulated.samples_per_s > 0)) return {};  // nothing takes any time
    return {static_cast<std::int64_t>(static_cast<double>(shell_.micro_batch_size) / simulated.samples_per_s * 1e9)};
  }

  ShapeCandidate candidate(Shape shape, std::string from) const {
    const Time time = shapes_.estimate(shape);
    return {std::move(shape), time, std::move(from)};
  }
  ShapeCandidate elsewhere(const Shape& shape) const { return candidate(shapes_.elsewhere(shape), "on other devices"); }

  std::vector<ShapeCandidate> by_stages() {
    SuffixProblem problem = shapes_.problem();
    problem.limit = best_cycle();
    const int wanted = options_.most_stages > 0 ? options_.most_stages : 32;
    std::vector<ShapeCandidate> list;
    std::vector<int> whole_nodes;
    for (int n = problem.devices_per_node; n > 0 && n < shapes_.workers(); n += problem.devices_per_node)
      whole_nodes.push_back(n);
    const int most = shapes_.classes() == 1 ? wanted : std::min(wanted, affordable_stages(problem));
    for (const SuffixAnswer& each : suffix_dp_by_stages(problem, most, whole_nodes))
      list.push_back(
          candidate(shapes_.of(each.stages),
                    fmt::format("the least bottleneck of {} stage{} on {} worker{}", each.stages.size(),
                                each.stages.size() == 1 ? "" : "s", each.devices, each.devices == 1 ? "" : "s")));
    if (!shapes_.has_other_places()) return list;
    const std::size_t count = list.size();
    for (std::size_t i = 0; i < count; ++i)
      list.push_back(elsewhere(list[i].shape));
    problem.places = StagePlaces::Spread;
    for (const SuffixAnswer& each : suffix_dp_by_stages(problem, wanted))
      list.push_back(elsewhere(shapes_.of(each.stages)));
    return list;
  }

  // Tables of the DP are (L + 1) (N1 + 1) (N2 + 1) (N3 + 1) labels large, one per number of stages; so many of them
  // that they take a second or so, at least those of four stages.
  static int affordable_stages(const SuffixProblem& problem) {
    double labels = static_cast<double>(problem.compute.size() + 1) * (problem.devices + 1), sizes = problem.devices;
    for (const SuffixClass& other : problem.others)
      labels *= other.devices + 1, sizes += other.devices;
    const double steps = labels * static_cast<double>(problem.compute.size()) / 2 * sizes;
    return std::max(4, static_cast<int>(std::min({1e9 / steps, 16e6 / labels, 1e3})));
  }

  static bool sooner(const ShapeCandidate& a, const ShapeCandidate& b) { return a.estimate < b.estimate; }

  // The most promising first, each also after small changes as far as they lower its estimate.
  void simulate_in_order(std::vector<ShapeCandidate> list) {
    std::ranges::stable_sort(list, sooner);
    const std::size_t count = std::min(list.size(), kDescents);
    for (std::size_t i = 0; i < count; ++i)
      list.push_back(descended(list[i]));
    std::ranges::stable_sort(list, sooner);
    for (const ShapeCandidate& each : list)
      if (each.estimate < best_cycle() && may_simulate() && promising_rejected_ < kRejectedPerRound) consider(each);
  }
  static constexpr std::size_t kDescents = 12;

  ShapeCandidate descended(ShapeCandidate candidate) const {
    while (true) {
      const std::vector<ShapeCandidate> moves = changes(candidate.shape);
      const auto least = std::ranges::min_element(moves, sooner);
      if (least == moves.end() || !(least->estimate < candidate.estimate)) return candidate;
      candidate = *least;
    }
  }
  static constexpr int kRejectedPerRound = 4;

  // What was simulated; nothing where it is known already, or no plan that could run.
  std::optional<SimulatedPlan> consider(const ShapeCandidate& candidate) {
    if (static_cast<int>(candidate.shape.ends.size()) < options_.least_stages) return std::nullopt;
    if (!seen_.insert(candidate.shape).second) return std::nullopt;
    ++answer_.candidates;
    const Plan plan = shapes_.plan_of(candidate.shape);
    const Scenario& scenario = cost_.scenario();
    const ScheduleShape shape = schedule_shape(plan, scenario.model, scenario.training);
    if (const std::string why = rule_->refusal(shape); !why.empty()) {
      ++answer_.rejected["schedule: " + why];
      return std::nullopt;
    }
    ++answer_.simulated;
    SimulatedPlan simulated{candidate, plan, 0};
    const std::optional<Excess> excess = simulate_shortly(simulated);
    if (excess) {
      reject(plan, *excess, found_.empty() || better(simulated, found_.front()));
      return std::nullopt;
    }
    found_.insert(std::ranges::upper_bound(found_, simulated, better), simulated);
    return simulated;
  }

  struct Excess {
    StageId stage = 0;
    Bytes bytes;
  };

  void reject(const Plan& plan, const Excess& excess, bool promising) {
    ++answer_.too_large;
    if (promising) ++promising_rejected_;
    if (answer_.missing != Bytes{} && answer_.missing <= excess.bytes) return;
    answer_.missing = excess.bytes;
    answer_.nearest_miss = fmt::format("replicas {}: stage {} needs {} more than its device has",
                                       fmt::join(plan.replicas, "-"), excess.stage, bytes_text(excess.bytes));
  }

  // Fills in the throughput; what the fullest device lacks is returned. Asynchronous: a run that is just long enough
  // for a period in most cases; what the planner returns runs longer.
  std::optional<Excess> simulate_shortly(SimulatedPlan& simulated) const {
    Plan run = simulated.plan;
    if (!rule_->flush) {
      std::int64_t round = 1;
      for (const int r : run.replicas)
        round = std::min(std::lcm(round, std::int64_t{r}), kLongestRound);
      const std::int64_t depth = run.positions() + run.replicas.front();
      run.micro_batches = (2 * depth + 3 * std::max(depth, round)) / round * round + round;
      run.last_micro_batch_size = run.micro_batch_size;
    }
    const StepCosts costs = step_costs(run, cost_);
    const Schedule schedule = rule_->generate(costs.shape);
    const Timeline timeline = simulate(schedule, costs);
    std::optional<SteadyState> steady;
    if (!rule_->flush) steady = steady_state(schedule, costs, timeline);
    simulated.samples_per_s = samples_per_second(run, timeline.makespan, steady);
    const MemoryModel memory = memory_model(run, cost_);
    std::optional<Excess> most;
    const std::vector<MemoryPeak> fullest = peaks(memory, schedule, costs, timeline);
    for (std::size_t w = 0; w < fullest.size(); ++w) {
      const StageId stage = run.seating().stage_at(static_cast<PositionId>(w));
      const MemoryNeed needed = need(memory, fullest[w].bytes, stage);
      const Bytes excess = needed.to_fit - needed.capacity;
      if (excess > Bytes{} && (!most || excess > most->bytes)) most = Excess{stage, excess};
    }
    return most;
  }
  static constexpr std::int64_t kLongestRound = 256;

  // One change at a time, the most promising first, as long as one helps: from each of the best few plans.
  void improve() {
    std::vector<Shape> starts;  // of different numbers of stages
    for (const SimulatedPlan& each : found_) {
      const Shape& shape = each.candidate.shape;
      const auto like = [&](const Shape& start) { return start.ends.size() == shape.ends.size(); };
      if (starts.size() < kStarts && std::ranges::none_of(starts, like)) starts.push_back(shape);
    }
    for (const Shape& start : starts) {
      Shape shape = start;
      double rate = rate_of(shape);
      while (may_simulate() && !proven() && promising_rejected_ < kRejectedPerRound) {
        const std::optional<SimulatedPlan> next = better_neighbour(shape, rate);
        if (!next) break;
        shape = next->candidate.shape, rate = next->samples_per_s;
      }
    }
  }
  static constexpr std::size_t kStarts = 6;

  double rate_of(const Shape& shape) const {
    for (const SimulatedPlan& each : found_)
      if (each.candidate.shape == shape) return each.samples_per_s;
    return 0;
  }

  std::optional<SimulatedPlan> better_neighbour(const Shape& shape, double rate) {
    std::vector<ShapeCandidate> moves = changes(shape);
    std::ranges::stable_sort(moves, sooner);
    int tried = 0;
    for (const ShapeCandidate& move : moves) {
      if (tried == kMovesTried || move.estimate >= best_cycle() || !may_simulate()) break;
      if (seen_.contains(move.shape)) continue;
      ++tried;
      if (const std::optional<SimulatedPlan> simulated = consider(move); simulated && simulated->samples_per_s > rate)
        return simulated;
    }
    return std::nullopt;
  }
  static constexpr int kMovesTried = 24;

  std::vector<ShapeCandidate> changes(const Shape& shape) const {
    std::vector<ShapeCandidate> list;
    for (ReplicaShapes::Change& each : shapes_.changes(shape))
      list.push_back(candidate(std::move(each.shape), each.how));
    return list;
  }

  // Transfers that meet may show in a long run only: the best shapes are priced in their other places, too, even where
  // a short run was as fast as the bound.
  void also_elsewhere() {
    if (!shapes_.has_other_places()) return;
    std::vector<Shape> best;
    for (const SimulatedPlan& each : found_)
      if (best.size() < options_.top) best.push_back(each.candidate.shape);
    for (const Shape& shape : best)
      if (!stopped()) consider(elsewhere(shape));
  }

  // What a reader tells plans apart by; of those that differ in their cuts or places alone the best is one line.
  using Line = std::pair<std::vector<int>, std::vector<int>>;
  static Line line_of(const Shape& shape) { return {shape.replicas, shape.classes}; }

  // The best ones as `price` has them: the whole run, buffers in memory, the full steady state. As many as are wanted,
  // of which a line keeps the best; then lines that are still missing.
  void finish() {
    const Time cycle_bound = answer_.lower_bound;
    std::map<Line, std::size_t> lines;  // where they are in the ranking
    std::size_t fit = 0;
    for (const SimulatedPlan& each : found_) {
      if (fit >= options_.top && lines.size() >= options_.top) break;
      const auto known = lines.find(line_of(each.candidate.shape));
      if (fit >= options_.top && known != lines.end()) continue;
      const Answer priced = price(each.plan, cost_, Engine::Auto);
      if (!priced.report.fits) {
        for (const WorkerReport& worker : priced.report.workers)
          if (!worker.fits) reject(each.plan, {worker.stage, worker.need.to_fit - worker.need.capacity}, false);
        continue;
      }
      ReplicatedPlan entry;
      entry.plan = each.plan;
      entry.step = priced.report.step_time;
      entry.samples_per_s = priced.report.samples_per_s;
      entry.cycle = Time{entry.step.value / each.plan.micro_batches};
      entry.estimate = each.candidate.estimate;
      entry.idle = shapes_.workers_of_cluster() - each.plan.positions();
      entry.from = each.candidate.from;
      ++fit;
      if (known == lines.end()) {
        lines.emplace(line_of(each.candidate.shape), answer_.ranking.size());
        answer_.ranking.push_back(std::move(entry));
      } else if (entry.samples_per_s > answer_.ranking[known->second].samples_per_s) {
        answer_.ranking[known->second] = std::move(entry);
      }
    }
    std::stable_sort(
        answer_.ranking.begin(), answer_.ranking.end(),
        [](const ReplicatedPlan& a, const ReplicatedPlan& b) { return a.samples_per_s > b.samples_per_s; });
    const double micro_batches =
        static_cast<double>(shell_.global_batch_size) / static_cast<double>(shell_.micro_batch_size);
    if (cycle_bound < kNever)
      answer_.lower_bound = {static_cast<std::int64_t>(static_cast<double>(cycle_bound.value) * micro_batches)};
  }

  const Plan& shell_;
  const CostModel& cost_;
  const ReplicatedOptions& options_;
  const ScheduleRule* rule_ = find_schedule(shell_.schedule);
  ReplicaShapes shapes_ = ReplicaShapes(shell_, cost_, options_.workers);
  std::set<Shape> seen_;
  std::vector<SimulatedPlan> found_;  // best first
  int promising_rejected_ = 0;        // for memory, although they would have been the best
  ReplicatedAnswer answer_;
};

}  // namespace

ReplicatedAnswer replicated_plans(const Plan& shell, const CostModel& cost, const ReplicatedOptions& options) {
  return ReplicatedSearch(shell, cost, options).run();
}

}  // namespace pipewright::planner
