#include "sim/event_order.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/cost/tensor_flows.hpp"
#include "core/folds.hpp"
#include "sim/event_engine.hpp"
#include "sim/run_length.hpp"

namespace pipewright::sim {
namespace {

constexpr std::size_t kMostPassed = 500'000'000;  // links by flows of ops: some minutes

}  // namespace

EventOrder::EventOrder(const Schedule& schedule, const StepCosts& costs, LinkUse links)
    : schedule_(schedule), costs_(costs), wiring_(schedule, costs) {
  prepare_legs();
  prepare_workers();
  if (links == LinkUse::Shared && !costs.links.empty()) prepare_links();
  if (costs.contention)
    contention_.emplace(workers_.size(), meetings_.size(),
                        Contention::Changes{[this](std::uint32_t w) { op_goes_on(w); },
                                            [this](std::uint32_t group) { phase_goes_on(group); }});
}

Timeline EventOrder::run() {
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    ready_next(w);
    for (StreamId s = 0; s < kStreams.size(); ++s)
      join(kStreams.size() * w + s);
  }
  while (true) {
    if ((links_ || contention_) && queue_.next_time() > queue_.now()) settle();
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
          .engine_reason = contention_ ? "collectives contend with computing"
                           : links_    ? "transfers share links"
                                       : "every transfer has its route alone"};
}

// ---- ops that exchange -----------------------------------------------------------------------------------------------

void EventOrder::exchange(std::uint32_t w, Exchanging half, Time time) {
  Worker& worker = workers_[w];
  worker.exchanging = half;
  route_weights_.clear();
  for (const auto& [link, weight] : costs_.tensor_flows->links[w])
    route_weights_.push_back({static_cast<std::uint32_t>(link), weight});
  const StepCosts::TensorFlows::Sent sent = costs_.sent_by(worker.ops[worker.op]);
  const double rate = sent.bytes / static_cast<double>(sent.time.value);
  start_flow({rate * static_cast<double>(time.value), Bandwidth{rate * 1e9}, time, about(What::OpEnds, w)}, {});
}

void EventOrder::exchange_starts(std::uint32_t w, Time sent) {
  Worker& worker = workers_[w];
  exchange(w, Exchanging::First, first_half(sent));
  if (worker.op == worker.trigger_op) trigger(w, times_[w].compute.back(), true);
  parts_within(w, std::min(first_half(sent), costs_.time_of(worker.ops[worker.op]) - Time{1}), {});
}

void EventOrder::exchange_ends(std::uint32_t w) {
  Worker& worker = workers_[w];
  const Op& op = worker.ops[worker.op];
  Span& span = times_[w].compute.back();
  if (worker.exchanging == Exchanging::Second) {
    span.end = now();
    parts_within(w, kNever, span.end - span.start - costs_.time_of(op));
    return end_op(w);
  }
  const Time sent = costs_.sent_by(op).time, late = now() - (span.start + first_half(sent));
  worker.exchanging = Exchanging::Computes;
  span.end = now() + costs_.time_of(op) - sent;
  queue_.push(span.end, Rank::Finish, about(What::OpEnds, w));
  parts_within(w, costs_.time_of(op) - Time{1}, late);
}

void EventOrder::computed_between_exchanges(std::uint32_t w) {
  const Time left = second_half(costs_.sent_by(workers_[w].ops[workers_[w].op]).time);
  if (left > Time{}) return exchange(w, Exchanging::Second, left);
  workers_[w].exchanging = Exchanging::Second;
  exchange_ends(w);
}

// What the op makes complete within so much of its work is so then, and so much later. What is complete before the end is not
// waited for because of the second half.
void EventOrder::parts_within(std::uint32_t w, Time work, Time late) {
  const Time start = times_[w].compute.back().start;
  std::erase_if(workers_[w].pending, [&](const Pending& part) {
    if (part.work > work) return false;
    part_ready(part.stream, part.communication, start + part.work + late);
    return true;
  });
}

// ---- preparation -----------------------------------------------------------------------------------------------------

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
                         .first_message = costs_.first_message[2 * edge + at(direction)],
                         .one_way = wiring_.chunks[from].one_holder() && wiring_.chunks[to].one_holder(),
                         .receiver = receiver,
                         .counter = first_counter(receiver, direction)});
      }
      first_leg_.push_back(legs_.size());
    }
}

void EventOrder::prepare_workers() {
  workers_.resize(at(wiring_.workers()));
  times_.resize(workers_.size());
  streams_.resize(kStreams.size() * workers_.size());
  meetings_.resize(kStreams.size() * wiring_.groups());
  channel_free_.resize(at(costs_.channels));
  for (PositionId position = 0; position < wiring_.positions; ++position)
    stream_links_.push_back(stream_links(schedule_, position));
  const std::size_t counters = wiring_.chunks.size() * 2 * at(wiring_.micro_batches);
  arrived_.resize(counters * at(wiring_.copies));
  std::size_t messages = 0;
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    Worker& worker = workers_[w];
    worker.ops = lane(w).compute.data();
    worker.ops_end = static_cast<std::uint32_t>(lane(w).compute.size());
    worker.copy = static_cast<CopyId>(w) / wiring_.positions;
    worker.first_counter = at(worker.copy) * counters;
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
  }
  transfers_.resize(messages);
  check_size();
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

void EventOrder::check_size() const {
  check_run_length(schedule_, costs_, wiring_.copies);
  if (std::max(transfers_.size(), streams_.size()) >> kSubjectBits != 0)
    throw InputError("the event queue holds at most 2^29 transfers, this schedule has " +
                     std::to_string(transfers_.size()) + "; use fewer micro-batches");
  std::size_t passed = 0;
  for (std::size_t w = 0; costs_.tensor_flows && w < workers_.size(); ++w)
    passed += workers_[w].ops_end * costs_.tensor_flows->links[w].size();
  if (passed > kMostPassed)
    throw InputError("plan.tensor_links: shared: the exchanges of all ops pass " + std::to_string(passed) +
                     " links, at most " + std::to_string(kMostPassed) +
                     " are simulated; use fewer micro-batches, or write alone");
}

void EventOrder::prepare_links() {
  auto capacity = mapped<Bandwidth>(costs_.links, &Link::bandwidth);
  links_.emplace(std::move(capacity), costs_.sharing == Sharing::Fifo ? LinkPolicy::Fifo : LinkPolicy::MaxMin);
  channels_.resize(at(costs_.channels));
  next_in_channel_.resize(transfers_.size());
}

Timeline event_order(const Schedule& schedule, const StepCosts& costs, LinkUse links) {
  return EventOrder(schedule, costs, links).run();
}

}  // namespace pipewright::sim
