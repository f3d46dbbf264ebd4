// The books of one worker, op by op and without a clock: what it holds when an op of its list begins and ends.
// For core/cost/memory_walk.cpp alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/cost/memory_model.hpp"
#include "core/plan/moved.hpp"
#include "core/plan/op_index.hpp"

namespace pipewright::core {

// Versions of one chunk's weights on one worker: the current one, and those that a backward still needs.
class Versions {
 public:
  // `version` is needed until `release`, from the moment it exists.
  void need(int version) {
    if (at(version) >= users_.size()) users_.resize(at(version) + 1);
    if (users_[at(version)]++ == 0 && version <= current_) ++needed_;
  }
  void release(int version) {
    if (--users_[at(version)] == 0) --needed_;
  }
  void update() {
    ++current_;
    if (at(current_) >= users_.size()) users_.resize(at(current_) + 1);
    if (users_[at(current_)] > 0) ++needed_;
  }
  int current() const { return current_; }
  // The current version is there even when no micro-batch in flight uses it; one that nobody needs is overwritten.
  int alive() const { return needed_ + (users_[at(current_)] == 0 ? 1 : 0); }

 private:
  std::vector<int> users_ = {0};  // by version: micro-batches whose backward is still to come
  int current_ = 0;
  int needed_ = 0;  // versions up to the current one with users
};

// What ops take and give back in addition, where states are sharded: weights while they are gathered, and gradients of a
// round before they are. By op of a lane; empty: nothing.
struct Whole {
  std::vector<Bytes> weights_taken, weights_given, gradients_taken, gradients_given;

  Whole(const MemoryModel& memory, const Schedule& schedule, const Lane& lane) {
    const auto any = [](const ChunkMemory& chunk) { return chunk.gathered + chunk.unreduced > Bytes{}; };
    if (std::none_of(memory.chunks.begin(), memory.chunks.end(), any)) return;
    for (auto* const list : {&weights_taken, &weights_given, &gradients_taken, &gradients_given})
      list->resize(lane.compute.size());
    add_weights(memory, lane);
    add_gradients(memory, schedule.rounds(), lane);
  }

 private:
  // Room is there from the start of the op that lets the gather begin (of the reader, if the op before it gives the same
  // weights away), to the last reader before the next gather.
  void add_weights(const MemoryModel& memory, const Lane& lane) {
    const std::vector<Op>& gathers = lane.communication[kGathers];
    std::map<VirtualStageId, std::size_t> reader;  // of chunks that are whole, the last one so far
    const auto give = [&](std::size_t op) {
      weights_given[op] += memory.chunks[lane.compute[op].virtual_stage].gathered;
    };
    std::size_t next = 0;
    for (std::size_t i = 0; i < lane.compute.size(); ++i) {
      const Op& op = lane.compute[i];
      if (!rule(op.kind).weights) continue;
      const VirtualStageId v = op.virtual_stage;
      if (next < gathers.size() && gathers[next].virtual_stage == v && gathers[next].micro_batch == op.micro_batch &&
          pass_of_gather(gathers[next]) == pass_of(op.kind)) {
        const auto before = reader.find(v);
        if (before != reader.end()) give(before->second);
        const bool away = before != reader.end() && before->second + 1 == i;
        weights_taken[i == 0 || away ? i : i - 1] += memory.chunks[v].gathered;
        if (gathers[next].bucket >= kFromFew) {  // a shard of few stays in between, until the gather is over
          PP_CHECK(before != reader.end() && i > 0);
          weights_given[before->second] -= memory.chunks[v].resharded;
          weights_given[i - 1] += memory.chunks[v].resharded;
        }
        ++next;
      }
      reader[v] = i;
    }
    for (const auto& [v, last] : reader)
      give(last);
  }

