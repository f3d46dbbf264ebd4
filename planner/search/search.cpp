#include "planner/search/search.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <queue>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/plan/op_index.hpp"
#include "planner/find_plan.hpp"
#include "planner/layer_order.hpp"
#include "planner/price.hpp"
#include "planner/search/replicas.hpp"
#include "planner/what_if/bytes_text.hpp"

namespace pipewright {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int kMostTriesForBuffers = 3;
constexpr int kMostPriced = 16;  // beside those of the ranking
constexpr const char* kTooLong = "longer than the simulator can count: 2^62 ns";

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// "10 micro-batches are no multiple of 4 stages" and the like differ in their numbers only.
std::string without_place(const std::string& message) {
  const auto at = message.find("plan.");
  return first_line(at == std::string::npos ? message : message.substr(at));
}

class Search {
 public:
  Search(const Scenario& scenario, const SearchOptions& options)
      : scenario_(scenario),
        options_(options),
        evaluator_(scenario, [this] { return over(); }),
        space_(layouts_of(scenario)),
        begin_(std::chrono::steady_clock::now()) {
    answer_.objective = options.objective;
    answer_.layouts = space_.layouts;
    answer_.left_out = space_.left_out;
  }

  std::variant<SearchAnswer, Infeasible> answer() {
    if (space_.groups.empty()) throw InputError(scenario_.plan.place, nothing_to_search());
    evaluate_groups();
    if (candidates_.empty() && overflow_ && !answer_.nearest_miss) throw OverflowError(*overflow_);
    if (candidates_.empty()) return infeasible();
    refine_best();
    confirm();
    look_further();
    if (answer_.plans.empty()) return infeasible();
    refine_harder();
    answer_.bound = std::min(lower_bound(), answer_.plans.front().value);
    answer_.idle_devices = scenario_.cluster.devices() - answer_.plans.front().plan.devices();
    answer_.candidates = std::move(candidates_);
    return std::move(answer_);
  }

 private:
  // Least bound first; a group opens into its layouts, and a layout is looked at once its tight bound is the least.
  enum class Stage : std::uint8_t { Tight, Layout, Group };
  struct Open {
    double bound;
    Stage stage;
    std::int64_t number;  // in the order of their opening
    const LayoutGroup* group;
    Layout layout;
  };
  struct Later {
    bool operator()(const Open& a, const Open& b) const {
      if (a.bound != b.bound) return a.bound > b.bound;
      if (a.stage != b.stage) return a.stage > b.stage;
      return a.number > b.number;
    }
  };

  double value(const Layout& layout, Time step, Bytes need) const {
    return objective_value(options_.objective, layout, scenario_, step, need);
  }
  double value(const Candidate& candidate) const { return value(candidate.layout, candidate.step, candidate.need); }
  double bound(const Candidate& candidate) { return value(candidate.layout, candidate.bound, least(candidate.layout)); }
  Bytes least(const Layout& layout) {
    return options_.objective == Objective::Memory ? evaluator_.least_states(layout) : Bytes{};
  }

  // Better than this is worth looking at: the worst of the plans wanted, less the gap.
  double threshold() const {
    if (std::ssize(lines_) < options_.top) return kInfinite;
    return std::max(worst_wanted_, worst_priced_) / (1 + options_.gap);
  }

  // The worst of the lines wanted, among the candidates so far.
  void note_line(const Candidate& candidate) {
    const auto [line, absent] = lines_.try_emplace(line_of(candidate.layout), value(candidate));
    if (!absent && line->second <= value(candidate)) return;
    line->second = value(candidate);
    if (std::ssize(lines_) < options_.top) return;
    std::vector<double> values;
    for (const auto& [layout, best] : lines_)
      values.push_back(best);
    const auto nth = values.begin() + options_.top - 1;
    std::nth_element(values.begin(), nth, values.end());
    worst_wanted_ = *nth;
  }

  bool over() {
    if (!answer_.ended.empty()) return true;
    if (options_.stop && options_.stop()) answer_.ended = "interrupted";
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
    if (passed.count() > options_.time_limit) answer_.ended = "the time limit";
    return !answer_.ended.empty();
  }

