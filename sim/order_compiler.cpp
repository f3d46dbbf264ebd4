// Makes a CompiledOrder: runs the lists in waves, without a clock.
#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/cost/cells.hpp"
#include "sim/compiled_order.hpp"
#include "sim/dependencies.hpp"
#include "sim/order_slots.hpp"
#include "sim/price_rows.hpp"
#include "sim/stream_links.hpp"

namespace pipewright::sim {
namespace {

using Ring = OrderSlots::Ring;
using Sent = OrderSlots::Sent;
using compiled::Meeting;
using compiled::Member;

constexpr std::uint32_t kBegin = OrderSlots::kBegin, kNobody = OrderSlots::kNobody, kEmpty = OrderSlots::kEmpty;
constexpr std::int32_t kNoWay = -1;
constexpr std::size_t kFewRecords = 1 << 16;      // there is no need for more where a steady state is found
constexpr std::uint32_t kWaves = 16;              // until a moment is kept
constexpr std::size_t kPasses = at(Kind::R) + 1;  // kinds of them: F, B, W, BW, R

bool several(const Wiring::Chunk& chunk) {
  return chunk.in.size() > 1 || chunk.out.size() > 1;
}

// A backward needs the forward of its own chunk and micro-batch to be over.
bool waits_for_itself(std::span<const Op> cell) {
  return std::ranges::any_of(cell, [&](const Op& a) {
    return rule(a.kind).forward && std::ranges::any_of(cell, [&](const Op& b) {
             return rule(b.kind).backward && a.virtual_stage == b.virtual_stage && a.micro_batch == b.micro_batch;
           });
  });
}

// Op by op the order can be run, but the ops of a cell begin together.
InputError cells_wait(const Op& first, PositionId position) {
  return InputError(
      fmt::format("plan.pairs: fused: the cell of {} on worker {} waits for itself, as its ops begin "
                  "together; write serial, or part them in the schedule",
                  label(first), position));
}

}  // namespace

template <class Index>
class CompiledOrder::Compiler {
 public:
  Compiler(const Schedule& schedule, const StepCosts& costs)
      : schedule_(schedule),
        costs_(costs),
        seating_(schedule.seating()),
        wiring_(schedule, costs.edges, 1),
        last_(static_cast<std::uint32_t>(schedule.shape.micro_batches - 1)),
        order_(costs.shape, costs),
        rows_(schedule, wiring_, costs.edges, order_.rows_, order_.cell_ops_) {}

  // None: its lanes, rows or slots are too many for an Index.
  std::optional<CompiledOrder> run() {
    constexpr std::size_t kMost = std::numeric_limits<Index>::max();
    prepare_lanes();
    prepare_streams();
    if (order_.lanes_.size() > kMost) return std::nullopt;
    prepare_passes();
    run_streams();
    if (!run_waves(kMost)) return std::nullopt;
    for (const LaneState& lane : lanes_) {
      if (order_.cells_ && lane.next != lane.end) throw cells_wait(*lane.next, PositionId{std::size_t{lane.lane}});
      PP_CHECK(lane.next == lane.end);
    }
    for (const Stream& stream : streams_)
      PP_CHECK(stream.next == stream.ops.size());
    order_.slots_ = slots_.count();
    streams_ = {}, links_ = {}, kept_ = {};
    records_.shrink_to_fit();
    order_.records_ = std::move(records_);
    return std::move(order_);
  }

