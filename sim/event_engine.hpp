// One loop over events. Four kinds of thing happen, each in a section of its own below:
//
//   compute      an op ends, the next one of the stream starts once what it needs is there
//   messages     an op that ends posts its messages; each leaves, travels and arrives
//   links        with shared links, when a message leaves depends on who else is under way (sim/des/shared_link), and
//                so does when an op computes that begins with a flow of its tensor-parallel group
//   collectives  a member joins when its part is ready; the last one starts the collective for all
//
// Where collectives contend with computing (sim/contention), ends move while things run: an event of an end that has
// moved since is none.
//
// Times come out of the same rules as in sim/static_order, which knows no events; tests/sim/engines_agree_test.cpp
// holds the two against each other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "core/cost/cells.hpp"
#include "core/plan/schedule.hpp"
#include "sim/contention.hpp"
#include "sim/dependencies.hpp"
#include "sim/des/event_queue.hpp"
#include "sim/des/shared_link.hpp"
#include "sim/event_order.hpp"
#include "sim/stream_links.hpp"

namespace pipewright::sim {

class EventOrder {
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  // What an event says, and about which worker, message, or stream of a worker or group.
  enum class What : std::uint32_t {
    OpEnds,          // Finish, worker
    StepEnds,        // Finish, stream of a group: a phase of its collective is over
    MessageLeaves,   // Finish, message: its channel is free again
    FlowsEnd,        // Finish: flows over shared links are over
    MessageArrives,  // Arrive, message
    PartReady,       // Arrive, stream of a worker: its next collective may find the worker's part complete
    OpStarts,        // Start, worker
    MeetingStarts,   // Start, stream of a group: all members of its collective have joined
  };
  static constexpr int kSubjectBits = 29;
  static constexpr std::uint32_t about(What what, std::size_t subject) {
    return static_cast<std::uint32_t>(what) << kSubjectBits | static_cast<std::uint32_t>(subject);
  }

  // One direction of one edge, as seen from the virtual stage that sends.
  struct Leg {
    std::uint32_t edge = 0;
    Direction direction{};
    std::uint32_t first_message = 0;
    bool one_way = true;  // one holder on both ends: one message for all micro-batches
    VirtualStageId receiver = 0;
    std::size_t counter = 0;  // of the receiving virtual stage, within a copy
  };

  // What an op makes complete when so much of it is done.
  struct Pending {
    std::uint32_t stream = 0, communication = 0;  // of a worker; op of it
    Time work;
  };

  enum class Exchanging : std::uint8_t { No, First, Computes, Second };

  struct Worker {
    const Op* ops = nullptr;
    const StreamLinks* links = nullptr;
    std::uint32_t op = 0, ops_end = 0;
    std::uint32_t needed = 0;          // arrivals that `waits_for` must count
    std::uint32_t gate_op = kNone;     // the next op with a gate
    std::uint32_t trigger_op = kNone;  // the next op with a trigger
    std::uint32_t next_gate = 0, next_trigger = 0;
    std::size_t waits_for = kNowhere;  // counter of arrivals that the next op waits on
    std::size_t first_counter = 0;
    std::size_t next_message = 0;
    CopyId copy = 0;
    bool gated = false;            // idle until its communication streams have gone on
    Exchanging exchanging{};       // links shared: which part of its op runs
    std::vector<Pending> pending;  // contention, flows of ops: what its op makes complete
    static constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

    void find_gate() { gate_op = next_gate < links->gates.size() ? links->gates[next_gate].op : kNone; }
    void find_trigger() {
      trigger_op = next_trigger < links->triggers.size() ? links->triggers[next_trigger].op : kNone;
    }
  };

  // A communication stream of a worker.
  struct Stream {
    std::uint32_t next = 0;   // op
    bool joined = false;      // that op counts the worker as ready
    std::vector<Time> ready;  // per op: when the worker's part of it is complete; kNever: not known yet
  };

  // The collective that the members of a group are in, or gather for.
  struct Meeting {
    const Collective* what = nullptr;
    Op op;
    WorkerId worker = 0;  // who joined last
    int joined = 0;
    std::size_t step = 0;  // phase
    FlowId flow = 0;       // that it is
    Time start;
  };

