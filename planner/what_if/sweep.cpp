#include "planner/what_if/sweep.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "planner/find_plan.hpp"
#include "planner/layer_order.hpp"
#include "planner/price.hpp"

namespace pipewright {
namespace {

// Neighbours differ in the last key of the grid, so a thread that takes several reads less anew.
constexpr std::int64_t kTakenAtOnce = 16;
constexpr std::chrono::milliseconds kBetweenProgress{100};

// "a.yaml:3:5: what is wrong" of several lines: the lines, joined.
std::string one_line(std::string text) {
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at))
    text.replace(at, 1, "; ");
  return text;
}

void fill(SweepRow& row, const Answer& answer) {
  const Report& report = answer.report;
  row.outcome = report.fits ? SweepRow::Outcome::Fits : SweepRow::Outcome::DoesNotFit;
  if (!report.fits) row.reason = one_line(report.shortfall.reason);
  row.step_time = report.step_time;
  row.samples_per_s = report.samples_per_s;
  row.tokens_per_s = report.tokens_per_s;
  row.mfu = report.mfu;
  row.bubble = report.bubble_fraction;
  if (const StageReport* full = fullest(report))
    row.peak_memory = full->need.with_reserve, row.capacity = full->need.capacity;
  row.devices = answer.plan.devices();
  row.plan = plan_in_words(answer.plan);
  for (const LayerRange& range : answer.plan.layers)
    row.layers += fmt::format("{}{}", row.layers.empty() ? "" : " ", range.size());
}

// The rows of one thread. `nullopt`: left out by `where`.
class Worker {
 public:
  Worker(const SweepQuestion& question, const SweepOptions& options)
      : question_(question), points_(options.points()), priced_(options.priced) {}

  std::optional<SweepRow> row(std::int64_t point) {
    SweepRow row;
    row.point = point;
    const Scenario* scenario = nullptr;
    try {
      scenario = &points_.scenario(point);
    } catch (const InputError& error) {
      row.reason = one_line(error.what());
      return row;
    }
    try {
      if (!wanted(*scenario, nullptr)) return std::nullopt;
      const auto result = priced_(*scenario);
      if (const auto* none = std::get_if<Infeasible>(&result)) {
        row.outcome = SweepRow::Outcome::NoPlan;
        row.reason = one_line(none->reason);
        return row;
      }
      fill(row, std::get<Answer>(result));
    } catch (const InputError& error) {
      row.reason = one_line(error.what());
      return row;
    }
    if (!wanted(*scenario, &row)) return std::nullopt;
    return row;
  }

 private:
  // Whether the conditions hold: those on the scenario alone, or (given its row) those that ask for figures. A row
  // without a figure that a condition asks for stays, with its reason.
  bool wanted(const Scenario& scenario, const SweepRow* row) const {
    const auto is_figure = [](const std::string& key) { return find_sweep_figure(key) != nullptr; };
    return std::all_of(question_.where.begin(), question_.where.end(), [&](const Comparison& comparison) {
      if (comparison.asks_for(is_figure) != (row != nullptr)) return true;
      bool missing = false;
      const bool answer = holds(comparison, [&](const std::string& key) -> std::optional<Magnitude> {
        const SweepFigureName* found = find_sweep_figure(key);
        if (!found) return points_.magnitude(scenario, key);
        const std::optional<double> value = figure(*row, found->figure);
        missing |= !value;
        return Magnitude{value.value_or(0), found->unit};
      });
      return missing || answer;
    });
  }

  const SweepQuestion& question_;
  SweepPoints points_;
  std::function<std::variant<Answer, Infeasible>(const Scenario&)> priced_;
};

