// The rules of core/plan/schedule.hpp once more, read off a finished timeline: shares no code with the engines.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <tuple>

#include <fmt/format.h>

#include "sim/simulate.hpp"

namespace pipewright::sim {
namespace {

class Check {
 public:
  Check(const Timeline& timeline, const Schedule& schedule, const StepCosts& costs)
      : timeline_(timeline),
        schedule_(schedule),
        costs_(costs),
        contended_(costs.contention && timeline.engine == EngineRan::EventQueue),
        slowed_(costs.tensor_flows && timeline.engine == EngineRan::EventQueue) {}

  std::string run() {
    if (timeline_.workers.size() != at(workers())) return "wrong number of workers";
    for (WorkerId worker = 0; contended_ && worker < workers(); ++worker)
      busy_.push_back(with_collectives(times(worker)));
    if (const std::string wrong = streams(); !wrong.empty()) return wrong;
    if (const std::string wrong = messages(); !wrong.empty()) return wrong;
    for (WorkerId worker = 0; worker < workers(); ++worker) {
      for (StreamId s = 0; s < kStreams.size(); ++s)
        if (const std::string wrong = collectives(worker, s); !wrong.empty()) return wrong;
      if (const std::string wrong = starts(worker); !wrong.empty()) return wrong;
    }
    return {};
  }

 private:
  using Key = std::tuple<std::uint32_t, Direction, CopyId, MicroBatchId>;

  int workers() const { return positions_ * schedule_.shape.data_parallel; }
  const Lane& lane(WorkerId worker) const { return schedule_.lane_of(worker); }
  const LaneTimes& times(WorkerId worker) const { return timeline_.workers[at(worker)]; }
  WorkerId worker_of(VirtualStageId v, CopyId copy, MicroBatchId m) const {
    return copy * positions_ + schedule_.seating().position_of(v, m);
  }
  std::string where(WorkerId worker, const Op& op) const { return fmt::format("worker {}: {}", worker, label(op)); }

