#include "planner/capacity.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/question/memory_anchor.hpp"
#include "planner/capacity_growth.hpp"

namespace pipewright::planner {
namespace {

constexpr std::int64_t kLargestValue = 1'000'000'000;
constexpr std::int64_t kWidestGap = 4096;    // values in a row that make no scenario, with some behind them that do
constexpr std::int64_t kNear = 64;           // behind a double that makes none
constexpr int kMostEnds = 16;                // times that values end and begin again
constexpr std::int64_t kMostTried = 5'000;   // values of a scan
constexpr std::int64_t kMostWork = 200'000;  // of a scan (CapacityTrial::work): within a few seconds

std::string without_digits(std::string text) {
  std::erase_if(text, [](char letter) { return letter >= '0' && letter <= '9'; });
  return text;
}

struct FirstValid {
  std::int64_t value;
  std::unique_ptr<CapacityTrial> trial;  // nothing: no value before `value` makes a scenario
};

class CapacitySearch {
 public:
  CapacitySearch(const std::string& over, const ScenarioWith& with, const CapacityOptions& options)
      : with_(with), options_(options) {
    result_.over = over;
  }

  Capacity run() {
    settle_memory();
    find_upper_end();
    if (growth_ == Growth::Unproven || result_.of_run)
      look_below(upper_, grows_ && passed_memory_ && !result_.of_run);
    else
      bisect();
    describe();
    return std::move(result_);
  }

 private:
  // Whether the sizes are those of a run.
  void settle_memory() {
    if (!options_.run_memory) return;
    const FirstValid first = first_valid();
    const Scenario& scenario = first.trial->scenario();
    if (scenario.run.place == Place{}) return;
    if (options_.check_run) options_.check_run(scenario, first.trial->plan());
    try {
      CapacityTrial(scenario, &options_.run_memory).run_memory();
      result_.of_run = true;
    } catch (const InputError& error) {
      if (scenario.run.memory_cap) throw;
      not_run_ = "; by the memory model, as a run is refused (" + line(error.first()) + ")";
    }
  }

  // ---- values that make a scenario ----

  // Nothing: the value makes none, and `refused_` says why.
  std::unique_ptr<CapacityTrial> trial(std::int64_t value) {
    if (value > kLargestValue) return refused_ = "1000000000 is the largest value", nullptr;
    if (options_.progress) options_.progress(value, read_);
    ++read_;
    try {
      return std::make_unique<CapacityTrial>(with_(value), result_.of_run ? &options_.run_memory : nullptr);
    } catch (const InputError& error) {
      refused_ = line(error.first());
      return nullptr;
    }
  }

  // The first value in [low, high) that makes a scenario; if none does, `refused_` says why not the first of them.
  FirstValid next_valid(std::int64_t low, std::int64_t high) {
    std::string why;
    for (std::int64_t value = low; value < high; ++value) {
      if (auto found = trial(value)) return {value, std::move(found)};
      if (why.empty()) why = refused_;
    }
    refused_ = why;
    return {std::max(low, high), nullptr};
  }

  // The first value from the scenario's own on, doubled, that makes a scenario.
  FirstValid first_valid() {
    std::string why;
    for (std::int64_t value = options_.first; value <= kLargestValue; value *= 2) {
      if (auto found = trial(value)) return {value, std::move(found)};
      if (why.empty()) why = refused_;
    }
    throw InputError(why);
  }

  // Of values of which the last is refused: the first from which on they are for the same reason.
  std::int64_t end_of_scenarios(std::int64_t good, std::int64_t bad) {
    static_cast<void>(trial(bad));
    const std::string why = without_digits(refused_);
    while (bad - good > 1) {
      const std::int64_t middle = good + (bad - good) / 2;
      const bool ended = !trial(middle) && without_digits(refused_) == why;
      (ended ? bad : good) = middle;
    }
    return bad;
  }