  struct Channel {
    std::uint32_t first = kNone, last = kNone;  // messages posted and not sent, linked by `next_in_channel_`
    bool busy = false;
  };

 public:
  EventOrder(const Schedule& schedule, const StepCosts& costs, LinkUse links);
  Timeline run();

 private:
  const Lane& lane(std::size_t worker) const { return schedule_.lane_of(WorkerId{worker}); }
  Time now() const { return queue_.now(); }

  void handle(const Event& event) {
    const auto subject = event.what & ((std::uint32_t{1} << kSubjectBits) - 1);
    switch (static_cast<What>(event.what >> kSubjectBits)) {
      case What::OpEnds: return op_ends(subject);
      case What::StepEnds: return step_ends(subject);
      case What::MessageLeaves: return advance(depart(subject, transfers_[subject].start));
      case What::FlowsEnd: return flows_end();
      case What::MessageArrives: return message_arrives(subject);
      case What::PartReady: return join(subject);
      case What::OpStarts: return op_starts(subject);
      case What::MeetingStarts: return meeting_starts(subject);
    }
  }

  // Hundreds of lists grow side by side here, more than the processor's own prefetching follows: this hint saves about
  // a tenth of the run (bench_engines, private_links).
  static void fetch(const void* next) { __builtin_prefetch(next, 1); }
  static constexpr std::ptrdiff_t kAhead = 4;  // ops, about one cache line

  // --- compute -----------------------------------------------------------------------------------------------------

  void op_starts(std::uint32_t w) {
    Worker& worker = workers_[w];
    auto& spans = times_[w].compute;
    if (const std::span<const Op> cell = cell_of(costs_, next_ops(worker)); cell.size() > 1)
      return cell_starts(w, cell);
    const Time end = now() + costs_.time_of(worker.ops[worker.op]);
    spans.push_back({now(), end});
    if (links_ && costs_.tensor_flows)
      if (const Time sent = costs_.sent_by(worker.ops[worker.op]).time; sent > Time{}) return exchange_starts(w, sent);
    if (contention_)
      contention_->op_starts(w, now(), end - now(), slower_of(worker.ops[worker.op]));
    else
      queue_.push(end, Rank::Finish, about(What::OpEnds, w));
    fetch(&worker.ops[worker.op] + kAhead);
    fetch(spans.data() + spans.size() + kAhead);
    fetch(transfers_.data() + worker.next_message);
    if (worker.op == worker.trigger_op) trigger(w, {now(), end}, contention_.has_value());
  }

  // An op of a tensor-parallel group: half of what it exchanges, as one flow; then it computes; then the other half.
  void exchange(std::uint32_t w, Exchanging half, Time time);
  void exchange_starts(std::uint32_t w, Time sent);
  void exchange_ends(std::uint32_t w);
  void computed_between_exchanges(std::uint32_t w);
  void parts_within(std::uint32_t w, Time work, Time late);

  static std::span<const Op> next_ops(const Worker& worker) {
    return {worker.ops + worker.op, worker.ops + worker.ops_end};
  }

  // Its ops lie one behind the other in the timeline.
  void cell_starts(std::uint32_t w, std::span<const Op> cell) {
    Worker& worker = workers_[w];
    Time from = now();
    for (const Time end : ends_in_cell(costs_, cell)) {
      const Span span{from, now() + end};
      times_[w].compute.push_back(span);
      if (worker.op == worker.trigger_op) trigger(w, span, false);
      from = span.end, ++worker.op;
    }
    worker.op -= static_cast<std::uint32_t>(cell.size());
    if (contention_)
      contention_->op_starts(w, now(), from - now(), 1);
    else
      queue_.push(from, Rank::Finish, about(What::OpEnds, w));
  }

  double slower_of(const Op& op) const {
    return costs_.contention->computing[at(op.virtual_stage) * kKinds + at(static_cast<int>(op.kind))];
  }

  // Its rate has changed, or it has its first one.
  void op_goes_on(std::uint32_t w) {
    const Progress& op = contention_->op(w);
    queue_.push(op.end(), Rank::Finish, about(What::OpEnds, w));
    std::vector<Pending>& pending = workers_[w].pending;
    std::erase_if(pending,
                  [this](const Pending& part) { return streams_[part.stream].ready[part.communication] <= now(); });
    for (const Pending& part : pending)
      part_ready(part.stream, part.communication, op.reaches(part.work));
  }