  void add_gradients(const MemoryModel& memory, const Rounds& rounds, const Lane& lane) {
    struct Backward {
      VirtualStageId v;
      int round;
      std::size_t op;
      auto operator<=>(const Backward&) const = default;
    };
    std::vector<Backward> all;
    for (std::size_t i = 0; i < lane.compute.size(); ++i) {
      const Op& op = lane.compute[i];
      if (rule(op.kind).gradients && memory.chunks[op.virtual_stage].unreduced != Bytes{})
        all.push_back({op.virtual_stage, rounds.of(op.virtual_stage, op.micro_batch), i});
    }
    std::sort(all.begin(), all.end());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto same = [&](std::size_t other) { return all[other].v == all[i].v && all[other].round == all[i].round; };
      const Bytes unreduced = memory.chunks[all[i].v].unreduced;
      if (i == 0 || !same(i - 1)) gradients_taken[all[i].op] += unreduced;
      if (i + 1 == all.size() || !same(i + 1)) gradients_given[all[i].op] += unreduced;
    }
  }
};

// Most that a worker's partner holds for it, without a clock: from the end of a forward to the begin of its first reader.
inline MovedStash most_moved(const MemoryModel& memory, const Schedule& schedule, PositionId position) {
  const Lane& lane = schedule.positions[position];
  const Moved moved(lane, schedule.shape.leaving_under_forward());
  MovedStash now, most;
  if (!moved.any()) return most;
  const auto change = [&](const Op& op, std::int64_t sign) {
    const MovedStash one = moved_stash(memory.chunks[op.virtual_stage], schedule.shape, op);
    now.stash += sign * one.stash, now.rounding += sign * one.rounding;
  };
  std::size_t in = 0;
  for (std::size_t i = 0; i < lane.compute.size(); ++i) {
    // The op before this one let a reload begin, which is over now.
    if (i > 0 && moved.at(i - 1).returns != Moved::kNone) change(lane.communication[kIn][in++], -1);
    if (const std::int32_t out = moved.at(i).leaves; out >= 0) change(lane.communication[kOut][at(out)], 1);
    if (now.stash + now.rounding > most.stash + most.rounding) most = now;
  }
  return most;
}

// The books of one worker: `begin` allocates what an op needs, `end` releases what it was the last to need.
class Ledger {
 public:
  // With a clock what is moved to a partner is booked by its times (Buffers), else here.
  enum class Clock : std::uint8_t { None, Timeline };
  Ledger(const MemoryModel& memory, const Schedule& schedule, PositionId position, const std::vector<int>& updates_seen,
         Clock clock)
      : memory_(memory),
        lane_(schedule.positions[position]),
        whole_(memory, schedule, lane_),
        moved_(lane_, schedule.shape.leaving_under_forward()),
        clock_(clock),
        shape_(schedule.shape),
        asynchronous_(!schedule.flush),
        seating_(schedule.seating()),
        stage_(seating_.stage_at(position)),
        rows_(static_cast<std::size_t>(seating_.most_turns(seating_.chunk_of(stage_, 0)))),
        progress_(rows_ * at(seating_.held())) {
    bytes_.reserve = memory.room(stage_).reserve;
    fixed_ = memory.fixed_of(stage_);
    bytes_.workspace = fixed_.always;
    for (int i = 0; i < seating_.held(); ++i) {
      const ChunkMemory& chunk = memory.chunks[seating_.chunk_of(stage_, i)];
      bytes_.weights += chunk.weights;
      bytes_.gradients += chunk.gradients;
      bytes_.optimizer += chunk.optimizer;
      bytes_.rounding += chunk.rounding;
    }
    const StageId partner = shape_.partner_of(stage_);
    if (clock_ == Clock::None && partner != stage_ && partner >= 0) {
      const MovedStash kept = most_moved(memory, schedule, seating_.first_position(partner));
      bytes_.stash += kept.stash, bytes_.rounding += kept.rounding;
    }
    if (!asynchronous_) return;
    versions_.resize(at(seating_.held()));
    version_used_.resize(progress_.size());
    if (!updates_seen.empty()) promise(schedule.positions[position], updates_seen);
  }

