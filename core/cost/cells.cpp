#include "core/cost/cells.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace pipewright::core {
namespace {

using Part = StepCosts::Part;

double ns_of(Time time) {
  return static_cast<double>(time.value);
}

// Both streams of a device, in the order in which parts are issued.
class CellStreams {
 public:
  explicit CellStreams(const StepCosts::Together& together)
      : pace_(1 - together.share), delay_wgrad_(together.delay_wgrad) {}

  // The next part of an op whose last exchange ended at `ready`; returns when this part's exchange ends.
  double issue(const Part& part, double ready) {
    const double weights = ns_of(part.weights), rest = ns_of(part.computing) - weights;
    computed_ = after(std::max(computed_, ready), rest);
    if (!delay_wgrad_) computed_ = after(computed_, weights);
    double arrived = computed_;
    if (part.exchange > Time{}) {
      const double begin = std::max(exchanged_, computed_);
      arrived = exchanged_ = begin + ns_of(part.exchange);
      busy_.emplace_back(begin, exchanged_);
    }
    if (delay_wgrad_) computed_ = after(computed_, weights);
    return arrived;
  }
  double end() const { return std::max(computed_, exchanged_); }

 private:
  // When so much computing ends: beside exchanges it takes longer. All that run before it ends are known.
  double after(double begin, double work) {
    double now = begin;
    for (std::size_t i = seen_; i < busy_.size() && work > 0; ++i) {
      const auto [from, to] = busy_[i];
      if (to <= now) {
        seen_ = i + 1;
        continue;
      }
      const double apart = std::max(0.0, from - now);
      if (work <= apart) return now + work;
      work -= apart, now = std::max(now, from);
      const double beside = (to - now) * pace_;
      if (work <= beside) return now + work / pace_;
      work -= beside, now = to;
    }
    return now + work;
  }

  double pace_;  // of computing beside an exchange
  bool delay_wgrad_;
  double computed_ = 0, exchanged_ = 0;  // when each stream is free
  std::vector<std::pair<double, double>> busy_;
  std::size_t seen_ = 0;  // of those: no later part is computed beside them
};

// The parts of an op; one, where nothing travels. Where it takes longer than they say, as ops that hand messages over
// themselves or share a machine do, each in proportion.
std::vector<Part> parts_of(const StepCosts& costs, const Op& op) {
  const StepCosts::Together& together = *costs.together;
  const std::size_t row = static_cast<std::size_t>(op.virtual_stage) * kKinds + static_cast<std::size_t>(op.kind);
  const Time all = costs.time_of(op);
  if (row >= together.parts.size() || together.parts[row].empty()) return {{all, {}, {}}};
  std::vector<Part> parts = together.parts[row];
  Time stated;
  for (const Part& part : parts)
    stated += part.computing + part.exchange;
  if (stated == all || stated == Time{}) return parts;
  const double longer = ns_of(all) / ns_of(stated);
  for (Part& part : parts)
    for (Time* time : {&part.computing, &part.weights, &part.exchange})
      *time = Time{std::llround(ns_of(*time) * longer)};
  return parts;
}

// Forwards of a cell, one after the other, in turns with all else.
Time in_turns(const StepCosts& costs, std::span<const Op> cell) {
  std::array<std::vector<Part>, 2> chains;  // backward, forward
  for (const Op& op : cell) {
    std::vector<Part>& chain = chains[rule(op.kind).forward ? 1 : 0];
    for (const Part& part : parts_of(costs, op)) {
      if (chain.empty() || chain.back().exchange > Time{}) {
        chain.push_back(part);
        continue;
      }
      chain.back().computing += part.computing, chain.back().weights += part.weights;
      chain.back().exchange = part.exchange;
    }
  }
  CellStreams streams(*costs.together);
  const auto& [backward, forward] = chains;
  double ready_backward = 0, ready_forward = 0;
  for (std::size_t i = 0, j = 0; i < backward.size() || j < forward.size();) {
    const bool next_backward = i < backward.size() && i * forward.size() <= j * backward.size();
    if (next_backward)
      ready_backward = streams.issue(backward[i++], ready_backward);
    else
      ready_forward = streams.issue(forward[j++], ready_forward);
  }
  return Time{std::llround(streams.end())};
}

}  // namespace

std::span<const Op> cell_of(const StepCosts& costs, std::span<const Op> ops) {
  std::size_t size = 1;
  if (costs.together)
    while (size < ops.size() && ops[size - 1].with_next)
      ++size;
  return ops.first(std::min(size, ops.size()));
}

Time cell_time(const StepCosts& costs, std::span<const Op> cell) {
  if (cell.size() == 1) return costs.time_of(cell.front());
  Time alone, beside;
  bool forward = false, backward = false;
  for (const Op& op : cell) {
    const Time time = costs.time_of(op);
    alone = checked_sum(alone, time);
    if (!rule(op.kind).forward && !rule(op.kind).backward) beside += time;
    forward |= rule(op.kind).forward, backward |= rule(op.kind).backward;
  }
  if (costs.together->pair && forward && backward) return checked_sum(*costs.together->pair, beside);
  return std::min(alone, in_turns(costs, cell));
}

std::vector<Time> ends_in_cell(const StepCosts& costs, std::span<const Op> cell) {
  const Time all = cell_time(costs, cell);
  double alone = 0, before = 0;
  for (const Op& op : cell)
    alone += static_cast<double>(costs.time_of(op).value);
  std::vector<Time> ends;
  for (const Op& op : cell) {
    before += static_cast<double>(costs.time_of(op).value);
    ends.push_back(alone > 0 ? Time{std::llround(static_cast<double>(all.value) * (before / alone))} : Time{});
  }
  ends.back() = all;
  return ends;
}

}  // namespace pipewright::core
