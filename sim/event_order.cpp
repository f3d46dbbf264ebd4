// One loop over events. Four kinds of thing happen, each in a section of its own below:
//
//   compute      an op ends, the next one of the stream starts once what it needs is there
//   messages     an op that ends posts its messages; each leaves, travels and arrives
//   links        with shared links, when a message leaves depends on who else is under way (sim/des/shared_link)
//   collectives  a member joins when its part is ready; the last one starts the collective for all
//
// Times come out of the same rules as in sim/static_order, which knows no events; tests/sim/engines_agree_test.cpp
// holds the two against each other.
#include "sim/event_order.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "core/cost/cells.hpp"
#include "sim/dependencies.hpp"
#include "sim/des/event_queue.hpp"
#include "sim/des/shared_link.hpp"
#include "sim/stream_links.hpp"

namespace pipewright::sim {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

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
constexpr int kSubjectBits = 29;
constexpr std::uint32_t about(What what, std::size_t subject) {
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
  bool gated = false;  // idle until its communication streams have gone on
  static constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

  void find_gate() { gate_op = next_gate < links->gates.size() ? links->gates[next_gate].op : kNone; }
  void find_trigger() { trigger_op = next_trigger < links->triggers.size() ? links->triggers[next_trigger].op : kNone; }
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
  VirtualStageId chunk = 0;
  WorkerId worker = 0;  // who joined last
  int joined = 0;
  std::size_t step = 0;  // phase
  Time start;
};

struct Channel {
  std::uint32_t first = kNone, last = kNone;  // messages posted and not sent, linked by `next_in_channel_`
  bool busy = false;
};

class EventOrder {
 public:
  EventOrder(const Schedule& schedule, const StepCosts& costs, LinkUse links)
      : schedule_(schedule), costs_(costs), wiring_(schedule, costs) {
    prepare_legs();
    prepare_workers();
    if (links == LinkUse::Shared && !costs.links.empty()) prepare_links();
  }

