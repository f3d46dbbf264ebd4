#include "planner/search/search.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "planner/layer_order.hpp"
#include "planner/plan_errors.hpp"
#include "planner/search/better.hpp"
#include "planner/search/gap_left.hpp"
#include "planner/search/layout_queue.hpp"
#include "planner/search/priced_plan.hpp"
#include "planner/search/remedies.hpp"
#include "planner/search/replicas.hpp"

namespace pipewright {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int kMostTriesForBuffers = 3;
constexpr int kMostPriced = 16;  // beside those of the ranking
constexpr const char* kTooLong = "longer than the simulator can count: 2^62 ns";

// Of layouts that are worth the same: the one of fewer devices.
bool before(const Layout& a, const Layout& b) {
  return a.devices() != b.devices() ? a.devices() < b.devices() : a < b;
}

class Search {
 public:
  Search(const Scenario& scenario, const SearchOptions& options)
      : scenario_(scenario),
        options_(options),
        evaluator_(
            scenario, [this] { return over(); },
            options.objective == Objective::Memory ? Aim::LeastMemory : Aim::LeastTime, options.within),
        space_(layouts_of(scenario, options.within)),
        begin_(std::chrono::steady_clock::now()) {
    answer_.objective = options.objective;
    answer_.layouts = space_.layouts;
    answer_.left_out = space_.left_out;
  }

  SearchResult answer() {
    if (space_.groups.empty()) throw InputError(scenario_.plan.place, nothing_to_search());
    evaluate_groups();
    if (candidates_.empty() && overflow_ && !answer_.nearest_miss) throw OverflowError(*overflow_);
    if (!candidates_.empty()) {
      refine_best();
      confirm();
      look_further();
    }
    if (answer_.plans.empty()) return without_plan();
    refine_harder();
    return finished();
  }

 private:
  SearchAnswer finished() {
    answer_.bound = std::min(lower_bound(), answer_.plans.front().value);
    answer_.gap_left = gap_left(answer_, options_, open_bounds());
    prefer_fewer_devices(answer_.plans, options_);
    if (std::ssize(answer_.plans) > options_.top) answer_.plans.resize(static_cast<std::size_t>(options_.top));
    answer_.idle_devices = scenario_.cluster.devices() - answer_.plans.front().plan.devices();
    answer_.candidates = std::move(candidates_);
    return std::move(answer_);
  }

  double value(const Layout& layout, Time step, Bytes need) const {
    return objective_value(options_.objective, layout, scenario_, step, need);
  }
  double value(const Candidate& candidate) const { return value(candidate.layout, candidate.step, candidate.need); }
  double bound(const Candidate& candidate) {
    return value(candidate.layout, candidate.bound, std::max(candidate.least, least(candidate.layout)));
  }
  // Of plans of one value the better one: as little memory in less time.
  double second_value(const Layout& layout, Time step) const {
    if (options_.objective != Objective::Memory) return 0;
    return objective_value(Objective::Throughput, layout, scenario_, step, {});
  }
  Bytes least(const Layout& layout) {
    return options_.objective == Objective::Memory ? evaluator_.least_states(layout) : Bytes{};
  }

  // Whatever may be better than this is looked at, however many plans are wanted: it may become the best one.
  double settling() const {
    if (options_.gap > kSettling || candidates_.empty()) return 0;
    const double best = value(candidates_.front());
    return (answer_.plans.empty() ? best : std::max(best, answer_.plans.front().value)) * (1 + tie(options_));
  }

  // Better than this is worth looking at: the worst of the plans wanted, less the gap.
  double threshold() const {
    if (std::ssize(lines_) < options_.top) return kInfinite;
    return std::max(settling(), std::max(worst_wanted_, worst_priced_) / (1 + options_.gap));
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
    tell();
    if (!answer_.ended.empty()) return true;
    if (options_.stop && options_.stop()) answer_.ended = "interrupted";
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
    if (passed.count() > options_.time_limit) answer_.ended = "the time limit";
    return !answer_.ended.empty();
  }

