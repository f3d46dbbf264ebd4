#include "sim/compiled_order.hpp"

#include <algorithm>
#include <span>
#include <tuple>
#include <unordered_map>

#include "core/check.hpp"
#include "core/cost/cells.hpp"
#include "core/folds.hpp"
#include "sim/dependencies.hpp"
#include "sim/run_length.hpp"
#include "sim/static_order.hpp"

namespace pipewright::sim {

bool CompiledOrder::is_of(const StepCosts& costs) const {
  const ScheduleShape &a = shape_, &b = costs.shape;
  const auto what = [](const ScheduleShape& s) {
    return std::tie(s.stages, s.virtual_stages, s.micro_batches, s.group, s.most_in_flight, s.forwards, s.slices,
                    s.pipelines, s.replicas, s.recompute, s.recompute_except_last, s.blocking_sync, s.vertical_sync,
                    s.chunk_order, s.given, s.units, s.resharding, s.updated, s.reduce_each, s.tied, s.norm,
                    s.offloaded, s.update_every, s.double_buffered);
  };
  if (what(a) != what(b) || (a.data_parallel > 1) != (b.data_parallel > 1)) return false;
  if (a.weights_on_host() && a.buckets != b.buckets) return false;
  for (VirtualStageId v = 0; a.buckets != b.buckets && v < a.chunks(); ++v)
    if ((a.buckets_of(v) > 0) != (b.buckets_of(v) > 0)) return false;
  return cells_ == costs.together.has_value() &&
         std::equal(edges_.begin(), edges_.end(), costs.edges.begin(), costs.edges.end(),
                    [](const Edge& x, const Edge& y) { return x.from == y.from && x.to == y.to; });
}

std::size_t CompiledOrder::records() const {
  return std::visit([](const auto& records) { return records.size(); }, records_);
}

namespace {

using compiled::Meeting;
using compiled::Member;
using compiled::Repeat;

// What an op takes, the first of `ops`; of a cell, its part of that, `in_cell` ops behind the first.
Time time_in_cell(const StepCosts& costs, std::span<const Op> cell, std::size_t in_cell) {
  if (cell.size() == 1) return costs.time_of(cell.front());
  const std::vector<Time> ends = ends_in_cell(costs, cell);
  return ends[in_cell] - (in_cell > 0 ? ends[in_cell - 1] : Time{});
}

}  // namespace

// The clocks of one copy.
class CompiledOrder::Sweep {
 public:
  std::vector<std::int64_t> time;     // by lane: end of its last op
  std::vector<std::int64_t> arrival;  // by slot

  Sweep(const CompiledOrder& order, const StepCosts& costs, CopyId copy)
      : time(order.lanes_.size()),
        arrival(order.slots_),
        order_(order),
        costs_(costs),
        copy_(copy),
        messages_(order.rows_.size()),
        channel_(order.rows_.size()) {
    // Channels of all copies have numbers, of which this one has few where copies are many.
    const bool few = at(costs.channels) > 4 * order.rows_.size();
    std::unordered_map<std::int32_t, std::size_t> first_of;  // row, by channel
    if (!few) channel_.resize(order.rows_.size() + at(costs.channels));
    prices_.reserve(order.rows_.size());
    for (const compiled::Row& row : order.rows_) {
      Price& price = prices_.emplace_back();
      if (rule(row.op.kind).stream != kCompute)
        price.duration = costs.collective(row.op, copy).time.value;
      else if (row.takes_time && costs.settled.empty())
        price.duration = time_in_cell(costs, order.ops_of(row), row.in_cell).value;
      price.channel = prices_.size() - 1;
      if (row.edge < 0) continue;
      const Message& message =
          costs.message(at(row.edge), row.direction, copy, static_cast<MicroBatchId>(row.op.micro_batch));
      if (message.channel < 0) continue;
      price.occupancy = message.occupancy.value, price.latency = message.latency.value;
      price.channel = few ? first_of.try_emplace(message.channel, price.channel).first->second
                          : order.rows_.size() + at(message.channel);
      messages_[prices_.size() - 1] = &message;
    }
  }

