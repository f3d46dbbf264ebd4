#include "sim/des/shared_link.hpp"

#include <algorithm>
#include <cmath>

namespace pipewright::sim {
namespace {

// A flow whose last bytes need less than this beyond a whole nanosecond has ended: 0.001 ns is far above the rounding
// of doubles (1 s in nanoseconds carries 1e-7) and far below what is reported.
constexpr double kSlack = 1e-3;

}  // namespace

SharedLinks::SharedLinks(std::vector<Bandwidth> capacity, LinkPolicy policy)
    : links_(capacity.size()), policy_(policy) {
  for (std::size_t l = 0; l < capacity.size(); ++l) {
    PP_CHECK(capacity[l].value > 0);
    links_[l].capacity = capacity[l].value / 1e9;
  }
}

void SharedLinks::touch(std::uint32_t link) {
  if (links_[link].touched) return;
  links_[link].touched = true;
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
  flow.at_full_rate = true;
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
  if (policy_ == LinkPolicy::Fifo) queue_.push_back(id);
  ++live_;
  return id;
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
    links_[link].touched = false;
  touched_.clear();
  next_end_ = kNever;
  for (const Time end : end_)
    next_end_ = std::min(next_end_, end);
  return next_end_;
}

std::span<const SharedLinks::Done> SharedLinks::take_finished(Time now) {
  if (next_end_ != now) return {};
  for (FlowId id = 0; id < end_.size(); ++id)
    if (end_[id] == now) done_.push_back({id, flows_[id].owner, flows_[id].begin});
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
}

// ----------------------------------------------------------------------------------------------------------- max-min

void SharedLinks::settle_fair(Time now) {
  ++stamp_;
  for (const std::uint32_t touched : touched_) {
    if (links_[touched].seen == stamp_) continue;
    gather(touched);
    fill();
    for (const FlowId id : part_flows_)
      set_rate(id, now, flows_[id].fair_rate);
  }
}

// The flows and links that are joined to `link`, directly or through others.
void SharedLinks::gather(std::uint32_t link) {
  part_flows_.clear();
  part_links_.clear();
  part_share_.clear();
  const auto add = [this](std::uint32_t index) {
    if (links_[index].seen == stamp_) return;
    links_[index].seen = stamp_;
    part_links_.push_back(index);
  };
  add(link);
  for (std::uint32_t i = 0; i < part_links_.size(); ++i) {
    Link& here = links_[part_links_[i]];
    here.part = i;
    here.left = here.capacity;
    here.weight = 0;
    here.open = static_cast<std::uint32_t>(here.flows.size());
    for (const FlowOnLink& on : here.flows) {
      here.weight += on.weight;
      Flow& flow = flows_[on.flow];
      if (flow.seen == stamp_) continue;
      flow.seen = stamp_;
      flow.fixed = false;
      part_flows_.push_back(on.flow);
      for (const Use& other : flow.uses)
        add(other.link);
    }
    part_share_.push_back(here.open == 0 ? HUGE_VAL : here.left / here.weight);
  }
}

// Progressive filling: all rates grow alike until the next link is full, or the next flow at its limit.
void SharedLinks::fill() {
  open_ = part_flows_.size();
  double lowest_limit = 0;  // at most the smallest full rate among open flows
  while (open_ > 0) {
    const auto fullest = std::min_element(part_share_.begin(), part_share_.end());
    if (*fullest >= lowest_limit) {
      // Some flow may reach its own limit before any link is full.
      lowest_limit = HUGE_VAL;
      for (const FlowId id : part_flows_)
        if (!flows_[id].fixed) lowest_limit = std::min(lowest_limit, flows_[id].full_rate);
      if (lowest_limit <= *fullest) {
        for (const FlowId id : part_flows_)
          if (!flows_[id].fixed && flows_[id].full_rate == lowest_limit) fix(flows_[id], lowest_limit);
        continue;
      }
    }
    const double rate = *fullest;
    for (const FlowOnLink& on : links_[part_links_[static_cast<std::size_t>(fullest - part_share_.begin())]].flows)
      if (!flows_[on.flow].fixed) fix(flows_[on.flow], rate);
  }
}

// The flow keeps `rate`; its links divide what is left among the others, never less than `rate` (rounding apart).
void SharedLinks::fix(Flow& flow, double rate) {
  --open_;
  flow.fixed = true;
  flow.fair_rate = rate;
  for (const Use& use : flow.uses) {
    Link& link = links_[use.link];
    link.left -= use.weight * rate;
    link.weight -= use.weight;
    part_share_[link.part] = --link.open == 0 ? HUGE_VAL : std::max(rate, link.left / link.weight);
  }
}

void SharedLinks::set_rate(FlowId id, Time now, double rate) {
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
  const double left = std::max(0.0, std::ceil(flow.remaining / rate - kSlack));
  end_[id] = now + Time{rounded(left, "a transfer over shared links")};
}

// -------------------------------------------------------------------------------------------------------------- fifo

void SharedLinks::settle_fifo(Time now) {
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
    flow.begin = now;
    flow.rate = flow.full_rate;
    end_[id] = now + flow.alone;
  }
  queue_.resize(kept);
}

}  // namespace pipewright::sim