  void told(std::int64_t done) const {
    if (!options_.progress) return;
    double best = 0;
    if (!candidates_.empty() && candidates_.front().step > Time{})
      best = static_cast<double>(candidates_.front().layout.global_batch()) / seconds(candidates_.front().step);
    options_.progress({done, space_.layouts, best});
  }

  void insert(Candidate candidate) {
    note_line(candidate);
    const double mine = value(candidate);
    const auto behind = std::upper_bound(
        candidates_.begin(), candidates_.end(), candidate, [&](const Candidate& a, const Candidate& b) {
          const double x = &a == &candidate ? mine : value(a), y = &b == &candidate ? mine : value(b);
          return x != y ? x < y : a.layout < b.layout;
        });
    candidates_.insert(behind, std::move(candidate));
  }

  void give_up(const Layout& layout, Time bound) {
    given_up_ = std::min(given_up_, value(layout, bound, least(layout)));
  }

  void miss(const Layout& layout, Bytes need, StageId stage, bool at_least = false) {
    ++answer_.too_large;
    if (!answer_.nearest_miss || need < answer_.nearest_miss->need)
      answer_.nearest_miss = NearestMiss{layout, need, scenario_.cluster.device.memory, stage, at_least};
  }

  void evaluate(const Layout& layout) {
    Evaluation found = evaluator_.evaluate(layout);
    answer_.simulations += found.simulations;
    if (found.candidate) {
      ++answer_.evaluated;
      return insert(std::move(*found.candidate));
    }
    if (found.miss.reason == "memory") {
      if (!found.miss.proven) give_up(layout, evaluator_.tight_bound(layout));
      return miss(layout, found.miss.need, found.miss.stage);
    }
    ++answer_.refused[without_place(found.miss.reason)];
  }

  void push(double bound, Stage stage, const LayoutGroup* group, Layout layout) {
    queue_.push({bound, stage, opened_++, group, std::move(layout)});
  }

  // Returns of how many layouts the bound is more than the simulator can count.
  std::int64_t open_groups() {
    std::int64_t lost = 0, opened = 0;
    for (const LayoutGroup& group : space_.groups) {
      if (++opened % 1024 == 0 && over()) {
        unreached_ = 0;  // of the groups behind nothing is known
        return lost;
      }
      Layout layout = group.first;
      layout.zero = *std::max_element(group.zeros.begin(), group.zeros.end());
      try {
        push(value(layout, evaluator_.bound(group), least(layout)), Stage::Group, &group, {});
      } catch (const OverflowError& error) {
        lost += too_long(error, std::ssize(members(group)));
      }
    }
    return lost;
  }

  // One step of the search; returns how many layouts are done with.
  std::int64_t look_at(const Open& next) {
    if (next.stage == Stage::Group) {
      std::vector<Layout> layouts = members(*next.group);
      std::vector<double> bounds;
      for (const Layout& layout : layouts)
        bounds.push_back(value(layout, evaluator_.bound(layout), least(layout)));
      for (std::size_t i = 0; i < layouts.size(); ++i)
        push(bounds[i], Stage::Layout, nullptr, std::move(layouts[i]));
      return 0;
    }
    const Bytes capacity = scenario_.cluster.device.memory;
    if (next.stage == Stage::Layout) {
      if (const Bytes states = evaluator_.least_states(next.layout); states > capacity) {
        miss(next.layout, states, 0, true);
        return 1;
      }
      const Time tight = evaluator_.tight_bound(next.layout);
      if (tight < kNever) {
        push(value(next.layout, tight, least(next.layout)), Stage::Tight, nullptr, next.layout);
        return 0;
      }
    }
    evaluate(next.layout);
    return 1;
  }

  // What takes longer than the simulator can count is none of the best.
  std::int64_t too_long(const OverflowError& error, std::int64_t layouts) {
    if (!overflow_) overflow_ = error.what();
    answer_.refused[kTooLong] += layouts;
    return layouts;
  }

  std::int64_t looked_at(const Open& next) {
    try {
      return look_at(next);
    } catch (const OverflowError& error) {
      return too_long(error, next.stage == Stage::Group ? std::ssize(members(*next.group)) : 1);
    }
  }

