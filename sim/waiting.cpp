#include "sim/waiting.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/ids.hpp"
#include "sim/dependencies.hpp"

namespace pipewright::sim {

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
  if (costs.together) join_cells();
  for (PositionId position = 0; position < std::ssize(schedule.positions); ++position) {
    Links& links = links_.emplace_back(stream_links(schedule, position));
    for (StreamId s = 0; s < kStreams.size(); ++s)
      links.trigger[s].assign(links.all.waits[s].size(), -1);
    for (std::size_t i = 0; i < links.all.triggers.size(); ++i) {
      const StreamLinks::Trigger& one = links.all.triggers[i];
      links.trigger[one.stream][one.communication] = static_cast<std::int32_t>(i);
    }
  }
}

// The first op of a cell waits for what any of them needs, the others for nothing.
void Causes::join_cells() {
  for (WorkerId worker = 0; worker < std::ssize(timeline_.workers); ++worker) {
    const auto& ops = schedule_.lane_of(worker).compute;
    for (std::size_t i = ops.size(); i-- > 1;) {
      if (!ops[i - 1].with_next) continue;
      std::int32_t &own = transfer_[first_op_[worker] + i], &first = transfer_[first_op_[worker] + i - 1];
      const auto arrived = [&](std::int32_t one) { return one < 0 ? Time{-1} : timeline_.transfers[at(one)].arrived; };
      if (arrived(own) > arrived(first)) first = own;
      own = -1;
    }
  }
}

const StreamLinks::Trigger* Causes::trigger(PositionId position, StreamId stream, std::size_t communication) const {
  const Links& links = links_[at(position)];
  const std::int32_t i = links.trigger[stream][communication];
  return i < 0 ? nullptr : &links.all.triggers[at(i)];
}

Cause Causes::of(WorkerId worker, std::size_t op) const {
  Cause last;
  if (const std::int32_t i = transfer_[first_op_[at(worker)] + op]; i >= 0) {
    const Transfer& transfer = timeline_.transfers[at(i)];
    last = {Cause::Kind::Message, at(i), transfer.posted, transfer.arrived};
  }
  const auto& gates = links_[at(worker) % links_.size()].all.gates;
  auto gate = std::ranges::lower_bound(gates, op, {}, &StreamLinks::Gate::op);
  for (; gate != gates.end() && gate->op == op; ++gate) {
    const auto& spans = timeline_.workers[worker].communication[gate->stream];
    std::size_t first = gate->count - 1;
    if (last.kind != Cause::Kind::None && spans[first].end <= last.arrived) continue;
    while (first > 0 && spans[first - 1].end == spans[first].start)
      --first;
    last = {Cause::Kind::Collective, gate->count - 1, spans[first].start, spans[gate->count - 1].end, gate->stream};
  }
  return last;
}