  // From now on the times of ops and transfers are kept in the timeline, whose workers have room for them.
  void keep(const Schedule& schedule, const Wiring& wiring, Timeline& timeline, const auto& records) {
    schedule_ = &schedule, wiring_ = &wiring, timeline_ = &timeline;
    ran_.resize(time.size());
    next_transfer_.resize(time.size());
    const auto count = [&](std::size_t begin, std::size_t end, std::size_t times) {
      for (std::size_t i = begin; i < end; ++i)
        if (messages_[records[i].row] != nullptr) next_transfer_[records[i].lane] += times;
    };
    count(0, records.size(), 1);
    for (const Repeat& repeat : order_.repeats_)
      count(repeat.begin, repeat.end, repeat.times);
    std::size_t begin = timeline.transfers.size();
    for (std::size_t& transfers : next_transfer_)
      transfers = std::exchange(begin, begin + transfers);
    timeline.transfers.resize(begin);
  }
  void keep(const Member& member, std::int64_t begin, std::int64_t end) {
    if (schedule_ == nullptr) return;
    const auto [position, stream] = order_.lanes_[member.lane];
    worker(at(position)).communication[stream][ran_[member.lane]++] = {Time{begin}, Time{end}};
  }

  void run_to(const auto& records, std::size_t end) {
    for (; at_repeat_ < order_.repeats_.size() && order_.repeats_[at_repeat_].end <= end; ++at_repeat_) {
      const Repeat& repeat = order_.repeats_[at_repeat_];
      run(std::span(records).subspan(at_record_, repeat.end - at_record_));
      for (std::size_t i = 0; i < repeat.times; ++i)
        run(std::span(records).subspan(repeat.begin, repeat.end - repeat.begin));
      at_record_ = repeat.end;
    }
    run(std::span(records).subspan(at_record_, end - at_record_));
    at_record_ = end;
  }

 private:
  struct Price {
    std::int64_t duration = 0, occupancy = 0, latency = 0;
    std::size_t channel = 0;
  };

  LaneTimes& worker(std::size_t position) { return timeline_->workers[worker_of(position)]; }
  WorkerId worker_of(std::size_t position) const { return {copy_ * wiring_->positions + static_cast<int>(position)}; }

  template <class Index>
  void run(std::span<const compiled::Record<Index>> records) {
    if (schedule_ != nullptr) return run_and_keep(records);
    std::int64_t *const times = time.data(), *const arrivals = arrival.data(), *const channels = channel_.data();
    const Price* const of_row = prices_.data();
    for (const compiled::Record<Index>& record : records) {
      const Price& price = of_row[record.row];
      const std::int64_t done = std::max(times[record.lane], arrivals[record.needs]) + price.duration;
      times[record.lane] = done;
      const std::int64_t sent = std::max(channels[price.channel], done) + price.occupancy;
      channels[price.channel] = sent;
      arrivals[record.gives] = sent + price.latency;
    }
  }

  // A lane's records are in the order of its list.
  template <class Index>
  void run_and_keep(std::span<const compiled::Record<Index>> records) {
    for (const compiled::Record<Index>& record : records) {
      const Price& price = prices_[record.row];
      const compiled::Row& row = order_.rows_[record.row];
      const std::int64_t start = std::max(time[record.lane], arrival[record.needs]);
      std::int64_t done = start;
      if (row.takes_time) {
        const auto [position, stream] = order_.lanes_[record.lane];
        const std::size_t op = ran_[record.lane]++;
        const bool computes = stream == kCompute;
        done += !computes || costs_.settled.empty() ? price.duration : settled(record.lane, op, row);
        LaneTimes& times = worker(at(position));
        (computes ? times.compute : times.communication[stream])[op] = {Time{start}, Time{done}};
      }
      time[record.lane] = done;
      const std::int64_t begin = std::max(channel_[price.channel], done), sent = begin + price.occupancy;
      channel_[price.channel] = sent;
      arrival[record.gives] = sent + price.latency;
      if (messages_[record.row] != nullptr) keep(record.lane, row, *messages_[record.row], done, begin, sent);
    }
  }

