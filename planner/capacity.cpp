#include "planner/capacity.hpp"

#include <algorithm>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "planner/find_plan.hpp"
#include "planner/one_class.hpp"
#include "planner/partitioners/fitting.hpp"
#include "planner/partitioners/rebuilt_layers.hpp"
#include "planner/price.hpp"

namespace pipewright {
namespace {

constexpr std::int64_t kLargestValue = 1'000'000'000;
constexpr std::int64_t kWidestGap = 4096;           // values in a row that make no scenario
constexpr std::int64_t kMostLayersTried = 200'000;  // of all models that a scan builds: within a few seconds

// ---- proofs ---------------------------------------------------------------------------------------------------------

// Whether two layers are alike in everything that takes room; times have no part in it.
bool alike(const Layer& a, const Layer& b) {
  return a.activation == b.activation && a.stash == b.stash && a.stash_selective == b.stash_selective &&
         a.parameters == b.parameters && a.parameters_on_device == b.parameters_on_device &&
         a.keeps_output == b.keeps_output && (a.tied_to < 0) == (b.tied_to < 0);
}

struct Run {
  LayerId first;
  std::int64_t length;
};

// Runs of equal layers of a chain; empty: it is none.
std::vector<Run> runs_of(const Model& model) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const Layer& layer = model.layers[i];
    const bool chained =
        i == 0 ? layer.inputs.empty() : layer.inputs.size() == 1 && layer.inputs.front() == static_cast<LayerId>(i) - 1;
    if (!chained) return {};
    if (i > 0 && alike(layer, model.layers[i - 1]))
      ++runs.back().length;
    else
      runs.push_back({static_cast<LayerId>(i), 1});
  }
  return runs;
}

// Whether two models are the same, layer by layer, in everything that takes room.
bool same_figures(const Model& a, const Model& b) {
  if (a.layers.size() != b.layers.size() || a.batch != b.batch || a.input != b.input) return false;
  for (std::size_t i = 0; i < a.layers.size(); ++i)
    if (!alike(a.layers[i], b.layers[i]) || a.layers[i].inputs != b.layers[i].inputs) return false;
  return true;
}

// ---- one value ------------------------------------------------------------------------------------------------------

// The scenario with one value, its plan, and whether it fits.
class Trial {
 public:
  // `run_memory`: null, or what a run takes decides.
  Trial(Scenario scenario, const RunMemoryOf* run_memory) : scenario_(std::move(scenario)), run_memory_(run_memory) {
    if (run_memory_ != nullptr) {
      partition_ = "the cut that a run takes";
    } else if (std::holds_alternative<Balanced>(scenario_.plan.partition.value)) {
      searched_ = balanced_ = scenario_.plan.virtual_stages.value == 1;
      partition_ = searched_ ? "the cut with the least bottleneck among those that fit"
                             : "the balanced cut (several chunks share a device)";
    } else if (std::holds_alternative<Fitting>(scenario_.plan.partition.value)) {
      searched_ = true;
      partition_ = "the cut with the least bottleneck among those that fit";
    } else {
      partition_ = "the cut that the scenario states";
    }
    refuse_classes(scenario_.cluster, scenario_.cluster.place, "capacity");
    // Sizes do not depend on it, and errors of the plan show before any search.
    if (searched_) scenario_.plan.partition.value = Balanced{};
    cost_ = std::make_unique<CostModel>(scenario_);
    plan_ = find_plan(scenario_, *cost_);
    if (searched_) plan_ = asking_again(std::move(plan_), scenario_);
  }

  const Scenario& scenario() const { return scenario_; }
  const Plan& plan() const { return plan_; }
  const CostModel& cost() const { return *cost_; }
  const std::string& partition() const { return partition_; }

