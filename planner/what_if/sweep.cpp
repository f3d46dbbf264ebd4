#include "planner/what_if/sweep.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/answers/campaign.hpp"
#include "planner/find_plan.hpp"
#include "planner/layer_order.hpp"
#include "planner/price.hpp"

namespace pipewright::planner {
namespace {

constexpr std::size_t kTakenAtOnce = 16;
constexpr std::chrono::milliseconds kBetweenTellings{100};

// "a.yaml:3:5: what is wrong" of several lines: the lines, joined.
std::string one_line(std::string text) {
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at))
    text.replace(at, 1, "; ");
  return text;
}

void fill(SweepRow& row, const Answer& answer, const std::optional<Campaign>& whole) {
  const Report& report = answer.report;
  row.outcome = report.fits ? SweepRow::Outcome::Fits : SweepRow::Outcome::DoesNotFit;
  if (!report.fits) row.reason = one_line(report.shortfall.reason);
  row.step_time = report.step_time;
  row.samples_per_s = report.samples_per_s;
  row.tokens_per_s = report.tokens_per_s;
  row.mfu = report.mfu, row.hfu = report.hfu;
  if (whole) {
    row.days = whole->days(), row.device_hours = whole->device_hours, row.cost = whole->cost;
    if (whole->energy) row.energy_kwh = whole->energy->value / 3.6e6;
    if (whole->goodput) row.goodput = whole->goodput->formula;
  }
  row.bubble = report.bubble_fraction;
  if (!report.steady) row.longest_span = seconds(report.longest_span);
  if (const StageReport* full = fullest(report)) {
    row.peak_memory = full->need.with_reserve, row.capacity = full->need.capacity;
    const MemoryBytes& held = full->memory.bytes;
    row.weights_memory = static_cast<double>((held.weights + held.gradients + held.optimizer).value);
  }
  row.devices = answer.plan.devices();
  row.plan = plan_in_words(answer.plan);
  for (const LayerRange& range : answer.plan.uncut())
    row.layers += fmt::format("{}{}", row.layers.empty() ? "" : " ", range.size());
}