// The work that the threads share.
struct Shared {
  const SweepQuestion& question;
  const SweepOptions& options;
  const std::int64_t all;
  std::vector<std::optional<SweepRow>> rows;
  std::vector<char> finished;
  std::atomic<std::int64_t> next{0}, done{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::condition_variable ended;
  int running = 0;
  std::exception_ptr failure;

  Shared(const SweepQuestion& asked, const SweepOptions& how)
      : question(asked),
        options(how),
        all(asked.points()),
        rows(static_cast<std::size_t>(all)),
        finished(static_cast<std::size_t>(all)) {}

  void work() {
    Worker worker(question, options);
    while (true) {
      const std::int64_t begin = next.fetch_add(kTakenAtOnce), end = std::min(all, begin + kTakenAtOnce);
      for (std::int64_t point = begin; point < end; ++point) {
        if (failed || options.stopped()) return;
        const auto at = static_cast<std::size_t>(point);
        rows[at] = worker.row(point);
        if (options.stops_inside && options.stopped()) return;
        finished[at] = 1;
        ++done;
      }
      if (end == all || begin >= all) return;
    }
  }

  void run() {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      failed = true;
    }
    const std::lock_guard lock(mutex);
    --running;
    ended.notify_one();
  }
};

}  // namespace

std::variant<Answer, Infeasible> priced_as_stated(const Scenario& scenario) {
  const InOrder ordered = in_graph_order(scenario);
  const CostModel cost = cost_model(ordered.or_else(scenario));
  Answer answer = price(find_plan(cost.scenario(), cost), cost, Engine::Auto);
  answer.own = ordered.own;
  return answer;
}

std::string plan_in_words(const Plan& plan) {
  std::string text = fmt::format("PP{}", plan.stages);
  if (plan.virtual_stages > 1) text += fmt::format(" VP{}", plan.virtual_stages);
  if (plan.data_parallel > 1) text += fmt::format(" DP{}", plan.data_parallel);
  if (plan.tensor_parallel > 1)
    text += fmt::format(" TP{}{}", plan.tensor_parallel, plan.sequence_parallel ? "+SP" : "");
  if (std::any_of(plan.replicas.begin(), plan.replicas.end(), [](int r) { return r > 1; }))
    text += fmt::format(" {}", fmt::join(plan.replicas, "-"));
  text += fmt::format(" MBS{} x {} {}", plan.micro_batch_size, plan.micro_batches, plan.schedule);
  const auto with = [&](Recompute kind) { return std::count(plan.recompute.begin(), plan.recompute.end(), kind); };
  const auto stages = static_cast<std::ptrdiff_t>(plan.recompute.size());
  if (const auto full = with(Recompute::Full); full > 0)
    text += full == stages ? " recompute" : fmt::format(" recompute on {}", full);
  if (const auto selective = with(Recompute::Selective); selective > 0)
    text += selective == stages ? " selective" : fmt::format(" selective on {}", selective);
  if (const std::size_t layers = plan.rebuilt.size(); layers > 0)
    text +=
        fmt::format(" {} {} layer{}", with(Recompute::Full) > 0 ? "and" : "recompute", layers, layers == 1 ? "" : "s");
  return text;
}

Sweep sweep(const SweepQuestion& question, const SweepOptions& options) {
  Shared shared(question, options);
  std::vector<std::jthread> threads;
  shared.running = std::max(1, options.jobs);
  for (int i = 0; i < std::max(1, options.jobs); ++i)
    threads.emplace_back([&shared] { shared.run(); });
  {
    std::unique_lock lock(shared.mutex);
    while (!shared.ended.wait_for(lock, kBetweenProgress, [&] { return shared.running == 0; })) {
      lock.unlock();
      options.progress(shared.done, shared.all);
      lock.lock();
    }
  }
  threads.clear();
  if (shared.failure) std::rethrow_exception(shared.failure);
  Sweep result;
  result.question = question;
  for (std::size_t i = 0; i < shared.rows.size(); ++i) {
    if (!shared.finished[i])
      ++result.not_run;
    else if (!shared.rows[i])
      ++result.left_out;
    else
      result.rows.push_back(std::move(*shared.rows[i]));
  }
  compare_with_baseline(result);
  return result;
}

}  // namespace pipewright
