#include "sim/waiting.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace pipewright {
namespace {

constexpr std::size_t at(int number) {
  return static_cast<std::size_t>(number);
}

bool is_backward(Kind kind) {
  return kind == Kind::BW || kind == Kind::B || kind == Kind::W;
}

}  // namespace

Causes::Causes(const Timeline& timeline, const Schedule& schedule, const StepCosts& costs)
    : timeline_(timeline), schedule_(schedule), index_(schedule), first_op_(timeline.workers.size() + 1) {
  for (std::size_t worker = 0; worker < timeline.workers.size(); ++worker)
    first_op_[worker + 1] = first_op_[worker] + timeline.workers[worker].compute.size();
  transfer_.assign(first_op_.back(), -1);
  for (std::size_t i = 0; i < timeline.transfers.size(); ++i) {
    const Transfer& transfer = timeline.transfers[i];
    const Edge& edge = costs.edges[transfer.edge];
    const int user = transfer.direction == Direction::Forward ? index_.forward(edge.to, transfer.micro_batch)
                                                              : index_.backward(edge.from, transfer.micro_batch);
    std::int32_t& latest = transfer_[first_op_[at(transfer.to)] + at(user)];
    if (latest < 0 || timeline.transfers[at(latest)].arrived < transfer.arrived) latest = static_cast<std::int32_t>(i);
  }
  for (std::size_t position = 0; position < schedule.positions.size(); ++position)
    ends_.push_back(ends_of(schedule.positions[position], schedule.seating().stage_at(static_cast<int>(position))));
}

std::size_t Causes::Ends::slot(const Seating& seating, VirtualStageId v, std::uint32_t round) const {
  return at(seating.local(v, stage)) * count + round;
}

Causes::Ends Causes::ends_of(const Lane& lane, StageId stage) const {
  const Seating seating = schedule_.seating();
  Ends ends{.stage = stage};
  if (lane.collective.empty()) return ends;
  ends.count = at(schedule_.rounds().count(stage));
  ends.all_reduce.assign(at(seating.held()) * ends.count, -1);
  ends.last_backward = ends.all_reduce;
  for (std::size_t i = 0; i < lane.collective.size(); ++i) {
    const Op& op = lane.collective[i];
    ends.all_reduce[ends.slot(seating, op.virtual_stage, op.micro_batch)] = static_cast<std::int32_t>(i);
  }
  for (std::size_t i = 0; i < lane.compute.size(); ++i) {
    const Op& op = lane.compute[i];
    if (!is_backward(op.kind)) continue;
    const int round = schedule_.rounds().of(op.virtual_stage, op.micro_batch);
    ends.last_backward[ends.slot(seating, op.virtual_stage, static_cast<std::uint32_t>(round))] =
        static_cast<std::int32_t>(i);
  }
  return ends;
}

int Causes::last_backward(PositionId position, VirtualStageId v, std::uint32_t round) const {
  const Ends& ends = ends_[at(position)];
  return ends.count == 0 ? -1 : ends.last_backward[ends.slot(schedule_.seating(), v, round)];
}

Cause Causes::of(WorkerId worker, std::size_t op) const {
  if (const std::int32_t i = transfer_[first_op_[at(worker)] + op]; i >= 0) {
    const Transfer& transfer = timeline_.transfers[at(i)];
    return {Cause::Kind::Message, at(i), transfer.posted, transfer.arrived};
  }
  const std::size_t position = at(worker) % schedule_.positions.size();
  const Op& what = schedule_.positions[position].compute[op];
  const Ends& ends = ends_[position];
  if (what.kind != Kind::Update || ends.count == 0) return {};
  const std::int32_t last = ends.all_reduce[ends.slot(schedule_.seating(), what.virtual_stage, what.micro_batch)];
  if (last < 0) return {};
  const auto& collective = timeline_.workers[at(worker)].collective;
  std::size_t first = at(last);
  while (first > 0 && collective[first - 1].end == collective[first].start)
    --first;
  return {Cause::Kind::AllReduce, at(last), collective[first].start, collective[at(last)].end};
}