  // The double of a value, or one close behind it; where values end before that: the next behind their end.
  FirstValid beyond(std::int64_t value) {
    FirstValid found = next_valid(2 * value, 2 * value + kNear);
    if (found.trial) return found;
    end_ = ++times_ended_ > kMostEnds ? 2 * value : end_of_scenarios(value, 2 * value);
    static_cast<void>(trial(end_));
    end_refused_ = refused_;
    const std::int64_t last = std::min(end_ + kReadBeyond, options_.most.value_or(kLargestValue) + 1);
    found = next_valid(end_ + 1, last);
    if (times_ended_ > kMostEnds) found.trial = nullptr;
    read_to_ = found.value - 1;
    return found;
  }

  // ---- the upper end ----

  void pass_memory(std::int64_t value, const CapacityTrial& tried) {
    upper_ = value, passed_memory_ = true;
    misses_.insert(value);
    result_.upper_end = fmt::format("with {} {} the memory of all devices", value,
                                    tried.state_share() > 1 ? "the training state alone passes"
                                                            : "the training state and what one micro-batch keeps pass");
  }

  void end_of_values() {
    upper_ = end_, ended_ = true;
    result_.upper_end = fmt::format("{} makes no scenario: {}", end_, end_refused_);
  }

  // Sets upper_, the first value that is not looked at, and what proof there is.
  void find_upper_end() {
    double_until_the_end();
    if (!options_.most || (upper_ > 0 && upper_ <= *options_.most)) return;
    upper_ = *options_.most + 1, passed_memory_ = ended_ = false;
    result_.upper_end = fmt::format("{} was given", *options_.most);
  }

  void double_until_the_end() {
    auto [value, tried] = first_valid();
    partition_ = tried->partition();
    proof_first_ = value;
    while (true) {
      FirstValid next = beyond(value);
      if (next.trial) {
        growth_ = growth(*tried, *next.trial), grows_ = grows(*tried, *next.trial);
        proof_second_ = next.value;
      }
      const double share = tried->held_share();
      const bool falls = next.trial && next.trial->held_share() < share;
      if (share > 1 && !falls) return pass_memory(value, *tried);
      if (!next.trial) return end_of_values();
      value = next.value, tried = std::move(next.trial);
      if (tried->held_share() > 1 && !falls) return pass_memory(value, *tried);
      if (growth_ == Growth::Samples && !tried->may_fit()) {
        upper_ = value;
        misses_.insert(value);
        result_.upper_end = fmt::format("{} does not fit", value);
        return;
      }
      if (options_.most && value > *options_.most) return;
      if (value > kLargestValue / 2)
        throw InputError(Place{}, "capacity",
                         fmt::format("nothing bounds {}: its training state still fits with {}; give --at-most",
                                     result_.over, value));
    }
  }

  // ---- what fits ----

  bool may_fit(std::int64_t value, const CapacityTrial& tried) {
    ++result_.tried;
    const bool may = tried.may_fit();
    if (!may) misses_.insert(value);
    return may;
  }
  bool fits(std::int64_t value, const CapacityTrial& tried) {
    const bool fit = may_fit(value, tried) && tried.fits();
    if (!fit) misses_.insert(value);
    return fit;
  }

  // Whether no larger value may fit if this one may not: for runs, there must be more layers than stages.
  bool proves(std::int64_t value, const CapacityTrial& tried) {
    const std::int64_t known = value == proof_first_ ? proof_second_ : proof_first_;
    const auto other = trial(known);
    const CapacityTrial &smaller = value < known ? tried : *other, &larger = value < known ? *other : tried;
    if (growth(smaller, larger) != growth_) return false;
    if (growth_ == Growth::Samples) return true;
    const auto runs = repetition(smaller.scenario().model, larger.scenario().model);
    return (value < known ? runs->in_smaller : runs->in_larger) > tried.plan().stages;
  }

  // Where values end below the upper end, the last of them may fit.
  bool last_fits() {
    if (misses_.contains(upper_)) return false;
    const auto tried = trial(upper_ - 1);
    if (!tried || !fits(upper_ - 1, *tried)) return false;
    result_.largest = upper_ - 1;
    result_.tried_to = known_to(upper_);
    result_.method = fmt::format("{} is the largest value that {}, and it fits", upper_ - 1,
                                 ended_ ? "makes a scenario" : "is allowed");
    return true;
  }

