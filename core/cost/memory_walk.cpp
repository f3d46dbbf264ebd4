// What a worker holds, op by op: the walk (no clock), the same ops on the clock of a timeline with the buffers between
// them (series), and the peaks of all workers.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "core/cost/memory_ledger.hpp"
#include "core/cost/memory_model.hpp"
#include "core/plan/op_index.hpp"

namespace pipewright::core {
namespace {

constexpr std::size_t slot_of(int number) {
  return static_cast<std::size_t>(number);
}

// --- buffers ---------------------------------------------------------------------------------------------------------

// What takes room, by its place in a list.
struct Source {
  enum class List : std::uint8_t { Compute, Collective, In, Out, Partners, Transfers };
  List list = List::Compute;  // ops of the worker's lane, of its partner's stream out, or the timeline's transfers
  std::uint32_t index = 0;
};

struct Change {
  Time at;
  Bytes bytes;
  Source source = {};  // of an allocation
  // Not of a buffer, but of the stash: `bytes` of it, and what the allocator adds to it.
  bool stash = false;
  Bytes rounding = {};
};

// Sorts by time what consists of a few sorted runs (each neighbour's messages are in order already): merges
// neighbouring runs, O(n log runs).
void sort_runs(std::vector<Change>& changes) {
  const auto earlier = [](const Change& a, const Change& b) { return a.at < b.at; };
  std::vector<std::size_t> bounds = {0};
  for (std::size_t i = 1; i < changes.size(); ++i)
    if (earlier(changes[i], changes[i - 1])) bounds.push_back(i);
  bounds.push_back(changes.size());
  const auto at = [&](std::size_t bound) { return changes.begin() + static_cast<std::ptrdiff_t>(bounds[bound]); };
  while (bounds.size() > 2) {
    std::vector<std::size_t> merged = {0};
    for (std::size_t run = 0; run + 1 < bounds.size(); run += 2) {
      if (run + 2 < bounds.size()) std::inplace_merge(at(run), at(run + 1), at(run + 2), earlier);
      merged.push_back(bounds[std::min(run + 2, bounds.size() - 1)]);
    }
    bounds = std::move(merged);
  }
}

struct Buffers {
  std::vector<Change> allocations, releases;  // both by time

  void hold(Bytes bytes, Time from, Time until, Source source) {
    if (bytes == Bytes{} || until <= from) return;
    allocations.push_back({from, bytes, source});
    releases.push_back({until, bytes});
  }
  // What a partner keeps here, and what of the own is away.
  void keep(const MovedStash& moved, Time from, Time until, Source source) {
    allocations.push_back({from, moved.stash, source, true, moved.rounding});
    releases.push_back({until, moved.stash, {}, true, moved.rounding});
  }
  void be_away(const MovedStash& moved, Time from, Time until, Source source) {
    releases.push_back({from, moved.stash, {}, true, moved.rounding});
    allocations.push_back({until, moved.stash, source, true, moved.rounding});
  }
  void clear() {
    allocations.clear();
    releases.clear();
  }
  void sort() {
    sort_runs(allocations);
    sort_runs(releases);
  }
};

// Finds the buffers of one worker after another; the transfers are sorted by receiver and sender once.
class BufferFinder {
 public:
  // `only`: the one worker that will be asked for; -1: all.
  BufferFinder(const MemoryModel& memory, const Schedule& schedule, const StepCosts& costs, const Timeline& timeline,
               WorkerId only = -1)
      : memory_(memory),
        schedule_(schedule),
        costs_(costs),
        timeline_(timeline),
        messages_(memory.fixed.empty()),
        buckets_(!memory.reduces_in_place),
        index_(only < 0 ? OpIndex(schedule) : OpIndex(schedule, schedule.position_of(only))) {
    sort_by_receiver(only);
    for (const Edge& edge : costs.edges) {
      const auto found = memory.outputs.find({edge.from, edge.to});
      outputs_.push_back(found == memory.outputs.end() ? nullptr : &found->second);
    }
  }

