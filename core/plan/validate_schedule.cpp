// validate(Schedule): an independent check of the lists. Two looks, both linear in the ops and over flat arrays, since
// a schedule of half a million ops is checked on every run:
//
//   1. Lists: every op is known, in range, on its own worker, once, and after the ops of its own lane that it needs.
//   2. Deadlock: run the lists without a clock. A worker goes on as long as its next op has what it needs; when nobody
//      can go on and ops are left, the waiting ops form a cycle, and the message walks it.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/folds.hpp"
#include "core/plan/schedule.hpp"

namespace pipewright::core {
namespace {

enum Seen : std::uint8_t { kForward = 1, kRecomputed = 2, kInput = 4, kWeight = 8, kBackward = kInput | kWeight };

struct Checker {
  const Schedule& schedule;
  const ScheduleShape& shape;
  std::size_t chunks = 0, micro_batches = 0;
  Seating seating;
  std::vector<PositionId> first;      // per chunk: of its first holder
  std::vector<int> stage;             // per position
  std::vector<std::uint8_t> seen;     // per (v, m): set of Seen
  std::vector<std::size_t> base;      // first round of each chunk in the arrays per round, and their number at the end
  std::vector<std::uint32_t> bucket;  // per (v, round): all-reduces that are still to run

  explicit Checker(const Schedule& s) : schedule(s), shape(s.shape), seating(s.seating()) {}

  std::size_t index(const Op& op) const { return op.virtual_stage * micro_batches + op.micro_batch; }
  std::size_t rounds_of(int v) const { return static_cast<std::size_t>(schedule.rounds().count(v)); }
  std::size_t round_of(int v, std::uint32_t m) const { return static_cast<std::size_t>(schedule.rounds().of(v, m)); }
  // A flush has one update behind all rounds.
  std::size_t updates_of(int v) const { return schedule.flush ? 1 : rounds_of(v); }
  std::size_t update_of(std::size_t round) const { return schedule.flush ? 0 : round; }
  PositionId position_of(int v, std::uint32_t m) const {
    return seating.position(v, seating.holder_of(v, m), first[at(v)]);
  }
  // Which of the chunks on its worker a chunk is.
  std::size_t local(int v, int position) const {
    return static_cast<std::size_t>(seating.local(v, stage[static_cast<std::size_t>(position)]));
  }
  bool kept(int v, std::size_t m) const {  // not recomputed
    return !shape.recomputes(shape.stage_of(v)) || (shape.recompute_except_last && m + 1 == micro_batches);
  }
  std::string worker(int position) const {
    const int k = stage[static_cast<std::size_t>(position)];
    std::string text = "worker " + std::to_string(position) + " (stage " + std::to_string(k);
    if (shape.replicas_of(k) > 1) text += ", replica " + std::to_string(position - seating.first_position(k));
    return text + ")";
  }