  // The i-th op of the lane.
  void begin(std::size_t i) {
    if (!whole_.weights_taken.empty()) {
      bytes_.weights += whole_.weights_taken[i];
      bytes_.gradients += whole_.gradients_taken[i];
    }
    if (moved_.any()) move_at(moved_.at(i));
    begin(lane_.compute[i]);
  }

  void end(std::size_t i) {
    end(lane_.compute[i]);
    if (moved_.any() && moved_.at(i).leaves >= 0 && shape_.offloaded.empty()) --in_flight_;
    if (whole_.weights_given.empty()) return;
    bytes_.weights -= whole_.weights_given[i];
    bytes_.gradients -= whole_.gradients_given[i];
  }

  const MemoryBytes& bytes() const { return bytes_; }
  int most_in_flight() const { return most_in_flight_; }
  int most_versions() const { return most_versions_; }

 private:
  void begin(const Op& op) {
    const ChunkMemory& chunk = memory_.chunks[op.virtual_stage];
    const KindRule& does = rule(op.kind);
    const std::size_t size = is_last(op) ? 1 : 0;
    if (!does.updates) bytes_.workspace = fixed_.always + fixed_.running + chunk.workspace[size];
    if (does.stashes) {
      hold(chunk, size, is_recomputed(op), 1);
      most_in_flight_ = std::max(most_in_flight_, ++in_flight_);
      if (asynchronous_ && !promised_) use_current_version(op);
    }
    if (does.rebuilds) {
      rebuild(chunk, size, 1);
      progress_[row(op)] |= kRebuilt;
    }
    if (does.backward) bytes_.recompute += chunk.core[size];
    if (does.updates && asynchronous_) change_versions(op, [](Versions& versions) { versions.update(); });
  }

  void end(const Op& op) {
    const bool input = rule(op.kind).backward, weights = rule(op.kind).gradients;
    bytes_.workspace = fixed_.always;
    if (input) bytes_.recompute -= memory_.chunks[op.virtual_stage].core[is_last(op) ? 1 : 0];
    if (!input && !weights) return;
    std::uint8_t& progress = progress_[row(op)];
    progress |= (input ? kInputDone : 0) | (weights ? kWeightDone : 0);
    if (input != weights && memory_.kept_for_weights < 1) give_for_a_while(op, input ? -1 : 1);
    if ((progress & kInputDone) && (progress & kWeightDone)) finish_backward(op);
  }

  static constexpr std::uint8_t kInputDone = 1, kWeightDone = 2, kRebuilt = 4;

  std::size_t local(const Op& op) const { return at(seating_.local(op.virtual_stage, stage_)); }
  std::size_t row(const Op& op) const {
    return local(op) * rows_ + static_cast<std::size_t>(seating_.turn_of(op.virtual_stage, op.micro_batch));
  }
  bool is_last(const Op& op) const { return op.micro_batch + 1 == static_cast<std::uint32_t>(shape_.micro_batches); }
  bool is_recomputed(const Op& op) const {
    return recomputed(shape_, op.virtual_stage, static_cast<MicroBatchId>(op.micro_batch));
  }

  // A micro-batch's stash comes (1) or goes (-1); so does what R rebuilds.
  void hold(const ChunkMemory& chunk, std::size_t size, bool boundary_only, std::int64_t sign) {
    bytes_.stash += sign * (boundary_only ? chunk.boundary[size] : chunk.stash[size] - chunk.logits[size]);
    bytes_.rounding += sign * (boundary_only ? chunk.rounding_boundary[size] : chunk.rounding_stash[size]);
    if (!boundary_only) bytes_.logits += sign * chunk.logits[size];
  }
  void rebuild(const ChunkMemory& chunk, std::size_t size, std::int64_t sign) {
    bytes_.recompute += sign * (chunk.working[size] - chunk.logits[size]);
    bytes_.rounding += sign * chunk.rounding_working[size];
    bytes_.logits += sign * chunk.logits[size];
  }