  void bisect() {
    if (last_fits()) return;
    std::int64_t low = 0, high = upper_;  // low may fit (or is 0), high does not
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      const auto [value, tried] = next_valid(middle, std::min(high, middle + kWidestGap));
      if (tried == nullptr && value < high) return climb(high);
      const bool may = tried && may_fit(value, *tried);
      if (tried && !may && !proves(value, *tried)) return look_below(high, true);  // too few layers for the proof
      if (may)
        low = value;
      else
        high = middle;
    }
    // Buffers in flight may take more than the walk says: then the values below are looked at one by one.
    if (const auto found = low > 0 ? trial(low) : nullptr; found && found->fits()) {
      result_.largest = low, result_.proven = result_.needs_grow = true;
      result_.method =
          growth_ == Growth::Repetition
              ? "bisection: the model is a chain that grows by layers like their neighbours, so a larger value never "
                "needs less (message buffers left out)"
              : "bisection: the same layers and micro-batches of fewer samples need no more";
      return;
    }
    if (low > 0) misses_.insert(low);
    look_below(low, true);
    if (result_.proven && low == 0)
      result_.method = "bisection: the smallest value does not fit, and a larger one needs no less";
    if (result_.proven && low > 0)
      result_.method = fmt::format("bisection without buffers, then downwards from {}, since buffers need more", low);
  }

  // `proven`: that nothing from `below` on fits.
  void look_below(std::int64_t below, bool proven) {
    if (!scan(below)) return climb(below);
    result_.proven = proven;
  }

  // As far as values are known not to fit or to make no scenario, where those below `below` are.
  std::int64_t known_to(std::int64_t below) const {
    if (ended_ && below == upper_) return std::max(end_, read_to_);
    return misses_.contains(below) ? below : below - 1;
  }

  // Downwards, value by value. False: it would take too long.
  bool scan(std::int64_t below) {
    std::int64_t looked = 0, work = 0, value = below - 1;
    for (; value >= 1; --value) {
      if (++looked > kMostTried || work > kMostWork) return false;
      const auto tried = trial(value);
      if (!tried) continue;
      work += tried->work();
      if (fits(value, *tried)) break;
    }
    if (value >= 1) result_.largest = value;
    result_.tried_to = known_to(below);
    result_.method =
        fmt::format("scan downwards from {}, value by value: nothing is assumed about values in between", below - 1);
    return true;
  }

  // Upwards by doubling while values fit, then bisection, then value by value. No proof.
  void climb(std::int64_t below) {
    const auto first_fit = [&](std::int64_t from, std::int64_t to) -> std::optional<std::int64_t> {
      const auto [value, tried] = next_valid(from, std::min(to, from + kWidestGap));
      return tried && fits(value, *tried) ? std::optional(value) : std::nullopt;
    };
    std::int64_t low = 0, high = below;
    for (std::int64_t value = 1; value < below; value *= 2) {
      const auto found = first_fit(value, below);
      if (found)
        low = std::max(low, *found);
      else if (low > 0) {
        high = value;
        break;
      }
    }
    while (low > 0 && high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      if (const auto found = first_fit(middle, high))
        low = *found;
      else
        high = middle;
    }
    low = climb_on(low, below);
    if (low > 0) result_.largest = low;
    result_.method = fmt::format(
        "doubling, then bisection, then value by value up to {}, since below {} there are too many values to look at "
        "one by one: that nothing larger fits is not proven",
        *result_.tried_to, below);
  }

  // The largest that fits before as many values in a row do not as are worth the time, and at least as many as there
  // are chunks: over so many layers the cut of equal ones repeats itself.
  std::int64_t climb_on(std::int64_t low, std::int64_t below) {
    std::int64_t value = low + 1;
    for (std::int64_t missed = 0, most = 1; missed < most && value < below; ++value) {
      const FirstValid found = next_valid(value, std::min(below, value + kWidestGap));
      value = found.value;
      if (!found.trial) break;
      missed = fits(value, *found.trial) ? 0 : missed + 1;
      if (missed == 0) low = value;
      const std::int64_t affordable = std::min(kMostBeyond, kMostWork / found.trial->work());
      most = std::max<std::int64_t>({kLeastBeyond, affordable, found.trial->plan().chunks()});
    }
    result_.tried_to = value < below ? value - 1 : known_to(below);
    return low;
  }