  std::string shape_fault();
  std::string compute_fault(int position);
  std::string op_fault(int position, const Op& op, std::vector<std::uint32_t>& next_update);
  std::string missing_op() const;
  std::string collective_fault(int k) const;
  std::string weights_fault(int position) const;
  std::string updated_fault(int position) const;
  std::string moves_fault(int position) const;
  std::string shards_fault(int position) const;
  std::string tables_fault(int position) const;
  std::string norm_fault(int position) const;
  std::string run() const;
};

std::string Checker::shape_fault() {
  const auto fits = [](const auto& list, std::int64_t size) { return list.empty() || std::ssize(list) == size; };
  const auto below_one = [](int count) { return count < 1; };
  if (shape.stages < 1) return "the schedule has no stage";
  if (shape.virtual_stages < 1 || shape.data_parallel < 1 || shape.units < 1)
    return "virtual stages, units and copies are counted from 1";
  if (shape.slices < 1 || shape.micro_batches % shape.slices != 0)
    return std::to_string(shape.micro_batches) + " passes are not micro-batches of " + std::to_string(shape.slices) +
           " slices";
  if (shape.micro_batches < 1) return "M = " + std::to_string(shape.micro_batches) + ": no micro-batch to run";
  const std::int64_t all = std::int64_t{shape.stages} * shape.virtual_stages * shape.units;
  if (all > 65535) return std::to_string(all) + " virtual stages: at most 65535 have a name in an op";
  if (!fits(shape.replicas, shape.stages) || std::ranges::any_of(shape.replicas, below_one))
    return "replicas: one number from 1 is needed for each stage";
  if (!fits(shape.recompute, shape.stages)) return "recompute: one entry is needed for each stage";
  if (!fits(shape.buckets, all) || std::ranges::any_of(shape.buckets, below_one))
    return "buckets: one number from 1 is needed for each virtual stage";

  chunks = static_cast<std::size_t>(all), micro_batches = static_cast<std::size_t>(shape.micro_batches);
  if (both_ways(shape.chunk_order) && (shape.stages % 2 != 0 || shape.virtual_stages != 1))
    return "both ways, K is even and each stage is one chunk";
  if (shape.pipelines < 2 || shape.pipelines % 2 != 0 ||
      (both_ways(shape.chunk_order) && shape.stages % shape.pipelines != 0))
    return "both ways, there are as many pipelines down as up, and K is a multiple of all of them";
  if (shape.units > 1 && (both_ways(shape.chunk_order) || !shape.replicas.empty() || !schedule.flush))
    return "units are parts of chunks that one worker of a copy holds, in a schedule with a flush";
  if (shape.reduce_each && (!schedule.flush || !shape.replicas.empty()))
    return "reductions after every micro-batch need a flush, and stages without replicas";
  for (const auto& with : shape.tied)
    if (with.size() < 2 || std::ranges::adjacent_find(with, std::greater_equal<>()) != with.end() || with.front() < 0 ||
        with.back() >= all)
      return "tied: two or more virtual stages in ascending order are needed for each table";
  if (!fits(shape.offloaded, all)) return "offloaded: one entry is needed for each virtual stage";
  auto positions = sum_over<std::int64_t>(counted_to(shape.stages), [&](int k) { return shape.replicas_of(k); });
  if (std::ssize(schedule.positions) != positions)
    return "the schedule lists the ops of " + std::to_string(schedule.positions.size()) + " workers, its shape has " +
           std::to_string(positions);
  for (int k = 0; k < shape.stages; ++k)
    stage.insert(stage.end(), static_cast<std::size_t>(shape.replicas_of(k)), k);

  // Before any table is made: its size follows from the lists, not from a number somebody typed.
  auto ops = sum_over<std::size_t>(schedule.positions, [](const Lane& lane) { return lane.compute.size(); });
  if (ops / 2 < chunks * micro_batches)
    return "the lists hold " + std::to_string(ops) + " ops, too few for a forward and a backward of " +
           std::to_string(micro_batches) + " micro-batches on " + std::to_string(chunks) + " virtual stages";
  base.push_back(0);
  for (int v = 0; v < static_cast<int>(chunks); ++v)
    base.push_back(base.back() + rounds_of(v)), first.push_back(seating.position(v, 0));
  seen.assign(chunks * micro_batches, 0);
  return "";
}

// What is wrong with the next op of this lane, given the ops before it.
std::string Checker::op_fault(int position, const Op& op, std::vector<std::uint32_t>& next_update) {
  const int v = op.virtual_stage, k = stage[static_cast<std::size_t>(position)];
  if (static_cast<std::size_t>(v) >= chunks)
    return label(op) + " is of a virtual stage that does not exist: there are " + std::to_string(chunks);
  if (!seating.holds(k, v)) return label(op) + " belongs to stage " + std::to_string(shape.stage_of(v));

  if (op.kind == Kind::Update) {
    std::uint32_t& next = next_update[local(v, position)];
    if (op.micro_batch >= updates_of(v))
      return label(op) + " updates after a round that does not exist: there are " + std::to_string(updates_of(v));
    if (op.micro_batch < next) return label(op) + " stands in the list twice or after a later update";
    if (op.micro_batch > next)
      return label(op) + " comes before the update of round " + std::to_string(next) + " of its stage";
    ++next;
    return "";
  }

  if (op.micro_batch >= micro_batches)
    return label(op) + " is of a micro-batch that does not exist: there are " + std::to_string(micro_batches);
  if (position_of(v, op.micro_batch) != position)
    return label(op) + " belongs to replica " + std::to_string(seating.holder_of(v, op.micro_batch));

  if (shape.slices > 1) {
    const auto slice = static_cast<int>(op.micro_batch) % shape.slices;
    if (op.kind == Kind::F && slice > 0 && !(seen[index(op) - 1] & kForward))
      return label(op) + " reads what the slice before it computes, which comes later";
    if ((op.kind == Kind::B || op.kind == Kind::BW) && slice + 1 < shape.slices && !(seen[index(op) + 1] & kInput))
      return label(op) + " needs the gradients of the slice behind it, which come later";
  }
  std::uint8_t& state = seen[index(op)];
  const auto takes = [&](std::uint8_t what, std::uint8_t needs, const char* why) -> std::string {
    if (state & what) return label(op) + " stands in the lists twice";
    if ((state & needs) != needs) return label(op) + why;
    // An update of this round or a later one has closed the round.
    if ((what & kWeight) && next_update[local(v, position)] > update_of(round_of(v, op.micro_batch)))
      return label(op) + " comes after the update that needs it";
    state |= what;
    return "";
  };
  switch (op.kind) {
    case Kind::F: return takes(kForward, 0, "");
    case Kind::R:
      if (kept(v, op.micro_batch)) return label(op) + " recomputes what its stage keeps";
      if (state & kInput) return label(op) + " comes after its backward";
      return takes(kRecomputed, kForward, " recomputes a forward that has not run");
    case Kind::B:
    case Kind::BW:
      if (!kept(v, op.micro_batch) && (state & kForward) && !(state & kRecomputed))
        return label(op) + " needs the recomputation " + label({Kind::R, op.virtual_stage, op.micro_batch, 0}) +
               " before it";
      return takes(op.kind == Kind::BW ? kBackward : kInput, kForward, " comes before its forward");
    case Kind::W: return takes(kWeight, kForward | kInput, " comes before its input gradient");
    default: return label(op) + " (" + std::string(name(op.kind)) + ") is not an op of a compute stream";
  }
}

std::string Checker::compute_fault(int position) {
  const auto& ops = schedule.positions[position].compute;
  std::vector<std::uint32_t> next_update(static_cast<std::size_t>(seating.held()), 0);
  for (const Op& op : ops)
    if (std::string fault = op_fault(position, op, next_update); !fault.empty()) return worker(position) + ": " + fault;
  for (int chunk = 0; chunk < seating.held(); ++chunk) {
    const int v = seating.chunk_of(stage[static_cast<std::size_t>(position)], chunk);
    if (const std::uint32_t next = next_update[static_cast<std::size_t>(chunk)]; next < updates_of(v))
      return worker(position) + ": " + label({Kind::Update, static_cast<std::uint16_t>(v), next, 0}) + " is missing";
  }
  return "";
}

std::string Checker::missing_op() const {
  for (std::size_t v = 0; v < chunks; ++v)
    for (std::size_t m = 0; m < micro_batches; ++m) {
      const std::uint8_t state = seen[v * micro_batches + m];
      constexpr std::uint8_t kAll = kForward | kBackward;
      if ((state & kAll) == kAll) continue;
      const Kind kind = !(state & kForward) ? Kind::F : !(state & kInput) ? Kind::BW : Kind::W;
      const int position = position_of(static_cast<int>(v), static_cast<std::uint32_t>(m));
      return worker(position) + ": " + label({kind, static_cast<std::uint16_t>(v), static_cast<std::uint32_t>(m), 0}) +
             " is missing";
    }
  return "";
}

// All holders of a chunk (and copies, which run the same lists) take part in each of its all-reduces.
std::string Checker::collective_fault(int k) const {
  const int chunk = seating.chunk_of(k, 0), leader = seating.position(chunk, 0);
  const auto& ops = schedule.positions[leader].communication[kReductions];
  for (int holder = 1; holder < seating.holders(chunk); ++holder) {
    const int position = seating.position(chunk, holder);
    const auto& others = schedule.positions[position].communication[kReductions];
    const auto [a, b] = std::mismatch(ops.begin(), ops.end(), others.begin(), others.end());
    if (a == ops.end() && b == others.end()) continue;
    const auto shown = [](auto at, auto end) { return at == end ? "nothing more" : label(*at); };
    return worker(position) + ": all-reduce " + std::to_string(a - ops.begin()) + " of its list is " +
           shown(b, others.end()) + ", but " + worker(leader) + " has " + shown(a, ops.end()) +
           ": all members of an all-reduce must agree on the order";
  }
  if (!seating.reduced(chunk))
    return ops.empty() ? "" : worker(leader) + ": " + label(ops.front()) + " has no other worker to reduce with";

  std::vector<std::size_t> offset;  // of chunk c of this stage: first (round, bucket)
  std::size_t expected = 0;
  for (int i = 0; i < seating.held(); ++i) {
    const int v = seating.chunk_of(k, i);
    offset.push_back(expected);
    expected += rounds_of(v) * static_cast<std::size_t>(shape.buckets_of(v));
  }
  std::vector<bool> met(std::min(expected, ops.size()));
  for (const Op& op : ops) {
    const int v = op.virtual_stage;
    if (op.kind != Kind::AllReduce)
      return worker(leader) + ": " + label(op) + " (" + std::string(name(op.kind)) +
             ") is not an op of the gradients' stream";
    if (static_cast<std::size_t>(v) >= chunks || !seating.holds(k, v) || op.micro_batch >= rounds_of(v) ||
        op.bucket >= static_cast<std::uint32_t>(shape.buckets_of(v)))
      return worker(leader) + ": " + label(op) + " reduces a stage, round or bucket that is not its own";
    const std::size_t at =
        offset[local(v, leader)] + op.micro_batch * static_cast<std::size_t>(shape.buckets_of(v)) + op.bucket;
    if (at < met.size() && met[at]) return worker(leader) + ": " + label(op) + " stands in the list twice";
    if (at < met.size()) met[at] = true;
  }
  if (ops.size() == expected) return "";
  return worker(leader) + ": " + std::to_string(ops.size()) + " all-reduces for " + std::to_string(expected) +
         " buckets of all rounds";
}

// Of weights that are updated in parts: each is gathered behind every update, or before and beside the first forward of its
// chunk, in the order of these.
std::string Checker::updated_fault(int position) const {
  const bool behind = shape.updated == UpdatedParts::BehindUpdate;
  std::vector<Op> expected;
  std::vector<std::uint8_t> met(chunks);
  for (Op op : schedule.positions[position].compute) {
    if (op.kind != (behind ? Kind::Update : Kind::F) || !seating.reduced(op.virtual_stage)) continue;
    if (!behind && seating.holders(op.virtual_stage) > 1)
      return worker(position) + ": " + label(op) + " waits for weights that others read in another order";
    if (!behind && std::exchange(met[op.virtual_stage], 1) != 0) continue;
    op.kind = Kind::AllGather, op.with_next = 0;
    op.bucket = behind ? kBehindUpdate : kBeforeForward, expected.push_back(op);
    if (!behind) op.bucket = kBesideForward, expected.push_back(op);
  }
  if (schedule.positions[position].communication[kGathers] == expected) return "";
  return worker(position) + ": its weights' stream is not a gather " +
         (behind ? "behind each update" : "before and one beside the first forward of each chunk");
}

// Every copy runs the same gathers, in the order of the compute ops that need them: then none can wait for another.
std::string Checker::weights_fault(int position) const {
  const Lane& lane = schedule.positions[position];
  const std::vector<Op>& gathers = lane.communication[kGathers];
  if (shape.updated != UpdatedParts::None) return updated_fault(position);
  if (gathers.empty()) return "";
  constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();
  const auto slot = [&](const Op& op, bool backward) {
    return (local(op.virtual_stage, position) * micro_batches + op.micro_batch) * 2 + (backward ? 1 : 0);
  };
  std::vector<std::size_t> user(at(seating.held()) * micro_batches * 2, kNowhere);  // first reader, by slot
  for (std::size_t i = 0; i < lane.compute.size(); ++i) {
    const Op& op = lane.compute[i];
    if (op.kind == Kind::W || op.kind == Kind::Update) continue;
    std::size_t& first_user = user[slot(op, op.kind != Kind::F)];
    first_user = std::min(first_user, i);
  }
  std::size_t behind = 0;  // the users of the gathers so far
  for (const Op& gather : gathers) {
    const auto fault = [&](const std::string& what) { return worker(position) + ": " + label(gather) + what; };
    if (gather.kind != Kind::AllGather) return fault(" is not an op of the weights' stream");
    const bool few = shape.resharding && shape.resharding->over > 0;
    if (gather.bucket > (few ? kFromFew + 1 : 1))
      return fault(" is for a pass that does not exist: 0 is forward, 1 backward");
    const int v = gather.virtual_stage;
    if (at(v) >= chunks || !seating.holds(stage[at(position)], v)) return fault(" gathers what is not on its worker");
    if (seating.holders(v) > 1) return fault(" gathers over replicas, which run different micro-batches");
    if (shape.data_parallel == 1) return fault(" has no other worker to gather from");
    const std::size_t i = gather.micro_batch < micro_batches ? user[slot(gather, gather.bucket % 2 == 1)] : kNowhere;
    if (i == kNowhere) return fault(" is needed by no op of its worker");
    if (i < behind) return fault(" stands in the list twice, or behind a gather for a later op");
    // Shards of few are what is left behind a forward.
    std::size_t last = i;
    while (last > 0 && (lane.compute[last - 1].virtual_stage != gather.virtual_stage ||
                        lane.compute[last - 1].kind == Kind::W || lane.compute[last - 1].kind == Kind::Update))
      --last;
    const bool behind_forward = last > 0 && lane.compute[last - 1].kind == Kind::F;
    if ((gather.bucket >= kFromFew) != (few && behind_forward))
      return fault(behind_forward ? " gathers from all, but few have shards"
                                  : " gathers from few, but all have shards");
    behind = i + 1;
  }
  return "";
}

// Of weights in the host's memory a shard comes for each gather, unless that is from few, and one of gradients goes for each
// all-reduce, in the order of those.
std::string Checker::shards_fault(int position) const {
  const Lane& lane = schedule.positions[position];
  std::vector<Op> outs, ins;
  std::vector<std::uint8_t> there(chunks);         // gradients of a chunk that the host has
  for (Op op : lane.communication[kReductions]) {  // which are in order
    const bool adds = std::exchange(there[op.virtual_stage], 1) != 0;
    op.kind = Kind::Store, op.bucket = adds ? 1 : 0, outs.push_back(op);
  }
  for (Op op : lane.communication[kGathers])
    if (op.bucket <= 1) op.kind = Kind::Fetch, ins.push_back(op);
  if (lane.communication[kOut] != outs) return worker(position) + ": its stream out is not a shard for each all-reduce";
  if (lane.communication[kIn] != ins) return worker(position) + ": its stream in is not a shard for each all-gather";
  return "";
}

// What goes out comes back once, and both lists have the order of the compute ops that they stand between: then none can
// wait for another.
std::string Checker::moves_fault(int position) const {
  const Lane& lane = schedule.positions[position];
  const std::vector<Op>&outs = lane.communication[kOut], &ins = lane.communication[kIn];
  if (shape.weights_on_host()) return shards_fault(position);
  if (outs.empty() && ins.empty()) return "";
  const auto slot = [&](const Op& op) { return local(op.virtual_stage, position) * micro_batches + op.micro_batch; };
  std::vector<std::size_t> forward(at(seating.held()) * micro_batches), reader(forward.size(), 0);
  for (std::size_t i = 0; i < lane.compute.size(); ++i) {
    const Op& op = lane.compute[i];
    if (op.kind == Kind::F) forward[slot(op)] = i;
    if ((op.kind == Kind::R || op.kind == Kind::B || op.kind == Kind::BW) && reader[slot(op)] == 0)
      reader[slot(op)] = i;
  }
  std::vector<std::uint8_t> out(forward.size());  // 1: out, 2: back again
  const auto check = [&](const std::vector<Op>& list, Kind kind) -> std::string {
    const bool back = kind == Kind::Reload;
    std::size_t behind = 0;
    for (const Op& op : list) {
      const auto fault = [&](const std::string& what) { return worker(position) + ": " + label(op) + what; };
      const int v = op.virtual_stage;
      if (op.kind != kind) return fault(back ? " is not an op of the stream in" : " is not an op of the stream out");
      if (at(v) >= chunks || !seating.holds(stage[at(position)], v) || op.micro_batch >= micro_batches ||
          position_of(v, op.micro_batch) != position)
        return fault(" moves what is not on its worker");
      if (shape.offloaded.empty() && shape.partner_of(stage[at(position)]) == stage[at(position)])
        return fault(" has no partner: its stage is the one in the middle");
      if (std::exchange(out[slot(op)], back ? 2 : 1) != (back ? 1 : 0))
        return fault(back ? " brings back what is not out" : " stands in the list twice");
      const std::size_t i = back ? reader[slot(op)] : forward[slot(op)];
      if (i < behind)
        return fault(back ? " stands behind one that is needed later" : " stands behind that of a later forward");
      behind = i;
    }
    return "";
  };
  if (std::string fault = check(outs, Kind::Offload); !fault.empty()) return fault;
  if (std::string fault = check(ins, Kind::Reload); !fault.empty()) return fault;
  for (const Op& op : outs)
    if (out[slot(op)] == 1) return worker(position) + ": " + label(op) + " is never brought back";
  return "";
}

// With a flush a worker with chunks of a shared table takes part in one all-reduce of it. Its update of such a chunk waits for
// passes of other workers, so that no pass stands behind it.
std::string Checker::tables_fault(int position) const {
  const Lane& lane = schedule.positions[position];
  const int k = stage[at(position)];
  std::vector<Op> expected;
  const auto shares = [&](int v) {
    return schedule.flush && std::ranges::any_of(shape.tied, [v](const auto& with) {
             return std::ranges::find(with, VirtualStageId{v}) != with.end();
           });
  };
  for (std::uint32_t table = 0; schedule.flush && table < shape.tied.size(); ++table) {
    const auto here = std::ranges::find_if(shape.tied[table], [&](VirtualStageId v) { return seating.holds(k, v); });
    if (here != shape.tied[table].end())
      expected.push_back({Kind::TableReduce, static_cast<std::uint16_t>(int{*here}), 0, table & 0x7fffffffu});
  }
  if (lane.communication[kTables] != expected)
    return worker(position) + ": its tables' stream is not " +
           (expected.empty() ? "empty" : "one all-reduce for each table: " + label(expected.front()));
  std::optional<Op> update;
  for (const Op& op : lane.compute) {
    if (op.kind == Kind::Update && shares(op.virtual_stage))
      update = op;
    else if (op.kind != Kind::Update && update)
      return worker(position) + ": " + label(op) + " stands behind " + label(*update) +
             ", which waits for a table of other workers";
  }
  return "";
}

// With a flush a worker takes part in one all-reduce of the norm, if there is one. Updates wait for passes of all workers, so
// that no pass stands behind one.
std::string Checker::norm_fault(int position) const {
  const Lane& lane = schedule.positions[position];
  const std::vector<Op>& norm = lane.communication[kNorm];
  const bool wanted = shape.norm && schedule.flush;
  const auto right = [&](const Op& op) {
    return op.kind == Kind::NormReduce && op.micro_batch == 0 && op.bucket == 0 && op.virtual_stage < chunks &&
           seating.holds(stage[at(position)], op.virtual_stage);
  };
  if (norm.size() != (wanted ? 1 : 0) || !std::ranges::all_of(norm, right))
    return worker(position) + ": its norm's stream is not " + (wanted ? "one all-reduce of the norm" : "empty");
  const auto update = std::ranges::find(lane.compute, Kind::Update, &Op::kind);
  const auto pass = std::find_if(update, lane.compute.end(), [](const Op& op) { return op.kind != Kind::Update; });
  return !wanted || pass == lane.compute.end() ? ""
                                               : worker(position) + ": " + label(*pass) + " stands behind " +
                                                     label(*update) + ", which waits for the norm of all gradients";
}

// The run without a clock. A group has one list of all-reduces: all its members run the same.
struct CheckedRun {
  const Checker& check;
  std::vector<std::uint8_t> done;              // per (v, m): set of Seen
  std::vector<std::uint32_t> backwards;        // per (v, round): backwards that have not run
  std::vector<std::uint32_t> buckets;          // per (v, update): all-reduces that have not run
  std::vector<std::size_t> next, next_reduce;  // per position; per group
  std::vector<int> ready;                      // positions to look at
  std::vector<std::uint8_t> queued;            // per position