 private:
  struct LaneState {
    const Op* next = nullptr;
    // The next one for the general path: an update, a cell, or one that streams have to do with.
    const Op* stop = nullptr;
    const Op* end = nullptr;
    std::int32_t waits_for = kNoWay;  // parked until something is sent on this way
    Index lane = 0;
    bool gated = false;  // parked until an op of a stream is over
    std::uint32_t next_gate = 0, next_trigger = 0;
    const Op* next_update = nullptr;
  };
  // What ops of one kind of a chunk have in common: one cache line.
  struct alignas(64) Pass {
    Ring needs{kBegin}, gives{kNobody};
    std::int32_t needs_way = kNoWay, gives_way = kNoWay;
    LaneState* receiver = nullptr;  // of what they give; nullptr: several
    // Of micro-batch M - 1: the second; kNone: ask `row_of`.
    std::array<std::uint32_t, 2> row = {PriceRows::kNone, PriceRows::kNone};
  };
  // An op of a stream; of gradients, all buckets of a chunk.
  struct StreamOp {
    Op op;
    std::uint32_t until = 0;             // ops of the list up to it
    std::uint32_t readers = 0, end = 0;  // who waits for its end, and the slot of that
    std::uint32_t begin = 0,
                  ready = 0;  // slots: when the op began that completes gradients; when the one ends that lets it begin
    std::uint32_t completing = 0;               // that op, in the order's list
    bool waits = false;                         // for an op that lets it begin
    std::array<StreamLinks::After, 2> after{};  // where `count` is not 0
  };
  struct Stream {
    Index lane = 0;
    std::vector<StreamOp> ops;
    std::size_t next = 0;
    bool joined = false;  // the next op counts this worker as ready

    // With this one of the list.
    StreamOp& at(std::uint32_t in_list) {
      if (ops.size() == ops.back().until) return ops[in_list];
      return *std::ranges::upper_bound(ops, in_list, {}, &StreamOp::until);
    }
  };

  bool together(const Op& op) const { return op.kind == Kind::AllReduce && !schedule_.shape.weights_on_host(); }
  PositionId position_of(const LaneState& lane) const { return PositionId{std::size_t{lane.lane}}; }

  // --- preparation -------------------------------------------------------------------------------------------------

  void prepare_lanes() {
    for (const Lane& lane : schedule_.positions) {
      const Op *const begin = lane.compute.data(), *const end = begin + lane.compute.size();
      const Op* update = end;  // with a flush they stand at the end
      while (update != begin && update[-1].kind == Kind::Update)
        --update;
      if (!schedule_.flush || end - update != seating_.held()) update = begin;
      lanes_.push_back({.next = begin, .end = end, .lane = static_cast<Index>(lanes_.size()), .next_update = update});
      order_.lanes_.emplace_back(PositionId{lanes_.size() - 1}, kCompute);
      ops_ += lane.compute.size();
    }
  }

  void prepare_streams() {
    streams_.resize(lanes_.size() * kStreams.size());
    for (PositionId position = 0; position < std::ssize(schedule_.positions); ++position) {
      StreamLinks& links = links_.emplace_back(stream_links(schedule_, position));
      for (StreamId s = 0; s < kStreams.size(); ++s)
        if (const auto& ops = schedule_.positions[position].communication[s]; !ops.empty()) {
          stream(position, s).lane = static_cast<Index>(order_.lanes_.size());
          order_.lanes_.emplace_back(position, s);
          add_ops(stream(position, s), ops);
        }
      join_streams(position, links);
      find_stop(lanes_[at(position)]);
      touched_.push_back(position);
    }
  }

  // All buckets of a chunk's gradients are one, so that the order is that of others, too; on the host each is waited for.
  void add_ops(Stream& stream, const std::vector<Op>& ops) {
    stream.ops.reserve(ops.size());
    for (std::size_t i = 0; i < ops.size();) {
      const Op& op = ops[i];
      const std::size_t count = together(op) ? at(schedule_.shape.buckets_of(VirtualStageId{op.virtual_stage})) : 1;
      PP_CHECK(i + count <= ops.size() && ops[i + count - 1].virtual_stage == op.virtual_stage);
      i += count;
      stream.ops.push_back({.op = op, .until = static_cast<std::uint32_t>(i)});
    }
  }

  // Ops instead of numbers of them in the list.
  void join_streams(PositionId position, StreamLinks& links) {
    const auto read = [&](StreamId s, std::uint32_t& count) {  // an op is over when so many of the list are
      StreamOp& op = stream(position, s).at(count - 1);
      PP_CHECK(op.until == count);
      count = static_cast<std::uint32_t>(&op - stream(position, s).ops.data() + 1);
      ++op.readers;
    };
    for (StreamId s = 0; s < kStreams.size(); ++s)
      for (StreamOp& op : stream(position, s).ops) {
        op.waits = links.waits[s][op.until - 1] != 0;
        links.for_each_after(s, op.until - 1, [&](StreamLinks::After after) {
          read(after.stream, after.count);
          (op.after.front().count == 0 ? op.after.front() : op.after.back()) = after;
        });
      }
    for (StreamLinks::Gate& gate : links.gates)
      read(gate.stream, gate.count);
    std::erase_if(links.triggers, [&](StreamLinks::Trigger& trigger) {
      PP_CHECK(trigger.from != StreamLinks::From::Part || trigger.stream == kReductions);
      const StreamOp& op = stream(position, trigger.stream).at(trigger.communication);
      const bool last = op.until == trigger.communication + 1;
      trigger.communication = static_cast<std::uint32_t>(&op - stream(position, trigger.stream).ops.data());
      return !last;
    });
  }

