#include "sim/compiled_order.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/check.hpp"
#include "core/folds.hpp"
#include "sim/run_length.hpp"
#include "sim/static_order.hpp"

namespace pipewright::sim {
namespace {

constexpr std::uint32_t kBegin = 0;   // the slot of what is there from the start
constexpr std::uint32_t kNobody = 1;  // the slot of what nobody reads
constexpr std::uint32_t kUnset = 0;   // of a message: not sent yet
constexpr std::int32_t kNoIndex = -1;
constexpr std::size_t kMostHolders = 8;

}  // namespace

bool same_passes(const ScheduleShape& a, const std::vector<Edge>& edges, const StepCosts& costs) {
  const ScheduleShape& b = costs.shape;
  const auto same = [](const Edge& x, const Edge& y) { return x.from == y.from && x.to == y.to; };
  return a.stages == b.stages && a.virtual_stages == b.virtual_stages && a.units == b.units &&
         a.reduce_each == b.reduce_each && a.micro_batches == b.micro_batches && a.slices == b.slices &&
         a.chunk_order == b.chunk_order && a.group == b.group && a.replicas == b.replicas && a.updated == b.updated &&
         a.recompute == b.recompute && a.recompute_except_last == b.recompute_except_last && a.given == b.given &&
         std::equal(edges.begin(), edges.end(), costs.edges.begin(), costs.edges.end(), same);
}

// Runs the lists in waves, without a clock.
class CompiledOrder::Compiler {
 public:
  Compiler(const Schedule& schedule, const std::vector<Edge>& edges)
      : schedule_(schedule),
        edges_(edges),
        seating_(schedule.seating()),
        micro_batches_(at(schedule.shape.micro_batches)),
        chunks_(at(seating_.chunks())) {
    order_.shape_ = schedule.shape;
  }

  std::optional<CompiledOrder> run() {
    if (!compiles()) return std::nullopt;
    prepare();
    auto wave = mapped<LaneState*>(lanes_, [](LaneState& lane) { return &lane; });
    while (!wave.empty()) {
      coming_.clear(), made_.clear();
      for (LaneState* const lane : wave)
        step(*lane);
      for (const Made& made : made_)
        publish(made);
      wave.swap(coming_);
    }
    for (const LaneState& lane : lanes_)
      PP_CHECK(lane.next == lane.end);
    if (!fits_) return std::nullopt;
    add_marks();
    return std::move(order_);
  }

 private:
  struct LaneState {
    const Op* next = nullptr;
    const Op* end = nullptr;
    const std::uint32_t* waits_for = nullptr;  // where the slot of the message that its next op needs will be written
    std::uint16_t lane = 0;
  };
  struct Made {
    std::uint32_t* sent;  // where the slot of the message is written
    std::uint32_t slot;
    LaneState* receiver;
  };
  struct Chunk {
    std::uint32_t *before = nullptr,
                  *after = nullptr;  // slots of the forward's input by micro-batch, and of its output
    std::uint32_t *gradient = nullptr, *passed_on = nullptr;  // likewise of the backward
    std::int32_t in = kNoIndex, out = kNoIndex;               // edges
    LaneState* one = nullptr;                                 // its holder, if there is one only
  };

  bool compiles() {
    const bool gathers = schedule_.shape.updated == UpdatedParts::BehindUpdate;
    for (const Lane& lane : schedule_.positions)
      if (lane.ops() != lane.compute.size() + lane.communication[kReductions].size() +
                            lane.communication[kTables].size() + (gathers ? lane.communication[kGathers].size() : 0))
        return false;
    if (!schedule_.flush || schedule_.shape.reduce_each ||
        seating_.positions() > std::numeric_limits<std::uint16_t>::max())
      return false;
    for (std::size_t e = 0; e < edges_.size(); ++e) {
      std::int32_t &out = chunks_[edges_[e].from].out, &in = chunks_[edges_[e].to].in;
      if (out != kNoIndex || in != kNoIndex) return false;
      out = in = static_cast<std::int32_t>(e);
    }
    for (VirtualStageId v = 0; v < seating_.chunks(); ++v)
      holders_ = std::max(holders_, at(seating_.holders(v)));
    constexpr std::size_t kMostRows = 1 << 20;
    return holders_ <= kMostHolders && chunks_.size() * holders_ * holders_ * slices_ <= kMostRows;
  }