  void find(WorkerId worker, Buffers& buffers) const {
    buffers.clear();
    if (messages_) find_messages(worker, buffers);
    if (buckets_) find_buckets(worker, buffers);
    find_moves(worker, buffers);
    if (schedule_.shape.weights_on_host()) find_shards(worker, buffers);
    buffers.sort();
  }

  MemoryOwner owner(Source source, WorkerId worker) const {
    const Lane& lane = schedule_.lane_of(worker);
    switch (source.list) {
      case Source::List::Compute: return lane.compute.empty() ? Op{} : lane.compute[source.index];
      case Source::List::Collective: return lane.communication[kReductions][source.index];
      case Source::List::In: return lane.communication[kIn][source.index];
      case Source::List::Out: return lane.communication[kOut][source.index];
      case Source::List::Partners: return schedule_.lane_of(partner_of(worker)).communication[kOut][source.index];
      case Source::List::Transfers: break;
    }
    const Transfer& transfer = timeline_.transfers[source.index];
    const Edge& edge = costs_.edges[transfer.edge];
    const bool forward = transfer.direction == Direction::Forward;
    return BufferedMessage{.end = transfer.to == worker ? BufferedMessage::End::Receiver : BufferedMessage::End::Sender,
                           .from = forward ? edge.from : edge.to,
                           .to = forward ? edge.to : edge.from,
                           .direction = transfer.direction,
                           .micro_batch = transfer.micro_batch};
  }

 private:
  void find_messages(WorkerId worker, Buffers& buffers) const {
    for (std::uint32_t i = first_received_[slot_of(worker)]; i < first_received_[slot_of(worker) + 1]; ++i)
      hold_at_receiver(received_[i], buffers);
    for (std::uint32_t i = first_sent(worker); i < timeline_.transfers.size() && timeline_.transfers[i].from == worker;
         ++i)
      hold_at_sender(i, buffers);
  }

  void find_buckets(WorkerId worker, Buffers& buffers) const {
    const LaneTimes& times = timeline_.workers[worker];
    const auto& collective = schedule_.lane_of(worker).communication[kReductions];
    for (std::size_t i = 0; i < collective.size(); ++i) {
      if (collective[i].virtual_stage >= costs_.collectives.size()) continue;
      const auto& buckets = costs_.collectives[collective[i].virtual_stage];
      if (collective[i].bucket < buckets.size())
        buffers.hold(buckets[collective[i].bucket].bytes, times.communication[kReductions][i].start,
                     times.communication[kReductions][i].end,
                     {Source::List::Collective, static_cast<std::uint32_t>(i)});
    }
  }

  // A stash takes room at the partner from the begin of its offload to the end of its reload, and none here from the end
  // of the one to the begin of the other.
  void find_moves(WorkerId worker, Buffers& buffers) const {
    for_each_move(worker, [&](const Op& op, Span out, Span in, std::uint32_t, std::uint32_t back) {
      buffers.be_away(moved_stash(memory_.chunks[op.virtual_stage], schedule_.shape, op), out.end, in.start,
                      {Source::List::In, back});
    });
    if (const WorkerId partner = partner_of(worker); partner != worker)
      for_each_move(partner, [&](const Op& op, Span out, Span in, std::uint32_t number, std::uint32_t) {
        buffers.keep(moved_stash(memory_.chunks[op.virtual_stage], schedule_.shape, op), out.start, in.end,
                     {Source::List::Partners, number});
      });
  }
  // Shards on their way from the host, until they are gathered, and those of gradients once they are reduced.
  void find_shards(WorkerId worker, Buffers& buffers) const {
    const Lane& lane = schedule_.lane_of(worker);
    const LaneTimes& times = timeline_.workers[worker];
    std::uint32_t fetch = 0;
    for (std::size_t gather = 0; gather < lane.communication[kGathers].size(); ++gather) {
      if (lane.communication[kGathers][gather].bucket >= kFromFew) continue;
      const Op& op = lane.communication[kIn][fetch];
      buffers.hold(memory_.chunks[op.virtual_stage].fetched, times.communication[kIn][fetch].start,
                   times.communication[kGathers][gather].end, {Source::List::In, fetch});
      ++fetch;
    }
    for (std::uint32_t i = 0; i < lane.communication[kOut].size(); ++i) {
      Op copy = lane.communication[kOut][i];
      copy.bucket = 0;  // without what the host adds to it
      buffers.hold(memory_.chunks[copy.virtual_stage].stored, times.communication[kReductions][i].end,
                   times.communication[kOut][i].start + costs_.host_copies[StepCosts::host_copy(copy)].time,
                   {Source::List::Out, i});
    }
  }