  std::int64_t settled(std::size_t lane, std::size_t op, const compiled::Row& row) const {
    const std::vector<Op>& ops = schedule_->positions[PositionId{lane}].compute;
    return time_in_cell(costs_, std::span(ops).subspan(op - row.in_cell, row.cell_size), row.in_cell).value;
  }

  void keep(std::size_t lane, const compiled::Row& row, const Message& message, std::int64_t posted, std::int64_t begin,
            std::int64_t sent) {
    const Op& op = schedule_->positions[PositionId{lane}].compute[ran_[lane] - 1 - row.back];
    const auto edge = static_cast<std::uint32_t>(row.edge);
    const auto m = static_cast<MicroBatchId>(op.micro_batch);
    timeline_->transfers[next_transfer_[lane]++] = {edge,
                                                    row.direction,
                                                    m,
                                                    worker_of(lane),
                                                    wiring_->receiver(costs_.edges[edge], row.direction, copy_, m),
                                                    message.bytes,
                                                    Time{posted},
                                                    Time{begin},
                                                    Time{sent},
                                                    Time{sent + message.latency.value}};
  }

  const CompiledOrder& order_;
  const StepCosts& costs_;
  CopyId copy_;
  std::vector<Price> prices_;             // by row
  std::vector<const Message*> messages_;  // likewise; nullptr: none
  std::vector<std::int64_t> channel_;     // when it is free again; of a row's own, or of messages
  std::size_t at_record_ = 0, at_repeat_ = 0;
  // Where what is kept goes, if anything is; by lane how many ops of its list have run, and where its next transfer goes.
  const Schedule* schedule_ = nullptr;
  const Wiring* wiring_ = nullptr;
  Timeline* timeline_ = nullptr;
  std::vector<std::size_t> ran_, next_transfer_;
};

std::span<const Op> CompiledOrder::ops_of(const compiled::Row& row) const {
  if (row.cell_size == 1) return {&row.op, 1};
  return std::span(cell_ops_).subspan(row.cell, row.cell_size);
}

// What all ops take, one after the other, in nanoseconds.
double CompiledOrder::computing(const StepCosts& costs) const {
  return std::visit(
      [&](const auto& records) {
        const auto of = [&](std::size_t begin, std::size_t end) {
          double sum = 0;
          for (std::size_t i = begin; i < end; ++i)
            if (const compiled::Row& row = rows_[records[i].row]; row.takes_time && row.times == 0)
              sum += static_cast<double>(costs.time_of(row.op).value);
          return sum;
        };
        double sum = of(0, records.size());
        for (const Repeat& repeat : repeats_)
          sum += static_cast<double>(repeat.times) * of(repeat.begin, repeat.end);
        return sum;
      },
      records_);
}

// Likewise what streams do, in the copy in which it takes longest.
double CompiledOrder::communicating(const StepCosts& costs) const {
  const int differ = costs.moves.empty() ? 1 : costs.shape.data_parallel;
  double sum = 0;
  for (const compiled::Row& row : rows_)
    if (row.times > 0)
      sum += row.times * most_over<double>(counted_to(differ), [&](CopyId copy) {
               return static_cast<double>(costs.collective(row.op, copy).time.value);
             });
  for (const Meeting& meeting : meetings_)
    if (meeting.all_buckets)
      for (const Collective& bucket : costs.collectives[meeting.op.virtual_stage])
        sum += static_cast<double>(bucket.time.value);
    else
      sum += static_cast<double>(costs.collective(meeting.op, 0).time.value);
  return sum;
}

Time CompiledOrder::makespan(const StepCosts& costs) const {
  PP_CHECK(costs.settled.empty());
  check_run_length(costs, communicating(costs), [&] { return computing(costs); });
  std::vector<Sweep> copies;
  for (CopyId copy = 0; copy < costs.shape.data_parallel; ++copy)
    copies.emplace_back(*this, costs, copy);
  return run(costs, copies);
}

Timeline CompiledOrder::timeline(const Schedule& schedule, const StepCosts& costs) const {
  check_run_length(schedule, costs);
  const Wiring wiring(schedule, costs);
  Timeline timeline{.engine = EngineRan::StaticOrder, .engine_reason = "every worker's order is fixed"};
  std::vector<Sweep> copies;
  for (CopyId copy = 0; copy < costs.shape.data_parallel; ++copy) {
    for (const Lane& lane : schedule.positions) {
      LaneTimes& times = timeline.workers.emplace_back();
      times.compute.resize(lane.compute.size());
      for (StreamId s = 0; s < kStreams.size(); ++s)
        times.communication[s].resize(lane.communication[s].size());
    }
    Sweep& sweep = copies.emplace_back(*this, costs, copy);
    std::visit([&](const auto& records) { sweep.keep(schedule, wiring, timeline, records); }, records_);
  }
  timeline.makespan = run(costs, copies);
  return timeline;
}

// Its end.
Time CompiledOrder::run(const StepCosts& costs, std::vector<Sweep>& copies) const {
  return std::visit(
      [&](const auto& records) {
        for (const Meeting& meeting : meetings_) {
          for (Sweep& copy : copies)
            copy.run_to(records, meeting.record);
          meet(meeting, costs, copies);
        }
        std::int64_t last = 0;
        for (Sweep& copy : copies) {
          copy.run_to(records, records.size());
          last = std::max(last, std::ranges::max(copy.time));
        }
        return Time{last};
      },
      records_);
}

// It begins when the last member of all copies is there.
void CompiledOrder::meet(const Meeting& meeting, const StepCosts& costs, std::vector<Sweep>& copies) const {
  const Op& op = meeting.op;
  const std::span members(members_.data() + meeting.members, members_.data() + meeting.end);
  const auto for_each = [&](const auto& use) {
    for (Sweep& copy : copies)
      for (const Member& member : members)
        use(copy, member);
  };
  std::int64_t time = 0;
  const auto run_for = [&](Time takes) {
    const std::int64_t begin = std::exchange(time, time + takes.value);
    for_each([&](Sweep& copy, const Member& member) { copy.keep(member, begin, time); });
  };
  for_each([&](const Sweep& copy, const Member& member) {
    time = std::max(time, copy.time[member.lane]);
    if (member.begin == 0) time = std::max(time, copy.arrival[member.ready]);
  });
  if (op.kind == Kind::AllReduce) {
    const std::vector<Collective>& buckets = costs.collectives[op.virtual_stage];
    const std::size_t end = meeting.all_buckets ? buckets.size() : op.bucket + std::size_t{1};
    for (std::size_t bucket = meeting.all_buckets ? 0 : op.bucket; bucket < end; ++bucket) {
      for_each([&](const Sweep& copy, const Member& member) {
        if (member.begin == 0) return;
        const Time before_end = costs.ready_before_end_of(completing_[member.completing], bucket);
        time = std::max({time, copy.arrival[member.begin], copy.arrival[member.ready] - before_end.value});
      });
      run_for(buckets[bucket].time);
    }
  } else {
    run_for(costs.collective(op, 0).time);
  }
  for_each([&](Sweep& copy, const Member& member) { copy.time[member.lane] = copy.arrival[member.gives] = time; });
}

Time Makespans::operator()(const StepCosts& costs) {
  if (order_ && order_->is_of(costs) && costs.settled.empty()) return order_->makespan(costs);
  const Schedule schedule = rule_.generate(costs.shape);
  if (!costs.settled.empty()) return static_order_makespan(schedule, costs);
  return order_.emplace(CompiledOrder::of(schedule, costs)).makespan(costs);
}

}  // namespace pipewright::sim
