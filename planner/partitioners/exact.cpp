#include "planner/partitioners/exact.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <queue>

#include "core/check.hpp"
#include "core/cost/step_costs.hpp"
#include "sim/compiled_order.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

constexpr std::int64_t kNoneFits = std::numeric_limits<std::int64_t>::max();

// A straight pipeline of one worker per stage; its schedule is made and compiled once.
class StraightPipeline {
 public:
  StraightPipeline(const std::string& schedule, int stages, int micro_batches)
      : shape_{.stages = stages, .micro_batches = micro_batches}, makespan_(*find_schedule(schedule)) {}

  Time step(const PipelineTimes& times) {
    StepCosts costs = plain_costs(shape_, times.forward, times.backward, Time{});
    for (std::size_t edge = 0; edge < costs.edges.size(); ++edge)
      for (const std::size_t direction : {2 * edge, 2 * edge + 1}) {
        const std::uint32_t message = costs.first_message[direction];
        costs.messages[message].latency = costs.messages_last[message].latency = times.hop[costs.edges[edge].from];
      }
    return makespan_(costs);
  }

 private:
  ScheduleShape shape_;
  Makespans makespan_;
};

// rest[q][i]: the least over the ways to cut layers i..L-1 into the last q stages; kNoneFits where none fits.
using Rest = std::vector<std::vector<std::int64_t>>;

// Layers and bounds. Sums stay below M (sum of all times + twice all hops), which is checked once.
class Bounds {
 public:
  explicit Bounds(const ExactProblem& problem)
      : problem_(problem), f_(at(layers_) + 1), b_(at(layers_) + 1), hops_(at(layers_) + 1) {
    PP_CHECK(kind_ != StepBound::None);
    PP_CHECK(problem.backward.size() == at(layers_) && (problem.hop.empty() || problem.hop.size() == at(layers_)));
    PP_CHECK(problem.stages >= 1 && problem.stages <= layers_ && problem.micro_batches >= 1);
    std::int64_t sum = 0;
    const auto add = [&](Time time) {
      PP_CHECK(time.value >= 0);
      sum = checked_sum(sum, time.value, "the sum of the layer times");
      return time.value;
    };
    for (std::size_t i = 0; i < at(layers_); ++i) {
      f_[i + 1] = f_[i] + add(problem.forward[i]);
      b_[i + 1] = b_[i] + add(problem.backward[i]);
      if (i + 1 < problem.hop.size()) hops_[i + 1] = add(problem.hop[i]) + add(problem.hop[i]);
    }
    checked_product(sum, problem.micro_batches, "a bound");
    last_end_.assign(at(problem.stages), std::vector<int>(at(layers_)));
    for (int k = 0; k < problem.stages; ++k)
      for (int i = k; i < layers_; ++i) {
        if (i % 64 == 0 && problem.stop && problem.stop()) stopped_ = true;
        if (stopped_) return;
        last_end_[at(k)][at(i)] = last_end(k, i);
      }
    if (problem.extra) longest_extra();
    fill();
  }

  bool stopped() const { return stopped_; }
  StepBound kind() const { return kind_; }
  int layers() const { return layers_; }
  std::int64_t forward(int begin, int end) const { return f_[at(end)] - f_[at(begin)]; }
  std::int64_t backward(int begin, int end) const { return b_[at(end)] - b_[at(begin)]; }
  std::int64_t both(int begin, int end) const { return forward(begin, end) + backward(begin, end); }
  // Forward, backward and what else stage k does with layers [begin, end) for each micro-batch.
  std::int64_t all(int k, int begin, int end) const {
    return both(begin, end) + (problem_.extra ? problem_.extra(k, {begin, end}).value : 0);
  }
  std::int64_t hops(int cut) const { return hops_[at(cut)]; }  // there and back
  std::int64_t micro_batches() const { return problem_.micro_batches; }

  // Round trips one after the other with `window` micro-batches in flight.
  std::int64_t trips(int window) const { return (micro_batches() + window - 1) / window; }