  void prepare() {
    for (auto* const sent : {&forward_, &backward_})
      sent->assign(edges_.size() * row_, kUnset);
    rows_.assign(chunks_.size() * kKinds * holders_ * holders_ * (slices_ + 1), kNoIndex);
    last_gradient_.assign(chunks_.size() * holders_, kNoIndex);
    std::size_t ops = 0;
    for (const Lane& lane : schedule_.positions) {
      ops += lane.compute.size();
      lanes_.push_back({lane.compute.data(), lane.compute.data() + lane.compute.size(), nullptr,
                        static_cast<std::uint16_t>(lanes_.size())});
    }
    order_.records_.reserve(ops);
    order_.flushed_.resize(lanes_.size());
    order_.slots_ = 2;
    const auto row = [this](std::vector<std::uint32_t>& sent, std::int32_t edge) {
      return edge == kNoIndex ? nullptr : sent.data() + at(edge) * row_;
    };
    for (VirtualStageId v = 0; v < seating_.chunks(); ++v) {
      Chunk& chunk = chunks_[at(v)];
      chunk.before = row(forward_, chunk.in), chunk.after = row(forward_, chunk.out);
      chunk.gradient = row(backward_, chunk.out), chunk.passed_on = row(backward_, chunk.in);
      if (seating_.holders(v) == 1) chunk.one = &lanes_[at(seating_.position(v, 0))];
    }
  }

  // The next op of a worker, if what it needs was there before this wave.
  void step(LaneState& lane) {
    while (lane.next != lane.end && lane.next->kind == Kind::Update)
      order_.flushed_[lane.lane].push_back((lane.next++)->virtual_stage);
    if (lane.next == lane.end) return;
    const Op& op = *lane.next;
    const Chunk& chunk = chunks_[op.virtual_stage];
    __builtin_prefetch(lane.next + 16);
    std::uint32_t needs = kBegin;
    Given given;
    if (rule(op.kind).forward) {
      if (!take(lane, chunk.before, op, needs)) return;
      given = give(chunk.after, chunk.out, true, op);
    } else if (rule(op.kind).backward) {
      if (!take(lane, chunk.gradient, op, needs)) return;
      given = give(chunk.passed_on, chunk.in, false, op);
    } else {
      given.row = row_of(op, kNoIndex, 0);
    }
    if (rule(op.kind).gradients)
      last_gradient_[op.virtual_stage * holders_ + own(op)] = static_cast<std::int64_t>(order_.records_.size());
    order_.records_.push_back({needs, given.slot, lane.lane, given.row});
    ++lane.next;
    coming_.push_back(&lane);
  }

  // The slot of the message that the op needs; false, and the lane parked, where it is not there.
  bool take(LaneState& lane, const std::uint32_t* sent, const Op& op, std::uint32_t& slot) {
    if (sent == nullptr) return true;
    const std::uint32_t found = sent[op.micro_batch];
    if (found == kUnset) {
      lane.waits_for = &sent[op.micro_batch];
      return false;
    }
    free_.push_back(slot = found);
    return true;
  }

  struct Given {
    std::uint32_t slot = kNobody;
    std::uint16_t row = 0;
  };
  Given give(std::uint32_t* sent, std::int32_t edge, bool forward, const Op& op) {
    Given given;
    int peer = 0;
    if (sent != nullptr) {
      const VirtualStageId other = forward ? edges_[at(edge)].to : edges_[at(edge)].from;
      LaneState* receiver = chunks_[at(other)].one;
      if (receiver == nullptr) {
        peer = seating_.holder_of(other, op.micro_batch);
        receiver = &lanes_[at(seating_.position(other, peer))];
      }
      given.slot = taken();
      made_.push_back({&sent[op.micro_batch], given.slot, receiver});
    }
    given.row = row_of(op, edge, peer);
    return given;
  }

  void publish(const Made& made) {
    *made.sent = made.slot;
    if (made.receiver->waits_for != made.sent) return;
    made.receiver->waits_for = nullptr;
    coming_.push_back(made.receiver);
  }

  std::uint32_t taken() {
    if (free_.empty()) return order_.slots_++;
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }

  // Which of its chunk's holders runs the op.
  std::size_t own(const Op& op) const {
    return chunks_[op.virtual_stage].one != nullptr ? 0 : at(seating_.holder_of(op.virtual_stage, op.micro_batch));
  }