  // Bytes of training state of the whole model on one worker: together the workers of a copy hold no less.
  Bytes state() const {
    Plan whole = plan_;
    const auto layers = static_cast<LayerId>(scenario_.model.layers.size());
    whole.layers.assign(whole.layers.size(), {layers, layers});
    whole.layers.front() = {0, layers};
    const ChunkMemory chunk = memory_model(whole, *cost_).chunks.front();
    return chunk.weights + chunk.gradients + chunk.optimizer;
  }
  bool state_fits() const {
    return static_cast<double>(state().value) <= static_cast<double>(room().value) * plan_.stages;
  }
  // What a worker may fill.
  Bytes room() const {
    const Device& device = scenario_.cluster.device;
    if (run_memory_ != nullptr && scenario_.run.memory_cap) return *scenario_.run.memory_cap;
    return device.memory - device.reserve;
  }

  // Whether the scenario's own cut, which is not looked at where a better one is searched, is that of the answer.
  bool cut_as_stated() const { return !balanced_ || answer().plan.layers == plan_.layers; }
  bool stated_cut_fits() const {
    Plan plan = plan_;
    choose_rebuilt(plan, *cost_);
    return price(plan, *cost_, Engine::Auto).report.fits;
  }

  // Without buffers: quick, and never wrong about what does not fit.
  bool may_fit() const { return searched_ ? some_cut_fits(plan_, *cost_) : fits(); }

  bool fits() const { return run_memory_ != nullptr ? extent() <= room() : answer().report.fits; }

  // Of a real run, by position.
  const std::vector<RunMemory>& run_memory() const {
    if (in_run_.empty())
      in_run_ = (*run_memory_)(scenario_, plan_,
                               make_schedule(plan_, schedule_shape(plan_, scenario_.model, scenario_.training)));
    return in_run_;
  }

  // Priced with its cut: the one that fits, or else comes nearest.
  const Answer& answer() const {
    if (!answer_) {
      Plan plan = plan_;
      if (searched_) {
        plan.layers = fitting_layers(plan_, *cost_).layers;
        choose_rebuilt(plan, *cost_);
      }
      answer_ = std::make_unique<Answer>(price(plan, *cost_, Engine::Auto));
      if (run_memory_ != nullptr) set_run_memory(answer_->report);
    }
    return *answer_;
  }

  // The least memory per device with which a cut fits.
  Bytes least_memory() const {
    if (run_memory_ != nullptr) return extent();
    if (searched_) return pipewright::least_memory(asking_again(answer().plan, scenario_), *cost_);
    Bytes most;
    for (const WorkerReport& worker : answer().report.workers)
      most = std::max(most, worker.need.to_fit);
    return most;
  }

 private:
  // Of the worker that takes most.
  Bytes extent() const {
    Bytes most;
    for (const RunMemory& worker : run_memory())
      most = std::max(most, worker.extent);
    return most;
  }
  void set_run_memory(Report& report) const {
    for (WorkerReport& worker : report.workers) {
      const RunMemory& memory = run_memory()[static_cast<std::size_t>(worker.id % plan_.positions())];
      worker.memory.bytes = memory.bytes, worker.need.with_reserve = worker.need.to_fit = memory.extent;
      StageReport& stage = report.stages[static_cast<std::size_t>(worker.stage)];
      if (stage.workers.front() == worker.id || memory.extent > stage.need.to_fit)
        stage.memory = worker.memory, stage.need = worker.need;
    }
  }

  Scenario scenario_;
  const RunMemoryOf* run_memory_;
  bool searched_ = false;
  bool balanced_ = false;  // searched, where the scenario asks for the balanced cut
  std::string partition_;
  std::unique_ptr<CostModel> cost_;
  Plan plan_;
  mutable std::vector<RunMemory> in_run_;
  mutable std::unique_ptr<Answer> answer_;
};

// ---- the search -----------------------------------------------------------------------------------------------------

enum class Growth { Unproven, Repetition, Samples };

class Search {
 public:
  Search(const std::string& over, const ScenarioWith& with, const CapacityOptions& options)
      : with_(with), options_(options) {
    result_.over = over;
  }