  WorkerId partner_of(WorkerId worker) const {
    const Seating seating = schedule_.seating();
    const auto positions = static_cast<int>(schedule_.positions.size());
    const StageId stage = seating.stage_at(worker % positions);
    const StageId partner = schedule_.shape.partner_of(stage);
    return partner == stage ? int{worker} : worker / positions * positions + seating.first_position(partner);
  }
  void for_each_move(WorkerId worker, const auto& use) const {
    const Lane& lane = schedule_.lane_of(worker);
    const LaneTimes& times = timeline_.workers[worker];
    const std::vector<Op>&outs = lane.communication[kOut], &ins = lane.communication[kIn];
    if (outs.empty() || outs.front().kind != Kind::Offload) return;
    std::map<std::pair<VirtualStageId, std::uint32_t>, std::uint32_t> back;
    for (std::uint32_t i = 0; i < ins.size(); ++i)
      back[{ins[i].virtual_stage, ins[i].micro_batch}] = i;
    for (std::uint32_t i = 0; i < outs.size(); ++i) {
      const std::uint32_t in = back.at({outs[i].virtual_stage, outs[i].micro_batch});
      use(outs[i], times.communication[kOut][i], times.communication[kIn][in], i, in);
    }
  }

  // Counting sort that keeps the order of each worker's transfers.
  void sort_by_receiver(WorkerId only) {
    const auto wanted = [only](const Transfer& transfer) { return only < 0 || transfer.to == only; };
    first_received_.resize(timeline_.workers.size() + 1);
    WorkerId sender = 0;
    for (const Transfer& transfer : timeline_.transfers) {
      PP_CHECK(sender <= transfer.from);  // a timeline's transfers stand by sender
      sender = transfer.from;
      if (wanted(transfer)) ++first_received_[slot_of(transfer.to) + 1];
    }
    for (std::size_t w = 1; w < first_received_.size(); ++w)
      first_received_[w] += first_received_[w - 1];
    std::vector<std::uint32_t> next = first_received_;
    received_.resize(first_received_.back());
    for (std::uint32_t i = 0; i < timeline_.transfers.size(); ++i)
      if (const Transfer& transfer = timeline_.transfers[i]; wanted(transfer))
        received_[next[slot_of(transfer.to)]++] = i;
  }

  std::uint32_t first_sent(WorkerId worker) const {
    const auto first =
        std::lower_bound(timeline_.transfers.begin(), timeline_.transfers.end(), worker,
                         [](const Transfer& transfer, WorkerId sender) { return transfer.from < sender; });
    return static_cast<std::uint32_t>(first - timeline_.transfers.begin());
  }