  void op_ends(std::uint32_t w) {
    Worker& worker = workers_[w];
    if (worker.exchanging == Exchanging::Computes) return computed_between_exchanges(w);
    if (contention_) {
      if (!contention_->op_ends_at(w, now())) return;
      contention_->op_ends(w);
      worker.pending.clear();
      times_[w].compute.back().end = now();
    }
    end_op(w);
  }

  void end_op(std::uint32_t w) {
    Worker& worker = workers_[w];
    worker.exchanging = Exchanging::No;
    for (const Op& op : cell_of(costs_, next_ops(worker))) {
      ++worker.op;
      if (rule(op.kind).forward)
        post(w, op, Direction::Forward);
      else if (rule(op.kind).backward)
        post(w, op, Direction::Backward);
    }
    ready_next(w);
  }

  // Starts the next op of an idle worker, or notes what it waits for.
  void ready_next(std::size_t w) {
    Worker& worker = workers_[w];
    if (worker.op == worker.ops_end) return;
    if (worker.op == worker.gate_op && !passes_gates(w)) return;
    for (const Op& op : cell_of(costs_, next_ops(worker))) {
      const bool forward = rule(op.kind).forward;
      if (!forward && !rule(op.kind).backward) continue;
      const Wiring::Chunk& chunk = wiring_.chunks[op.virtual_stage];
      worker.needed = static_cast<std::uint32_t>(forward ? chunk.in.size() : chunk.out.size());
      const std::size_t counter = worker.first_counter +
                                  first_counter(op.virtual_stage, forward ? Direction::Forward : Direction::Backward) +
                                  op.micro_batch;
      if (arrived_[counter] < worker.needed) {
        worker.waits_for = counter;
        return;
      }
    }
    queue_.push(now(), Rank::Start, about(What::OpStarts, w));
  }

  // Whether the communication that the next op needs is over; else the worker is woken when more of it is.
  bool passes_gates(std::size_t w) {
    Worker& worker = workers_[w];
    for (; worker.gate_op == worker.op; ++worker.next_gate, worker.find_gate()) {
      const StreamLinks::Gate& gate = worker.links->gates[worker.next_gate];
      worker.gated = streams_[kStreams.size() * w + gate.stream].next < gate.count;
      if (worker.gated) return false;
    }
    return true;
  }

  // Arrivals are counted per (copy, virtual stage, direction, micro-batch).
  std::size_t first_counter(VirtualStageId v, Direction direction) const {
    return (at(v) * 2 + at(direction)) * at(wiring_.micro_batches);
  }

  void deliver(std::size_t w, std::size_t counter) {
    Worker& worker = workers_[w];
    const std::uint32_t count = ++arrived_[counter];
    if (worker.waits_for != counter || count < worker.needed) return;
    worker.waits_for = Worker::kNowhere;
    if (costs_.together) return ready_next(w);  // of a cell another op may wait, too
    queue_.push(now(), Rank::Start, about(What::OpStarts, w));
  }

  // --- messages ----------------------------------------------------------------------------------------------------

  std::span<const Leg> legs_of(VirtualStageId v, Direction direction) const {
    const std::size_t row = at(v) * 2 + at(direction);
    return std::span(legs_).subspan(first_leg_[row], first_leg_[row + 1] - first_leg_[row]);
  }

  const Message& message(const Leg& leg, CopyId copy, MicroBatchId m) const {
    if (!leg.one_way) return costs_.message(leg.edge, leg.direction, copy, m);
    const std::size_t index = leg.first_message + at(copy);
    return m + 1 == wiring_.micro_batches ? costs_.messages_last[index] : costs_.messages[index];
  }
  const Message& message(const Transfer& transfer) const {
    return costs_.message(transfer.edge, transfer.direction, transfer.from / wiring_.positions, transfer.micro_batch);
  }