// Why a figure of the whole training that is asked for cannot be told; "": it can.
std::string not_told(const SweepQuestion& question, const SweepRow& row, const std::optional<Campaign>& whole) {
  for (const SweepFigure metric : question.metrics) {
    if (metric < SweepFigure::Days || figure(row, metric)) continue;
    const std::string name(name_of(metric).name);
    if (!whole) return name + ": campaign.length is not given; write it, or --tokens, --samples or --epochs";
    const bool expected = metric == SweepFigure::DaysExpected || metric == SweepFigure::CostExpected;
    const std::string sought = metric == SweepFigure::EnergyKwh                               ? "energy"
                               : metric == SweepFigure::Goodput || (expected && !row.goodput) ? "goodput"
                                                                                              : "cost";
    for (const std::string& missing : whole->missing)
      if (missing.starts_with(sought + ": ")) return name + missing.substr(sought.size());
  }
  return "";
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
      const Answer& answer = std::get<Answer>(result);
      const std::optional<Campaign> whole = campaign(*scenario, answer.plan, answer.report);
      fill(row, answer, whole);
      if (std::string why = not_told(question_, row, whole); !why.empty()) {
        row = {};
        row.point = point, row.reason = std::move(why);
        return row;
      }
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
    return std::ranges::all_of(question_.where, [&](const Comparison& comparison) {
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
  std::atomic<bool> failed{false};
  std::mutex taking;
  std::mutex mutex;  // of what follows
  std::condition_variable ended;
  std::vector<SweepFinding> findings;
  int running = 0;
  std::exception_ptr failure;

  Shared(const SweepQuestion& asked, const SweepOptions& how) : question(asked), options(how) {}

  std::vector<std::int64_t> taken() {
    const std::lock_guard lock(taking);
    return failed ? std::vector<std::int64_t>{} : options.next();
  }

  void work() {
    Worker worker(question, options);
    for (std::vector<std::int64_t> points = taken(); !points.empty(); points = taken())
      for (const std::int64_t point : points) {
        if (failed || options.stopped()) return;
        SweepFinding finding{point, worker.row(point)};
        if (options.stops_inside && options.stopped()) return;
        const std::lock_guard lock(mutex);
        findings.push_back(std::move(finding));
      }
  }

  void fail() {
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::current_exception();
    failed = true;
  }

  void run() {
    try {
      work();
    } catch (...) {
      fail();
    }
    const std::lock_guard lock(mutex);
    --running;
    ended.notify_one();
  }

  // As many threads as the system has, where it has fewer than that: the rows are the same.
  void start(std::vector<std::jthread>& threads, int jobs) {
    for (int i = 0; i < jobs; ++i) {
      {
        const std::lock_guard lock(mutex);
        ++running;
      }
      try {
        threads.emplace_back([this] { run(); });
      } catch (const std::system_error&) {
        const std::lock_guard lock(mutex);
        --running;
        if (i == 0) throw;
        return;
      }
    }
  }

  // Tells what was found until all threads have ended.
  void tell() {
    std::unique_lock lock(mutex);
    for (bool last = false; !last;) {
      last = ended.wait_for(lock, kBetweenTellings, [&] { return running == 0; });
      std::vector<SweepFinding> news = std::exchange(findings, {});
      lock.unlock();
      try {
        options.found(std::move(news));
      } catch (...) {
        fail();
      }
      lock.lock();
    }
  }
};

// The scenario with the fields open that `plan: auto` opens.
Scenario with_open_plan(const Scenario& scenario) {
  Scenario result = scenario;
  for (const std::string_view key : kOpenedByPlanAuto)
    result.plan.open[std::string(key)] = {};
  if (scenario.training.zero_place == Place{}) result.training.open.try_emplace("zero");
  open_micro_batches(result.training, true);
  return result;
}

}  // namespace

std::variant<Answer, Infeasible> priced_as_stated(const Scenario& scenario) {
  const CostModel cost(in_graph_order(std::make_shared<const Scenario>(scenario)).scenario);
  Answer answer = price(find_plan(cost.scenario(), cost), cost, Engine::Auto);
  settle(answer, Engine::Auto);
  return answer;
}

std::variant<Answer, Infeasible> replanned(const Scenario& scenario, const SearchOptions& options) {
  auto found = search(fitting_by_default(anything_open(scenario) ? scenario : with_open_plan(scenario)), options);
  if (auto* none = std::get_if<Infeasible>(&found)) return std::move(*none);
  if (const auto* none = std::get_if<NoPlanYet>(&found)) return Infeasible{in_words(*none), none->details, {}};
  const Found& best = std::get<SearchAnswer>(found).plans.front();
  const CostModel cost(best.scenario);
  return price(find_plan(*best.scenario, cost), cost, Engine::Auto);
}

std::string plan_in_words(const Plan& plan) {
  std::string text = fmt::format("PP{}", plan.stages);
  if (plan.virtual_stages > 1) text += fmt::format(" VP{}", plan.virtual_stages);
  if (plan.data_parallel > 1) text += fmt::format(" DP{}", plan.data_parallel);
  if (plan.context_parallel > 1) text += fmt::format(" CP{}", plan.context_parallel);
  if (plan.expert_parallel > 1) text += fmt::format(" EP{}", plan.expert_parallel);
  if (plan.tensor_parallel > 1)
    text += fmt::format(" TP{}{}", plan.tensor_parallel, plan.sequence_parallel ? "+SP" : "");
  if (std::ranges::any_of(plan.replicas, [](int r) { return r > 1; }))
    text += fmt::format(" {}", fmt::join(plan.replicas, "-"));
  text += fmt::format(" MBS{} x {} {}", plan.micro_batch_size, plan.micro_batches, plan.schedule);
  const auto with = [&](Recompute kind) { return std::ranges::count(plan.recompute, kind); };
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

void price_points(const SweepQuestion& question, const SweepOptions& options) {
  Shared shared(question, options);
  {
    std::vector<std::jthread> threads;
    shared.start(threads, std::max(1, options.jobs));
    shared.tell();
  }
  if (shared.failure) std::rethrow_exception(shared.failure);
}

std::function<std::vector<std::int64_t>()> in_turn(std::vector<std::int64_t> points, int takers) {
  constexpr std::size_t kTurns = 4;
  const std::size_t turns = kTurns * static_cast<std::size_t>(std::max(1, takers));
  return [points = std::move(points), turns, begin = std::size_t{0}]() mutable {
    const std::size_t left = points.size() - begin;
    const std::size_t end = begin + std::min(left, std::clamp<std::size_t>(left / turns, 1, kTakenAtOnce));
    const std::vector<std::int64_t> taken(points.begin() + static_cast<std::ptrdiff_t>(begin),
                                          points.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
    return taken;
  };
}

Sweep sweep(const SweepQuestion& question, SweepOptions options) {
  std::vector<SweepFinding> findings;
  if (!options.next) options.next = in_turn(points_of({}, question.points()), options.jobs);
  const auto told = std::exchange(options.found, nullptr);
  options.found = [&](std::vector<SweepFinding> news) {
    findings.insert(findings.end(), news.begin(), news.end());
    if (told) told(std::move(news));
  };
  price_points(question, options);
  return swept(question, std::move(findings), question.points());
}

}  // namespace pipewright::planner