  void evaluate_groups() {
    if (!std::exchange(groups_opened_, true)) done_ = open_groups();
    while (!queue_.empty()) {
      const Open next = queue_.top();
      if (next.bound >= threshold()) break;
      if (over()) {
        unreached_ = std::min(unreached_, next.bound);
        break;
      }
      queue_.pop();
      done_ += looked_at(next);
      told(done_);
    }
    pruned_ = !queue_.empty() && unreached_ == kInfinite ? queue_.top().bound : kInfinite;
    answer_.bounded = answer_.not_reached = 0;
    (unreached_ < kInfinite ? answer_.not_reached : answer_.bounded) = space_.layouts - done_;
    told(space_.layouts);
  }

  // Where links are shared, plans are slower than fixed orders say, and what was ruled out against those orders may be
  // better than what is left of them: it is looked at, too. So it is where plans turned out not to fit.
  void look_further() {
    constexpr int kMostRounds = 8;
    for (int round = 0; (round < kMostRounds || answer_.plans.empty()) && !over(); ++round) {
      worst_priced_ = answer_.plans.empty() ? 0 : answer_.plans.back().value;
      const bool more = !queue_.empty() && queue_.top().bound < threshold();
      const bool unpriced =
          answer_.plans.empty() && std::any_of(candidates_.begin(), candidates_.end(), [&](const Candidate& candidate) {
            return priced_.find(key_of(candidate)) == priced_.end();
          });
      if (!more && !unpriced) return;
      if (more) evaluate_groups(), refine_best();
      confirm();
    }
  }

  // Of the candidates that are left.
  void recount_lines() {
    lines_.clear(), worst_wanted_ = kInfinite;
    for (const Candidate& candidate : candidates_)
      note_line(candidate);
  }

  // No plan of the space is better, by fixed orders.
  double lower_bound() {
    double least = std::min({pruned_, unreached_, given_up_});
    for (const Candidate& candidate : candidates_)
      least = std::min(least, bound(candidate));
    return least;
  }

  void refine(Candidate& candidate, const std::vector<Bytes>& set_aside = {}) {
    try {
      answer_.simulations += evaluator_.refine(candidate, options_.most_simulations, set_aside);
    } catch (const OverflowError&) {  // of a bound: the cut stays as it is
    }
  }

  void refine(std::size_t number) {
    Candidate candidate = std::move(candidates_[number]);
    candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(number));
    ++answer_.refined;
    refine(candidate);
    insert(std::move(candidate));
  }

  // The exact search raises the bound of a layout. Where several chunks per stage leave its bound as it is, only a plan
  // that is nearly the best may become the best.
  bool worth_refining(const Candidate& candidate, double best) const {
    constexpr double kNearly = 1.05;
    return candidate.layout.virtual_stages == 1 || value(candidate) <= best * kNearly;
  }

  // First the plans of the ranking, then whatever keeps the bound low.
  void refine_best() {
    while (!candidates_.empty() && !over()) {
      std::size_t next = candidates_.size();
      std::set<Layout> lines;
      for (std::size_t i = 0; i < candidates_.size() && next == candidates_.size(); ++i) {
        if (!lines.insert(line_of(candidates_[i].layout)).second) continue;
        if (std::ssize(lines) > options_.top) break;
        if (!candidates_[i].refined) next = i;
      }
      if (next == candidates_.size()) {
        const double best = value(candidates_.front());
        double least = best / (1 + options_.gap);
        for (std::size_t i = 0; i < candidates_.size(); ++i)
          if (!candidates_[i].refined && worth_refining(candidates_[i], best) && bound(candidates_[i]) < least)
            least = bound(candidates_[i]), next = i;
      }
      if (next == candidates_.size()) return;
      refine(next);
    }
  }

  // Until it is proven that no plan is better, or the time is over.
  void refine_harder() {
    constexpr std::int64_t kMost = 1'000'000'000;
    while (options_.keep_going && options_.most_simulations < kMost && !over()) {
      const double best = answer_.plans.front().value;
      bool open = false;
      for (Candidate& candidate : candidates_)
        if (bound(candidate) < best) candidate.refined = false, open = true;
      if (!open) return;
      options_.most_simulations *= 8;
      refine_best();
      confirm();
      told(done_);
    }
  }