  void prepare_passes() {
    records_.reserve(std::min(ops_, kFewRecords));
    passes_.resize(wiring_.chunks.size() * kPasses);
    slots_.add_ways(2 * costs_.edges.size());
    for (std::size_t v = 0; v < wiring_.chunks.size(); ++v)
      for (std::size_t kind = 0; kind < kPasses; ++kind)
        if (several(wiring_.chunks[v]) && (kKindRules[kind].forward || kKindRules[kind].backward))
          passes_[v * kPasses + kind].needs = {OrderSlots::kElsewhere, 0};
    for (std::size_t way = 0; way < 2 * costs_.edges.size(); ++way)
      take_ring(way);
  }

  void take_ring(std::size_t way) {
    const Ring& ring = slots_.ring(way);
    const Edge& edge = costs_.edges[way / 2];
    const bool forward = way % 2 == 0;
    const VirtualStageId sender = forward ? edge.from : edge.to, receiver = forward ? edge.to : edge.from;
    for (std::size_t kind = 0; kind < kPasses; ++kind) {
      if (forward ? !kKindRules[kind].forward : !kKindRules[kind].backward) continue;
      Pass &gives = passes_[at(sender) * kPasses + kind], &needs = passes_[at(receiver) * kPasses + kind];
      if (!several(wiring_.chunks[at(receiver)])) needs.needs = ring, needs.needs_way = static_cast<std::int32_t>(way);
      if (several(wiring_.chunks[at(sender)])) continue;
      gives.gives = ring, gives.gives_way = static_cast<std::int32_t>(way);
      if (seating_.holders(receiver) == 1) gives.receiver = &lanes_[at(seating_.position(receiver, 0))];
    }
  }

  // --- waves -------------------------------------------------------------------------------------------------------

  bool run_waves(std::size_t most) {
    std::vector<LaneState*> wave, coming(lanes_.size());
    for (LaneState& lane : lanes_)
      wave.push_back(&lane);
    LaneState** end = wave.data() + wave.size();
    for (; end != wave.data(); ++wave_) {
      if (records_.size() + lanes_.size() > records_.capacity()) records_.reserve(std::max(ops_, 2 * records_.size()));
      end = run_wave(wave.data(), end, coming.data());
      wave.swap(coming);
      if (slots_.count() > most || order_.rows_.size() > most) return false;
      if (!rows_.dealt()) look_for_repeats();  // else rows go by who deals what to whom, too
    }
    return true;
  }

