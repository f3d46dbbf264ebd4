#include "planner/search/search.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/folds.hpp"
#include "planner/bucket_size.hpp"
#include "planner/layer_order.hpp"
#include "planner/search/accounts.hpp"
#include "planner/search/deadline.hpp"
#include "planner/search/found.hpp"
#include "planner/search/likely.hpp"
#include "planner/search/near_layouts.hpp"
#include "planner/search/reasons.hpp"
#include "planner/search/remedies.hpp"
#include "planner/search/replicas.hpp"
#include "planner/search/switches.hpp"

namespace pipewright::planner {
namespace {

constexpr int kMostTriesForBuffers = 3;
constexpr int kMostPriced = 16;                  // beside those of the ranking
constexpr int kQuickRounds = 40, kRounds = 400;  // of path_bound: before a layout is simulated, and for the gap
constexpr const char* kTooLong = "2^62 ns or bytes: more is not counted";

class LayoutSearch {
 public:
  LayoutSearch(const Scenario& scenario, const SearchOptions& options)
      : scenario_(scenario),
        options_(options),
        evaluator_(
            scenario, [this] { return over(); },
            options.objective == Objective::Memory ? Aim::LeastMemory : Aim::LeastTime, options.within) {
    answer_.objective = options.objective;
    answer_.layouts = space_.layouts;
    answer_.left_out = space_.left_out;
  }

  SearchResult answer() {
    if (space_.groups.empty())
      throw InputError(scenario_.plan.place, "", nothing_to_search(), ErrorCode::NoCombination);
    evaluate_groups();
    if (candidates_.empty() && overflow_ && !answer_.nearest_miss) throw OverflowError(*overflow_);
    if (!candidates_.empty()) {
      raise_bounds(values_.of(candidates_.front()));
      refine_best();
      confirm();
      look_further();
    }
    if (answer_.plans.empty()) return without_plan();
    raise_bounds(answer_.plans.front().value);
    refine_harder();
    return finished();
  }

 private:
  SearchAnswer finished() {
    answer_.bound = std::min(lower_bound(), answer_.plans.front().value);
    count_what_is_left();
    answer_.gap_left = gap_left(answer_, options_, open_bounds());
    prefer_fewer_devices(answer_.plans, options_);
    if (std::ssize(answer_.plans) > options_.top) answer_.plans.resize(at(options_.top));
    answer_.idle_devices = scenario_.cluster.devices() - answer_.plans.front().plan.devices();
    answer_.candidates = std::move(candidates_);
    if (space_.whole_sequences)
      for (Found& found : answer_.plans)
        found.report.warnings.push_back(
            "plan.context_parallel was left at 1, as more make too many combinations; the bound is that of such plans. "
            "To search more, list values, e.g. context_parallel: {auto: [1, 2]}, and restrict other fields");
    return std::move(answer_);
  }

  // Whatever may be better than this is looked at, however many plans are wanted: it may become the best one.
  double settling() const {
    if (options_.gap > kSettling || candidates_.empty()) return 0;
    const double best = values_.of(candidates_.front());
    return (answer_.plans.empty() ? best : std::max(best, answer_.plans.front().value)) * (1 + tie(options_));
  }

  // Better than this is worth looking at: the worst of the plans wanted, less the gap.
  double threshold() const {
    if (!lines_.enough()) return Unsettled::kNone;
    return std::max(settling(), std::max(lines_.worst(), worst_priced_) / (1 + options_.gap));
  }

  bool over() {
    tell();
    const bool over = deadline_.over();
    answer_.ended = deadline_.ended();
    return over;
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
    lines_.note(candidate.layout, values_.of(candidate));
    const double mine = values_.of(candidate);
    const auto behind = std::upper_bound(
        candidates_.begin(), candidates_.end(), candidate, [&](const Candidate& a, const Candidate& b) {
          const double x = &a == &candidate ? mine : values_.of(a), y = &b == &candidate ? mine : values_.of(b);
          if (x != y) return x < y;
          const double u = values_.second(a.layout, a.step), v = values_.second(b.layout, b.step);
          return u != v ? u < v : before(a.layout, b.layout);
        });
    candidates_.insert(behind, std::move(candidate));
  }

  NearestMiss miss_of(const Layout& layout, Bytes need, StageId stage, bool at_least = false) const {
    return {layout, need, scenario_.cluster.device.memory, stage, at_least, fit_asked(scenario_)};
  }