  const Rest& bound() const { return bound_; }
  const Rest& cuts() const { return cuts_; }
  const Rest& slowest_forward() const { return slowest_forward_; }
  const Rest& slowest_backward() const { return slowest_backward_; }

  // use(end) for the ends of stage k beginning with layer i, behind which the rest fits.
  template <class Use>
  void each_end(int k, int i, const Use& use) const {
    const int left = problem_.stages - k - 1;
    for (int end = left == 0 ? layers_ : i + 1; end <= last_end_[at(k)][at(i)]; ++end)
      if (cuts_[at(left)][at(end)] != kNoneFits) use(end);
  }

  // The term of R for a stage of layers [i, end) before `left` others.
  std::int64_t through(int i, int end, int left) const {
    const std::int64_t M = micro_batches();
    std::int64_t bound = M * all(problem_.stages - 1 - left, i, end);
    if (left == 0) return bound;
    if (kind_ == StepBound::Window)
      bound = std::max(bound, trips(left + 1) * (both(i, layers_) + hops(end) + cuts_[at(left)][at(end)]));
    return std::max(bound, both(i, end) + hops(end) + bound_[at(left)][at(end)]);
  }

 private:
  // Last end of stage k beginning with layer i that fits and leaves a layer for each stage behind; i: none.
  int last_end(int k, int i) const {
    const int most = layers_ - (problem_.stages - 1 - k);
    if (!problem_.fits) return std::max(i, most);
    int fits = i, fails = std::max(i, most) + 1;  // a longer range never needs less
    while (fails - fits > 1) {
      const int end = fits + (fails - fits) / 2;
      (problem_.fits(k, {i, end}) ? fits : fails) = end;
    }
    return fits;
  }

  // The sums with what stages do besides must not pass what 64 bits hold, either.
  void longest_extra() const {
    for (int k = 0; k < problem_.stages; ++k)
      for (int i = k; i < layers_; ++i)
        if (const int end = last_end_[at(k)][at(i)]; end > i)
          checked_product(checked_sum(both(i, end), problem_.extra(k, {i, end}).value, "a stage's work"),
                          problem_.micro_batches, "a bound");
  }

  void fill() {
    const Rest none(at(problem_.stages) + 1, std::vector<std::int64_t>(at(layers_) + 1, kNoneFits));
    bound_ = cuts_ = slowest_forward_ = slowest_backward_ = none;
    for (Rest* rest : {&bound_, &cuts_, &slowest_forward_, &slowest_backward_})
      (*rest)[0][at(layers_)] = 0;
    for (int q = 1; q <= problem_.stages; ++q)
      for (int i = 0; i < layers_; ++i) {
        if (i % 64 == 0 && problem_.stop && problem_.stop()) stopped_ = true;
        if (stopped_) return;
        each_end(problem_.stages - q, i, [&](int end) {
          const auto lower = [&](Rest& rest, std::int64_t value) {
            rest[at(q)][at(i)] = std::min(rest[at(q)][at(i)], value);
          };
          const auto behind = [&](const Rest& rest) { return rest[at(q - 1)][at(end)]; };
          lower(cuts_, hops(end) + behind(cuts_));
          lower(slowest_forward_, std::max(forward(i, end), behind(slowest_forward_)));
          lower(slowest_backward_, std::max(backward(i, end), behind(slowest_backward_)));
          lower(bound_, through(i, end, q - 1));
        });
      }
  }

  const ExactProblem& problem_;
  StepBound kind_{find_schedule(problem_.schedule)->bound};
  int layers_ = static_cast<int>(problem_.forward.size());
  bool stopped_ = false;
  std::vector<std::int64_t> f_, b_, hops_;  // f_, b_: sums before a layer; hops_: of a cut, 0 at both ends
  std::vector<std::vector<int>> last_end_;  // [k][i]
  Rest bound_, cuts_, slowest_forward_, slowest_backward_;
};