  // As `simulate` prices it: links shared, buffers counted.
  std::optional<Found> priced(const Candidate& candidate, std::vector<Bytes>& buffers) {
    Found found;
    found.layout = candidate.layout;
    auto scenario = std::make_shared<Scenario>(settled(scenario_, candidate.layout, &candidate.plan));
    const CostModel cost(*scenario);
    found.plan = find_plan(*scenario, cost);
    PP_CHECK(found.plan.layers == candidate.plan.layers);
    Answer answer = price(found.plan, cost, Engine::Auto);
    found.report = std::move(answer.report);
    buffers.assign(found.report.stages.size(), Bytes{});
    const std::vector<Bytes> walked = walked_needs(answer);
    for (const WorkerReport& worker : found.report.workers) {
      found.peak = std::max(found.peak, worker.need.with_reserve);
      found.peak_high = std::max(found.peak_high, worker.need.high);
      Bytes& most = buffers[static_cast<std::size_t>(worker.stage)];
      most = std::max(most, worker.need.with_reserve - walked[static_cast<std::size_t>(worker.stage)]);
    }
    found.value = value(found.layout, found.report.step_time, found.peak);
    found.scenario = std::move(scenario);
    return found;
  }

  static std::vector<Bytes> walked_needs(const Answer& answer) {
    std::vector<Bytes> needs(static_cast<std::size_t>(answer.schedule.shape.stages));
    for (std::size_t p = 0; p < answer.schedule.positions.size(); ++p) {
      Bytes& most = needs[static_cast<std::size_t>(stage_at(answer.schedule.shape, static_cast<PositionId>(p)))];
      most = std::max(
          most,
          need(answer.memory, peak(answer.memory, answer.schedule, static_cast<PositionId>(p)).bytes, 0).with_reserve);
    }
    return needs;
  }

  // Plans that differ in their placement or in ZeRO alone are one line of the ranking: the best of them.
  static Layout line_of(Layout layout) {
    layout.placement = PlacementOrder::Pipeline, layout.zero = 0;
    return layout;
  }

  void rank(Found found) {
    for (std::size_t i = 0; i < answer_.plans.size(); ++i)
      if (line_of(answer_.plans[i].layout) == line_of(found.layout)) {
        if (answer_.plans[i].value <= found.value) return;
        answer_.plans.erase(answer_.plans.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      }
    const auto behind = std::upper_bound(
        answer_.plans.begin(), answer_.plans.end(), found,
        [](const Found& a, const Found& b) { return a.value != b.value ? a.value < b.value : a.layout < b.layout; });
    answer_.plans.insert(behind, std::move(found));
  }

  // A plan: of one layout and one step there may be several, which hold different amounts.
  using Key = std::tuple<Layout, std::int64_t, std::vector<LayerId>, std::vector<Recompute>, std::vector<LayerId>>;
  static Key key_of(const Candidate& candidate) {
    std::vector<LayerId> first;
    for (const LayerRange& range : candidate.plan.layers)
      first.push_back(range.begin);
    return {candidate.layout, candidate.step.value, std::move(first), candidate.plan.recompute, candidate.plan.rebuilt};
  }

  // In the order of fixed orders, which are never slower than the real thing.
  void confirm() {
    const auto wanted = static_cast<std::size_t>(options_.top);
    std::map<Layout, int> tries;
    std::map<Layout, std::vector<Bytes>> set_aside;
    std::set<Layout> seen;
    for (std::size_t i = 0, count = 0; i < candidates_.size() && count < wanted + kMostPriced;) {
      const Candidate candidate = candidates_[i];
      if (answer_.plans.size() >= wanted && value(candidate) >= answer_.plans[wanted - 1].value) break;
      // A line that has its plan already needs no second one, unless this one may be better.
      const auto same = std::find_if(answer_.plans.begin(), answer_.plans.end(), [&](const Found& known) {
        return line_of(known.layout) == line_of(candidate.layout);
      });
      if (same != answer_.plans.end() && same->value <= value(candidate)) {
        ++i;
        continue;
      }
      if (!answer_.plans.empty() && over()) break;
      if (!priced_.insert(key_of(candidate)).second) {
        ++i;
        continue;
      }
      ++count;
      std::vector<Bytes> buffers;
      std::optional<Found> found = priced(candidate, buffers);
      if (found->report.fits) {
        rank(std::move(*found));
        ++i;
        continue;
      }
      unfit_ = NearestMiss{candidate.layout, found->peak, scenario_.cluster.device.memory, found->report.limiting_stage,
                           true};
      candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(i));
      std::vector<Bytes>& aside = set_aside[candidate.layout];
      aside.resize(buffers.size());
      for (std::size_t k = 0; k < buffers.size(); ++k)
        aside[k] = std::max(aside[k], buffers[k]);
      Evaluation again;
      if (++tries[candidate.layout] <= kMostTriesForBuffers) again = evaluator_.evaluate(candidate.layout, aside);
      if (!again.candidate) {
        if (evaluator_.cuts_open()) give_up(candidate.layout, candidate.bound);
        --answer_.evaluated;
        miss(candidate.layout, found->peak, found->report.limiting_stage);
        recount_lines();
        continue;
      }
      again.candidate->bound = std::max(again.candidate->bound, candidate.bound);
      answer_.simulations += again.simulations;
      refine(*again.candidate, aside);
      again.candidate->bound = std::min(candidate.bound, again.candidate->step);  // other cuts have other buffers
      insert(std::move(*again.candidate));
      if (value(candidates_[std::min(i, candidates_.size() - 1)]) < value(candidate)) continue;
    }
    if (answer_.plans.size() > wanted) answer_.plans.resize(wanted);
  }

