#include "sim/schedules/expand.hpp"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "sim/schedules/lists.hpp"

namespace pipewright::sim {
namespace {

Op shared_op(Kind kind, VirtualStageId v, int round, int bucket = 0) {
  return {kind, static_cast<std::uint16_t>(v), static_cast<std::uint32_t>(round),
          static_cast<std::uint32_t>(bucket) & 0x7fffffffu};
}

void append_all_reduce(const ScheduleShape& shape, Lane& lane, VirtualStageId v, int round) {
  for (int bucket = 0; bucket < shape.buckets_of(v); ++bucket)
    lane.add(shared_op(Kind::AllReduce, v, round, bucket));
}

void append_update(Lane& lane, VirtualStageId v, int round) {
  lane.add(shared_op(Kind::Update, v, round));
}

// A round for each micro-batch, in the order in which this lane completes them. Sharded stages have no replicas.
void append_reductions_of_each(const ScheduleShape& shape, Lane& lane) {
  const Seating seating = shape.seating();
  for (const Op& op : lane.compute)
    if (rule(op.kind).gradients && seating.reduced(op.virtual_stage))
      append_all_reduce(shape, lane, op.virtual_stage,
                        static_cast<int>(seating.turn_of(op.virtual_stage, op.micro_batch)));
}

// The end of a mini-batch: one all-reduce round per chunk that the worker holds where its weights are replicated, in the
// order in which the chunks finish their last backward in this lane, and one update per chunk in the same order. Both
// ways the last chunk comes first, on both of its workers.
void append_flush(const ScheduleShape& shape, Lane& lane, StageId stage) {
  const Seating seating = shape.seating();
  // Walking back from the end meets each chunk first at its last backward: that is the order of readiness, reversed.
  std::vector<VirtualStageId> ready;
  std::vector<bool> met(static_cast<std::size_t>(seating.held()));
  for (auto at = lane.compute.rbegin(); at != lane.compute.rend() && std::ssize(ready) < seating.held(); ++at) {
    const auto chunk = static_cast<std::size_t>(seating.local(at->virtual_stage, stage));
    const bool completes = rule(at->kind).gradients;
    if (completes && !met[chunk]) met[chunk] = true, ready.push_back(at->virtual_stage);
  }
  // A replica without a micro-batch (M < r) takes part in the flush all the same.
  for (int chunk = 0; chunk < seating.held(); ++chunk)
    if (!met[static_cast<std::size_t>(chunk)]) ready.push_back(seating.chunk_of(stage, chunk));
  std::ranges::reverse(ready);
  if (both_ways(shape.chunk_order)) std::sort(ready.rbegin(), ready.rend());

  if (shape.reduce_each) append_reductions_of_each(shape, lane);
  for (const VirtualStageId v : ready) {
    if (seating.reduced(v) && !shape.reduce_each) append_all_reduce(shape, lane, v, 0);
    append_update(lane, v, 0);
  }
}

// Without a flush a stage is one chunk. A round's update stands behind its last backward; where its gradients travel meanwhile,
// one backward later. Those of the last, incomplete round, too, which this replica may have no micro-batch in.
void add_rounds(const Rounds& rounds, const ScheduleShape& shape, Lane& lane, VirtualStageId v) {
  const bool reduced = rounds.seating.reduced(v);
  const int delay = reduced && !shape.blocking_sync ? 1 : 0, count = rounds.count(v);
  const std::vector<Op> passes = std::exchange(lane.compute, {});
  lane.compute.reserve(passes.size() + at(count));
  int backwards = 0, updates = 0;
  for (const Op& op : passes) {
    lane.compute.push_back(op);
    if (!rule(op.kind).gradients) continue;
    const int behind = ++backwards - delay;  // backwards whose gradients have come
    if (behind > 0 && behind % rounds.every == 0) append_update(lane, v, updates++);
  }
  while (updates < count)
    append_update(lane, v, updates++);
  for (int round = 0; reduced && round < count; ++round)
    append_all_reduce(shape, lane, v, round);
}

void add_reductions_and_updates(Schedule& schedule) {
  const Seating seating = schedule.seating();
  for (PositionId position = 0; position < std::ssize(schedule.positions); ++position) {
    Lane& lane = schedule.positions[position];
    const StageId stage = seating.stage_at(position);
    schedule.flush ? append_flush(schedule.shape, lane, stage)
                   : add_rounds(schedule.rounds(), schedule.shape, lane, seating.chunk_of(stage, 0));
  }
}

void add_gathers(Lane& lane, const Resharding& when) {
  std::vector<VirtualStageId> held, few;  // whole; in shards of when.over
  const auto first_reader = [&](auto from) {
    return std::find_if(from, lane.compute.end(), [](const Op& op) { return rule(op.kind).weights; });
  };
  for (auto op = first_reader(lane.compute.begin()); op != lane.compute.end();) {
    const auto here = std::ranges::find(held, VirtualStageId{op->virtual_stage});
    if (here == held.end()) {
      const std::uint32_t from = std::erase(few, VirtualStageId{op->virtual_stage}) > 0 ? kFromFew : 0;
      lane.add({Kind::AllGather, op->virtual_stage, op->micro_batch,
                (static_cast<std::uint32_t>(pass_of(op->kind)) | from) & 0x7fffffffu});
      held.push_back(op->virtual_stage);
    }
    const auto next = first_reader(op + 1);
    const bool given_away = op->kind == Kind::F   ? when.after_forward
                            : op->kind == Kind::R ? false  // its backward follows
                                                  : when.after_backward;
    if (given_away && (when.always || next == lane.compute.end() || next->virtual_stage != op->virtual_stage)) {
      std::erase(held, VirtualStageId{op->virtual_stage});
      if (when.over > 0 && op->kind == Kind::F) few.push_back(op->virtual_stage);
    }
    op = next;
  }
}

// In the order of the updates, or of the forwards that read first.
void gather_updated(const ScheduleShape& shape, Lane& lane) {
  const Seating seating = shape.seating();
  std::vector<Op>& gathers = lane.communication[kGathers];
  std::set<VirtualStageId> met;
  for (const Op& op : lane.compute) {
    const VirtualStageId v = op.virtual_stage;
    if (!seating.reduced(v)) continue;
    const auto gather = [&](std::uint32_t which) {
      gathers.push_back({Kind::AllGather, op.virtual_stage, op.micro_batch, which & 0x7fffffffu});
    };
    if (shape.updated == UpdatedParts::BehindUpdate) {
      if (op.kind == Kind::Update) gather(kBehindUpdate);
    } else if (op.kind == Kind::F && met.insert(v).second) {
      gather(kBeforeForward), gather(kBesideForward);
    }
  }
}

// BPipe: walks the lane and has a micro-batch go right behind its forward where a later op would find more than `limit` here:
// always the newest, which is needed last.
void share_memory(Lane& lane, StageId k, int limit) {
  std::vector<std::uint32_t> here;  // ascending
  std::vector<char> away(lane.compute.size());
  const auto read_next = [&](std::size_t i) {
    return i + 1 < lane.compute.size() && rule(lane.compute[i + 1].kind).backward;
  };
  for (std::size_t i = 0; i < lane.compute.size(); ++i) {
    const Op& op = lane.compute[i];
    const bool forward = op.kind == Kind::F;
    if (read_next(i) && away[lane.compute[i + 1].micro_batch] != 0) {
      const std::uint32_t back = lane.compute[i + 1].micro_batch;
      lane.add({Kind::Reload, static_cast<std::uint16_t>(k), back, 0});
      here.insert(std::ranges::lower_bound(here, back), back);
    }
    if (std::ssize(here) + (forward ? 1 : 0) > limit) {
      const std::uint32_t newest = here.back();
      here.pop_back();
      away[newest] = 1;
      lane.add({Kind::Offload, static_cast<std::uint16_t>(k), newest, 0});
    }
    if (forward) here.push_back(op.micro_batch);
    if (rule(op.kind).gradients) std::erase(here, op.micro_batch);
  }
  std::ranges::sort(lane.communication[kOut], {}, &Op::micro_batch);
}

// Stages near the front have more in flight than their partners.
void share_memory(Schedule& schedule) {
  const ScheduleShape& shape = schedule.shape;
  for (StageId k = 0; 2 * k < shape.stages - 1; ++k)
    share_memory(schedule.positions[as<PositionId>(k)], k, shape.most_in_flight);
}

bool read_soon(const Lane& lane, std::size_t forward) {
  for (std::size_t i = forward + 1; i < lane.compute.size() && i <= forward + 2; ++i)
    if (const Op& op = lane.compute[i], &of = lane.compute[forward];
        reads_stash(op.kind) && op.virtual_stage == of.virtual_stage && op.micro_batch == of.micro_batch)
      return true;
  return false;
}

// To the host. What one of the next two ops reads stays: it would have to be back before it is gone.
//                                                                                           tests/sim/offload_test.cpp
void offload(Schedule& schedule) {
  const std::vector<bool>& offloaded = schedule.shape.offloaded;
  for (Lane& lane : schedule.positions) {
    std::set<std::pair<VirtualStageId, std::uint32_t>> away;
    for (std::size_t i = 0; i < lane.compute.size(); ++i) {
      const Op& op = lane.compute[i];
      if (!offloaded[op.virtual_stage]) continue;
      const std::pair chunk{VirtualStageId{op.virtual_stage}, op.micro_batch};
      if (op.kind == Kind::F && !read_soon(lane, i)) {
        lane.add({Kind::Offload, op.virtual_stage, op.micro_batch, 0});
        away.insert(chunk);
      } else if (reads_stash(op.kind) && away.erase(chunk) > 0) {
        lane.add({Kind::Reload, op.virtual_stage, op.micro_batch, 0});
      }
    }
  }
}

// From the host before each gather from all, to it behind each reduction.            tests/sim/host_weights_test.cpp
void copy_shards(Schedule& schedule) {
  for (Lane& lane : schedule.positions) {
    for (const Op& gather : lane.communication[kGathers])
      if (gather.bucket < kFromFew) lane.add({Kind::Fetch, gather.virtual_stage, gather.micro_batch, gather.bucket});
    std::set<VirtualStageId> there;  // chunks of which the host has gradients
    for (const Op& reduce : lane.communication[kReductions]) {
      const bool adds = !there.insert(VirtualStageId{reduce.virtual_stage}).second;
      lane.add({Kind::Store, reduce.virtual_stage, reduce.micro_batch, adds ? 1u : 0u});
    }
  }
}

// One all-reduce of each table behind all gradients, in which every holder takes part.   tests/sim/tied_tables_test.cpp
void reduce_tables(Schedule& schedule) {
  const Seating seating = schedule.seating();
  for (std::size_t table = 0; schedule.flush && table < schedule.shape.tied.size(); ++table)
    for (const PositionId position : holders_of_table(schedule.shape, table)) {
      const auto own = std::ranges::find_if(
          schedule.shape.tied[table], [&](VirtualStageId v) { return seating.holds(seating.stage_at(position), v); });
      schedule.positions[position].add(shared_op(Kind::TableReduce, *own, 0, static_cast<int>(table)));
    }
}

// One behind all gradients and their sums, in which everybody takes part.                       tests/sim/norm_test.cpp
void reduce_norm(Schedule& schedule) {
  const Seating seating = schedule.seating();
  for (PositionId position = 0; schedule.flush && position < std::ssize(schedule.positions); ++position)
    schedule.positions[position].add(shared_op(Kind::NormReduce, seating.chunk_of(seating.stage_at(position), 0), 0));
}

std::vector<Op> in_units(const std::vector<Op>& whole, const Seating& seating) {
  const int units = seating.units;
  std::vector<Op> ops;
  ops.reserve(whole.size() * at(units));
  for (const Op& op : whole)
    for (int i = 0; i < units; ++i) {
      Op part = op;
      part.with_next = 0;  // halves of a pair are no longer next to one another
      part.virtual_stage =
          static_cast<std::uint16_t>(seating.unit(op.virtual_stage, rule(op.kind).forward ? i : units - 1 - i));
      ops.push_back(part);
    }
  return ops;
}

// The same passes with each of a chunk's in `units` parts, one after the other: forwards from the first unit on, backwards
// from the last. F0 B0 of one chunk in two units: F0 F1 B1 B0. [FSDP23] section 3.2.1        tests/sim/units_test.cpp
void cut_into_units(Schedule& schedule, int units) {
  PP_CHECK(schedule.flush && schedule.shape.units == 1);
  schedule.shape.units = units;
  for (Lane& lane : schedule.positions)
    lane.compute = in_units(lane.compute, schedule.seating());
}

// R before each first backward of a stage that recomputes: B, or BW. It waits for nothing but its forward, so it runs while
// the gradient is still on its way: GPipe's early recomputation.                                    [GPipe19] section 2.3
void add_recomputation(Schedule& schedule) {
  const ScheduleShape& shape = schedule.shape;
  const auto rebuilt = [&](const Op& op) {
    const bool keeps_all = shape.recompute_except_last && op.micro_batch + 1 == at(shape.micro_batches);
    return rule(op.kind).backward && shape.recomputes(shape.stage_of(op.virtual_stage)) && !keeps_all;
  };
  for (Lane& lane : schedule.positions) {
    const auto more = std::ranges::count_if(lane.compute, rebuilt);
    if (more == 0) continue;
    std::vector<Op>& ops = lane.compute;
    std::size_t from = ops.size(), to = from + static_cast<std::size_t>(more);
    ops.resize(to);
    while (from < to) {
      const Op op = ops[--from];
      ops[--to] = op;
      if (!rebuilt(op)) continue;
      ops[--to] = {Kind::R, op.virtual_stage, op.micro_batch, 0};
      ops[to].with_next = from > 0 && ops[from - 1].with_next;  // in the cell of its backward
    }
  }
}

}  // namespace

void expand(const ScheduleRule& rule, const ScheduleShape& shape, Schedule& passes) {
  if (rule.facts.uses_partner) share_memory(passes);
  if (shape.units > 1) cut_into_units(passes, shape.units);
  passes.shape.buckets = shape.buckets, passes.shape.offloaded = shape.offloaded;
  if (has_recompute(shape)) add_recomputation(passes);
  add_reductions_and_updates(passes);
  passes.shape.tied = shape.tied;
  reduce_tables(passes);
  passes.shape.norm = shape.norm;
  if (shape.norm) reduce_norm(passes);
  if (shape.resharding) gather_weights(passes, *shape.resharding);
  passes.shape.updated = shape.updated;
  for (Lane& lane : passes.positions)
    if (shape.updated != UpdatedParts::None) gather_updated(shape, lane);
  if (!shape.offloaded.empty()) offload(passes);
  if (shape.weights_on_host()) copy_shards(passes);
}

std::string gathering_refusal(const Schedule& schedule) {
  if (!schedule.flush) return schedule.name + " updates the weights of one stage while others run";
  if (const ScheduleRule* rule = find_schedule(schedule.name); rule != nullptr && rule->facts.uses_partner)
    return schedule.name + " moves the activations of whole stages";
  if (has_replicas(schedule.shape) || both_ways(schedule.shape.chunk_order))
    return "the holders of a chunk run different micro-batches, and gathers need all of them at a time";
  if (schedule.shape.data_parallel == 1) return "there is one copy, which holds all weights";
  return "";
}

void gather_weights(Schedule& schedule, const Resharding& when) {
  PP_CHECK(gathering_refusal(schedule).empty());
  for (Lane& lane : schedule.positions)
    add_gathers(lane, when);
}

}  // namespace pipewright::sim