  explicit CheckedRun(const Checker& c)
      : check(c), done(c.seen.size()), backwards(c.base.back()), buckets(c.base.back()) {
    for (int v = 0; v < static_cast<int>(c.chunks); ++v) {
      const std::size_t rounds = c.rounds_of(v);
      for (std::size_t round = 0; round < rounds; ++round) {
        backwards[c.base[std::size_t(v)] + round] =
            static_cast<std::uint32_t>(c.schedule.rounds().micro_batches(v, static_cast<int>(round)));
        if (c.seating.reduced(v))
          buckets[c.base[std::size_t(v)] + c.update_of(round)] += static_cast<std::uint32_t>(c.shape.buckets_of(v));
      }
    }
    next.resize(c.stage.size()), next_reduce.resize(std::size_t(c.shape.stages)), queued.resize(c.stage.size());
    for (int position = static_cast<int>(c.stage.size()); position-- > 0;)
      wake(position);
  }

  const std::vector<Op>& list(int position) const { return check.schedule.positions[position].compute; }
  std::size_t round(int v, std::size_t number) const { return check.base[std::size_t(v)] + number; }
  void wake(int position) {
    if (!queued[std::size_t(position)]) queued[std::size_t(position)] = 1, ready.push_back(position);
  }
  void wake_owner(std::size_t v, std::uint32_t m) { wake(check.position_of(static_cast<VirtualStageId>(v), m)); }