  Capacity run() {
    settle_memory();
    find_upper_end();
    if (growth_ == Growth::Unproven || result_.of_run)
      scan(upper_);
    else
      bisect();
    describe();
    return std::move(result_);
  }

 private:
  // Whether the sizes are those of a run.
  void settle_memory() {
    if (!options_.run_memory) return;
    const auto [value, tried] = first_valid();
    const Scenario& scenario = tried->scenario();
    if (scenario.run.place == Place{}) return;
    if (options_.check_run) options_.check_run(scenario, tried->plan());
    try {
      Trial(scenario, &options_.run_memory).run_memory();
      result_.of_run = true;
    } catch (const InputError& error) {
      if (scenario.run.memory_cap) throw;
      not_run_ = error.what();
      not_run_ = "; by the memory model, as a run is refused (" + not_run_.substr(0, not_run_.find('\n')) + ")";
    }
  }

  // Nothing: the value makes no scenario, and `refused_` says why.
  std::unique_ptr<Trial> trial(std::int64_t value) {
    if (value > kLargestValue) return refused_ = "1000000000 is the largest value", nullptr;
    if (options_.progress) options_.progress(value, result_.tried);
    try {
      return std::make_unique<Trial>(with_(value), result_.of_run ? &options_.run_memory : nullptr);
    } catch (const InputError& error) {
      const std::string what = error.what();
      refused_ = what.substr(0, what.find('\n'));
      return nullptr;
    }
  }

  // What makes a model larger between two values.
  static Growth growth(const Trial& smaller, const Trial& larger) {
    const Plan &a = smaller.plan(), &b = larger.plan();
    if (a.stages != b.stages || a.micro_batches != b.micro_batches) return Growth::Unproven;
    const bool same_samples =
        a.micro_batch_size == b.micro_batch_size && a.last_micro_batch_size == b.last_micro_batch_size;
    const Model &x = smaller.scenario().model, &y = larger.scenario().model;
    if (same_samples && repetition(x, y)) return Growth::Repetition;
    const bool more_samples =
        a.micro_batch_size <= b.micro_batch_size && a.last_micro_batch_size <= b.last_micro_batch_size;
    return more_samples && same_figures(x, y) ? Growth::Samples : Growth::Unproven;
  }

  // Whether no larger value fits if this one does not: for runs, there must be more layers than stages.
  bool proves(std::int64_t value, const Trial& tried) {
    const std::int64_t known = value == proof_first_ ? proof_second_ : proof_first_;
    const auto other = trial(known);
    const Trial &smaller = value < known ? tried : *other, &larger = value < known ? *other : tried;
    if (growth(smaller, larger) != growth_) return false;
    if (growth_ == Growth::Samples) return true;
    const auto runs = repetition(smaller.scenario().model, larger.scenario().model);
    return (value < known ? runs->in_smaller : runs->in_larger) > tried.plan().stages;
  }

  void pass_memory(std::int64_t value) {
    upper_ = value;
    result_.upper_end = fmt::format("with {} the training state alone passes the memory of all devices", value);
  }

  // The first value from the scenario's own on, doubled, that makes a scenario.
  std::pair<std::int64_t, std::unique_ptr<Trial>> first_valid() {
    std::string why;
    for (std::int64_t value = options_.first; value <= kLargestValue; value *= 2) {
      if (auto found = trial(value)) return {value, std::move(found)};
      if (why.empty()) why = refused_;
    }
    throw InputError(why);
  }