  std::uint16_t row_of(const Op& op, std::int32_t edge, int peer) {
    const std::size_t size = op.micro_batch + 1 == micro_batches_ ? slices_ : op.micro_batch % slices_;
    const std::size_t kind = op.virtual_stage * std::size_t{kKinds} + at(op.kind);
    std::int32_t& row = rows_[((kind * holders_ + own(op)) * holders_ + at(peer)) * (slices_ + 1) + size];
    if (row == kNoIndex) {
      row = static_cast<std::int32_t>(order_.rows_.size());
      order_.rows_.push_back({op, edge, rule(op.kind).forward ? Direction::Forward : Direction::Backward});
      fits_ &= row <= std::numeric_limits<std::uint16_t>::max();
    }
    return static_cast<std::uint16_t>(row);
  }

  void add_marks() {
    order_.marks_of_.resize(chunks_.size());
    for (std::size_t i = 0; i < last_gradient_.size(); ++i)
      if (const std::int64_t at_record = last_gradient_[i]; at_record != kNoIndex) {
        const Record& record = order_.records_[at(at_record)];
        order_.marks_.push_back({static_cast<std::uint32_t>(at_record), static_cast<VirtualStageId>(i / holders_),
                                 record.lane, order_.rows_[record.row].op});
      }
    std::ranges::sort(order_.marks_, [](const Mark& a, const Mark& b) { return a.record < b.record; });
    for (std::uint32_t i = 0; i < order_.marks_.size(); ++i)
      order_.marks_of_[at(order_.marks_[i].chunk)].push_back(i);
  }

  const Schedule& schedule_;
  const std::vector<Edge>& edges_;
  const Seating seating_;
  std::size_t micro_batches_;
  std::size_t row_ =
      micro_batches_ + 16;   // slots by edge: a cache line more, so that rows of 2^n do not share cache sets
  std::size_t holders_ = 1;  // of the chunk with most
  std::size_t slices_ = at(schedule_.shape.slices);
  std::vector<Chunk> chunks_;
  bool fits_ = true;  // rows have 16 bits
  CompiledOrder order_;
  std::vector<std::uint32_t> forward_, backward_;  // by edge and micro-batch: the slot of the message
  std::vector<LaneState> lanes_;
  std::vector<LaneState*> coming_;   // of the next wave
  std::vector<std::uint32_t> free_;  // slots that have been read
  std::vector<Made> made_;           // messages of this wave
  std::vector<std::int32_t> rows_;   // by chunk, kind, holder, holder of the receiver, slice; last: micro-batch M - 1
  std::vector<std::int64_t> last_gradient_;  // by chunk and holder: the record
};

std::optional<CompiledOrder> CompiledOrder::of(const Schedule& schedule, const std::vector<Edge>& edges) {
  return Compiler(schedule, edges).run();
}

// The clocks of one copy.
struct CompiledOrder::Sweep {
  struct Price {
    std::int64_t duration = 0, occupancy = 0, latency = 0;
    std::size_t channel = 0;
  };
  std::vector<Price> prices;          // by row
  std::vector<std::int64_t> time;     // by lane: end of its last op
  std::vector<std::int64_t> arrival;  // by slot
  std::vector<std::int64_t> channel;  // when it is free again; those behind the real ones belong to a row each
  std::vector<Span> gradient;         // by mark

  Sweep(const CompiledOrder& order, const StepCosts& costs, CopyId copy)
      : time(order.flushed_.size()),
        arrival(order.slots_),
        channel(at(costs.channels) + order.rows_.size()),
        gradient(order.marks_.size()) {
    for (const Row& row : order.rows_) {
      Price& price = prices.emplace_back();
      price.duration = costs.time_of(row.op).value;
      price.channel = at(costs.channels) + prices.size() - 1;
      if (row.edge == kNoIndex) continue;
      const Message& message =
          costs.message(at(row.edge), row.direction, copy, static_cast<MicroBatchId>(row.op.micro_batch));
      if (message.channel < 0) continue;
      price.occupancy = message.occupancy.value, price.latency = message.latency.value;
      price.channel = at(message.channel);
    }
  }

  void run(const CompiledOrder& order) {
    const Record* record = order.records_.data();
    for (std::size_t i = 0; i < order.marks_.size(); ++i) {
      const Mark& mark = order.marks_[i];
      record = until(record, order.records_.data() + mark.record + 1);
      const std::int64_t end = time[at(mark.position)];
      gradient[i] = {Time{end - prices[order.records_[mark.record].row].duration}, Time{end}};
    }
    until(record, order.records_.data() + order.records_.size());
  }

