#include "sim/des/shared_link.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace pipewright::sim {
namespace {

// A flow whose last bytes need less than this beyond a whole nanosecond has ended: 0.001 ns is far above the rounding
// of doubles (1 s in nanoseconds carries 1e-7) and far below what is reported.
constexpr double kSlack = 1e-3;

// Rates that differ by less are the same: sums of doubles depend on their order.
constexpr double kSameRate = 1e-13;

constexpr double kNone = HUGE_VAL;  // in place of a level

// As masks and by value, so that no jump is made of them: it would be mispredicted as often as not.
inline double value_if(bool condition, double value) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) & -std::uint64_t{condition});
}
inline double lower_of(double a, double b) {
  return a < b ? a : b;
}
inline double higher_of(double a, double b) {
  return a > b ? a : b;
}

inline bool same_rate(double a, double b) {
  return a == b || std::abs(a - b) <= kSameRate * lower_of(a, b);
}

}  // namespace

SharedLinks::SharedLinks(std::vector<Bandwidth> capacity, LinkPolicy policy, std::size_t patience)
    : links_(capacity.size()),
      policy_(policy),
      patience_(patience * capacity.size()),
      level_(capacity.size(), kNone),
      touched_(capacity.size() + 1) {
  for (std::size_t l = 0; l < capacity.size(); ++l) {
    PP_CHECK(capacity[l].value > 0);
    links_[l].capacity = capacity[l].value / 1e9;
  }
}

// A link or flow that is in a list already is written behind the end of it, and not counted.
void SharedLinks::touch(std::uint32_t link) {
  touched_[touches_] = link;
  touches_ += !std::exchange(links_[link].touched, true);
}

void SharedLinks::forget_touched() {
  for (; touches_ > 0; --touches_)
    links_[touched_[touches_ - 1]].touched = false;
}

void SharedLinks::change(FlowId id) {
  changed_[changes_] = id;
  changes_ += !std::exchange(flows_[id].changed, true);
}

FlowId SharedLinks::start(Time now, const FlowDemand& demand, std::span<const LinkWeight> links) {
  PP_CHECK(demand.bytes > 0 && demand.limit.value > 0 && !links.empty());
  FlowId id = 0;
  if (free_.empty()) {
    id = static_cast<FlowId>(flows_.size());
    flows_.emplace_back();
    end_.push_back(kNever);
    changed_.resize(flows_.size() + 1);
  } else {
    id = free_.back();
    free_.pop_back();
  }
  Flow& flow = flows_[id];
  flow.remaining = demand.bytes;
  flow.rate = 0;
  flow.full_rate = demand.limit.value / 1e9;
  flow.since = flow.begin = now;
  flow.alone = demand.alone;
  flow.order = orders_++;
  flow.owner = demand.owner;
  flow.at_full_rate = true;  // Fifo: until it is slowed
  flow.uses.clear();
  for (const LinkWeight& use : links)
    flow.uses.push_back({use.link, 0, use.weight});
  // Sums of doubles depend on their order: with the links in one order, the order of a route never shows in a result.
  std::sort(flow.uses.begin(), flow.uses.end(), [](const Use& a, const Use& b) { return a.link < b.link; });
  for (std::uint32_t i = 0; i < flow.uses.size(); ++i) {
    Use& use = flow.uses[i];
    Link& link = links_[use.link];
    flow.full_rate = std::min(flow.full_rate, link.capacity / use.weight);
    touch(use.link);
    if (policy_ == LinkPolicy::Fifo) continue;
    use.place = static_cast<std::uint32_t>(link.flows.size());
    link.flows.push_back({id, i, use.weight});
  }
  flow.unslowed = flow.full_rate;
  if (policy_ == LinkPolicy::Fifo) {
    queue_.push_back(id);
  } else {
    tell_links(flow);
    change(id);
  }
  ++live_;
  return id;
}

void SharedLinks::slow(FlowId id, double slower) {
  Flow& flow = flows_[id];
  const double rate = flow.unslowed / slower;
  if (rate == flow.full_rate) return;
  flow.full_rate = rate;
  flow.at_full_rate = false;
  for (const Use& use : flow.uses)
    touch(use.link);
  if (policy_ == LinkPolicy::Fifo) return;
  tell_links(flow);
  change(id);
}

Time SharedLinks::settle(Time now) {
  for (const Done& done : done_)
    free_.push_back(done.flow);
  done_.clear();
  if (policy_ == LinkPolicy::MaxMin)
    settle_fair(now);
  else
    settle_fifo(now);
  next_end_ = kNever;
  ending_.clear();
  for (FlowId id = 0; id < end_.size(); ++id) {
    if (end_[id] > next_end_ || end_[id] == kNever) continue;
    if (end_[id] < next_end_) ending_.clear();
    next_end_ = end_[id];
    ending_.push_back(id);
  }
  return next_end_;
}