  // A message takes room from the moment it is on the wire; an activation until its forward begins (from then on the
  // stash holds it), a gradient until the backward that needs it has ended.
  void hold_at_receiver(std::uint32_t index, Buffers& buffers) const {
    const Transfer& transfer = timeline_.transfers[index];
    const Source source{Source::List::Transfers, index};
    const Edge& edge = costs_.edges[transfer.edge];
    const auto& times = timeline_.workers[transfer.to].compute;
    if (transfer.direction == Direction::Backward) {
      const int op = index_.backward(edge.from, transfer.micro_batch);
      buffers.hold(transfer.bytes, transfer.start, times[slot_of(op)].end, source);
    } else if (transfer.from != transfer.to || recomputed(schedule_.shape, edge.from, transfer.micro_batch)) {
      const int op = index_.forward(edge.to, transfer.micro_batch);
      buffers.hold(transfer.bytes, transfer.start, times[slot_of(op)].start, source);
    }
  }

  // A gradient is nobody's stash: it waits in a buffer until it has left. So does, of the stage's own outputs, what it
  // does not stash: all of them when it keeps only its boundary, else what its layers' stash lacks of their outputs.
  void hold_at_sender(std::uint32_t index, Buffers& buffers) const {
    const Transfer& transfer = timeline_.transfers[index];
    if (transfer.from == transfer.to) return;
    buffers.hold(unkept(transfer), transfer.posted, transfer.sent, {Source::List::Transfers, index});
  }

  Bytes unkept(const Transfer& transfer) const {
    if (transfer.direction == Direction::Backward) return transfer.bytes;
    const ChunkOutput* const output = outputs_[transfer.edge];
    const std::size_t size = transfer.micro_batch + 1 == schedule_.shape.micro_batches ? 1 : 0;
    if (recomputed(schedule_.shape, costs_.edges[transfer.edge].from, transfer.micro_batch))
      return output == nullptr ? transfer.bytes : output->produced[size];
    return output == nullptr ? Bytes{} : output->unstashed[size];
  }

