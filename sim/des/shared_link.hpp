// Links that flows share: how fast each flow runs, and when it ends.
//
// A flow moves `bytes` over one or more links at once, with one rate r for all of them: link l carries weight_l * r.
// A plain transfer has weight 1 on every link of its route; a collective is one flow whose weights say how often its
// ring passes a link. Latency is the caller's business.
//
// MaxMin  Rates are max-min fair: no flow can run faster without slowing one that is not faster. Found by progressive
//         filling: all rates grow alike until a link is full or a flow reaches its own limit; those flows keep their
//         rate, the others grow on. [BertsekasGallager92] section 6.5.2. Worked numbers in tests/sim/shared_link_test.cpp.
//         Rates are max-min fair if each flow is at its own limit, or on a full link no flow is faster (the same, 6.5.2),
//         and there is one such set of rates. So a part of the flows is filled, the others keep theirs: first the flows
//         limited by a link on which one has begun or ended; on the way those as well for which this no longer holds.
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
  SharedLinks(std::vector<Bandwidth> capacity, LinkPolicy policy);

  // A flow over `links` (each once, at least one) asks for its rate at `now`. It has none before the next `settle`.
  FlowId start(Time now, const FlowDemand& demand, std::span<const LinkWeight> links);

  // From the next `settle` on the flow's own highest rate is 1/`slower` of what it was when it began.
  void slow(FlowId flow, double slower);

  // Something has begun, ended or slowed since the last `settle`.
  bool unsettled() const { return !touched_.empty(); }

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
    std::vector<Use> uses;
    double remaining = 0;  // bytes left at `since`
    double rate = 0, full_rate = 0, fair_rate = 0;
    double unslowed = 0;  // its full rate
    Time since, begin, alone;
    std::uint64_t order = 0;
    std::uint64_t seen = 0;  // MaxMin: stamp of the last settling that it was part of
    std::uint32_t owner = 0;
    bool at_full_rate = true;  // all its life
    bool open = false;         // while filling: without a rate yet
  };
  struct FlowOnLink {
    FlowId flow = 0;
    std::uint32_t use = 0;  // index into Flow::uses
    double weight = 1;
    double rate = 0;            // of the flow; 0 while it has none
    std::uint32_t limiter = 0;  // a link, or what stands in place of one
  };
  // What filling looks at, in one cache line.
  struct alignas(64) Link {
    std::vector<FlowOnLink> flows;  // MaxMin: flows that run
    double capacity = 0;            // bytes per nanosecond
    double left = 0, weight = 0;    // while filling: capacity and weight not yet given away
    std::uint64_t seen = 0;         // stamp of the settling that filled it
    std::uint32_t open = 0;         // while filling: flows of the part without a rate yet
    std::uint32_t part = 0;         // likewise, while there are any: index into links_of_part_
  };
  struct LinkMarks {
    std::uint64_t joined = 0;  // MaxMin: stamp of the settling in which all flows joined that it limited
    std::uint64_t asked = 0;   // Fifo: stamp of the settling in which an earlier flow waits for it
    bool touched = false;
    bool busy = false;  // Fifo: held by a flow
  };

  void touch(std::uint32_t link);
  void detach(Flow& flow);
  void settle_fair(Time now);
  void join(FlowId flow);
  void join_limited_by(std::uint32_t link, std::uint32_t also);
  void share_again(Link& link);
  bool reach_limits(double share);
  void fill();
  void fix(Flow& flow, double rate, std::uint32_t limiter);
  void set_rate(FlowId id, Time now, double rate);
  static Time ends(const Flow& flow);
  void settle_fifo(Time now);

  std::vector<Link> links_;
  std::vector<LinkMarks> marks_;
  LinkPolicy policy_;
  std::vector<Flow> flows_;
  std::vector<Time> end_;  // by FlowId; kNever: waits or free slot
  std::vector<FlowId> free_;
  std::vector<FlowId> queue_;  // Fifo: flows that wait, in the order in which they asked
  std::vector<std::uint32_t> touched_;
  std::vector<FlowId> part_;                  // flows that are being filled; the others keep their rates
  std::size_t open_ = 0;                      // of them, without a rate yet
  double level_ = 0;                          // up to which rate all is filled
  double lowest_limit_ = 0;                   // at most the smallest full rate among open flows
  std::vector<std::uint32_t> links_of_part_;  // that have open flows
  std::vector<double> share_;                 // of these links: rate at which it will be full, as things stand
  std::vector<Done> done_;
  Time next_end_ = kNever;
  std::vector<FlowId> ending_;  // that end then
  std::size_t live_ = 0;
  std::uint64_t orders_ = 0, stamp_ = 0, filling_ = 0;
};

}  // namespace pipewright::sim