  // The next op of each worker from `it` to `end`, if what it needs was there before this wave. Those that may run in the
  // next one go to `coming`, whose end it returns.
  LaneState** run_wave(LaneState** it, LaneState** const end, LaneState** coming) {
    Pass* const passes = passes_.data();
    Sent* sent = slots_.messages().data();
    const std::uint32_t now = wave_, last = last_;
    const auto general = [&](LaneState& lane) {
      coming = run_general(lane, coming);
      sent = slots_.messages().data();
    };
    for (; it != end; ++it) {
      LaneState& lane = **it;
      if (lane.next == lane.stop) {
        general(lane);
        continue;
      }
      const std::uint32_t m = lane.next->micro_batch;
      Pass& pass = passes[lane.next->virtual_stage * kPasses + at(lane.next->kind)];
      __builtin_prefetch(lane.next + 8);
      std::uint32_t needs = pass.needs.slot(m), gives = pass.gives.slot(m);
      if (needs != kBegin) {
        if (sent[needs].micro_batch != m) {
          if (needs == OrderSlots::kElsewhere) {
            general(lane);
            continue;
          }
          needs = slots_.outgrown(at(pass.needs_way), m);
        }
        if (needs == kNobody) {
          lane.waits_for = pass.needs_way;
          continue;
        }
        if (sent[needs].wave == now) {
          *coming++ = &lane;
          continue;
        }
        sent[needs].micro_batch = kEmpty;
      }
      if (gives != kNobody) {
        if (sent[gives].micro_batch != kEmpty) {
          gives = grow(at(pass.gives_way), m);
          sent = slots_.messages().data();
        }
        sent[gives] = {m, now};
        LaneState& receiver = pass.receiver != nullptr ? *pass.receiver : receiver_of(*lane.next, at(pass.gives_way));
        if (receiver.waits_for == pass.gives_way) {
          receiver.waits_for = kNoWay;
          *coming++ = &receiver;
        }
      }
      std::uint32_t row = pass.row[m == last];
      if (row == PriceRows::kNone) row = row_of(*lane.next);
      emit(lane.lane, row, needs, gives);
      ++lane.next;
      *coming++ = &lane;
    }
    return coming;
  }

  // The slot in a larger ring.
  [[gnu::cold]] std::uint32_t grow(std::size_t way, std::uint32_t micro_batch) {
    slots_.grow(way), take_ring(way);
    return slots_.ring(way).slot(micro_batch);
  }

  LaneState& receiver_of(const Op& op, std::size_t way) { return lanes_[at(rows_.receiver(op, way))]; }

  void emit(Index lane, std::uint32_t row, std::uint32_t needs, std::uint32_t gives) {
    records_.push_back({lane, static_cast<Index>(row), static_cast<Index>(needs), static_cast<Index>(gives)});
  }
  void wait(Index lane, std::uint32_t slot) { emit(lane, rows_.of_waiting(lane), slot, kNobody); }
  void tell(Index lane, std::uint32_t slot) { emit(lane, rows_.of_waiting(lane), kBegin, slot); }

  std::uint32_t row_of(const Op& op) {
    Pass& pass = passes_[op.virtual_stage * kPasses + at(op.kind)];
    std::uint32_t& kept = pass.row[op.micro_batch == last_];
    if (kept != PriceRows::kNone) return kept;
    const std::uint32_t row = rows_.of_pass(op);
    if (rows_.one_row()) kept = row;
    return row;
  }

  // --- ops that streams have to do with, updates, cells, and those with several messages ------------------------------

  [[gnu::noinline]] LaneState** run_general(LaneState& lane, LaneState** coming) {
    if (lane.next == lane.end) return coming;
    coming_ = coming;
    const std::span<const Op> cell = cell_of(costs_, {lane.next, lane.end});
    if (cell.size() > 1 && waits_for_itself(cell)) throw cells_wait(cell.front(), position_of(lane));
    if (std::ranges::all_of(cell, [&](const Op& op) { return may_run(lane, op); })) {
      lane.next += cell.size();
      ++events_;
      run_cell(lane, cell);
      find_stop(lane);
      *coming_++ = &lane;
      touched_.push_back(position_of(lane));
      run_streams();
    }
    return coming_;
  }

  // The gates or triggers of an op, from the next one of the lane on.
  template <class Link>
  std::span<const Link> of_op(const std::vector<Link>& links, std::uint32_t next, const LaneState& lane,
                              const Op& op) const {
    const auto number = static_cast<std::uint32_t>(&op - schedule_.positions[position_of(lane)].compute.data());
    auto begin = links.begin() + next;
    while (begin != links.end() && begin->op < number)  // of the op before it in its cell
      ++begin;
    auto end = begin;
    while (end != links.end() && end->op == number)
      ++end;
    return {begin, end};
  }

  // False, and the lane parked, while something that the op needs is missing.
  bool may_run(LaneState& lane, const Op& op) {
    const PositionId position = position_of(lane);
    for (const StreamLinks::Gate& gate : of_op(links_[position].gates, lane.next_gate, lane, op))
      if (stream(position, gate.stream).next < gate.count) {
        lane.gated = true;
        return false;
      }
    for (const std::uint32_t edge : rows_.takes(op))
      if (const std::size_t way = PriceRows::way(edge, op); slots_.arrived(way, op.micro_batch) == kNobody) {
        lane.waits_for = static_cast<std::int32_t>(way);
        return false;
      }
    return true;
  }