  Timeline run() {
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      ready_next(w);
      for (StreamId s = 0; s < kStreams.size(); ++s)
        join(kStreams.size() * w + s);
    }
    while (true) {
      if (links_ && links_->unsettled() && queue_.next_time() > queue_.now()) settle();
      if (queue_.empty()) break;
      handle(queue_.pop());
    }
    Time makespan;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      PP_CHECK(workers_[w].op == workers_[w].ops_end);
      if (!times_[w].compute.empty()) makespan = std::max(makespan, times_[w].compute.back().end);
      for (StreamId s = 0; s < kStreams.size(); ++s) {
        const std::vector<Span>& spans = times_[w].communication[s];
        PP_CHECK(spans.size() == lane(w).communication[s].size());
        if (!spans.empty()) makespan = std::max(makespan, spans.back().end);
      }
    }
    return {.workers = std::move(times_),
            .transfers = std::move(transfers_),
            .makespan = makespan,
            .engine = EngineRan::EventQueue,
            .engine_reason = links_ ? "transfers share links" : "every transfer has its route alone"};
  }

 private:
  const Lane& lane(std::size_t worker) const { return schedule_.positions[worker % schedule_.positions.size()]; }
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
    queue_.push(end, Rank::Finish, about(What::OpEnds, w));
    fetch(&worker.ops[worker.op] + kAhead);
    fetch(spans.data() + spans.size() + kAhead);
    fetch(transfers_.data() + worker.next_message);
    if (worker.op == worker.trigger_op) trigger(w, {now(), end});
  }

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
      if (worker.op == worker.trigger_op) trigger(w, span);
      from = span.end, ++worker.op;
    }
    worker.op -= static_cast<std::uint32_t>(cell.size());
    queue_.push(from, Rank::Finish, about(What::OpEnds, w));
  }

  void op_ends(std::uint32_t w) {
    Worker& worker = workers_[w];
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
    return (static_cast<std::size_t>(v) * 2 + static_cast<std::size_t>(direction)) *
           static_cast<std::size_t>(wiring_.micro_batches);
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
    const std::size_t row = static_cast<std::size_t>(v) * 2 + static_cast<std::size_t>(direction);
    return std::span(legs_).subspan(first_leg_[row], first_leg_[row + 1] - first_leg_[row]);
  }

  const Message& message(const Leg& leg, CopyId copy, MicroBatchId m) const {
    if (!leg.one_way) return costs_.message(leg.edge, leg.direction, copy, m);
    const std::size_t index = leg.first_message + static_cast<std::size_t>(copy);
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
        deliver(static_cast<std::size_t>(to), worker.first_counter + leg.counter + op.micro_batch);
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
    Time& free = channel_free_[static_cast<std::size_t>(sent.channel)];
    transfer.start = std::max(now(), free);
    transfer.sent = free = transfer.start + sent.occupancy;
    transfer.arrived = transfer.sent + sent.latency;
    queue_.push(transfer.arrived, Rank::Arrive, about(What::MessageArrives, index));
  }

  void message_arrives(std::uint32_t index) {
    const Transfer& transfer = transfers_[index];
    const Edge& edge = costs_.edges[transfer.edge];
    const auto receiver = static_cast<std::size_t>(transfer.to);
    deliver(receiver,
            workers_[receiver].first_counter +
                first_counter(transfer.direction == Direction::Forward ? edge.to : edge.from, transfer.direction) +
                static_cast<std::size_t>(transfer.micro_batch));
  }

  // --- messages over shared links ----------------------------------------------------------------------------------

  void enqueue(std::uint32_t index, const Message& sent) {
    Channel& channel = channels_[static_cast<std::size_t>(sent.channel)];
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
        const Route& route = costs_.routes[static_cast<std::size_t>(sent.route)];
        const auto bytes = static_cast<double>(sent.bytes.value);
        const bool slower = sent.occupancy > transfer_time(bytes, route.bandwidth);
        const Bandwidth rate =
            slower ? Bandwidth{bytes / static_cast<double>(sent.occupancy.value) * 1e9} : route.bandwidth;
        start_flow(route, {bytes, rate, sent.occupancy, about(What::MessageLeaves, index)}, sent.latency);
      }
    }
  }

  bool travels_alone(const Message& sent) const {
    return sent.route < 0 || sent.bytes.value == 0 || !limited(costs_.routes[static_cast<std::size_t>(sent.route)]);
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
    Channel& channel = channels_[static_cast<std::size_t>(sent.channel)];
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

  void start_flow(const FlowDemand& demand, Time latency) {  // over route_weights_
    const FlowId flow = links_->start(now(), demand, route_weights_);
    if (flow >= flow_latency_.size()) flow_latency_.resize(flow + 1);
    flow_latency_[flow] = latency;
  }

  void settle() {
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
      if (static_cast<What>(done.owner >> kSubjectBits) == What::MessageLeaves)
        advance(depart(subject, done.begin));
      else
        queue_.push(now() + flow_latency_[done.flow], Rank::Finish, done.owner);
    }
  }

  // --- collectives -------------------------------------------------------------------------------------------------

  // An op starts that lets ops of communication streams begin, at once or some time before it ends.
  void trigger(std::uint32_t w, Span op) {
    Worker& worker = workers_[w];
    for (; worker.trigger_op == worker.op; ++worker.next_trigger, worker.find_trigger()) {
      const StreamLinks::Trigger& link = worker.links->triggers[worker.next_trigger];
      const std::size_t stream = kStreams.size() * w + link.stream;
      const Time ready = link.ready(costs_, worker.ops[worker.op],
                                    lane(w).communication[link.stream][link.communication], op.start, op.end);
      streams_[stream].ready[link.communication] = ready;
      queue_.push(ready, Rank::Arrive, about(What::PartReady, stream));
    }
  }

  // Joins the next collective of a worker's stream if the stream is idle and the worker's part is there.
  void join(std::size_t stream) {
    const std::size_t w = stream / kStreams.size(), s = stream % kStreams.size();
    Stream& of = streams_[stream];
    const auto& ops = lane(w).communication[s];
    if (of.joined || of.next == ops.size() || of.ready[of.next] > now()) return;
    if (const auto& after = workers_[w].links->after[s]; !after.empty())
      if (streams_[kStreams.size() * w + after[of.next].stream].next < after[of.next].count) return;
    of.joined = true;
    const Op& op = ops[of.next];
    const std::size_t group = group_of(w, s, op.virtual_stage);
    Meeting& meeting = meetings_[group];
    const Collective* const what = &costs_.collective(op, workers_[w].copy);
    PP_CHECK(meeting.joined == 0 || meeting.what == what);  // all members run them in one order
    meeting.what = what;
    meeting.chunk = op.virtual_stage;
    meeting.worker = static_cast<WorkerId>(w);
    if (++meeting.joined == wiring_.members(s, op.virtual_stage))
      queue_.push(now(), Rank::Start, about(What::MeetingStarts, group));
  }

  // Groups of chunks come first, then those of one worker.
  std::size_t group_of(std::size_t w, StreamId s, VirtualStageId v) const {
    const auto groups = at(schedule_.shape.stages);
    return kStreams.size() * (kStreams[s].alone ? groups + w : at(wiring_.chunks[v].group)) + s;
  }

  void meeting_starts(std::uint32_t group) {
    Meeting& meeting = meetings_[group];
    meeting.start = now();
    meeting.step = 0;
    begin_step(group);
  }

  void step_ends(std::uint32_t group) {
    ++meetings_[group].step;
    begin_step(group);
  }

  void begin_step(std::uint32_t group) {
    const Meeting& meeting = meetings_[group];
    const Collective& what = *meeting.what;
    const bool whole = !links_ || what.phases.empty();
    if (meeting.step == (whole ? 1 : what.phases.size())) return meeting_ends(group);
    if (whole)
      queue_.push(now() + what.time, Rank::Finish, about(What::StepEnds, group));
    else
      begin_phase(what.phases[meeting.step], about(What::StepEnds, group));
  }

  void begin_phase(const CollectivePhase& phase, std::uint32_t owner) {
    if (phase.links.empty() || phase.rate.value == 0 || phase.bytes == 0) {
      queue_.push(now() + phase.time, Rank::Finish, owner);
      return;
    }
    route_weights_.clear();
    for (const auto& [link, weight] : phase.links)
      route_weights_.push_back({static_cast<std::uint32_t>(link), weight});
    start_flow({phase.bytes, phase.rate, phase.time - phase.latency, owner}, phase.latency);
  }

  void meeting_ends(std::uint32_t group) {
    Meeting& meeting = meetings_[group];
    const Span span{meeting.start, now()};
    meeting.joined = 0;
    const StreamId s = group % kStreams.size();
    wiring_.for_each_member(s, meeting.chunk, meeting.worker, [&](WorkerId member) {
      const auto w = static_cast<std::size_t>(member);
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

  // --- preparation -------------------------------------------------------------------------------------------------

  void prepare_legs();
  void prepare_workers();
  void prepare_links();
  std::size_t messages_sent(std::size_t w) const;
  void check_size(double longest) const;

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
};

void EventOrder::prepare_legs() {
  first_leg_.push_back(0);
  for (std::size_t v = 0; v < wiring_.chunks.size(); ++v)
    for (const Direction direction : {Direction::Forward, Direction::Backward}) {
      const auto& edges = direction == Direction::Forward ? wiring_.chunks[v].out : wiring_.chunks[v].in;
      for (const std::uint32_t edge : edges) {
        const auto [from, to] = costs_.edges[edge];
        const VirtualStageId receiver = direction == Direction::Forward ? to : from;
        legs_.push_back({.edge = edge,
                         .direction = direction,
                         .first_message = costs_.first_message[2 * edge + static_cast<std::size_t>(direction)],
                         .one_way = wiring_.chunks[from].one_holder() && wiring_.chunks[to].one_holder(),
                         .receiver = receiver,
                         .counter = first_counter(receiver, direction)});
      }
      first_leg_.push_back(legs_.size());
    }
}

void EventOrder::prepare_workers() {
  workers_.resize(static_cast<std::size_t>(wiring_.workers()));
  times_.resize(workers_.size());
  streams_.resize(kStreams.size() * workers_.size());
  meetings_.resize(kStreams.size() * (at(schedule_.shape.stages) + workers_.size()));
  channel_free_.resize(static_cast<std::size_t>(costs_.channels));
  for (PositionId position = 0; position < wiring_.positions; ++position)
    stream_links_.push_back(stream_links(schedule_, position));
  const std::size_t counters = wiring_.chunks.size() * 2 * static_cast<std::size_t>(wiring_.micro_batches);
  arrived_.resize(counters * static_cast<std::size_t>(wiring_.copies));
  std::size_t messages = 0;
  double busy = 0;  // of all workers one after the other: no makespan without shared links is longer
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    Worker& worker = workers_[w];
    worker.ops = lane(w).compute.data();
    worker.ops_end = static_cast<std::uint32_t>(lane(w).compute.size());
    worker.copy = static_cast<CopyId>(w) / wiring_.positions;
    worker.first_counter = static_cast<std::size_t>(worker.copy) * counters;
    worker.next_message = messages;
    messages += messages_sent(w);
    times_[w].compute.reserve(lane(w).compute.size());
    worker.links = &stream_links_[w % stream_links_.size()];
    worker.find_gate(), worker.find_trigger();
    for (StreamId s = 0; s < kStreams.size(); ++s) {
      times_[w].communication[s].reserve(lane(w).communication[s].size());
      for (const char waits : worker.links->waits[s])
        streams_[kStreams.size() * w + s].ready.push_back(waits ? kNever : Time{0});
    }
    for (const Op& op : lane(w).compute)
      busy += static_cast<double>(costs_.time_of(op).value);
    if (costs_.together && costs_.together->pair)
      busy += static_cast<double>(costs_.together->pair->value) * static_cast<double>(lane(w).compute.size());
  }
  transfers_.resize(messages);
  check_size(busy);
}

// Counts the messages that a worker sends to others; what stays on the worker is no transfer.
std::size_t EventOrder::messages_sent(std::size_t w) const {
  std::size_t count = 0;
  for (const Op& op : lane(w).compute) {
    const bool forward = rule(op.kind).forward;
    if (!forward && !rule(op.kind).backward) continue;
    for (const Leg& leg : legs_of(op.virtual_stage, forward ? Direction::Forward : Direction::Backward))
      count += message(leg, workers_[w].copy, static_cast<MicroBatchId>(op.micro_batch)).channel >= 0 ? 1 : 0;
  }
  return count;
}

void EventOrder::check_size(double busy) const {
  double longest = busy;
  for (const auto* messages : {&costs_.messages, &costs_.messages_last})
    for (const Message& sent : *messages)
      longest += static_cast<double>((sent.occupancy + sent.latency).value) * wiring_.micro_batches;
  for (PositionId position = 0; position < wiring_.positions; ++position)
    for (const auto& stream : schedule_.positions[at(position)].communication)
      for (const Op& op : stream)
        if (wiring_.chunks[op.virtual_stage].first == position)  // its members run it together
          longest += static_cast<double>(costs_.collective(op, 0).time.value);
  rounded(longest, "the time of a run");
  if (std::max(transfers_.size(), streams_.size()) >> kSubjectBits != 0)
    throw InputError("the event queue holds at most 2^29 transfers, this schedule has " +
                     std::to_string(transfers_.size()) + "; use fewer micro-batches");
}

void EventOrder::prepare_links() {
  std::vector<Bandwidth> capacity;
  for (const Link& link : costs_.links)
    capacity.push_back(link.bandwidth);
  links_.emplace(std::move(capacity), costs_.sharing == Sharing::Fifo ? LinkPolicy::Fifo : LinkPolicy::MaxMin);
  channels_.resize(static_cast<std::size_t>(costs_.channels));
  next_in_channel_.resize(transfers_.size());
}

}  // namespace

Timeline event_order(const Schedule& schedule, const StepCosts& costs, LinkUse links) {
  return EventOrder(schedule, costs, links).run();
}

}  // namespace pipewright::sim