  // ---- what is said of the largest and of the next one ----

  void describe() {
    if (result_.proven) result_.tried_to.reset();
    if (result_.of_run) result_.method += "; sizes by replaying a run's arena";
    result_.method += "; " + partition_ + not_run_;
    if (result_.largest) describe_largest(*trial(*result_.largest));
    const auto miss = misses_.upper_bound(result_.largest.value_or(0));
    if (miss != misses_.end() && *miss <= options_.most.value_or(*miss)) return describe_next(*miss);
    if (ended_)
      result_.next_refused = fmt::format("{} ({} to {} were read)", end_refused_, end_, known_to(upper_));
    else
      result_.stopped = options_.most;
  }

  void describe_next(std::int64_t value) {
    const auto next = trial(value);
    result_.next = value;
    const Answer& answer = next->answer();
    result_.next_least_memory = next->least_memory();
    describe_fit(*next);
    for (const StageReport& stage : answer.report.stages)
      if (stage.need.to_fit > result_.next_need) {
        result_.next_need = stage.need.to_fit;
        result_.next_bytes = stage.memory.bytes, result_.next_stage = stage.stage;
      }
  }

  // Of a run nothing is a matter of a range.
  void describe_fit(const CapacityTrial& trial) {
    if (!result_.of_run) result_.fit = fit_asked(trial.scenario());
    if (const auto& correction = trial.scenario().training.framework.correction) result_.anchored = correction->text;
  }

  void describe_largest(const CapacityTrial& best) {
    describe_fit(best);
    const Answer& answer = best.answer();
    result_.stages = answer.plan.stages;
    result_.devices = answer.plan.devices();
    result_.layers = static_cast<std::int64_t>(best.scenario().model.layers.size());
    result_.parameters = parameter_count(best.scenario().model);
    result_.device_memory = result_.of_run ? best.room() : best.scenario().cluster.device.memory;
    for (const WorkerReport& worker : answer.report.workers) {
      const MemoryBytes& bytes = worker.memory.bytes;
      const Bytes state = bytes.weights + bytes.gradients + bytes.optimizer;
      const Bytes activations = bytes.total() - state - bytes.reserve;
      result_.training_state += state;
      result_.activations += activations;
      result_.largest_activations = std::max(result_.largest_activations, activations);
      if (worker.need.to_fit > result_.peak) result_.peak = worker.need.to_fit, result_.fullest = worker.stage;
    }
    result_.reserve = result_.of_run ? Bytes{} : answer.memory.room(result_.fullest).reserve;
    result_.headroom = result_.device_memory - result_.peak;
    result_.least_memory = best.least_memory();
    if (!best.cut_as_stated()) result_.other_cut = "balanced", result_.other_fits = best.stated_cut_fits();
  }

  const ScenarioWith& with_;
  CapacityOptions options_;
  Capacity result_;
  std::string partition_, refused_, not_run_;
  std::int64_t read_ = 0;  // values, whether they make a scenario or not
  std::int64_t upper_ = 0;
  bool passed_memory_ = false;  // what all layers take passes it with upper_
  bool ended_ = false;          // upper_ makes no scenario, and nothing behind it was found that does
  std::int64_t end_ = 0, read_to_ = 0;
  std::string end_refused_;
  int times_ended_ = 0;
  std::set<std::int64_t> misses_;                    // values that do not fit
  std::int64_t proof_first_ = 0, proof_second_ = 0;  // two values that were compared
  Growth growth_ = Growth::Unproven;
  bool grows_ = false;
};

}  // namespace

Capacity capacity(const std::string& over, const ScenarioWith& with, const CapacityOptions& options) {
  return CapacitySearch(over, with, options).run();
}

}  // namespace pipewright::planner
