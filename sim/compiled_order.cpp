#include "sim/compiled_order.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>

#include "core/check.hpp"
#include "core/folds.hpp"
#include "sim/run_length.hpp"
#include "sim/static_order.hpp"

namespace pipewright::sim {
namespace {

constexpr std::uint32_t kBegin = 0;      // the slot of what is there from the start
constexpr std::uint32_t kNobody = 1;     // the slot of what nobody reads
constexpr std::uint32_t kFirstRing = 2;  // the first slot of messages
constexpr std::uint32_t kRing = 4;       // slots of an edge at first
constexpr std::uint32_t kEmpty = ~0u;
constexpr std::uint16_t kNoRow = std::numeric_limits<std::uint16_t>::max();
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
        last_(static_cast<std::uint32_t>(schedule.shape.micro_batches - 1)),
        chunks_(at(seating_.chunks())),
        in_(chunks_, kNoIndex),
        out_(chunks_, kNoIndex) {
    order_.shape_ = schedule.shape;
  }

  std::optional<CompiledOrder> run() {
    if (!compiles()) return std::nullopt;
    prepare();
    run_waves();
    for (const LaneState& lane : lanes_)
      PP_CHECK(lane.next == lane.end);
    order_.slots_ = sent_.size();
    if (order_.slots_ > kMost || order_.rows_.size() > kMost) return std::nullopt;
    add_marks();
    order_.records_.shrink_to_fit();
    return std::move(order_);
  }

 private:
  static constexpr std::size_t kMost = std::numeric_limits<std::uint16_t>::max();  // slots, rows
  static constexpr std::size_t kFewRecords = 1 << 16;      // there is no need for more where a steady state is found
  static constexpr std::uint32_t kWaves = 16;              // until a moment is kept
  static constexpr std::size_t kPasses = at(Kind::R) + 1;  // kinds of them: F, B, W, BW, R
  // Slots of the messages on a way (an edge in one direction), 2^n of them: that of micro-batch m is begin + m mod 2^n.
  struct Ring {
    std::uint32_t begin = 0, mask = 0;
    std::uint32_t slot(std::uint32_t micro_batch) const { return begin + (micro_batch & mask); }
  };
  // A message in its slot.
  struct Sent {
    std::uint32_t micro_batch = kEmpty;
    std::uint32_t wave = 0;  // of its sender
  };
  struct LaneState {
    const Op* next = nullptr;
    const Op* end = nullptr;
    std::int32_t waits_for = kNoIndex;  // parked until something is sent on this way
    std::uint16_t lane = 0;
  };
  // What ops of one kind of a chunk have in common: one cache line.
  struct alignas(64) Pass {
    Ring needs{kBegin}, gives{kNobody};
    std::int32_t needs_way = kNoIndex, gives_way = kNoIndex;
    LaneState* receiver = nullptr;                        // of what they give; nullptr: several
    std::array<std::uint16_t, 2> row = {kNoRow, kNoRow};  // of micro-batch M - 1: the second; kNoRow: ask `row_of`
  };

  // At the end of a list.
  static std::span<const Op> updates(const Lane& lane) {
    std::size_t passes = lane.compute.size();
    while (passes > 0 && lane.compute[passes - 1].kind == Kind::Update)
      --passes;
    return std::span(lane.compute).subspan(passes);
  }

  bool compiles() {
    const bool gathers = schedule_.shape.updated == UpdatedParts::BehindUpdate;
    for (const Lane& lane : schedule_.positions) {
      if (std::ssize(updates(lane)) != seating_.held()) return false;
      if (lane.ops() != lane.compute.size() + lane.communication[kReductions].size() +
                            lane.communication[kTables].size() + (gathers ? lane.communication[kGathers].size() : 0))
        return false;
    }
    if (!schedule_.flush || schedule_.shape.reduce_each ||
        seating_.positions() > std::numeric_limits<std::uint16_t>::max())
      return false;
    for (std::size_t e = 0; e < edges_.size(); ++e) {
      std::int32_t &out = out_[edges_[e].from], &in = in_[edges_[e].to];
      if (out != kNoIndex || in != kNoIndex) return false;
      out = in = static_cast<std::int32_t>(e);
    }
    for (VirtualStageId v = 0; v < seating_.chunks(); ++v)
      holders_ = std::max(holders_, at(seating_.holders(v)));
    constexpr std::size_t kMostRows = 1 << 20;
    return holders_ <= kMostHolders && chunks_ * holders_ * holders_ * slices_ <= kMostRows;
  }