  // Ops that run together are listed one behind the other.
  bool behind_in_cell(const std::vector<Op>& ops, std::size_t i) const {
    return costs_.together && i > 0 && ops[i - 1].with_next;
  }
  std::size_t last_of_cell(const std::vector<Op>& ops, std::size_t i) const {
    while (costs_.together && ops[i].with_next && i + 1 < ops.size())
      ++i;
    return i;
  }
  // Two queues, one of what is computed and one of exchanges, moment by moment: what is at the head of each runs once what
  // it waits for is done, computing slower while an exchange runs.
  struct Piece {
    double left;
    bool exchange;
    int after = -1;  // a piece that must be done; -1: none
  };
  void add_part(std::vector<Piece>& pieces, const StepCosts::Part& part, int& last) const {
    const auto add = [&](Time time, bool exchange, int after) {
      pieces.push_back({static_cast<double>(time.value), exchange, after});
      return static_cast<int>(pieces.size()) - 1;
    };
    const bool later = costs_.together->delay_wgrad;
    last = add(later ? part.computing - part.weights : part.computing, false, last);
    const int computed = last;
    if (part.exchange > Time{}) last = add(part.exchange, true, computed);
    if (later) add(part.weights, false, computed);
  }
  double run(std::vector<Piece> pieces) const {
    double now = 0;
    std::vector<char> done(pieces.size());
    for (std::size_t left = pieces.size(); left > 0;) {
      int running[2] = {-1, -1};
      for (std::size_t i = pieces.size(); i-- > 0;)
        if (!done[i]) running[pieces[i].exchange ? 1 : 0] = static_cast<int>(i);
      for (int& one : running)
        if (one >= 0 && pieces[at(one)].after >= 0 && !done[at(pieces[at(one)].after)]) one = -1;
      const double pace = running[1] >= 0 ? 1 - costs_.together->share : 1;
      double next = HUGE_VAL;
      if (running[0] >= 0 && pieces[at(running[0])].left <= 0) next = 0;
      if (running[0] >= 0 && pace > 0) next = std::min(next, pieces[at(running[0])].left / pace);
      if (running[1] >= 0) next = std::min(next, pieces[at(running[1])].left);
      now += next;
      for (const int one : running) {
        if (one < 0) continue;
        Piece& piece = pieces[at(one)];
        piece.left -= next * (piece.exchange ? 1 : pace);
        if (piece.left < 1e-3) done[at(one)] = 1, --left;
      }
    }
    return now;
  }
  // The same parts of an op that takes so long.
  static std::vector<StepCosts::Part> stretched(std::vector<StepCosts::Part> parts, Time all) {
    const auto longer = [&](Time sum) { return static_cast<double>(all.value) / static_cast<double>(sum.value); };
    Time sum;
    for (const StepCosts::Part& part : parts)
      sum += part.computing + part.exchange;
    if (sum == Time{}) return parts;
    const auto stretch = [by = longer(sum)](Time time) {
      return Time{std::llround(static_cast<double>(time.value) * by)};
    };
    for (StepCosts::Part& part : parts)
      part = {stretch(part.computing), stretch(part.weights), stretch(part.exchange)};
    return parts;
  }
  // Of a cell: forwards in turns with the other ops, these first, what lies between two exchanges at once.
  bool takes_its_time(std::span<const Op> cell, Time taken) const {
    Time serial, rebuilding;
    std::vector<StepCosts::Part> chains[2];
    for (const Op& op : cell) {
      const Time alone = costs_.time_of(op);
      serial += alone;
      if (op.kind == Kind::R || op.kind == Kind::W) rebuilding += alone;
      const std::size_t row = at(op.virtual_stage) * kKinds + at(static_cast<int>(op.kind));
      const auto& all = costs_.together->parts;
      std::vector<StepCosts::Part> parts{{alone, {}, {}}};
      if (row < all.size() && !all[row].empty()) parts = stretched(all[row], alone);
      std::vector<StepCosts::Part>& chain = chains[op.kind == Kind::F ? 1 : 0];
      if (!chain.empty() && chain.back().exchange == Time{}) {
        parts.front().computing += chain.back().computing, parts.front().weights += chain.back().weights;
        chain.pop_back();
      }
      chain.insert(chain.end(), parts.begin(), parts.end());
    }
    if (costs_.together->pair) return taken == *costs_.together->pair + rebuilding;
    std::vector<Piece> pieces;
    int last[2] = {-1, -1};
    // Part i of n stands at i / n of its chain.
    std::map<std::pair<double, int>, const StepCosts::Part*> order;
    for (const int c : {0, 1})
      for (std::size_t i = 0; i < chains[c].size(); ++i)
        order[{static_cast<double>(i * chains[1 - c].size()), c}] = &chains[c][i];
    for (const auto& [place, part] : order)
      add_part(pieces, *part, last[place.second]);
    const double all = std::min(static_cast<double>(serial.value), run(std::move(pieces)));
    return std::abs(static_cast<double>(taken.value) - all) <= 1;  // both are rounded, sums in another order
  }

  // Strict order, no overlap, durations as priced, makespan the last end.
  std::string streams() {
    Time last;
    for (WorkerId worker = 0; worker < workers(); ++worker) {
      const Lane& ops = lane(worker);
      const LaneTimes& spans = times(worker);
      if (ops.compute.size() != spans.compute.size())
        return fmt::format("worker {}: {} ops have {} times", worker, ops.compute.size(), spans.compute.size());
      Time free;
      for (std::size_t i = 0; i < ops.compute.size(); ++i) {
        const Span span = spans.compute[i];
        if (span.start < free) return where(worker, ops.compute[i]) + " starts before the op ahead of it ends";
        const bool inside = behind_in_cell(ops.compute, i);
        if (const std::size_t last_one = last_of_cell(ops.compute, i); last_one > i && !inside) {
          const Span of_last = spans.compute[last_one];
          if (!takes_its_time({ops.compute.data() + i, last_one - i + 1}, of_last.end - span.start))
            return where(worker, ops.compute[i]) + " and what runs with it do not take the time they are priced at";
        } else if (!inside && !takes_its_time(worker, i))
          return where(worker, ops.compute[i]) + " does not take the time it is priced at";
        free = span.end;
      }
      last = std::max(last, free);
      for (StreamId s = 0; s < kStreams.size(); ++s) {
        if (ops.communication[s].size() != spans.communication[s].size())
          return fmt::format("worker {}: {} ops of {} have {} times", worker, ops.communication[s].size(),
                             kStreams[s].name, spans.communication[s].size());
        free = {};
        for (const Span span : spans.communication[s]) {
          if (span.start < free || span.end < span.start)
            return fmt::format("worker {}: {}s overlap", worker, kStreams[s].op);
          free = span.end;
        }
        last = std::max(last, free);
      }
    }
    return last == timeline_.makespan ? "" : "the makespan is not the last end";
  }

