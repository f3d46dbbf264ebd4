#include "sim/contention.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pipewright::sim {
namespace {

constexpr double kSliver = 1e-3;  // ns: rounding of doubles, not work

}  // namespace

void Progress::slow(Time now, double slower) {
  if (slower == slower_) return;  // so that what nothing slows is never rounded
  left_ = std::max(0.0, left_ - static_cast<double>((now - since_).value) / slower_);
  since_ = now;
  slower_ = slower;
}

Time Progress::reaches(Time work) const {
  const double until = left_ - static_cast<double>((alone_ - work).value);
  const double left = std::max(0.0, std::ceil(until * slower_ - kSliver));
  return since_ + Time{rounded(left, "an op during a collective")};
}

void Contention::touch_worker(std::uint32_t worker) {
  if (std::exchange(workers_[worker].touched, true)) return;
  touched_workers_.push_back(worker);
}

void Contention::touch_group(std::uint32_t group) {
  if (std::exchange(groups_[group].touched, true)) return;
  touched_groups_.push_back(group);
}

void Contention::count(const Worker& of, int by) {
  for (const std::uint32_t group : of.groups)
    groups_[group].computing += by, touch_group(group);
}

void Contention::op_starts(std::uint32_t worker, Time now, Time alone, double slower) {
  Worker& of = workers_[worker];
  of.op.emplace(now, alone);
  of.slower = slower;
  of.now_slower = 0;
  touch_worker(worker);
  count(of, 1);
}

void Contention::op_ends(std::uint32_t worker) {
  workers_[worker].op.reset();
  count(workers_[worker], -1);
}

void Contention::meeting_starts(std::uint32_t group, std::vector<std::uint32_t> members, double slower) {
  Group& of = groups_[group];
  of.members = std::move(members);
  of.slower = slower;
  of.computing = 0;
  for (const std::uint32_t worker : of.members) {
    workers_[worker].groups.push_back(group);
    of.computing += workers_[worker].op ? 1 : 0;
    touch_worker(worker);
  }
}

void Contention::meeting_ends(std::uint32_t group) {
  Group& of = groups_[group];
  of.phase.reset();
  for (const std::uint32_t worker : of.members) {
    std::erase(workers_[worker].groups, group);
    touch_worker(worker);
  }
  of.members.clear();
  of.computing = 0;
}

void Contention::phase_starts(std::uint32_t group, Time now, Time alone) {
  groups_[group].phase.emplace(now, alone);
  groups_[group].now_slower = 0;
  touch_group(group);
}

void Contention::flow_starts(std::uint32_t group) {
  groups_[group].phase.reset();
  groups_[group].now_slower = 0;
  touch_group(group);
}

void Contention::settle(Time now) {
  for (const std::uint32_t worker : std::exchange(touched_workers_, {})) {
    Worker& of = workers_[worker];
    of.touched = false;
    const double slower = of.groups.empty() ? 1 : of.slower;
    if (!of.op || std::exchange(of.now_slower, slower) == slower) continue;
    of.op->slow(now, slower);
    changes_.op(worker);
  }
  for (const std::uint32_t group : std::exchange(touched_groups_, {})) {
    Group& of = groups_[group];
    of.touched = false;
    const double slower = this->slower(group);
    if (of.members.empty() || std::exchange(of.now_slower, slower) == slower) continue;
    if (of.phase) of.phase->slow(now, slower);
    changes_.phase(group);
  }
}

}  // namespace pipewright::sim