  void prepare() {
    order_.flushed_.resize(schedule_.positions.size());
    for (const Lane& lane : schedule_.positions) {
      const std::span<const Op> flush = updates(lane);
      for (const Op& update : flush)
        order_.flushed_[lanes_.size()].push_back(update.virtual_stage);
      const std::size_t passes = lane.compute.size() - flush.size();
      lanes_.push_back({.next = lane.compute.data(),
                        .end = lane.compute.data() + passes,
                        .lane = static_cast<std::uint16_t>(lanes_.size())});
      ops_ += passes;
    }
    order_.records_.reserve(std::min(ops_, kFewRecords));
    rows_.assign(chunks_ * kPasses * holders_ * holders_ * (slices_ + 1), kNoRow);
    passes_.resize(chunks_ * kPasses);
    outgrown_.resize(2 * edges_.size());
    sent_.resize(kFirstRing);
    for (std::size_t way = 0; way < outgrown_.size(); ++way)
      add_ring(way, kRing);
  }

  // Messages on the way have so many slots from now on.
  void add_ring(std::size_t way, std::uint32_t slots) {
    const Ring ring{static_cast<std::uint32_t>(sent_.size()), slots - 1};
    sent_.resize(sent_.size() + slots);
    const Edge& edge = edges_[way / 2];
    const bool forward = way % 2 == 0;
    const VirtualStageId sender = forward ? edge.from : edge.to, receiver = forward ? edge.to : edge.from;
    for (std::size_t kind = 0; kind < kPasses; ++kind) {
      if (forward ? !kKindRules[kind].forward : !kKindRules[kind].backward) continue;
      Pass &gives = passes_[at(sender) * kPasses + kind], &needs = passes_[at(receiver) * kPasses + kind];
      gives.gives = needs.needs = ring;
      gives.gives_way = needs.needs_way = static_cast<std::int32_t>(way);
      if (seating_.holders(receiver) == 1) gives.receiver = &lanes_[at(seating_.position(receiver, 0))];
    }
  }

  void run_waves() {
    std::vector<LaneState*> wave, coming(lanes_.size());
    for (LaneState& lane : lanes_)
      wave.push_back(&lane);
    LaneState** end = wave.data() + wave.size();
    for (; end != wave.data(); ++wave_) {
      if (order_.records_.size() + lanes_.size() > order_.records_.capacity()) order_.records_.reserve(ops_);
      end = run_wave(wave.data(), end, coming.data());
      wave.swap(coming);
      if (holders_ == 1) look_for_repeats();  // else rows go by who deals what to whom, too
    }
  }

  // The next op of each worker from `it` to `end`, if what it needs was there before this wave. Those that may run in the
  // next one go to `coming`, whose end it returns.
  LaneState** run_wave(LaneState** it, LaneState** const end, LaneState** coming) {
    Pass* const passes = passes_.data();
    Sent* sent = sent_.data();
    const std::uint32_t now = wave_, last = last_;
    for (; it != end; ++it) {
      LaneState& lane = **it;
      if (lane.next == lane.end) continue;
      const std::uint32_t m = lane.next->micro_batch;
      Pass& pass = passes[lane.next->virtual_stage * kPasses + at(lane.next->kind)];
      __builtin_prefetch(lane.next + 8);
      std::uint32_t needs = pass.needs.slot(m), gives = pass.gives.slot(m);
      if (needs != kBegin) {
        if (sent[needs].micro_batch != m) needs = outgrown(pass, m);
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
          gives = grow(pass, m);
          sent = sent_.data();
        }
        sent[gives] = {m, now};
        LaneState& receiver = pass.receiver != nullptr ? *pass.receiver : receiver_of(*lane.next);
        if (receiver.waits_for == pass.gives_way) {
          receiver.waits_for = kNoIndex;
          *coming++ = &receiver;
        }
      }
      std::uint16_t row = pass.row[m == last];
      if (row == kNoRow) row = row_of(*lane.next, pass);
      order_.records_.push_back({lane.lane, row, static_cast<std::uint16_t>(needs), static_cast<std::uint16_t>(gives)});
      ++lane.next;
      *coming++ = &lane;
    }
    return coming;
  }

