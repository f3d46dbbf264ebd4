#include "sim/des/shared_link.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pipewright::sim {
namespace {

// A flow whose last bytes need less than this beyond a whole nanosecond has ended: 0.001 ns is far above the rounding
// of doubles (1 s in nanoseconds carries 1e-7) and far below what is reported.
constexpr double kSlack = 1e-3;

// Rates that differ by less are the same: sums of doubles depend on their order.
constexpr double kSameRate = 1e-13;

// In place of a link: what limits a flow.
constexpr std::uint32_t kItself = ~std::uint32_t{0}, kNotYetKnown = kItself - 1, kBeingFilled = kItself - 2;

// Index of one of the least. Two at a time, as each comparison waits for the one before.
std::size_t least(const std::vector<double>& of) {
  const double* const begin = of.data();
  const std::size_t n = of.size();
  double a = begin[0], b = begin[n - 1];
  for (std::size_t i = 1; i + 1 < n; i += 2) {
    a = std::min(a, begin[i]);
    b = std::min(b, begin[i + 1]);
  }
  a = std::min(a, b);
  std::size_t i = 0;
  while (begin[i] != a)
    ++i;
  return i;
}

}  // namespace

SharedLinks::SharedLinks(std::vector<Bandwidth> capacity, LinkPolicy policy)
    : links_(capacity.size()), marks_(capacity.size()), policy_(policy) {
  for (std::size_t l = 0; l < capacity.size(); ++l) {
    PP_CHECK(capacity[l].value > 0);
    links_[l].capacity = capacity[l].value / 1e9;
  }
}

void SharedLinks::touch(std::uint32_t link) {
  if (std::exchange(marks_[link].touched, true)) return;
  touched_.push_back(link);
}