  std::optional<Op> missing(const Op& op) const;
  void finish(const Op& op);
  void reduce(int k);
  void all();
  std::string deadlock() const;
};

Op with(Op op, Kind kind) {
  op.kind = kind;
  return op;
}

// The op from another lane that `op` waits for, or none. What it needs from its own lane stands before it.
std::optional<Op> CheckedRun::missing(const Op& op) const {
  const std::size_t at = check.index(op), M = check.micro_batches;
  if (op.kind == Kind::F && op.virtual_stage > 0 && !(done[at - M] & kForward))
    return Op{Kind::F, static_cast<std::uint16_t>(op.virtual_stage - 1), op.micro_batch, 0};
  if ((op.kind == Kind::B || op.kind == Kind::BW) && std::size_t{op.virtual_stage} + 1 < check.chunks &&
      !(done[at + M] & kInput))
    return Op{Kind::BW, static_cast<std::uint16_t>(op.virtual_stage + 1), op.micro_batch, 0};
  if (op.kind == Kind::Update && buckets[round(op.virtual_stage, op.micro_batch)] > 0)
    return Op{Kind::AllReduce, op.virtual_stage, op.micro_batch, 0};
  return std::nullopt;
}

void CheckedRun::finish(const Op& op) {
  const std::size_t v = op.virtual_stage;
  if (op.kind == Kind::F) {
    done[check.index(op)] |= kForward;
    if (v + 1 < check.chunks) wake_owner(v + 1, op.micro_batch);
  }
  if (op.kind == Kind::B || op.kind == Kind::BW) {
    done[check.index(op)] |= kInput;
    if (v > 0) wake_owner(v - 1, op.micro_batch);
  }
  if (op.kind == Kind::W || op.kind == Kind::BW) {
    if (--backwards[round(int(v), check.round_of(int(v), op.micro_batch))] == 0) reduce(check.seating.group_of(int(v)));
  }
}

// Runs the all-reduces of a group that have all they need.
void CheckedRun::reduce(int k) {
  const int chunk = check.seating.chunk_of(k, 0);
  if (!check.seating.reduced(chunk)) return;
  const auto& ops = check.schedule.positions[check.seating.position(chunk, 0)].communication[kReductions];
  for (std::size_t& at = next_reduce[std::size_t(k)]; at < ops.size(); ++at) {
    const std::size_t which = round(ops[at].virtual_stage, ops[at].micro_batch);
    if (backwards[which] > 0) return;
    if (--buckets[round(ops[at].virtual_stage, check.update_of(ops[at].micro_batch))] > 0) continue;
    for (int holder = 0; holder < check.seating.holders(chunk); ++holder)
      wake(check.seating.position(chunk, holder));
  }
}

void CheckedRun::all() {
  while (!ready.empty()) {
    const int position = ready.back();
    ready.pop_back();
    const auto& ops = list(position);
    std::size_t& at = next[std::size_t(position)];
    while (at < ops.size() && !missing(ops[at]))
      finish(ops[at++]);
    // Only now: what this worker's own ops bring it has been seen by the loop above.
    queued[std::size_t(position)] = 0;
  }
}

// Walks from waiting op to what it waits for, to the op that this one's worker is stuck at, until a worker comes again.
std::string CheckedRun::deadlock() const {
  int position = 0;
  while (position < static_cast<int>(next.size()) && next[std::size_t(position)] == list(position).size())
    ++position;
  if (position == static_cast<int>(next.size())) return "";

  // Owner of the op that a worker waits for; of an all-reduce: the first worker whose backward it lacks.
  const auto owner = [&](const Op& op) {
    if (op.kind != Kind::AllReduce) return check.position_of(op.virtual_stage, op.micro_batch);
    const StageId k = check.seating.group_of(op.virtual_stage);
    const VirtualStageId chunk = check.seating.chunk_of(k, 0);
    const PositionId leader = check.seating.position(chunk, 0);
    const auto& reduces = check.schedule.positions[leader].communication[kReductions];
    const Op& head = reduces[next_reduce[std::size_t(k)]];
    for (int holder = 0; holder < check.seating.holders(chunk); ++holder) {
      const PositionId p = check.seating.position(chunk, holder);
      for (std::size_t i = next[std::size_t(p)]; i < list(p).size(); ++i) {
        const Op& later = list(p)[i];
        if ((later.kind == Kind::W || later.kind == Kind::BW) && later.virtual_stage == head.virtual_stage &&
            check.round_of(later.virtual_stage, later.micro_batch) == head.micro_batch)
          return p;
      }
    }
    return leader;
  };
  std::vector<std::uint8_t> met(next.size());
  while (!met[std::size_t(position)]) {
    met[std::size_t(position)] = 1;
    position = owner(*missing(list(position)[next[std::size_t(position)]]));
  }
  const int start = position;  // on the cycle
  Op stuck = list(position)[next[std::size_t(position)]];
  std::string text = check.worker(position) + ": " + label(stuck);
  for (int links = 0;; ++links) {
    Op needed = *missing(stuck);
    position = owner(needed);
    const auto rest = list(position).begin() + static_cast<std::ptrdiff_t>(next[std::size_t(position)]);
    if (needed.kind == Kind::BW) {  // or B, where the worker splits its backwards
      const auto split = std::find(rest, list(position).end(), with(needed, Kind::B));
      if (split != list(position).end()) needed = *split;
    }
    stuck = *rest;
    text += " waits for " + label(needed);
    if (needed.kind == Kind::AllReduce)
      text += ", which needs a backward of worker " + std::to_string(position) + " that stands after " + label(stuck);
    else if (stuck != needed)
      text += ", which worker " + std::to_string(position) + " runs after " + label(stuck);
    if (position == start) return text + ": deadlock";
    if (links == 4) return text + ", and so on back to worker " + std::to_string(start) + ": deadlock";
    text += ", which";
  }
}

std::string Checker::run() const {
  CheckedRun run(*this);
  run.all();
  return run.deadlock();
}

}  // namespace

std::string validate(const Schedule& schedule) {
  Checker check(schedule);
  if (std::string fault = check.shape_fault(); !fault.empty()) return fault;
  for (int position = 0; position < static_cast<int>(check.stage.size()); ++position)
    if (std::string fault = check.compute_fault(position); !fault.empty()) return fault;
  if (std::string fault = check.missing_op(); !fault.empty()) return fault;
  for (int k = 0; k < schedule.shape.stages; ++k)
    if (std::string fault = check.collective_fault(k); !fault.empty()) return fault;
  for (int position = 0; position < static_cast<int>(check.stage.size()); ++position)
    for (const auto& look :
         {&Checker::weights_fault, &Checker::moves_fault, &Checker::tables_fault, &Checker::norm_fault})
      if (std::string fault = (check.*look)(position); !fault.empty()) return fault;
  return check.run();
}

}  // namespace pipewright::core