  std::string nothing_to_search() const {
    std::string text = "plan: no combination of the values that are left open makes a plan";
    for (const auto& [reason, count] : space_.left_out)
      text += fmt::format("; {} {}: {}", count, count == 1 ? "combination" : "combinations", reason);
    return text + "; open another field, or change one that is fixed";
  }

  Infeasible infeasible() {
    Infeasible none;
    if (!answer_.nearest_miss && unfit_ && answer_.ended.empty()) answer_.nearest_miss = unfit_, answer_.too_large = 1;
    if (!answer_.nearest_miss) {
      none.reason =
          answer_.ended.empty() ? "no layout can be scheduled" : answer_.ended + " came before any plan was found";
      for (const auto& [reason, count] : answer_.refused)
        none.details.push_back(fmt::format("{} x {}", count, reason));
      return none;
    }
    const NearestMiss& nearest = *answer_.nearest_miss;
    none.reason =
        fmt::format("no plan fits: {} more memory than a device has",
                    answer_.too_large == 1 ? "1 layout needs" : fmt::format("{} layouts need", answer_.too_large));
    none.details.push_back(fmt::format("nearest miss: {} needs {}{} on stage {}, {} more than the {} of a device",
                                       in_words(nearest.layout), nearest.at_least ? "at least " : "",
                                       bytes_text(nearest.need), nearest.stage,
                                       bytes_text(nearest.need - nearest.capacity), bytes_text(nearest.capacity)));
    if (!answer_.ended.empty()) none.details.push_back(answer_.ended + " came first: not all layouts were looked at");
    none.remedies = cheapest_changes();
    return none;
  }

  // About the least memory per device with which a plan fits: doubled until one does, then by halves.
  void larger_devices(const auto& fits, std::vector<std::string>& remedies) const {
    constexpr std::int64_t kMiB = 1 << 20, kMostTimes = 1 << 8, kMost = std::int64_t{1} << 40;
    const std::int64_t least = answer_.nearest_miss->need.value / kMiB + 1;
    const auto with = [&](std::int64_t mib) {
      Scenario changed = scenario_;
      changed.cluster.device.memory = Bytes{mib * kMiB};
      return fits(changed);
    };
    std::int64_t enough = least;
    auto best = with(enough);
    while (!best && enough < std::min(least * kMostTimes, kMost))
      enough *= 2, best = with(enough);
    if (!best) return;
    for (std::int64_t low = enough / 2, step = low / 2; enough > least && step > enough / 32; step /= 2)
      if (auto there = with(low + step))
        enough = low + step, best = std::move(there);
      else
        low += step;
    remedies.push_back(fmt::format("with {} per device: {}: --set cluster.node.device.memory={}MiB",
                                   bytes_text(Bytes{enough * kMiB}), *best, enough));
  }

