#include "planner/partitioners/recompute_knapsack.hpp"

#include <algorithm>
#include <limits>

#include "core/check.hpp"
#include "core/folds.hpp"
#include "core/ids.hpp"

namespace pipewright::planner {
namespace {

constexpr std::int64_t kNoChoice = std::numeric_limits<std::int64_t>::max();

// Items that free something, by growing transient; of equal ones in the order of their numbers.
std::vector<int> by_transient(std::span<const RebuildItem> items) {
  std::vector<int> order;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (items[i].freed > Bytes{}) order.push_back(static_cast<int>(i));
  std::ranges::stable_sort(order, [&](int a, int b) { return items[at(a)].transient < items[at(b)].transient; });
  return order;
}

// A set of items: the last one of them, and the set without it.
struct Chosen {
  std::int32_t item, before;
};
struct State {
  std::int64_t freed, extra;
  std::int32_t set;  // -1: empty
};

class Lists {
 public:
  Lists(std::span<const RebuildItem> items, std::int64_t in_flight, Bytes over, std::size_t most_states)
      : items_(items), in_flight_(in_flight), over_(over.value), most_states_(most_states) {
    const std::size_t count = order_.size();
    left_.assign(count + 1, 0), cheapest_.assign(count + 1, std::numeric_limits<double>::infinity());
    for (std::size_t i = count; i-- > 0;) {
      const RebuildItem& item = of(order_[i]);
      left_[i] = checked_sum(left_[i + 1], item.freed.value, "what layers free");
      cheapest_[i] =
          std::min(cheapest_[i + 1], static_cast<double>(item.extra.value) / static_cast<double>(item.freed.value));
    }
    if (count > 0) most_ = target(of(order_.back()).transient);
  }

  std::optional<RebuildSet> answer() {
    std::vector<State> states = {{0, 0, -1}};
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const Bytes transient = of(order_[i]).transient;
      states = with(std::move(states), order_[i]);
      consider(states, target(transient));
      prune(states, target(transient), i + 1);
      if (states.size() > most_states_) thin(states);
    }
    if (best_.extra == kNoChoice) return std::nullopt;
    RebuildSet result{.items = {}, .extra = Time{best_.extra}, .slack = slack_};
    for (std::int32_t set = best_.set; set >= 0; set = sets_[at(set)].before)
      result.items.push_back(sets_[at(set)].item);
    std::ranges::sort(result.items);
    return result;
  }

 private:
  const RebuildItem& of(int item) const { return items_[at(item)]; }

  // What a set must free per micro-batch in flight.
  std::int64_t target(Bytes transient) const {
    const std::int64_t must = checked_sum(over_, transient.value, "what layers free");
    return must <= 0 ? 0 : (must + in_flight_ - 1) / in_flight_;
  }

  // The sets, and each with the item; in order of freed bytes and of time, both strictly growing. Sets that free more
  // than any may have to free are alike.
  std::vector<State> with(std::vector<State> states, int item) {
    auto added = mapped<State>(states, [&](const State& state) {
      return State{std::min(state.freed + of(item).freed.value, most_), state.extra + of(item).extra.value, state.set};
    });
    std::vector<State> all;
    all.reserve(states.size() + added.size());
    // From the most freed down: a set stays when it takes less time than all that free as much or more.
    std::size_t a = states.size(), b = added.size();
    std::int64_t least = kNoChoice;
    while (a > 0 || b > 0) {
      const auto old_first = [&] {
        if (a == 0 || b == 0) return a > 0;
        const State &x = states[a - 1], &y = added[b - 1];
        return x.freed != y.freed ? x.freed > y.freed : x.extra <= y.extra;
      };
      const bool old = old_first();
      State state = old ? states[--a] : added[--b];
      if (state.extra >= least) continue;
      least = state.extra;
      if (!old) {
        PP_CHECK(sets_.size() < at(std::numeric_limits<std::int32_t>::max()));
        sets_.push_back({item, state.set});
        state.set = static_cast<std::int32_t>(sets_.size()) - 1;
      }
      if (!all.empty() && all.back().freed == state.freed)
        all.back() = state;
      else
        all.push_back(state);
    }
    std::ranges::reverse(all);
    return all;
  }

  void consider(const std::vector<State>& states, std::int64_t target) {
    const auto enough = std::ranges::lower_bound(states, target, {}, &State::freed);
    if (enough != states.end() && enough->extra < best_.extra) best_ = *enough;
  }

  // Drops what cannot become better than the best set: what is missing costs at least the least time per byte.
  void prune(std::vector<State>& states, std::int64_t target, std::size_t next) const {
    std::erase_if(states, [&](const State& state) {
      const std::int64_t missing = std::max<std::int64_t>(0, target - state.freed);
      if (state.extra >= best_.extra || missing > left_[next]) return true;
      if (missing == 0 || best_.extra == kNoChoice) return false;
      const double more = static_cast<double>(missing) * cheapest_[next] * (1 - 1e-9);
      return static_cast<double>(state.extra) + more >= static_cast<double>(best_.extra) + 1;
    });
  }

  void thin(std::vector<State>& states) {
    const std::int64_t grid = std::max<std::int64_t>(1, most_ / static_cast<std::int64_t>(most_states_ / 2));
    std::vector<State> kept;
    for (State state : states) {
      if (state.freed < most_) state.freed -= state.freed % grid;
      // Of a cell the cheapest comes first.
      if (kept.empty() || state.freed > kept.back().freed) kept.push_back(state);
    }
    states = std::move(kept);
    slack_ = checked_sum(slack_, Bytes{checked_product(grid, in_flight_, "what layers free")});
  }

  std::span<const RebuildItem> items_;
  const std::int64_t in_flight_, over_;
  const std::size_t most_states_;
  std::vector<int> order_ = by_transient(items_);
  std::vector<std::int64_t> left_;  // that the items from here on free
  std::vector<double> cheapest_;    // time per byte of them
  std::int64_t most_ = 0;           // that any set may have to free
  std::vector<Chosen> sets_;
  State best_{0, kNoChoice, -1};
  Bytes slack_;
};

}  // namespace

std::optional<RebuildSet> least_rebuild(std::span<const RebuildItem> items, std::int64_t in_flight, Bytes over,
                                        std::size_t most_states) {
  PP_CHECK(in_flight >= 1 && most_states >= 2);
  if (over <= Bytes{}) return RebuildSet{};
  return Lists(items, in_flight, over, most_states).answer();
}

RebuildSet most_freeing(std::span<const RebuildItem> items, std::int64_t in_flight) {
  const std::vector<int> order = by_transient(items);
  std::int64_t freed = 0, most = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const RebuildItem& item = items[at(order[i])];
    freed = checked_sum(freed, checked_product(in_flight, item.freed.value, "what layers free"), "what layers free");
    if (freed - item.transient.value > most) most = freed - item.transient.value, count = i + 1;
  }
  RebuildSet result;
  result.items.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count));
  std::ranges::sort(result.items);
  for (const int item : result.items)
    result.extra = checked_sum(result.extra, items[at(item)].extra);
  return result;
}

}  // namespace pipewright::planner