// The first stages of partitions.
struct Prefix {
  std::int32_t before = -1;  // the prefix without the last stage
  std::int32_t end = 0;      // first layer that is left
  std::int32_t stages = 0;
  std::int64_t bound = 0;                                  // of every partition that begins so
  std::int64_t hops = 0;                                   // sum over the cuts so far, there and back
  std::int64_t work = 0;                                   // terms of work_bound
  std::int64_t slowest_forward = 0, slowest_backward = 0;  // of the stages so far
  std::int64_t tail = 0;                                   // of the first stage; part of `bound`
};

class ExactSearch {
 public:
  explicit ExactSearch(const ExactProblem& problem) : problem_(problem), bounds_(problem) {
    PP_CHECK(problem.most_simulations >= 1);
    if (!problem.step) pipeline_.emplace(problem.schedule, problem.stages, problem.micro_batches);
  }

  ExactAnswer answer() {
    if (bounds_.stopped() || bounds_.cuts()[at(problem_.stages)][0] == kNoneFits) return answer_;
    const std::vector<LayerRange> first = first_partition();
    consider(first);
    open({});
    while (!queue_.empty()) {
      const std::int32_t next = queue_.top();
      const Prefix prefix = prefixes_[at(next)];
      if (prefix.bound >= answer_.step.value) break;
      if (problem_.stop && problem_.stop()) return finished();
      answer_.lower_bound = {prefix.bound};
      if (prefix.stages < problem_.stages) {
        if (std::ssize(prefixes_) >= problem_.most_prefixes) return finished();
        queue_.pop();
        bounds_.each_end(prefix.stages, prefix.end, [&](int end) { open(longer(next, end)); });
      } else if (const std::vector<LayerRange> layers = partition(next); layers == first) {
        queue_.pop();  // has been simulated
      } else {
        if (answer_.simulations >= problem_.most_simulations) return finished();
        queue_.pop();
        consider(layers, prefix.bound);
      }
    }
    answer_.lower_bound = answer_.step;
    return finished();
  }

 private:
  // Least bound first; of equal ones the longest prefix, then the one opened first.
  struct Later {
    const std::vector<Prefix>& prefixes;
    bool operator()(std::int32_t a, std::int32_t b) const {
      const Prefix &x = prefixes[at(a)], &y = prefixes[at(b)];
      if (x.bound != y.bound) return x.bound > y.bound;
      if (x.stages != y.stages) return x.stages < y.stages;
      return a > b;
    }
  };

  ExactAnswer finished() {
    answer_.prefixes = std::ssize(prefixes_);
    return answer_;
  }

  void open(const Prefix& prefix) {
    if (prefix.bound >= answer_.step.value) return;
    prefixes_.push_back(prefix);
    queue_.push(static_cast<std::int32_t>(prefixes_.size() - 1));
  }

  void consider(const std::vector<LayerRange>& layers, std::int64_t bound = 0) {
    const Time step = problem_.step ? problem_.step(layers) : pipeline_->step(stage_times(problem_, layers));
    PP_CHECK(step.value >= bound);
    ++answer_.simulations;
    if (answer_.layers.empty() || step < answer_.step) answer_.layers = layers, answer_.step = step;
  }

  // Along the table, the earliest ends that attain R.
  std::vector<LayerRange> first_partition() const {
    std::vector<LayerRange> layers;
    int begin = 0;
    for (int left = problem_.stages - 1; left >= 0; --left) {
      int best = -1;
      bounds_.each_end(problem_.stages - 1 - left, begin, [&](int end) {
        if (best < 0 || bounds_.through(begin, end, left) < bounds_.through(begin, best, left)) best = end;
      });
      layers.push_back({begin, best});
      begin = best;
    }
    return layers;
  }

  std::vector<LayerRange> partition(std::int32_t prefix) const {
    std::vector<LayerRange> layers;
    for (; prefixes_[at(prefix)].before >= 0; prefix = prefixes_[at(prefix)].before)
      layers.push_back({prefixes_[at(prefixes_[at(prefix)].before)].end, prefixes_[at(prefix)].end});
    std::ranges::reverse(layers);
    return layers;
  }