  void move_at(const Moved::AtOp& op) {
    const auto change = [&](const Op& moved, std::int64_t sign) {
      if (clock_ == Clock::Timeline) return;
      const MovedStash one = moved_stash(memory_.chunks[moved.virtual_stage], shape_, moved);
      bytes_.stash += sign * one.stash, bytes_.rounding += sign * one.rounding;
    };
    if (op.gone >= 0) change(lane_.communication[kOut][at(op.gone)], -1);
    if (op.returns >= 0) change(lane_.communication[kIn][at(op.returns)], 1);
    if (op.returns != Moved::kNone && shape_.offloaded.empty())
      most_in_flight_ = std::max(most_in_flight_, ++in_flight_);
  }

  // What the W of a micro-batch does not need goes with its B. finish_backward gives all of it.
  void give_for_a_while(const Op& op, std::int64_t sign) {
    const ChunkMemory& chunk = memory_.chunks[op.virtual_stage];
    const std::size_t size = is_last(op) ? 1 : 0;
    const auto needless = [&](Bytes all) {
      return Bytes{all.value - std::llround(memory_.kept_for_weights * static_cast<double>(all.value))};
    };
    bytes_.stash += sign * needless(is_recomputed(op) ? chunk.boundary[size] : chunk.stash[size] - chunk.logits[size]);
    if (progress_[row(op)] & kRebuilt) bytes_.recompute += sign * needless(chunk.working[size] - chunk.logits[size]);
  }

  void finish_backward(const Op& op) {
    const ChunkMemory& chunk = memory_.chunks[op.virtual_stage];
    const std::size_t size = is_last(op) ? 1 : 0;
    hold(chunk, size, is_recomputed(op), -1);
    if (progress_[row(op)] & kRebuilt) rebuild(chunk, size, -1);
    --in_flight_;
    if (asynchronous_)
      change_versions(op, [used = version_used_[row(op)]](Versions& versions) { versions.release(used); });
  }

  void use_current_version(const Op& op) {
    change_versions(op, [used = &version_used_[row(op)]](Versions& versions) {
      *used = versions.current();
      versions.need(*used);
    });
  }

  void change_versions(const Op& op, const auto& change) {
    Versions& versions = versions_[local(op)];
    const int before = versions.alive();
    change(versions);
    const ChunkMemory& chunk = memory_.chunks[op.virtual_stage];
    bytes_.weights += (chunk.weights - chunk.frozen) * (versions.alive() - before);
    most_versions_ = std::max(most_versions_, versions.alive());
  }

  // Vertical sync: the versions that this worker's micro-batches will ask for are known from stage 0, and each
  // is kept from its birth to its last user.
  void promise(const Lane& lane, const std::vector<int>& updates_seen) {
    promised_ = true;
    std::vector<int> updates(versions_.size());
    for (const Op& op : lane.compute) {
      if (rule(op.kind).updates) ++updates[local(op)];
      if (!rule(op.kind).stashes) continue;
      version_used_[row(op)] =
          version_asked(seating_, op.virtual_stage, updates_seen[op.micro_batch], updates[local(op)]);
      versions_[local(op)].need(version_used_[row(op)]);
    }
  }

  const MemoryModel& memory_;
  const Lane& lane_;
  const Whole whole_;
  const Moved moved_;
  const Clock clock_;
  const ScheduleShape& shape_;
  const bool asynchronous_;
  const Seating seating_;
  const StageId stage_;
  const std::size_t rows_;              // micro-batches that come by this worker, for each of its chunks
  std::vector<std::uint8_t> progress_;  // [chunk here][micro-batch here]: what of the backward has happened
  std::vector<int> version_used_;       // likewise; asynchronous schedules only
  std::vector<Versions> versions_;      // [chunk here]
  bool promised_ = false;
  FixedMemory fixed_;
  MemoryBytes bytes_;
  int in_flight_ = 0, most_in_flight_ = 0, most_versions_ = 1;
};

}  // namespace pipewright::core