  void tell() {
    if (!options_.progress) return;
    if (!candidates_.empty() && candidates_.front().step > Time{})
      now_.best = static_cast<double>(candidates_.front().layout.global_batch()) / seconds(candidates_.front().step);
    options_.progress(now_);
  }
  void tell(std::string_view what, std::int64_t done, std::int64_t all) {
    now_.what = what, now_.done = done, now_.all = all;
    tell();
  }

  void insert(Candidate candidate) {
    note_line(candidate);
    const double mine = value(candidate);
    const auto behind = std::upper_bound(
        candidates_.begin(), candidates_.end(), candidate, [&](const Candidate& a, const Candidate& b) {
          const double x = &a == &candidate ? mine : value(a), y = &b == &candidate ? mine : value(b);
          if (x != y) return x < y;
          const double u = second_value(a.layout, a.step), v = second_value(b.layout, b.step);
          return u != v ? u < v : before(a.layout, b.layout);
        });
    candidates_.insert(behind, std::move(candidate));
  }

  void give_up(const Layout& layout, Time bound) {
    given_up_ = std::min(given_up_, value(layout, bound, least(layout)));
  }

  double range_asked() const { return scenario_.model.works.empty() ? 0 : scenario_.plan.fit; }
  NearestMiss miss_of(const Layout& layout, Bytes need, StageId stage, bool at_least = false) const {
    return {layout, need, scenario_.cluster.device.memory, stage, at_least, range_asked()};
  }

  void miss(const Layout& layout, Bytes need, StageId stage, bool at_least = false) {
    ++answer_.too_large;
    if (!answer_.nearest_miss || need < answer_.nearest_miss->need)
      answer_.nearest_miss = miss_of(layout, need, stage, at_least);
  }