  void post(std::uint32_t w, const Op& op, Direction direction) {
    Worker& worker = workers_[w];
    const auto m = static_cast<MicroBatchId>(op.micro_batch);
    for (const Leg& leg : legs_of(op.virtual_stage, direction)) {
      const Message& sent = message(leg, worker.copy, m);
      const WorkerId to = wiring_.worker_of(leg.receiver, worker.copy, m);
      if (sent.channel < 0) {
        deliver(at(to), worker.first_counter + leg.counter + op.micro_batch);
        continue;
      }
      const std::size_t index = worker.next_message++;
      Transfer& transfer = transfers_[index];
      transfer.edge = leg.edge;
      transfer.direction = direction;
      transfer.micro_batch = m;
      transfer.from = static_cast<WorkerId>(w);
      transfer.to = to;
      transfer.bytes = sent.bytes;
      transfer.posted = now();
      if (links_)
        enqueue(static_cast<std::uint32_t>(index), sent);
      else
        send_alone(index, sent);
    }
  }

  // Every transfer alone on its route: when it leaves and arrives is known as soon as it is posted.
  void send_alone(std::size_t index, const Message& sent) {
    Transfer& transfer = transfers_[index];
    Time& free = channel_free_[at(sent.channel)];
    transfer.start = std::max(now(), free);
    transfer.sent = free = transfer.start + sent.occupancy;
    transfer.arrived = transfer.sent + sent.latency;
    queue_.push(transfer.arrived, Rank::Arrive, about(What::MessageArrives, index));
  }

  void message_arrives(std::uint32_t index) {
    const Transfer& transfer = transfers_[index];
    const Edge& edge = costs_.edges[transfer.edge];
    const auto receiver = at(transfer.to);
    deliver(receiver,
            workers_[receiver].first_counter +
                first_counter(transfer.direction == Direction::Forward ? edge.to : edge.from, transfer.direction) +
                at(transfer.micro_batch));
  }

  // --- messages over shared links ----------------------------------------------------------------------------------

  void enqueue(std::uint32_t index, const Message& sent) {
    Channel& channel = channels_[at(sent.channel)];
    next_in_channel_[index] = kNone;
    (channel.first == kNone ? channel.first : next_in_channel_[channel.last]) = index;
    channel.last = index;
    if (!channel.busy) advance(channel);
  }

  // Sends the first message of an idle channel, if there is one.
  void advance(Channel& channel) {
    channel.busy = false;
    while (channel.first != kNone && !channel.busy) {
      const std::uint32_t index = channel.first;
      const Message& sent = message(transfers_[index]);
      if (travels_alone(sent) && sent.occupancy.value == 0) {
        depart(index, now());
        continue;
      }
      channel.busy = true;
      transfers_[index].start = now();
      if (travels_alone(sent)) {
        queue_.push(now() + sent.occupancy, Rank::Finish, about(What::MessageLeaves, index));
      } else {
        const Route& route = costs_.routes[at(sent.route)];
        const auto bytes = static_cast<double>(sent.bytes.value);
        const bool slower = sent.occupancy > transfer_time(bytes, route.bandwidth);
        const Bandwidth rate =
            slower ? Bandwidth{bytes / static_cast<double>(sent.occupancy.value) * 1e9} : route.bandwidth;
        start_flow(route, {bytes, rate, sent.occupancy, about(What::MessageLeaves, index)}, sent.latency);
      }
    }
  }

  bool travels_alone(const Message& sent) const {
    return sent.route < 0 || sent.bytes.value == 0 || !limited(costs_.routes[at(sent.route)]);
  }
  static bool limited(const Route& route) { return !route.links.empty() && route.bandwidth.value > 0; }

  // The message has left: notes when, and takes it off its channel, which is returned.
  Channel& depart(std::uint32_t index, Time start) {
    Transfer& transfer = transfers_[index];
    const Message& sent = message(transfer);
    transfer.start = start;
    transfer.sent = now();
    transfer.arrived = now() + sent.latency;
    queue_.push(transfer.arrived, Rank::Arrive, about(What::MessageArrives, index));
    Channel& channel = channels_[at(sent.channel)];
    channel.first = next_in_channel_[index];
    return channel;
  }

  // --- links -------------------------------------------------------------------------------------------------------