  // Sets upper_, the first value that is known not to fit (or to make no scenario), and what proof there is.
  void find_upper_end() {
    auto [value, tried] = first_valid();
    partition_ = tried->partition();
    proof_first_ = value;
    const bool fits = tried->state_fits();
    if (!fits) pass_memory(value);
    while (true) {
      auto next = trial(2 * value);
      if (next) {
        growth_ = growth(*tried, *next);
        proof_second_ = 2 * value;
      }
      if (!fits) break;
      if (!next) {
        upper_ = 2 * value;
        result_.upper_end = fmt::format("{} makes no scenario: {}", 2 * value, refused_);
        break;
      }
      value *= 2;
      tried = std::move(next);
      if (!tried->state_fits()) {
        pass_memory(value);
        break;
      }
      if (growth_ == Growth::Samples && !tried->may_fit()) {
        upper_ = value;
        result_.upper_end = fmt::format("{} does not fit", value);
        break;
      }
      if (options_.most && value > *options_.most) break;
      if (value > kLargestValue / 2)
        throw InputError(fmt::format(
            "capacity: nothing bounds {}: its training state still fits with {}; give --at-most", result_.over, value));
    }
    if (!options_.most || (upper_ > 0 && upper_ <= *options_.most)) return;
    upper_ = *options_.most + 1;
    result_.upper_end = fmt::format("{} was given", *options_.most);
  }

  bool may_fit(const Trial& trial) {
    ++result_.tried;
    return trial.state_fits() && trial.may_fit();
  }

  // Values above low that make a scenario; `high` where there is none below it.
  std::pair<std::int64_t, std::unique_ptr<Trial>> next_valid(std::int64_t low, std::int64_t high) {
    std::string why;  // the first of them
    for (std::int64_t value = low; value < high; ++value) {
      if (auto found = trial(value)) return {value, std::move(found)};
      if (why.empty()) why = refused_;
    }
    refused_ = why;
    return {high, nullptr};
  }

  void bisect() {
    std::int64_t low = 0, high = upper_;  // low may fit (or is 0), high does not
    while (high - low > 1) {
      auto [middle, tried] = next_valid(low + (high - low) / 2, high);
      if (tried == nullptr) {
        high = low + (high - low) / 2;
        continue;
      }
      const bool fits = may_fit(*tried);
      if (!fits && !proves(middle, *tried)) return scan(high);  // too few layers for the proof
      if (fits)
        low = middle;
      else
        high = low + (high - low) / 2;
    }
    // Buffers in flight may take more than the walk says: then the values below are looked at one by one.
    if (low > 0 && trial(low) && trial(low)->fits()) {
      settle(low);
      result_.method = growth_ == Growth::Repetition
                           ? "bisection: the model is a chain that grows by layers like their neighbours, so what fits "
                             "with a value fits with every smaller one"
                           : "bisection: the same layers and micro-batches of fewer samples need no more";
      return;
    }
    scan(low);
    result_.method = fmt::format("bisection without buffers, then downwards from {}, since buffers need more", low);
  }

  void scan(std::int64_t below) {
    std::int64_t looked = 0, layers = 0;
    for (std::int64_t value = below - 1; value >= 1; --value) {
      if (++looked > kMostTried || layers > kMostLayersTried) return gallop(below);
      const auto tried = trial(value);
      if (!tried) continue;
      layers += static_cast<std::int64_t>(tried->scenario().model.layers.size());
      if (!may_fit(*tried) || !tried->fits()) continue;
      settle(value);
      break;
    }
    result_.method =
        fmt::format("scan downwards from {}, value by value: nothing is assumed about values in between", below - 1);
  }

  // Too many values to look at one by one: upwards by doubling while they fit, then bisection. No proof.
  void gallop(std::int64_t below) {
    const auto fits = [&](std::int64_t from, std::int64_t to) -> std::optional<std::int64_t> {
      auto [value, tried] = next_valid(from, std::min(to, from + kWidestGap));
      return tried && may_fit(*tried) && tried->fits() ? std::optional(value) : std::nullopt;
    };
    std::int64_t low = 0, high = below;
    for (std::int64_t value = 1; value < below; value *= 2) {
      const auto found = fits(value, below);
      if (found)
        low = std::max(low, *found);
      else if (low > 0) {
        high = value;
        break;
      }
    }
    while (low > 0 && high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      if (const auto found = fits(middle, high))
        low = *found;
      else
        high = middle;
    }
    if (low > 0) settle(low);
    result_.method = fmt::format(
        "doubling, then bisection, since below {} there are too many values to look at one by one: that nothing larger "
        "fits is not proven",
        below);
  }