  void miss(const Layout& layout, Bytes need, StageId stage, bool at_least = false) {
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
      return true;
    }
    switch (found.miss.why) {
      case Miss::Why::NotWorthIt:
        left_.not_worth_it = std::min(left_.not_worth_it, values_.of(layout, {}, found.miss.need));
        return false;
      case Miss::Why::Memory:
        if (!found.miss.proven) values_.raised(layout, threshold(), kRounds);
        does_not_fit(layout, found.miss, evaluator_.tight_bound(layout));
        break;
      case Miss::Why::Invalid: ++answer_.refused[found.miss.reason]; break;
      case Miss::Why::NotSimulated:
        left_.leave_out(answer_, found.miss.reason, values_.bound(layout, evaluator_.tight_bound(layout)), 1);
    }
    return true;
  }
  void does_not_fit(const Layout& layout, const Miss& why, Time bound) {
    if (!why.proven && bound < kNever) left_.given_up = std::min(left_.given_up, values_.bound(layout, bound));
    ++(why.proven || bound == kNever ? answer_.too_large : answer_.no_cut);
    miss(layout, why.need, why.stage);
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
        left_.unreached = 0;  // of the groups behind nothing is known
        return lost;
      }
      Layout layout = group.first;
      layout.zero = *std::ranges::max_element(group.zeros);
      try {
        queue_.push_group(values_.bound(layout, evaluator_.bound(group)), group);
      } catch (const OverflowError& error) {
        lost += too_long(error, 0, std::ssize(members(group)));
      }
    }
    return lost;
  }

  // No longer than a part of the time, and until there are some plans to beat.
  void look_at_likely() {
    constexpr double kPart = 0.25;
    constexpr int kForEachLine = 8;
    const double enough = deadline_.left() - kPart * options_.time_limit;
    std::vector<Layout> likely;
    try {
      likely = likely_layouts(space_, evaluator_);
    } catch (const OverflowError&) {
      return;  // the bounds themselves are more than can be counted
    }
    for (Layout& layout : likely) {
      if (over() || deadline_.left() < enough) return;
      if (std::ssize(candidates_) >= kForEachLine * options_.top) return;
      look_ahead(std::move(layout));
    }
  }

  // Before its turn by bounds, where its raised bound is below `best`.
  void look_ahead(Layout layout, double best = Unsettled::kNone) {
    try {
      if (best < Unsettled::kNone && layout.virtual_stages > 1 && values_.raised(layout, best, kQuickRounds) >= best)
        return;
      if (!evaluate(layout)) return;
    } catch (const OverflowError&) {
      return;  // its bound says so once more
    }
    ++done_;
    likely_.insert(std::move(layout));
  }

  // From the best plan to a better neighbour, until none of those with the best bounds is, or for a part of the time.
  void look_near_best() {
    constexpr double kPart = 0.2;
    constexpr std::size_t kTries = 16;
    const double enough = deadline_.left() - kPart * options_.time_limit;
    const auto late = [&] { return over() || deadline_.left() < enough; };
    const NearLayouts layouts(space_);
    for (bool better = true; better && !candidates_.empty();) {
      const Layout best = candidates_.front().layout;
      std::vector<std::pair<double, Layout>> near;
      for (Layout& layout : layouts.of(best)) {
        if (late()) return;
        if (likely_.contains(layout) || evaluator_.least_states(layout) > scenario_.cluster.device.memory) continue;
        try {
          near.emplace_back(values_.bound(layout, evaluator_.tight_bound(layout)), std::move(layout));
        } catch (const OverflowError&) {
          continue;
        }
      }
      std::ranges::sort(near);
      better = false;
      if (near.size() > kTries) near.resize(kTries);
      for (auto next = near.begin(); next != near.end() && !better; ++next) {
        if (late()) return;
        const double best_yet = values_.of(candidates_.front());
        if (next->first >= best_yet) break;
        look_ahead(std::move(next->second), best_yet);
        better = candidates_.front().layout != best;
      }
    }
  }

  bool states_do_not_fit(const Layout& layout) {
    const Bytes states = evaluator_.least_states(layout);
    if (states <= scenario_.cluster.device.memory) return false;
    ++answer_.too_large;
    miss(layout, states, 0, true);
    return true;
  }

  // One step of the search; returns how many layouts are done with.
  std::int64_t look_at(const OpenLayout& next) {
    if (next.kind == OpenLayout::Bound::OfGroup) {
      std::vector<Layout> layouts = members(*next.group);
      std::vector<double> bounds;
      for (const Layout& layout : layouts)  // what bounds the group bounds each of them
        bounds.push_back(std::max(next.bound, values_.bound(layout, evaluator_.bound_anywhere(layout))));
      for (std::size_t i = 0; i < layouts.size(); ++i) {
        const auto kind =
            evaluator_.depends_on_place(layouts[i]) ? OpenLayout::Bound::Anywhere : OpenLayout::Bound::Simple;
        queue_.push(bounds[i], kind, std::move(layouts[i]));
      }
      return 0;
    }
    if (likely_.contains(next.layout)) return 0;
    const bool first = next.kind == OpenLayout::Bound::Anywhere ||
                       (next.kind == OpenLayout::Bound::Simple && !evaluator_.depends_on_place(next.layout));
    if (first && states_do_not_fit(next.layout)) return 1;
    if (next.kind == OpenLayout::Bound::Anywhere) {
      queue_.push(std::max(next.bound, values_.bound(next.layout, evaluator_.bound(next.layout))),
                  OpenLayout::Bound::Simple, next.layout);
      return 0;
    }
    if (next.kind == OpenLayout::Bound::Simple) {
      const Time tight = evaluator_.tight_bound(next.layout);
      if (tight < kNever) {
        queue_.push(std::max(next.bound, values_.bound(next.layout, tight)), OpenLayout::Bound::Tight, next.layout);
        return 0;
      }
    }
    if (next.kind == OpenLayout::Bound::Tight && next.layout.virtual_stages > 1)
      if (const double raised = values_.raised(next.layout, threshold(), kQuickRounds); raised > next.bound) {
        queue_.push(raised, OpenLayout::Bound::Raised, next.layout);
        return 0;
      }
    return evaluate(next.layout) ? 1 : 0;
  }

  // The bounds that keep that of the answer low, least first: no further than the best plan is good.
  void raise_bounds(double best) {
    while (!over()) {
      const auto lowest = std::min_element(
          candidates_.begin(), candidates_.end(),
          [this](const Candidate& a, const Candidate& b) { return values_.bound(a) < values_.bound(b); });
      if (lowest == candidates_.end() || lowest->raised || lowest->layout.virtual_stages == 1) return;
      if (values_.bound(*lowest) >= best) return;
      values_.raised(lowest->layout, best, kRounds);
      lowest->raised = true;
      lowest->bound = std::max(lowest->bound, std::min(lowest->step, evaluator_.tight_bound(lowest->layout)));
    }
  }

  std::int64_t too_long(const OverflowError& error, double bound, std::int64_t layouts) {
    if (!overflow_) overflow_ = error.what();
    left_.leave_out(answer_, kTooLong, bound, layouts);
    return layouts;
  }

  std::int64_t looked_at(const OpenLayout& next) {
    try {
      return look_at(next);
    } catch (const OverflowError& error) {
      return too_long(error, next.bound, next.layouts());
    }
  }

  void evaluate_groups() {
    if (!std::exchange(groups_opened_, true)) {
      done_ = open_groups();
      if (space_.layouts >= kLargeSpace && left_.unreached == Unsettled::kNone) {
        look_at_likely();
        look_near_best();
      }
    }
    while (!queue_.empty()) {
      const OpenLayout next = queue_.top();
      if (next.bound >= threshold()) break;
      if (over()) {
        left_.unreached = std::min(left_.unreached, next.bound);
        break;
      }
      queue_.pop();
      done_ += looked_at(next);
      tell("layouts", done_, space_.layouts);
    }
    left_.pruned = !queue_.empty() && left_.unreached == Unsettled::kNone ? queue_.top().bound : Unsettled::kNone;
  }

  // Of the layouts that nobody evaluated some may be better all the same, by less than the gap that was asked for.
  void count_what_is_left() {
    const std::int64_t left = space_.layouts - done_;
    if (left_.unreached < Unsettled::kNone) {
      answer_.not_reached = left;
      return;
    }
    answer_.within_gap = answer_.plans.empty() ? 0 : queue_.layouts_below(answer_.plans.front().value);
    answer_.bounded = std::max<std::int64_t>(0, left - answer_.within_gap);
  }

  // Where links are shared, plans are slower than fixed orders say, and what was ruled out against those orders may be
  // better than what is left of them: it is looked at, too. So it is where plans turned out not to fit.
  void look_further() {
    constexpr int kMostRounds = 8;
    for (int round = 0; (round < kMostRounds || answer_.plans.empty()) && !over(); ++round) {
      worst_priced_ = answer_.plans.empty() ? 0 : answer_.plans.back().value;
      const bool more = !queue_.empty() && queue_.top().bound < threshold();
      const bool unpriced = answer_.plans.empty() && std::ranges::any_of(candidates_, [&](const Candidate& candidate) {
                              return priced_.find(key_of(candidate)) == priced_.end();
                            });
      const bool coarse = !answer_.plans.empty() && any_coarse();
      if (!more && !unpriced && !coarse) return;
      if (more) evaluate_groups();
      if (more || coarse) refine_best();
      confirm();
    }
  }

  // No plan of the space is better, by fixed orders.
  double lower_bound() {
    return least_over<double>(
        candidates_, [&](const Candidate& candidate) { return values_.bound(candidate); }, left_.least());
  }

  OpenBounds open_bounds() {
    OpenBounds open{.given_up = left_.given_up,
                    .not_simulated = left_.not_simulated,

                    .cuts_open = evaluator_.cuts_open()};
    for (const Candidate& candidate : candidates_)
      if (const double here = values_.bound(candidate); open.lowest == nullptr || here < open.lowest_bound)
        open.lowest = &candidate, open.lowest_bound = here, open.lowest_value = values_.of(candidate);
    return open;
  }

  void refine(Candidate& candidate, const std::vector<Bytes>& set_aside = {}) {
    const Time known = candidate.bound;
    try {
      answer_.simulations += evaluator_.refine(candidate, options_.most_simulations, set_aside);
    } catch (const OverflowError&) {  // of a bound: the cut and its bound stay as they are
      candidate.bound = known;
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
    return candidate.layout.virtual_stages == 1 || values_.of(candidate) <= best * kNearly;
  }

  // Whether a cut that was not searched may be better than the best plan as it is priced.
  bool any_coarse() {
    const double best = values_.of(candidates_.front());
    return std::ranges::any_of(candidates_, [&](const Candidate& candidate) {
      return !candidate.refined && worth_refining(candidate, best) && values_.bound(candidate) < settling();
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
      const double best = values_.of(candidates_.front());
      const double enough = std::max(best / (1 + options_.gap), settling());
      double least = enough;
      for (std::size_t i = 0; i < candidates_.size(); ++i) {
        if (candidates_[i].refined || !worth_refining(candidates_[i], best)) continue;
        const double low = values_.bound(candidates_[i]);
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
        if (values_.bound(candidate) < best) candidate.refined = false, open = true;
      if (!open) return;
      options_.most_simulations *= 8;
      refine_best();
      confirm();
    }
  }

  void rank(Found found) {
    if (std::string larger = coarsened_buckets(found.plan, *found.scenario); !larger.empty())
      found.report.warnings.push_back(std::move(larger));
    for (std::size_t i = 0; i < answer_.plans.size(); ++i)
      if (line_of(answer_.plans[i].layout) == line_of(found.layout)) {
        if (answer_.plans[i].value <= found.value) return;
        answer_.plans.erase(answer_.plans.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      }
    const auto behind = std::ranges::upper_bound(answer_.plans, found, [this](const Found& a, const Found& b) {
      if (a.value != b.value) return a.value < b.value;
      const double u = values_.second(a.layout, a.report.step_time), v = values_.second(b.layout, b.report.step_time);
      return u != v ? u < v : before(a.layout, b.layout);
    });
    answer_.plans.insert(behind, std::move(found));
  }

  // In the order of fixed orders, which are never slower than the real thing.
  void confirm() {
    const auto wanted = at(options_.top);
    std::map<Layout, int> tries;
    std::map<Layout, std::vector<Bytes>> set_aside;
    std::set<Layout> seen;
    for (std::size_t i = 0, count = 0; i < candidates_.size() && count < wanted + kMostPriced;) {
      const Candidate candidate = candidates_[i];
      if (answer_.plans.size() >= wanted &&
          values_.of(candidate) >=
              std::max(answer_.plans[wanted - 1].value, answer_.plans.front().value * (1 + tie(options_))))
        break;
      // A line that has its plan already needs no second one, unless this one may be better.
      const auto same = std::ranges::find_if(
          answer_.plans, [&](const Found& known) { return line_of(known.layout) == line_of(candidate.layout); });
      if (same != answer_.plans.end() && same->value <= values_.of(candidate)) {
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
        --answer_.evaluated;  // with other cuts, or another recomputation, its buffers may fit
        does_not_fit(candidate.layout,
                     {.need = found.to_fit, .stage = found.report.limiting_stage, .proven = evaluator_.one_plan()},
                     candidate.bound);
        lines_.clear();  // of the candidates that are left
        for (const Candidate& other : candidates_)
          lines_.note(other.layout, values_.of(other));
        continue;
      }
      again.candidate->bound = std::max(again.candidate->bound, candidate.bound);
      answer_.simulations += again.simulations;
      refine(*again.candidate, aside);
      again.candidate->bound = std::min(candidate.bound, again.candidate->step);  // other cuts have other buffers
      insert(std::move(*again.candidate));
      if (values_.of(candidates_[std::min(i, candidates_.size() - 1)]) < values_.of(candidate)) continue;
    }
    const double tied = answer_.plans.empty() ? 0 : answer_.plans.front().value * (1 + tie(options_));
    while (answer_.plans.size() > wanted && answer_.plans.back().value > tied)
      answer_.plans.pop_back();
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

  // The plan that needs least is the nearest miss; where it fits after all, it is the answer.
  SearchResult without_plan() {
    if (answer_.ended != Ended::No) {
      count_what_is_left();
      return no_plan_yet(answer_);
    }
    if (!answer_.nearest_miss && unfit_) answer_.nearest_miss = unfit_, answer_.too_large = 1;
    Infeasible none = without_remedies(answer_, fit_asked(scenario_));
    if (!answer_.nearest_miss) return none;
    const bool proven = std::isinf(left_.given_up);
    if (!options_.remedies && (proven || !options_.proof)) return none;
    SearchOptions rest = options_;
    rest.time_limit = std::max(0.5, deadline_.left());  // one limit holds for both searches
    const std::optional<SearchAnswer> least = least_memory(scenario_, rest);
    if (least && fits_after_all(least->plans.front())) return finished();
    if (!proven && deadline_.asked_to_stop()) {
      answer_.ended = deadline_.ended();
      return no_plan_yet(answer_);
    }
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
    ++answer_.evaluated, --(answer_.no_cut > 0 ? answer_.no_cut : answer_.too_large);
    rank(std::move(found));
    return true;
  }

  const Scenario& scenario_;
  SearchOptions options_;
  Evaluator evaluator_;
  Values values_ = Values(scenario_, options_.objective, evaluator_);
  Space space_ = layouts_of(scenario_, options_.within);
  Deadline deadline_ = Deadline(options_.time_limit, options_.stop);
  SearchAnswer answer_;
  Progress now_;
  std::vector<Candidate> candidates_;  // best first
  LayoutQueue queue_;
  Lines lines_{options_.top};
  double worst_priced_ = 0;           // value of the last plan of the ranking, as `simulate` has it
  std::set<PlanKey> priced_;          // plans that were simulated as they are
  std::optional<NearestMiss> unfit_;  // the last of them that did not fit
  bool groups_opened_ = false;
  std::set<Layout> likely_;  // that were looked at first
  std::int64_t done_ = 0;
  Unsettled left_;
  std::optional<std::string> overflow_;
};

}  // namespace

SearchResult search(const Scenario& scenario, const SearchOptions& options) {
  if (!anything_open(scenario))
    throw InputError(scenario.plan.place, "plan",
                     "nothing is left open; write auto for what is to be found, e.g. stages: auto, or plan: auto");
  PP_CHECK(options.top >= 1);
  check_classes_of_search(scenario);
  return asks_for_switches(scenario) ? search_switches(scenario, options) : search_settled(scenario, options);
}

SearchResult search_settled(const Scenario& scenario, const SearchOptions& options) {
  if (scenario.plan.order.value.unsettled()) return search_orders(scenario, options);
  if (asks_for_replicas(scenario)) return search_replicas(scenario, options);
  return LayoutSearch(scenario, options).answer();
}

}  // namespace pipewright::planner