  // When a worker is in a collective whose kernels contend with what it computes.
  static std::vector<Span> with_collectives(const LaneTimes& times) {
    std::vector<Span> busy, joined;
    for (StreamId s = 0; s < kStreams.size(); ++s)
      if (kStreams[s].kernels) busy.insert(busy.end(), times.communication[s].begin(), times.communication[s].end());
    std::ranges::sort(busy, [](Span a, Span b) { return a.start < b.start; });
    for (const Span span : busy) {
      if (joined.empty() || joined.back().end < span.start) joined.push_back(span);
      joined.back().end = std::max(joined.back().end, span.end);
    }
    return joined;
  }

  // How much of an op is done at that time, in nanoseconds of its time alone.
  double done(WorkerId worker, std::size_t i, Time until) const {
    const Op& op = lane(worker).compute[i];
    const Time start = times(worker).compute[i].start;
    auto beside = Time{};
    const std::vector<Span>& busy = busy_[at(worker)];
    for (auto span = std::partition_point(busy.begin(), busy.end(), [&](Span s) { return s.end <= start; });
         span != busy.end() && span->start < until; ++span)
      beside += std::min(span->end, until) - std::max(span->start, start);
    const double slower = costs_.contention->computing[at(op.virtual_stage) * kKinds + at(static_cast<int>(op.kind))];
    return static_cast<double>((until - start - beside).value) + static_cast<double>(beside.value) / slower;
  }

  // Ends are whole nanoseconds, the first at which all is done.
  static bool is_then(double done, Time work) { return std::abs(done - static_cast<double>(work.value) - 0.5) <= 0.51; }

  bool takes_its_time(WorkerId worker, std::size_t i) const {
    const Time alone = costs_.time_of(lane(worker).compute[i]);
    const Span span = times(worker).compute[i];
    if (slowed_ && costs_.sent_by(lane(worker).compute[i]).time > Time{}) return span.end - span.start >= alone;
    return contended_ ? is_then(done(worker, i, span.end), alone) : span.end - span.start == alone;
  }

  // Every message once, after its producer, at the priced cost or slower (shared links), one after the other per
  // channel.
  std::string messages() {
    std::map<std::int32_t, std::vector<const Transfer*>> channels;
    for (const Transfer& transfer : timeline_.transfers) {
      const CopyId copy = transfer.from / positions_;
      const Message& message = costs_.message(transfer.edge, transfer.direction, copy, transfer.micro_batch);
      if (!arrived_.emplace(Key{transfer.edge, transfer.direction, copy, transfer.micro_batch}, &transfer).second)
        return fmt::format("edge {}: micro-batch {} is sent twice", transfer.edge, transfer.micro_batch);
      if (transfer.start < transfer.posted || transfer.sent - transfer.start < message.occupancy ||
          transfer.arrived - transfer.sent != message.latency || transfer.bytes != message.bytes)
        return fmt::format("edge {}: micro-batch {} does not travel as priced", transfer.edge, transfer.micro_batch);
      channels[message.channel].push_back(&transfer);
    }
    for (auto& [channel, transfers] : channels) {
      std::ranges::stable_sort(transfers, [](const Transfer* a, const Transfer* b) {
        return std::tie(a->start, a->sent) < std::tie(b->start, b->sent);
      });
      for (std::size_t i = 1; i < transfers.size(); ++i)
        if (transfers[i]->start < transfers[i - 1]->sent || transfers[i]->posted < transfers[i - 1]->posted)
          return fmt::format("channel {}: messages overtake or overlap one another", channel);
    }
    return {};
  }