  void settle(std::int64_t value) { result_.largest = value; }

  // ---- what is said of the largest and of the next one ----
  void describe() {
    if (result_.of_run) result_.method += "; sizes by replaying a run's arena";
    result_.method += "; " + partition_ + not_run_;
    if (result_.largest) describe_largest(*trial(*result_.largest));
    const std::int64_t after = result_.largest.value_or(0) + 1;
    if (options_.most && after > *options_.most) {
      result_.stopped = *options_.most;
      return;
    }
    auto [value, next] = next_valid(after, after + kWidestGap);
    if (next == nullptr) {
      result_.next_refused = refused_;
      return;
    }
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
  void describe_fit(const Trial& trial) {
    if (!result_.of_run && !trial.scenario().model.works.empty()) result_.fit = trial.scenario().plan.fit;
  }

  void describe_largest(const Trial& best) {
    describe_fit(best);
    const Answer& answer = best.answer();
    result_.stages = answer.plan.stages;
    result_.devices = answer.plan.devices();
    result_.layers = static_cast<std::int64_t>(best.scenario().model.layers.size());
    result_.parameters = parameter_count(best.scenario().model);
    result_.device_memory = result_.of_run ? best.room() : best.scenario().cluster.device.memory;
    result_.reserve = result_.of_run ? Bytes{} : answer.memory.reserve;
    for (const WorkerReport& worker : answer.report.workers) {
      const MemoryBytes& bytes = worker.memory.bytes;
      const Bytes state = bytes.weights + bytes.gradients + bytes.optimizer;
      const Bytes activations = bytes.total() - state - bytes.reserve;
      result_.training_state += state;
      result_.activations += activations;
      result_.largest_activations = std::max(result_.largest_activations, activations);
      if (worker.need.to_fit > result_.peak) result_.peak = worker.need.to_fit, result_.fullest = worker.stage;
    }
    result_.headroom = result_.device_memory - result_.peak;
    result_.least_memory = best.least_memory();
    if (!best.cut_as_stated()) result_.other_cut = "balanced", result_.other_fits = best.stated_cut_fits();
  }

  const ScenarioWith& with_;
  CapacityOptions options_;
  Capacity result_;
  std::string partition_, refused_, not_run_;
  std::int64_t upper_ = 0;
  std::int64_t proof_first_ = 0, proof_second_ = 0;  // two values that were compared
  Growth growth_ = Growth::Unproven;
};

}  // namespace

std::optional<Repetition> repetition(const Model& smaller, const Model& larger) {
  const std::vector<Run> a = runs_of(smaller), b = runs_of(larger);
  if (a.empty() || a.size() != b.size() || smaller.batch != larger.batch || smaller.input != larger.input)
    return std::nullopt;
  std::optional<Repetition> shortest;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Layer& layer = smaller.layers[static_cast<std::size_t>(a[i].first)];
    if (!alike(layer, larger.layers[static_cast<std::size_t>(b[i].first)]) || a[i].length > b[i].length)
      return std::nullopt;
    if (a[i].length == b[i].length) continue;
    const Bytes before =
        a[i].first == 0 ? smaller.input : smaller.layers[static_cast<std::size_t>(a[i].first) - 1].activation;
    if (layer.tied_to >= 0 || before > layer.activation) return std::nullopt;
    if (!shortest || a[i].length < shortest->in_smaller) shortest = {a[i].length, b[i].length};
  }
  return shortest;
}

Capacity capacity(const std::string& over, const ScenarioWith& with, const CapacityOptions& options) {
  return Search(over, with, options).run();
}

}  // namespace pipewright
