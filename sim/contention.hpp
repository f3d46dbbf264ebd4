// Ops and collectives that slow one another while both run on a worker [Lee25]: what is left of each goes on
// at the new rate from the moment on at which the other begins or ends.
//
//     end = now + ceil(left * slower)         left: its time alone, less what is done; slower: 1, or as priced
//
// What nothing ever slowed ends exactly after its time alone. A product of 10 ms beside a collective of 4 ms that holds 20
// of 132 multiprocessors: 4 * 112/132 ms of it are done when that ends, and all at 10.606 ms. If the collective takes 1.1
// times as long meanwhile: at 4.4 and 10.667 ms.                                     tests/sim/contention_test.cpp
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/units.hpp"
#include "sim/stream_links.hpp"

namespace pipewright::sim {

// Something that takes `alone` if nothing slows it.
class Progress {
 public:
  Progress(Time now, Time alone) : since_(now), alone_(alone), left_(static_cast<double>(alone.value)) {}
  void slow(Time now, double slower);
  Time end() const { return reaches(alone_); }
  // When so much of it is done, if nothing changes.
  Time reaches(Time work) const;

 private:
  Time since_, alone_;
  double left_;  // at `since_`
  double slower_ = 1;
};

class Contention {
 public:
  // What has a new end, or a new rate. Owners know workers and groups by number.
  struct Changes {
    std::function<void(std::uint32_t worker)> op;    // `end_of_op`, `op_reaches`
    std::function<void(std::uint32_t group)> phase;  // `end_of_phase`, or `slower` of a flow
  };
  Contention(std::size_t workers, std::size_t groups, Changes changes)
      : workers_(workers), groups_(groups), changes_(std::move(changes)) {}

  // A worker computes for `alone`, `slower` times as long beside a collective.
  void op_starts(std::uint32_t worker, Time now, Time alone, double slower);
  void op_ends(std::uint32_t worker);
  // Members meet for a collective that takes `slower` times as long while one of them computes.
  void meeting_starts(std::uint32_t group, std::vector<std::uint32_t> members, double slower);
  void meeting_ends(std::uint32_t group);
  // A phase of a meeting that takes `alone`; of one that is a flow over links, whose rate others know, nothing is kept.
  void phase_starts(std::uint32_t group, Time now, Time alone);
  void flow_starts(std::uint32_t group);

  bool unsettled() const { return !touched_workers_.empty() || !touched_groups_.empty(); }
  void settle(Time now);

  // Whether it ends now: events of ends that have moved since are none.
  bool op_ends_at(std::uint32_t worker, Time now) const {
    const Worker& of = workers_[worker];
    return of.op && of.now_slower > 0 && of.op->end() == now;
  }
  bool phase_ends_at(std::uint32_t group, Time now) const {
    const Group& of = groups_[group];
    return of.phase && of.now_slower > 0 && of.phase->end() == now;
  }
  const Progress& op(std::uint32_t worker) const { return *workers_[worker].op; }
  const std::optional<Progress>& phase(std::uint32_t group) const { return groups_[group].phase; }
  double slower(std::uint32_t group) const { return groups_[group].computing > 0 ? groups_[group].slower : 1; }

 private:
  struct Worker {
    std::optional<Progress> op;
    double slower = 1;                  // of it, beside a collective
    std::vector<std::uint32_t> groups;  // that it is in a collective of
    double now_slower = 0;              // of it, as last told; 0: not yet
    bool touched = false;
  };
  struct Group {
    std::vector<std::uint32_t> members;
    std::optional<Progress> phase;
    double slower = 1;
    int computing = 0;      // members
    double now_slower = 0;  // as last told; 0: not yet
    bool touched = false;
  };
  void touch_worker(std::uint32_t worker);
  void touch_group(std::uint32_t group);
  void count(const Worker& of, int by);

  std::vector<Worker> workers_;
  std::vector<Group> groups_;
  std::vector<std::uint32_t> touched_workers_, touched_groups_;
  Changes changes_;
};

}  // namespace pipewright::sim