  std::string collectives(WorkerId worker, StreamId stream) {
    const auto& ops = lane(worker).communication[stream];
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Op& op = ops[i];
      const Span span = times(worker).communication[stream][i];
      const auto fault = [&](std::string_view what) {
        return fmt::format("worker {}: {} of stage {} {}", worker, kStreams[stream].op, op.virtual_stage, what);
      };
      if (span.end - span.start < costs_.collective(op, worker / positions_).time)
        return fault("is faster than priced");
      if (stream == kOut || stream == kIn) {
        if (const std::string wrong = on_host_ ? shard_fault(worker, stream, i) : move_fault(worker, stream, i);
            !wrong.empty())
          return fault(wrong);
        continue;
      }
      // Each member names its own chunk.
      const std::uint16_t of = stream == kTables || stream == kNorm ? 0 : op.virtual_stage;
      const auto [entry, first] =
          meetings_.emplace(std::tuple{stream, of, op.micro_batch, std::uint32_t{op.bucket}}, span);
      if (!first && entry->second != span) return fault("has other times than at another member");
      if (stream == kReductions && span.start < gradients_ready(worker, op))
        return fault("starts before its gradients are there");
      if (stream == kGathers && span.start < gathered_from(worker, op))
        return fault(op.bucket == kBehindUpdate ? "starts before its update has ended"
                                                : "starts more than an op ahead");
      if (stream == kTables && span.start < table_ready(worker, op))
        return fault("starts before all gradients of the table are there");
      if (stream == kNorm && span.start < norm_ready(worker)) return fault("starts before all gradients are there");
      if (stream == kGathers && on_host_ && span.start < fetched(worker, op))
        return fault("starts before its shard is there");
    }
    return {};
  }

  std::string move_fault(WorkerId worker, StreamId stream, std::size_t i) const {
    const Op& op = lane(worker).communication[stream][i];
    const Time start = times(worker).communication[stream][i].start;
    if (stream == kOut) return start < forward_ended(worker, op) ? "starts before its forward has ended" : "";
    return start < back_from(worker, op) ? "starts more than an op ahead, or before it is out" : "";
  }

  std::string shard_fault(WorkerId worker, StreamId stream, std::size_t i) const {
    const Op& op = lane(worker).communication[stream][i];
    const Time start = times(worker).communication[stream][i].start;
    if (stream == kOut)
      return start < times(worker).communication[kReductions][i].end ? "starts before its gradients are reduced" : "";
    const auto& ops = lane(worker).compute;
    const auto user = at(std::ranges::find_if(ops, [&](const Op& one) { return uses(one, op); }) - ops.begin());
    return user >= 2 && start < times(worker).compute[user - 2].start ? "starts more than two ops ahead" : "";
  }
  // When the host has added what that op completed, which is the last of its round; 0 where it adds nothing.
  Time added(WorkerId worker, const Op& gradient) const {
    if (gradient.kind != Kind::BW && gradient.kind != Kind::W) return {};
    const int round = schedule_.rounds().of(gradient.virtual_stage, gradient.micro_batch);
    const auto& ops = lane(worker).compute;
    const auto last = std::find_if(ops.rbegin(), ops.rend(), [&](const Op& op) {
      return op.virtual_stage == gradient.virtual_stage && (op.kind == Kind::BW || op.kind == Kind::W) &&
             schedule_.rounds().of(op.virtual_stage, op.micro_batch) == round;
    });
    Time end;
    const auto& outs = lane(worker).communication[kOut];
    for (std::size_t i = 0; i < outs.size() && *last == gradient; ++i)
      if (outs[i].bucket == 1 && outs[i].virtual_stage == gradient.virtual_stage &&
          static_cast<int>(outs[i].micro_batch) == round)
        end = std::max(end, times(worker).communication[kOut][i].end);
    return end;
  }
  // When the shard that a gather needs is there; one from few needs none.
  Time fetched(WorkerId worker, const Op& gather) const {
    const auto& ins = lane(worker).communication[kIn];
    for (std::size_t i = 0; i < ins.size(); ++i)
      if (same(ins[i], gather) && ins[i].bucket == gather.bucket) return times(worker).communication[kIn][i].end;
    return {};
  }

