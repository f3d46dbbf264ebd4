// Links that flows share: how fast each flow runs, and when it ends.
//
// A flow moves `bytes` over one or more links at once, with one rate r for all of them: link l carries weight_l * r.
// A plain transfer has weight 1 on every link of its route; a collective is one flow whose weights say how often its
// ring passes a link. Latency is the caller's business.
//
// MaxMin  Rates are max-min fair: no flow can run faster without slowing one that is not faster [BertsekasGallager92]
//         section 6.5.2. Worked numbers in tests/sim/shared_link_test.cpp. Each link has a level: the rate of its flows
//         that have less nowhere else, so high that the link is full; none where it is not full. A flow runs at its own
//         limit, or the lowest level of its links. Where that holds of all links and flows, each flow is at its own
//         limit, or on a full link no flow is faster: the rates are max-min fair, and there is one such set of rates. So
//         a change is followed: a link on which something begins, ends or has another rate finds its level again, and
//         if it is another one, the rates of its flows, and so on. The lowest levels first, as in progressive filling (the
//         same, 6.5.2), so that few are found twice. Where that takes long, all levels are filled again.
// Fifo    A flow has its links for itself. It begins when all of them are free and no flow asked earlier for one of
//         them; it never holds some links while it waits for others, so there is no deadlock.
//
// Changes at one instant are settled together, so their order does not matter: a flow that begins in the nanosecond in
// which another ends never shares with it. A flow that has its full rate all its life ends exactly after the time it
// is priced at alone. Otherwise its end is rounded up to the next whole nanosecond.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/units.hpp"

namespace pipewright::sim {

using FlowId = std::uint32_t;

enum class LinkPolicy { MaxMin, Fifo };

struct LinkWeight {
  std::uint32_t link = 0;
  double weight = 1;
};

struct FlowDemand {
  double bytes = 0;     // > 0, moved at the flow's rate
  Bandwidth limit{0};   // the flow's own highest rate, > 0
  Time alone;           // how long it takes at its full rate
  std::uint32_t owner;  // whatever the caller wants to know again
};

class SharedLinks {
 public:
  // MaxMin: after finding `patience` levels a link in one settling all are filled again; 0: always.
  SharedLinks(std::vector<Bandwidth> capacity, LinkPolicy policy, std::size_t patience = 4);

  // A flow over `links` (each once, at least one) asks for its rate at `now`. It has none before the next `settle`.
  FlowId start(Time now, const FlowDemand& demand, std::span<const LinkWeight> links);

  // From the next `settle` on the flow's own highest rate is 1/`slower` of what it was when it began.
  void slow(FlowId flow, double slower);

  // Something has begun, ended or slowed since the last `settle`.
  bool unsettled() const { return touches_ > 0; }

  // Settles the rates from `now` on. Returns the next end of a flow, kNever if none runs.
  Time settle(Time now);

  struct Done {
    FlowId flow = 0;
    std::uint32_t owner = 0;
    Time begin;  // when it first had a rate
  };
  // Takes out the flows that end at `now`, in the order in which they asked. Valid, and their ids not given to others,
  // until the next `settle`.
  std::span<const Done> take_finished(Time now);

  double rate(FlowId flow) const { return flows_[flow].rate; }  // bytes per nanosecond; 0: waits
  std::size_t live() const { return live_; }

 private:
  struct Use {
    std::uint32_t link = 0, place = 0;  // place in Link::flows
    double weight = 1;
  };
  struct Flow {
    std::vector<Use> uses;  // none: a free slot
    double remaining = 0;   // bytes left at `since`
    double rate = 0, full_rate = 0;
    double unslowed = 0;  // its full rate
    double second = 0;    // MaxMin: the second lowest of its full rate and the levels of its links
    Time since, begin, alone;
    std::uint64_t order = 0;
    std::uint32_t owner = 0;
    bool at_full_rate = true;  // all its life
    bool changed = false;      // MaxMin: is in changed_
  };
  struct FlowOnLink {
    FlowId flow = 0;
    std::uint32_t use = 0;  // index into Flow::uses
    double weight = 1;
    double most = 0;  // the rate that it could have if this link had no level
  };
  struct Link {
    std::vector<FlowOnLink> flows;  // MaxMin: flows that run
    double capacity = 0;            // bytes per nanosecond
    std::uint64_t asked = 0;        // Fifo: stamp of the settling in which an earlier flow waits for it
    bool touched = false;           // is in touched_
    bool busy = false;              // Fifo: held by a flow
  };

  void touch(std::uint32_t link);
  void forget_touched();
  void change(FlowId id);
  void detach(Flow& flow);
  void settle_fair(Time now);
  std::uint32_t take_touched();
  double find_level(std::uint32_t link) const;
  void set_level(std::uint32_t link, double level);
  void tell_links(Flow& flow);
  void fill_all();
  void set_rate(FlowId id, Time now, double rate);
  static Time ends(const Flow& flow);
  void settle_fifo(Time now);

  std::vector<Link> links_;
  LinkPolicy policy_;
  std::size_t patience_;
  std::vector<Flow> flows_;
  std::vector<Time> end_;  // by FlowId; kNever: waits or free slot
  std::vector<FlowId> free_;
  std::vector<FlowId> queue_;           // Fifo: flows that wait, in the order in which they asked
  std::vector<double> level_;           // MaxMin: by link; infinite: none
  std::vector<std::uint32_t> touched_;  // the first `touches_`: links whose level may be another one
  std::vector<FlowId> changed_;         // MaxMin: the first `changes_`: flows whose rate may be another one
  std::size_t touches_ = 0, changes_ = 0;
  std::vector<Done> done_;
  Time next_end_ = kNever;
  std::vector<FlowId> ending_;  // that end then
  std::size_t live_ = 0;
  std::uint64_t orders_ = 0, stamp_ = 0;
};

}  // namespace pipewright::sim