std::span<const SharedLinks::Done> SharedLinks::take_finished(Time now) {
  if (next_end_ != now) return {};
  for (const FlowId id : ending_)
    done_.push_back({id, flows_[id].owner, flows_[id].begin});
  std::sort(done_.begin(), done_.end(),
            [this](const Done& a, const Done& b) { return flows_[a.flow].order < flows_[b.flow].order; });
  for (const Done& done : done_) {
    detach(flows_[done.flow]);
    end_[done.flow] = kNever;
    --live_;
  }
  next_end_ = kNever;  // known again after `settle`
  return done_;
}

void SharedLinks::detach(Flow& flow) {
  flow.rate = 0;
  for (const Use& use : flow.uses) {
    Link& link = links_[use.link];
    touch(use.link);
    link.busy = false;
    if (policy_ == LinkPolicy::Fifo) continue;
    const FlowOnLink moved = link.flows.back();
    link.flows[use.place] = moved;
    flows_[moved.flow].uses[moved.use].place = use.place;
    link.flows.pop_back();
  }
  flow.uses.clear();
}

// ----------------------------------------------------------------------------------------------------------- max-min

// The one with the lowest level: where many flows share many links, each is found again and again in another order.
inline std::uint32_t SharedLinks::take_touched() {
  const double* const levels = level_.data();
  const std::size_t touches = touches_;
  std::size_t at = 0;
  double lowest = levels[touched_[0]];
  for (std::size_t i = 1; i < touches; ++i)
    if (const double level = levels[touched_[i]]; level < lowest) lowest = level, at = i;
  return std::exchange(touched_[at], touched_[--touches_]);
}

// The level at which the link is full; none if it is not with all its flows at the most that they could have.
// By Newton's method: the level is exact as soon as it is known which flows stay below, and from below after one step.
inline double SharedLinks::find_level(std::uint32_t index) const {
  const Link& link = links_[index];
  bool below = false;
  for (double level = level_[index];;) {
    double left = link.capacity, open = 0, last_below = 0, first_above = kNone;
    for (const FlowOnLink& on : link.flows) {
      const bool stays = on.most < level;
      const double kept = value_if(stays, on.most);
      left -= on.weight * kept;
      open += value_if(!stays, on.weight);
      last_below = higher_of(last_below, kept);
      first_above = lower_of(first_above, on.most + value_if(stays, kNone));
    }
    if (open == 0) {
      if (left >= -kSameRate * link.capacity) return kNone;
      level = 0;
      continue;
    }
    const double next = left / open;
    if ((last_below <= next && next <= first_above) || (below && next <= level)) return next;
    level = next;
    below = true;
  }
}

// Tells each link of the flow what it could have otherwise: the least of its own limit and the levels of the others.
void SharedLinks::tell_links(Flow& flow) {
  double least = flow.full_rate, second = kNone;
  const Use* limiter = nullptr;
  for (const Use& use : flow.uses) {
    const double level = level_[use.link];
    second = lower_of(second, higher_of(least, level));
    if (level < least) limiter = &use;
    least = lower_of(least, level);
  }
  flow.second = second;
  for (const Use& use : flow.uses)
    links_[use.link].flows[use.place].most = &use == limiter ? second : least;
}

// Another level: other rates, and perhaps other levels of other links. One that has none keeps none as flows slow down.
inline void SharedLinks::set_level(std::uint32_t index, double level) {
  const double before = std::exchange(level_[index], level);
  Flow* const flows = flows_.data();
  Link* const links = links_.data();
  std::size_t touches = touches_, changes = changes_;  // as locals: writing to the lists cannot change them
  for (const FlowOnLink& on : links[index].flows) {
    Flow& flow = flows[on.flow];
    const double was = lower_of(on.most, before), is = lower_of(on.most, level);
    const bool differs = std::abs(is - was) > kSameRate * lower_of(is, was);
    changed_[changes] = on.flow;
    changes += differs & !flow.changed;
    flow.changed |= differs;
    const auto touch_if = [&](const Use& use) {
      bool& touched = links[use.link].touched;
      const bool touches_it = differs & ((is > was) | (level_[use.link] < kNone));
      touched_[touches] = use.link;
      touches += touches_it & !touched;
      touched |= touches_it;
    };
    if (flow.uses.size() == 2) {  // the same with less work
      const Use& other = flow.uses[1 - on.use];
      links[other.link].flows[other.place].most = lower_of(flow.full_rate, level);
      touch_if(other);
    } else if (lower_of(before, level) <= flow.second) {  // else what its links know stays the same
      tell_links(flow);
      if (differs) std::for_each(flow.uses.begin(), flow.uses.end(), touch_if);
    }
  }
  touches_ = touches;
  changes_ = changes;
}