  // Everything that the ops need, then each with what it lets begin, then what they send.
  void run_cell(LaneState& lane, std::span<const Op> cell) {
    const PositionId position = position_of(lane);
    std::uint32_t needs = kBegin;  // by the first record
    const auto need = [&](std::uint32_t slot) {
      if (needs != kBegin) wait(lane.lane, needs);
      needs = slot;
    };
    for (const Op& op : cell) {
      const auto gates = of_op(links_[position].gates, lane.next_gate, lane, op);
      for (const StreamLinks::Gate& gate : gates)
        need(end_of(stream(position, gate.stream).ops[gate.count - 1]));
      lane.next_gate += static_cast<std::uint32_t>(gates.size());
      for (const std::uint32_t edge : rows_.takes(op)) {
        const std::uint32_t slot = slots_.arrived(PriceRows::way(edge, op), op.micro_batch);
        slots_.messages()[slot].micro_batch = kEmpty;
        need(slot);
      }
    }
    std::uint32_t row = cell.size() > 1 ? rows_.of_cell(cell) : PriceRows::kNone;
    for (const Op& op : cell) {
      const auto triggers = of_op(links_[position].triggers, lane.next_trigger, lane, op);
      lane.next_trigger += static_cast<std::uint32_t>(triggers.size());
      for (const StreamLinks::Trigger& one : triggers)
        if (one.from != StreamLinks::From::End)
          emit(lane.lane, rows_.of_waiting(lane.lane), std::exchange(needs, kBegin),
               begun(position, one).begin = slots_.add());
      if (cell.size() > 1)
        emit(lane.lane, row++, std::exchange(needs, kBegin), kNobody);
      else
        run_op(lane, op, std::exchange(needs, kBegin));
      for (const StreamLinks::Trigger& one : triggers) {
        StreamOp& begins = begun(position, one);
        if (one.from == StreamLinks::From::Start) {
          begins.ready = std::exchange(begins.begin, kBegin);
        } else {
          tell(lane.lane, begins.ready = slots_.add());
          begins.completing = static_cast<std::uint32_t>(order_.completing_.size());
          if (one.from == StreamLinks::From::Part) order_.completing_.push_back(op);
        }
      }
    }
    for (const Op& op : cell)
      for (const std::uint32_t edge : rows_.sends(op))
        if (cell.size() > 1) emit(lane.lane, row++, kBegin, send(op, edge));
  }
  StreamOp& begun(PositionId position, const StreamLinks::Trigger& trigger) {
    return stream(position, trigger.stream).ops[trigger.communication];
  }

  // Its own record, and one for each message behind the first.
  void run_op(LaneState& lane, const Op& op, std::uint32_t needs) {
    const std::span<const std::uint32_t> edges = rows_.sends(op);
    const std::uint32_t row = op.kind == Kind::Update ? rows_.of_update(op, position_of(lane)) : row_of(op);
    emit(lane.lane, row, needs, edges.empty() ? kNobody : send(op, edges.front()));
    for (std::size_t i = 1; i < edges.size(); ++i)
      emit(lane.lane, rows_.of_message(op, PriceRows::way(edges[i], op)), kBegin, send(op, edges[i]));
  }

  // The slot in which the message arrives.
  std::uint32_t send(const Op& op, std::uint32_t edge) {
    const std::size_t way = PriceRows::way(edge, op);
    std::uint32_t slot = slots_.ring(way).slot(op.micro_batch);
    if (slots_.messages()[slot].micro_batch != kEmpty) slot = grow(way, op.micro_batch);
    slots_.messages()[slot] = {op.micro_batch, wave_};
    LaneState& receiver = receiver_of(op, way);
    if (receiver.waits_for == static_cast<std::int32_t>(way)) {
      receiver.waits_for = kNoWay;
      *coming_++ = &receiver;
    }
    return slot;
  }