  // Whether the layout is done with; else its bound is known to be no better than what is wanted.
  bool evaluate(const Layout& layout) {
    Evaluation found = evaluator_.evaluate(layout, {}, wanted());
    answer_.simulations += found.simulations;
    if (found.candidate) {
      ++answer_.evaluated;
      insert(std::move(*found.candidate));
    } else if (found.miss.reason == kNotWorthIt) {
      not_worth_it_ = std::min(not_worth_it_, value(layout, {}, found.miss.need));
      return false;
    } else if (found.miss.reason == "memory") {
      if (!found.miss.proven) give_up(layout, evaluator_.tight_bound(layout));
      miss(layout, found.miss.need, found.miss.stage);
    } else {
      ++answer_.refused[without_place(found.miss.reason)];
    }
    return true;
  }
  Bytes wanted() const {
    const auto capacity = static_cast<double>(scenario_.cluster.device.memory.value);
    if (options_.objective != Objective::Memory || threshold() > capacity) return Bytes{kLargest};
    return {static_cast<std::int64_t>(std::ceil(threshold())) - 1};
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
        queue_.push_group(value(layout, evaluator_.bound(group), least(layout)), group);
      } catch (const OverflowError& error) {
        lost += too_long(error, std::ssize(members(group)));
      }
    }
    return lost;
  }

  // One step of the search; returns how many layouts are done with.
  std::int64_t look_at(const OpenLayout& next) {
    if (next.kind == OpenLayout::Bound::OfGroup) {
      std::vector<Layout> layouts = members(*next.group);
      std::vector<double> bounds;
      for (const Layout& layout : layouts)  // what bounds the group bounds each of them
        bounds.push_back(std::max(next.bound, value(layout, evaluator_.bound(layout), least(layout))));
      for (std::size_t i = 0; i < layouts.size(); ++i)
        queue_.push(bounds[i], OpenLayout::Bound::Simple, std::move(layouts[i]));
      return 0;
    }
    const Bytes capacity = scenario_.cluster.device.memory;
    if (next.kind == OpenLayout::Bound::Simple) {
      if (const Bytes states = evaluator_.least_states(next.layout); states > capacity) {
        miss(next.layout, states, 0, true);
        return 1;
      }
      const Time tight = evaluator_.tight_bound(next.layout);
      if (tight < kNever) {
        queue_.push(std::max(next.bound, value(next.layout, tight, least(next.layout))), OpenLayout::Bound::Tight,
                    next.layout);
        return 0;
      }
    }
    return evaluate(next.layout) ? 1 : 0;
  }

  // What takes longer than the simulator can count is none of the best.
  std::int64_t too_long(const OverflowError& error, std::int64_t layouts) {
    if (!overflow_) overflow_ = error.what();
    answer_.refused[kTooLong] += layouts;
    return layouts;
  }

  std::int64_t looked_at(const OpenLayout& next) {
    try {
      return look_at(next);
    } catch (const OverflowError& error) {
      return too_long(error, next.kind == OpenLayout::Bound::OfGroup ? std::ssize(members(*next.group)) : 1);
    }
  }

  void evaluate_groups() {
    if (!std::exchange(groups_opened_, true)) done_ = open_groups();
    while (!queue_.empty()) {
      const OpenLayout next = queue_.top();
      if (next.bound >= threshold()) break;
      if (over()) {
        unreached_ = std::min(unreached_, next.bound);
        break;
      }
      queue_.pop();
      done_ += looked_at(next);
      tell("layouts", done_, space_.layouts);
    }
    pruned_ = !queue_.empty() && unreached_ == kInfinite ? queue_.top().bound : kInfinite;
    answer_.bounded = answer_.not_reached = 0;
    (unreached_ < kInfinite ? answer_.not_reached : answer_.bounded) = space_.layouts - done_;
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
      const bool coarse = !answer_.plans.empty() && any_coarse();
      if (!more && !unpriced && !coarse) return;
      if (more) evaluate_groups();
      if (more || coarse) refine_best();
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
    double least = std::min({pruned_, unreached_, given_up_, not_worth_it_});
    for (const Candidate& candidate : candidates_)
      least = std::min(least, bound(candidate));
    return least;
  }

  OpenBounds open_bounds() {
    OpenBounds open{.given_up = given_up_, .cuts_open = evaluator_.cuts_open()};
    for (const Candidate& candidate : candidates_)
      if (const double here = bound(candidate); open.lowest == nullptr || here < open.lowest_bound)
        open.lowest = &candidate, open.lowest_bound = here, open.lowest_value = value(candidate);
    return open;
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

  // Whether a cut that was not searched may be better than the best plan as it is priced.
  bool any_coarse() {
    const double best = value(candidates_.front());
    return std::any_of(candidates_.begin(), candidates_.end(), [&](const Candidate& candidate) {
      return !candidate.refined && worth_refining(candidate, best) && bound(candidate) < settling();
    });
  }

  // First the plans of the ranking, then whatever keeps the bound low.
  void refine_best() {
    while (!candidates_.empty() && !over()) {
      std::size_t next = candidates_.size();
      std::int64_t open = 0;
      const auto wait = [&](std::size_t candidate) {
        if (open++ == 0) next = candidate;
      };
      std::set<Layout> lines;
      for (std::size_t i = 0; i < candidates_.size(); ++i) {
        if (!lines.insert(line_of(candidates_[i].layout)).second) continue;
        if (std::ssize(lines) > options_.top) break;
        if (!candidates_[i].refined) wait(i);
      }
      const bool ranked = open > 0;
      const double best = value(candidates_.front());
      const double enough = std::max(best / (1 + options_.gap), settling());
      double least = enough;
      for (std::size_t i = 0; i < candidates_.size(); ++i) {
        if (candidates_[i].refined || !worth_refining(candidates_[i], best)) continue;
        const double low = bound(candidates_[i]);
        if (low >= enough) continue;
        ++open;
        if (!ranked && low < least) least = low, next = i;
      }
      if (next == candidates_.size()) return;
      tell("cuts", answer_.refined, answer_.refined + open);
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
    }
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
    const auto behind =
        std::upper_bound(answer_.plans.begin(), answer_.plans.end(), found, [this](const Found& a, const Found& b) {
          if (a.value != b.value) return a.value < b.value;
          const double u = second_value(a.layout, a.report.step_time), v = second_value(b.layout, b.report.step_time);
          return u != v ? u < v : before(a.layout, b.layout);
        });
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
      if (answer_.plans.size() >= wanted &&
          value(candidate) >=
              std::max(answer_.plans[wanted - 1].value, answer_.plans.front().value * (1 + tie(options_))))
        break;
      // A line that has its plan already needs no second one, unless this one may be better.
      const auto same = std::find_if(answer_.plans.begin(), answer_.plans.end(), [&](const Found& known) {
        return line_of(known.layout) == line_of(candidate.layout);
      });
      if (same != answer_.plans.end() && same->value <= value(candidate)) {
        ++i;
        continue;
      }
      tell("plans", std::ssize(answer_.plans), options_.top);
      if (!answer_.plans.empty() && over()) break;
      if (!priced_.insert(key_of(candidate)).second) {
        ++i;
        continue;
      }
      ++count;
      auto [found, buffers] = priced_plan(scenario_, candidate, options_.objective);
      std::vector<Bytes>& aside = set_aside[candidate.layout];
      const bool fits = found.report.fits;
      if (!fits || options_.objective == Objective::Memory) widen(aside, buffers);
      if (fits) {
        rank(std::move(found));
        ++i;
        if (options_.objective == Objective::Memory && ++tries[candidate.layout] <= kMostTriesForBuffers)
          with_buffers(candidate, aside);
        continue;
      }
      unfit_ = miss_of(candidate.layout, found.to_fit, found.report.limiting_stage, true);
      candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(i));
      Evaluation again;
      if (++tries[candidate.layout] <= kMostTriesForBuffers) again = evaluator_.evaluate(candidate.layout, aside);
      if (!again.candidate) {
        if (evaluator_.cuts_open()) give_up(candidate.layout, candidate.bound);
        --answer_.evaluated;
        miss(candidate.layout, found.to_fit, found.report.limiting_stage);
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
    const double tied = answer_.plans.empty() ? 0 : answer_.plans.front().value * (1 + tie(options_));
    while (answer_.plans.size() > wanted && answer_.plans.back().value > tied)
      answer_.plans.pop_back();
  }

  static void widen(std::vector<Bytes>& set_aside, const std::vector<Bytes>& buffers) {
    set_aside.resize(buffers.size());
    for (std::size_t k = 0; k < buffers.size(); ++k)
      set_aside[k] = std::max(set_aside[k], buffers[k]);
  }

  // Another cut may need more for its layers, and less with what is in its buffers.
  void with_buffers(const Candidate& candidate, const std::vector<Bytes>& set_aside) {
    Evaluation again = evaluator_.evaluate(candidate.layout, set_aside);
    answer_.simulations += again.simulations;
    if (!again.candidate || priced_.find(key_of(*again.candidate)) != priced_.end()) return;
    again.candidate->bound = candidate.bound, again.candidate->least = candidate.least;
    insert(std::move(*again.candidate));
  }

  std::string nothing_to_search() const {
    std::string text = "plan: no combination of the values that are left open makes a plan";
    for (const auto& [reason, count] : space_.left_out)
      text += fmt::format("; {} {}: {}", count, count == 1 ? "combination" : "combinations", reason);
    return text + "; open another field, or change one that is fixed";
  }

  std::string too_large_in_words() const {
    return answer_.too_large == 1 ? "1 layout needs" : fmt::format("{} layouts need", answer_.too_large);
  }
  void note_refused(std::vector<std::string>& details) const {
    for (const auto& [reason, count] : answer_.refused)
      details.push_back(fmt::format("{} x {}", count, reason));
  }

  NoPlanYet no_plan_yet() const {
    NoPlanYet none{answer_.ended, space_.layouts, answer_.not_reached, {}};
    if (answer_.too_large > 0) none.details.push_back(too_large_in_words() + " more memory than a device has");
    if (answer_.nearest_miss) none.details.push_back("nearest so far: " + in_words(*answer_.nearest_miss));
    note_refused(none.details);
    return none;
  }

  // One limit holds for both searches; the second has half a second at least.
  SearchOptions for_the_rest_of_the_time() const {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
    SearchOptions options = options_;
    options.time_limit = std::max(0.5, options_.time_limit - passed.count());
    return options;
  }

  // The plan that needs least is the nearest miss; where it fits after all, it is the answer.
  SearchResult without_plan() {
    if (!answer_.ended.empty()) return no_plan_yet();
    if (!answer_.nearest_miss && unfit_) answer_.nearest_miss = unfit_, answer_.too_large = 1;
    Infeasible none;
    if (!answer_.nearest_miss) {
      none.reason = "no layout can be scheduled";
      note_refused(none.details);
      return none;
    }
    none.reason = fmt::format("no plan fits{}: {} more memory than a device has",
                              range_asked() > 0 ? " with " + fit_text(range_asked()) : "", too_large_in_words());
    const bool proven = std::isinf(given_up_);
    if (!options_.remedies && (proven || !options_.proof)) return none;
    const std::optional<SearchAnswer> least = least_memory(scenario_, for_the_rest_of_the_time());
    if (least && fits_after_all(least->plans.front())) return finished();
    if (!proven && options_.stop && options_.stop()) answer_.ended = "interrupted";
    if (!answer_.ended.empty()) return no_plan_yet();
    if (!options_.remedies) return none;
    if (least) {
      const Found& best = least->plans.front();
      answer_.nearest_miss = miss_of(best.layout, best.to_fit, fullest_stage(best));
    }
    none.details.push_back("nearest miss: " + in_words(*answer_.nearest_miss));
    none.remedies = cheapest_changes(scenario_, options_, least);
    return none;
  }

  bool fits_after_all(const Found& least) {
    if (least.to_fit > scenario_.cluster.device.memory) return false;
    Candidate candidate;
    candidate.layout = least.layout, candidate.plan = least.plan;
    auto [found, buffers] = priced_plan(scenario_, candidate, options_.objective);
    if (!found.report.fits) return false;
    ++answer_.evaluated, --answer_.too_large;
    rank(std::move(found));
    return true;
  }

  const Scenario& scenario_;
  SearchOptions options_;
  Evaluator evaluator_;
  Space space_;
  std::chrono::steady_clock::time_point begin_;
  SearchAnswer answer_;
  Progress now_;
  std::vector<Candidate> candidates_;  // best first
  LayoutQueue queue_;
  std::map<Layout, double> lines_;  // best value by line of the ranking
  double worst_wanted_ = kInfinite;
  double pruned_ = kInfinite, unreached_ = kInfinite;
  double worst_priced_ = 0;           // value of the last plan of the ranking, as `simulate` has it
  std::set<Key> priced_;              // plans that were simulated as they are
  std::optional<NearestMiss> unfit_;  // the last of them that did not fit
  bool groups_opened_ = false;
  std::int64_t done_ = 0;
  double not_worth_it_ = kInfinite;  // least bound of the layouts that turned out to be no better than what is wanted
  double given_up_ = kInfinite;      // layouts of which no cut was found that fits, without proof that there is none
  std::optional<std::string> overflow_;
};

}  // namespace

SearchResult search(const Scenario& scenario, const SearchOptions& options) {
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

}  // namespace pipewright