IdleSplit idle_split(const Causes& causes, const Timeline& timeline, WorkerId worker) {
  const auto& spans = timeline.workers[at(worker)].compute;
  IdleSplit idle;
  if (spans.empty()) {
    idle.fill = timeline.makespan;
    return idle;
  }
  idle.fill = spans.front().start;
  idle.drain = timeline.makespan - spans.back().end;
  for (std::size_t op = 1; op < spans.size(); ++op) {
    const Time from = spans[op - 1].end, until = spans[op].start;
    if (from == until) continue;
    const Cause cause = causes.of(worker, op);
    if (cause.kind == Cause::Kind::None) {
      idle.stall += until - from;
      continue;
    }
    const Time posted = std::clamp(cause.posted, from, until), arrived = std::clamp(cause.arrived, from, until);
    idle.imbalance += posted - from;
    idle.communication += arrived - posted;
    idle.stall += until - arrived;
  }
  return idle;
}

namespace {

// Sums the parts of the path by kind; the key also orders equal times.
class Parts {
 public:
  enum Type { Forward, Backward, Recompute, Update, Transfer, AllReduce, Waiting };

  void add(Type type, Time time, int a = 0, int b = 0) {
    if (time != Time{}) sums_[{type, a, b}] += time;
  }
  void add(const Op& op, StageId stage, Time time) {
    switch (op.kind) {
      case Kind::F: return add(Forward, time, stage);
      case Kind::R: return add(Recompute, time, stage);
      case Kind::Update: return add(Update, time, stage);
      default: return add(Backward, time, stage);
    }
  }
  std::vector<CriticalPart> longest_first() const {
    std::vector<CriticalPart> parts;
    for (const auto& [key, time] : sums_)
      parts.push_back({text(key), time, kind(std::get<0>(key))});
    std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.time > b.time; });
    return parts;
  }

 private:
  using Key = std::tuple<Type, int, int>;
  static CriticalPart::Class kind(Type type) {
    switch (type) {
      case Update: return CriticalPart::Class::Update;
      case Transfer: return CriticalPart::Class::Transfer;
      case AllReduce: return CriticalPart::Class::AllReduce;
      case Waiting: return CriticalPart::Class::Waiting;
      default: return CriticalPart::Class::Compute;
    }
  }
  static std::string text(const Key& key) {
    const auto [type, a, b] = key;
    const std::string stage = "stage " + std::to_string(a);
    switch (type) {
      case Forward: return "forward of " + stage;
      case Backward: return "backward of " + stage;
      case Recompute: return "recompute of " + stage;
      case Update: return "update of " + stage;
      case Transfer: return "transfer " + stage + " -> " + std::to_string(b);
      case AllReduce: return "all-reduce of " + stage;
      case Waiting: break;
    }
    return "waiting";
  }
  std::map<Key, Time> sums_;
};

// The walk back. It stands on an op of one stream of one worker and accounts for the time before `until`.
class WalkBack {
 public:
  WalkBack(const Causes& causes, const Timeline& timeline, const Schedule& schedule, const StepCosts& costs)
      : causes_(causes), timeline_(timeline), schedule_(schedule), costs_(costs) {}

  std::vector<CriticalPart> run() {
    Here here = last_op();
    while (settle(here)) {
      const Span& span = stream(here)[at(here.op)];
      const Op& op = list(here)[at(here.op)];
      const Time part = here.until - span.start;
      if (here.collective) {
        parts_.add(Parts::AllReduce, part, schedule_.shape.stage_of(op.virtual_stage));
      } else {
        parts_.add(op, stage_of(here.worker), part);
      }
      here = here.collective ? before_all_reduce(here, span.start) : before_op(here, span.start);
    }
    return parts_.longest_first();
  }

 private:
  StageId stage_of(WorkerId worker) const {
    return schedule_.seating().stage_at(static_cast<PositionId>(at(worker) % schedule_.positions.size()));
  }

  struct Here {
    WorkerId worker = 0;
    bool collective = false;  // on the collective stream
    int op = -1;              // -1: nothing before
    Time until;
  };

  const std::vector<Span>& stream(const Here& here) const {
    const LaneTimes& times = timeline_.workers[at(here.worker)];
    return here.collective ? times.collective : times.compute;
  }
  const std::vector<Op>& list(const Here& here) const {
    const Lane& lane = schedule_.positions[position(here.worker)];
    return here.collective ? lane.collective : lane.compute;
  }
  std::size_t position(WorkerId worker) const { return at(worker) % schedule_.positions.size(); }