  void find_stop(LaneState& lane) const {
    const PositionId position = position_of(lane);
    const Op* const ops = schedule_.positions[position].compute.data();
    while (lane.next_update != lane.end && (lane.next_update < lane.next || lane.next_update->kind != Kind::Update))
      ++lane.next_update;
    lane.stop = order_.cells_ ? lane.next : lane.next_update;
    const auto earlier = [&](const auto& links, std::size_t next) {
      if (next < links.size()) lane.stop = std::min(lane.stop, ops + links[next].op);
    };
    earlier(links_[position].gates, lane.next_gate), earlier(links_[position].triggers, lane.next_trigger);
  }

  // --- streams -----------------------------------------------------------------------------------------------------

  Stream& stream(PositionId position, StreamId s) { return streams_[kStreams.size() * at(position) + s]; }

  // For one of those who wait for it.
  std::uint32_t end_of(StreamOp& op) { return --op.readers == 0 ? slots_.read(op.end) : op.end; }

  // Of the workers for which something has changed, until nothing can begin.
  void run_streams() {
    while (!touched_.empty()) {
      const PositionId position = touched_.back();
      touched_.pop_back();
      for (StreamId s = 0; s < kStreams.size(); ++s)
        if (Stream& one = stream(position, s); one.next < one.ops.size() && (one.joined || joins(position, one)))
          kStreams[s].among == Among::Worker ? run_own(position, one) : meet(position, s);
    }
  }

  // Whether the worker is ready for its next op.
  bool joins(PositionId position, Stream& stream_of) {
    StreamOp& op = stream_of.ops[stream_of.next];
    if (op.waits && op.ready == kBegin) return false;
    for (const StreamLinks::After& after : op.after)
      if (after.count > stream(position, after.stream).next) return false;
    for (const StreamLinks::After& after : op.after)
      if (after.count > 0) wait(stream_of.lane, end_of(stream(position, after.stream).ops[after.count - 1]));
    return stream_of.joined = true;
  }

  // A worker's own op needs nobody else.
  void run_own(PositionId position, Stream& of) {
    StreamOp& op = of.ops[of.next];
    const std::uint32_t row = rows_.of_own(op.op, of.lane);
    ++order_.rows_[row].times;
    const std::uint32_t needs = slots_.read(op.ready);
    emit(of.lane, row, needs, op.readers > 0 ? op.end = slots_.add() : kNobody);
    over(position, of);
  }
  void over(PositionId position, Stream& of) {
    ++of.next, of.joined = false, ++events_;
    touched_.push_back(position);
    LaneState& lane = lanes_[at(position)];
    if (std::exchange(lane.gated, false)) *coming_++ = &lane;
  }

  // The next op runs if all its members have joined.
  void meet(PositionId position, StreamId s) {
    const Op op = stream(position, s).ops[stream(position, s).next].op;
    bool all = true;
    const auto for_each = [&](const auto& use) {
      wiring_.for_each_member(op, WorkerId{int{position}}, [&](WorkerId one) {
        const auto member = schedule_.position_of(one);
        use(member, stream(member, s));
      });
    };
    for_each([&](PositionId, const Stream& of) { all = all && of.joined && of.ops[of.next].op.bucket == op.bucket; });
    if (!all) return;
    Meeting meeting{.record = records_.size(),
                    .members = static_cast<std::uint32_t>(order_.members_.size()),
                    .op = op,
                    .all_buckets = together(op)};
    for_each([&](PositionId, Stream& of) {
      StreamOp& own = of.ops[of.next];
      order_.members_.push_back({.lane = of.lane,
                                 .ready = slots_.read(own.ready),
                                 .begin = slots_.read(own.begin),
                                 .completing = own.completing});
    });
    // All is read by now, so that slots may be used again.
    Member* member = order_.members_.data() + meeting.members;
    for_each([&](PositionId at_position, Stream& of) {
      if (StreamOp& own = of.ops[of.next]; own.readers > 0) member->gives = own.end = slots_.add();
      ++member;
      over(at_position, of);
    });
    meeting.end = static_cast<std::uint32_t>(order_.members_.size());
    order_.meetings_.push_back(meeting);
  }

  // --- steady states -----------------------------------------------------------------------------------------------

  // What has been run, and what is under way, between two waves.
  struct Moment {
    std::vector<LaneState> lanes;
    std::vector<Sent> sent;
    std::size_t records = 0, events = 0;
  };

