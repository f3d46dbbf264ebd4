#include "tests/support/oracle_engine.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "tests/support/places.hpp"

namespace pipewright::tests {
namespace {

using Key = std::tuple<int, int, int, int>;

class Oracle {
 public:
  Oracle(const Schedule& schedule, const StepCosts& costs)
      : schedule_(schedule), shape_(schedule.shape), costs_(costs) {
    positions_ = static_cast<int>(schedule.positions.size());
    for (int v = 0; v < shape_.chunks(); ++v) {
      holders_.push_back(static_cast<int>(oracle::places(shape_, v).size()));
      for (int m = 0; m < shape_.micro_batches; ++m)
        position_of_.push_back(oracle::position_of(shape_, v, m));
    }
    for (int w = 0; w < positions_ * shape_.data_parallel; ++w)
      times_.workers.push_back(
          {std::vector<Span>(lane(w).compute.size()),
           {std::vector<Span>(gradients(w).size()), std::vector<Span>(lane(w).communication[kGathers].size()),
            std::vector<Span>(lane(w).communication[kOut].size()), std::vector<Span>(lane(w).communication[kIn].size()),
            std::vector<Span>(lane(w).communication[kTables].size()),
            std::vector<Span>(lane(w).communication[kNorm].size())}});
  }

  Timeline solve() {
    bool changed = true;
    for (std::size_t sweep = 0; changed; ++sweep) {
      PP_CHECK(sweep < 100'000);  // the longest path has fewer ops than that in any test
      const Timeline before = times_;
      post_messages();
      meet();
      share_tables();
      share_norm();
      gather();
      for (int w = 0; w < workers(); ++w)
        on_host() ? copy(w) : move(w), run(w);
      changed = before.workers != times_.workers || before.transfers != times_.transfers;
    }
    for (const LaneTimes& worker : times_.workers)
      for (const auto* stream : {&worker.compute, &worker.communication[kReductions], &worker.communication[kGathers],
                                 &worker.communication[kOut], &worker.communication[kIn],
                                 &worker.communication[kTables], &worker.communication[kNorm]})
        for (const Span& span : *stream)
          times_.makespan = std::max(times_.makespan, span.end);
    return times_;
  }

 private:
  int workers() const { return static_cast<int>(times_.workers.size()); }
  const Lane& lane(int worker) const { return schedule_.lane_of(worker); }
  std::vector<Span>& compute(int worker) { return times_.workers[static_cast<std::size_t>(worker)].compute; }
  const std::vector<Op>& gradients(int worker) const { return lane(worker).communication[kReductions]; }
  std::vector<Span>& collective(int worker) {
    return times_.workers[static_cast<std::size_t>(worker)].communication[kReductions];
  }
  int round_of(const Op& op) const {
    if (schedule_.flush) return shape_.reduce_each ? static_cast<int>(op.micro_batch) : 0;
    return static_cast<int>(op.micro_batch) / holders_[op.virtual_stage] / std::max(1, shape_.update_every);
  }
  static bool ends_gradient(const Op& op) { return op.kind == Kind::BW || op.kind == Kind::W; }
  static bool backward(const Op& op) { return op.kind == Kind::BW || op.kind == Kind::B; }

  // All messages of a channel in the order of the ops that send them; an op's own messages in the order of edges.
  void post_messages() {
    times_.transfers.clear();
    std::map<int, Time> free;
    for (int w = 0; w < workers(); ++w)
      for (std::size_t i = 0; i < lane(w).compute.size(); ++i) {
        const Op& op = lane(w).compute[i];
        for (std::size_t e = 0; e < costs_.edges.size(); ++e) {
          if (op.kind == Kind::F && costs_.edges[e].from == op.virtual_stage)
            post(w, e, Direction::Forward, costs_.edges[e].to, op, compute(w)[i].end, free);
          if (backward(op) && costs_.edges[e].to == op.virtual_stage)
            post(w, e, Direction::Backward, costs_.edges[e].from, op, compute(w)[i].end, free);
        }
      }
  }

  void post(int from, std::size_t edge, Direction direction, int receiver, const Op& op, Time posted,
            std::map<int, Time>& free) {
    const int copy = from / positions_, m = static_cast<int>(op.micro_batch);
    const Message& message = costs_.message(edge, direction, copy, m);
    Time arrived = posted;
    if (message.channel >= 0) {
      const Time start = std::max(posted, free[message.channel]);
      const Time sent = start + message.occupancy;
      free[message.channel] = sent, arrived = sent + message.latency;
      times_.transfers.push_back({static_cast<std::uint32_t>(edge), direction, m, from,
                                  copy * positions_ + position_of_[at(receiver * shape_.micro_batches + m)],
                                  message.bytes, posted, start, sent, arrived});
    }
    arrival_[{static_cast<int>(edge), static_cast<int>(direction), copy, m}] = arrived;
  }

  // All-reduces: each begins when its last member is there, and ends for all at once.
  void meet() {
    std::map<Key, Time> begin;
    for (int w = 0; w < workers(); ++w)
      for (std::size_t i = 0; i < gradients(w).size(); ++i) {
        const Op& op = gradients(w)[i];
        Time ready = i == 0 ? Time{0} : collective(w)[i - 1].end;
        for (std::size_t j = lane(w).compute.size(); j-- > 0;) {  // the round's last backward here, if there is one
          const Op& last = lane(w).compute[j];
          if (!ends_gradient(last) || last.virtual_stage != op.virtual_stage ||
              round_of(last) != static_cast<int>(op.micro_batch))
            continue;
          const Span span = compute(w)[j];
          ready = std::max({ready, span.start, span.end - costs_.ready_before_end_of(last, op.bucket)});
          break;
        }
        Time& latest = begin[key(op)];
        latest = std::max(latest, ready);
      }
    update_.clear();
    for (int w = 0; w < workers(); ++w)
      for (std::size_t i = 0; i < gradients(w).size(); ++i) {
        const Op& op = gradients(w)[i];
        const Time start = begin[key(op)], end = start + costs_.collectives[op.virtual_stage][op.bucket].time;
        collective(w)[i] = {start, end};
        Time& complete = update_[{op.virtual_stage, schedule_.flush ? 0 : static_cast<int>(op.micro_batch), 0, 0}];
        complete = std::max(complete, end);
      }
  }

  // Tied tables: when everybody who holds one has all its gradients, reduced over its copies, and is done with tables before.
  void share_tables() {
    std::map<std::uint32_t, Time> begin;
    const auto spans = [&](int w) -> std::vector<Span>& {
      return times_.workers[static_cast<std::size_t>(w)].communication[kTables];
    };
    for (int w = 0; w < workers(); ++w)
      for (std::size_t i = 0; i < spans(w).size(); ++i) {
        const Op& table = lane(w).communication[kTables][i];
        Time& start = begin[table.bucket];
        if (i > 0) start = std::max(start, spans(w)[i - 1].end);
        for (std::size_t j = 0; j < lane(w).compute.size(); ++j)
          if (ends_gradient(lane(w).compute[j]) && has(table, lane(w).compute[j]))
            start = std::max(start, compute(w)[j].end);
        for (std::size_t j = 0; j < gradients(w).size(); ++j)
          if (has(table, gradients(w)[j])) start = std::max(start, collective(w)[j].end);
      }
    for (int w = 0; w < workers(); ++w)
      for (std::size_t i = 0; i < spans(w).size(); ++i) {
        const std::uint32_t table = lane(w).communication[kTables][i].bucket;
        spans(w)[i] = {begin[table], begin[table] + costs_.tied[table].time};
      }
  }
  bool has(const Op& table, const Op& op) const {
    return std::ranges::count(shape_.tied[table.bucket], VirtualStageId{op.virtual_stage}) > 0;
  }

  // The norm: when everybody has all gradients, summed over copies and tables.
  void share_norm() {
    Time start{0};
    for (int w = 0; w < workers(); ++w) {
      for (std::size_t i = 0; i < lane(w).compute.size(); ++i)
        if (ends_gradient(lane(w).compute[i])) start = std::max(start, compute(w)[i].end);
      for (const StreamId s : {kReductions, kTables})
        for (const Span& span : times_.workers[static_cast<std::size_t>(w)].communication[s])
          start = std::max(start, span.end);
    }
    for (LaneTimes& worker : times_.workers)
      for (Span& norm : worker.communication[kNorm])
        norm = {start, start + costs_.norm.time};
  }

  // Weights: while the compute op before the one that needs them runs, behind it if it has them, at all copies at once. The
  // weights' stream of the copies of a position is one list.
  void gather() {
    gathered_.clear();
    if (shape_.updated == UpdatedParts::BehindUpdate) return gather_behind_updates();
    for (int position = 0; position < positions_; ++position) {
      const auto& ops = lane(position).communication[kGathers];
      Time free{0};
      for (std::size_t i = 0; i < ops.size(); ++i) {
        Time start = free;
        const bool at_once = shape_.updated == UpdatedParts::BesideForwards;  // the second half: of the op behind
        const std::size_t user = user_of(lane(position).compute, ops[i]) + (at_once ? i % 2 : 0);
        for (int copy = 0; copy < shape_.data_parallel && user > 0 && !at_once; ++copy) {
          const Op& before = lane(position).compute[user - 1];
          const bool has = before.virtual_stage == ops[i].virtual_stage &&
                           (before.kind == Kind::F || before.kind == Kind::R || backward(before));
          const Span span = compute(copy * positions_ + position)[user - 1];
          start = std::max(start, has ? span.end : span.start);
        }
        for (int copy = 0; copy < shape_.data_parallel && on_host(); ++copy)
          start = std::max(start, fetched(copy * positions_ + position, ops[i]));
        const bool other = at_once ? i % 2 == 1 : ops[i].bucket >= 2;
        free = start + (other ? costs_.other_gathers : costs_.gathers)[ops[i].virtual_stage].time;
        gathered_[{position, static_cast<int>(user), 0, 0}] = free;
        for (int copy = 0; copy < shape_.data_parallel; ++copy)
          times_.workers[static_cast<std::size_t>(copy * positions_ + position)].communication[kGathers][i] = {start,
                                                                                                               free};
      }
    }
  }
  // As all-reduces meet: when the last holder has updated its part.
  void gather_behind_updates() {
    std::map<Key, Time> begin;
    const auto spans = [&](int w) -> std::vector<Span>& {
      return times_.workers[static_cast<std::size_t>(w)].communication[kGathers];
    };
    for (int w = 0; w < workers(); ++w)
      for (std::size_t i = 0; i < lane(w).communication[kGathers].size(); ++i) {
        const Op& op = lane(w).communication[kGathers][i];
        Time ready = i == 0 ? Time{0} : spans(w)[i - 1].end;
        for (std::size_t j = 0; j < lane(w).compute.size(); ++j)
          if (const Op& update = lane(w).compute[j]; update.kind == Kind::Update && key(update) == key_of_update(op))
            ready = std::max(ready, compute(w)[j].end);
        Time& latest = begin[key(op)];
        latest = std::max(latest, ready);
      }
    for (int w = 0; w < workers(); ++w)
      for (std::size_t i = 0; i < lane(w).communication[kGathers].size(); ++i) {
        const Op& op = lane(w).communication[kGathers][i];
        const Time start = begin[key(op)], end = start + costs_.gathers[op.virtual_stage].time;
        spans(w)[i] = {start, end};
        for (std::size_t j = 0; j < lane(w).compute.size(); ++j)  // the next round's update waits
          if (const Op& update = lane(w).compute[j]; update.kind == Kind::Update &&
                                                     update.virtual_stage == op.virtual_stage &&
                                                     update.micro_batch == op.micro_batch + 1)
            gathered_[{w % positions_, static_cast<int>(j), 0, 0}] = end;
      }
  }
  static Key key_of_update(const Op& gather) { return {gather.virtual_stage, int(gather.micro_batch), 0, 0}; }

  static std::size_t user_of(const std::vector<Op>& ops, const Op& gather) {
    for (std::size_t i = 0; i < ops.size(); ++i)
      if (ops[i].virtual_stage == gather.virtual_stage && ops[i].micro_batch == gather.micro_batch &&
          (gather.bucket % 2 == 0 ? ops[i].kind == Kind::F : ops[i].kind == Kind::R || backward(ops[i])))
        return i;
    PP_CHECK(false);
    return 0;
  }

  bool on_host() const { return shape_.resharding && shape_.resharding->from_host; }

  // Shards from the host, two ops ahead of who needs them, and to it when they are reduced.
  void copy(int worker) {
    const Lane& ops = lane(worker);
    auto& times = times_.workers[static_cast<std::size_t>(worker)].communication;
    Time free{0};
    for (std::size_t i = 0; i < times[kIn].size(); ++i) {
      const Op& op = ops.communication[kIn][i];
      const std::size_t user = user_of(ops.compute, op);
      const Time start = std::max(free, user < 2 ? Time{0} : compute(worker)[user - 2].start);
      times[kIn][i] = {start, free = start + costs_.host_copies[op.virtual_stage * 3u].time};
    }
    free = {};
    for (std::size_t i = 0; i < times[kOut].size(); ++i) {
      const Op& op = ops.communication[kOut][i];
      const Time start = std::max(free, times[kReductions][i].end);
      times[kOut][i] = {start, free = start + costs_.host_copies[op.virtual_stage * 3u + 1 + op.bucket].time};
    }
  }
  Time fetched(int worker, const Op& gather) {
    const auto& ins = lane(worker).communication[kIn];
    for (std::size_t i = 0; i < ins.size(); ++i)
      if (ins[i].virtual_stage == gather.virtual_stage && ins[i].micro_batch == gather.micro_batch &&
          ins[i].bucket == gather.bucket)
        return times_.workers[static_cast<std::size_t>(worker)].communication[kIn][i].end;
    return {};  // from few
  }
  // Of a backward that is the last of its round: when the host has added all of it that it adds.
  Time added(int worker, std::size_t i) const {
    const std::vector<Op>& ops = lane(worker).compute;
    const auto of_round = [&](const Op& op) {
      return ends_gradient(op) && op.virtual_stage == ops[i].virtual_stage && round_of(op) == round_of(ops[i]);
    };
    Time end{0};
    if (!of_round(ops[i]) || std::any_of(ops.begin() + static_cast<std::ptrdiff_t>(i) + 1, ops.end(), of_round))
      return end;
    const auto& outs = lane(worker).communication[kOut];
    for (std::size_t j = 0; j < outs.size(); ++j)
      if (outs[j].bucket == 1 && outs[j].virtual_stage == ops[i].virtual_stage &&
          static_cast<int>(outs[j].micro_batch) == round_of(ops[i]))
        end = std::max(end, times_.workers[static_cast<std::size_t>(worker)].communication[kOut][j].end);
    return end;
  }
  Time stored(int worker) const {
    Time last{0};
    for (const Span& span : times_.workers[static_cast<std::size_t>(worker)].communication[kOut])
      last = std::max(last, span.end);
    return last;
  }

  // Activations to the partner after their forward; back while the op before their first reader runs.
  void move(int worker) {
    const Lane& ops = lane(worker);
    auto& out = times_.workers[static_cast<std::size_t>(worker)].communication[kOut];
    auto& in = times_.workers[static_cast<std::size_t>(worker)].communication[kIn];
    Time free{0};
    for (std::size_t i = 0; i < out.size(); ++i) {
      const Op& op = ops.communication[kOut][i];
      const Time start = std::max(free, compute(worker)[index(ops.compute, op, true)].end);
      out[i] = {start, free = start + costs_.moves[costs_.move(op, worker / positions_)].time};
    }
    free = {};
    for (std::size_t i = 0; i < in.size(); ++i) {
      const Op& op = ops.communication[kIn][i];
      Time start = std::max(free, compute(worker)[index(ops.compute, op, false) - 1].start);
      for (std::size_t j = 0; j < out.size(); ++j)
        if (const Op& other = ops.communication[kOut][j];
            (other.virtual_stage == op.virtual_stage && other.micro_batch == op.micro_batch) ||
            (shape_.offloaded.empty() && index(ops.compute, other, true) + 1 < index(ops.compute, op, false)))
          start = std::max(start, out[j].end);
      in[i] = {start, free = start + costs_.moves[costs_.move(op, worker / positions_)].time};
    }
  }
  // The forward of a micro-batch, or the first op that reads what it stashed.
  static std::size_t index(const std::vector<Op>& ops, const Op& of, bool forward) {
    for (std::size_t i = 0; i < ops.size(); ++i)
      if (ops[i].virtual_stage == of.virtual_stage && ops[i].micro_batch == of.micro_batch &&
          (forward ? ops[i].kind == Kind::F : ops[i].kind == Kind::R || backward(ops[i])))
        return i;
    PP_CHECK(false);
    return 0;
  }
  // What an op waits for of these: under a forward one may be on its way to the host, none to a partner.
  Time moved(int worker, std::size_t i) {
    const Lane& ops = lane(worker);
    const LaneTimes& spans = times_.workers[static_cast<std::size_t>(worker)];
    Time ready{0}, latest{0};
    for (std::size_t j = 0; j < ops.communication[kOut].size(); ++j)
      if (ops.compute[i].kind == Kind::F && index(ops.compute, ops.communication[kOut][j], true) < i)
        ready = shape_.offloaded.empty() ? spans.communication[kOut][j].end : latest,
        latest = spans.communication[kOut][j].end;
    for (std::size_t j = 0; j < ops.communication[kIn].size(); ++j)
      if (index(ops.compute, ops.communication[kIn][j], false) == i)
        ready = std::max(ready, spans.communication[kIn][j].end);
    return ready;
  }

  static Key key(const Op& op) {
    return {op.virtual_stage, static_cast<int>(op.micro_batch), static_cast<int>(op.bucket), 0};
  }

  void run(int worker) {
    const int copy = worker / positions_;
    Time free{0};
    for (std::size_t i = 0; i < lane(worker).compute.size(); ++i) {
      const Op& op = lane(worker).compute[i];
      Time start = free;
      for (std::size_t e = 0; e < costs_.edges.size(); ++e) {
        if (op.kind == Kind::F && costs_.edges[e].to == op.virtual_stage)
          start = std::max(start, arrival(e, Direction::Forward, copy, op));
        if (backward(op) && costs_.edges[e].from == op.virtual_stage)
          start = std::max(start, arrival(e, Direction::Backward, copy, op));
      }
      if (const auto weights = gathered_.find({worker % positions_, static_cast<int>(i), 0, 0});
          weights != gathered_.end())
        start = std::max(start, weights->second);
      if (!on_host()) start = std::max(start, moved(worker, i));
      if (op.kind == Kind::Update && on_host()) start = std::max(start, stored(worker));
      if (on_host() && i > 0) start = std::max(start, added(worker, i - 1));
      if (op.kind == Kind::Update) start = std::max(start, update_[{op.virtual_stage, int(op.micro_batch), 0, 0}]);
      const auto& tables = lane(worker).communication[kTables];
      for (std::size_t t = 0; t < tables.size() && op.kind == Kind::Update; ++t)
        if (has(tables[t], op))
          start = std::max(start, times_.workers[static_cast<std::size_t>(worker)].communication[kTables][t].end);
      for (const Span& norm : times_.workers[static_cast<std::size_t>(worker)].communication[kNorm])
        if (op.kind == Kind::Update) start = std::max(start, norm.end);
      free = start + costs_.time_of(op);
      compute(worker)[i] = {start, free};
    }
  }

  Time arrival(std::size_t edge, Direction direction, int copy, const Op& op) {
    return arrival_[{static_cast<int>(edge), static_cast<int>(direction), copy, static_cast<int>(op.micro_batch)}];
  }

  const Schedule& schedule_;
  const ScheduleShape& shape_;
  const StepCosts& costs_;
  int positions_ = 0;
  std::vector<int> holders_;      // by chunk
  std::vector<int> position_of_;  // who runs it, by chunk and micro-batch
  Timeline times_;
  std::map<Key, Time> arrival_;   // by edge, direction, copy, micro-batch
  std::map<Key, Time> gathered_;  // end, by position and the op that needs the weights
  std::map<Key, Time> update_;    // end of a round's last all-reduce, by virtual stage and round
};

}  // namespace

Timeline oracle_timeline(const Schedule& schedule, const StepCosts& costs) {
  return Oracle(schedule, costs).solve();
}

}  // namespace pipewright::tests