IdleSplit idle_split(const Causes& causes, const Timeline& timeline, WorkerId worker) {
  const auto& spans = timeline.workers[worker].compute;
  IdleSplit idle;
  if (spans.empty()) {
    idle.fill = timeline.makespan;
    return idle;
  }
  idle.fill = spans.front().start;
  const auto& gathers = timeline.workers[worker].communication[kGathers];
  const Time end = gathers.empty() ? spans.back().end : std::max(spans.back().end, gathers.back().end);
  idle.communication = end - spans.back().end;  // of weights, behind the last update
  idle.drain = timeline.makespan - end;
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
  enum Type { Forward, Backward, Recompute, Update, Transfer, Collective, Waiting };
  // `b` of Collective: the op's kind, or this one of a Store that the host adds to others.
  static constexpr int kAdded = kKinds;

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
      parts.push_back({text(key), time, kind(key)});
    std::ranges::stable_sort(parts, [](const auto& a, const auto& b) { return a.time > b.time; });
    return parts;
  }

 private:
  using Key = std::tuple<Type, int, int>;
  static CriticalPart::Class kind(const Key& key) {
    switch (std::get<0>(key)) {
      case Update: return CriticalPart::Class::Update;
      case Transfer: return CriticalPart::Class::Transfer;
      case Collective:
        if (std::get<2>(key) == kAdded) return CriticalPart::Class::Add;
        switch (static_cast<Kind>(std::get<2>(key))) {
          case Kind::AllReduce:
          case Kind::TableReduce:
          case Kind::NormReduce: return CriticalPart::Class::AllReduce;
          case Kind::AllGather: return CriticalPart::Class::AllGather;
          case Kind::Offload: return CriticalPart::Class::Offload;
          case Kind::Fetch: return CriticalPart::Class::Fetch;
          case Kind::Store: return CriticalPart::Class::Store;
          default: return CriticalPart::Class::Reload;
        }
      case Waiting: return CriticalPart::Class::Waiting;
      default: return CriticalPart::Class::Compute;
    }
  }
  static std::string_view words(int kind) {
    return kind == kAdded ? "gradients to the host, added there," : rule(static_cast<Kind>(kind)).words;
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
      case Collective: return std::string(words(b)) + (a < 0 ? "" : " of " + stage);
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
      if (here.stream == kCompute) {
        parts_.add(op, stage_of(here.worker), part);
        here = before_op(here, span.start);
      } else {
        const bool added = op.kind == Kind::Store && op.bucket == 1;
        const Among among = kStreams[here.stream].among;
        const bool of_several = among == Among::Tied || among == Among::All;
        parts_.add(Parts::Collective, part, of_several ? StageId{-1} : schedule_.shape.stage_of(op.virtual_stage),
                   added ? Parts::kAdded : static_cast<int>(op.kind));
        here = before_collective(here, span.start);
      }
    }
    return parts_.longest_first();
  }

 private:
  StageId stage_of(WorkerId worker) const { return schedule_.seating().stage_at(schedule_.position_of(worker)); }

  struct Here {
    WorkerId worker = 0;
    StreamId stream = kCompute;
    int op = -1;  // -1: nothing before
    Time until;
  };

  const std::vector<Span>& stream(const Here& here) const {
    const LaneTimes& times = timeline_.workers[here.worker];
    return here.stream == kCompute ? times.compute : times.communication[here.stream];
  }
  const std::vector<Op>& list(const Here& here) const {
    const Lane& lane = schedule_.lane_of(here.worker);
    return here.stream == kCompute ? lane.compute : lane.communication[here.stream];
  }

  Here last_op() const {
    Here last{.until = timeline_.makespan};
    Time latest{-1};
    for (std::size_t worker = 0; worker < timeline_.workers.size(); ++worker)
      for (std::size_t i = 0; i <= kStreams.size(); ++i) {
        const StreamId of = i == 0 ? kCompute : i - 1;
        const auto& spans = stream({.worker = static_cast<WorkerId>(worker), .stream = of});
        if (spans.empty() || spans.back().end <= latest) continue;
        latest = spans.back().end;
        last.worker = static_cast<WorkerId>(worker);
        last.stream = of;
        last.op = static_cast<int>(spans.size()) - 1;
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
    if (cause.kind == Cause::Kind::Collective)
      return waited({here.worker, StreamId{cause.stream}, static_cast<int>(cause.index), cause.arrived}, start);
    const Transfer& transfer = timeline_.transfers[cause.index];
    const Edge& edge = costs_.edges[transfer.edge];
    const bool forward = transfer.direction == Direction::Forward;
    parts_.add(Parts::Waiting, start - cause.arrived);
    parts_.add(Parts::Transfer, transfer.arrived - transfer.posted, stage_of(transfer.from), stage_of(transfer.to));
    int producer = forward ? causes_.index().forward(edge.from, transfer.micro_batch)
                           : causes_.index().backward(edge.to, transfer.micro_batch);
    const auto& ops = schedule_.lane_of(transfer.from).compute;
    while (costs_.together && ops[at(producer)].with_next)
      ++producer;  // what is sent leaves when the cell ends
    return {transfer.from, kCompute, producer, transfer.posted};
  }

  // A collective begins when every member's part is there and every member's stream is free.
  Here before_collective(const Here& here, Time start) {
    const Op& op = list(here)[at(here.op)];
    Here best{.worker = here.worker, .until = Time{-1}};
    for (const WorkerId worker : members(here.worker, op)) {
      const PositionId member = schedule_.position_of(worker);
      const auto own = place(worker, here.stream, here.op, op);
      const LaneTimes& times = timeline_.workers[worker];
      if (const auto* trigger = causes_.trigger(member, here.stream, at(own))) {
        const Span& span = times.compute[trigger->op];
        const Op& last = schedule_.positions[member].compute[trigger->op];
        Time ready = trigger->ready(costs_, last, op, span.start, span.end);
        if (costs_.contention || costs_.tensor_flows)
          ready = std::min(ready, start);  // the end of an op that was slowed later says too much
        keep_later(best, {worker, kCompute, static_cast<int>(trigger->op), ready}, start);
      }
      if (own > 0)
        keep_later(best, {worker, here.stream, own - 1, stream({worker, here.stream})[at(own - 1)].end}, start);
      causes_.links(member).for_each_after(here.stream, at(own), [&](const StreamLinks::After& after) {
        const Here other{worker, after.stream, static_cast<int>(after.count) - 1, {}};
        keep_later(best, {other.worker, other.stream, other.op, stream(other)[at(other.op)].end}, start);
      });
    }
    if (best.until < Time{0}) best.until = Time{0};
    return waited(best, start);
  }

  // Where a member has the op: all have one list, but of tables each has those that it holds.
  int place(WorkerId worker, StreamId of, int here, const Op& op) const {
    if (kStreams[of].among != Among::Tied) return here;
    const std::vector<Op>& ops = schedule_.lane_of(worker).communication[of];
    return static_cast<int>(std::ranges::find(ops, op.bucket, [](const Op& one) { return one.bucket; }) - ops.begin());
  }
  std::vector<WorkerId> members(WorkerId worker, const Op& op) const {
    std::vector<WorkerId> all;
    wiring_.for_each_member(op, worker, [&all](WorkerId one) { all.push_back(one); });
    return all;
  }

  Here waited(const Here& next, Time start) {
    parts_.add(Parts::Waiting, start - next.until);
    return next;
  }

  const Causes& causes_;
  const Timeline& timeline_;
  const Schedule& schedule_;
  const StepCosts& costs_;
  const Wiring wiring_{schedule_, costs_};
  Parts parts_;
};

}  // namespace

std::vector<CriticalPart> critical_path(const Causes& causes, const Timeline& timeline, const Schedule& schedule,
                                        const StepCosts& costs) {
  return WalkBack(causes, timeline, schedule, costs).run();
}

}  // namespace pipewright::sim