  // A moment is kept, and each later one compared with it. One that is alike, some micro-batches later, comes again, and so
  // does what ran in between, for as long as the lists go on alike. Until it is found, moments are kept at longer and
  // longer intervals, since it may be long until the first one comes again.
  void look_for_repeats() {
    if (const std::int64_t later = kept_.lanes.empty() ? 0 : later_than(kept_); later != 0) {
      if (const std::size_t times = again(kept_, later); times > 0) {
        run_again(kept_, later, times);
        interval_ = kWaves, keep_at_ = wave_ + kWaves;
      }
      kept_.lanes.clear();
    }
    if (wave_ < keep_at_) return;
    kept_ = {lanes_, slots_.messages(), records_.size(), events_};
    interval_ *= 2, keep_at_ = wave_ + interval_;
  }

  // By how many micro-batches all lists and messages are ahead of the moment, with the same rows and slots; 0: they are not
  // alike, or an op of the general path ran in between.
  std::int64_t later_than(const Moment& moment) {
    const LaneState &first = lanes_.front(), &was = moment.lanes.front();
    if (moment.events != events_ || first.next == first.end) return 0;
    const std::int64_t later = std::int64_t{first.next->micro_batch} - was.next->micro_batch;
    if (later % schedule_.shape.slices != 0) return 0;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const LaneState &lane = lanes_[i], &before = moment.lanes[i];
      if (lane.next != before.next && (lane.next == lane.end || !alike(*before.next, *lane.next, later))) return 0;
    }
    return slots_.later(moment.sent, later) ? later : 0;
  }

  bool alike(const Op& before, const Op& now, std::int64_t later) const {
    return before.kind == now.kind && before.virtual_stage == now.virtual_stage &&
           before.micro_batch + later == now.micro_batch && before.micro_batch != last_ && now.micro_batch != last_;
  }

  // How often all that has run since the moment can run again.
  std::size_t again(const Moment& moment, std::int64_t later) const {
    std::size_t times = std::numeric_limits<std::size_t>::max();
    for (std::size_t i = 0; i < lanes_.size() && times > 0; ++i) {
      const Op *const next = lanes_[i].next, *const end = lanes_[i].stop;
      const std::ptrdiff_t ran = next - moment.lanes[i].next;
      if (ran == 0) continue;
      const Op* op = next;
      while (op != end && alike(op[-ran], *op, later))
        ++op;
      times = std::min(times, static_cast<std::size_t>((op - next) / ran));
    }
    return times;
  }

  void run_again(const Moment& moment, std::int64_t later, std::size_t times) {
    order_.repeats_.push_back({moment.records, records_.size(), times});
    for (std::size_t i = 0; i < lanes_.size(); ++i)
      lanes_[i].next += static_cast<std::ptrdiff_t>(times) * (lanes_[i].next - moment.lanes[i].next);
    slots_.move_on(static_cast<std::int64_t>(times) * later);
  }

  const Schedule& schedule_;
  const StepCosts& costs_;  // their edges, and which ops are a cell
  const Seating seating_;
  const Wiring wiring_;  // of one copy
  std::uint32_t last_;   // micro-batch M - 1
  std::size_t ops_ = 0;
  CompiledOrder order_;
  Records<Index> records_;
  PriceRows rows_;
  OrderSlots slots_;
  std::vector<LaneState> lanes_;
  std::vector<Pass> passes_;  // by chunk and kind
  Indexed<PositionId, StreamLinks> links_;
  std::vector<Stream> streams_;      // by position and stream
  std::vector<PositionId> touched_;  // whose streams may go on
  LaneState** coming_ = nullptr;     // end of the next wave's lanes
  std::size_t events_ = 0;           // ops of the general path and of streams so far
  std::uint32_t wave_ = 0;
  Moment kept_;
  std::uint32_t keep_at_ = kWaves, interval_ = kWaves;
};

CompiledOrder CompiledOrder::of(const Schedule& schedule, const StepCosts& costs) {
  if (auto order = Compiler<std::uint16_t>(schedule, costs).run()) return *std::move(order);
  return Compiler<std::uint32_t>(schedule, costs).run().value();
}

}  // namespace pipewright::sim