  static bool same(const Op& a, const Op& b) {
    return a.virtual_stage == b.virtual_stage && a.micro_batch == b.micro_batch;
  }
  // Where in a list the op of that micro-batch stands that `is` one of those looked for.
  template <class Is>
  static std::size_t place(const std::vector<Op>& ops, const Op& of, const Is& is) {
    const auto found = std::ranges::find_if(ops, [&](const Op& op) { return same(op, of) && is(op); });
    return at(found - ops.begin());
  }
  Time forward_ended(WorkerId worker, const Op& move) const {
    const auto i = place(lane(worker).compute, move, [](const Op& op) { return op.kind == Kind::F; });
    return times(worker).compute[i].end;
  }
  static bool reads_stash(const Op& op) { return op.kind == Kind::R || op.kind == Kind::B || op.kind == Kind::BW; }
  Time back_from(WorkerId worker, const Op& move) const {
    const auto out = place(lane(worker).communication[kOut], move, [](const Op&) { return true; });
    const auto reader = place(lane(worker).compute, move, reads_stash);
    Time from = std::max(times(worker).communication[kOut][out].end, times(worker).compute[reader - 1].start);
    const auto& outs = lane(worker).communication[kOut];
    for (std::size_t j = 0; schedule_.shape.offloaded.empty() && j < outs.size(); ++j)
      if (place(lane(worker).compute, outs[j], [](const Op& op) { return op.kind == Kind::F; }) < reader - 1)
        from = std::max(from, times(worker).communication[kOut][j].end);
    return from;
  }
  // What it has to wait for of the offloads before it, or of the reload of what it reads.
  Time moved(WorkerId worker, std::size_t i) const {
    const Lane& ops = lane(worker);
    const Op& op = ops.compute[i];
    Time ready;
    if (op.kind == Kind::F) {
      std::size_t before = 0;
      for (const Op& out : ops.communication[kOut])
        before += place(ops.compute, out, [](const Op& one) { return one.kind == Kind::F; }) < i ? 1 : 0;
      const std::size_t may_leave = schedule_.shape.offloaded.empty() ? 0 : 1;  // under a forward
      if (before > may_leave) ready = times(worker).communication[kOut][before - 1 - may_leave].end;
    } else if (reads_stash(op) && place(ops.compute, op, reads_stash) == i) {
      const auto in = place(ops.communication[kIn], op, [](const Op&) { return true; });
      if (in < ops.communication[kIn].size()) ready = times(worker).communication[kIn][in].end;
    }
    return ready;
  }

  // Weights are gathered while the op before the one that needs them runs, or behind it if it computes with them.
  Time gathered_from(WorkerId worker, const Op& gather) const {
    const auto& ops = lane(worker).compute;
    if (gather.bucket == kBeforeForward || gather.bucket == kBesideForward) return {};
    for (std::size_t i = 0; gather.bucket == kBehindUpdate && i < ops.size(); ++i)
      if (ops[i].kind == Kind::Update && ops[i].virtual_stage == gather.virtual_stage &&
          ops[i].micro_batch == gather.micro_batch)
        return times(worker).compute[i].end;
    const auto user = std::find_if(ops.begin(), ops.end(), [&](const Op& op) { return uses(op, gather); });
    if (user == ops.begin()) return {};
    const Op& before = user[-1];
    const Span span = times(worker).compute[at(user - ops.begin() - 1)];
    const bool reads =
        before.virtual_stage == gather.virtual_stage && before.kind != Kind::W && before.kind != Kind::Update;
    return reads ? span.end : span.start;
  }
  // Whether the op, one of the worker's list, waits for that gather.
  bool waits_for(WorkerId worker, const Op& op, const Op& gather) const {
    if (gather.bucket == kBehindUpdate)
      return op.kind == Kind::Update && op.virtual_stage == gather.virtual_stage &&
             op.micro_batch == gather.micro_batch + 1;
    if (gather.bucket != kBesideForward) return uses(op, gather);
    return &op != lane(worker).compute.data() && uses(*(&op - 1), gather);
  }
  static bool uses(const Op& op, const Op& gather) {
    const bool forward = pass_of_gather(gather) == Direction::Forward;
    return op.virtual_stage == gather.virtual_stage && op.micro_batch == gather.micro_batch &&
           (forward ? op.kind == Kind::F : op.kind == Kind::R || op.kind == Kind::B || op.kind == Kind::BW);
  }