FlowId SharedLinks::start(Time now, const FlowDemand& demand, std::span<const LinkWeight> links) {
  PP_CHECK(demand.bytes > 0 && demand.limit.value > 0 && !links.empty());
  FlowId id = 0;
  if (free_.empty()) {
    id = static_cast<FlowId>(flows_.size());
    flows_.emplace_back();
    end_.push_back(kNever);
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
  std::ranges::sort(flow.uses, [](const Use& a, const Use& b) { return a.link < b.link; });
  for (std::uint32_t i = 0; i < flow.uses.size(); ++i) {
    Use& use = flow.uses[i];
    Link& link = links_[use.link];
    flow.full_rate = std::min(flow.full_rate, link.capacity / use.weight);
    touch(use.link);
    if (policy_ == LinkPolicy::Fifo) continue;
    use.place = static_cast<std::uint32_t>(link.flows.size());
    link.flows.push_back({id, i, use.weight, 0, kNotYetKnown});
  }
  flow.unslowed = flow.full_rate;
  if (policy_ == LinkPolicy::Fifo) queue_.push_back(id);
  ++live_;
  return id;
}

void SharedLinks::slow(FlowId id, double slower) {
  Flow& flow = flows_[id];
  const double rate = flow.unslowed / slower;
  if (rate == flow.full_rate) return;
  flow.full_rate = rate;
  flow.at_full_rate = false;
  for (const Use& use : flow.uses) {
    touch(use.link);
    if (policy_ == LinkPolicy::MaxMin) links_[use.link].flows[use.place].limiter = kNotYetKnown;
  }
}

Time SharedLinks::settle(Time now) {
  for (const Done& done : done_)
    free_.push_back(done.flow);
  done_.clear();
  if (policy_ == LinkPolicy::MaxMin)
    settle_fair(now);
  else
    settle_fifo(now);
  for (const std::uint32_t link : touched_)
    marks_[link].touched = false;
  touched_.clear();
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
  std::ranges::sort(done_,
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
    marks_[use.link].busy = false;
    if (policy_ == LinkPolicy::Fifo) continue;
    const FlowOnLink moved = link.flows.back();
    link.flows[use.place] = moved;
    flows_[moved.flow].uses[moved.use].place = use.place;
    link.flows.pop_back();
  }
}

// ----------------------------------------------------------------------------------------------------------- max-min

// The rate at which its open flows will fill it: no less than that up to which all is filled, rounding apart.
inline void SharedLinks::share_again(Link& link) {
  if (link.open > 0) {
    share_[link.part] = std::max(level_, link.left / link.weight);
    return;
  }
  // The last of the list takes its place.
  links_[links_of_part_.back()].part = link.part;
  links_of_part_[link.part] = links_of_part_.back();
  share_[link.part] = share_.back();
  links_of_part_.pop_back();
  share_.pop_back();
}

// The flow is part of what is filled: it gives its rate back to its links, and grows with the others.
inline void SharedLinks::join(FlowId id) {
  Flow& flow = flows_[id];
  if (std::exchange(flow.seen, stamp_) == stamp_) return;
  part_.push_back(id);
  flow.open = true;
  ++open_;
  lowest_limit_ = std::min(lowest_limit_, flow.full_rate);
  for (const Use& use : flow.uses) {
    Link& link = links_[use.link];
    FlowOnLink& own = link.flows[use.place];
    own.rate = 0;
    own.limiter = kBeingFilled;
    if (std::exchange(link.seen, stamp_) != stamp_) {
      link.left = link.capacity;
      link.weight = 0;
      link.open = 0;
      for (const FlowOnLink& on : link.flows)
        link.left -= on.weight * on.rate;
    } else {
      link.left += use.weight * flow.rate;
    }
    link.weight += use.weight;
    if (link.open++ == 0) {
      link.part = static_cast<std::uint32_t>(links_of_part_.size());
      links_of_part_.push_back(use.link);
      share_.push_back(0);
    }
    share_again(link);
  }
}

// Flows of that link that it limits, or whose limit is `also`.
inline void SharedLinks::join_limited_by(std::uint32_t link, std::uint32_t also) {
  if (std::exchange(marks_[link].joined, stamp_) == stamp_) return;
  for (const FlowOnLink& on : links_[link].flows)
    if (on.limiter == link || on.limiter == also) join(on.flow);
}

// The flow keeps `rate`; its links divide what is left among the others. Where the rate is another one than before, what
// one of these links limited may be limited no longer, or more.
inline void SharedLinks::fix(Flow& flow, double rate, std::uint32_t limiter) {
  if (std::abs(rate - flow.rate) <= kSameRate * rate) rate = flow.rate;
  level_ = std::max(level_, rate);
  --open_;
  flow.open = false;
  flow.fair_rate = rate;
  for (const Use& use : flow.uses) {
    Link& link = links_[use.link];
    link.flows[use.place].limiter = limiter;
    link.flows[use.place].rate = rate;
    link.left -= use.weight * rate;
    link.weight -= use.weight;
    --link.open;
    share_again(link);
  }
  if (rate == flow.rate) return;
  for (const Use& use : flow.uses)
    join_limited_by(use.link, use.link);
}

// Whether some flow reaches its own limit before any link is full.
bool SharedLinks::reach_limits(double share) {
  lowest_limit_ = HUGE_VAL;
  for (const FlowId id : part_)
    if (flows_[id].open) lowest_limit_ = std::min(lowest_limit_, flows_[id].full_rate);
  if (lowest_limit_ > share) return false;
  const double limit = lowest_limit_;
  for (std::size_t i = 0; i < part_.size(); ++i)
    if (Flow& flow = flows_[part_[i]]; flow.open && flow.full_rate == limit) fix(flow, limit, kItself);
  return true;
}

// Progressive filling: all rates grow alike until the next link is full, or the next flow at its limit.
void SharedLinks::fill() {
  while (open_ > 0) {
    const std::size_t fullest = least(share_);
    const double share = share_[fullest];
    const std::uint32_t index = links_of_part_[fullest];
    const Link& link = links_[index];
    if (share >= lowest_limit_ && reach_limits(share)) continue;
    // Whoever is faster has to give way first.
    const std::size_t before = part_.size();
    for (const FlowOnLink& on : link.flows)
      if (on.rate > share * (1 + kSameRate)) join(on.flow);
    if (part_.size() > before) continue;
    for (const FlowOnLink& on : link.flows)
      if (on.limiter == kBeingFilled) fix(flows_[on.flow], share, index);
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
  ++stamp_;
  part_.clear();
  links_of_part_.clear();
  share_.clear();
  open_ = 0;
  level_ = lowest_limit_ = 0;
  for (const std::uint32_t touched : touched_)
    join_limited_by(touched, kNotYetKnown);
  fill();
  for (const FlowId id : part_)
    set_rate(id, now, flows_[id].fair_rate);
}

// -------------------------------------------------------------------------------------------------------------- fifo

void SharedLinks::settle_fifo(Time now) {
  ++stamp_;
  std::size_t kept = 0;
  for (const FlowId id : queue_) {
    Flow& flow = flows_[id];
    const bool free = std::ranges::none_of(
        flow.uses, [this](const Use& use) { return marks_[use.link].busy || marks_[use.link].asked == stamp_; });
    for (const Use& use : flow.uses) {
      if (free) marks_[use.link].busy = true;
      marks_[use.link].asked = stamp_;
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