// Progressive filling: all rates grow alike until the next link is full, whose flows keep their rates.
void SharedLinks::fill_all() {
  forget_touched();
  level_.assign(links_.size(), kNone);
  for (FlowId id = 0; id < flows_.size(); ++id) {
    if (flows_[id].uses.empty()) continue;
    tell_links(flows_[id]);
    change(id);
  }
  std::vector<double> full(links_.size());
  for (std::uint32_t link = 0; link < links_.size(); ++link)
    full[link] = find_level(link);
  while (true) {
    const auto lowest = std::min_element(full.begin(), full.end());
    if (*lowest == kNone) return;
    const auto index = static_cast<std::size_t>(lowest - full.begin());
    const double level = level_[index] = std::exchange(*lowest, kNone);
    for (const FlowOnLink& on : links_[index].flows) {
      Flow& flow = flows_[on.flow];
      if (level > flow.second) continue;  // what its links know stays the same
      tell_links(flow);
      if (level >= on.most) continue;  // its rate is as before
      for (const Use& use : flow.uses)
        if (level_[use.link] == kNone) touch(use.link);
    }
    for (std::size_t i = 0; i < touches_; ++i)
      full[touched_[i]] = find_level(touched_[i]);
    forget_touched();
  }
}

inline Time SharedLinks::ends(const Flow& flow) {
  const double left = std::max(0.0, flow.remaining / flow.rate - kSlack);
  if (left < 1e15) {  // the same without calls
    const auto whole = static_cast<std::int64_t>(left);
    return flow.since + Time{whole + (static_cast<double>(whole) < left)};
  }
  return flow.since + Time{rounded(std::ceil(left), "a transfer over shared links")};
}

inline void SharedLinks::set_rate(FlowId id, Time now, double rate) {
  Flow& flow = flows_[id];
  if (rate == flow.rate) return;
  flow.remaining -= flow.rate * static_cast<double>((now - flow.since).value);
  flow.rate = rate;
  flow.since = now;
  if (flow.at_full_rate && now == flow.begin && rate == flow.full_rate) {
    end_[id] = now + flow.alone;
    return;
  }
  flow.at_full_rate = false;
  end_[id] = ends(flow);
}

void SharedLinks::settle_fair(Time now) {
  for (std::size_t found = 0; touches_ > 0; ++found) {
    if (found == patience_) {
      fill_all();
      break;
    }
    const std::uint32_t link = take_touched();
    if (const double level = find_level(link); !same_rate(level, level_[link])) set_level(link, level);
    links_[link].touched = false;
  }
  for (std::size_t i = 0; i < changes_; ++i) {
    Flow& flow = flows_[changed_[i]];
    flow.changed = false;
    if (flow.uses.empty()) continue;  // has ended
    const Use& use = flow.uses[0];
    const double rate = lower_of(level_[use.link], links_[use.link].flows[use.place].most);
    if (!same_rate(rate, flow.rate)) set_rate(changed_[i], now, rate);
  }
  changes_ = 0;
}

// -------------------------------------------------------------------------------------------------------------- fifo

void SharedLinks::settle_fifo(Time now) {
  forget_touched();
  ++stamp_;
  std::size_t kept = 0;
  for (const FlowId id : queue_) {
    Flow& flow = flows_[id];
    const bool free = std::none_of(flow.uses.begin(), flow.uses.end(), [this](const Use& use) {
      return links_[use.link].busy || links_[use.link].asked == stamp_;
    });
    for (const Use& use : flow.uses) {
      if (free) links_[use.link].busy = true;
      links_[use.link].asked = stamp_;
    }
    if (!free) {
      queue_[kept++] = id;
      continue;
    }
    flow.begin = flow.since = now;
    flow.rate = flow.full_rate;
    end_[id] = flow.at_full_rate ? now + flow.alone : ends(flow);
  }
  queue_.resize(kept);
  for (FlowId id = 0; id < end_.size(); ++id)  // whose rate has changed on the way
    if (flows_[id].rate > 0 && flows_[id].rate != flows_[id].full_rate) set_rate(id, now, flows_[id].full_rate);
}

}  // namespace pipewright::sim