 private:
  const Record* until(const Record* record, const Record* end) {
    std::int64_t *const times = time.data(), *const arrivals = arrival.data(), *const channels = channel.data();
    const Price* const of_row = prices.data();
    for (; record != end; ++record) {
      const Price& price = of_row[record->row];
      const std::int64_t done = std::max(times[record->lane], arrivals[record->needs]) + price.duration;
      times[record->lane] = done;
      const std::int64_t sent = std::max(channels[price.channel], done) + price.occupancy;
      channels[price.channel] = sent;
      arrivals[record->gives] = sent + price.latency;
    }
    return end;
  }
};

Time CompiledOrder::makespan(const StepCosts& costs) const {
  PP_CHECK(costs.settled.empty());
  check_run_length(costs);
  std::vector<Sweep> copies;
  for (CopyId copy = 0; copy < costs.shape.data_parallel; ++copy)
    copies.emplace_back(*this, costs, copy).run(*this);
  return flush(costs, copies);
}

// The members of a group run their all-reduces one after the other, each when the last member's gradients are complete.
Time CompiledOrder::flush(const StepCosts& costs, std::vector<Sweep>& copies) const {
  const Seating seating = shape_.seating();
  std::vector<Time> reduced(at(seating.chunks())), stream(at(seating.stages));  // end of a chunk's, of a group's
  std::vector<Time> updated(reduced.size());
  Time last;
  if (!costs.collectives.empty())
    for (StageId group = 0; group < seating.stages; ++group) {
      const VirtualStageId first = seating.chunk_of(group, 0);
      if (seating.group_of(first) != group) continue;
      for (const VirtualStageId v : flushed_[at(seating.position(first, 0))])
        for (std::size_t bucket = 0; bucket < costs.collectives[v].size(); ++bucket) {
          Time ready = stream[at(group)];
          for (const std::uint32_t i : marks_of_[at(v)])
            for (const Sweep& copy : copies)
              ready = std::max({ready, copy.gradient[i].start,
                                copy.gradient[i].end - costs.ready_before_end_of(marks_[i].op, bucket)});
          stream[at(group)] = reduced[at(v)] = ready + costs.collectives[v][bucket].time;
          last = std::max(last, reduced[at(v)]);
        }
    }
  Time tables;  // end of their all-reduce
  for (const VirtualStageId v : costs.shape.tied) {
    tables = std::max(tables, reduced[at(v)]);
    for (const std::uint32_t i : marks_of_[at(v)])
      for (const Sweep& copy : copies)
        tables = std::max(tables, copy.gradient[i].end);
  }
  tables += costs.tied.time;
  for (const VirtualStageId v : costs.shape.tied)
    last = std::max(last, reduced[at(v)] = tables);
  for (Sweep& copy : copies)
    for (std::size_t lane = 0; lane < flushed_.size(); ++lane) {
      Time end{copy.time[lane]};
      for (const VirtualStageId v : flushed_[lane]) {
        const Op update{Kind::Update, static_cast<std::uint16_t>(v)};
        end = std::max(end, reduced[at(v)]) + costs.time_of(update);
        updated[at(v)] = std::max(updated[at(v)], end);
      }
      last = std::max(last, end);
    }
  if (costs.shape.updated != UpdatedParts::BehindUpdate || costs.gathers.empty()) return last;
  for (StageId group = 0; group < seating.stages; ++group) {
    const VirtualStageId first = seating.chunk_of(group, 0);
    if (seating.group_of(first) != group) continue;
    Time end;
    for (const VirtualStageId v : flushed_[at(seating.position(first, 0))])
      if (seating.reduced(v)) end = std::max(end, updated[at(v)]) + costs.gathers[v].time;
    last = std::max(last, end);
  }
  return last;
}

Time Makespans::operator()(const StepCosts& costs) {
  constexpr std::int64_t kMostPasses = 1 << 22;  // 50 MB of records
  if (costs.together || !costs.settled.empty()) return static_order_makespan(rule_.generate(costs.shape), costs);
  const bool again = times_ != Asked::Never && same_passes(asked_, edges_, costs);
  if (again && order_) return order_->makespan(costs);
  const Schedule schedule = rule_.generate(costs.shape);
  if (!again) {
    order_.reset();
    asked_ = costs.shape, edges_ = costs.edges, times_ = Asked::Once;
  } else if (times_ == Asked::Once) {  // once: an order that has no compiled form is not tried each time
    times_ = Asked::Again;
    if (3 * std::int64_t{asked_.chunks()} * asked_.micro_batches <= kMostPasses)
      order_ = CompiledOrder::of(schedule, costs.edges);
  }
  return order_ ? order_->makespan(costs) : static_order_makespan(schedule, costs);
}

}  // namespace pipewright::sim