  // The slot of a message that was sent before the ring grew; kNobody: there is none.
  [[gnu::cold]] std::uint32_t outgrown(const Pass& pass, std::uint32_t micro_batch) const {
    for (const Ring& old : outgrown_[at(pass.needs_way)])
      if (sent_[old.slot(micro_batch)].micro_batch == micro_batch) return old.slot(micro_batch);
    return kNobody;
  }

  // The slot in a larger ring.
  [[gnu::cold]] std::uint32_t grow(const Pass& pass, std::uint32_t micro_batch) {
    outgrown_[at(pass.gives_way)].push_back(pass.gives);
    add_ring(at(pass.gives_way), 2 * (pass.gives.mask + 1));
    return pass.gives.slot(micro_batch);
  }

  std::int32_t edge_of(const Op& op) const {
    return rule(op.kind).forward ? out_[op.virtual_stage] : rule(op.kind).backward ? in_[op.virtual_stage] : kNoIndex;
  }
  // Which of the holders of the receiving chunk gets the op's message.
  int peer(const Op& op) const {
    const std::int32_t edge = edge_of(op);
    if (edge == kNoIndex) return 0;
    return seating_.holder_of(rule(op.kind).forward ? edges_[at(edge)].to : edges_[at(edge)].from, op.micro_batch);
  }
  [[gnu::cold]] LaneState& receiver_of(const Op& op) {
    const Edge& edge = edges_[at(edge_of(op))];
    return lanes_[at(seating_.position(rule(op.kind).forward ? edge.to : edge.from, peer(op)))];
  }
  // Which of its chunk's holders runs the op.
  std::size_t own(const Op& op) const { return at(seating_.holder_of(op.virtual_stage, op.micro_batch)); }

  [[gnu::cold]] std::uint16_t row_of(const Op& op, Pass& pass) {
    const bool last = op.micro_batch == last_;
    const std::size_t holder = own(op) * holders_ + at(peer(op)), slice = last ? slices_ : op.micro_batch % slices_;
    const std::size_t kind = op.virtual_stage * kPasses + at(op.kind);
    std::uint16_t& row = rows_[(kind * holders_ * holders_ + holder) * (slices_ + 1) + slice];
    if (row == kNoRow) {
      row = static_cast<std::uint16_t>(std::min<std::size_t>(order_.rows_.size(), kNoRow));
      order_.rows_.push_back({op, edge_of(op), rule(op.kind).forward ? Direction::Forward : Direction::Backward});
    }
    if (holders_ == 1 && slices_ == 1) pass.row[last] = row;
    return row;
  }

  // --- steady states -----------------------------------------------------------------------------------------------

  // What has been run, and what is under way, between two waves.
  struct Moment {
    std::vector<LaneState> lanes;
    std::vector<Sent> sent;
    std::size_t records = 0;
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
    kept_ = {lanes_, sent_, order_.records_.size()};
    interval_ *= 2, keep_at_ = wave_ + interval_;
  }