  Here last_op() const {
    Here last{.until = timeline_.makespan};
    Time latest{-1};
    for (std::size_t worker = 0; worker < timeline_.workers.size(); ++worker) {
      for (const bool collective : {false, true}) {
        const auto& spans = collective ? timeline_.workers[worker].collective : timeline_.workers[worker].compute;
        if (spans.empty() || spans.back().end <= latest) continue;
        latest = spans.back().end;
        last.worker = static_cast<WorkerId>(worker);
        last.collective = collective;
        last.op = static_cast<int>(spans.size()) - 1;
      }
    }
    return last;
  }

  // Moves back to the op that ran before `until`; what lies between its end and `until` was waiting.
  bool settle(Here& here) {
    const auto& spans = stream(here);
    while (here.op >= 0 && spans[at(here.op)].start > here.until)
      --here.op;
    const Time end = here.op >= 0 ? spans[at(here.op)].end : Time{0};
    if (end < here.until) parts_.add(Parts::Waiting, here.until - end), here.until = end;
    return here.op >= 0;
  }

  // Keeps the candidate that comes later; the first of equals.
  static void keep_later(Here& best, const Here& candidate, Time start) {
    if (candidate.until <= start && candidate.until > best.until) best = candidate;
  }

  Here before_op(const Here& here, Time start) {
    Here best = here;
    best.op = here.op - 1;
    best.until = best.op >= 0 ? stream(here)[at(best.op)].end : Time{0};
    const Cause cause = causes_.of(here.worker, at(here.op));
    if (cause.kind == Cause::Kind::None || cause.arrived <= best.until || cause.arrived > start)
      return waited(best, start);
    if (cause.kind == Cause::Kind::AllReduce) {
      return waited({here.worker, true, static_cast<int>(cause.index), cause.arrived}, start);
    }
    const Transfer& transfer = timeline_.transfers[cause.index];
    const Edge& edge = costs_.edges[transfer.edge];
    const bool forward = transfer.direction == Direction::Forward;
    parts_.add(Parts::Waiting, start - cause.arrived);
    parts_.add(Parts::Transfer, transfer.arrived - transfer.posted, stage_of(transfer.from), stage_of(transfer.to));
    const int producer = forward ? causes_.index().forward(edge.from, transfer.micro_batch)
                                 : causes_.index().backward(edge.to, transfer.micro_batch);
    return {transfer.from, false, producer, transfer.posted};
  }

  // An all-reduce begins when every member's gradients are there and every member's collective stream is free.
  Here before_all_reduce(const Here& here, Time start) {
    const Op& op = list(here)[at(here.op)];
    Here best{.worker = here.worker, .until = Time{-1}};
    for (const WorkerId worker : holders(schedule_.seating(), op.virtual_stage)) {
      const auto member = static_cast<PositionId>(at(worker) % schedule_.positions.size());
      const LaneTimes& times = timeline_.workers[at(worker)];
      const int gradient = causes_.last_backward(member, op.virtual_stage, op.micro_batch);
      if (gradient >= 0) {
        const Op& last = schedule_.positions[at(member)].compute[at(gradient)];
        const Span& span = times.compute[at(gradient)];
        const Time ready = std::max(span.start, span.end - costs_.ready_before_end_of(last, op.bucket));
        keep_later(best, {worker, false, gradient, ready}, start);
      }
      if (here.op > 0) keep_later(best, {worker, true, here.op - 1, times.collective[at(here.op - 1)].end}, start);
    }
    if (best.until < Time{0}) best.until = Time{0};
    return waited(best, start);
  }

  Here waited(const Here& next, Time start) {
    parts_.add(Parts::Waiting, start - next.until);
    return next;
  }

  const Causes& causes_;
  const Timeline& timeline_;
  const Schedule& schedule_;
  const StepCosts& costs_;
  Parts parts_;
};

}  // namespace

std::vector<CriticalPart> critical_path(const Causes& causes, const Timeline& timeline, const Schedule& schedule,
                                        const StepCosts& costs) {
  return WalkBack(causes, timeline, schedule, costs).run();
}

}  // namespace pipewright