  // Whether anything fits once a field is opened, or the cluster has more of the same; a short search each.
  std::vector<std::string> cheapest_changes() const {
    std::vector<std::string> remedies;
    const auto fits = [&](const Scenario& changed) -> std::optional<std::string> {
      try {
        SearchOptions quick = options_;
        quick.top = 1, quick.gap = 0.2, quick.time_limit = 2, quick.most_simulations = 1, quick.progress = {};
        quick.keep_going = false;
        quick.objective = Objective::Throughput;
        Search search(changed, quick);
        search.evaluate_groups();
        search.confirm();  // with buffers
        search.look_further();
        if (search.answer_.plans.empty()) return std::nullopt;
        const Found& best = search.answer_.plans.front();
        return fmt::format("{}, {}: {:.4g} samples/s", in_words(best.layout), recompute_in_words(best.plan),
                           best.report.samples_per_s);
      } catch (const InputError&) {
        return std::nullopt;
      }
    };
    const auto open = [&](const char* key, bool training) {
      Scenario changed = scenario_;
      OpenFields& fields = training ? changed.training.open : changed.plan.open;
      if (fields.find(key) != fields.end() && fields.at(key).among.empty()) return;
      fields[key] = {};
      if (const auto best = fits(changed))
        remedies.push_back(
            fmt::format("with {0}.{1}: auto: {2}: --set {0}.{1}=auto", training ? "training" : "plan", key, *best));
    };
    for (const char* key : {"recompute", "stages", "tensor_parallel", "data_parallel"})
      open(key, false);
    for (const char* key : {"zero", "micro_batch_size"})
      open(key, true);
    for (int factor = 2; factor <= 64 && remedies.empty(); factor *= 2) {
      Scenario changed = scenario_;
      if (changed.cluster.nodes > kMostDevices / factor || !changed.cluster.network) break;
      changed.cluster.nodes *= factor;
      if (const auto best = fits(changed))
        remedies.push_back(fmt::format("on {} nodes: {}: --set cluster.nodes={}", changed.cluster.nodes, *best,
                                       changed.cluster.nodes));
    }
    if (remedies.empty()) larger_devices(fits, remedies);
    return remedies;
  }

  const Scenario& scenario_;
  SearchOptions options_;
  Evaluator evaluator_;
  Space space_;
  std::chrono::steady_clock::time_point begin_;
  SearchAnswer answer_;
  std::vector<Candidate> candidates_;  // best first
  std::priority_queue<Open, std::vector<Open>, Later> queue_;
  std::int64_t opened_ = 0;
  std::map<Layout, double> lines_;  // best value by line of the ranking
  double worst_wanted_ = kInfinite;
  double pruned_ = kInfinite, unreached_ = kInfinite;
  double worst_priced_ = 0;           // value of the last plan of the ranking, as `simulate` has it
  std::set<Key> priced_;              // plans that were simulated as they are
  std::optional<NearestMiss> unfit_;  // the last of them that did not fit
  bool groups_opened_ = false;
  std::int64_t done_ = 0;
  double given_up_ = kInfinite;  // layouts of which no cut was found that fits, without proof that there is none
  std::optional<std::string> overflow_;
};

}  // namespace

std::variant<SearchAnswer, Infeasible> search(const Scenario& scenario, const SearchOptions& options) {
  if (!anything_open(scenario))
    throw InputError(
        scenario.plan.place,
        "plan: nothing is left open; write auto for what is to be found, e.g. stages: auto, or plan: auto");
  PP_CHECK(options.top >= 1);
  check_classes_of_search(scenario);
  if (scenario.plan.order.value.unsettled()) return search_orders(scenario, options);
  if (asks_for_replicas(scenario)) return search_replicas(scenario, options);
  return Search(scenario, options).answer();
}

double objective_value(Objective objective, const Layout& layout, const Scenario& scenario, Time step, Bytes need) {
  const double per_sample = seconds(step) / static_cast<double>(layout.global_batch());
  switch (objective) {
    case Objective::Throughput: return per_sample;
    case Objective::StepTime: return seconds(step);
    case Objective::Cost:
      return per_sample * layout.devices() * scenario.cluster.device.price_per_hour.value_or(3600) / 3600;
    case Objective::Memory: return static_cast<double>(need.value);
  }
  return per_sample;
}

}  // namespace pipewright