  // By how many micro-batches all lists and messages are ahead of the moment, with the same rows and slots; 0: they are not
  // alike.
  std::int64_t later_than(const Moment& moment) const {
    const LaneState &first = lanes_.front(), &was = moment.lanes.front();
    if (first.next == first.end) return 0;
    const std::int64_t later = std::int64_t{first.next->micro_batch} - was.next->micro_batch;
    if (later % schedule_.shape.slices != 0) return 0;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const LaneState &lane = lanes_[i], &before = moment.lanes[i];
      if (lane.next != before.next && (lane.next == lane.end || !alike(*before.next, *lane.next, later))) return 0;
    }
    const auto same = [&](const Sent& before, const Sent& now) {
      return before.micro_batch == kEmpty ? now.micro_batch == kEmpty : now.micro_batch == before.micro_batch + later;
    };
    return std::equal(moment.sent.begin(), moment.sent.end(), sent_.begin(), sent_.end(), same) ? later : 0;
  }

  bool alike(const Op& before, const Op& now, std::int64_t later) const {
    return before.kind == now.kind && before.virtual_stage == now.virtual_stage &&
           before.micro_batch + later == now.micro_batch && before.micro_batch != last_ && now.micro_batch != last_;
  }

  // How often all that has run since the moment can run again, the last time left out: it has the last gradients (`Mark`).
  std::size_t again(const Moment& moment, std::int64_t later) const {
    std::size_t times = std::numeric_limits<std::size_t>::max();
    for (std::size_t i = 0; i < lanes_.size() && times > 0; ++i) {
      const Op *const next = lanes_[i].next, *const end = lanes_[i].end;
      const std::ptrdiff_t ran = next - moment.lanes[i].next;
      if (ran == 0) continue;
      const Op* op = next;
      while (op != end && alike(op[-ran], *op, later))
        ++op;
      times = std::min(times, static_cast<std::size_t>(std::max<std::ptrdiff_t>((op - next) / ran, 1) - 1));
    }
    return times;
  }

  void run_again(const Moment& moment, std::int64_t later, std::size_t times) {
    order_.repeats_.push_back({moment.records, order_.records_.size(), times});
    for (std::size_t i = 0; i < lanes_.size(); ++i)
      lanes_[i].next += static_cast<std::ptrdiff_t>(times) * (lanes_[i].next - moment.lanes[i].next);
    for (Sent& sent : sent_)
      if (sent.micro_batch != kEmpty)
        sent.micro_batch += static_cast<std::uint32_t>(static_cast<std::int64_t>(times) * later);
  }

  // From the end of the records to the last gradient of each chunk on each holder.
  void add_marks() {
    std::vector<bool> wanted(chunks_ * holders_);
    const auto chunk_on_holder = [&](const Op& op) { return op.virtual_stage * holders_ + own(op); };
    std::ptrdiff_t left = 0;
    for (const Row& row : order_.rows_)
      if (rule(row.op.kind).gradients && !wanted[chunk_on_holder(row.op)])
        wanted[chunk_on_holder(row.op)] = true, ++left;
    for (std::size_t i = order_.records_.size(); left > 0;) {
      const Row& row = order_.rows_[order_.records_[--i].row];
      if (!rule(row.op.kind).gradients || !wanted[chunk_on_holder(row.op)]) continue;
      wanted[chunk_on_holder(row.op)] = false, --left;
      order_.marks_.push_back({static_cast<std::uint32_t>(i), row.op.virtual_stage, order_.records_[i].lane, row.op});
    }
    std::ranges::reverse(order_.marks_);
    order_.marks_of_.resize(chunks_);
    for (std::uint32_t i = 0; i < order_.marks_.size(); ++i)
      order_.marks_of_[at(order_.marks_[i].chunk)].push_back(i);
  }

  const Schedule& schedule_;
  const std::vector<Edge>& edges_;
  const Seating seating_;
  std::uint32_t last_;       // micro-batch M - 1
  std::size_t holders_ = 1;  // of the chunk with most
  std::size_t slices_ = at(schedule_.shape.slices);
  std::size_t chunks_;
  std::size_t ops_ = 0;                 // but updates
  std::vector<std::int32_t> in_, out_;  // edges, by chunk
  CompiledOrder order_;
  std::vector<LaneState> lanes_;
  std::vector<Pass> passes_;         // by chunk and kind
  std::vector<std::uint16_t> rows_;  // by chunk, kind, holder, holder of the receiver, slice; last: micro-batch M - 1
  std::uint32_t wave_ = 0;
  Moment kept_;
  std::uint32_t keep_at_ = kWaves, interval_ = kWaves;
  std::vector<Sent> sent_;                   // by slot
  std::vector<std::vector<Ring>> outgrown_;  // by way: rings that were too small; something may still be there
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
    prices.reserve(order.rows_.size());
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
    for (std::size_t i = 0; i < order.marks_.size(); ++i) {
      const Mark& mark = order.marks_[i];
      run_to(order, mark.record + 1);
      const std::int64_t end = time[at(mark.position)];
      gradient[i] = {Time{end - prices[order.records_[mark.record].row].duration}, Time{end}};
    }
    run_to(order, order.records_.size());
  }

 private:
  std::size_t at_record = 0, at_repeat = 0;

  void run_to(const CompiledOrder& order, std::size_t end) {
    const Record* const records = order.records_.data();
    for (; at_repeat < order.repeats_.size() && order.repeats_[at_repeat].end <= end; ++at_repeat) {
      const Repeat& repeat = order.repeats_[at_repeat];
      sweep(records + at_record, records + repeat.end);
      for (std::size_t i = 0; i < repeat.times; ++i)
        sweep(records + repeat.begin, records + repeat.end);
      at_record = repeat.end;
    }
    sweep(records + at_record, records + end);
    at_record = end;
  }

  void sweep(const Record* record, const Record* end) {
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
  }
};