  // When the worker has the gradients of all its chunks with the table, and these are reduced.
  Time table_ready(WorkerId worker, const Op& table) const {
    Time ready;
    const Lane& ops = lane(worker);
    for (std::size_t i = 0; i < ops.compute.size(); ++i)
      if ((ops.compute[i].kind == Kind::BW || ops.compute[i].kind == Kind::W) && has(ops.compute[i], table))
        ready = std::max(ready, times(worker).compute[i].end);
    for (std::size_t i = 0; i < ops.communication[kReductions].size(); ++i)
      if (has(ops.communication[kReductions][i], table))
        ready = std::max(ready, times(worker).communication[kReductions][i].end);
    return ready;
  }
  // When the worker has all its gradients, summed over whoever shares them.
  Time norm_ready(WorkerId worker) const {
    Time ready;
    for (std::size_t i = 0; i < lane(worker).compute.size(); ++i)
      if (const Kind kind = lane(worker).compute[i].kind; kind == Kind::BW || kind == Kind::W)
        ready = std::max(ready, times(worker).compute[i].end);
    for (const StreamId sums : {kReductions, kTables})
      for (const Span& span : times(worker).communication[sums])
        ready = std::max(ready, span.end);
    return ready;
  }
  bool has(const Op& op, const Op& table) const {
    const auto& chunks = schedule_.shape.tied[table.bucket];
    return std::ranges::find(chunks, VirtualStageId{op.virtual_stage}) != chunks.end();
  }