  // The prefix with one more stage, up to `end`, and its bound.
  Prefix longer(std::int32_t before, int end) const {
    const Prefix& shorter = prefixes_[at(before)];
    const int begin = shorter.end, left = problem_.stages - shorter.stages - 1;
    const std::int64_t M = bounds_.micro_batches();
    Prefix prefix{.before = before, .end = end, .stages = shorter.stages + 1};
    prefix.hops = shorter.hops + bounds_.hops(end);
    prefix.work =
        std::max(shorter.work, bounds_.both(0, begin) + shorter.hops + M * bounds_.all(shorter.stages, begin, end));
    prefix.slowest_forward = std::max(shorter.slowest_forward, bounds_.forward(begin, end));
    prefix.slowest_backward = std::max(shorter.slowest_backward, bounds_.backward(begin, end));
    prefix.tail = shorter.tail;
    if (shorter.stages == 0 && problem_.tail) prefix.tail = problem_.tail({begin, end}).value;
    const auto rest = [&](const Rest& table) { return table[at(left)][at(end)]; };
    const std::int64_t hops = prefix.hops + rest(bounds_.cuts());
    if (bounds_.kind() == StepBound::Phases) {
      prefix.bound = bounds_.both(0, bounds_.layers()) + hops +
                     (M - 1) * (std::max(prefix.slowest_forward, rest(bounds_.slowest_forward())) +
                                std::max(prefix.slowest_backward, rest(bounds_.slowest_backward())));
      prefix.bound = std::max(prefix.bound, prefix.work);
    } else {
      const std::int64_t head = bounds_.both(0, end) + prefix.hops;
      prefix.bound = std::max(prefix.work, left == 0 ? 0 : head + rest(bounds_.bound()));
    }
    if (bounds_.kind() == StepBound::Window)  // of each stage placed, with the cuts that are still to come
      for (std::int32_t k = before; k >= 0; k = prefixes_[at(k)].before) {
        const Prefix& start = prefixes_[at(k)];  // what stands before that stage
        const std::int64_t behind = bounds_.both(start.end, bounds_.layers()) + hops - start.hops;
        prefix.bound = std::max(prefix.bound, bounds_.both(0, start.end) + start.hops +
                                                  bounds_.trips(problem_.stages - start.stages) * behind);
      }
    prefix.bound = std::max(checked_sum(prefix.bound, prefix.tail, "a bound"), shorter.bound);
    return prefix;
  }

  const ExactProblem& problem_;
  Bounds bounds_;
  std::optional<StraightPipeline> pipeline_;  // where the problem has no step of its own
  ExactAnswer answer_;
  std::vector<Prefix> prefixes_;
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, Later> queue_{Later{prefixes_}};
};

}  // namespace

ExactAnswer exact(const ExactProblem& problem) {
  return ExactSearch(problem).answer();
}

PipelineTimes stage_times(const ExactProblem& problem, const std::vector<LayerRange>& layers) {
  PipelineTimes times;
  for (const LayerRange range : layers) {
    Time forward, backward;
    for (LayerId i = range.begin; i < range.end; ++i) {
      forward = checked_sum(forward, problem.forward[at(i)]);
      backward = checked_sum(backward, problem.backward[at(i)]);
    }
    if (problem.extra)
      backward = checked_sum(backward, problem.extra(static_cast<StageId>(times.forward.size()), range));
    times.forward.push_back(forward);
    times.backward.push_back(backward);
    if (range.end < static_cast<LayerId>(problem.forward.size()))
      times.hop.push_back(problem.hop.empty() ? Time{} : problem.hop[at(range.end - 1)]);
  }
  return times;
}

Time plain_step(const std::string& schedule, const PipelineTimes& times, int micro_batches) {
  return StraightPipeline(schedule, static_cast<int>(times.forward.size()), micro_batches).step(times);
}

}  // namespace pipewright::planner