// What all ops take, one after the other, in nanoseconds.
double CompiledOrder::computing(const StepCosts& costs) const {
  const auto of = [&](std::size_t begin, std::size_t end) {
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i)
      sum += static_cast<double>(costs.time_of(rows_[records_[i].row].op).value);
    return sum;
  };
  double sum = of(0, records_.size());
  for (const Repeat& repeat : repeats_)
    sum += static_cast<double>(repeat.times) * of(repeat.begin, repeat.end);
  for (const std::vector<VirtualStageId>& updates : flushed_)
    for (const VirtualStageId v : updates)
      sum += static_cast<double>(costs.time_of({Kind::Update, static_cast<std::uint16_t>(v)}).value);
  return sum;
}

Time CompiledOrder::makespan(const StepCosts& costs) const {
  PP_CHECK(costs.settled.empty());
  check_run_length(costs, [&] { return computing(costs); });
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
  std::vector<Time> tables(flushed_.size());  // by position: end of the last all-reduce of a table
  for (std::size_t table = 0; table < costs.shape.tied.size(); ++table) {
    const std::vector<PositionId> holders = holders_of_table(costs.shape, table);
    Time end;
    for (const PositionId position : holders)
      end = std::max(end, tables[at(position)]);
    for (const VirtualStageId v : costs.shape.tied[table]) {
      end = std::max(end, reduced[at(v)]);
      for (const std::uint32_t i : marks_of_[at(v)])
        for (const Sweep& copy : copies)
          end = std::max(end, copy.gradient[i].end);
    }
    end += costs.tied[table].time;
    last = std::max(last, end);
    for (const PositionId position : holders)
      tables[at(position)] = end;
    for (const VirtualStageId v : costs.shape.tied[table])
      reduced[at(v)] = std::max(reduced[at(v)], end);
  }
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
  if (costs.together || !costs.settled.empty()) return static_order_makespan(rule_.generate(costs.shape), costs);
  const bool asked = asked_ && same_passes(*asked_, edges_, costs);
  if (asked && order_) return order_->makespan(costs);
  const Schedule schedule = rule_.generate(costs.shape);
  if (!asked) {  // an order that has no compiled form is not tried again
    asked_ = costs.shape, edges_ = costs.edges;
    order_ = CompiledOrder::of(schedule, costs.edges);
  }
  return order_ ? order_->makespan(costs) : static_order_makespan(schedule, costs);
}

}  // namespace pipewright::sim