  void start_flow(const Route& route, const FlowDemand& demand, Time latency) {
    route_weights_.clear();
    for (const int link : route.links)
      route_weights_.push_back({static_cast<std::uint32_t>(link), 1});
    start_flow(demand, latency);
  }

  FlowId start_flow(const FlowDemand& demand, Time latency) {  // over route_weights_
    const FlowId flow = links_->start(now(), demand, route_weights_);
    if (flow >= flow_latency_.size()) flow_latency_.resize(flow + 1);
    flow_latency_[flow] = latency;
    return flow;
  }

  void settle() {
    if (contention_ && contention_->unsettled()) contention_->settle(now());
    if (!links_ || !links_->unsettled()) return;
    const Time next = links_->settle(now());
    if (next == wake_ || next == kNever) return;
    wake_ = next;
    queue_.push(next, Rank::Finish, about(What::FlowsEnd, 0));
  }

  // Rates may have changed since this event was planned: then nothing ends now.
  void flows_end() {
    if (wake_ == now()) wake_ = kNever;
    for (const SharedLinks::Done& done : links_->take_finished(now())) {
      const auto subject = done.owner & ((std::uint32_t{1} << kSubjectBits) - 1);
      switch (static_cast<What>(done.owner >> kSubjectBits)) {
        case What::MessageLeaves: advance(depart(subject, done.begin)); break;
        case What::OpEnds: exchange_ends(subject); break;
        default: wait_for_phase(subject, flow_latency_[done.flow]);
      }
    }
  }

  // --- collectives -------------------------------------------------------------------------------------------------

  // An op starts that lets ops of communication streams begin, at once or some time before it ends; which may move.
  void trigger(std::uint32_t w, Span op, bool may_move) {
    Worker& worker = workers_[w];
    for (; worker.trigger_op == worker.op; ++worker.next_trigger, worker.find_trigger()) {
      const StreamLinks::Trigger& link = worker.links->triggers[worker.next_trigger];
      const std::size_t stream = kStreams.size() * w + link.stream;
      const Time ready = link.ready(costs_, worker.ops[worker.op],
                                    lane(w).communication[link.stream][link.communication], op.start, op.end);
      if (may_move) {
        worker.pending.push_back({static_cast<std::uint32_t>(stream), link.communication, ready - op.start});
      } else {
        part_ready(static_cast<std::uint32_t>(stream), link.communication, ready);
      }
    }
  }

  void part_ready(std::uint32_t stream, std::uint32_t communication, Time ready) {
    streams_[stream].ready[communication] = ready;
    queue_.push(ready, Rank::Arrive, about(What::PartReady, stream));
  }

  // Joins the next collective of a worker's stream if the stream is idle and the worker's part is there.
  void join(std::size_t stream) {
    const std::size_t w = stream / kStreams.size(), s = stream % kStreams.size();
    Stream& of = streams_[stream];
    const auto& ops = lane(w).communication[s];
    if (of.joined || of.next == ops.size() || of.ready[of.next] > now()) return;
    bool ready = true;
    workers_[w].links->for_each_after(s, of.next, [&](const StreamLinks::After& after) {
      ready = ready && streams_[kStreams.size() * w + after.stream].next >= after.count;
    });
    if (!ready) return;
    of.joined = true;
    const Op& op = ops[of.next];
    const std::size_t group = kStreams.size() * wiring_.group(op, static_cast<WorkerId>(w)) + s;
    Meeting& meeting = meetings_[group];
    const Collective* const what = &costs_.collective(op, workers_[w].copy);
    PP_CHECK(meeting.joined == 0 || meeting.what == what);  // all members run them in one order
    meeting.what = what;
    meeting.op = op;
    meeting.worker = static_cast<WorkerId>(w);
    if (++meeting.joined == wiring_.members(op)) queue_.push(now(), Rank::Start, about(What::MeetingStarts, group));
  }

  void meeting_starts(std::uint32_t group) {
    Meeting& meeting = meetings_[group];
    meeting.start = now();
    meeting.step = 0;
    if (contends(group)) {
      std::vector<std::uint32_t> members;
      for_each_member(group, [&](std::size_t w) { members.push_back(static_cast<std::uint32_t>(w)); });
      contention_->meeting_starts(group, std::move(members), costs_.contention->collectives[meeting.op.virtual_stage]);
    }
    begin_step(group);
  }

