#include "sim/finder/find_order.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/check.hpp"
#include "core/random.hpp"
#include "sim/finder/list_order.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::sim {
namespace {

std::int64_t value_of(const PricedOrder& order, OrderMeasure measure, std::size_t stage) {
  return order.end[stage] - (measure == OrderMeasure::Span ? order.begin[stage] : 0);
}

class OrderFinder {
 public:
  OrderFinder(const OrderProblem& problem, const OrderBudget& search)
      : problem_(problem), search_(search), pricer_(problem), chance_(search.seed) {}

  FoundOrder run() && {
    found_.bound = order_bound(problem_);
    for (StageId k = 0; k < problem_.stages; ++k)
      if (least_cap(problem_, k) > problem_.cap[at(k)]) return std::move(found_);
    one_at_a_time();
    named();
    raise(false);
    const std::int64_t lists = problem_.virtual_stages == 1 ? search_.evaluations / 2 : search_.evaluations / 10;
    improve_rules(lists);
    raise(true);
    while (!done()) {
      const std::int64_t left = search_.evaluations - found_.evaluations;
      move_passes(std::min(left, std::max<std::int64_t>(search_.evaluations / 2, 100'000)));
    }
    return std::move(found_);
  }

 private:
  int below(int n) { return static_cast<int>(chance_.bits() % static_cast<std::uint64_t>(n)); }

  bool done() {
    if (best_ == found_.bound.value || found_.evaluations >= search_.evaluations) return true;
    if (search_.stop && found_.evaluations % 64 == 0 && search_.stop()) found_.stopped = true;
    return found_.stopped;
  }

  // Of both together the search takes most of the time.
  void raise(bool both_orders) {
    if (done()) return;
    std::int64_t passes = std::int64_t{kPassKinds} * problem_.chunks() * problem_.micro_batches;
    raise_bound(found_.bound, problem_, best_, both_orders, search_.evaluations * passes, search_.stop);
  }

  bool fits(const PricedOrder& order) const {
    for (StageId k = 0; k < problem_.stages; ++k)
      if (pricer_.peak(k, order.codes[at(k)]) > problem_.cap[at(k)]) return false;
    return true;
  }

  std::pair<std::int64_t, std::int64_t> longest_and_sum(const PricedOrder& order) const {
    std::int64_t longest = 0, sum = 0;
    for (std::size_t k = 0; k < order.end.size(); ++k) {
      const std::int64_t value = value_of(order, problem_.measure, k);
      longest = std::max(longest, value), sum += value;
    }
    return {longest, sum};
  }

  // The longest stage counts; of equals, all of them together.
  void take(const PricedOrder& order) {
    const auto [longest, sum] = longest_and_sum(order);
    if (longest > best_ || (longest == best_ && sum >= sum_)) return;
    found_.order = order, best_ = longest, sum_ = sum;
  }

  bool price_and_take(std::string name, std::vector<PassCodes> codes) {
    PricedOrder order{.codes = std::move(codes), .begin = {}, .end = {}};
    ++found_.evaluations;
    if (!pricer_.price(order) || !fits(order)) return false;
    take(order);
    if (!name.empty()) found_.known.push_back({std::move(name), std::move(order)});
    return true;
  }

  void one_at_a_time() {
    std::vector<PassCodes> codes(at(problem_.stages));
    const int v = problem_.virtual_stages;
    for (PassCodes& stage : codes)
      for (int m = 0; m < problem_.micro_batches; ++m) {
        for (int row = 0; row < v; ++row)
          stage.push_back(static_cast<std::uint8_t>(row));
        for (int row = v - 1; row >= 0; --row)
          stage.push_back(static_cast<std::uint8_t>(v + row)), stage.push_back(static_cast<std::uint8_t>(2 * v + row));
      }
    price_and_take("", std::move(codes));
  }

  void named() {
    ScheduleShape shape = shape_of_ops(problem_);
    for (const ScheduleRule& rule : schedules()) {
      const bool searched = rule.splits_backward || (rule.facts.pairs && !problem_.pair.empty());
      if (problem_.two_ways ? !both_ways(rule.chunk_order)
                            : !searched || rule.chunk_order != problem_.chunk_order || rule.finds_order)
        continue;
      shape.chunk_order = rule.chunk_order;
      if (!rule.refusal(shape).empty()) continue;
      std::vector<std::vector<Op>> ops;
      if (rule.made_for != nullptr) {
        ops = rule.made_for(problem_);
      } else {
        for (const Lane& lane : rule.compute(shape).positions)
          ops.push_back(lane.compute);
      }
      if (ops.empty()) continue;
      const auto whole = [](const Op& op) { return op.kind == Kind::BW; };
      const bool some_whole = std::ranges::any_of(ops.front(), whole);
      std::string name = std::string(rule.name) + (some_whole ? ", split" : "");
      if (auto codes = codes_of(problem_, ops, shape.seating())) price_and_take(std::move(name), std::move(*codes));
    }
  }

  // Stages between this one and the last; both ways half of them lie behind it.
  double to_the_end(StageId k) const {
    return problem_.two_ways ? (problem_.stages - 1) / 2.0 : problem_.stages - 1 - k;
  }

  ListRule any_rule() {
    ListRule rule;
    const double slope = chance_.uniform(1, 3.2), last = chance_.uniform(1, 3);
    const int v = problem_.virtual_stages;
    for (StageId k = 0; k < problem_.stages; ++k)
      rule.most.push_back(static_cast<int>(v * (last + slope * to_the_end(k))));
    rule.patience.assign(at(problem_.stages), chance_.uniform(0, 1));
    rule.margin.assign(at(problem_.stages), chance_.uniform(0, 1.2));
    rule.deep_first = below(4) != 0;
    if (!problem_.pair.empty() && below(4) != 0) rule.partner = chance_.uniform(0, 1.5);
    return rule;
  }

  // A few numbers, each of one stage, of some next to one another, or of all.
  void change(ListRule& rule) {
    for (int changes = 1 + below(3); changes > 0; --changes) {
      if (!problem_.pair.empty() && below(4) == 0) {
        rule.partner = chance_.uniform(0, 1.5);
        continue;
      }
      const int what = below(4), range = below(3);
      std::size_t first = range == 2 && what >= 2 ? 0 : at(below(problem_.stages)), last = first + 1;
      if (range == 1) last += at(below(problem_.stages - static_cast<int>(first)));
      if (range == 2 && what >= 2) last = at(problem_.stages);
      if (what < 2) {
        const int more = below(5) - 2;
        for (std::size_t k = first; k < last; ++k)
          rule.most[k] = std::max(1, rule.most[k] + more);
      } else {
        std::vector<double>& shares = what == 2 ? rule.margin : rule.patience;
        std::fill(shares.begin() + static_cast<std::ptrdiff_t>(first),
                  shares.begin() + static_cast<std::ptrdiff_t>(last), chance_.uniform(0, what == 2 ? 1.2 : 1));
      }
    }
  }

  // Afresh every so often, since what the first rules lead to differs much.
  void improve_rules(std::int64_t evaluations) {
    const std::int64_t attempt = std::max<std::int64_t>(2000, evaluations / 12);
    for (std::int64_t left = evaluations; left > 0 && !done(); left -= attempt)
      improve_some_rule(std::min(left, attempt));
  }

  void improve_some_rule(std::int64_t evaluations) {
    ListScheduler scheduler(problem_);
    PricedOrder order;
    ListRule best_rule;
    std::int64_t best = std::numeric_limits<std::int64_t>::max() / 4, best_sum = best;
    for (std::int64_t i = 0; i < evaluations && !done(); ++i) {
      const bool afresh = best_rule.most.empty() || i < std::min<std::int64_t>(400, evaluations / 10) || below(50) == 0;
      ListRule rule = afresh ? any_rule() : best_rule;
      if (!afresh) change(rule);
      ++found_.evaluations;
      if (!scheduler.run(rule, best, order)) continue;
      if (problem_.again_count > 0) PP_CHECK(pricer_.price(order));
      const auto [longest, sum] = longest_and_sum(order);
      if (longest > best || (longest == best && sum > best_sum)) continue;
      best = longest, best_sum = sum, best_rule = std::move(rule);
      take(order);
    }
  }

  // Squares of what the stages exceed a value just below the best one by, in the unit.
  double excess(const PricedOrder& order, std::int64_t aim, double unit) const {
    double sum = 0;
    for (std::size_t k = 0; k < order.end.size(); ++k)
      if (const std::int64_t over = value_of(order, problem_.measure, k) - aim; over > 0)
        sum += static_cast<double>(over) / unit * (static_cast<double>(over) / unit);
    return sum;
  }

  // Some pass or cell to another place; false: it would change nothing.
  bool move_one(PassCodes& codes, int from) {
    const int far = static_cast<int>(std::pow(12.0, chance_.uniform()));
    const int to = below(2) == 0 ? from - far : from + far;
    if (to < 0 || to >= static_cast<int>(codes.size()) || codes[at(from)] == codes[at(to)]) return false;
    if (from < to)
      std::rotate(codes.begin() + from, codes.begin() + from + 1, codes.begin() + to + 1);
    else
      std::rotate(codes.begin() + to, codes.begin() + from, codes.begin() + from + 1);
    return true;
  }

  // A cell into its passes; or a B, its W and an F close by into a cell.
  bool pair_or_part(PassCodes& codes) {
    const int v = problem_.virtual_stages, from = below(static_cast<int>(codes.size()));
    const auto place = codes.begin() + from;
    if (const auto cell = cell_of(*place, v)) {
      *place = static_cast<std::uint8_t>(cell->forward);
      codes.insert(place + 1,
                   {static_cast<std::uint8_t>(v + cell->backward), static_cast<std::uint8_t>(2 * v + cell->backward)});
      return true;
    }
    const int row = *place % v;
    if (*place / v != 1) return false;
    int near = from, weights = -1, before = 0;
    do
      near = from + below(2 * kNear + 1) - kNear;
    while (near == from);
    if (near < 0 || near >= static_cast<int>(codes.size()) || codes[at(near)] >= v) return false;
    const CodedCell cell{codes[at(near)], row};
    const auto runs = [&](int code, int kind) {
      const auto other = cell_of(code, v);
      return code == kind * v + row || (other && other->backward == row);
    };
    for (int i = 0; i < from; ++i)
      before += runs(codes[at(i)], 1) ? 1 : 0;
    for (int i = 0; i < static_cast<int>(codes.size()) && weights < 0; ++i)
      if (runs(codes[at(i)], 2) && before-- == 0) weights = i;
    if (weights < 0 || codes[at(weights)] != 2 * v + row) return false;
    *place = code_of(cell, v);
    codes.erase(codes.begin() + std::max(near, weights));
    codes.erase(codes.begin() + std::min(near, weights));
    return true;
  }

  // Any pass; or, every other time, one on the critical path of some stage that is as long as the longest. An empty
  // path_ is of an earlier order.
  OrderPricer::Place some_pass(PricedOrder& order) {
    if (below(2) == 0) {
      const StageId k = static_cast<StageId>(below(problem_.stages));
      return {k, below(static_cast<int>(order.codes[at(k)].size()))};
    }
    if (path_.empty()) {
      pricer_.price(order);
      const std::int64_t most = order.of(problem_.measure);
      StageId longest = 0;
      int alike = 0;
      for (std::size_t k = 0; k < order.end.size(); ++k)
        if (value_of(order, problem_.measure, k) == most && below(++alike) == 0) longest = static_cast<StageId>(k);
      path_ = pricer_.critical_path(order, longest);
    }
    return path_[at(below(static_cast<int>(path_.size())))];
  }

  void move_passes(std::int64_t evaluations) {
    path_.clear();
    PricedOrder order = found_.order;
    double unit = 0;
    for (VirtualStageId v = 0; v < problem_.chunks(); ++v)
      unit += static_cast<double>(problem_.forward[at(v)] + problem_.input[at(v)] + problem_.weights[at(v)]);
    unit = std::max(1.0, unit / (kPassKinds * problem_.chunks()));
    const auto aim = [&] { return best_ - static_cast<std::int64_t>(3 * unit); };
    double now = excess(order, aim(), unit);
    PassCodes before;
    std::int64_t tried = 0;
    for (std::int64_t i = 0; i < evaluations && !done(); ++i) {
      if (++tried > 20 * evaluations) break;  // no pass can be moved
      const double heat = kHot * std::pow(kCold / kHot, static_cast<double>(i) / static_cast<double>(evaluations));
      const OrderPricer::Place place = some_pass(order);
      const StageId k = place.stage;
      PassCodes& codes = order.codes[at(k)];
      before = codes;
      if (!(!problem_.pair.empty() && below(3) == 0 ? pair_or_part(codes) : move_one(codes, place.index))) {
        --i;
        continue;
      }
      ++found_.evaluations;
      if (pricer_.peak(k, codes) > problem_.cap[at(k)] || !pricer_.price(order)) {
        codes = before;
        continue;
      }
      const double then = excess(order, aim(), unit);
      if (then > now && chance_.uniform() >= std::exp((now - then) / heat)) {
        codes = before;
        continue;
      }
      path_.clear();
      const std::int64_t earlier = best_;
      take(order);
      now = best_ < earlier ? excess(order, aim(), unit) : then;
    }
  }

  static constexpr double kHot = 1, kCold = 0.1;  // squares of a mean pass
  static constexpr int kNear = 4;                 // places between the passes of a new cell

  const OrderProblem& problem_;
  const OrderBudget& search_;
  OrderPricer pricer_;
  Random chance_;
  std::vector<OrderPricer::Place> path_;
  FoundOrder found_;
  std::int64_t best_ = std::numeric_limits<std::int64_t>::max() / 4, sum_ = best_;
};

}  // namespace

FoundOrder find_order(const OrderProblem& problem, const OrderBudget& search) {
  return OrderFinder(problem, search).run();
}

}  // namespace pipewright::sim