  // When the worker's own part of the bucket is complete; 0 when it has no micro-batch in the round.
  Time gradients_ready(WorkerId worker, const Op& reduce) const {
    Time ready;
    const auto& ops = lane(worker).compute;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].virtual_stage != reduce.virtual_stage || (ops[i].kind != Kind::BW && ops[i].kind != Kind::W)) continue;
      const int round = schedule_.rounds().of(ops[i].virtual_stage, ops[i].micro_batch);
      if (round != static_cast<int>(reduce.micro_batch)) continue;
      const Span span = times(worker).compute[i];
      const Time before = costs_.ready_before_end_of(ops[i], reduce.bucket);
      const bool in_cell = behind_in_cell(ops, i) || last_of_cell(ops, i) > i;  // which nothing slows
      const Time work = costs_.time_of(ops[i]) - before;                        // that makes them
      if (contended_ && !in_cell)
        ready = reached(worker, i, work);
      else if (slowed_ && before > Time{})  // beside what is exchanged behind it
        ready = std::max(span.start, span.start + work);
      else
        ready = std::max(span.start, span.end - before);
    }
    return ready;
  }
  // When so much of an op is done: by halving, as more is done the later it is.
  Time reached(WorkerId worker, std::size_t i, Time work) const {
    Span within = times(worker).compute[i];
    while (within.start < within.end) {
      const Time middle{within.start.value + (within.end - within.start).value / 2};
      if (done(worker, i, middle) < static_cast<double>(work.value) - 0.01)
        within.start = middle + Time{1};
      else
        within.end = middle;
    }
    return within.end;
  }

  // When the tensor of an edge is usable; nullopt when it never was sent.
  std::optional<Time> arrival(std::uint32_t edge, Direction direction, CopyId copy, MicroBatchId m) const {
    const auto found = arrived_.find({edge, direction, copy, m});
    if (found != arrived_.end()) return found->second->arrived;
    const int producer = direction == Direction::Forward ? costs_.edges[edge].from : costs_.edges[edge].to;
    const WorkerId worker = worker_of(producer, copy, m);
    if (costs_.message(edge, direction, copy, m).channel >= 0) return std::nullopt;
    const auto& ops = lane(worker).compute;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const bool produces =
          direction == Direction::Forward ? ops[i].kind == Kind::F : ops[i].kind == Kind::BW || ops[i].kind == Kind::B;
      if (produces && ops[i].virtual_stage == producer && ops[i].micro_batch == static_cast<std::uint32_t>(m))
        return times(worker).compute[last_of_cell(ops, i)].end;
    }
    return std::nullopt;
  }

  // The latest of what the op needs.
  std::string needs(WorkerId worker, const Op& op, Time& ready) {
    const CopyId copy = worker / positions_;
    for (std::uint32_t edge = 0; edge < costs_.edges.size(); ++edge) {
      const bool forward = op.kind == Kind::F && costs_.edges[edge].to == op.virtual_stage;
      const bool backward = (op.kind == Kind::BW || op.kind == Kind::B) && costs_.edges[edge].from == op.virtual_stage;
      if (!forward && !backward) continue;
      const auto arrived =
          arrival(edge, forward ? Direction::Forward : Direction::Backward, copy, static_cast<int>(op.micro_batch));
      if (!arrived) return where(worker, op) + " needs a tensor that was never sent";
      ready = std::max(ready, *arrived);
    }
    for (StreamId s = 0; s < kStreams.size(); ++s)
      for (std::size_t j = 0; j < lane(worker).communication[s].size(); ++j) {
        const Op& needed = lane(worker).communication[s][j];
        const bool reduced = s == kReductions && op.kind == Kind::Update && needed.virtual_stage == op.virtual_stage &&
                             (schedule_.flush || needed.micro_batch == op.micro_batch);
        const bool stored = s == kOut && on_host_ && op.kind == Kind::Update;
        const bool table = s == kTables && op.kind == Kind::Update && has(op, needed);
        const bool norm = s == kNorm && op.kind == Kind::Update;
        if (reduced || stored || table || norm || (s == kGathers && waits_for(worker, op, needed)))
          ready = std::max(ready, times(worker).communication[s][j].end);
      }
    return {};
  }

  // Every compute op starts exactly when its stream is free and what it needs is there: neither earlier nor later.
  std::string starts(WorkerId worker) {
    const auto& ops = lane(worker).compute;
    Time free;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Op& op = ops[i];
      Time ready = free;
      const std::size_t until = behind_in_cell(ops, i) ? i : last_of_cell(ops, i) + 1;  // with what begins with it
      for (std::size_t one = i; one < until; ++one)
        if (const std::string wrong = needs(worker, ops[one], ready); !wrong.empty()) return wrong;
      if (on_host_ && i > 0) ready = std::max(ready, added(worker, ops[i - 1]));
      if (!lane(worker).communication[kOut].empty() && !on_host_) ready = std::max(ready, moved(worker, i));
      const Time start = times(worker).compute[i].start;
      if (start < ready) return where(worker, op) + " starts before what it needs has arrived";
      if (start > ready) return where(worker, op) + " waits for nothing";
      free = times(worker).compute[i].end;
    }
    return {};
  }

  const Timeline& timeline_;
  const Schedule& schedule_;
  const StepCosts& costs_;
  int positions_ = static_cast<int>(schedule_.positions.size());
  bool on_host_ = schedule_.shape.weights_on_host();  // shards of weights and gradients
  bool contended_, slowed_;                           // by an engine that knows of it
  std::vector<std::vector<Span>> busy_;               // contended: by worker
  std::map<Key, const Transfer*> arrived_;
  std::map<std::tuple<StreamId, std::uint16_t, std::uint32_t, std::uint32_t>, Span> meetings_;
};

}  // namespace

std::string validate(const Timeline& timeline, const Schedule& schedule, const StepCosts& costs) {
  return Check(timeline, schedule, costs).run();
}

}  // namespace pipewright::sim