  bool contends(std::uint32_t group) const { return contention_ && kStreams[group % kStreams.size()].kernels; }

  void phase_goes_on(std::uint32_t group) {
    if (const auto& phase = contention_->phase(group))
      queue_.push(phase->end(), Rank::Finish, about(What::StepEnds, group));
    else
      links_->slow(meetings_[group].flow, contention_->slower(group));
  }

  void wait_for_phase(std::uint32_t group, Time time) {
    if (contends(group))
      contention_->phase_starts(group, now(), time);
    else
      queue_.push(now() + time, Rank::Finish, about(What::StepEnds, group));
  }

  void step_ends(std::uint32_t group) {
    if (contends(group) && !contention_->phase_ends_at(group, now())) return;
    ++meetings_[group].step;
    begin_step(group);
  }

  void begin_step(std::uint32_t group) {
    const Meeting& meeting = meetings_[group];
    const Collective& what = *meeting.what;
    const bool whole = !links_ || what.phases.empty();
    if (meeting.step == (whole ? 1 : what.phases.size())) return meeting_ends(group);
    if (whole)
      wait_for_phase(group, what.time);
    else
      begin_phase(what.phases[meeting.step], group);
  }

  void begin_phase(const CollectivePhase& phase, std::uint32_t group) {
    if (phase.links.empty() || phase.rate.value == 0 || phase.bytes == 0) return wait_for_phase(group, phase.time);
    route_weights_.clear();
    for (const auto& [link, weight] : phase.links)
      route_weights_.push_back({static_cast<std::uint32_t>(link), weight});
    meetings_[group].flow =
        start_flow({phase.bytes, phase.rate, phase.time - phase.latency, about(What::StepEnds, group)}, phase.latency);
    if (contends(group)) contention_->flow_starts(group);
  }

  void meeting_ends(std::uint32_t group) {
    Meeting& meeting = meetings_[group];
    const Span span{meeting.start, now()};
    meeting.joined = 0;
    if (contends(group)) contention_->meeting_ends(group);
    const StreamId s = group % kStreams.size();
    for_each_member(group, [&](std::size_t w) {
      Stream& stream = streams_[kStreams.size() * w + s];
      times_[w].communication[s].push_back(span);
      stream.joined = false;
      ++stream.next;
      if (std::exchange(workers_[w].gated, false)) ready_next(w);
      join(kStreams.size() * w + s);
      for (StreamId other = 0; other < kStreams.size(); ++other)
        if (!workers_[w].links->after[other].empty()) join(kStreams.size() * w + other);
    });
  }

  template <class Do>
  void for_each_member(std::uint32_t group, const Do& act) const {
    const auto [op, worker] = std::pair{meetings_[group].op, meetings_[group].worker};  // `act` may begin another one
    wiring_.for_each_member(op, worker, [&](WorkerId member) { act(at(member)); });
  }

  // --- preparation -------------------------------------------------------------------------------------------------

  void prepare_legs();
  void prepare_workers();
  void prepare_links();
  std::size_t messages_sent(std::size_t w) const;
  void check_size() const;

  const Schedule& schedule_;
  const StepCosts& costs_;
  const Wiring wiring_;
  EventQueue queue_;
  std::vector<Worker> workers_;
  std::vector<LaneTimes> times_;
  std::vector<StreamLinks> stream_links_;  // by position
  std::vector<Stream> streams_;            // by worker and stream
  std::vector<std::uint16_t> arrived_;     // by counter
  std::vector<Leg> legs_;
  std::vector<std::size_t> first_leg_;  // [2 * virtual stage + direction]
  std::vector<Transfer> transfers_;
  std::vector<Time> channel_free_;  // links private
  std::vector<Meeting> meetings_;   // by group and stream

  std::optional<SharedLinks> links_;
  std::vector<Channel> channels_;
  std::vector<std::uint32_t> next_in_channel_;  // by message
  std::vector<Time> flow_latency_;              // by FlowId
  std::vector<LinkWeight> route_weights_;       // scratch
  Time wake_ = kNever;                          // of the FlowsEnd event planned last
  std::optional<Contention> contention_;
};

}  // namespace pipewright::sim