  const MemoryModel& memory_;
  const Schedule& schedule_;
  const StepCosts& costs_;
  const Timeline& timeline_;
  const bool messages_, buckets_;  // that take buffers: a framework may count them among what is fixed
  const OpIndex index_;
  std::vector<const ChunkOutput*> outputs_;               // [edge]; nullptr: not listed
  std::vector<std::uint32_t> first_received_, received_;  // transfers to worker w: received_[first[w] .. first[w + 1])
};

// --- ops and buffers on one clock ------------------------------------------------------------------------------------

enum class Step { Grows, Shrinks };

// Calls `visit(time, bytes, owner, step)` after every change, in the order of time; `owner` is what grew last, of
// several at one instant the largest. At one instant: buffers are released, ops end and begin in the order of the list,
// buffers are filled.
void replay(Ledger& ledger, const Lane& lane, const LaneTimes& times, const Buffers& buffers, const auto& visit) {
  Bytes buffered, largest, before = ledger.bytes().total();
  MovedStash kept;  // for a partner, less what is away
  const auto change = [&](const Change& one, std::int64_t sign) {
    (one.stash ? kept.stash : buffered) += sign * one.bytes;
    kept.rounding += sign * one.rounding;
  };
  Time rising{-1};  // the instant that `largest` is of
  Source owner;
  std::size_t event = 0, allocation = 0, release = 0;  // event 2i: op i begins, 2i + 1: it ends
  const std::size_t events = 2 * lane.compute.size();
  const auto report = [&](Time at, Source source, Step step) {
    MemoryBytes bytes = ledger.bytes();
    bytes.buffers = buffered;
    bytes.stash += kept.stash, bytes.rounding += kept.rounding;
    const Bytes total = bytes.total(), growth = total - before;
    before = total;
    if (step == Step::Shrinks || rising != at) largest = {};
    rising = at;
    if (growth > largest) largest = growth, owner = source;
    visit(at, bytes, owner, step);
  };
  for (;;) {
    const Time releases = release < buffers.releases.size() ? buffers.releases[release].at : kNever;
    const Time allocates = allocation < buffers.allocations.size() ? buffers.allocations[allocation].at : kNever;
    const Span span = event < events ? times.compute[event / 2] : Span{kNever, kNever};
    const Time acts = event % 2 == 0 ? span.start : span.end;
    const Time now = std::min({releases, allocates, acts});
    if (now == kNever) return;
    if (releases == now) {
      change(buffers.releases[release++], -1);
      report(now, {}, Step::Shrinks);
    } else if (acts == now && event % 2 == 0) {
      const std::size_t op = event++ / 2;
      ledger.begin(op);
      report(now, {Source::List::Compute, static_cast<std::uint32_t>(op)}, Step::Grows);
    } else if (acts == now) {
      ledger.end(event++ / 2);
      report(now, {}, Step::Shrinks);
    } else {
      change(buffers.allocations[allocation], 1);
      report(now, buffers.allocations[allocation++].source, Step::Grows);
    }
  }
}

}  // namespace

MovedStash moved_stash(const ChunkMemory& chunk, const ScheduleShape& shape, const Op& op) {
  const std::size_t size = op.micro_batch + 1 == static_cast<std::uint32_t>(shape.micro_batches) ? 1 : 0;
  return recomputed(shape, op.virtual_stage, static_cast<MicroBatchId>(op.micro_batch))
             ? MovedStash{chunk.boundary[size], chunk.rounding_boundary[size]}
             : MovedStash{chunk.stash[size], chunk.rounding_stash[size]};
}

std::string label(const MemoryOwner& owner) {
  if (const auto* op = std::get_if<Op>(&owner)) return label(*op);
  const auto& message = std::get<BufferedMessage>(owner);
  const bool sends = message.end == BufferedMessage::End::Sender;
  std::string text = std::to_string(sends ? message.from : message.to) + (sends ? "SEND_" : "RECV_") +
                     (message.direction == Direction::Forward ? "F" : "B") + std::to_string(message.micro_batch);
  if (std::abs(message.from - message.to) != 1)
    text += sends ? " to " + std::to_string(message.to) : " from " + std::to_string(message.from);
  return text;
}

Bytes most_away(const MemoryModel& memory, const Schedule& schedule, PositionId position) {
  return most_moved(memory, schedule, position).stash;
}

Bytes in_host_memory(const MemoryModel& memory, const Schedule& schedule, const Plan& plan, StageId stage) {
  if (memory.chunks.empty()) return {};  // of a real run, or of no answer
  const Seating seating = plan.seating();
  Bytes sum = plan.offloaded.empty() ? Bytes{} : most_away(memory, schedule, seating.first_position(stage));
  for (int i = 0; i < seating.held(); ++i)
    sum += memory.chunks[seating.chunk_of(stage, i)].on_host;
  return sum;
}

MemoryPeak peak(const MemoryModel& memory, const Schedule& schedule, PositionId position) {
  const Lane& lane = schedule.positions[position];
  Ledger ledger(memory, schedule, position, updates_seen(schedule), Ledger::Clock::None);
  MemoryPeak most{.bytes = ledger.bytes(), .owner = lane.compute.empty() ? Op{} : lane.compute.front(), .at = {}};
  for (std::size_t i = 0; i < lane.compute.size(); ++i) {
    ledger.begin(i);
    if (ledger.bytes().total() > most.bytes.total()) most.bytes = ledger.bytes(), most.owner = lane.compute[i];
    ledger.end(i);
  }
  most.in_flight = ledger.most_in_flight();
  most.weight_versions = ledger.most_versions();
  return most;
}

namespace {

std::vector<MemoryPoint> points_of(Ledger& ledger, const Lane& lane, const LaneTimes& times, const Buffers& buffers,
                                   const BufferFinder& finder, WorkerId worker) {
  std::vector<MemoryPoint> points = {{Time{0}, ledger.bytes(), finder.owner({}, worker)}};
  Step last = Step::Shrinks;
  replay(ledger, lane, times, buffers, [&](Time at, const MemoryBytes& bytes, Source owner, Step step) {
    // One point per instant; a second one only where something of no duration came and went.
    const bool hides_nothing = last == Step::Shrinks || step == Step::Grows;
    if (points.back().at == at && hides_nothing) {
      points.back() = {at, bytes, finder.owner(owner, worker)};
    } else if (points.back().bytes != bytes) {
      points.push_back({at, bytes, finder.owner(owner, worker)});
    }
    last = step;
  });
  return points;
}

}  // namespace

std::vector<MemoryPoint> series(const MemoryModel& memory, const Schedule& schedule, const StepCosts& costs,
                                const Timeline& timeline, WorkerId worker) {
  const auto position = schedule.position_of(worker);
  Buffers buffers;
  const BufferFinder finder(memory, schedule, costs, timeline, worker);
  finder.find(worker, buffers);
  const std::vector<int> seen = updates_seen(schedule);
  Ledger ledger(memory, schedule, position, seen, Ledger::Clock::Timeline);
  return points_of(ledger, schedule.positions[position], timeline.workers[worker], buffers, finder, worker);
}

std::vector<std::vector<MemoryPoint>> series(const MemoryModel& memory, const Schedule& schedule,
                                             const StepCosts& costs, const Timeline& timeline) {
  const BufferFinder finder(memory, schedule, costs, timeline);
  const std::vector<int> seen = updates_seen(schedule);
  std::vector<std::vector<MemoryPoint>> all;
  Buffers buffers;
  for (WorkerId w = 0; w < std::ssize(timeline.workers); ++w) {
    const PositionId position = schedule.position_of(w);
    finder.find(w, buffers);
    Ledger ledger(memory, schedule, position, seen, Ledger::Clock::Timeline);
    all.push_back(points_of(ledger, schedule.positions[position], timeline.workers[w], buffers, finder, w));
  }
  return all;
}

MemoryPeak peak(const std::vector<MemoryPoint>& series, const Schedule& schedule, WorkerId worker) {
  const auto fuller = [](const MemoryPoint& a, const MemoryPoint& b) { return a.bytes.total() < b.bytes.total(); };
  const MemoryPoint& most = *std::max_element(series.begin(), series.end(), fuller);  // the first of equals
  MemoryPeak peak{.bytes = most.bytes, .owner = most.owner, .at = most.at};
  const MemoryPeak walk = core::peak(
      MemoryModel{.chunks = std::vector<ChunkMemory>(slot_of(schedule.shape.chunks())), .reserve = {}, .capacity = {}},
      schedule, schedule.position_of(worker));
  peak.in_flight = walk.in_flight;
  peak.weight_versions = walk.weight_versions;
  return peak;
}

std::vector<MemoryPeak> peaks(const MemoryModel& memory, const Schedule& schedule, const StepCosts& costs,
                              const Timeline& timeline) {
  const BufferFinder finder(memory, schedule, costs, timeline);
  const std::vector<int> seen = updates_seen(schedule);
  std::vector<MemoryPeak> peaks;
  peaks.reserve(timeline.workers.size());
  Buffers buffers;
  for (WorkerId w = 0; w < std::ssize(timeline.workers); ++w) {
    const PositionId position = schedule.position_of(w);
    finder.find(w, buffers);
    Ledger ledger(memory, schedule, position, seen, Ledger::Clock::Timeline);
    MemoryPeak most{.bytes = ledger.bytes(), .owner = {}, .at = {}};
    Bytes most_total = most.bytes.total();
    Source made;
    replay(ledger, schedule.positions[position], timeline.workers[w], buffers,
           [&](Time at, const MemoryBytes& bytes, Source owner, Step step) {
             if (step == Step::Shrinks || bytes.total() <= most_total) return;
             most_total = bytes.total();
             most.bytes = bytes, made = owner, most.at = at;
           });
    most.owner = finder.owner(made, w);
    most.in_flight = ledger.most_in_flight();
    most.weight_versions = ledger.most_versions();
    peaks.push_back(most);
  }
  return peaks;
}

}  // namespace pipewright::core
